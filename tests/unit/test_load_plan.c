/* test_load_plan.c: which requests a load consists of: Poisson arrivals, traces, lengths, prompts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/load.h"
#include "bench/load_plan.h"
#include "bench/load_prompt.h"
#include "serve/json_in.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_ranges(void **state) {
    (void)state;
    error err;
    load_range r;
    assert_int_equal(load_range_parse(&r, "110", "--x", &err), CHURON_OK);
    assert_true(r.lo == 110 && r.hi == 110);
    assert_int_equal(load_range_parse(&r, "5-20", "--x", &err), CHURON_OK);
    assert_true(r.lo == 5 && r.hi == 20);
    static const char *const bad[] = {"",   "0",  "-",  "5-",    "-5",         "20-5",
                                      "1x", "1 ", "+1", "1-2-3", "99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(load_range_parse(&r, bad[i], "--x", &err), CHURON_INVALID);
        assert_non_null(strstr(err.message, "field --x"));
    }
}

static void test_poisson(void **state) {
    (void)state;
    enum { N = 20000 };
    error err;
    load_plan a, b;
    const load_range prompt = {10, 19}, output = {1, 1};
    assert_int_equal(load_plan_make(&a, N, 4, prompt, output, 5, &err), CHURON_OK);
    assert_int_equal(load_plan_make(&b, N, 8, prompt, output, 5, &err), CHURON_OK);
    double squares = 0, last = 0;
    for (size_t i = 0; i < N; i++) {
        const double gap = a.items[i].at - last;
        last = a.items[i].at;
        assert_true(gap >= 0);
        squares += gap * gap;
        assert_in_range(a.items[i].prompt_tokens, 10, 19);
        /* The seed decides; the rate only stretches the times. */
        assert_int_equal(a.items[i].prompt_tokens, b.items[i].prompt_tokens);
        assert_true(fabs(a.items[i].at - 2 * b.items[i].at) < 1e-6 * (1 + a.items[i].at));
    }
    /* Exponential gaps: mean 1/4, mean square 2/16; standard errors 0.7 % and 1.6 %. */
    assert_true(fabs(last / N * 4 - 1) < 0.03);
    assert_true(fabs(squares / N * 8 - 1) < 0.07);
    assert_true(fabs(load_plan_rate(&a) - 4) < 0.12);
    load_plan_free(&b);
    assert_int_equal(load_plan_make(&b, N, 4, prompt, output, 6, &err), CHURON_OK);
    assert_true(a.items[0].at != b.items[0].at);
    load_plan_free(&a);
    load_plan_free(&b);
    assert_int_equal(load_plan_make(&a, 3, 0, prompt, output, 6, &err), CHURON_OK);
    assert_true(a.items[2].at == 0 && load_plan_rate(&a) == 0);
    load_plan_free(&a);
}

static void test_trace(void **state) {
    (void)state;
    error err;
    load_plan p;
    const char *text = "\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                       "2023-12-31 23:59:58.5000000,374,44\r\n"
                       "2024-01-01 00:00:00.7500000,396,0\r\n"
                       "2024-02-29T00:00:00+00:00,1,1\r\n\r\n";
    assert_int_equal(load_trace_parse(&p, text, strlen(text), 0, &err), CHURON_OK);
    assert_int_equal(p.n, 3);
    assert_true(p.items[0].at == 0 && p.items[1].at == 2.25 && p.items[2].at == 59 * 86400 + 1.5);
    assert_true(p.items[0].prompt_tokens == 374 && p.items[0].output_tokens == 44);
    assert_int_equal(p.items[1].output_tokens, 1); /* nobody can ask for none */
    load_plan_scale(&p, 0.5, 0.1);
    assert_true(p.items[1].at == 1.125 && p.items[0].prompt_tokens == 37 && p.items[2].prompt_tokens == 1);
    load_plan_free(&p);
    const char *seconds = "output_tokens,note,ARRIVED_AT,prompt_tokens\n7,x,0.25,9\n8,,10.5,10";
    assert_int_equal(load_trace_parse(&p, seconds, strlen(seconds), 0, &err), CHURON_OK);
    assert_true(p.n == 2 && p.items[1].at == 10.25 && p.items[1].output_tokens == 8 &&
                p.items[1].prompt_tokens == 10);
    load_plan_free(&p);
    assert_int_equal(load_trace_parse(&p, seconds, strlen(seconds), 1, &err), CHURON_OK);
    assert_int_equal(p.n, 1);
    load_plan_free(&p);
}

static void test_bad_traces(void **state) {
    (void)state;
#define NAMES "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    static const char *const bad[][2] = {
        {"", "got 0 lines"},
        {NAMES, "got 1 line"},
        {"\n" NAMES "1,2,3\n", "line 1"},
        {"TIMESTAMP,ContextTokens\n1,2\n", "column GeneratedTokens"},
        {"TIMESTAMP,arrived_at,ContextTokens,GeneratedTokens\n1,1,2,3\n", "2 times"},
        {NAMES "1,2\n", "line 2: expected 3 values, got 2"},
        {NAMES "1,2,3,4\n", "line 2: expected 3 values, got 4"},
        {NAMES "1,2,3\n\n4,5,6\n", "line 3"},
        {NAMES "soon,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "-1,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "1.,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "nan,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "2023-13-01 00:00:00,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "2023-01-01 00:00,2,3\n", "line 2: column TIMESTAMP"},
        {NAMES "2,2,3\n1,2,3\n", "line 3: column TIMESTAMP: expected no earlier"},
        {NAMES "1,-2,3\n", "line 2: column ContextTokens"},
        {NAMES "1,,3\n", "line 2: column ContextTokens"},
        {NAMES "1,2.5,3\n", "line 2: column ContextTokens"},
        {NAMES "1,2,99999999999\n", "line 2: column GeneratedTokens"},
        {NAMES "1,2,\"3\"\n", "line 2: column GeneratedTokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error err;
        load_plan p;
        assert_int_equal(load_trace_parse(&p, bad[i][0], strlen(bad[i][0]), 0, &err), CHURON_INVALID);
        if (!strstr(err.message, bad[i][1])) fail_msg("%zu: %s", i, err.message);
        assert_null(p.items);
    }
    str wide = {0};
    for (int i = 0; i < 1000; i++) str_cat(&wide, "a,");
    str_put(&wide, '\n');
    error err;
    load_plan p;
    assert_int_equal(load_trace_parse(&p, wide.data, wide.len, 0, &err), CHURON_INVALID);
    str_free(&wide);
    assert_int_equal(load_trace_read(&p, "/there/is/none.csv", 0, &err), CHURON_NOT_FOUND);
    assert_non_null(strstr(err.message, "/there/is/none.csv"));
}

static void test_trace_without_memory(void **state) {
    (void)state;
    error err;
    load_plan p;
    str text = {0};
    str_cat(&text, NAMES);
    for (int i = 0; i < 1000; i++) str_fmt(&text, "%d,2,3\n", i);
    int64_t n = 1;
    for (;; n++) {
        mem_fail_at(n);
        status st = load_trace_parse(&p, text.data, text.len, 0, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_null(p.items);
    }
    assert_true(n > 2 && p.n == 1000);
    load_plan_free(&p);
    str_free(&text);
}

static void test_words(void **state) {
    (void)state;
    str a = {0}, b = {0}, c = {0};
    load_words(&a, 1, 2, 100);
    load_words(&b, 1, 2, 100);
    load_words(&c, 1, 3, 100);
    assert_string_equal(a.data, b.data);
    assert_string_not_equal(a.data, c.data);
    size_t spaces = 0;
    for (size_t i = 0; i < a.len; i++) spaces += a.data[i] == ' ';
    assert_int_equal(spaces, 99);
    str_free(&a);
    str_free(&b);
    str_free(&c);
}

static void test_messages(void **state) {
    (void)state;
    char path[] = "/tmp/churon-messages-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text =
        "{\"prompt\": \"say \\\"a\\\"\"}\r\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    error err;
    load_messages m;
    assert_int_equal(load_messages_read(&m, path, &err), CHURON_OK);
    assert_int_equal(m.n, 2);
    size_t n;
    const char *first = load_messages_at(&m, 2, &n);
    const char *want = "[{\"role\":\"user\",\"content\":\"say \\\"a\\\"\"}]";
    assert_int_equal(n, strlen(want));
    assert_memory_equal(first, want, n);
    const char *second = load_messages_at(&m, 1, &n);
    assert_memory_equal(second, "[{\"role\":\"user\",\"content\":\"b\"}]", n);
    load_messages_free(&m);
    static const char *const bad[] = {"",
                                      "[]\n",
                                      "{\"prompt\": 1}",
                                      "{\"messages\": []}",
                                      "{\"prompt\": \"a\"}\nx",
                                      "{\"prompt\": \"a\", \"messages\": [1]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bad[i], strlen(bad[i]), 0), (ssize_t)strlen(bad[i]));
        assert_int_not_equal(load_messages_read(&m, path, &err), CHURON_OK);
        assert_non_null(strstr(err.message, path));
    }
    close(fd);
    unlink(path);
}

static void test_urls(void **state) {
    (void)state;
    error err;
    static const char *const good[] = {"http://127.0.0.1:8080", "https://a.example/", "http://[::1]:1/v1",
                                       "HTTP://x/v1/"};
    static const char *const bad[] = {
        "",           "127.0.0.1:8080", "ftp://a",    "http://",      "http://:80",
        "http://a/b", "http://a b",     "http://a?x", "http://u:p@a", "http://a\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(load_url_check(good[i], "--load", &err), CHURON_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(load_url_check(bad[i], "--load", &err), CHURON_INVALID);
    }
}

int main(void) {
    json_in_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),   cmocka_unit_test(test_poisson),
        cmocka_unit_test(test_trace),    cmocka_unit_test(test_bad_traces),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_trace_without_memory),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
