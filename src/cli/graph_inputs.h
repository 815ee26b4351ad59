/* graph_inputs.h: inputs of a graph from files, or made up for measuring and comparing. */
#ifndef CLI_GRAPH_INPUTS_H
#define CLI_GRAPH_INPUTS_H

#include "cli/graph_cli.h"

typedef struct graph_inputs_options {
    const arg_list *files;  /* NAME=FILE.npy; may be NULL */
    const arg_list *shapes; /* NAME=1x3x224x224; may be NULL */
    uint64_t batch;         /* first dimension where it is open; 0: 1 */
} graph_inputs_options;

/* Fills inputs [graph_n_inputs]: those with a file from it; others of the shape that is given, else of the
 * port's, open dimensions 1. Floats in [0, 1) from a fixed seed; integers and booleans 1, which is a valid
 * index almost everywhere; strings empty. The caller frees, also after an error. */
MUST_USE status graph_inputs_make(const graph *g, const graph_inputs_options *o, value *inputs, error *err);
/* After a run over such inputs failed: adds to the message which open dimensions were made up, and how to say
 * them. */
void graph_inputs_hint(const graph *g, const graph_inputs_options *o, error *err);
/* Names of --no-pass: CHURON_INVALID names one that is no pass. */
MUST_USE status graph_passes_check(const arg_list *given, error *err);
/* Only those with a file. */
MUST_USE status graph_inputs_read(const graph *g, const arg_list *files, value *inputs, error *err);

#endif
