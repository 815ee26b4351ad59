/* lanes.h: one float as one value, with the operations that unary_body.h and rows_body.h name. For the files
 * of this folder only. */
#ifndef KERNEL_REF_LANES_H
#define KERNEL_REF_LANES_H

#include "kernel/vector.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef float V;
typedef bool M;
enum { V_LANES = 1 };

static inline V v_set(float x) {
    return x;
}
static inline V v_load(const float *x) {
    return *x;
}
static inline void v_store(float *y, V v) {
    *y = v;
}
static inline V v_load_part(const float *x, size_t n) {
    return n ? *x : 0.0f;
}
static inline V v_load_fill(const float *x, size_t n, V fill) {
    return n ? *x : fill;
}
static inline void v_store_part(float *y, size_t n, V v) {
    if (n) *y = v;
}
static inline V v_add(V a, V b) {
    return a + b;
}
static inline V v_sub(V a, V b) {
    return a - b;
}
static inline V v_mul(V a, V b) {
    return a * b;
}
static inline V v_div(V a, V b) {
    return a / b;
}
static inline V v_fma(V a, V b, V c) {
    return fmaf(a, b, c);
}
static inline V v_sqrt(V a) {
    return sqrtf(a);
}
static inline V v_floor(V a) {
    return floorf(a);
}
static inline V v_ceil(V a) {
    return ceilf(a);
}
static inline V v_round(V a) {
    return rintf(a);
}
static inline V v_max(V a, V b) {
    return a > b ? a : b;
}
static inline V v_min(V a, V b) {
    return a < b ? a : b;
}
static inline V v_abs(V a) {
    return fabsf(a);
}
static inline V v_copysign(V magnitude, V sign) {
    return copysignf(magnitude, sign);
}
static inline M v_less(V a, V b) {
    return a < b;
}
static inline V v_select(M m, V yes, V no) {
    return m ? yes : no;
}
static inline V v_exp(V a) {
    return exp_value(a);
}
static inline V v_exp_low(V a) {
    return exp_value(a);
}
static inline V v_tanh(V a) {
    return tanh_value(a);
}

/* Bits of sqrt(1/2): the border of the mantissa. */
enum { ROOT_HALF = 0x3f3504f3 };

static inline V v_exponent(V x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (float)((int32_t)(bits - ROOT_HALF) >> 23);
}
static inline V v_scale_back(V x, V e) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits -= (uint32_t)(int32_t)e << 23;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Of LANES values, by the tree of kernel/vector.h. */
static inline float v_row_sum(const V *v) {
    float lane[LANES];
    memcpy(lane, v, sizeof lane);
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] += lane[l + step];
    }
    return lane[0];
}
static inline float v_row_max(const V *v) {
    float lane[LANES];
    memcpy(lane, v, sizeof lane);
    for (size_t step = LANES / 2; step > 0; step /= 2) {
        for (size_t l = 0; l < step; l++) lane[l] = lane[l] > lane[l + step] ? lane[l] : lane[l + step];
    }
    return lane[0];
}

#endif
