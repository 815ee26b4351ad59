/* generate.c: a language model's answer. Sequences are opened and closed for each record; the engine that
 * they share is the model's, so that sessions generate side by side. */
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/prompt.h"
#include "pipeline/steps/steps.h"

#include <string.h>

enum {
    KEY_PROMPT,
    KEY_MESSAGES,
    KEY_SYSTEM,
    KEY_NAME,
    KEY_INTO_,
    KEY_FINISH,
    KEY_IDS,
    KEY_RAW,
    KEY_MAX_TOKENS,
    KEY_TEMPERATURE,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_MIN_P,
    KEY_SEED,
    KEY_STOP
};

typedef struct generate_state {
    prompt_source source;
    lm_bundle *lm;
    bool raw;
    generation_request request;
    int32_t text, finish, ids; /* slots; -1: not wanted */
} generate_state;

static const key_spec KEYS[] = {
    PROMPT_KEYS,
    {"name", KEY_MODEL, .doc = "Which of the bundle's models; left out where there is one"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the answer's text"},
    {"finish_reason", KEY_INTO, .doc = "Name of a text: why it ended: stop or length"},
    {"ids", KEY_INTO, .doc = "Name of an int64 tensor: the answer's tokens"},
    {"raw", KEY_BOOL,
     .doc = "The prompt is continued as it is, without the chat template; left out: true where the model has "
            "none"},
    {"max_tokens", KEY_INT, .fallback = "512", .least = 0, .most = 1e9,
     .doc = "Most tokens of the answer; 0: up to the context"},
    {"temperature", KEY_NUMBER, .fallback = "0", .least = 0, .most = 1e6,
     .doc = "0: always the likeliest token"},
    {"top_k", KEY_INT, .fallback = "0", .least = 0, .most = 1e9,
     .doc = "Only the k likeliest tokens; 0: all"},
    {"top_p", KEY_NUMBER, .fallback = "1", .least = 0, .most = 1,
     .doc = "Only the likeliest tokens that are so likely together; 1: all"},
    {"min_p", KEY_NUMBER, .fallback = "0", .least = 0, .most = 1,
     .doc = "Only tokens that have this part of the likeliest one's probability"},
    {"seed", KEY_INT, .fallback = "0", .least = 0, .most = 9007199254740992.0,
     .doc = "Of the choice: the same record gets the same answer"},
    {"stop", KEY_TEXTS, .doc = "The answer ends before any of these"},
    {0}};

/* ---- check ------------------------------------------------------------------------------------------ */

static status read_request(step_build *b, generate_state *s, error *err) {
    const key_value *v = b->values, *stop = &b->values[KEY_STOP];
    generation_request *q = &s->request;
    size_t *lengths = arena_array(b->memory, stop->n ? stop->n : 1, sizeof *lengths);
    if (!lengths) return arena_refused(b->memory, b->kind->name, stop->n * sizeof *lengths, err);
    for (size_t i = 0; i < stop->n; i++) lengths[i] = strlen(stop->texts[i]);
    q->sampling = sampler_defaults();
    q->sampling.temperature = (float)v[KEY_TEMPERATURE].number;
    q->sampling.top_k = (uint32_t)v[KEY_TOP_K].integer;
    q->sampling.top_p = (float)v[KEY_TOP_P].number;
    q->sampling.min_p = (float)v[KEY_MIN_P].number;
    q->sampling.seed = (uint64_t)v[KEY_SEED].integer;
    q->max_tokens = (size_t)v[KEY_MAX_TOKENS].integer;
    q->stop = stop->texts;
    q->stop_len = lengths;
    q->n_stop = stop->n;
    const status st = generation_check(s->lm, q, err);
    if (st != CHURON_OK) error_prefix(err, "%s: line %u: generate", b->reader->file, b->node->line);
    return st;
}

static status check(step_build *b, error *err) {
    const cell_type ids = {
        .kind = CELL_TENSOR, .element = ELEM_I64, .has_rank = true, .rank = 1, .dims = {-1}};
    generate_state *s;
    const key_value *v = b->values;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(prompt_check(b, (prompt_keys){KEY_PROMPT, KEY_MESSAGES, KEY_SYSTEM}, &s->source, err));
    s->lm = b->p->models[v[KEY_NAME].integer].lm;
    if (!s->lm)
        return step_fault(b, "name", err, "expected a language model, got a graph: use the step model");
    s->raw = v[KEY_RAW].given ? v[KEY_RAW].flag : !lm_bundle_has_template(s->lm);
    if (!s->raw && !lm_bundle_has_template(s->lm))
        return step_fault(b, "raw", err, "expected true, as the model has no chat template");
    if (s->raw && (s->source.system || s->source.messages >= 0))
        return step_fault(b, s->source.system ? "system" : "messages", err,
                          "expected a model with a chat template and raw: false with it");
    TRY(read_request(b, s, err));
    s->finish = s->ids = -1;
    TRY(step_output_named(b, v[KEY_INTO_].text, &CELL_TYPE_TEXT, &s->text, err));
    if (v[KEY_FINISH].given) TRY(step_output_named(b, v[KEY_FINISH].text, &CELL_TYPE_TEXT, &s->finish, err));
    if (v[KEY_IDS].given) TRY(step_output_named(b, v[KEY_IDS].text, &ids, &s->ids, err));
    return CHURON_OK;
}

/* ---- running ---------------------------------------------------------------------------------------- */

/* What comes from the thread that steps the engine; read when the last event was there. */
typedef struct inbox {
    str text;
    token_list ids;
    status failed;
    error err;
} inbox;

static bool on_event(void *user, const generation_event *e) {
    inbox *in = user;
    str_add(&in->text, e->text, e->text_len);
    if (in->failed == CHURON_OK && e->token) in->failed = token_list_add(&in->ids, e->token->id, &in->err);
    if (in->failed == CHURON_OK) in->failed = str_check(&in->text, &in->err);
    if (in->failed == CHURON_OK && e->finish == FINISH_ERROR) {
        in->failed = e->err->code;
        in->err = *e->err;
    }
    return in->failed == CHURON_OK;
}

static status prompt_ids(const step *st, run *r, const cell *slots, token_list *out, error *err) {
    const generate_state *s = st->state;
    const tokenize_options how = {.add_special = true, .parse_special = true};
    if (s->raw) {
        const cell *c = &slots[s->source.prompt];
        return tokenizer_encode(lm_bundle_tokenizer(s->lm), c->len ? c->bytes : "", c->len, how, out, err);
    }
    const chat_message *m;
    size_t n;
    str text = {0};
    TRY(prompt_messages(st, r, &s->source, slots, &m, &n, err));
    status result = lm_bundle_chat_prompt(s->lm, m, n, true, &text, err);
    if (result == CHURON_OK)
        result = tokenizer_encode(lm_bundle_tokenizer(s->lm), str_cstr(&text), text.len, how, out, err);
    str_free(&text);
    return result;
}

static status open_sequence(const generate_state *s, const token_list *ids, engine_seq **out, error *err) {
    const size_t context = engine_context(lm_bundle_engine(s->lm));
    if (ids->len == 0)
        return error_set(err, CHURON_INVALID, "expected a prompt of at least one token, got none");
    if (ids->len >= context)
        return error_set(err, CHURON_INVALID,
                         "expected a prompt of fewer than %zu tokens (the context), got %zu", context,
                         ids->len);
    TRY(engine_seq_open(out, lm_bundle_engine(s->lm), NULL, err));
    return engine_seq_append(*out, ids->ids, ids->len, err);
}

/* Steps until the last event; looks for the run's end between steps. */
static status wait_for(run *r, generation *g, finish_reason *finish, error *err) {
    status ended = CHURON_OK;
    do {
        *finish = generation_wait_step(g);
        if (*finish != FINISH_NONE || ended != CHURON_OK) continue;
        ended = run_may_go_on(r, err);
        if (ended != CHURON_OK) generation_cancel(g);
    } while (*finish == FINISH_NONE);
    if (ended == CHURON_OK && *finish == FINISH_TIMEOUT)
        return error_set(err, CHURON_LIMIT, "run: expected to end before its deadline, got to it");
    if (ended == CHURON_OK && *finish == FINISH_CANCELLED)
        return error_set(err, CHURON_CANCELLED, "run: cancelled");
    return ended;
}

static status answer(const step *st, run *r, engine_seq *seq, inbox *in, finish_reason *finish, error *err) {
    const generate_state *s = st->state;
    generation_request q = s->request;
    generation *g = NULL;
    q.deadline = r->deadline;
    TRY(generation_start(&g, s->lm, seq, &q, on_event, in, err));
    const status result = wait_for(r, g, finish, err);
    generation_free(g);
    if (in->failed != CHURON_OK) {
        if (err) *err = in->err;
        return in->failed;
    }
    return result;
}

static status write_answer(const step *st, run *r, const inbox *in, finish_reason finish, cell *slots,
                           error *err) {
    const generate_state *s = st->state;
    char *text = arena_strndup(r->memory, str_cstr(&in->text), in->text.len);
    if (!text) return run_no_memory(r, st, in->text.len, err);
    slots[s->text] = cell_of_text(text, in->text.len);
    const char *why = finish_reason_name(finish);
    if (s->finish >= 0) slots[s->finish] = cell_of_text(why, strlen(why));
    if (s->ids < 0) return CHURON_OK;
    const int64_t dims[1] = {(int64_t)in->ids.len};
    void *data;
    TRY(cell_new_tensor(&slots[s->ids], CELL_TENSOR, r->memory, ELEM_I64, 1, dims, &data, st->label, err));
    for (size_t i = 0; i < in->ids.len; i++) ((int64_t *)data)[i] = in->ids.ids[i];
    return CHURON_OK;
}

static status row(const step *st, run *r, cell *slots, error *err) {
    const generate_state *s = st->state;
    token_list ids = {0};
    engine_seq *seq = NULL;
    inbox in = {0};
    finish_reason finish = FINISH_NONE;
    status result = prompt_ids(st, r, slots, &ids, err);
    if (result == CHURON_OK) result = open_sequence(s, &ids, &seq, err);
    if (result == CHURON_OK) result = answer(st, r, seq, &in, &finish, err);
    if (result == CHURON_OK) result = write_answer(st, r, &in, finish, slots, err);
    if (seq) engine_seq_close(seq);
    token_list_free(&ids);
    token_list_free(&in.ids);
    str_free(&in.text);
    return result;
}

const step_kind step_generate = {.name = "generate",
                                 .group = "text",
                                 .doc = "The answer of a language model to a prompt or to messages. The same "
                                        "record gets the same answer, whatever runs "
                                        "beside it.",
                                 .reference = "the program's own `churon run`",
                                 .keys = KEYS,
                                 .check = check,
                                 .row = row};
