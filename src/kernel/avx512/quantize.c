/* quantize.c: activations to 8 bits, 32 at a time. */
#include "kernel/avx512/avx512.h"
#include "kernel/pack.h"

#include <immintrin.h>
#include <math.h>

/* Magnitudes are compared as integers: there NaN is above infinity, and both are above every number. */
void quantize_avx512(const float *x, size_t n, int8_t *q, float *scale, int16_t *sum16) {
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    for (size_t i = 0; i < n / ACT_BLOCK; i++, x += ACT_BLOCK, q += ACT_BLOCK, sum16 += 2) {
        __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        __m512i m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                     _mm512_and_si512(_mm512_castps_si512(high), magnitude));
        int32_t bits = _mm512_reduce_max_epi32(m);
        float max = pack_word_as_float((uint32_t)bits);
        bool ordinary = bits < 0x7f800000 && max >= QUANTIZE_LEAST;
        scale[i] = ordinary ? max / 127.0f : bits >= 0x7f800000 ? NAN : 0.0f;
        __mmask16 keep = (__mmask16)(ordinary ? 0xffffu : 0u);
        __m512 inverse = _mm512_set1_ps(127.0f / max);
        __m512i r0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
        __m512i r1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
        sum16[0] = (int16_t)_mm512_reduce_add_epi32(r0);
        sum16[1] = (int16_t)_mm512_reduce_add_epi32(r1);
        _mm_storeu_si128((__m128i *)q, _mm512_cvtsepi32_epi8(r0));
        _mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtsepi32_epi8(r1));
    }
}
