/* graph_build.h: models as structures, for tests of graphs: no file, no reader. Nodes are written as
 * {"Add", "a b", "c"}: names separated by blanks, "-" is an absent one. */
#ifndef TESTS_GRAPH_BUILD_H
#define TESTS_GRAPH_BUILD_H

#include "format/onnx.h"

#include <stdio.h>
#include <string.h>

enum { BUILD_NAMES = 4096, BUILD_NODES = 64 };

typedef struct builder {
    char text[1 << 16];
    size_t used;
    const char *names[BUILD_NAMES];
    size_t n_names;
} builder;

static builder build_memory;

static inline void build_reset(void) {
    build_memory.used = build_memory.n_names = 0;
}

static inline const char *const *build_names(const char *list, size_t *n) {
    builder *b = &build_memory;
    const char *const *first = &b->names[b->n_names];
    *n = 0;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " ");
        char *copy = &b->text[b->used];
        bool absent = len == 1 && *p == '-';
        if (!absent) memcpy(copy, p, len);
        copy[absent ? 0 : len] = '\0';
        b->used += len + 1;
        b->names[b->n_names++] = copy;
        ++*n;
        p += len;
        p += strspn(p, " ");
    }
    return first;
}

static inline onnx_node build_node(const char *op, const char *inputs, const char *outputs) {
    onnx_node n = {.op = op, .domain = "", .name = "", .overload = ""};
    n.inputs = build_names(inputs, &n.n_inputs);
    n.outputs = build_names(outputs, &n.n_outputs);
    return n;
}

static inline onnx_node build_node_with(const char *op, const char *inputs, const char *outputs,
                                        const onnx_attr *attrs, size_t n_attrs) {
    onnx_node n = build_node(op, inputs, outputs);
    n.attrs = attrs;
    n.n_attrs = n_attrs;
    return n;
}

/* A tensor port; rank SIZE_MAX: no shape. */
static inline onnx_value_info build_port(const char *name, elem type, size_t rank, const onnx_dim *dims) {
    return (onnx_value_info){.name = name,
                             .type = {.kind = ONNX_TENSOR,
                                      .type = type,
                                      .has_shape = rank != SIZE_MAX,
                                      .rank = rank == SIZE_MAX ? 0 : rank,
                                      .dims = dims}};
}

static inline onnx_tensor build_tensor(const char *name, elem type, size_t rank, const int64_t *dims,
                                       void *data) {
    onnx_tensor t = {.name = name, .type = type, .rank = rank, .dims = dims};
    t.contents = tensor_borrow(type, rank, dims, data);
    t.count = t.contents.count;
    return t;
}

static const onnx_opset build_opset = {"", 21};

static inline onnx_model build_model(onnx_graph g) {
    if (!g.name) g.name = "g";
    return (onnx_model){.ir_version = 10, .graph = g, .opsets = &build_opset, .n_opsets = 1};
}

#endif
