/* skipnorm.c: see skipnorm.h. A row is added and normalized while it is in the first-level cache. */
#include "graph/ops/skipnorm.h"

#include "base/mem.h"
#include "graph/ops/nn.h"

#include <string.h>

static status infer(op_shapes *s, error *err) {
    size_t rank;
    dim dims[TENSOR_MAX_RANK];
    TRY(shapes_broadcast(s, 0, 2, &rank, dims, err));
    const size_t n_outputs = op_n_outputs(shapes_node(s));
    for (size_t i = 0; i < n_outputs; i++) {
        if (!op_has_output(shapes_node(s), i)) continue;
        if (rank == SIZE_MAX) {
            shapes_out_unknown(s, i);
        } else {
            TRY(shapes_out(s, i, rank, dims, err));
        }
    }
    size_t scale_rank;
    const dim *scale;
    if (rank == SIZE_MAX || rank == 0 || !shapes_in(s, 2, &scale_rank, &scale)) return CHURON_OK;
    return shapes_same(s, dims[rank - 1], scale[scale_rank - 1], "normalized dimension and scale", NULL, err);
}

typedef struct job {
    const float *a, *b, *scale, *bias;
    float *y, *sum; /* sum may be y */
    size_t n, rank;
    bool dense; /* a and b are of the shape of the result */
    int64_t dims[TENSOR_MAX_RANK], step_a[TENSOR_MAX_RANK], step_b[TENSOR_MAX_RANK];
    float epsilon;
    const kernels *kernels;
} job;

static void row_places(const job *j, size_t row, size_t *a, size_t *b) {
    *a = *b = row * j->n;
    if (j->dense) return;
    *a = *b = 0;
    for (size_t d = j->rank - 1; d-- > 0;) {
        const size_t at = row % (size_t)j->dims[d];
        *a += at * (size_t)j->step_a[d];
        *b += at * (size_t)j->step_b[d];
        row /= (size_t)j->dims[d];
    }
}

static void rows(void *ctx, size_t from, size_t to) {
    const job *j = ctx;
    const size_t step_a = j->dense ? 1 : (size_t)j->step_a[j->rank - 1];
    const size_t step_b = j->dense ? 1 : (size_t)j->step_b[j->rank - 1];
    for (size_t row = from; row < to; row++) {
        size_t at_a, at_b;
        row_places(j, row, &at_a, &at_b);
        const float *a = j->a + at_a, *b = j->b + at_b;
        float *sum = j->sum + row * j->n;
        if (step_a == 1 && step_b == 1) {
            for (size_t i = 0; i < j->n; i++) sum[i] = a[i] + b[i];
        } else {
            for (size_t i = 0; i < j->n; i++) sum[i] = a[i * step_a] + b[i * step_b];
        }
        j->kernels->layer_norm(sum, j->scale, j->bias, j->n, j->epsilon, j->y + row * j->n);
    }
}

static status run(op_run *r, error *err) {
    const skip_norm *st = run_state(r);
    const tensor *a = run_in(r, 0), *b = run_in(r, 1), *bias = run_in(r, 3);
    tensor *y, *sum = NULL;
    TRY(run_out(r, 0, &y, err));
    if (op_has_output(run_node(r), 1)) TRY(run_out(r, 1, &sum, err));
    if (y->count == 0) return CHURON_OK;
    job j = {.a = a->data,
             .b = b->data,
             .scale = run_in(r, 2)->data,
             .bias = bias ? bias->data : NULL,
             .y = y->data,
             .sum = sum ? sum->data : y->data,
             .n = (size_t)y->dims[y->rank - 1],
             .rank = y->rank,
             .dense = a->count == y->count && b->count == y->count,
             .epsilon = st->epsilon,
             .kernels = run_kernels(r)};
    memcpy(j.dims, y->dims, sizeof j.dims);
    nn_broadcast_strides(a->dims, a->rank, y->rank, j.step_a);
    nn_broadcast_strides(b->dims, b->rank, y->rank, j.step_b);
    run_parallel(r, y->count / j.n, 0.6 * (double)y->count, rows, &j);
    return CHURON_OK;
}

const op_def op_skip_norm = {.domain = "churon",
                             .name = "SkipNormalization",
                             .since = 1,
                             .signature = "TTT=T>TT",
                             .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                             .release = mem_free,
                             .infer = infer,
                             .run = run};
