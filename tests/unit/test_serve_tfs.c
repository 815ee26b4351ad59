/* test_serve_tfs.c: what requests of :predict become, versions in order, sequences and their bounds, memory
 * that runs out. What clients see of it: tests/e2e/test_serve_bundles.py. */
#include "base/file.h"
#include "base/mem.h"
#include "serve/compute.h"
#include "serve/json_in.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static served_list models;

static int setup(void **state) {
    (void)state;
    json_in_setup();
    const served_options o = {.name = "iris", .threads = 1};
    error err;
    const status st = served_add(&models, "examples/iris.onnx", &o, NULL, &err);
    if (st != CHURON_OK) print_error("%s\n", err.message);
    return st != CHURON_OK;
}

static int teardown(void **state) {
    (void)state;
    served_free(&models);
    return 0;
}

static work_job new_job(job_kind kind, const char *body) {
    work_job j = {.target = models.items[0], .kind = kind, .body = mem_strdup(body)};
    j.len = j.json_len = strlen(body);
    atomic_init(&j.cancelled, false);
    return j;
}

static void free_job(work_job *j) {
    mem_free(j->body);
    str_free(&j->answer);
    str_free(&j->faults);
}

static void test_versions(void **state) {
    (void)state;
    static const char *const order[] = {"", "1", "1.2", "1.9", "1.10", "2", "10", "10-rc", "a", "a1", "a01b"};
    const size_t n = sizeof order / sizeof *order;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            const int got = served_compare_versions(order[i], order[k]);
            if ((got > 0) - (got < 0) != (i > k) - (i < k)) print_error("'%s' '%s'\n", order[i], order[k]);
            assert_int_equal((got > 0) - (got < 0), (i > k) - (i < k));
        }
    }
    assert_int_equal(served_compare_versions("007", "7"), 0);
}

/* Requests that run together have the bytes that each has alone; one that is refused disturbs nobody. */
static void test_together(void **state) {
    (void)state;
    enum { N = 5 };
    static const char *const bodies[N] = {
        "{\"instances\":[{\"measures\":[5.1,3.5,1.4,0.2]}]}", "{\"instances\":[[6.7,3.1,4.7,1.5],[1,2]]}",
        "{\"instances\":[[6.7,3.1,4.7,1.5],[1,2]],\"partial\":true}", "{",
        "{\"inputs\":{\"measures\":[[6.7,3.1,4.7,1.5]]},\"provenance\":true}"};
    const compute_shared shared = {.models = &models, .isa = "x"};
    compute *c;
    error err;
    assert_int_equal(compute_create(&c, &shared, &err), CHURON_OK);
    work_job alone[N], joined[N], *list[N];
    for (size_t i = 0; i < N; i++) {
        work_job *one = &alone[i];
        alone[i] = new_job(JOB_PREDICT, bodies[i]);
        joined[i] = new_job(JOB_PREDICT, bodies[i]);
        list[i] = &joined[i];
        compute_jobs(c, &one, 1);
        assert_true(compute_most_together(c, &joined[0]) >= 1);
    }
    compute_jobs(c, list, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(joined[i].st, alone[i].st);
        assert_string_equal(str_cstr(&joined[i].answer), str_cstr(&alone[i].answer));
        if (alone[i].st != CHURON_OK) assert_string_equal(job_message(&joined[i]), job_message(&alone[i]));
        assert_null(joined[i].body);
    }
    assert_int_equal(alone[1].st, CHURON_INVALID);
    assert_string_equal(job_message(&alone[1]),
                        "instances[1]: field measures: expected float32 [4], got float32 [2]");
    assert_true(joined[0].first && !joined[4].first);
    for (size_t i = 0; i < N; i++) {
        free_job(&alone[i]);
        free_job(&joined[i]);
    }
    compute_free(c);
}

/* The Nth allocation fails, for every N: the job has its error, or the answer it has anyway. */
static void test_no_memory(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"instances\":[[6.7,3.1,4.7,1.5],{\"measures\":[1,2,3,4]}]}",
        "{\"inputs\":{\"measures\":[[6.7,3.1,4.7,1.5]]},\"provenance\":true}"};
    const compute_shared shared = {.models = &models, .isa = "x"};
    for (size_t b = 0; b < 2; b++) {
        status st = CHURON_NO_MEMORY;
        int64_t n = 0;
        for (; st != CHURON_OK; assert_true(n < 10000)) {
            compute *c;
            work_job j = new_job(JOB_PREDICT, bodies[b]), *list = &j;
            mem_fail_at(++n);
            st = compute_create(&c, &shared, NULL);
            if (st == CHURON_OK) {
                compute_jobs(c, &list, 1);
                st = j.st;
                compute_free(c);
            }
            mem_fail_at(0);
            if (st != CHURON_NO_MEMORY && st != CHURON_LIMIT && st != CHURON_OK)
                print_error("%lld: %s\n", (long long)n, job_message(&j));
            assert_true(st == CHURON_NO_MEMORY || st == CHURON_LIMIT || st == CHURON_OK);
            free_job(&j);
        }
        assert_true(n > 5);
    }
}

static void test_find(void **state) {
    (void)state;
    error err;
    const served_wanted any = {.name = "iris/x", .name_len = 4}, other = {.name = "iris/x", .name_len = 5};
    assert_ptr_equal(served_find(&models, &any, &err), models.items[0]);
    assert_null(served_find(&models, &other, &err));
    assert_string_equal(err.message, "model: expected iris, got 'iris/'");
    served_wanted v = {.name = "iris", .name_len = 4, .version = "10", .version_len = 1};
    assert_non_null(served_find(&models, &v, &err));
    v.version_len = 2;
    assert_null(served_find(&models, &v, &err));
    assert_int_equal(err.code, CHURON_NOT_FOUND);
}

static void test_sequences_without_state(void **state) {
    (void)state;
    sequences *q;
    sequence_slot *slot;
    error err;
    assert_int_equal(sequences_create(&q, 2, 1, &err), CHURON_OK);
    sequence_key key = {0, models.items[0]->p, "a", 1};
    assert_int_equal(sequences_take(q, &key, true, 0, &slot, &err), CHURON_INVALID); /* it has no state */
    assert_int_equal(sequences_take(q, &key, false, 0, &slot, &err), CHURON_NOT_FOUND);
    key.len = 0;
    assert_int_equal(sequences_take(q, &key, true, 0, &slot, &err), CHURON_INVALID);
    key.len = SEQUENCE_ID_MAX + 1;
    assert_int_equal(sequences_take(q, &key, true, 0, &slot, &err), CHURON_INVALID);
    assert_int_equal(sequences_count(q), 0);
    sequences_free(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions), cmocka_unit_test(test_together),
                                       cmocka_unit_test(test_no_memory), cmocka_unit_test(test_find),
                                       cmocka_unit_test(test_sequences_without_state)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
