/* matmul_panel.c: weights unpacked once for many tokens, and the tiles that read them. */
#include "kernel/avx512/tile.h"

INLINE void unpack(int src, const uint8_t *group, size_t blocks, uint8_t *panel) {
    const int per_unit = src_is_k(src) ? 8 : 1, parts = src_scale16(src) ? 2 : 1;
    const size_t bytes = 512 + 64 * (size_t)parts * (src_has_min(src) ? 2 : 1);
    for (size_t i = 0; i < blocks; i += (size_t)per_unit, group += src_unit_bytes(src)) {
        for (int b = 0; b < per_unit; b++, panel += bytes) {
            const uint8_t *q = group + src_q(src) + (size_t)b * src_q_bytes(src);
            UNROLL
            for (int t = 0; t < 8; t++) _mm512_store_si512(panel + 64 * t, values(src, q, t));
            UNROLL
            for (int h = 0; h < parts; h++) {
                _mm512_store_ps(panel + 512 + 64 * h, scale_of(src, group, b, h));
                if (!src_has_min(src)) continue;
                _mm512_store_ps(panel + 512 + 64 * (parts + h), min_of(src, group, b, h));
            }
        }
    }
}

#define UNPACK_FN(name, type)                                                                                \
    static void unpack_##name(const uint8_t *group, size_t blocks, uint8_t *panel) {                         \
        unpack(type, group, blocks, panel);                                                                  \
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

void (*const panel_unpack[DTYPE_COUNT])(const uint8_t *group, size_t blocks, uint8_t *panel) = {
    [DTYPE_Q4_0] = unpack_q4_0, [DTYPE_Q4_1] = unpack_q4_1,     [DTYPE_Q5_0] = unpack_q5_0,
    [DTYPE_Q5_1] = unpack_q5_1, [DTYPE_Q8_0] = unpack_q8_0,     [DTYPE_Q2_K] = unpack_q2_k,
    [DTYPE_Q3_K] = unpack_q3_k, [DTYPE_Q4_K] = unpack_q4_k,     [DTYPE_Q5_K] = unpack_q5_k,
    [DTYPE_Q6_K] = unpack_q6_k, [DTYPE_IQ4_NL] = unpack_iq4_nl,
};

TILE_FNS(panel_32, PANEL_32, 1)
TILE_FNS(panel_32, PANEL_32, 2)
TILE_FNS(panel_32_min, PANEL_32_MIN, 1)
TILE_FNS(panel_32_min, PANEL_32_MIN, 2)
TILE_FNS(panel_16, PANEL_16, 1)
TILE_FNS(panel_16, PANEL_16, 2)
TILE_FNS(panel_16_min, PANEL_16_MIN, 1)
TILE_FNS(panel_16_min, PANEL_16_MIN, 2)

const tile_fn tiles_panel[2][2][TILE_VECTORS][TILE_TOKENS] = {
    {{TILE_LIST(panel_32, 1), TILE_LIST(panel_32, 2)},
     {TILE_LIST(panel_32_min, 1), TILE_LIST(panel_32_min, 2)}},
    {{TILE_LIST(panel_16, 1), TILE_LIST(panel_16, 2)},
     {TILE_LIST(panel_16_min, 1), TILE_LIST(panel_16_min, 2)}},
};
