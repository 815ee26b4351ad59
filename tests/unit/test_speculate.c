/* test_speculate.c: the lookup against a search of every place, its incremental upkeep, and the decision how
 * long a draft pays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/speculate.h"

#include <math.h>
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

static void learn(step_cost *c, size_t rows, double seconds) {
    for (int i = 0; i < 30; i++) step_cost_add(c, rows, seconds);
}

static bool near(double a, double b) {
    return fabs(a - b) <= 0.01 * fabs(b);
}

static void test_cost_of_rows(void **state) {
    (void)state;
    step_cost c = {0};
    assert_true(near(step_cost_of(&c, 1), 1)); /* a guess, in steps of one row */
    assert_true(step_cost_of(&c, 5) > step_cost_of(&c, 4));
    learn(&c, 1, 4e-3);
    assert_true(near(step_cost_of(&c, 1), 4e-3));
    assert_true(step_cost_of(&c, 4) > 5e-3 && step_cost_of(&c, 4) < 7e-3);
    learn(&c, 4, 4.4e-3);
    learn(&c, 6, 8e-3);
    assert_true(near(step_cost_of(&c, 4), 4.4e-3));
    assert_true(near(step_cost_of(&c, 5), 6.2e-3)); /* between what is known */
    assert_true(step_cost_of(&c, 10) > 8e-3);
    assert_true(step_cost_of(&c, 500) > step_cost_of(&c, 100));
    step_cost_add(&c, 1, 0.5); /* the machine was busy: once is no new cost */
    assert_true(step_cost_of(&c, 1) < 5.1e-3);
    learn(&c, 1, 6e-3);
    assert_true(near(step_cost_of(&c, 1), 6e-3));
    step_cost_add(&c, 0, 1);
    step_cost_add(&c, 1, 0);
    step_cost_add(&c, COST_ROWS + 1, 1);
    assert_true(near(step_cost_of(&c, 1), 6e-3));
}

/* A step of up to 4 rows takes what one of 1 does; each row more half as much. */
static step_cost stairs(void) {
    step_cost c = {0};
    for (size_t rows = 1; rows <= 32; rows++)
        learn(&c, rows, 4e-3 + (rows > 4 ? 2e-3 * (double)(rows - 4) : 0));
    return c;
}

static void test_lengths_that_pay(void **state) {
    (void)state;
    step_cost c = stairs();
    draft_offer one = {.likelihood = 0.9, .most = 16};
    draft_allot(&c, 1, 100, &one, 1);
    assert_int_equal(one.length, 3); /* what is free */
    one.likelihood = 0.05;
    draft_allot(&c, 1, 100, &one, 1);
    assert_in_range(one.length, 1, 3);
    one.likelihood = 0.01;
    draft_allot(&c, 1, 100, &one, 1);
    assert_int_equal(one.length, 0); /* not clearly more than without */
    one = (draft_offer){.likelihood = 0.9, .most = 2};
    draft_allot(&c, 1, 100, &one, 1);
    assert_int_equal(one.length, 2);
    draft_allot(&c, 1, 1, &one, 1);
    assert_int_equal(one.length, 1);
    draft_allot(&c, 1, 0, &one, 1);
    assert_int_equal(one.length, 0);
    /* where tokens cost as much to draft as to compute, only sure ones do not pay either */
    one = (draft_offer){.likelihood = 0.9, .most = 8, .seconds = 4e-3};
    draft_allot(&c, 1, 100, &one, 1);
    assert_int_equal(one.length, 0);
    one.seconds = 0.4e-3;
    draft_allot(&c, 1, 100, &one, 1);
    assert_int_equal(one.length, 3);
    /* beside 16 that compute anyway, a row costs a sixth of what it does alone */
    one.seconds = 0;
    one.likelihood = 0.3;
    draft_allot(&c, 16, 100, &one, 1);
    assert_int_equal(one.length, 0);
}

static void test_the_likely_go_first(void **state) {
    (void)state;
    step_cost c = stairs();
    draft_offer offers[2] = {{.likelihood = 0.3, .most = 8}, {.likelihood = 0.95, .most = 8}};
    draft_allot(&c, 2, 100, offers, 2);
    assert_int_equal(offers[0].length, 0);
    assert_int_equal(offers[1].length, 2);
    draft_offer many[DRAFT_OFFERS + 8];
    for (size_t i = 0; i < DRAFT_OFFERS + 8; i++)
        many[i] = (draft_offer){.likelihood = 1, .most = 16, .length = 9};
    step_cost flat = {0};
    for (size_t rows = 1; rows <= COST_ROWS; rows++) learn(&flat, rows, 1);
    learn(&flat, COST_ROWS, 1);
    draft_allot(&flat, 8, 20, many, DRAFT_OFFERS + 8);
    size_t sum = 0;
    for (size_t i = 0; i < DRAFT_OFFERS + 8; i++) sum += many[i].length;
    assert_int_equal(sum, 20);
    for (size_t i = DRAFT_OFFERS; i < DRAFT_OFFERS + 8; i++) assert_int_equal(many[i].length, 0);
}

/* One step after another of one sequence whose drafts are right at this rate; returns tokens drafted. */
static size_t decode(draft_control *c, draft_control *all, const step_cost *cost, size_t match, double rate,
                     size_t steps) {
    size_t drafted = 0;
    for (size_t i = 0; i < steps; i++) {
        draft_offer o = {.likelihood = draft_likelihood(c, all, match), .most = 8};
        size_t accepted = 0;
        draft_allot(cost, 1, 8, &o, 1);
        if (o.length == 0 && draft_probe(c, match)) o.length = 1;
        while (accepted < o.length && below(1000) < rate * 1000) accepted++;
        draft_outcome(c, all, match, o.length, accepted);
        drafted += o.length;
    }
    return drafted;
}

static void test_likelihood_follows_the_record(void **state) {
    (void)state;
    step_cost cost = stairs();
    draft_control c = {0}, all = {0}, d = {0};
    assert_true(draft_likelihood(&c, &all, 20) > draft_likelihood(&c, &all, 2));
    (void)decode(&c, &all, &cost, 10, 1.0, 100);
    assert_true(draft_likelihood(&c, &all, 10) > 0.95);
    assert_true(draft_likelihood(&d, &all, 10) > 0.95); /* a new job begins with what the engine knows */
    (void)decode(&c, &all, &cost, 10, 0.5, 100);
    assert_true(draft_likelihood(&c, &all, 10) > 0.3 && draft_likelihood(&c, &all, 10) < 0.7);
    double other = draft_likelihood(&c, &all, 2);
    (void)decode(&c, &all, &cost, 10, 0.0, 100);
    assert_true(draft_likelihood(&c, &all, 2) == other); /* one class does not spoil another */
}

/* Rows that cost: drafts that are never right are tried less and less, and not again by the next job. */
static void test_turns_itself_off(void **state) {
    (void)state;
    step_cost cost = {0};
    for (size_t rows = 1; rows <= 16; rows++) learn(&cost, rows, 3e-3 + 1e-3 * (double)rows);
    draft_control all = {0}, first = {0}, second = {0};
    assert_true(decode(&first, &all, &cost, 4, 0.0, 2000) < 40);
    size_t probes = decode(&second, &all, &cost, 4, 0.0, 2000);
    assert_in_range(probes, 4, 12);
    /* It comes back when drafts become right. */
    assert_true(decode(&second, &all, &cost, 4, 1.0, 2500) > 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_match_everywhere),
        cmocka_unit_test(test_truncate_is_exact),
        cmocka_unit_test(test_a_loop_goes_on),
        cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_cost_of_rows),
        cmocka_unit_test(test_lengths_that_pay),
        cmocka_unit_test(test_the_likely_go_first),
        cmocka_unit_test(test_likelihood_follows_the_record),
        cmocka_unit_test(test_turns_itself_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
