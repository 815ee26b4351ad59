/* forest.c: decisions of trees, one by one. */
#include "kernel/ref/ref.h"

void forest_u8_ref(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                   const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    (void)n_ranks;
    for (size_t row = 0; row < rows; row++) {
        const uint8_t *rank = ranks + row * FOREST_RANKS_U8;
        for (size_t b = 0; b < blocks; b++) {
            uint64_t mask = 0;
            for (size_t i = 0; i < 64; i++) {
                mask |= (uint64_t)(rank[feature[b * 64 + i]] > split[b * 64 + i]) << i;
            }
            masks[row * ld + b] = mask;
        }
    }
}

void forest_u16_ref(const uint16_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                    const uint16_t *split, size_t blocks, uint64_t *masks, size_t ld) {
    (void)n_ranks;
    for (size_t row = 0; row < rows; row++) {
        const uint16_t *rank = ranks + row * FOREST_RANKS_U16;
        for (size_t b = 0; b < blocks; b++) {
            uint64_t mask = 0;
            for (size_t i = 0; i < 64; i++) {
                mask |= (uint64_t)(rank[feature[b * 64 + i]] > split[b * 64 + i]) << i;
            }
            masks[row * ld + b] = mask;
        }
    }
}
