/* attn_q8.h: attention over KV_Q8 pages: the arithmetic that every version follows, so that all agree bit for
 * bit. Sums of products are taken in integers and are exact, whatever their order.
 *
 * Query: 16-bit integers with one scale for the head. Score: for the blocks of 32 dimensions ascending,
 * acc = fma((float)sum of q*k, scale of the key's block, acc), from 0; then acc * (query scale * h->scale),
 * then the soft cap. Weights: as for KV_F16. Values: for a block of 64 keys and each block of 32 dimensions
 * the products weight * scale of the value become 16-bit integers with one scale; o[d] =
 * fma((float)sum of weight*v, that scale, o[d]). Keys that a query may not see have the weight 0 whatever
 * their scale is. */
#ifndef KERNEL_ATTN_Q8_H
#define KERNEL_ATTN_Q8_H

#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

enum { KV_Q8_MOST = 127, Q16_MOST = 32767 };

#define Q16_LEAST 1e-30f /* below it everything is 0: the inverse stays finite */

/* value = scale * integer; integer = round(value * inverse), to even. inverse 0: every integer is 0. */
typedef struct q_scale {
    float scale, inverse;
} q_scale;

static inline float q_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* bits: the largest magnitude as an integer, where NaN is above infinity and both above every number. */
static inline q_scale q16_scale(uint32_t bits) {
    const float most = q_from_bits(bits);
    if (bits >= 0x7f800000u) return (q_scale){NAN, 0.0f};
    if (most < Q16_LEAST) return (q_scale){0.0f, 0.0f};
    return (q_scale){most / (float)Q16_MOST, (float)Q16_MOST / most};
}

/* Rounds like the conversion of the hardware. NaN, which only an inverse of 0 gives, becomes 0. */
static inline int q_round(float x, float inverse) {
    return inverse == 0.0f ? 0 : (int)nearbyintf(x * inverse);
}

/* Where the scales of a page begin. */
static inline const uint16_t *kv_q8_scales(const void *page, size_t head_dim) {
    return (const uint16_t *)(const void *)((const int8_t *)page + KV_PAGE * head_dim);
}

/* The f16 scale of 32 values and its f32 form; the integers are clamped to KV_Q8_MOST, which the rounding of
 * the scale may push them over. */
static inline uint16_t kv_q8_scale(uint32_t bits, q_scale *out) {
    uint16_t half = bits >= 0x7f800000u ? 0x7e00u : f32_to_f16(q_from_bits(bits) / (float)KV_Q8_MOST);
    if (half == 0x7c00u) half = 0x7e00u; /* over what f16 holds: NaN too, so that it shows */
    out->scale = f16_to_f32(half);
    out->inverse = half == 0 || half == 0x7e00u ? 0.0f : 1.0f / out->scale;
    return half;
}

#endif
