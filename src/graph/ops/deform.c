/* deform.c: DeformConv (two spatial axes): samples at learned offsets become columns, the rest is a matrix
 * product. CausalConvWithState: a depthwise convolution that remembers its last inputs. */
#include "base/mem.h"
#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <string.h>
#include <tgmath.h>

/* ---- DeformConv ------------------------------------------------------------------------------------- */

typedef struct deform_state {
    window w;
    int64_t group, offset_group;
} deform_state;

typedef struct deform_job {
    geometry g;
    size_t in_channels, group_in, offset_groups;
    const void *x, *offset, *mask;
    stop_flag *stop;
} deform_job;

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/deform.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/deform.inc"
#undef REAL
#undef FN

static status deform_prepare(op_node *n, error *err) {
    deform_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(window_prepare(n, &st->w, false, true, false, err));
    TRY(op_attr_int(n, "group", 1, 1, INT32_MAX, &st->group, err));
    return op_attr_int(n, "offset_group", 1, 1, INT32_MAX, &st->offset_group, err);
}

static status deform_infer(op_shapes *s, error *err) {
    const deform_state *st = shapes_state(s);
    const op_node *node = shapes_node(s);
    bool kx, kw, ko, km = false;
    size_t rank;
    const dim *x, *w, *o, *m = NULL;
    TRY(nn_rank(s, 0, 4, 4, "X", &kx, &rank, &x, err));
    TRY(nn_rank(s, 1, 4, 4, "W", &kw, &rank, &w, err));
    TRY(nn_rank(s, 2, 4, 4, "offset", &ko, &rank, &o, err));
    if (op_has_input(node, 4)) TRY(nn_rank(s, 4, 4, 4, "mask", &km, &rank, &m, err));
    dim kernel[2], spatial[2], sized[2], out[4];
    for (size_t i = 0; i < 2; i++) {
        kernel[i] = kw ? w[2 + i] : st->w.n_kernel ? st->w.kernel[i] : dim_fresh(s);
        if (i < st->w.n_kernel)
            TRY(shapes_same(s, st->w.kernel[i], kernel[i], "kernel_shape and W", NULL, err));
        spatial[i] = kx ? x[2 + i] : dim_fresh(s);
    }
    TRY(window_shape(s, &st->w, 2, spatial, kernel, sized, err));
    if (kx && kw) {
        TRY(shapes_same(s, x[1], dim_mul(s, w[1], st->group), "channels of X and of W (times group)", NULL,
                        err));
        if (dim_known(w[0]) && w[0] % st->group)
            return op_error(node, err, CHURON_INVALID,
                            "W: output channels a multiple of group %lld expected, got %lld",
                            (long long)st->group, (long long)w[0]);
        if (dim_known(x[1]) && x[1] % st->offset_group)
            return op_error(node, err, CHURON_INVALID,
                            "X: channels a multiple of offset_group %lld expected, got %lld",
                            (long long)st->offset_group, (long long)x[1]);
    }
    dim maps = dim_mul(s, dim_mul(s, kernel[0], kernel[1]), st->offset_group);
    for (size_t i = 0; i < 4; i++) {
        dim want = i == 0 ? (kx ? x[0] : dim_fresh(s)) : i == 1 ? maps : sized[i - 2];
        out[i] = i == 1 ? (kw ? w[0] : dim_fresh(s)) : want;
        if (ko)
            TRY(shapes_same(s, o[i], i == 1 ? dim_mul(s, maps, 2) : want, "offset", i == 1 ? NULL : &out[i],
                            err));
        if (km) TRY(shapes_same(s, m[i], want, "mask", NULL, err));
    }
    return shapes_out(s, 0, 4, out, err);
}

static status deform_run(op_run *r, error *err) {
    const deform_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    elem work = real_work(x->type);
    tensor *y;
    void *to, *columns;
    const void *weights, *bias;
    TRY(real_out(r, 0, work, &y, &to, err));
    deform_job j = {.stop = run_stop(r),
                    .in_channels = (size_t)x->dims[1],
                    .group_in = (size_t)w->dims[1],
                    .offset_groups = (size_t)st->offset_group};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &weights, err));
    TRY(real_in(r, 2, work, &j.offset, err));
    TRY(real_in(r, 3, work, &bias, err));
    TRY(real_in(r, 4, work, &j.mask, err));
    window_geometry(&st->w, 2, x->dims + 2, y->dims + 2, w->dims + 2, &j.g);
    size_t k = j.group_in * (size_t)j.g.kernel_size, area = (size_t)j.g.out_size, groups = (size_t)st->group;
    size_t m = (size_t)w->dims[0] / groups, bytes = elem_describe(work)->bytes;
    if (bias && run_in(r, 3)->count != (size_t)w->dims[0])
        return run_error(r, err, CHURON_INVALID, "B: %lld elements expected, got %zu", (long long)w->dims[0],
                         run_in(r, 3)->count);
    TRY(run_scratch(r, k * area * bytes + 1, &columns, err));
    for (size_t n = 0; n < (size_t)x->dims[0]; n++)
        for (size_t g = 0; g < groups; g++) {
            TRY(run_check(r, err));
            size_t at = (n * groups + g) * m * area;
            if (work == ELEM_F64) {
                double *d = (double *)to + at;
                deform_columns_f64(&j, n, g, columns);
                gemm_f64(run_kernels(r), run_stop(r), m, area, k, (const double *)weights + g * m * k, k, 1,
                         columns, area, 1, d, area);
                for (size_t i = 0; bias && i < m * area; i++)
                    d[i] += ((const double *)bias)[g * m + i / area];
            } else {
                deform_columns_f32(&j, n, g, columns);
                gemm_call call = {.m = m,
                                  .n = area,
                                  .k = k,
                                  .a = (const float *)weights + g * m * k,
                                  .a_row = k,
                                  .a_col = 1,
                                  .b = columns,
                                  .b_row = area,
                                  .b_col = 1,
                                  .c = (float *)to + at,
                                  .ldc = area};
                gemm_epilogue e = {
                    .alpha = 1, .beta = 1, .bias = bias ? (const float *)bias + g * m : NULL, .bias_row = 1};
                TRY(gemm_f32(r, &call, 1, &e, err));
            }
        }
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- CausalConvWithState ---------------------------------------------------------------------------- */

typedef struct causal_state {
    int silu;
} causal_state;

static status causal_prepare(op_node *n, error *err) {
    static const char *const names[] = {"none", "silu", "swish", NULL};
    causal_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_choice(n, "activation", names, 0, &st->silu, err);
}

/* com.microsoft's has more attributes, which must say what ai.onnx's means. */
static status ms_causal_prepare(op_node *n, error *err) {
    static const struct {
        const char *name;
        int64_t usual;
    } others[] = {{"ndim", 1},
                  {"dilation", 1},
                  {"channels_last", 0},
                  {"state_window", 0},
                  {"state_length", 0},
                  {"input_channels", 0},
                  {"input_channel_offset", 0},
                  {"state_update_capacity", 0},
                  {"state_channels_last", -1}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int64_t v;
        TRY(op_attr_int(n, others[i].name, others[i].usual, INT32_MIN, INT32_MAX, &v, err));
        if (v != others[i].usual)
            return op_error(n, err, CHURON_UNSUPPORTED, "%s: %lld expected, got %lld", others[i].name,
                            (long long)others[i].usual, (long long)v);
    }
    return causal_prepare(n, err);
}

static status causal_infer(op_shapes *s, error *err) {
    bool kx, kw, kb = false, kp = false;
    size_t rank;
    const dim *x, *w, *b = NULL, *p = NULL;
    TRY(nn_rank(s, 0, 3, 3, "input", &kx, &rank, &x, err));
    TRY(nn_rank(s, 1, 3, 3, "weight", &kw, &rank, &w, err));
    if (op_has_input(shapes_node(s), 2)) TRY(nn_rank(s, 2, 1, 1, "bias", &kb, &rank, &b, err));
    if (op_has_input(shapes_node(s), 3)) TRY(nn_rank(s, 3, 3, 3, "past_state", &kp, &rank, &p, err));
    dim out[3], state[3];
    for (size_t i = 0; i < 3; i++) out[i] = kx ? x[i] : dim_fresh(s);
    if (kw) {
        TRY(shapes_same(s, w[0], out[1], "weight and channels", &out[1], err));
        TRY(shapes_same(s, w[1], 1, "dimension 1 of weight", NULL, err));
        if (dim_known(w[2]) && w[2] < 1)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "weight: at least one tap expected, got %lld", (long long)w[2]);
    }
    if (kb) TRY(shapes_same(s, b[0], out[1], "bias and channels", NULL, err));
    state[0] = out[0], state[1] = out[1], state[2] = kw ? dim_sub(s, w[2], 1) : dim_fresh(s);
    for (size_t i = 0; kp && i < 3; i++) TRY(shapes_same(s, p[i], state[i], "past_state", &state[i], err));
    TRY(shapes_out(s, 0, 3, out, err));
    return shapes_out(s, 1, 3, state, err);
}

static status causal_run(op_run *r, error *err) {
    const causal_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    tensor *y, *state;
    void *py, *pstate, *line;
    const void *px, *pw, *pb, *past;
    TRY(real_in(r, 0, ELEM_F32, &px, err));
    TRY(real_in(r, 1, ELEM_F32, &pw, err));
    TRY(real_in(r, 2, ELEM_F32, &pb, err));
    TRY(real_in(r, 3, ELEM_F32, &past, err));
    TRY(real_out(r, 0, ELEM_F32, &y, &py, err));
    TRY(real_out(r, 1, ELEM_F32, &state, &pstate, err));
    size_t channels = (size_t)x->dims[1], length = (size_t)x->dims[2], k = (size_t)w->dims[2], keep = k - 1;
    TRY(run_scratch(r, (length + k) * sizeof(float), &line, err));
    float *padded = line;
    for (size_t row = 0; row < (size_t)x->dims[0] * channels; row++) {
        if (past)
            memcpy(padded, (const float *)past + row * keep, keep * sizeof(float));
        else
            memset(padded, 0, keep * sizeof(float));
        memcpy(padded + keep, (const float *)px + row * length, length * sizeof(float));
        float *out = (float *)py + row * length;
        const float *taps = (const float *)pw + row % channels * k;
        float bias = pb ? ((const float *)pb)[row % channels] : 0;
        for (size_t i = 0; i < length; i++) {
            float sum = 0;
            for (size_t t = 0; t < k; t++) sum += taps[t] * padded[i + t];
            sum += bias;
            out[i] = st->silu ? sum / (1 + expf(-sum)) : sum;
        }
        if (pstate) memcpy((float *)pstate + row * keep, padded + length, keep * sizeof(float));
    }
    real_out_done(r, y, ELEM_F32, py);
    real_out_done(r, state, ELEM_F32, pstate);
    return CHURON_OK;
}

#define DEFORM(first, last, types)                                                                           \
    {                                                                                                        \
        .domain = "", .name = "DeformConv", .since = first, .until = last, .signature = "TTT=TT>T",          \
        .vars = {{'T', types}}, .prepare = deform_prepare, .release = mem_free, .infer = deform_infer,       \
        .run = deform_run                                                                                    \
    }

static const op_def rows[] = {
    DEFORM(19, 21, NN_F3),
    DEFORM(22, 0, ELEMS_FLOAT),
    {.domain = "",
     .name = "CausalConvWithState",
     .since = 27,
     .signature = "TT=TT>TT",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16)}},
     .prepare = causal_prepare,
     .release = mem_free,
     .infer = causal_infer,
     .run = causal_run},
    {.domain = "com.microsoft",
     .name = "CausalConvWithState",
     .since = 1,
     .signature = "TT=TT>TT",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16)}},
     .prepare = ms_causal_prepare,
     .release = mem_free,
     .infer = causal_infer,
     .run = causal_run},
};
NN_TABLE(deform);
