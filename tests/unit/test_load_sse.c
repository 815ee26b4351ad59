/* test_load_sse.c: event streams in every possible pieces, and those that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/load_sse.h"

#include <string.h>

static status collect(void *user, const char *data, size_t n, error *err) {
    (void)err;
    str *to = user;
    str_put(to, '<');
    str_add(to, data, n);
    str_put(to, '>');
    return CHURON_OK;
}

/* Feeds `text` in pieces of `step` bytes. */
static status feed(const char *text, size_t step, str *got, error *err) {
    load_sse s = {0};
    status st = CHURON_OK;
    str_clear(got);
    for (size_t at = 0, n = strlen(text); at < n && st == CHURON_OK; at += step) {
        st = load_sse_feed(&s, text + at, n - at < step ? n - at : step, collect, got, err);
    }
    if (st == CHURON_OK) st = load_sse_end(&s, err);
    load_sse_free(&s);
    return st;
}

static void test_streams(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"data: {\"a\":1}\n\ndata: [DONE]\n\n", "<{\"a\":1}><[DONE]>"},
        {"data: a\r\n\r\ndata: b\r\n\r\n", "<a><b>"},
        {"data: a\r\rdata: b\r\r", "<a><b>"},
        {"\xef\xbb\xbf"
         "data:a\n\n",
         "<a>"},
        {": ping\n\n: ping\ndata:  two\n\n", "< two>"},
        {"event: x\nid: 1\nretry: 5\ndata: a\ndata: b\n\n", "<a\nb>"},
        {"data: a\r\ndata: b\r\n\r\n", "<a\nb>"},
        {"data\n\n", "<>"},
        {"data: a\n\n\n\n", "<a>"},
        {"", ""},
    };
    str got = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t step = 1; step <= 64; step++) {
            error err;
            assert_int_equal(feed(cases[i][0], step, &got, &err), CHURON_OK);
            assert_string_equal(str_cstr(&got), cases[i][1]);
        }
    }
    str_free(&got);
}

static void test_bad_streams(void **state) {
    (void)state;
    static const char *const bad[] = {"data: a",          "data: a\n",   "hello\n\n",    "<html>\n\n",
                                      "{\"error\": 1}\n", "Data: a\n\n", "data : a\n\n", "data: a\n\nx: y\n"};
    str got = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (size_t step = 1; step <= 20; step += 3) {
            error err;
            assert_int_equal(feed(bad[i], step, &got, &err), CHURON_CORRUPT);
        }
    }
    str_free(&got);
}

static void test_bounds(void **state) {
    (void)state;
    error err;
    str got = {0}, piece = {0};
    for (int i = 0; i < 1000; i++) str_put(&piece, 'x');
    load_sse line = {0}, event = {0};
    status st = CHURON_OK;
    size_t fed = 0;
    for (; st == CHURON_OK && fed < 4u << 20; fed += piece.len) {
        st = load_sse_feed(&line, piece.data, piece.len, collect, &got, &err);
    }
    assert_int_equal(st, CHURON_LIMIT);
    assert_in_range(fed, LOAD_SSE_MAX, LOAD_SSE_MAX + 2048);
    str data = {0};
    str_fmt(&data, "data: %s\n", piece.data);
    for (st = CHURON_OK, fed = 0; st == CHURON_OK && fed < 4u << 20; fed += data.len) {
        st = load_sse_feed(&event, data.data, data.len, collect, &got, &err);
    }
    assert_int_equal(st, CHURON_LIMIT);
    load_sse_free(&line);
    load_sse_free(&event);
    str_free(&data);
    str_free(&piece);
    str_free(&got);
}

static void test_without_memory(void **state) {
    (void)state;
    error err;
    str got = {0};
    str_reserve(&got, 4096);
    int64_t n = 1;
    for (;; n++) {
        mem_fail_at(n);
        status st = feed("data: abc\n\ndata: def\n\n", 5, &got, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    assert_true(n > 1);
    assert_string_equal(got.data, "<abc><def>");
    str_free(&got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_bad_streams),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
