/* resize.c: Resize of all versions and Upsample.
 *
 * Interpolation is separable: every axis has a table of first source index and coefficients for each output
 * index, computed in double, and axes are done one after another. Nearest moves bytes, of any type, and
 * places its samples in f32, as the models' makers saw it. Versions up to 10 (and Upsample) map x / scale and
 * take the floor (the ceiling where they shrink). */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum resize_map {
    MAP_HALF_PIXEL,
    MAP_PYTORCH_HALF_PIXEL,
    MAP_ALIGN_CORNERS,
    MAP_ASYMMETRIC,
    MAP_CROP,
    MAP_HALF_PIXEL_SYMMETRIC,
    MAP_HALF_PIXEL_TF
};
enum nearest_mode { PREFER_FLOOR, PREFER_CEIL, NEAREST_FLOOR, NEAREST_CEIL, NEAREST_SIMPLE };
enum aspect { ASPECT_STRETCH, ASPECT_NOT_LARGER, ASPECT_NOT_SMALLER };

typedef struct resize_state {
    int mode, map, nearest, aspect;
    bool antialias, exclude_outside;
    float cubic, extrapolation;
    const int64_t *axes; /* borrowed from the model; NULL: all */
    size_t n_axes;
    float scales[TENSOR_MAX_RANK]; /* of Upsample's attributes */
    size_t n_scales;
    size_t roi_in, scales_in, sizes_in; /* numbers of the inputs; SIZE_MAX: there is none */
} resize_state;

/* ---- attributes ------------------------------------------------------------------------------------- */

static status resize_prepare(op_node *n, error *err) {
    static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear", NULL};
    static const char *const maps[] = {
        "half_pixel",         "pytorch_half_pixel",   "align_corners",        "asymmetric",
        "tf_crop_and_resize", "half_pixel_symmetric", "tf_half_pixel_for_nn", NULL};
    static const char *const nearests[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    resize_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t v = op_version(n);
    *st = (resize_state){.roi_in = SIZE_MAX,
                         .scales_in = 1,
                         .sizes_in = SIZE_MAX,
                         .map = MAP_ASYMMETRIC,
                         .nearest = NEAREST_SIMPLE};
    TRY(op_attr_choice(n, "mode", modes, RESIZE_NEAREST, &st->mode, err));
    if (st->mode == 3) st->mode = RESIZE_LINEAR;
    if (v < 11) {
        if (st->mode == RESIZE_CUBIC)
            return op_error(n, err, CHURON_INVALID, "mode: nearest or linear expected, got cubic");
        return CHURON_OK;
    }
    st->roi_in = 1, st->scales_in = 2, st->sizes_in = 3;
    TRY(op_attr_choice(n, "coordinate_transformation_mode", maps, MAP_HALF_PIXEL, &st->map, err));
    TRY(op_attr_choice(n, "nearest_mode", nearests, PREFER_FLOOR, &st->nearest, err));
    TRY(op_attr_float(n, "cubic_coeff_a", -0.75F, &st->cubic, err));
    TRY(op_attr_float(n, "extrapolation_value", 0, &st->extrapolation, err));
    TRY(op_attr_bool(n, "exclude_outside", false, &st->exclude_outside, err));
    if (v < 18) return CHURON_OK;
    TRY(op_attr_bool(n, "antialias", false, &st->antialias, err));
    TRY(op_attr_ints(n, "axes", &st->axes, &st->n_axes, err));
    if (st->antialias && st->mode == RESIZE_NEAREST)
        return op_error(n, err, CHURON_INVALID, "antialias: linear or cubic mode expected, got nearest");
    return op_attr_choice(n, "keep_aspect_ratio_policy", policies, ASPECT_STRETCH, &st->aspect, err);
}

static status upsample_prepare(op_node *n, error *err) {
    static const char *const modes[] = {"nearest", "linear", "bilinear", NULL};
    resize_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    *st = (resize_state){.roi_in = SIZE_MAX,
                         .scales_in = op_version(n) >= 9 ? 1 : SIZE_MAX,
                         .sizes_in = SIZE_MAX,
                         .map = MAP_ASYMMETRIC,
                         .nearest = NEAREST_SIMPLE};
    TRY(op_attr_choice(n, "mode", modes, RESIZE_NEAREST, &st->mode, err));
    if (st->mode == 2) st->mode = RESIZE_LINEAR;
    if (op_version(n) >= 9) return CHURON_OK;
    if (op_version(n) < 7) { /* images only */
        st->n_scales = 4;
        st->scales[0] = st->scales[1] = 1;
        TRY(op_attr_float(n, "height_scale", 0, &st->scales[2], err));
        return op_attr_float(n, "width_scale", 0, &st->scales[3], err);
    }
    const float *scales;
    TRY(op_attr_floats(n, "scales", &scales, &st->n_scales, err));
    if (st->n_scales < 1 || st->n_scales > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_INVALID, "scales: 1 to %d numbers expected, got %zu", TENSOR_MAX_RANK,
                        st->n_scales);
    memcpy(st->scales, scales, st->n_scales * sizeof *scales);
    return CHURON_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------------ */

typedef struct resize_plan {
    size_t rank;
    int64_t in[TENSOR_MAX_RANK], out[TENSOR_MAX_RANK];
    float scale[TENSOR_MAX_RANK];
    double roi_begin[TENSOR_MAX_RANK], roi_end[TENSOR_MAX_RANK];
    bool active[TENSOR_MAX_RANK];
} resize_plan;

/* Axis of each of the given numbers. */
static status resolve_axes(const op_node *n, const resize_state *st, size_t rank, size_t *axes, size_t *count,
                           error *err) {
    *count = st->axes ? st->n_axes : rank;
    if (*count > rank)
        return op_error(n, err, CHURON_INVALID, "axes: at most %zu numbers expected, got %zu", rank, *count);
    bool seen[TENSOR_MAX_RANK] = {false};
    for (size_t i = 0; i < *count; i++) {
        axes[i] = i;
        if (st->axes) TRY(op_axis(n, st->axes[i], rank, "axes", &axes[i], err));
        if (seen[axes[i]]) return op_error(n, err, CHURON_INVALID, "axes: axis %zu appears twice", axes[i]);
        seen[axes[i]] = true;
    }
    return CHURON_OK;
}

static status apply_scales(const op_node *n, const float *scales, size_t count, const size_t *axes,
                           size_t n_axes, resize_plan *p, error *err) {
    if (count != n_axes)
        return op_error(n, err, CHURON_INVALID, "scales: %zu numbers expected, got %zu", n_axes, count);
    for (size_t i = 0; i < n_axes; i++) {
        size_t a = axes[i];
        float out = floorf((float)p->in[a] * scales[i]);
        if (!(scales[i] > 0) || !(out <= (float)((int64_t)1 << 40)))
            return op_error(n, err, CHURON_INVALID,
                            "scales[%zu]: expected a number above 0 that gives a size that can be, got %g", i,
                            (double)scales[i]);
        p->scale[a] = scales[i];
        p->out[a] = (int64_t)out;
    }
    return CHURON_OK;
}

static status apply_sizes(const op_node *n, const resize_state *st, const int64_t *sizes, size_t count,
                          const size_t *axes, size_t n_axes, resize_plan *p, error *err) {
    if (count != n_axes)
        return op_error(n, err, CHURON_INVALID, "sizes: %zu numbers expected, got %zu", n_axes, count);
    double policy = 0;
    for (size_t i = 0; i < n_axes; i++) {
        size_t a = axes[i];
        if (sizes[i] < 0 || (p->in[a] == 0 && sizes[i] > 0))
            return op_error(n, err, CHURON_INVALID, "sizes[%zu]: %s expected, got %lld", i,
                            p->in[a] ? "at least 0" : "0 (as the input's)", (long long)sizes[i]);
        double ratio = p->in[a] ? (double)sizes[i] / (double)p->in[a] : 1;
        p->out[a] = sizes[i];
        p->scale[a] = (float)ratio;
        if (i == 0 || (st->aspect == ASPECT_NOT_LARGER ? ratio < policy : ratio > policy)) policy = ratio;
    }
    for (size_t i = 0; st->aspect != ASPECT_STRETCH && i < n_axes; i++) {
        size_t a = axes[i];
        p->scale[a] = (float)policy;
        p->out[a] = (int64_t)floor(policy * (double)p->in[a] + 0.5);
    }
    return CHURON_OK;
}

static status apply_roi(const op_node *n, const tensor *roi, const size_t *axes, size_t n_axes,
                        resize_plan *p, error *err) {
    for (size_t a = 0; a < p->rank; a++) p->roi_begin[a] = 0, p->roi_end[a] = 1;
    if (!roi || roi->count == 0)
        return op_error(n, err, CHURON_INVALID, "roi: tf_crop_and_resize needs %zu numbers, got none",
                        2 * n_axes);
    if (roi->count != 2 * n_axes)
        return op_error(n, err, CHURON_INVALID, "roi: %zu numbers expected, got %zu", 2 * n_axes, roi->count);
    for (size_t i = 0; i < n_axes; i++) {
        p->roi_begin[axes[i]] = real_at(roi, i), p->roi_end[axes[i]] = real_at(roi, n_axes + i);
        if (!isfinite(p->roi_begin[axes[i]]) || !isfinite(p->roi_end[axes[i]]))
            return op_error(n, err, CHURON_INVALID, "roi[%zu]: finite numbers expected", i);
    }
    return CHURON_OK;
}

/* scales, sizes, roi: contents of the inputs or NULL. */
static status make_plan(const op_node *n, const resize_state *st, size_t rank, const int64_t *dims,
                        const tensor *roi, const tensor *scales, const tensor *sizes, resize_plan *p,
                        error *err) {
    size_t axes[TENSOR_MAX_RANK], n_axes;
    *p = (resize_plan){.rank = rank};
    for (size_t i = 0; i < rank; i++) p->in[i] = p->out[i] = dims[i], p->scale[i] = 1;
    TRY(resolve_axes(n, st, rank, axes, &n_axes, err));
    bool has_scales = scales && scales->count, has_sizes = sizes && sizes->count;
    if (st->n_scales)
        TRY(apply_scales(n, st->scales, st->n_scales, axes, n_axes, p, err));
    else if (has_sizes && !(has_scales && rank == 0))
        TRY(apply_sizes(n, st, sizes->data, sizes->count, axes, n_axes, p, err));
    else if (has_scales)
        TRY(apply_scales(n, scales->data, scales->count, axes, n_axes, p, err));
    else if (rank)
        return op_error(n, err, CHURON_INVALID, "scales or sizes expected, got neither");
    if (st->map == MAP_CROP) TRY(apply_roi(n, roi, axes, n_axes, p, err));
    for (size_t i = 0; i < n_axes; i++) {
        size_t a = axes[i];
        p->active[a] = p->out[a] != p->in[a] || fabsf(p->scale[a] - 1) > 1e-9F ||
                       (st->map == MAP_CROP && !(p->roi_begin[a] == 0 && p->roi_end[a] == 1));
    }
    return CHURON_OK;
}

static const tensor *constant_at(const op_node *n, size_t i) {
    return i == SIZE_MAX || !op_has_input(n, i) ? NULL : op_constant(n, i);
}

/* Sizes are known before a run where scales or sizes are constant and the input's are known; sizes that are
 * values of a shape computation go through as they are. */
static status resize_infer(op_shapes *s, error *err) {
    const resize_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    size_t rank, count;
    const dim *x, *values;
    if (shapes_running(s) || !shapes_in(s, 0, &rank, &x)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    size_t axes[TENSOR_MAX_RANK], n_axes;
    dim out[TENSOR_MAX_RANK];
    TRY(resolve_axes(n, st, rank, axes, &n_axes, err));
    for (size_t i = 0; i < rank; i++) out[i] = x[i];
    const tensor *scales = constant_at(n, st->scales_in);
    if (st->n_scales || (scales && scales->count == n_axes)) {
        for (size_t i = 0; i < n_axes; i++) {
            float f = st->n_scales ? st->scales[i < st->n_scales ? i : 0] : ((const float *)scales->data)[i];
            dim d = x[axes[i]];
            if (f == 1) continue;
            if (dim_known(d) && f > 0 && floorf((float)d * f) < (float)((int64_t)1 << 40))
                out[axes[i]] = (int64_t)floorf((float)d * f);
            else if (!dim_known(d) && f >= 1 && f <= 1024 && f == floorf(f))
                out[axes[i]] = dim_mul(s, d, (int64_t)f);
            else
                out[axes[i]] = dim_fresh(s);
        }
    } else if (st->sizes_in != SIZE_MAX && op_has_input(n, st->sizes_in) && st->aspect == ASPECT_STRETCH &&
               shapes_in_values(s, st->sizes_in, &count, &values) && count == n_axes) {
        for (size_t i = 0; i < n_axes; i++) out[axes[i]] = values[i];
    } else {
        for (size_t i = 0; i < n_axes; i++) out[axes[i]] = dim_fresh(s);
    }
    return shapes_out(s, 0, rank, out, err);
}

/* ---- where samples are ------------------------------------------------------------------------------ */

static double source_of(const resize_state *st, const resize_plan *p, size_t a, int64_t y) {
    double in = (double)p->in[a], scale = (double)p->scale[a], out = scale * in, at = (double)y;
    if (p->scale[a] == (float)((double)p->out[a] / in)) { /* from sizes: nothing lost to f32 */
        scale = (double)p->out[a] / in;
        out = (double)p->out[a];
    }
    switch (st->map) {
    case MAP_ALIGN_CORNERS: return out == 1 ? 0 : at * (in - 1) / (out - 1);
    case MAP_ASYMMETRIC: return at / scale;
    case MAP_CROP: {
        double begin = p->roi_begin[a] * (in - 1), width = (p->roi_end[a] - p->roi_begin[a]) * (in - 1);
        return out == 1 ? begin + width / 2 : begin + at * width / (out - 1);
    }
    case MAP_PYTORCH_HALF_PIXEL: return out == 1 ? -0.5 : (at + 0.5) / scale - 0.5;
    case MAP_HALF_PIXEL_TF: return (at + 0.5) / scale;
    case MAP_HALF_PIXEL_SYMMETRIC: {
        double offset = in / 2 * (1 - (double)p->out[a] / out);
        return offset + (at + 0.5) / scale - 0.5;
    }
    default: return (at + 0.5) / scale - 0.5;
    }
}

/* The same in f32: one rounding after another, as nearest samples are placed elsewhere. */
static float source_f32(const resize_state *st, const resize_plan *p, size_t a, int64_t y) {
    float scale = p->scale[a], at = (float)y;
    switch (st->map) {
    case MAP_ASYMMETRIC: return at / scale;
    case MAP_HALF_PIXEL: return (at + 0.5F) / scale - 0.5F;
    case MAP_PYTORCH_HALF_PIXEL: return p->out[a] > 1 ? (at + 0.5F) / scale - 0.5F : 0;
    case MAP_HALF_PIXEL_TF: return (at + 0.5F) / scale;
    default: return (float)source_of(st, p, a, y);
    }
}

static int64_t nearest_index(const resize_state *st, const resize_plan *p, size_t a, int64_t y) {
    float x = source_f32(st, p, a, y), f = floorf(x);
    switch (st->nearest) {
    case PREFER_FLOOR: f = x == f + 0.5F ? f : floorf(x + 0.5F); break;
    case PREFER_CEIL: f = floorf(x + 0.5F); break;
    case NEAREST_CEIL: f = ceilf(x); break;
    case NEAREST_SIMPLE: f = p->scale[a] < 1 ? ceilf(x) : f; break;
    default: break;
    }
    int64_t most = p->in[a] - 1;
    return !(f > 0) ? 0 : f >= (float)most ? most : (int64_t)f;
}

/* In f32, one rounding after another, so that a crop which ends on the last element is inside, as elsewhere.
 */
static bool is_outside(const resize_state *st, const resize_plan *p, size_t a, int64_t y) {
    if (st->map != MAP_CROP) return false;
    const float begin = (float)p->roi_begin[a], end = (float)p->roi_end[a], last = (float)(p->in[a] - 1);
    const float x = p->out[a] > 1 ? begin * last + (float)y * (end - begin) * last / (float)(p->out[a] - 1)
                                  : 0.5F * (begin + end) * last;
    return x < 0 || x > last;
}

/* ---- nearest ---------------------------------------------------------------------------------------- */

typedef struct nearest_job {
    const char *x;
    char *y;
    size_t *index[TENSOR_MAX_RANK]; /* [out] offsets in elements; SIZE_MAX: extrapolated */
    const resize_plan *plan;
    size_t bytes;
    const char *outside; /* an element */
    bool whole_lines;    /* the last axis is copied as it is */
} nearest_job;

static void nearest_rows(void *ctx, size_t from, size_t to) { /* lines of the last axis */
    const nearest_job *j = ctx;
    const resize_plan *p = j->plan;
    const size_t last = p->rank - 1, n = (size_t)p->out[last], bytes = j->bytes;
    for (size_t row = from; row < to; row++) {
        size_t rest = row, at = 0;
        bool outside = false;
        for (size_t a = last; a-- > 0;) {
            size_t k = j->index[a][rest % (size_t)p->out[a]];
            rest /= (size_t)p->out[a];
            outside |= k == SIZE_MAX;
            at += k;
        }
        char *y = j->y + row * n * bytes;
        if (!outside && j->whole_lines) {
            memcpy(y, j->x + at * bytes, n * bytes);
            continue;
        }
        const size_t *index = j->index[last];
        if (!outside && bytes == 4) {
            const uint32_t *x = (const uint32_t *)(const void *)j->x + at;
            for (size_t i = 0; i < n; i++)
                memcpy(y + 4 * i, index[i] == SIZE_MAX ? (const void *)j->outside : x + index[i], 4);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            memcpy(y + i * bytes,
                   outside || index[i] == SIZE_MAX ? j->outside : j->x + (at + index[i]) * bytes, bytes);
    }
}

static status nearest_tables(op_run *r, const resize_state *st, const resize_plan *p, nearest_job *j,
                             error *err) {
    size_t step = 1;
    for (size_t a = p->rank; a-- > 0; step *= (size_t)p->in[a]) {
        void *memory;
        TRY(run_scratch(r, ((size_t)p->out[a] + 1) * sizeof(size_t), &memory, err));
        j->index[a] = memory;
        for (int64_t y = 0; y < p->out[a]; y++) {
            int64_t k = p->active[a] ? nearest_index(st, p, a, y) : y;
            j->index[a][y] = p->active[a] && is_outside(st, p, a, y) ? SIZE_MAX : (size_t)k * step;
        }
    }
    j->whole_lines = !p->active[p->rank - 1];
    return CHURON_OK;
}

static status run_nearest(op_run *r, const resize_state *st, const resize_plan *p, const tensor *x, tensor *y,
                          error *err) {
    if (y->count == 0) return CHURON_OK;
    if (x->type == ELEM_STRING) {
        if (st->map == MAP_CROP)
            return run_error(r, err, CHURON_UNSUPPORTED, "strings: no value to extrapolate with");
    }
    double outside = (double)st->extrapolation;
    char element[16] = {0};
    if (x->type == ELEM_C64)
        memcpy(element, &st->extrapolation, sizeof(float));
    else if (x->type == ELEM_C128)
        memcpy(element, &outside, sizeof outside);
    else if (x->type != ELEM_STRING)
        elem_from_f64(x->type, &outside, element, 1, false);
    nearest_job j = {.plan = p, .x = x->data, .bytes = elem_describe(x->type)->bytes, .outside = element};
    TRY(nearest_tables(r, st, p, &j, err));
    size_t lines = y->count / (size_t)p->out[p->rank - 1];
    if (x->type == ELEM_STRING) { /* contents are copied: the output owns its own */
        void *memory;
        TRY(run_scratch(r, y->count * sizeof(tensor_string), &memory, err));
        j.y = memory;
        nearest_rows(&j, 0, lines);
        for (size_t i = 0; i < y->count; i++) {
            tensor_string from = ((const tensor_string *)memory)[i];
            TRY(tensor_string_set(y, i, from.data, from.len, err));
        }
        return CHURON_OK;
    }
    j.y = y->data;
    run_parallel(r, lines, 0.5 * (double)y->count, nearest_rows, &j);
    return CHURON_OK;
}

/* ---- interpolation ---------------------------------------------------------------------------------- */

typedef struct axis_table {
    size_t in, out, taps;
    int64_t *start;      /* [out]: source index of the first tap, may lie outside (then the edge repeats) */
    double *coefficient; /* [out, taps] */
    bool *outside;       /* [out]: extrapolated; NULL: none */
} axis_table;

typedef struct axis_job {
    const void *x;
    void *y;
    const axis_table *table;
    size_t inner;
    float extrapolation;
    stop_flag *stop;
} axis_job;

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/resize.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/resize.inc"
#undef REAL
#undef FN

static double cubic_kernel(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

/* Number of taps and where the first lies from the floor of a source position; widened when an antialiased
 * axis shrinks. */
static size_t tap_count(const resize_state *st, double scale, int64_t *first) {
    double reach = st->mode == RESIZE_CUBIC ? 2 : 1;
    *first = st->antialias && scale < 1 ? (int64_t)floor(-reach / scale) + 1 : -(int64_t)reach + 1;
    return (size_t)(2 - 2 * *first);
}

static void fill_taps(const resize_state *st, const axis_table *t, size_t y, double x, double scale,
                      int64_t first) {
    double base = floor(x), ratio = x - base, sum = 0;
    if (ratio == 0) base -= 1, ratio = 1; /* the neighbour below is preferred */
    double *c = t->coefficient + y * t->taps, shrink = st->antialias && scale < 1 ? scale : 1;
    t->start[y] = (int64_t)base + first;
    for (size_t k = 0; k < t->taps; k++) {
        double distance = ((double)first + (double)k - ratio) * shrink;
        int64_t at = t->start[y] + (int64_t)k;
        if (st->mode == RESIZE_CUBIC)
            c[k] = cubic_kernel(distance, (double)st->cubic);
        else
            c[k] = fabs(distance) < 1 ? 1 - fabs(distance) : 0;
        if (st->exclude_outside && (at < 0 || at >= (int64_t)t->in)) c[k] = 0;
        sum += c[k];
    }
    bool rescale = (st->antialias || st->exclude_outside) && sum != 0;
    for (size_t k = 0; rescale && k < t->taps; k++) c[k] /= sum;
}

static status make_table(op_run *r, const resize_state *st, const resize_plan *p, size_t a, axis_table *t,
                         error *err) {
    double scale = (double)p->scale[a];
    int64_t first;
    if (p->scale[a] == (float)((double)p->out[a] / (double)p->in[a]))
        scale = (double)p->out[a] / (double)p->in[a];
    *t = (axis_table){.in = (size_t)p->in[a], .out = (size_t)p->out[a], .taps = tap_count(st, scale, &first)};
    void *memory;
    size_t bytes = t->out * t->taps;
    if (t->taps > 8 * t->in + 64 || bytes > SIZE_MAX / 16)
        return run_error(r, err, CHURON_LIMIT, "scale of axis %zu: %g is too small", a, scale);
    TRY(run_scratch(r, (bytes + t->out) * sizeof(double) + t->out + 64, &memory, err));
    t->coefficient = memory;
    t->start = (int64_t *)(t->coefficient + bytes);
    bool *outside = (bool *)(t->start + t->out);
    for (size_t y = 0; y < t->out; y++) {
        if (y % 4096 == 0) TRY(run_check(r, err));
        double x = source_of(st, p, a, (int64_t)y);
        outside[y] = is_outside(st, p, a, (int64_t)y);
        if (outside[y]) t->outside = outside;
        double far = (double)t->in + (double)t->taps + 2; /* beyond it every tap is the edge */
        fill_taps(st, t, y, x < -far ? -far : x > far ? far : x, scale, first);
    }
    return CHURON_OK;
}

static status run_axes(op_run *r, const resize_state *st, const resize_plan *p, const void *x, void *y,
                       elem work, error *err) {
    size_t bytes = elem_describe(work)->bytes, left = 0;
    int64_t dims[TENSOR_MAX_RANK];
    memcpy(dims, p->in, sizeof dims);
    for (size_t a = 0; a < p->rank; a++) left += p->active[a];
    if (!left) {
        memcpy(y, x, (size_t)nn_product(dims, p->rank) * bytes);
        return CHURON_OK;
    }
    const void *from = x;
    /* An innermost axis that grows goes first: the others are cheaper, line by line. */
    const bool backward = p->out[p->rank - 1] > p->in[p->rank - 1];
    for (size_t step = 0; step < p->rank; step++) {
        const size_t a = backward ? p->rank - 1 - step : step;
        if (!p->active[a]) continue;
        axis_table t;
        TRY(make_table(r, st, p, a, &t, err));
        size_t outer = (size_t)nn_product(dims, a), inner = (size_t)nn_product(dims + a + 1, p->rank - a - 1);
        dims[a] = p->out[a];
        axis_job j = {.x = from,
                      .y = y,
                      .table = &t,
                      .inner = inner,
                      .extrapolation = st->extrapolation,
                      .stop = run_stop(r)};
        if (--left) {
            size_t count, total;
            if (!size_mul(outer * t.out, inner, &count) || !size_mul(count + 1, bytes, &total))
                return run_error(r, err, CHURON_LIMIT, "sizes: too large");
            TRY(run_scratch(r, total, &j.y, err));
        }
        double ns = (double)(outer * t.out) * (double)inner * (double)t.taps * 0.5;
        if (inner == 1 && t.taps == 2 && !t.outside && t.in <= UINT32_MAX)
            run_parallel(r, outer, ns, work == ELEM_F64 ? resize_pairs_f64 : resize_pairs_f32, &j);
        else if (inner == 1)
            run_parallel(r, outer, ns, work == ELEM_F64 ? resize_lines_f64 : resize_lines_f32, &j);
        else
            run_parallel(r, outer * t.out, ns, work == ELEM_F64 ? resize_rows_f64 : resize_rows_f32, &j);
        from = j.y;
    }
    return CHURON_OK;
}

/* Integers are rounded to nearest and saturated. They are interpolated in f64. */
static void store(const tensor *y, elem work, void *data) {
    double least = 0, most = 0;
    switch (y->type) {
    case ELEM_U8: least = 0, most = 255; break;
    case ELEM_I8: least = -128, most = 127; break;
    case ELEM_U16: least = 0, most = 65535; break;
    case ELEM_I16: least = -32768, most = 32767; break;
    case ELEM_I32: least = -2147483648.0, most = 2147483647.0; break;
    case ELEM_U32: least = 0, most = 4294967295.0; break;
    default: break;
    }
    bool whole = (ELEM_BIT(y->type) & ELEMS_INT) != 0;
    for (size_t i = 0; whole && i < y->count; i++) {
        double v = nearbyint(((double *)data)[i]);
        ((double *)data)[i] = most > 0 ? (v < least ? least : v > most ? most : v) : v;
    }
    real_done(y, work, data);
}

static status resize_run(op_run *r, error *err) {
    const resize_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    resize_plan p;
    tensor *y;
    const tensor *roi = st->roi_in == SIZE_MAX ? NULL : run_in(r, st->roi_in);
    const tensor *scales = st->scales_in == SIZE_MAX ? NULL : run_in(r, st->scales_in);
    const tensor *sizes = st->sizes_in == SIZE_MAX ? NULL : run_in(r, st->sizes_in);
    TRY(make_plan(run_node(r), st, x->rank, x->dims, roi, scales, sizes, &p, err));
    TRY(run_out_shaped(r, 0, x->type, x->rank, p.out, &y, err));
    if (y->count == 0) return CHURON_OK;
    if (x->rank == 0) {
        if (x->type == ELEM_STRING) {
            const tensor_string *only = x->data;
            return tensor_string_set(y, 0, only->data, only->len, err);
        }
        memcpy(y->data, x->data, tensor_bytes(x));
        return CHURON_OK;
    }
    if (st->mode == RESIZE_NEAREST) return run_nearest(r, st, &p, x, y, err);
    if (!(ELEM_BIT(x->type) & (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))))
        return run_error(r, err, CHURON_UNSUPPORTED, "mode: nearest expected for %s", elem_name(x->type));
    elem work = ELEM_BIT(x->type) & ELEMS_FLOAT && x->type != ELEM_F64 ? ELEM_F32 : ELEM_F64;
    const void *from;
    void *to = y->data;
    TRY(real_of(r, x, work, &from, err));
    if (y->type != work) TRY(run_scratch(r, y->count * elem_describe(work)->bytes, &to, err));
    TRY(run_axes(r, st, &p, from, to, work, err));
    store(y, work, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define PLAIN (ELEMS_NUMERIC | ELEMS_COMPLEX | ELEM_BIT(ELEM_BOOL) | ELEM_BIT(ELEM_STRING))
#define OLD   (PLAIN & ~ELEM_BIT(ELEM_BF16))
#define RESIZE(op, first, last, sign, types, prep)                                                           \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = sign,                          \
        .vars = {{'T', types}, {'U', NN_F3}}, .prepare = prep, .release = mem_free, .infer = resize_infer,   \
        .run = resize_run                                                                                    \
    }

static const op_def rows[] = {
    RESIZE("Upsample", 1, 6, "T>T", OLD, upsample_prepare),
    RESIZE("Upsample", 7, 8, "T>T", OLD, upsample_prepare),
    RESIZE("Upsample", 9, 9, "Tf>T", OLD, upsample_prepare),
    RESIZE("Resize", 10, 10, "Tf>T", OLD, resize_prepare),
    RESIZE("Resize", 11, 12, "TUf=i>T", OLD, resize_prepare),
    RESIZE("Resize", 13, 17, "T=Ufi>T", PLAIN, resize_prepare),
    RESIZE("Resize", 18, 18, "T=Ufi>T", PLAIN, resize_prepare),
    RESIZE("Resize", 19, 0, "T=Ufi>T", PLAIN, resize_prepare),
};
NN_TABLE(resize);
