/* lm_bundle.c: see lm_bundle.h: opening a model file and everything that belongs to it. */
#include "bundle/lm_bundle.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct lm_bundle {
    atomic_size_t references;
    gguf *file; /* kept: names and the template are borrowed from it */
    tokenizer *tok;
    template *chat;     /* NULL: the file has none */
    status chat_status; /* of a template that does not parse: reported when it is asked for */
    error chat_error;
    gguf_string template_source;
    const kernels *k;
    pool *p;
    lm_model *model;
    gguf *draft_file; /* NULL: no draft model */
    lm_model *draft;
    engine *e;
    char *name;
    double load_seconds;
    sampler_params sampling;
};

static status read_name(lm_bundle *b, const char *path, error *err) {
    gguf_string name;
    TRY(gguf_get_string_or_null(b->file, "general.name", &name, err));
    if (name.data && name.len > 0 && utf8_validate(name.data, name.len) == name.len) {
        b->name = mem_strndup(name.data, name.len);
    } else {
        const char *slash = strrchr(path, '/');
        b->name = mem_strdup(slash ? slash + 1 : path);
    }
    return b->name ? CHURON_OK : error_no_memory(err, "name", 0);
}

/* A template that does not parse must not keep the model from answering raw prompts, but it is an error for
 * whoever asks for a chat. Only running out of memory ends the opening. */
static status read_template(lm_bundle *b, error *err) {
    TRY(gguf_get_string_or_null(b->file, "tokenizer.chat_template", &b->template_source, err));
    if (!b->template_source.data) return CHURON_OK;
    b->chat_status =
        template_parse(&b->chat, b->template_source.data, b->template_source.len, &b->chat_error);
    if (b->chat_status == CHURON_INVALID) { /* the file is wrong, not what somebody asked */
        b->chat_status = b->chat_error.code = CHURON_CORRUPT;
    }
    if (b->chat_status == CHURON_NO_MEMORY) {
        if (err) *err = b->chat_error;
        return b->chat_status;
    }
    return CHURON_OK;
}

/* The file's own recommendations, where it has any. */
static status read_sampling(lm_bundle *b, error *err) {
    b->sampling = sampler_defaults();
    sampler_params *p = &b->sampling;
    TRY(gguf_get_f32_or(b->file, "general.sampling.temp", p->temperature, &p->temperature, err));
    TRY(gguf_get_u32_or(b->file, "general.sampling.top_k", p->top_k, &p->top_k, err));
    TRY(gguf_get_f32_or(b->file, "general.sampling.top_p", p->top_p, &p->top_p, err));
    TRY(gguf_get_f32_or(b->file, "general.sampling.min_p", p->min_p, &p->min_p, err));
    TRY(gguf_get_f32_or(b->file, "general.sampling.penalty_repeat", p->repeat_penalty, &p->repeat_penalty,
                        err));
    TRY(gguf_get_u32_or(b->file, "general.sampling.penalty_last_n", p->repeat_last_n, &p->repeat_last_n,
                        err));
    TRY(gguf_get_f32_or(b->file, "general.sampling.xtc_probability", p->xtc_probability, &p->xtc_probability,
                        err));
    TRY(gguf_get_f32_or(b->file, "general.sampling.xtc_threshold", p->xtc_threshold, &p->xtc_threshold, err));
    status st = sampler_check(p, tokenizer_n_tokens(b->tok), err);
    if (st != CHURON_OK) error_prefix(err, "general.sampling");
    return st;
}

/* Guesses are tokens: those of the draft model must mean what the model's do. */
static status check_same_tokens(const lm_bundle *b, const tokenizer *draft, error *err) {
    const size_t n = tokenizer_n_tokens(b->tok);
    if (tokenizer_n_tokens(draft) != n) {
        return error_set(err, CHURON_INVALID, "expected the model's vocabulary of %zu tokens, got %zu tokens",
                         n, tokenizer_n_tokens(draft));
    }
    for (size_t i = 0; i < n; i++) {
        const token_text want = tokenizer_bytes(b->tok, (int32_t)i), got = tokenizer_bytes(draft, (int32_t)i);
        if (want.len == got.len && memcmp(want.data, got.data, got.len) == 0) continue;
        return error_set(err, CHURON_INVALID, "expected the model's vocabulary, got another token %zu", i);
    }
    return CHURON_OK;
}

static status open_draft(lm_bundle *b, const char *path, error *err) {
    tokenizer *tok = NULL;
    TRY(gguf_open(&b->draft_file, path, err));
    status st = tokenizer_from_gguf(&tok, b->draft_file, err);
    if (st == CHURON_OK) st = check_same_tokens(b, tok, err);
    tokenizer_free(tok);
    if (st == CHURON_OK) st = lm_model_load(&b->draft, b->draft_file, b->k, b->p, err);
    if (st != CHURON_OK) error_prefix(err, "draft model");
    return st;
}

static status open_engine(lm_bundle *b, const lm_bundle_options *o, error *err) {
    TRY(kernels_select(&b->k, err));
    TRY(pool_create(&b->p, o->threads ? o->threads : pool_physical_cores(), err));
    TRY(lm_model_load(&b->model, b->file, b->k, b->p, err));
    if (b->model->config.n_vocab != tokenizer_n_tokens(b->tok)) {
        return error_set(err, CHURON_CORRUPT,
                         "token_embd.weight: expected %zu rows (the tokenizer's tokens), got %u",
                         tokenizer_n_tokens(b->tok), b->model->config.n_vocab);
    }
    engine_options options = o->engine;
    if (o->draft && !options.no_speculation) {
        TRY(open_draft(b, o->draft, err));
        options.draft = b->draft;
    }
    return engine_create(&b->e, b->model, b->p, &options, err);
}

status lm_bundle_open(lm_bundle **out, const char *path, const lm_bundle_options *o, error *err) {
    static const lm_bundle_options defaults;
    *out = NULL;
    status st = CHURON_OK;
    if (!o) o = &defaults;
    double start = clock_seconds();
    lm_bundle *b = mem_calloc(1, sizeof *b);
    if (!b) return error_no_memory(err, "model", sizeof *b);
    atomic_init(&b->references, 1);
    TRY_GOTO(gguf_open_in(&b->file, path, o->offset, o->size ? o->size : UINT64_MAX, err));
    TRY_GOTO(read_name(b, path, err));
    TRY_GOTO(tokenizer_from_gguf(&b->tok, b->file, err));
    TRY_GOTO(read_template(b, err));
    TRY_GOTO(read_sampling(b, err));
    if (!o->text_only) TRY_GOTO(open_engine(b, o, err));
    b->load_seconds = clock_seconds() - start;
    *out = b;
    b = NULL;
cleanup:
    lm_bundle_close(b);
    return st;
}

lm_bundle *lm_bundle_ref(lm_bundle *b) {
    /* Relaxed: the caller holds a reference already, nothing is published by taking another. */
    atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
    return b;
}

void lm_bundle_close(lm_bundle *b) {
    /* Acquire-release: the last one out must see what every other user did before it let go. */
    if (!b || atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) != 1) return;
    engine_free(b->e);
    lm_model_free(b->model);
    lm_model_free(b->draft);
    pool_free(b->p);
    template_free(b->chat);
    tokenizer_free(b->tok);
    gguf_free(b->file);
    gguf_free(b->draft_file);
    mem_free(b->name);
    mem_free(b);
}

const tokenizer *lm_bundle_tokenizer(const lm_bundle *b) {
    return b->tok;
}

const lm_model *lm_bundle_model(const lm_bundle *b) {
    return b->model;
}

engine *lm_bundle_engine(lm_bundle *b) {
    return b->e;
}

const char *lm_bundle_name(const lm_bundle *b) {
    return b->name;
}

bool lm_bundle_has_template(const lm_bundle *b) {
    return b->template_source.data != NULL;
}

const char *lm_bundle_template_source(const lm_bundle *b, size_t *len) {
    *len = b->template_source.len;
    return b->template_source.data;
}

size_t lm_bundle_threads(const lm_bundle *b) {
    return b->p ? pool_threads(b->p) : 0;
}

double lm_bundle_load_seconds(const lm_bundle *b) {
    return b->load_seconds;
}

sampler_params lm_bundle_sampling_defaults(const lm_bundle *b) {
    return b->sampling;
}

bool lm_bundle_names_temperature(const lm_bundle *b) {
    return gguf_find(b->file, "general.sampling.temp") != NULL;
}

/* ---- prompts ---------------------------------------------------------------------------------------- */

static tvalue *token_text_value(tarena *a, const lm_bundle *b, int32_t id) {
    if (id < 0) return tvalue_string(a, "", 0);
    token_text t = tokenizer_bytes(b->tok, id);
    return tvalue_string(a, t.data, t.len);
}

static tvalue *chat_context(tarena *a, const lm_bundle *b, const chat_message *messages, size_t n,
                            bool add_generation_prompt) {
    tvalue *list = tvalue_list(a);
    for (size_t i = 0; i < n; i++) {
        tvalue *m = tvalue_dict(a);
        m = tvalue_dict_set(a, m, "role", tvalue_string(a, messages[i].role, messages[i].role_len));
        m = tvalue_dict_set(a, m, "content", tvalue_string(a, messages[i].content, messages[i].content_len));
        list = tvalue_list_add(a, list, m);
    }
    tvalue *context = tvalue_dict(a);
    context = tvalue_dict_set(a, context, "messages", list);
    context = tvalue_dict_set(a, context, "add_generation_prompt", tvalue_bool(a, add_generation_prompt));
    context = tvalue_dict_set(a, context, "bos_token", token_text_value(a, b, tokenizer_bos(b->tok)));
    context = tvalue_dict_set(a, context, "eos_token", token_text_value(a, b, tokenizer_eos(b->tok)));
    /* What transformers passes when a chat has no tools and no documents. */
    context = tvalue_dict_set(a, context, "tools", tvalue_none(a));
    return tvalue_dict_set(a, context, "documents", tvalue_none(a));
}

status lm_bundle_chat_prompt(const lm_bundle *b, const chat_message *messages, size_t n,
                             bool add_generation_prompt, str *out, error *err) {
    if (!b->template_source.data) {
        return error_set(
            err, CHURON_UNSUPPORTED,
            "tokenizer.chat_template: expected a template, got none: this model is not made for chat; "
            "give a raw prompt");
    }
    if (b->chat_status != CHURON_OK) {
        if (err) *err = b->chat_error;
        error_prefix(err, "tokenizer.chat_template");
        return b->chat_status;
    }
    for (size_t i = 0; i < n; i++) {
        size_t bad = utf8_validate(messages[i].content, messages[i].content_len);
        if (bad != messages[i].content_len) {
            return error_set(err, CHURON_INVALID,
                             "messages[%zu].content: expected UTF-8, got byte 0x%02x at offset %zu", i,
                             (unsigned char)messages[i].content[bad], bad);
        }
    }
    tarena *a;
    TRY(tarena_create(&a, err));
    tvalue *context = chat_context(a, b, messages, n, add_generation_prompt);
    status st = template_render(b->chat, context, clock_unix(), NULL, out, err);
    if (st != CHURON_OK) error_prefix(err, "tokenizer.chat_template");
    tarena_free(a);
    return st;
}
