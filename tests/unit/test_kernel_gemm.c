/* test_kernel_gemm.c: products of described rows. Every instruction set is held, bit for bit, against a chain
 * of fused multiply-adds that is written out here; buffers end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/gemm.h"

#include "guarded.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_RUNS = 64 };

typedef struct product {
    size_t m, n, k;
    gemm g;
    ptrdiff_t runs[MAX_RUNS];
    guarded a, b, c, add, bias, scratch;
    float *wanted, *dense; /* [m, n]; B [k, n] */
} product;

static float next_value(void) {
    return (float)((double)next_random() / 2147483648.0 - 0.5);
}

static guarded random_floats(size_t n, bool at_end) {
    guarded g = guard_new(n * sizeof(float), 4, at_end);
    for (size_t i = 0; i < n; i++) ((float *)g.data)[i] = next_value();
    return g;
}

/* Floats that rows of a product reach over. */
static size_t extent(const gemm *g, size_t m) {
    size_t last = 0;
    for (size_t s = 0; s < g->n_runs; s++) last = (size_t)g->runs[s] > last ? (size_t)g->runs[s] : last;
    return (m - 1) * g->a_row + last + (g->run - 1) * g->a_k + 1;
}

static void expect(product *p) {
    const gemm *g = &p->g;
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            float sum = 0.0f;
            for (size_t k = 0; k < p->k; k++) {
                const size_t at = i * g->a_row + (size_t)g->runs[k / g->run] + k % g->run * g->a_k;
                sum = fmaf(p->dense[k * p->n + j], ((const float *)p->a.data)[at], sum);
            }
            if (g->bias) sum += g->bias[j];
            if (g->add) sum += g->add[i * g->add_row + j / 16 * g->add_panel + j % 16];
            sum = sum < g->low ? g->low : sum;
            p->wanted[i * p->n + j] = sum > g->high ? g->high : sum;
        }
    }
}

static void open_product(product *p, size_t m, size_t n, size_t n_runs, size_t run, size_t a_row, size_t a_k,
                         bool blocked, bool extras) {
    *p = (product){.m = m, .n = n, .k = n_runs * run};
    gemm *g = &p->g;
    for (size_t s = 0; s < n_runs; s++) p->runs[s] = (ptrdiff_t)(next_random() % 300);
    *g = (gemm){.n = n,
                .k = p->k,
                .a_row = a_row,
                .a_k = a_k,
                .runs = p->runs,
                .n_runs = n_runs,
                .run = run,
                .low = extras ? -0.4f : -INFINITY,
                .high = extras ? 0.7f : INFINITY};
    p->a = random_floats(extent(g, m), true);
    g->a = p->a.data;
    p->dense = malloc(p->k * n * sizeof(float));
    for (size_t i = 0; i < p->k * n; i++) p->dense[i] = next_value();
    p->b = guard_new(gemm_packed_floats(p->k, n) * sizeof(float), 64, true);
    gemm_pack(p->dense, n, 1, p->k, n, 0, gemm_panels(n), p->b.data);
    g->b = p->b.data;
    g->c_row = blocked ? 16 : n;
    g->c_panel = blocked ? 16 * m : 16;
    const size_t floats = blocked ? gemm_panels(n) * 16 * m : m * n;
    p->c = guard_new(floats * sizeof(float), 4, true);
    g->c = p->c.data;
    if (extras) {
        p->bias = random_floats(gemm_panels(n) * 16, true);
        p->add = random_floats(floats, true);
        g->bias = p->bias.data;
        g->add = p->add.data;
        g->add_row = g->c_row;
        g->add_panel = g->c_panel;
    }
    p->scratch = guard_new(gemm_scratch_floats(p->k) * sizeof(float), 64, true);
    p->wanted = malloc(m * n * sizeof(float));
    expect(p);
}

static void close_product(product *p) {
    guard_free(&p->a);
    guard_free(&p->b);
    guard_free(&p->c);
    if (p->bias.map) guard_free(&p->bias);
    if (p->add.map) guard_free(&p->add);
    guard_free(&p->scratch);
    free(p->wanted);
    free(p->dense);
}

static void check(const product *p, const char *isa, const char *how) {
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            const float got = p->g.c[i * p->g.c_row + j / 16 * p->g.c_panel + j % 16];
            if (memcmp(&got, &p->wanted[i * p->n + j], sizeof got) != 0) {
                fail_msg("%s, %s: [%zu, %zu] of m %zu n %zu k %zu: expected %a, got %a", isa, how, i, j, p->m,
                         p->n, p->k, (double)p->wanted[i * p->n + j], (double)got);
            }
        }
    }
}

/* Whole, and in parts as threads would take them. */
static void run_everywhere(product *p) {
    const size_t panels = gemm_panels(p->n);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        memset(p->c.data, 0xff, (p->g.c_panel == 16 ? p->m * p->n : panels * 16 * p->m) * sizeof(float));
        gemm_run(k, &p->g, 0, p->m, 0, panels, p->scratch.data);
        check(p, k->name, "whole");
        memset(p->c.data, 0xff, (p->g.c_panel == 16 ? p->m * p->n : panels * 16 * p->m) * sizeof(float));
        const size_t row = p->m / 3, panel = panels / 2;
        gemm_run(k, &p->g, 0, row, 0, panel, p->scratch.data);
        gemm_run(k, &p->g, row, p->m, 0, panel, p->scratch.data);
        gemm_run(k, &p->g, 0, p->m, panel, panels, p->scratch.data);
        check(p, k->name, "in parts");
    }
}

static void test_matrices(void **state) {
    (void)state;
    static const size_t rows[] = {1, 2, 5, 6, 7, 13, 14, 15, 29, 40, 170},
                        columns[] = {1, 15, 16, 17, 33, 48, 64, 100};
    static const size_t depths[] = {1, 2, 31, 64, 383, 384, 385, 900};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            const size_t k = depths[(i + j) % (sizeof depths / sizeof *depths)];
            product p;
            open_product(&p, rows[i], columns[j], 1, k, k, 1, false, (i + j) % 2 == 0);
            run_everywhere(&p);
            close_product(&p);
            open_product(&p, rows[i], columns[j], 1, k, 1024, 1, false,
                         j % 2 == 0); /* in one set of a cache */
            run_everywhere(&p);
            close_product(&p);
            open_product(&p, rows[i], columns[j], 1, depths[j], 1, rows[i], false,
                         j % 2 == 0); /* A transposed */
            run_everywhere(&p);
            close_product(&p);
        }
    }
}

/* Pixels of channels in blocks of 16, strides 1 and 2, taps at any offset; and rows of any other step. */
static void test_runs(void **state) {
    (void)state;
    static const size_t steps[] = {16, 32, 48, 3};
    for (size_t s = 0; s < 4; s++) {
        for (size_t taps = 1; taps <= 50; taps += 7) {
            for (size_t m = 1; m < 34; m += 8) {
                product p;
                open_product(&p, m, 16 * (1 + m % 5), taps, 16, steps[s], 1, true, taps % 2 == 0);
                run_everywhere(&p);
                close_product(&p);
                open_product(&p, m, 16 + m, taps, 7, steps[s], 2, false, taps % 2 == 1);
                run_everywhere(&p);
                close_product(&p);
            }
        }
    }
}

/* A tile writes its rows and panels and nothing else. */
static void test_one_tile(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        static const ptrdiff_t at_zero = 0;
        _Alignas(64) float b[2 * 16];
        float a[3] = {1.0f, 2.0f, 3.0f}, c[5 * 20];
        for (size_t i = 0; i < 32; i++) b[i] = (float)i;
        for (size_t i = 0; i < 100; i++) c[i] = -1.0f;
        const gemm_tile t = {.a = a,
                             .a_row = 1,
                             .runs = &at_zero,
                             .n_runs = 1,
                             .run = 2,
                             .b = b,
                             .b_panel = 32,
                             .c = c + 20,
                             .c_row = 20,
                             .c_panel = 16,
                             .mask = 0x7,
                             .first = true,
                             .last = true,
                             .low = -INFINITY,
                             .high = INFINITY};
        k->gemm_tile(&t, GEMM_ROWS_ANY, 2, 1);
        for (size_t i = 0; i < 100; i++) {
            const size_t row = i / 20 - 1, j = i % 20;
            const bool inside = i >= 20 && row < 2 && j < 3;
            assert_true(c[i] == (inside ? a[row] * b[j] + a[row + 1] * b[16 + j] : -1.0f));
        }
    }
}

/* NaN in either operand is in the result, whatever the limits; infinities are limited. */
static void test_not_a_number(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        float a[3] = {NAN, INFINITY, -INFINITY}, c[48];
        _Alignas(64) float b[16], scratch[4096];
        for (size_t j = 0; j < 16; j++) b[j] = 1.0f;
        const gemm g = {.n = 16,
                        .k = 1,
                        .a = a,
                        .a_row = 1,
                        .a_k = 1,
                        .n_runs = 1,
                        .run = 1,
                        .b = b,
                        .c = c,
                        .c_row = 16,
                        .c_panel = 16,
                        .low = 0.0f,
                        .high = 6.0f};
        gemm_run(k, &g, 0, 3, 0, 1, scratch);
        for (size_t j = 0; j < 16; j++) {
            assert_true(isnan(c[j]));
            assert_true(c[16 + j] == 6.0f && c[32 + j] == 0.0f);
        }
    }
}

static void test_nothing_to_sum(void **state) {
    (void)state;
    float bias[16] = {1.0f, -2.0f}, c[4] = {9, 9, 9, 9};
    const gemm g = {
        .n = 2, .k = 0, .c = c, .c_row = 2, .c_panel = 16, .bias = bias, .low = 0.0f, .high = INFINITY};
    gemm_run(kernels_for(KERNEL_REF), &g, 0, 2, 0, 1, NULL);
    assert_true(c[0] == 1.0f && c[1] == 0.0f && c[2] == 1.0f && c[3] == 0.0f);
    assert_int_equal(gemm_packed_floats(SIZE_MAX / 2, 100), 0);
    assert_int_equal(gemm_packed_floats(3, SIZE_MAX), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices),       cmocka_unit_test(test_runs),
        cmocka_unit_test(test_one_tile),       cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_nothing_to_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
