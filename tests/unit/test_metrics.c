/* test_metrics.c: counters, gauges, histograms and their text form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "observe/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const double bounds[] = {0.001, 0.01, 0.1};

static void test_text_form(void **state) {
    (void)state;
    metrics *m;
    assert_int_equal(metrics_create(&m, NULL), CHURON_OK);
    metric *c = metrics_counter(m, "a_total", "x=\"1\"", "Help with \\ and\nline.");
    metric *g = metrics_gauge(m, "g", NULL, "A gauge.");
    metric *h = metrics_histogram(m, "h_seconds", "m=\"q\"", "A histogram.", bounds, 3);
    metric *c2 = metrics_counter(m, "a_total", "x=\"2\"", "ignored");
    metric_add(c, 3);
    metric_add(c2, 1);
    metric_set(g, -1.5);
    metric_observe(h, 0.001); /* bounds are inclusive */
    metric_observe(h, 0.05);
    metric_observe(h, 7);
    metric_observe(h, NAN); /* not counted */
    str out = {0};
    metrics_write(m, &out);
    assert_string_equal(out.data, "# HELP a_total Help with \\\\ and\\nline.\n# TYPE a_total counter\n"
                                  "a_total{x=\"1\"} 3\na_total{x=\"2\"} 1\n"
                                  "# HELP g A gauge.\n# TYPE g gauge\ng -1.5\n"
                                  "# HELP h_seconds A histogram.\n# TYPE h_seconds histogram\n"
                                  "h_seconds_bucket{m=\"q\",le=\"0.001\"} 1\n"
                                  "h_seconds_bucket{m=\"q\",le=\"0.01\"} 1\n"
                                  "h_seconds_bucket{m=\"q\",le=\"0.1\"} 2\n"
                                  "h_seconds_bucket{m=\"q\",le=\"+Inf\"} 3\n"
                                  "h_seconds_sum{m=\"q\"} 7.051\nh_seconds_count{m=\"q\"} 3\n");
    assert_int_equal(metric_count(h), 3);
    str_free(&out);
    metrics_free(m);
}

static void test_same_series_and_wrong_kind(void **state) {
    (void)state;
    metrics *m;
    error err;
    assert_int_equal(metrics_create(&m, NULL), CHURON_OK);
    metric *a = metrics_counter(m, "a_total", "", "A.");
    assert_ptr_equal(a, metrics_counter(m, "a_total", NULL, "A."));
    assert_int_equal(metrics_check(m, &err), CHURON_OK);
    assert_null(metrics_gauge(m, "a_total", NULL, "A."));
    assert_int_equal(metrics_check(m, &err), CHURON_NO_MEMORY);
    metric_add(NULL, 1);
    metric_set(NULL, 1);
    metric_observe(NULL, 1);
    metrics_free(m);
}

static void test_labels_are_escaped_and_bounded(void **state) {
    (void)state;
    metrics *m;
    assert_int_equal(metrics_create(&m, NULL), CHURON_OK);
    str label = {0};
    metrics_label(&label, "path", "a\"b\\c\nd");
    assert_string_equal(label.data, "path=\"a\\\"b\\\\c\\nd\"");
    str_free(&label);
    metric *last = NULL;
    for (int i = 0; i < 500; i++) {
        char l[32];
        snprintf(l, sizeof l, "i=\"%d\"", i);
        last = metrics_counter(m, "many_total", l, "Many.");
        metric_add(last, 1);
    }
    assert_int_equal(metric_count(last), 500 - METRICS_MAX_SERIES);
    str out = {0};
    metrics_write(m, &out);
    assert_non_null(strstr(out.data, "many_total{other=\"true\"} 436\n"));
    str_free(&out);
    metrics_free(m);
}

enum { THREADS = 4, ROUNDS = 20000 };
typedef struct shared {
    metrics *m;
    metric *c, *h;
} shared;

static void *hammer(void *user) {
    shared *s = user;
    for (int i = 0; i < ROUNDS; i++) {
        metric_add(s->c, 1);
        metric_observe(s->h, 0.5);
        if (i % 1000 == 0) {
            str out = {0};
            metrics_write(s->m, &out);
            str_free(&out);
            metric_add(metrics_counter(s->m, "late_total", NULL, "Registered while others write."), 1);
        }
    }
    return NULL;
}

static void test_threads_lose_nothing(void **state) {
    (void)state;
    shared s;
    assert_int_equal(metrics_create(&s.m, NULL), CHURON_OK);
    s.c = metrics_counter(s.m, "c_total", NULL, "C.");
    s.h = metrics_histogram(s.m, "h", NULL, "H.", bounds, 3);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, hammer, &s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    assert_int_equal(metric_count(s.c), THREADS * ROUNDS);
    assert_int_equal(metric_count(s.h), THREADS * ROUNDS);
    str out = {0};
    metrics_write(s.m, &out);
    assert_non_null(strstr(out.data, "h_sum 40000\n"));
    str_free(&out);
    metrics_free(s.m);
}

static void test_failed_allocations(void **state) {
    (void)state;
    for (int64_t n = 1; n < 40; n++) {
        metrics *m;
        mem_fail_at(n);
        status st = metrics_create(&m, NULL);
        if (st == CHURON_OK) {
            (void)metrics_counter(m, "a_total", "x=\"1\"", "A.");
            (void)metrics_histogram(m, "h", NULL, "H.", bounds, 3);
            st = metrics_check(m, NULL);
        }
        mem_fail_at(0);
        metrics_free(m);
        if (st == CHURON_OK) return;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    fail_msg("no run succeeded");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_form),
        cmocka_unit_test(test_same_series_and_wrong_kind),
        cmocka_unit_test(test_labels_are_escaped_and_bounded),
        cmocka_unit_test(test_threads_lose_nothing),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
