/* gemm64.c: f64 tiles of up to 8 rows and 3 vectors: 24 sums in registers, per value of K one load a vector
 * and one broadcast a row. */
#include "kernel/gemm64.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/matmul.h"

#include <immintrin.h>

enum { VEC64 = 8, VECTORS = GEMM64_PANEL / VEC64 };

/* Four rows are addressed as base + 0, 1, 2 or 3 times the distance; left alone, the compiler keeps a pointer
 * for every row, in memory. */
INLINE __m512d row_value(const char *const base[2], size_t one, size_t three, int i) {
    const char *b = base[i / 4];
    const char *at = i % 4 == 0 ? b : i % 4 == 1 ? b + one : i % 4 == 2 ? b + 2 * one : b + three;
    return _mm512_set1_pd(*(const double *)(const void *)at);
}

INLINE void tile_run(int R, int V, __mmask8 last, const gemm64_tile *t) {
    __m512d acc[VECTORS][GEMM64_ROWS];
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const __mmask8 mask = v + 1 == V ? last : (__mmask8)0xff;
            acc[v][i] = t->first ? _mm512_setzero_pd()
                                 : _mm512_maskz_loadu_pd(mask, t->c + (size_t)i * t->c_row + v * VEC64);
        }
    }
    size_t one = t->a_row * sizeof(double), three = 3 * one;
    __asm__("" : "+r"(one), "+r"(three));
    const char *a[2] = {(const char *)t->a, (const char *)t->a + (R > 4 ? 4 * one : 0)};
    const double *b = t->b;
    const size_t a_k = t->a_k * sizeof(double), b_k = t->b_k;
    for (size_t p = t->k; p > 0; p--, a[0] += a_k, a[1] += a_k, b += b_k) {
        __m512d w[VECTORS];
        UNROLL
        for (int v = 0; v < V; v++)
            w[v] = v + 1 == V ? _mm512_maskz_loadu_pd(last, b + v * VEC64) : _mm512_loadu_pd(b + v * VEC64);
        UNROLL
        for (int i = 0; i < R; i++) {
            const __m512d x = row_value(a, one, three, i);
            UNROLL
            for (int v = 0; v < V; v++) acc[v][i] = _mm512_fmadd_pd(x, w[v], acc[v][i]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const __mmask8 mask = v + 1 == V ? last : (__mmask8)0xff;
            _mm512_mask_storeu_pd(t->c + (size_t)i * t->c_row + v * VEC64, mask, acc[v][i]);
        }
    }
}

typedef void (*gemm64_fn)(__mmask8 last, const gemm64_tile *t);

#define TILE(R, V)                                                                                           \
    static void tile_##R##_##V(__mmask8 last, const gemm64_tile *t) {                                        \
        tile_run(R, V, last, t);                                                                             \
    }
#define NAME(R, V)  tile_##R##_##V,
#define EIGHT(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V) X(7, V) X(8, V)

EIGHT(TILE, 1)
EIGHT(TILE, 2)
EIGHT(TILE, 3)

void gemm64_tile_avx512(const gemm64_tile *t, size_t rows, size_t columns) {
    static const gemm64_fn tiles[VECTORS][GEMM64_ROWS] = {
        {EIGHT(NAME, 1)}, {EIGHT(NAME, 2)}, {EIGHT(NAME, 3)}};
    const size_t vectors = (columns + VEC64 - 1) / VEC64, rest = columns - (vectors - 1) * VEC64;
    tiles[vectors - 1][rows - 1]((__mmask8)((1u << rest) - 1u), t);
}
