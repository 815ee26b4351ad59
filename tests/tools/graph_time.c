/* graph_time.c: `graph_time MODEL X.npy ROWS SECONDS [THREADS]` runs a model of one float32 input on ROWS
 * rows of X at a time, other rows each time, and prints the median microseconds of a run. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 100000 };

/* The data of an .npy file of float32 in C order; the header is trusted, as the file is our own. */
static float *read_rows(const char *path, size_t columns, size_t *rows) {
    error err;
    str s = {0};
    if (file_read(&s, path, (size_t)1 << 30, &err) != CHURON_OK || s.len < 12) return NULL;
    size_t head = 10 + (size_t)((uint8_t)s.data[8] | (uint8_t)s.data[9] << 8);
    *rows = (s.len - head) / (columns * sizeof(float));
    float *x = mem_alloc(s.len - head);
    if (x) memcpy(x, s.data + head, s.len - head);
    str_free(&s);
    return x;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static status fill_columns(const graph *g, value *in, error *err) {
    for (size_t i = 0; i < graph_n_inputs(g); i++) {
        tensor t;
        elem e = graph_input(g, i).type->type;
        TRY(tensor_alloc(&t, e, 2, (int64_t[]){1, 1}, err));
        in[i] = value_of_tensor(t);
        if (e == ELEM_STRING) {
            TRY(tensor_string_set(&t, 0, "ios", 3, err));
        } else {
            double v = 0.5 * (double)i;
            elem_from_f64(e, &v, t.data, 1, false);
        }
    }
    return CHURON_OK;
}

static status measure_columns(graph *g, double seconds, error *err) {
    static double taken[MAX_RUNS];
    size_t n = graph_n_inputs(g), n_out = graph_n_outputs(g), runs = 0;
    value *in = mem_calloc(n + n_out, sizeof *in), *out = in + n;
    if (!in) return error_no_memory(err, "values", n);
    graph_session *s = NULL;
    status st = fill_columns(g, in, err);
    if (st == CHURON_OK) st = graph_session_create(&s, g, err);
    for (double end = clock_seconds() + seconds;
         st == CHURON_OK && clock_seconds() < end && runs < MAX_RUNS;) {
        double start = clock_seconds();
        st = graph_run(s, in, out, NULL, err);
        taken[runs++] = clock_seconds() - start;
        for (size_t i = 0; i < n_out; i++) value_free(&out[i]);
    }
    qsort(taken, runs, sizeof *taken, by_value);
    if (st == CHURON_OK) printf("%.3f\n", taken[runs / 2] * 1e6);
    graph_session_free(s);
    for (size_t i = 0; i < n; i++) value_free(&in[i]);
    mem_free(in);
    return st;
}

static status measure(graph *g, const char *path, size_t batch, double seconds, error *err) {
    static double taken[MAX_RUNS];
    const onnx_type *type = graph_input(g, 0).type;
    int64_t dims[2] = {(int64_t)batch, type->rank == 2 ? type->dims[1].value : 0};
    size_t rows = 0, runs = 0, at = 0, n_out = graph_n_outputs(g);
    float *x = dims[1] > 0 ? read_rows(path, (size_t)dims[1], &rows) : NULL;
    value *out = mem_calloc(n_out, sizeof *out);
    if (!x || !out || rows < batch)
        return error_set(err, CHURON_INVALID, "%s: expected %zu rows", path, batch);
    graph_session *s;
    TRY(graph_session_create(&s, g, err));
    double end = clock_seconds() + seconds;
    status st = CHURON_OK;
    while (st == CHURON_OK && clock_seconds() < end && runs < MAX_RUNS) {
        value in = value_of_tensor(tensor_borrow(ELEM_F32, 2, dims, x + at * (size_t)dims[1]));
        at = at + 2 * batch <= rows ? at + batch : 0;
        double start = clock_seconds();
        st = graph_run(s, &in, out, NULL, err);
        taken[runs++] = clock_seconds() - start;
        for (size_t i = 0; i < n_out; i++) value_free(&out[i]);
    }
    qsort(taken, runs, sizeof *taken, by_value);
    if (st == CHURON_OK) printf("%.3f\n", taken[runs / 2] * 1e6);
    graph_session_free(s);
    mem_free(out);
    mem_free(x);
    return st;
}

int main(int argc, char **argv) {
    error err;
    graph *g;
    if (argc < 5) return 2;
    graph_options o = {.threads = argc > 5 ? (size_t)strtoul(argv[5], NULL, 10) : 1};
    status st = graph_open(&g, argv[1], &o, &err);
    if (st == CHURON_OK) {
        st = graph_n_inputs(g) > 1
                 ? measure_columns(g, strtod(argv[4], NULL), &err)
                 : measure(g, argv[2], (size_t)strtoul(argv[3], NULL, 10), strtod(argv[4], NULL), &err);
        graph_close(g);
    }
    if (st != CHURON_OK) (void)fprintf(stderr, "%s\n", err.message);
    return st == CHURON_OK ? 0 : 1;
}
