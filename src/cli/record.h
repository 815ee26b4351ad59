/* record.h: values of a graph as JSON, .npy and CSV, in both directions.
 *
 * JSON: nested lists of numbers, booleans or strings; "NaN", "Infinity", "-Infinity" where a float stands;
 * complex numbers as [re, im]; {"file": "x.npy"} relative to the file that says it; {"b64": "…", "shape":
 * […]} raw little-endian elements; sequences as lists, maps as objects, an empty optional as null. Nothing is
 * converted silently: an integer for a float is the same number, the other way is an error. */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include "base/json_out.h"
#include "graph/graph.h"

#include <jansson.h>

/* One input. `folder` is where {"file": …} starts; NULL: the current one. The caller frees. */
MUST_USE status record_value(const json_t *json, const char *name, const onnx_type *type, const char *folder,
                             value *out, error *err);
/* {NAME: value} to inputs [graph_n_inputs], in order; unknown names are refused, missing ones too. */
MUST_USE status record_inputs(const json_t *json, const graph *g, const char *folder, value *inputs,
                              error *err);
/* A .npy file as an input of this type. */
MUST_USE status record_npy(const char *path, const char *name, const onnx_type *type, value *out, error *err);
/* A CSV file with a header as a batch of *rows: columns named like inputs, or all columns as the one input
 * [rows, columns] that is not given yet. Cells without a number and columns that are no input are refused. */
MUST_USE status record_csv(const char *path, const graph *g, value *inputs, size_t *rows, error *err);

void record_write(json_out *j, const char *key, const value *v);

#endif
