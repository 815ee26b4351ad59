/* test_engine.c: the promise "same answer under any load", and the engine's bookkeeping.
 *
 * What a sequence gets must not depend on its company, on how its prompt was cut, or on the number of
 * threads: compared bit for bit. Pages must come back whatever happens to a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/engine.h"
#include "tiny_model.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_TOKENS = 48, MAX_PROMPT = 400 };

typedef struct world {
    gguf *g;
    const kernels *k;
    pool *p;
    lm_model *m;
    engine *e;
} world;

static char path_q8[40], path_f32[40];

static status world_open(world *w, const char *path, size_t threads, const engine_options *o, error *err) {
    *w = (world){0};
    TRY(gguf_open(&w->g, path, err));
    TRY(kernels_select(&w->k, err));
    TRY(pool_create(&w->p, threads, err));
    TRY(lm_model_load(&w->m, w->g, w->k, w->p, err));
    return engine_create(&w->e, w->m, w->p, o, err);
}

static void world_close(world *w) {
    engine_free(w->e);
    lm_model_free(w->m);
    pool_free(w->p);
    gguf_free(w->g);
}

static world open_world(const char *path, size_t threads, engine_options o) {
    world w;
    error err = {0};
    if (world_open(&w, path, threads, &o, &err) != CHURON_OK) fail_msg("%s", err.message);
    return w;
}

/* ---- requests and their answers --------------------------------------------------------------------- */

typedef struct request {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt, max_tokens;
    sampler_params sampling;
} request;

typedef struct answer {
    int32_t ids[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    size_t n;
    engine_finish finish;
    bool ended;
    error err;
} answer;

static uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static request make_request(uint32_t seed) {
    request r = {.sampling = sampler_defaults()};
    r.n_prompt = 1 + lcg(&seed) % (seed % 3 ? 40 : MAX_PROMPT);
    for (size_t i = 0; i < r.n_prompt; i++) r.prompt[i] = (int32_t)(lcg(&seed) % TINY_VOCAB);
    r.max_tokens = 1 + lcg(&seed) % MAX_TOKENS;
    r.sampling.seed = seed;
    r.sampling.temperature = seed % 4 ? 1.1f : 0.0f;
    r.sampling.top_k = seed % 3 ? 0 : 20;
    r.sampling.top_p = seed % 2 ? 0.9f : 1.0f;
    r.sampling.repeat_penalty = seed % 5 ? 1.0f : 1.2f;
    r.sampling.repeat_last_n = 32;
    r.sampling.want_logprobs = true;
    return r;
}

static engine_verdict on_token(void *user, const sampled *t) {
    answer *a = user;
    a->ids[a->n] = t->id;
    a->logprobs[a->n++] = t->logprob;
    return ENGINE_GO_ON;
}

static void on_end(void *user, engine_finish finish, const error *err) {
    answer *a = user;
    assert_false(a->ended);
    a->finish = finish;
    a->ended = true;
    if (err) a->err = *err;
}

static engine_job_options job_options(const request *r, answer *a) {
    return (engine_job_options){.sampling = r->sampling,
                                .max_tokens = r->max_tokens,
                                .user = a,
                                .on_token = on_token,
                                .on_end = on_end};
}

typedef struct running {
    engine_seq *seq;
    engine_job *job;
} running;

static status start(engine *e, const request *r, answer *a, running *out, error *err) {
    *a = (answer){0};
    *out = (running){0};
    TRY(engine_seq_open(&out->seq, e, NULL, err));
    engine_job_options o = job_options(r, a);
    status st = engine_seq_append(out->seq, r->prompt, r->n_prompt, err);
    if (st == CHURON_OK) st = engine_submit(&out->job, out->seq, &o, err);
    if (st != CHURON_OK) engine_seq_close(out->seq);
    return st;
}

static void finish(running *r) {
    engine_job_free(r->job);
    engine_seq_close(r->seq);
}

static answer answer_alone(engine *e, const request *r) {
    answer a;
    running run;
    error err;
    if (start(e, r, &a, &run, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
    finish(&run);
    return a;
}

static void assert_same(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
}

static void assert_all_given_back(engine *e) {
    engine_load load;
    engine_load_get(e, &load);
    assert_int_equal(load.kv_pages_free, load.kv_pages);
    assert_int_equal(load.running, 0);
    assert_int_equal(load.waiting, 0);
    assert_int_equal(load.waiting_tokens, 0);
}

/* ---- same answer under any load --------------------------------------------------------------------- */

enum { N_REQUESTS = 16 };

static void answers_together(engine *e, const request *r, answer *a) {
    running runs[N_REQUESTS];
    for (size_t i = 0; i < N_REQUESTS; i++) {
        error err;
        if (start(e, &r[i], &a[i], &runs[i], &err) != CHURON_OK) fail_msg("%s", err.message);
    }
    for (size_t i = 0; i < N_REQUESTS; i++) {
        (void)engine_wait(runs[i].job);
        finish(&runs[i]);
    }
    assert_all_given_back(e);
}

static void same_answer(const char *path, kv_type type) {
    static request r[N_REQUESTS];
    static answer alone[N_REQUESTS], together[N_REQUESTS];
    for (uint32_t i = 0; i < N_REQUESTS; i++) r[i] = make_request(i * 77 + 5);
    world w = open_world(path, 1, (engine_options){.max_running = 1, .kv_type = type});
    for (size_t i = 0; i < N_REQUESTS; i++) alone[i] = answer_alone(w.e, &r[i]);
    assert_all_given_back(w.e);
    world_close(&w);
    static const engine_options settings[] = {
        {.max_running = 16, .step_tokens = 512},
        {.max_running = 16, .step_tokens = 64},
        {.max_running = 5, .step_tokens = 7},
        {.max_running = 3, .step_tokens = 1},
        {.max_running = 16, .step_tokens = 33, .kv_memory = (uint64_t)20 * KV_PAGE * 2 * 2 * 2 * 16 * 2}};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        for (size_t threads = 1; threads <= (s == 0 ? 3 : 2); threads++) {
            engine_options o = settings[s];
            o.kv_type = type;
            w = open_world(path, threads, o);
            answers_together(w.e, r, together);
            for (size_t i = 0; i < N_REQUESTS; i++) assert_same(&alone[i], &together[i]);
            world_close(&w);
        }
    }
}

static void test_same_answer_quantized(void **state) {
    (void)state;
    same_answer(path_q8, KV_F16);
}

static void test_same_answer_float(void **state) {
    (void)state;
    same_answer(path_f32, KV_F16);
}

static void test_same_answer_with_kv_in_8_bits(void **state) {
    (void)state;
    same_answer(path_q8, KV_Q8);
    same_answer(path_f32, KV_Q8);
}

/* Another cache is another rounding, and nothing more: close, but not the same. */
static void test_kv_in_8_bits_is_close(void **state) {
    (void)state;
    request r = make_request(4);
    answer a[KV_TYPE_COUNT];
    double difference = 0;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        world w = open_world(path_f32, 1, (engine_options){.max_running = 1, .kv_type = (kv_type)type});
        assert_int_equal(engine_kv_type(w.e), type);
        a[type] = answer_alone(w.e, &r);
        world_close(&w);
    }
    for (size_t i = 0; i < a[0].n && a[0].ids[i] == a[1].ids[i]; i++) {
        double d = fabs((double)a[0].logprobs[i] - (double)a[1].logprobs[i]);
        if (d > difference) difference = d;
    }
    assert_true(difference > 0 && difference < 0.05);
}

static void test_kv_type_takes_half_the_memory(void **state) {
    (void)state;
    const lm_config c = {.n_layer = 30, .n_head_kv = 3, .head_dim_k = 64, .head_dim_v = 64};
    assert_int_equal(kv_bytes_per_token(&c, KV_F16), 30 * 3 * 128 * 2);
    assert_int_equal(kv_bytes_per_token(&c, KV_Q8), 30 * 3 * (128 + 4 * 2));
    engine_options o = {.kv_type = KV_TYPE_COUNT};
    world w;
    error err;
    assert_int_equal(world_open(&w, path_q8, 1, &o, &err), CHURON_INVALID);
    assert_string_equal(err.message, "kv_type: expected 0..1, got 2");
    world_close(&w);
    /* The same memory holds nearly twice the pages. */
    size_t pages[KV_TYPE_COUNT];
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        w = open_world(path_q8, 1, (engine_options){.kv_memory = 1 << 20, .kv_type = (kv_type)type});
        engine_load load;
        engine_load_get(w.e, &load);
        pages[type] = load.kv_pages;
        world_close(&w);
    }
    assert_true(pages[KV_Q8] * 100 > pages[KV_F16] * 175);
}

/* ---- sequences that go on --------------------------------------------------------------------------- */

static void test_second_turn_equals_one_prompt(void **state) {
    (void)state;
    world w = open_world(path_q8, 2, (engine_options){.max_running = 2});
    request r = make_request(3);
    r.n_prompt = 20;
    r.max_tokens = 12;
    answer first, second, whole;
    running run;
    error err;
    assert_int_equal(start(w.e, &r, &first, &run, &err), CHURON_OK);
    (void)engine_wait(run.job);
    engine_job_free(run.job);
    assert_int_equal(engine_seq_append(run.seq, r.prompt, 7, &err), CHURON_OK);
    second = (answer){0};
    engine_job_options o = job_options(&r, &second);
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
    (void)engine_wait(run.job);

    request all = r;
    const size_t before = engine_seq_length(run.seq) - second.n;
    memcpy(all.prompt, engine_seq_tokens(run.seq), before * sizeof *all.prompt);
    all.n_prompt = before;
    whole = answer_alone(w.e, &all);
    assert_same(&second, &whole);
    engine_job_free(run.job);

    /* Back to the first prompt and once more: the same as at first. */
    assert_int_equal(engine_seq_truncate(run.seq, r.n_prompt, &err), CHURON_OK);
    answer again = {0};
    o = job_options(&r, &again);
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
    (void)engine_wait(run.job);
    assert_same(&first, &again);
    finish(&run);
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_context_is_a_limit(void **state) {
    (void)state;
    world w = open_world(path_q8, 1, (engine_options){.context = 64});
    engine_seq *s;
    error err;
    int32_t ids[65] = {0};
    assert_int_equal(engine_seq_open(&s, w.e, NULL, &err), CHURON_OK);
    assert_int_equal(engine_seq_append(s, ids, 65, &err), CHURON_LIMIT);
    assert_string_equal(err.message, "context: expected at most 64 tokens, got 65");
    assert_int_equal(engine_seq_length(s), 0);
    assert_int_equal(engine_seq_append(s, (int32_t[]){TINY_VOCAB}, 1, &err), CHURON_INVALID);
    assert_int_equal(engine_seq_append(s, ids, 60, &err), CHURON_OK);
    request r = make_request(1);
    answer a = {0};
    r.max_tokens = MAX_TOKENS;
    engine_job_options o = job_options(&r, &a);
    engine_job *j;
    assert_int_equal(engine_submit(&j, s, &o, &err), CHURON_OK);
    assert_int_equal(engine_wait(j), ENGINE_LENGTH);
    assert_int_equal(a.n, 4); /* the last token is told, not computed */
    engine_job_free(j);
    engine_seq_close(s);
    world_close(&w);
    assert_int_equal(world_open(&w, path_q8, 1, &(engine_options){.context = TINY_CONTEXT + 1}, &err),
                     CHURON_LIMIT);
    assert_non_null(strstr(err.message, "1024"));
    assert_non_null(strstr(err.message, "1025"));
    world_close(&w);
}

static void test_queue_is_bounded(void **state) {
    (void)state;
    world w = open_world(path_q8, 1, (engine_options){.max_running = 1, .max_queued_tokens = 100});
    request r = make_request(2);
    r.n_prompt = 40;
    answer a[4];
    running runs[4];
    error err;
    for (size_t i = 0; i < 3; i++) {
        status st = start(w.e, &r, &a[i], &runs[i], &err);
        assert_int_equal(st, i < 2 ? CHURON_OK : CHURON_BUSY);
    }
    (void)engine_wait(runs[1].job);
    finish(&runs[0]);
    finish(&runs[1]);
    assert_all_given_back(w.e);
    world_close(&w);
}

/* What fits alone is never refused for the company's sake: sequences that nobody computes give their pages
 * up, those that wait wait, and everybody gets the answer that it gets alone. */
static void test_idle_sequences_give_way(void **state) {
    (void)state;
    enum { N = 6, PAGES = 10 };
    const uint64_t page = (uint64_t)KV_PAGE * 2 * 2 * 2 * 16 * 2; /* layers, KV heads, keys and values, f16 */
    world w = open_world(path_q8, 2, (engine_options){.max_running = 4, .kv_memory = PAGES * page});
    request r = make_request(5);
    r.n_prompt = 150;
    r.max_tokens = 40; /* 6 pages: two do not fit together */
    answer alone = answer_alone(w.e, &r), a[N];
    running runs[N];
    error err;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N; i++) {
            if (start(w.e, &r, &a[i], &runs[i], &err) != CHURON_OK) fail_msg("%s", err.message);
        }
        for (size_t i = 0; i < N; i++) {
            if (engine_wait(runs[i].job) != ENGINE_LENGTH) fail_msg("%s", a[i].err.message);
            assert_same(&alone, &a[i]);
            engine_job_free(runs[i].job); /* the sequence stays open and idle */
        }
        /* A turn on a sequence whose pages were taken is computed again. */
        answer again = {0};
        engine_job_options o = job_options(&r, &again);
        assert_int_equal(engine_seq_truncate(runs[0].seq, r.n_prompt, &err), CHURON_OK);
        assert_int_equal(engine_submit(&runs[0].job, runs[0].seq, &o, &err), CHURON_OK);
        assert_int_equal(engine_wait(runs[0].job), ENGINE_LENGTH);
        assert_same(&alone, &again);
        engine_job_free(runs[0].job);
        for (size_t i = 0; i < N; i++) engine_seq_close(runs[i].seq);
        assert_all_given_back(w.e);
    }
    world_close(&w);
}

/* ---- cancelling ------------------------------------------------------------------------------------- */

static void test_cancel_anywhere(void **state) {
    (void)state;
    world w = open_world(path_q8, 2, (engine_options){.max_running = 2, .step_tokens = 8});
    static request r[N_REQUESTS];
    static answer alone[N_REQUESTS], a[N_REQUESTS];
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        r[i] = make_request(i * 31 + 1);
        alone[i] = answer_alone(w.e, &r[i]);
    }
    for (uint32_t round = 0; round < 24; round++) {
        running runs[6];
        error err;
        for (size_t i = 0; i < 6; i++) assert_int_equal(start(w.e, &r[i], &a[i], &runs[i], &err), CHURON_OK);
        for (uint32_t steps = 0; steps < round; steps++) (void)engine_wait_step(runs[5].job);
        for (size_t i = 0; i < 6; i += 2)
            engine_cancel(runs[i].job); /* queued, in prefill, decoding, ended */
        for (size_t i = 0; i < 6; i++) {
            engine_finish f = engine_wait(runs[i].job);
            assert_true(a[i].ended && a[i].finish == f);
            if (i % 2) assert_same(&a[i], &alone[i]);
            finish(&runs[i]);
        }
        assert_all_given_back(w.e);
    }
    world_close(&w);
}

static engine_verdict halt_at_three(void *user, const sampled *t) {
    (void)on_token(user, t);
    return ((answer *)user)->n == 3 ? ENGINE_HALT : ENGINE_GO_ON;
}

static void test_halt_and_stop_ids(void **state) {
    (void)state;
    world w = open_world(path_q8, 1, (engine_options){0});
    request r = make_request(9);
    r.max_tokens = 20;
    answer full = answer_alone(w.e, &r), a;
    running run;
    error err;
    assert_int_equal(engine_seq_open(&run.seq, w.e, NULL, &err), CHURON_OK);
    assert_int_equal(engine_seq_append(run.seq, r.prompt, r.n_prompt, &err), CHURON_OK);
    a = (answer){0};
    engine_job_options o = job_options(&r, &a);
    o.on_token = halt_at_three;
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
    assert_int_equal(engine_wait(run.job), ENGINE_STOP);
    assert_int_equal(a.n, 3);
    engine_job_free(run.job);
    assert_int_equal(engine_seq_truncate(run.seq, r.n_prompt, &err), CHURON_OK);
    a = (answer){0};
    o = job_options(&r, &a);
    o.stop_ids = &full.ids[5];
    o.n_stop_ids = 1;
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
    assert_int_equal(engine_wait(run.job), ENGINE_STOP);
    assert_int_equal(a.ids[a.n - 1], full.ids[5]);
    finish(&run);
    world_close(&w);
}

/* ---- many threads ----------------------------------------------------------------------------------- */

typedef struct caller {
    engine *e;
    const request *r;
    const answer *expected;
    size_t n;
    atomic_int *wrong;
    bool cancels;
} caller;

static void *call(void *ctx) {
    caller *c = ctx;
    for (size_t i = 0; i < c->n; i++) {
        answer a;
        running run;
        error err;
        if (start(c->e, &c->r[i], &a, &run, &err) != CHURON_OK) {
            atomic_fetch_add(c->wrong, 1);
            continue;
        }
        if (c->cancels && i % 2) engine_cancel(run.job);
        engine_finish f = engine_wait(run.job);
        bool same = a.n == c->expected[i].n && memcmp(a.ids, c->expected[i].ids, a.n * sizeof *a.ids) == 0;
        if (f == ENGINE_LENGTH && !same) atomic_fetch_add(c->wrong, 1);
        finish(&run);
    }
    return NULL;
}

static void *serve(void *e) {
    engine_run(e, NULL, NULL);
    return NULL;
}

static void callers(bool with_service) {
    world w = open_world(path_q8, 2, (engine_options){.max_running = 4, .step_tokens = 32});
    static request r[N_REQUESTS];
    static answer alone[N_REQUESTS];
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        r[i] = make_request(i * 13 + 7);
        alone[i] = answer_alone(w.e, &r[i]);
    }
    pthread_t service, threads[6];
    atomic_int wrong = 0;
    if (with_service) assert_int_equal(pthread_create(&service, NULL, serve, w.e), 0);
    caller c = {w.e, r, alone, 12, &wrong, false}, canceller = c;
    canceller.cancels = true;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call, i % 2 ? &canceller : &c), 0);
    }
    for (size_t i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    if (with_service) {
        engine_stop(w.e);
        pthread_join(service, NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_callers_share_steps(void **state) {
    (void)state;
    callers(false);
}

static void test_callers_of_a_service(void **state) {
    (void)state;
    callers(true);
}

static void test_stop_ends_everything(void **state) {
    (void)state;
    world w = open_world(path_q8, 2, (engine_options){.max_running = 2, .step_tokens = 8});
    pthread_t service;
    assert_int_equal(pthread_create(&service, NULL, serve, w.e), 0);
    answer a[8];
    running runs[8];
    error err;
    request r = make_request(4);
    r.n_prompt = 300;
    for (size_t i = 0; i < 8; i++) assert_int_equal(start(w.e, &r, &a[i], &runs[i], &err), CHURON_OK);
    engine_stop(w.e);
    for (size_t i = 0; i < 8; i++) {
        (void)engine_wait(runs[i].job);
        assert_true(a[i].ended);
        finish(&runs[i]);
    }
    pthread_join(service, NULL);
    assert_all_given_back(w.e);
    world_close(&w);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

static void test_decode_allocates_nothing(void **state) {
    (void)state;
    world w = open_world(path_q8, 2, (engine_options){.max_running = 1});
    request r = make_request(6);
    r.n_prompt = 30;
    r.max_tokens = 40;
    answer a;
    running run;
    error err;
    assert_int_equal(start(w.e, &r, &a, &run, &err), CHURON_OK);
    int64_t before = mem_count();
    assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
    assert_int_equal(mem_count(), before);
    finish(&run);
    world_close(&w);
}

static status load_and_answer(const request *r, answer *a, error *err) {
    world w;
    status st = world_open(&w, path_q8, 2, &(engine_options){.max_running = 2, .context = 128}, err);
    running run;
    if (st == CHURON_OK) st = start(w.e, r, a, &run, err);
    if (st == CHURON_OK) {
        if (engine_wait(run.job) == ENGINE_FAILED) st = a->err.code;
        finish(&run);
    }
    world_close(&w);
    return st;
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    request r = make_request(8);
    r.n_prompt = 20;
    r.max_tokens = 4;
    answer expected, a;
    error err;
    assert_int_equal(load_and_answer(&r, &expected, &err), CHURON_OK);
    bool done = false;
    for (int64_t n = 1; !done && n < 10000; n++) {
        int64_t before = mem_count();
        mem_fail_at(n);
        status st = load_and_answer(&r, &a, &err);
        mem_fail_at(0);
        done = mem_count() - before < n;
        if (st == CHURON_OK) {
            assert_same(&a, &expected);
        } else {
            assert_int_equal(st, CHURON_NO_MEMORY);
        }
    }
    assert_true(done);
}

static int make_models(void **state) {
    (void)state;
    return tiny_write(path_q8, true, 1) && tiny_write(path_f32, false, 2) ? 0 : -1;
}

static int drop_models(void **state) {
    (void)state;
    (void)unlink(path_q8);
    (void)unlink(path_f32);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answer_quantized),
        cmocka_unit_test(test_same_answer_float),
        cmocka_unit_test(test_same_answer_with_kv_in_8_bits),
        cmocka_unit_test(test_kv_in_8_bits_is_close),
        cmocka_unit_test(test_kv_type_takes_half_the_memory),
        cmocka_unit_test(test_second_turn_equals_one_prompt),
        cmocka_unit_test(test_context_is_a_limit),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_idle_sequences_give_way),
        cmocka_unit_test(test_cancel_anywhere),
        cmocka_unit_test(test_halt_and_stop_ids),
        cmocka_unit_test(test_callers_share_steps),
        cmocka_unit_test(test_callers_of_a_service),
        cmocka_unit_test(test_stop_ends_everything),
        cmocka_unit_test(test_decode_allocates_nothing),
        cmocka_unit_test(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
