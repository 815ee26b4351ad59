/* rewrite.h: what passes share: who reads a value, new values and nodes, replacing and removing.
 *
 * A sweep over one graph: rewrite_begin lists the readers, the pass looks and changes, rewrite_end takes
 * removed nodes out and follows replaced values. Readers are not kept up to date within a sweep; a pass that
 * builds on its own changes sweeps again. Names, ports and graph outputs stay: a node that takes the place of
 * others writes into the last one's value. Owner: the thread that loads. */
#ifndef GRAPH_PASSES_REWRITE_H
#define GRAPH_PASSES_REWRITE_H

#include "graph/exec.h"

typedef struct rewriter {
    ir_program *program;
    exec *x;         /* computes constants */
    ir_graph *g;     /* of the sweep */
    size_t n_values; /* when the sweep began */
    uint32_t *first; /* [n_values + 1]: readers of slot s are readers[first[s] .. first[s+1]) */
    op_node **readers;
    ir_value **forward; /* [n_values]: what replaces the value, or NULL */
    op_node **fresh;    /* [2 * nodes + 2]: lists of new nodes in front of and behind each */
    size_t n_fresh;
    bool *taken; /* [n_values]: a new node of the sweep reads the value */
    size_t changes;
    bool winograd; /* the pass of this name has run: blocked-layout may pack weights for it */
} rewriter;

MUST_USE status rewrite_begin(rewriter *w, ir_graph *g, error *err);
void rewrite_end(rewriter *w);
void rewrite_abandon(rewriter *w); /* instead of rewrite_end, after an error */

/* A sweep over every graph of the program, outer ones before their bodies. */
MUST_USE status rewrite_each(rewriter *w, status (*sweep)(rewriter *w, error *err), error *err);

/* Reads of v by nodes and captures; a graph output counts as one more. */
size_t rewrite_n_uses(const rewriter *w, const ir_value *v);
/* The one node that reads v, if it is read once and is no output; else NULL. */
op_node *rewrite_only_reader(const rewriter *w, const ir_value *v);
/* From the end of the sweep on everybody reads `to` instead. `from` is no graph output. */
void rewrite_replace(rewriter *w, ir_value *from, ir_value *to);
/* Takes the node out at the end of the sweep. Its outputs must be unread by then, or written by another. */
void rewrite_remove(rewriter *w, op_node *n);
bool rewrite_removed(const op_node *n);

/* Is it a node of this operator of ai.onnx (or the domain), with its outputs read as tensors? */
bool node_is(const op_node *n, const char *op);
bool node_is_of(const op_node *n, const char *domain, const char *op);
/* Attribute of a node as a number; `absent` if it is not there. */
int64_t node_int(const op_node *n, const char *name, int64_t absent);
float node_float(const op_node *n, const char *name, float absent);
/* Its list; absent: NULL, 0. */
const int64_t *node_ints(const op_node *n, const char *name, size_t *count);
/* Input i as a constant f32 tensor, or NULL. */
const tensor *node_f32_constant(const op_node *n, size_t i);
/* The one f32 value of a constant of one element; false if it is none. */
bool value_scalar(const ir_value *v, float *out);
/* Input i is there, and every dimension and the rank are known numbers. */
bool value_known_shape(const ir_value *v);
bool value_is_f32(const ir_value *v);
bool value_same_shape(const ir_value *a, const ir_value *b); /* known to be equal, symbols included */

/* ---- patterns: nodes that together compute what one node can ---------------------------------------- */

enum { PATTERN_MOST = 24 };

typedef struct pattern {
    const rewriter *w;
    op_node *nodes[PATTERN_MOST];
    size_t n;
} pattern;

/* The node that makes v, if it is this operator of ai.onnx; it joins the pattern. NULL: it is not, or v is
 * constant, or the pattern is full. A matcher that tries another way sets n back. */
op_node *pattern_maker(pattern *p, const ir_value *v, const char *op);
op_node *pattern_maker_of(pattern *p, const ir_value *v, const char *domain, const char *op);
/* Nobody outside reads what its nodes make, but for the outputs of `last`, which is in it. */
bool pattern_is_closed(const pattern *p, const op_node *last);
void pattern_remove(rewriter *w, const pattern *p);
/* n is `op` of two inputs, one of them a scalar f32 constant (the second one where `op` does not commute);
 * gives the other one. NULL: no. */
ir_value *node_with_scalar(const op_node *n, const char *op, float *scalar);
/* The other input of a node of two, one of which is v. NULL: v is none. */
ir_value *node_other_input(const op_node *n, const ir_value *v);
/* Axes as a reduction says them: the attribute or, in newer versions, a constant second input; else NULL. */
const int64_t *node_said_axes(const op_node *n, size_t *count);
/* Axes of a reduction of its input's known rank that keeps dimensions: the only one, or `count` last ones.
 * false: others, or none said. */
bool node_reduced_axes(const op_node *n, size_t *first, size_t *count);

/* Limits, or else a kernel function of one f32 element. */
typedef struct node_function {
    bool limits; /* else `f` */
    float low, high;
    kernel_unary f;
    float p, q;
} node_function;
bool node_reads_function(const op_node *n, node_function *out); /* false: it is no such operator */

/* A new constant; takes over the reference of t. */
MUST_USE status rewrite_constant(rewriter *w, const char *name, tensor t, ir_value **out, error *err);
/* A new value of a type and shape that a new node will write; its name is `name` and a mark. */
MUST_USE status rewrite_value(rewriter *w, const char *name, elem type, size_t rank, const dim *dims,
                              ir_value **out, error *err);
/* A node of our own table, standing right before `at` (or behind it), which may be new itself; state is the
 * node's (its row releases it, also on failure). Sets the outputs' producer. The node is in nodes[] from the
 * next sweep on. */
MUST_USE status rewrite_insert(rewriter *w, op_node *at, const op_def *def, const char *name,
                               ir_value *const *inputs, size_t n_inputs, ir_value *const *outputs,
                               size_t n_outputs, void *state, op_node **out, error *err);
MUST_USE status rewrite_insert_behind(rewriter *w, op_node *at, const op_def *def, const char *name,
                                      ir_value *const *inputs, size_t n_inputs, ir_value *const *outputs,
                                      size_t n_outputs, void *state, op_node **out, error *err);
/* A node of the operator table (the row for `version`), with attributes that its row reads; before `at`. */
typedef struct node_attr {
    const char *name;
    bool is_float;
    float f;
    int64_t i;
    const int64_t *ints; /* [n_ints], copied; NULL: one number */
    size_t n_ints;
} node_attr;
MUST_USE status rewrite_operator(rewriter *w, op_node *at, const char *domain, const char *op,
                                 int64_t version, const node_attr *attrs, size_t n_attrs,
                                 ir_value *const *inputs, size_t n_inputs, ir_value *const *outputs,
                                 size_t n_outputs, error *err);
/* The same with the attributes of a node. */
MUST_USE status rewrite_operator_like(rewriter *w, op_node *at, const op_node *like, const char *domain,
                                      const char *op, int64_t version, ir_value *const *inputs,
                                      size_t n_inputs, ir_value *const *outputs, size_t n_outputs,
                                      error *err);
/* Gives a node other inputs. */
MUST_USE status rewrite_inputs(op_node *n, ir_value *const *inputs, size_t n_inputs, error *err);

#endif
