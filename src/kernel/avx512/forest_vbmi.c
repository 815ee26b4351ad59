/* forest_vbmi.c: decisions of trees, 64 bytes at a time: the ranks of up to 128 features are two registers,
 * the nodes' features one permutation of them. */
#include "kernel/avx512/avx512.h"

#include <immintrin.h>

void forest_u8_vbmi(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                    const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    bool one = n_ranks <= 64;
    for (size_t row = 0; row < rows; row++) {
        __m512i low = _mm512_load_si512(ranks + row * FOREST_RANKS_U8);
        __m512i high = _mm512_load_si512(ranks + row * FOREST_RANKS_U8 + 64);
        for (size_t b = 0; b < blocks; b++) {
            __m512i f = _mm512_load_si512(feature + b * 64), s = _mm512_load_si512(split + b * 64);
            __m512i rank = one ? _mm512_permutexvar_epi8(f, low) : _mm512_permutex2var_epi8(low, f, high);
            masks[row * ld + b] = _cvtmask64_u64(_mm512_cmpgt_epu8_mask(rank, s));
        }
    }
}
