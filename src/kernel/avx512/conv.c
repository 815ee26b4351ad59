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
