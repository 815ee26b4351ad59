/* matmul.h: operands of numpy's matmul: batches of matrices with broadcast leading axes. */
#ifndef GRAPH_OPS_MATMUL_H
#define GRAPH_OPS_MATMUL_H

#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"

/* One operand: the two last axes, and strides (in elements) of the leading ones. */
typedef struct matmul_operand {
    size_t rank; /* of the leading axes */
    int64_t dims[TENSOR_MAX_RANK], strides[TENSOR_MAX_RANK];
    int64_t rows, cols, row_stride, col_stride;
} matmul_operand;

/* left: a vector is a row, else a column. trans: the last two axes change places. batch: the first axis moves
 * before the last but one. */
matmul_operand matmul_operand_of(const int64_t *dims, size_t rank, bool left, bool trans, bool batch);

/* Offsets of the two matrices of every batch. */
typedef struct matmul_walk {
    size_t rank, count;
    int64_t dims[TENSOR_MAX_RANK], step_a[TENSOR_MAX_RANK], step_b[TENSOR_MAX_RANK];
} matmul_walk;

matmul_walk matmul_walk_of(const matmul_operand *a, const matmul_operand *b);
void matmul_walk_at(const matmul_walk *w, size_t index, size_t *a, size_t *b);

/* Shape of output 0: the product of inputs a and b. */
MUST_USE status matmul_infer_at(op_shapes *s, size_t a, size_t b, error *err);

#endif
