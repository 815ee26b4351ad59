/* roi.c: RoiAlign and MaxRoiPool. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <tgmath.h>

enum { ROI_GRID = 4096 }; /* samples of an axis of a bin: more is an absurd region, not a picture */

typedef struct roi_state {
    int64_t out_h, out_w, sampling;
    float scale;
    bool half_pixel, max;
} roi_state;

typedef struct roi_job {
    const void *x, *rois;
    void *y;
    const int64_t *batch; /* [n], checked */
    size_t n, channels;
    int64_t h, w, out_h, out_w, sampling;
    float scale;
    bool half_pixel, max;
} roi_job;

static int64_t clip(int64_t v, int64_t most) {
    return v < 0 ? 0 : v > most ? most : v;
}

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/roi.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/roi.inc"
#undef REAL
#undef FN

static status align_prepare(op_node *n, error *err) {
    static const char *const modes[] = {"avg", "max", NULL}, *const pixels[] = {"half_pixel",
                                                                                "output_half_pixel", NULL};
    roi_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int mode, pixel = 1;
    TRY(op_attr_choice(n, "mode", modes, 0, &mode, err));
    if (op_version(n) >= 16) TRY(op_attr_choice(n, "coordinate_transformation_mode", pixels, 0, &pixel, err));
    TRY(op_attr_int(n, "output_height", 1, 1, INT32_MAX, &st->out_h, err));
    TRY(op_attr_int(n, "output_width", 1, 1, INT32_MAX, &st->out_w, err));
    TRY(op_attr_int(n, "sampling_ratio", 0, 0, ROI_GRID, &st->sampling, err));
    TRY(op_attr_float(n, "spatial_scale", 1, &st->scale, err));
    st->half_pixel = pixel == 0, st->max = mode == 1;
    return CHURON_OK;
}

static status max_prepare(op_node *n, error *err) {
    roi_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const int64_t *shape;
    size_t count;
    TRY(op_attr_ints(n, "pooled_shape", &shape, &count, err));
    if (count != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX)
        return op_error(n, err, CHURON_INVALID,
                        "pooled_shape: two numbers of at least 1 expected, got %zu numbers", count);
    st->out_h = shape[0], st->out_w = shape[1];
    return op_attr_float(n, "spatial_scale", 1, &st->scale, err);
}

static status roi_infer_cols(op_shapes *s, int64_t cols, error *err) {
    const roi_state *st = shapes_state(s);
    bool kx, kr, kb = false;
    size_t rank;
    const dim *x, *rois, *b = NULL;
    TRY(nn_rank(s, 0, 4, 4, "X", &kx, &rank, &x, err));
    TRY(nn_rank(s, 1, 2, 2, "rois", &kr, &rank, &rois, err));
    if (op_has_input(shapes_node(s), 2)) TRY(nn_rank(s, 2, 1, 1, "batch_indices", &kb, &rank, &b, err));
    dim n = kr ? rois[0] : dim_fresh(s);
    if (kr) TRY(shapes_same(s, rois[1], cols, "columns of rois", NULL, err));
    if (kb) TRY(shapes_same(s, b[0], n, "rois and batch_indices", &n, err));
    return shapes_out(s, 0, 4, (dim[]){n, kx ? x[1] : dim_fresh(s), st->out_h, st->out_w}, err);
}

static status align_infer(op_shapes *s, error *err) {
    return roi_infer_cols(s, 4, err);
}

static status max_infer(op_shapes *s, error *err) {
    return roi_infer_cols(s, 5, err);
}

static status check_batch(op_run *r, int64_t *batch, size_t n, int64_t images, error *err) {
    for (size_t i = 0; i < n; i++)
        if (batch[i] < 0 || batch[i] >= images)
            return run_error(r, err, CHURON_INVALID, "image of region %zu: 0 to %lld expected, got %lld", i,
                             (long long)(images - 1), (long long)batch[i]);
    return CHURON_OK;
}

static status roi_run(op_run *r, bool align, error *err) {
    const roi_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *rois = run_in(r, 1);
    elem work = real_work(x->type);
    tensor *y;
    void *to, *memory;
    roi_job j = {.n = (size_t)rois->dims[0],
                 .channels = (size_t)x->dims[1],
                 .h = x->dims[2],
                 .w = x->dims[3],
                 .out_h = st->out_h,
                 .out_w = st->out_w,
                 .sampling = st->sampling,
                 .scale = st->scale,
                 .half_pixel = st->half_pixel,
                 .max = st->max};
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.rois, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    TRY(run_scratch(r, (j.n + 1) * sizeof(int64_t), &memory, err));
    int64_t *batch = memory;
    for (size_t i = 0; i < j.n; i++) {
        double v = align ? 0 : real_at(rois, i * 5);
        batch[i] = align ? int_at(run_in(r, 2), i) : v >= 0 && v < (double)INT32_MAX ? (int64_t)v : -1;
    }
    TRY(check_batch(r, batch, j.n, x->dims[0], err));
    if (j.n && (j.h == 0 || j.w == 0))
        return run_error(r, err, CHURON_INVALID, "X: an image of at least one pixel expected");
    j.batch = batch, j.y = to;
    if (align)
        TRY(work == ELEM_F64 ? roi_align_f64(r, &j, err) : roi_align_f32(r, &j, err));
    else if (work == ELEM_F64)
        TRY(roi_max_f64(r, &j, err));
    else
        TRY(roi_max_f32(r, &j, err));
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

static status align_run(op_run *r, error *err) {
    return roi_run(r, true, err);
}

static status max_run(op_run *r, error *err) {
    return roi_run(r, false, err);
}

#define ALIGN(first, last, types)                                                                            \
    {                                                                                                        \
        .domain = "", .name = "RoiAlign", .since = first, .until = last, .signature = "TTi>T",               \
        .vars = {{'T', types}}, .prepare = align_prepare, .release = mem_free, .infer = align_infer,         \
        .run = align_run                                                                                     \
    }
#define MAXROI(first, last, types)                                                                           \
    {                                                                                                        \
        .domain = "", .name = "MaxRoiPool", .since = first, .until = last, .signature = "TT>T",              \
        .vars = {{'T', types}}, .prepare = max_prepare, .release = mem_free, .infer = max_infer,             \
        .run = max_run                                                                                       \
    }

static const op_def rows[] = {
    ALIGN(10, 15, NN_F3), ALIGN(16, 21, NN_F3),       ALIGN(22, 0, ELEMS_FLOAT),
    MAXROI(1, 21, NN_F3), MAXROI(22, 0, ELEMS_FLOAT),
};
NN_TABLE(roi);
