/* qgemm.c: the scalar reference of a tile of a product of 8-bit matrices (see qgemm.h), and of what goes
 * before and behind it. */
#include "kernel/qgemm.h"
#include "kernel/ref/ref.h"

#include <math.h>

static float finish(const qgemm_tile *t, size_t row, size_t column, int32_t sum) {
    float v = (float)sum * (t->a_scale[row] * t->b_scale[column]);
    if (t->bias) v += t->bias[column];
    if (t->add) v += t->add[row * t->add_row + column];
    v = v < t->low ? t->low : v; /* false for NaN */
    return v > t->high ? t->high : v;
}

static uint32_t dot(const qgemm_tile *t, const uint8_t *row, const int8_t *b) {
    uint32_t sum = 0;
    for (size_t p = 0; p < t->n_parts; p++) {
        const uint8_t *a = row + t->part[p];
        for (size_t q = 0; q < t->quads; q++, a += QGEMM_QUAD, b += QGEMM_PANEL * QGEMM_QUAD)
            for (size_t x = 0; x < QGEMM_QUAD; x++) sum += (uint32_t)(a[x] * b[x]);
    }
    return sum;
}

static uint8_t narrow(const qgemm_tile *t, size_t column, int32_t sum) {
    const float v = rintf((float)sum * t->b_scale[column]) + (float)t->y_zero;
    const uint8_t y = v < 0.0f ? 0 : v > 255.0f ? 255 : (uint8_t)v;
    return y < t->y_low ? t->y_low : y > t->y_high ? t->y_high : y;
}

void qgemm_tile_ref(const qgemm_tile *t, size_t n_rows, size_t n_panels) {
    for (size_t j = 0; j < n_panels * QGEMM_PANEL; j++) {
        const size_t p = j / QGEMM_PANEL, lane = j % QGEMM_PANEL;
        if (p + 1 == n_panels && !(t->mask >> lane & 1)) break;
        const int8_t *b = t->b + p * t->b_panel + lane * QGEMM_QUAD;
        for (size_t i = 0; i < n_rows; i++) {
            uint32_t sum = dot(t, t->a + i * t->a_row, b);
            if (t->b_zero) sum -= (uint32_t)t->b_zero[j] * (uint32_t)t->a_rest[i];
            if (!t->sums && !t->y) {
                t->bytes[i * t->c_row + j] = narrow(t, j, (int32_t)(sum + (uint32_t)t->offset[j]));
                continue;
            }
            sum -= (uint32_t)t->a_zero[i] * (uint32_t)t->b_sums[j];
            if (t->sums)
                t->sums[i * t->c_row + j] = (int32_t)sum;
            else
                t->y[i * t->c_row + j] = finish(t, i, j, (int32_t)sum);
        }
    }
}

void range_ref(const float *x, size_t n, float *least, float *most) {
    float low = *least, high = *most;
    for (size_t i = 0; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    *least = low;
    *most = high;
}

/* v to nearest, ties to even, plus zero, to [low, high]; NaN gives zero. */
static int32_t rounded(float v, int32_t zero, int32_t low, int32_t high) {
    const float x = rintf(v) + (float)zero;
    if (isnan(x)) return zero;
    return x < (float)low ? low : x > (float)high ? high : (int32_t)x;
}

void quantize_u8_ref(const float *x, size_t n, float scale, int32_t zero, uint8_t *y) {
    for (size_t i = 0; i < n; i++) y[i] = (uint8_t)rounded(x[i] / scale, zero, 0, 255);
}

void requantize_ref(const int32_t *x, const float *scale, size_t n, int32_t zero, int32_t low, int32_t high,
                    uint8_t *y) {
    for (size_t i = 0; i < n; i++) y[i] = (uint8_t)rounded((float)x[i] * scale[i], zero, low, high);
}
