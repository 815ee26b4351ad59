/* test_speculate.c: the lookup against a search of every place, its incremental upkeep, and the decision how
 * long a draft pays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/speculate.h"

#include <string.h>

static uint32_t seed = 1;

static uint32_t below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* ---- lookup ----------------------------------------------------------------------------------------- */

/* The latest of the longest earlier occurrences, by looking everywhere: its end, or 0. */
static size_t search(const int32_t *tokens, size_t n, size_t *match) {
    size_t best = 0;
    *match = 0;
    for (size_t end = n - 1; end >= NGRAM_LEAST; end--) {
        size_t k = 0;
        while (k < NGRAM_MOST && k < end && tokens[end - 1 - k] == tokens[n - 1 - k]) k++;
        if (k >= NGRAM_LEAST && k > *match) *match = k, best = end;
    }
    return best;
}

static void check_draft(const ngram_index *x, const int32_t *tokens, size_t n, size_t most) {
    int32_t draft[DRAFT_MAX];
    size_t match, want, got = ngram_draft(x, tokens, n, most, draft, &match);
    size_t from = n > NGRAM_LEAST ? search(tokens, n, &want) : (want = 0);
    assert_int_equal(match, want);
    assert_int_equal(got, want ? most : 0);
    for (size_t i = 0; i < got; i++) {
        assert_int_equal(draft[i], from + i < n ? tokens[from + i] : draft[from + i - n]);
    }
}

static ngram_index *new_index(size_t max_tokens) {
    ngram_index *x;
    error err;
    if (ngram_create(&x, max_tokens, &err) != CHURON_OK) fail_msg("%s", err.message);
    return x;
}

/* Few different tokens and few places each, so that every occurrence is among those that are looked at. */
static void test_longest_match_everywhere(void **state) {
    (void)state;
    enum { N = 160 };
    for (int round = 0; round < 200; round++) {
        int32_t tokens[N];
        ngram_index *x = new_index(N);
        const uint32_t n_vocab = 12 + below(30);
        for (size_t n = 0; n < N; n++) {
            /* now and then the copy of an earlier stretch */
            size_t run = n > 20 && below(20) == 0 ? 2 + below(15) : 0,
                   from = run ? below((uint32_t)n - 18) : 0;
            if (run == 0) tokens[n] = (int32_t)below(n_vocab);
            for (size_t i = 0; i < run && n + i < N; i++) tokens[n + i] = tokens[from + i];
            if (run > 1) n += run - 1 < N - 1 - n ? run - 1 : N - 1 - n;
            ngram_follow(x, tokens, n + 1);
            check_draft(x, tokens, n + 1, 1 + below(DRAFT_MAX));
        }
        ngram_free(x);
    }
}

/* Taking back and going on elsewhere is the same as never having been there. */
static void test_truncate_is_exact(void **state) {
    (void)state;
    enum { N = 300 };
    int32_t tokens[N];
    ngram_index *x = new_index(N);
    size_t n = 0;
    for (int step = 0; step < 3000; step++) {
        if (n > 0 && below(4) == 0) {
            n -= below((uint32_t)(n < 40 ? n : 40)) + 1;
            ngram_truncate(x, n);
        } else {
            size_t more = 1 + below(9);
            for (; more && n < N; more--) tokens[n++] = (int32_t)below(15);
            ngram_follow(x, tokens, n);
        }
        if (n > 0) check_draft(x, tokens, n, 8);
    }
    ngram_truncate(x, 0);
    int32_t draft[DRAFT_MAX];
    size_t match;
    assert_int_equal(ngram_draft(x, tokens, 0, 8, draft, &match), 0);
    ngram_free(x);
}

static void test_a_loop_goes_on(void **state) {
    (void)state;
    const int32_t tokens[] = {9, 1, 2, 3, 1, 2, 3};
    int32_t draft[8];
    size_t match;
    ngram_index *x = new_index(7);
    ngram_follow(x, tokens, 7);
    assert_int_equal(ngram_draft(x, tokens, 7, 8, draft, &match), 8);
    assert_int_equal(match, 3);
    const int32_t want[] = {1, 2, 3, 1, 2, 3, 1, 2};
    assert_memory_equal(draft, want, sizeof want);
    /* nothing is known of tokens that were not followed */
    ngram_truncate(x, 5);
    assert_int_equal(ngram_draft(x, tokens, 7, 8, draft, &match), 0);
    ngram_free(x);
}

static void test_work_is_bounded(void **state) {
    (void)state;
    enum { N = 20000 };
    int32_t *tokens = mem_calloc(N, sizeof *tokens), draft[DRAFT_MAX];
    assert_non_null(tokens);
    ngram_index *x = new_index(N);
    for (size_t n = 1; n <= N; n++) { /* one token only: every position is in one chain */
        size_t match;
        ngram_follow(x, tokens, n);
        size_t got = ngram_draft(x, tokens, n, 4, draft, &match);
        assert_int_equal(got, n > NGRAM_LEAST ? 4 : 0);
        assert_true(match <= NGRAM_MOST);
    }
    ngram_free(x);
    mem_free(tokens);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    status st = CHURON_NO_MEMORY;
    for (size_t at = 1; st != CHURON_OK; at++) {
        ngram_index *x;
        error err;
        mem_fail_at((int64_t)at);
        st = ngram_create(&x, 100, &err);
        mem_fail_at(0);
        assert_true(at < 10 && (st == CHURON_OK || st == CHURON_NO_MEMORY));
        assert_true((x != NULL) == (st == CHURON_OK));
        ngram_free(x);
    }
}

/* ---- how long a draft pays -------------------------------------------------------------------------- */

static void test_cost_of_a_row(void **state) {
    (void)state;
    step_cost c = {0};
    assert_true(step_cost_marginal(&c, 1) > 0.1 && step_cost_marginal(&c, 1) < 0.3); /* a guess */
    for (size_t i = 0; i < 200; i++) {
        size_t rows = 1 + i % 8;
        step_cost_add(&c, rows, 3e-3 + 1e-3 * (double)rows);
        if (i % 50 == 49) step_cost_add(&c, rows, 0.5); /* the machine was busy: not a cost of rows */
    }
    assert_true(step_cost_marginal(&c, 1) > 0.24 && step_cost_marginal(&c, 1) < 0.26);
    /* in a step of many rows each pays little of the fixed part */
    assert_true(step_cost_marginal(&c, 27) > 0.89 && step_cost_marginal(&c, 27) < 0.91);
    step_cost_add(&c, 0, 1);
    step_cost_add(&c, 1, 0);
    step_cost flat = {0};
    for (size_t i = 0; i < 50; i++) step_cost_add(&flat, 1 + i % 4, 4e-3);
    assert_true(step_cost_marginal(&flat, 1) >= 0.02); /* never free */
}

/* Length of the next draft after `n` drafts with this rate of right tokens. */
static size_t settle(draft_control *c, draft_control *all, size_t match, double rate, size_t n,
                     double marginal) {
    for (size_t i = 0; i < n; i++) {
        size_t drafted = draft_length(c, all, match, 8, marginal), accepted = 0;
        while (accepted < drafted && below(1000) < rate * 1000) accepted++;
        draft_outcome(c, all, match, drafted, accepted);
    }
    draft_control copy = *c;
    return draft_length(&copy, all, match, 8, marginal);
}

static void test_length_follows_acceptance(void **state) {
    (void)state;
    draft_control c = {0}, all = {0};
    size_t good = settle(&c, &all, 10, 0.97, 100, 0.2);
    assert_true(good >= 5);
    draft_control d = {0}, none = {0};
    size_t fair = settle(&d, &none, 10, 0.6, 100, 0.2);
    assert_true(fair >= 1 && fair <= 4);
    /* rows that cost as much as tokens: never */
    draft_control e = {0};
    assert_int_equal(draft_length(&e, &all, 10, 8, 1.0), 0);
    /* no more than there is room for */
    assert_true(draft_length(&c, &all, 10, 2, 0.2) <= 2);
    assert_int_equal(draft_length(&c, &all, 10, 0, 0.2), 0);
}

/* Drafts that are never right cost few rows, fewer and fewer, and not again in the next sequence. */
static void test_turns_itself_off(void **state) {
    (void)state;
    draft_control all = {0};
    size_t spent[2];
    for (int sequence = 0; sequence < 2; sequence++) {
        draft_control c = {0};
        size_t drafted = 0;
        for (size_t i = 0; i < 2000; i++) {
            size_t n = draft_length(&c, &all, 4, 8, 0.2);
            draft_outcome(&c, &all, 4, n, 0);
            drafted += n;
        }
        spent[sequence] = drafted;
    }
    assert_true(spent[0] < 40);
    assert_true(spent[1] < 12); /* probes alone */
    assert_true(spent[1] > 3);
}

/* It comes back when drafts become right. */
static void test_probes_again(void **state) {
    (void)state;
    draft_control c = {0}, all = {0};
    assert_int_equal(settle(&c, &all, 4, 0.0, 100, 0.2), 0);
    size_t steps = 0, last = 0;
    while (steps < 3000 && last < 4) {
        last = draft_length(&c, &all, 4, 8, 0.2);
        draft_outcome(&c, &all, 4, last, last);
        steps++;
    }
    assert_int_equal(last >= 4, 1);
    assert_true(steps < 2500);
    /* a class does not spoil another */
    draft_control d = {0}, none = {0};
    (void)settle(&d, &none, 2, 0.0, 100, 0.2);
    assert_true(draft_length(&d, &none, 20, 8, 0.2) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_match_everywhere),
        cmocka_unit_test(test_truncate_is_exact),
        cmocka_unit_test(test_a_loop_goes_on),
        cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_cost_of_a_row),
        cmocka_unit_test(test_length_follows_acceptance),
        cmocka_unit_test(test_turns_itself_off),
        cmocka_unit_test(test_probes_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
