/* loss.c: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, computed in double. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>

enum reduction { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

typedef struct loss_state {
    int reduction;
    bool ignores, softmax;
    int64_t ignored;
} loss_state;

static status loss_read(op_node *n, bool softmax, error *err) {
    static const char *const names[] = {"none", "mean", "sum", NULL};
    loss_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->softmax = softmax;
    st->ignores = op_attr_present(n, "ignore_index");
    TRY(op_attr_int(n, "ignore_index", 0, INT64_MIN, INT64_MAX, &st->ignored, err));
    return op_attr_choice(n, "reduction", names, REDUCE_MEAN, &st->reduction, err);
}

static status nll_prepare(op_node *n, error *err) {
    return loss_read(n, false, err);
}

static status sce_prepare(op_node *n, error *err) {
    return loss_read(n, true, err);
}

static status loss_infer(op_shapes *s, error *err) {
    const loss_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool kx, kt, kw = false;
    size_t rx, rt, rw;
    const dim *x, *t, *w = NULL;
    TRY(nn_rank(s, 0, 2, TENSOR_MAX_RANK, "scores", &kx, &rx, &x, err));
    TRY(nn_rank(s, 1, 1, TENSOR_MAX_RANK, "target", &kt, &rt, &t, err));
    if (op_has_input(n, 2)) TRY(nn_rank(s, 2, 1, 1, "weight", &kw, &rw, &w, err));
    if (kx && kt) {
        if (rt != rx - 1)
            return op_error(n, err, CHURON_INVALID, "target: rank %zu expected, got %zu", rx - 1, rt);
        for (size_t i = 0; i < rt; i++)
            TRY(shapes_same(s, x[i == 0 ? 0 : i + 1], t[i], "scores and target", NULL, err));
    }
    if (kx && kw) TRY(shapes_same(s, x[1], w[0], "classes and weight", NULL, err));
    if (st->softmax && op_has_output(n, 1)) {
        if (kx)
            TRY(shapes_out(s, 1, rx, x, err));
        else
            shapes_out_unknown(s, 1);
    }
    if (st->reduction != REDUCE_NONE) return shapes_out(s, 0, 0, NULL, err);
    if (kt) return shapes_out(s, 0, rt, t, err);
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

/* In place: x [outer, classes, inner] to its logarithm of softmax over classes. */
static void log_softmax(double *x, size_t outer, size_t classes, size_t inner) {
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < inner; i++) {
            double *v = x + o * classes * inner + i, max = -INFINITY, sum = 0;
            for (size_t c = 0; c < classes; c++) max = v[c * inner] > max ? v[c * inner] : max;
            for (size_t c = 0; c < classes; c++) sum += exp(v[c * inner] - max);
            for (size_t c = 0; c < classes; c++) v[c * inner] -= max + log(sum);
        }
}

static status loss_values(op_run *r, const loss_state *st, const double *x, const double *weight,
                          size_t outer, size_t classes, size_t inner, double *loss, double *total_weight,
                          error *err) {
    const tensor *target = run_in(r, 1);
    *total_weight = 0;
    for (size_t i = 0; i < outer * inner; i++) {
        int64_t c = int_at(target, i);
        loss[i] = 0;
        if (st->ignores && c == st->ignored) continue;
        if (c < 0 || (uint64_t)c >= classes)
            return run_error(r, err, CHURON_INVALID, "target[%zu]: 0 to %zu expected, got %lld", i,
                             classes - 1, (long long)c);
        double w = weight ? weight[c] : 1;
        loss[i] = -x[(i / inner * classes + (size_t)c) * inner + i % inner] * w;
        *total_weight += w;
    }
    return CHURON_OK;
}

static status loss_run(op_run *r, error *err) {
    const loss_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const void *from, *weight;
    void *memory;
    tensor *y;
    TRY(nn_need_first(r, err));
    TRY(run_out(r, 0, &y, err)); /* checks the shapes */
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(real_in(r, 2, ELEM_F64, &weight, err));
    size_t outer = (size_t)x->dims[0], classes = (size_t)x->dims[1];
    size_t inner = (size_t)nn_product(x->dims + 2, x->rank - 2);
    TRY(run_scratch(r, (x->count + outer * inner + 1) * sizeof(double), &memory, err));
    double *v = memory, *loss = v + x->count, total;
    for (size_t i = 0; i < x->count; i++) v[i] = ((const double *)from)[i];
    if (st->softmax) log_softmax(v, outer, classes, inner);
    TRY(loss_values(r, st, v, weight, outer, classes, inner, loss, &total, err));
    if (st->softmax && op_has_output(run_node(r), 1)) {
        tensor *log_prob;
        TRY(run_out(r, 1, &log_prob, err));
        elem_from_f64(log_prob->type, v, log_prob->data, log_prob->count, false);
    }
    double sum = 0;
    for (size_t i = 0; i < outer * inner; i++) sum += loss[i];
    if (st->reduction == REDUCE_MEAN) sum /= total;
    elem_from_f64(y->type, st->reduction == REDUCE_NONE ? loss : &sum, y->data, y->count, false);
    return CHURON_OK;
}

#define INDEX (ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64))
#define LOSS(op, first, last, sign, types, prep)                                                             \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = sign,                          \
        .vars = {{'T', types}, {'U', INDEX}}, .prepare = prep, .release = mem_free, .infer = loss_infer,     \
        .run = loss_run                                                                                      \
    }

static const op_def rows[] = {
    LOSS("NegativeLogLikelihoodLoss", 12, 21, "TU=T>T", NN_F3, nll_prepare),
    LOSS("NegativeLogLikelihoodLoss", 22, 0, "TU=T>T", ELEMS_FLOAT, nll_prepare),
    LOSS("SoftmaxCrossEntropyLoss", 12, 12, "TU=T>TT", NN_F3, sce_prepare),
    LOSS("SoftmaxCrossEntropyLoss", 13, 0, "TU=T>TT", ELEMS_FLOAT, sce_prepare),
};
NN_TABLE(loss);
