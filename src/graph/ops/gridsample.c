/* gridsample.c: GridSample over one to three spatial axes, AffineGrid.
 *
 * A position is moved into the image by the padding mode first and its neighbours again each for itself. It
 * is placed in f32 (f64 for f64 grids); taps and weights of a position serve all channels. NaN is far
 * outside. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

enum grid_mode { GRID_NEAREST, GRID_LINEAR, GRID_CUBIC };
enum grid_padding { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };
enum { MAX_TAPS = 64 };

typedef struct grid_state {
    int mode, padding;
    bool align;
} grid_state;

static status grid_prepare(op_node *n, error *err) {
    static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear", "bicubic", NULL};
    static const char *const pads[] = {"zeros", "border", "reflection", NULL};
    grid_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_choice(n, "mode", modes, GRID_LINEAR, &st->mode, err));
    if (st->mode > GRID_CUBIC) st->mode -= 2;
    TRY(op_attr_choice(n, "padding_mode", pads, GRID_ZEROS, &st->padding, err));
    return op_attr_bool(n, "align_corners", false, &st->align, err);
}

static status grid_infer(op_shapes *s, error *err) {
    bool kx, kg;
    size_t rx, rg;
    const dim *x, *g;
    TRY(nn_rank(s, 0, 3, 2 + WINDOW_MAX, "X", &kx, &rx, &x, err));
    TRY(nn_rank(s, 1, 3, 2 + WINDOW_MAX, "grid", &kg, &rg, &g, err));
    if (!kx || !kg) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rx != rg)
        return op_error(shapes_node(s), err, CHURON_INVALID, "grid: rank %zu expected, got %zu", rx, rg);
    TRY(shapes_same(s, g[rg - 1], (int64_t)rx - 2, "coordinates of grid", NULL, err));
    dim out[2 + WINDOW_MAX] = {0, x[1]};
    TRY(shapes_same(s, x[0], g[0], "batches of X and grid", &out[0], err));
    for (size_t i = 0; i < rx - 2; i++) out[2 + i] = g[1 + i];
    return shapes_out(s, 0, rx, out, err);
}

/* ---- one position ----------------------------------------------------------------------------------- */

static double reflect(double v, double least, double most) {
    double range = most - least, over, turns;
    if (range <= 0) return least;
    if (v >= least && v <= most) return v;
    over = v < least ? least - v : v - most;
    turns = floor(over / range);
    double rest = over - turns * range;
    bool back = fmod(turns, 2) != 0;
    if (v < least) return back ? most - rest : least + rest;
    return back ? least + rest : most - rest;
}

/* Index of a neighbour inside [0, n), or -1: it counts as 0. */
static int64_t neighbour(const grid_state *st, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    if (st->padding == GRID_ZEROS) return -1;
    if (st->padding == GRID_BORDER) return i < 0 ? 0 : n - 1;
    double r = reflect((double)i, st->align ? 0 : -0.5, st->align ? (double)n - 1 : (double)n - 0.5);
    int64_t at = (int64_t)r;
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

static double place(const grid_state *st, double g, int64_t n, bool wide) {
    double x;
    float f = (float)g, size = (float)n;
    if (wide)
        x = st->align ? (g + 1) / 2 * ((double)n - 1) : ((g + 1) * (double)n - 1) / 2;
    else
        x = (double)(st->align ? (f + 1) / 2 * (size - 1) : ((f + 1) * size - 1) / 2);
    const double far = 1e9;
    x = x != x ? -far : x > far ? far : x < -far ? -far : x;
    if (st->mode == GRID_NEAREST) x = nearbyint(x);
    double least = st->align ? 0 : -0.5, most = st->align ? (double)n - 1 : (double)n - 0.5;
    if (x < least || x > most) {
        /* Cubic: the taps are held inside, not the point: so PyTorch, whose exports these are, and ONNX
         * Runtime. The standard's reference holds the point too, which bends the curve at the border. */
        if (st->padding == GRID_BORDER && st->mode != GRID_CUBIC)
            x = x < 0 ? 0 : x > (double)n - 1 ? (double)n - 1 : x;
        if (st->padding == GRID_REFLECTION) x = reflect(x, least, most);
    }
    return x;
}

static void cubic_weights(double t, double w[4]) {
    const double a = -0.75;
    double u = 1 - t, p = 1 + t, q = 2 - t;
    w[0] = ((a * p - 5 * a) * p + 8 * a) * p - 4 * a;
    w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
    w[3] = ((a * q - 5 * a) * q + 8 * a) * q - 4 * a;
}

typedef struct grid_taps {
    size_t n;
    int64_t at[MAX_TAPS]; /* offset in the plane, or -1 */
    double weight[MAX_TAPS];
} grid_taps;

/* dims: [axes] of the image; coordinates: x first, which is the last axis. */
static void make_taps(const grid_state *st, size_t axes, const int64_t *dims, const double *g, bool wide,
                      grid_taps *t) {
    size_t per_axis = st->mode == GRID_NEAREST ? 1 : st->mode == GRID_LINEAR ? 2 : 4;
    t->n = 1, t->at[0] = 0, t->weight[0] = 1;
    for (size_t a = 0; a < axes; a++) {
        double x = place(st, g[axes - 1 - a], dims[a], wide), base = floor(x), w[4] = {1};
        int64_t first = (int64_t)base;
        if (st->mode == GRID_LINEAR) w[0] = 1 - (x - base), w[1] = x - base;
        if (st->mode == GRID_CUBIC) cubic_weights(x - base, w), first -= 1;
        for (size_t i = t->n; i-- > 0;) {
            int64_t at = t->at[i];
            double weight = t->weight[i];
            for (size_t k = per_axis; k-- > 0;) {
                int64_t index = neighbour(st, first + (int64_t)k, dims[a]);
                t->at[i * per_axis + k] = at < 0 || index < 0 ? -1 : at * dims[a] + index;
                t->weight[i * per_axis + k] = weight * w[k];
            }
        }
        t->n *= per_axis;
    }
}

/* ---- planes ----------------------------------------------------------------------------------------- */

typedef struct grid_job {
    const grid_state *st;
    size_t axes, channels, points, area;
    const int64_t *dims;
    const tensor *grid, *x;
    tensor *y;
    const void *from; /* x as f32 or f64; NULL: elements are copied */
    void *to;
    bool wide_grid, wide;
} grid_job;

static void copy_point(const grid_job *j, const grid_taps *t, size_t n, size_t p) {
    size_t bytes = elem_describe(j->x->type)->bytes;
    for (size_t c = 0; c < j->channels; c++) {
        char *to = (char *)j->y->data + ((n * j->channels + c) * j->points + p) * bytes;
        if (t->at[0] < 0)
            memset(to, 0, bytes);
        else
            memcpy(to,
                   (const char *)j->x->data + ((n * j->channels + c) * j->area + (size_t)t->at[0]) * bytes,
                   bytes);
    }
}

static void mix_point(const grid_job *j, const grid_taps *t, size_t n, size_t p) {
    for (size_t c = 0; c < j->channels; c++) {
        size_t plane = (n * j->channels + c) * j->area, to = (n * j->channels + c) * j->points + p;
        double sum = 0;
        for (size_t k = 0; k < t->n; k++) {
            if (t->at[k] < 0) continue;
            size_t at = plane + (size_t)t->at[k];
            sum += t->weight[k] *
                   (j->wide ? ((const double *)j->from)[at] : (double)((const float *)j->from)[at]);
        }
        if (j->wide)
            ((double *)j->to)[to] = sum;
        else
            ((float *)j->to)[to] = (float)sum;
    }
}

static void grid_points(void *ctx, size_t from, size_t to) { /* of all images */
    const grid_job *j = ctx;
    for (size_t i = from; i < to; i++) {
        double g[WINDOW_MAX];
        grid_taps taps;
        for (size_t a = 0; a < j->axes; a++) g[a] = real_at(j->grid, i * j->axes + a);
        make_taps(j->st, j->axes, j->dims, g, j->wide_grid, &taps);
        if (j->from)
            mix_point(j, &taps, i / j->points, i % j->points);
        else
            copy_point(j, &taps, i / j->points, i % j->points);
    }
}

static status grid_strings(grid_job *j, size_t images, error *err) {
    for (size_t i = 0; i < images * j->points; i++) {
        double g[WINDOW_MAX];
        grid_taps t;
        for (size_t a = 0; a < j->axes; a++) g[a] = real_at(j->grid, i * j->axes + a);
        make_taps(j->st, j->axes, j->dims, g, j->wide_grid, &t);
        for (size_t c = 0; t.at[0] >= 0 && c < j->channels; c++) {
            size_t n = i / j->points, plane = n * j->channels + c;
            tensor_string v = ((const tensor_string *)j->x->data)[plane * j->area + (size_t)t.at[0]];
            TRY(tensor_string_set(j->y, plane * j->points + i % j->points, v.data, v.len, err));
        }
    }
    return CHURON_OK;
}

static status grid_run(op_run *r, error *err) {
    const grid_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *grid = run_in(r, 1);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    size_t axes = x->rank - 2, images = (size_t)x->dims[0];
    grid_job j = {.st = st,
                  .axes = axes,
                  .channels = (size_t)x->dims[1],
                  .points = (size_t)nn_product(y->dims + 2, axes),
                  .area = (size_t)nn_product(x->dims + 2, axes),
                  .dims = x->dims + 2,
                  .grid = grid,
                  .x = x,
                  .y = y,
                  .wide_grid = grid->type == ELEM_F64};
    if (j.area == 0) return run_error(r, err, CHURON_INVALID, "X: an image of at least one value expected");
    double ns = 20.0 * (double)(images * j.points) * (double)j.channels;
    if (st->mode == GRID_NEAREST) {
        if (x->type == ELEM_STRING) return grid_strings(&j, images, err);
        run_parallel(r, images * j.points, ns, grid_points, &j);
        return CHURON_OK;
    }
    if (!(ELEM_BIT(x->type) & (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))))
        return run_error(r, err, CHURON_UNSUPPORTED, "mode: nearest expected for %s", elem_name(x->type));
    elem work = (ELEM_BIT(x->type) & ELEMS_FLOAT) && x->type != ELEM_F64 ? ELEM_F32 : ELEM_F64;
    j.wide = work == ELEM_F64;
    TRY(real_of(r, x, work, &j.from, err));
    j.to = y->data;
    if (y->type != work) TRY(run_scratch(r, y->count * elem_describe(work)->bytes, &j.to, err));
    run_parallel(r, images * j.points, ns, grid_points, &j);
    real_out_done(r, y, work, j.to);
    return CHURON_OK;
}

/* ---- AffineGrid ------------------------------------------------------------------------------------- */

static status affine_prepare(op_node *n, error *err) {
    grid_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_bool(n, "align_corners", false, &st->align, err);
}

static status affine_infer(op_shapes *s, error *err) {
    const op_node *node = shapes_node(s);
    bool known;
    size_t rank, n;
    const dim *theta, *size;
    TRY(nn_rank(s, 0, 3, 3, "theta", &known, &rank, &theta, err));
    if (!shapes_in_values(s, 1, &n, &size)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (n != 4 && n != 5)
        return op_error(node, err, CHURON_INVALID, "size: 4 or 5 numbers expected, got %zu", n);
    int64_t axes = (int64_t)n - 2;
    dim out[5] = {size[0]};
    if (known) {
        TRY(shapes_same(s, theta[0], size[0], "batches of theta and size", &out[0], err));
        TRY(shapes_same(s, theta[1], axes, "rows of theta", NULL, err));
        TRY(shapes_same(s, theta[2], axes + 1, "columns of theta", NULL, err));
    }
    for (size_t i = 2; i < n; i++) out[i - 1] = size[i];
    out[n - 1] = axes;
    return shapes_out(s, 0, n, out, err);
}

static double grid_coordinate(bool align, int64_t i, int64_t n) {
    if (!align) return -1 + (2 * (double)i + 1) / (double)n;
    return n > 1 ? -1 + 2 * (double)i / (double)(n - 1) : -1;
}

static status affine_run(op_run *r, error *err) {
    const grid_state *st = run_state(r);
    tensor *y;
    const void *theta;
    void *to;
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    TRY(real_in(r, 0, ELEM_F64, &theta, err));
    size_t axes = y->rank - 2, points = y->count ? y->count / (size_t)y->dims[0] / axes : 0;
    double *out = to;
    for (size_t i = 0; i < (y->count ? (size_t)y->dims[0] * points : 0); i++) {
        if (i % 16384 == 0) TRY(run_check(r, err));
        const double *m = (const double *)theta + i / points * axes * (axes + 1);
        double at[4];
        size_t rest = i % points;
        for (size_t a = axes; a-- > 0;) { /* x first */
            at[axes - 1 - a] =
                grid_coordinate(st->align, (int64_t)(rest % (size_t)y->dims[1 + a]), y->dims[1 + a]);
            rest /= (size_t)y->dims[1 + a];
        }
        at[axes] = 1;
        for (size_t row = 0; row < axes; row++) {
            double sum = 0;
            for (size_t c = 0; c <= axes; c++) sum += m[row * (axes + 1) + c] * at[c];
            out[i * axes + row] = sum;
        }
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

#define PLAIN (ELEMS_NUMERIC | ELEMS_COMPLEX | ELEM_BIT(ELEM_BOOL) | ELEM_BIT(ELEM_STRING))
#define GRID(first, last, types, grids)                                                                      \
    {                                                                                                        \
        .domain = "", .name = "GridSample", .since = first, .until = last, .signature = "TG>T",              \
        .vars = {{'T', types}, {'G', grids}}, .prepare = grid_prepare, .release = mem_free,                  \
        .infer = grid_infer, .run = grid_run                                                                 \
    }

static const op_def rows[] = {
    GRID(16, 19, PLAIN & ~ELEM_BIT(ELEM_BF16), NN_F3),
    GRID(20, 21, PLAIN & ~ELEM_BIT(ELEM_BF16), NN_F3),
    GRID(22, 0, PLAIN, ELEMS_FLOAT),
    {.domain = "com.microsoft",
     .name = "GridSample",
     .since = 1,
     .signature = "TT>T",
     .vars = {{'T', NN_F3}},
     .prepare = grid_prepare,
     .release = mem_free,
     .infer = grid_infer,
     .run = grid_run},
    {.domain = "",
     .name = "AffineGrid",
     .since = 20,
     .signature = "Ti>T",
     .vars = {{'T', ELEMS_FLOAT}},
     .prepare = affine_prepare,
     .release = mem_free,
     .infer = affine_infer,
     .run = affine_run},
};
NN_TABLE(gridsample);
