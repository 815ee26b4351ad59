/* image.h: the two passes of resizing rows of u8 pixels with weights of 22 bits (media/resize.h has the
 * rules).
 *
 * Law: out = limit((sum of in * weight + 2^21) >> 22) to 0..255, all in 32 bits with wrap-around, so every
 * instruction set gives the same pixels. Weights of one output sum to about 2^22; their absolute sum is below
 * 2^23. */
#ifndef KERNEL_IMAGE_H
#define KERNEL_IMAGE_H

#include <stddef.h>
#include <stdint.h>

enum { RESIZE_BITS = 22, RESIZE_TAPS = 4 }; /* weights of an output come in multiples of RESIZE_TAPS */

/* Output i is a sum over inputs first[i] .. first[i] + count[i] - 1, all inside the row. Each weight is also
 * given as two halves of 16 bits, weight = upper * 2048 + lower. Weights from count on are 0. */
typedef struct resize_taps {
    size_t n;              /* outputs */
    size_t per;            /* weights an output, a multiple of RESIZE_TAPS */
    const uint32_t *first; /* [n] */
    const uint32_t *count; /* [n] */
    const int32_t *weight; /* [n, per] */
    const int16_t *upper;  /* [n, per] */
    const int16_t *lower;  /* [n, per] */
} resize_taps;

#endif
