/* test_bpe.c: merging against the definition, at every length class, with merges of any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/bpe.h"

#include <string.h>

static uint64_t state_;

static uint32_t random_below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_ >> 33) % n;
}

/* The definition: the lowest rank, the leftmost of equals, until none is left. */
static size_t by_definition(const bpe_merges *m, int32_t *ids, size_t n) {
    for (;;) {
        const bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const bpe_merge *found = bpe_find(m, ids[i], ids[i + 1]);
            if (found && (!best || found->rank < best->rank)) {
                best = found;
                at = i;
            }
        }
        if (!best) return n;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Merges over `letters` symbols: each makes a new token out of two that are there. In training order a part
 * is always older than the whole; shuffled, a merge may make a pair of lower rank possible. */
static bpe_merges random_merges(uint32_t letters, uint32_t n, bool shuffled) {
    bpe_merges m;
    error err;
    assert_int_equal(bpe_merges_init(&m, n, &err), CHURON_OK);
    uint32_t id = letters;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t recent = id < 12 ? id : 12;
        int32_t left = (int32_t)(random_below(2) ? random_below(id) : id - 1 - random_below(recent));
        int32_t right = (int32_t)(random_below(2) ? random_below(letters) : random_below(id));
        uint32_t rank = shuffled ? i * 7919 % n : i;
        if (bpe_merges_add(&m, left, right, rank, (int32_t)id)) id++;
    }
    return m;
}

static void check(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n) {
    error err;
    token_list out = {0};
    assert_int_equal(bpe_encode(m, scratch, symbols, n, &out, &err), CHURON_OK);
    int32_t *ids = mem_alloc((n + 1) * sizeof *ids);
    memcpy(ids, symbols, n * sizeof *ids);
    size_t count = by_definition(m, ids, n);
    assert_int_equal(out.len, count);
    if (count) assert_memory_equal(out.ids, ids, count * sizeof *ids);
    mem_free(ids);
    token_list_free(&out);
}

static void test_equals_the_definition(void **state) {
    (void)state;
    bpe_scratch *scratch = NULL;
    for (uint32_t round = 0; round < 40; round++) {
        state_ = round;
        uint32_t letters = 1 + random_below(5);
        bpe_merges m = random_merges(letters, 1 + random_below(60), round % 3 == 2);
        static int32_t symbols[4000];
        static const size_t lengths[] = {0, 1, 2, 3, 10, 27, 28, 29, 30, 100, 1000, 2048, 2049, 3500};
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint32_t run = 1 + random_below(40);
            for (size_t i = 0; i < lengths[k]; i++) {
                symbols[i] = i > 0 && random_below(run) ? symbols[i - 1] : (int32_t)random_below(letters);
            }
            check(&m, &scratch, symbols, lengths[k]);
        }
        bpe_merges_free(&m);
    }
    bpe_scratch_free(scratch);
}

/* A change at the far right that travels to the left end: x pairs with the letter after it, which leaves the
 * one before alone, and so on. Windows then never agree, and the answer must still be right. */
static void test_effects_across_all_windows(void **state) {
    (void)state;
    bpe_merges m;
    error err;
    assert_int_equal(bpe_merges_init(&m, 8, &err), CHURON_OK);
    const int32_t a = 0, b = 1, end = 2, ab = 3, ba = 4, bend = 5, aend = 6;
    assert_true(bpe_merges_add(&m, b, end, 0, bend));
    assert_true(bpe_merges_add(&m, a, end, 1, aend));
    assert_true(bpe_merges_add(&m, a, a, 2, ab));
    assert_true(bpe_merges_add(&m, ab, b, 3, ba));
    bpe_scratch *scratch = NULL;
    static int32_t symbols[5000];
    for (size_t n = 2000; n < 5000; n += 999) {
        for (size_t i = 0; i < n; i++) symbols[i] = a;
        symbols[n - 1] = end;
        check(&m, &scratch, symbols, n);
        symbols[n - 2] = b;
        check(&m, &scratch, symbols, n);
    }
    bpe_merges_free(&m);
    bpe_scratch_free(scratch);
}

/* Tokens longer than a window: 2^i zeros are token i, so a run is written in binary. */
static void test_long_tokens(void **state) {
    (void)state;
    enum { DOUBLINGS = 13 };
    bpe_merges m;
    error err;
    assert_int_equal(bpe_merges_init(&m, DOUBLINGS, &err), CHURON_OK);
    for (int32_t i = 0; i < DOUBLINGS; i++) assert_true(bpe_merges_add(&m, i, i, (uint32_t)i, i + 1));
    bpe_scratch *scratch = NULL;
    static int32_t zeros[40000];
    for (size_t n = 1; n <= 40000; n += 1357) {
        token_list out = {0};
        assert_int_equal(bpe_encode(&m, &scratch, zeros, n, &out, &err), CHURON_OK);
        size_t left = n;
        for (size_t i = 0; i < out.len; i++) {
            int32_t expected = DOUBLINGS;
            while ((size_t)1 << expected > left) expected--;
            assert_int_equal(out.ids[i], expected);
            left -= (size_t)1 << expected;
        }
        assert_int_equal(left, 0);
        token_list_free(&out);
    }
    bpe_merges_free(&m);
    bpe_scratch_free(scratch);
}

static void test_a_pair_has_one_merge(void **state) {
    (void)state;
    bpe_merges m;
    error err;
    assert_int_equal(bpe_merges_init(&m, 4, &err), CHURON_OK);
    assert_true(bpe_merges_add(&m, 1, 2, 0, 3));
    assert_false(bpe_merges_add(&m, 1, 2, 1, 3));
    assert_null(bpe_find(&m, 2, 1));
    assert_int_equal(bpe_find(&m, 1, 2)->id, 3);
    bpe_merges_free(&m);
    mem_fail_at(1);
    assert_int_equal(bpe_merges_init(&m, 4, &err), CHURON_NO_MEMORY);
    mem_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_definition),
        cmocka_unit_test(test_effects_across_all_windows),
        cmocka_unit_test(test_long_tokens),
        cmocka_unit_test(test_a_pair_has_one_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
