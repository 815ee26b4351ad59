/* product.h: operators that passes put into a graph: the product of a matrix with a constant one, with
 * bias, addition and function fused. No model can name them; their state is made by the pass. */
#ifndef GRAPH_OPS_PRODUCT_H
#define GRAPH_OPS_PRODUCT_H

#include "graph/op.h"
#include "graph/ops/gemm_int.h"
#include "kernel/gemm.h"

/* "Product": X [..., k] times B [k, n], + bias, + optional second input of the shape of the result, then
 * limits, then a function. X of rank 2 may be transposed (Gemm's transA).
 * "QuantizedProduct": the same of 8-bit X, its scale and its zero point (one each); the addition is the
 * fourth input. The exact sum, as f32, times (scale of X * b_scale), then as above. */
typedef struct product {
    size_t k, n;
    bool transposed;
    tensor source; /* B as the model has it, [k, n] or, if `across`, [n, k]; gone when it is packed */
    bool across;
    float *b; /* packed, in the program's memory; or, of QuantizedProduct: */
    int_packed q8;
    int32_t *b_zero; /* moved to int8, [n rounded up to 16], or NULL: all 0 */
    float *b_scale;  /* [n rounded up to 16] */
    float *bias;     /* [n rounded up to 16] or NULL */
    float low, high;
    bool activate;
    kernel_unary function;
    float p, q;
} product;
extern const op_def op_product, op_product_int;

extern const op_packing product_packing;

void product_free(void *state);
MUST_USE status product_infer(op_shapes *s, error *err); /* of both */

#endif
