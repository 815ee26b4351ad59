/* gelu.c: Gelu, FastGelu, QuickGelu and BiasGelu of com.microsoft. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

enum gelu_kind { GELU_ERF, GELU_TANH, GELU_QUICK };

typedef struct gelu_state {
    enum gelu_kind kind;
    float alpha;
} gelu_state;

typedef struct gelu_job {
    enum gelu_kind kind;
    double alpha;
    const void *x, *bias;
    void *y;
    size_t n_bias;
    const kernels *kernels;
} gelu_job;

static void gelu_f32(void *ctx, size_t from, size_t to) {
    const gelu_job *j = ctx;
    const float *x = (const float *)j->x + from, *bias = j->bias;
    float *y = (float *)j->y + from;
    const kernel_unary f = j->kind == GELU_ERF    ? UNARY_F32_GELU
                           : j->kind == GELU_TANH ? UNARY_F32_GELU_TANH
                                                  : UNARY_F32_SWISH;
    if (bias) {
        size_t at = from % j->n_bias;
        for (size_t i = 0; i < to - from; at = 0) {
            const size_t n = j->n_bias - at < to - from - i ? j->n_bias - at : to - from - i;
            for (size_t k = 0; k < n; k++) y[i + k] = x[i + k] + bias[at + k];
            i += n;
        }
        x = y;
    }
    j->kernels->unary(f, (float)j->alpha, 0.0f, x, y, to - from);
}

static void gelu_f64(void *ctx, size_t from, size_t to) {
    const gelu_job *j = ctx;
    const double *x = j->x, *bias = j->bias;
    double *y = j->y;
    for (size_t i = from; i < to; i++) {
        double v = bias ? x[i] + bias[i % j->n_bias] : x[i];
        switch (j->kind) {
        case GELU_ERF: y[i] = 0.5 * v * (1 + erf(v * 0.70710678118654752)); break;
        case GELU_TANH: y[i] = 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v))); break;
        case GELU_QUICK: y[i] = v / (1 + exp(-j->alpha * v)); break;
        }
    }
}

static status gelu_read(op_node *n, enum gelu_kind kind, error *err) {
    gelu_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->kind = kind;
    return kind == GELU_QUICK ? op_attr_float(n, "alpha", 1.702F, &st->alpha, err) : CHURON_OK;
}

static status erf_prepare(op_node *n, error *err) {
    return gelu_read(n, GELU_ERF, err);
}

static status tanh_prepare(op_node *n, error *err) {
    return gelu_read(n, GELU_TANH, err);
}

static status quick_prepare(op_node *n, error *err) {
    return gelu_read(n, GELU_QUICK, err);
}

static status gelu_infer(op_shapes *s, error *err) {
    size_t rank, rb;
    const dim *x, *b;
    if (op_has_input(shapes_node(s), 1) && shapes_in(s, 0, &rank, &x) && shapes_in(s, 1, &rb, &b)) {
        if (rb != 1 || rank < 1)
            return op_error(shapes_node(s), err, CHURON_INVALID, "bias: rank 1 expected, got %zu", rb);
        TRY(shapes_same(s, b[0], x[rank - 1], "bias and the last dimension", NULL, err));
    }
    return infer_same(s, err);
}

static status gelu_run(op_run *r, error *err) {
    const gelu_state *st = run_state(r);
    elem work = real_work(run_in(r, 0)->type);
    gelu_job j = {.kind = st->kind, .alpha = (double)st->alpha, .kernels = run_kernels(r)};
    tensor *y;
    TRY(real_out(r, 0, work, &y, &j.y, err));
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.bias, err));
    j.n_bias = j.bias ? run_in(r, 1)->count : 1;
    run_parallel(r, y->count, 2.0 * (double)y->count, work == ELEM_F64 ? gelu_f64 : gelu_f32, &j);
    real_out_done(r, y, work, j.y);
    return CHURON_OK;
}

#define GELU(op, sign, prep)                                                                                 \
    {                                                                                                        \
        .domain = "com.microsoft", .name = op, .since = 1, .flags = OP_INPLACE, .signature = sign,           \
        .vars = {{'T', ELEMS_FLOAT}}, .prepare = prep, .release = mem_free, .infer = gelu_infer,             \
        .run = gelu_run                                                                                      \
    }

static const op_def rows[] = {GELU("Gelu", "T>T", erf_prepare), GELU("FastGelu", "T=T>T", tanh_prepare),
                              GELU("QuickGelu", "T>T", quick_prepare), GELU("BiasGelu", "TT>T", erf_prepare)};
NN_TABLE(gelu);
