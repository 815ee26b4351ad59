/* matmul_packed.c: tiles that unpack weights in registers, for few tokens. */
#include "kernel/avx2/tile.h"

#define TILE_FNS(name, src)                                                                                  \
    TILE_FN(name, src, 1, 2)                                                                                 \
    TILE_FN(name, src, 2, 2)                                                                                 \
    TILE_FN(name, src, 3, 2)
#define TILE_LIST(name)                                                                                      \
    { name##_1x2, name##_2x2, name##_3x2 }

TILE_FNS(q4_0, DTYPE_Q4_0)
TILE_FNS(q4_1, DTYPE_Q4_1)
TILE_FNS(q5_0, DTYPE_Q5_0)
TILE_FNS(q5_1, DTYPE_Q5_1)
TILE_FNS(q8_0, DTYPE_Q8_0)
TILE_FNS(iq4_nl, DTYPE_IQ4_NL)
TILE_FNS(q2_k, DTYPE_Q2_K)
TILE_FNS(q3_k, DTYPE_Q3_K)
TILE_FNS(q4_k, DTYPE_Q4_K)
TILE_FNS(q5_k, DTYPE_Q5_K)
TILE_FNS(q6_k, DTYPE_Q6_K)

const tile_fn tiles_packed_avx2[DTYPE_COUNT][PACKED_TOKENS] = {
    [DTYPE_Q4_0] = TILE_LIST(q4_0), [DTYPE_Q4_1] = TILE_LIST(q4_1),     [DTYPE_Q5_0] = TILE_LIST(q5_0),
    [DTYPE_Q5_1] = TILE_LIST(q5_1), [DTYPE_Q8_0] = TILE_LIST(q8_0),     [DTYPE_Q2_K] = TILE_LIST(q2_k),
    [DTYPE_Q3_K] = TILE_LIST(q3_k), [DTYPE_Q4_K] = TILE_LIST(q4_k),     [DTYPE_Q5_K] = TILE_LIST(q5_k),
    [DTYPE_Q6_K] = TILE_LIST(q6_k), [DTYPE_IQ4_NL] = TILE_LIST(iq4_nl),
};
