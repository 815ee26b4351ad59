/* ml_linear.c: LinearClassifier, LinearRegressor. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

typedef struct linear {
    const float *weights, *intercepts; /* [targets, c]; [targets] or NULL */
    size_t n_weights, targets;
    ml_labels labels;
    ml_post post;
} linear;

static status read_weights(op_node *n, linear *st, size_t targets, error *err) {
    size_t n_intercepts;
    TRY(op_attr_floats(n, "coefficients", &st->weights, &st->n_weights, err));
    TRY(op_attr_floats(n, "intercepts", &st->intercepts, &n_intercepts, err));
    if (!n_intercepts) st->intercepts = NULL;
    st->targets = targets ? targets : n_intercepts;
    if (st->targets == 0) st->targets = st->labels.n > 2 ? st->labels.n : 1;
    if (st->n_weights == 0 || st->n_weights % st->targets) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute 'coefficients': expected a multiple of %zu values, got %zu", st->targets,
                        st->n_weights);
    }
    if (n_intercepts && n_intercepts != st->targets) {
        return op_error(n, err, CHURON_INVALID, "attribute 'intercepts': expected %zu values, got %zu",
                        st->targets, n_intercepts);
    }
    return CHURON_OK;
}

static status check_width(op_shapes *s, const linear *st, error *err) {
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    size_t want = st->n_weights / st->targets;
    if (!known || !dim_known(c) || (size_t)c == want) return CHURON_OK;
    return op_error(shapes_node(s), err, CHURON_INVALID,
                    "X: expected %zu columns for %zu coefficients, got %lld", want, st->n_weights,
                    (long long)c);
}

/* Scores of one row, in double. */
static void scores_of(const linear *st, const tensor *x, size_t row, size_t c, double *scores) {
    for (size_t t = 0; t < st->targets; t++) {
        const float *w = st->weights + t * c;
        double lane[4] = {0};
        if (x->type == ELEM_F32) {
            const float *v = (const float *)x->data + row * c;
            size_t i = 0;
            for (; i + 4 <= c; i += 4) {
                for (size_t l = 0; l < 4; l++) lane[l] += (double)v[i + l] * (double)w[i + l];
            }
            for (; i < c; i++) lane[i % 4] += (double)v[i] * (double)w[i];
        } else {
            for (size_t i = 0; i < c; i++) lane[i % 4] += real_at(x, row * c + i) * (double)w[i];
        }
        double sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
        scores[t] = sum + (st->intercepts ? (double)st->intercepts[t] : 0);
    }
}

/* ---- classifier ------------------------------------------------------------------------------------- */

static status classifier_prepare(op_node *n, error *err) {
    linear *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    op_attr_ignore(n, "multi_class"); /* says how the model was trained */
    TRY(ml_labels_read(n, "classlabels_ints", "classlabels_strings", &st->labels, err));
    TRY(ml_post_read(n, &st->post, err));
    return read_weights(n, st, 0, err);
}

/* One score stands for two classes when two have names. */
static bool is_binary(const linear *st) {
    return st->targets == 1 && st->labels.n == 2;
}

static status classifier_infer(op_shapes *s, error *err) {
    const linear *st = shapes_state(s);
    TRY(check_width(s, st, err));
    if (op_has_output(shapes_node(s), 0)) shapes_out_type(s, 0, ml_labels_type(&st->labels));
    TRY(ml_rows_out(s, 0, 0, err));
    return ml_rows_out(s, 1, is_binary(st) ? 2 : (int64_t)st->targets, err);
}

static size_t class_of(const linear *st, const double *raw, size_t width) {
    if (width > 1) return ml_argmax(raw, width);
    /* One score without two names: its sign; a single name is that of the positive class. */
    bool positive = raw[0] > 0;
    return st->labels.n == 1 ? (positive ? 0 : SIZE_MAX) : positive;
}

static status set_class(const ml_labels *l, tensor *y, size_t row, size_t class, error *err) {
    if (class != SIZE_MAX) return ml_label_set(l, y, row, class, err);
    if (l->strings) return tensor_string_set(y, row, "", 0, err);
    ((int64_t *)y->data)[row] = 0;
    return CHURON_OK;
}

static status classifier_run(op_run *r, error *err) {
    const linear *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y, *z;
    void *scratch;
    size_t n, c, width = is_binary(st) ? 2 : st->targets;
    TRY(run_out(r, 0, &y, err));
    TRY(run_out(r, 1, &z, err));
    TRY(run_scratch(r, (width + 1) * sizeof(double), &scratch, err));
    double *scores = scratch;
    ml_rows_of(x, &n, &c);
    for (size_t row = 0; row < n; row++) {
        scores_of(st, x, row, c, scores);
        if (is_binary(st)) {
            scores[1] = scores[0];
            scores[0] = -scores[0];
        }
        if (y) TRY(set_class(&st->labels, y, row, class_of(st, scores, width), err));
        ml_post_apply(st->post, scores, width);
        for (size_t i = 0; z && i < width; i++) ((float *)z->data)[row * width + i] = (float)scores[i];
    }
    return CHURON_OK;
}

/* ---- regressor -------------------------------------------------------------------------------------- */

static status regressor_prepare(op_node *n, error *err) {
    linear *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t targets;
    TRY(op_attr_int(n, "targets", 1, 1, INT32_MAX, &targets, err));
    TRY(ml_post_read(n, &st->post, err));
    return read_weights(n, st, (size_t)targets, err);
}

static status regressor_infer(op_shapes *s, error *err) {
    const linear *st = shapes_state(s);
    TRY(check_width(s, st, err));
    return ml_rows_out(s, 0, (int64_t)st->targets, err);
}

static status regressor_run(op_run *r, error *err) {
    const linear *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    void *scratch;
    size_t n, c;
    TRY(run_out(r, 0, &y, err));
    TRY(run_scratch(r, st->targets * sizeof(double), &scratch, err));
    double *scores = scratch;
    ml_rows_of(x, &n, &c);
    for (size_t row = 0; row < n; row++) {
        scores_of(st, x, row, c, scores);
        ml_post_apply(st->post, scores, st->targets);
        for (size_t i = 0; i < st->targets; i++) {
            ((float *)y->data)[row * st->targets + i] = (float)scores[i];
        }
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "LinearClassifier",
     .since = 1,
     .signature = "T>@f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = classifier_prepare,
     .release = mem_free,
     .infer = classifier_infer,
     .run = classifier_run},
    {.domain = ML_DOMAIN,
     .name = "LinearRegressor",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = regressor_prepare,
     .release = mem_free,
     .infer = regressor_infer,
     .run = regressor_run},
};

NN_TABLE(ml_linear);
