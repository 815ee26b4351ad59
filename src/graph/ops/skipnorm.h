/* skipnorm.h: "SkipNormalization", an operator that a pass puts in the place of an addition and the layer
 * normalization of its result: y = LayerNormalization(a + b) over the last axis, in f32.
 *
 * Inputs: a, b, scale [n], bias [n] or absent; n is the last dimension of a. Outputs: y, and the sum if
 * somebody else reads it. a and b broadcast as Add has it. */
#ifndef GRAPH_OPS_SKIPNORM_H
#define GRAPH_OPS_SKIPNORM_H

#include "graph/op.h"

enum { SKIP_NORM_MOST = 16384 }; /* of n: sums of a row are taken in f32 */

typedef struct skip_norm {
    float epsilon;
} skip_norm;
extern const op_def op_skip_norm;

#endif
