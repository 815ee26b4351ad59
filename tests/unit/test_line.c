/* test_line.c: editing text: characters as readers see them, words, lines, and how they lie on a screen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/line.h"

#include <string.h>

#define FAMILY  "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7" /* woman, joiner, girl */
#define E_ACUTE "e\xcc\x81"                                    /* e and a combining accent */
#define JAMO    "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"         /* 한 in three parts */

static void set(line *l, const char *text) {
    line_set(l, text, strlen(text));
}

static void test_one_step_is_one_character(void **state) {
    (void)state;
    line l = {0};
    set(&l, "a" FAMILY E_ACUTE JAMO "한\xff");
    const size_t at[] = {0, 1, 12, 15, 24, 27, 28};
    for (size_t i = 0; i + 1 < sizeof at / sizeof *at; i++) {
        assert_int_equal(line_next(&l, at[i]), at[i + 1]);
        assert_int_equal(line_prev(&l, at[i + 1]), at[i]);
    }
    assert_int_equal(line_next(&l, l.text.len), l.text.len);
    assert_int_equal(line_prev(&l, 0), 0);
    line_free(&l);
}

static void test_columns(void **state) {
    (void)state;
    assert_int_equal(line_columns("a", 1), 1);
    assert_int_equal(line_columns("한", 3), 2);
    assert_int_equal(line_columns(JAMO, 9), 2);
    assert_int_equal(line_columns(E_ACUTE, 3), 1);
    assert_int_equal(line_columns(FAMILY, 11), 2);
    assert_int_equal(line_columns("\t", 1), 4);
    assert_int_equal(line_columns("\xff", 1), 1);
    assert_int_equal(line_columns("\xe2\x9d\xa4\xef\xb8\x8f", 6), 2); /* heart, coloured form */
}

static void test_insert_cleans_what_is_pasted(void **state) {
    (void)state;
    line l = {0};
    set(&l, "ab");
    l.cursor = 1;
    line_insert(&l, "1\r\n2\r3\n\x1b[2J\t\x07", 13);
    assert_string_equal(l.text.data, "a1\n2\n3\n[2J\tb");
    assert_int_equal(l.cursor, l.text.len - 1);
    line_free(&l);
}

static void test_insert_survives_failed_allocation(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) {
        line l = {0};
        set(&l, "kept");
        l.cursor = 2;
        char big[4096];
        memset(big, 'x', sizeof big);
        mem_fail_at(n);
        line_insert(&l, big, sizeof big);
        mem_fail_at(0);
        if (l.text.len != 4 + sizeof big) assert_string_equal(l.text.data, "kept");
        assert_int_equal(strncmp(l.text.data, "ke", 2), 0);
        line_free(&l);
    }
}

static void test_words_and_kill(void **state) {
    (void)state;
    line l = {0};
    set(&l, "one  two\nthree");
    assert_int_equal(line_word_prev(&l, l.text.len), 9);
    assert_int_equal(line_word_prev(&l, 9), 5);
    assert_int_equal(line_word_next(&l, 3), 8);
    line_kill(&l, 5, 8);
    assert_string_equal(l.text.data, "one  \nthree");
    assert_string_equal(l.killed.data, "two");
    assert_int_equal(l.cursor, 5);
    line_insert(&l, l.killed.data, l.killed.len);
    assert_string_equal(l.text.data, "one  two\nthree");
    line_kill(&l, 4, 4);
    assert_string_equal(l.killed.data, "two");
    line_free(&l);
}

static void test_up_and_down_keep_the_column(void **state) {
    (void)state;
    line l = {0};
    set(&l, "abcdef\n한글\nxyz");
    assert_int_equal(line_vertical(&l, 3, true), 7 + 3); /* column 3 is inside 글: before it */
    assert_int_equal(line_vertical(&l, 6, true), 7 + 6); /* beyond the end */
    assert_int_equal(line_vertical(&l, 14 + 2, false), 7 + 3);
    assert_int_equal(line_vertical(&l, 2, false), 2);
    assert_int_equal(line_vertical(&l, l.text.len, true), l.text.len);
    line_free(&l);
}

static void expect_layout(const char *text, size_t cursor, size_t columns, size_t indent, size_t rows,
                          size_t row, size_t column) {
    line l = {0};
    set(&l, text);
    l.cursor = cursor;
    line_layout y;
    assert_int_equal(line_layout_make(&y, &l, columns, indent, NULL), CHURON_OK);
    if (y.n != rows || y.cursor_row != row || y.cursor_column != column) {
        fail_msg("\"%s\": %zu rows, cursor at %zu, %zu", text, y.n, y.cursor_row, y.cursor_column);
    }
    line_layout_free(&y);
    line_free(&l);
}

static void test_layout(void **state) {
    (void)state;
    expect_layout("", 0, 10, 2, 1, 0, 2);
    expect_layout("abc", 1, 10, 2, 1, 0, 3);
    expect_layout("abcdefgh", 8, 10, 2, 2, 1, 0); /* a full row: the cursor goes below */
    expect_layout("abcdefgh", 7, 10, 2, 1, 0, 9);
    expect_layout("abcdefghi", 8, 10, 2, 2, 1, 0); /* on the character that wrapped */
    expect_layout("abcdefghi", 9, 10, 2, 2, 1, 1);
    expect_layout("a\nb", 2, 10, 2, 2, 1, 2);
    expect_layout("a\nb", 1, 10, 2, 2, 0, 3);
    expect_layout("a\n", 2, 10, 2, 2, 1, 2);
    expect_layout("abcdefg한", 7, 10, 2, 2, 1, 0); /* two columns do not fit into one */
    expect_layout("abcdefgh\nx", 8, 10, 2, 3, 1, 0);
    expect_layout("abcdefgh\nx", 0, 10, 2, 2, 0, 2);
}

static void test_layout_rows_cover_the_text(void **state) {
    (void)state;
    line l = {0};
    set(&l, "The 빠른 brown " FAMILY " jumps\n\nover\tit" E_ACUTE JAMO);
    for (size_t columns = 8; columns < 40; columns++) {
        for (l.cursor = 0;; l.cursor = line_next(&l, l.cursor)) {
            line_layout y;
            assert_int_equal(line_layout_make(&y, &l, columns, 2, NULL), CHURON_OK);
            size_t at = 0;
            for (size_t i = 0; i < y.n; i++) {
                if (y.rows[i].begin != at) assert_int_equal(l.text.data[at++], '\n');
                assert_int_equal(y.rows[i].begin, at);
                size_t wide = y.rows[i].column;
                for (at = y.rows[i].begin; at < y.rows[i].end; at = line_next(&l, at)) {
                    wide += line_columns(l.text.data + at, line_next(&l, at) - at);
                }
                assert_true(wide <= columns);
            }
            assert_int_equal(at, l.text.len);
            assert_true(y.cursor_row < y.n && y.cursor_column <= columns);
            line_layout_free(&y);
            if (l.cursor == l.text.len) break;
        }
    }
    line_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_step_is_one_character),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_insert_cleans_what_is_pasted),
        cmocka_unit_test(test_insert_survives_failed_allocation),
        cmocka_unit_test(test_words_and_kill),
        cmocka_unit_test(test_up_and_down_keep_the_column),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_layout_rows_cover_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
