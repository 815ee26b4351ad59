/* perplexity.c: see perplexity.h. */
#include "bench/perplexity.h"

#include "base/clock.h"

#include <math.h>

typedef struct scorer {
    const kernels *k;
    const int32_t *ids; /* [window], of the text itself */
    size_t window, n_vocab;
    double sum, sum_of_squares;
    size_t scored;
    bool broken; /* logits that are no numbers */
    error err;   /* of the engine */
} scorer;

static void on_logits(void *user, size_t position, const float *logits) {
    scorer *s = user;
    if (position < s->window / 2 || position + 1 >= s->window) return;
    float max, lse;
    s->k->log_sum_exp(logits, s->n_vocab, &max, &lse);
    double nll = (double)lse + (double)max - (double)logits[s->ids[position + 1]];
    if (!isfinite(nll)) s->broken = true;
    s->sum += nll;
    s->sum_of_squares += nll * nll;
    s->scored++;
}

static void on_end(void *user, engine_finish finish, const error *err) {
    scorer *s = user;
    if (finish == ENGINE_FAILED) s->err = *err;
}

static status run_window(scorer *s, engine_seq *seq, int32_t bos, error *err) {
    TRY(engine_seq_truncate(seq, 0, err));
    int32_t first = bos >= 0 ? bos : s->ids[0];
    TRY(engine_seq_append(seq, &first, 1, err));
    TRY(engine_seq_append(seq, s->ids + 1, s->window - 1, err));
    engine_job_options o = {.all_logits = true, .user = s, .on_logits = on_logits, .on_end = on_end};
    engine_job *job;
    TRY(engine_submit(&job, seq, &o, err));
    engine_finish finish = engine_wait(job);
    engine_job_free(job);
    if (finish == ENGINE_FAILED) {
        if (err) *err = s->err;
        return s->err.code;
    }
    if (s->broken) return error_set(err, CHURON_CORRUPT, "logits: expected numbers, got NaN or infinity");
    return CHURON_OK;
}

static void add_up(perplexity_result *out, const scorer *s) {
    double n = (double)s->scored, mean = s->sum / n;
    double variance = s->sum_of_squares / n - mean * mean;
    out->nll = mean;
    out->ppl = exp(mean);
    out->nll_error = s->scored > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
    out->tokens = s->scored;
}

status perplexity_measure(perplexity_result *out, lm_bundle *b, const int32_t *ids, size_t n, size_t window,
                          perplexity_progress on_window, void *user, error *err) {
    *out = (perplexity_result){0};
    const lm_model *m = lm_bundle_model(b);
    const tokenizer *t = lm_bundle_tokenizer(b);
    if (window < 4)
        return error_set(err, CHURON_INVALID, "field --ctx: expected at least 4, got %zu", window);
    if (n < window) {
        return error_set(err, CHURON_INVALID,
                         "text: expected at least %zu tokens (one window), got %zu. Give a longer text or a "
                         "smaller --ctx.",
                         window, n);
    }
    scorer s = {.k = m->k, .window = window, .n_vocab = m->config.n_vocab};
    engine_seq *seq = NULL;
    status st;
    TRY(engine_seq_open(&seq, lm_bundle_engine(b), NULL, err));
    int32_t bos = tokenizer_adds_bos(t) ? tokenizer_bos(t) : -1;
    size_t windows = n / window;
    double begun = clock_seconds();
    for (size_t i = 0; i < windows; i++) {
        s.ids = ids + i * window;
        TRY_GOTO(run_window(&s, seq, bos, err));
        add_up(out, &s);
        out->windows = i + 1;
        out->computed = (i + 1) * window;
        out->seconds = clock_seconds() - begun;
        if (on_window && !on_window(user, out, windows)) {
            st = error_set(err, CHURON_CANCELLED, "stopped after %zu of %zu windows", i + 1, windows);
            goto cleanup;
        }
    }
cleanup:
    engine_seq_close(seq);
    return st;
}
