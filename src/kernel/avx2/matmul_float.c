/* matmul_float.c: matrix products of F32, F16 and BF16 weights.
 *
 * Tokens are cut into near-equal slices of at most 6, which are interleaved ([k][slice]); a tile is a slice
 * against the 16 rows of a group. Few tokens: weights are widened in registers. Many: K in blocks, a group
 * widened to f32 once; accumulators rest in y between blocks, which changes no bit. */
#include "kernel/avx2/matmul.h"

#include <immintrin.h>

enum { SLICE = 6, BLOCKS_FROM = 2 * SLICE + 1 };

typedef struct float_tile {
    const uint8_t *w; /* [k][16] of the type */
    size_t k;         /* values of this block of K */
    const float *a;   /* [k][T] */
    float *y;         /* [T, ldy] */
    size_t ldy;
    size_t rows; /* that exist */
    bool resume; /* y holds the sums of the blocks before */
} float_tile;

typedef void (*float_tile_fn)(const float_tile *t);

INLINE size_t line_bytes(dtype type) {
    return type == DTYPE_F32 ? 64 : 32;
}

/* Rows 8v..8v+7 at one k. */
INLINE __m256 weights(dtype type, const uint8_t *line, int v) {
    if (type == DTYPE_F32) return _mm256_loadu_ps((const float *)(const void *)(line + 32 * v));
    __m128i half = _mm_loadu_si128((const __m128i *)(line + 16 * v));
    if (type == DTYPE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

INLINE __m256i row_mask(size_t rows, int v) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    size_t left = rows > 8u * (size_t)v ? rows - 8u * (size_t)v : 0;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? (int)left : 8), lane);
}

INLINE void tile_run(dtype type, int T, const float_tile *f) {
    const uint8_t *w = f->w;
    const float *a = f->a;
    const __m256i m0 = row_mask(f->rows, 0), m1 = row_mask(f->rows, 1);
    __m256 acc[2][SLICE];
    UNROLL
    for (int t = 0; t < T; t++) {
        const float *y = f->y + (size_t)t * f->ldy;
        acc[0][t] = f->resume ? _mm256_maskload_ps(y, m0) : _mm256_setzero_ps();
        acc[1][t] = f->resume ? _mm256_maskload_ps(y + 8, m1) : _mm256_setzero_ps();
    }
    for (size_t k = 0; k < f->k; k++, w += line_bytes(type), a += T) {
        __m256 w0 = weights(type, w, 0), w1 = weights(type, w, 1);
        UNROLL
        for (int t = 0; t < T; t++) {
            __m256 x = _mm256_broadcast_ss(a + t);
            acc[0][t] = _mm256_fmadd_ps(w0, x, acc[0][t]);
            acc[1][t] = _mm256_fmadd_ps(w1, x, acc[1][t]);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *y = f->y + (size_t)t * f->ldy;
        _mm256_maskstore_ps(y, m0, acc[0][t]);
        _mm256_maskstore_ps(y + 8, m1, acc[1][t]);
    }
}

#define TILE_FN(name, type, T)                                                                               \
    static void name##_##T(const float_tile *f) {                                                            \
        tile_run(type, T, f);                                                                                \
    }
#define TILE_FNS(name, type)                                                                                 \
    TILE_FN(name, type, 1)                                                                                   \
    TILE_FN(name, type, 2)                                                                                   \
    TILE_FN(name, type, 3)                                                                                   \
    TILE_FN(name, type, 4)                                                                                   \
    TILE_FN(name, type, 5)                                                                                   \
    TILE_FN(name, type, 6)

TILE_FNS(f32, DTYPE_F32)
TILE_FNS(f16, DTYPE_F16)
TILE_FNS(bf16, DTYPE_BF16)

static const float_tile_fn tiles[3][SLICE] = {
    [DTYPE_F32] = {f32_1, f32_2, f32_3, f32_4, f32_5, f32_6},
    [DTYPE_F16] = {f16_1, f16_2, f16_3, f16_4, f16_5, f16_6},
    [DTYPE_BF16] = {bf16_1, bf16_2, bf16_3, bf16_4, bf16_5, bf16_6},
};

/* ---- cutting ----------------------------------------------------------------------------------------- */

static size_t n_slices(size_t n) {
    return (n + SLICE - 1) / SLICE;
}

/* First token of slice s of n tokens; the slice lies at a + slice_begin * k. */
static size_t slice_begin(size_t n, size_t s) {
    size_t slices = n_slices(n), wide = n % slices;
    return s * (n / slices) + (s < wide ? s : wide);
}

/* r[i] lane j becomes r[j] lane i. */
INLINE void transpose(__m256 r[8]) {
    __m256 s[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    UNROLL
    for (int i = 0; i < 8; i++) r[i] = s[i];
}

/* One slice: width rows of k values, ldx apart, to [k][width]. Writes up to 7 floats behind the slice, which
 * the next slice or the spare bytes of scratch take. */
static void interleave_slice(const float *x, size_t ldx, size_t width, size_t k, float *a) {
    size_t i = 0;
    for (; i + 8 <= k; i += 8, a += 8 * width) {
        __m256 r[8];
        UNROLL
        for (size_t t = 0; t < 8; t++)
            r[t] = t < width ? _mm256_loadu_ps(x + t * ldx + i) : _mm256_setzero_ps();
        transpose(r);
        UNROLL
        for (size_t t = 0; t < 8; t++) _mm256_storeu_ps(a + t * width, r[t]);
    }
    for (; i < k; i++) {
        for (size_t t = 0; t < width; t++) *a++ = x[t * ldx + i];
    }
}

/* Values [k0, k0+k) of the tokens, interleaved slice by slice. */
static void interleave(const activations *x, size_t t0, size_t n, size_t k0, size_t k, float *a) {
    for (size_t s = 0; s < n_slices(n); s++) {
        size_t from = slice_begin(n, s);
        interleave_slice(x->f32 + (t0 + from) * x->cols + k0, x->cols, slice_begin(n, s + 1) - from, k,
                         a + from * k);
    }
}

/* All slices of n tokens against one group. y: of the group's first row and the first token. */
static void run_slices(float_tile *f, dtype type, const float *a, size_t n, float *y) {
    for (size_t s = 0; s < n_slices(n); s++) {
        size_t from = slice_begin(n, s);
        f->a = a + from * f->k;
        f->y = y + from * f->ldy;
        tiles[type][slice_begin(n, s + 1) - from - 1](f);
    }
}

static void widen(dtype type, const uint8_t *w, size_t k, float *panel) {
    for (size_t i = 0; i < k; i++, w += 32, panel += 16) {
        for (int v = 0; v < 2; v++) {
            _mm256_storeu_ps(panel + 8 * v,
                             type == DTYPE_F16 ? weights(DTYPE_F16, w, v) : weights(DTYPE_BF16, w, v));
        }
    }
}

/* A block of K of a chunk of tokens (interleaved in a) against all groups. */
static void run_block(const packed *w, size_t g0, size_t g1, size_t k0, size_t k, const float *a, size_t n,
                      float *y, size_t ldy, float *panel) {
    float_tile f = {.k = k, .ldy = ldy, .resume = k0 > 0};
    for (size_t g = g0; g < g1; g++) {
        f.w = w->data + g * w->group_bytes + k0 * line_bytes(w->type);
        f.rows = w->rows - g * PACK_ROWS;
        if (w->type != DTYPE_F32) {
            widen(w->type, f.w, k, panel);
            f.w = (const uint8_t *)panel;
        }
        run_slices(&f, DTYPE_F32, a, n, y + g * PACK_ROWS);
    }
}

void matmul_float_avx2(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                       size_t ldy, void *scratch) {
    float *panel = scratch, *a = panel + PANEL_ROWS * FLOAT_BLOCK;
    if (n < BLOCKS_FROM) {
        float_tile f = {.k = w->cols, .ldy = ldy};
        if (n > 1) interleave(x, 0, n, 0, w->cols, panel);
        for (size_t g = g0; g < g1; g++) {
            f.w = w->data + g * w->group_bytes;
            f.rows = w->rows - g * PACK_ROWS;
            run_slices(&f, w->type, n > 1 ? panel : x->f32, n, y + g * PACK_ROWS);
        }
        return;
    }
    size_t chunks = (n + PANEL_TOKENS - 1) / PANEL_TOKENS, blocks = (w->cols + FLOAT_BLOCK - 1) / FLOAT_BLOCK;
    for (size_t c = 0; c < chunks; c++) {
        size_t t0 = n * c / chunks, count = n * (c + 1) / chunks - t0;
        for (size_t b = 0; b < blocks; b++) {
            size_t k0 = w->cols * b / blocks, k = w->cols * (b + 1) / blocks - k0;
            interleave(x, t0, count, k0, k, a);
            run_block(w, g0, g1, k0, k, a, count, y + t0 * ldy, ldy, panel);
        }
    }
}
