/* gemm64.c: how an f64 product is cut into tiles; the same for every instruction set.
 *
 * A block of K of a panel of columns is copied together, where rows are enough to pay for it, and meets all
 * rows of a chunk, whose block of A stays in the second-level cache. Sums rest in C between blocks. */
#include "kernel/gemm64.h"

#include <string.h>

enum {
    K_BLOCK = 128,
    CHUNK_ROWS = 240,
    IN_PLACE_ROWS = 2 * GEMM64_ROWS, /* fewer do not pay for copying B */
    LOOK = 1 << 20                   /* multiply-adds between looks at the stop */
};

static void copy_panel(const double *b, size_t b_k, size_t b_col, size_t k, size_t n, double *to) {
    if (b_col == 1) {
        for (size_t p = 0; p < k; p++) memcpy(to + p * GEMM64_PANEL, b + p * b_k, n * sizeof *to);
        return;
    }
    for (size_t j = 0; j < n; j++)
        for (size_t p = 0; p < k; p++) to[p * GEMM64_PANEL + j] = b[p * b_k + j * b_col];
}

/* `width` columns of C from c on, over one block of K: B of the block lies at t->b. */
static void run_rows(const kernels *k, gemm64_tile t, size_t m, size_t width) {
    const gemm64_shape *shape = &k->gemm64_shape;
    const double *a = t.a, *b = t.b;
    double *c = t.c;
    for (size_t j = 0; j < width; j += shape->columns) {
        const size_t columns = width - j < shape->columns ? width - j : shape->columns;
        for (size_t i = 0; i < m; i += shape->rows) {
            t.a = a + i * t.a_row;
            t.b = b + j;
            t.c = c + i * t.c_row + j;
            k->gemm64_tile(&t, m - i < shape->rows ? m - i : shape->rows, columns);
        }
    }
}

/* Rows [i0, i0 + m). */
static void run_chunk(const kernels *k, const gemm64 *g, size_t i0, size_t m, double *copy) {
    const bool in_place = g->b_col == 1 && m < IN_PLACE_ROWS;
    size_t work = 0;
    for (size_t p = 0; p < g->k; p += K_BLOCK) {
        for (size_t j = 0; j < g->n; j += GEMM64_PANEL) {
            const size_t width = g->n - j < GEMM64_PANEL ? g->n - j : GEMM64_PANEL;
            gemm64_tile t = {.a = g->a + i0 * g->a_row + p * g->a_k,
                             .a_row = g->a_row,
                             .a_k = g->a_k,
                             .b = g->b + p * g->b_k + j * g->b_col,
                             .b_k = g->b_k,
                             .k = g->k - p < K_BLOCK ? g->k - p : K_BLOCK,
                             .c = g->c + i0 * g->c_row + j,
                             .c_row = g->c_row,
                             .first = p == 0};
            if (!in_place) {
                copy_panel(t.b, g->b_k, g->b_col, t.k, width, copy);
                t.b = copy;
                t.b_k = GEMM64_PANEL;
            }
            run_rows(k, t, m, width);
            if ((work += m * width * t.k) < LOOK) continue;
            if (stop_now(g->stop)) return;
            work = 0;
        }
    }
}

void gemm64_run(const kernels *k, const gemm64 *g) {
    _Alignas(64) double copy[K_BLOCK * GEMM64_PANEL];
    if (g->k == 0) {
        for (size_t i = 0; i < g->m; i++) memset(g->c + i * g->c_row, 0, g->n * sizeof *g->c);
        return;
    }
    for (size_t i = 0; i < g->m && !stop_now(g->stop); i += CHUNK_ROWS)
        run_chunk(k, g, i, g->m - i < CHUNK_ROWS ? g->m - i : CHUNK_ROWS, copy);
}
