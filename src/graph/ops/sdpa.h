/* sdpa.h: "Attention", an operator that a pass puts in the place of products, mask and softmax:
 * y = softmax(scale * q k^T + masks) v, in f32.
 *
 * Queries, keys and values are views: each of the four logical axes (batch, head, time, width) is an axis of
 * the input that is read, so nothing is transposed first. Inputs: those of q, k, v (may be the same), then
 * n_adds tensors that broadcast to the scores, the condition if there is one, and n_guards shapes. A row's
 * result depends on nothing but its query and what it attends to. */
#ifndef GRAPH_OPS_SDPA_H
#define GRAPH_OPS_SDPA_H

#include "graph/op.h"

enum { SDPA_BATCH, SDPA_HEAD, SDPA_TIME, SDPA_WIDTH, SDPA_AXES, SDPA_ADDS = 2 }; /* as in attend.h */

typedef struct sdpa_view {
    int axis[SDPA_AXES]; /* of the input; -1: there is none, the size is 1 */
    int pick_axis;       /* of which only element `pick` is seen (negative: from the end); -1: none */
    int64_t pick;
} sdpa_view;

typedef enum sdpa_where { SDPA_NO_WHERE, SDPA_FILL_WHERE_TRUE, SDPA_FILL_WHERE_FALSE } sdpa_where;

typedef struct sdpa {
    sdpa_view q, k, v; /* time of k and v: the keys */
    size_t rank;       /* of the scores and the output: 4, or 3 without heads */
    float scale;
    size_t n_adds;
    sdpa_where where;
    float fill;      /* what the condition puts into scores; before the additions */
    bool nan_to_0;   /* a probability that is no number counts as 0 */
    bool time_first; /* the output is [batch, time, head, width], else [batch, head, time, width] */
    /* Keys went through two Reshapes: their targets must be [*, keys, width] and [batch, head, width, keys],
     * or what was left out would have mixed them. 0 or 2. */
    size_t n_guards;
} sdpa;
extern const op_def op_sdpa;

#endif
