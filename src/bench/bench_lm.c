/* bench_lm.c: see bench_lm.h. */
#include "bench/bench_lm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "bench/stats.h"

#include <stdio.h>
#include <string.h>

enum { SEQUENCE_BEGIN = 16 }; /* tokens that a sequence of a parallel case begins with */

struct bench_lm {
    lm_bundle *b;
    bench_case c;
    engine_seq **seqs; /* [c.parallel] */
    engine_job **jobs; /* [c.parallel] */
    int32_t *ids;      /* [n_ids] */
    size_t n_ids;
};

void bench_case_name(const bench_case *c, char name[48]) {
    char depth[24] = "";
    if (c->depth) snprintf(depth, sizeof depth, "@%zu", c->depth);
    if (c->prompt) {
        snprintf(name, 48, "pp%zu%s", c->prompt, depth);
    } else if (c->parallel > 1) {
        snprintf(name, 48, "tg%zu%sx%zu", c->gen, depth, c->parallel);
    } else {
        snprintf(name, 48, "tg%zu%s", c->gen, depth);
    }
}

/* A token that no text contains would still cost the same; these spread over the vocabulary. */
static void fill_ids(int32_t *ids, size_t n, size_t n_vocab) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % n_vocab);
    }
}

/* The tokens that a sequence holds before the time begins. */
static size_t begin_tokens(const bench_case *c) {
    if (c->depth) return c->depth;
    if (c->prompt) return 0;
    return c->parallel > 1 ? SEQUENCE_BEGIN : 1;
}

/* Computes what a sequence holds. */
static status compute(engine_seq *s, error *err) {
    engine_job *j;
    engine_job_options o = {.max_tokens = 0};
    TRY(engine_submit(&j, s, &o, err));
    engine_finish finish = engine_wait(j);
    engine_job_free(j);
    if (finish == ENGINE_FAILED) return error_set(err, CHURON_INTERNAL, "bench: the engine failed");
    return CHURON_OK;
}

status bench_lm_open(bench_lm **out, lm_bundle *b, const bench_case *c, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    size_t need = begin_tokens(c) + c->prompt + c->gen, context = engine_context(lm_bundle_engine(b));
    if (need > context) {
        return error_set(err, CHURON_LIMIT,
                         "field --depth: expected at most %zu tokens with what follows, got %zu", context,
                         need);
    }
    bench_lm *l = mem_calloc(1, sizeof *l);
    if (!l) return error_no_memory(err, "bench", sizeof *l);
    l->b = b;
    l->c = *c;
    l->n_ids = begin_tokens(c) + c->prompt;
    l->seqs = mem_calloc(c->parallel, sizeof(engine_seq *));
    l->jobs = mem_calloc(c->parallel, sizeof(engine_job *));
    l->ids = mem_calloc(l->n_ids, sizeof *l->ids);
    if (!l->seqs || !l->jobs || !l->ids) {
        st = error_no_memory(err, "bench", l->n_ids * sizeof *l->ids);
        goto cleanup;
    }
    fill_ids(l->ids, l->n_ids, lm_bundle_model(b)->config.n_vocab);
    for (size_t i = 0; i < c->parallel; i++) {
        TRY_GOTO(engine_seq_open(&l->seqs[i], lm_bundle_engine(b), NULL, err));
        if (begin_tokens(c) == 0) continue;
        TRY_GOTO(engine_seq_append(l->seqs[i], l->ids, begin_tokens(c), err));
        TRY_GOTO(compute(l->seqs[i], err));
    }
    *out = l;
    l = NULL;
cleanup:
    bench_lm_close(l);
    return st;
}

void bench_lm_close(bench_lm *l) {
    if (!l) return;
    for (size_t i = 0; l->seqs && i < l->c.parallel; i++) engine_seq_close(l->seqs[i]);
    mem_free(l->seqs);
    mem_free(l->jobs);
    mem_free(l->ids);
    mem_free(l);
}

static engine_verdict go_on(void *user, const sampled *token) {
    (void)user;
    (void)token;
    return ENGINE_GO_ON;
}

static status submit_all(bench_lm *l, size_t *n, error *err) {
    engine_job_options o = {.max_tokens = l->c.gen, .no_speculation = true, .on_token = go_on};
    o.sampling = sampler_defaults();
    o.sampling.temperature = 0;
    for (*n = 0; *n < l->c.parallel; (*n)++) TRY(engine_submit(&l->jobs[*n], l->seqs[*n], &o, err));
    return CHURON_OK;
}

status bench_lm_time(bench_lm *l, double *per_s, error *err) {
    const bench_case *c = &l->c;
    size_t begin = begin_tokens(c), n = 0;
    bool failed = false;
    for (size_t i = 0; i < c->parallel; i++) {
        TRY(engine_seq_truncate(l->seqs[i], begin, err));
        TRY(engine_seq_append(l->seqs[i], l->ids + begin, c->prompt, err));
    }
    double begun = clock_seconds();
    status st = submit_all(l, &n, err);
    for (size_t i = 0; i < n; i++) failed |= engine_wait(l->jobs[i]) == ENGINE_FAILED;
    double seconds = clock_seconds() - begun;
    for (size_t i = 0; i < n; i++) engine_job_free(l->jobs[i]);
    if (st == CHURON_OK && failed) st = error_set(err, CHURON_INTERNAL, "bench: the engine failed");
    *per_s = (double)((c->prompt + c->gen) * c->parallel) / seconds;
    return st;
}

/* ---- the bound -------------------------------------------------------------------------------------- */

typedef struct work {
    double bytes;               /* of packed matrices */
    double int8_macs, f32_macs; /* multiply-adds of one token */
} work;

static void add_matrix(work *w, const packed *p) {
    if (!p->data) return;
    w->bytes += (double)pack_n_groups(p) * (double)p->group_bytes;
    double macs = (double)p->rows * (double)p->cols;
    if (dtype_is_float(p->type)) {
        w->f32_macs += macs;
    } else {
        w->int8_macs += macs;
    }
}

static work layers_work(const lm_model *m) {
    work w = {0};
    for (uint32_t i = 0; i < m->config.n_layer; i++) {
        const lm_layer *y = &m->layers[i];
        const packed *all[] = {&y->wq, &y->wk, &y->wv, &y->wo, &y->w_gate, &y->w_up, &y->w_down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) add_matrix(&w, all[k]);
    }
    return w;
}

static double compute_seconds(const work *w, double tokens, const bench_bounds *b) {
    double s = 0;
    if (w->int8_macs > 0 && b->int8_gop_per_s > 0) s += 2 * w->int8_macs * tokens / (b->int8_gop_per_s * 1e9);
    if (w->f32_macs > 0 && b->f32_gflop_per_s > 0) s += 2 * w->f32_macs * tokens / (b->f32_gflop_per_s * 1e9);
    return s;
}

/* Multiply-adds of attention for one token that sees `keys` keys. */
static double attention_macs(const lm_config *c, double keys) {
    return (double)c->n_layer * (double)c->n_head * (double)(c->head_dim_k + c->head_dim_v) * keys;
}

double bench_lm_bound(lm_bundle *b, const bench_case *c, const bench_bounds *bounds) {
    const lm_model *m = lm_bundle_model(b);
    work layers = layers_work(m), output = {0};
    add_matrix(&output, &m->output);
    double rows = (double)(c->prompt ? c->prompt : c->parallel); /* tokens of one pass */
    double outputs = c->prompt ? 1 : (double)c->parallel;
    double keys =
        (double)begin_tokens(c) + (double)(c->prompt + c->gen) / 2; /* that a token sees, on average */
    double kv_bytes = keys * (double)kv_bytes_per_token(&m->config, engine_kv_type(lm_bundle_engine(b))) *
                      (c->prompt ? 1 : (double)c->parallel);
    double bytes = layers.bytes + output.bytes + kv_bytes;
    double read_s = bytes / (bench_bounds_read(bounds, (size_t)bytes) * 1e9);
    work attention = {.f32_macs = attention_macs(&m->config, keys)};
    double compute_s = compute_seconds(&layers, rows, bounds) + compute_seconds(&output, outputs, bounds) +
                       compute_seconds(&attention, rows, bounds);
    double seconds = read_s > compute_s ? read_s : compute_s;
    return seconds > 0 ? rows / seconds : 0;
}

/* ---- sampling --------------------------------------------------------------------------------------- */

typedef struct logits_copy {
    float *to;
    size_t n;
} logits_copy;

static void copy_logits(void *user, size_t position, const float *logits) {
    (void)position;
    logits_copy *c = user;
    memcpy(c->to, logits, c->n * sizeof *c->to);
}

static status take_logits(lm_bundle *b, float *to, size_t n_vocab, error *err) {
    engine_seq *s;
    engine_job *j;
    int32_t ids[SEQUENCE_BEGIN];
    logits_copy c = {to, n_vocab};
    fill_ids(ids, SEQUENCE_BEGIN, n_vocab);
    TRY(engine_seq_open(&s, lm_bundle_engine(b), NULL, err));
    status st;
    TRY_GOTO(engine_seq_append(s, ids, SEQUENCE_BEGIN, err));
    engine_job_options o = {.user = &c, .on_logits = copy_logits};
    TRY_GOTO(engine_submit(&j, s, &o, err));
    if (engine_wait(j) == ENGINE_FAILED) st = error_set(err, CHURON_INTERNAL, "bench: the engine failed");
    engine_job_free(j);
cleanup:
    engine_seq_close(s);
    return st;
}

status bench_lm_sampling(lm_bundle *b, size_t n, double *seconds, error *err) {
    const lm_model *m = lm_bundle_model(b);
    size_t n_vocab = m->config.n_vocab;
    sampler *s = NULL;
    float *logits = mem_alloc(n_vocab * sizeof *logits),
          *work_copy = mem_aligned(64, n_vocab * sizeof *logits);
    double *times = mem_alloc(n * sizeof *times);
    status st;
    if (!logits || !work_copy || !times) {
        st = error_no_memory(err, "logits", n_vocab * sizeof *logits);
        goto cleanup;
    }
    sampler_params p = sampler_defaults();
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.95f;
    p.min_p = 0.05f;
    p.repeat_penalty = 1.1f;
    p.repeat_last_n = 64;
    TRY_GOTO(take_logits(b, logits, n_vocab, err));
    TRY_GOTO(sampler_create(&s, &p, n_vocab, n + SEQUENCE_BEGIN, err));
    for (size_t i = 0; i < n; i++) {
        sampled out;
        memcpy(work_copy, logits, n_vocab * sizeof *logits);
        double begun = clock_seconds();
        TRY_GOTO(sampler_next(s, m->k, work_copy, i, &out, err));
        sampler_accept(s, out.id);
        times[i] = clock_seconds() - begun;
    }
    *seconds = stats_median(times, n);
cleanup:
    sampler_free(s);
    mem_free(times);
    mem_free(work_copy);
    mem_free(logits);
    return st;
}
