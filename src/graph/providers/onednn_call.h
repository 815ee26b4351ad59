/* onednn_call.h: what convolutions and matrix products share: a product with constant weights, compiled for
 * each shape that it meets. */
#ifndef GRAPH_PROVIDERS_ONEDNN_CALL_H
#define GRAPH_PROVIDERS_ONEDNN_CALL_H

#include "graph/providers/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

enum { ONEDNN_KEY = 4, ONEDNN_PLANS = 16 };

/* One shape of the operands, described to oneDNN. */
typedef struct onednn_call {
    int64_t key[ONEDNN_KEY]; /* equal keys are equal shapes */
    size_t threads;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_matmul_desc_t matmul;
    } operation;
    dnnl_memory_desc_t x, y; /* as the graph has them: dense */
} onednn_call;

typedef struct onednn_plan {
    int64_t key[ONEDNN_KEY];
    size_t threads;
    dnnl_primitive_t product, x_reorder, y_reorder; /* reorders: NULL where the dense form is taken */
    dnnl_memory_desc_t x_dense, y_dense, x, y, weights_form;
    float *weights;
    bool owns_weights;
    size_t weights_bytes, x_bytes, y_bytes, scratch_bytes;
} onednn_plan;

/* What the state of every row of this provider begins with. Immutable but for the plans, which the lock
 * guards; a plan in the list is never changed or dropped. */
typedef struct onednn_product {
    dnnl_engine_t engine;
    dnnl_memory_desc_t weights_dense, bias_form;
    const float *weights; /* as weights_dense says; the graph's constant, or `scaled` */
    float *scaled, *bias; /* the product's own; NULL: none */
    double operations;    /* multiplications and additions of one element of the result */
    float low, high;      /* limits of the result; infinite: none */
    pthread_mutex_t lock;
    bool has_lock;
    onednn_plan *plans[ONEDNN_PLANS];
    size_t n_plans;
} onednn_product;

/* `p` is zeroed; onednn_product_end also after a failure. bias [n] is
 * copied (NULL: none) and described to oneDNN as [n] or, `row`, as [1, n]. */
MUST_USE status onednn_product_begin(onednn_product *p, const float *bias, size_t n, bool row, error *err);
void onednn_product_end(onednn_product *p);

/* A dense row-major tensor; strides NULL: of these dims. */
MUST_USE status onednn_dense(dnnl_memory_desc_t *m, size_t rank, const int64_t *dims, const int64_t *strides,
                             error *err);
MUST_USE status onednn_any(dnnl_memory_desc_t *m, size_t rank, const int64_t *dims, error *err);
MUST_USE status onednn_check(dnnl_status_t got, const char *what, error *err);

/* Makes the plan of this call and keeps it, at load. */
MUST_USE status onednn_prepare(onednn_product *p, const onednn_call *c, error *err);
/* y = x * weights + bias. */
MUST_USE status onednn_execute(op_run *r, onednn_product *p, const onednn_call *c, const float *x, float *y,
                               error *err);

/* Where limits (Relu, Clip) alone read what n makes, they become the product's: gives their output and
 * removes them. Else n's output. */
ir_value *onednn_take_limits(rewriter *w, const op_node *n, onednn_product *p);

/* One operator each: claim it, or leave the node alone. */
MUST_USE status onednn_claim_conv(rewriter *w, op_node *n, size_t threads, error *err);
MUST_USE status onednn_claim_matmul(rewriter *w, op_node *n, size_t threads, error *err);

#endif
