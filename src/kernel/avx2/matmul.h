/* matmul.h: what the files of the AVX2 matrix product share.
 *
 * A row vector is 8 rows: half of a group, lanes 8v..8v+7 of each line. Tiles of packed weights take both
 * halves of a group, so that memory is read in order, and up to 3 tokens; tiles of panels take one row vector
 * and up to 6 tokens: both fill the 16 registers. Bytes are multiplied in pairs into 16 bits (vpmaddubsw),
 * which saturates; the number of products added there is bounded for each type so that it never does
 * (tile.h). */
#ifndef KERNEL_AVX2_MATMUL_H
#define KERNEL_AVX2_MATMUL_H

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

enum { PACKED_TOKENS = 3, PANEL_TILE_TOKENS = 6, VECTOR_ROWS = 8 };

/* side: for types with a bias -bias * sum of the block's activations (int32; unused for the 8-bit types,
 * which are multiplied as signed), for types with minima a_scale * sum (f32); one for each 16 or 32 values,
 * as the type scales. */
typedef struct tile {
    const uint8_t *w;    /* packed: a group; panel: a row vector */
    size_t blocks;       /* of 32 values */
    const int8_t *q;     /* [T, 32*blocks] */
    const float *scale;  /* [T, blocks] */
    const int32_t *side; /* [T, blocks or 2*blocks] */
    float *y;            /* [T, ldy] */
    size_t ldy;
    size_t rows;  /* from the first on that exist; may be more than the tile has */
    size_t ahead; /* packed: fetch so many bytes ahead into the second-level cache; 0: not */
} tile;

typedef void (*tile_fn)(const tile *t);

/* How many sums of pairs fit into 16 bits, which decides how a panel is multiplied: values up to 15 and 31
 * (or up to 7 in halves of a block), up to 63, and signed bytes. */
typedef enum panel_kind {
    PANEL_U4,
    PANEL_U4_MIN,
    PANEL_U5,
    PANEL_U5_MIN,
    PANEL_S8,
    PANEL_U3_16,
    PANEL_U2_16_MIN,
    PANEL_U6_16,
    PANEL_KINDS
} panel_kind;

/* [type][tokens - 1]; NULL for float types. */
extern const tile_fn tiles_packed_avx2[DTYPE_COUNT][PACKED_TOKENS];
extern const tile_fn tiles_panel_avx2[PANEL_KINDS][PANEL_TILE_TOKENS];

typedef struct panel_unpacker {
    panel_kind kind;
    size_t block_bytes; /* of a row vector: 8 half lines of values, 1 or 2 of scales, as many of minima */
    void (*unpack)(const uint8_t *group, size_t vector, size_t blocks, uint8_t *panel);
} panel_unpacker;

extern const panel_unpacker panel_unpackers[DTYPE_COUNT];

/* Float types: all of matmul. */
void matmul_float_avx2(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                       size_t ldy, void *scratch);

#endif
