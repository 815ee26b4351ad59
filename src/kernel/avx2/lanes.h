/* lanes.h: 8 floats as one value, with the operations that unary_body.h and rows_body.h name. For the files
 * of this folder only. */
#ifndef KERNEL_AVX2_LANES_H
#define KERNEL_AVX2_LANES_H

#include "kernel/avx2/vec.h"
#include <float.h>

typedef __m256 V;
typedef __m256 M;
enum { V_LANES = 8 };

static inline V v_set(float x) {
    return _mm256_set1_ps(x);
}
static inline V v_load(const float *x) {
    return _mm256_loadu_ps(x);
}
static inline void v_store(float *y, V v) {
    _mm256_storeu_ps(y, v);
}
static inline V v_load_part(const float *x, size_t n) {
    return _mm256_maskload_ps(x, vec_tail(n));
}
static inline V v_load_fill(const float *x, size_t n, V fill) {
    const __m256i first = vec_tail(n);
    return _mm256_blendv_ps(fill, _mm256_maskload_ps(x, first), _mm256_castsi256_ps(first));
}
static inline void v_store_part(float *y, size_t n, V v) {
    _mm256_maskstore_ps(y, vec_tail(n), v);
}
static inline V v_add(V a, V b) {
    return _mm256_add_ps(a, b);
}
static inline V v_sub(V a, V b) {
    return _mm256_sub_ps(a, b);
}
static inline V v_mul(V a, V b) {
    return _mm256_mul_ps(a, b);
}
static inline V v_div(V a, V b) {
    return _mm256_div_ps(a, b);
}
static inline V v_fma(V a, V b, V c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline V v_sqrt(V a) {
    return _mm256_sqrt_ps(a);
}
static inline V v_floor(V a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline V v_ceil(V a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
static inline V v_round(V a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline V v_max(V a, V b) {
    return _mm256_max_ps(a, b);
}
static inline V v_min(V a, V b) {
    return _mm256_min_ps(a, b);
}
static inline V v_abs(V a) {
    return _mm256_andnot_ps(v_set(-0.0f), a);
}
static inline V v_copysign(V magnitude, V sign) {
    const V bit = v_set(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}
static inline M v_less(V a, V b) {
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline V v_select(M m, V yes, V no) {
    return _mm256_blendv_ps(no, yes, m);
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
    const __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(ROOT_HALF));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 23));
}
static inline V v_scale_back(V x, V e) {
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(e), 23);
    return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(x), shift));
}

/* Of LANES values, by the tree of kernel/vector.h. */
static inline float v_row_sum(const V *v) {
    return vec_sum(v[0], v[1]);
}
static inline float v_row_max(const V *v) {
    return vec_max(v[0], v[1]);
}

#endif
