/* qimage.c: convolutions of 8-bit images whose channels lie together, and the way there and back. See
 * qimage.h. */
#include "graph/ops/qimage.h"

#include "base/mem.h"
#include "graph/ops/nn.h"

#include <string.h>

static status not_known(op_shapes *s) {
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

static dim window_out(op_shapes *s, dim in, size_t pad, size_t kernel, size_t dilation, size_t stride) {
    const dim room = dim_sub(s, dim_add(s, in, (dim)pad), (dim)((kernel - 1) * dilation + 1));
    return dim_add(s, dim_div_floor(s, room, (dim)stride), 1);
}

/* ---- convolution ------------------------------------------------------------------------------------ */

void qimage_conv_free(void *state) {
    qimage_conv *st = state;
    if (!st) return;
    mem_free(st->packed.w);
    mem_free(st);
}

status qimage_conv_room(qimage_conv *st, error *err) {
    const size_t bytes = qconv_packed_bytes(&st->c), columns = qconv_columns(&st->c);
    if (bytes == 0 || columns > SIZE_MAX / 64 || bytes > SIZE_MAX / 2)
        return error_set(err, CHURON_LIMIT, "weights of a convolution: too large");
    st->packed.w = mem_aligned(64, bytes + 3 * columns * sizeof(int32_t));
    if (!st->packed.w) return error_no_memory(err, "weights of a convolution", bytes);
    st->packed.offset = (int32_t *)(void *)(st->packed.w + bytes);
    st->packed.w_zero = st->packed.offset + columns;
    st->packed.scale = (float *)(void *)(st->packed.w_zero + columns);
    return CHURON_OK;
}

/* The addend was taken for one of the same shape because its dimensions have the same names; when the graph
 * runs, one of the two may turn out to be 1 where the other is not. */
static status meet_addend(op_shapes *s, dim add, dim *out, error *err) {
    if (!shapes_running(s) || add == *out || add == 1) return CHURON_OK;
    if (*out != 1) TRY(shapes_same(s, *out, add, "result and what is added to it", NULL, err));
    *out = add;
    return CHURON_OK;
}

static status conv_infer(op_shapes *s, error *err) {
    const qimage_conv *st = shapes_state(s);
    const qconv *c = &st->c;
    size_t rank, add_rank;
    const dim *x, *add;
    shapes_out_type(s, 0, c->y_signed ? ELEM_I8 : ELEM_U8);
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    TRY(shapes_same(s, x[3], (dim)c->in_channels, "channels of X", NULL, err));
    dim out[QIMAGE_RANK] = {
        x[0], window_out(s, x[1], c->pad_top + st->end_h, c->kernel_h, c->dilation_h, c->stride_h),
        window_out(s, x[2], c->pad_left + st->end_w, c->kernel_w, c->dilation_w, c->stride_w),
        (dim)c->out_channels};
    if (st->adds && shapes_in(s, 1, &add_rank, &add)) {
        for (size_t i = 0; i < QIMAGE_RANK; i++) TRY(meet_addend(s, add[i], &out[i], err));
    }
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

static size_t result_of(size_t in, size_t kernel, size_t dilation, size_t stride) {
    const size_t reach = (kernel - 1) * dilation;
    return in > reach ? (in - reach - 1) / stride + 1 : 0;
}

typedef struct conv_work {
    qconv_job job;
    const kernels *k;
    size_t units, scratch_bytes;
    char *scratch;
} conv_work;

static void conv_member(void *ctx, const pool_member *me) {
    const conv_work *w = ctx;
    size_t from, to;
    pool_split(me, w->units, 1, &from, &to);
    if (from < to) qconv_run(w->k, &w->job, from, to, w->scratch + me->index * w->scratch_bytes);
}

static status convolve(op_run *r, const qconv *c, const tensor *add, uint8_t *y, error *err) {
    const qimage_conv *st = run_state(r);
    const tensor *x = run_in(r, 0);
    conv_work w = {.job = {.c = c,
                           .packed = &st->packed,
                           .in = x->data,
                           .out = y,
                           .batch = (size_t)x->dims[0],
                           .add = add ? add->data : NULL,
                           .pair = st->pair,
                           .stop = run_stop(r)},
                   .k = run_kernels(r)};
    w.units = qconv_units(c, w.job.batch);
    w.scratch_bytes = qconv_scratch(c);
    const double outputs = (double)(w.job.batch * c->out_h * c->out_w) * (double)c->out_channels;
    const double products =
        outputs * (double)(c->in_channels / c->groups) * (double)(c->kernel_h * c->kernel_w);
    pool *team = run_pool(r);
    const size_t members = products > 1e6 && w.units > 1 ? pool_threads(team) : 1;
    void *scratch;
    TRY(run_scratch(r, members * w.scratch_bytes, &scratch, err));
    w.scratch = scratch;
    if (members > 1)
        pool_run(team, conv_member, &w);
    else
        qconv_run(w.k, &w.job, 0, w.units, scratch);
    return CHURON_OK;
}

static size_t place_in(const int64_t dims[QIMAGE_RANK], const size_t at[3]) {
    size_t place = 0;
    for (size_t i = 0; i < 3; i++) place = place * (size_t)dims[i] + (dims[i] == 1 ? 0 : at[i]);
    return place * (size_t)dims[3];
}

/* The result and the addend in shapes that broadcast: first the convolution alone, then pixel by pixel what
 * the fused one does. */
static status add_broadcast(op_run *r, const qconv *c, const tensor *add, const tensor *y, error *err) {
    const qimage_conv *st = run_state(r);
    const int64_t dims[QIMAGE_RANK] = {run_in(r, 0)->dims[0], (int64_t)c->out_h, (int64_t)c->out_w,
                                       (int64_t)c->out_channels};
    size_t count;
    void *alone;
    TRY(tensor_count(ELEM_U8, QIMAGE_RANK, dims, &count, "convolution", err));
    TRY(run_scratch(r, count + 1, &alone, err));
    TRY(convolve(r, c, NULL, alone, err));
    const size_t n = c->out_channels, w = (size_t)y->dims[2], h = (size_t)y->dims[1];
    for (size_t i = 0; i < y->count / n; i++) {
        const size_t at[3] = {i / w / h, i / w % h, i % w};
        run_kernels(r)->qpair(&st->pair, (uint8_t *)alone + place_in(dims, at),
                              (const uint8_t *)add->data + place_in(add->dims, at),
                              (uint8_t *)y->data + i * n, n);
    }
    return CHURON_OK;
}

static status conv_run(op_run *r, error *err) {
    const qimage_conv *st = run_state(r);
    const tensor *x = run_in(r, 0), *add = run_in(r, 1);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    qconv c = st->c;
    c.in_h = (size_t)x->dims[1];
    c.in_w = (size_t)x->dims[2];
    c.out_h = result_of(c.in_h + c.pad_top + st->end_h, c.kernel_h, c.dilation_h, c.stride_h);
    c.out_w = result_of(c.in_w + c.pad_left + st->end_w, c.kernel_w, c.dilation_w, c.stride_w);
    const bool same = y->dims[0] == x->dims[0] && (size_t)y->dims[1] == c.out_h &&
                      (size_t)y->dims[2] == c.out_w && (!add || add->count == y->count);
    return same ? convolve(r, &c, add, y->data, err) : add_broadcast(r, &c, add, y, err);
}

const op_def op_qimage_conv = {.domain = "churon",
                               .name = "QuantizedConv",
                               .since = 1,
                               .signature = "T=U>@",
                               .vars = {{'T', NN_I8}, {'U', NN_I8}},
                               .release = qimage_conv_free,
                               .infer = conv_infer,
                               .run = conv_run};

/* ---- layout ----------------------------------------------------------------------------------------- */

static status to_infer(op_shapes *s, error *err) {
    const qimage_layout *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    if (rank != st->rank)
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: rank %zu expected, got %zu", st->rank, rank);
    TRY(shapes_same(s, x[1], (dim)st->channels, "channels of X", NULL, err));
    const dim out[QIMAGE_RANK] = {x[0], rank == 4 ? x[2] : 1, x[rank - 1], x[1]};
    return shapes_out(s, 0, QIMAGE_RANK, out, err);
}

static status from_infer(op_shapes *s, error *err) {
    const qimage_layout *st = shapes_state(s);
    size_t rank;
    const dim *x;
    shapes_out_type(s, 0, shapes_in_type(s, 0));
    if (!shapes_in(s, 0, &rank, &x)) return not_known(s);
    const dim four[4] = {x[0], x[3], x[1], x[2]}, three[3] = {x[0], x[3], x[2]};
    return shapes_out(s, 0, st->rank, st->rank == 4 ? four : three, err);
}

/* [rows, columns] to [columns, rows] for each of a batch; columns [from, to) of all. */
typedef struct turn {
    const void *x;
    void *y;
    size_t rows, columns, bytes;
} turn;

enum { TILE = 16 };

#define TURN(T)                                                                                              \
    static void turn_##T(const turn *t, size_t image, size_t from, size_t to) {                              \
        const T *x = (const T *)t->x + image * t->rows * t->columns;                                         \
        T *y = (T *)t->y + image * t->rows * t->columns;                                                     \
        for (size_t i0 = 0; i0 < t->rows; i0 += TILE) {                                                      \
            const size_t i1 = i0 + TILE < t->rows ? i0 + TILE : t->rows;                                     \
            for (size_t j = from; j < to; j++) {                                                             \
                for (size_t i = i0; i < i1; i++) y[j * t->rows + i] = x[i * t->columns + j];                 \
            }                                                                                                \
        }                                                                                                    \
    }
TURN(uint8_t)
TURN(uint32_t)

static void turn_part(void *ctx, size_t from, size_t to) { /* of all images' columns */
    const turn *t = ctx;
    while (from < to) {
        const size_t image = from / t->columns, first = from % t->columns,
                     end = to - from < t->columns - first ? first + (to - from) : t->columns;
        size_t step = t->bytes == 1 ? 512 : 128; /* columns whose lines stay in the cache */
        for (size_t j = first; j < end; j += step) {
            const size_t last = end - j < step ? end : j + step;
            if (t->bytes == 1)
                turn_uint8_t(t, image, j, last);
            else
                turn_uint32_t(t, image, j, last);
        }
        from += end - first;
    }
}

static status turn_run(op_run *r, bool to_last, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    const tensor *last = to_last ? y : x;
    const size_t channels = (size_t)last->dims[3], pixels = (size_t)(last->dims[1] * last->dims[2]);
    turn t = {.x = x->data,
              .y = y->data,
              .rows = to_last ? channels : pixels,
              .columns = to_last ? pixels : channels,
              .bytes = elem_describe(x->type)->bytes};
    if (channels == 1 || pixels == 1) {
        memcpy(y->data, x->data, tensor_bytes(y));
        return CHURON_OK;
    }
    run_parallel(r, (size_t)last->dims[0] * t.columns, 0.5 * (double)x->count, turn_part, &t);
    return CHURON_OK;
}

static status to_run(op_run *r, error *err) {
    return turn_run(r, true, err);
}

static status from_run(op_run *r, error *err) {
    return turn_run(r, false, err);
}

#define MOVED (NN_I8 | ELEM_BIT(ELEM_F32))

const op_def op_to_last = {.domain = "churon",
                           .name = "ToLast",
                           .since = 1,
                           .signature = "T>@",
                           .vars = {{'T', MOVED}},
                           .release = mem_free,
                           .infer = to_infer,
                           .run = to_run};
const op_def op_from_last = {.domain = "churon",
                             .name = "FromLast",
                             .since = 1,
                             .signature = "T>@",
                             .vars = {{'T', MOVED}},
                             .release = mem_free,
                             .infer = from_infer,
                             .run = from_run};
