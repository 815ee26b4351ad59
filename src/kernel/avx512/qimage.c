/* qimage.c: see qimage.h; 64 channels or values at a time. Saturating packs narrow 32 bits to 8 and move by
 * the zero point between; they leave bytes in lanes, which one permutation puts in order. */
#include "kernel/qimage.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/matmul.h"

#include <immintrin.h>

enum { BYTES = 64, FLOATS = 16 };

INLINE __mmask64 first(size_t n) {
    return n >= BYTES ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

/* Whole steps; what lies beyond int32 above stops short of it. */
INLINE __m512i steps(__m512 v) {
    return _mm512_cvtps_epi32(_mm512_min_ps(v, _mm512_set1_ps(1e9f)));
}

/* Each lane of 128 bits: four values of each. */
INLINE __m512i narrow(const __m512i v[4], __m512i zero) {
    return _mm512_packus_epi16(_mm512_adds_epi16(_mm512_packs_epi32(v[0], v[1]), zero),
                               _mm512_adds_epi16(_mm512_packs_epi32(v[2], v[3]), zero));
}

INLINE __m512i in_order(__m512i v) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    v);
}

/* ---- depthwise convolution -------------------------------------------------------------------------- */

INLINE void taps_of_block(const uint8_t *x, const ptrdiff_t *tap, size_t taps, const int8_t *w, __mmask64 m,
                          __m512i acc[4]) {
    for (size_t t = 0; t < taps; t += QDEPTHWISE_TAPS, w += 4 * BYTES) {
        const __m512i a = _mm512_maskz_loadu_epi8(m, x + tap[t]),
                      b = _mm512_maskz_loadu_epi8(m, x + tap[t + 1]),
                      c = _mm512_maskz_loadu_epi8(m, x + tap[t + 2]),
                      d = _mm512_maskz_loadu_epi8(m, x + tap[t + 3]);
        const __m512i ab = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b),
                      cd = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
        acc[0] = _mm512_dpbusd_epi32(acc[0], _mm512_unpacklo_epi16(ab, cd), _mm512_loadu_si512(w));
        acc[1] = _mm512_dpbusd_epi32(acc[1], _mm512_unpackhi_epi16(ab, cd), _mm512_loadu_si512(w + BYTES));
        acc[2] = _mm512_dpbusd_epi32(acc[2], _mm512_unpacklo_epi16(ab_high, cd_high),
                                     _mm512_loadu_si512(w + 2 * BYTES));
        acc[3] = _mm512_dpbusd_epi32(acc[3], _mm512_unpackhi_epi16(ab_high, cd_high),
                                     _mm512_loadu_si512(w + 3 * BYTES));
    }
}

void qdepthwise_row_avx512(const qdepthwise *d, const uint8_t *x, uint8_t *y, size_t n) {
    const __m512i zero = _mm512_set1_epi16(d->zero), low = _mm512_set1_epi8((char)d->low),
                  high = _mm512_set1_epi8((char)d->high);
    for (size_t c = 0; c < d->channels; c += QDEPTHWISE_BLOCK) {
        const __mmask64 m = first(d->channels - c);
        const int8_t *w = d->w + c * d->taps;
        __m512i offset[4];
        __m512 scale[4];
        for (size_t k = 0; k < 4; k++) {
            offset[k] = _mm512_loadu_si512(d->offset + c + k * FLOATS);
            scale[k] = _mm512_loadu_ps(d->scale + c + k * FLOATS);
        }
        for (size_t i = 0; i < n; i++) {
            __m512i acc[4] = {offset[0], offset[1], offset[2], offset[3]};
            taps_of_block(x + i * d->x_step + c, d->tap, d->taps, w, m, acc);
            UNROLL
            for (int k = 0; k < 4; k++) acc[k] = steps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[k]), scale[k]));
            const __m512i v = _mm512_min_epu8(_mm512_max_epu8(narrow(acc, zero), low), high);
            _mm512_mask_storeu_epi8(y + i * d->channels + c, m, v);
        }
    }
}

/* ---- pools ------------------------------------------------------------------------------------------ */

INLINE void widen(__m512i v, __m512i out[4]) {
    out[0] = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(v));
    out[1] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 1));
    out[2] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 2));
    out[3] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 3));
}

INLINE __m512i mean_of_block(const qpool *p, const uint8_t *x, __mmask64 m) {
    const __m512i flip = _mm512_set1_epi8((char)p->flip);
    __m512i acc[4];
    for (int k = 0; k < 4; k++)
        acc[k] = _mm512_set1_epi32((int)(0u - (uint32_t)p->taps * (uint32_t)p->x_zero));
    for (size_t t = 0; t < p->taps; t++) {
        __m512i v[4];
        widen(_mm512_xor_si512(_mm512_maskz_loadu_epi8(m, x + p->tap[t]), flip), v);
        UNROLL
        for (int k = 0; k < 4; k++) acc[k] = _mm512_add_epi32(acc[k], v[k]);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512 mean = _mm512_div_ps(_mm512_cvtepi32_ps(acc[k]), _mm512_set1_ps(p->divisor));
        acc[k] = steps(_mm512_mul_ps(mean, _mm512_set1_ps(p->factor)));
    }
    return _mm512_xor_si512(in_order(narrow(acc, _mm512_set1_epi16((short)p->y_zero))),
                            _mm512_set1_epi8((char)p->y_flip));
}

INLINE __m512i most_of_block(const qpool *p, const uint8_t *x, __mmask64 m) {
    const __m512i flip = _mm512_set1_epi8((char)p->flip);
    __m512i most = _mm512_setzero_si512();
    for (size_t t = 0; t < p->taps; t++)
        most = _mm512_max_epu8(most, _mm512_xor_si512(_mm512_maskz_loadu_epi8(m, x + p->tap[t]), flip));
    return _mm512_xor_si512(most, flip);
}

void qpool_row_avx512(const qpool *p, const uint8_t *x, uint8_t *y, size_t n) {
    for (size_t i = 0; i < n; i++, x += p->x_step, y += p->channels) {
        for (size_t c = 0; c < p->channels; c += BYTES) {
            const __mmask64 m = first(p->channels - c);
            _mm512_mask_storeu_epi8(y + c, m,
                                    p->average ? mean_of_block(p, x + c, m) : most_of_block(p, x + c, m));
        }
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------ */

INLINE __m512i join_bytes(bool multiply, const qpair *p, __m512i u[4], __m512i v[4]) {
    const __m512i a_zero = _mm512_set1_epi32(p->a_zero), b_zero = _mm512_set1_epi32(p->b_zero);
    const __m512 fa = _mm512_set1_ps(p->a_factor), fb = _mm512_set1_ps(p->b_factor);
    UNROLL
    for (int k = 0; k < 4; k++) {
        const __m512 x = _mm512_cvtepi32_ps(_mm512_sub_epi32(u[k], a_zero)),
                     z = _mm512_cvtepi32_ps(_mm512_sub_epi32(v[k], b_zero));
        u[k] = steps(multiply ? _mm512_mul_ps(fa, _mm512_mul_ps(x, z))
                              : _mm512_add_ps(_mm512_mul_ps(fa, x), _mm512_mul_ps(fb, z)));
    }
    return in_order(narrow(u, _mm512_set1_epi16((short)p->y_zero)));
}

INLINE void widen_from(const uint8_t *x, __m512i out[4]) {
    UNROLL
    for (int k = 0; k < 4; k++)
        out[k] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(x + k * FLOATS)));
}

INLINE void pairs(bool multiply, const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n) {
    size_t i = 0;
    __m512i u[4], v[4];
    if ((p->a_flip | p->b_flip | p->y_flip) == 0) {
        for (; i + BYTES <= n; i += BYTES) {
            widen_from(a + i, u);
            widen_from(b + i, v);
            _mm512_storeu_si512(y + i, join_bytes(multiply, p, u, v));
        }
    }
    for (; i < n; i += BYTES) {
        const __mmask64 m = first(n - i);
        widen(_mm512_xor_si512(_mm512_maskz_loadu_epi8(m, a + i), _mm512_set1_epi8((char)p->a_flip)), u);
        widen(_mm512_xor_si512(_mm512_maskz_loadu_epi8(m, b + i), _mm512_set1_epi8((char)p->b_flip)), v);
        _mm512_mask_storeu_epi8(
            y + i, m, _mm512_xor_si512(join_bytes(multiply, p, u, v), _mm512_set1_epi8((char)p->y_flip)));
    }
}

void qpair_avx512(const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n) {
    if (p->multiply)
        pairs(true, p, a, b, y, n);
    else
        pairs(false, p, a, b, y, n);
}

/* ---- tables ----------------------------------------------------------------------------------------- */

void lookup_avx512(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n) {
    if (__builtin_cpu_supports("avx512vbmi")) {
        lookup_vbmi(table, x, y, n);
        return;
    }
    for (size_t i = 0; i < n; i++) y[i] = table[x[i]];
}
