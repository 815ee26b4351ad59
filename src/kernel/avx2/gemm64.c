/* gemm64.c: f64 tiles of up to 4 rows and 3 vectors: 12 sums in registers, per value of K one load a vector
 * and one broadcast a row. */
#include "kernel/gemm64.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/matmul.h"

#include <immintrin.h>

enum { VEC64 = 4, VECTORS = 3, ROWS = 4 };

/* The first n lanes. */
INLINE __m256i first_lanes(size_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), _mm256_setr_epi64x(0, 1, 2, 3));
}

/* Rows are addressed as base + 0, 1, 2 or 3 times the distance. */
INLINE __m256d row_value(const char *base, size_t one, size_t three, int i) {
    const char *at = i == 0 ? base : i == 1 ? base + one : i == 2 ? base + 2 * one : base + three;
    return _mm256_broadcast_sd((const double *)(const void *)at);
}

/* `last`: of the last vector; whole vectors are loaded without it. */
INLINE void tile_run(int R, int V, bool whole, __m256i last, const gemm64_tile *t) {
    __m256d acc[VECTORS][ROWS];
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const double *c = t->c + (size_t)i * t->c_row + v * VEC64;
            acc[v][i] = t->first             ? _mm256_setzero_pd()
                        : v + 1 < V || whole ? _mm256_loadu_pd(c)
                                             : _mm256_maskload_pd(c, last);
        }
    }
    size_t one = t->a_row * sizeof(double), three = 3 * one;
    __asm__("" : "+r"(one), "+r"(three));
    const char *a = (const char *)t->a;
    const double *b = t->b;
    const size_t a_k = t->a_k * sizeof(double), b_k = t->b_k;
    for (size_t p = t->k; p > 0; p--, a += a_k, b += b_k) {
        __m256d w[VECTORS];
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] =
                v + 1 < V || whole ? _mm256_loadu_pd(b + v * VEC64) : _mm256_maskload_pd(b + v * VEC64, last);
        UNROLL
        for (int i = 0; i < R; i++) {
            const __m256d x = row_value(a, one, three, i);
            UNROLL
            for (int v = 0; v < V; v++) acc[v][i] = _mm256_fmadd_pd(x, w[v], acc[v][i]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            double *c = t->c + (size_t)i * t->c_row + v * VEC64;
            if (v + 1 < V || whole)
                _mm256_storeu_pd(c, acc[v][i]);
            else
                _mm256_maskstore_pd(c, last, acc[v][i]);
        }
    }
}

typedef void (*gemm64_fn)(__m256i last, const gemm64_tile *t);

#define TILE(R, V)                                                                                           \
    static void whole_##R##_##V(__m256i last, const gemm64_tile *t) {                                        \
        tile_run(R, V, true, last, t);                                                                       \
    }                                                                                                        \
    static void part_##R##_##V(__m256i last, const gemm64_tile *t) {                                         \
        tile_run(R, V, false, last, t);                                                                      \
    }
#define WHOLE(R, V) whole_##R##_##V,
#define PART(R, V)  part_##R##_##V,
#define FOUR(X, V)  X(1, V) X(2, V) X(3, V) X(4, V)

FOUR(TILE, 1)
FOUR(TILE, 2)
FOUR(TILE, 3)

void gemm64_tile_avx2(const gemm64_tile *t, size_t rows, size_t columns) {
    static const gemm64_fn tiles[2][VECTORS][ROWS] = {{{FOUR(WHOLE, 1)}, {FOUR(WHOLE, 2)}, {FOUR(WHOLE, 3)}},
                                                      {{FOUR(PART, 1)}, {FOUR(PART, 2)}, {FOUR(PART, 3)}}};
    const size_t vectors = (columns + VEC64 - 1) / VEC64, rest = columns - (vectors - 1) * VEC64;
    tiles[rest != VEC64][vectors - 1][rows - 1](first_lanes(rest), t);
}
