/* Loops behind the network operators that need no graph: f64 products, packing, statistics of
 * rows, rotation, rounding to 8 bits. */
#include "graph/ops/attention_core.h"
#include "graph/ops/gemm.h"
#include "graph/ops/quant.h"
#include "graph/ops/rows.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint32_t seed = 1;

static uint32_t next(void) {
    seed = seed * 1664525U + 1013904223U;
    return seed >> 8;
}

static void products_of_doubles_take_any_strides(void **state) {
    (void)state;
    enum { M = 4, N = 3, K = 5 };
    double a[M * K], b[K * N], at[K * M], bt[N * K], c[M * N], d[M * N];
    for (size_t i = 0; i < M * K; i++) a[i] = (double)next() / 1e6;
    for (size_t i = 0; i < K * N; i++) b[i] = (double)next() / 1e6;
    for (size_t i = 0; i < M; i++)
        for (size_t p = 0; p < K; p++) at[p * M + i] = a[i * K + p];
    for (size_t p = 0; p < K; p++)
        for (size_t j = 0; j < N; j++) bt[j * K + p] = b[p * N + j];
    gemm_f64(kernels_for(KERNEL_REF), NULL, M, N, K, a, K, 1, b, N, 1, c, N);
    gemm_f64(kernels_for(KERNEL_REF), NULL, M, N, K, at, 1, M, bt, 1, K, d, N);
    assert_memory_equal(c, d, sizeof c);
    double sum = 0;
    for (size_t p = 0; p < K; p++) sum = fma(a[p], b[p * N], sum);
    assert_true(c[0] == sum);
}

/* Columns in groups of 16, [k][16], the last filled with zeros. */
static void packing_interleaves_columns(void **state) {
    (void)state;
    enum { K = 3, N = 18 };
    float b[K * N];
    for (size_t i = 0; i < K * N; i++) b[i] = (float)i;
    gemm_packed p;
    error err;
    assert_int_equal(gemm_pack_create(&p, b, K, N, N, 1, &err), CHURON_OK);
    const float *g = p.memory;
    assert_true(g[0 * 16 + 5] == 5 && g[2 * 16 + 15] == 2 * N + 15);
    assert_true(g[16 * K + 1] == 17 && g[16 * K + 2] == 0 && g[16 * K + 2 * 16 + 15] == 0);
    gemm_pack_free(&p);
    assert_int_equal(gemm_pack_create(&p, b, SIZE_MAX / 2, 64, 1, 1, &err), CHURON_LIMIT);
    mem_fail_at(1);
    assert_int_equal(gemm_pack_create(&p, b, K, N, N, 1, &err), CHURON_NO_MEMORY);
    mem_fail_at(0);
}

static void statistics_survive_a_large_mean(void **state) {
    (void)state;
    float x[1003];
    double mean, variance;
    for (size_t i = 0; i < 1003; i++) x[i] = 30000.0F + (i % 2 ? 0.5F : -0.5F);
    rows_moments_f32(x, 1002, &mean, &variance);
    assert_true(fabs(mean - 30000) < 1e-9 && fabs(variance - 0.25) < 1e-9);
    assert_true(fabs(rows_sum_f32(x, 3) - 89999.5) < 1e-9);
}

static void rotation_turns_pairs(void **state) {
    (void)state;
    const float x[6] = {1, 2, 3, 4, 5, 6}, c[2] = {0, 1}, s[2] = {1, 0};
    float y[6];
    attention_rotate(x, y, 6, 4, c, s, false, ELEM_F32); /* pairs (0, 2), (1, 3) */
    const float halves[6] = {-3, 2, 1, 4, 5, 6};
    assert_memory_equal(y, halves, sizeof y);
    attention_rotate(x, y, 6, 4, c, s, true, ELEM_F32); /* pairs (0, 1), (2, 3) */
    const float pairs[6] = {-2, 1, 3, 4, 5, 6};
    assert_memory_equal(y, pairs, sizeof y);
}

static void bytes_round_half_to_even_and_saturate(void **state) {
    (void)state;
    assert_int_equal(quant_clamp(2.5, 0, ELEM_U8), 2);
    assert_int_equal(quant_clamp(3.5, 0, ELEM_U8), 4);
    assert_int_equal(quant_clamp(300, 3, ELEM_U8), 255);
    assert_int_equal(quant_clamp(-1e30, 3, ELEM_I8), -128);
    assert_int_equal(quant_clamp((double)NAN, 3, ELEM_I8), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_doubles_take_any_strides),
        cmocka_unit_test(packing_interleaves_columns),
        cmocka_unit_test(statistics_survive_a_large_mean),
        cmocka_unit_test(rotation_turns_pairs),
        cmocka_unit_test(bytes_round_half_to_even_and_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
