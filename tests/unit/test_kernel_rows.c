/* test_kernel_rows.c: .softmax, .layer_norm, .vector_matrix and conversions of f16. The scalar reference is
 * held against long double, the other instruction sets against the reference bit for bit, at every length
 * around the lanes, with buffers that end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"
#include "tensor/dtype.h"

#include "guarded.h"

#include <math.h>
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

static void test_vector_matrix(void **state) {
    (void)state;
    static const size_t depths[] = {0, 1, 7, 8, 9, 40}, widths[] = {1, 7, 8, 15, 16, 17, 40, 100};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        for (size_t e = 0; e < sizeof widths / sizeof *widths; e++) {
            const size_t k = depths[d], n = widths[e], ldb = n + 3, size = k ? (k - 1) * ldb + n : 1;
            guarded g[3];
            float *a = row(&g[0], k ? k : 1, 2.0f), *b = row(&g[1], size, 2.0f), *y = row(&g[2], n, 0.0f);
            for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                const kernels *kernel = kernels_for((kernel_isa)isa);
                if (!kernel) continue;
                kernel->vector_matrix(a, b, ldb, k, n, y);
                for (size_t j = 0; j < n; j++) {
                    float wanted = 0.0f;
                    for (size_t i = 0; i < k; i++) wanted = fmaf(a[i], b[i * ldb + j], wanted);
                    assert_memory_equal(&y[j], &wanted, sizeof wanted);
                }
            }
            for (size_t i = 0; i < 3; i++) guard_free(&g[i]);
        }
    }
}

/* Every f16, and f32 around every f16 and between two of them; bit for bit. */
static void test_f16(void **state) {
    (void)state;
    enum { ALL = 1 << 16 };
    guarded g[3];
    uint16_t *halves = (g[0] = guard_new(ALL * sizeof(uint16_t), 2, true)).data;
    float *wide = row(&g[1], ALL, 0.0f), *near = row(&g[2], ALL, 0.0f);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        for (size_t i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
        k->widen_f16(halves, wide, ALL);
        for (size_t i = 0; i < ALL; i++) {
            const float wanted = f16_to_f32((uint16_t)i);
            assert_memory_equal(&wide[i], &wanted, sizeof wanted);
        }
        for (int way = 0; way < 5;
             way++) { /* itself, its neighbours, the middle to the next, that one's neighbour */
            for (size_t i = 0; i < ALL; i++) {
                const float next = f16_to_f32((uint16_t)(i + 1)), middle = 0.5f * wide[i] + 0.5f * next;
                near[i] = way == 0   ? wide[i]
                          : way == 1 ? nextafterf(wide[i], INFINITY)
                          : way == 2 ? nextafterf(wide[i], -INFINITY)
                          : way == 3 ? middle
                                     : nextafterf(middle, INFINITY);
            }
            k->narrow_f16(near, halves, ALL);
            for (size_t i = 0; i < ALL; i++) assert_int_equal(halves[i], f32_to_f16(near[i]));
        }
        for (size_t n = 1; n < 40; n++) { /* ends */
            k->narrow_f16(wide + ALL - n, halves + ALL - n, n);
            k->widen_f16(halves + ALL - n, near + ALL - n, n);
            for (size_t i = ALL - n; i < ALL; i++) assert_memory_equal(&near[i], &wide[i], sizeof *near);
        }
    }
    for (size_t i = 0; i < 3; i++) guard_free(&g[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_what_is_no_number),
        cmocka_unit_test(test_vector_matrix),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
