/* test_kernel_forest.c: .forest_u8 and .forest_u16 of every instruction set, bit for bit, and of the
 * reference against their definition, with memory that ends at pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "guarded.h"
#include "kernel/kernel.h"

enum { ROWS = 3, BLOCKS = 5, LD = 7 };

/* A case whose values often meet: ranks and splits from a small set, or anything. */
static void fill(uint8_t *feature, uint16_t *ranks, uint16_t *split, size_t n_ranks, uint32_t most) {
    for (size_t i = 0; i < BLOCKS * 64; i++) {
        feature[i] = (uint8_t)(next_random() % n_ranks);
        split[i] = (uint16_t)(next_random() % 8 == 0 ? most : next_random() % (most + 1));
    }
    for (size_t i = 0; i < ROWS * n_ranks; i++) {
        ranks[i] = (uint16_t)(next_random() % 8 == 0 ? most : next_random() % (most + 1));
    }
}

static void check(const kernels *k, bool wide, size_t n_ranks, uint32_t most) {
    uint8_t feature[BLOCKS * 64];
    uint16_t ranks[ROWS * FOREST_RANKS_U8], split[BLOCKS * 64];
    size_t size = wide ? 2 : 1, row = wide ? FOREST_RANKS_U16 : FOREST_RANKS_U8;
    fill(feature, ranks, split, n_ranks, most);
    guarded f = guard_copy(feature, sizeof feature, 64, true);
    guarded s = guard_new(BLOCKS * 64 * size, 64, true), r = guard_new(ROWS * row * size, 64, true);
    guarded m = guard_new(((ROWS - 1) * LD + BLOCKS) * sizeof(uint64_t), 8, true);
    memset(r.data, 0xff, ROWS * row * size); /* beyond n_ranks: anything */
    memset(m.data, 0x5a, ((ROWS - 1) * LD + BLOCKS) * sizeof(uint64_t));
    for (size_t i = 0; i < BLOCKS * 64; i++) {
        if (wide) {
            ((uint16_t *)s.data)[i] = split[i];
        } else {
            ((uint8_t *)s.data)[i] = (uint8_t)split[i];
        }
    }
    for (size_t i = 0; i < ROWS * n_ranks; i++) {
        size_t at = i / n_ranks * row + i % n_ranks;
        if (wide) {
            ((uint16_t *)r.data)[at] = ranks[i];
        } else {
            ((uint8_t *)r.data)[at] = (uint8_t)ranks[i];
        }
    }
    if (wide) {
        k->forest_u16(r.data, ROWS, n_ranks, f.data, s.data, BLOCKS, m.data, LD);
    } else {
        k->forest_u8(r.data, ROWS, n_ranks, f.data, s.data, BLOCKS, m.data, LD);
    }
    const uint64_t *masks = m.data;
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t n = 0; n < BLOCKS * 64; n++) {
            bool want = ranks[i * n_ranks + feature[n]] > split[n];
            assert_int_equal(masks[i * LD + n / 64] >> n % 64 & 1, want);
        }
        for (size_t b = BLOCKS; i + 1 < ROWS && b < LD; b++)
            assert_true(masks[i * LD + b] == 0x5a5a5a5a5a5a5a5au);
    }
    guard_free(&f);
    guard_free(&s);
    guard_free(&r);
    guard_free(&m);
}

static void all_tables(bool wide) {
    static const uint32_t mosts[] = {1, 127, 128, 255, 65535};
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        for (size_t n = 1; n <= (wide ? FOREST_RANKS_U16 : FOREST_RANKS_U8); n++) {
            for (size_t i = 0; i < (wide ? 5 : 4); i++) check(k, wide, n, mosts[i]);
        }
    }
}

static void forest_u8(void **state) {
    (void)state;
    all_tables(false);
}

static void forest_u16(void **state) {
    (void)state;
    all_tables(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forest_u8), cmocka_unit_test(forest_u16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
