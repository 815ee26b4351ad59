/* gemm.c: tiles of up to 6 rows and one panel, or half of one: 12 sums in registers, per value of K two loads
 * and one broadcast a row. */
#include "kernel/gemm.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/matmul.h"
#include "kernel/avx2/vec.h"

enum { ROWS = 6, HALVES = 2 };

INLINE __m256 finish(const gemm_tile *t, size_t row, int half, __m256i mask, __m256 v) {
    if (t->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(t->bias + half * VEC));
    if (t->add) v = _mm256_add_ps(v, vec_load(t->add + row * t->add_row + half * VEC, mask));
    v = _mm256_max_ps(_mm256_set1_ps(t->low), v); /* the second operand is what NaN in either gives */
    return _mm256_min_ps(_mm256_set1_ps(t->high), v);
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

/* H: halves of the panel that are computed; the other's sums are 0. */
INLINE void tile_run(gemm_rows kind, int T, int H, const gemm_tile *t) {
    const size_t k_step = kind == GEMM_ROWS_PACKED ? (size_t)T : 1;
    const row_steps steps = steps_of(kind, t->a_row);
    const bool fetches = kind == GEMM_ROWS_PACKED || kind == GEMM_ROWS_ANY;
    const size_t columns = (size_t)__builtin_popcount(t->mask);
    const __m256i mask[HALVES] = {vec_tail(columns), vec_tail(columns > VEC ? columns - VEC : 0)};
    __m256 acc[HALVES][ROWS];
    UNROLL
    for (int i = 0; i < T; i++) {
        if (fetches) _mm_prefetch((const char *)(t->c + (size_t)i * t->c_row), _MM_HINT_T0);
        UNROLL
        for (int h = 0; h < HALVES; h++) {
            acc[h][i] = t->first || h >= H ? _mm256_setzero_ps()
                                           : vec_load(t->c + (size_t)i * t->c_row + h * VEC, mask[h]);
        }
    }
    const float *b = t->b;
    const char *ahead = t->ahead;
    const size_t ahead_step = t->ahead_step;
    for (size_t s = 0; s < t->n_runs; s++) {
        const float *a = t->a + t->runs[s];
        for (size_t j = t->run; j > 0; j--, a += k_step, b += GEMM_PANEL) {
            const __m256 w0 = _mm256_load_ps(b), w1 = H == HALVES ? _mm256_load_ps(b + VEC) : w0;
            if (fetches) _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_step;
            UNROLL
            for (int i = 0; i < T; i++) {
                const __m256 x = _mm256_set1_ps(*row_at(a, &steps, i));
                acc[0][i] = _mm256_fmadd_ps(w0, x, acc[0][i]);
                if (H == HALVES) acc[1][i] = _mm256_fmadd_ps(w1, x, acc[1][i]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < T; i++) {
        UNROLL
        for (int h = 0; h < HALVES; h++) {
            if (t->last) acc[h][i] = finish(t, (size_t)i, h, mask[h], acc[h][i]);
            _mm256_maskstore_ps(t->c + (size_t)i * t->c_row + h * VEC, mask[h], acc[h][i]);
        }
    }
}

typedef void (*gemm_fn)(const gemm_tile *t);

#define TILE(kind, T)                                                                                        \
    static void tile_##kind##_##T(const gemm_tile *t) {                                                      \
        tile_run(GEMM_ROWS_##kind, T, HALVES, t);                                                            \
    }
#define HALF_TILE(kind, T)                                                                                   \
    static void half_##kind##_##T(const gemm_tile *t) {                                                      \
        tile_run(GEMM_ROWS_##kind, T, 1, t);                                                                 \
    }
#define NAME(kind, T)      tile_##kind##_##T,
#define HALF_NAME(kind, T) half_##kind##_##T,
#define SIX(X, kind)       X(kind, 1) X(kind, 2) X(kind, 3) X(kind, 4) X(kind, 5) X(kind, 6)
#define LIST(NAME, kind)                                                                                     \
    { SIX(NAME, kind) }

SIX(TILE, 16)
SIX(TILE, 32)
SIX(TILE, PACKED)
SIX(TILE, ANY)
SIX(HALF_TILE, 16)
SIX(HALF_TILE, 32)
SIX(HALF_TILE, ANY)

void gemm_tile_avx2(const gemm_tile *t, gemm_rows rows, size_t n_rows, size_t n_panels) {
    static const gemm_fn tiles[2][GEMM_ROWS_KINDS][ROWS] = {{[GEMM_ROWS_16] = LIST(NAME, 16),
                                                             [GEMM_ROWS_32] = LIST(NAME, 32),
                                                             [GEMM_ROWS_PACKED] = LIST(NAME, PACKED),
                                                             [GEMM_ROWS_ANY] = LIST(NAME, ANY)},
                                                            {[GEMM_ROWS_16] = LIST(HALF_NAME, 16),
                                                             [GEMM_ROWS_32] = LIST(HALF_NAME, 32),
                                                             [GEMM_ROWS_ANY] = LIST(HALF_NAME, ANY)}};
    (void)n_panels; /* 1, as the shape says */
    tiles[t->half][rows][n_rows - 1](t);
}
