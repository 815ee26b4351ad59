/* test_http_head.c: the declared length of a body, however the bytes of the head arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/http_head.h"

#include <string.h>

typedef struct head {
    const char *bytes;
    bool complete, has_length;
    uint64_t length;
} head;

#define GET "POST / HTTP/1.1\r\n"
static const head heads[] = {
    {GET "Host: a\r\nContent-Length: 42\r\n\r\n", true, true, 42},
    {GET "content-LENGTH:\t 7 \r\n\r\nContent-Length: 9\r\n", true, true, 7},
    {"\r\n\n" GET "\r\n", true, false, 0},
    {GET "Content-Length: 5\n\n", true, true, 5},
    {GET "Content-Length: 5\r\n", false, true, 5},
    {GET "X-Content-Length: 5\r\nContent-Lengths: 6\r\nContent-Length: x\r\n\r\n", true, false, 0},
    {GET "Content-Length: 18446744073709551615\r\n\r\n", true, true, UINT64_MAX},
    {GET "Content-Length: 99999999999999999999999\r\n\r\n", true, true, UINT64_MAX},
    {GET "a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
         "Content-Length: 3\r\n\r\n",
     true, true, 3},
    {GET "Content-Length:                                                    3\r\n\r\n", true, false, 0},
};

static void check(const head *h, const http_head *got) {
    if (got->complete != h->complete || got->has_length != h->has_length || got->length != h->length) {
        fail_msg("%s: %d %d %llu", h->bytes, got->complete, got->has_length, (unsigned long long)got->length);
    }
}

static void test_heads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const size_t n = strlen(heads[i].bytes);
        http_head whole = {0};
        http_head_feed(&whole, heads[i].bytes, n);
        check(&heads[i], &whole);
        for (size_t step = 1; step < 20; step++) {
            http_head parts = {0};
            for (size_t at = 0; at < n; at += step) {
                http_head_feed(&parts, heads[i].bytes + at, n - at < step ? n - at : step);
            }
            check(&heads[i], &parts);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
