/* provider.h: what can execute nodes of a graph.
 *
 * A provider claims nodes after shapes were inferred, constants computed and functions found, and before our
 * own passes choose layouts: a claimed node becomes a row of the provider's own, whose domain is "churon."
 * and its name, with its constant weights in the order that the provider reads. Values between nodes stay as
 * ONNX describes them, so providers meet at any node. `cpu`, ours, claims nothing and executes every node
 * that is left.
 *
 * A new provider is one entry of the list in provider.c and the rows that its claim puts in. */
#ifndef GRAPH_PROVIDERS_PROVIDER_H
#define GRAPH_PROVIDERS_PROVIDER_H

#include "graph/passes/rewrite.h"

typedef struct provider {
    const char *name, *what; /* what it executes, for people */
    /* Replaces n by a node of its own rows, for sessions of so many threads, or leaves it alone. NULL: it
     * takes whatever the others leave. */
    status (*claim)(rewriter *w, op_node *n, size_t threads, error *err);
    /* Of its nodes: bytes of constants in the state; multiplications and additions of a run that gave y. */
    size_t (*packed_bytes)(const op_node *n);
    double (*operations)(const op_node *n, const tensor *y);
    const char *option; /* of the build, if this build lacks it; else NULL */
} provider;

/* All that this version knows, cpu first; those with an `option` are not in this build. */
const provider *provider_list(size_t *n);
/* CHURON_INVALID: an unknown name; CHURON_UNSUPPORTED: one that this build lacks. */
MUST_USE status providers_check(const graph_options *o, error *err);
/* Lets those that o names claim nodes, in its order, up to cpu. */
MUST_USE status providers_claim(rewriter *w, const graph_options *o, error *err);
const provider *provider_of(const op_node *n);

#endif
