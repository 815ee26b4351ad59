/* conv_int.h: convolutions of 8-bit integers through the exact product of kernel/qgemm.h.
 *
 * X is brought to [N, …, C] as uint8 once; then rows of patches are copied run by run, taps ascending and
 * channels within a tap, and multiplied with weights packed in that order. Groups of few output channels
 * would leave panels nearly empty: conv_int_suits says where this is the way. */
#ifndef GRAPH_OPS_CONV_INT_H
#define GRAPH_OPS_CONV_INT_H

#include "graph/ops/conv.h"
#include "graph/ops/gemm_int.h"

/* Weights [M, C/group, …] of every group, packed. Immutable after creation. */
typedef struct conv_int_weights {
    int_packed *groups; /* [n_groups]; NULL: not packed */
    size_t n_groups;
} conv_int_weights;

MUST_USE status conv_int_pack(conv_int_weights *out, const tensor *w, size_t n_groups, error *err);
void conv_int_free(conv_int_weights *w);
bool conv_int_suits(size_t group_out);

typedef struct conv_int {
    conv_call j; /* sizes and geometry; its pointers are not read */
    const tensor *x;
    bool channels_last;
    const conv_int_weights *w;
    int32_t x_zero;
    const int32_t *w_zero; /* [M] */
    const int32_t *bias;   /* [M] or NULL */
    int32_t *sums;         /* [N, M, …]; or NULL, and the result goes to 8 bits: */
    const float *scale;    /* [M] */
    int32_t y_zero;
    tensor *y; /* int8 or uint8, laid out as X */
} conv_int;

MUST_USE status conv_int_run(op_run *r, const conv_int *c, error *err);

/* Packs constant weights of a QLinearConv that stays one: most are replaced by an operator with weights of
 * its own. Without, they are packed at every run. */
MUST_USE status qlinear_conv_pack(op_node *n, void *state, error *err);

#endif
