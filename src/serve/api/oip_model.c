/* oip_model.c: a graph as the protocol describes it; see oip.h. */
#include "base/json_out.h"
#include "base/mem.h"
#include "serve/api/oip.h"

#include <stdio.h>
#include <string.h>

typedef struct datatype {
    elem type;
    const char *name, *config; /* config: of Triton's model configuration */
} datatype;

static const datatype datatypes[] = {
    {ELEM_BOOL, "BOOL", "TYPE_BOOL"},    {ELEM_U8, "UINT8", "TYPE_UINT8"},
    {ELEM_U16, "UINT16", "TYPE_UINT16"}, {ELEM_U32, "UINT32", "TYPE_UINT32"},
    {ELEM_U64, "UINT64", "TYPE_UINT64"}, {ELEM_I8, "INT8", "TYPE_INT8"},
    {ELEM_I16, "INT16", "TYPE_INT16"},   {ELEM_I32, "INT32", "TYPE_INT32"},
    {ELEM_I64, "INT64", "TYPE_INT64"},   {ELEM_F16, "FP16", "TYPE_FP16"},
    {ELEM_F32, "FP32", "TYPE_FP32"},     {ELEM_F64, "FP64", "TYPE_FP64"},
    {ELEM_BF16, "BF16", "TYPE_BF16"},    {ELEM_STRING, "BYTES", "TYPE_STRING"},
};

static const datatype *find(elem type) {
    for (size_t i = 0; i < sizeof datatypes / sizeof *datatypes; i++) {
        if (datatypes[i].type == type) return &datatypes[i];
    }
    return NULL;
}

const char *oip_datatype(elem type) {
    const datatype *d = find(type);
    return d ? d->name : NULL;
}

static oip_port describe(graph_port p) {
    const bool dense = p.type->kind == ONNX_TENSOR;
    return (oip_port){.name = p.name,
                      .datatype = dense ? oip_datatype(p.type->type) : NULL,
                      .type = dense ? p.type->type : ELEM_NONE,
                      .of = p.type};
}

status oip_model_create(oip_model *out, graph *g, const char *name, error *err) {
    oip_model m = {.g = g, .name = name, .n_inputs = graph_n_inputs(g), .n_outputs = graph_n_outputs(g)};
    *out = (oip_model){0};
    m.inputs = mem_calloc(m.n_inputs + 1, sizeof *m.inputs);
    m.outputs = mem_calloc(m.n_outputs + 1, sizeof *m.outputs);
    if (!m.inputs || !m.outputs) {
        oip_model_free(&m);
        return error_no_memory(err, "ports", m.n_inputs + m.n_outputs);
    }
    size_t told = 0;
    for (size_t i = 0; i < m.n_outputs; i++) {
        m.outputs[i] = describe(graph_output(g, i));
        told += m.outputs[i].datatype != NULL;
    }
    status st = CHURON_OK;
    for (size_t i = 0; i < m.n_inputs && st == CHURON_OK; i++) {
        m.inputs[i] = describe(graph_input(g, i));
        if (m.inputs[i].datatype) continue;
        st = error_set(err, CHURON_UNSUPPORTED,
                       "input '%s': expected a tensor of a type that the inference protocol has, got %s",
                       m.inputs[i].name,
                       m.inputs[i].type ? elem_name(m.inputs[i].type) : "another kind of value");
    }
    if (st == CHURON_OK && told == 0) {
        st = error_set(err, CHURON_UNSUPPORTED,
                       "outputs: expected a tensor of a type that the inference protocol has, got none");
    }
    if (st == CHURON_OK) {
        *out = m;
    } else {
        oip_model_free(&m);
    }
    return st;
}

void oip_model_free(oip_model *m) {
    mem_free(m->inputs);
    mem_free(m->outputs);
    *m = (oip_model){0};
}

/* A dimension that the model leaves open is -1; a shape of unknown rank is one such dimension. */
static void write_shape(json_out *j, const char *key, const onnx_type *t) {
    json_out_array(j, key);
    if (!t->has_shape) json_out_int(j, NULL, -1);
    for (size_t i = 0; t->has_shape && i < t->rank; i++) {
        json_out_int(j, NULL, t->dims[i].value >= 0 ? t->dims[i].value : -1);
    }
    json_out_end_array(j);
}

static void write_ports(json_out *j, const char *key, const oip_port *ports, size_t n, bool config) {
    json_out_array(j, key);
    for (size_t i = 0; i < n; i++) {
        const oip_port *p = &ports[i];
        if (!p->datatype) continue;
        json_out_object(j, NULL);
        json_out_cstr(j, "name", p->name);
        json_out_cstr(j, config ? "data_type" : "datatype", config ? find(p->type)->config : p->datatype);
        write_shape(j, config ? "dims" : "shape", p->of);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

void oip_write_metadata(const oip_model *m, str *out) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", m->name);
    json_out_array(&j, "versions");
    json_out_cstr(&j, NULL, m->version ? m->version : "1");
    json_out_end_array(&j);
    json_out_cstr(&j, "platform", m->g ? "churon_onnx" : "churon_bundle");
    write_ports(&j, "inputs", m->inputs, m->n_inputs, false);
    write_ports(&j, "outputs", m->outputs, m->n_outputs, false);
    json_out_end_object(&j);
}

void oip_write_config(const oip_model *m, str *out) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", m->name);
    json_out_cstr(&j, "platform", m->g ? "churon_onnx" : "churon_bundle");
    json_out_cstr(&j, "backend", "churon");
    json_out_int(&j, "max_batch_size", 0); /* batches are dimensions of the shapes */
    write_ports(&j, "input", m->inputs, m->n_inputs, true);
    write_ports(&j, "output", m->outputs, m->n_outputs, true);
    json_out_end_object(&j);
}

void oip_write_error(str *out, const char *message) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "error", message);
    json_out_end_object(&j);
}
