/* test_load_stats.c: percentiles, random numbers, objectives, figures of records, the search for the knee. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/load_figures.h"
#include "bench/load_knee.h"

#include <math.h>
#include <string.h>

static void test_percentiles(void **state) {
    (void)state;
    double v[200];
    for (size_t i = 0; i < 200; i++) v[i] = (double)i + 1;
    assert_true(load_percentile(v, 200, 50) == 100);
    assert_true(load_percentile(v, 200, 99) == 198);
    assert_true(load_percentile(v, 100, 99) == 99); /* exactly: a rank of 99.00000000000001 would give 100 */
    assert_true(load_percentile(v, 20, 95) == 19);
    assert_true(load_percentile(v, 200, 100) == 200);
    assert_true(load_percentile(v, 1, 50) == 1);
    assert_true(load_percentile(v, 2, 50) == 1);
    assert_true(load_percentile(v, 3, 0.001) == 1);
    assert_true(load_percentile(v, 11, 90) == 10 &&
                load_percentile(v, 3, 50) == 2); /* ranks are rounded up */
    load_samples s = {0};
    for (size_t i = 0; i < 1000; i++) load_samples_add(&s, (double)((i * 617) % 1000));
    load_quantiles q = load_samples_quantiles(&s);
    assert_true(q.n == 1000 && q.min == 0 && q.max == 999 && q.p50 == 499 && q.p99 == 989 && q.mean == 499.5);
    load_samples_free(&s);
    q = load_samples_quantiles(&s);
    assert_true(q.n == 0 && isnan(q.p50) && isnan(q.max));
}

static void test_samples_without_memory(void **state) {
    (void)state;
    load_samples s = {0};
    mem_fail_at(1);
    load_samples_add(&s, 1);
    assert_true(s.failed && s.n == 0);
    mem_fail_at(0);
    load_samples_add(&s, 2);
    assert_true(s.failed && s.n == 1 && s.v[0] == 2);
    load_samples_free(&s);
}

static void test_random(void **state) {
    (void)state;
    uint64_t zero = 0;
    assert_true(load_random(&zero) == UINT64_C(0xe220a8397b1dcdaf)); /* splitmix64's published first value */
    uint64_t r = 7;
    size_t counts[6] = {0};
    double sum = 0;
    for (int i = 0; i < 60000; i++) {
        const double u = load_random_unit(&r);
        assert_true(u > 0 && u <= 1);
        sum += load_random_exponential(&r);
        counts[load_random_below(&r, 6)]++;
    }
    assert_true(fabs(sum / 60000 - 1) < 0.02); /* standard error 0.004 */
    for (int i = 0; i < 6; i++) assert_true(counts[i] > 9600 && counts[i] < 10400);
    assert_true(load_random_mix(1, 2) != load_random_mix(2, 1));
}

static void test_slo(void **state) {
    (void)state;
    error err;
    load_slo slo;
    assert_int_equal(load_slo_parse(&slo, "ttft=500ms,tpot=0.05s", &err), CHURON_OK);
    assert_true(slo.ttft == 0.5 && slo.tpot == 0.05 && slo.itl == 0 && slo.e2e == 0);
    assert_int_equal(load_slo_parse(&slo, "e2e=10s,itl=800us", &err), CHURON_OK);
    assert_true(slo.e2e == 10 && fabs(slo.itl - 800e-6) < 1e-12);
    static const char *const bad[] = {"",         "ttft",     "ttft=",       "ttft=5",  "ttft=5m",
                                      "ttft=0ms", "ttft=-1s", "ttft=1.2.3s", "x=1s",    "ttft=1s,ttft=2s",
                                      "ttft=1s,", "=1s",      "ttft=1e3s",   "ttft=ms", ",ttft=1s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(load_slo_parse(&slo, bad[i], &err), CHURON_INVALID);
        assert_non_null(strstr(err.message, "--slo"));
    }
}

/* Sent at 1 s, events at the given times. */
static load_record record_at(double *stamps, size_t n, uint64_t tokens) {
    return (load_record){.scheduled = 1,
                         .sent = 1,
                         .first = n ? stamps[0] : (double)NAN,
                         .last = n ? stamps[n - 1] : (double)NAN,
                         .end = n ? stamps[n - 1] : 2,
                         .stamps = stamps,
                         .n_stamps = n,
                         .output_tokens = tokens,
                         .has_usage = true,
                         .retry_after = (double)NAN,
                         .outcome = LOAD_OK,
                         .finish = "length"};
}

static void test_measures_of_a_request(void **state) {
    (void)state;
    double stamps[] = {1.5, 1.75, 2.5};
    load_record r = record_at(stamps, 3, 5); /* five tokens in three events */
    assert_true(load_record_ttft(&r) == 0.5);
    assert_true(load_record_tpot(&r) == 0.25);
    assert_true(load_record_longest_gap(&r) == 0.75);
    r.scheduled = 0.5; /* it was due earlier than it could be sent: the wait counts */
    assert_true(load_record_ttft(&r) == 1);
    r.scheduled = 1;
    const load_slo holds = {.ttft = 0.5, .tpot = 0.25, .itl = 0.75, .e2e = 1.5};
    assert_true(load_slo_met(&holds, &r));
    const load_slo fails[] = {{.ttft = 0.4}, {.tpot = 0.2}, {.itl = 0.7}, {.e2e = 1.4}};
    for (size_t i = 0; i < 4; i++) assert_false(load_slo_met(&fails[i], &r));
    r.outcome = LOAD_BROKEN;
    assert_false(load_slo_met(&holds, &r));
    load_record one = record_at(stamps, 1, 1);
    assert_true(isnan(load_record_tpot(&one)) && isnan(load_record_longest_gap(&one)));
    assert_true(load_slo_met(&holds, &one));
    load_record none = record_at(stamps, 0, 0);
    assert_false(load_slo_met(&holds, &none));
}

static void test_figures(void **state) {
    (void)state;
    error err;
    double a[] = {1.1, 1.2, 1.4}, b[] = {1.3, 1.4};
    load_record items[5] = {record_at(a, 3, 3), record_at(b, 2, 8), record_at(NULL, 0, 0),
                            record_at(NULL, 0, 0), record_at(NULL, 0, 0)};
    items[2].outcome = items[3].outcome = LOAD_REFUSED;
    items[2].code = items[3].code = 429;
    items[2].end = 1.004;
    items[3].end = 1.002;
    items[3].retry_after = 3;
    strcpy(items[2].why, "429: full");
    items[4].outcome = LOAD_TIMEOUT;
    const load_records r = {.items = items, .n = 5, .wall = 2, .client_cpu = 0.1};
    const load_slo slo = {.ttft = 0.2};
    load_figures f;
    assert_int_equal(load_figures_make(&f, &r, &slo, &err), CHURON_OK);
    assert_true(f.requests == 5 && f.completed == 2 && f.refused == 2 && f.failed == 1);
    assert_true(f.refused_with_retry == 1 && f.retry_after_min == 3 && f.retry_after_max == 3);
    assert_true(fabs(f.refusal.max - 0.004) < 1e-12);
    assert_true(f.output_tokens == 11 && load_figures_tokens_per_s(&f) == 5.5);
    assert_true(f.good == 1 && load_figures_goodput(&f) == 0.5);
    assert_true(f.itl.n == 3 && f.ttft.n == 2 && f.events == 5);
    assert_true(f.n_errors == 2 && f.errors[0].count == 2 && strcmp(f.errors[0].example, "429: full") == 0);
    assert_true(f.n_finishes == 1 && f.finishes[0].count == 2);
    items[1].has_usage = false; /* then no rate is claimed */
    assert_int_equal(load_figures_make(&f, &r, NULL, &err), CHURON_OK);
    assert_true(isnan(load_figures_tokens_per_s(&f)) && f.without_usage == 1);
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        status st = load_figures_make(&f, &r, NULL, &err);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    mem_fail_at(0);
}

/* A server whose rates up to `truth` hold. */
static double search(double first, double truth, size_t *steps) {
    load_knee k = {.first = first};
    for (double rate; (rate = load_knee_next(&k)) > 0;) {
        load_knee_take(&k, &(load_knee_step){.rate = rate, .share = rate <= truth ? 0.95 : 0.4});
    }
    *steps = k.n;
    return k.holds;
}

static void test_knee(void **state) {
    (void)state;
    size_t steps;
    static const double truths[] = {0.37, 1, 1.5, 2.9, 6.6, 100};
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
        const double found = search(1, truths[i], &steps);
        assert_true(found <= truths[i] && found > truths[i] / 1.11);
        assert_true(steps <= 12);
    }
    assert_true(search(1, 0, &steps) == 0);
    assert_true(steps <= LOAD_KNEE_STEPS);
    assert_true(search(1, INFINITY, &steps) > 1e5);
    assert_int_equal(steps, LOAD_KNEE_STEPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_samples_without_memory),
        cmocka_unit_test(test_random),      cmocka_unit_test(test_slo),
        cmocka_unit_test(test_figures),     cmocka_unit_test(test_measures_of_a_request),
        cmocka_unit_test(test_knee),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
