/* test_base.c: strings, UTF-8, JSON output, errors, allocation faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json_out.h"
#include "base/mem.h"

#include <string.h>

static void test_error_is_one_line(void **state) {
    (void)state;
    error err;
    assert_int_equal(error_set(&err, CHURON_CORRUPT, "a\nb\x1b[2Jc"), CHURON_CORRUPT);
    assert_string_equal(err.message, "a?b?[2Jc");
    error_prefix(&err, "file %d", 3);
    assert_string_equal(err.message, "file 3: a?b?[2Jc");
}

static void test_error_cuts_between_characters(void **state) {
    (void)state;
    char long_text[1200];
    for (size_t i = 0; i + 3 < sizeof long_text; i += 3) memcpy(long_text + i, "한", 3);
    long_text[1197] = '\0';
    error err;
    (void)error_set(&err, CHURON_INVALID, "x%s", long_text);
    assert_int_equal(utf8_validate(err.message, strlen(err.message)), strlen(err.message));
}

static void test_str_survives_failed_allocation(void **state) {
    (void)state;
    str s = {0};
    str_cat(&s, "kept");
    mem_fail_at(1);
    for (int i = 0; i < 100; i++) str_cat(&s, "0123456789");
    mem_fail_at(0);
    error err;
    assert_int_equal(str_check(&s, &err), CHURON_NO_MEMORY);
    assert_memory_equal(s.data, "kept", 4);
    str_free(&s);
}

static void test_utf8_refuses_what_is_not(void **state) {
    (void)state;
    static const char *const bad[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\x80",     "\xe2\x82",     "\xf8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(utf8_decode(bad[i], bad[i] + strlen(bad[i]), NULL), 0);
    }
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        if (cp >= 0xd800 && cp <= 0xdfff) continue;
        char bytes[4];
        size_t n = utf8_encode(cp, bytes);
        uint32_t back;
        if (utf8_decode(bytes, bytes + n, &back) != n || back != cp) fail_msg("U+%04X", (unsigned)cp);
    }
}

static void test_json_out(void **state) {
    (void)state;
    str s = {0};
    json_out j = json_out_begin(&s);
    json_out_object(&j, NULL);
    json_out_string(&j, "t", "a\"\\\n\x01\xff한", 9);
    json_out_array(&j, "n");
    json_out_int(&j, NULL, -5);
    json_out_double(&j, NULL, 0.1);
    json_out_float(&j, NULL, 0.1f);
    json_out_double(&j, NULL, 1.0 / 3.0);
    json_out_end_array(&j);
    json_out_cstr(&j, "z", NULL);
    json_out_end_object(&j);
    assert_string_equal(str_cstr(&s), "{\"t\":\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd한\",\"n\":[-5,0.1,0.1,"
                                      "0.3333333333333333],\"z\":null}");
    str_free(&s);
}

static void test_pages(void **state) {
    (void)state;
    for (size_t n = 1; n < (size_t)9 << 20; n = n * 3 + 1) {
        unsigned char *p = mem_pages(n);
        assert_non_null(p);
        assert_int_equal(p[0] | p[n - 1], 0);
        p[0] = p[n - 1] = 1;
        mem_pages_free(p, n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_one_line),
        cmocka_unit_test(test_error_cuts_between_characters),
        cmocka_unit_test(test_str_survives_failed_allocation),
        cmocka_unit_test(test_utf8_refuses_what_is_not),
        cmocka_unit_test(test_json_out),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
