/* blocked.c: convolutions over blocked channels, layout changes, affine maps of channels, functions. See
 * blocked.h. */
#include "graph/ops/blocked.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

#define F32 ELEM_BIT(ELEM_F32)

/* ---- shapes ----------------------------------------------------------------------------------------- */

/* [N, C/16, H, W, 16] of a planar shape of rank 3 or 4. */
static void blocked_dims(const dim *planar, size_t rank, size_t channels, dim out[BLOCKED_RANK]) {
    out[0] = planar[0];
    out[1] = (dim)conv_blocks(channels);
    out[2] = rank == 4 ? planar[2] : 1;
    out[3] = planar[rank - 1];
    out[4] = CONV_BLOCK;
}

static dim window_out(op_shapes *s, dim in, size_t pad, size_t kernel, size_t dilation, size_t stride,
                      bool up) {
    const dim room = dim_sub(s, dim_add(s, in, (dim)pad), (dim)((kernel - 1) * dilation + 1));
    return dim_add(s, up ? dim_div_ceil(s, room, (dim)stride) : dim_div_floor(s, room, (dim)stride), 1);
}

static status not_known(op_shapes *s) {
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

/* ---- Conv ------------------------------------------------------------------------------------------- */

void blocked_conv_free(void *state) {
    blocked_conv *st = state;
    if (!st) return;
    mem_free(st->bias);
    mem_free(st);
}

static const tensor *source(const op_node *n, const void *state) {
    const blocked_conv *st = state;
    (void)n;
    return st->source.data ? &st->source : NULL;
}

typedef struct pack_job {
    const conv *c;
    const float *from;
    float *to;
} pack_job;

static void pack_part(void *ctx, size_t from, size_t to) {
    const pack_job *j = ctx;
    conv_pack(j->c, j->from, from, to, j->to);
}

static status conv_pack_weights(op_node *n, op_pack *p, error *err) {
    blocked_conv *st = pack_state(p);
    const size_t bytes = conv_packed_floats(&st->c) * sizeof(float);
    st->weights = pack_memory(p, bytes);
    if (!st->weights) return op_error(n, err, CHURON_NO_MEMORY, "no memory for %zu bytes of weights", bytes);
    pack_expect(p, st->weights, bytes);
    pack_job j = {.c = &st->c, .from = st->source.data, .to = st->weights};
    if (st->factors) j.from = pack_multiplied(p, st->factors, j.from);
    if (!j.from) return op_error(n, err, CHURON_NO_MEMORY, "no memory for its weights");
    pack_parallel(p, conv_pack_parts(&st->c), bytes, pack_part, &j);
    st->source = (tensor){0};
    return CHURON_OK;
}

const op_packing blocked_conv_packing = {.source = source, .pack = conv_pack_weights};

/* The addend was taken for one of the same shape because its dimensions have the same names; when the graph
 * runs, one of the two may turn out to be 1 where the other is not. */
static status meet_addend(op_shapes *s, const dim *add, dim out[BLOCKED_RANK], error *err) {
    for (size_t i = 0; i < BLOCKED_RANK; i++) {
        if (add[i] == 1 || add[i] == out[i]) continue;
        if (out[i] != 1) TRY(shapes_same(s, out[i], add[i], "result and what is added to it", NULL, err));
        out[i] = add[i];
    }
    return CHURON_OK;
}

status blocked_single(op_shapes *s, size_t rank, const dim out[BLOCKED_RANK], error *err) {
    const dim four[4] = {out[0], 1, out[2], out[3]}, three[3] = {out[0], 1, out[3]};
    return shapes_out(s, 0, rank, rank == 4 ? four : three, err);
}

static status conv_infer(op_shapes *s, error *err) {
    const blocked_conv *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) return not_known(s);
    dim x[BLOCKED_RANK], out[BLOCKED_RANK];
    const conv *c = &st->c;
    if (c->kind == CONV_PLANAR) {
        if (rank != st->planar_rank)
            return op_error(shapes_node(s), err, CHURON_INVALID, "X: rank %zu expected, got %zu",
                            st->planar_rank, rank);
        TRY(shapes_same(s, in[1], (dim)c->in_channels, "channels of X", NULL, err));
        blocked_dims(in, rank, c->in_channels, x);
    } else {
        memcpy(x, in, sizeof x);
        TRY(shapes_same(s, x[1], (dim)conv_blocks(c->in_channels), "blocks of channels of X", NULL, err));
    }
    out[0] = x[0];
    out[1] = (dim)conv_blocks(c->out_channels);
    out[2] = window_out(s, x[2], c->pad_top + st->end_h, c->kernel_h, c->dilation_h, c->stride_h, false);
    out[3] = window_out(s, x[3], c->pad_left + st->end_w, c->kernel_w, c->dilation_w, c->stride_w, false);
    out[4] = CONV_BLOCK;
    if (c->single) return blocked_single(s, st->planar_rank, out, err);
    size_t add_rank;
    const dim *add;
    if (shapes_running(s) && op_has_input(shapes_node(s), 1) && shapes_in(s, 1, &add_rank, &add))
        TRY(meet_addend(s, add, out, err));
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

typedef struct conv_run_job {
    conv_job job;
    const kernels *k;
    size_t units, scratch_floats;
    float *scratch;
} conv_run_job;

static void conv_member(void *ctx, const pool_member *me) {
    const conv_run_job *j = ctx;
    size_t from, to;
    pool_split(me, j->units, 1, &from, &to);
    if (from < to) conv_run(j->k, &j->job, from, to, j->scratch + me->index * j->scratch_floats);
}

static size_t conv_result(const conv *c, const blocked_conv *st, bool high) {
    const size_t in = high ? c->in_h + c->pad_top + st->end_h : c->in_w + c->pad_left + st->end_w;
    const size_t reach = high ? (c->kernel_h - 1) * c->dilation_h : (c->kernel_w - 1) * c->dilation_w;
    return in > reach ? (in - reach - 1) / (high ? c->stride_h : c->stride_w) + 1 : 0;
}

/* With sizes of the image and of the result. */
static conv conv_of(const blocked_conv *st, const tensor *x) {
    conv c = st->c;
    const bool planar = c.kind == CONV_PLANAR;
    c.in_h = planar ? (x->rank == 4 ? (size_t)x->dims[2] : 1) : (size_t)x->dims[2];
    c.in_w = (size_t)x->dims[planar ? x->rank - 1 : 3];
    c.out_h = conv_result(&c, st, true);
    c.out_w = conv_result(&c, st, false);
    return c;
}

/* An image of one column is one of one row: rows are what tiles are cut from. */
static conv turned(const conv *sized) {
    conv c = *sized;
    if (c.in_w != 1 || c.out_w != 1 || c.kernel_w != 1 || c.pad_left != 0) return c;
    c.in_w = sized->in_h;
    c.in_h = 1;
    c.out_w = sized->out_h;
    c.out_h = 1;
    c.kernel_w = sized->kernel_h;
    c.kernel_h = 1;
    c.stride_w = sized->stride_h;
    c.stride_h = 1;
    c.dilation_w = sized->dilation_h;
    c.dilation_h = 1;
    c.pad_left = sized->pad_top;
    c.pad_top = 0;
    return c;
}

status blocked_conv_run(op_run *r, const conv_job *job, error *err) {
    const conv c = *job->c;
    conv_run_job j = {.job = *job, .k = run_kernels(r)};
    j.job.stop = run_stop(r);
    j.units = conv_units(&c, j.job.batch);
    j.scratch_floats = (conv_scratch_floats(&c) + 15) / 16 * 16;
    const double products = (double)(job->batch * conv_blocks(c.out_channels) * CONV_BLOCK) *
                            (double)(c.out_h * c.out_w) * (double)(c.in_channels / c.groups) *
                            (double)(c.kernel_h * c.kernel_w);
    pool *team = run_pool(r);
    const size_t members = products > 400e3 && j.units > 1 ? pool_threads(team) : 1;
    void *scratch;
    TRY(run_scratch(r, members * j.scratch_floats * sizeof(float), &scratch, err));
    j.scratch = scratch;
    if (members > 1) {
        pool_run(team, conv_member, &j);
    } else {
        conv_run(j.k, &j.job, 0, j.units, j.scratch);
    }
    return CHURON_OK;
}

static status convolve(op_run *r, const conv *sized, const float *add, float *y, error *err) {
    const blocked_conv *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const conv c = turned(sized);
    const conv_job job = {.c = &c,
                          .packed = st->weights,
                          .bias = st->bias,
                          .in = x->data,
                          .add = add,
                          .out = y,
                          .batch = (size_t)x->dims[0]};
    return blocked_conv_run(r, &job, err);
}

static size_t place_in(const int64_t dims[BLOCKED_RANK], const size_t at[4]) {
    size_t place = 0;
    for (size_t i = 0; i < 4; i++) place = place * (size_t)dims[i] + (dims[i] == 1 ? 0 : at[i]);
    return place * CONV_BLOCK;
}

/* The result and the addend in shapes that broadcast: first the convolution alone, then one pixel at a time
 * what the fused one does. */
static status add_broadcast(op_run *r, const conv *c, const tensor *add, const tensor *y, error *err) {
    const int64_t dims[BLOCKED_RANK] = {run_in(r, 0)->dims[0], (int64_t)conv_blocks(c->out_channels),
                                        (int64_t)c->out_h, (int64_t)c->out_w, CONV_BLOCK};
    size_t count;
    TRY(tensor_count(ELEM_F32, BLOCKED_RANK, dims, &count, "convolution", err));
    void *alone;
    TRY(run_scratch(r, count * sizeof(float), &alone, err));
    conv plain = *c;
    plain.activate = plain.affine = false;
    plain.low = -INFINITY;
    plain.high = INFINITY;
    TRY(convolve(r, &plain, NULL, alone, err));
    const float *a = alone, *b = add->data;
    float *to = y->data;
    for (size_t i = 0; i < y->count / CONV_BLOCK; i++, to += CONV_BLOCK) {
        const size_t w = (size_t)y->dims[3], h = (size_t)y->dims[2], blocks = (size_t)y->dims[1];
        const size_t at[4] = {i / w / h / blocks, i / w / h % blocks, i / w % h, i % w};
        const float *p = a + place_in(dims, at), *q = b + place_in(add->dims, at);
        for (size_t l = 0; l < CONV_BLOCK; l++) {
            const float v = p[l] + q[l] < c->low ? c->low : p[l] + q[l];
            to[l] = v > c->high ? c->high : v;
        }
    }
    conv_activate(run_kernels(r), c, y->data, y->count);
    return CHURON_OK;
}

/* Products of many channels rest in the result between blocks of them: an addend that the result is written
 * over is read from a copy then. */
static status apart(op_run *r, const conv *c, const tensor *add, const tensor *y, const float **out,
                    error *err) {
    void *copy;
    *out = add->data;
    if (add->data != y->data || c->groups == c->in_channels ||
        c->in_channels * c->kernel_h * c->kernel_w <= GEMM_K_BLOCK)
        return CHURON_OK;
    TRY(run_scratch(r, y->count * sizeof(float), &copy, err));
    memcpy(copy, add->data, y->count * sizeof(float));
    *out = copy;
    return CHURON_OK;
}

static status run_conv(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *add = run_in(r, 1);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    const conv c = conv_of(run_state(r), x);
    if (c.single) return convolve(r, &c, NULL, y->data, err);
    const bool same = y->dims[0] == x->dims[0] && (size_t)y->dims[2] == c.out_h &&
                      (size_t)y->dims[3] == c.out_w && (!add || add->count == y->count);
    if (add && !same) return add_broadcast(r, &c, add, y, err);
    const float *from = NULL;
    if (add) TRY(apart(r, &c, add, y, &from, err));
    return convolve(r, &c, from, y->data, err);
}

const op_def op_blocked_conv = {.domain = "churon",
                                .name = "Conv",
                                .since = 1,
                                .flags = OP_INPLACE_1, /* over what is added */
                                .signature = "T=T>T",
                                .vars = {{'T', F32}},
                                .release = blocked_conv_free,
                                .infer = conv_infer,
                                .run = run_conv};

/* ---- layout ----------------------------------------------------------------------------------------- */

static status to_infer(op_shapes *s, error *err) {
    const blocked_layout *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) return not_known(s);
    if (rank != st->rank)
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: rank %zu expected, got %zu", st->rank, rank);
    TRY(shapes_same(s, in[1], (dim)st->channels, "channels of X", NULL, err));
    dim out[BLOCKED_RANK];
    blocked_dims(in, rank, st->channels, out);
    return shapes_out(s, 0, BLOCKED_RANK, out, err);
}

static status from_infer(op_shapes *s, error *err) {
    const blocked_layout *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) return not_known(s);
    const dim four[4] = {in[0], (dim)st->channels, in[2], in[3]},
              three[3] = {in[0], (dim)st->channels, in[3]};
    return shapes_out(s, 0, st->rank, st->rank == 4 ? four : three, err);
}

typedef struct layout_job {
    const float *from;
    float *to;
    size_t channels, pixels, blocks;
} layout_job;

static void block_part(void *ctx, size_t from, size_t to) {
    const layout_job *j = ctx;
    for (size_t i = from; i < to; i++) {
        const size_t n = i / j->blocks, b = i % j->blocks;
        conv_block(j->from + n * j->channels * j->pixels, j->channels, j->pixels, b,
                   j->to + i * j->pixels * CONV_BLOCK);
    }
}

static void unblock_part(void *ctx, size_t from, size_t to) {
    const layout_job *j = ctx;
    for (size_t i = from; i < to; i++) {
        const size_t n = i / j->blocks, b = i % j->blocks;
        conv_unblock(j->from + i * j->pixels * CONV_BLOCK, j->channels, j->pixels, b,
                     j->to + n * j->channels * j->pixels);
    }
}

static status change_layout(op_run *r, bool to, error *err) {
    const blocked_layout *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (x->count == 0 || y->count == 0) return CHURON_OK;
    layout_job j = {
        .from = x->data, .to = y->data, .channels = st->channels, .blocks = conv_blocks(st->channels)};
    const tensor *blocked = to ? y : x;
    j.pixels = (size_t)blocked->dims[2] * (size_t)blocked->dims[3];
    run_parallel(r, (size_t)blocked->dims[0] * j.blocks, (double)blocked->count * 0.3,
                 to ? block_part : unblock_part, &j);
    return CHURON_OK;
}

static status to_run(op_run *r, error *err) {
    return change_layout(r, true, err);
}

static status from_run(op_run *r, error *err) {
    return change_layout(r, false, err);
}

const op_def op_to_blocked = {.domain = "churon",
                              .name = "ToBlocked",
                              .since = 1,
                              .signature = "T>T",
                              .vars = {{'T', F32}},
                              .release = mem_free,
                              .infer = to_infer,
                              .run = to_run};
const op_def op_from_blocked = {.domain = "churon",
                                .name = "FromBlocked",
                                .since = 1,
                                .signature = "T>T",
                                .vars = {{'T', F32}},
                                .release = mem_free,
                                .infer = from_infer,
                                .run = from_run};

/* ---- ChannelAffine ---------------------------------------------------------------------------------- */

void blocked_affine_free(void *state) {
    blocked_affine *st = state;
    if (!st) return;
    mem_free(st->scale);
    mem_free(st->shift);
    mem_free(st);
}

typedef struct affine_job {
    const blocked_affine *st;
    const float *x;
    float *y;
    size_t pixels;
} affine_job;

static void affine_part(void *ctx, size_t from, size_t to) {
    const affine_job *j = ctx;
    for (size_t i = from; i < to; i++) {
        const float *scale = j->st->scale + i % j->st->blocks * CONV_BLOCK,
                    *shift = j->st->shift + i % j->st->blocks * CONV_BLOCK;
        const float *x = j->x + i * j->pixels * CONV_BLOCK;
        float *y = j->y + i * j->pixels * CONV_BLOCK;
        const float low = j->st->low, high = j->st->high;
        for (size_t p = 0; p < j->pixels * CONV_BLOCK; p += CONV_BLOCK) {
            for (size_t l = 0; l < CONV_BLOCK; l++) {
                float v = x[p + l] * scale[l] + shift[l];
                v = v < low ? low : v;
                y[p + l] = v > high ? high : v;
            }
        }
    }
}

static status affine_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    affine_job j = {.st = run_state(r), .x = x->data, .pixels = (size_t)(x->dims[2] * x->dims[3])};
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    j.y = y->data;
    run_parallel(r, (size_t)(x->dims[0] * x->dims[1]), (double)x->count * 0.3, affine_part, &j);
    return CHURON_OK;
}

const op_def op_blocked_affine = {.domain = "churon",
                                  .name = "ChannelAffine",
                                  .since = 1,
                                  .flags = OP_INPLACE,
                                  .signature = "T>T",
                                  .vars = {{'T', F32}},
                                  .release = blocked_affine_free,
                                  .infer = infer_same,
                                  .run = affine_run};

/* ---- Unary ------------------------------------------------------------------------------------------ */

typedef struct unary_job {
    const unary_state *st;
    const kernels *k;
    const float *x;
    float *y;
    size_t count;
} unary_job;

enum { UNARY_CHUNK = 4096 };

static void unary_part(void *ctx, size_t from, size_t to) {
    const unary_job *j = ctx;
    const size_t a = from * UNARY_CHUNK, b = to * UNARY_CHUNK < j->count ? to * UNARY_CHUNK : j->count;
    j->k->unary(j->st->function, j->st->p, j->st->q, j->x + a, j->y + a, b - a);
}

static status run_unary(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    unary_job j = {.st = run_state(r), .k = run_kernels(r), .x = x->data, .count = x->count};
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    j.y = y->data;
    run_parallel(r, (x->count + UNARY_CHUNK - 1) / UNARY_CHUNK, (double)x->count, unary_part, &j);
    return CHURON_OK;
}

const op_def op_unary = {.domain = "churon",
                         .name = "Unary",
                         .since = 1,
                         .flags = OP_INPLACE,
                         .signature = "T>T",
                         .vars = {{'T', F32}},
                         .release = mem_free,
                         .infer = infer_same,
                         .run = run_unary};
