/* conv.h: 2-D convolution and pooling of f32 images whose channels lie in blocks of 16.
 *
 * Layout: [batch][channels/16][height][width][16], the last block filled up with zeros. Rows of the output
 * are made in strips: the input rows that a strip needs are copied once, with zeros (or, for maxima,
 * -infinity) where the padding is, so that every tap of every pixel reads memory that exists; then each
 * output row is one product of described rows (gemm.h). A 1x1 convolution without padding and stride reads
 * the image itself.
 *
 * The law of sums holds: per output one chain over (block of input channels, row of the kernel, column,
 * channel of the block), or for planar input (input channel, row, column); taps in the padding count as
 * zeros. Blocks are cut where the image's are, whatever groups there are; channels of other groups count as
 * 0. So neither batch nor strips nor threads change a bit. */
#ifndef KERNEL_CONV_H
#define KERNEL_CONV_H

#include "kernel/gemm.h"

enum { CONV_BLOCK = 16 };
static inline size_t conv_blocks(size_t channels) {
    return (channels + CONV_BLOCK - 1) / CONV_BLOCK;
}

/* The last block of so many channels is at most half full. */
static inline bool conv_ends_half(size_t channels) {
    return channels % CONV_BLOCK != 0 && channels % CONV_BLOCK <= CONV_BLOCK / 2;
}

typedef enum conv_kind {
    CONV_BLOCKED,   /* input channels in blocks */
    CONV_PLANAR,    /* input [batch][channels][height][width] (few channels: images); one group */
    CONV_DEPTHWISE, /* one input channel an output channel */
    CONV_WINOGRAD   /* blocked, with fewer multiplications (winograd.h); never chosen by conv_choose */
} conv_kind;

typedef struct conv {
    conv_kind kind;
    size_t in_channels, out_channels, groups;
    size_t in_h, in_w, out_h, out_w;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left; /* what is missing below and right is zero too */
    /* Where up_h is not 0, pixel (y, x) of the result is (y*up_h + at_h, x*up_w + at_w) of an image of
     * full_h x full_w, of which nothing else is written. Blocked input only. */
    size_t up_h, up_w, at_h, at_w, full_h, full_w;
    /* Where output channels are few, one product makes several pixels, so that they fill a vector: `across`
     * of a row (see conv_across; 0 or 1: one), or where `every` is set all up_h x up_w places, of a kernel of
     * one tap; at_h and at_w are 0 then, and weights are [up_h][up_w][out_channels][in_channels]. Nothing can
     * be added to such a result. Taps of 0 stand where a pixel of the product does not read. */
    size_t across;
    bool every;
    bool before; /* `input` of every value read, but for the padding; see conv_takes_function */
    kernel_unary input;
    float input_p, input_q;
    bool single;     /* the one output channel is written as a plane, not as a block. Not CONV_DEPTHWISE */
    float low, high; /* limits of the output; -INFINITY and INFINITY: none */
    bool activate;   /* then `function` of every output, with its parameters */
    kernel_unary function;
    float p, q;
    bool affine; /* then scale * y + shift */
    float scale, shift;
} conv;

/* Which kind can do it; none (false) where input channels times taps are very many. */
bool conv_choose(const conv *c, conv_kind *kind);
/* How many pixels a product of a convolution of that kind should make; what to set `across` to. */
size_t conv_across(const conv *c);
/* Its input is copied, so that a function can be taken on the way. */
bool conv_takes_function(const conv *c);
/* A product makes more than one pixel. */
bool conv_spreads(const conv *c);
size_t conv_packed_floats(const conv *c);
/* From ONNX's [out_channels, in_channels/groups, kernel_h, kernel_w]: parts [part0, part1) of
 * conv_pack_parts, each of about as many weights. */
size_t conv_pack_parts(const conv *c);
void conv_pack(const conv *c, const float *weights, size_t part0, size_t part1, float *out);

/* One number an output channel, as conv_job reads them: [conv_bias_floats], which was zero. */
size_t conv_bias_floats(const conv *c);
void conv_pack_bias(const conv *c, const float *bias, float *out);

/* Work is cut into units, numbered [0, conv_units): any thread may take any unit. */
size_t conv_units(const conv *c, size_t batch);
/* Floats of scratch for one thread; 64-byte aligned. */
size_t conv_scratch_floats(const conv *c);

typedef struct conv_job {
    const conv *c;
    const float *packed;
    const float *bias; /* packed, or NULL */
    const float *in;
    const float *add; /* laid out as the output, or NULL; may be the output */
    float *out;       /* blocked, or planar if c->single */
    size_t batch;
    stop_flag *stop; /* NULL: never */
} conv_job;

void conv_run(const kernels *k, const conv_job *job, size_t unit0, size_t unit1, float *scratch);
/* The function and what follows it, of n outputs; nothing if there is neither. */
void conv_activate(const kernels *k, const conv *c, float *y, size_t n);

/* ---- layout ----------------------------------------------------------------------------------------- */

/* Channel block b of one image, planar to blocked and back. pixels = height*width. */
void conv_block(const float *planar, size_t channels, size_t pixels, size_t b, float *blocked);
void conv_unblock(const float *blocked, size_t channels, size_t pixels, size_t b, float *planar);

#endif
