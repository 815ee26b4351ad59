/* draft_model.c: see draft_model.h. */
#include "lm/draft_model.h"

#include "base/mem.h"
#include "lm/forward.h"

enum { OUTPUTS = 16 }; /* rows of logits at once */

struct draft_model {
    const lm_model *m;
    kv_cache *kv;
    forward *f;
    size_t context, step_tokens, max_running;
    span *spans;        /* [max_running] */
    draft_ask **askers; /* [max_running]: of the spans that want logits, in order */
};

status draft_model_create(draft_model **out, const lm_model *m, pool *p, const draft_model_options *o,
                          error *err) {
    *out = NULL;
    status st = CHURON_OK;
    draft_model *d = mem_calloc(1, sizeof *d);
    if (!d) return error_no_memory(err, "draft model", sizeof *d);
    d->m = m;
    d->context = o->context < m->config.context_trained ? o->context : m->config.context_trained;
    d->step_tokens = o->step_tokens;
    d->max_running = o->max_running;
    const uint64_t page = (uint64_t)kv_bytes_per_token(&m->config, o->kv_type) * KV_PAGE;
    uint64_t pages = (uint64_t)(d->context + KV_PAGE - 1) / KV_PAGE * o->max_running;
    if (pages > o->kv_memory / page) pages = o->kv_memory / page;
    if (pages < 1) pages = 1;
    d->spans = mem_calloc(o->max_running, sizeof *d->spans);
    d->askers = mem_calloc(o->max_running, sizeof *d->askers);
    if (!d->spans || !d->askers) {
        st = error_no_memory(err, "draft model", o->max_running * sizeof *d->spans);
        goto cleanup;
    }
    TRY_GOTO(kv_cache_create(&d->kv, &m->config, o->kv_type, (size_t)pages, err));
    TRY_GOTO(forward_create(&d->f, m, p, kv_cache_pool(d->kv), o->step_tokens + o->max_running,
                            o->max_running, d->context, OUTPUTS, err));
    *out = d;
    d = NULL;
cleanup:
    draft_model_free(d);
    return st;
}

void draft_model_free(draft_model *d) {
    if (!d) return;
    forward_free(d->f);
    kv_cache_free(d->kv);
    mem_free(d->spans);
    mem_free(d->askers);
    mem_free(d);
}

status draft_seq_open(draft_seq *s, const draft_model *d, error *err) {
    return kv_seq_open(&s->kv, d->context, err);
}

void draft_seq_truncate(draft_model *d, draft_seq *s, size_t length) {
    if (s->kv.length > length) kv_seq_truncate(d->kv, &s->kv, length);
}

void draft_seq_release(draft_model *d, draft_seq *s) {
    if (s->kv.pages) kv_seq_release(d->kv, &s->kv);
}

void draft_seq_close(draft_seq *s) {
    mem_free(s->kv.pages);
    *s = (draft_seq){0};
}

/* The next tokens [from, from + n) of an ask as a span; false if they find no room. */
static bool add_span(draft_model *d, draft_ask *a, size_t n, bool output, size_t *n_spans,
                     size_t *n_outputs) {
    kv_seq *kv = &a->seq->kv;
    const size_t end = kv->length + n;
    if (n == 0 || end > d->context || !kv_seq_reserve(d->kv, kv, end)) return false;
    d->spans[(*n_spans)++] = (span){.kv = kv,
                                    .tokens = a->tokens + kv->length,
                                    .n = n,
                                    .position = kv->length,
                                    .n_outputs = output ? 1 : 0};
    if (output) d->askers[(*n_outputs)++] = a;
    return true;
}

/* Runs the spans; every asker gets its likeliest token. */
static void run_spans(draft_model *d, size_t n_spans, size_t n_outputs) {
    if (n_spans == 0) return;
    forward_run(d->f, d->spans, n_spans);
    for (size_t from = 0; from < n_outputs; from += OUTPUTS) {
        const size_t n = n_outputs - from < OUTPUTS ? n_outputs - from : OUTPUTS;
        const float *logits = forward_logits(d->f, from, n);
        for (size_t i = 0; i < n; i++) {
            draft_ask *a = d->askers[from + i];
            uint32_t id;
            float value;
            d->m->k->top_k(logits + i * d->m->config.n_vocab, d->m->config.n_vocab, 1, &id, &value);
            a->tokens[a->n + a->got++] = (int32_t)id;
        }
    }
}

/* One that asks for nothing is kept up too, as far as the budget goes. */
static void catch_up(draft_model *d, draft_ask *asks, size_t n) {
    size_t n_spans = 0, n_outputs = 0, budget = d->step_tokens;
    for (size_t i = 0; i < n; i++) {
        draft_ask *a = &asks[i];
        a->got = 0;
        const size_t pending = a->n - a->seq->kv.length;
        const size_t rows = pending < budget ? pending : budget;
        if (add_span(d, a, rows, rows == pending && a->want > 0, &n_spans, &n_outputs)) budget -= rows;
    }
    run_spans(d, n_spans, n_outputs);
}

void draft_model_run(draft_model *d, draft_ask *asks, size_t n) {
    catch_up(d, asks, n);
    for (size_t k = 1; k < DRAFT_MODEL_MOST; k++) {
        size_t n_spans = 0, n_outputs = 0;
        for (size_t i = 0; i < n; i++) {
            draft_ask *a = &asks[i];
            if (a->got == k && a->want > k) (void)add_span(d, a, 1, true, &n_spans, &n_outputs);
        }
        if (n_outputs == 0) return;
        run_spans(d, n_spans, n_outputs);
    }
}
