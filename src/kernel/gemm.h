/* gemm.h: products of f32 matrices, C[m, n] = A[m, k] B[k, n], with what follows a product fused into it.
 *
 * One kernel serves matrix products and convolutions, because rows of A are described and not copied: row i
 * begins at a + i*a_row and its k values lie in `n_runs` runs of `run` values, a_k apart, run s beginning at
 * offset runs[s]. A matrix is one run of k values. A convolution over channels in blocks of 16 has one row a
 * pixel and one run a tap and block of input channels.
 *
 * B is packed once, in panels of 16 columns: [n/16][k][16], the last panel filled with zeros. The order of k
 * is the order of the runs.
 *
 * The law of sums: every element is one chain of fused multiply-adds, k ascending from zero; then + bias, +
 * add, then the limits. It depends on no size but k: not on m, on how rows or panels are split between
 * threads, or on the instruction set. */
#ifndef KERNEL_GEMM_H
#define KERNEL_GEMM_H

#include "base/stop.h"
#include "kernel/kernel.h"

#include <stdint.h>

enum { GEMM_PANEL = 16 };

enum { GEMM_K_BLOCK = 384 }; /* of a larger k, sums rest in c between blocks of so many */

typedef struct gemm {
    size_t n, k; /* k = n_runs * run */
    const float *a;
    size_t a_row, a_k;
    const ptrdiff_t *runs; /* [n_runs]; NULL: one run at 0 */
    size_t n_runs, run;
    const float *b; /* packed, 64-byte aligned */
    /* Element (i, j) of C is c[i*c_row + j/16*c_panel + j%16]. Row-major: c_panel 16; channels in blocks of
     * 16: c_row 16, c_panel 16 times the pixels. Where c_panel is not 16, whole panels are written. */
    float *c;
    size_t c_row, c_panel;
    const float *bias; /* [n rounded up to 16], or NULL */
    const float *add;  /* laid out as C with strides of its own, or NULL; may be c where k <= GEMM_K_BLOCK */
    size_t add_row, add_panel;
    float low, high; /* limits; -INFINITY and INFINITY: none. NaN stays NaN */
    /* Columns 8 to 15 of the last panel have weights of 0 only: their sums are 0 and cost nothing, unless the
     * rows have to be interleaved. */
    bool half;
    stop_flag *stop; /* asked every 0.1 ms or so; NULL: never */
} gemm;

size_t gemm_packed_floats(size_t k, size_t n); /* 0 on overflow */
/* Packs columns [16*p0, 16*p1) of B, b[i*row + j*col]. */
void gemm_pack(const float *b, size_t row, size_t col, size_t k, size_t n, size_t p0, size_t p1, float *out);
static inline size_t gemm_panels(size_t n) {
    return (n + GEMM_PANEL - 1) / GEMM_PANEL;
}

/* Floats of scratch that gemm_run needs for one thread, 64-byte aligned. */
size_t gemm_scratch_floats(size_t k);
/* Rows [m0, m1) and panels [p0, p1). Threads take different rows or panels. */
void gemm_run(const kernels *k, const gemm *g, size_t m0, size_t m1, size_t p0, size_t p1, float *scratch);

/* ---- the instruction sets' part --------------------------------------------------------------------- */

/* gemm_rows: rows of a tile lie 16, 32 or a_row floats apart, or are interleaved: [k][rows]. */

/* A tile of rows and panels over a block of K. */
struct gemm_tile {
    const float *a;
    size_t a_row;
    const ptrdiff_t *runs; /* [n_runs]; PACKED: one run at 0 */
    size_t n_runs, run;
    const float *b; /* first panel at this block of K */
    size_t b_panel; /* floats to the next panel */
    float *c;
    size_t c_row, c_panel;
    uint16_t mask;     /* columns of the last panel that exist */
    bool first, last;  /* block of K: begin at zero; finish */
    bool half;         /* sums of columns 8 to 15 of the last panel are 0. Never for PACKED rows */
    const float *bias; /* of these panels, or NULL */
    const float *add;
    size_t add_row, add_panel;
    float low, high;
    /* Lines that may be fetched into the second-level cache meanwhile, one for each value of k: weights that
     * are read next. Convolutions' (ROWS_16, ROWS_32) are there already. */
    const char *ahead;
    size_t ahead_step; /* bytes */
};

#endif
