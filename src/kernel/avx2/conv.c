/* conv.c: a row of a depthwise convolution, 4 pixels at a time. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/matmul.h"

#include <immintrin.h>

enum { BLOCK = 16, HALF = 8, PIXELS = 4 };

INLINE void pixels(int T, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                   const float *bias, const float *add, float low, float high, float *y) {
    __m256 acc[PIXELS][2];
    UNROLL
    for (int i = 0; i < T; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (size_t t = 0; t < taps; t++) {
        const __m256 w0 = _mm256_loadu_ps(w + t * BLOCK), w1 = _mm256_loadu_ps(w + t * BLOCK + HALF);
        const float *from = x + tap[t];
        UNROLL
        for (int i = 0; i < T; i++) {
            acc[i][0] = _mm256_fmadd_ps(w0, _mm256_loadu_ps(from + (size_t)i * x_step), acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(w1, _mm256_loadu_ps(from + (size_t)i * x_step + HALF), acc[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < T; i++) {
        for (int h = 0; h < 2; h++) {
            __m256 v = acc[i][h];
            if (bias) v = _mm256_add_ps(v, _mm256_loadu_ps(bias + h * HALF));
            if (add) v = _mm256_add_ps(v, _mm256_loadu_ps(add + i * BLOCK + h * HALF));
            v = _mm256_max_ps(_mm256_set1_ps(low), v);
            _mm256_storeu_ps(y + i * BLOCK + h * HALF, _mm256_min_ps(_mm256_set1_ps(high), v));
        }
    }
}

void depthwise_row_avx2(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                        const float *bias, const float *add, float low, float high, float *y, size_t n) {
    size_t i = 0;
    for (; i + PIXELS <= n; i += PIXELS) {
        pixels(PIXELS, x + i * x_step, x_step, tap, taps, w, bias, add ? add + i * BLOCK : NULL, low, high,
               y + i * BLOCK);
    }
    for (; i < n; i++) {
        pixels(1, x + i * x_step, x_step, tap, taps, w, bias, add ? add + i * BLOCK : NULL, low, high,
               y + i * BLOCK);
    }
}

INLINE void pool_pixels(bool max, int T, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps,
                        float divisor, float *y) {
    __m256 acc[PIXELS], nan[PIXELS];
    UNROLL
    for (int i = 0; i < T; i++) {
        acc[i] = _mm256_loadu_ps(x + tap[0] + (size_t)i * x_step);
        nan[i] = _mm256_cmp_ps(acc[i], acc[i], _CMP_UNORD_Q);
    }
    for (size_t t = 1; t < taps; t++) {
        const float *from = x + tap[t];
        UNROLL
        for (int i = 0; i < T; i++) {
            const __m256 v = _mm256_loadu_ps(from + (size_t)i * x_step);
            acc[i] = max ? _mm256_max_ps(v, acc[i]) : _mm256_add_ps(acc[i], v);
            if (max) nan[i] = _mm256_or_ps(nan[i], _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        }
    }
    UNROLL
    for (int i = 0; i < T; i++) {
        const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
        _mm256_storeu_ps(y + i * BLOCK, max ? _mm256_blendv_ps(acc[i], quiet, nan[i])
                                            : _mm256_div_ps(acc[i], _mm256_set1_ps(divisor)));
    }
}

INLINE void pool_pixels_row(bool max, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps,
                            float divisor, float *y, size_t n) {
    size_t i = 0;
    for (; i + PIXELS <= n; i += PIXELS) {
        pool_pixels(max, PIXELS, x + i * x_step, x_step, tap, taps, divisor, y + i * BLOCK);
        pool_pixels(max, PIXELS, x + i * x_step + HALF, x_step, tap, taps, divisor, y + i * BLOCK + HALF);
    }
    for (; i < n; i++) {
        pool_pixels(max, 1, x + i * x_step, x_step, tap, taps, divisor, y + i * BLOCK);
        pool_pixels(max, 1, x + i * x_step + HALF, x_step, tap, taps, divisor, y + i * BLOCK + HALF);
    }
}

void pool_row_avx2(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, float divisor, float *y,
                   size_t n) {
    if (divisor != 0.0f) {
        pool_pixels_row(false, x, x_step, tap, taps, divisor, y, n);
    } else {
        pool_pixels_row(true, x, x_step, tap, taps, divisor, y, n);
    }
}
