/* test_kernel_fft.c: .fft_real against the sum that defines the transform, in f64, for sizes of every radix;
 * every instruction set gives the reference's bits. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernel/kernel.h"

#include "guarded.h"

#include <stdlib.h>

#define TAU 6.283185307179586

static void check_defined(const float *x, const float *out, size_t n) {
    double worst = 0.0, largest = 0.0;
    for (size_t lane = 0; lane < FFT_LANES; lane += 5) {
        for (size_t k = 0; k <= n / 2; k++) {
            double re = 0.0, im = 0.0;
            for (size_t i = 0; i < n; i++) {
                const double angle = TAU * (double)(i * k % n) / (double)n;
                re += x[i * FFT_LANES + lane] * cos(angle), im -= x[i * FFT_LANES + lane] * sin(angle);
            }
            const float *got = out + k * 2 * FFT_LANES + lane;
            const double off = hypot(re - got[0], im - got[FFT_LANES]);
            if (off > worst) worst = off;
            if (hypot(re, im) > largest) largest = hypot(re, im);
        }
    }
    assert_true(worst < 1e-6 * largest * log2((double)n + 1) + 1e-6);
}

static void test_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = {2,  4,  6,  8,  10,  12,  14,  16,  18,  20,  22,  30,  32,
                                   50, 64, 90, 98, 120, 242, 254, 256, 400, 512, 600, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t n = sizes[s], bins = n / 2 + 1;
        rfft_plan *plan;
        assert_int_equal(rfft_plan_create(&plan, n, NULL), CHURON_OK);
        guarded x = guard_new(n * FFT_LANES * sizeof(float), 4, true);
        guarded first = guard_new(bins * 2 * FFT_LANES * sizeof(float), 4, true),
                out = guard_new(bins * 2 * FFT_LANES * sizeof(float), 4, true);
        guarded scratch = guard_new(rfft_scratch(plan) * sizeof(float), 4, true);
        for (size_t i = 0; i < n * FFT_LANES; i++) ((float *)x.data)[i] = next_float();
        kernels_for(KERNEL_REF)->fft_real(plan, x.data, first.data, scratch.data);
        check_defined(x.data, first.data, n);
        for (int isa = 1; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            k->fft_real(plan, x.data, out.data, scratch.data);
            size_t at = 0;
            assert_true(same_floats(first.data, out.data, bins * 2 * FFT_LANES, &at));
        }
        guard_free(&x);
        guard_free(&first);
        guard_free(&out);
        guard_free(&scratch);
        rfft_plan_free(plan);
    }
}

static void test_bands(void **state) {
    (void)state;
    enum { BINS = 33, BANDS = 9 };
    float weights[BINS * BANDS];
    spectrum_band bands[BANDS];
    guarded in = guard_new(BINS * 2 * FFT_LANES * sizeof(float), 4, true),
            power = guard_new(BINS * FFT_LANES * sizeof(float), 4, true);
    guarded out = guard_new(BANDS * FFT_LANES * sizeof(float), 4, true);
    for (size_t i = 0; i < BINS * 2 * FFT_LANES; i++) ((float *)in.data)[i] = next_float();
    for (size_t i = 0; i < BINS * BANDS; i++) weights[i] = next_float();
    for (size_t b = 0; b < BANDS; b++) {
        const uint32_t first = (uint32_t)random_below(BINS),
                       count = b == 3 ? 0 : (uint32_t)(1 + random_below(BINS - first));
        bands[b] = (spectrum_band){first, count, random_below(BINS * BANDS - count + 1)};
    }
    for (int round = 0; round < 2 * KERNEL_ISA_COUNT; round++) {
        const kernels *k = kernels_for((kernel_isa)(round / 2));
        const bool magnitude = round % 2 != 0;
        if (!k) continue;
        k->band_energies(in.data, BINS, magnitude, bands, BANDS, weights, power.data, out.data);
        for (size_t b = 0; b < BANDS; b++) {
            for (size_t l = 0; l < FFT_LANES; l++) {
                float sum = 0.0f;
                for (size_t i = 0; i < bands[b].count; i++) {
                    const float *re = (const float *)in.data + (bands[b].first + i) * 2 * FFT_LANES + l;
                    const float p = fmaf(re[FFT_LANES], re[FFT_LANES], re[0] * re[0]);
                    sum = fmaf(magnitude ? sqrtf(p) : p, weights[bands[b].at + i], sum);
                }
                size_t at = 0;
                assert_true(same_floats((const float *)out.data + b * FFT_LANES + l, &sum, 1, &at));
            }
        }
    }
    guard_free(&in);
    guard_free(&power);
    guard_free(&out);
}

static void test_refused(void **state) {
    (void)state;
    rfft_plan *plan;
    error err;
    assert_int_equal(rfft_plan_create(&plan, 0, &err), CHURON_INVALID);
    assert_int_equal(rfft_plan_create(&plan, 401, &err), CHURON_INVALID);
    assert_int_equal(rfft_plan_create(&plan, FFT_MAX_POINTS + 2, &err), CHURON_INVALID);
    assert_int_equal(rfft_plan_create(&plan, 2 * 131, &err), CHURON_UNSUPPORTED);
    assert_null(plan);
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        const status st = rfft_plan_create(&plan, 400, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    rfft_plan_free(plan);
    rfft_plan_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_bands),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
