/* gemm64.c: the scalar reference of a tile of an f64 product; see gemm64.h. */
#include "kernel/gemm64.h"
#include "kernel/ref/ref.h"

#include <math.h>

void gemm64_tile_ref(const gemm64_tile *t, size_t rows, size_t columns) {
    for (size_t i = 0; i < rows; i++) {
        double *c = t->c + i * t->c_row;
        for (size_t j = 0; t->first && j < columns; j++) c[j] = 0;
        for (size_t p = 0; p < t->k; p++) {
            const double x = t->a[i * t->a_row + p * t->a_k], *b = t->b + p * t->b_k;
            for (size_t j = 0; j < columns; j++) c[j] = fma(x, b[j], c[j]);
        }
    }
}
