/* test_http.c: which heads are refused; see tests/e2e/test_serve_http.py for whole connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/http.h"

#include <string.h>

typedef struct head {
    int expected, minor;
    http_field fields[4];
} head;

static const head heads[] = {
    {0, 1, {{"Host", "a"}}},
    {0, 0, {{"Accept", "*/*"}}},
    {0, 1, {{"host", ""}, {"Content-Length", "0"}}},
    {0, 1, {{"Host", "a"}, {"Transfer-Encoding", "Chunked"}}},
    {0, 1, {{"Host", "a"}, {"x!#$%&'*+-.^_`|~9", "caf\xc3\xa9\tx"}}},
    {400, 1, {{"Accept", "*/*"}}},
    {400, 1, {{"Host", "a"}, {"HOST", "a"}}},
    {400, 0, {{"Host", "a"}, {"Host", "a"}}},
    {400, 1, {{"Host", "a"}, {"", "x"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length ", "5"}}},
    {400, 1, {{"Host", "a"}, {"a(b", "x"}}},
    {400, 1, {{"Host", "a"}, {"x", "a\x01"}}},
    {400, 1, {{"Host", "a"}, {"x", "a\x7f"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", ""}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", "+5"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", "5, 5"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", " 5"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", "5"}, {"content-length", "5"}}},
    {400, 1, {{"Host", "a"}, {"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}}},
    {400, 1, {{"Host", "a"}, {"Transfer-Encoding", "gzip, chunked"}}},
    {400, 1, {{"Host", "a"}, {"Transfer-Encoding", "identity"}}},
    {400, 1, {{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}}},
};

static void test_heads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = 0;
        while (n < 4 && heads[i].fields[n].name) n++;
        const char *why = NULL;
        const int code = http_check_fields(heads[i].fields, n, heads[i].minor, &why);
        if (code != heads[i].expected) fail_msg("head %zu: got %d (%s)", i, code, why);
        assert_int_equal(code == 0, *why == '\0');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
