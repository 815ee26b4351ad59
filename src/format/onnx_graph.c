/* onnx_graph.c: attributes, nodes, graphs, functions. Each message is gone over twice: once to count what its
 * lists hold, once to read it into arrays of that size. */
#include "format/onnx_read.h"

#include <inttypes.h>
#include <string.h>

const char *onnx_domain(const char *domain) {
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

status onnx_read_property(onnx_reader *r, wire m, onnx_property *out) {
    *out = (onnx_property){"", ""};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == 1) TRY(wire_string(r, &f, "key", &out->key));
        if (f.number == 2) TRY(wire_string(r, &f, "value", &out->value));
    }
    return CHURON_OK;
}

status onnx_read_opset(onnx_reader *r, wire m, onnx_opset *out) {
    *out = (onnx_opset){.domain = ""};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == 1) TRY(wire_string(r, &f, "domain", &out->domain));
        if (f.number == 2) TRY(wire_int(r, &f, "version", &out->version));
    }
    out->domain = onnx_domain(out->domain);
    if (out->version < 1 || out->version > INT32_MAX) {
        return onnx_fail(r, CHURON_CORRUPT, "version of domain '%s': expected 1 or more, got %" PRId64,
                         out->domain, out->version);
    }
    return CHURON_OK;
}

/* ---- attributes ------------------------------------------------------------------------------------- */

enum attr_field {
    A_NAME = 1,
    A_F = 2,
    A_I = 3,
    A_S = 4,
    A_T = 5,
    A_G = 6,
    A_FLOATS = 7,
    A_INTS = 8,
    A_STRINGS = 9,
    A_TENSORS = 10,
    A_GRAPHS = 11,
    A_TP = 14,
    A_TYPES = 15,
    A_TYPE = 20,
    A_REFERENCE = 21,
    A_SPARSE = 22,
    A_SPARSES = 23
};

static const struct {
    uint32_t field; /* that holds the value of this attribute type */
    const char *field_name, *type_name;
} values[] = {
    [ONNX_ATTR_FLOAT] = {A_F, "f", "FLOAT"},
    [ONNX_ATTR_INT] = {A_I, "i", "INT"},
    [ONNX_ATTR_STRING] = {A_S, "s", "STRING"},
    [ONNX_ATTR_TENSOR] = {A_T, "t", "TENSOR"},
    [ONNX_ATTR_GRAPH] = {A_G, "g", "GRAPH"},
    [ONNX_ATTR_FLOATS] = {A_FLOATS, "floats", "FLOATS"},
    [ONNX_ATTR_INTS] = {A_INTS, "ints", "INTS"},
    [ONNX_ATTR_STRINGS] = {A_STRINGS, "strings", "STRINGS"},
    [ONNX_ATTR_TENSORS] = {A_TENSORS, "tensors", "TENSORS"},
    [ONNX_ATTR_GRAPHS] = {A_GRAPHS, "graphs", "GRAPHS"},
    [ONNX_ATTR_SPARSE] = {A_SPARSE, "sparse_tensor", "SPARSE_TENSOR"},
    [ONNX_ATTR_SPARSES] = {A_SPARSES, "sparse_tensors", "SPARSE_TENSORS"},
    [ONNX_ATTR_TYPE] = {A_TP, "tp", "TYPE_PROTO"},
    [ONNX_ATTR_TYPES] = {A_TYPES, "type_protos", "TYPE_PROTOS"},
};

enum { N_ATTR_TYPES = sizeof values / sizeof values[0] };

static status read_attr_head(onnx_reader *r, wire m, onnx_attr *out) {
    int64_t type = 0;
    *out = (onnx_attr){.name = ""};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == A_NAME) TRY(wire_string(r, &f, "name", &out->name));
        if (f.number == A_REFERENCE) TRY(wire_string(r, &f, "ref_attr_name", &out->reference));
        if (f.number == A_TYPE) TRY(wire_int(r, &f, "type", &type));
    }
    if (type < 0 || type >= N_ATTR_TYPES) {
        return onnx_fail(r, CHURON_UNSUPPORTED, "type of attribute '%s': expected 1..%d, got %" PRId64,
                         out->name, N_ATTR_TYPES - 1, type);
    }
    if (!out->name[0]) return onnx_fail(r, CHURON_CORRUPT, "name: expected a name, got none");
    if (out->reference && !out->reference[0]) out->reference = NULL;
    out->type = (onnx_attr_type)type;
    return CHURON_OK;
}

/* The first versions of the format had no type: the one value that is there says it. */
static status settle_type(onnx_reader *r, onnx_attr *a, const size_t counts[WIRE_COUNTED]) {
    for (int t = 1; t < N_ATTR_TYPES; t++) {
        if (!counts[values[t].field]) continue;
        if (!a->type) a->type = (onnx_attr_type)t;
        if ((int)a->type != t) {
            return onnx_fail(r, CHURON_CORRUPT, "attribute '%s' of type %s: expected no field %s, got one",
                             a->name, values[a->type].type_name, values[t].field_name);
        }
    }
    if (a->type) return CHURON_OK;
    return a->reference ? CHURON_OK
                        : onnx_fail(r, CHURON_CORRUPT, "attribute '%s': expected a value, got none", a->name);
}

static status read_numbers(onnx_reader *r, wire m, onnx_attr *a) {
    if (a->type == ONNX_ATTR_FLOATS) {
        float *list = NULL;
        TRY(wire_list_count(r, m, A_FLOATS, 4, "floats", &a->n));
        TRY(onnx_take(r, a->n, sizeof *list, &list));
        TRY(wire_list_fixed(r, m, A_FLOATS, 4, list));
        a->floats = list;
    } else {
        int64_t *list = NULL;
        TRY(wire_list_count(r, m, A_INTS, 0, "ints", &a->n));
        TRY(onnx_take(r, a->n, sizeof *list, &list));
        TRY(wire_list_varints(r, m, A_INTS, "ints", ELEM_I64, list));
        a->ints = list;
    }
    return CHURON_OK;
}

static status copy_bytes(onnx_reader *r, const wire_field *f, const char *name, onnx_bytes *out) {
    wire b = {0};
    char *copy = NULL;
    TRY(wire_message(r, f, name, &b));
    size_t n = (size_t)(b.end - b.at);
    TRY(onnx_take(r, n + 1, 1, &copy));
    if (n) memcpy(copy, b.at, n);
    *out = (onnx_bytes){copy, n};
    return CHURON_OK;
}

static size_t item_size(onnx_attr_type type) {
    switch (type) {
    case ONNX_ATTR_STRINGS: return sizeof(onnx_bytes);
    case ONNX_ATTR_TENSOR:
    case ONNX_ATTR_TENSORS: return sizeof(onnx_tensor);
    case ONNX_ATTR_GRAPH:
    case ONNX_ATTR_GRAPHS: return sizeof(onnx_graph *);
    case ONNX_ATTR_SPARSE:
    case ONNX_ATTR_SPARSES: return sizeof(onnx_sparse);
    default: return sizeof(onnx_type);
    }
}

static status read_item(onnx_reader *r, const wire_field *f, const onnx_attr *a, void *items, size_t i) {
    const char *name = values[a->type].field_name;
    bool single = a->type == ONNX_ATTR_TENSOR || a->type == ONNX_ATTR_GRAPH || a->type == ONNX_ATTR_SPARSE ||
                  a->type == ONNX_ATTR_TYPE;
    size_t index = single ? SIZE_MAX : i;
    switch (a->type) {
    case ONNX_ATTR_STRINGS: return copy_bytes(r, f, name, (onnx_bytes *)items + i);
    case ONNX_ATTR_TENSOR:
    case ONNX_ATTR_TENSORS: ONNX_INSIDE(r, f, name, index, onnx_read_tensor, (onnx_tensor *)items + i); break;
    case ONNX_ATTR_GRAPH:
    case ONNX_ATTR_GRAPHS: {
        onnx_graph *g = NULL;
        TRY(onnx_take(r, 1, sizeof *g, &g));
        ((onnx_graph **)items)[i] = g;
        ONNX_INSIDE(r, f, name, index, onnx_read_graph, g);
        break;
    }
    case ONNX_ATTR_SPARSE:
    case ONNX_ATTR_SPARSES: ONNX_INSIDE(r, f, name, index, onnx_read_sparse, (onnx_sparse *)items + i); break;
    default: ONNX_INSIDE(r, f, name, index, onnx_read_type, (onnx_type *)items + i); break;
    }
    return CHURON_OK;
}

static status read_items(onnx_reader *r, wire m, onnx_attr *a, size_t n) {
    bool single = a->type == ONNX_ATTR_TENSOR || a->type == ONNX_ATTR_GRAPH || a->type == ONNX_ATTR_SPARSE ||
                  a->type == ONNX_ATTR_TYPE;
    if (single && n != 1) {
        return onnx_fail(r, CHURON_CORRUPT,
                         "attribute '%s' of type %s: expected field %s once, got it %zu times", a->name,
                         values[a->type].type_name, values[a->type].field_name, n);
    }
    void *items = NULL;
    TRY(onnx_take(r, n, item_size(a->type), &items));
    size_t i = 0;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == values[a->type].field) TRY(read_item(r, &f, a, items, i++));
    }
    a->n = n;
    a->strings = items; /* every list of the union is a pointer at the same place */
    return CHURON_OK;
}

/* The last occurrence counts; none is the schema's default. */
static status read_scalar(onnx_reader *r, wire m, onnx_attr *a) {
    a->n = 1;
    if (a->type == ONNX_ATTR_STRING) a->s = (onnx_bytes){"", 0};
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != values[a->type].field) continue;
        if (a->type == ONNX_ATTR_FLOAT) TRY(wire_float(r, &f, "f", &a->f));
        if (a->type == ONNX_ATTR_INT) TRY(wire_int(r, &f, "i", &a->i));
        if (a->type == ONNX_ATTR_STRING) TRY(copy_bytes(r, &f, "s", &a->s));
    }
    return CHURON_OK;
}

status onnx_read_attribute(onnx_reader *r, wire m, onnx_attr *out) {
    size_t counts[WIRE_COUNTED];
    TRY(wire_count(r, m, counts));
    TRY(read_attr_head(r, m, out));
    TRY(settle_type(r, out, counts));
    if (out->reference) return CHURON_OK;
    switch (out->type) {
    case ONNX_ATTR_FLOAT:
    case ONNX_ATTR_INT:
    case ONNX_ATTR_STRING: return read_scalar(r, m, out);
    case ONNX_ATTR_FLOATS:
    case ONNX_ATTR_INTS: return read_numbers(r, m, out);
    default: return read_items(r, m, out, counts[values[out->type].field]);
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static status take_names(onnx_reader *r, size_t n, const char ***out) {
    return onnx_take(r, n, sizeof **out, out);
}

status onnx_read_node(onnx_reader *r, wire m, onnx_node *out) {
    enum { INPUT = 1, OUTPUT = 2, NAME = 3, OP = 4, ATTRIBUTE = 5, DOMAIN = 7, OVERLOAD = 8 };
    size_t counts[WIRE_COUNTED], n_in = 0, n_out = 0, n_attr = 0;
    TRY(wire_count(r, m, counts));
    *out = (onnx_node){.op = "", .domain = "", .name = "", .overload = ""};
    const char **inputs = NULL, **outputs = NULL;
    onnx_attr *attrs = NULL;
    TRY(take_names(r, counts[INPUT], &inputs));
    TRY(take_names(r, counts[OUTPUT], &outputs));
    TRY(onnx_take(r, counts[ATTRIBUTE], sizeof *attrs, &attrs));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        switch (f.number) {
        case INPUT: TRY(wire_string(r, &f, "input", &inputs[n_in++])); break;
        case OUTPUT: TRY(wire_string(r, &f, "output", &outputs[n_out++])); break;
        case NAME: TRY(wire_string(r, &f, "name", &out->name)); break;
        case OP: TRY(wire_string(r, &f, "op_type", &out->op)); break;
        case DOMAIN: TRY(wire_string(r, &f, "domain", &out->domain)); break;
        case OVERLOAD: TRY(wire_string(r, &f, "overload", &out->overload)); break;
        case ATTRIBUTE:
            ONNX_INSIDE(r, &f, "attribute", n_attr, onnx_read_attribute, &attrs[n_attr]);
            n_attr++;
            break;
        default: break;
        }
    }
    if (!out->op[0]) return onnx_fail(r, CHURON_CORRUPT, "op_type: expected a name, got none");
    out->domain = onnx_domain(out->domain);
    out->inputs = inputs;
    out->outputs = outputs;
    out->attrs = attrs;
    out->n_inputs = n_in;
    out->n_outputs = n_out;
    out->n_attrs = n_attr;
    return CHURON_OK;
}

/* ---- graphs ----------------------------------------------------------------------------------------- */

typedef struct graph_lists {
    onnx_node *nodes;
    onnx_value_info *inputs, *outputs, *values;
    onnx_tensor *initializers;
    onnx_sparse *sparse;
} graph_lists;

enum graph_field {
    G_NODE = 1,
    G_NAME = 2,
    G_INITIALIZER = 5,
    G_INPUT = 11,
    G_OUTPUT = 12,
    G_VALUE = 13,
    G_SPARSE = 15
};

static status read_graph_field(onnx_reader *r, const wire_field *f, onnx_graph *g, graph_lists *l) {
    switch (f->number) {
    case G_NODE:
        ONNX_INSIDE(r, f, "node", g->n_nodes, onnx_read_node, &l->nodes[g->n_nodes]);
        g->n_nodes++;
        break;
    case G_NAME: return wire_string(r, f, "name", &g->name);
    case G_INITIALIZER:
        ONNX_INSIDE(r, f, "initializer", g->n_initializers, onnx_read_tensor,
                    &l->initializers[g->n_initializers]);
        g->n_initializers++;
        break;
    case G_INPUT:
        ONNX_INSIDE(r, f, "input", g->n_inputs, onnx_read_value_info, &l->inputs[g->n_inputs]);
        g->n_inputs++;
        break;
    case G_OUTPUT:
        ONNX_INSIDE(r, f, "output", g->n_outputs, onnx_read_value_info, &l->outputs[g->n_outputs]);
        g->n_outputs++;
        break;
    case G_VALUE:
        ONNX_INSIDE(r, f, "value_info", g->n_values, onnx_read_value_info, &l->values[g->n_values]);
        g->n_values++;
        break;
    case G_SPARSE:
        ONNX_INSIDE(r, f, "sparse_initializer", g->n_sparse, onnx_read_sparse, &l->sparse[g->n_sparse]);
        g->n_sparse++;
        break;
    default: break;
    }
    return CHURON_OK;
}

status onnx_read_graph(onnx_reader *r, wire m, onnx_graph *out) {
    size_t counts[WIRE_COUNTED];
    graph_lists l = {0};
    *out = (onnx_graph){.name = ""};
    TRY(wire_count(r, m, counts));
    TRY(onnx_take(r, counts[G_NODE], sizeof *l.nodes, &l.nodes));
    TRY(onnx_take(r, counts[G_INITIALIZER], sizeof *l.initializers, &l.initializers));
    TRY(onnx_take(r, counts[G_INPUT], sizeof *l.inputs, &l.inputs));
    TRY(onnx_take(r, counts[G_OUTPUT], sizeof *l.outputs, &l.outputs));
    TRY(onnx_take(r, counts[G_VALUE], sizeof *l.values, &l.values));
    TRY(onnx_take(r, counts[G_SPARSE], sizeof *l.sparse, &l.sparse));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        TRY(read_graph_field(r, &f, out, &l));
    }
    out->nodes = l.nodes;
    out->inputs = l.inputs;
    out->outputs = l.outputs;
    out->values = l.values;
    out->initializers = l.initializers;
    out->sparse_initializers = l.sparse;
    return CHURON_OK;
}

/* ---- functions -------------------------------------------------------------------------------------- */

typedef struct function_lists {
    const char **inputs, **outputs, **attributes;
    onnx_attr *defaults;
    onnx_node *nodes;
    onnx_opset *opsets;
} function_lists;

enum function_field {
    F_NAME = 1,
    F_INPUT = 4,
    F_OUTPUT = 5,
    F_ATTRIBUTE = 6,
    F_NODE = 7,
    F_OPSET = 9,
    F_DOMAIN = 10,
    F_DEFAULT = 11,
    F_OVERLOAD = 13
};

static status read_function_field(onnx_reader *r, const wire_field *f, onnx_function *fn, function_lists *l) {
    switch (f->number) {
    case F_NAME: return wire_string(r, f, "name", &fn->name);
    case F_DOMAIN: return wire_string(r, f, "domain", &fn->domain);
    case F_OVERLOAD: return wire_string(r, f, "overload", &fn->overload);
    case F_INPUT: return wire_string(r, f, "input", &l->inputs[fn->n_inputs++]);
    case F_OUTPUT: return wire_string(r, f, "output", &l->outputs[fn->n_outputs++]);
    case F_ATTRIBUTE: return wire_string(r, f, "attribute", &l->attributes[fn->n_attributes++]);
    case F_NODE:
        ONNX_INSIDE(r, f, "node", fn->n_nodes, onnx_read_node, &l->nodes[fn->n_nodes]);
        fn->n_nodes++;
        break;
    case F_OPSET:
        ONNX_INSIDE(r, f, "opset_import", fn->n_opsets, onnx_read_opset, &l->opsets[fn->n_opsets]);
        fn->n_opsets++;
        break;
    case F_DEFAULT:
        ONNX_INSIDE(r, f, "attribute_proto", fn->n_defaults, onnx_read_attribute,
                    &l->defaults[fn->n_defaults]);
        fn->n_defaults++;
        break;
    default: break;
    }
    return CHURON_OK;
}

status onnx_read_function(onnx_reader *r, wire m, onnx_function *out) {
    size_t counts[WIRE_COUNTED];
    function_lists l = {0};
    *out = (onnx_function){.name = "", .domain = "", .overload = ""};
    TRY(wire_count(r, m, counts));
    TRY(take_names(r, counts[F_INPUT], &l.inputs));
    TRY(take_names(r, counts[F_OUTPUT], &l.outputs));
    TRY(take_names(r, counts[F_ATTRIBUTE], &l.attributes));
    TRY(onnx_take(r, counts[F_NODE], sizeof *l.nodes, &l.nodes));
    TRY(onnx_take(r, counts[F_OPSET], sizeof *l.opsets, &l.opsets));
    TRY(onnx_take(r, counts[F_DEFAULT], sizeof *l.defaults, &l.defaults));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        TRY(read_function_field(r, &f, out, &l));
    }
    if (!out->name[0]) return onnx_fail(r, CHURON_CORRUPT, "name: expected a name, got none");
    out->domain = onnx_domain(out->domain);
    out->inputs = l.inputs;
    out->outputs = l.outputs;
    out->attributes = l.attributes;
    out->defaults = l.defaults;
    out->nodes = l.nodes;
    out->opsets = l.opsets;
    return CHURON_OK;
}
