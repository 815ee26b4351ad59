/* onnx_dump.c: `onnx_dump MODEL [input:I=FILE | output:I=FILE]...` prints what was read of a model, and of
 * value files by the type of that input or output, as one JSON object. Elements: up to 4 KiB in hex as they
 * lie in memory, else their CRC-32. `onnx_dump --time MODEL` prints the seconds of opening it. */
#include "base/clock.h"
#include "base/json_out.h"
#include "format/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { HEX_MAX = 4096 };

static void put_hex(json_out *j, const char *key, const void *data, size_t n) {
    str hex = {0};
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) str_fmt(&hex, "%02x", (unsigned)p[i]);
    json_out_cstr(j, key, str_cstr(&hex));
    str_free(&hex);
}

static void put_elements(json_out *j, const tensor *t) {
    if (t->type == ELEM_STRING) {
        const tensor_string *s = t->data;
        json_out_array(j, "strings");
        for (size_t i = 0; i < t->count; i++) put_hex(j, NULL, s[i].data, s[i].len);
        json_out_end_array(j);
    } else if (tensor_bytes(t) <= HEX_MAX) {
        put_hex(j, "hex", t->data, tensor_bytes(t));
    } else {
        json_out_uint(j, "crc", crc32_z(0, t->data, tensor_bytes(t)));
    }
}

static void put_dims(json_out *j, size_t rank, const int64_t *dims) {
    json_out_array(j, "dims");
    for (size_t i = 0; i < rank; i++) json_out_int(j, NULL, dims[i]);
    json_out_end_array(j);
}

static void put_contents(json_out *j, const tensor *t) {
    json_out_int(j, "type", (int64_t)t->type);
    put_dims(j, t->rank, t->dims);
    put_elements(j, t);
}

static void put_tensor(json_out *j, const char *key, const onnx_tensor *t) {
    json_out_object(j, key);
    json_out_cstr(j, "name", t->name);
    put_contents(j, &t->contents);
    json_out_end_object(j);
}

static void put_sparse(json_out *j, const onnx_sparse *s) {
    json_out_object(j, NULL);
    put_tensor(j, "values", &s->values);
    put_tensor(j, "indices", &s->indices);
    put_dims(j, s->rank, s->dims);
    json_out_end_object(j);
}

static void put_type(json_out *j, const char *key, const onnx_type *t) {
    static const char *const kinds[] = {"unknown", "tensor",   "sparse", "sequence",
                                        "map",     "optional", "opaque"};
    json_out_object(j, key);
    json_out_cstr(j, "kind", kinds[t->kind]);
    json_out_int(j, "type", (int64_t)t->type);
    if (t->has_shape) {
        json_out_array(j, "shape");
        for (size_t i = 0; i < t->rank; i++) {
            if (t->dims[i].param) {
                json_out_cstr(j, NULL, t->dims[i].param);
            } else {
                json_out_int(j, NULL, t->dims[i].value);
            }
        }
        json_out_end_array(j);
    }
    if (t->of) put_type(j, "of", t->of);
    json_out_end_object(j);
}

static void put_infos(json_out *j, const char *key, const onnx_value_info *v, size_t n) {
    json_out_array(j, key);
    for (size_t i = 0; i < n; i++) {
        json_out_object(j, NULL);
        json_out_cstr(j, "name", v[i].name);
        put_type(j, "type", &v[i].type);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void put_names(json_out *j, const char *key, const char *const *names, size_t n) {
    json_out_array(j, key);
    for (size_t i = 0; i < n; i++) json_out_cstr(j, NULL, names[i]);
    json_out_end_array(j);
}

static void put_graph(json_out *j, const char *key, const onnx_graph *g);

static void put_attr_item(json_out *j, const onnx_attr *a, size_t i) {
    switch (a->type) {
    case ONNX_ATTR_FLOAT: json_out_float(j, NULL, a->f); break;
    case ONNX_ATTR_INT: json_out_int(j, NULL, a->i); break;
    case ONNX_ATTR_STRING: put_hex(j, NULL, a->s.data, a->s.len); break;
    case ONNX_ATTR_FLOATS: json_out_float(j, NULL, a->floats[i]); break;
    case ONNX_ATTR_INTS: json_out_int(j, NULL, a->ints[i]); break;
    case ONNX_ATTR_STRINGS: put_hex(j, NULL, a->strings[i].data, a->strings[i].len); break;
    case ONNX_ATTR_TENSOR:
    case ONNX_ATTR_TENSORS: put_tensor(j, NULL, &a->tensors[i]); break;
    case ONNX_ATTR_GRAPH:
    case ONNX_ATTR_GRAPHS: put_graph(j, NULL, a->graphs[i]); break;
    case ONNX_ATTR_SPARSE:
    case ONNX_ATTR_SPARSES: put_sparse(j, &a->sparses[i]); break;
    case ONNX_ATTR_TYPE:
    case ONNX_ATTR_TYPES: put_type(j, NULL, &a->types[i]); break;
    }
}

static void put_attrs(json_out *j, const char *key, const onnx_attr *a, size_t n) {
    json_out_array(j, key);
    for (size_t i = 0; i < n; i++) {
        json_out_object(j, NULL);
        json_out_cstr(j, "name", a[i].name);
        if (a[i].reference) json_out_cstr(j, "reference", a[i].reference);
        json_out_int(j, "type", (int64_t)a[i].type);
        json_out_array(j, "items");
        for (size_t k = 0; k < a[i].n; k++) put_attr_item(j, &a[i], k);
        json_out_end_array(j);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void put_nodes(json_out *j, const onnx_node *nodes, size_t n) {
    json_out_array(j, "nodes");
    for (size_t i = 0; i < n; i++) {
        json_out_object(j, NULL);
        json_out_cstr(j, "op", nodes[i].op);
        json_out_cstr(j, "domain", nodes[i].domain);
        json_out_cstr(j, "name", nodes[i].name);
        json_out_cstr(j, "overload", nodes[i].overload);
        put_names(j, "inputs", nodes[i].inputs, nodes[i].n_inputs);
        put_names(j, "outputs", nodes[i].outputs, nodes[i].n_outputs);
        put_attrs(j, "attrs", nodes[i].attrs, nodes[i].n_attrs);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void put_graph(json_out *j, const char *key, const onnx_graph *g) {
    json_out_object(j, key);
    json_out_cstr(j, "name", g->name);
    put_nodes(j, g->nodes, g->n_nodes);
    put_infos(j, "inputs", g->inputs, g->n_inputs);
    put_infos(j, "outputs", g->outputs, g->n_outputs);
    put_infos(j, "values", g->values, g->n_values);
    json_out_array(j, "initializers");
    for (size_t i = 0; i < g->n_initializers; i++) put_tensor(j, NULL, &g->initializers[i]);
    json_out_end_array(j);
    json_out_array(j, "sparse");
    for (size_t i = 0; i < g->n_sparse; i++) put_sparse(j, &g->sparse_initializers[i]);
    json_out_end_array(j);
    json_out_end_object(j);
}

static void put_opsets(json_out *j, const onnx_opset *o, size_t n) {
    json_out_array(j, "opsets");
    for (size_t i = 0; i < n; i++) {
        json_out_object(j, NULL);
        json_out_cstr(j, "domain", o[i].domain);
        json_out_int(j, "version", o[i].version);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void put_function(json_out *j, const onnx_function *f) {
    json_out_object(j, NULL);
    json_out_cstr(j, "name", f->name);
    json_out_cstr(j, "domain", f->domain);
    json_out_cstr(j, "overload", f->overload);
    put_names(j, "inputs", f->inputs, f->n_inputs);
    put_names(j, "outputs", f->outputs, f->n_outputs);
    put_names(j, "attributes", f->attributes, f->n_attributes);
    put_attrs(j, "defaults", f->defaults, f->n_defaults);
    put_nodes(j, f->nodes, f->n_nodes);
    put_opsets(j, f->opsets, f->n_opsets);
    json_out_end_object(j);
}

static void put_model(json_out *j, const onnx_model *m) {
    json_out_int(j, "ir_version", m->ir_version);
    json_out_int(j, "model_version", m->model_version);
    json_out_cstr(j, "producer_name", m->producer_name);
    json_out_cstr(j, "producer_version", m->producer_version);
    json_out_cstr(j, "domain", m->domain);
    put_opsets(j, m->opsets, m->n_opsets);
    json_out_array(j, "metadata");
    for (size_t i = 0; i < m->n_metadata; i++) {
        json_out_cstr(j, NULL, m->metadata[i].key);
        json_out_cstr(j, NULL, m->metadata[i].value);
    }
    json_out_end_array(j);
    put_graph(j, "graph", &m->graph);
    json_out_array(j, "functions");
    for (size_t i = 0; i < m->n_functions; i++) put_function(j, &m->functions[i]);
    json_out_end_array(j);
}

static void put_value(json_out *j, const value *v) {
    static const char *const kinds[] = {"none", "tensor", "sequence", "map"};
    json_out_object(j, NULL);
    json_out_cstr(j, "kind", kinds[v->kind]);
    if (v->kind == VALUE_TENSOR || v->kind == VALUE_MAP) put_contents(j, &v->t);
    json_out_array(j, "items");
    if (v->kind == VALUE_MAP) {
        put_value(j, value_item(v, 0));
    } else {
        for (size_t i = 0; i < value_count(v); i++) put_value(j, value_item(v, i));
    }
    json_out_end_array(j);
    json_out_end_object(j);
}

static status dump_value(json_out *j, const onnx_model *m, const char *what, error *err) {
    const char *equals = strchr(what, '='), *colon = strchr(what, ':');
    if (!equals || !colon) return error_set(err, CHURON_INVALID, "expected input:I=FILE, got %s", what);
    bool input = what[0] == 'i';
    size_t i = (size_t)strtoul(colon + 1, NULL, 10), n = input ? m->graph.n_inputs : m->graph.n_outputs;
    if (i >= n) return error_set(err, CHURON_INVALID, "%s: expected at most %zu", what, n);
    value v;
    TRY(onnx_value_read(&v, equals + 1, &(input ? m->graph.inputs : m->graph.outputs)[i].type, err));
    put_value(j, &v);
    value_free(&v);
    return CHURON_OK;
}

static status dump(int argc, char **argv, error *err) {
    onnx_model *m;
    TRY(onnx_open(&m, argv[1], err));
    str s = {0};
    json_out j = json_out_begin(&s);
    json_out_object(&j, NULL);
    put_model(&j, m);
    json_out_array(&j, "files");
    status st = CHURON_OK;
    for (int i = 2; st == CHURON_OK && i < argc; i++) st = dump_value(&j, m, argv[i], err);
    json_out_end_array(&j);
    json_out_end_object(&j);
    if (st == CHURON_OK) st = str_check(&s, err);
    if (st == CHURON_OK) puts(s.data);
    str_free(&s);
    onnx_close(m);
    return st;
}

static status time_open(const char *path, error *err) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        onnx_model *m;
        double start = clock_seconds();
        TRY(onnx_open(&m, path, err));
        double taken = clock_seconds() - start;
        if (taken < best) best = taken;
        onnx_close(m);
    }
    printf("%.6f\n", best);
    return CHURON_OK;
}

int main(int argc, char **argv) {
    error err;
    if (argc < 2) return 2;
    bool timed = argc == 3 && strcmp(argv[1], "--time") == 0;
    status st = timed ? time_open(argv[2], &err) : dump(argc, argv, &err);
    if (st != CHURON_OK) (void)fprintf(stderr, "%s\n", err.message);
    return st == CHURON_OK ? 0 : 1;
}
