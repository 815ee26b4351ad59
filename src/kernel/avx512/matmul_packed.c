/* matmul_packed.c: tiles that unpack weights in registers, for few tokens. */
#include "kernel/avx512/tile.h"

TILE_FNS(q4_0, DTYPE_Q4_0, 1)
TILE_FNS(q4_1, DTYPE_Q4_1, 1)
TILE_FNS(q5_0, DTYPE_Q5_0, 1)
TILE_FNS(q5_1, DTYPE_Q5_1, 1)
TILE_FNS(q8_0, DTYPE_Q8_0, 1)
TILE_FNS(iq4_nl, DTYPE_IQ4_NL, 1)
TILE_FNS(q2_k, DTYPE_Q2_K, 1)
TILE_FNS(q3_k, DTYPE_Q3_K, 1)
TILE_FNS(q4_k, DTYPE_Q4_K, 1)
TILE_FNS(q5_k, DTYPE_Q5_K, 1)
TILE_FNS(q6_k, DTYPE_Q6_K, 1)

const tile_fn tiles_packed[DTYPE_COUNT][TILE_TOKENS] = {
    [DTYPE_Q4_0] = TILE_LIST(q4_0, 1),     [DTYPE_Q4_1] = TILE_LIST(q4_1, 1),
    [DTYPE_Q5_0] = TILE_LIST(q5_0, 1),     [DTYPE_Q5_1] = TILE_LIST(q5_1, 1),
    [DTYPE_Q8_0] = TILE_LIST(q8_0, 1),     [DTYPE_Q2_K] = TILE_LIST(q2_k, 1),
    [DTYPE_Q3_K] = TILE_LIST(q3_k, 1),     [DTYPE_Q4_K] = TILE_LIST(q4_k, 1),
    [DTYPE_Q5_K] = TILE_LIST(q5_k, 1),     [DTYPE_Q6_K] = TILE_LIST(q6_k, 1),
    [DTYPE_IQ4_NL] = TILE_LIST(iq4_nl, 1),
};
