/* test_tensor.c: counted tensors and values: who owns what, which shapes are refused, memory that runs out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tensor/tensor.h"

#include <string.h>

static void counts_and_limits(void **state) {
    (void)state;
    error err;
    size_t n;
    assert_int_equal(tensor_count(ELEM_F32, 0, NULL, &n, "x", &err), CHURON_OK);
    assert_int_equal(n, 1);
    assert_int_equal(tensor_count(ELEM_F32, 3, (int64_t[]){2, 3, 4}, &n, "x", &err), CHURON_OK);
    assert_int_equal(n, 24);
    assert_int_equal(tensor_count(ELEM_F32, 2, (int64_t[]){2, -3}, &n, "x", &err), CHURON_INVALID);
    assert_string_equal(err.message, "x: dimension 1: expected 0 or more, got -3");
    int64_t big[] = {INT64_MAX, INT64_MAX, 0, 5};
    assert_int_equal(tensor_count(ELEM_F32, 4, (int64_t[]){1 << 20, 1 << 14, 0, 1}, &n, "x", &err),
                     CHURON_OK);
    assert_int_equal(n, 0);
    assert_int_equal(tensor_count(ELEM_F32, 4, big, &n, "x", &err), CHURON_LIMIT); /* though it is empty */
    assert_int_equal(tensor_count(ELEM_F32, 2, big, &n, "x", &err), CHURON_LIMIT);
    /* The limit is exact: 2^36 bytes. */
    assert_int_equal(tensor_count(ELEM_F32, 2, (int64_t[]){1 << 20, 1 << 14}, &n, "x", &err), CHURON_OK);
    assert_int_equal(tensor_count(ELEM_F32, 2, (int64_t[]){1 << 20, (1 << 14) + 1}, &n, "x", &err),
                     CHURON_LIMIT);
    assert_int_equal(tensor_count(ELEM_F64, 2, (int64_t[]){1 << 20, 1 << 14}, &n, "x", &err), CHURON_LIMIT);
    int64_t ones[TENSOR_MAX_RANK + 1] = {0};
    assert_int_equal(tensor_count(ELEM_F32, TENSOR_MAX_RANK + 1, ones, &n, "x", &err), CHURON_LIMIT);
    assert_int_equal(tensor_count(ELEM_NONE, 0, NULL, &n, "x", &err), CHURON_INVALID);
    assert_int_equal(tensor_count(ELEM_COUNT, 0, NULL, &n, "x", &err), CHURON_INVALID);
}

static void sharing(void **state) {
    (void)state;
    error err;
    tensor t, copy;
    assert_int_equal(tensor_alloc(&t, ELEM_I32, 2, (int64_t[]){2, 3}, &err), CHURON_OK);
    assert_int_equal((uintptr_t)t.data % 64, 0);
    assert_int_equal(tensor_bytes(&t), 24);
    for (int i = 0; i < 6; i++) ((int32_t *)t.data)[i] = i;
    tensor other = tensor_share(&t);
    assert_int_equal(tensor_copy(&copy, &t, &err), CHURON_OK);
    tensor_free(&t);
    assert_null(t.data);
    assert_int_equal(((int32_t *)other.data)[5], 5);
    assert_ptr_not_equal(copy.data, other.data);
    tensor_free(&other);
    assert_int_equal(((int32_t *)copy.data)[5], 5);
    tensor_free(&copy);
    tensor_free(&copy); /* freeing nothing is legal */
    int32_t mine[2] = {7, 8};
    tensor borrowed = tensor_borrow(ELEM_I32, 1, (int64_t[]){2}, mine), again = tensor_share(&borrowed);
    tensor_free(&borrowed);
    assert_int_equal(((int32_t *)again.data)[1], 8);
    tensor_free(&again);
}

static void strings(void **state) {
    (void)state;
    error err;
    tensor t, copy;
    assert_int_equal(tensor_alloc(&t, ELEM_STRING, 1, (int64_t[]){300}, &err), CHURON_OK);
    tensor_string *s = t.data;
    assert_int_equal(s[299].len, 0);
    char text[200];
    for (size_t i = 0; i < 300; i++) {
        memset(text, (int)('a' + i % 26), sizeof text);
        assert_int_equal(tensor_string_set(&t, i, text, i % sizeof text, &err), CHURON_OK);
    }
    assert_int_equal(tensor_copy(&copy, &t, &err), CHURON_OK);
    tensor_free(&t);
    s = copy.data;
    for (size_t i = 0; i < 300; i++) {
        memset(text, (int)('a' + i % 26), sizeof text);
        assert_int_equal(s[i].len, i % sizeof text);
        assert_memory_equal(s[i].data, text, s[i].len);
    }
    tensor_free(&copy);
}

static void values(void **state) {
    (void)state;
    error err;
    value list, inner;
    tensor t;
    assert_int_equal(value_list_create(&list, VALUE_SEQUENCE, 2, &err), CHURON_OK);
    assert_int_equal(value_list_create(&inner, VALUE_SEQUENCE, 1, &err), CHURON_OK);
    assert_int_equal(tensor_alloc(&t, ELEM_F32, 0, NULL, &err), CHURON_OK);
    *(float *)t.data = 2.5f;
    *value_item(&inner, 0) = value_of_tensor(t);
    *value_item(&list, 0) = value_share(&inner);
    *value_item(&list, 1) = inner;
    assert_int_equal(value_count(&list), 2);
    assert_null(value_item(&list, 2));
    value shared = value_share(&list);
    value_free(&list);
    assert_int_equal(list.kind, VALUE_NONE);
    assert_float_equal(*(float *)value_item(value_item(&shared, 1), 0)->t.data, 2.5f, 0);
    value_free(&shared);
    value none = {0};
    assert_int_equal(value_count(&none), 0);
    value_free(&none);
}

static void memory_runs_out(void **state) {
    (void)state;
    error err;
    for (int64_t n = 1; n <= 2; n++) {
        tensor t;
        mem_fail_at(n);
        status st = tensor_alloc(&t, ELEM_STRING, 1, (int64_t[]){4}, &err);
        if (st == CHURON_OK) st = tensor_string_set(&t, 0, "text", 4, &err);
        mem_fail_at(0);
        assert_int_equal(st, CHURON_NO_MEMORY);
        tensor_free(&t);
    }
    value v;
    mem_fail_at(1);
    assert_int_equal(value_list_create(&v, VALUE_SEQUENCE, 1, &err), CHURON_NO_MEMORY);
    mem_fail_at(0);
    assert_int_equal(value_list_create(&v, VALUE_SEQUENCE, SIZE_MAX / 8, &err), CHURON_NO_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_limits), cmocka_unit_test(sharing),
        cmocka_unit_test(strings),           cmocka_unit_test(values),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
