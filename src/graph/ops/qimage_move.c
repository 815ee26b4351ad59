/* qimage_move.c: pools, tables, and what moves channels and pixels of 8-bit images whose channels lie
 * together. See qimage.h. */
#include "graph/ops/qimage.h"

#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/window.h"

#include <string.h>

static status not_known(op_shapes *s) {
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

/* ---- pools ------------------------------------------------------------------------------------------ */

static status pool_infer(op_shapes *s, error *err) {
    const qimage_pool *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    dim out[QIMAGE_RANK] = {x[0], 1, 1, x[3]};
    if (!st->global) {
        out[1] = window_count(s, st->ceil, x[1], st->pad_top, st->end_h, st->kernel_h, st->stride_h);
        out[2] = window_count(s, st->ceil, x[2], st->pad_left, st->end_w, st->kernel_w, st->stride_w);
    }
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

typedef struct pool_job {
    const qimage_pool *st;
    const kernels *k;
    const uint8_t *x;
    uint8_t *y;
    size_t channels, kernel_h, kernel_w, in_h, in_w, out_h, out_w;
    uint8_t flip;
    ptrdiff_t *taps; /* global: those of all pixels */
} pool_job;

/* What the sum of a window is divided by. */
static float divisor_of(const pool_job *j, size_t oy, size_t ox, size_t taps) {
    const qimage_pool *st = j->st;
    if (!st->count_padding) return (float)taps;
    return (float)(window_padded(oy, st->stride_h, st->pad_top, st->end_h, j->kernel_h, j->in_h) *
                   window_padded(ox, st->stride_w, st->pad_left, st->end_w, j->kernel_w, j->in_w));
}

static qpool pool_of(const pool_job *j, const ptrdiff_t *taps, size_t n, float divisor) {
    const int32_t move = j->flip ? 128 : 0;
    return (qpool){.channels = j->channels,
                   .x_step = j->st->stride_w * j->channels,
                   .taps = n,
                   .tap = taps,
                   .average = j->st->average,
                   .flip = j->flip,
                   .y_flip = j->flip,
                   .x_zero = j->st->x_zero + move,
                   .y_zero = j->st->y_zero + move,
                   .divisor = divisor,
                   .factor = j->st->factor};
}

static void one_pixel(const pool_job *j, const uint8_t *x, size_t oy, size_t y0, size_t y1, size_t ox,
                      ptrdiff_t *taps, uint8_t *y) {
    size_t x0, x1;
    window_inside(ox, j->st->stride_w, j->st->pad_left, j->kernel_w, j->in_w, &x0, &x1);
    const size_t n = window_taps(j->in_w, j->channels, y0, y1, x0, x1, taps);
    const qpool p = pool_of(j, taps, n, n ? divisor_of(j, oy, ox, n) : 1.0f);
    j->k->qpool_row(&p, x, y, 1);
}

static void pool_rows(void *ctx, size_t from, size_t to) {
    const pool_job *j = ctx;
    ptrdiff_t taps[QIMAGE_POOL_TAPS];
    size_t whole0, whole1;
    window_whole(j->out_w, j->st->stride_w, j->st->pad_left, j->kernel_w, j->in_w, &whole0, &whole1);
    for (size_t i = from; i < to; i++) {
        const size_t oy = i % j->out_h;
        const uint8_t *x = j->x + i / j->out_h * j->in_h * j->in_w * j->channels;
        uint8_t *y = j->y + i * j->out_w * j->channels;
        size_t y0, y1, ox = 0;
        window_inside(oy, j->st->stride_h, j->st->pad_top, j->kernel_h, j->in_h, &y0, &y1);
        for (; ox < whole0; ox++) one_pixel(j, x, oy, y0, y1, ox, taps, y + ox * j->channels);
        if (y0 < y1 && whole0 < whole1) {
            const size_t n = window_taps(j->in_w, j->channels, y0, y1, 0, j->kernel_w, taps);
            const qpool p = pool_of(j, taps, n, divisor_of(j, oy, whole0, n));
            j->k->qpool_row(&p, x + (whole0 * j->st->stride_w - j->st->pad_left) * j->channels,
                            y + whole0 * j->channels, whole1 - whole0);
            ox = whole1;
        }
        for (; ox < j->out_w; ox++) one_pixel(j, x, oy, y0, y1, ox, taps, y + ox * j->channels);
    }
}

static void pool_images(void *ctx, size_t from, size_t to) {
    const pool_job *j = ctx;
    const size_t pixels = j->in_h * j->in_w;
    const qpool p = pool_of(j, j->taps, pixels, (float)pixels);
    for (size_t i = from; i < to; i++)
        j->k->qpool_row(&p, j->x + i * pixels * j->channels, j->y + i * j->channels, 1);
}

static status pool_run_op(op_run *r, error *err) {
    const qimage_pool *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    void *memory;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    pool_job j = {.st = st,
                  .k = run_kernels(r),
                  .x = x->data,
                  .y = y->data,
                  .channels = (size_t)x->dims[3],
                  .kernel_h = st->kernel_h,
                  .kernel_w = st->kernel_w,
                  .in_h = (size_t)x->dims[1],
                  .in_w = (size_t)x->dims[2],
                  .out_h = (size_t)y->dims[1],
                  .out_w = (size_t)y->dims[2],
                  .flip = x->type == ELEM_I8 ? 0x80 : 0};
    if (!st->global) {
        run_parallel(r, (size_t)x->dims[0] * j.out_h,
                     (double)y->count * (double)(st->kernel_h * st->kernel_w) * 0.05, pool_rows, &j);
        return CHURON_OK;
    }
    TRY(run_scratch(r, (j.in_h * j.in_w + 1) * sizeof(ptrdiff_t), &memory, err));
    j.taps = memory;
    (void)window_taps(j.in_w, j.channels, 0, j.in_h, 0, j.in_w, j.taps);
    run_parallel(r, (size_t)x->dims[0], (double)x->count * 0.05, pool_images, &j);
    return CHURON_OK;
}

const op_def op_qimage_pool = {.domain = "churon",
                               .name = "QuantizedPool",
                               .since = 1,
                               .signature = "T>@",
                               .vars = {{'T', NN_I8}},
                               .release = mem_free,
                               .infer = pool_infer,
                               .run = pool_run_op};

/* ---- Join ------------------------------------------------------------------------------------------- */

void qimage_join_free(void *state) {
    qimage_join *st = state;
    if (!st) return;
    mem_free(st->tables);
    mem_free(st->moves);
    mem_free(st);
}

static status join_infer(op_shapes *s, error *err) {
    const qimage_join *st = shapes_state(s);
    dim out[QIMAGE_RANK] = {0};
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    for (size_t i = 0; i < st->n_inputs; i++) {
        size_t rank;
        const dim *x;
        if (!shapes_in(s, i, &rank, &x)) return not_known(s);
        for (size_t k = 0; k < QIMAGE_RANK; k++) {
            if (i == 0)
                out[k] = x[k];
            else if (k == 3)
                out[k] = dim_add(s, out[k], x[k]);
            else
                TRY(shapes_same(s, out[k], x[k], "inputs outside the axis", &out[k], err));
        }
    }
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

typedef struct join_job {
    const qimage_join *st;
    const kernels *k;
    const uint8_t *x[QIMAGE_MOST_INPUTS];
    size_t channels[QIMAGE_MOST_INPUTS];
    uint8_t *y;
    size_t all;
} join_job;

static void join_pixels(void *ctx, size_t from, size_t to) {
    const join_job *j = ctx;
    for (size_t i = from; i < to; i++) {
        uint8_t *y = j->y + i * j->all;
        for (size_t k = 0; k < j->st->n_inputs; k++) {
            const size_t n = j->channels[k];
            if (j->st->moves[k])
                j->k->lookup(j->st->tables[k], j->x[k] + i * n, y, n);
            else
                memcpy(y, j->x[k] + i * n, n);
            y += n;
        }
    }
}

static status join_run(op_run *r, error *err) {
    join_job j = {.st = run_state(r), .k = run_kernels(r)};
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    for (size_t i = 0; i < j.st->n_inputs; i++) {
        j.x[i] = run_in(r, i)->data;
        j.channels[i] = (size_t)run_in(r, i)->dims[3];
    }
    j.y = y->data;
    j.all = (size_t)y->dims[3];
    run_parallel(r, y->count / j.all, (double)y->count * 0.1, join_pixels, &j);
    return CHURON_OK;
}

const op_def op_qimage_join = {.domain = "churon",
                               .name = "Join",
                               .since = 1,
                               .signature = "T*>@",
                               .vars = {{'T', NN_I8}},
                               .release = qimage_join_free,
                               .infer = join_infer,
                               .run = join_run};

/* ---- Pick ------------------------------------------------------------------------------------------- */

void qimage_pick_free(void *state) {
    qimage_pick *st = state;
    if (!st) return;
    mem_free(st->from);
    mem_free(st);
}

static status pick_infer(op_shapes *s, error *err) {
    const qimage_pick *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    TRY(shapes_same(s, x[3], (dim)st->in_channels, "channels of X", NULL, err));
    const dim out[QIMAGE_RANK] = {x[0], x[1], x[2], (dim)st->channels};
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

typedef struct pick_job {
    const qimage_pick *st;
    const uint8_t *x;
    uint8_t *y;
} pick_job;

static void pick_pixels(void *ctx, size_t from, size_t to) {
    const pick_job *j = ctx;
    const size_t in = j->st->in_channels, n = j->st->channels;
    const uint32_t *channel = j->st->from;
    for (size_t i = from; i < to; i++) {
        const uint8_t *x = j->x + i * in;
        uint8_t *y = j->y + i * n;
        for (size_t c = 0; c < n; c++) y[c] = x[channel[c]];
    }
}

static status pick_run(op_run *r, error *err) {
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    pick_job j = {.st = run_state(r), .x = run_in(r, 0)->data, .y = y->data};
    run_parallel(r, y->count / j.st->channels, (double)y->count * 0.4, pick_pixels, &j);
    return CHURON_OK;
}

const op_def op_qimage_pick = {.domain = "churon",
                               .name = "Pick",
                               .since = 1,
                               .signature = "T>@",
                               .vars = {{'T', NN_I8}},
                               .release = qimage_pick_free,
                               .infer = pick_infer,
                               .run = pick_run};

/* ---- RepeatPixels ----------------------------------------------------------------------------------- */

static status repeat_infer(op_shapes *s, error *err) {
    const qimage_repeat *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    const dim out[QIMAGE_RANK] = {x[0], dim_mul(s, x[1], (dim)st->high), dim_mul(s, x[2], (dim)st->wide),
                                  x[3]};
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

typedef struct repeat_job {
    const qimage_repeat *st;
    const uint8_t *x;
    uint8_t *y;
    size_t in_w, channels;
} repeat_job;

static void repeat_rows(void *ctx, size_t from, size_t to) {
    const repeat_job *j = ctx;
    const size_t wide = j->st->wide, row = j->in_w * j->channels, out_row = row * wide;
    for (size_t i = from; i < to; i++) {
        const uint8_t *x = j->x + i * row;
        uint8_t *y = j->y + i * j->st->high * out_row;
        for (size_t p = 0; p < j->in_w * wide; p++)
            memcpy(y + p * j->channels, x + p / wide * j->channels, j->channels);
        for (size_t k = 1; k < j->st->high; k++) memcpy(y + k * out_row, y, out_row);
    }
}

static status repeat_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    repeat_job j = {.st = run_state(r),
                    .x = x->data,
                    .y = y->data,
                    .in_w = (size_t)x->dims[2],
                    .channels = (size_t)x->dims[3]};
    run_parallel(r, (size_t)(x->dims[0] * x->dims[1]), (double)y->count * 0.1, repeat_rows, &j);
    return CHURON_OK;
}

const op_def op_qimage_repeat = {.domain = "churon",
                                 .name = "RepeatPixels",
                                 .since = 1,
                                 .signature = "T>@",
                                 .vars = {{'T', NN_I8}},
                                 .release = mem_free,
                                 .infer = repeat_infer,
                                 .run = repeat_run};

/* ---- Table ------------------------------------------------------------------------------------------ */

void qimage_table_free(void *state) {
    qimage_table *st = state;
    if (!st) return;
    mem_free(st->bytes);
    mem_free(st);
}

static status table_infer(op_shapes *s, error *err) {
    const qimage_table *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, st->type);
    if (st->axis != SIZE_MAX && shapes_in(s, 0, &rank, &x)) {
        if (rank <= st->axis)
            return op_error(shapes_node(s), err, CHURON_INVALID, "X: rank above %zu expected, got %zu",
                            st->axis, rank);
        TRY(shapes_same(s, x[st->axis], (dim)st->n, "channels of X", NULL, err));
    }
    return infer_same(s, err);
}

typedef struct table_job {
    const qimage_table *st;
    const kernels *k;
    const uint8_t *x;
    uint8_t *y;
    size_t inner, count;
} table_job;

enum { PIECE = 1024, TABLES = 64 };

static void table_pieces(void *ctx, size_t from, size_t to) {
    const table_job *j = ctx;
    const size_t end = to * PIECE < j->count ? to * PIECE : j->count;
    j->k->lookup(j->st->bytes, j->x + from * PIECE, j->y + from * PIECE, end - from * PIECE);
}

static void table_planes(void *ctx, size_t from, size_t to) { /* rows of `inner` of one channel */
    const table_job *j = ctx;
    for (size_t i = from; i < to; i++)
        j->k->lookup(j->st->bytes + i % j->st->n * 256, j->x + i * j->inner, j->y + i * j->inner, j->inner);
}

static void table_pixels(void *ctx, size_t from, size_t to) { /* channels are last */
    const table_job *j = ctx;
    const size_t n = j->st->n;
    for (size_t c0 = 0; c0 < n; c0 += TABLES) { /* whose tables stay in the first-level cache */
        const size_t most = n - c0 < TABLES ? n - c0 : TABLES;
        const uint8_t *table = j->st->bytes + c0 * 256;
        for (size_t i = from; i < to; i++) {
            const uint8_t *x = j->x + i * n + c0;
            uint8_t *y = j->y + i * n + c0;
            for (size_t c = 0; c < most; c++) y[c] = table[c * 256 + x[c]];
        }
    }
}

static status table_run(op_run *r, error *err) {
    const qimage_table *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    table_job j = {.st = st, .k = run_kernels(r), .x = x->data, .y = y->data, .count = x->count};
    if (st->axis == SIZE_MAX) {
        run_parallel(r, (x->count + PIECE - 1) / PIECE, (double)x->count * 0.05, table_pieces, &j);
        return CHURON_OK;
    }
    j.inner = (size_t)nn_product(x->dims + st->axis + 1, x->rank - st->axis - 1);
    const size_t rows = x->count / j.inner;
    if (j.inner == 1)
        run_parallel(r, rows / st->n, (double)x->count * 0.4, table_pixels, &j);
    else
        run_parallel(r, rows, (double)x->count * 0.2, table_planes, &j);
    return CHURON_OK;
}

const op_def op_qimage_table = {.domain = "churon",
                                .name = "Table",
                                .since = 1,
                                .signature = "T>@",
                                .vars = {{'T', NN_I8}},
                                .release = qimage_table_free,
                                .infer = table_infer,
                                .run = table_run};
