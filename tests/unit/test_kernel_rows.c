/* test_kernel_rows.c: .softmax and .layer_norm. The scalar reference is held against long double, the other
 * instruction sets against the reference bit for bit, at every length around the lanes, with buffers that end
 * at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"

#include "guarded.h"

#include <stdlib.h>

enum { LONGEST = 1100 };

static float *row(guarded *g, size_t n, float span) {
    *g = guard_new(n * sizeof(float), 4, true);
    float *x = g->data;
    for (size_t i = 0; i < n; i++) x[i] = span * (float)((double)next_random() / 2147483648.0 - 0.5);
    return x;
}

static void check_softmax(const float *x, const float *y, size_t n) {
    long double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) sum += expl((long double)x[i] - most);
    for (size_t i = 0; i < n; i++) {
        const long double exact = expl((long double)x[i] - most) / sum;
        assert_true(fabsl((long double)y[i] - exact) <= 3e-6L * exact + 1e-38L);
    }
}

static void check_norm(const float *x, const float *w, const float *b, const float *y, size_t n, float eps) {
    long double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++) mean += (long double)x[i] / (long double)n;
    for (size_t i = 0; i < n; i++)
        variance += ((long double)x[i] - mean) * ((long double)x[i] - mean) / (long double)n;
    for (size_t i = 0; i < n; i++) {
        long double exact = ((long double)x[i] - mean) / sqrtl(variance + (long double)eps);
        if (w) exact *= (long double)w[i];
        if (b) exact += (long double)b[i];
        assert_true(fabsl((long double)y[i] - exact) <= 3e-6L);
    }
}

static void test_rows(void **state) {
    (void)state;
    for (size_t n = 1; n < LONGEST; n = n < 70 ? n + 1 : n * 3 / 2) {
        guarded g[5];
        float *x = row(&g[0], n, 20.0f), *w = row(&g[1], n, 2.0f), *b = row(&g[2], n, 2.0f);
        float *y = row(&g[3], n, 0.0f), *in_place = row(&g[4], n, 0.0f), wanted[4][LONGEST];
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            memcpy(in_place, x, n * sizeof *x);
            k->softmax(x, y, n);
            k->softmax(in_place, in_place, n);
            assert_memory_equal(y, in_place, n * sizeof *y);
            if (isa == 0) check_softmax(x, memcpy(wanted[0], y, n * sizeof *y), n);
            assert_memory_equal(y, wanted[0], n * sizeof *y);
            for (int form = 1; form < 4; form++) {
                const float *gain = form > 1 ? w : NULL, *shift = form > 2 ? b : NULL;
                k->layer_norm(x, gain, shift, n, 1e-5f, y);
                if (isa == 0) check_norm(x, gain, shift, memcpy(wanted[form], y, n * sizeof *y), n, 1e-5f);
                assert_memory_equal(y, wanted[form], n * sizeof *y);
            }
        }
        for (size_t i = 0; i < 5; i++) guard_free(&g[i]);
    }
}

static void test_what_is_no_number(void **state) {
    (void)state;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        float x[20], y[20];
        for (size_t i = 0; i < 20; i++) x[i] = i == 3 ? 1.0f : -INFINITY;
        k->softmax(x, y, 20);
        for (size_t i = 0; i < 20; i++) assert_true(y[i] == (i == 3 ? 1.0f : 0.0f));
        for (size_t at = 0; at < 20; at++) {
            for (size_t i = 0; i < 20; i++) x[i] = i == at ? NAN : (float)i;
            k->softmax(x, y, 20);
            for (size_t i = 0; i < 20; i++) assert_true(y[i] != y[i]);
            k->layer_norm(x, NULL, NULL, 20, 0.0f, y);
            for (size_t i = 0; i < 20; i++) assert_true(y[i] != y[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
