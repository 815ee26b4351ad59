/* training.c: the optimizers of ai.onnx.preview.training as plain operators: Adagrad, Adam, Momentum. Inputs
 * are the rate, the update count, then for n tensors all values, all gradients, all states; outputs all
 * values, all states. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>

enum optimizer { ADAGRAD, ADAM, MOMENTUM };

typedef struct optimizer_state {
    enum optimizer kind;
    float alpha, beta, epsilon, norm, norm_post, decay;
    int nesterov;
    size_t n, parts; /* tensors; inputs a tensor: value, gradient, states */
} optimizer_state;

static status count_tensors(op_node *n, optimizer_state *st, error *err) {
    size_t given = op_n_inputs(n);
    st->parts = st->kind == ADAM ? 4 : 3;
    if (given < 2 + st->parts || (given - 2) % st->parts)
        return op_error(n, err, CHURON_INVALID, "inputs: 2 and a multiple of %zu expected, got %zu",
                        st->parts, given);
    st->n = (given - 2) / st->parts;
    return CHURON_OK;
}

static status optimizer_prepare(op_node *n, enum optimizer kind, error *err) {
    static const char *const modes[] = {"standard", "nesterov", NULL};
    optimizer_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->kind = kind;
    TRY(op_attr_float(n, "norm_coefficient", 0, &st->norm, err));
    if (kind != MOMENTUM) TRY(op_attr_float(n, "epsilon", 1e-6F, &st->epsilon, err));
    if (kind == ADAGRAD) TRY(op_attr_float(n, "decay_factor", 0, &st->decay, err));
    if (kind == ADAM) TRY(op_attr_float(n, "norm_coefficient_post", 0, &st->norm_post, err));
    if (kind != ADAGRAD) {
        TRY(op_attr_float(n, "alpha", 0.9F, &st->alpha, err));
        TRY(op_attr_float(n, "beta", 0.999F, &st->beta, err));
    }
    if (kind == MOMENTUM) TRY(op_attr_choice(n, "mode", modes, 0, &st->nesterov, err));
    return count_tensors(n, st, err);
}

static status adagrad_prepare(op_node *n, error *err) {
    return optimizer_prepare(n, ADAGRAD, err);
}

static status adam_prepare(op_node *n, error *err) {
    return optimizer_prepare(n, ADAM, err);
}

static status momentum_prepare(op_node *n, error *err) {
    return optimizer_prepare(n, MOMENTUM, err);
}

static status optimizer_infer(op_shapes *s, error *err) {
    const optimizer_state *st = shapes_state(s);
    for (size_t i = 0; i < st->n; i++) {
        size_t rank, other;
        const dim *x, *d;
        bool known = shapes_in(s, 2 + i, &rank, &x);
        for (size_t p = 1; known && p < st->parts; p++) {
            if (!shapes_in(s, 2 + p * st->n + i, &other, &d)) continue;
            if (other != rank)
                return op_error(shapes_node(s), err, CHURON_INVALID, "input %zu: rank %zu expected, got %zu",
                                2 + p * st->n + i, rank, other);
            for (size_t k = 0; k < rank; k++)
                TRY(shapes_same(s, x[k], d[k], "value, gradient and state", NULL, err));
        }
        for (size_t p = 0; p + 1 < st->parts; p++) {
            size_t out = p * st->n + i, from = p == 0 ? 2 + i : 2 + (p + 1) * st->n + i;
            shapes_out_type(s, out, shapes_in_type(s, from));
            if (known)
                TRY(shapes_out(s, out, rank, x, err));
            else
                shapes_out_unknown(s, out);
        }
    }
    return CHURON_OK;
}

/* One element: x, v, h are updated; v: momentum, h: squares. */
static void update(const optimizer_state *st, double rate, int64_t t, double g, double *x, double *v,
                   double *h) {
    double a = (double)st->alpha, b = (double)st->beta;
    g += (double)st->norm * *x;
    switch (st->kind) {
    case ADAGRAD:
        *v += g * g;
        *x -= rate / (1 + (double)t * (double)st->decay) * g / (sqrt(*v) + (double)st->epsilon);
        break;
    case ADAM:
        *v = a * *v + (1 - a) * g;
        *h = b * *h + (1 - b) * g * g;
        if (t > 0) rate *= sqrt(1 - pow(b, (double)t)) / (1 - pow(a, (double)t));
        *x = (1 - (double)st->norm_post) * (*x - rate * *v / (sqrt(*h) + (double)st->epsilon));
        break;
    case MOMENTUM:
        *v = a * *v + (t > 0 ? b : 1) * g;
        *x -= rate * (st->nesterov ? g + a * *v : *v);
        break;
    }
}

static status optimizer_run(op_run *r, error *err) {
    const optimizer_state *st = run_state(r);
    const tensor *rate = run_in(r, 0), *t = run_in(r, 1);
    if (rate->count != 1 || t->count != 1)
        return run_error(r, err, CHURON_INVALID, "R, T: one element expected, got %zu and %zu", rate->count,
                         t->count);
    for (size_t i = 0; i < st->n; i++) {
        const void *in[4] = {NULL};
        void *out[3] = {NULL};
        tensor *to[3] = {NULL};
        for (size_t p = 0; p + 1 < st->parts; p++)
            TRY(real_out_optional(r, p * st->n + i, ELEM_F64, &to[p], &out[p], err));
        for (size_t p = 0; p < st->parts; p++) TRY(real_in(r, 2 + p * st->n + i, ELEM_F64, &in[p], err));
        for (size_t k = 0; k < run_in(r, 2 + i)->count; k++) {
            double x = ((const double *)in[0])[k], g = ((const double *)in[1])[k],
                   v = ((const double *)in[2])[k];
            double h = in[3] ? ((const double *)in[3])[k] : 0;
            update(st, real_at(rate, 0), int_at(t, 0), g, &x, &v, &h);
            const double results[3] = {x, v, h};
            for (size_t p = 0; p + 1 < st->parts; p++)
                if (out[p]) ((double *)out[p])[k] = results[p];
        }
        for (size_t p = 0; p + 1 < st->parts; p++)
            if (to[p]) real_out_done(r, to[p], ELEM_F64, out[p]);
    }
    return CHURON_OK;
}

#define FD (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64))
#define OPTIMIZER(op, prep)                                                                                  \
    {                                                                                                        \
        .domain = "ai.onnx.preview.training", .name = op, .since = 1, .signature = "Ti=U+>@+",               \
        .vars = {{'T', FD}, {'U', FD}}, .prepare = prep, .release = mem_free, .infer = optimizer_infer,      \
        .run = optimizer_run                                                                                 \
    }

static const op_def rows[] = {OPTIMIZER("Adagrad", adagrad_prepare), OPTIMIZER("Adam", adam_prepare),
                              OPTIMIZER("Momentum", momentum_prepare)};
NN_TABLE(training);
