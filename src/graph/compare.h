/* compare.h: whether two values are the same within tolerances, and where they first are not.
 *
 * Numbers of float types (small floats by value) may differ by atol + rtol * |expected|; NaN equals NaN,
 * infinities equal their like. Everything else is exact: integers, bool, strings, shapes, types, lengths. */
#ifndef GRAPH_COMPARE_H
#define GRAPH_COMPARE_H

#include "base/str.h"
#include "tensor/tensor.h"

typedef struct tolerance {
    double rtol, atol;
} tolerance;

typedef struct comparison {
    bool same;
    double max_abs, max_rel; /* over all elements of float types that are finite on both sides */
} comparison;

/* `name` begins each reason: "y: element 3 of [2, 2]: expected 1, got 2". The first difference is appended to
 * *why, which may be NULL. Long tensors are compared whole. */
comparison compare_values(const value *want, const value *got, tolerance t, const char *name, str *why);

#endif
