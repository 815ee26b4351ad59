/* test_oip.c: inference requests that are right, cut off anywhere, changed anywhere; numbers at the edges;
 * memory that runs out. What servers and clients make of it: tests/e2e/test_v2.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oip_world.h"
#include "serve/api/oip_scan.h"

#include <math.h>
#include <stdio.h>

#define JSON                                                                                                 \
    "{\"id\":\"a\\u00e9\\ud83d\\ude00\",\"parameters\":{\"x\":[1,{\"y\":null}],\"timeout\":5},\"inputs\":["  \
    "{\"name\":\"i_FP32\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1.5,-2e-3],[NaN,-Infinity]]},"    \
    "{\"data\":[\"x\",\"\\u0000\"],\"name\":\"i_BYTES\",\"shape\":[2],\"datatype\":\"BYTES\"},"              \
    "{\"name\":\"i_BOOL\",\"datatype\":\"BOOL\",\"shape\":[],\"data\":[true]},"                              \
    "{\"name\":\"i_FP16\",\"datatype\":\"FP16\",\"shape\":[2],\"parameters\":{\"binary_data_size\":4}},"     \
    "{\"name\":\"i_INT64\",\"datatype\":\"INT64\",\"shape\":[1],\"data\":[-9223372036854775808]}],"          \
    "\"outputs\":[{\"name\":\"o_INT64\"},{\"name\":\"o_FP16\",\"parameters\":{\"binary_data\":true}},"       \
    "{\"name\":\"o_FP32\"},{\"name\":\"o_BYTES\",\"parameters\":{\"binary_data\":true}}]}"
static const char whole[] = JSON "\x00\x3c\x00\xc0";
enum { JSON_LEN = sizeof JSON - 1, WHOLE_LEN = JSON_LEN + 4 };

static void a_request_and_its_answer(void **state) {
    (void)state;
    const oip_model m = oip_world(OIP_WORLD_PORTS);
    oip_request r;
    error err = {0};
    assert_int_equal(oip_world_read(&r, &m, whole, WHOLE_LEN, JSON_LEN, &err), CHURON_OK);
    assert_int_equal(r.timeout_us, 5);
    assert_memory_equal(str_cstr(&r.id), "a\xc3\xa9\xf0\x9f\x98\x80", 8);
    const float *f = r.inputs[0].t.data;
    assert_true(f[0] == 1.5f && f[1] == -2e-3f && isnan(f[2]) && isinf(f[3]) && f[3] < 0);
    assert_true(*(int64_t *)r.inputs[4].t.data == INT64_MIN);
    str out = {0};
    size_t json_len = 0;
    assert_int_equal(oip_answer_write(&out, &json_len, &m, &r, r.inputs, NULL, &err), CHURON_OK);
    static const char want[] =
        "{\"model_name\":\"m\",\"model_version\":\"1\",\"id\":\"a\xc3\xa9\xf0\x9f\x98\x80\",\"outputs\":["
        "{\"name\":\"o_INT64\",\"datatype\":\"INT64\",\"shape\":[1],\"data\":[-9223372036854775808]},"
        "{\"name\":\"o_FP16\",\"datatype\":\"FP16\",\"shape\":[2],\"parameters\":{\"binary_data_size\":4}},"
        "{\"name\":\"o_FP32\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[1.5,-0.002,NaN,-Infinity]},"
        "{\"name\":\"o_BYTES\",\"datatype\":\"BYTES\",\"shape\":[2],\"parameters\":{\"binary_data_size\":10}}"
        "]}"
        "\x00\x3c\x00\xc0\x01\x00\x00\x00x\x01\x00\x00\x00";
    assert_int_equal(out.len, sizeof want); /* the last byte of the last string is the literal's zero */
    assert_memory_equal(out.data, want, sizeof want);
    assert_int_equal(json_len, sizeof want - 14);
    str_free(&out);
    oip_request_free(&r, &m);
}

static void cut_off_anywhere(void **state) {
    (void)state;
    const oip_model m = oip_world(OIP_WORLD_PORTS);
    for (size_t n = 0; n < WHOLE_LEN; n++) {
        oip_request r;
        error err = {0};
        const size_t json = n < JSON_LEN ? n : JSON_LEN;
        assert_int_equal(oip_world_read(&r, &m, whole, n, json, &err), CHURON_INVALID);
        assert_true(*err.message != '\0');
        oip_request_free(&r, &m);
    }
}

static void changed_anywhere(void **state) {
    (void)state;
    static const char others[] = "\"[]{},:0-e.\\n\x80\xff";
    const oip_model m = oip_world(OIP_WORLD_PORTS);
    for (size_t at = 0; at < WHOLE_LEN; at++) {
        for (const char *c = others; *c; c++) {
            char body[WHOLE_LEN];
            oip_request r;
            error err = {0};
            memcpy(body, whole, WHOLE_LEN);
            body[at] = *c;
            const status st = oip_world_read(&r, &m, body, WHOLE_LEN, JSON_LEN, &err);
            if (st != CHURON_OK) assert_true(*err.message != '\0');
            oip_request_free(&r, &m);
        }
    }
}

static void memory_that_runs_out(void **state) {
    (void)state;
    const oip_model m = oip_world(OIP_WORLD_PORTS);
    status st = CHURON_NO_MEMORY;
    for (int64_t at = 1; st != CHURON_OK; at++) {
        oip_request r;
        str out = {0};
        size_t json_len;
        error err = {0};
        mem_fail_at(at);
        st = oip_world_read(&r, &m, whole, WHOLE_LEN, JSON_LEN, &err);
        if (st == CHURON_OK) st = oip_answer_write(&out, &json_len, &m, &r, r.inputs, NULL, &err);
        mem_fail_at(0);
        if (st != CHURON_OK) assert_int_equal(st, CHURON_NO_MEMORY);
        str_free(&out);
        oip_request_free(&r, &m);
        assert_true(at < 1000);
    }
}

static status scan_double(const char *text, double *out) {
    oip_scan s = {text, text + strlen(text)};
    const status st = oip_double(&s, out, "x", NULL);
    return st == CHURON_OK && s.p != s.end ? CHURON_INVALID : st;
}

static void numbers_are_the_nearest(void **state) {
    (void)state;
    static const char *const good[] = {"0",
                                       "-0",
                                       "1e0",
                                       "123456789012345678901234567890",
                                       "0.1",
                                       "1e22",
                                       "1e23",
                                       "9007199254740993",
                                       "9007199254740993e1",
                                       "4.9e-324",
                                       "2.2250738585072011e-308",
                                       "1.7976931348623157e308",
                                       "0.000000000000000000000000000000000000001",
                                       "1E+5",
                                       "1e-400",
                                       "8.5e-3",
                                       "179769313486231570000000000000000000000e270",
                                       "1.00000000000000000000000000000001"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double v, want = strtod(good[i], NULL);
        assert_int_equal(scan_double(good[i], &v), CHURON_OK);
        assert_memory_equal(&v, &want, sizeof v);
    }
    static const char *const bad[] = {"",        "-",     "+1",  "01",   ".5",       "1.",
                                      "1e",      "1e+",   "0x1", "nan",  "inf",      "-NaN",
                                      "Infinit", "1e309", "--1", "1.e5", "-Infinit", "N"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double v;
        if (scan_double(bad[i], &v) == CHURON_OK) fail_msg("'%s' was taken for a number", bad[i]);
    }
    uint64_t seed = 7;
    for (int i = 0; i < 200000; i++) { /* any double, in 1 to 17 digits */
        char text[40];
        double v, want;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        memcpy(&want, &seed, sizeof want);
        if (!isfinite(want)) continue;
        snprintf(text, sizeof text, "%.*e", i % 17, want);
        want = strtod(text, NULL);
        if (!isfinite(want)) continue;
        assert_int_equal(scan_double(text, &v), CHURON_OK);
        assert_memory_equal(&v, &want, sizeof v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_and_its_answer), cmocka_unit_test(cut_off_anywhere),
        cmocka_unit_test(changed_anywhere),         cmocka_unit_test(memory_that_runs_out),
        cmocka_unit_test(numbers_are_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
