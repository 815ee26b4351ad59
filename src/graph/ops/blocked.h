/* blocked.h: operators that passes put into a graph: convolutions and pools over images whose channels lie in
 * blocks of 16 (kernel/conv.h), and functions that were exported in pieces. No model can name them: they are
 * in no table that op_find looks through, and their states are made by the passes (mem_alloc, handed to the
 * node).
 *
 * A blocked value is a tensor of rank 5, [N, C/16, H, W, 16]; of an image of one spatial axis H is 1. So
 * operators of elements work on it as they are. Channels beyond C are whatever the operators made of zero,
 * and finite: weights and constants are zero there. */
#ifndef GRAPH_OPS_BLOCKED_H
#define GRAPH_OPS_BLOCKED_H

#include "graph/op.h"
#include "kernel/conv.h"

enum { BLOCKED_RANK = 5 };

/* "Conv": X blocked or planar, and optionally what is added to the result, blocked. */
typedef struct blocked_conv {
    conv c;                    /* sizes of the image are filled in when it runs */
    size_t end_h, end_w;       /* padding below and right */
    size_t planar_rank;        /* of X, or Y, as it is without blocks */
    tensor source;             /* the weights as the model has them; gone when they are packed */
    const op_factors *factors; /* of the weights, or NULL */
    float *weights, *bias;     /* packed, in the program's memory; bias NULL or rounded up */
} blocked_conv;
extern const op_def op_blocked_conv;
extern const op_packing blocked_conv_packing;

/* One output channel as a plane, of blocked dimensions. */
MUST_USE status blocked_single(op_shapes *s, size_t rank, const dim out[BLOCKED_RANK], error *err);
/* Runs the job on the session's threads. */
MUST_USE status blocked_conv_run(op_run *r, const conv_job *job, error *err);

/* "ConvTranspose" of one group without dilation: one convolution for each place within a stride. */
typedef struct blocked_phase {
    conv c;
    float *weights; /* packed, in the program's memory */
} blocked_phase;
typedef struct blocked_transpose {
    conv c; /* channels and limits; the kernel's taps are the phases' */
    size_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, end_h, end_w;
    size_t more_h, more_w; /* ONNX's output_padding */
    size_t planar_rank;
    tensor source;             /* ONNX's [in, out, kernel_h, kernel_w]; gone when it is packed */
    const op_factors *factors; /* of the weights, or NULL */
    blocked_phase *phases;
    size_t n_phases;
    float *bias; /* rounded up, or NULL */
} blocked_transpose;
extern const op_def op_blocked_transpose;
extern const op_packing blocked_transpose_packing;
bool blocked_transpose_choose(const blocked_transpose *st);               /* false: cannot be done this way */
MUST_USE status blocked_transpose_cut(blocked_transpose *st, error *err); /* makes the phases */
void blocked_transpose_free(void *state);

/* "ToBlocked", "FromBlocked" */
typedef struct blocked_layout {
    size_t channels, rank; /* of the planar side */
} blocked_layout;
extern const op_def op_to_blocked, op_from_blocked;

typedef enum blocked_pool_kind {
    BLOCKED_MAX,
    BLOCKED_AVERAGE,
    BLOCKED_MEAN
} blocked_pool_kind;               /* MEAN: of all pixels */
enum { BLOCKED_POOL_TAPS = 1024 }; /* of a window at most, except of MEAN */
typedef struct blocked_pool {
    blocked_pool_kind kind;
    size_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, end_h, end_w;
    bool ceil, count_padding;
} blocked_pool;
extern const op_def op_blocked_pool;

/* "Channels": channel c of the result is channel from[c].channel of input from[c].input. */
enum { BLOCKED_MOST_INPUTS = 64 };
typedef struct blocked_channel {
    uint32_t input, channel;
} blocked_channel;
typedef struct blocked_channels {
    size_t n_inputs, channels;
    blocked_channel *from; /* [channels] */
} blocked_channels;
extern const op_def op_blocked_channels;
void blocked_channels_free(void *state);

/* "Repeat": every pixel high times down and wide times across. */
typedef struct blocked_repeat {
    size_t high, wide;
} blocked_repeat;
extern const op_def op_blocked_repeat;

/* "Pad": pixels around an image; every lane gets the value. */
typedef struct blocked_pad {
    size_t top, left, bottom, right;
    float value;
} blocked_pad;
extern const op_def op_blocked_pad;

/* "LRN" with exponent 3/4 over full blocks; bias > 0, alpha >= 0 (divided by the size already). */
enum { BLOCKED_LRN_SIZE = 64, BLOCKED_LRN_CHANNELS = 4096 }; /* at most */
typedef struct blocked_lrn {
    size_t size;
    float alpha, bias;
} blocked_lrn;
extern const op_def op_blocked_lrn;

/* "ChannelAffine": y = min(high, max(low, x * scale[c] + shift[c])) */
typedef struct blocked_affine {
    float *scale, *shift; /* [blocks*16] */
    size_t blocks;
    float low, high;
} blocked_affine;
extern const op_def op_blocked_affine;

/* "Unary": a kernel function of f32 elements. */
typedef struct unary_state {
    kernel_unary function;
    float p, q;
} unary_state;
extern const op_def op_unary;

void blocked_conv_free(void *state);
void blocked_affine_free(void *state);

#endif
