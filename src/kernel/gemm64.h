/* gemm64.h: products of f64 matrices, C[m, n] = A[m, k] B[k, n], of any strides.
 *
 * The law of sums: every element is one chain of fused multiply-adds, k ascending from zero. It depends on no
 * size but k: not on m or n, on how rows or columns are split between threads, or on the instruction set. */
#ifndef KERNEL_GEMM64_H
#define KERNEL_GEMM64_H

#include "base/stop.h"
#include "kernel/kernel.h"

typedef struct gemm64 {
    size_t m, n, k;
    const double *a; /* element (i, p) at a[i * a_row + p * a_k] */
    size_t a_row, a_k;
    const double *b; /* element (p, j) at b[p * b_k + j * b_col] */
    size_t b_k, b_col;
    double *c; /* element (i, j) at c[i * c_row + j]; overlaps neither a nor b; overwritten */
    size_t c_row;
    stop_flag *stop; /* asked every 0.1 ms or so; NULL: never */
} gemm64;

/* 25 KiB of stack. Threads may take different rows or columns of a product. */
void gemm64_run(const kernels *k, const gemm64 *g);

/* ---- the instruction sets' part --------------------------------------------------------------------- */

enum { GEMM64_ROWS = 8, GEMM64_PANEL = 24 };

/* A tile over a block of K: c = (first ? 0 : c) + A B. */
struct gemm64_tile {
    const double *a;
    size_t a_row, a_k;
    const double *b; /* rows b_k apart, columns side by side */
    size_t b_k, k;
    double *c;
    size_t c_row;
    bool first;
};

#endif
