/* unary64.c: functions of one f64, 4 at a time; see unary64_body.h. */
#include "kernel/avx2/avx2.h"

#include <immintrin.h>

typedef __m256d D;
enum { D_LANES = 4 };

static inline D d_set(double x) {
    return _mm256_set1_pd(x);
}
static inline __m256i first_lanes(size_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), _mm256_setr_epi64x(0, 1, 2, 3));
}
static inline D d_load(const double *x, size_t n) {
    return n >= D_LANES ? _mm256_loadu_pd(x) : _mm256_maskload_pd(x, first_lanes(n));
}
static inline void d_store(double *y, size_t n, D v) {
    if (n >= D_LANES)
        _mm256_storeu_pd(y, v);
    else
        _mm256_maskstore_pd(y, first_lanes(n), v);
}
static inline D d_add(D a, D b) {
    return _mm256_add_pd(a, b);
}
static inline D d_sub(D a, D b) {
    return _mm256_sub_pd(a, b);
}
static inline D d_mul(D a, D b) {
    return _mm256_mul_pd(a, b);
}
static inline D d_div(D a, D b) {
    return _mm256_div_pd(a, b);
}
static inline D d_fma(D a, D b, D c) {
    return _mm256_fmadd_pd(a, b, c);
}
static inline D d_max(D a, D b) {
    return _mm256_max_pd(a, b);
}
static inline D d_min(D a, D b) {
    return _mm256_min_pd(a, b);
}
static inline D d_abs(D a) {
    return _mm256_andnot_pd(d_set(-0.0), a);
}
static inline D d_copysign(D magnitude, D sign) {
    const D bit = d_set(-0.0);
    return _mm256_or_pd(_mm256_andnot_pd(bit, magnitude), _mm256_and_pd(bit, sign));
}
static inline D d_select_negative(D x, D yes, D no) {
    return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(x, d_set(0.0), _CMP_LT_OQ));
}
static inline D d_power(D t) {
    const __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(t), _mm256_set1_epi64x(1023));
    return _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52));
}

#include "kernel/unary64_body.h"

void unary64_avx2(kernel_unary f, const double *x, double *y, size_t n) {
    unary64_all(f, x, y, n);
}
