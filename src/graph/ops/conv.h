/* conv.h: convolutions of 1 to 3 spatial axes over [N, C, …] planes, shared by Conv, its quantized forms and
 * ConvTranspose. */
#ifndef GRAPH_OPS_CONV_H
#define GRAPH_OPS_CONV_H

#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"

typedef struct conv_call {
    geometry g;
    size_t batch, in_channels, out_channels, group_in, group_out; /* channels of a group */
    const void *x, *w, *bias;
    void *y;
    stop_flag *stop; /* set by what runs it */
} conv_call;

/* Attributes and shape rule of Conv, ConvInteger, QLinearConv. */
typedef struct conv_state {
    window w;
    int64_t group;
    bool channels_last; /* X and Y are [N, …, C] */
    gemm_epilogue epilogue;
} conv_state;

MUST_USE status conv_prepare_common(op_node *n, conv_state *st, error *err);
/* x, weight: numbers of the inputs. */
MUST_USE status conv_infer_at(op_shapes *s, size_t x, size_t weight, size_t bias, error *err);
/* job from the tensors: sizes and geometry; y [N, M, …] or channels last. */
void conv_job_init(conv_call *j, const conv_state *st, const tensor *x, const tensor *w, const tensor *y);

/* y = x * w (+ bias) on planes; f32 through the matrix product, with its epilogue (bias included there). */
MUST_USE status conv_f32(op_run *r, const conv_call *j, const gemm_epilogue *e, error *err);
void conv_f64(op_run *r, conv_call *j);
void conv_u32(op_run *r, conv_call *j); /* modulo 2^32 */
void conv_spread_f32(op_run *r, conv_call *j);
void conv_spread_f64(op_run *r, conv_call *j);
/* y [in of g] += x [out of g] spread by the taps of w: one plane of the transposed convolution. */
void conv_spread_plane(const geometry *g, const double *x, const double *w, double *y);

#endif
