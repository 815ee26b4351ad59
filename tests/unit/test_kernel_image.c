/* test_kernel_image.c: .resize_across and .resize_down, held byte for byte against the law of kernel/image.h;
 * rows end at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"

#include "guarded.h"

#include <stdlib.h>

enum { MAX_IN = 70, MAX_OUT = 40, MAX_TAPS = 24 };

typedef struct world {
    resize_taps taps;
    uint32_t first[MAX_OUT], count[MAX_OUT];
    int32_t weight[MAX_OUT * MAX_TAPS];
    int16_t upper[MAX_OUT * MAX_TAPS], lower[MAX_OUT * MAX_TAPS];
} world;

/* Random taps inside `in` inputs. Weights as large as they come: of both signs, absolute sum below 2^23. */
static void draw(world *w, size_t in, size_t out) {
    memset(w, 0, sizeof *w);
    size_t per = 4 * (1 + random_below(MAX_TAPS / 4));
    for (size_t i = 0; i < out; i++) {
        const size_t most = in < per ? in : per;
        w->count[i] = (uint32_t)(1 + random_below(most));
        w->first[i] = (uint32_t)random_below(in - w->count[i] + 1);
        for (size_t k = 0; k < w->count[i]; k++) {
            const int32_t most_weight = (1 << 23) / (int32_t)w->count[i];
            const int32_t v =
                (int32_t)random_below((size_t)most_weight) - (random_below(3) == 0 ? most_weight / 2 : 0);
            const size_t at = i * per + k;
            w->weight[at] = v;
            w->upper[at] = (int16_t)(v >> 11), w->lower[at] = (int16_t)(v & 2047);
        }
    }
    w->taps = (resize_taps){out, per, w->first, w->count, w->weight, w->upper, w->lower};
}

static uint8_t expected(const world *w, size_t i, const uint8_t *first, size_t step) {
    int64_t sum = 1 << 21;
    for (size_t k = 0; k < w->count[i]; k++) sum += (int64_t)first[k * step] * w->weight[i * w->taps.per + k];
    sum = (int32_t)(uint32_t)(uint64_t)sum;
    sum >>= 22;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void fill(uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(random_below(3) == 0 ? 255 * random_below(2) : random_below(256));
}

static void test_across(void **state) {
    (void)state;
    world *w = malloc(sizeof *w);
    for (int round = 0; round < 400; round++) {
        const size_t channels = 1 + random_below(4), in = 1 + random_below(MAX_IN),
                     out = 1 + random_below(MAX_OUT);
        const size_t from = random_below(out), to = from + random_below(out - from + 1);
        draw(w, in, out);
        guarded row = guard_new(in * channels, 1, round % 2 == 0),
                result = guard_new((to - from) * channels, 1, true);
        fill(row.data, in * channels);
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            k->resize_across(&w->taps, channels, row.data, in, from, to, result.data);
            for (size_t i = from; i < to; i++) {
                for (size_t c = 0; c < channels; c++) {
                    const uint8_t *first = (const uint8_t *)row.data + w->first[i] * channels + c;
                    assert_int_equal(((uint8_t *)result.data)[(i - from) * channels + c],
                                     expected(w, i, first, channels));
                }
            }
        }
        guard_free(&row);
        guard_free(&result);
    }
    free(w);
}

static void test_down(void **state) {
    (void)state;
    world *w = malloc(sizeof *w);
    for (int round = 0; round < 400; round++) {
        const size_t n = 1 + random_below(100), i = random_below(3);
        draw(w, MAX_TAPS, 3);
        guarded rows[MAX_TAPS], result = guard_new(n, 1, true);
        const uint8_t *at[MAX_TAPS];
        for (size_t k = 0; k < w->count[i]; k++) {
            rows[k] = guard_new(n, 1, k % 2 == 0);
            fill(rows[k].data, n);
            at[k] = rows[k].data;
        }
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            k->resize_down(&w->taps, i, at, n, result.data);
            for (size_t x = 0; x < n; x++) {
                uint8_t column[MAX_TAPS];
                for (size_t t = 0; t < w->count[i]; t++) column[t] = at[t][x];
                assert_int_equal(((uint8_t *)result.data)[x], expected(w, i, column, 1));
            }
        }
        for (size_t k = 0; k < w->count[i]; k++) guard_free(&rows[k]);
        guard_free(&result);
    }
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_across), cmocka_unit_test(test_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
