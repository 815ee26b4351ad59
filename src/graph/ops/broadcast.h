/* broadcast.h: the one loop nest of elementwise operators, numpy's broadcasting.
 *
 * A plan merges neighbouring dimensions that every operand walks alike and drops those of size 1, so that the
 * innermost dimension is as long as it can be and each operand either advances by one element in it or stands
 * still. The walk calls a function for runs of that dimension. Threads: a plan is immutable; different ranges
 * may be walked at once. What an element of the output gets does not depend on the range. */
#ifndef GRAPH_OPS_BROADCAST_H
#define GRAPH_OPS_BROADCAST_H

#include "graph/op.h"

enum { BROADCAST_MAX = 4 }; /* operands */

typedef struct broadcast {
    size_t n;    /* operands */
    size_t rank; /* at least 1 */
    size_t dims[TENSOR_MAX_RANK];
    size_t strides[BROADCAST_MAX][TENSOR_MAX_RANK]; /* elements; in the last dimension 0 or 1 */
} broadcast;

/* out: the broadcast shape of all (checked by the shape rule). A shape of lower rank is aligned at the right.
 */
void broadcast_plan(broadcast *b, const tensor *out, const tensor *const *in, size_t n);
/* The same where operand 1 has its first dimension at `axis` of the output (operator sets before 7). */
void broadcast_plan_at(broadcast *b, const tensor *out, const tensor *a, const tensor *second, size_t axis);

/* fn gets a run of n elements of the output from `at`, and where each operand begins (element numbers);
 * operand k advances iff strides[k][rank-1] is 1. */
typedef void (*broadcast_fn)(void *ctx, size_t at, const size_t *in_at, size_t n);
void broadcast_walk(const broadcast *b, size_t from, size_t to, broadcast_fn fn, void *ctx);

#endif
