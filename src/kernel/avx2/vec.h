/* vec.h: exponential, hyperbolic tangent, reductions and tails on 8 lanes of f32; the 16 lanes of
 * kernel/vector.h are two registers, lo and hi. The same operations in the same order as ref/math.c. For the
 * files of this folder only. */
#ifndef KERNEL_AVX2_VEC_H
#define KERNEL_AVX2_VEC_H

#include "kernel/vector.h"

#include <immintrin.h>
#include <math.h>

enum { VEC = 8 };

/* The first n lanes, n >= 0; all for n >= 8. */
static inline __m256i vec_tail(size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < VEC ? (int)n : VEC), lane);
}

static inline __m256 vec_load(const float *x, __m256i m) {
    return _mm256_maskload_ps(x, m);
}

static inline float vec_sum(__m256 lo, __m256 hi) {
    __m256 a = _mm256_add_ps(lo, hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vec_max(__m256 lo, __m256 hi) {
    __m256 a = _mm256_max_ps(lo, hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* 1 + r + r^2*(...) for the reduced argument of x, and t whose low bits are n + 127. */
static inline __m256 vec_exp_poly(__m256 x, __m256 *t) {
    __m256 magic = _mm256_set1_ps(EXP_MAGIC);
    *t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), magic);
    __m256 n = _mm256_sub_ps(*t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    return _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
}

static inline __m256 vec_power(__m256 t) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
}

/* Keeps lanes where x is not less than EXP_LOW (so for NaN too), else 0. */
static inline __m256 vec_flush(__m256 x, __m256 y) {
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOW), _CMP_NLT_UQ), y);
}

/* exp(x) for x <= 0 or NaN. */
static inline __m256 vec_exp_negative(__m256 x) {
    __m256 t, p = vec_exp_poly(x, &t);
    return vec_flush(x, _mm256_mul_ps(p, vec_power(t)));
}

static inline __m256 vec_exp(__m256 x) {
    __m256 t, p = vec_exp_poly(x, &t), most = _mm256_set1_ps(EXP_MAGIC + 127.0f);
    __m256 over = _mm256_cmp_ps(t, most, _CMP_GT_OQ); /* 2^128 is no float */
    p = _mm256_blendv_ps(p, _mm256_add_ps(p, p), over);
    __m256 y = vec_flush(x, _mm256_mul_ps(p, vec_power(_mm256_min_ps(t, most))));
    __m256 infinite = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_HIGH), _CMP_GT_OQ);
    return _mm256_blendv_ps(y, _mm256_set1_ps(INFINITY), infinite);
}

static inline __m256 vec_tanh(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_andnot_ps(sign, x), s = _mm256_mul_ps(a, a);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(TANH_C6), s, _mm256_set1_ps(TANH_C5));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(TANH_C4));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(TANH_C3));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(TANH_C2));
    p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(TANH_C1));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, s), a, a);
    __m256 e = vec_exp_negative(_mm256_mul_ps(_mm256_set1_ps(-2.0f), a));
    __m256 y = _mm256_sub_ps(one, _mm256_div_ps(_mm256_add_ps(e, e), _mm256_add_ps(one, e)));
    y = _mm256_blendv_ps(y, small, _mm256_cmp_ps(a, _mm256_set1_ps(TANH_SMALL), _CMP_LT_OQ));
    return _mm256_or_ps(_mm256_andnot_ps(sign, y), _mm256_and_ps(sign, x));
}

#endif
