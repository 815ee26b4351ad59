/* fuzz_onnx.c: any bytes as a model and as value files. What opens is read whole. */
#define _GNU_SOURCE
#include "base/mem.h"
#include "format/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void read_tensor(const tensor *t) {
    if (t->type == ELEM_STRING) {
        const tensor_string *s = t->data;
        for (size_t i = 0; i < t->count; i++) {
            for (size_t c = 0; c < s[i].len; c++) sink += (uint64_t)s[i].data[c];
        }
        return;
    }
    size_t alignment = elem_describe(t->type)->bytes > 8 ? 8 : elem_describe(t->type)->bytes;
    if (t->type == ELEM_C64) alignment = 4;
    if ((uintptr_t)t->data % alignment) abort();
    const uint8_t *bytes = t->data;
    for (size_t i = 0; i < tensor_bytes(t); i++) sink += bytes[i];
}

static void read_type(const onnx_type *t) {
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i].param) sink += strlen(t->dims[i].param);
        if (t->dims[i].value < -1) abort();
    }
    if (t->of) read_type(t->of);
}

static void read_graph(const onnx_graph *g);

static void read_attrs(const onnx_attr *a, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sink += strlen(a[i].name);
        for (size_t k = 0; k < a[i].n; k++) {
            switch (a[i].type) {
            case ONNX_ATTR_STRING: sink += (uint64_t)a[i].s.data[a[i].s.len]; break;
            case ONNX_ATTR_FLOATS: sink += a[i].floats[k] > 0; break;
            case ONNX_ATTR_INTS: sink += (uint64_t)a[i].ints[k]; break;
            case ONNX_ATTR_STRINGS: sink += strlen(a[i].strings[k].data); break;
            case ONNX_ATTR_TENSOR:
            case ONNX_ATTR_TENSORS: read_tensor(&a[i].tensors[k].contents); break;
            case ONNX_ATTR_GRAPH:
            case ONNX_ATTR_GRAPHS: read_graph(a[i].graphs[k]); break;
            case ONNX_ATTR_SPARSE:
            case ONNX_ATTR_SPARSES: read_tensor(&a[i].sparses[k].indices.contents); break;
            case ONNX_ATTR_TYPE:
            case ONNX_ATTR_TYPES: read_type(&a[i].types[k]); break;
            default: break;
            }
        }
    }
}

static void read_nodes(const onnx_node *n, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sink += strlen(n[i].op) + strlen(n[i].domain) + strlen(n[i].name);
        for (size_t k = 0; k < n[i].n_inputs; k++) sink += strlen(n[i].inputs[k]);
        for (size_t k = 0; k < n[i].n_outputs; k++) sink += strlen(n[i].outputs[k]);
        read_attrs(n[i].attrs, n[i].n_attrs);
    }
}

static void read_infos(const onnx_value_info *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sink += strlen(v[i].name);
        read_type(&v[i].type);
    }
}

static void read_graph(const onnx_graph *g) {
    read_nodes(g->nodes, g->n_nodes);
    read_infos(g->inputs, g->n_inputs);
    read_infos(g->outputs, g->n_outputs);
    read_infos(g->values, g->n_values);
    for (size_t i = 0; i < g->n_initializers; i++) read_tensor(&g->initializers[i].contents);
    for (size_t i = 0; i < g->n_sparse; i++) read_tensor(&g->sparse_initializers[i].values.contents);
}

static void read_model(const onnx_model *m) {
    read_graph(&m->graph);
    for (size_t i = 0; i < m->n_functions; i++) {
        read_nodes(m->functions[i].nodes, m->functions[i].n_nodes);
        read_attrs(m->functions[i].defaults, m->functions[i].n_defaults);
    }
    for (size_t i = 0; i < m->n_metadata; i++) sink += strlen(m->metadata[i].value);
}

static void read_value(const value *v) {
    if (v->t.data) read_tensor(&v->t);
    size_t n = v->kind == VALUE_MAP ? 1 : value_count(v);
    for (size_t i = 0; i < n; i++) read_value(value_item(v, i));
}

/* The bytes as a value of every kind, through a file that has no name. */
static void check_values(const uint8_t *data, size_t size) {
    static const onnx_type any = {.kind = ONNX_TENSOR}, sequence = {.kind = ONNX_SEQUENCE, .of = &any},
                           map = {.kind = ONNX_MAP, .of = &any},
                           optional = {.kind = ONNX_OPTIONAL, .of = &sequence};
    static const onnx_type *const types[] = {&any, &sequence, &map, &optional};
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz_onnx", 0);
        if (fd < 0) abort();
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || (size && pwrite(fd, data, size, 0) != (ssize_t)size)) abort();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        value v;
        error err;
        if (onnx_value_read(&v, path, types[i], &err) == CHURON_OK) read_value(&v);
        value_free(&v);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onnx_model *m;
    error err;
    if (onnx_parse(&m, data, size, NULL, &err) == CHURON_OK) {
        read_model(m);
    } else if (!err.message[0] || m) {
        abort();
    }
    onnx_close(m);
    check_values(data, size);
    return 0;
}
