/* blocked_move.c: channels of blocked images in another order, from one image or several; images with every
 * pixel repeated, or with more around them. Nothing is computed: values keep their bits. */
#include "graph/ops/blocked.h"

#include "base/mem.h"

#include <string.h>

/* ---- Channels --------------------------------------------------------------------------------------- */

void blocked_channels_free(void *state) {
    blocked_channels *st = state;
    if (!st) return;
    mem_free(st->from);
    mem_free(st);
}

static status channels_infer(op_shapes *s, error *err) {
    const blocked_channels *st = shapes_state(s);
    dim out[BLOCKED_RANK];
    for (size_t i = 0; i < st->n_inputs; i++) {
        size_t rank;
        const dim *in;
        if (!shapes_in(s, i, &rank, &in)) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        if (i == 0) memcpy(out, in, sizeof out);
        for (size_t k = 0; k < 4; k++) {
            if (k != 1) TRY(shapes_same(s, out[k], in[k], "images that are joined", NULL, err));
        }
    }
    out[1] = (dim)conv_blocks(st->channels);
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

typedef struct channels_job {
    const blocked_channels *st;
    const float *in[BLOCKED_MOST_INPUTS];
    size_t blocks[BLOCKED_MOST_INPUTS];
    size_t pixels;
    float *y;
} channels_job;

/* Where a lane of block b of image n comes from; NULL: it is filled up. */
static const float *lane_from(const channels_job *j, size_t n, size_t b, size_t lane) {
    const size_t c = b * CONV_BLOCK + lane;
    if (c >= j->st->channels) return NULL;
    const blocked_channel *f = &j->st->from[c];
    return j->in[f->input] + (n * j->blocks[f->input] + f->channel / CONV_BLOCK) * j->pixels * CONV_BLOCK +
           f->channel % CONV_BLOCK;
}

/* Lanes that follow each other in memory as they do here, from this one on. */
static size_t together(const float *const from[CONV_BLOCK], size_t lane) {
    size_t n = 1;
    while (lane + n < CONV_BLOCK && from[lane + n] == from[lane] + n) n++;
    return n;
}

static void channels_part(void *ctx, size_t begin, size_t end) {
    const channels_job *j = ctx;
    static const float zero[CONV_BLOCK];
    const size_t out_blocks = conv_blocks(j->st->channels), half = CONV_BLOCK / 2;
    for (size_t i = begin; i < end; i++) {
        const float *from[CONV_BLOCK];
        size_t step[CONV_BLOCK];
        for (size_t l = 0; l < CONV_BLOCK; l++) {
            from[l] = lane_from(j, i / out_blocks, i % out_blocks, l);
            step[l] = from[l] ? CONV_BLOCK : 0;
            if (!from[l]) from[l] = zero + l;
        }
        float *y = j->y + i * j->pixels * CONV_BLOCK;
        const bool halves = together(from, 0) >= half && together(from, half) == half;
        for (size_t p = 0; p < j->pixels; p++, y += CONV_BLOCK) {
            if (halves) {
                memcpy(y, from[0] + p * step[0], half * sizeof *y);
                memcpy(y + half, from[half] + p * step[half], half * sizeof *y);
                continue;
            }
            for (size_t l = 0; l < CONV_BLOCK; l++) y[l] = from[l][p * step[l]];
        }
    }
}

static status channels_run(op_run *r, error *err) {
    channels_job j = {.st = run_state(r)};
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    for (size_t i = 0; i < j.st->n_inputs; i++) {
        j.in[i] = run_in(r, i)->data;
        j.blocks[i] = (size_t)run_in(r, i)->dims[1];
    }
    j.y = y->data;
    j.pixels = (size_t)(y->dims[2] * y->dims[3]);
    run_parallel(r, (size_t)(y->dims[0] * y->dims[1]), (double)y->count * 0.3, channels_part, &j);
    return CHURON_OK;
}

const op_def op_blocked_channels = {.domain = "churon",
                                    .name = "Channels",
                                    .since = 1,
                                    .signature = "T*>T",
                                    .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                    .release = blocked_channels_free,
                                    .infer = channels_infer,
                                    .run = channels_run};

/* ---- Repeat ----------------------------------------------------------------------------------------- */

static status repeat_infer(op_shapes *s, error *err) {
    const blocked_repeat *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    const dim out[BLOCKED_RANK] = {in[0], in[1], dim_mul(s, in[2], (dim)st->high),
                                   dim_mul(s, in[3], (dim)st->wide), CONV_BLOCK};
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

typedef struct repeat_job {
    const blocked_repeat *st;
    const float *x;
    float *y;
    size_t in_w;
} repeat_job;

static void repeat_rows(void *ctx, size_t from, size_t to) {
    const repeat_job *j = ctx;
    const size_t wide = j->st->wide, row = j->in_w * CONV_BLOCK, out_row = row * wide;
    for (size_t i = from; i < to; i++) {
        const float *x = j->x + i * row;
        float *y = j->y + i * j->st->high * out_row;
        for (size_t p = 0; p < j->in_w; p++) {
            for (size_t k = 0; k < wide; k++)
                memcpy(y + (p * wide + k) * CONV_BLOCK, x + p * CONV_BLOCK, CONV_BLOCK * sizeof *y);
        }
        for (size_t k = 1; k < j->st->high; k++) memcpy(y + k * out_row, y, out_row * sizeof *y);
    }
}

static status repeat_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    repeat_job j = {.st = run_state(r), .x = x->data, .y = y->data, .in_w = (size_t)x->dims[3]};
    run_parallel(r, (size_t)(x->dims[0] * x->dims[1] * x->dims[2]), (double)y->count * 0.2, repeat_rows, &j);
    return CHURON_OK;
}

const op_def op_blocked_repeat = {.domain = "churon",
                                  .name = "Repeat",
                                  .since = 1,
                                  .signature = "T>T",
                                  .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                  .release = mem_free,
                                  .infer = repeat_infer,
                                  .run = repeat_run};

/* ---- Pad -------------------------------------------------------------------------------------------- */

static status pad_infer(op_shapes *s, error *err) {
    const blocked_pad *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    const dim out[BLOCKED_RANK] = {in[0], in[1], dim_add(s, in[2], (dim)(st->top + st->bottom)),
                                   dim_add(s, in[3], (dim)(st->left + st->right)), CONV_BLOCK};
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

typedef struct pad_job {
    const blocked_pad *st;
    const float *x;
    float *y;
    size_t in_h, in_w, out_h, out_w;
} pad_job;

static float *put_value(float *y, float filling, size_t pixels) {
    for (size_t i = 0; i < pixels * CONV_BLOCK; i++) y[i] = filling;
    return y + pixels * CONV_BLOCK;
}

static void pad_rows(void *ctx, size_t from, size_t to) {
    const pad_job *j = ctx;
    const blocked_pad *st = j->st;
    for (size_t i = from; i < to; i++) {
        const size_t b = i / j->out_h, row = i % j->out_h;
        float *y = j->y + i * j->out_w * CONV_BLOCK;
        if (row < st->top || row - st->top >= j->in_h) {
            (void)put_value(y, st->value, j->out_w);
            continue;
        }
        const float *x = j->x + (b * j->in_h + row - st->top) * j->in_w * CONV_BLOCK;
        y = put_value(y, st->value, st->left);
        if (j->in_w) memcpy(y, x, j->in_w * CONV_BLOCK * sizeof *y);
        (void)put_value(y + j->in_w * CONV_BLOCK, st->value, st->right);
    }
}

static status pad_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    pad_job j = {.st = run_state(r),
                 .x = x->data,
                 .y = y->data,
                 .in_h = (size_t)x->dims[2],
                 .in_w = (size_t)x->dims[3],
                 .out_h = (size_t)y->dims[2],
                 .out_w = (size_t)y->dims[3]};
    run_parallel(r, (size_t)(y->dims[0] * y->dims[1]) * j.out_h, (double)y->count * 0.2, pad_rows, &j);
    return CHURON_OK;
}

const op_def op_blocked_pad = {.domain = "churon",
                               .name = "Pad",
                               .since = 1,
                               .signature = "T>T",
                               .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                               .release = mem_free,
                               .infer = pad_infer,
                               .run = pad_run};
