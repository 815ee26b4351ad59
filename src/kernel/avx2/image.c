/* image.c: resizing of u8 rows; see kernel/image.h. A weight's halves of 16 bits multiply pairs of taps at
 * once (vpmaddwd), so that 22 bits stay exact: sum = upper sum * 2048 + lower sum, modulo 2^32 as in the
 * reference. */
#include "kernel/image.h"

#include "kernel/avx2/avx2.h"
#include "kernel/ref/ref.h"

#include <immintrin.h>
#include <string.h>

enum { HALF_BITS = 11, LOAD = 16 };

static inline __m128i load_tail(const uint8_t *p, size_t n) {
    uint8_t safe[LOAD] = {0};
    memcpy(safe, p, n < LOAD ? n : LOAD);
    return _mm_loadu_si128((const __m128i *)safe);
}

/* Byte order that makes, of four neighbouring pixels in each half, pairs (pixel 2h, pixel 2h + 1) of each
 * channel. */
static __m256i pair_order(size_t channels) {
    uint8_t order[32];
    memset(order, 0x80, sizeof order);
    for (size_t half = 0; half < 2; half++) {
        for (size_t c = 0; c < 4 && c < channels; c++) {
            order[16 * half + 4 * c] = (uint8_t)(2 * half * channels + c);
            order[16 * half + 4 * c + 2] = (uint8_t)((2 * half + 1) * channels + c);
        }
    }
    return _mm256_loadu_si256((const __m256i *)order);
}

/* Two weights to all pairs of the lower half, the next two to the upper. */
static inline __m256i spread(const int16_t *four) {
    return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)four)),
                                       _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

static inline __m128i finish(__m256i upper, __m256i lower) {
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, HALF_BITS), lower);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_srai_epi32(_mm_add_epi32(s, _mm_set1_epi32(1 << (RESIZE_BITS - 1))), RESIZE_BITS);
    s = _mm_packs_epi32(s, s);
    return _mm_packus_epi16(s, s);
}

void resize_across_avx2(const resize_taps *t, size_t channels, const uint8_t *in, size_t in_n, size_t from,
                        size_t to, uint8_t *out) {
    const __m256i order = pair_order(channels);
    const uint8_t *end = in + in_n * channels;
    for (size_t i = from; i < to; i++, out += channels) {
        const uint8_t *p = in + t->first[i] * channels;
        const int16_t *upper = t->upper + i * t->per, *lower = t->lower + i * t->per;
        __m256i sum_upper = _mm256_setzero_si256(), sum_lower = sum_upper;
        for (size_t k = 0; k < t->count[i]; k += RESIZE_TAPS, p += RESIZE_TAPS * channels) {
            const __m128i four =
                end - p >= LOAD ? _mm_loadu_si128((const __m128i *)p) : load_tail(p, (size_t)(end - p));
            const __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(four), order);
            sum_upper = _mm256_add_epi32(sum_upper, _mm256_madd_epi16(pairs, spread(upper + k)));
            sum_lower = _mm256_add_epi32(sum_lower, _mm256_madd_epi16(pairs, spread(lower + k)));
        }
        const uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(finish(sum_upper, sum_lower));
        memcpy(out, &pixel, channels);
    }
}

/* 16 columns from x on. rows[count] is read for an odd count with weight 0 as rows[count - 1]. */
static inline __m128i down_16(const resize_taps *t, size_t i, const uint8_t *const *rows, size_t x) {
    const int16_t *upper = t->upper + i * t->per, *lower = t->lower + i * t->per;
    const size_t count = t->count[i];
    __m256i u0 = _mm256_setzero_si256(), u1 = u0, l0 = u0, l1 = u0;
    for (size_t k = 0; k < count; k += 2) {
        int32_t two_upper, two_lower;
        memcpy(&two_upper, upper + k, 4);
        memcpy(&two_lower, lower + k, 4);
        const __m128i a = _mm_loadu_si128((const __m128i *)(rows[k] + x));
        const __m128i b = _mm_loadu_si128((const __m128i *)(rows[k + 1 < count ? k + 1 : k] + x));
        const __m256i p0 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
        const __m256i p1 = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
        const __m256i wu = _mm256_set1_epi32(two_upper), wl = _mm256_set1_epi32(two_lower);
        u0 = _mm256_add_epi32(u0, _mm256_madd_epi16(p0, wu));
        u1 = _mm256_add_epi32(u1, _mm256_madd_epi16(p1, wu));
        l0 = _mm256_add_epi32(l0, _mm256_madd_epi16(p0, wl));
        l1 = _mm256_add_epi32(l1, _mm256_madd_epi16(p1, wl));
    }
    const __m256i half = _mm256_set1_epi32(1 << (RESIZE_BITS - 1));
    __m256i s0 = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(u0, HALF_BITS), l0), half);
    __m256i s1 = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(u1, HALF_BITS), l1), half);
    s0 = _mm256_packs_epi32(_mm256_srai_epi32(s0, RESIZE_BITS), _mm256_srai_epi32(s1, RESIZE_BITS));
    s0 = _mm256_permute4x64_epi64(s0, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(s0), _mm256_extracti128_si256(s0, 1));
}

void resize_down_avx2(const resize_taps *t, size_t i, const uint8_t *const *rows, size_t n, uint8_t *out) {
    if (n < LOAD) {
        resize_down_ref(t, i, rows, n, out);
        return;
    }
    for (size_t x = 0; x + LOAD <= n; x += LOAD)
        _mm_storeu_si128((__m128i *)(out + x), down_16(t, i, rows, x));
    /* The last columns once more: the same values. */
    if (n % LOAD) _mm_storeu_si128((__m128i *)(out + n - LOAD), down_16(t, i, rows, n - LOAD));
}
