/* graph_fail.c: `graph_fail MODEL.onnx` makes every allocation of reading, loading and running the model fail
 * once. Each time the status is CHURON_NO_MEMORY, or the answer is the right one where the library could do
 * without; and the session computes as before. Exit 1 and a line where that is not so. */
#include "base/mem.h"
#include "graph/compare.h"
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 3 }; /* the second run of a shape is watched, the third has its places planned */

typedef struct world {
    onnx_model *model;
    graph *g;
    graph_session *s;
} world;

static void close_all(world *w) {
    graph_session_free(w->s);
    graph_close(w->g);
    onnx_close(w->model);
    *w = (world){0};
}

static status open_all(world *w, const char *path, error *err) {
    const graph_options o = {.threads = 1, .max_memory = (uint64_t)1 << 28};
    *w = (world){0};
    TRY(onnx_open(&w->model, path, err));
    TRY(graph_from_onnx(&w->g, w->model, &o, err));
    return graph_session_create(&w->s, w->g, err);
}

/* A tensor of the port's type; dimensions that are not said are 2. */
static status make_input(const onnx_type *type, value *out, error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    tensor t;
    if (type->kind != ONNX_TENSOR)
        return error_set(err, CHURON_UNSUPPORTED, "input: expected a tensor, got another kind");
    for (size_t i = 0; i < type->rank; i++) dims[i] = type->dims[i].value >= 0 ? type->dims[i].value : 2;
    TRY(tensor_alloc(&t, type->type, type->rank, dims, err));
    *out = value_of_tensor(t);
    for (size_t i = 0; i < t.count; i++) {
        if (t.type == ELEM_STRING) {
            TRY(tensor_string_set(&out->t, i, i % 2 ? "b" : "aBc", i % 2 ? 1 : 3, err));
        } else {
            const double v = 0.25 * (double)(i * 5 % 9) - 0.75;
            elem_from_f64(t.type, &v, (char *)t.data + i * elem_describe(t.type)->bytes, 1, true);
        }
    }
    return CHURON_OK;
}

static void free_values(value *v, size_t n) {
    for (size_t i = 0; i < n; i++) value_free(&v[i]);
}

/* RUNS runs, each compared with `want` unless that is NULL; the outputs of the last stay in `got`. */
static status run_all(world *w, const value *in, value *got, const value *want, error *err) {
    const size_t n = graph_n_outputs(w->g);
    for (int i = 0; i < RUNS; i++) {
        free_values(got, n);
        TRY(graph_run(w->s, in, got, NULL, err));
        for (size_t k = 0; want && k < n; k++) {
            str why = {0};
            const comparison c =
                compare_values(&want[k], &got[k], (tolerance){0}, graph_output(w->g, k).name, &why);
            const status st =
                c.same ? CHURON_OK : error_set(err, CHURON_INTERNAL, "another answer: %s", str_cstr(&why));
            str_free(&why);
            TRY(st);
        }
    }
    return CHURON_OK;
}

/* *more: the n-th allocation was reached. */
static status fail_nth(const char *path, int64_t n, const value *in, const value *want, value *got,
                       size_t n_out, bool *more, error *err) {
    world w;
    const int64_t before = mem_count();
    mem_fail_at(n);
    status st = open_all(&w, path, err);
    if (st == CHURON_OK) st = run_all(&w, in, got, want, err);
    mem_fail_at(0);
    *more = mem_count() - before >= n;
    if (st == CHURON_NO_MEMORY) st = w.s ? run_all(&w, in, got, want, err) : CHURON_OK;
    free_values(got, n_out);
    close_all(&w);
    return st;
}

static status sweep(const char *path, error *err) {
    world w;
    enum { MOST = 16 };
    value in[MOST] = {0}, want[MOST] = {0}, got[MOST] = {0};
    TRY(open_all(&w, path, err));
    const size_t n_in = graph_n_inputs(w.g), n_out = graph_n_outputs(w.g);
    status st = n_in <= MOST && n_out <= MOST ? CHURON_OK
                                              : error_set(err, CHURON_UNSUPPORTED, "ports: at most %d", MOST);
    for (size_t i = 0; i < n_in && st == CHURON_OK; i++)
        st = make_input(graph_input(w.g, i).type, &in[i], err);
    if (st == CHURON_OK) st = run_all(&w, in, want, NULL, err);
    close_all(&w);
    int64_t n = 1;
    for (bool more = true; st == CHURON_OK && more; n += more)
        st = fail_nth(path, n, in, want, got, n_out, &more, err);
    if (st == CHURON_OK) printf("%lld allocations\n", (long long)n - 1);
    if (st != CHURON_OK) error_prefix(err, "allocation %lld", (long long)n);
    free_values(in, n_in <= MOST ? n_in : 0);
    free_values(want, n_out <= MOST ? n_out : 0);
    return st;
}

int main(int argc, char **argv) {
    error err;
    if (argc != 2) return 2;
    if (sweep(argv[1], &err) == CHURON_OK) return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[1], err.message);
    return 1;
}
