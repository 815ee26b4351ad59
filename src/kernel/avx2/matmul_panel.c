/* matmul_panel.c: weights unpacked once for many tokens, and the tiles that read them. */
#include "kernel/avx2/tile.h"

INLINE void unpack(int src, const uint8_t *group, size_t vector, size_t blocks, uint8_t *panel) {
    const int per_unit = src_is_k(src) ? 8 : 1, parts = src_scale16(src) ? 2 : 1, v = (int)vector;
    for (size_t i = 0; i < blocks; i += (size_t)per_unit, group += src_unit_bytes(src)) {
        for (int b = 0; b < per_unit; b++, panel += panel_bytes(src)) {
            const uint8_t *q = group + src_q(src) + (size_t)b * src_q_bytes(src) + 32 * vector;
            UNROLL
            for (int t = 0; t < 8; t++) _mm256_store_si256((__m256i *)(panel + 32 * t), values(src, q, t));
            UNROLL
            for (int h = 0; h < parts; h++) {
                float *scales = (float *)(void *)(panel + 256);
                _mm256_store_ps(scales + 8 * h, scale_of(src, group, v, b, h));
                if (src_has_min(src)) _mm256_store_ps(scales + 8 * (parts + h), min_of(src, group, v, b, h));
            }
        }
    }
}

#define UNPACK_FN(name, type)                                                                                \
    static void unpack_##name(const uint8_t *group, size_t vector, size_t blocks, uint8_t *panel) {          \
        unpack(type, group, vector, blocks, panel);                                                          \
    }

UNPACK_FN(q4_0, DTYPE_Q4_0)
UNPACK_FN(q4_1, DTYPE_Q4_1)
UNPACK_FN(q5_0, DTYPE_Q5_0)
UNPACK_FN(q5_1, DTYPE_Q5_1)
UNPACK_FN(q8_0, DTYPE_Q8_0)
UNPACK_FN(iq4_nl, DTYPE_IQ4_NL)
UNPACK_FN(q2_k, DTYPE_Q2_K)
UNPACK_FN(q3_k, DTYPE_Q3_K)
UNPACK_FN(q4_k, DTYPE_Q4_K)
UNPACK_FN(q5_k, DTYPE_Q5_K)
UNPACK_FN(q6_k, DTYPE_Q6_K)

const panel_unpacker panel_unpackers[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {PANEL_U4, 288, unpack_q4_0},        [DTYPE_Q4_1] = {PANEL_U4_MIN, 320, unpack_q4_1},
    [DTYPE_Q5_0] = {PANEL_U5, 288, unpack_q5_0},        [DTYPE_Q5_1] = {PANEL_U5_MIN, 320, unpack_q5_1},
    [DTYPE_Q8_0] = {PANEL_S8, 288, unpack_q8_0},        [DTYPE_IQ4_NL] = {PANEL_S8, 288, unpack_iq4_nl},
    [DTYPE_Q2_K] = {PANEL_U2_16_MIN, 384, unpack_q2_k}, [DTYPE_Q3_K] = {PANEL_U3_16, 320, unpack_q3_k},
    [DTYPE_Q4_K] = {PANEL_U4_MIN, 320, unpack_q4_k},    [DTYPE_Q5_K] = {PANEL_U5_MIN, 320, unpack_q5_k},
    [DTYPE_Q6_K] = {PANEL_U6_16, 320, unpack_q6_k},
};

#define TILE_FNS(name, src)                                                                                  \
    TILE_FN(name, src, 1, 1)                                                                                 \
    TILE_FN(name, src, 2, 1)                                                                                 \
    TILE_FN(name, src, 3, 1)                                                                                 \
    TILE_FN(name, src, 4, 1)                                                                                 \
    TILE_FN(name, src, 5, 1)                                                                                 \
    TILE_FN(name, src, 6, 1)
#define TILE_LIST(name)                                                                                      \
    { name##_1x1, name##_2x1, name##_3x1, name##_4x1, name##_5x1, name##_6x1 }

TILE_FNS(u4, SRC_PANEL + PANEL_U4)
TILE_FNS(u4_min, SRC_PANEL + PANEL_U4_MIN)
TILE_FNS(u5, SRC_PANEL + PANEL_U5)
TILE_FNS(u5_min, SRC_PANEL + PANEL_U5_MIN)
TILE_FNS(s8, SRC_PANEL + PANEL_S8)
TILE_FNS(u3_16, SRC_PANEL + PANEL_U3_16)
TILE_FNS(u2_16_min, SRC_PANEL + PANEL_U2_16_MIN)
TILE_FNS(u6_16, SRC_PANEL + PANEL_U6_16)

const tile_fn tiles_panel_avx2[PANEL_KINDS][PANEL_TILE_TOKENS] = {
    [PANEL_U4] = TILE_LIST(u4),
    [PANEL_U4_MIN] = TILE_LIST(u4_min),
    [PANEL_U5] = TILE_LIST(u5),
    [PANEL_U5_MIN] = TILE_LIST(u5_min),
    [PANEL_S8] = TILE_LIST(s8),
    [PANEL_U3_16] = TILE_LIST(u3_16),
    [PANEL_U2_16_MIN] = TILE_LIST(u2_16_min),
    [PANEL_U6_16] = TILE_LIST(u6_16),
};
