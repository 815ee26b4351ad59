/* forest.c: decisions of trees with 16-bit ranks, 32 at a time; with 8-bit ranks by the best that is there.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx512/avx512.h"

#include <immintrin.h>

void forest_u8_avx512(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                      const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    if (__builtin_cpu_supports("avx512vbmi")) {
        forest_u8_vbmi(ranks, rows, n_ranks, feature, split, blocks, masks, ld);
    } else {
        forest_u8_avx2(ranks, rows, n_ranks, feature, split, blocks, masks, ld);
    }
}

static inline uint32_t decide(__m512i low, __m512i high, bool one, const uint8_t *feature,
                              const uint16_t *split) {
    __m512i f = _mm512_cvtepu8_epi16(_mm256_load_si256((const __m256i *)(const void *)feature));
    __m512i rank = one ? _mm512_permutexvar_epi16(f, low) : _mm512_permutex2var_epi16(low, f, high);
    return _cvtmask32_u32(_mm512_cmpgt_epu16_mask(rank, _mm512_load_si512(split)));
}

void forest_u16_avx512(const uint16_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                       const uint16_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    bool one = n_ranks <= 32;
    for (size_t row = 0; row < rows; row++) {
        __m512i low = _mm512_load_si512(ranks + row * FOREST_RANKS_U16);
        __m512i high = _mm512_load_si512(ranks + row * FOREST_RANKS_U16 + 32);
        for (size_t b = 0; b < blocks; b++) {
            const uint8_t *f = feature + b * 64;
            const uint16_t *s = split + b * 64;
            uint64_t first = decide(low, high, one, f, s), second = decide(low, high, one, f + 32, s + 32);
            masks[row * ld + b] = second << 32 | first;
        }
    }
}
