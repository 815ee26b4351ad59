/* test_npy.c: .npy files: written ones are read back; lying ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/npy.h"

#include <stdlib.h>
#include <string.h>

static void header_of(str *out, const char *dictionary) {
    str_add(out, "\x93NUMPY\x01\x00", 8);
    size_t n = strlen(dictionary);
    str_put(out, (char)(n & 0xff));
    str_put(out, (char)(n >> 8));
    str_cat(out, dictionary);
}

static void round_trip(const tensor *t) {
    str file = {0};
    error err;
    tensor back;
    assert_int_equal(npy_write(t, &file, &err), CHURON_OK);
    if (npy_parse(&back, file.data, file.len, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(back.type, t->type);
    assert_int_equal(back.rank, t->rank);
    for (size_t i = 0; i < t->rank; i++) assert_int_equal(back.dims[i], t->dims[i]);
    if (t->type != ELEM_STRING) {
        assert_memory_equal(back.data, t->data, tensor_bytes(t));
    } else {
        const tensor_string *a = t->data, *b = back.data;
        for (size_t i = 0; i < t->count; i++) {
            assert_int_equal(a[i].len, b[i].len);
            assert_memory_equal(a[i].data, b[i].data, a[i].len);
        }
    }
    /* Cut anywhere, it is an error or, beyond the elements, no matter. */
    for (size_t n = 0; n < file.len; n++) {
        char *cut = malloc(n + 1);
        memcpy(cut, file.data, n);
        tensor none;
        if (npy_parse(&none, cut, n, &err) == CHURON_OK)
            fail_msg("%zu of %zu bytes were enough", n, file.len);
        free(cut);
    }
    tensor_free(&back);
    str_free(&file);
}

static void what_is_written_is_read(void **state) {
    (void)state;
    float f[6] = {1, -2, 3.5f, 0, 1e30f, -1e-30f};
    int64_t i[1] = {INT64_MIN};
    const int64_t two_three[2] = {2, 3}, three[1] = {3};
    tensor t = tensor_borrow(ELEM_F32, 2, two_three, f);
    round_trip(&t);
    t = tensor_borrow(ELEM_I64, 0, NULL, i);
    round_trip(&t);
    tensor_string s[3] = {{"", 0}, {"\xc3\xa4\xf0\x9f\x98\x80", 6}, {"abc", 3}};
    t = tensor_borrow(ELEM_STRING, 1, three, s);
    round_trip(&t);
}

static void small_types_are_written_by_value(void **state) {
    (void)state;
    uint16_t bf16[3] = {0x3f80, 0xc000, 0x7f80};
    const int64_t three[1] = {3};
    tensor t = tensor_borrow(ELEM_BF16, 1, three, bf16), back;
    str file = {0};
    error err;
    assert_int_equal(npy_write(&t, &file, &err), CHURON_OK);
    assert_int_equal(npy_parse(&back, file.data, file.len, &err), CHURON_OK);
    assert_int_equal(back.type, ELEM_F32);
    assert_true(((float *)back.data)[0] == 1 && ((float *)back.data)[1] == -2 &&
                ((float *)back.data)[2] > 1e38f);
    tensor_free(&back);
    str_free(&file);
}

static void both_orders_are_read(void **state) {
    (void)state;
    str file = {0};
    error err;
    tensor t;
    header_of(&file, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n");
    str_add(&file, "\0\1\0\4\0\2\0\5\0\3\0\6", 12);
    if (npy_parse(&t, file.data, file.len, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_memory_equal(t.data, ((const int16_t[]){1, 2, 3, 4, 5, 6}), 12);
    tensor_free(&t);
    str_free(&file);
}

static void lies_are_refused(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000000000000), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }\n",
        "{'descr': '<U99999999', 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': '<f4', 'fortran_order': False}\n",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
        "{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }\n", /* two bytes too many */
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }\n",
        "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': '|V4', 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': '<f', 'fortran_order': False, 'shape': (1,), }\n",
        "{'descr': '",
        "{",
        "",
        "{'a': 1}"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        str file = {0};
        header_of(&file, headers[i]);
        str_add(&file, "\0\0\0\0", 4);
        tensor t;
        error err;
        if (npy_parse(&t, file.data, file.len, &err) == CHURON_OK) fail_msg("accepted: %s", headers[i]);
        assert_null(t.data);
        str_free(&file);
    }
}

static void refusals_say_why(void **state) {
    (void)state;
    static const struct {
        const char *header, *tail, *expected;
        char major, minor;
    } cases[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\0\0",
         "got descr '|O' (Python objects", 1, 0},
        {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\0\0", "got descr '<M8[ns]'",
         1, 0},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\0\0",
         "1 elements of 2 bytes behind the header, got 4", 1, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\0\0",
         "version 1.0, 2.0 or 3.0, got 4.0", 4, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "\0\0\0\0",
         "version 1.0, 2.0 or 3.0, got 1.1", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str file = {0};
        header_of(&file, cases[i].header);
        file.data[6] = cases[i].major;
        file.data[7] = cases[i].minor;
        str_add(&file, cases[i].tail, 4);
        tensor t;
        error err;
        assert_int_not_equal(npy_parse(&t, file.data, file.len, &err), CHURON_OK);
        if (!strstr(err.message, cases[i].expected)) fail_msg("%s", err.message);
        str_free(&file);
    }
    tensor t;
    error err;
    assert_int_not_equal(npy_parse(&t, "PK\3\4xxxxxxxx", 12, &err), CHURON_OK);
    assert_non_null(strstr(err.message, "a zip archive"));
    assert_int_not_equal(npy_parse(&t, "", 0, &err), CHURON_OK);
    assert_non_null(strstr(err.message, "an empty file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(small_types_are_written_by_value),
        cmocka_unit_test(both_orders_are_read),    cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(refusals_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
