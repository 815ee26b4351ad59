/* conv.c: the scalar reference of a row of a depthwise convolution; see kernel.h. */
#include "kernel/ref/ref.h"

#include <math.h>

enum { BLOCK = 16 };

void depthwise_row_ref(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                       const float *bias, const float *add, float low, float high, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t l = 0; l < BLOCK; l++) {
            float sum = 0.0f;
            for (size_t t = 0; t < taps; t++)
                sum = fmaf(w[t * BLOCK + l], x[(ptrdiff_t)(i * x_step + l) + tap[t]], sum);
            if (bias) sum += bias[l];
            if (add) sum += add[i * BLOCK + l];
            sum = sum < low ? low : sum;
            y[i * BLOCK + l] = sum > high ? high : sum;
        }
    }
}

void pool_row_ref(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, float divisor, float *y,
                  size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t l = 0; l < BLOCK; l++) {
            const float *from = x + i * x_step + l;
            float most = from[tap[0]], sum = most;
            bool nan = isnan(most);
            for (size_t t = 1; t < taps; t++) {
                const float v = from[tap[t]];
                sum += v;
                most = v > most ? v : most;
                nan = nan || isnan(v);
            }
            y[i * BLOCK + l] = divisor != 0.0f ? sum / divisor : nan ? NAN : most;
        }
    }
}
