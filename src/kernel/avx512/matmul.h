/* matmul.h: what the files of the AVX-512 matrix product share.
 *
 * A tile is 1 to 6 tokens against 1 or 2 row vectors (16 rows each). Tile functions read weights either
 * packed (unpacked in registers) or from a panel, where the 32 values of a block are bytes and scales are
 * f32. */
#ifndef KERNEL_AVX512_MATMUL_H
#define KERNEL_AVX512_MATMUL_H

#include "kernel/kernel.h"
#include "kernel/pack.h"

/* Bodies of tiles are written once and become many functions by constant arguments. Under a sanitizer that
 * multiplies compile time by twenty, so there they stay loops: slow, but checked. */
#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer)
#define INLINE static inline
#define UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { TILE_TOKENS = 6, TILE_VECTORS = 2 };

/* side: for types with a bias -bias * sum of the block's activations (int32), for types with minima a_scale *
 * sum (f32); one for each 16 or 32 values, as the type scales. */
typedef struct tile {
    const uint8_t *w;    /* first row vector */
    size_t w_stride;     /* bytes to the second row vector */
    size_t blocks;       /* of 32 values */
    const int8_t *q;     /* [T, 32*blocks] */
    const float *scale;  /* [T, blocks] */
    const int32_t *side; /* [T, blocks or 2*blocks] */
    float *y;            /* [T, ldy] */
    size_t ldy;
    uint16_t mask; /* rows of the last row vector that exist */
    const uint8_t
        *fetch; /* lines to bring into the second-level cache, fetch_lines for each unit; see matmul.c */
    size_t fetch_lines;
} tile;

typedef void (*tile_fn)(const tile *t);

/* [type][tokens - 1], one row vector of packed weights. NULL for float types. */
extern const tile_fn tiles_packed[DTYPE_COUNT][TILE_TOKENS];
/* [scale16][has_min][row vectors - 1][tokens - 1], panels. */
extern const tile_fn tiles_panel[2][2][TILE_VECTORS][TILE_TOKENS];

/* Unpacks the row vector of one group into a panel: for each block 8 lines of bytes, then 1 or 2 lines of f32
 * scales, then as many of minima where the type has them. */
extern void (*const panel_unpack[DTYPE_COUNT])(const uint8_t *group, size_t blocks, uint8_t *panel);
static inline size_t panel_block_bytes(const pack_layout *l) {
    return 512 + 64u * (l->scale16 ? 2 : 1) * (l->has_min ? 2 : 1);
}

/* Mask of the first n of 16 lanes; n may be larger. */
static inline uint16_t first_lanes(size_t n) {
    return (uint16_t)(n < 16 ? (1u << n) - 1u : 0xffffu);
}

/* Float types: all of matmul. */
void matmul_float_avx512(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                         size_t ldy, void *scratch);

#endif
