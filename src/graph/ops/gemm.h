/* gemm.h: products of matrices for the operators: C[m,n] = act(alpha * A[m,k] B[k,n] + beta * bias).
 *
 * Every product of f32 matrices in this room (MatMul, Gemm, Conv, attention, recurrent layers) goes through
 * gemm_f32, so that a faster inside serves them all. Each output is one chain of fused multiply-adds over
 * ascending k that begins at 0; then alpha, bias and activation. So a row's result depends neither on the
 * other rows nor on threads. B is packed as the kernels read it: columns in groups of 16, [groups][k][16],
 * the last group filled with zeros; constant B is packed once (gemm_pack_create), others block by block in
 * scratch. f64: gemm_f64; for 8-bit integers see gemm_int.h. */
#ifndef GRAPH_OPS_GEMM_H
#define GRAPH_OPS_GEMM_H

#include "graph/op.h"

typedef struct gemm_packed { /* immutable after creation */
    packed w;                /* rows: the n columns of B; cols: k */
    void *memory;
} gemm_packed;

MUST_USE status gemm_pack_create(gemm_packed *out, const float *b, size_t k, size_t n, size_t row_stride,
                                 size_t col_stride, error *err);
void gemm_pack_free(gemm_packed *b);

typedef enum gemm_act {
    GEMM_NONE,
    GEMM_RELU,
    GEMM_SIGMOID,
    GEMM_TANH,
    GEMM_LEAKY,
    GEMM_CLIP,
    GEMM_HARD_SIGMOID
} gemm_act;

typedef struct gemm_epilogue {
    float alpha, beta; /* of the product; of the bias */
    const float *bias; /* element (i, j) at bias[i * bias_row + j * bias_col]; NULL: none */
    size_t bias_row, bias_col;
    gemm_act act;
    float p0, p1; /* LEAKY: slope; CLIP: least, most; HARD_SIGMOID: alpha, beta */
} gemm_epilogue;

typedef struct gemm_call {
    size_t m, n, k;
    const float *a; /* element (i, p) at a[i * a_row + p * a_col] */
    size_t a_row, a_col;
    const float *b; /* element (p, j) at b[p * b_row + j * b_col]; not read if `packed` is set */
    size_t b_row, b_col;
    const gemm_packed *packed;
    float *c; /* element (i, j) at c[i * ldc + j]; must not overlap a, b */
    size_t ldc;
} gemm_call;

/* All calls, which do not depend on each other. e (may be NULL) holds for all of them. */
MUST_USE status gemm_f32(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e,
                         error *err);
/* The same in two parts, for products that are repeated with new contents of the same memory (steps of a
 * recurrent layer). A of every call must be dense rows (a_col 1, a_row k); calls and e must stay. The plan
 * lives in scratch. */
typedef struct gemm_plan gemm_plan;
MUST_USE status gemm_plan_f32(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e,
                              gemm_plan **out, error *err);
void gemm_plan_run(op_run *r, gemm_plan *plan);
void gemm_activate(const gemm_epilogue *e, float *x, size_t n); /* the activation alone */

/* c = a b for f64, on this thread, by the same law of sums. c is overwritten. `end` may be NULL. */
void gemm_f64(const kernels *table, stop_flag *end, size_t m, size_t n, size_t k, const double *a,
              size_t a_row, size_t a_col, const double *b, size_t b_row, size_t b_col, double *c, size_t ldc);

#endif
