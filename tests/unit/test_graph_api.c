/* test_graph_api.c: graphs through churon.h: what a port says, whose memory outputs are in, many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "churon.h"
#include "onnx_build.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- models ----------------------------------------------------------------------------------------- */

static void port(str *g, uint32_t field, const char *name, int type, const char *batch, int64_t columns) {
    str v = {0}, t = {0}, of = {0}, shape = {0}, dim = {0};
    if (batch) {
        pb_text(&dim, 2, batch);
        pb_message(&shape, 1, &dim);
    }
    pb_int(&dim, 1, columns);
    pb_message(&shape, 1, &dim);
    pb_int(&of, 1, type);
    pb_message(&of, 2, &shape);
    pb_message(&t, 1, &of);
    pb_text(&v, 1, name);
    pb_message(&v, 2, &t);
    pb_message(g, field, &v);
}

static void node(str *g, const char *op, const char *a, const char *b, const char *out) {
    str n = {0};
    pb_text(&n, 1, a);
    if (b) pb_text(&n, 1, b);
    pb_text(&n, 2, out);
    pb_text(&n, 4, op);
    pb_message(g, 1, &n);
}

/* y = x * w, s = shape(x), u = t: rows of three, and strings. */
static char path[64];

static int write_model(void **state) {
    (void)state;
    const float w[3] = {1, 10, 100};
    str g = {0}, t = {0}, m = {0}, opset = {0};
    node(&g, "Mul", "x", "w", "y");
    node(&g, "Shape", "x", NULL, "s");
    node(&g, "Identity", "t", NULL, "u");
    pb_text(&g, 2, "g");
    pb_int(&t, 1, 3);
    pb_int(&t, 2, 1);
    pb_text(&t, 8, "w");
    pb_bytes(&t, 9, w, sizeof w);
    pb_message(&g, 5, &t);
    port(&g, 11, "x", 1, "batch", 3);
    port(&g, 11, "t", 8, NULL, 2);
    port(&g, 12, "y", 1, "batch", 3);
    port(&g, 12, "s", 7, NULL, 2);
    port(&g, 12, "u", 8, NULL, 2);
    pb_int(&m, 1, 10);
    pb_int(&opset, 2, 21);
    pb_message(&m, 8, &opset);
    pb_message(&m, 7, &g);
    snprintf(path, sizeof path, "/tmp/churon-api-XXXXXX");
    const int fd = mkstemp(path);
    const bool ok = fd >= 0 && write(fd, m.data, m.len) == (ssize_t)m.len;
    if (fd >= 0) close(fd);
    str_free(&m);
    return ok ? 0 : -1;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(path);
}

static churon_graph *open_model(void) {
    churon_graph *g = NULL;
    churon_error err = {0};
    const churon_graph_options o = {.size = sizeof o, .threads = 1};
    assert_int_equal(churon_graph_open(&g, path, &o, &err), CHURON_OK);
    return g;
}

static const churon_text words[2] = {{"one", 3}, {"\0two", 4}};

static void set_inputs(churon_tensor in[2], float *x, int64_t rows) {
    in[0] = (churon_tensor){.dtype = CHURON_F32, .rank = 2, .dims = {rows, 3}, .data = x};
    in[0].bytes = (size_t)rows * 3 * sizeof *x;
    in[1] = (churon_tensor){.dtype = CHURON_STRING, .rank = 1, .dims = {2}, .bytes = sizeof words};
    in[1].data = (void *)(uintptr_t)words;
}

/* ---- tests ------------------------------------------------------------------------------------------ */

static void ports_say_what_the_file_says(void **state) {
    (void)state;
    churon_graph *g = open_model();
    churon_port p = {.size = sizeof p};
    churon_error err = {0};
    assert_int_equal(churon_graph_inputs(g), 2);
    assert_int_equal(churon_graph_outputs(g), 3);
    assert_int_equal(churon_graph_input(g, 0, &p, &err), CHURON_OK);
    assert_string_equal(p.name, "x");
    assert_int_equal(p.dtype, CHURON_F32);
    assert_int_equal(p.rank, 2);
    assert_int_equal(p.dims[0], -1);
    assert_string_equal(p.dim_names[0], "batch");
    assert_int_equal(p.dims[1], 3);
    assert_null(p.dim_names[1]);
    assert_int_equal(churon_graph_output(g, 2, &p, &err), CHURON_OK);
    assert_int_equal(p.dtype, CHURON_STRING);
    assert_int_equal(churon_graph_output(g, 3, &p, &err), CHURON_INVALID);
    assert_string_equal(err.message, "i: expected less than 3, got 3");
    p.size = 8;
    assert_int_equal(churon_graph_input(g, 0, &p, &err), CHURON_INVALID);
    churon_graph_close(g);
    assert_int_equal(churon_graph_open(&g, "/nowhere/model.onnx", NULL, &err), CHURON_NOT_FOUND);
    assert_null(g);
    assert_int_equal(churon_graph_inputs(NULL), 0);
}

static void outputs_are_the_sessions_or_the_callers(void **state) {
    (void)state;
    churon_graph *g = open_model();
    churon_session *s = NULL;
    churon_error err = {0};
    float x[6] = {1, 2, 3, 4, 5, 6}, room[6] = {0};
    churon_tensor in[2], out[3] = {{0}};
    set_inputs(in, x, 2);
    assert_int_equal(churon_session_open(&s, g, &err), CHURON_OK);
    churon_graph_close(g);                 /* the session keeps it */
    for (int turn = 0; turn < 3; turn++) { /* what was lent is replaced */
        assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_OK);
        assert_true(out[0].lent && out[0].bytes == sizeof room);
        assert_memory_equal(out[0].data, ((float[]){1, 20, 300, 4, 50, 600}), sizeof room);
        assert_memory_equal(out[1].data, ((int64_t[]){2, 3}), 16);
        const churon_text *u = out[2].data;
        assert_true(u[1].len == 4 && memcmp(u[1].data, "\0two", 4) == 0);
    }
    out[0] = (churon_tensor){.data = room, .bytes = sizeof room};
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_OK);
    assert_true(out[0].data == room && !out[0].lent && out[0].dims[0] == 2 && room[5] == 600);
    room[5] = -1;
    out[0].bytes = sizeof room - 1;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_LIMIT);
    assert_string_equal(err.message, "output 'y': bytes: expected room for 24, got 23");
    assert_true(out[0].bytes == sizeof room && room[5] == -1);
    const bool wanted[3] = {false, true, false};
    const churon_run_options o = {.size = sizeof o, .wanted = wanted};
    assert_int_equal(churon_session_run(s, in, out, &o, &err), CHURON_OK);
    assert_true(out[0].dtype == CHURON_NO_DTYPE && out[0].bytes == 0 && room[5] == -1);
    assert_int_equal(((int64_t *)out[1].data)[0], 2);
    churon_session_close(s);
}

static void wrong_inputs_are_named(void **state) {
    (void)state;
    churon_graph *g = open_model();
    churon_session *s = NULL;
    churon_error err = {0};
    float x[6] = {0};
    churon_tensor in[2], out[3] = {{0}};
    assert_int_equal(churon_session_open(&s, g, &err), CHURON_OK);
    set_inputs(in, x, 2);
    in[0].bytes = 20;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "input 'x': bytes: expected 24 as its shape says, got 20");
    set_inputs(in, x, 2);
    in[0].dims[1] = 2;
    in[0].bytes = 16;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "input 'x': expected dimension 1 to be 3, got 2");
    set_inputs(in, x, 2);
    in[0].dims[0] = -1;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_INVALID);
    set_inputs(in, x, 1);
    in[0].data = (char *)x + 2;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_INVALID);
    set_inputs(in, x, 2);
    in[1].dtype = CHURON_NO_DTYPE; /* not optional */
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_INVALID);
    set_inputs(in, x, 2);
    in[0].rank = 200;
    assert_int_equal(churon_session_run(s, in, out, NULL, &err), CHURON_LIMIT);
    assert_int_equal(churon_session_run(s, NULL, out, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "inputs: expected a pointer, got NULL");
    churon_session_close(s);
    churon_graph_close(g);
}

static void *run_many(void *user) {
    churon_session *s = NULL;
    churon_error err = {0};
    bool ok = churon_session_open(&s, user, &err) == CHURON_OK;
    for (int turn = 0; ok && turn < 50; turn++) {
        float x[3] = {(float)turn, 1, 2};
        churon_tensor in[2], out[3] = {{0}};
        set_inputs(in, x, 1);
        ok = churon_session_run(s, in, out, NULL, &err) == CHURON_OK &&
             ((float *)out[0].data)[0] == (float)turn && ((float *)out[0].data)[2] == 200;
    }
    churon_session_close(s);
    return ok ? user : NULL;
}

static void many_threads_share_a_graph(void **state) {
    (void)state;
    churon_graph *g = open_model();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_many, g), 0);
    for (int i = 0; i < 4; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        assert_ptr_equal(answer, g);
    }
    churon_graph_close(g);
}

static void memory_that_runs_out(void **state) {
    (void)state;
    float x[3] = {1, 1, 1};
    churon_tensor in[2];
    set_inputs(in, x, 1);
    for (int64_t at = 1;; at++) {
        churon_graph *g = NULL;
        churon_session *s = NULL;
        churon_tensor out[3] = {{0}};
        churon_error err = {0};
        const churon_graph_options o = {.size = sizeof o, .threads = 1};
        mem_fail_at(at);
        churon_status st = churon_graph_open(&g, path, &o, &err);
        if (st == CHURON_OK) st = churon_session_open(&s, g, &err);
        if (st == CHURON_OK) st = churon_session_run(s, in, out, NULL, &err);
        mem_fail_at(0);
        churon_session_close(s);
        churon_graph_close(g);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_true(at < 10000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_say_what_the_file_says),
        cmocka_unit_test(outputs_are_the_sessions_or_the_callers),
        cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(many_threads_share_a_graph),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
