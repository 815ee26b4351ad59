/* engine_world.h: a tiny model under an engine, and jobs whose answers are kept, for tests. */
#ifndef TESTS_ENGINE_WORLD_H
#define TESTS_ENGINE_WORLD_H

#include "lm/engine.h"
#include "tiny_model.h"

enum { MAX_TOKENS = 64, MAX_PROMPT = 420, MAX_TOP = 3 };

typedef struct world {
    gguf *g;
    const kernels *k;
    pool *p;
    lm_model *m;
    engine *e;
} world;

/* k NULL: the best table of this processor. */
static inline status world_open(world *w, const char *path, const kernels *k, size_t threads,
                                const engine_options *o, error *err) {
    *w = (world){.k = k};
    TRY(gguf_open(&w->g, path, err));
    if (!k) TRY(kernels_select(&w->k, err));
    TRY(pool_create(&w->p, threads, err));
    TRY(lm_model_load(&w->m, w->g, w->k, w->p, err));
    return engine_create(&w->e, w->m, w->p, o, err);
}

static inline void world_close(world *w) {
    engine_free(w->e);
    lm_model_free(w->m);
    pool_free(w->p);
    gguf_free(w->g);
}

static inline world open_world(const char *path, const kernels *k, size_t threads, engine_options o) {
    world w;
    error err = {0};
    if (world_open(&w, path, k, threads, &o, &err) != CHURON_OK) fail_msg("%s", err.message);
    return w;
}

/* Bytes of n pages of the tiny model. */
static inline uint64_t tiny_pages(const world *w, kv_type type, size_t n) {
    return (uint64_t)n * KV_PAGE * kv_bytes_per_token(&w->m->config, type);
}

typedef struct request {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt, max_tokens;
    sampler_params sampling;
    int32_t priority;
    engine_seq_options seq;
} request;

typedef struct answer {
    int32_t ids[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    token_logprob top[MAX_TOKENS][MAX_TOP];
    size_t n;
    engine_finish finish;
    bool ended;
    error err;
    uint64_t *clock; /* counts tokens of all jobs, if set */
    uint64_t first, last;
} answer;

static inline uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static inline engine_verdict keep_token(void *user, const sampled *t) {
    answer *a = user;
    if (a->clock) {
        a->last = ++*a->clock;
        if (a->n == 0) a->first = a->last;
    }
    a->ids[a->n] = t->id;
    for (size_t i = 0; i < t->n_top && i < MAX_TOP; i++) a->top[a->n][i] = t->top[i];
    a->logprobs[a->n++] = t->logprob;
    return ENGINE_GO_ON;
}

static inline void keep_end(void *user, engine_finish finish, const error *err) {
    answer *a = user;
    assert_false(a->ended);
    a->finish = finish;
    a->ended = true;
    if (err) a->err = *err;
}

typedef struct running {
    engine_seq *seq;
    engine_job *job;
} running;

static inline engine_job_options options_of(const request *r, answer *a) {
    return (engine_job_options){.sampling = r->sampling,
                                .max_tokens = r->max_tokens,
                                .priority = r->priority,
                                .user = a,
                                .on_token = keep_token,
                                .on_end = keep_end};
}

static inline void open_with_prompt(running *out, engine *e, const request *r) {
    error err;
    *out = (running){0};
    if (engine_seq_open(&out->seq, e, &r->seq, &err) != CHURON_OK) fail_msg("%s", err.message);
    if (engine_seq_append(out->seq, r->prompt, r->n_prompt, &err) != CHURON_OK) fail_msg("%s", err.message);
}

static inline void submit(running *run, const engine_job_options *o) {
    error err;
    if (engine_submit(&run->job, run->seq, o, &err) != CHURON_OK) fail_msg("%s", err.message);
}

/* Opens, appends, submits; *a must live until the end. */
static inline running start(engine *e, const request *r, answer *a) {
    running run;
    *a = (answer){.clock = a->clock};
    open_with_prompt(&run, e, r);
    const engine_job_options o = options_of(r, a);
    submit(&run, &o);
    return run;
}

static inline void finish(running *r) {
    engine_job_free(r->job);
    engine_seq_close(r->seq);
    *r = (running){0};
}

static inline void assert_same(const answer *a, const answer *b) {
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
    assert_memory_equal(a->top, b->top, a->n * sizeof *a->top);
}

static inline engine_load load_of(engine *e) {
    engine_load load;
    engine_load_get(e, &load);
    return load;
}

static inline void assert_all_given_back(engine *e) {
    const engine_load load = load_of(e);
    assert_int_equal(load.kv_pages_free, load.kv_pages);
    assert_int_equal(load.running + load.waiting + load.waiting_tokens + load.kv_tokens_wasted, 0);
}

#endif
