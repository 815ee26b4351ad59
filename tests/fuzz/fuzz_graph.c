/* fuzz_graph.c: any bytes as a model that is loaded with all passes and run three times on made-up inputs,
 * under a limit of memory and time. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_ELEMENTS = 1 << 12 };

/* A small value of the port's type; dimensions that are not said are 2. False: none can be made. */
static bool make_value(const onnx_type *type, value *out, int depth) {
    *out = (value){.kind = VALUE_NONE};
    if (type->kind == ONNX_OPTIONAL)
        return !type->of || depth > 3 || make_value(type->of, out, depth + 1) || true;
    if (type->kind == ONNX_SEQUENCE) {
        if (!type->of || depth > 3 || value_list_create(out, VALUE_SEQUENCE, 2, NULL) != CHURON_OK)
            return false;
        for (size_t i = 0; i < 2; i++) {
            if (make_value(type->of, value_item(out, i), depth + 1)) continue;
            value_free(out);
            return false;
        }
        return true;
    }
    if (type->kind != ONNX_TENSOR || type->rank > TENSOR_MAX_RANK) return false;
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = type->has_shape ? type->rank : 2, count;
    for (size_t i = 0; i < rank; i++)
        dims[i] = type->has_shape && type->dims[i].value >= 0 ? type->dims[i].value : 2;
    if (tensor_count(type->type, rank, dims, &count, "input", NULL) != CHURON_OK || count > MOST_ELEMENTS)
        return false;
    tensor t;
    if (tensor_alloc(&t, type->type, rank, dims, NULL) != CHURON_OK) return false;
    for (size_t i = 0; i < count && type->type != ELEM_STRING; i++) {
        double v = (double)(i % 3);
        char *to = (char *)t.data + i * elem_describe(type->type)->bytes;
        if (ELEM_BIT(type->type) & ELEMS_COMPLEX) {
            memset(to, 0, elem_describe(type->type)->bytes);
        } else {
            elem_from_f64(type->type, &v, to, 1, true);
        }
    }
    *out = value_of_tensor(t);
    return true;
}

static void run(graph *g) {
    size_t n_in = graph_n_inputs(g), n_out = graph_n_outputs(g);
    value *in = calloc(n_in + 1, sizeof *in), *out = calloc(n_out + 1, sizeof *out);
    graph_session *s = NULL;
    error err;
    bool good = in && out && graph_session_create(&s, g, &err) == CHURON_OK;
    for (size_t i = 0; i < n_in && good; i++) good = make_value(graph_input(g, i).type, &in[i], 0);
    for (int time = 0; time < 3 && good; time++) {
        graph_run_options o = {.deadline = clock_seconds() + 0.2};
        good = graph_run(s, in, out, &o, &err) == CHURON_OK;
        for (size_t i = 0; i < n_out; i++) value_free(&out[i]);
    }
    graph_session_free(s);
    for (size_t i = 0; in && i < n_in; i++) value_free(&in[i]);
    free(in);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onnx_model *m;
    graph *g;
    error err;
    if (onnx_parse(&m, data, size, NULL, &err) != CHURON_OK) return 0;
    const graph_options o = {.threads = 1, .max_memory = (uint64_t)32 << 20};
    if (graph_from_onnx(&g, m, &o, &err) == CHURON_OK) {
        run(g);
        graph_close(g);
    }
    onnx_close(m);
    return 0;
}
