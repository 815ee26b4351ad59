/* product.h: an operator that passes put into a graph: the product of a matrix with a constant one, with
 * bias, addition and function fused. No model can name it; its state is made by the pass. */
#ifndef GRAPH_OPS_PRODUCT_H
#define GRAPH_OPS_PRODUCT_H

#include "graph/op.h"
#include "kernel/gemm.h"

/* "Product": X [..., k] times B [k, n], + bias, + optional second input of the shape of the result, then
 * limits, then a function. X of rank 2 may be transposed (Gemm's transA). */
typedef struct product {
    size_t k, n;
    bool transposed;
    float *b;    /* packed */
    float *bias; /* [n rounded up to 16] or NULL */
    float low, high;
    bool activate;
    kernel_unary function;
    float p, q;
} product;
extern const op_def op_product;

void product_free(void *state);

#endif
