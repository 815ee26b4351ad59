/* gemm.c: tiles of up to 14 rows and 2 panels, or 6 rows and 4 panels: 28 or 24 sums in registers, per value
 * of K one load a panel and one broadcast a row. */
#include "kernel/gemm.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/matmul.h"

#include <immintrin.h>

enum { ROWS = 14, FEW_ROWS = 6, FEW_PANELS = 4 };

INLINE __m512 finish(const gemm_tile *t, size_t row, size_t panel, __mmask16 mask, __m512 v) {
    if (t->bias) v = _mm512_add_ps(v, _mm512_loadu_ps(t->bias + panel * GEMM_PANEL));
    if (t->add) {
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, t->add + row * t->add_row + panel * t->add_panel));
    }
    /* The second operand is what NaN in either gives. */
    v = _mm512_max_ps(_mm512_set1_ps(t->low), v);
    return _mm512_min_ps(_mm512_set1_ps(t->high), v);
}

/* Multiples of the distance of two rows. Where it is not a constant, rows are addressed as base + 1, 2, 4 or
 * 8 times one of four registers; left alone, the compiler keeps a pointer for every row, in memory. */
typedef struct row_steps {
    size_t one, three, five, seven;
} row_steps;

INLINE row_steps steps_of(gemm_rows kind, size_t a_row) {
    const size_t one = kind == GEMM_ROWS_16       ? 16
                       : kind == GEMM_ROWS_32     ? 32
                       : kind == GEMM_ROWS_PACKED ? 1
                                                  : a_row;
    row_steps s = {one, 3 * one, 5 * one, 7 * one};
    if (kind == GEMM_ROWS_ANY) __asm__("" : "+r"(s.one), "+r"(s.three), "+r"(s.five), "+r"(s.seven));
    return s;
}

INLINE const float *row_at(const float *a, const row_steps *s, int i) {
    const float *base = i >= 8 ? a + 8 * s->one : a;
    switch (i % 8) {
    case 0: return base;
    case 1: return base + s->one;
    case 2: return base + 2 * s->one;
    case 3: return base + s->three;
    case 4: return base + 4 * s->one;
    case 5: return base + s->five;
    case 6: return base + 2 * s->three;
    default: return base + s->seven;
    }
}

/* H: the last panel's sums are half a vector; the other half is 0. (Vectors of 256 bits cost half where those
 * of 512 are computed in two steps.) */
INLINE void tile_run(gemm_rows kind, int T, int R, bool H, const gemm_tile *t) {
    const size_t k_step = kind == GEMM_ROWS_PACKED ? (size_t)T : 1;
    const row_steps steps = steps_of(kind, t->a_row);
    const bool fetches = kind == GEMM_ROWS_PACKED || kind == GEMM_ROWS_ANY;
    const int full = H ? R - 1 : R;
    __m512 acc[4][ROWS];
    __m256 half[ROWS];
    UNROLL
    for (int i = 0; i < T; i++) half[i] = _mm256_setzero_ps();
    UNROLL
    for (int r = 0; r < R; r++) {
        const __mmask16 mask = r + 1 == R ? t->mask : (__mmask16)0xffff;
        UNROLL
        for (int i = 0; i < T; i++) {
            const float *c = t->c + (size_t)i * t->c_row + (size_t)r * t->c_panel;
            if (fetches) _mm_prefetch((const char *)c, _MM_HINT_T0); /* 4 % where C leaves L2 */
            acc[r][i] = t->first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, c);
            if (r == full) half[i] = _mm512_castps512_ps256(acc[r][i]);
        }
    }
    const float *b = t->b;
    const size_t b_panel = t->b_panel;
    const char *ahead = t->ahead;
    const size_t ahead_step = t->ahead_step;
    for (size_t s = 0; s < t->n_runs; s++) {
        const float *a = t->a + t->runs[s];
        for (size_t j = t->run; j > 0; j--, a += k_step, b += GEMM_PANEL) {
            __m512 w[4];
            UNROLL
            for (int r = 0; r < full; r++) w[r] = _mm512_load_ps(b + (size_t)r * b_panel);
            const __m256 narrow = H ? _mm256_load_ps(b + (size_t)full * b_panel) : _mm256_setzero_ps();
            if (fetches) _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_step;
            UNROLL
            for (int i = 0; i < T; i++) {
                const __m512 x = _mm512_set1_ps(*row_at(a, &steps, i));
                UNROLL
                for (int r = 0; r < full; r++) acc[r][i] = _mm512_fmadd_ps(w[r], x, acc[r][i]);
                if (H) half[i] = _mm256_fmadd_ps(narrow, _mm512_castps512_ps256(x), half[i]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        const __mmask16 mask = r + 1 == R ? t->mask : (__mmask16)0xffff;
        UNROLL
        for (int i = 0; i < T; i++) {
            if (r == full) acc[r][i] = _mm512_zextps256_ps512(half[i]);
            if (t->last) acc[r][i] = finish(t, (size_t)i, (size_t)r, mask, acc[r][i]);
            _mm512_mask_storeu_ps(t->c + (size_t)i * t->c_row + (size_t)r * t->c_panel, mask, acc[r][i]);
        }
    }
}

typedef void (*gemm_fn)(const gemm_tile *t);

#define TILE(kind, T, R)                                                                                     \
    static void tile_##kind##_##T##x##R(const gemm_tile *t) {                                                \
        tile_run(GEMM_ROWS_##kind, T, R, false, t);                                                          \
    }
#define HALF_TILE(kind, T, R)                                                                                \
    static void half_##kind##_##T##x##R(const gemm_tile *t) {                                                \
        tile_run(GEMM_ROWS_##kind, T, R, true, t);                                                           \
    }
#define SIX(X, kind, R) X(kind, 1, R) X(kind, 2, R) X(kind, 3, R) X(kind, 4, R) X(kind, 5, R) X(kind, 6, R)
#define MORE(X, kind, R)                                                                                     \
    X(kind, 7, R)                                                                                            \
    X(kind, 8, R) X(kind, 9, R) X(kind, 10, R) X(kind, 11, R) X(kind, 12, R) X(kind, 13, R) X(kind, 14, R)
#define NAME(kind, T, R)      tile_##kind##_##T##x##R,
#define HALF_NAME(kind, T, R) half_##kind##_##T##x##R,
#define TILES(MAKE, name, called, kind)                                                                      \
    SIX(MAKE, kind, 1)                                                                                       \
    MORE(MAKE, kind, 1)                                                                                      \
    SIX(MAKE, kind, 2)                                                                                       \
    MORE(MAKE, kind, 2)                                                                                      \
    SIX(MAKE, kind, 4)                                                                                       \
    static const gemm_fn called##_##kind[3][ROWS] = {{SIX(name, kind, 1) MORE(name, kind, 1)},               \
                                                     {SIX(name, kind, 2) MORE(name, kind, 2)},               \
                                                     {SIX(name, kind, 4)}};

TILES(TILE, NAME, tiles, 16)
TILES(TILE, NAME, tiles, 32)
TILES(TILE, NAME, tiles, PACKED)
TILES(TILE, NAME, tiles, ANY)
TILES(HALF_TILE, HALF_NAME, halves, 16)
TILES(HALF_TILE, HALF_NAME, halves, 32)
TILES(HALF_TILE, HALF_NAME, halves, ANY)

void gemm_tile_avx512(const gemm_tile *t, gemm_rows rows, size_t n_rows, size_t n_panels) {
    static const gemm_fn(*const tiles[2][GEMM_ROWS_KINDS])[ROWS] = {
        {[GEMM_ROWS_16] = tiles_16,
         [GEMM_ROWS_32] = tiles_32,
         [GEMM_ROWS_PACKED] = tiles_PACKED,
         [GEMM_ROWS_ANY] = tiles_ANY},
        {[GEMM_ROWS_16] = halves_16, [GEMM_ROWS_32] = halves_32, [GEMM_ROWS_ANY] = halves_ANY}};
    tiles[t->half][rows][n_panels == 4 ? 2 : n_panels - 1][n_rows - 1](t);
}
