/* api.c: the public interface (churon.h) over the bundle. It adds nothing but the checks of a caller's
 * arguments: every answer comes from the same code as the program's. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

struct churon_model {
    lm_bundle *bundle;
};

struct churon_sequence {
    lm_bundle *bundle;
    engine_seq *seq;
    float *logits; /* [n_vocab] or NULL before the first call of _logits */
};

static status need(const void *p, const char *name, error *err) {
    return p ? CHURON_OK : error_set(err, CHURON_INVALID, "%s: expected a pointer, got NULL", name);
}

/* A caller compiled against an older header passes a shorter struct: what it lacks keeps its default. Returns
 * false if the size is none that this header ever had. */
static bool copy_options(void *to, size_t to_size, const void *from, size_t least) {
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < least || size > to_size) return false;
    memcpy(to, from, size < to_size ? size : to_size);
    return true;
}

/* ---- model ------------------------------------------------------------------------------------------ */

status churon_model_open(churon_model **out, const char *path, const churon_model_options *options,
                         error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(path, "path", err));
    churon_model_options o = {.size = sizeof o};
    if (options && !copy_options(&o, sizeof o, options, sizeof o)) {
        return error_set(err, CHURON_INVALID, "options.size: expected %zu, got %zu", sizeof o, options->size);
    }
    lm_bundle_options b = {
        .threads = o.threads,
        .engine = {.context = o.context, .max_running = o.max_sequences, .kv_memory = o.kv_memory}};
    churon_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_no_memory(err, "model", sizeof *m);
    status st = lm_bundle_open(&m->bundle, path, &b, err);
    if (st != CHURON_OK) {
        mem_free(m);
        return st;
    }
    *out = m;
    return CHURON_OK;
}

void churon_model_close(churon_model *model) {
    if (!model) return;
    lm_bundle_close(model->bundle);
    mem_free(model);
}

status churon_model_describe(const churon_model *model, churon_model_info *info, error *err) {
    TRY(need(model, "model", err));
    TRY(need(info, "info", err));
    if (info->size < sizeof *info) {
        return error_set(err, CHURON_INVALID, "info.size: expected %zu, got %zu", sizeof *info, info->size);
    }
    const lm_model *m = lm_bundle_model(model->bundle);
    const tokenizer *t = lm_bundle_tokenizer(model->bundle);
    *info = (churon_model_info){.size = sizeof *info,
                                .architecture = m->config.architecture,
                                .name = lm_bundle_name(model->bundle),
                                .parameters = m->config.parameters,
                                .weights_bytes = m->weights_bytes,
                                .n_vocab = m->config.n_vocab,
                                .n_layer = m->config.n_layer,
                                .n_embd = m->config.n_embd,
                                .context = (uint32_t)engine_context(lm_bundle_engine(model->bundle)),
                                .context_trained = m->config.context_trained,
                                .bos = tokenizer_bos(t),
                                .eos = tokenizer_eos(t),
                                .isa = m->k->name,
                                .threads = (uint32_t)lm_bundle_threads(model->bundle)};
    return CHURON_OK;
}

/* ---- text ------------------------------------------------------------------------------------------- */

status churon_tokenize(const churon_model *model, const char *text, size_t text_len, bool special,
                       int32_t *ids, size_t capacity, size_t *n, error *err) {
    TRY(need(model, "model", err));
    TRY(need(n, "n", err));
    if (text_len) TRY(need(text, "text", err));
    if (capacity) TRY(need(ids, "ids", err));
    token_list list = {0};
    tokenize_options o = {.add_special = special, .parse_special = special};
    status st =
        tokenizer_encode(lm_bundle_tokenizer(model->bundle), text_len ? text : "", text_len, o, &list, err);
    if (st == CHURON_OK) {
        *n = list.len;
        size_t copied = list.len < capacity ? list.len : capacity;
        if (copied) memcpy(ids, list.ids, copied * sizeof *ids);
        if (list.len > capacity) {
            st = error_set(err, CHURON_LIMIT, "ids: expected room for %zu, got %zu", list.len, capacity);
        }
    }
    token_list_free(&list);
    return st;
}

/* Hands a string over to a caller's buffer. */
static status copy_out(const str *s, char *text, size_t capacity, size_t *len, error *err) {
    *len = s->len;
    size_t copied = s->len < capacity ? s->len : capacity;
    if (copied) memcpy(text, s->data, copied);
    if (s->len > capacity) {
        return error_set(err, CHURON_LIMIT, "text: expected room for %zu bytes, got %zu", s->len, capacity);
    }
    return CHURON_OK;
}

status churon_detokenize(const churon_model *model, const int32_t *ids, size_t n, bool special, char *text,
                         size_t capacity, size_t *len, error *err) {
    TRY(need(model, "model", err));
    TRY(need(len, "len", err));
    if (n) TRY(need(ids, "ids", err));
    if (capacity) TRY(need(text, "text", err));
    str s = {0};
    status st = tokenizer_decode(lm_bundle_tokenizer(model->bundle), ids, n, special, &s, err);
    if (st == CHURON_OK) st = copy_out(&s, text, capacity, len, err);
    str_free(&s);
    return st;
}

status churon_chat_prompt(const churon_model *model, const churon_message *messages, size_t n, char *text,
                          size_t capacity, size_t *len, error *err) {
    TRY(need(model, "model", err));
    TRY(need(len, "len", err));
    if (n) TRY(need(messages, "messages", err));
    if (capacity) TRY(need(text, "text", err));
    if (n > SIZE_MAX / sizeof(chat_message)) return error_no_memory(err, "messages", n);
    chat_message *list = mem_alloc(n * sizeof *list);
    if (!list) return error_no_memory(err, "messages", n * sizeof *list);
    status st = CHURON_OK;
    str s = {0};
    for (size_t i = 0; i < n; i++) {
        TRY_GOTO(need(messages[i].role, "messages.role", err));
        if (messages[i].content_len) TRY_GOTO(need(messages[i].content, "messages.content", err));
        list[i] = (chat_message){.role = messages[i].role,
                                 .role_len = strlen(messages[i].role),
                                 .content = messages[i].content_len ? messages[i].content : "",
                                 .content_len = messages[i].content_len};
    }
    TRY_GOTO(lm_bundle_chat_prompt(model->bundle, list, n, true, &s, err));
    TRY_GOTO(copy_out(&s, text, capacity, len, err));
cleanup:
    str_free(&s);
    mem_free(list);
    return st;
}

/* ---- sequence --------------------------------------------------------------------------------------- */

status churon_sequence_open(churon_sequence **out, churon_model *model, error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(model, "model", err));
    churon_sequence *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "sequence", sizeof *s);
    status st = engine_seq_open(&s->seq, lm_bundle_engine(model->bundle), NULL, err);
    if (st != CHURON_OK) {
        mem_free(s);
        return st;
    }
    s->bundle = lm_bundle_ref(model->bundle);
    *out = s;
    return CHURON_OK;
}

void churon_sequence_close(churon_sequence *seq) {
    if (!seq) return;
    engine_seq_close(seq->seq);
    lm_bundle_close(seq->bundle);
    mem_free(seq->logits);
    mem_free(seq);
}

status churon_sequence_feed(churon_sequence *seq, const int32_t *ids, size_t n, error *err) {
    TRY(need(seq, "seq", err));
    if (n) TRY(need(ids, "ids", err));
    return engine_seq_append(seq->seq, ids, n, err);
}

size_t churon_sequence_length(const churon_sequence *seq) {
    return seq ? engine_seq_length(seq->seq) : 0;
}

status churon_sequence_truncate(churon_sequence *seq, size_t length, error *err) {
    TRY(need(seq, "seq", err));
    return engine_seq_truncate(seq->seq, length, err);
}

typedef struct logits_inbox {
    float *to;
    size_t n;
    error err;
} logits_inbox;

static void keep_logits(void *user, size_t position, const float *logits) {
    (void)position;
    logits_inbox *box = user;
    memcpy(box->to, logits, box->n * sizeof *logits);
}

static void keep_error(void *user, engine_finish finish, const error *err) {
    logits_inbox *box = user;
    if (err) {
        box->err = *err;
    } else if (finish == ENGINE_CANCELLED) {
        (void)error_set(&box->err, CHURON_CANCELLED, "logits: the engine is stopping");
    }
}

status churon_sequence_logits(churon_sequence *seq, const float **logits, size_t *n_vocab, error *err) {
    TRY(need(seq, "seq", err));
    TRY(need(logits, "logits", err));
    const size_t n = lm_bundle_model(seq->bundle)->config.n_vocab;
    if (!seq->logits) seq->logits = mem_alloc(n * sizeof *seq->logits);
    if (!seq->logits) return error_no_memory(err, "logits", n * sizeof *seq->logits);
    logits_inbox box = {.to = seq->logits, .n = n};
    engine_job *job;
    engine_job_options o = {.user = &box, .on_logits = keep_logits, .on_end = keep_error};
    TRY(engine_submit(&job, seq->seq, &o, err));
    engine_finish finish = engine_wait(job);
    engine_job_free(job);
    if (finish != ENGINE_LENGTH) {
        if (err) *err = box.err;
        return box.err.code;
    }
    *logits = seq->logits;
    if (n_vocab) *n_vocab = n;
    return CHURON_OK;
}

/* ---- generation ------------------------------------------------------------------------------------- */

void churon_generate_options_init(const churon_model *model, churon_generate_options *options) {
    sampler_params p = model ? lm_bundle_sampling_defaults(model->bundle) : sampler_defaults();
    *options = (churon_generate_options){.size = sizeof *options,
                                         .seed = p.seed,
                                         .temperature = p.temperature,
                                         .top_k = p.top_k,
                                         .top_p = p.top_p,
                                         .min_p = p.min_p,
                                         .typical_p = p.typical_p,
                                         .repeat_penalty = p.repeat_penalty,
                                         .repeat_last_n = p.repeat_last_n,
                                         .frequency_penalty = p.frequency_penalty,
                                         .presence_penalty = p.presence_penalty,
                                         .dry_multiplier = p.dry_multiplier,
                                         .dry_base = p.dry_base,
                                         .dry_allowed_length = p.dry_allowed_length,
                                         .xtc_probability = p.xtc_probability,
                                         .xtc_threshold = p.xtc_threshold};
}

static generation_request request_of(const churon_generate_options *o) {
    generation_request r = {.sampling = sampler_defaults(),
                            .max_tokens = o->max_tokens,
                            .ignore_eos = o->ignore_eos,
                            .stop = o->stop,
                            .n_stop = o->n_stop};
    r.sampling.seed = o->seed;
    r.sampling.temperature = o->temperature;
    r.sampling.top_k = o->top_k;
    r.sampling.top_p = o->top_p;
    r.sampling.min_p = o->min_p;
    r.sampling.typical_p = o->typical_p;
    r.sampling.repeat_penalty = o->repeat_penalty;
    r.sampling.repeat_last_n = o->repeat_last_n;
    r.sampling.frequency_penalty = o->frequency_penalty;
    r.sampling.presence_penalty = o->presence_penalty;
    r.sampling.dry_multiplier = o->dry_multiplier;
    r.sampling.dry_base = o->dry_base;
    r.sampling.dry_allowed_length = o->dry_allowed_length;
    r.sampling.xtc_probability = o->xtc_probability;
    r.sampling.xtc_threshold = o->xtc_threshold;
    return r;
}

/* Text on its way from the stepping thread, which may be another caller's, to the caller whose callback it is
 * for. */
typedef struct inbox {
    pthread_mutex_t lock;
    str arriving; /* under the lock */
    str reading;  /* the caller's */
    bool lost;    /* text did not fit into memory */
    churon_text_fn on_text;
    void *user;
    error err; /* read after the end */
} inbox;

static bool on_event(void *user, const generation_event *event) {
    inbox *box = user;
    if (event->text_len && box->on_text) {
        pthread_mutex_lock(&box->lock);
        str_add(&box->arriving, event->text, event->text_len);
        pthread_mutex_unlock(&box->lock);
    }
    if (event->err) box->err = *event->err;
    return true;
}

static bool drain(inbox *box) {
    pthread_mutex_lock(&box->lock);
    str text = box->arriving;
    box->arriving = box->reading;
    box->reading = text;
    box->lost = box->lost || text.failed;
    pthread_mutex_unlock(&box->lock);
    bool go_on = text.len == 0 || box->on_text(box->user, text.data, text.len);
    str_clear(&box->reading);
    return go_on;
}

static status finish_generation(const generation *g, finish_reason finish, const inbox *box,
                                churon_generation *result, error *err) {
    static const churon_finish names[] = {[FINISH_NONE] = CHURON_FINISH_NONE,
                                          [FINISH_STOP] = CHURON_FINISH_STOP,
                                          [FINISH_LENGTH] = CHURON_FINISH_LENGTH,
                                          [FINISH_CANCELLED] = CHURON_FINISH_CANCELLED,
                                          [FINISH_ERROR] = CHURON_FINISH_ERROR};
    engine_job_stats stats = generation_stats(g);
    if (result) {
        *result = (churon_generation){.size = sizeof *result,
                                      .finish = names[finish],
                                      .prompt_tokens = stats.prompt_tokens - stats.cached_tokens,
                                      .tokens = stats.tokens,
                                      .prefill_s = stats.prefill_s,
                                      .decode_s = stats.decode_s};
    }
    if (finish == FINISH_ERROR) {
        if (err) *err = box->err;
        return box->err.code;
    }
    return box->lost ? error_no_memory(err, "text of the answer", box->reading.cap) : CHURON_OK;
}

static status generate(churon_sequence *seq, const churon_generate_options *o, inbox *box,
                       churon_generation *result, error *err) {
    generation_request r = request_of(o);
    size_t lengths[GENERATION_MAX_STOPS];
    if (o->n_stop > GENERATION_MAX_STOPS) {
        return error_set(err, CHURON_INVALID, "stop: expected at most %d strings, got %zu",
                         GENERATION_MAX_STOPS, o->n_stop);
    }
    if (o->n_stop) TRY(need(o->stop, "options.stop", err));
    for (size_t i = 0; i < o->n_stop; i++) {
        TRY(need(o->stop[i], "options.stop[i]", err));
        lengths[i] = strlen(o->stop[i]);
    }
    r.stop_len = lengths;
    generation *g;
    TRY(generation_start(&g, seq->bundle, seq->seq, &r, on_event, box, err));
    finish_reason finish;
    bool asked_to_stop = false;
    do {
        finish = generation_wait_step(g);
        if (!drain(box) && !asked_to_stop) {
            asked_to_stop = true;
            generation_cancel(g);
        }
    } while (finish == FINISH_NONE);
    status st = finish_generation(g, finish, box, result, err);
    generation_free(g);
    return st;
}

status churon_sequence_generate(churon_sequence *seq, const churon_generate_options *options,
                                churon_text_fn on_text, void *user, churon_generation *result, error *err) {
    TRY(need(seq, "seq", err));
    churon_generate_options o;
    churon_generate_options_init(NULL, &o);
    if (options) {
        if (!copy_options(&o, sizeof o, options, sizeof o)) {
            return error_set(err, CHURON_INVALID, "options.size: expected %zu, got %zu", sizeof o,
                             options->size);
        }
    } else {
        churon_model model = {.bundle = seq->bundle};
        churon_generate_options_init(&model, &o);
    }
    if (result && result->size < sizeof *result) {
        return error_set(err, CHURON_INVALID, "result.size: expected %zu, got %zu", sizeof *result,
                         result->size);
    }
    inbox box = {.on_text = on_text, .user = user};
    pthread_mutex_init(&box.lock, NULL);
    status st = generate(seq, &o, &box, result, err);
    pthread_mutex_destroy(&box.lock);
    str_free(&box.arriving);
    str_free(&box.reading);
    return st;
}
