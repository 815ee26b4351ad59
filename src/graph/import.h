/* import.h: between the files of the importer. */
#ifndef GRAPH_IMPORT_H
#define GRAPH_IMPORT_H

#include "graph/ir.h"

typedef struct scope scope;

/* An attribute of a call, for the references inside the function. A graph among them sees the caller's names.
 */
typedef struct call_attr {
    const char *name;
    const onnx_attr *attr;
    scope *where;
} call_attr;

typedef struct call {
    const struct call *outer; /* the call that this one stands in */
    const onnx_function *function;
    const call_attr *attrs;
    size_t n_attrs;
} call;

struct scope {
    scope *parent; /* NULL: nothing outside is seen */
    ir_graph *graph;
    names values;       /* name: ir_value */
    const call *call;   /* NULL outside functions */
    const char *prefix; /* of node names; "" outside functions */
    const onnx_opset *opsets;
    size_t n_opsets;
    size_t depth; /* of bodies and calls */
};

typedef struct importer {
    ir_program *program;
    const onnx_model *model;
    names functions;  /* key of function_key: onnx_function */
    size_t n_missing; /* nodes whose operator is not in the table */
} importer;

/* What messages call a node: its name, else its first output's, else its operator's. */
static inline const char *import_shown(const onnx_node *node) {
    const char *name = node->name;
    for (size_t i = 0; !name[0] && i < node->n_outputs; i++) name = node->outputs[i];
    return name[0] ? name : node->op;
}

/* import_graph.c */
MUST_USE status import_graph(importer *im, const onnx_graph *source, scope *s, error *err);
/* A body of a node of `parent`; names that it does not define itself are looked up in `outer`. */
MUST_USE status import_body(importer *im, const onnx_graph *source, scope *outer, ir_graph *parent,
                            ir_graph **out, error *err);
/* Declares the outputs of nodes, then imports them. */
MUST_USE status import_nodes(importer *im, const onnx_node *nodes, size_t n, scope *s, error *err);
/* The value of a name as the scope's graph sees it (through captures); *out NULL: there is none. */
MUST_USE status import_lookup(scope *s, const char *name, ir_value **out, error *err);

/* import_node.c */
MUST_USE status import_node(importer *im, const onnx_node *node, scope *s, error *err);
/* import_function.c */
/* *out NULL: the node is none of a function. */
MUST_USE status import_find_function(const importer *im, const onnx_node *node, const onnx_function **out,
                                     error *err);
/* An input of the function (that a call may leave out, so that nothing makes it). c may be NULL. */
bool import_is_formal(const call *c, const char *name);
MUST_USE status import_call(importer *im, const onnx_node *node, const onnx_function *f, scope *s,
                            error *err);
/* The attributes of a node with references resolved; absent ones are left out. */
MUST_USE status import_attrs(importer *im, const onnx_node *node, scope *s, call_attr **out, size_t *n,
                             error *err);

/* import_count.c: CHURON_LIMIT if the model has more than IR_MAX_NODES nodes with its functions inlined. */
MUST_USE status import_count(const importer *im, error *err);

#endif
