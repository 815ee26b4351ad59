/* test_engine_same_answers.c: the proof of "the same answer under any load". 200 requests of many kinds,
 * alone one by one and computing everything; then all at once in a pool so small that jobs are put off, with
 * prompts cut into pieces of 16, 64 and 512 tokens, with a cold and a warm prefix cache, on 1 and 2 threads,
 * on every instruction set, with either type of keys and values: every token and every log-probability has
 * the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_world.h"

#ifdef __SANITIZE_THREAD__
enum { N = 32, FEWER = 16 }; /* ten times slower, and the arithmetic is not the question */
#else
enum { N = 200, FEWER = 32 };
#endif
enum { BEGINNINGS = 4, POOL_MANY = 40, POOL_FEW = 13 };

static char path[40];
static request requests[N];
static answer alone[N], together[N];

static int32_t token_of(uint32_t *r) {
    return (int32_t)(lcg(r) % TINY_VOCAB);
}

/* Half of the prompts begin with one of a few texts, up to some point. */
static void make_prompt(request *r, uint32_t *seed) {
    const size_t n = 1 + lcg(seed) % (lcg(seed) % 6 ? 50 : 200);
    size_t at = 0;
    if (lcg(seed) % 2) {
        uint32_t beginning = lcg(seed) % BEGINNINGS + 1000;
        for (const size_t end = 1 + lcg(seed) % 100; at < end; at++) r->prompt[at] = token_of(&beginning);
    }
    for (const size_t end = at + n; at < end; at++) r->prompt[at] = token_of(seed);
    r->n_prompt = at;
}

static void make_request(request *r, uint32_t seed) {
    static const char *const tenants[] = {"", "a", "b"}, *const salts[] = {NULL, "x"};
    static const logit_bias bias[] = {{3, 4.0f}, {TINY_VOCAB - 1, -INFINITY}};
    make_prompt(r, &seed);
    r->max_tokens = lcg(&seed) % 4 ? 1 + lcg(&seed) % 12 : 36 + lcg(&seed) % 28;
    r->priority = (int32_t)(lcg(&seed) % 3) - 1;
    r->seq = (engine_seq_options){
        .tenant = tenants[lcg(&seed) % 3], .salt = salts[lcg(&seed) % 4 == 0], .shared = lcg(&seed) % 3 == 0};
    sampler_params *s = &r->sampling;
    *s = sampler_defaults();
    s->seed = lcg(&seed);
    s->temperature = lcg(&seed) % 4 ? 0.5f + (float)(lcg(&seed) % 10) / 10.0f : 0.0f;
    s->top_k = lcg(&seed) % 3 ? 0 : 20;
    s->top_p = lcg(&seed) % 2 ? 0.9f : 1.0f;
    s->min_p = lcg(&seed) % 5 ? 0.0f : 0.02f;
    s->repeat_penalty = lcg(&seed) % 3 ? 1.0f : 1.3f;
    s->repeat_last_n = 40;
    s->frequency_penalty = lcg(&seed) % 4 ? 0.0f : 0.7f;
    s->presence_penalty = lcg(&seed) % 4 ? 0.0f : 0.4f;
    s->dry_multiplier = lcg(&seed) % 6 ? 0.0f : 0.8f;
    s->xtc_probability = lcg(&seed) % 6 ? 0.0f : 0.5f;
    s->xtc_threshold = 0.1f;
    if (lcg(&seed) % 5 == 0) {
        s->bias = bias;
        s->n_bias = 2;
    }
    s->want_logprobs = true;
    s->n_logprobs = lcg(&seed) % (MAX_TOP + 1);
}

static void answer_alone(const kernels *k, kv_type type, size_t n) {
    world w =
        open_world(path, k, 1, (engine_options){.max_running = 1, .kv_type = type, .no_prefix_cache = true});
    for (size_t i = 0; i < n; i++) {
        running run = start(w.e, &requests[i], &alone[i]);
        assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
        finish(&run);
    }
    world_close(&w);
}

/* Nearly all at once: a few steps between every 4, so that urgent ones come when others run; and with some
 * that are cancelled at one time or another. */
static void answer_together(world *w, size_t n) {
    enum { DISTURB = 12 };
    static answer lost[DISTURB];
    running runs[N], disturbing[DISTURB];
    for (size_t i = 0; i < n; i++) {
        runs[i] = start(w->e, &requests[i], &together[i]);
        for (size_t s = 0; i % 4 == 3 && s < 12; s++) (void)engine_wait_step(runs[i].job);
        if (i % (n / DISTURB) == 0 && i / (n / DISTURB) < DISTURB) {
            const size_t d = i / (n / DISTURB);
            disturbing[d] = start(w->e, &requests[(i * 7 + 3) % n], &lost[d]);
        }
    }
    for (size_t d = 0; d < DISTURB; d++) {
        for (size_t s = 0; s < d; s++) (void)engine_wait_step(disturbing[d].job);
        engine_cancel(disturbing[d].job);
    }
    for (size_t i = 0; i < n; i++) {
        if (engine_wait(runs[i].job) != ENGINE_LENGTH) fail_msg("%s", together[i].err.message);
        finish(&runs[i]);
        assert_same(&alone[i], &together[i]);
    }
    for (size_t d = 0; d < DISTURB; d++) {
        (void)engine_wait(disturbing[d].job);
        finish(&disturbing[d]);
    }
    assert_all_given_back(w->e);
}

static void under_load(const kernels *k, kv_type type, size_t step_tokens, size_t threads, size_t n) {
    static const engine_tenant tenants[] = {{"a", 2.0}};
    engine_options o = {.context = 512,
                        .max_running = 12,
                        .step_tokens = step_tokens,
                        .kv_type = type,
                        .max_queued_tokens = 1 << 20,
                        .inter_token_target = step_tokens == 64 ? 1e-4 : 0.05,
                        .tenants = tenants,
                        .n_tenants = 1};
    world w = open_world(path, k, threads, o);
    const size_t pages = n > 100 ? POOL_MANY : POOL_FEW;
    const uint64_t small = tiny_pages(&w, type, pages), ample = tiny_pages(&w, type, 4000);
    world_close(&w);
    o.kv_memory = small;
    w = open_world(path, k, threads, o);
    assert_int_equal(load_of(w.e).kv_pages, pages);
    answer_together(&w, n);
    const engine_load cold = load_of(w.e);
    assert_true(cold.preemptions > 0);
    assert_true(cold.cache_hits > 0 && cold.cache_evictions > 0);
    world_close(&w);
    if (step_tokens != 16 || threads != 1) return;
    /* A pool that keeps everything: the second time all is known. */
    o.kv_memory = ample;
    w = open_world(path, k, threads, o);
    answer_together(&w, n);
    const uint64_t before = load_of(w.e).cache_hits;
    answer_together(&w, n);
    const engine_load warm = load_of(w.e);
    size_t prompts = 0;
    for (size_t i = 0; i < n; i++) prompts += requests[i].n_prompt - 1;
    /* All but the last token of each, and what the cancelled ones found. */
    assert_true(warm.cache_hits - before >= prompts);
    world_close(&w);
}

static void test_every_chunk_size_on_one_and_two_threads(void **state) {
    (void)state;
    answer_alone(NULL, KV_F16, N);
    static const size_t steps[] = {16, 64, 512};
    for (size_t i = 0; i < 3; i++) {
        for (size_t threads = 1; threads <= 2; threads++) under_load(NULL, KV_F16, steps[i], threads, N);
    }
}

static void test_every_instruction_set_and_kv_type(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            answer_alone(k, (kv_type)type, FEWER);
            under_load(k, (kv_type)type, 16, 1, FEWER);
        }
    }
}

static int make(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N; i++) make_request(&requests[i], i * 7919 + 17);
    return tiny_write(path, true, 3) ? 0 : -1;
}

static int drop(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_chunk_size_on_one_and_two_threads),
        cmocka_unit_test(test_every_instruction_set_and_kv_type),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
