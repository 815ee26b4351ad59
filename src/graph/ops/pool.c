/* pool.c: MaxPool, AveragePool, LpPool and their global forms, MaxUnpool; QLinearAveragePool,
 * QLinearGlobalAveragePool and NhwcMaxPool of com.microsoft. NaN in a window is the window's maximum. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"

#include <string.h>
#include <tgmath.h>

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };

typedef struct pool_state {
    window w;
    enum pool_kind kind;
    bool include_pad, column_major, channels_last;
    float p;
} pool_state;

typedef struct pool_job {
    geometry g;
    enum pool_kind kind;
    bool include_pad, column_major;
    float p;
    const void *x;
    void *y;
    int64_t *index; /* NULL: not wanted */
    stop_flag *stop;
} pool_job;

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/pool.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/pool.inc"
#undef REAL
#undef FN

/* ---- windows ---------------------------------------------------------------------------------------- */

/* dilations, ceil_mode: the first version that has them; 0: never. */
static status pool_read(op_node *n, enum pool_kind kind, int64_t dilations, int64_t ceil_mode,
                        pool_state **out, error *err) {
    pool_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t v = op_version(n);
    bool required = kind != POOL_LP || v >= 2;
    TRY(window_prepare(n, &st->w, required, dilations && v >= dilations, true, err));
    if (!st->w.n_kernel) return op_error(n, err, CHURON_INVALID, "kernel_shape is required");
    st->kind = kind;
    if (ceil_mode && v >= ceil_mode) TRY(op_attr_bool(n, "ceil_mode", false, &st->w.ceil, err));
    *out = st;
    return CHURON_OK;
}

static status maxpool_prepare(op_node *n, error *err) {
    pool_state *st = NULL;
    TRY(pool_read(n, POOL_MAX, 10, 10, &st, err));
    if (op_version(n) >= 8) TRY(op_attr_bool(n, "storage_order", false, &st->column_major, err));
    return CHURON_OK;
}

static status averagepool_prepare(op_node *n, error *err) {
    pool_state *st = NULL;
    TRY(pool_read(n, POOL_AVERAGE, 19, 10, &st, err));
    if (op_version(n) >= 7) TRY(op_attr_bool(n, "count_include_pad", false, &st->include_pad, err));
    return CHURON_OK;
}

static status read_p(op_node *n, float *p, error *err) {
    int64_t i = 2;
    if (op_version(n) < 2) {
        TRY(op_attr_float(n, "p", 2, p, err));
    } else {
        TRY(op_attr_int(n, "p", 2, 1, INT32_MAX, &i, err));
        *p = (float)i;
    }
    if (!(*p > 0)) return op_error(n, err, CHURON_INVALID, "p: more than 0 expected, got %g", (double)*p);
    return CHURON_OK;
}

static status lppool_prepare(op_node *n, error *err) {
    pool_state *st = NULL;
    TRY(pool_read(n, POOL_LP, 18, 18, &st, err));
    return read_p(n, &st->p, err);
}

static status pool_shape(op_shapes *s, const pool_state *st, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 3, 2 + WINDOW_MAX, "X", &known, &rank, &x, err));
    bool index = op_has_output(shapes_node(s), 1);
    if (!known) {
        shapes_out_unknown(s, 0);
        if (index) shapes_out_unknown(s, 1);
        return CHURON_OK;
    }
    size_t n = rank - 2, first = st->channels_last ? 1 : 2;
    if (st->w.n_kernel != n)
        return op_error(shapes_node(s), err, CHURON_INVALID, "kernel_shape: %zu numbers expected, got %zu", n,
                        st->w.n_kernel);
    dim out[2 + WINDOW_MAX];
    memcpy(out, x, rank * sizeof *out);
    TRY(window_shape(s, &st->w, n, x + first, st->w.kernel, out + first, err));
    TRY(shapes_out(s, 0, rank, out, err));
    return index ? shapes_out(s, 1, rank, out, err) : CHURON_OK;
}

static status pool_infer(op_shapes *s, error *err) {
    return pool_shape(s, shapes_state(s), err);
}

static void job_of(const pool_state *st, const tensor *x, const tensor *y, pool_job *j) {
    size_t first = st->channels_last ? 1 : 2;
    *j = (pool_job){
        .kind = st->kind, .include_pad = st->include_pad, .column_major = st->column_major, .p = st->p};
    window_geometry(&st->w, x->rank - 2, x->dims + first, y->dims + first, st->w.kernel, &j->g);
}

static status pool_run_windows(op_run *r, error *err) {
    const pool_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y, *index = NULL;
    void *to;
    pool_job j;
    TRY(real_out(r, 0, work, &y, &to, err));
    if (st->kind == POOL_MAX && op_has_output(run_node(r), 1)) TRY(run_out(r, 1, &index, err));
    job_of(st, x, y, &j);
    TRY(real_in(r, 0, work, &j.x, err));
    j.y = to;
    j.stop = run_stop(r);
    j.index = index ? index->data : NULL;
    size_t planes = (size_t)(x->dims[0] * x->dims[1]);
    double ns = (double)planes * (double)j.g.out_size * (double)j.g.kernel_size;
    run_parallel(r, planes, ns, work == ELEM_F64 ? pool_planes_f64 : pool_planes_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- global pools ----------------------------------------------------------------------------------- */

static status global_prepare(op_node *n, enum pool_kind kind, error *err) {
    pool_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->kind = kind;
    return kind == POOL_LP ? read_p(n, &st->p, err) : CHURON_OK;
}

static status global_max_prepare(op_node *n, error *err) {
    return global_prepare(n, POOL_MAX, err);
}

static status global_average_prepare(op_node *n, error *err) {
    return global_prepare(n, POOL_AVERAGE, err);
}

static status global_lp_prepare(op_node *n, error *err) {
    return global_prepare(n, POOL_LP, err);
}

static status global_infer(op_shapes *s, error *err) {
    const pool_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 2, TENSOR_MAX_RANK, "X", &known, &rank, &x, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[TENSOR_MAX_RANK];
    for (size_t i = 0; i < rank; i++) out[i] = i == 0 || i == (st->channels_last ? rank - 1 : 1) ? x[i] : 1;
    return shapes_out(s, 0, rank, out, err);
}

static status global_run(op_run *r, error *err) {
    const pool_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    pool_job j = {.kind = st->kind, .p = st->p};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.g.in_size = nn_product(x->dims + 2, x->rank - 2);
    j.y = to;
    run_parallel(r, y->count, 0.3 * (double)x->count,
                 work == ELEM_F64 ? global_planes_f64 : global_planes_f32, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- 8-bit ------------------------------------------------------------------------------------------ */

static status qaverage_prepare(op_node *n, error *err) {
    pool_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(window_prepare(n, &st->w, true, false, true, err));
    st->kind = POOL_AVERAGE;
    TRY(op_attr_bool(n, "ceil_mode", false, &st->w.ceil, err));
    TRY(op_attr_bool(n, "count_include_pad", false, &st->include_pad, err));
    return op_attr_bool(n, "channels_last", false, &st->channels_last, err);
}

static status qglobal_prepare(op_node *n, error *err) {
    pool_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->kind = POOL_AVERAGE;
    return op_attr_bool(n, "channels_last", false, &st->channels_last, err);
}

static size_t planar(size_t i, size_t pixels, size_t channels,
                     bool channels_last) { /* of element i of [N, C, P] */
    if (!channels_last) return i;
    size_t n = i / (pixels * channels), c = i / pixels % channels;
    return (n * pixels + i % pixels) * channels + c;
}

/* x, x_scale, x_zero, y_scale, y_zero: averages of x - zero in f32, scaled once. */
static status qpool_run(op_run *r, bool global, error *err) {
    const pool_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    float sx = 1, sy = 1;
    int32_t zx = 0, zy = 0;
    tensor *y;
    void *memory;
    TRY(run_out(r, 0, &y, err));
    TRY(quant_scalar(r, 1, 2, "x_scale, x_zero_point", &sx, &zx, err));
    TRY(quant_scalar(r, 3, 4, "y_scale, y_zero_point", &sy, &zy, err));
    pool_job j = {.kind = POOL_AVERAGE};
    if (global)
        j.g.in_size = nn_product(x->dims + (st->channels_last ? 1 : 2), x->rank - 2), j.g.out_size = 1;
    else
        job_of(st, x, y, &j);
    size_t channels = (size_t)x->dims[st->channels_last ? x->rank - 1 : 1];
    TRY(run_scratch(r, (x->count + y->count + 1) * sizeof(float), &memory, err));
    float *from = memory, *to = from + x->count;
    for (size_t i = 0; i < x->count; i++)
        from[i] = (float)(byte_of(x, planar(i, (size_t)j.g.in_size, channels, st->channels_last)) - zx);
    j.x = from, j.y = to;
    size_t planes = (size_t)x->dims[0] * channels;
    run_parallel(r, planes, (double)x->count, global ? global_planes_f32 : pool_planes_f32, &j);
    for (size_t i = 0; i < y->count; i++)
        byte_set(y, planar(i, (size_t)j.g.out_size, channels, st->channels_last),
                 quant_clamp((double)(to[i] * (sx / sy)), zy, y->type));
    return CHURON_OK;
}

static status qaverage_run(op_run *r, error *err) {
    return qpool_run(r, false, err);
}

static status qglobal_run(op_run *r, error *err) {
    return qpool_run(r, true, err);
}

static status nhwc_max_prepare(op_node *n, error *err) {
    pool_state *st = NULL;
    TRY(pool_read(n, POOL_MAX, 1, 1, &st, err));
    st->channels_last = true;
    return CHURON_OK;
}

/* NhwcMaxPool: through planes of f32, which hold bytes exactly. */
static status nhwc_max_run(op_run *r, error *err) {
    const pool_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    void *memory;
    pool_job j;
    TRY(run_out(r, 0, &y, err));
    job_of(st, x, y, &j);
    const size_t channels = (size_t)x->dims[x->rank - 1];
    TRY(run_scratch(r, (x->count + y->count + 1) * sizeof(float), &memory, err));
    float *from = memory, *to = from + x->count;
    for (size_t i = 0; i < x->count; i++)
        from[i] = (float)byte_of(x, planar(i, (size_t)j.g.in_size, channels, true));
    j.x = from, j.y = to;
    run_parallel(r, (size_t)x->dims[0] * channels, (double)x->count, pool_planes_f32, &j);
    for (size_t i = 0; i < y->count; i++)
        byte_set(y, planar(i, (size_t)j.g.out_size, channels, true), (int32_t)to[i]);
    return CHURON_OK;
}

/* ---- MaxUnpool -------------------------------------------------------------------------------------- */

static status unpool_prepare(op_node *n, error *err) {
    pool_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return window_prepare(n, &st->w, true, false, false, err);
}

static dim unpooled(op_shapes *s, const window *w, size_t n, size_t i, dim in) {
    int64_t stride = w->n_stride ? w->stride[i] : 1, cut = w->n_pad ? w->pad[i] + w->pad[n + i] : 0;
    if (dim_known(in) && in > INT32_MAX) return -1;
    return dim_add(s, dim_mul(s, dim_add(s, in, -1), stride), w->kernel[i] - cut);
}

static status unpool_infer(op_shapes *s, error *err) {
    const window *w = &((const pool_state *)shapes_state(s))->w;
    const op_node *node = shapes_node(s);
    bool known, known_i;
    size_t rank, ri, n;
    const dim *x, *idx, *want;
    TRY(nn_rank(s, 0, 3, 2 + WINDOW_MAX, "X", &known, &rank, &x, err));
    TRY(nn_rank(s, 1, 3, 2 + WINDOW_MAX, "I", &known_i, &ri, &idx, err));
    if (known && known_i) {
        if (ri != rank) return op_error(node, err, CHURON_INVALID, "I: rank %zu expected, got %zu", rank, ri);
        for (size_t i = 0; i < rank; i++) TRY(shapes_same(s, x[i], idx[i], "X and I", NULL, err));
    }
    if (op_has_input(node, 2)) {
        if (!shapes_in_values(s, 2, &n, &want)) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        if (known && n != rank)
            return op_error(node, err, CHURON_INVALID, "output_shape: %zu numbers expected, got %zu", rank,
                            n);
        return shapes_out(s, 0, n, want, err);
    }
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    n = rank - 2;
    if (w->n_kernel != n || (w->n_stride && w->n_stride != n) || (w->n_pad && w->n_pad != 2 * n))
        return op_error(node, err, CHURON_INVALID,
                        "kernel_shape, strides, pads: one number an axis expected (%zu axes)", n);
    dim out[2 + WINDOW_MAX] = {x[0], x[1]};
    for (size_t i = 0; i < n; i++) {
        out[2 + i] = unpooled(s, w, n, i, x[2 + i]);
        if (dim_known(out[2 + i]) && out[2 + i] < 0)
            return op_error(node, err, CHURON_INVALID,
                            "pads: axis %zu: output size at least 0 expected, got %lld", i,
                            (long long)out[2 + i]);
    }
    return shapes_out(s, 0, rank, out, err);
}

/* Indices count in the shape that follows from the attributes; a larger output_shape has it in its corner. */
static status unpool_run(op_run *r, error *err) {
    const window *w = &((const pool_state *)run_state(r))->w;
    const tensor *x = run_in(r, 0), *index = run_in(r, 1);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    size_t bytes = elem_describe(x->type)->bytes, rank = x->rank, n = rank - 2;
    memset(y->data, 0, tensor_bytes(y));
    if (index->count != x->count)
        return run_error(r, err, CHURON_INVALID, "I: %zu elements expected, got %zu", x->count, index->count);
    int64_t inner[2 + WINDOW_MAX] = {x->dims[0], x->dims[1]}, total = x->dims[0] * x->dims[1];
    for (size_t i = 0; i < n; i++) {
        int64_t stride = w->n_stride ? w->stride[i] : 1, cut = w->n_pad ? w->pad[i] + w->pad[n + i] : 0;
        inner[2 + i] = (x->dims[2 + i] - 1) * stride + w->kernel[i] - cut;
        if (inner[2 + i] < 0 || inner[2 + i] > y->dims[2 + i]) inner[2 + i] = y->dims[2 + i];
        total *= inner[2 + i];
    }
    for (size_t i = 0; i < x->count; i++) {
        int64_t at = ((const int64_t *)index->data)[i], to = 0, step = 1;
        if (at < 0 || at >= total)
            return run_error(r, err, CHURON_INVALID, "I[%zu]: 0 to %lld expected, got %lld", i,
                             (long long)(total - 1), (long long)at);
        for (size_t d = rank; d-- > 0;) {
            to += at % inner[d] * step;
            at /= inner[d];
            step *= y->dims[d];
        }
        if ((size_t)to < y->count)
            memcpy((char *)y->data + (size_t)to * bytes, (const char *)x->data + i * bytes, bytes);
    }
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define POOL(op, first, last, sign, types, prep)                                                             \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = sign, .vars = {{'T', types}},  \
        .prepare = prep, .release = mem_free, .infer = pool_infer, .run = pool_run_windows                   \
    }
#define GLOBAL(op, first, last, types, prep)                                                                 \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = "T>T", .vars = {{'T', types}}, \
        .prepare = prep, .release = mem_free, .infer = global_infer, .run = global_run                       \
    }
#define UNPOOL(first, last, types)                                                                           \
    {                                                                                                        \
        .domain = "", .name = "MaxUnpool", .since = first, .until = last, .signature = "Ti=i>T",             \
        .vars = {{'T', types}}, .prepare = unpool_prepare, .release = mem_free, .infer = unpool_infer,       \
        .run = unpool_run                                                                                    \
    }

static const op_def rows[] = {
    POOL("MaxPool", 1, 7, "T>T", NN_F3, maxpool_prepare),
    POOL("MaxPool", 8, 11, "T>Ti", NN_F3, maxpool_prepare),
    POOL("MaxPool", 12, 21, "T>Ti", NN_F3 | NN_I8, maxpool_prepare),
    POOL("MaxPool", 22, 0, "T>Ti", ELEMS_FLOAT | NN_I8, maxpool_prepare),
    POOL("AveragePool", 1, 6, "T>T", NN_F3, averagepool_prepare),
    POOL("AveragePool", 7, 9, "T>T", NN_F3, averagepool_prepare),
    POOL("AveragePool", 10, 18, "T>T", NN_F3, averagepool_prepare),
    POOL("AveragePool", 19, 21, "T>T", NN_F3, averagepool_prepare),
    POOL("AveragePool", 22, 0, "T>T", ELEMS_FLOAT, averagepool_prepare),
    POOL("LpPool", 1, 1, "T>T", NN_F3, lppool_prepare),
    POOL("LpPool", 2, 17, "T>T", NN_F3, lppool_prepare),
    POOL("LpPool", 18, 21, "T>T", NN_F3, lppool_prepare),
    POOL("LpPool", 22, 0, "T>T", ELEMS_FLOAT, lppool_prepare),
    GLOBAL("GlobalMaxPool", 1, 21, NN_F3, global_max_prepare),
    GLOBAL("GlobalMaxPool", 22, 0, ELEMS_FLOAT, global_max_prepare),
    GLOBAL("GlobalAveragePool", 1, 21, NN_F3, global_average_prepare),
    GLOBAL("GlobalAveragePool", 22, 0, ELEMS_FLOAT, global_average_prepare),
    GLOBAL("GlobalLpPool", 1, 1, NN_F3, global_lp_prepare),
    GLOBAL("GlobalLpPool", 2, 21, NN_F3, global_lp_prepare),
    GLOBAL("GlobalLpPool", 22, 0, ELEMS_FLOAT, global_lp_prepare),
    UNPOOL(9, 21, NN_F3),
    UNPOOL(22, 0, ELEMS_FLOAT),
    {.domain = "com.microsoft",
     .name = "NhwcMaxPool",
     .since = 1,
     .signature = "T>T",
     .vars = {{'T', NN_I8}},
     .prepare = nhwc_max_prepare,
     .release = mem_free,
     .infer = pool_infer,
     .run = nhwc_max_run},
    {.domain = "com.microsoft",
     .name = "QLinearAveragePool",
     .since = 1,
     .signature = "Tf=TfT>T",
     .vars = {{'T', NN_I8}},
     .prepare = qaverage_prepare,
     .release = mem_free,
     .infer = pool_infer,
     .run = qaverage_run},
    {.domain = "com.microsoft",
     .name = "QLinearGlobalAveragePool",
     .since = 1,
     .signature = "TfTfT>T",
     .vars = {{'T', NN_I8}},
     .prepare = qglobal_prepare,
     .release = mem_free,
     .infer = global_infer,
     .run = qglobal_run},
};
NN_TABLE(pool);
