/* test_graph_symbols.c: dimensions that are expressions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "graph/symbols.h"

static arena memory;
static symbols table;

static int set_up(void **state) {
    (void)state;
    memory = (arena){0};
    table = (symbols){.memory = &memory};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    symbols_free(&table);
    arena_free(&memory);
    return 0;
}

static void reads(dim d, const char *want) {
    str text = {0};
    symbols_text(&table, d, &text);
    assert_string_equal(str_cstr(&text), want);
    str_free(&text);
}

static void numbers_stay_numbers(void **state) {
    (void)state;
    assert_int_equal(symbols_add(&table, 3, 4), 7);
    assert_int_equal(symbols_mul(&table, 3, -4), -12);
    assert_int_equal(symbols_sub(&table, 3, 3), 0);
    assert_int_equal(symbols_most(&table, 3, 4), 4);
    assert_int_equal(symbols_least(&table, 3, 4), 3);
}

static void equal_expressions_are_one(void **state) {
    (void)state;
    dim n = symbols_named(&table, "N"), h = symbols_named(&table, "H");
    assert_int_equal(n, symbols_named(&table, "N"));
    assert_int_not_equal(n, h);
    assert_int_not_equal(symbols_fresh(&table), symbols_fresh(&table));
    dim a = symbols_mul(&table, symbols_add(&table, n, 1), symbols_add(&table, h, 2));
    dim b = symbols_add(&table, symbols_add(&table, symbols_mul(&table, h, n), symbols_mul(&table, 2, n)),
                        symbols_add(&table, h, 2));
    assert_int_equal(a, b);
    assert_int_equal(symbols_sub(&table, a, b), 0);
    assert_int_equal(symbols_div(&table, symbols_mul(&table, n, 12), 4, false), symbols_mul(&table, 3, n));
    assert_int_equal(symbols_div(&table, symbols_mul(&table, n, h), h, false), n);
    assert_int_equal(symbols_div(&table, a, a, false), 1);
    assert_int_equal(symbols_div(&table, n, 2, false), symbols_div(&table, n, 2, false));
    assert_int_not_equal(symbols_div(&table, n, 2, false), symbols_div(&table, n, 2, true));
    assert_int_equal(symbols_most(&table, n, symbols_add(&table, n, 3)), symbols_add(&table, n, 3));
    assert_int_equal(symbols_least(&table, n, h), symbols_least(&table, h, n));
}

static void they_read_as_people_write_them(void **state) {
    (void)state;
    dim n = symbols_named(&table, "N");
    reads(7, "7");
    reads(0, "0");
    reads(n, "N");
    reads(symbols_fresh(&table), "?");
    reads(symbols_add(&table, symbols_mul(&table, 4, n), -1), "4*N-1");
    reads(symbols_div(&table, symbols_add(&table, n, 1), 2, false), "floor(N+1/2)");
    reads(symbols_most(&table, n, 5), "max(N, 5)");
}

static void what_grows_too_big_is_unknown(void **state) {
    (void)state;
    dim n = symbols_named(&table, "N"), power = n, sum = n;
    for (int i = 0; i < 20; i++) power = symbols_mul(&table, power, n);
    assert_false(dim_known(power));
    for (int i = 0; i < 40; i++) sum = symbols_add(&table, sum, symbols_fresh(&table));
    assert_false(dim_known(sum));
    dim huge = symbols_mul(&table, n, INT64_MAX / 8);
    huge = symbols_mul(&table, huge, 1000);
    assert_false(dim_known(huge));
    assert_false(table.failed);
}

static void failing_memory_is_noticed(void **state) {
    (void)state;
    for (int64_t at = 1; at < 200; at++) {
        mem_fail_at(at);
        dim n = symbols_named(&table, "N");
        for (int i = 0; i < 100; i++) n = symbols_add(&table, n, symbols_fresh(&table));
        mem_fail_at(0);
        bool failed = table.failed;
        tear_down(NULL);
        set_up(NULL);
        if (!failed) return;
    }
    fail_msg("no number of allocations was enough");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_stay_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_expressions_are_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(they_read_as_people_write_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_grows_too_big_is_unknown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failing_memory_is_noticed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
