/* unary64.c: functions of one f64, 8 at a time; see unary64_body.h. */
#include "kernel/avx512/avx512.h"

#include <immintrin.h>

typedef __m512d D;
enum { D_LANES = 8 };

static inline D d_set(double x) {
    return _mm512_set1_pd(x);
}
static inline D d_load(const double *x, size_t n) {
    return n >= D_LANES ? _mm512_loadu_pd(x) : _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1u), x);
}
static inline void d_store(double *y, size_t n, D v) {
    if (n >= D_LANES)
        _mm512_storeu_pd(y, v);
    else
        _mm512_mask_storeu_pd(y, (__mmask8)((1u << n) - 1u), v);
}
static inline D d_add(D a, D b) {
    return _mm512_add_pd(a, b);
}
static inline D d_sub(D a, D b) {
    return _mm512_sub_pd(a, b);
}
static inline D d_mul(D a, D b) {
    return _mm512_mul_pd(a, b);
}
static inline D d_div(D a, D b) {
    return _mm512_div_pd(a, b);
}
static inline D d_fma(D a, D b, D c) {
    return _mm512_fmadd_pd(a, b, c);
}
static inline D d_max(D a, D b) {
    return _mm512_max_pd(a, b);
}
static inline D d_min(D a, D b) {
    return _mm512_min_pd(a, b);
}
static inline D d_abs(D a) {
    return _mm512_andnot_pd(d_set(-0.0), a);
}
static inline D d_copysign(D magnitude, D sign) {
    const D bit = d_set(-0.0);
    return _mm512_or_pd(_mm512_andnot_pd(bit, magnitude), _mm512_and_pd(bit, sign));
}
static inline D d_select_negative(D x, D yes, D no) {
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x, d_set(0.0), _CMP_LT_OQ), no, yes);
}
static inline D d_power(D t) {
    const __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(t), _mm512_set1_epi64(1023));
    return _mm512_castsi512_pd(_mm512_slli_epi64(bits, 52));
}

#include "kernel/unary64_body.h"

void unary64_avx512(kernel_unary f, const double *x, double *y, size_t n) {
    unary64_all(f, x, y, n);
}
