/* test_engine_sharing.c: what jobs share and how they stand in each other's way: prefixes found, computed
 * once and never across tenants; forks; priorities, places of tenants, deadlines, cancelling; what the load
 * says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine_world.h"

#include <pthread.h>

static char path[40];

static request plain(uint32_t seed, size_t n_prompt, size_t max_tokens) {
    request r = {.n_prompt = n_prompt, .max_tokens = max_tokens, .sampling = sampler_defaults()};
    r.sampling.want_logprobs = true;
    r.sampling.seed = seed;
    for (size_t i = 0; i < n_prompt; i++) r.prompt[i] = (int32_t)(lcg(&seed) % TINY_VOCAB);
    return r;
}

static answer run_one(engine *e, const request *r, engine_job_stats *stats) {
    answer a = {0};
    running run = start(e, r, &a);
    (void)engine_wait(run.job);
    if (stats) *stats = engine_job_stats_get(run.job);
    finish(&run);
    return a;
}

/* ---- prefixes --------------------------------------------------------------------------------------- */

static void test_a_hit_is_a_miss_bit_for_bit(void **state) {
    (void)state;
    world cold = open_world(path, NULL, 1, (engine_options){.no_prefix_cache = true});
    world w = open_world(path, NULL, 1, (engine_options){0});
    engine_job_stats stats;
    for (size_t n = 1; n < 200; n += 13) {
        const request r = plain(7, n, 6);
        const answer a = run_one(cold.e, &r, &stats), b = run_one(w.e, &r, NULL);
        assert_int_equal(stats.cached_tokens, 0);
        const answer c = run_one(w.e, &r, &stats);
        assert_same(&a, &b);
        assert_same(&a, &c);
        /* All but the last token is known the second time, whatever page it ends in. */
        assert_int_equal(stats.prompt_tokens, n);
        assert_int_equal(stats.cached_tokens, n - 1);
    }
    const engine_load l = load_of(cold.e);
    assert_true(l.cache_hits == 0 && l.cache_queries == 0 && l.kv_pages_cached == 0 &&
                l.cache_evictions == 0);
    assert_true(l.kv_pages_free == l.kv_pages && load_of(w.e).kv_pages_cached > 0);
    assert_all_given_back(w.e);
    world_close(&cold);
    world_close(&w);
}

/* Sent at once, cold: the part that all have in common is computed once, and others are not held up. */
static void test_a_shared_beginning_is_computed_once(void **state) {
    (void)state;
    enum { N = 16, SHARED = 300, OWN = 9 };
    world w = open_world(path, NULL, 2, (engine_options){.max_running = 16, .step_tokens = 32});
    request r[N], other = plain(99, 20, 3);
    static answer alone[N], a[N];
    running runs[N];
    for (uint32_t i = 0; i < N; i++) {
        r[i] = plain(5, SHARED, 4);
        const request own = plain(100 + i, OWN, 0);
        memcpy(r[i].prompt + SHARED, own.prompt, OWN * sizeof *own.prompt);
        r[i].n_prompt = SHARED + OWN;
        world fresh = open_world(path, NULL, 1, (engine_options){.max_running = 1});
        alone[i] = run_one(fresh.e, &r[i], NULL);
        world_close(&fresh);
    }
    uint64_t clock = 0;
    for (size_t i = 0; i < N; i++) {
        a[i].clock = &clock;
        runs[i] = start(w.e, &r[i], &a[i]);
    }
    answer b = {.clock = &clock};
    other.seq.tenant = "other";
    running besides = start(w.e, &other, &b);
    for (size_t i = 0; i < N; i++) {
        (void)engine_wait(runs[i].job);
        finish(&runs[i]);
        assert_same(&alone[i], &a[i]);
    }
    (void)engine_wait(besides.job);
    finish(&besides);
    assert_true(b.first < a[1].first); /* it did not wait for the beginning of the others */
    assert_int_equal(load_of(w.e).prompt_tokens, SHARED + N * OWN + other.n_prompt);
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_tenants_and_salts_share_nothing(void **state) {
    (void)state;
    static const engine_seq_options names[] = {
        {.tenant = "a"},                              /* 0 */
        {.tenant = "b"},                              /* 1 */
        {.tenant = "a", .salt = "s"},                 /* 2 */
        {.tenant = "as"},                             /* 3 */
        {.tenant = "a", .shared = true},              /* 4 */
        {.tenant = "b", .shared = true},              /* 5 */
        {.tenant = "b", .salt = "s", .shared = true}, /* 6 */
        {0},                                          /* 7 */
    };
    enum { N = sizeof names / sizeof *names };
    /* Who finds what the one before left: itself always, and 4 and 5 each other. */
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            world w = open_world(path, NULL, 1, (engine_options){0});
            request r = plain(3, 100, 1);
            engine_job_stats stats;
            r.seq = names[i];
            (void)run_one(w.e, &r, NULL);
            r.seq = names[j];
            (void)run_one(w.e, &r, &stats);
            const bool may = i == j || (i == 4 && j == 5) || (i == 5 && j == 4);
            assert_int_equal(stats.cached_tokens, may ? 99 : 0);
            world_close(&w);
        }
    }
}

static void test_names_are_bounded(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){0});
    char name[258];
    memset(name, 'x', sizeof name);
    name[257] = '\0';
    engine_seq *s;
    error err;
    assert_int_equal(engine_seq_open(&s, w.e, &(engine_seq_options){.tenant = name}, &err), CHURON_INVALID);
    assert_string_equal(err.message, "tenant: expected at most 256 bytes, got more");
    assert_int_equal(engine_seq_open(&s, w.e, &(engine_seq_options){.salt = name}, &err), CHURON_INVALID);
    name[256] = '\0';
    assert_int_equal(engine_seq_open(&s, w.e, &(engine_seq_options){name, name, false}, &err), CHURON_OK);
    engine_seq_close(s);
    world_close(&w);
}

/* ---- forks ------------------------------------------------------------------------------------------ */

static void test_forks_go_their_own_way(void **state) {
    (void)state;
    enum { N = 5 };
    world w = open_world(path, NULL, 2, (engine_options){.step_tokens = 16});
    request r = plain(21, 77, 12);
    static answer alone[N], a[N];
    running runs[N];
    error err;
    for (uint32_t i = 0; i < N; i++) {
        r.sampling.seed = i;
        alone[i] = run_one(w.e, &r, NULL);
    }
    world_close(&w);
    w = open_world(path, NULL, 2, (engine_options){0});
    open_with_prompt(&runs[0], w.e, &r);
    for (uint32_t i = 1; i < N; i++) {
        runs[i] = (running){0};
        assert_int_equal(engine_seq_fork(&runs[i].seq, runs[0].seq, &err), CHURON_OK);
    }
    for (uint32_t i = 0; i < N; i++) {
        r.sampling.seed = i;
        a[i] = (answer){0};
        const engine_job_options o = options_of(&r, &a[i]);
        submit(&runs[i], &o);
    }
    for (size_t i = 0; i < N; i++) {
        (void)engine_wait(runs[i].job);
        assert_same(&alone[i], &a[i]);
        finish(&runs[i]);
    }
    /* The prompt was computed once; each fork computes its last token again. */
    assert_int_equal(load_of(w.e).prompt_tokens, 77 + N - 1);
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_fork_of_one_that_computes(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.step_tokens = 16});
    const request r = plain(23, 60, 30);
    answer a = {0}, b = {0};
    running one = start(w.e, &r, &a), two = {0};
    error err;
    for (int i = 0; i < 12; i++) (void)engine_wait_step(one.job);
    assert_true(a.n > 3 && !a.ended);
    const size_t so_far = a.n;
    assert_int_equal(engine_seq_fork(&two.seq, one.seq, &err), CHURON_OK);
    assert_int_equal(engine_seq_length(two.seq), 60 + so_far);
    (void)engine_wait(one.job);
    assert_memory_equal(engine_seq_tokens(two.seq), engine_seq_tokens(one.seq),
                        (60 + so_far) * sizeof(int32_t));
    engine_job_options o = options_of(&r, &b);
    submit(&two, &o);
    (void)engine_wait(two.job);
    assert_true(engine_job_stats_get(two.job).cached_tokens >= 64);
    finish(&one);
    finish(&two);
    assert_all_given_back(w.e);
    world_close(&w);
}

/* ---- order ------------------------------------------------------------------------------------------ */

static void test_urgent_jobs_go_first(void **state) {
    (void)state;
    enum { N = 8 };
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 1, .step_tokens = 64});
    static answer a[N];
    running runs[N];
    uint64_t clock = 0;
    for (uint32_t i = 0; i < N; i++) {
        request r = plain(i, 10, 4);
        r.priority = (int32_t)(N - i);
        a[i] = (answer){.clock = &clock};
        runs[i] = start(w.e, &r, &a[i]);
    }
    for (size_t i = 0; i < N; i++) {
        (void)engine_wait(runs[i].job);
        finish(&runs[i]);
    }
    for (size_t i = 0; i + 1 < N; i++) assert_true(a[i].first > a[i + 1].last);
    world_close(&w);
}

static void test_a_flood_of_one_tenant(void **state) {
    (void)state;
    enum { N = 60 };
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 4, .step_tokens = 64});
    static answer a[N];
    running runs[N];
    answer alone, one = {0};
    request r = plain(1, 30, 40), mine = plain(2, 30, 40);
    mine.seq.tenant = "one";
    r.seq.tenant = "flood";
    alone = run_one(w.e, &mine, NULL);
    uint64_t clock = 0;
    for (size_t i = 0; i < N; i++) {
        a[i] = (answer){.clock = &clock};
        r.sampling.seed = i;
        runs[i] = start(w.e, &r, &a[i]);
    }
    for (int i = 0; i < 10; i++) (void)engine_wait_step(runs[N - 1].job);
    one.clock = &clock;
    const uint64_t before = clock;
    running mine_run = start(w.e, &mine, &one);
    (void)engine_wait(mine_run.job);
    assert_same(&alone, &one);
    assert_true(one.first - before <= 3 * 4); /* its place at once, although four run and 56 wait */
    assert_true(one.last - before <= 4 * 45);
    engine_tenant_load tenants[4];
    assert_int_equal(engine_tenants_get(w.e, tenants, 4), 2);
    const size_t at = strcmp(tenants[0].name, "one") == 0 ? 0 : 1;
    assert_string_equal(tenants[at].name, "one");
    assert_string_equal(tenants[1 - at].name, "flood");
    assert_int_equal(tenants[at].generated_tokens, 80);
    assert_int_equal(tenants[at].running + tenants[at].waiting, 0);
    assert_true(tenants[1 - at].running == 4 || tenants[1 - at].running == 3);
    assert_true(tenants[1 - at].waiting > 40);
    finish(&mine_run);
    for (size_t i = 0; i < N; i++) engine_cancel(runs[i].job);
    for (size_t i = 0; i < N; i++) {
        (void)engine_wait(runs[i].job);
        finish(&runs[i]);
    }
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_deadlines_in_queue_and_in_service(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 1, .step_tokens = 16});
    const request r = plain(1, 20, 60);
    answer a[3];
    memset(a, 0, sizeof a);
    running runs[3];
    const double soon = clock_seconds() + 0.05;
    for (size_t i = 0; i < 3; i++) {
        open_with_prompt(&runs[i], w.e, &r);
        engine_job_options o = options_of(&r, &a[i]);
        o.deadline = i == 2 ? 0 : i == 1 ? clock_seconds() - 1 : soon;
        submit(&runs[i], &o);
    }
    (void)engine_wait_step(runs[0].job);
    assert_true(a[1].ended && a[1].finish == ENGINE_DEADLINE && a[1].n == 0); /* waiting */
    for (int i = 0; i < 5; i++) (void)engine_wait_step(runs[0].job);
    while (clock_seconds() < soon) {}
    (void)engine_wait_step(runs[0].job);
    assert_true(a[0].ended && a[0].finish == ENGINE_DEADLINE && a[0].n > 0 && a[0].n < 60); /* in service */
    assert_int_equal(engine_wait(runs[2].job), ENGINE_LENGTH);
    for (size_t i = 0; i < 3; i++) finish(&runs[i]);
    assert_all_given_back(w.e);
    world_close(&w);
}

/* ---- pages ------------------------------------------------------------------------------------------ */

static void test_pages_are_taken_as_tokens_come(void **state) {
    (void)state;
    enum { N = 6 };
    world w = open_world(path, NULL, 1, (engine_options){.max_running = N, .step_tokens = 48});
    static answer a[N];
    running runs[N];
    for (uint32_t i = 0; i < N; i++) {
        const request r = plain(i + 1, 10 + 40 * i, MAX_TOKENS);
        runs[i] = start(w.e, &r, &a[i]);
    }
    for (int step = 0; step < 70; step++) {
        (void)engine_wait_step(runs[N - 1].job);
        const engine_load load = load_of(w.e);
        assert_int_equal(load.kv_page_tokens, KV_PAGE);
        assert_true(load.kv_tokens_wasted < load.running * load.kv_page_tokens + (load.running == 0));
        size_t pages = 0;
        for (size_t i = 0; i < N; i++) {
            engine_job_view v;
            engine_job_view_get(runs[i].job, &v);
            if (v.phase == ENGINE_ENDED || v.phase == ENGINE_WAITS) continue;
            assert_int_equal(v.kv_pages, (v.computed_tokens + KV_PAGE - 1) / KV_PAGE);
            pages += v.kv_pages;
        }
        assert_int_equal(load.kv_pages - load.kv_pages_free, pages);
    }
    for (size_t i = 0; i < N; i++) {
        (void)engine_wait(runs[i].job);
        finish(&runs[i]);
    }
    assert_all_given_back(w.e);
    world_close(&w);
}

static engine_options small_pool(size_t pages, engine_options o) {
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 1});
    o.kv_memory = tiny_pages(&w, o.kv_type, pages);
    world_close(&w);
    return o;
}

static void test_what_can_never_fit_is_refused_with_both_numbers(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, small_pool(4, (engine_options){0}));
    request r = plain(1, 100, 30);
    answer a = {0};
    running run;
    error err;
    open_with_prompt(&run, w.e, &r);
    engine_job_options o = options_of(&r, &a);
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_LIMIT);
    assert_string_equal(err.message, "KV cache: expected at most 128 tokens (prompt and answer), got 129");
    o.max_tokens = 29; /* the last token is told, not computed */
    submit(&run, &o);
    assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
    assert_int_equal(a.n, 29);
    finish(&run);
    /* Who asks for all there is gets what the pool holds. */
    a = (answer){0};
    open_with_prompt(&run, w.e, &r);
    o.max_tokens = engine_context(w.e);
    submit(&run, &o);
    assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
    assert_int_equal(a.n, 28);
    finish(&run);
    assert_all_given_back(w.e);
    world_close(&w);
}

/* A pool that runs out ends nobody's answer: those put off come back, in order, and say nothing twice. */
static void test_preempted_jobs_come_back(void **state) {
    (void)state;
    enum { N = 6 };
    static answer alone[N], a[N];
    request r[N];
    world w =
        open_world(path, NULL, 1, small_pool(10, (engine_options){.max_running = 6, .step_tokens = 64}));
    for (uint32_t i = 0; i < N; i++) {
        r[i] = plain(i + 40, 40, 60);
        r[i].sampling.repeat_penalty = 1.2f;
        r[i].sampling.repeat_last_n = 64;
        alone[i] = run_one(w.e, &r[i], NULL);
        assert_int_equal(alone[i].finish, ENGINE_LENGTH);
    }
    running runs[N];
    bool seen = false;
    for (size_t i = 0; i < N; i++) runs[i] = start(w.e, &r[i], &a[i]);
    while (engine_wait_step(runs[N - 1].job) == ENGINE_RUNNING) {
        for (size_t i = 0; i < N; i++) {
            engine_job_view v;
            engine_job_view_get(runs[i].job, &v);
            seen |= v.phase == ENGINE_PREEMPTED && v.preemptions > 0;
        }
    }
    size_t preemptions = 0;
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(engine_wait(runs[i].job), ENGINE_LENGTH);
        preemptions += engine_job_stats_get(runs[i].job).preemptions;
        if (i == 0) assert_int_equal(preemptions, 0);
        finish(&runs[i]);
        assert_same(&alone[i], &a[i]);
    }
    assert_true(seen && preemptions > 0);
    assert_int_equal(load_of(w.e).preemptions, preemptions);
    assert_int_equal(load_of(w.e).generated_tokens, 2 * N * 60);
    assert_all_given_back(w.e);
    world_close(&w);
}

static void test_cancelled_within_one_step(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 2, .step_tokens = 16});
    const request prompt = plain(3, 200, 4), chat = plain(4, 5, 60);
    answer a[3];
    memset(a, 0, sizeof a);
    running decodes = start(w.e, &chat, &a[0]), prefills, waits;
    for (int i = 0; i < 3; i++) (void)engine_wait_step(decodes.job);
    prefills = start(w.e, &prompt, &a[1]);
    waits = start(w.e, &chat, &a[2]);
    for (int i = 0; i < 2; i++) (void)engine_wait_step(decodes.job);
    assert_int_equal(load_of(w.e).running, 2);
    assert_int_equal(load_of(w.e).waiting, 1);
    engine_cancel(waits.job);
    engine_cancel(prefills.job);
    (void)engine_wait_step(decodes.job);
    assert_true(a[1].ended && a[2].ended);
    engine_load load = load_of(w.e);
    assert_int_equal(load.running, 1);
    assert_int_equal(load.waiting + load.waiting_tokens, 0);
    assert_int_equal(load.kv_pages - load.kv_pages_free, 1);
    engine_cancel(decodes.job);
    (void)engine_wait_step(decodes.job);
    assert_all_given_back(w.e);
    assert_int_equal(a[0].finish, ENGINE_CANCELLED);
    finish(&decodes);
    finish(&prefills);
    finish(&waits);
    world_close(&w);
}

typedef struct positions {
    uint8_t told[MAX_PROMPT];
    bool ended;
} positions;

static void tell(void *user, size_t position, const float *logits) {
    (void)logits;
    ((positions *)user)->told[position]++;
}

static void all_told(void *user, engine_finish f, const error *err) {
    (void)err;
    ((positions *)user)->ended = f == ENGINE_LENGTH;
}

/* Also when its pages were taken in the middle, and when another has computed the same prompt. */
static void test_all_logits_are_told_once_for_each_position(void **state) {
    (void)state;
    world w =
        open_world(path, NULL, 1, small_pool(12, (engine_options){.max_running = 3, .step_tokens = 16}));
    const request r = plain(9, 300, 1), urgent = plain(10, 200, 20);
    (void)run_one(w.e, &r, NULL);
    positions p = {0};
    running run, other;
    open_with_prompt(&run, w.e, &r);
    engine_job_options o = {
        .all_logits = true, .priority = 1, .user = &p, .on_logits = tell, .on_end = all_told};
    submit(&run, &o);
    for (int i = 0; i < 10; i++) (void)engine_wait_step(run.job);
    answer a = {0};
    other = start(w.e, &urgent, &a);
    (void)engine_wait(run.job);
    assert_int_equal(engine_job_stats_get(run.job).preemptions, 1);
    (void)engine_wait(other.job);
    assert_true(p.ended);
    for (size_t i = 0; i < 300; i++) assert_int_equal(p.told[i], 1);
    finish(&run);
    finish(&other);
    world_close(&w);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

static void test_steps_allocate_nothing(void **state) {
    (void)state;
    enum { N = 6 };
    world w =
        open_world(path, NULL, 2, small_pool(10, (engine_options){.max_running = 4, .step_tokens = 32}));
    static answer a[N];
    running runs[N];
    for (uint32_t i = 0; i < N; i++) {
        const request r = plain(i % 3, 40 + i, 40);
        runs[i] = start(w.e, &r, &a[i]);
    }
    const int64_t before = mem_count();
    for (size_t i = 0; i < N; i++) (void)engine_wait(runs[i].job);
    assert_int_equal(mem_count(), before);
    assert_true(load_of(w.e).preemptions > 0 && load_of(w.e).cache_hits > 0);
    for (size_t i = 0; i < N; i++) finish(&runs[i]);
    world_close(&w);
}

static status fork_and_answer(world *w, answer *a, error *err) {
    const request r = plain(8, 40, 3);
    engine_seq *s = NULL, *t = NULL;
    engine_job *j = NULL;
    *a = (answer){0};
    const engine_job_options o = options_of(&r, a);
    status st = engine_seq_open(&s, w->e, &(engine_seq_options){.tenant = "t", .salt = "s"}, err);
    if (st == CHURON_OK) st = engine_seq_append(s, r.prompt, r.n_prompt, err);
    if (st == CHURON_OK) st = engine_seq_fork(&t, s, err);
    if (st == CHURON_OK) st = engine_submit(&j, t, &o, err);
    if (st == CHURON_OK && engine_wait(j) == ENGINE_FAILED) st = a->err.code;
    engine_job_free(j);
    engine_seq_close(t);
    engine_seq_close(s);
    return st;
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    bool done = false;
    for (int64_t n = 1; !done && n < 1000; n++) {
        world w = open_world(path, NULL, 1, (engine_options){.max_running = 2, .context = 128});
        answer a;
        error err;
        const int64_t before = mem_count();
        mem_fail_at(n);
        const status st = fork_and_answer(&w, &a, &err);
        mem_fail_at(0);
        done = mem_count() - before < n;
        assert_true(st == CHURON_NO_MEMORY || (st == CHURON_OK && a.n == 3));
        assert_all_given_back(w.e);
        world_close(&w);
    }
    assert_true(done);
}

/* ---- threads ---------------------------------------------------------------------------------------- */

typedef struct looker {
    engine *e;
    running *runs;
    size_t n;
    bool stop;
    pthread_mutex_t lock;
} looker;

static void *look(void *ctx) {
    looker *l = ctx;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        const bool stop = l->stop;
        pthread_mutex_unlock(&l->lock);
        if (stop) return NULL;
        const engine_load load = load_of(l->e);
        assert_true(load.kv_pages_free <= load.kv_pages);
        engine_tenant_load t[2];
        (void)engine_tenants_get(l->e, t, 2);
        for (size_t i = 0; i < l->n; i++) {
            engine_job_view v;
            engine_job_view_get(l->runs[i].job, &v);
            assert_true(v.tokens <= MAX_TOKENS);
            engine_seq *fork;
            error err;
            assert_int_equal(engine_seq_fork(&fork, l->runs[i].seq, &err), CHURON_OK);
            assert_true(engine_seq_length(fork) >= v.prompt_tokens + v.tokens);
            engine_seq_close(fork);
        }
    }
}

static void test_others_may_look_while_it_steps(void **state) {
    (void)state;
    enum { N = 6 };
    world w =
        open_world(path, NULL, 2, small_pool(14, (engine_options){.max_running = 4, .step_tokens = 32}));
    static answer a[N];
    running runs[N];
    for (uint32_t i = 0; i < N; i++) {
        const request r = plain(i, 60, 50);
        runs[i] = start(w.e, &r, &a[i]);
    }
    looker l = {.e = w.e, .runs = runs, .n = N, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &l), 0);
    for (size_t i = 0; i < N; i++) assert_int_equal(engine_wait(runs[i].job), ENGINE_LENGTH);
    pthread_mutex_lock(&l.lock);
    l.stop = true;
    pthread_mutex_unlock(&l.lock);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < N; i++) finish(&runs[i]);
    assert_all_given_back(w.e);
    world_close(&w);
}

static int make(void **state) {
    (void)state;
    return tiny_write(path, true, 4) ? 0 : -1;
}

static int drop(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hit_is_a_miss_bit_for_bit),
        cmocka_unit_test(test_a_shared_beginning_is_computed_once),
        cmocka_unit_test(test_tenants_and_salts_share_nothing),
        cmocka_unit_test(test_names_are_bounded),
        cmocka_unit_test(test_all_logits_are_told_once_for_each_position),
        cmocka_unit_test(test_forks_go_their_own_way),
        cmocka_unit_test(test_fork_of_one_that_computes),
        cmocka_unit_test(test_urgent_jobs_go_first),
        cmocka_unit_test(test_a_flood_of_one_tenant),
        cmocka_unit_test(test_deadlines_in_queue_and_in_service),
        cmocka_unit_test(test_pages_are_taken_as_tokens_come),
        cmocka_unit_test(test_what_can_never_fit_is_refused_with_both_numbers),
        cmocka_unit_test(test_preempted_jobs_come_back),
        cmocka_unit_test(test_cancelled_within_one_step),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_every_allocation_can_fail),
        cmocka_unit_test(test_others_may_look_while_it_steps),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
