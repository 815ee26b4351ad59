/* experimental.c: operators that ai.onnx once had as experiments and dropped, and that converters of their
 * time (CoreML's among them) left in files: Affine, Crop, ImageScaler, ParametricSoftplus, Scale, ScaledTanh.
 * They mean the same under every version up to 9, the last in which ONNX Runtime has them. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

/* ---- functions of one element ----------------------------------------------------------------------- */

enum old_kind { OLD_AFFINE, OLD_SCALE, OLD_SOFTPLUS, OLD_TANH };

typedef struct old_state {
    enum old_kind kind;
    float alpha, beta;
} old_state;

static status function_prepare(op_node *n, error *err) {
    static const struct {
        const char *name, *alpha, *beta;
        float alpha_absent, beta_absent;
    } known[] = {
        [OLD_AFFINE] = {"Affine", "alpha", "beta", 1, 0},
        [OLD_SCALE] = {"Scale", "scale", NULL, 1, 0},
        [OLD_SOFTPLUS] = {"ParametricSoftplus", "alpha", "beta", 1, 1},
        [OLD_TANH] = {"ScaledTanh", "alpha", "beta", 1, 1},
    };
    old_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(op_operator(n), known[i].name) != 0) continue;
        st->kind = (enum old_kind)i;
        TRY(op_attr_float(n, known[i].alpha, known[i].alpha_absent, &st->alpha, err));
        if (known[i].beta) TRY(op_attr_float(n, known[i].beta, known[i].beta_absent, &st->beta, err));
    }
    return CHURON_OK;
}

static double softplus(double x) {
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static status function_run(op_run *r, error *err) {
    const old_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const double a = (double)st->alpha, b = (double)st->beta;
    const void *from;
    void *to;
    tensor *y;
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    const double *xs = from;
    double *ys = to;
    for (size_t i = 0; i < x->count; i++) {
        switch (st->kind) {
        case OLD_SOFTPLUS: ys[i] = a * softplus(b * xs[i]); break;
        case OLD_TANH: ys[i] = a * tanh(b * xs[i]); break;
        default: ys[i] = a * xs[i] + b;
        }
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- ImageScaler: [N, C, H, W] times scale, plus a bias a channel ------------------------------------ */

typedef struct image_state {
    float scale;
    const float *bias;
    size_t n_bias;
} image_state;

static status image_prepare(op_node *n, error *err) {
    image_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_float(n, "scale", 1, &st->scale, err));
    return op_attr_floats(n, "bias", &st->bias, &st->n_bias, err);
}

static status image_infer(op_shapes *s, error *err) {
    const image_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 4, 4, "input", &known, &rank, &x, err));
    if (known) TRY(shapes_same(s, x[1], (dim)st->n_bias, "channels and bias", NULL, err));
    return infer_same(s, err);
}

static status image_run(op_run *r, error *err) {
    const image_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const void *from;
    void *to;
    tensor *y;
    TRY(real_in(r, 0, ELEM_F32, &from, err));
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    const size_t plane = (size_t)(x->dims[2] * x->dims[3]);
    for (size_t i = 0; i < x->count; i++)
        ((float *)to)[i] = ((const float *)from)[i] * st->scale + st->bias[i / plane % st->n_bias];
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- Crop: border [left, top, right, bottom]; scale [height, width] from the left upper corner -------- */

typedef struct crop_state {
    int64_t border[4], scale[2];
    bool scaled;
} crop_state;

static status crop_prepare(op_node *n, error *err) {
    crop_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const int64_t *border, *scale;
    size_t n_border, n_scale;
    TRY(op_attr_ints(n, "border", &border, &n_border, err));
    TRY(op_attr_ints(n, "scale", &scale, &n_scale, err));
    if (n_border != 4 || (n_scale != 0 && n_scale != 2))
        return op_error(n, err, CHURON_INVALID, "border, scale: 4 and 2 numbers expected, got %zu and %zu",
                        n_border, n_scale);
    for (size_t i = 0; i < n_border + n_scale; i++) {
        const int64_t v = i < 4 ? border[i] : scale[i - 4];
        if (v < 0 || v > INT32_MAX)
            return op_error(n, err, CHURON_INVALID, "%s[%zu]: 0 to %d expected, got %lld",
                            i < 4 ? "border" : "scale", i % 4, INT32_MAX, (long long)v);
        *(i < 4 ? &st->border[i] : &st->scale[i - 4]) = v;
    }
    st->scaled = n_scale == 2;
    return CHURON_OK;
}

static status crop_infer(op_shapes *s, error *err) {
    const crop_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 4, 4, "input", &known, &rank, &x, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[4] = {x[0], x[1]};
    for (size_t i = 0; i < 2; i++) {
        const int64_t before = st->border[1 - i], after = st->border[3 - i];
        out[2 + i] = st->scaled ? st->scale[i] : dim_sub(s, x[2 + i], before + after);
        if (dim_known(x[2 + i]) && (out[2 + i] < 0 || before + out[2 + i] > x[2 + i]))
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "border: what leaves a part of dimension %zu of %lld expected, got %lld and %lld",
                            2 + i, (long long)x[2 + i], (long long)before,
                            (long long)(st->scaled ? st->scale[i] : after));
    }
    return shapes_out(s, 0, 4, out, err);
}

static status crop_run(op_run *r, error *err) {
    const crop_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const size_t bytes = elem_describe(x->type)->bytes;
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    const size_t rows = (size_t)y->dims[2], row = (size_t)y->dims[3] * bytes,
                 planes = (size_t)(y->dims[0] * y->dims[1]);
    for (size_t p = 0; p < planes; p++)
        for (size_t i = 0; i < rows; i++) {
            const size_t from = (p * (size_t)x->dims[2] + (size_t)st->border[1] + i) * (size_t)x->dims[3] +
                                (size_t)st->border[0];
            memcpy((char *)y->data + (p * rows + i) * row, (const char *)x->data + from * bytes, row);
        }
    return CHURON_OK;
}

#define OLD(op, prep, inf, fn)                                                                               \
    {                                                                                                        \
        .domain = "", .name = op, .since = 1, .until = 9, .signature = "T>T", .vars = {{'T', NN_F3}},        \
        .prepare = prep, .release = mem_free, .infer = inf, .run = fn                                        \
    }

static const op_def rows[] = {
    OLD("Affine", function_prepare, infer_same, function_run),
    OLD("Scale", function_prepare, infer_same, function_run),
    OLD("ParametricSoftplus", function_prepare, infer_same, function_run),
    OLD("ScaledTanh", function_prepare, infer_same, function_run),
    OLD("ImageScaler", image_prepare, image_infer, image_run),
    OLD("Crop", crop_prepare, crop_infer, crop_run),
};
NN_TABLE(experimental);
