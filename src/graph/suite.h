/* suite.h: test cases in the layout of the ONNX project: a folder with model.onnx and test_data_set_N folders
 * that hold input_K.pb and output_K.pb. */
#ifndef GRAPH_SUITE_H
#define GRAPH_SUITE_H

#include "graph/compare.h"
#include "graph/graph.h"

typedef struct suite_options {
    tolerance tolerance;
    graph_options graph;
    double seconds; /* that loading, and each run, may take; 0: any time */
} suite_options;

typedef enum suite_result { SUITE_PASSED, SUITE_FAILED, SUITE_SKIPPED } suite_result;

typedef struct suite_case {
    suite_result result;
    str why; /* of what is not passed; the caller frees */
    size_t n_sets;
    double max_abs, max_rel;
} suite_case;

/* Runs every data set of one folder. Skipped: no model.onnx or no data. */
suite_case suite_run_case(const char *folder, const suite_options *o);

/* Calls fn for every folder in `folder` that has a model.onnx, by name, until it returns false. */
MUST_USE status suite_each(const char *folder, bool (*fn)(void *user, const char *name, const char *path),
                           void *user, error *err);

#endif
