/* qimage.h: arithmetic on images and vectors of 8-bit integers whose channels lie together: [..., channels].
 *
 * int8 is read and written as uint8 moved by 128 (`flip` 0x80, the zero points moved with it). All arithmetic
 * is exact in integers up to one conversion to f32, whose operations are rounded one by one, so that every
 * instruction set gives the same bits. */
#ifndef KERNEL_QIMAGE_H
#define KERNEL_QIMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Depthwise convolution of rows: y = the sum over taps of x[tap] * w, + offset, as f32 times scale, to
 * nearest, ties to even, + zero, to [low, high].
 *
 * Blocks of 64 channels; within one, offsets, scales and four taps of weights lie as byte unpacking leaves
 * them: qdepthwise_place. Weights: [block][taps / 4][64 places][4 taps], what is missing is 0. */
enum { QDEPTHWISE_BLOCK = 64, QDEPTHWISE_TAPS = 4 };
typedef struct qdepthwise {
    size_t channels, x_step; /* bytes from an output pixel's first tap to the next one's */
    size_t taps;             /* a multiple of 4: those too many point anywhere that may be read */
    const ptrdiff_t *tap;    /* [taps], in bytes */
    const int8_t *w;
    const int32_t *offset; /* [channels rounded up to 64] */
    const float *scale;    /* likewise; finite */
    uint8_t zero, low, high;
} qdepthwise;

static inline size_t qdepthwise_place(size_t channel) { /* within a block */
    return channel % 16 / 4 * 16 + channel / 16 * 4 + channel % 4;
}

/* Pool of rows over `taps` taps: the maximum (of x ^ flip, ^ flip); or, with average, the sum s of x ^ flip
 * as (float)(s - taps * x_zero) / divisor * factor, to nearest, ties to even, + y_zero, saturated, ^ y_flip.
 */
typedef struct qpool {
    size_t channels, x_step;
    size_t taps;
    const ptrdiff_t *tap;
    bool average;
    uint8_t flip, y_flip;
    int32_t x_zero, y_zero;
    float divisor, factor;
} qpool;

/* y = a' + b' or a' * b' of a' = a_factor * (float)(a - a_zero), b' = b_factor * (float)(b - b_zero) (of a
 * product: factor * (a - a_zero)(b - b_zero)), to nearest, ties to even, + y_zero, saturated. All ^ flip. */
typedef struct qpair {
    bool multiply;
    uint8_t a_flip, b_flip, y_flip;
    int32_t a_zero, b_zero, y_zero;
    float a_factor, b_factor; /* of a product: a_factor alone; finite */
} qpair;

#endif
