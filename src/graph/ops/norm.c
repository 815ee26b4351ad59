/* norm.c: BatchNormalization (inference), InstanceNormalization, GroupNormalization, LRN, LpNormalization,
 * MeanVarianceNormalization. Means and variances are taken in double, in two passes. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"
#include "graph/ops/rows.h"

#include <string.h>
#include <tgmath.h>

typedef struct norm_state {
    float epsilon, alpha, beta, bias;
    bool spatial, mean_only;
    int64_t groups, size, axis;
    const int64_t *axes; /* borrowed from the model */
    size_t n_axes;
} norm_state;

typedef struct norm_job {
    const void *x, *scale, *bias, *mean, *variance;
    void *y;
    size_t channels, inner, groups;
    float epsilon, alpha, beta, lrn_bias;
    int64_t size;
    bool per_group;
    stop_flag *stop; /* LRN */
} norm_job;

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/norm.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/norm.inc"
#undef REAL
#undef FN

static status read_epsilon(op_node *n, norm_state **out, error *err) {
    *out = NULL;
    norm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    *out = st;
    return op_attr_float(n, "epsilon", 1e-5F, &st->epsilon, err);
}

static status check_vector(op_shapes *s, size_t i, dim want, const char *what, error *err) {
    bool known;
    size_t rank;
    const dim *d;
    TRY(nn_rank(s, i, 1, 1, what, &known, &rank, &d, err));
    return known ? shapes_same(s, d[0], want, what, NULL, err) : CHURON_OK;
}

/* ---- BatchNormalization ----------------------------------------------------------------------------- */

static status batch_prepare(op_node *n, error *err) {
    norm_state *st = NULL;
    TRY(read_epsilon(n, &st, err));
    int64_t v = op_version(n);
    bool training = false, is_test = true;
    op_attr_ignore(n, "momentum");
    st->spatial = true;
    if (v < 6) op_attr_ignore(n, "consumed_inputs");
    if (v < 7) TRY(op_attr_bool(n, "is_test", false, &is_test, err));
    if (v < 9) TRY(op_attr_bool(n, "spatial", true, &st->spatial, err));
    if (v >= 14) TRY(op_attr_bool(n, "training_mode", false, &training, err));
    if (training)
        return op_error(n, err, CHURON_UNSUPPORTED,
                        "training_mode: 0 expected, got 1: the node trains; export the model for inference");
    if (!is_test)
        return op_error(n, err, CHURON_UNSUPPORTED,
                        "is_test: 1 expected, got 0: the node trains; export the model for inference");
    for (size_t i = 1; i < op_n_outputs(n); i++)
        if (op_has_output(n, i))
            return op_error(n, err, CHURON_UNSUPPORTED,
                            "output %zu exists in training only; export the model for inference", i);
    return CHURON_OK;
}

static status batch_infer(op_shapes *s, error *err) {
    static const char *const names[] = {"X", "scale", "B", "mean", "var"};
    const norm_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 1, TENSOR_MAX_RANK, "X", &known, &rank, &x, err));
    dim channels = known ? (rank > 1 ? x[1] : 1) : dim_fresh(s);
    for (size_t i = 1; known && i < 5; i++) {
        if (st->spatial || rank <= 2) {
            TRY(check_vector(s, i, channels, names[i], err));
            continue;
        }
        size_t ri;
        const dim *d;
        if (!shapes_in(s, i, &ri, &d)) continue;
        if (ri != rank - 1)
            return op_error(shapes_node(s), err, CHURON_INVALID, "%s: rank %zu (spatial 0) expected, got %zu",
                            names[i], rank - 1, ri);
        for (size_t k = 0; k < ri; k++) TRY(shapes_same(s, d[k], x[1 + k], names[i], NULL, err));
    }
    return infer_same(s, err);
}

static status batch_run(op_run *r, error *err) {
    const norm_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    norm_job j = {.epsilon = st->epsilon};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.scale, err));
    TRY(real_in(r, 2, work, &j.bias, err));
    TRY(real_in(r, 3, work, &j.mean, err));
    TRY(real_in(r, 4, work, &j.variance, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.y = to;
    size_t batch = (size_t)x->dims[0];
    j.channels = x->rank > 1 ? (size_t)x->dims[1] : 1;
    j.inner = x->rank > 1 ? (size_t)nn_product(x->dims + 2, x->rank - 2) : 1;
    double ns = 0.5 * (double)x->count;
    if (st->spatial)
        run_parallel(r, batch * j.channels, ns, work == ELEM_F64 ? affine_planes_f64 : affine_planes_f32, &j);
    else
        run_parallel(r, batch, ns, work == ELEM_F64 ? affine_positions_f64 : affine_positions_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- InstanceNormalization, GroupNormalization ------------------------------------------------------ */

static status instance_prepare(op_node *n, error *err) {
    norm_state *st = NULL;
    if (op_version(n) < 6) op_attr_ignore(n, "consumed_inputs");
    return read_epsilon(n, &st, err);
}

static status group_prepare(op_node *n, error *err) {
    norm_state *st = NULL;
    int64_t stash;
    TRY(read_epsilon(n, &st, err));
    TRY(op_attr_int(n, "num_groups", 0, 1, INT32_MAX, &st->groups, err));
    if (st->groups < 1) return op_error(n, err, CHURON_INVALID, "num_groups is required");
    if (op_version(n) >= 21) TRY(op_attr_int(n, "stash_type", 1, 0, ELEM_COUNT, &stash, err));
    return CHURON_OK;
}

static status instance_infer(op_shapes *s, error *err) {
    const norm_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, st->groups ? 2 : 3, TENSOR_MAX_RANK, "X", &known, &rank, &x, err));
    if (known) {
        dim want = st->groups && op_version(n) < 21 ? st->groups : x[1];
        TRY(check_vector(s, 1, want, "scale", err));
        TRY(check_vector(s, 2, want, "bias", err));
        if (st->groups && dim_known(x[1]) && x[1] % st->groups)
            return op_error(n, err, CHURON_INVALID,
                            "X: channels a multiple of num_groups %lld expected, got %lld",
                            (long long)st->groups, (long long)x[1]);
    }
    return infer_same(s, err);
}

static status instance_run(op_run *r, error *err) {
    const norm_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    norm_job j = {
        .epsilon = st->epsilon, .groups = (size_t)st->groups, .per_group = op_version(run_node(r)) < 21};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.scale, err));
    TRY(real_in(r, 2, work, &j.bias, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.y = to;
    size_t batch = (size_t)x->dims[0];
    j.channels = (size_t)x->dims[1];
    j.inner = (size_t)nn_product(x->dims + 2, x->rank - 2);
    double ns = 2.0 * (double)x->count;
    if (st->groups)
        run_parallel(r, batch * j.groups, ns, work == ELEM_F64 ? group_rows_f64 : group_rows_f32, &j);
    else
        run_parallel(r, batch * j.channels, ns, work == ELEM_F64 ? affine_planes_f64 : affine_planes_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- LRN, LpNormalization --------------------------------------------------------------------------- */

static status lrn_prepare(op_node *n, error *err) {
    norm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_float(n, "alpha", 1e-4F, &st->alpha, err));
    TRY(op_attr_float(n, "beta", 0.75F, &st->beta, err));
    TRY(op_attr_float(n, "bias", 1, &st->bias, err));
    TRY(op_attr_int(n, "size", 0, 1, INT32_MAX, &st->size, err));
    return st->size ? CHURON_OK : op_error(n, err, CHURON_INVALID, "size is required");
}

static status lrn_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 2, TENSOR_MAX_RANK, "X", &known, &rank, &x, err));
    return infer_same(s, err);
}

static status lrn_run(op_run *r, error *err) {
    const norm_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    norm_job j = {
        .stop = run_stop(r), .size = st->size, .alpha = st->alpha, .beta = st->beta, .lrn_bias = st->bias};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.y = to;
    j.channels = (size_t)x->dims[1];
    j.inner = (size_t)nn_product(x->dims + 2, x->rank - 2);
    run_parallel(r, (size_t)x->dims[0], 5.0 * (double)x->count,
                 work == ELEM_F64 ? lrn_images_f64 : lrn_images_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

static status lp_prepare(op_node *n, error *err) {
    norm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "axis", -1, INT32_MIN, INT32_MAX, &st->axis, err));
    return op_attr_int(n, "p", 2, 1, 2, &st->size, err);
}

static status lp_infer(op_shapes *s, error *err) {
    size_t rank, axis;
    const dim *x;
    if (shapes_in(s, 0, &rank, &x))
        TRY(op_axis(shapes_node(s), ((const norm_state *)shapes_state(s))->axis, rank, "axis", &axis, err));
    return infer_same(s, err);
}

static status lp_run(op_run *r, error *err) {
    const norm_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    size_t axis;
    norm_job j = {.size = st->size};
    TRY(op_axis(run_node(r), st->axis, x->rank, "axis", &axis, err));
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.y = to;
    j.channels = (size_t)x->dims[axis];
    j.inner = (size_t)nn_product(x->dims + axis + 1, x->rank - axis - 1);
    run_parallel(r, (size_t)nn_product(x->dims, axis), 2.0 * (double)x->count,
                 work == ELEM_F64 ? lp_outer_f64 : lp_outer_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- MeanVarianceNormalization ---------------------------------------------------------------------- */

static status mvn_prepare(op_node *n, error *err) {
    static const int64_t usual[] = {0, 2, 3};
    norm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_ints(n, "axes", &st->axes, &st->n_axes, err));
    if (!op_attr_present(n, "axes")) st->axes = usual, st->n_axes = 3;
    return CHURON_OK;
}

/* Before 9, images alone: a channel of all of them, or everything; the variance may stay. */
static status old_mvn_prepare(op_node *n, error *err) {
    static const int64_t channel[] = {0, 2, 3}, across[] = {0, 1, 2, 3};
    norm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    bool all, variance;
    TRY(op_attr_bool(n, "across_channels", false, &all, err));
    TRY(op_attr_bool(n, "normalize_variance", true, &variance, err));
    st->axes = all ? across : channel, st->n_axes = all ? 4 : 3, st->mean_only = !variance;
    return CHURON_OK;
}

static status old_mvn_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 4, 4, "input", &known, &rank, &x, err));
    return infer_same(s, err);
}

static status mvn_infer(op_shapes *s, error *err) {
    const norm_state *st = shapes_state(s);
    size_t rank, axis;
    const dim *x;
    for (size_t i = 0; shapes_in(s, 0, &rank, &x) && i < st->n_axes; i++)
        TRY(op_axis(shapes_node(s), st->axes[i], rank, "axes", &axis, err));
    return infer_same(s, err);
}

static status mvn_run(op_run *r, error *err) {
    const norm_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    int64_t step[TENSOR_MAX_RANK]; /* of the statistics */
    bool reduced[TENSOR_MAX_RANK] = {false};
    for (size_t i = 0; i < st->n_axes; i++) {
        size_t axis;
        TRY(op_axis(run_node(r), st->axes[i], x->rank, "axes", &axis, err));
        reduced[axis] = true;
    }
    size_t groups = 1;
    for (size_t i = x->rank; i-- > 0;) {
        step[i] = reduced[i] ? 0 : (int64_t)groups;
        if (!reduced[i]) groups *= (size_t)x->dims[i];
    }
    const void *from;
    void *to, *memory;
    tensor *y;
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    TRY(run_scratch(r, (2 * groups + 1) * sizeof(double) + (x->count + 1) * sizeof(size_t), &memory, err));
    double *mean = memory, *square = mean + groups;
    size_t *group = (size_t *)(square + groups + 1);
    const double *v = from;
    double *out = to, each = groups ? (double)x->count / (double)groups : 1;
    memset(mean, 0, 2 * groups * sizeof *mean);
    for (size_t i = 0; i < x->count; i++) {
        size_t rest = i, g = 0;
        for (size_t d = x->rank; d-- > 0;) {
            g += rest % (size_t)x->dims[d] * (size_t)step[d];
            rest /= (size_t)x->dims[d];
        }
        group[i] = g;
        mean[g] += v[i];
    }
    for (size_t g = 0; g < groups; g++) mean[g] /= each;
    for (size_t i = 0; i < x->count; i++)
        square[group[i]] += (v[i] - mean[group[i]]) * (v[i] - mean[group[i]]);
    for (size_t i = 0; i < x->count; i++)
        out[i] = (v[i] - mean[group[i]]) / (st->mean_only ? 1 : sqrt(square[group[i]] / each) + 1e-9);
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

/* LRN reads neighbours of what it has written: it may not work in place. */
#define ROW_WITH(how, op, first, last, sign, prep, inf, fn, ...)                                             \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .flags = how, .signature = sign,            \
        .vars = {__VA_ARGS__}, .prepare = prep, .release = mem_free, .infer = inf, .run = fn                 \
    }
#define ROW(...) ROW_WITH(OP_INPLACE, __VA_ARGS__)
#define BATCH(first, last, sign, ...)                                                                        \
    ROW("BatchNormalization", first, last, sign, batch_prepare, batch_infer, batch_run, __VA_ARGS__)
#define INSTANCE(op, first, last, types, prep)                                                               \
    ROW(op, first, last, "TTT>T", prep, instance_infer, instance_run, {'T', types})

static const op_def rows[] = {
    BATCH(1, 5, "TTTTT>TTTTT", {'T', NN_F3}),
    BATCH(6, 6, "TTTTT>TTTTT", {'T', NN_F3}),
    BATCH(7, 8, "TTTTT>TTTTT", {'T', NN_F3}),
    BATCH(9, 13, "TTTTT>TTTTT", {'T', NN_F3}),
    BATCH(14, 14, "TTTUU>TUU", {'T', ELEMS_FLOAT}, {'U', ELEMS_FLOAT}),
    BATCH(15, 0, "TSSUU>TUU", {'T', ELEMS_FLOAT}, {'S', ELEMS_FLOAT}, {'U', ELEMS_FLOAT}),
    INSTANCE("InstanceNormalization", 1, 5, NN_F3, instance_prepare),
    INSTANCE("InstanceNormalization", 6, 21, NN_F3, instance_prepare),
    INSTANCE("InstanceNormalization", 22, 0, ELEMS_FLOAT, instance_prepare),
    INSTANCE("GroupNormalization", 18, 20, ELEMS_FLOAT, group_prepare),
    INSTANCE("GroupNormalization", 21, 0, ELEMS_FLOAT, group_prepare),
    ROW_WITH(0, "LRN", 1, 12, "T>T", lrn_prepare, lrn_infer, lrn_run, {'T', NN_F3}),
    ROW_WITH(0, "LRN", 13, 0, "T>T", lrn_prepare, lrn_infer, lrn_run, {'T', ELEMS_FLOAT}),
    ROW("LpNormalization", 1, 21, "T>T", lp_prepare, lp_infer, lp_run, {'T', NN_F3}),
    ROW("LpNormalization", 22, 0, "T>T", lp_prepare, lp_infer, lp_run, {'T', ELEMS_FLOAT}),
    ROW("MeanVarianceNormalization", 1, 8, "T>T", old_mvn_prepare, old_mvn_infer, mvn_run, {'T', NN_F3}),
    ROW("MeanVarianceNormalization", 9, 12, "T>T", mvn_prepare, mvn_infer, mvn_run, {'T', NN_F3}),
    ROW("MeanVarianceNormalization", 13, 0, "T>T", mvn_prepare, mvn_infer, mvn_run, {'T', ELEMS_FLOAT}),
};
NN_TABLE(norm);
