/* lanes.h: 16 floats as one value, with the operations that unary_body.h and rows_body.h name. For the files
 * of this folder only. */
#ifndef KERNEL_AVX512_LANES_H
#define KERNEL_AVX512_LANES_H

#include "kernel/avx512/vec.h"
#include <float.h>

typedef __m512 V;
typedef __mmask16 M;
enum { V_LANES = 16 };

static inline V v_set(float x) {
    return _mm512_set1_ps(x);
}
static inline V v_load(const float *x) {
    return _mm512_loadu_ps(x);
}
static inline void v_store(float *y, V v) {
    _mm512_storeu_ps(y, v);
}
static inline V v_load_part(const float *x, size_t n) {
    return _mm512_maskz_loadu_ps(vec_tail(n), x);
}
static inline V v_load_fill(const float *x, size_t n, V fill) {
    return _mm512_mask_mov_ps(fill, vec_tail(n), _mm512_maskz_loadu_ps(vec_tail(n), x));
}
static inline void v_store_part(float *y, size_t n, V v) {
    _mm512_mask_storeu_ps(y, vec_tail(n), v);
}
static inline V v_add(V a, V b) {
    return _mm512_add_ps(a, b);
}
static inline V v_sub(V a, V b) {
    return _mm512_sub_ps(a, b);
}
static inline V v_mul(V a, V b) {
    return _mm512_mul_ps(a, b);
}
static inline V v_div(V a, V b) {
    return _mm512_div_ps(a, b);
}
static inline V v_fma(V a, V b, V c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline V v_sqrt(V a) {
    return _mm512_sqrt_ps(a);
}
static inline V v_floor(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline V v_ceil(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
static inline V v_round(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline V v_max(V a, V b) {
    return _mm512_max_ps(a, b);
}
static inline V v_min(V a, V b) {
    return _mm512_min_ps(a, b);
}
static inline V v_abs(V a) {
    return _mm512_andnot_ps(v_set(-0.0f), a);
}
static inline V v_copysign(V magnitude, V sign) {
    const V bit = v_set(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}
static inline M v_less(V a, V b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline V v_select(M m, V yes, V no) {
    return _mm512_mask_blend_ps(m, no, yes);
}
static inline V v_exp(V a) {
    return vec_exp(a);
}
static inline V v_exp_low(V a) {
    return vec_exp_negative(a);
}
static inline V v_tanh(V a) {
    return vec_tanh(a);
}

/* Bits of sqrt(1/2): the border of the mantissa. */
enum { ROOT_HALF = 0x3f3504f3 };

static inline V v_exponent(V x) {
    const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(ROOT_HALF));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23));
}
static inline V v_scale_back(V x, V e) {
    const __m512i shift = _mm512_slli_epi32(_mm512_cvtps_epi32(e), 23);
    return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(x), shift));
}

/* Of LANES values, by the tree of kernel/vector.h. */
static inline float v_row_sum(const V *v) {
    return vec_sum(v[0]);
}
static inline float v_row_max(const V *v) {
    return vec_max(v[0]);
}

#endif
