/* forest.c: decisions of trees, 32 bytes at a time. A row's ranks are tables of 16 bytes; a node looks into
 * all that are in use and keeps the one that its feature's upper bits name. */
#include "kernel/avx2/avx2.h"

#include <immintrin.h>

static uint32_t decide(const __m256i *table, size_t tables, __m256i feature, __m256i split) {
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(feature, 4), _mm256_set1_epi8(15));
    __m256i rank = _mm256_shuffle_epi8(table[0], feature);
    for (size_t k = 1; k < tables; k++) {
        __m256i here = _mm256_cmpeq_epi8(high, _mm256_set1_epi8((char)k));
        rank = _mm256_blendv_epi8(rank, _mm256_shuffle_epi8(table[k], feature), here);
    }
    __m256i not_above = _mm256_cmpeq_epi8(_mm256_max_epu8(rank, split), split);
    return ~(uint32_t)_mm256_movemask_epi8(not_above);
}

void forest_u8_avx2(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                    const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    size_t tables = (n_ranks + 15) / 16;
    for (size_t row = 0; row < rows; row++) {
        __m256i table[FOREST_RANKS_U8 / 16];
        for (size_t k = 0; k < tables; k++) {
            const __m128i *at = (const __m128i *)(const void *)(ranks + row * FOREST_RANKS_U8 + 16 * k);
            table[k] = _mm256_broadcastsi128_si256(_mm_load_si128(at));
        }
        for (size_t b = 0; b < blocks; b++) {
            const __m256i *f = (const __m256i *)(const void *)(feature + b * 64);
            const __m256i *s = (const __m256i *)(const void *)(split + b * 64);
            uint32_t low = decide(table, tables, _mm256_load_si256(f), _mm256_load_si256(s));
            uint32_t high = decide(table, tables, _mm256_load_si256(f + 1), _mm256_load_si256(s + 1));
            masks[row * ld + b] = (uint64_t)high << 32 | low;
        }
    }
}
