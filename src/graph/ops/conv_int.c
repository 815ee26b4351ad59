/* conv_int.c: see conv_int.h. */
#include "graph/ops/conv_int.h"

#include "base/mem.h"

#include <string.h>

enum { ROWS = 56 }; /* of patches at a time: four tiles */

bool conv_int_suits(size_t group_out) {
    return group_out >= 4;
}

void conv_int_free(conv_int_weights *w) {
    for (size_t i = 0; w->groups && i < w->n_groups; i++) int_pack_free(&w->groups[i]);
    mem_free(w->groups);
    *w = (conv_int_weights){0};
}

/* [M, C, taps] to [M, taps, C]. */
static void taps_first(const uint8_t *w, size_t m, size_t channels, size_t taps, uint8_t *to) {
    for (size_t i = 0; i < m; i++, w += channels * taps)
        for (size_t t = 0; t < taps; t++)
            for (size_t c = 0; c < channels; c++) *to++ = w[c * taps + t];
}

status conv_int_pack(conv_int_weights *out, const tensor *w, size_t n_groups, error *err) {
    *out = (conv_int_weights){0};
    if (w->count == 0) return CHURON_OK;
    const size_t m = (size_t)w->dims[0] / n_groups, channels = (size_t)w->dims[1],
                 k = w->count / (size_t)w->dims[0];
    uint8_t *turned = mem_alloc(w->count);
    conv_int_weights local = {.groups = mem_calloc(n_groups, sizeof *local.groups), .n_groups = n_groups};
    status st = CHURON_OK;
    if (!turned || !local.groups) st = error_no_memory(err, "weights of a convolution", w->count);
    if (st == CHURON_OK) taps_first(w->data, (size_t)w->dims[0], channels, k / channels, turned);
    for (size_t g = 0; st == CHURON_OK && g < n_groups; g++)
        st = int_pack_create(&local.groups[g], turned + g * m * k, w->type, k, m, 1, k, err);
    mem_free(turned);
    if (st == CHURON_OK)
        *out = local;
    else
        conv_int_free(&local);
    return st;
}

/* ---- X as [N, pixels, C] of uint8 ------------------------------------------------------------------- */

typedef struct plan {
    const conv_int *c;
    const kernels *k;
    const uint8_t *x; /* [N, in_size, C] */
    uint8_t *x_own;
    uint8_t pad;
    size_t channels, rows_of, units, row_bytes;
    const int32_t *a_zero; /* [ROWS] */
    int32_t *b_zero;       /* [groups, columns] */
    bool has_b_zero;
    size_t columns, member_bytes;
    char *scratch;
    stop_flag *stop;
} plan;

static void turn_pixels(void *ctx, size_t from, size_t to) { /* of all images */
    const plan *p = ctx;
    const size_t pixels = (size_t)p->c->j.g.in_size, channels = p->channels;
    const uint8_t flip = p->c->x->type == ELEM_I8 ? 0x80 : 0, *x = p->c->x->data;
    if (p->c->channels_last) {
        for (size_t i = from * channels; i < to * channels; i++) p->x_own[i] = x[i] ^ flip;
        return;
    }
    for (size_t i = from; i < to; i++) {
        const uint8_t *pixel = x + i / pixels * pixels * channels + i % pixels;
        for (size_t c = 0; c < channels; c++) p->x_own[i * channels + c] = pixel[c * pixels] ^ flip;
    }
}

/* ---- patches ---------------------------------------------------------------------------------------- */

/* The taps of one row of the kernel: runs of channels, or one run where they lie side by side. */
static uint8_t *copy_taps(const plan *p, const uint8_t *line, int64_t ix, size_t group, uint8_t *to) {
    const geometry *g = &p->c->j.g;
    const size_t n = p->c->j.group_in;
    const int64_t taps = g->kernel[2], step = g->dilation[2];
    if (line && step == 1 && n == p->channels && ix >= 0 && ix + taps <= g->in[2]) {
        memcpy(to, line + (size_t)ix * n, (size_t)taps * n);
        return to + (size_t)taps * n;
    }
    for (int64_t t = 0; t < taps; t++, ix += step, to += n) {
        if (line && ix >= 0 && ix < g->in[2])
            memcpy(to, line + (size_t)ix * p->channels + group * n, n);
        else
            memset(to, p->pad, n);
    }
    return to;
}

static void copy_patch(const plan *p, size_t image, size_t group, size_t pixel, uint8_t *to) {
    const geometry *g = &p->c->j.g;
    const uint8_t *x = p->x + image * (size_t)g->in_size * p->channels, *const end = to + p->row_bytes;
    const int64_t at = (int64_t)pixel, ox = at % g->out[2], oy = at / g->out[2] % g->out[1],
                  oz = at / g->out[2] / g->out[1];
    for (int64_t kz = 0; kz < g->kernel[0]; kz++) {
        const int64_t iz = oz * g->stride[0] + kz * g->dilation[0] - g->pad[0];
        for (int64_t ky = 0; ky < g->kernel[1]; ky++) {
            const int64_t iy = oy * g->stride[1] + ky * g->dilation[1] - g->pad[1];
            const bool inside = iz >= 0 && iz < g->in[0] && iy >= 0 && iy < g->in[1];
            const uint8_t *line = inside ? x + (size_t)((iz * g->in[1] + iy) * g->in[2]) * p->channels : NULL;
            to = copy_taps(p, line, ox * g->stride[2] - g->pad[2], group, to);
        }
    }
    memset(to, 0, (size_t)(end - to));
}

/* ---- results ---------------------------------------------------------------------------------------- */

/* rows x group_out sums of consecutive pixels to where they belong; bytes is scratch of a row. */
static void store_rows(const plan *p, size_t image, size_t group, size_t pixel, size_t rows, int32_t *sums,
                       uint8_t *bytes) {
    const conv_int *c = p->c;
    const size_t n = c->j.group_out, first = group * n, pixels = (size_t)c->j.g.out_size,
                 m = c->j.out_channels;
    const bool is_signed = c->y && c->y->type == ELEM_I8;
    for (size_t i = 0; i < rows; i++, sums += n) {
        for (size_t j = 0; c->bias && j < n; j++)
            sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)c->bias[first + j]);
        if (c->sums) {
            for (size_t j = 0; j < n; j++) c->sums[(image * m + first + j) * pixels + pixel + i] = sums[j];
            continue;
        }
        uint8_t *y = c->y->data,
                *row = c->channels_last ? y + (image * pixels + pixel + i) * m + first : bytes;
        p->k->requantize(sums, c->scale + first, n, c->y_zero, is_signed ? -128 : 0, is_signed ? 127 : 255,
                         row);
        for (size_t j = 0; !c->channels_last && j < n; j++)
            y[(image * m + first + j) * pixels + pixel + i] = bytes[j];
    }
}

static void run_unit(const plan *p, size_t unit, char *scratch) {
    const conv_int *c = p->c;
    const size_t chunk = unit % p->rows_of, group = unit / p->rows_of % c->w->n_groups,
                 image = unit / p->rows_of / c->w->n_groups;
    const size_t pixels = (size_t)c->j.g.out_size, from = pixels * chunk / p->rows_of,
                 rows = pixels * (chunk + 1) / p->rows_of - from, n = c->j.group_out;
    const int_packed *w = &c->w->groups[group];
    int32_t *sums = (int32_t *)(void *)scratch, *rest = sums + ROWS * n;
    uint8_t *patches = (uint8_t *)(rest + ROWS), *bytes = patches + ROWS * p->row_bytes;
    for (size_t i = 0; i < rows; i++) copy_patch(p, image, group, from + i, patches + i * p->row_bytes);
    const qgemm g = {.n = n,
                     .k = w->k,
                     .a = patches,
                     .a_row = p->row_bytes,
                     .b = w->b,
                     .b_sums = w->sums,
                     .b_zero = p->has_b_zero ? p->b_zero + group * p->columns : NULL,
                     .a_zero = p->a_zero,
                     .a_rest = rest,
                     .sums = sums,
                     .c_row = n,
                     .stop = p->stop};
    if (p->has_b_zero) qgemm_rest(patches, p->row_bytes, rows, w->k, p->a_zero, rest);
    qgemm_run(p->k, &g, 0, rows, 0, qgemm_panels(n));
    store_rows(p, image, group, from, rows, sums, bytes);
}

static void member(void *ctx, const pool_member *me) {
    const plan *p = ctx;
    size_t from, to;
    pool_split(me, p->units, 1, &from, &to);
    for (size_t i = from; i < to && !stop_now(p->stop); i++)
        run_unit(p, i, p->scratch + me->index * p->member_bytes);
}

/* Zero points of A and B as the product reads them. */
static status move_zeros(op_run *r, plan *p, error *err) {
    const conv_int *c = p->c;
    const bool w_signed = c->w->groups[0].is_signed;
    const size_t n = c->j.group_out;
    void *memory;
    p->columns = qgemm_panels(n) * QGEMM_PANEL;
    TRY(run_scratch(r, (ROWS + c->w->n_groups * p->columns) * sizeof(int32_t), &memory, err));
    int32_t *a_zero = memory;
    for (size_t i = 0; i < ROWS; i++) a_zero[i] = c->x_zero + (c->x->type == ELEM_I8 ? 128 : 0);
    p->a_zero = a_zero;
    p->b_zero = a_zero + ROWS;
    memset(p->b_zero, 0, c->w->n_groups * p->columns * sizeof(int32_t));
    for (size_t i = 0; i < c->j.out_channels; i++) {
        const int32_t zero = c->w_zero[i] - (w_signed ? 0 : 128);
        p->b_zero[i / n * p->columns + i % n] = zero;
        p->has_b_zero |= zero != 0;
    }
    p->pad = (uint8_t)a_zero[0];
    return CHURON_OK;
}

status conv_int_run(op_run *r, const conv_int *c, error *err) {
    const conv_call *j = &c->j;
    const size_t pixels = (size_t)j->g.out_size;
    if (j->batch * j->out_channels * pixels == 0) return CHURON_OK;
    plan p = {.c = c, .k = run_kernels(r), .x = c->x->data, .channels = j->in_channels, .stop = run_stop(r)};
    void *memory;
    TRY(move_zeros(r, &p, err));
    if (!c->channels_last || c->x->type == ELEM_I8) {
        TRY(run_scratch(r, c->x->count, &memory, err));
        p.x = p.x_own = memory;
        run_parallel(r, j->batch * (size_t)j->g.in_size, (double)c->x->count, turn_pixels, &p);
    }
    p.row_bytes = qgemm_padded(c->w->groups[0].k);
    p.rows_of = (pixels + ROWS - 1) / ROWS;
    p.units = j->batch * c->w->n_groups * p.rows_of;
    const size_t n = j->group_out;
    p.member_bytes = (((ROWS * n + ROWS) * sizeof(int32_t) + ROWS * p.row_bytes + n) + 127) / 64 * 64;
    pool *team = run_pool(r);
    const double work = (double)p.units * ROWS * (double)c->w->groups[0].k * (double)n;
    const size_t members = work > 1e6 && p.units > 1 ? pool_threads(team) : 1;
    TRY(run_scratch(r, members * p.member_bytes, &memory, err));
    p.scratch = memory;
    if (members > 1)
        pool_run(team, member, &p);
    else
        member(&p, &(pool_member){.pool = team, .index = 0, .count = 1});
    return CHURON_OK;
}
