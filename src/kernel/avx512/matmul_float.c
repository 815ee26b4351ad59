/* matmul_float.c: matrix products of F32, F16 and BF16 weights.
 *
 * Tokens are cut into near-equal slices of at most 14, which are interleaved ([k][slice]) so that a tile
 * reads one linear stream of weights and one of activations: per k one or two weight vectors, 14 broadcasts.
 * Few tokens: weights are widened in registers. Many: K in blocks, 32 rows widened to f32 once; accumulators
 * rest in y between blocks, which changes no bit. */
#include "kernel/avx512/matmul.h"

#include <immintrin.h>
#include <string.h>

/* With this many tokens the products of a line take as long as its arrival. */
enum { SLICE = 14, PANEL_FROM = 2 * SLICE + 1, FETCH_BYTES_PER_TOKEN = 13 };

typedef struct float_tile {
    const uint8_t *w; /* [k][16] of the type; panels: f32 */
    size_t w_stride;  /* bytes to the second row vector */
    size_t k;         /* values of this block of K */
    const float *a;   /* [k][T] */
    float *y;         /* [T, ldy] */
    size_t ldy;
    const uint8_t *fetch; /* packed: line to fetch with the first, or NULL; panels: 64 bytes for every 4 k */
    uint16_t mask;        /* rows of the last row vector that exist */
    bool resume;          /* y holds the sums of the blocks before */
} float_tile;

typedef void (*float_tile_fn)(const float_tile *t);

INLINE size_t line_bytes(dtype type) {
    return type == DTYPE_F32 ? 64 : 32;
}

INLINE __m512 weights(dtype type, const uint8_t *at) {
    if (type == DTYPE_F32) return _mm512_loadu_ps(at);
    __m256i half = _mm256_loadu_si256((const __m256i *)at);
    if (type == DTYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE void tile_step(dtype type, int T, int R, const float_tile *f, const uint8_t *w, const float *a,
                      __m512 acc[2][SLICE]) {
    __m512 w0 = weights(type, w), w1 = w0;
    if (R > 1) w1 = weights(type, w + f->w_stride);
    UNROLL
    for (int t = 0; t < T; t++) {
        __m512 x = _mm512_set1_ps(a[t]);
        acc[0][t] = _mm512_fmadd_ps(w0, x, acc[0][t]);
        if (R > 1) acc[1][t] = _mm512_fmadd_ps(w1, x, acc[1][t]);
    }
}

INLINE void tile_run(dtype type, int T, int R, const float_tile *f) {
    const uint8_t *w = f->w, *fetch = f->fetch;
    const float *a = f->a;
    const __mmask16 m0 = R > 1 ? 0xffff : f->mask, m1 = f->mask;
    __m512 acc[2][SLICE];
    UNROLL
    for (int t = 0; t < T; t++) {
        const float *y = f->y + (size_t)t * f->ldy;
        acc[0][t] = f->resume ? _mm512_maskz_loadu_ps(m0, y) : _mm512_setzero_ps();
        if (R > 1) acc[1][t] = f->resume ? _mm512_maskz_loadu_ps(m1, y + 16) : _mm512_setzero_ps();
    }
    const size_t lines = R > 1 ? 1 : 4 * line_bytes(type) / 64;
    size_t k = 0;
    for (; k + 4 <= f->k; k += 4) {
        if (fetch != NULL) {
            _mm_prefetch((const char *)fetch, _MM_HINT_T1);
            if (lines > 1) _mm_prefetch((const char *)fetch + 64, _MM_HINT_T1);
            if (lines > 2) _mm_prefetch((const char *)fetch + 128, _MM_HINT_T1);
            if (lines > 2) _mm_prefetch((const char *)fetch + 192, _MM_HINT_T1);
            fetch += 64 * lines;
        }
        UNROLL
        for (int i = 0; i < 4; i++, w += line_bytes(type), a += T) tile_step(type, T, R, f, w, a, acc);
    }
    for (; k < f->k; k++, w += line_bytes(type), a += T) tile_step(type, T, R, f, w, a, acc);
    UNROLL
    for (int t = 0; t < T; t++) {
        float *y = f->y + (size_t)t * f->ldy;
        _mm512_mask_storeu_ps(y, m0, acc[0][t]);
        if (R > 1) _mm512_mask_storeu_ps(y + 16, m1, acc[1][t]);
    }
}

#define TILE_FN(name, type, T, R)                                                                            \
    static void name##_##T##x##R(const float_tile *f) {                                                      \
        tile_run(type, T, R, f);                                                                             \
    }
#define TILE_FNS(name, type, R)                                                                              \
    TILE_FN(name, type, 1, R)                                                                                \
    TILE_FN(name, type, 2, R)                                                                                \
    TILE_FN(name, type, 3, R)                                                                                \
    TILE_FN(name, type, 4, R)                                                                                \
    TILE_FN(name, type, 5, R)                                                                                \
    TILE_FN(name, type, 6, R)                                                                                \
    TILE_FN(name, type, 7, R)                                                                                \
    TILE_FN(name, type, 8, R)                                                                                \
    TILE_FN(name, type, 9, R)                                                                                \
    TILE_FN(name, type, 10, R)                                                                               \
    TILE_FN(name, type, 11, R)                                                                               \
    TILE_FN(name, type, 12, R)                                                                               \
    TILE_FN(name, type, 13, R)                                                                               \
    TILE_FN(name, type, 14, R)
#define TILE_LIST(name, R)                                                                                   \
    {                                                                                                        \
        name##_1x##R, name##_2x##R, name##_3x##R, name##_4x##R, name##_5x##R, name##_6x##R, name##_7x##R,    \
            name##_8x##R, name##_9x##R, name##_10x##R, name##_11x##R, name##_12x##R, name##_13x##R,          \
            name##_14x##R                                                                                    \
    }

TILE_FNS(f32, DTYPE_F32, 1)
TILE_FNS(f32, DTYPE_F32, 2)
TILE_FNS(f16, DTYPE_F16, 1)
TILE_FNS(bf16, DTYPE_BF16, 1)

static const float_tile_fn tiles_of_type[3][SLICE] = {
    [DTYPE_F32] = TILE_LIST(f32, 1),
    [DTYPE_F16] = TILE_LIST(f16, 1),
    [DTYPE_BF16] = TILE_LIST(bf16, 1),
};
static const float_tile_fn tiles_of_panel[2][SLICE] = {TILE_LIST(f32, 1), TILE_LIST(f32, 2)};

/* ---- cutting ----------------------------------------------------------------------------------------- */

/* Tokens [t0, t0+n) in near-equal slices; slice s begins at slice_begin(n, s) and lies at a + begin * k. */
static size_t n_slices(size_t n) {
    return (n + SLICE - 1) / SLICE;
}

static size_t slice_begin(size_t n, size_t s) {
    size_t slices = n_slices(n), wide = n % slices;
    return s * (n / slices) + (s < wide ? s : wide);
}

/* r[i] lane j becomes r[j] lane i. */
INLINE void transpose(__m512 r[16]) {
    __m512 s[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) { /* 2 x 2 */
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4: r[i+j] has column j of each quarter */
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(s[i]), _mm512_castps_pd(s[i + 2])));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(s[i]), _mm512_castps_pd(s[i + 2])));
        r[i + 2] =
            _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(s[i + 1]), _mm512_castps_pd(s[i + 3])));
        r[i + 3] =
            _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(s[i + 1]), _mm512_castps_pd(s[i + 3])));
    }
    UNROLL
    for (int j = 0; j < 4; j++) { /* quarters to their places */
        __m512 even0 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x88),
               odd0 = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xdd);
        __m512 even1 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0x88);
        __m512 odd1 = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0xdd);
        s[j] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        s[j + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        s[j + 8] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        s[j + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
    UNROLL
    for (int i = 0; i < 16; i++) r[i] = s[i];
}

/* One slice: width rows of k values, ldx apart, to [k][width]. Writes up to 15 floats behind the slice, which
 * the next slice or the spare bytes of scratch take. */
static void interleave_slice(const float *x, size_t ldx, size_t width, size_t k, float *a) {
    size_t i = 0;
    for (; i + 16 <= k; i += 16, a += 16 * width) {
        __m512 r[16];
        UNROLL
        for (size_t t = 0; t < 16; t++)
            r[t] = t < width ? _mm512_loadu_ps(x + t * ldx + i) : _mm512_setzero_ps();
        transpose(r);
        UNROLL
        for (size_t t = 0; t < 16; t++) _mm512_storeu_ps(a + t * width, r[t]);
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

/* One linear stream of weights; see run_packed in matmul.c for when the next group is fetched. */
static void run_few(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                    size_t ldy, float *a) {
    const size_t k = w->cols;
    bool fetch = n * FETCH_BYTES_PER_TOKEN >= line_bytes(w->type);
    if (n > 1) interleave(x, 0, n, 0, k, a);
    float_tile f = {.k = k, .ldy = ldy};
    for (size_t g = g0; g < g1; g++) {
        f.w = w->data + g * w->group_bytes;
        f.mask = first_lanes(w->rows - g * PACK_ROWS);
        f.fetch = fetch && g + 1 < g1 ? f.w + w->group_bytes : NULL;
        for (size_t s = 0; s < n_slices(n); s++) {
            size_t from = slice_begin(n, s);
            f.a = n > 1 ? a + from * k : x->f32;
            f.y = y + from * ldy + g * PACK_ROWS;
            tiles_of_type[w->type][slice_begin(n, s + 1) - from - 1](&f);
            f.fetch = NULL;
        }
    }
}

static void widen(dtype type, const uint8_t *w, size_t k, float *panel) {
    for (size_t i = 0; i < k; i++) {
        _mm512_store_ps(panel + 16 * i,
                        type == DTYPE_F16 ? weights(DTYPE_F16, w + 32 * i) : weights(DTYPE_BF16, w + 32 * i));
    }
}

/* What slice s fetches of the pair of groups from g on: a tile of two row vectors takes 64 bytes for every 4
 * k. */
static const uint8_t *next_pair(const packed *w, size_t g, size_t g1, size_t offset, size_t k, size_t s) {
    size_t per_group = line_bytes(w->type) / 16, next = g + s / per_group;
    if (s >= 2 * per_group || next >= g1) return NULL;
    return w->data + next * w->group_bytes + offset + s % per_group * 16 * k;
}

/* A block of K of a chunk of tokens against all groups. a: the chunk, interleaved. */
static void run_block(const packed *w, size_t g0, size_t g1, size_t k0, size_t k, const float *a, size_t n,
                      float *y, size_t ldy, float *panel) {
    float_tile f = {.k = k, .ldy = ldy, .resume = k0 > 0};
    const size_t offset = k0 * line_bytes(w->type);
    for (size_t g = g0; g < g1; g += 2) {
        size_t vectors = g1 - g < 2 ? 1 : 2;
        const uint8_t *group = w->data + g * w->group_bytes + offset;
        f.mask = first_lanes(w->rows - (g + vectors - 1) * PACK_ROWS);
        f.w = group;
        f.w_stride = w->group_bytes;
        for (size_t v = 0; v < vectors && w->type != DTYPE_F32; v++) {
            widen(w->type, group + v * w->group_bytes, k, panel + v * 16 * k);
            f.w = (const uint8_t *)panel;
            f.w_stride = 64 * k;
        }
        for (size_t s = 0; s < n_slices(n); s++) {
            size_t from = slice_begin(n, s);
            f.a = a + from * k;
            f.y = y + from * ldy + g * PACK_ROWS;
            f.fetch = next_pair(w, g + 2, g1, offset, k, s);
            tiles_of_panel[vectors - 1][slice_begin(n, s + 1) - from - 1](&f);
        }
    }
}

void matmul_float_avx512(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                         size_t ldy, void *scratch) {
    float *panel = scratch;
    if (n < PANEL_FROM) {
        run_few(w, g0, g1, x, n, y, ldy, panel);
        return;
    }
    float *a = panel + PANEL_ROWS * FLOAT_BLOCK;
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
