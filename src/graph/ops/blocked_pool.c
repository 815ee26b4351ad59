/* blocked_pool.c: pools over blocked channels. Sums in ascending order of rows and columns. NaN in a window
 * is the window's maximum. And local response normalization, which is a pool of squares over channels. */
#include "graph/ops/blocked.h"

#include "base/mem.h"
#include "graph/ops/window.h"

#include <math.h>
#include <string.h>

static status infer(op_shapes *s, error *err) {
    const blocked_pool *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[BLOCKED_RANK] = {in[0], in[1], 1, 1, CONV_BLOCK};
    if (st->kind != BLOCKED_MEAN) {
        out[2] = window_count(s, st->ceil, in[2], st->pad_top, st->end_h, st->kernel_h, st->stride_h);
        out[3] = window_count(s, st->ceil, in[3], st->pad_left, st->end_w, st->kernel_w, st->stride_w);
    }
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

typedef struct pool_job {
    const blocked_pool *st;
    const float *x;
    float *y;
    const kernels *k;
    size_t kernel_h, kernel_w, in_h, in_w, out_h, out_w;
} pool_job;

static void mean_part(void *ctx, size_t from, size_t to) {
    const pool_job *j = ctx;
    const size_t pixels = j->in_h * j->in_w;
    for (size_t b = from; b < to; b++) {
        const float *x = j->x + b * pixels * CONV_BLOCK;
        float sum[CONV_BLOCK] = {0};
        for (size_t i = 0; i < pixels; i++) {
            for (size_t l = 0; l < CONV_BLOCK; l++) sum[l] += x[i * CONV_BLOCK + l];
        }
        for (size_t l = 0; l < CONV_BLOCK; l++) j->y[b * CONV_BLOCK + l] = sum[l] / (float)pixels;
    }
}

/* What the sum of a window is divided by; 0: it is a maximum. */
static float divisor_of(const pool_job *j, size_t oy, size_t ox, size_t inner) {
    const blocked_pool *st = j->st;
    if (st->kind != BLOCKED_AVERAGE) return 0.0f;
    if (!st->count_padding) return (float)inner;
    return (float)(window_padded(oy, st->stride_h, st->pad_top, st->end_h, j->kernel_h, j->in_h) *
                   window_padded(ox, st->stride_w, st->pad_left, st->end_w, j->kernel_w, j->in_w));
}

static void one_pixel(const pool_job *j, const float *x, size_t oy, size_t y0, size_t y1, size_t ox,
                      ptrdiff_t *taps, float *y) {
    size_t x0, x1;
    window_inside(ox, j->st->stride_w, j->st->pad_left, j->kernel_w, j->in_w, &x0, &x1);
    const size_t n = window_taps(j->in_w, CONV_BLOCK, y0, y1, x0, x1, taps);
    if (n) {
        j->k->pool_row(x, 0, taps, n, divisor_of(j, oy, ox, n), y, 1);
        return;
    }
    for (size_t l = 0; l < CONV_BLOCK; l++) y[l] = j->st->kind == BLOCKED_MAX ? -INFINITY : 0.0f;
}

static void window_part(void *ctx, size_t from, size_t to) {
    const pool_job *j = ctx;
    ptrdiff_t taps[BLOCKED_POOL_TAPS];
    size_t whole0, whole1;
    window_whole(j->out_w, j->st->stride_w, j->st->pad_left, j->kernel_w, j->in_w, &whole0, &whole1);
    for (size_t i = from; i < to; i++) {
        const size_t b = i / j->out_h, oy = i % j->out_h;
        const float *x = j->x + b * j->in_h * j->in_w * CONV_BLOCK;
        float *y = j->y + i * j->out_w * CONV_BLOCK;
        size_t y0, y1;
        window_inside(oy, j->st->stride_h, j->st->pad_top, j->kernel_h, j->in_h, &y0, &y1);
        const size_t n = (y1 - y0) * j->kernel_w;
        size_t ox = 0;
        for (; ox < whole0; ox++) one_pixel(j, x, oy, y0, y1, ox, taps, y + ox * CONV_BLOCK);
        if (n && whole0 < whole1) {
            (void)window_taps(j->in_w, CONV_BLOCK, y0, y1, 0, j->kernel_w, taps);
            const float *first = x + (whole0 * j->st->stride_w - j->st->pad_left) * CONV_BLOCK;
            j->k->pool_row(first, j->st->stride_w * CONV_BLOCK, taps, n, divisor_of(j, oy, whole0, n),
                           y + whole0 * CONV_BLOCK, whole1 - whole0);
            ox = whole1;
        }
        for (; ox < j->out_w; ox++) one_pixel(j, x, oy, y0, y1, ox, taps, y + ox * CONV_BLOCK);
    }
}

static status run(op_run *r, error *err) {
    const blocked_pool *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    pool_job j = {.st = st,
                  .x = x->data,
                  .y = y->data,
                  .k = run_kernels(r),
                  .kernel_h = st->kernel_h,
                  .kernel_w = st->kernel_w,
                  .in_h = (size_t)x->dims[2],
                  .in_w = (size_t)x->dims[3],
                  .out_h = (size_t)y->dims[2],
                  .out_w = (size_t)y->dims[3]};
    const size_t blocks = (size_t)(x->dims[0] * x->dims[1]);
    if (st->kind == BLOCKED_MEAN) {
        run_parallel(r, blocks, (double)x->count * 0.3, mean_part, &j);
    } else {
        run_parallel(r, blocks * j.out_h, (double)y->count * (double)(st->kernel_h * st->kernel_w) * 0.3,
                     window_part, &j);
    }
    return CHURON_OK;
}

const op_def op_blocked_pool = {.domain = "churon",
                                .name = "Pool",
                                .since = 1,
                                .signature = "T>T",
                                .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                .release = mem_free,
                                .infer = infer,
                                .run = run};

/* ---- LRN -------------------------------------------------------------------------------------------- */

static status lrn_infer(op_shapes *s, error *err) {
    size_t rank;
    const dim *in;
    if (shapes_in(s, 0, &rank, &in)) return shapes_out(s, 0, rank, in, err);
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

typedef struct lrn_job {
    const blocked_lrn *st;
    const kernels *k;
    const float *x;
    float *y;
    size_t blocks, pixels, chunks; /* of an image; chunks of LRN_PIXELS pixels */
} lrn_job;

enum { LRN_PIXELS = 32 };

static void lrn_part(void *ctx, size_t from, size_t to) {
    const lrn_job *j = ctx;
    const size_t block = j->pixels * CONV_BLOCK, size = j->st->size;
    float squares[2 * BLOCKED_LRN_SIZE + BLOCKED_LRN_CHANNELS];
    memset(squares, 0, size * sizeof *squares);
    memset(squares + size + j->blocks * CONV_BLOCK, 0, size * sizeof *squares);
    for (size_t i = from; i < to; i++) {
        const size_t first = i % j->chunks * LRN_PIXELS, at = i / j->chunks * j->blocks * block;
        for (size_t p = first; p < first + LRN_PIXELS && p < j->pixels; p++)
            j->k->lrn_pixel(j->x + at + p * CONV_BLOCK, block, j->blocks, size, j->st->alpha, j->st->bias,
                            squares, j->y + at + p * CONV_BLOCK);
    }
}

static status lrn_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    lrn_job j = {.st = run_state(r),
                 .k = run_kernels(r),
                 .x = x->data,
                 .y = y->data,
                 .blocks = (size_t)x->dims[1],
                 .pixels = (size_t)(x->dims[2] * x->dims[3])};
    j.chunks = (j.pixels + LRN_PIXELS - 1) / LRN_PIXELS;
    run_parallel(r, (size_t)x->dims[0] * j.chunks, (double)x->count * 2.0, lrn_part, &j);
    return CHURON_OK;
}

const op_def op_blocked_lrn = {.domain = "churon",
                               .name = "LRN",
                               .since = 1,
                               .flags = OP_INPLACE,
                               .signature = "T>T",
                               .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                               .release = mem_free,
                               .infer = lrn_infer,
                               .run = lrn_run};
