/* conv.c: a row of a depthwise convolution, 8 pixels at a time. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/matmul.h"

#include <immintrin.h>

enum { BLOCK = 16, PIXELS = 8 };

INLINE void pixels(int T, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                   const float *bias, const float *add, float low, float high, float *y) {
    __m512 acc[PIXELS];
    UNROLL
    for (int i = 0; i < T; i++) acc[i] = _mm512_setzero_ps();
    for (size_t t = 0; t < taps; t++) {
        const __m512 weight = _mm512_loadu_ps(w + t * BLOCK);
        const float *from = x + tap[t];
        UNROLL
        for (int i = 0; i < T; i++)
            acc[i] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(from + (size_t)i * x_step), acc[i]);
    }
    UNROLL
    for (int i = 0; i < T; i++) {
        if (bias) acc[i] = _mm512_add_ps(acc[i], _mm512_loadu_ps(bias));
        if (add) acc[i] = _mm512_add_ps(acc[i], _mm512_loadu_ps(add + i * BLOCK));
        acc[i] = _mm512_max_ps(_mm512_set1_ps(low), acc[i]);
        _mm512_storeu_ps(y + i * BLOCK, _mm512_min_ps(_mm512_set1_ps(high), acc[i]));
    }
}

void depthwise_row_avx512(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                          const float *bias, const float *add, float low, float high, float *y, size_t n) {
    size_t i = 0;
    for (; i + PIXELS <= n; i += PIXELS) {
        pixels(PIXELS, x + i * x_step, x_step, tap, taps, w, bias, add ? add + i * BLOCK : NULL, low, high,
               y + i * BLOCK);
    }
    for (; i + 2 <= n; i += 2) {
        pixels(2, x + i * x_step, x_step, tap, taps, w, bias, add ? add + i * BLOCK : NULL, low, high,
               y + i * BLOCK);
    }
    if (i < n)
        pixels(1, x + i * x_step, x_step, tap, taps, w, bias, add ? add + i * BLOCK : NULL, low, high,
               y + i * BLOCK);
}

INLINE void pool_pixels(bool max, int T, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps,
                        float divisor, float *y) {
    __m512 acc[PIXELS];
    __mmask16 nan[PIXELS];
    UNROLL
    for (int i = 0; i < T; i++) {
        acc[i] = _mm512_loadu_ps(x + tap[0] + (size_t)i * x_step);
        nan[i] = _mm512_cmp_ps_mask(acc[i], acc[i], _CMP_UNORD_Q);
    }
    for (size_t t = 1; t < taps; t++) {
        const float *from = x + tap[t];
        UNROLL
        for (int i = 0; i < T; i++) {
            const __m512 v = _mm512_loadu_ps(from + (size_t)i * x_step);
            acc[i] = max ? _mm512_max_ps(v, acc[i]) : _mm512_add_ps(acc[i], v);
            if (max) nan[i] |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        }
    }
    UNROLL
    for (int i = 0; i < T; i++) {
        const __m512 v =
            max ? _mm512_mask_mov_ps(acc[i], nan[i], _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)))
                : _mm512_div_ps(acc[i], _mm512_set1_ps(divisor));
        _mm512_storeu_ps(y + i * BLOCK, v);
    }
}

INLINE void pool_pixels_row(bool max, const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps,
                            float divisor, float *y, size_t n) {
    size_t i = 0;
    for (; i + PIXELS <= n; i += PIXELS)
        pool_pixels(max, PIXELS, x + i * x_step, x_step, tap, taps, divisor, y + i * BLOCK);
    for (; i < n; i++) pool_pixels(max, 1, x + i * x_step, x_step, tap, taps, divisor, y + i * BLOCK);
}

void pool_row_avx512(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, float divisor,
                     float *y, size_t n) {
    if (divisor != 0.0f) {
        pool_pixels_row(false, x, x_step, tap, taps, divisor, y, n);
    } else {
        pool_pixels_row(true, x, x_step, tap, taps, divisor, y, n);
    }
}
