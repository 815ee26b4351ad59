/* softmax.c: Softmax and LogSoftmax; QLinearSoftmax of com.microsoft.
 *
 * Before version 13 the input is a matrix cut at `axis` and rows are normalized over everything behind it;
 * from 13 on over the one axis. Rows are independent; within one the order of the sum is fixed. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"
#include "graph/ops/rows.h"

#include <math.h>

typedef struct softmax_state {
    int64_t axis;
    bool flatten, log;
} softmax_state;

typedef struct softmax_job {
    const void *x;
    void *y;
    size_t size, inner;
    bool log;
    const kernels *kernels;
} softmax_job;

/* ---- rows ------------------------------------------------------------------------------------------- */

/* y may be x. */
static void row_f32(const kernels *k, const float *x, float *y, size_t n, bool log_of) {
    if (!log_of) {
        k->softmax(x, y, n);
    } else {
        float max, sum;
        k->log_sum_exp(x, n, &max, &sum);
        for (size_t i = 0; i < n; i++) y[i] = (x[i] - max) - sum;
    }
}

static void row_f64(const double *x, double *y, size_t n, bool log_of) {
    double max = -INFINITY, sum;
    for (size_t i = 0; i < n; i++) max = x[i] > max || x[i] != x[i] ? x[i] : max;
    if (log_of) {
        sum = 0;
        for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
        double shift = max + log(sum);
        for (size_t i = 0; i < n; i++) y[i] = x[i] - shift;
        return;
    }
    for (size_t i = 0; i < n; i++) y[i] = exp(x[i] - max);
    sum = rows_sum_f64(y, n);
    for (size_t i = 0; i < n; i++) y[i] /= sum;
}

static void rows_f32(void *ctx, size_t from, size_t to) {
    const softmax_job *j = ctx;
    for (size_t row = from; row < to; row++)
        row_f32(j->kernels, (const float *)j->x + row * j->size, (float *)j->y + row * j->size, j->size,
                j->log);
}

static void rows_f64(void *ctx, size_t from, size_t to) {
    const softmax_job *j = ctx;
    for (size_t row = from; row < to; row++)
        row_f64((const double *)j->x + row * j->size, (double *)j->y + row * j->size, j->size, j->log);
}

/* Values of a row lie `inner` apart: gathered into rows and scattered back. */
static void transpose_rows(const char *from, char *to, size_t outer, size_t size, size_t inner, size_t bytes,
                           bool back) {
    for (size_t o = 0; o < outer; o++)
        for (size_t k = 0; k < size; k++)
            for (size_t i = 0; i < inner; i++) {
                size_t apart = (o * size + k) * inner + i, dense = (o * inner + i) * size + k;
                const char *p = from + (back ? dense : apart) * bytes;
                char *q = to + (back ? apart : dense) * bytes;
                if (bytes == 4)
                    *(float *)(void *)q = *(const float *)(const void *)p;
                else
                    *(double *)(void *)q = *(const double *)(const void *)p;
            }
}

/* x, y: [outer, size, inner] of `work`. */
static status run_rows(op_run *r, const void *x, void *y, size_t outer, size_t size, size_t inner, elem work,
                       bool log_of, error *err) {
    if (outer * size * inner == 0) return CHURON_OK;
    softmax_job j = {.x = x, .y = y, .size = size, .log = log_of, .kernels = run_kernels(r)};
    size_t bytes = elem_describe(work)->bytes;
    void *dense = NULL;
    if (inner > 1) {
        TRY(run_scratch(r, outer * size * inner * bytes, &dense, err));
        transpose_rows(x, dense, outer, size, inner, bytes, false);
        j.x = j.y = dense;
    }
    double ns = (work == ELEM_F64 ? 12.0 : 1.5) * (double)(outer * size * inner);
    run_parallel(r, outer * inner, ns, work == ELEM_F64 ? rows_f64 : rows_f32, &j);
    if (inner > 1) transpose_rows(dense, y, outer, size, inner, bytes, true);
    return CHURON_OK;
}

/* ---- operators -------------------------------------------------------------------------------------- */

static status softmax_read(op_node *n, bool log_of, error *err) {
    softmax_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->flatten = op_version(n) < 13;
    st->log = log_of;
    return op_attr_int(n, "axis", st->flatten ? 1 : -1, INT32_MIN, INT32_MAX, &st->axis, err);
}

static status softmax_prepare(op_node *n, error *err) {
    return softmax_read(n, false, err);
}

static status logsoftmax_prepare(op_node *n, error *err) {
    return softmax_read(n, true, err);
}

/* A matrix may be cut behind the last axis as well: rows of one value. */
static status cut(const op_node *n, const softmax_state *st, size_t rank, size_t *axis, error *err) {
    if (rank == 0) {
        *axis = 0;
        return st->axis == 0 || st->axis == -1 || st->flatten ? CHURON_OK
                                                              : op_axis(n, st->axis, rank, "axis", axis, err);
    }
    if (st->flatten && st->axis == (int64_t)rank) {
        *axis = rank;
        return CHURON_OK;
    }
    return op_axis(n, st->axis, rank, "axis", axis, err);
}

static status softmax_infer(op_shapes *s, error *err) {
    size_t rank, axis;
    const dim *x;
    if (shapes_in(s, 0, &rank, &x)) TRY(cut(shapes_node(s), shapes_state(s), rank, &axis, err));
    return infer_same(s, err);
}

static void cut_sizes(const softmax_state *st, const tensor *x, size_t axis, size_t *outer, size_t *size,
                      size_t *inner) {
    *outer = (size_t)nn_product(x->dims, axis < x->rank ? axis : x->rank);
    *inner = 1;
    if (st->flatten || x->rank == 0) {
        *size = axis < x->rank ? (size_t)nn_product(x->dims + axis, x->rank - axis) : 1;
    } else {
        *size = (size_t)x->dims[axis];
        *inner = (size_t)nn_product(x->dims + axis + 1, x->rank - axis - 1);
    }
}

static status softmax_run(op_run *r, error *err) {
    const softmax_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    const void *from;
    size_t axis, outer, size, inner;
    TRY(cut(run_node(r), st, x->rank, &axis, err));
    TRY(real_in(r, 0, work, &from, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    cut_sizes(st, x, axis, &outer, &size, &inner);
    TRY(run_rows(r, from, to, outer, size, inner, work, st->log, err));
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- QLinearSoftmax: X, X_scale, x_zero_point, y_scale, y_zero_point -------------------------------- */

static status qsoftmax_prepare(op_node *n, error *err) {
    softmax_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t opset;
    TRY(op_attr_int(n, "opset", 13, 1, INT32_MAX, &opset, err));
    st->flatten = opset < 13;
    return op_attr_int(n, "axis", -1, INT32_MIN, INT32_MAX, &st->axis, err);
}

static status qsoftmax_run(op_run *r, error *err) {
    const softmax_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    void *memory;
    float sx = 1, sy = 1;
    int32_t zx = 0, zy = 0;
    size_t axis, outer, size, inner;
    TRY(cut(run_node(r), st, x->rank, &axis, err));
    TRY(run_out(r, 0, &y, err));
    TRY(quant_scalar(r, 1, 2, "X_scale, x_zero_point", &sx, &zx, err));
    TRY(quant_scalar(r, 3, 4, "y_scale, y_zero_point", &sy, &zy, err));
    TRY(run_scratch(r, (x->count + 1) * sizeof(float), &memory, err));
    float *v = memory;
    for (size_t i = 0; i < x->count; i++) v[i] = (float)(byte_of(x, i) - zx) * sx;
    cut_sizes(st, x, axis, &outer, &size, &inner);
    TRY(run_rows(r, v, v, outer, size, inner, ELEM_F32, false, err));
    for (size_t i = 0; i < y->count; i++) byte_set(y, i, quant_clamp((double)(v[i] / sy), zy, y->type));
    return CHURON_OK;
}

#define SOFTMAX(op, first, last, types, prep)                                                                \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .flags = OP_INPLACE, .signature = "T>T",    \
        .vars = {{'T', types}}, .prepare = prep, .release = mem_free, .infer = softmax_infer,                \
        .run = softmax_run                                                                                   \
    }

static const op_def rows[] = {
    SOFTMAX("Softmax", 1, 10, NN_F3, softmax_prepare),
    SOFTMAX("Softmax", 11, 12, NN_F3, softmax_prepare),
    SOFTMAX("Softmax", 13, 0, ELEMS_FLOAT, softmax_prepare),
    SOFTMAX("LogSoftmax", 1, 10, NN_F3, logsoftmax_prepare),
    SOFTMAX("LogSoftmax", 11, 12, NN_F3, logsoftmax_prepare),
    SOFTMAX("LogSoftmax", 13, 0, ELEMS_FLOAT, logsoftmax_prepare),
    {.domain = "com.microsoft",
     .name = "QLinearSoftmax",
     .since = 1,
     .signature = "TfTfT>T",
     .vars = {{'T', NN_I8}},
     .prepare = qsoftmax_prepare,
     .release = mem_free,
     .infer = softmax_infer,
     .run = qsoftmax_run},
};
NN_TABLE(softmax);
