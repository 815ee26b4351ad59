/* vec.h: exponential, hyperbolic tangent, reductions and tails on 16 lanes of f32. The same operations in the
 * same order as ref/math.c and the lanes of kernel/vector.h. For the files of this folder only. */
#ifndef KERNEL_AVX512_VEC_H
#define KERNEL_AVX512_VEC_H

#include "kernel/vector.h"

#include <immintrin.h>
#include <math.h>

/* The lanes of the last n values of a row, n >= 0; all for n >= 16. */
static inline __mmask16 vec_tail(size_t n) {
    return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1u);
}

static inline float vec_sum(__m512 v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vec_max(__m512 v) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* exp(x) for x <= 0 or NaN. */
static inline __m512 vec_exp_negative(__m512 x) {
    __m512 magic = _mm512_set1_ps(EXP_MAGIC);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
    /* not less than: true for NaN, which p carries on */
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOW), _CMP_NLT_UQ);
    return _mm512_maskz_mul_ps(counts, p, power);
}

static inline __m512 vec_exp(__m512 x) {
    __m512 magic = _mm512_set1_ps(EXP_MAGIC), most = _mm512_set1_ps(EXP_MAGIC + 127.0f);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_mask_add_ps(p, _mm512_cmp_ps_mask(t, most, _CMP_GT_OQ), p, p); /* 2^128 is no float */
    t = _mm512_min_ps(t, most);
    __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOW), _CMP_NLT_UQ);
    __m512 y = _mm512_maskz_mul_ps(counts, p, power);
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_HIGH), _CMP_GT_OQ),
                              _mm512_set1_ps(INFINITY));
}

static inline __m512 vec_tanh(__m512 x) {
    __m512 one = _mm512_set1_ps(1.0f), a = _mm512_abs_ps(x), s = _mm512_mul_ps(a, a);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(TANH_C6), s, _mm512_set1_ps(TANH_C5));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(TANH_C4));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(TANH_C3));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(TANH_C2));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(TANH_C1));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, s), a, a);
    __m512 e = vec_exp_negative(_mm512_mul_ps(_mm512_set1_ps(-2.0f), a));
    __m512 y = _mm512_sub_ps(one, _mm512_div_ps(_mm512_add_ps(e, e), _mm512_add_ps(one, e)));
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, _mm512_set1_ps(TANH_SMALL), _CMP_LT_OQ), small);
    __m512i sign = _mm512_set1_epi32((int)0x80000000u); /* 0xca: of x where set, else of y */
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x), _mm512_castps_si512(y), 0xca));
}

#endif
