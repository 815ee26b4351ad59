/* graph_trace.h: what the nodes of one run of a graph gave, and how far roundings alone move it.
 *
 * A trace opens a graph, runs it once on inputs and keeps each tensor that a node makes under its name.
 * With noise, every number of a float type is changed by a few roundings before the next node reads it, so
 * that several such traces show which values a pass that only rounds otherwise may move, and how far: a
 * reciprocal near zero, a difference of two numbers alike, a step on its edge (Monte Carlo arithmetic: D.
 * Stott Parker, 1997). */
#ifndef CLI_GRAPH_TRACE_H
#define CLI_GRAPH_TRACE_H

#include "graph/compare.h"
#include "graph/graph.h"
#include "graph/names.h"

typedef struct kept_value {
    const char *node, *op, *name; /* of its graph, which stays */
    tensor t;
} kept_value;

/* Zero-initialise but for the first four members; free with node_trace_free. */
typedef struct node_trace {
    bool keeps;        /* values of nodes; outputs are always there */
    const names *only; /* keep only values of these names; NULL: all */
    uint64_t noise;    /* a seed; 0: none */
    double timeout;    /* seconds that loading and running may take each; 0: any */
    graph *g;
    value *outputs; /* [graph_n_outputs] */
    kept_value *values;
    size_t n, cap;
    names index; /* number of the value, counted from 1 */
    uint64_t bytes;
    bool failed;
} node_trace;

/* Loads a model and runs it on the inputs. */
MUST_USE status node_trace_run(node_trace *t, const char *path, const graph_options *o, const value *inputs,
                               error *err);
void node_trace_free(node_trace *t);
/* NULL: none of this name was kept. */
const tensor *node_trace_find(const node_trace *t, const char *name);

/* Are all elements of `got` within the tolerance of `want`, or as near as the noisy values (NULL: it was not
 * made in that run) are to it, times a factor? *moved: how far noise moved what only noise explains. */
bool node_trace_explains(const tensor *want, const tensor *got, tolerance t, const tensor *const *noisy,
                         size_t n, double *moved);

#endif
