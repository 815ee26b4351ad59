/* rows.c: rows that are normalized, multiplied or converted; see rows_body.h. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/lanes.h"

#include "kernel/rows_body.h"

#include <immintrin.h>

void softmax_avx512(const float *x, float *y, size_t n) {
    softmax_row(x, y, n);
}

void layer_norm_avx512(const float *x, const float *w, const float *b, size_t n, float eps, float *y) {
    layer_norm_row(x, w, b, n, eps, y);
}

void vector_matrix_avx512(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y) {
    vector_matrix_row(a, b, ldb, k, n, y);
}

void widen_f16_avx512(const uint16_t *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1u) : 0xffff;
        _mm512_mask_storeu_ps(y + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, x + i)));
    }
}

void narrow_f16_avx512(const float *x, uint16_t *y, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1u) : 0xffff;
        _mm256_mask_storeu_epi16(y + i, m,
                                 _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, x + i), _MM_FROUND_TO_NEAREST_INT));
    }
}
