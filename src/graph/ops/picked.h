/* picked.h: "PickedRows", an operator that a pass puts in the place of a one-hot product: rows of a matrix,
 * found by integers. No model can name it; its state is made by the pass. */
#ifndef GRAPH_OPS_PICKED_H
#define GRAPH_OPS_PICKED_H

#include "graph/op.h"

/* X [..., 1] of integers, or [...] if `open`, to [..., n]: row X - first of `rows`, the last one for what is
 * below or above. */
typedef struct picked_rows {
    size_t n, count; /* columns; rows without the last one */
    int64_t first;
    bool wraps; /* X from -count to -1 counts from the end */
    bool open;
    float *rows; /* [count + 1, n] */
} picked_rows;
extern const op_def op_picked_rows;

void picked_free(void *state);

#endif
