/* bucket.h: what is known of a run when the shapes of its inputs are: sizes, places in one arena, values that
 * depend on shapes alone.
 *
 * The second run with the same shapes is watched: which shapes followed from the inputs' shapes (and not from
 * data), what shared memory with what, when each value was read last. From that, one arena is laid out; later
 * runs find outputs of such nodes in their slots before they start, skip shape inference, and skip nodes
 * whose values follow from shapes. What depends on data is done as without a bucket. Only the main graph is
 * planned. A session keeps a few buckets, the least recently used one goes, with its pages. Owner: the
 * session. */
#ifndef GRAPH_BUCKET_H
#define GRAPH_BUCKET_H

#include "graph/exec.h"

enum { BUCKET_MOST = 8, BUCKET_MOST_NODES = 20000, BUCKET_SMALL = 4096 };

/* What a watched run notes of a slot. */
typedef struct bucket_note {
    bool written, shape_fixed, value_fixed;
    bool by_infer;  /* its memory came from run_out or a view: shape by the shape rule */
    int32_t parent; /* the slot of the node's input whose memory it is in; -1: its own */
    int32_t root;   /* where that ends; itself if its own. Found when the run is over */
    bool over;      /* written over its parent: could have memory of its own */
    bool given;     /* it, or a view of it, goes to the caller */
    int64_t first, last;
    elem type;
    uint32_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    const char *data;
    size_t bytes;
    value kept; /* value_fixed: a copy */
} bucket_note;

typedef struct bucket_step {
    const exec_step *step;
    bool fast; /* shapes of its outputs are in `fixed`, memory in their slots unless it is the caller's */
    int32_t *frees; /* [n_frees]: slots that are not preset */
    uint32_t n_frees;
} bucket_step;

typedef struct bucket {
    int64_t *key; /* [n_key] */
    size_t n_key;
    uint64_t used; /* time of last use */
    bool planned, hopeless;
    bucket_note *notes; /* [n_values] while watched */
    value *preset;      /* [n_values]: borrowed tensors that lie in their slots; NONE: others */
    value *fixed;       /* [n_values]: shapes of outputs that the caller owns */
    int32_t *roots;     /* [n_values] */
    bucket_step *steps; /* [n_steps]: those that run */
    size_t n_steps;
    arena memory;
    tensor *kept; /* [n_kept] values that follow from shapes */
    size_t n_kept;
    char *pages;
    size_t n_pages;
} bucket;

/* The bucket of these inputs, a new one if there is none; NULL: they have no key, or no memory. Sets *watch
 * if this run is to be watched. */
bucket *bucket_find(exec *x, const ir_graph *g, const value *inputs, bool *watch);
/* Notes what a step did. After its run, before its values are freed. */
void bucket_note_step(exec *x, const ir_graph *g, const op_run *r, size_t index);
/* After a watched run: lays out the arena if it went well. Without memory for it, runs go on as before. */
void bucket_end(exec *x, const ir_graph *g, bool well);
/* Puts the bucket's preset values into the frame in place of those of the bucket before. b NULL: none. */
void bucket_enter(exec *x, const ir_graph *g, bucket *b);
void bucket_free_all(exec *x);

#endif
