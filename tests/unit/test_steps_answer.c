/* test_steps_answer.c: the steps that make answers, where the Python tests do not look: borders and
 * rectangles alone, many records of many lengths at once, and memory that gives out at every place. */
#include "pipeline/pipeline.h"
#include "pipeline/steps/polygon.h"

#include "base/mem.h"
#include "unit/answer_bundle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char FOLDER[] = "tests/fuzz/bundle";

/* ---- polygons --------------------------------------------------------------------------------------- */

static void test_borders(void **state) {
    (void)state;
    static const uint8_t bitmap[6 * 7] = {
        0, 0, 0, 0, 0, 0, 0, /**/
        0, 1, 1, 1, 1, 0, 0, /**/
        0, 1, 0, 0, 1, 0, 0, /**/
        0, 1, 1, 1, 1, 0, 0, /**/
        0, 0, 0, 0, 0, 0, 0, /**/
        0, 0, 0, 0, 0, 0, 1, /**/
    };
    arena a = {0};
    outlines all;
    error err;
    assert_int_equal(outlines_trace(&all, bitmap, 7, 6, &a, &err), CHURON_OK);
    assert_int_equal(all.n, 3); /* the pixel, the hole, the ring */
    assert_int_equal(all.starts[1] - all.starts[0], 1);
    assert_int_equal(all.points[0].x, 6);
    assert_int_equal(all.points[0].y, 5);
    assert_int_equal(all.starts[3] - all.starts[2], 4); /* of the ring only the corners */
    const pixel *ring = all.points + all.starts[2];
    static const pixel corners[4] = {{1, 1}, {1, 3}, {4, 3}, {4, 1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ring[i].x, corners[i].x);
        assert_int_equal(ring[i].y, corners[i].y);
    }
    arena_free(&a);
}

static void test_rectangles(void **state) {
    (void)state;
    static const spot diamond[5] = {{0, 2}, {2, 0}, {4, 2}, {2, 4}, {2, 2}};
    static const spot line[3] = {{1, 1}, {3, 3}, {2, 2}};
    arena a = {0};
    rectangle r;
    error err;
    assert_int_equal(rectangle_around(&r, diamond, 5, &a, &err), CHURON_OK);
    assert_true(fabsf(r.width * r.height - 8) < 1e-4f);
    assert_int_equal(rectangle_around(&r, line, 3, &a, &err), CHURON_OK);
    assert_true(fabsf(r.width - sqrtf(8)) < 1e-6f && r.height == 0);
    assert_int_equal(rectangle_around(&r, line, 1, &a, &err), CHURON_OK);
    assert_true(r.width == 0 && r.height == 0);
    arena_free(&a);
}

static void test_grown(void **state) {
    (void)state;
    static const spot square[4] = {{10, 10}, {30, 10}, {30, 30}, {10, 30}},
                      none[4] = {{1, 1}, {1, 1}, {2, 2}, {2, 2}};
    arena a = {0};
    spot *points;
    size_t n;
    rectangle r;
    error err;
    assert_int_equal(polygon_grow(&points, &n, square, 5, &a, &err), CHURON_OK);
    assert_int_equal(rectangle_around(&r, points, n, &a, &err), CHURON_OK);
    assert_true(r.width == 30 && r.height == 30);
    for (size_t i = 0; i < n; i++) { /* corners are round: none as far out as those of a square */
        const float dx = fabsf(points[i].x - 20), dy = fabsf(points[i].y - 20);
        assert_true(dx + dy < 29);
    }
    assert_int_equal(polygon_grow(&points, &n, none, 5, &a, &err), CHURON_OK);
    assert_int_equal(n, 0);
    arena_free(&a);
}

/* ---- bundles ---------------------------------------------------------------------------------------- */

typedef struct made {
    float x[24 * 16];
    int64_t n[48];
    tensor tx, tn;
    cell record[3];
} made;

/* Numbers of 0 to 1 in patches, so that there is something to find. */
static void make_record(made *m, size_t rows, size_t columns, unsigned seed) {
    static const char text[] = "a b c d e f g h i j k l m n o p q r s t u v w x y z";
    const int64_t dims[2] = {(int64_t)rows, (int64_t)columns}, twice = 2 * (int64_t)rows;
    for (size_t i = 0; i < rows * columns; i++) m->x[i] = (float)((i / 3 * 7 + seed * 5) % 11) / 11.0f;
    for (size_t i = 0; i < rows; i++) {
        m->n[2 * i] = (int64_t)(2 * i);
        m->n[2 * i + 1] = (int64_t)(2 * i + 1);
    }
    m->tx = tensor_borrow(ELEM_F32, 2, dims, m->x);
    m->tn = tensor_borrow(ELEM_I64, 1, &twice, m->n);
    m->record[0] = (cell){.kind = CELL_TENSOR, .t = &m->tx};
    m->record[1] = (cell){.kind = CELL_TENSOR, .t = &m->tn};
    m->record[2] = cell_of_text(text, sizeof text - 1);
}

/* Columns that the bundle's steps take. */
static size_t columns_of(size_t which) {
    return which < 2 ? 16 : which == 3 ? 7 : 4;
}

static size_t rows_of(size_t which) {
    return which == 2 ? 6 : 12;
}

static void test_every_bundle_answers(void **state) {
    (void)state;
    for (size_t b = 0; b < N_ANSWER_BUNDLES; b++) {
        static made m;
        pipeline *p;
        pipeline_session *s;
        pipeline_answer a;
        error err = {0};
        const char *text = ANSWER_BUNDLES[b];
        status st = pipeline_open_text(&p, FOLDER, text, strlen(text), NULL, &err);
        if (st != CHURON_OK) print_error("bundle %zu: %s\n", b, err.message);
        assert_int_equal(st, CHURON_OK);
        assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
        make_record(&m, rows_of(b), columns_of(b), 1);
        assert_int_equal(pipeline_run(s, m.record, 1, NULL, &a, &err), CHURON_OK);
        if (a.st != CHURON_OK) print_error("bundle %zu: %s\n", b, a.message);
        assert_int_equal(a.st, CHURON_OK);
        pipeline_session_free(s);
        pipeline_close(p);
    }
}

static str written(const pipeline *p, const pipeline_answer *a) {
    str out = {0};
    json_out j = json_out_begin(&out);
    if (a->st == CHURON_OK) {
        pipeline_answer_write(&j, NULL, p, a);
    } else {
        str_cat(&out, a->message);
    }
    return out;
}

/* A record's answer does not depend on company, in blocks neither: lengths from 0 up, some that fail. */
static void test_company(void **state) {
    (void)state;
    enum { N = 9 };
    static made m[N];
    for (size_t b = 0; b < N_ANSWER_BUNDLES; b++) {
        cell records[N * 3];
        pipeline_answer answers[N], alone;
        pipeline *p;
        pipeline_session *s, *other;
        error err = {0};
        const char *text = ANSWER_BUNDLES[b];
        assert_int_equal(pipeline_open_text(&p, FOLDER, text, strlen(text), NULL, &err), CHURON_OK);
        assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
        assert_int_equal(pipeline_session_create(&other, p, &err), CHURON_OK);
        for (unsigned i = 0; i < N; i++) {
            make_record(&m[i], i * 5 % 12, i == 4 ? 3 : columns_of(b), i);
            memcpy(records + 3 * i, m[i].record, sizeof m[i].record);
        }
        assert_int_equal(pipeline_run(s, records, N, NULL, answers, &err), CHURON_OK);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(pipeline_run(other, m[i].record, 1, NULL, &alone, &err), CHURON_OK);
            str one = written(p, &alone), together = written(p, &answers[i]);
            assert_string_equal(str_cstr(&one), str_cstr(&together));
            str_free(&one);
            str_free(&together);
        }
        pipeline_session_free(other);
        pipeline_session_free(s);
        pipeline_close(p);
    }
}

/* Whatever allocation fails: an error, and nothing that stays behind. */
static void test_no_memory(void **state) {
    (void)state;
    static made m;
    for (size_t b = 0; b < N_ANSWER_BUNDLES; b++) {
        const char *text = ANSWER_BUNDLES[b];
        bool done = false;
        make_record(&m, rows_of(b), columns_of(b), 2);
        for (int64_t n = 1; !done; n++) {
            pipeline *p = NULL;
            pipeline_session *s = NULL;
            pipeline_answer a = {0};
            error err = {0};
            mem_fail_at(n);
            status st =
                pipeline_open_text(&p, FOLDER, text, strlen(text), &(pipeline_options){.threads = 1}, &err);
            if (st == CHURON_OK) st = pipeline_session_create(&s, p, &err);
            if (st == CHURON_OK) st = pipeline_run(s, m.record, 1, NULL, &a, &err);
            mem_fail_at(0);
            if (st != CHURON_OK && !strstr(err.message, "memory")) print_error("%s\n", err.message);
            assert_true(st == CHURON_OK || strstr(err.message, "memory"));
            done = st == CHURON_OK && a.st == CHURON_OK;
            pipeline_session_free(s);
            pipeline_close(p);
            assert_true(n < 5000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders), cmocka_unit_test(test_rectangles),
        cmocka_unit_test(test_grown),   cmocka_unit_test(test_every_bundle_answers),
        cmocka_unit_test(test_company), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
