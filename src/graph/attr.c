/* attr.c: attributes as an operator's prepare reads them. */
#include "graph/ir.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[] = {"nothing",
                                         "a float",
                                         "an int",
                                         "a string",
                                         "a tensor",
                                         "a graph",
                                         "a list of floats",
                                         "a list of ints",
                                         "a list of strings",
                                         "a list of tensors",
                                         "a list of graphs",
                                         "a sparse tensor",
                                         "a list of sparse tensors",
                                         "a type",
                                         "a list of types"};

static const char *type_name(onnx_attr_type t) {
    return (size_t)t < sizeof type_names / sizeof type_names[0] ? type_names[t] : "an unknown type";
}

/* ---- what a node tells ------------------------------------------------------------------------------ */

int64_t op_version(const op_node *n) {
    return n->version;
}

const char *op_name_of(const op_node *n) {
    return n->name;
}

const char *op_operator(const op_node *n) {
    return n->op;
}

size_t op_n_inputs(const op_node *n) {
    return n->n_inputs;
}

size_t op_n_outputs(const op_node *n) {
    return n->n_outputs;
}

bool op_has_input(const op_node *n, size_t i) {
    return i < n->n_inputs && n->inputs[i];
}

bool op_has_output(const op_node *n, size_t i) {
    return i < n->n_outputs && n->outputs[i];
}

elem op_input_type(const op_node *n, size_t i) {
    return op_has_input(n, i) && n->inputs[i]->type.kind == ONNX_TENSOR ? n->inputs[i]->type.type : ELEM_NONE;
}

elem op_output_type(const op_node *n, size_t i) {
    return op_has_output(n, i) && n->outputs[i]->type.kind == ONNX_TENSOR ? n->outputs[i]->type.type
                                                                          : ELEM_NONE;
}

const tensor *op_constant(const op_node *n, size_t i) {
    return op_has_input(n, i) && n->inputs[i]->is_constant ? &n->inputs[i]->constant : NULL;
}

void op_set_state(op_node *n, void *state) {
    n->state = state;
}

void op_set_packing(op_node *n, const op_packing *packing) {
    n->packing = packing;
}

status op_error(const op_node *n, error *err, status code, const char *fmt, ...) {
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(err, code, "node '%s' (%s): %s", n->name, n->op, text);
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static status find(op_node *n, const char *name, onnx_attr_type type, const onnx_attr **out, error *err) {
    *out = NULL;
    for (size_t i = 0; i < n->n_attrs; i++) {
        ir_attr *a = &n->attrs[i];
        if (strcmp(a->name, name) != 0) continue;
        a->asked = true;
        /* An empty list may have come as a list of anything. */
        bool empty = a->attr->n == 0 && type >= ONNX_ATTR_FLOATS && a->attr->type >= ONNX_ATTR_FLOATS;
        if (a->attr->type != type && !empty) {
            return op_error(n, err, CHURON_CORRUPT, "attribute '%s': expected %s, got %s", name,
                            type_name(type), type_name(a->attr->type));
        }
        *out = a->attr;
    }
    return CHURON_OK;
}

status op_attr_int(op_node *n, const char *name, int64_t absent, int64_t least, int64_t most, int64_t *out,
                   error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_INT, &a, err));
    *out = a ? a->i : absent;
    if (a && (a->i < least || a->i > most)) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute '%s': expected %" PRId64 " to %" PRId64 ", got %" PRId64, name, least,
                        most, a->i);
    }
    return CHURON_OK;
}

status op_attr_bool(op_node *n, const char *name, bool absent, bool *out, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_INT, &a, err));
    *out = a ? a->i != 0 : absent;
    return CHURON_OK;
}

status op_attr_float(op_node *n, const char *name, float absent, float *out, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_FLOAT, &a, err));
    *out = a ? a->f : absent;
    return CHURON_OK;
}

status op_attr_ints(op_node *n, const char *name, const int64_t **out, size_t *count, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_INTS, &a, err));
    *out = a ? a->ints : NULL;
    *count = a ? a->n : 0;
    return CHURON_OK;
}

status op_attr_floats(op_node *n, const char *name, const float **out, size_t *count, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_FLOATS, &a, err));
    *out = a ? a->floats : NULL;
    *count = a ? a->n : 0;
    return CHURON_OK;
}

/* Strings here are names: one with a zero inside is none. */
static status plain(const op_node *n, const char *name, const onnx_bytes *s, error *err) {
    if (memchr(s->data, 0, s->len)) {
        return op_error(n, err, CHURON_CORRUPT, "attribute '%s': expected text, got a zero byte in it", name);
    }
    return CHURON_OK;
}

status op_attr_string(op_node *n, const char *name, const char *absent, const char **out, error *err) {
    const onnx_attr *a;
    *out = absent;
    TRY(find(n, name, ONNX_ATTR_STRING, &a, err));
    if (a) {
        TRY(plain(n, name, &a->s, err));
        *out = a->s.data;
    }
    return CHURON_OK;
}

status op_attr_strings(op_node *n, const char *name, const onnx_bytes **out, size_t *count, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_STRINGS, &a, err));
    *out = a ? a->strings : NULL;
    *count = a ? a->n : 0;
    return CHURON_OK;
}

status op_attr_choice(op_node *n, const char *name, const char *const *choices, int absent, int *out,
                      error *err) {
    const char *got;
    TRY(op_attr_string(n, name, NULL, &got, err));
    *out = absent;
    if (!got) return CHURON_OK;
    str list = {0};
    for (int i = 0; choices[i]; i++) {
        if (strcmp(got, choices[i]) == 0) {
            *out = i;
            str_free(&list);
            return CHURON_OK;
        }
        str_fmt(&list, "%s%s", i ? ", " : "", choices[i]);
    }
    status st = op_error(n, err, CHURON_INVALID, "attribute '%s': expected one of %s, got '%.40s'", name,
                         str_cstr(&list), got);
    str_free(&list);
    return st;
}

status op_attr_tensor(op_node *n, const char *name, const tensor **out, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_TENSOR, &a, err));
    *out = a ? &a->tensors[0].contents : NULL;
    if (a && a->tensors[0].count > 0 && !a->tensors[0].contents.data) {
        return op_error(n, err, CHURON_UNSUPPORTED,
                        "attribute '%s': its data is outside the file and was not loaded", name);
    }
    return CHURON_OK;
}

status op_attr_type(op_node *n, const char *name, const onnx_type **out, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_TYPE, &a, err));
    *out = a ? a->types : NULL;
    return CHURON_OK;
}

bool op_attr_present(const op_node *n, const char *name) {
    return ir_find_attr(n, name) != NULL;
}

void op_attr_ignore(op_node *n, const char *name) {
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) n->attrs[i].asked = true;
    }
}

status op_attr_body(op_node *n, const char *name, size_t *out, error *err) {
    const onnx_attr *a;
    TRY(find(n, name, ONNX_ATTR_GRAPH, &a, err));
    if (!a) return op_error(n, err, CHURON_CORRUPT, "attribute '%s': expected a graph, got none", name);
    *out = ir_find_attr(n, name)->body;
    return CHURON_OK;
}
