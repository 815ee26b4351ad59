/* test_kernel_vector.c: .rms_norm, .add, .scale, .silu_mul, .gelu_tanh_mul, .soft_cap, .rope, .kv_store,
 * .log_sum_exp, .sum_above, .top_k and .exp of every instruction set.
 *
 * The scalar reference is held against long double; every other table is held against the reference bit for
 * bit, at every size around the vector widths, with rows that end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "guarded.h"
#include "kernel/kernel.h"

#include <float.h>
#include <stdlib.h>

static const kernels *ref(void) {
    return kernels_for(KERNEL_REF);
}

/* ---- accuracy of the reference ----------------------------------------------------------------------- */

/* Distance from the exact value in units of its last place. */
static double ulps(float got, long double exact) {
    if (isnan(got) || isnan(exact)) return isnan(got) && isnan(exact) ? 0 : INFINITY;
    if (isinf(got)) return isinf((float)exact) && signbit(got) == (exact < 0) ? 0 : INFINITY;
    int e;
    frexpl(exact, &e);
    if (e < -125) e = -125;
    return (double)fabsl((long double)got - exact) / ldexp(1.0, e - 24);
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Calls check on floats of every exponent: a coarse sweep over all bit patterns, and all of a finer one where
 * exponentials are neither 0, 1 nor infinite. */
static void sweep(double (*check)(float), double limit, const char *what) {
    double worst = 0;
    float worst_at = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        float x = from_bits((uint32_t)bits);
        double u = check(x);
        if (!(u <= worst)) worst = u, worst_at = x;
    }
    for (float sign = -1; sign <= 1; sign += 2) {
        for (uint32_t bits = 0x3c000000; bits < 0x43000000; bits += 211) {
            float x = sign * from_bits(bits);
            double u = check(x);
            if (!(u <= worst)) worst = u, worst_at = x;
        }
    }
    if (!(worst <= limit))
        fail_msg("%s(%a): off by %.3f ulp, limit %.3f", what, (double)worst_at, worst, limit);
    print_message("           %s: largest error %.3f ulp at %.9g\n", what, worst, (double)worst_at);
}

static double exp_error(float x) {
    float y;
    ref()->exp(&x, &y, 1);
    long double exact = expl(x);
    if (exact < 0x1p-126L) return y == 0 || y == 0x1p-126f ? 0 : INFINITY;
    return ulps(y, exact);
}

static double tanh_error(float x) {
    float y = x;
    ref()->soft_cap(&y, 1.0f, 1);
    return ulps(y, tanhl(x));
}

/* Relative to the result, or where exp(-|x|) underflows to 0, an absolute error below 1e-35. */
static double silu_error(float x) {
    float one = 1, y;
    ref()->silu_mul(&x, &one, &y, 1);
    if (x == -INFINITY) return isnan(y) ? 0 : INFINITY;
    long double exact = (long double)x / (1 + expl(-(long double)x));
    return fabsl(exact) < 1e-35L && fabsf(y) < 1e-35f ? 0 : ulps(y, exact);
}

/* The argument 2u is rounded three times, which exp turns into a relative error of |2u| times as much. */
static double gelu_error(float x) {
    float one = 1, y;
    ref()->gelu_tanh_mul(&x, &one, &y, 1);
    if (x == -INFINITY) return isnan(y) ? 0 : INFINITY;
    long double u = 2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x);
    long double exact = isinf(u) ? (x > 0 ? x : -0.0L) : (long double)x / (1 + expl(-u));
    if (fabsl(exact) < 1e-35L && fabsf(y) < 1e-35f) return 0;
    return ulps(y, exact) / (1 + (double)fabsl(x > 0 && u > 20 ? 0 : u));
}

static void test_exp_is_within_two_ulp(void **state) {
    (void)state;
    sweep(exp_error, 2.0, "exp");
    float x[] = {0, -0.0f, -INFINITY, INFINITY, NAN, -87.33655f, -87.3365f, 88.72283f, 88.72284f, -1e30f};
    float y[10];
    ref()->exp(x, y, 10);
    assert_true(y[0] == 1 && y[1] == 1 && y[2] == 0 && y[3] == INFINITY && isnan(y[4]));
    assert_true(y[5] == 0 && y[6] >= FLT_MIN && y[7] < INFINITY && y[8] == INFINITY && y[9] == 0);
}

static void test_tanh_is_within_two_ulp(void **state) {
    (void)state;
    sweep(tanh_error, 2.0, "tanh");
    float y = -0.0f;
    ref()->soft_cap(&y, 1.0f, 1);
    assert_true(y == 0 && signbit(y));
}

static void test_silu_and_gelu_accuracy(void **state) {
    (void)state;
    sweep(silu_error, 4.0, "silu");
    sweep(gelu_error, 4.0, "gelu");
}

static void test_soft_cap_bounds(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        float x = next_float() * 300, y = x;
        ref()->soft_cap(&y, 30.0f, 1);
        assert_true(ulps(y, 30 * tanhl((long double)x / 30)) < 4);
    }
}

static void test_rms_norm_against_long_double(void **state) {
    (void)state;
    for (size_t n = 1; n < 3000; n = n * 3 / 2 + 1) {
        float *x = mem_alloc(n * 4), *w = mem_alloc(n * 4), *y = mem_alloc(n * 4);
        assert_true(x != NULL && w != NULL && y != NULL);
        long double sum = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = next_float() * 3;
            w[i] = next_float();
            sum += (long double)x[i] * x[i];
        }
        ref()->rms_norm(x, w, n, 1e-5f, y);
        for (size_t i = 0; i < n; i++) {
            long double exact = x[i] / sqrtl(sum / (long double)n + 1e-5f) * w[i];
            assert_true(ulps(y[i], exact) < 4 + (double)n / 32 / 2);
        }
        mem_free(x), mem_free(w), mem_free(y);
    }
}

static void test_rope_rotates(void **state) {
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6}, cs[4] = {0.6f, 0.8f, 0, 1}, pairs[6], halves[6];
    memcpy(pairs, x, sizeof x);
    memcpy(halves, x, sizeof x);
    ref()->rope(pairs, cs, 4, true);
    ref()->rope(halves, cs, 4, false);
    float want_pairs[6] = {1 * 0.6f - 2 * 0.8f, 1 * 0.8f + 2 * 0.6f, -4, 3, 5, 6};
    float want_halves[6] = {1 * 0.6f - 3 * 0.8f, -4, 1 * 0.8f + 3 * 0.6f, 2, 5, 6};
    for (int i = 0; i < 6; i++) {
        assert_true(fabsf(pairs[i] - want_pairs[i]) < 1e-6f);
        assert_true(fabsf(halves[i] - want_halves[i]) < 1e-6f);
    }
}

static void test_kv_store_layout(void **state) {
    (void)state;
    enum { DK = 32, DV = 16 };
    uint16_t k_page[KV_PAGE * DK], v_page[KV_PAGE * DV];
    float k[DK], v[DV];
    for (size_t slot = 0; slot < KV_PAGE; slot++) {
        memset(k_page, 0xaa, sizeof k_page);
        memset(v_page, 0xaa, sizeof v_page);
        for (size_t d = 0; d < DK; d++) k[d] = next_float();
        for (size_t d = 0; d < DV; d++) v[d] = next_float();
        ref()->kv_store[KV_F16](k_page, v_page, slot, k, DK, v, DV);
        size_t others = 0;
        for (size_t d = 0; d < DK; d++) {
            assert_int_equal(k_page[(slot / 16 * DK + d) * 16 + slot % 16], f32_to_f16(k[d]));
        }
        for (size_t d = 0; d < DV; d++) assert_int_equal(v_page[slot * DV + d], f32_to_f16(v[d]));
        for (size_t i = 0; i < KV_PAGE * DK; i++) others += k_page[i] == 0xaaaa;
        for (size_t i = 0; i < KV_PAGE * DV; i++) others += v_page[i] == 0xaaaa;
        assert_int_equal(others, (KV_PAGE - 1) * (DK + DV));
    }
}

/* Every value comes back within half a step of its block's scale; nothing else of the page changes. */
static void test_kv_store_q8_layout(void **state) {
    (void)state;
    enum { DK = 64, DV = 48 };
    uint8_t page[2][KV_PAGE * DK + 2 * KV_PAGE * 2], filled = 0xaa;
    float x[2][DK];
    const size_t dims[2] = {DK, DV};
    for (size_t slot = 0; slot < KV_PAGE; slot++, filled ^= 0xff) {
        memset(page, filled, sizeof page);
        for (size_t d = 0; d < DK; d++) x[0][d] = next_float() * (d < 32 ? 1.0f : 30.0f);
        for (size_t d = 0; d < DV; d++) x[1][d] = next_float() * (d < 32 ? 5.0f : 1e-3f);
        ref()->kv_store[KV_Q8](page[0], page[1], slot, x[0], DK, x[1], DV);
        for (size_t which = 0; which < 2; which++) {
            const size_t dim = dims[which];
            for (size_t d = 0; d < dim; d++) {
                size_t at = which ? (slot / 2 * dim + d) * 2 + slot % 2
                                  : ((slot / 16 * dim + d) / 2 * 16 + slot % 16) * 2 + d % 2;
                uint16_t scale;
                memcpy(&scale, page[which] + KV_PAGE * dim + (d / 32 * KV_PAGE + slot) * 2, 2);
                float step = f16_to_f32(scale), value = (float)(int8_t)page[which][at] * step;
                float most = d < 32 ? (which ? 5.0f : 1.0f) : which ? 1e-3f : 30.0f;
                assert_true(step > 0 && step <= most / 127.0f * 1.01f);
                assert_true(fabsf(value - x[which][d]) <= step * 0.51f + most * 1e-3f * (d >= 32 && which));
                page[which][at] = filled;
            }
            for (size_t b = 0; b < 2; b++) {
                memset(page[which] + KV_PAGE * dim + (b * KV_PAGE + slot) * 2, filled, 2);
            }
            for (size_t i = 0; i < kv_page_bytes(KV_Q8, dim); i++) assert_int_equal(page[which][i], filled);
        }
    }
}

/* What 8 bits cannot hold shows as NaN or is 0, and never as another number. */
static void test_kv_store_q8_of_odd_values(void **state) {
    (void)state;
    enum { DIM = 32 };
    static const struct {
        float x;
        uint16_t scale;
    } cases[] = {{NAN, 0x7e00}, {INFINITY, 0x7e00}, {-INFINITY, 0x7e00}, {9e6f, 0x7e00}, {1e-9f, 0}, {0, 0}};
    uint8_t k_page[KV_PAGE * DIM + KV_PAGE * 2], v_page[KV_PAGE * DIM + KV_PAGE * 2];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x[DIM] = {0};
        uint16_t scale;
        x[i] = cases[i].x;
        memset(k_page, 0xaa, sizeof k_page);
        memset(v_page, 0xaa, sizeof v_page);
        ref()->kv_store[KV_Q8](k_page, v_page, 3, x, DIM, x, DIM);
        memcpy(&scale, k_page + KV_PAGE * DIM + 6, 2);
        assert_int_equal(scale, cases[i].scale);
        memcpy(&scale, v_page + KV_PAGE * DIM + 6, 2);
        assert_int_equal(scale, cases[i].scale);
        for (size_t d = 0; d < DIM; d++) {
            assert_int_equal(k_page[(d / 2 * 16 + 3) * 2 + d % 2], 0);
            assert_int_equal(v_page[(DIM + d) * 2 + 1], 0);
        }
    }
}

/* ---- logits ------------------------------------------------------------------------------------------ */

static void test_log_sum_exp_against_long_double(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 15, 16, 17, 1000, 1024, 1025, 49152, 151936};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        float *x = mem_alloc(n * 4), max, lse;
        assert_non_null(x);
        long double sum = 0, top = -INFINITY;
        for (size_t i = 0; i < n; i++) {
            x[i] = next_float() * 8 - 3;
            if (x[i] > top) top = x[i];
        }
        for (size_t i = 0; i < n; i++) sum += expl(x[i] - top);
        ref()->log_sum_exp(x, n, &max, &lse);
        assert_true((long double)max == top);
        assert_true(fabsl(lse - logl(sum)) < 2e-6L);
        x[n / 2] = NAN;
        ref()->log_sum_exp(x, n, &max, &lse);
        assert_true(isnan(max));
        for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
        ref()->log_sum_exp(x, n, &max, &lse);
        assert_true(max == -INFINITY && lse == -INFINITY);
        x[n / 2] = 3;
        ref()->log_sum_exp(x, n, &max, &lse);
        assert_true(max == 3 && lse == 0);
        mem_free(x);
    }
}

static void test_sum_above(void **state) {
    (void)state;
    enum { N = 40000 };
    float *x = mem_alloc(N * 4), *w = mem_alloc(N * 4);
    assert_true(x != NULL && w != NULL);
    long double exact = 0;
    size_t expected = 0, count;
    double sum;
    for (size_t i = 0; i < N; i++) {
        x[i] = i % 1000 == 7 ? NAN : i % 1000 == 8 ? -INFINITY : (float)random_below(100);
        w[i] = next_float() + 1;
        if (x[i] >= 50) exact += w[i], expected++;
    }
    ref()->sum_above(x, w, N, 50, &sum, &count);
    assert_int_equal(count, expected);
    assert_true(fabsl(sum - exact) < 1e-6L * exact);
    ref()->sum_above(x, w, N, -INFINITY, &sum, &count);
    assert_int_equal(count, N - N / 1000); /* all but NaN */
    mem_free(x), mem_free(w);
}

typedef struct entry {
    float value;
    uint32_t index;
} entry;

static int by_rank(const void *a, const void *b) {
    const entry *x = a, *y = b;
    bool x_nan = isnan(x->value), y_nan = isnan(y->value);
    if (x_nan != y_nan) return x_nan ? 1 : -1;
    if (!x_nan && x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* kind 0: distinct values, 1: many ties, 2: ascending (each one a new maximum), 3: with NaN, infinities and
 * zeros of both signs, 4: all NaN */
static void fill_logits(float *x, size_t n, int kind) {
    static const float odd[] = {NAN, -INFINITY, INFINITY, 0.0f, -0.0f, 1.0f, -1.0f};
    for (size_t i = 0; i < n; i++) {
        x[i] = kind == 0   ? next_float() * 10
               : kind == 1 ? (float)random_below(7)
               : kind == 2 ? (float)i
               : kind == 3 ? odd[random_below(7)]
                           : NAN;
    }
}

static void check_top_k(size_t n, size_t k, int kind) {
    float *x = mem_alloc(n * 4 + 1);
    entry *sorted = mem_alloc(n * sizeof *sorted + 1);
    assert_true(x != NULL && sorted != NULL);
    fill_logits(x, n, kind);
    for (size_t i = 0; i < n; i++) sorted[i] = (entry){x[i], (uint32_t)i};
    qsort(sorted, n, sizeof *sorted, by_rank);
    guarded in = guard_copy(x, n * 4, 4, true);
    guarded index = guard_new(k * 4, 4, true), value = guard_new(k * 4, 4, true);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *t = kernels_for((kernel_isa)isa);
        if (t == NULL) continue;
        memset(index.data, 0xee, k * 4);
        t->top_k(in.data, n, k, index.data, value.data);
        for (size_t i = 0; i < k; i++) {
            uint32_t got = ((uint32_t *)index.data)[i];
            if (got != sorted[i].index || memcmp((float *)value.data + i, x + got, 4) != 0) {
                fail_msg("%s top_k n=%zu k=%zu kind %d place %zu: got %u, expected %u", t->name, n, k, kind,
                         i, got, sorted[i].index);
            }
        }
    }
    guard_free(&in), guard_free(&index), guard_free(&value);
    mem_free(x), mem_free(sorted);
}

static void test_top_k_every_table(void **state) {
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        for (size_t n = 1; n <= 70; n++) {
            check_top_k(n, 1, kind);
            check_top_k(n, n / 2 + 1, kind);
            check_top_k(n, n, kind);
        }
        static const size_t ks[] = {1, 2, 40, 63, 64, 65, 500, 1000, 1024};
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            check_top_k(1024, ks[i], kind);
            check_top_k(3000 + random_below(20), ks[i], kind);
            check_top_k(49152, ks[i], kind);
        }
    }
}

/* ---- every table against the reference --------------------------------------------------------------- */

typedef struct row_case {
    const kernels *k;
    size_t n;
    float *y;           /* in and out, [n] */
    const float *a, *b; /* [n] */
} row_case;

static void run_rms_norm(const row_case *c) {
    c->k->rms_norm(c->a, c->b, c->n, 1e-5f, c->y);
}
static void run_rms_norm_plain(const row_case *c) {
    c->k->rms_norm(c->y, NULL, c->n, 1e-6f, c->y);
}
static void run_add(const row_case *c) {
    c->k->add(c->y, c->a, c->n);
}
static void run_scale(const row_case *c) {
    c->k->scale(c->y, 1.7f, c->n);
}
static void run_silu_mul(const row_case *c) {
    c->k->silu_mul(c->a, c->b, c->y, c->n);
}
static void run_gelu_tanh_mul(const row_case *c) {
    c->k->gelu_tanh_mul(c->a, c->b, c->y, c->n);
}
static void run_soft_cap(const row_case *c) {
    c->k->soft_cap(c->y, 2.5f, c->n);
}
static void run_exp(const row_case *c) {
    c->k->exp(c->a, c->y, c->n);
}
static void run_exp_in_place(const row_case *c) {
    c->k->exp(c->y, c->y, c->n);
}
static void run_log_sum_exp(const row_case *c) {
    float max, lse;
    c->k->log_sum_exp(c->a, c->n, &max, &lse);
    if (c->n > 0) c->y[0] = max;
    if (c->n > 1) c->y[1] = lse;
}
static void run_sum_above(const row_case *c) {
    double sum;
    size_t count;
    c->k->sum_above(c->a, c->b, c->n, 0.1f, &sum, &count);
    if (c->n > 0) c->y[0] = (float)sum;
    if (c->n > 1) c->y[1] = (float)(sum - (double)(float)sum);
    if (c->n > 2) c->y[2] = (float)count;
}
static void run_rope_pairs(const row_case *c) {
    c->k->rope(c->y, c->a, c->n / 2 * 2, true);
}
static void run_rope_halves(const row_case *c) {
    c->k->rope(c->y, c->a, c->n / 2 * 2, false);
}

static const struct {
    const char *name;
    void (*run)(const row_case *c);
} row_kernels[] = {
    {"rms_norm", run_rms_norm},
    {"rms_norm without weights", run_rms_norm_plain},
    {"add", run_add},
    {"scale", run_scale},
    {"silu_mul", run_silu_mul},
    {"gelu_tanh_mul", run_gelu_tanh_mul},
    {"soft_cap", run_soft_cap},
    {"exp", run_exp},
    {"exp in place", run_exp_in_place},
    {"log_sum_exp", run_log_sum_exp},
    {"sum_above", run_sum_above},
    {"rope, pairs", run_rope_pairs},
    {"rope, halves", run_rope_halves},
};

/* odd: with zeros, NaN, infinities, subnormals and values at the borders of exp and tanh among the others */
static float input_value(float range, bool odd) {
    static const float odd_values[] = {0.0f,     -0.0f,      NAN,       INFINITY,  -INFINITY, 1e-42f,
                                       -1e-42f,  FLT_MAX,    -FLT_MAX,  0.55f,     -0.55f,    0.54999995f,
                                       88.7228f, -87.33654f, -87.3366f, 88.72284f, 88.4f,     1e-30f};
    if (odd && random_below(4) == 0) return odd_values[random_below(sizeof odd_values / sizeof *odd_values)];
    return next_float() * range;
}

static void check_rows(size_t which, size_t n, float range, bool odd) {
    bool at_end = n % 5 != 0;
    float *start = mem_alloc(n * 4 + 4), *expected = mem_alloc(n * 4 + 4);
    assert_true(start != NULL && expected != NULL);
    guarded a = guard_new(n * 4, 4, at_end), b = guard_new(n * 4, 4, at_end), y = guard_new(n * 4, 4, at_end);
    for (size_t i = 0; i < n; i++) {
        ((float *)a.data)[i] = input_value(range, odd);
        ((float *)b.data)[i] = input_value(1, odd);
        start[i] = expected[i] = input_value(range, odd);
    }
    row_kernels[which].run(&(row_case){ref(), n, expected, a.data, b.data});
    for (int isa = 1; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        if (n > 0) memcpy(y.data, start, n * 4);
        row_kernels[which].run(&(row_case){k, n, y.data, a.data, b.data});
        size_t at;
        if (same_floats(y.data, expected, n, &at)) continue;
        fail_msg("%s %s n=%zu at %zu: %a, ref %a (inputs %a %a %a)", k->name, row_kernels[which].name, n, at,
                 (double)((float *)y.data)[at], (double)expected[at], (double)start[at],
                 (double)((float *)a.data)[at], (double)((float *)b.data)[at]);
    }
    guard_free(&a), guard_free(&b), guard_free(&y);
    mem_free(start), mem_free(expected);
}

static void test_rows_agree_in_every_table(void **state) {
    (void)state;
    static const size_t large[] = {127, 128, 129, 576, 1000, 1023, 1024, 1025, 1536, 2048, 2051, 49152};
    for (size_t which = 0; which < sizeof row_kernels / sizeof *row_kernels; which++) {
        for (size_t n = 0; n <= 100; n++) {
            check_rows(which, n, 4, false);
            check_rows(which, n, 100, true);
        }
        for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
            check_rows(which, large[i], 8, false);
            check_rows(which, large[i], 90, false);
            check_rows(which, large[i], 90, true);
        }
    }
}

/* Every 331st float there is, through exp, silu, gelu and tanh. */
static void test_functions_agree_over_all_exponents(void **state) {
    (void)state;
    enum { N = 4096 };
    static float x[N], y[N], want[N], one[N];
    for (size_t i = 0; i < N; i++) one[i] = 1;
    for (uint64_t base = 0; base <= UINT32_MAX; base += (uint64_t)N * 331) {
        for (size_t i = 0; i < N; i++) x[i] = from_bits((uint32_t)(base + i * 331));
        for (int f = 0; f < 4; f++) {
            for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                const kernels *k = kernels_for((kernel_isa)isa);
                if (k == NULL) continue;
                memcpy(y, x, sizeof y);
                if (f == 0) k->exp(x, y, N);
                if (f == 1) k->silu_mul(x, one, y, N);
                if (f == 2) k->gelu_tanh_mul(x, one, y, N);
                if (f == 3) k->soft_cap(y, 1.5f, N);
                if (isa == 0) memcpy(want, y, sizeof y);
                size_t at;
                if (!same_floats(y, want, N, &at)) {
                    fail_msg("%s function %d at %a: %a, ref %a", k->name, f, (double)x[at], (double)y[at],
                             (double)want[at]);
                }
            }
        }
    }
}

static void check_kv_store(kv_type type, size_t dk, size_t dv, float k_size, float v_size) {
    size_t slot = random_below(KV_PAGE), k_bytes = kv_page_bytes(type, dk), v_bytes = kv_page_bytes(type, dv);
    guarded k = guard_new(dk * 4, 4, true), v = guard_new(dv * 4, 4, true), k_page[2], v_page[2];
    for (size_t i = 0; i < dk; i++) ((float *)k.data)[i] = input_value(k_size, random_below(3) == 0);
    for (size_t i = 0; i < dv; i++) ((float *)v.data)[i] = input_value(v_size, random_below(3) == 0);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *t = kernels_for((kernel_isa)isa);
        if (t == NULL) continue;
        int at = isa > 0;
        k_page[at] = guard_new(k_bytes, 64, true);
        v_page[at] = guard_new(v_bytes, 64, true);
        t->kv_store[type](k_page[at].data, v_page[at].data, slot, k.data, dk, v.data, dv);
        if (isa == 0) continue;
        assert_memory_equal(k_page[1].data, k_page[0].data, k_bytes);
        assert_memory_equal(v_page[1].data, v_page[0].data, v_bytes);
        guard_free(&k_page[1]), guard_free(&v_page[1]);
    }
    guard_free(&k_page[0]), guard_free(&v_page[0]), guard_free(&k), guard_free(&v);
}

static void test_kv_store_agrees_in_every_table(void **state) {
    (void)state;
    static const float sizes[] = {1e5f, 1e-5f, 1.0f, 1e-8f};
    for (size_t dk = 16; dk <= 512; dk += dk < 128 ? 16 : 96) {
        for (size_t dv = 16; dv <= 256; dv *= 2) {
            for (size_t i = 0; i < 4; i++) {
                check_kv_store(KV_F16, dk, dv, sizes[i], sizes[(i + 1) % 4]);
                check_kv_store(KV_Q8, dk, dv, sizes[i], sizes[(i + 1) % 4]);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_within_two_ulp),
        cmocka_unit_test(test_tanh_is_within_two_ulp),
        cmocka_unit_test(test_silu_and_gelu_accuracy),
        cmocka_unit_test(test_soft_cap_bounds),
        cmocka_unit_test(test_rms_norm_against_long_double),
        cmocka_unit_test(test_rope_rotates),
        cmocka_unit_test(test_kv_store_layout),
        cmocka_unit_test(test_kv_store_q8_layout),
        cmocka_unit_test(test_kv_store_q8_of_odd_values),
        cmocka_unit_test(test_log_sum_exp_against_long_double),
        cmocka_unit_test(test_sum_above),
        cmocka_unit_test(test_top_k_every_table),
        cmocka_unit_test(test_rows_agree_in_every_table),
        cmocka_unit_test(test_functions_agree_over_all_exponents),
        cmocka_unit_test(test_kv_store_agrees_in_every_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
