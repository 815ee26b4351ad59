/* quantize.c: activations to 8 bits, 32 at a time. */
#include "kernel/avx2/avx2.h"
#include "kernel/pack.h"

#include <immintrin.h>
#include <math.h>

static int32_t largest(__m256i bits) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

static int32_t total(__m256i x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Magnitudes are compared as integers: there NaN is above infinity, and both are above every number. */
void quantize_avx2(const float *x, size_t n, int8_t *q, float *scale, int16_t *sum16) {
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    for (size_t i = 0; i < n / ACT_BLOCK; i++, x += ACT_BLOCK, q += ACT_BLOCK, sum16 += 2) {
        __m256 v[4];
        __m256i r[4], m = _mm256_setzero_si256();
        for (int j = 0; j < 4; j++) {
            v[j] = _mm256_loadu_ps(x + 8 * j);
            m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v[j]), magnitude));
        }
        int32_t bits = largest(m);
        float max = pack_word_as_float((uint32_t)bits);
        bool ordinary = bits < 0x7f800000 && max >= QUANTIZE_LEAST;
        scale[i] = ordinary ? max / 127.0f : bits >= 0x7f800000 ? NAN : 0.0f;
        __m256 inverse = _mm256_set1_ps(ordinary ? 127.0f / max : 0.0f);
        for (int j = 0; j < 4; j++) {
            r[j] = ordinary ? _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse)) : _mm256_setzero_si256();
        }
        sum16[0] = (int16_t)total(_mm256_add_epi32(r[0], r[1]));
        sum16[1] = (int16_t)total(_mm256_add_epi32(r[2], r[3]));
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)q, bytes);
    }
}
