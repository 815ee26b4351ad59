/* gemm_int.h: products of 8-bit matrices for the operators: exact sums, or scaled to f32 (kernel/qgemm.h). */
#ifndef GRAPH_OPS_GEMM_INT_H
#define GRAPH_OPS_GEMM_INT_H

#include "graph/op.h"
#include "kernel/qgemm.h"

/* A constant matrix [k, n], int8 or uint8, packed. Immutable after creation. */
typedef struct int_packed {
    size_t k, n;
    bool is_signed;
    int8_t *b;
    int32_t *sums; /* [n rounded up to 16] */
    void *memory;  /* of both; NULL: not packed */
} int_packed;

/* Element (p, j) of b at p*row + j*col. */
MUST_USE status int_pack_create(int_packed *out, const void *b, elem type, size_t k, size_t n, size_t row,
                                size_t col, error *err);
void int_pack_free(int_packed *b);

/* c[i, j] = sum over p of (a[i, p] - a_zero[i]) * (b[p, j] - b_zero[j]) modulo 2^32; or, with y, the sum as
 * f32 times (a_scale[i] * b_scale[j]), + bias[j]. All rows are dense arrays of their length. */
typedef struct int_call {
    size_t m, n, k;
    elem a_type, b_type; /* int8 or uint8 */
    const void *a;       /* element (i, p) at i*a_row + p */
    size_t a_row;
    const void *b; /* element (p, j) at p*b_row + j; not read if `packed` is set */
    size_t b_row;
    const int_packed *packed;       /* or NULL; one with memory NULL counts as NULL */
    const int32_t *a_zero, *b_zero; /* [m], [n] */
    int32_t *sums;                  /* [m, n]; NULL: y */
    float *y;                       /* [m, n] */
    const float *a_scale, *b_scale; /* [m], [n] */
    const float *bias;              /* [n] or NULL */
} int_call;

/* All calls, one after the other; each is shared out over the team if it pays. */
MUST_USE status gemm_int(op_run *r, const int_call *calls, size_t n_calls, error *err);

/* Rows and panels of g, shared out over the team if it pays; `after` (may be NULL) then gets each part:
 * rows [m0, m1), columns [j0, j1). */
void gemm_int_share(op_run *r, const qgemm *g, size_t m,
                    void (*after)(void *ctx, size_t m0, size_t m1, size_t j0, size_t j1), void *ctx);

#endif
