/* test_kernel_gemm64.c: f64 products of any strides. Every instruction set is held, bit for bit, against a
 * chain of fused multiply-adds that is written out here; buffers end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/gemm64.h"

#include "guarded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static guarded values(size_t n) {
    guarded g = guard_new((n ? n : 1) * sizeof(double), 8, true);
    for (size_t i = 0; i < n; i++) ((double *)g.data)[i] = (double)next_random() / 2147483648.0 - 0.5;
    return g;
}

/* ta, tb: the operand lies transposed. gap: elements between rows of all three. */
static void check(size_t m, size_t n, size_t k, bool ta, bool tb, size_t gap) {
    const size_t lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
    guarded a = values(k ? ((ta ? k : m) - 1) * lda + (ta ? m : k) : 0);
    guarded b = values(k ? ((tb ? n : k) - 1) * ldb + (tb ? k : n) : 0), c = values((m - 1) * ldc + n);
    const gemm64 g = {.m = m,
                      .n = n,
                      .k = k,
                      .a = a.data,
                      .a_row = ta ? 1 : lda,
                      .a_k = ta ? lda : 1,
                      .b = b.data,
                      .b_k = tb ? 1 : ldb,
                      .b_col = tb ? ldb : 1,
                      .c = c.data,
                      .c_row = ldc};
    double *wanted = malloc(((m - 1) * ldc + n) * sizeof *wanted);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *table = kernels_for((kernel_isa)isa);
        if (!table) continue;
        for (size_t i = 0; i < (m - 1) * ldc + n; i++) g.c[i] = wanted[i] = NAN; /* gaps stay */
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t p = 0; p < k; p++)
                    sum = fma(g.a[i * g.a_row + p * g.a_k], g.b[p * g.b_k + j * g.b_col], sum);
                wanted[i * ldc + j] = sum;
            }
        }
        gemm64_run(table, &g);
        assert_memory_equal(g.c, wanted, ((m - 1) * ldc + n) * sizeof *wanted);
    }
    free(wanted);
    guard_free(&a), guard_free(&b), guard_free(&c);
}

static void test_every_tile(void **state) {
    (void)state;
    for (size_t m = 1; m <= 19; m++)
        for (size_t n = 1; n <= 50; n += n < 26 ? 1 : 7) check(m, n, 5, false, false, m % 3);
}

static void test_strides(void **state) {
    (void)state;
    static const size_t sizes[][3] = {{3, 4, 1}, {9, 25, 17}, {20, 30, 128}, {17, 7, 129}, {2, 50, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned t = 0; t < 4; t++)
            for (size_t gap = 0; gap < 3; gap += 2)
                check(sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, gap);
}

static void test_large(void **state) {
    (void)state;
    check(243, 31, 260, false, false, 0);
    check(250, 24, 140, true, true, 1);
}

/* A later block of K continues the sums that are there. */
static void test_tile_continues(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *table = kernels_for((kernel_isa)isa);
        if (!table) continue;
        double a[2] = {3, 5}, b[6] = {1, 2, 3, 4, 5, 6}, c[3] = {100, 200, 300};
        const gemm64_tile t = {.a = a, .a_row = 2, .a_k = 1, .b = b, .b_k = 3, .k = 2, .c = c, .c_row = 3};
        table->gemm64_tile(&t, 1, 2);
        assert_true(c[0] == 123 && c[1] == 231 && c[2] == 300);
    }
}

static void test_no_k(void **state) {
    (void)state;
    check(3, 5, 0, false, false, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_tile), cmocka_unit_test(test_strides),
                                       cmocka_unit_test(test_large), cmocka_unit_test(test_tile_continues),
                                       cmocka_unit_test(test_no_k)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
