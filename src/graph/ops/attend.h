/* attend.h: attention in f32 for operators that say where everything lies: y = soften(q k^T) v.
 *
 * A unit of work is a block of queries of one head: keys and values are packed as products read them, scores
 * of the block lie in a matrix that stays in the second-level cache, and the caller turns each row of them
 * into weights. A row's result depends on nothing but its query and what it attends to. */
#ifndef GRAPH_OPS_ATTEND_H
#define GRAPH_OPS_ATTEND_H

#include "graph/op.h"

enum { ATTEND_BATCH, ATTEND_HEAD, ATTEND_TIME, ATTEND_WIDTH, ATTEND_AXES };

typedef struct attend_operand {
    const float *data;
    size_t step[ATTEND_AXES]; /* in elements; 0: one for all */
} attend_operand;

typedef struct attend {
    attend_operand q, k, v;
    float *y;
    size_t y_step[ATTEND_WIDTH];                  /* the widths of y lie together */
    size_t batch, heads, group;                   /* query head h reads head h / group of k and v */
    size_t n_queries, n_keys, width, value_width; /* none is 0 */
    float q_scale, k_scale;                       /* 1: none */
    /* Added by the product: n_keys values at add + b * add_step[ATTEND_BATCH] + ..., or NULL. */
    const float *add;
    size_t add_step[ATTEND_WIDTH];
    /* Scores [n_keys] of query i of head h to weights, in place. Threads call it at once. */
    void (*soften)(const void *ctx, size_t b, size_t h, size_t i, float *scores);
    const void *ctx;
} attend;

MUST_USE status attend_run(op_run *r, const attend *a, error *err);

#endif
