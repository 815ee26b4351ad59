/* test_sampler.c: every step of the sampler, its generator, its history, and that instruction sets, seeds and
 * memory behave. The whole chain is compared with an independent one in tests/oracle/test_sampler.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/history.h"
#include "lm/sampler.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng = 1;

static uint32_t next_random(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static float next_float(void) { /* -1..1 */
    return (float)((double)next_random() / 1073741824.0 - 1.0);
}

static sampler *make(const sampler_params *p, size_t n_vocab) {
    sampler *s;
    error err;
    if (sampler_create(&s, p, n_vocab, 512, &err) != CHURON_OK) fail_msg("%s", err.message);
    return s;
}

/* One token from a copy of the logits. */
static sampled next_of(sampler *s, const kernels *k, const float *logits, size_t n, uint64_t index) {
    float *copy = mem_alloc(n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, logits, n * sizeof *copy);
    sampled out;
    error err;
    int64_t before = mem_count();
    if (sampler_next(s, k, copy, index, &out, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(mem_count(), before);
    mem_free(copy);
    return out;
}

static const kernels *ref(void) {
    return kernels_for(KERNEL_REF);
}

static const kernels *best(void) {
    const kernels *k;
    error err;
    if (kernels_select(&k, &err) != CHURON_OK) fail_msg("%s", err.message);
    return k;
}

/* ---- generator --------------------------------------------------------------------------------------- */

/* Known answers published with Random123 (kat_vectors, philox4x32 10). */
static void test_philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        sampler_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(sampler_uniform(0, 0, 0) == (double)(UINT64_C(0x6627e8d5e169c58d) >> 11) * 0x1p-53);
}

static void test_uniform_depends_on_each_part(void **state) {
    (void)state;
    double u = sampler_uniform(1, 2, 3);
    assert_true(u != sampler_uniform(UINT64_C(1) << 40 | 1, 2, 3) && u != sampler_uniform(2, 2, 3));
    assert_true(u != sampler_uniform(1, UINT64_C(1) << 40 | 2, 3) && u != sampler_uniform(1, 3, 3));
    assert_true(u != sampler_uniform(1, 2, 4) && u == sampler_uniform(1, 2, 3));
    double sum = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        u = sampler_uniform(7, i, 0);
        sum += u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    assert_true(least >= 0 && least < 1e-4 && most < 1 && most > 1 - 1e-4);
    assert_true(fabs(sum / 100000 - 0.5) < 4 * sqrt(1.0 / 12 / 100000));
}

/* ---- checks ------------------------------------------------------------------------------------------ */

static void expect_refused(sampler_params p, const char *message) {
    error err;
    sampler *s;
    assert_int_equal(sampler_check(&p, 100, &err), CHURON_INVALID);
    assert_string_equal(err.message, message);
    assert_int_equal(sampler_create(&s, &p, 100, 10, &err), CHURON_INVALID);
    assert_null(s);
}

static void test_check_names_the_field(void **state) {
    (void)state;
    error err;
    sampler_params p = sampler_defaults();
    assert_int_equal(sampler_check(&p, 100, &err), CHURON_OK);
#define REFUSED(field, value, message)                                                                       \
    p = sampler_defaults();                                                                                  \
    p.field = value;                                                                                         \
    expect_refused(p, message)
    REFUSED(temperature, NAN, "temperature: expected 0 or more, got nan");
    REFUSED(temperature, INFINITY, "temperature: expected 0 or more, got inf");
    REFUSED(temperature, -0.5f, "temperature: expected 0 or more, got -0.5");
    REFUSED(top_p, 1.5f, "top_p: expected 0..1, got 1.5");
    REFUSED(top_p, NAN, "top_p: expected 0..1, got nan");
    REFUSED(min_p, -1, "min_p: expected 0..1, got -1");
    REFUSED(typical_p, 2, "typical_p: expected 0..1, got 2");
    REFUSED(repeat_penalty, 0, "repeat_penalty: expected more than 0, got 0");
    REFUSED(repeat_penalty, NAN, "repeat_penalty: expected more than 0, got nan");
    REFUSED(frequency_penalty, INFINITY, "frequency_penalty: expected a finite number, got inf");
    REFUSED(presence_penalty, NAN, "presence_penalty: expected a finite number, got nan");
    REFUSED(dry_multiplier, -1, "dry_multiplier: expected 0 or more, got -1");
    REFUSED(xtc_probability, 7, "xtc_probability: expected 0..1, got 7");
    REFUSED(xtc_threshold, -7, "xtc_threshold: expected 0..1, got -7");
    REFUSED(n_logprobs, TOP_MAX + 1, "logprobs: expected 0..1024, got 1025");
    p = sampler_defaults();
    p.dry_multiplier = 1;
    p.dry_base = 0.5f;
    expect_refused(p, "dry_base: expected 1 or more, got 0.5");
    p.dry_base = 2;
    p.dry_allowed_length = 0;
    expect_refused(p, "dry_allowed_length: expected 1 or more, got 0");
    logit_bias bias = {100, 1};
    p = sampler_defaults();
    p.bias = &bias;
    p.n_bias = 1;
    expect_refused(p, "logit_bias: expected a token id of 0..99, got 100");
    bias = (logit_bias){3, INFINITY};
    expect_refused(p, "logit_bias of 3: expected a number or -inf, got inf");
    bias.bias = -INFINITY;
    assert_int_equal(sampler_check(&p, 100, &err), CHURON_OK);
}

static void test_create_survives_failed_allocation(void **state) {
    (void)state;
    static const uint32_t top_ks[] = {0, 1, 40, 2000};
    int32_t breakers[] = {5, 3};
    logit_bias bias = {1, 1};
    for (size_t i = 0; i < 4; i++) {
        sampler_params p = sampler_defaults();
        p.top_k = top_ks[i];
        p.dry_multiplier = 1;
        p.dry_breakers = breakers, p.n_dry_breakers = 2;
        p.bias = &bias, p.n_bias = 1;
        p.n_logprobs = 3;
        for (int64_t n = 1;; n++) {
            sampler *s;
            error err;
            mem_fail_at(n);
            status st = sampler_create(&s, &p, 3000, 100, &err);
            mem_fail_at(0);
            if (st == CHURON_OK) {
                sampler_free(s);
                assert_true(n > 5);
                break;
            }
            assert_int_equal(st, CHURON_NO_MEMORY);
            assert_null(s);
        }
    }
}

/* ---- greedy and odd logits ---------------------------------------------------------------------------- */

static void test_greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    enum { N = 3000 };
    static float x[N];
    for (size_t i = 0; i < N; i++) x[i] = (float)(next_random() % 50);
    x[1234] = x[777] = x[2900] = 60;
    sampler_params p = sampler_defaults();
    p.temperature = 0;
    sampler *greedy = make(&p, N);
    p.temperature = 1.7f;
    p.top_k = 1;
    p.xtc_probability = 1;
    sampler *one = make(&p, N);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(next_of(greedy, best(), x, N, i).id, 777);
        assert_int_equal(next_of(one, best(), x, N, i).id, 777);
    }
    sampler_free(greedy);
    sampler_free(one);
}

static void test_odd_logits(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 5, 1024, 3000};
    static const struct {
        float temperature;
        uint32_t top_k;
        float top_p, typical_p;
    } ways[] = {{0, 0, 1, 1}, {1, 40, 1, 1}, {1, 0, 1, 1}, {1, 0, 0.9f, 1}, {1, 2000, 1, 1}, {1, 0, 1, 0.5f}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (size_t i = 0; i < 4; i++) {
            size_t n = sizes[i];
            sampler_params p = sampler_defaults();
            p.temperature = ways[w].temperature;
            p.top_k = ways[w].top_k;
            p.top_p = ways[w].top_p;
            p.typical_p = ways[w].typical_p;
            p.n_logprobs = 1;
            sampler *s = make(&p, n);
            float *x = mem_alloc(n * sizeof *x);
            assert_non_null(x);
            sampled out;
            error err;
            for (size_t j = 0; j < n; j++) x[j] = NAN;
            assert_int_equal(sampler_next(s, best(), x, 0, &out, &err), CHURON_INTERNAL);
            for (size_t j = 0; j < n; j++) x[j] = -INFINITY;
            assert_int_equal(sampler_next(s, best(), x, 0, &out, &err), CHURON_INTERNAL);
            for (size_t j = 0; j < n; j++) x[j] = j % 2 ? NAN : -INFINITY;
            x[n / 2] = -5;
            out = next_of(s, best(), x, n, 0);
            assert_int_equal(out.id, n / 2);
            assert_true(out.logprob == 0 && out.top[0].id == (int32_t)(n / 2) && out.top[0].logprob == 0);
            for (size_t j = 0; j < n; j++) x[j] = (float)j;
            x[n / 2] = INFINITY;
            assert_int_equal(next_of(s, best(), x, n, 0).id, n / 2);
            mem_free(x);
            sampler_free(s);
        }
    }
}

/* ---- what is kept ------------------------------------------------------------------------------------- */

/* The kept set as a dense array of probabilities. */
static void kept(const sampler *s, double *p, size_t n) {
    int32_t *ids = mem_alloc(n * sizeof *ids);
    double *values = mem_alloc(n * sizeof *values);
    assert_true(ids != NULL && values != NULL);
    size_t count = sampler_kept(s, ids, values, n);
    for (size_t i = 0; i < n; i++) p[i] = 0;
    for (size_t i = 0; i < count; i++) p[ids[i]] = values[i];
    mem_free(ids);
    mem_free(values);
}

static void expect_kept(sampler_params p, const float *logits, size_t n, const double *expected) {
    sampler *s = make(&p, n);
    (void)next_of(s, best(), logits, n, 0);
    double got[16];
    kept(s, got, n);
    for (size_t i = 0; i < n; i++) {
        if (fabs(got[i] - expected[i]) > 1e-6) {
            fail_msg("token %zu: probability %g, expected %g", i, got[i], expected[i]);
        }
    }
    sampler_free(s);
}

/* Probabilities 0.4, 0.3, 0.2, 0.1 in shuffled places. */
static void test_each_step_alone(void **state) {
    (void)state;
    float x[4] = {logf(0.2f), logf(0.4f), logf(0.1f), logf(0.3f)};
    sampler_params p = sampler_defaults(), q;
    p.temperature = 1;
    expect_kept(p, x, 4, (double[]){0.2, 0.4, 0.1, 0.3});
    q = p, q.temperature = 0.5f;
    expect_kept(q, x, 4, (double[]){0.04 / 0.3, 0.16 / 0.3, 0.01 / 0.3, 0.09 / 0.3});
    q = p, q.top_k = 2;
    expect_kept(q, x, 4, (double[]){0, 4.0 / 7, 0, 3.0 / 7});
    q = p, q.top_p = 0.65f;
    expect_kept(q, x, 4, (double[]){0, 4.0 / 7, 0, 3.0 / 7});
    q = p, q.top_p = 0.75f;
    expect_kept(q, x, 4, (double[]){2.0 / 9, 4.0 / 9, 0, 3.0 / 9});
    q = p, q.top_p = 0;
    expect_kept(q, x, 4, (double[]){0, 1, 0, 0});
    q = p, q.min_p = 0.4f;
    expect_kept(q, x, 4, (double[]){2.0 / 9, 4.0 / 9, 0, 3.0 / 9});
    q = p, q.min_p = 1;
    expect_kept(q, x, 4, (double[]){0, 1, 0, 0});
    /* entropy 1.28; -log p is 0.92, 1.20, 1.61, 2.30: 0.3 is the most typical, then 0.2, then 0.4 */
    q = p, q.typical_p = 0.25f;
    expect_kept(q, x, 4, (double[]){0, 0, 0, 1});
    q = p, q.typical_p = 0.45f;
    expect_kept(q, x, 4, (double[]){0.4, 0, 0, 0.6});
    q = p, q.xtc_probability = 1, q.xtc_threshold = 0.15f;
    expect_kept(q, x, 4, (double[]){2.0 / 3, 0, 1.0 / 3, 0});
    q = p, q.xtc_probability = 1, q.xtc_threshold = 0.35f; /* only one above: nothing happens */
    expect_kept(q, x, 4, (double[]){0.2, 0.4, 0.1, 0.3});
    logit_bias bias[2] = {{1, -INFINITY}, {2, logf(2)}};
    q = p, q.bias = bias, q.n_bias = 2;
    expect_kept(q, x, 4, (double[]){2.0 / 7, 0, 2.0 / 7, 3.0 / 7});
}

/* Among equal tokens the lower ids are kept, however many they are and whichever way finds the border. */
static void test_equal_tokens_are_kept_by_id(void **state) {
    (void)state;
    enum { N = 4000 };
    static float x[N];
    static double got[N];
    static const struct {
        size_t high; /* so many first tokens have twice the weight */
        float top_p;
        uint32_t top_k;
        size_t kept;
    } cases[] = {
        {0, 0.5f, 0, 2000},  {0, 0.01f, 0, 40},      {0, 1.0f, 1500, 1500},
        {0, 1.0f, 40, 40},   {500, 0.5f, 0, 1750},   {2000, 0.5f, 0, 1500},
        {100, 0.1f, 0, 310}, {100, 0.5f, 2000, 950}, {300, 0.1f, 0, 215},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t i = 0; i < N; i++) x[i] = i < cases[c].high ? 1 + logf(2) : 1;
        sampler_params p = sampler_defaults();
        p.temperature = 1;
        p.top_p = cases[c].top_p;
        p.top_k = cases[c].top_k;
        sampler *s = make(&p, N);
        for (uint64_t draw = 0; draw < 20; draw++) {
            assert_true((size_t)next_of(s, best(), x, N, draw).id < cases[c].kept + 1);
        }
        kept(s, got, N);
        size_t count = 0;
        for (size_t i = 0; i < N; i++) {
            if (got[i] == 0) break;
            count++;
        }
        for (size_t i = count; i < N; i++) assert_true(got[i] == 0);
        if (count + 1 < cases[c].kept || count > cases[c].kept + 1) { /* the sum may round either way */
            fail_msg("case %zu: %zu kept, expected %zu", c, count, cases[c].kept);
        }
        sampler_free(s);
    }
}

/* top-k before typical before top-p before min-p: each on what is left of the one before. */
static void test_order_of_steps(void **state) {
    (void)state;
    float x[5] = {logf(0.4f), logf(0.3f), logf(0.15f), logf(0.1f), logf(0.05f)};
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.top_k = 3;
    p.top_p = 0.5f; /* of 0.85: 0.4 alone has 0.47 */
    expect_kept(p, x, 5, (double[]){4.0 / 7, 3.0 / 7, 0, 0, 0});
    p.top_p = 1;
    p.xtc_probability = 1;
    p.xtc_threshold = 0.17f; /* 0.15 of 0.85 is over it only after top-k */
    expect_kept(p, x, 5, (double[]){0, 0, 1, 0, 0});
}

static void test_penalties(void **state) {
    (void)state;
    float x[4] = {2, 1, -1, 0.5f};
    static const int32_t seen[] = {3, 0, 2, 0, 2, 2};
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.repeat_penalty = 2;
    p.frequency_penalty = 0.25f;
    p.presence_penalty = 0.125f;
    p.repeat_last_n = 5; /* the 3 is out */
    float changed[4] = {2.0f / 2 - 0.5f - 0.125f, 1, -1.0f * 2 - 0.75f - 0.125f, 0.5f};
    double expected[4], sum = 0;
    for (int i = 0; i < 4; i++) sum += exp((double)changed[i]);
    for (int i = 0; i < 4; i++) expected[i] = exp((double)changed[i]) / sum;
    sampler *s = make(&p, 4);
    for (size_t i = 0; i < 6; i++) sampler_accept(s, seen[i]);
    (void)next_of(s, best(), x, 4, 0);
    double got[4];
    kept(s, got, 4);
    for (int i = 0; i < 4; i++) assert_true(fabs(got[i] - expected[i]) < 1e-6);
    sampler_free(s);
}

static void test_dry_penalizes_what_would_repeat(void **state) {
    (void)state;
    /* 1 2 3 4 … 2 3: a 4 would make the run of two one longer; a 9 follows the 3 alone */
    static const int32_t seen[] = {1, 2, 3, 4, 5, 3, 9, 2, 3};
    float x[10] = {0};
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.dry_multiplier = 0.5f;
    p.dry_base = 3;
    p.dry_allowed_length = 1;
    double expected[10], sum = 8 + exp(-0.5 * 3) + exp(-0.5);
    for (int i = 0; i < 10; i++) expected[i] = 1 / sum;
    expected[4] = exp(-0.5 * 3) / sum;
    expected[9] = exp(-0.5) / sum;
    sampler *s = make(&p, 10);
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) sampler_accept(s, seen[i]);
    (void)next_of(s, best(), x, 10, 0);
    double got[10];
    kept(s, got, 10);
    for (int i = 0; i < 10; i++) assert_true(fabs(got[i] - expected[i]) < 1e-6);
    sampler_free(s);
}

/* A run so long that base^length is no float bans the token but leaves the others alone. */
static void test_dry_never_overflows(void **state) {
    (void)state;
    float x[3] = {0, 0, 0};
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.dry_multiplier = 10;
    p.dry_base = 100;
    sampler *s = make(&p, 3);
    for (int i = 0; i < 500; i++) sampler_accept(s, 1);
    (void)next_of(s, best(), x, 3, 0);
    double got[3];
    kept(s, got, 3);
    assert_true(fabs(got[0] - 0.5) < 1e-6 && got[1] == 0 && fabs(got[2] - 0.5) < 1e-6);
    sampler_free(s);
}

/* ---- history ------------------------------------------------------------------------------------------ */

static uint32_t entry_of(const history *h, int32_t id) {
    for (size_t i = 0; i < h->n_entries; i++) {
        if (h->entries[i].id == id) return h->entries[i].value;
    }
    return 0;
}

static bool among(int32_t id, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

/* By the definition in history.h, looking at every earlier place for every id. */
static uint32_t longest_run(const int32_t *t, size_t n, int32_t id, const int32_t *breakers,
                            size_t n_breakers) {
    uint32_t longest = 0;
    if (among(id, breakers, n_breakers)) return 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (t[i + 1] != id) continue;
        uint32_t run = 0;
        while (run <= i && t[i - run] == t[n - 1 - run] && !among(t[n - 1 - run], breakers, n_breakers))
            run++;
        if (run > longest) longest = run;
    }
    return longest;
}

static void test_history_against_definition(void **state) {
    (void)state;
    enum { MAX = 64, IDS = 6 };
    static const int32_t breakers[] = {0, 4};
    history h;
    error err;
    assert_int_equal(history_open(&h, MAX, &err), CHURON_OK);
    int32_t all[1000];
    for (size_t n = 1; n <= 1000; n++) {
        size_t ids = n / 100 % 2 ? 2 : IDS;
        all[n - 1] = (int32_t)(n / 250 % 2 ? 1 + next_random() % ids : next_random() % ids);
        history_accept(&h, all[n - 1]);
        size_t last_n = next_random() % (MAX + 10), known = n < MAX ? n : MAX;
        if (last_n > known) last_n = known;
        const int32_t *t = all + n - last_n;
        history_counts(&h, last_n);
        for (int32_t id = 0; id < IDS; id++) {
            uint32_t count = 0;
            for (size_t i = 0; i < last_n; i++) count += t[i] == id;
            assert_int_equal(entry_of(&h, id), count);
        }
        size_t least = 1 + next_random() % 3, n_breakers = next_random() % 3;
        history_repeats(&h, last_n, least, breakers, n_breakers);
        for (int32_t id = 0; id < IDS; id++) {
            uint32_t run = longest_run(t, last_n, id, breakers, n_breakers);
            if (entry_of(&h, id) != (run >= least ? run : 0)) {
                fail_msg("after %zu tokens, last %zu, id %d: run %u, expected %u", n, last_n, (int)id,
                         entry_of(&h, id), run);
            }
        }
    }
    history_close(&h);
}

/* ---- draws -------------------------------------------------------------------------------------------- */

/* Chi-square of `draws` against probabilities; bins with few expected are put together. Returns it in
 * standard deviations above its mean (Wilson and Hilferty). */
static double chi_square(const uint32_t *count, const double *p, size_t n, size_t draws) {
    double sum = 0, rest_expected = 0, rest_count = 0;
    size_t bins = 0;
    for (size_t i = 0; i < n; i++) {
        double e = p[i] * (double)draws;
        if (e < 8) {
            rest_expected += e;
            rest_count += count[i];
            if (e == 0) assert_int_equal(count[i], 0);
            continue;
        }
        sum += (count[i] - e) * (count[i] - e) / e;
        bins++;
    }
    if (rest_expected >= 8) {
        sum += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
        bins++;
    }
    double df = (double)bins - 1;
    return (cbrt(sum / df) - (1 - 2 / (9 * df))) / sqrt(2 / (9 * df));
}

/* Exact probabilities of the plain chain: softmax at a temperature, the k largest, then the smallest set that
 * reaches top_p. */
static void exact_distribution(const float *x, size_t n, double temperature, size_t top_k, double top_p,
                               double *p) {
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) largest = (double)x[i] > largest ? (double)x[i] : largest;
    for (size_t i = 0; i < n; i++) p[i] = 0;
    double total = 0, reached = 0;
    for (size_t pass = 0; pass < 2; pass++) { /* first the sum over the k largest, then the cut */
        for (size_t i = 0; i < n; i++) p[i] = 0;
        reached = 0;
        for (size_t k = 0; k < top_k && k < n; k++) {
            size_t at = n;
            for (size_t i = 0; i < n; i++) {
                if (p[i] == 0 && (at == n || x[i] > x[at])) at = i;
            }
            p[at] = exp(((double)x[at] - largest) / temperature);
            reached += p[at];
            if (pass == 1 && reached >= top_p * total) break;
        }
        if (pass == 0) total = reached;
    }
    for (size_t i = 0; i < n; i++) sum += p[i];
    for (size_t i = 0; i < n; i++) p[i] /= sum;
}

static void check_draws(size_t n, float spread, sampler_params p) {
    enum { DRAWS = 30000 };
    float *x = mem_alloc(n * sizeof *x);
    double *exact = mem_alloc(n * sizeof *exact);
    uint32_t *count = mem_calloc(n, sizeof *count);
    assert_true(x != NULL && exact != NULL && count != NULL);
    for (size_t i = 0; i < n; i++) x[i] = next_float() * spread;
    exact_distribution(x, n, (double)p.temperature, p.top_k > 0 ? p.top_k : n, (double)p.top_p, exact);
    sampler *s = make(&p, n);
    float *copy = mem_alloc(n * sizeof *copy);
    for (uint64_t i = 0; i < DRAWS; i++) {
        sampled out;
        error err;
        memcpy(copy, x, n * sizeof *copy);
        assert_int_equal(sampler_next(s, best(), copy, i, &out, &err), CHURON_OK);
        count[out.id]++;
    }
    double z = chi_square(count, exact, n, DRAWS);
    if (fabs(z) > 4.5)
        fail_msg("n %zu top_k %u top_p %g: chi-square %.2f sigma", n, p.top_k, (double)p.top_p, z);
    sampler_free(s);
    mem_free(x), mem_free(exact), mem_free(count), mem_free(copy);
}

static void test_draws_follow_the_distribution(void **state) {
    (void)state;
    sampler_params p = sampler_defaults();
    for (uint64_t seed = 1; seed <= 2; seed++) {
        p = sampler_defaults();
        p.seed = seed * 7919;
        p.temperature = 1.3f;
        check_draws(50, 3, p);
        check_draws(1500, 2, p);
        p.top_p = 0.7f;
        check_draws(50, 3, p);
        check_draws(1500, 2, p);
        p.top_k = 20;
        check_draws(50, 3, p);
        check_draws(1500, 2, p);
        p.top_k = 1200;
        check_draws(1500, 2, p);
    }
}

static void test_xtc_acts_as_often_as_asked(void **state) {
    (void)state;
    float x[4] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.seed = 99;
    p.xtc_probability = 0.3f;
    p.xtc_threshold = 0.25f;
    sampler *s = make(&p, 4);
    enum { DRAWS = 40000 };
    uint32_t count[4] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) count[next_of(s, best(), x, 4, i).id]++;
    double expected[4] = {0.7 * 0.4, 0.7 * 0.3 + 0.3 * 0.5, 0.7 * 0.2 + 0.3 / 3, 0.7 * 0.1 + 0.3 / 6};
    assert_true(fabs(chi_square(count, expected, 4, DRAWS)) < 4.5);
    sampler_free(s);
}

/* A draw depends on the seed and its number, not on what was drawn before. */
static void test_draws_depend_on_the_request_alone(void **state) {
    (void)state;
    enum { N = 2000 };
    static float x[N];
    for (size_t i = 0; i < N; i++) x[i] = next_float() * 3;
    sampler_params p = sampler_defaults();
    p.seed = 5;
    sampler *a = make(&p, N), *b = make(&p, N);
    int32_t forward[50];
    size_t different = 0;
    for (uint64_t i = 0; i < 50; i++) forward[i] = next_of(a, best(), x, N, i).id;
    for (uint64_t i = 50; i > 0; i--) assert_int_equal(next_of(b, best(), x, N, i - 1).id, forward[i - 1]);
    p.seed = 6;
    sampler *c = make(&p, N);
    for (uint64_t i = 0; i < 50; i++) different += next_of(c, best(), x, N, i).id != forward[i];
    assert_true(different > 30);
    sampler_free(a), sampler_free(b), sampler_free(c);
}

/* ---- instruction sets and log-probabilities ------------------------------------------------------------ */

static sampler_params random_params(void) {
    sampler_params p = sampler_defaults();
    static const uint32_t top_ks[] = {0, 0, 1, 5, 40, 1024, 1500};
    p.seed = next_random();
    p.temperature = next_random() % 8 == 0 ? 0 : 0.3f + (next_float() + 1);
    p.top_k = top_ks[next_random() % 7];
    if (next_random() % 2) p.top_p = (next_float() + 1) / 2;
    if (next_random() % 3 == 0) p.min_p = (next_float() + 1) / 8;
    if (next_random() % 6 == 0) p.typical_p = (next_float() + 1) / 2;
    if (next_random() % 3 == 0) p.repeat_penalty = 1.2f;
    if (next_random() % 3 == 0) p.frequency_penalty = 0.4f;
    if (next_random() % 3 == 0) p.dry_multiplier = 0.8f;
    if (next_random() % 4 == 0) p.xtc_probability = 0.5f, p.xtc_threshold = next_random() % 2 ? 0.1f : 0.001f;
    p.n_logprobs = next_random() % 4;
    p.want_logprobs = next_random() % 2;
    return p;
}

static void test_instruction_sets_agree(void **state) {
    (void)state;
    static const size_t sizes[] = {3, 100, 1024, 1025, 3000, 49152};
    for (int i = 0; i < 300; i++) {
        size_t n = sizes[next_random() % (i % 20 == 0 ? 6 : 5)];
        sampler_params p = random_params();
        float *x = mem_alloc(n * sizeof *x), spread = next_random() % 3 == 0 ? 0.3f : 8;
        assert_non_null(x);
        for (size_t j = 0; j < n; j++) x[j] = next_float() * spread;
        for (size_t j = 0; j < n && i % 5 == 0; j++) x[j] = (float)(int)(x[j] * 2); /* ties */
        if (i % 7 == 0) x[next_random() % n] = NAN;
        int32_t seen[80];
        for (size_t j = 0; j < 80; j++) seen[j] = (int32_t)(next_random() % (n < 9 ? n : 9));
        sampled want = {0};
        double *kept_ref = mem_alloc(n * sizeof(double)), *kept_isa = mem_alloc(n * sizeof(double));
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (k == NULL) continue;
            sampler *s = make(&p, n);
            for (size_t j = 0; j < 80; j++) sampler_accept(s, seen[j]);
            sampled got = next_of(s, k, x, n, 3);
            kept(s, isa == 0 ? kept_ref : kept_isa, n);
            if (isa == 0) {
                want = got;
            } else {
                assert_int_equal(got.id, want.id);
                assert_memory_equal(kept_isa, kept_ref, n * sizeof(double));
                if (!isnan(want.logprob)) assert_memory_equal(&got.logprob, &want.logprob, sizeof(float));
            }
            sampler_free(s);
        }
        mem_free(x), mem_free(kept_ref), mem_free(kept_isa);
    }
}

static void test_logprobs_are_the_models_own(void **state) {
    (void)state;
    enum { N = 5000, TOP = 20 };
    static float x[N];
    logit_bias bias[2] = {{17, 9}, {18, -INFINITY}};
    for (int i = 0; i < 30; i++) {
        double sum = 0;
        for (size_t j = 0; j < N; j++) {
            x[j] = next_float() * 6;
            sum += exp((double)x[j]);
        }
        sampler_params p = random_params();
        p.n_logprobs = i % 3 == 0 ? 0 : TOP;
        p.want_logprobs = true;
        p.bias = bias, p.n_bias = 2;
        p.presence_penalty = 3;
        sampler *s = make(&p, N);
        for (int32_t t = 10; t < 40; t++) sampler_accept(s, t);
        sampled out = next_of(s, best(), x, N, 0);
        assert_true(fabs((double)out.logprob - ((double)x[out.id] - log(sum))) < 1e-5);
        assert_int_equal(out.n_top, p.n_logprobs);
        for (size_t j = 0; j < out.n_top; j++) {
            size_t larger = 0;
            for (size_t t = 0; t < N; t++) larger += x[t] > x[out.top[j].id];
            assert_true(larger <= j);
            assert_true(fabs((double)out.top[j].logprob - ((double)x[out.top[j].id] - log(sum))) < 1e-5);
        }
        sampler_free(s);
        p.want_logprobs = false;
        p.n_logprobs = 0;
        s = make(&p, N);
        assert_true(isnan(next_of(s, ref(), x, N, 0).logprob));
        sampler_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform_depends_on_each_part),
        cmocka_unit_test(test_check_names_the_field),
        cmocka_unit_test(test_create_survives_failed_allocation),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_odd_logits),
        cmocka_unit_test(test_each_step_alone),
        cmocka_unit_test(test_equal_tokens_are_kept_by_id),
        cmocka_unit_test(test_order_of_steps),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_dry_penalizes_what_would_repeat),
        cmocka_unit_test(test_dry_never_overflows),
        cmocka_unit_test(test_history_against_definition),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_xtc_acts_as_often_as_asked),
        cmocka_unit_test(test_draws_depend_on_the_request_alone),
        cmocka_unit_test(test_instruction_sets_agree),
        cmocka_unit_test(test_logprobs_are_the_models_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
