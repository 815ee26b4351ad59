/* rows.c: rows that are normalized, multiplied or converted; see rows_body.h. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/lanes.h"

#include "kernel/rows_body.h"
#include "tensor/dtype.h"

#include <immintrin.h>

void softmax_avx2(const float *x, float *y, size_t n) {
    softmax_row(x, y, n);
}

void layer_norm_avx2(const float *x, const float *w, const float *b, size_t n, float eps, float *y) {
    layer_norm_row(x, w, b, n, eps, y);
}

void vector_matrix_avx2(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y) {
    vector_matrix_row(a, b, ldb, k, n, y);
}

void widen_f16_avx2(const uint16_t *x, float *y, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
    for (; i < n; i++) y[i] = f16_to_f32(x[i]);
}

void narrow_f16_avx2(const float *x, uint16_t *y, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) y[i] = f32_to_f16(x[i]);
}
