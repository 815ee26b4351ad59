/* test_elem.c: element types: packing of low-bit types, conversions at their edges. All patterns of all small
 * floats are compared with ml_dtypes by tests/oracle/test_elem.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/elem.h"

#include <math.h>
#include <string.h>

static void names(void **state) {
    (void)state;
    assert_string_equal(elem_name(ELEM_F32), "float32");
    assert_string_equal(elem_name(ELEM_F6E3M2), "float6_e3m2fn");
    assert_string_equal(elem_name(ELEM_NONE), "undefined");
    assert_null(elem_describe(ELEM_COUNT));
    for (int e = 1; e < ELEM_COUNT; e++) {
        const elem_info *i = elem_describe((elem)e);
        assert_non_null(i->name);
        assert_true(i->bytes > 0 && i->bits <= 8 * i->bytes);
    }
}

static void packing(void **state) {
    (void)state;
    static const elem types[] = {ELEM_U2, ELEM_I2, ELEM_U4, ELEM_I4, ELEM_F4E2M1, ELEM_F6E2M3, ELEM_F6E3M2};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        elem e = types[t];
        unsigned bits = elem_describe(e)->bits;
        for (size_t n = 0; n < 70; n++) {
            uint8_t file[64], in[70], out[71];
            for (size_t i = 0; i < n; i++) {
                unsigned v = (unsigned)(i * 37 + 11 * t) & ((1u << bits) - 1);
                bool negative = (e == ELEM_I2 || e == ELEM_I4) && v >> (bits - 1);
                in[i] = (uint8_t)(negative ? v - (1u << bits) : v);
            }
            memset(file, 0xaa, sizeof file);
            elem_pack(e, in, file, n);
            assert_int_equal(elem_file_bytes(e, n), (n * bits + 7) / 8);
            assert_int_equal(file[(n * bits + 7) / 8], 0xaa);
            out[n] = 0x55;
            elem_unpack(e, file, out, n);
            assert_memory_equal(in, out, n);
            assert_int_equal(out[n], 0x55);
        }
    }
    uint8_t out[4];
    elem_unpack(ELEM_F6E2M3, (uint8_t[]){0x41, 0x20, 0x10}, out, 4); /* 1, 1, 2, 4 */
    assert_memory_equal(out, ((uint8_t[]){1, 1, 2, 4}), 4);
    elem_unpack(ELEM_I4, (uint8_t[]){0x8f}, out, 2);
    assert_int_equal((int8_t)out[0], -1);
    assert_int_equal((int8_t)out[1], -8);
    elem_unpack(ELEM_BOOL, (uint8_t[]){0, 7, 1}, out, 3);
    assert_memory_equal(out, ((uint8_t[]){0, 1, 1}), 3);
    assert_int_equal(elem_file_bytes(ELEM_F64, SIZE_MAX / 4), SIZE_MAX);
    assert_int_equal(elem_file_bytes(ELEM_U4, SIZE_MAX), SIZE_MAX);
}

static void integers(void **state) {
    (void)state;
    double from[] = {3.9, -3.9, 300, -129, 4294967297.0, NAN, 1e300, 0x1p63, 0x1.8p63};
    uint8_t u8[9];
    int8_t i8[9], i4[9];
    uint64_t u64[9];
    elem_from_f64(ELEM_U8, from, u8, 9, true);
    elem_from_f64(ELEM_I8, from, i8, 9, true);
    elem_from_f64(ELEM_I4, from, i4, 9, true);
    elem_from_f64(ELEM_U64, from, u64, 9, true);
    assert_memory_equal(u8, ((uint8_t[]){3, 253, 44, 127, 0, 0, 0, 0, 0}), 9);
    assert_memory_equal(i8, ((int8_t[]){3, -3, 44, 127, 0, 0, 0, 0, 0}), 9);
    assert_memory_equal(i4, ((int8_t[]){3, -3, -4, -1, 1, 0, 0, 0, 0}), 9);
    assert_true(u64[5] == (uint64_t)1 << 63 && u64[6] == 0 && u64[8] == (uint64_t)3 << 62);
    double back[2];
    elem_to_f64(ELEM_I64, (int64_t[]){INT64_MIN, -5}, back, 2);
    assert_true(back[0] == -0x1p63 && back[1] == -5);
    elem_to_f64(ELEM_BOOL, (uint8_t[]){0, 1}, back, 2);
    assert_true(back[0] == 0 && back[1] == 1);
    uint8_t truth[3];
    elem_from_f64(ELEM_BOOL, (double[]){0.25, 0, NAN}, truth, 3, false);
    assert_memory_equal(truth, ((uint8_t[]){1, 0, 1}), 3);
}

/* Every code converts to f64 and back to itself, in runs long and short. */
static void round_trips(void **state) {
    (void)state;
    static const elem types[] = {ELEM_F8E4M3FN, ELEM_F8E4M3FNUZ, ELEM_F8E5M2, ELEM_F8E5M2FNUZ,
                                 ELEM_F4E2M1,   ELEM_F6E2M3,     ELEM_F6E3M2, ELEM_F8E8M0};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        unsigned n = 1u << elem_describe(types[t])->bits;
        for (unsigned c = 0; c < n; c++) {
            uint8_t code = (uint8_t)c, back;
            double v;
            float f;
            elem_to_f64(types[t], &code, &v, 1);
            elem_to_f32(types[t], &code, &f, 1);
            assert_true((double)f == v || v != v);
            elem_from_f64(types[t], &v, &back, 1, false);
            if (v == v) assert_int_equal(back, code);
            elem_from_f32(types[t], &f, &back, 1, false);
            if (v == v) assert_int_equal(back, code);
        }
    }
    for (unsigned c = 0; c < 65536; c++) {
        uint16_t code = (uint16_t)c, back;
        for (int k = 0; k < 2; k++) {
            elem e = k ? ELEM_BF16 : ELEM_F16;
            double v;
            elem_to_f64(e, &code, &v, 1);
            elem_from_f64(e, &v, &back, 1, false);
            if (v == v) assert_int_equal(back, code);
            float f = (float)v;
            elem_from_f32(e, &f, &back, 1, false);
            if (v == v) assert_int_equal(back, code);
        }
    }
}

static void saturation(void **state) {
    (void)state;
    double from[] = {1e9, -1e9, INFINITY, -INFINITY, NAN, -0.0};
    uint8_t c[6];
    elem_from_f64(ELEM_F8E4M3FN, from, c, 6, true);
    assert_memory_equal(c, ((uint8_t[]){0x7e, 0xfe, 0x7e, 0xfe, 0x7f, 0x80}), 6);
    elem_from_f64(ELEM_F8E4M3FN, from, c, 6, false);
    assert_memory_equal(c, ((uint8_t[]){0x7f, 0xff, 0x7f, 0xff, 0x7f, 0x80}), 6);
    elem_from_f64(ELEM_F8E5M2, from, c, 6, true);
    assert_memory_equal(c, ((uint8_t[]){0x7b, 0xfb, 0x7b, 0xfb, 0x7e, 0x80}), 6);
    elem_from_f64(ELEM_F8E5M2, from, c, 6, false);
    assert_memory_equal(c, ((uint8_t[]){0x7c, 0xfc, 0x7c, 0xfc, 0x7e, 0x80}), 6);
    elem_from_f64(ELEM_F8E4M3FNUZ, from, c, 6, true);
    assert_memory_equal(c, ((uint8_t[]){0x7f, 0xff, 0x7f, 0xff, 0x80, 0}), 6);
    elem_from_f64(ELEM_F8E5M2FNUZ, from, c, 6, false);
    assert_memory_equal(c, ((uint8_t[]){0x80, 0x80, 0x80, 0x80, 0x80, 0}), 6);
    elem_from_f64(ELEM_F4E2M1, from, c, 6, false);
    assert_int_equal(c[0], 7);
    assert_int_equal(c[3], 15);
}

/* A value between two f32 that lies past the middle of two f16: rounded once it goes up. */
static void one_rounding(void **state) {
    (void)state;
    double v = 1 + 0x1p-11 + 0x1p-40;
    uint16_t h;
    elem_from_f64(ELEM_F16, &v, &h, 1, false);
    assert_int_equal(h, 0x3c01);
    elem_from_f32(ELEM_F16, (float[]){(float)v}, &h, 1, false);
    assert_int_equal(h, 0x3c00);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),       cmocka_unit_test(packing),    cmocka_unit_test(integers),
        cmocka_unit_test(round_trips), cmocka_unit_test(saturation), cmocka_unit_test(one_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
