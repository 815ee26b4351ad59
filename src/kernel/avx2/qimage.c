/* qimage.c: see qimage.h; 32 channels or values at a time. Products are made of 16 bits in pairs (vpmaddwd),
 * which never saturates. The last channels of a row go through a buffer. */
#include "kernel/qimage.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/matmul.h"

#include <immintrin.h>
#include <string.h>

enum { BYTES = 32, FLOATS = 8 };

INLINE __m256i load(const uint8_t *x, size_t n) {
    uint8_t last[BYTES] = {0};
    if (n >= BYTES) return _mm256_loadu_si256((const __m256i *)x);
    memcpy(last, x, n);
    return _mm256_loadu_si256((const __m256i *)last);
}

INLINE void store(uint8_t *y, size_t n, __m256i v) {
    uint8_t last[BYTES];
    if (n >= BYTES) {
        _mm256_storeu_si256((__m256i *)y, v);
        return;
    }
    _mm256_storeu_si256((__m256i *)last, v);
    memcpy(y, last, n);
}

INLINE __m256i steps(__m256 v) {
    return _mm256_cvtps_epi32(_mm256_min_ps(v, _mm256_set1_ps(1e9f)));
}

INLINE __m256i narrow(const __m256i v[4], __m256i zero) {
    return _mm256_packus_epi16(_mm256_adds_epi16(_mm256_packs_epi32(v[0], v[1]), zero),
                               _mm256_adds_epi16(_mm256_packs_epi32(v[2], v[3]), zero));
}

INLINE __m256i in_order(__m256i v) {
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* ---- depthwise convolution -------------------------------------------------------------------------- */

/* Sums of four products of uint8 and int8. */
INLINE __m256i dot(__m256i x, const int8_t *w) {
    const __m256i b = _mm256_loadu_si256((const __m256i *)w);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xff)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    return _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(b, 8)));
}

/* Half a block: lanes 2h and 2h + 1 of each 64 places. */
static void half_of_block(const qdepthwise *d, const uint8_t *x, const int8_t *w, size_t n, __m256i acc[4]) {
    for (size_t t = 0; t < d->taps; t += QDEPTHWISE_TAPS, w += QDEPTHWISE_BLOCK * QDEPTHWISE_TAPS) {
        const __m256i a = load(x + d->tap[t], n), b = load(x + d->tap[t + 1], n),
                      c = load(x + d->tap[t + 2], n), e = load(x + d->tap[t + 3], n);
        const __m256i ab = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b),
                      ce = _mm256_unpacklo_epi8(c, e), ce_high = _mm256_unpackhi_epi8(c, e);
        acc[0] = _mm256_add_epi32(acc[0], dot(_mm256_unpacklo_epi16(ab, ce), w));
        acc[1] = _mm256_add_epi32(acc[1], dot(_mm256_unpackhi_epi16(ab, ce), w + 64));
        acc[2] = _mm256_add_epi32(acc[2], dot(_mm256_unpacklo_epi16(ab_high, ce_high), w + 128));
        acc[3] = _mm256_add_epi32(acc[3], dot(_mm256_unpackhi_epi16(ab_high, ce_high), w + 192));
    }
}

void qdepthwise_row_avx2(const qdepthwise *d, const uint8_t *x, uint8_t *y, size_t n) {
    const __m256i zero = _mm256_set1_epi16(d->zero), low = _mm256_set1_epi8((char)d->low),
                  high = _mm256_set1_epi8((char)d->high);
    for (size_t c = 0; c < d->channels; c += BYTES) {
        const size_t left = d->channels - c, block = c / QDEPTHWISE_BLOCK * QDEPTHWISE_BLOCK, h = c - block;
        const size_t at = block + h / BYTES * FLOATS; /* places of this half: 8 of each 16 */
        const int8_t *w = d->w + block * d->taps + h;
        for (size_t i = 0; i < n; i++) {
            __m256i acc[4];
            for (size_t k = 0; k < 4; k++)
                acc[k] = _mm256_loadu_si256((const __m256i *)(d->offset + at + k * 2 * FLOATS));
            half_of_block(d, x + i * d->x_step + c, w, left, acc);
            for (size_t k = 0; k < 4; k++)
                acc[k] = steps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[k]),
                                             _mm256_loadu_ps(d->scale + at + k * 2 * FLOATS)));
            store(y + i * d->channels + c, left,
                  _mm256_min_epu8(_mm256_max_epu8(narrow(acc, zero), low), high));
        }
    }
}

/* ---- pools ------------------------------------------------------------------------------------------ */

INLINE void widen(__m256i v, __m256i out[4]) {
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    out[0] = _mm256_cvtepu8_epi32(low);
    out[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(low, 8));
    out[2] = _mm256_cvtepu8_epi32(high);
    out[3] = _mm256_cvtepu8_epi32(_mm_srli_si128(high, 8));
}

static __m256i mean_of_block(const qpool *p, const uint8_t *x, size_t n) {
    __m256i acc[4];
    for (int k = 0; k < 4; k++)
        acc[k] = _mm256_set1_epi32((int)(0u - (uint32_t)p->taps * (uint32_t)p->x_zero));
    for (size_t t = 0; t < p->taps; t++) {
        __m256i v[4];
        widen(_mm256_xor_si256(load(x + p->tap[t], n), _mm256_set1_epi8((char)p->flip)), v);
        for (int k = 0; k < 4; k++) acc[k] = _mm256_add_epi32(acc[k], v[k]);
    }
    for (int k = 0; k < 4; k++) {
        const __m256 mean = _mm256_div_ps(_mm256_cvtepi32_ps(acc[k]), _mm256_set1_ps(p->divisor));
        acc[k] = steps(_mm256_mul_ps(mean, _mm256_set1_ps(p->factor)));
    }
    return _mm256_xor_si256(in_order(narrow(acc, _mm256_set1_epi16((short)p->y_zero))),
                            _mm256_set1_epi8((char)p->y_flip));
}

static __m256i most_of_block(const qpool *p, const uint8_t *x, size_t n) {
    const __m256i flip = _mm256_set1_epi8((char)p->flip);
    __m256i most = _mm256_setzero_si256();
    for (size_t t = 0; t < p->taps; t++)
        most = _mm256_max_epu8(most, _mm256_xor_si256(load(x + p->tap[t], n), flip));
    return _mm256_xor_si256(most, flip);
}

void qpool_row_avx2(const qpool *p, const uint8_t *x, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++, x += p->x_step, y += p->channels) {
        for (size_t c = 0; c < p->channels; c += BYTES) {
            const size_t left = p->channels - c;
            store(y + c, left, p->average ? mean_of_block(p, x + c, left) : most_of_block(p, x + c, left));
        }
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------ */

void qpair_avx2(const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n) {
    const __m256i a_zero = _mm256_set1_epi32(p->a_zero), b_zero = _mm256_set1_epi32(p->b_zero),
                  y_zero = _mm256_set1_epi16((short)p->y_zero);
    const __m256 fa = _mm256_set1_ps(p->a_factor), fb = _mm256_set1_ps(p->b_factor);
    for (size_t i = 0; i < n; i += BYTES) {
        __m256i u[4], v[4];
        widen(_mm256_xor_si256(load(a + i, n - i), _mm256_set1_epi8((char)p->a_flip)), u);
        widen(_mm256_xor_si256(load(b + i, n - i), _mm256_set1_epi8((char)p->b_flip)), v);
        for (int k = 0; k < 4; k++) {
            const __m256 x = _mm256_cvtepi32_ps(_mm256_sub_epi32(u[k], a_zero)),
                         z = _mm256_cvtepi32_ps(_mm256_sub_epi32(v[k], b_zero));
            u[k] = steps(p->multiply ? _mm256_mul_ps(fa, _mm256_mul_ps(x, z))
                                     : _mm256_add_ps(_mm256_mul_ps(fa, x), _mm256_mul_ps(fb, z)));
        }
        store(y + i, n - i, _mm256_xor_si256(in_order(narrow(u, y_zero)), _mm256_set1_epi8((char)p->y_flip)));
    }
}
