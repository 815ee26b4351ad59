/* exec.h: what one run at a time needs, from the inside.
 *
 * A frame holds the values of one graph by slot; the main graph and every body have one each, since a body is
 * never active twice at once. Values leave their slot after the node that reads them last. What a run holds
 * is counted, and checked against the limit before it is asked for. Owner: the session's thread. */
#ifndef GRAPH_EXEC_H
#define GRAPH_EXEC_H

#include "graph/ir.h"

enum exec_reuse { REUSE_0 = 1, REUSE_1 = 2 }; /* input 0 or 1 is not read after this node */

typedef struct exec_step {
    const op_node *node;
    int32_t *in, *out; /* slots; IR_NO_SLOT where absent */
    uint32_t n_in, n_out;
    int32_t *frees; /* [n_frees]: slots that nobody reads after this node */
    uint32_t n_frees;
    uint32_t reuse; /* exec_reuse */
} exec_step;

typedef struct exec_frame {
    value *slots;      /* [n_values]; constants are always there */
    size_t *charged;   /* [n_values]: bytes counted for what is in the slot */
    shape_out *shapes; /* [most outputs of a node] */
} exec_frame;

typedef struct exec_chunk exec_chunk;

typedef struct exec {
    pool *pool;
    const kernels *kernels;
    exec_frame *frames; /* [n_graphs] */
    size_t n_frames;
    exec_chunk *scratch;        /* newest first */
    uint64_t live, peak, limit; /* bytes that the run holds */
    const graph_run_options *options;
    stop_flag *stop; /* NULL: the run has no end set */
    /* bucket.h */
    struct bucket *buckets; /* [BUCKET_MOST], or NULL */
    struct bucket *entered; /* whose presets are in the main frame */
    struct bucket *watched; /* whose second run this is */
    int64_t *key;
    size_t n_main_values;
    uint64_t clock;
    /* Of the main graph, when the caller does not want every output: */
    bool *wanted; /* [n_outputs]: what `idle` was found for */
    bool *idle;   /* [n_nodes]: only outputs that nobody wants need it; NULL: no such list yet */
    bool skips;   /* this run passes idle nodes over */
} exec;

struct op_run {
    exec *x;
    const op_node *node;
    const exec_step *step;
    exec_frame *frame;
    op_shapes shapes;
    const value *fixed; /* shapes by slot that need no inference; or NULL */
    uint64_t by_infer;  /* outputs whose shape the shape rule gave, bit by output */
    bool inferred;
};

/* All its outputs are constants that were computed when the graph was loaded: it does not run. */
bool exec_step_is_constant(const exec_step *s);
/* Steps of every graph: slots, last uses. After the last change to the program. */
MUST_USE status exec_plan(ir_program *p, error *err);
MUST_USE status exec_init(exec *x, ir_program *p, size_t threads, uint64_t limit, error *err);
void exec_free(exec *x, const ir_program *p);
/* Runs the nodes of g over its frame, whose inputs are set. On failure the frame is cleared. */
MUST_USE status exec_graph(exec *x, const ir_graph *g, error *err);
void exec_clear(exec *x, const ir_graph *g);
/* Puts v (its reference is taken over) into a slot and counts it. */
void exec_set(exec *x, exec_frame *f, int32_t slot, value v);
/* Which nodes of the main graph the next run may leave out; wanted [n_outputs], NULL: none. */
MUST_USE status exec_choose(exec *x, const ir_graph *g, const bool *wanted, error *err);
/* Computes one node whose inputs are all constant; outputs [n_outputs] are the caller's to free. What has no
 * storage lives as long as the program. */
MUST_USE status exec_constant_node(exec *x, op_node *n, tensor *outputs, error *err);
/* Of a tensor of its own, or an item of a list, beside its elements. */
enum { EXEC_ITEM_BYTES = 256 };
/* Counts bytes that an operator holds itself; given back with exec_uncharge. CHURON_LIMIT if too many. */
MUST_USE status exec_charge(const op_run *r, uint64_t bytes, error *err);
void exec_uncharge(const op_run *r, uint64_t bytes);

/* Scratch memory is a stack. */
typedef struct exec_mark {
    exec_chunk *chunk;
    size_t used;
} exec_mark;
void *exec_scratch(exec *x, size_t bytes); /* 64-byte aligned; NULL: no memory */
exec_mark exec_scratch_mark(const exec *x);
void exec_scratch_release(exec *x, exec_mark m);

#endif
