/* image.c: resizing of u8 rows, the definition; see kernel/image.h. */
#include "kernel/image.h"

#include "kernel/ref/ref.h"

static uint8_t pixel_of(uint32_t sum) {
    const int32_t v = (int32_t)(sum + (1u << (RESIZE_BITS - 1))) >> RESIZE_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

void resize_across_ref(const resize_taps *t, size_t channels, const uint8_t *in, size_t in_n, size_t from,
                       size_t to, uint8_t *out) {
    (void)in_n;
    for (size_t i = from; i < to; i++) {
        const int32_t *w = t->weight + i * t->per;
        const uint8_t *p = in + t->first[i] * channels;
        for (size_t c = 0; c < channels; c++) {
            uint32_t sum = 0;
            for (size_t k = 0; k < t->count[i]; k++) sum += p[k * channels + c] * (uint32_t)w[k];
            *out++ = pixel_of(sum);
        }
    }
}

void resize_down_ref(const resize_taps *t, size_t i, const uint8_t *const *rows, size_t n, uint8_t *out) {
    const int32_t *w = t->weight + i * t->per;
    for (size_t x = 0; x < n; x++) {
        uint32_t sum = 0;
        for (size_t k = 0; k < t->count[i]; k++) sum += rows[k][x] * (uint32_t)w[k];
        out[x] = pixel_of(sum);
    }
}
