/* generation.c: tokens become text: streaming detokenizer, stop strings, finish reasons. See lm_bundle.h. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"

#include <string.h>

/* The usual token adds far less; the buffers grow if one adds more, so that it allocates nothing. */
enum { TEXT_ROOM = 1024, MAX_STOP_BYTES = 4096 };

struct generation {
    lm_bundle *b;
    engine_job *job;
    generation_fn on_event;
    void *user;
    bool special_text;
    detok_stream detok;
    str text; /* what is not certain yet: it may be the beginning of a stop string; then what is new */
    char *stop_bytes;
    size_t stop_at[GENERATION_MAX_STOPS + 1]; /* string i is stop_bytes[stop_at[i]..stop_at[i+1]) */
    size_t n_stop;
    bool stopped_by_text, halted;
    /* of a beam search */
    size_t n_beams;
    generation_beam *beams; /* [width] */
    str beam_text;          /* of all, one after the other */
    token_list beam_ids;    /* likewise */
    status beam_failed;
    error beam_err;
};

const char *finish_reason_name(finish_reason f) {
    switch (f) {
    case FINISH_NONE: return NULL;
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH: return "length";
    case FINISH_CANCELLED: return "cancelled";
    case FINISH_TIMEOUT: return "timeout";
    case FINISH_ERROR: return "error";
    }
    return NULL;
}

status generation_check(const lm_bundle *b, const generation_request *r, error *err) {
    const size_t n_vocab = tokenizer_n_tokens(lm_bundle_tokenizer(b));
    if (r->n_stop > GENERATION_MAX_STOPS) {
        return error_set(err, CHURON_INVALID, "stop: expected at most %d strings, got %zu",
                         GENERATION_MAX_STOPS, r->n_stop);
    }
    if (r->n_stop > 0 && r->beam.width > 0) {
        return error_set(err, CHURON_UNSUPPORTED, "stop: expected no strings in a beam search, got %zu",
                         r->n_stop);
    }
    for (size_t i = 0; i < r->n_stop; i++) {
        if (r->stop_len[i] == 0 || r->stop_len[i] > MAX_STOP_BYTES) {
            return error_set(err, CHURON_INVALID, "stop[%zu]: expected 1..%d bytes, got %zu", i,
                             MAX_STOP_BYTES, r->stop_len[i]);
        }
        const size_t valid = utf8_validate(r->stop[i], r->stop_len[i]);
        if (valid != r->stop_len[i]) { /* text is valid UTF-8: such a string could never be found in it */
            return error_set(err, CHURON_INVALID, "stop[%zu]: expected UTF-8, got byte 0x%02x at offset %zu",
                             i, (unsigned char)r->stop[i][valid], valid);
        }
    }
    for (size_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] < 0 || (size_t)r->stop_ids[i] >= n_vocab) {
            return error_set(err, CHURON_INVALID, "stop_token_ids[%zu]: expected 0..%zu, got %d", i,
                             n_vocab - 1, r->stop_ids[i]);
        }
    }
    return sampler_check(&r->sampling, n_vocab, err);
}

/* ---- stop strings ----------------------------------------------------------------------------------- */

static size_t stop_len(const generation *g, size_t i) {
    return g->stop_at[i + 1] - g->stop_at[i];
}

/* Offset of the earliest whole stop string in the text, or its length if there is none. */
static size_t find_stop(const generation *g) {
    for (size_t at = 0; at < g->text.len; at++) {
        for (size_t i = 0; i < g->n_stop; i++) {
            const size_t n = stop_len(g, i);
            if (n <= g->text.len - at && memcmp(g->text.data + at, g->stop_bytes + g->stop_at[i], n) == 0)
                return at;
        }
    }
    return g->text.len;
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_back(const generation *g) {
    size_t longest = 0;
    for (size_t i = 0; i < g->n_stop; i++) {
        size_t n = stop_len(g, i) - 1;
        if (n > g->text.len) n = g->text.len;
        while (n > longest && memcmp(g->text.data + g->text.len - n, g->stop_bytes + g->stop_at[i], n) != 0)
            n--;
        if (n > longest) longest = n;
    }
    return longest;
}

/* ---- the engine's callbacks ------------------------------------------------------------------------- */

static bool emit(generation *g, size_t certain, const sampled *token, finish_reason finish,
                 const error *err) {
    generation_event event = {
        .text = str_cstr(&g->text), .text_len = certain, .token = token, .finish = finish, .err = err};
    bool go_on = g->on_event(g->user, &event);
    if (certain > 0) {
        memmove(g->text.data, g->text.data + certain, g->text.len - certain);
        g->text.len -= certain;
    }
    return go_on;
}

static engine_verdict on_token(void *user, const sampled *token) {
    generation *g = user;
    /* The token that ends the answer is no text, also where special tokens are shown. */
    const tokenizer *t = lm_bundle_tokenizer(g->b);
    if (!tokenizer_is_eog(t, token->id)) detok_push(t, &g->detok, token->id, g->special_text, &g->text);
    size_t certain = find_stop(g);
    if (certain < g->text.len) {
        g->stopped_by_text = true;
    } else {
        certain -= held_back(g);
    }
    if (!emit(g, certain, token, FINISH_NONE, NULL)) g->halted = true;
    return g->stopped_by_text || g->halted ? ENGINE_HALT : ENGINE_GO_ON;
}

/* Appends the text and ids of one that was found; where they lie is settled when all are there. */
static status add_beam(generation *g, const engine_hypothesis *h, error *err) {
    const tokenizer *t = lm_bundle_tokenizer(g->b);
    const size_t before = g->beam_text.len, n_text = h->stopped ? h->n - 1 : h->n;
    detok_stream d;
    detok_begin(&d);
    d.at_start = false;
    for (size_t i = 0; i < n_text; i++) detok_push(t, &d, h->ids[i], g->special_text, &g->beam_text);
    detok_end(&d, &g->beam_text);
    for (size_t i = 0; i < h->n; i++) TRY(token_list_add(&g->beam_ids, h->ids[i], err));
    g->beams[g->n_beams++] = (generation_beam){.text_len = g->beam_text.len - before,
                                               .n_tokens = h->n,
                                               .score = h->score,
                                               .logprob = h->logprob,
                                               .finish = h->stopped ? FINISH_STOP : FINISH_LENGTH};
    return str_check(&g->beam_text, err);
}

static void on_beams(void *user, const engine_hypothesis *best, size_t n) {
    generation *g = user;
    for (size_t i = 0; i < n && g->beam_failed == CHURON_OK; i++) {
        g->beam_failed = add_beam(g, &best[i], &g->beam_err);
    }
    if (g->beam_failed != CHURON_OK) {
        g->n_beams = 0;
        return;
    }
    const char *text = str_cstr(&g->beam_text);
    const int32_t *ids = g->beam_ids.ids;
    for (size_t i = 0; i < n; i++) {
        generation_beam *b = &g->beams[i];
        b->text = text;
        b->ids = ids;
        text += b->text_len;
        ids += b->n_tokens;
    }
}

size_t generation_beams(const generation *g, const generation_beam **out) {
    *out = g->beams;
    return g->n_beams;
}

static finish_reason reason_of(const generation *g, engine_finish finish) {
    switch (finish) {
    case ENGINE_RUNNING: return FINISH_NONE;
    case ENGINE_STOP: return g->halted && !g->stopped_by_text ? FINISH_CANCELLED : FINISH_STOP;
    case ENGINE_LENGTH: return FINISH_LENGTH;
    case ENGINE_CANCELLED: return FINISH_CANCELLED;
    case ENGINE_DEADLINE: return FINISH_TIMEOUT;
    case ENGINE_FAILED: return FINISH_ERROR;
    }
    return FINISH_ERROR;
}

static void on_end(void *user, engine_finish finish, const error *err) {
    generation *g = user;
    finish_reason reason = reason_of(g, finish);
    error no_memory;
    if (g->stopped_by_text) {
        str_clear(&g->text);
    } else {
        detok_end(&g->detok, &g->text);
    }
    if (g->text.failed) { /* text was lost on the way: say so instead of answering with a hole */
        reason = FINISH_ERROR;
        (void)error_no_memory(&no_memory, "text of the answer", g->text.cap);
        err = &no_memory;
    }
    if (g->beam_failed != CHURON_OK) {
        reason = FINISH_ERROR;
        err = &g->beam_err;
    }
    (void)emit(g, g->text.len, NULL, reason, err);
}

/* ---- life ------------------------------------------------------------------------------------------- */

static status copy_stops(generation *g, const generation_request *r, error *err) {
    size_t total = 0;
    for (size_t i = 0; i < r->n_stop; i++) total += r->stop_len[i];
    g->stop_bytes = mem_alloc(total);
    if (!g->stop_bytes) return error_no_memory(err, "stop strings", total);
    for (size_t i = 0; i < r->n_stop; i++) {
        memcpy(g->stop_bytes + g->stop_at[i], r->stop[i], r->stop_len[i]);
        g->stop_at[i + 1] = g->stop_at[i] + r->stop_len[i];
    }
    g->n_stop = r->n_stop;
    if (!str_reserve(&g->text, TEXT_ROOM + MAX_STOP_BYTES)) return str_check(&g->text, err);
    return CHURON_OK;
}

/* The request's stop ids and, unless it says otherwise, every token that ends an answer. */
static status list_stop_ids(const generation *g, const generation_request *r, token_list *out, error *err) {
    const tokenizer *t = lm_bundle_tokenizer(g->b);
    for (size_t i = 0; i < r->n_stop_ids; i++) TRY(token_list_add(out, r->stop_ids[i], err));
    if (r->ignore_eos) return CHURON_OK;
    for (size_t id = 0; id < tokenizer_n_tokens(t); id++) {
        if (tokenizer_is_eog(t, (int32_t)id)) TRY(token_list_add(out, (int32_t)id, err));
    }
    return CHURON_OK;
}

status generation_start(generation **out, lm_bundle *b, engine_seq *seq, const generation_request *r,
                        generation_fn on_event, void *user, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    token_list stop_ids = {0};
    TRY(generation_check(b, r, err));
    generation *g = mem_calloc(1, sizeof *g);
    if (!g) return error_no_memory(err, "generation", sizeof *g);
    g->b = b;
    g->on_event = on_event;
    g->user = user;
    g->special_text = r->special_text;
    detok_begin(&g->detok);
    g->detok.at_start = false; /* the answer continues a prompt: its first space is meant */
    TRY_GOTO(copy_stops(g, r, err));
    TRY_GOTO(list_stop_ids(g, r, &stop_ids, err));
    if (r->beam.width > 0) {
        g->beams = mem_calloc(r->beam.width, sizeof *g->beams);
        if (!g->beams) TRY_GOTO(error_no_memory(err, "beams", r->beam.width * sizeof *g->beams));
    }
    engine_job_options o = {.sampling = r->sampling,
                            .max_tokens = r->max_tokens ? r->max_tokens : engine_context(lm_bundle_engine(b)),
                            .stop_ids = stop_ids.ids,
                            .n_stop_ids = stop_ids.len,
                            .priority = r->priority,
                            .deadline = r->deadline,
                            .no_speculation = r->no_speculation,
                            .beam = r->beam,
                            .user = g,
                            .on_token = on_token,
                            .on_beams = on_beams,
                            .on_end = on_end};
    *out = g; /* before the first callback */
    TRY_GOTO(engine_submit(&g->job, seq, &o, err));
cleanup:
    token_list_free(&stop_ids);
    if (st != CHURON_OK) {
        *out = NULL;
        generation_free(g);
    }
    return st;
}

void generation_cancel(generation *g) {
    engine_cancel(g->job);
}

finish_reason generation_wait(generation *g) {
    return reason_of(g, engine_wait(g->job));
}

finish_reason generation_wait_step(generation *g) {
    return reason_of(g, engine_wait_step(g->job));
}

engine_job_stats generation_stats(const generation *g) {
    return engine_job_stats_get(g->job);
}

void generation_view(generation *g, engine_job_view *out) {
    engine_job_view_get(g->job, out);
}

void generation_free(generation *g) {
    if (!g) return;
    engine_job_free(g->job);
    str_free(&g->text);
    str_free(&g->beam_text);
    token_list_free(&g->beam_ids);
    mem_free(g->beams);
    mem_free(g->stop_bytes);
    mem_free(g);
}
