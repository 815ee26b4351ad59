/* conv_transpose.c: ConvTranspose, Col2Im: values spread into a larger image. */
#include "base/mem.h"
#include "graph/ops/conv.h"
#include "graph/ops/ops.h"

#include <string.h>

/* ---- ConvTranspose ---------------------------------------------------------------------------------- */

typedef struct transpose_state {
    window w;
    int64_t group;
    int64_t out_padding[WINDOW_MAX], out_shape[WINDOW_MAX];
    size_t n_out_padding, n_out_shape;
} transpose_state;

static status read_ints(op_node *n, const char *name, int64_t *out, size_t *count, error *err) {
    const int64_t *v;
    TRY(op_attr_ints(n, name, &v, count, err));
    if (*count > WINDOW_MAX)
        return op_error(n, err, CHURON_UNSUPPORTED, "%s: at most %d numbers expected, got %zu", name,
                        WINDOW_MAX, *count);
    for (size_t i = 0; i < *count; i++) {
        if (v[i] < 0 || v[i] > INT32_MAX)
            return op_error(n, err, CHURON_INVALID, "%s[%zu]: 0 to 2147483647 expected, got %lld", name, i,
                            (long long)v[i]);
        out[i] = v[i];
    }
    return CHURON_OK;
}

static status transpose_prepare(op_node *n, error *err) {
    transpose_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(window_prepare(n, &st->w, false, true, true, err));
    TRY(op_attr_int(n, "group", 1, 1, INT32_MAX, &st->group, err));
    TRY(read_ints(n, "output_padding", st->out_padding, &st->n_out_padding, err));
    return read_ints(n, "output_shape", st->out_shape, &st->n_out_shape, err);
}

/* Size of an axis before padding is cut off, and what is cut off. */
static int64_t full_size(const transpose_state *st, size_t i, int64_t in, int64_t kernel) {
    int64_t stride = st->w.n_stride ? st->w.stride[i] : 1,
            dilation = st->w.n_dilation ? st->w.dilation[i] : 1;
    int64_t extra = st->n_out_padding ? st->out_padding[i] : 0;
    return stride * (in - 1) + extra + (kernel - 1) * dilation + 1;
}

static bool same_pads(const transpose_state *st) {
    return st->w.auto_pad == PAD_SAME_UPPER || st->w.auto_pad == PAD_SAME_LOWER;
}

static status transpose_axis(op_shapes *s, const transpose_state *st, size_t n, size_t i, dim in, dim kernel,
                             dim *out, error *err) {
    int64_t stride = st->w.n_stride ? st->w.stride[i] : 1;
    if (st->n_out_shape) {
        *out = st->out_shape[i];
    } else if (same_pads(st)) {
        *out = dim_mul(s, in, stride);
    } else if (dim_known(in) && dim_known(kernel)) {
        if (in > INT32_MAX || kernel > INT32_MAX)
            return op_error(shapes_node(s), err, CHURON_LIMIT,
                            "axis %zu: sizes up to 2147483647 expected, got %lld", i,
                            (long long)(in > kernel ? in : kernel));
        bool use = st->w.n_pad && st->w.auto_pad == PAD_NOTSET;
        *out = full_size(st, i, in, kernel) - (use ? st->w.pad[i] + st->w.pad[n + i] : 0);
        if (*out < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "pads: axis %zu: at most the output's %lld expected, got more", i,
                            (long long)full_size(st, i, in, kernel));
    } else {
        *out = dim_fresh(s);
    }
    return CHURON_OK;
}

static status check_counts(const op_node *node, const transpose_state *st, size_t n, error *err) {
    const struct {
        const char *name;
        size_t have, want;
    } lists[] = {{"kernel_shape", st->w.n_kernel, n},      {"strides", st->w.n_stride, n},
                 {"dilations", st->w.n_dilation, n},       {"pads", st->w.n_pad, 2 * n},
                 {"output_padding", st->n_out_padding, n}, {"output_shape", st->n_out_shape, n}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i].have && lists[i].have != lists[i].want)
            return op_error(node, err, CHURON_INVALID, "%s: %zu numbers expected, got %zu", lists[i].name,
                            lists[i].want, lists[i].have);
    return CHURON_OK;
}

static status transpose_infer(op_shapes *s, error *err) {
    const transpose_state *st = shapes_state(s);
    bool known_x, known_w, known_b = false;
    size_t rx, rw, rb;
    const dim *x, *w, *b;
    TRY(nn_rank(s, 0, 3, 2 + WINDOW_MAX, "X", &known_x, &rx, &x, err));
    TRY(nn_rank(s, 1, 3, 2 + WINDOW_MAX, "W", &known_w, &rw, &w, err));
    if (op_has_input(shapes_node(s), 2)) TRY(nn_rank(s, 2, 1, 1, "B", &known_b, &rb, &b, err));
    if (!known_x) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (known_w && rw != rx)
        return op_error(shapes_node(s), err, CHURON_INVALID, "W: rank %zu expected, got %zu", rx, rw);
    size_t n = rx - 2;
    TRY(check_counts(shapes_node(s), st, n, err));
    dim out[2 + WINDOW_MAX] = {x[0], dim_fresh(s)};
    if (known_w) {
        TRY(shapes_same(s, x[1], w[0], "channels of X and of W", NULL, err));
        if (dim_known(w[0]) && w[0] % st->group)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "W: input channels a multiple of group %lld expected, got %lld",
                            (long long)st->group, (long long)w[0]);
        out[1] = dim_mul(s, w[1], st->group);
        if (known_b) TRY(shapes_same(s, b[0], out[1], "B and output channels", NULL, err));
    }
    for (size_t i = 0; i < n; i++) {
        dim kernel = known_w ? w[2 + i] : st->w.n_kernel ? st->w.kernel[i] : dim_fresh(s);
        if (st->w.n_kernel) TRY(shapes_same(s, st->w.kernel[i], kernel, "kernel_shape and W", NULL, err));
        TRY(transpose_axis(s, st, n, i, x[2 + i], kernel, &out[2 + i], err));
    }
    return shapes_out(s, 0, rx, out, err);
}

/* The window whose input is y and whose output is x. */
static void transpose_geometry(const transpose_state *st, const tensor *x, const tensor *w, const tensor *y,
                               geometry *g) {
    size_t n = x->rank - 2, lead = WINDOW_MAX - n;
    window_geometry(&st->w, n, y->dims + 2, x->dims + 2, w->dims + 2, g);
    for (size_t i = 0; i < n; i++) {
        size_t a = lead + i;
        if (!st->n_out_shape && !same_pads(st)) {
            g->pad[a] = st->w.n_pad && st->w.auto_pad == PAD_NOTSET ? st->w.pad[i] : 0;
            continue;
        }
        int64_t total = full_size(st, i, x->dims[2 + i], w->dims[2 + i]) - y->dims[2 + i];
        if (total < 0) total = 0;
        g->pad[a] = st->w.auto_pad == PAD_SAME_UPPER ? total / 2 : total - total / 2;
    }
}

static status transpose_run(op_run *r, error *err) {
    const transpose_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    conv_call j = {.batch = (size_t)x->dims[0],
                   .in_channels = (size_t)x->dims[1],
                   .out_channels = (size_t)(w->dims[1] * st->group),
                   .group_in = (size_t)(w->dims[0] / st->group),
                   .group_out = (size_t)w->dims[1]};
    TRY(real_out(r, 0, work, &y, &to, err));
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.w, err));
    TRY(real_in(r, 2, work, &j.bias, err));
    j.y = to;
    transpose_geometry(st, x, w, y, &j.g);
    if (work == ELEM_F64)
        conv_spread_f64(r, &j);
    else
        conv_spread_f32(r, &j);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- Col2Im ----------------------------------------------------------------------------------------- */

static status col2im_prepare(op_node *n, error *err) {
    window *w = nn_state(n, sizeof *w, err);
    if (!w) return CHURON_NO_MEMORY;
    return window_prepare(n, w, false, true, false, err);
}

static status col2im_infer(op_shapes *s, error *err) {
    const op_node *node = shapes_node(s);
    bool known;
    size_t rank, n, nb;
    const dim *x, *image, *block;
    TRY(nn_rank(s, 0, 3, 3, "input", &known, &rank, &x, err));
    if (!shapes_in_values(s, 1, &n, &image) || !shapes_in_values(s, 2, &nb, &block)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    const window *w = shapes_state(s);
    if (n < 1 || n > WINDOW_MAX || nb != n)
        return op_error(node, err, CHURON_INVALID,
                        "image_shape, block_shape: 1 to %d numbers each expected, got %zu and %zu",
                        WINDOW_MAX, n, nb);
    if ((w->n_stride && w->n_stride != n) || (w->n_dilation && w->n_dilation != n) ||
        (w->n_pad && w->n_pad != 2 * n))
        return op_error(node, err, CHURON_INVALID,
                        "strides, dilations, pads: one number an axis expected (%zu axes)", n);
    dim out[2 + WINDOW_MAX], taps = 1, blocks = 1;
    for (size_t i = 0; i < n; i++) {
        if ((dim_known(image[i]) && (image[i] < 0 || image[i] > INT32_MAX)) ||
            (dim_known(block[i]) && (block[i] < 1 || block[i] > INT32_MAX)))
            return op_error(node, err, CHURON_INVALID,
                            "image_shape[%zu], block_shape[%zu]: 1 to 2147483647 expected, got %lld and %lld",
                            i, i, (long long)image[i], (long long)block[i]);
        out[2 + i] = image[i];
        taps = dim_mul(s, taps, block[i]);
        int64_t count = -1;
        if (dim_known(image[i]) && dim_known(block[i])) {
            int64_t room = image[i] + (w->n_pad ? w->pad[i] + w->pad[n + i] : 0) -
                           ((block[i] - 1) * (w->n_dilation ? w->dilation[i] : 1) + 1);
            count = room < 0 ? 0 : room / (w->n_stride ? w->stride[i] : 1) + 1;
        }
        blocks = count < 0 ? dim_fresh(s) : dim_mul(s, blocks, count);
    }
    out[0] = known ? x[0] : dim_fresh(s);
    out[1] = known && dim_known(taps) && taps > 0 ? dim_div_floor(s, x[1], taps) : dim_fresh(s);
    if (known && dim_known(x[1]) && dim_known(taps) && x[1] % taps)
        return op_error(node, err, CHURON_INVALID, "input: dimension 1 a multiple of %lld expected, got %lld",
                        (long long)taps, (long long)x[1]);
    if (known && dim_known(blocks))
        TRY(shapes_same(s, x[2], blocks, "input's columns and blocks", NULL, err));
    return shapes_out(s, 0, 2 + n, out, err);
}

static status col2im_run(op_run *r, error *err) {
    const window *w = run_state(r);
    const tensor *x = run_in(r, 0), *block = run_in(r, 2);
    tensor *y;
    void *to;
    const void *from;
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    size_t n = y->rank - 2, taps = 1, length = (size_t)x->dims[2];
    int64_t kernel[WINDOW_MAX], blocks[WINDOW_MAX];
    for (size_t i = 0; i < n; i++) {
        kernel[i] = int_at(block, i);
        taps *= (size_t)kernel[i];
        int64_t room = y->dims[2 + i] + (w->n_pad ? w->pad[i] + w->pad[n + i] : 0) -
                       ((kernel[i] - 1) * (w->n_dilation ? w->dilation[i] : 1) + 1);
        blocks[i] = room < 0 ? 0 : room / (w->n_stride ? w->stride[i] : 1) + 1;
    }
    geometry g;
    window_geometry(w, n, y->dims + 2, blocks, kernel, &g);
    geometry one = g;
    const int64_t size[WINDOW_MAX] = {g.kernel[0], g.kernel[1], g.kernel[2]};
    for (size_t i = 0; i < WINDOW_MAX; i++) one.kernel[i] = 1;
    double *image = to;
    memset(image, 0, y->count * sizeof *image);
    size_t planes = (size_t)(y->dims[0] * y->dims[1]);
    for (size_t p = 0; p < planes; p++)
        for (size_t t = 0; t < taps; t++) {
            TRY(run_check(r, err));
            int64_t at[3] = {(int64_t)t / (size[1] * size[2]), (int64_t)t / size[2] % size[1],
                             (int64_t)t % size[2]};
            for (size_t i = 0; i < WINDOW_MAX; i++) one.pad[i] = g.pad[i] - at[i] * g.dilation[i];
            conv_spread_plane(&one, (const double *)from + (p * taps + t) * length, &(double){1},
                              image + p * (size_t)g.in_size);
        }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define TRANSPOSE(first, last, types)                                                                        \
    {                                                                                                        \
        .domain = "", .name = "ConvTranspose", .since = first, .until = last, .signature = "TT=T>T",         \
        .vars = {{'T', types}}, .prepare = transpose_prepare, .release = mem_free, .infer = transpose_infer, \
        .run = transpose_run                                                                                 \
    }

static const op_def rows[] = {
    TRANSPOSE(1, 21, NN_F3),
    TRANSPOSE(22, 0, ELEMS_FLOAT),
    {.domain = "",
     .name = "Col2Im",
     .since = 18,
     .signature = "Tii>T",
     .vars = {{'T', ELEMS_NUMERIC}},
     .prepare = col2im_prepare,
     .release = mem_free,
     .infer = col2im_infer,
     .run = col2im_run},
};
NN_TABLE(conv_transpose);
