/* ir.h: a loaded model from the inside: values, nodes, and graphs whose control flow has bodies.
 *
 * Everything lives in the program's arena and is immutable once graph_open has returned. A value belongs to
 * one graph and has a slot (its place in a frame when the graph runs). Nodes stand in an order in which every
 * value is made before it is read. A body sees outer values through its captures only: `outer` belongs to the
 * graph around it, `inner` to the body. Functions of the model are gone: their nodes stand where they were
 * called. */
#ifndef GRAPH_IR_H
#define GRAPH_IR_H

#include "base/arena.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "graph/symbols.h"

typedef struct ir_value ir_value;
typedef struct ir_graph ir_graph;
typedef struct ir_program ir_program;

enum {
    IR_MAX_NODES = 1000 * 1000, /* after functions were inlined, bodies counted too */
    IR_MAX_DEPTH = 64,          /* of bodies in bodies, and of functions in functions */
    IR_NO_SLOT = -1
};

struct ir_value {
    const char *name;
    onnx_type type; /* kind, element type, type of items. A tensor's shape is in has_rank, rank, dims */
    bool has_rank;
    uint32_t rank;
    const dim *dims;  /* [rank]; may be symbols */
    bool is_constant; /* then `constant` borrows from the model or from the program's constants */
    tensor constant;
    const op_factors
        *factors; /* its elements are those of `constant` times these; NULL: they are what they are */
    const dim
        *known; /* [n_known]: elements of a small integer tensor, as far as inference has them; or NULL */
    size_t n_known;
    op_node *producer; /* NULL: input, constant or capture */
    ir_graph *graph;
    uint32_t slot;
    uint32_t readers; /* nodes that read it, once the graph is planned */
    bool is_output;   /* of its graph */
    bool poisoned;    /* its node has a fault: nothing is said about what follows from it */
};

typedef struct ir_attr {
    const char *name;
    const onnx_attr *attr; /* references of functions resolved */
    size_t body;           /* GRAPH: number of the body */
    bool asked;            /* by prepare */
} ir_attr;

typedef struct ir_capture {
    ir_value *outer, *inner;
} ir_capture;

struct op_node {
    const op_def *def; /* NULL: missing from the table */
    const char *name, *op, *domain;
    int64_t version;
    ir_graph *graph;
    ir_value **inputs, **outputs; /* NULL where absent */
    size_t n_inputs, n_outputs;
    ir_attr *attrs;
    size_t n_attrs;
    ir_graph **bodies;
    size_t n_bodies;
    void *state;
    const op_packing *packing; /* or NULL */
    const ir_value *borrowed;  /* constant that the state reads beside the inputs, for good; or NULL */
    bool prepared;
    uint32_t index; /* in the order */
    uint8_t mark;   /* of the ordering */
    op_node *next;  /* among the new nodes of a sweep (passes/rewrite.h) */
};

struct ir_graph {
    ir_program *program;
    ir_graph *parent; /* NULL: the main graph */
    const char *name;
    size_t number; /* in the program */
    ir_value **inputs, **outputs;
    size_t n_inputs, n_outputs;
    ir_capture *captures;
    size_t n_captures, cap_captures;
    op_node **nodes;
    size_t n_nodes, cap_nodes;
    ir_value **values; /* by slot */
    size_t n_values, cap_values;
    const onnx_graph *source;
    struct exec_step *steps; /* [n_nodes]; see exec.h */
};

struct ir_program {
    arena memory;
    symbols symbols;
    onnx_model *model; /* borrowed; its elements may go once they are packed. NULL: they stay */
    ir_graph *main;
    ir_graph **graphs; /* all of them, main first */
    size_t n_graphs, cap_graphs;
    bool seeded; /* graph_options.seeded */
    uint64_t seed;
    tensor *constants; /* that were computed or converted here */
    size_t n_constants, cap_constants;
    str faults; /* "; " between them */
    size_t n_faults;
    struct weights_block *weights; /* memory of packed weights, see weights.h */
    struct inference *inference;   /* while types and shapes are inferred */
    stop_flag *stop;               /* of the loading; NULL: no end is set, or it is loaded */
};

/* ---- building (import.c, order.c, infer.c) ---------------------------------------------------------- */

/* Names, functions, constants, operator rows. Faults are collected; the status is the first hard one or what
 * ir_check_faults says. */
MUST_USE status ir_import(ir_program *p, const onnx_model *m, error *err);
/* Puts the nodes of every graph in order; cycles are an error that names a node of each. */
MUST_USE status ir_order(ir_program *p, error *err);
/* Types, attributes and shapes of every node; nodes are prepared. */
MUST_USE status ir_infer(ir_program *p, error *err);
void ir_release(ir_program *p);

/* Adds a fault to the list that is reported at the end of a phase. */
void ir_fault(ir_program *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
void ir_fault_of(ir_program *p, const error *e);
MUST_USE status ir_check_faults(ir_program *p, status code, error *err);
/* Whether the loading should end; names the node. */
MUST_USE status ir_check_stop(const op_node *n, error *err);

/* Refuses indices outside the shape. */
MUST_USE status ir_sparse_to_dense(const onnx_sparse *sp, tensor *out, error *err);
ir_value *ir_value_new(ir_graph *g, const char *name); /* NULL: no memory */
/* Keeps a tensor that was made here until the program goes; takes over the reference, also on failure. */
MUST_USE status ir_keep_constant(ir_program *p, tensor t, tensor *kept, error *err);
MUST_USE status ir_value_set_constant(ir_value *v, tensor constant, error *err); /* with its shape */
/* Shape from a type of the file: names become symbols; anonymous dimensions are new ones. */
MUST_USE status ir_value_set_type(ir_value *v, const onnx_type *t, error *err);
MUST_USE status ir_value_set_shape(ir_value *v, size_t rank, const dim *dims, error *err);
/* Copies kind, types and shape (and what is known of the elements) from another value. */
void ir_value_copy_type(ir_value *v, const ir_value *from);
MUST_USE status ir_no_memory(error *err);
/* The type with its shape as the file's form has it: for ports and for value types of operators. */
MUST_USE status ir_value_type(ir_value *v, onnx_type *out, error *err);

/* For operators with bodies: infers body `body` with these formal inputs' types (NULL: what the body itself
 * declares). Its outputs are ir_values of bodies[body]. */
MUST_USE status ir_infer_body(op_shapes *s, size_t body, ir_value *const *inputs, size_t n, error *err);

const ir_attr *ir_find_attr(const op_node *n, const char *name);

/* ---- shape inference from the inside ---------------------------------------------------------------- */

typedef enum shape_state { SHAPE_UNSET, SHAPE_UNKNOWN, SHAPE_PARTIAL, SHAPE_KNOWN } shape_state;

typedef struct shape_out {
    shape_state state; /* PARTIAL: has symbols */
    uint32_t rank;
    dim dims[TENSOR_MAX_RANK];
    elem type; /* NONE: not set */
    const onnx_type *value_type;
    const dim *values;
    size_t n_values;
} shape_out;

struct exec;

struct op_shapes {
    const op_node *node;
    ir_program *program;
    struct exec *exec; /* running: whose scratch memory is used; else NULL */
    value *slots;      /* running: the frame */
    const int32_t *in; /* running: slots of the inputs, IR_NO_SLOT where absent */
    shape_out *out;    /* [n_outputs] */
    uint64_t reads;    /* running: inputs whose elements were looked at, bit by input */
    bool out_of_memory;
    bool inexact; /* a number was changed to be a dim: values that come of it are not those of the run */
};

#endif
