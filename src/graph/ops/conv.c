/* conv.c: convolution planes. f32 with more than one input channel a group goes through the kernels' matrix
 * product: patches of the input become packed columns (16 output positions side by side), a block at a time,
 * so that no matrix of all patches exists; the weights are the other operand as they lie in the file.
 * Depthwise and f64 and integer forms are direct. */
#include "graph/ops/conv.h"

#include "base/mem.h"
#include "graph/ops/ops.h"

#include <string.h>

/* Output positions [*from, *to) whose tap at o * stride + shift lies inside [0, in). */
static void tap_range(int64_t shift, int64_t stride, int64_t in, int64_t out, int64_t *from, int64_t *to) {
    *from = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *to = in - 1 - shift < 0 ? 0 : (in - 1 - shift) / stride + 1;
    if (*to > out) *to = out;
    if (*from > *to) *from = *to;
}

#define SPREAD
#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/conv.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/conv.inc"
#undef REAL
#undef FN
#undef SPREAD
#define REAL     uint32_t
#define FN(name) name##_u32
#include "graph/ops/conv.inc"
#undef REAL
#undef FN

static double conv_work(const conv_call *j) {
    return 0.5 * (double)(j->batch * j->out_channels * j->group_in) * (double)j->g.out_size *
           (double)j->g.kernel_size;
}

void conv_f64(op_run *r, conv_call *j) {
    j->stop = run_stop(r);
    run_parallel(r, j->batch * j->out_channels, conv_work(j), conv_planes_f64, j);
}

void conv_u32(op_run *r, conv_call *j) {
    j->stop = run_stop(r);
    run_parallel(r, j->batch * j->out_channels, conv_work(j), conv_planes_u32, j);
}

void conv_spread_f32(op_run *r, conv_call *j) {
    j->stop = run_stop(r);
    run_parallel(r, j->batch * j->out_channels, conv_work(j), spread_planes_f32, j);
}

void conv_spread_f64(op_run *r, conv_call *j) {
    j->stop = run_stop(r);
    run_parallel(r, j->batch * j->out_channels, conv_work(j), spread_planes_f64, j);
}

void conv_spread_plane(const geometry *g, const double *x, const double *w, double *y) {
    spread_plane_f64(g, x, w, y, NULL);
}

/* ---- patches as packed columns ---------------------------------------------------------------------- */

enum { LANES = PACK_ROWS, BLOCK_BYTES = 1 << 20, SERIAL_WORK = 1 << 17 };

/* Consecutive outputs of one row within a group of LANES. */
typedef struct run_of {
    int64_t oz, oy, ox;
    size_t lane, n;
} run_of;

static size_t cut_rows(const geometry *g, int64_t first, size_t n, run_of runs[LANES]) {
    size_t count = 0;
    for (size_t lane = 0; lane < n;) {
        int64_t at = first + (int64_t)lane, ox = at % g->out[2], line = at / g->out[2];
        size_t room = (size_t)(g->out[2] - ox), left = n - lane;
        runs[count++] = (run_of){.oz = line / g->out[1],
                                 .oy = line % g->out[1],
                                 .ox = ox,
                                 .lane = lane,
                                 .n = room < left ? room : left};
        lane += runs[count - 1].n;
    }
    return count;
}

static void take_run(const geometry *g, const run_of *run, const float *plane, int64_t kz, int64_t ky,
                     int64_t kx, float *to) {
    int64_t iz = run->oz * g->stride[0] + kz * g->dilation[0] - g->pad[0];
    int64_t iy = run->oy * g->stride[1] + ky * g->dilation[1] - g->pad[1];
    int64_t ix = run->ox * g->stride[2] + kx * g->dilation[2] - g->pad[2], step = g->stride[2];
    int64_t n = (int64_t)run->n, width = g->in[2];
    if (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1]) {
        for (int64_t i = 0; i < n; i++) to[i] = 0;
        return;
    }
    const float *row = plane + (iz * g->in[1] + iy) * width;
    if (ix >= 0 && ix + (n - 1) * step < width) {
        if (step == 1)
            memcpy(to, row + ix, (size_t)n * sizeof *to);
        else
            for (int64_t i = 0; i < n; i++) to[i] = row[ix + i * step];
        return;
    }
    for (int64_t i = 0; i < n; i++, ix += step) to[i] = ix >= 0 && ix < width ? row[ix] : 0;
}

/* Columns [first, first + n) of the patches of x [channels, in], n <= LANES: [channels * taps][LANES]. */
static void pack_patches(const geometry *g, const float *x, size_t channels, int64_t first, size_t n,
                         float *to) {
    run_of runs[LANES];
    size_t count = cut_rows(g, first, n, runs);
    for (size_t c = 0; c < channels; c++) {
        const float *plane = x + c * (size_t)g->in_size;
        for (int64_t kz = 0; kz < g->kernel[0]; kz++)
            for (int64_t ky = 0; ky < g->kernel[1]; ky++)
                for (int64_t kx = 0; kx < g->kernel[2]; kx++, to += LANES) {
                    for (size_t i = 0; i < count; i++)
                        take_run(g, &runs[i], plane, kz, ky, kx, to + runs[i].lane);
                    for (size_t i = n; i < LANES; i++) to[i] = 0;
                }
    }
}

/* ---- f32 -------------------------------------------------------------------------------------------- */

typedef struct patch_job {
    const conv_call *conv;
    const gemm_epilogue *epilogue;
    const kernels *kernels;
    size_t k, block_groups, n_blocks, n_tasks;
    char *scratch;
    size_t scratch_each, block_bytes;
    stop_flag *stop;
} patch_job;

/* alpha is 1 in a convolution: bias (a row of the product), the addend of the same shape, activation. */
static void finish_rows(const gemm_epilogue *e, const float *bias, size_t rows, size_t j0, size_t j1,
                        float *y, size_t ldy, size_t offset) {
    for (size_t i = 0; i < rows; i++) {
        float *row = y + i * ldy;
        if (bias)
            for (size_t j = j0; j < j1; j++) row[j] += bias[i];
        if (!e) continue;
        if (e->bias) {
            const float *add = e->bias + offset + i * ldy;
            for (size_t j = j0; j < j1; j++) row[j] += add[j];
        }
        gemm_activate(e, row + j0, j1 - j0);
    }
}

static void run_block(const patch_job *p, size_t task, char *scratch) {
    const conv_call *c = p->conv;
    size_t block = task % p->n_blocks, image = task / p->n_blocks, groups = c->in_channels / c->group_in;
    size_t n = image / groups, group = image % groups, out = (size_t)c->g.out_size;
    size_t j0 = block * p->block_groups * LANES, j1 = j0 + p->block_groups * LANES;
    if (j1 > out) j1 = out;
    const float *x = (const float *)c->x + (n * c->in_channels + group * c->group_in) * (size_t)c->g.in_size;
    float *columns = (float *)scratch;
    size_t count = 0;
    for (size_t j = j0; j < j1; j += LANES, count++)
        pack_patches(&c->g, x, c->group_in, (int64_t)j, j1 - j < LANES ? j1 - j : LANES,
                     columns + count * LANES * p->k);
    packed w = {.type = DTYPE_F32,
                .rows = j1 - j0,
                .cols = p->k,
                .group_bytes = p->k * LANES * sizeof(float),
                .data = (uint8_t *)columns};
    activations rows = {.cols = p->k, .f32 = (const float *)c->w + group * c->group_out * p->k};
    size_t offset = (n * c->out_channels + group * c->group_out) * out;
    float *y = (float *)c->y + offset;
    p->kernels->matmul(&w, 0, count, &rows, c->group_out, y + j0, out, scratch + p->block_bytes);
    finish_rows(p->epilogue, c->bias ? (const float *)c->bias + group * c->group_out : NULL, c->group_out, j0,
                j1, y, out, offset);
}

static void run_member(void *ctx, const pool_member *me) {
    const patch_job *p = ctx;
    size_t from, to;
    pool_split(me, p->n_tasks, 1, &from, &to);
    for (size_t i = from; i < to && !stop_now(p->stop); i++)
        run_block(p, i, p->scratch + me->index * p->scratch_each);
}

static status conv_by_product(op_run *r, const conv_call *j, const gemm_epilogue *e, error *err) {
    patch_job p = {.conv = j, .epilogue = e, .kernels = run_kernels(r), .stop = run_stop(r)};
    p.k = j->group_in * (size_t)j->g.kernel_size;
    size_t group_bytes = p.k * LANES * sizeof(float), n_groups = ((size_t)j->g.out_size + LANES - 1) / LANES;
    pool *team = run_pool(r);
    size_t images = j->batch * (j->in_channels / j->group_in);
    size_t members = team && conv_work(j) > SERIAL_WORK ? pool_threads(team) : 1;
    p.block_groups = group_bytes < BLOCK_BYTES / 2 ? BLOCK_BYTES / group_bytes : 2;
    size_t fair = (n_groups * images + members - 1) / members; /* so that every member gets something */
    if (p.block_groups > fair) p.block_groups = fair;
    if (p.block_groups > n_groups) p.block_groups = n_groups;
    p.block_bytes = p.block_groups * group_bytes;
    p.n_blocks = (n_groups + p.block_groups - 1) / p.block_groups;
    p.n_tasks = images * p.n_blocks;
    p.scratch_each = (p.block_bytes + matmul_scratch(p.k, j->group_out) + 127) / 64 * 64;
    void *memory;
    TRY(run_scratch(r, members * p.scratch_each, &memory, err));
    p.scratch = memory;
    if (members > 1)
        pool_run(team, run_member, &p);
    else
        run_member(&p, &(pool_member){.pool = team, .index = 0, .count = 1});
    return CHURON_OK;
}

status conv_f32(op_run *r, const conv_call *j, const gemm_epilogue *e, error *err) {
    size_t outs = j->batch * j->out_channels;
    if (outs == 0 || j->g.out_size == 0) return CHURON_OK;
    if (j->group_in > 1 || (j->group_in == 1 && j->group_out > 4)) return conv_by_product(r, j, e, err);
    conv_call job = *j;
    job.stop = run_stop(r);
    run_parallel(r, outs, conv_work(j), conv_planes_f32, &job);
    finish_rows(e, NULL, outs, 0, (size_t)j->g.out_size, j->y, (size_t)j->g.out_size, 0);
    return CHURON_OK;
}

/* ---- Conv, FusedConv -------------------------------------------------------------------------------- */

status conv_prepare_common(op_node *n, conv_state *st, error *err) {
    TRY(window_prepare(n, &st->w, false, true, true, err));
    return op_attr_int(n, "group", 1, 1, INT32_MAX, &st->group, err);
}

/* NULL when the weights' sizes are not known. */
static status check_channels(op_shapes *s, const conv_state *st, dim channels, const dim *w, error *err) {
    const op_node *n = shapes_node(s);
    if (dim_known(w[0]) && w[0] % st->group)
        return op_error(n, err, CHURON_INVALID,
                        "W: output channels a multiple of group %lld expected, got %lld",
                        (long long)st->group, (long long)w[0]);
    if (dim_known(channels) && dim_known(w[1]) && channels != w[1] * st->group)
        return op_error(
            n, err, CHURON_INVALID, "X: %lld channels expected (W has %lld, group %lld), got %lld",
            (long long)(w[1] * st->group), (long long)w[1], (long long)st->group, (long long)channels);
    return CHURON_OK;
}

status conv_infer_at(op_shapes *s, size_t x, size_t weight, size_t bias, error *err) {
    const conv_state *st = shapes_state(s);
    bool known_x, known_w, known_b = false;
    size_t rx, rw, rb = 0;
    const dim *dx, *dw, *db = NULL;
    TRY(nn_rank(s, x, 3, 2 + WINDOW_MAX, "X", &known_x, &rx, &dx, err));
    TRY(nn_rank(s, weight, 3, 2 + WINDOW_MAX, "W", &known_w, &rw, &dw, err));
    if (op_has_input(shapes_node(s), bias)) TRY(nn_rank(s, bias, 1, 1, "B", &known_b, &rb, &db, err));
    if (!known_x) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (known_w && rw != rx)
        return op_error(shapes_node(s), err, CHURON_INVALID, "W: rank %zu expected, got %zu", rx, rw);
    size_t n = rx - 2;
    dim spatial[WINDOW_MAX], kernel[WINDOW_MAX], sized[WINDOW_MAX], out[2 + WINDOW_MAX];
    dim channels = st->channels_last ? dx[rx - 1] : dx[1];
    for (size_t i = 0; i < n; i++) {
        spatial[i] = dx[st->channels_last ? 1 + i : 2 + i];
        kernel[i] = known_w ? dw[2 + i] : i < st->w.n_kernel ? st->w.kernel[i] : dim_fresh(s);
        if (i < st->w.n_kernel)
            TRY(shapes_same(s, st->w.kernel[i], kernel[i], "kernel_shape and W", NULL, err));
    }
    if (known_w) TRY(check_channels(s, st, channels, dw, err));
    TRY(window_shape(s, &st->w, n, spatial, kernel, sized, err));
    dim m = known_w ? dw[0] : dim_fresh(s);
    if (known_b) TRY(shapes_same(s, db[0], m, "B and output channels", NULL, err));
    out[0] = dx[0];
    if (st->channels_last) {
        for (size_t i = 0; i < n; i++) out[1 + i] = sized[i];
        out[1 + n] = m;
    } else {
        out[1] = m;
        for (size_t i = 0; i < n; i++) out[2 + i] = sized[i];
    }
    return shapes_out(s, 0, rx, out, err);
}

void conv_job_init(conv_call *j, const conv_state *st, const tensor *x, const tensor *w, const tensor *y) {
    size_t n = x->rank - 2, first = st->channels_last ? 1 : 2;
    *j = (conv_call){.batch = (size_t)x->dims[0],
                     .in_channels = (size_t)x->dims[st->channels_last ? x->rank - 1 : 1],
                     .out_channels = (size_t)w->dims[0],
                     .group_in = (size_t)w->dims[1],
                     .group_out = (size_t)(w->dims[0] / st->group)};
    window_geometry(&st->w, n, x->dims + first, y->dims + first, w->dims + 2, &j->g);
}

static status conv_prepare(op_node *n, error *err) {
    conv_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return conv_prepare_common(n, st, err);
}

static status fused_conv_prepare(op_node *n, error *err) {
    static const char *const names[] = {"",          "Relu", "Sigmoid",     "Tanh",
                                        "LeakyRelu", "Clip", "HardSigmoid", NULL};
    conv_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(conv_prepare_common(n, st, err));
    int act;
    const float *params;
    size_t count;
    TRY(op_attr_choice(n, "activation", names, 0, &act, err));
    TRY(op_attr_floats(n, "activation_params", &params, &count, err));
    size_t want = act == GEMM_LEAKY ? 1 : act == GEMM_CLIP || act == GEMM_HARD_SIGMOID ? 2 : 0;
    if (count < want)
        return op_error(n, err, CHURON_INVALID, "activation_params: %zu numbers expected, got %zu", want,
                        count);
    st->epilogue = (gemm_epilogue){.alpha = 1,
                                   .beta = 1,
                                   .act = (gemm_act)act,
                                   .p0 = want > 0 ? params[0] : 0,
                                   .p1 = want > 1 ? params[1] : 0};
    return CHURON_OK;
}

static status conv_infer(op_shapes *s, error *err) {
    return conv_infer_at(s, 0, 1, 2, err);
}

static status conv_run(op_run *r, error *err) {
    const conv_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1), *z = run_in(r, 3);
    elem work = real_work(x->type);
    tensor *y;
    void *to;
    const void *addend = NULL;
    TRY(real_out(r, 0, work, &y, &to, err));
    conv_call j;
    conv_job_init(&j, st, x, w, y);
    j.y = to;
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.w, err));
    TRY(real_in(r, 2, work, &j.bias, err));
    if (z && (z->count != y->count))
        return run_error(r, err, CHURON_INVALID, "Z: %zu elements expected, got %zu", y->count, z->count);
    TRY(real_in(r, 3, work, &addend, err));
    if (work == ELEM_F64) {
        conv_f64(r, &j);
    } else {
        gemm_epilogue e = st->epilogue;
        e.bias = addend;
        TRY(conv_f32(r, &j, e.bias || e.act ? &e : NULL, err));
    }
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

#define CONV(first, last, types)                                                                             \
    {                                                                                                        \
        .domain = "", .name = "Conv", .since = first, .until = last, .signature = "TT=T>T",                  \
        .vars = {{'T', types}}, .prepare = conv_prepare, .release = mem_free, .infer = conv_infer,           \
        .run = conv_run                                                                                      \
    }

static const op_def rows[] = {
    CONV(1, 21, NN_F3),
    CONV(22, 0, ELEMS_FLOAT),
    {.domain = "com.microsoft",
     .name = "FusedConv",
     .since = 1,
     .signature = "TT=TT>T",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16)}},
     .prepare = fused_conv_prepare,
     .release = mem_free,
     .infer = conv_infer,
     .run = conv_run},
};
NN_TABLE(conv);
