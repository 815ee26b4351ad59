/* qimage.c: the scalar reference of what qimage.h describes. */
#include "kernel/ref/ref.h"

#include <math.h>

static uint8_t narrow(float v, int32_t zero, int32_t low, int32_t high) {
    const float x = rintf(v) + (float)zero;
    return (uint8_t)(x < (float)low ? (float)low : x > (float)high ? (float)high : x);
}

void qdepthwise_row_ref(const qdepthwise *d, const uint8_t *x, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++, x += d->x_step, y += d->channels) {
        for (size_t c = 0; c < d->channels; c++) {
            const size_t block = c / QDEPTHWISE_BLOCK, place = qdepthwise_place(c % QDEPTHWISE_BLOCK),
                         at = block * QDEPTHWISE_BLOCK + place;
            const int8_t *w = d->w + (block * d->taps * QDEPTHWISE_BLOCK) + place * QDEPTHWISE_TAPS;
            uint32_t sum = (uint32_t)d->offset[at];
            for (size_t t = 0; t < d->taps; t++)
                sum += (uint32_t)(x[d->tap[t] + (ptrdiff_t)c] *
                                  w[t / QDEPTHWISE_TAPS * QDEPTHWISE_BLOCK * QDEPTHWISE_TAPS +
                                    t % QDEPTHWISE_TAPS]);
            y[c] = narrow((float)(int32_t)sum * d->scale[at], d->zero, d->low, d->high);
        }
    }
}

void qpool_row_ref(const qpool *p, const uint8_t *x, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++, x += p->x_step, y += p->channels) {
        for (size_t c = 0; c < p->channels; c++) {
            uint32_t sum = 0;
            uint8_t most = 0;
            for (size_t t = 0; t < p->taps; t++) {
                const uint8_t v = x[p->tap[t] + (ptrdiff_t)c] ^ p->flip;
                sum += v;
                most = v > most ? v : most;
            }
            const float mean =
                (float)(int32_t)(sum - (uint32_t)p->taps * (uint32_t)p->x_zero) / p->divisor * p->factor;
            y[c] = p->average ? (uint8_t)(narrow(mean, p->y_zero, 0, 255) ^ p->y_flip)
                              : (uint8_t)(most ^ p->flip);
        }
    }
}

void qpair_ref(const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float u = (float)((a[i] ^ p->a_flip) - p->a_zero), v = (float)((b[i] ^ p->b_flip) - p->b_zero);
        const float sum = p->multiply ? p->a_factor * (u * v) : p->a_factor * u + p->b_factor * v;
        y[i] = narrow(sum, p->y_zero, 0, 255) ^ p->y_flip;
    }
}

void lookup_ref(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = table[x[i]];
}
