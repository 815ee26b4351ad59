/* gemm_int.c: see gemm_int.h. */
#include "graph/ops/gemm_int.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    ROWS = 168,
    PANELS = 4,             /* of a unit: enough to pay for its call, few enough to share out */
    WORK_A_NANOSECOND = 100 /* multiply-adds, for run_parallel's measure */
};

static size_t columns_of(size_t n) {
    return qgemm_panels(n) * QGEMM_PANEL;
}

status int_pack_create(int_packed *out, const void *b, elem type, size_t k, size_t n, size_t row, size_t col,
                       error *err) {
    *out = (int_packed){.k = k, .n = n, .is_signed = type == ELEM_I8};
    const size_t bytes = qgemm_packed_bytes(k, n), sums = columns_of(n) * sizeof(int32_t);
    if ((bytes == 0 && k != 0 && n != 0) || bytes > SIZE_MAX - sums - 64)
        return error_set(err, CHURON_LIMIT, "packed matrix: %zu x %zu is too large", k, n);
    out->memory = mem_aligned(64, bytes + sums + 64);
    if (!out->memory) return error_no_memory(err, "packed matrix", bytes + sums + 64);
    out->b = out->memory;
    out->sums = (int32_t *)(void *)((char *)out->memory + bytes);
    qgemm_pack(b, out->is_signed, row, col, k, n, 0, qgemm_panels(n), out->b, out->sums);
    return CHURON_OK;
}

void int_pack_free(int_packed *b) {
    mem_free(b->memory);
    *b = (int_packed){0};
}

/* ---- sharing out ------------------------------------------------------------------------------------ */

typedef struct share {
    const kernels *k;
    const qgemm *g;
    size_t m, row_units, panel_units;
    void (*after)(void *ctx, size_t m0, size_t m1, size_t j0, size_t j1);
    void *ctx;
} share;

static void run_units(void *ctx, size_t from, size_t to) {
    const share *s = ctx;
    const size_t all = qgemm_panels(s->g->n);
    for (size_t unit = from; unit < to; unit++) {
        const size_t rows = unit / s->panel_units, panels = unit % s->panel_units;
        const size_t m0 = s->m * rows / s->row_units, m1 = s->m * (rows + 1) / s->row_units;
        const size_t p0 = all * panels / s->panel_units, p1 = all * (panels + 1) / s->panel_units;
        qgemm_run(s->k, s->g, m0, m1, p0, p1);
        const size_t end = p1 * QGEMM_PANEL;
        if (s->after) s->after(s->ctx, m0, m1, p0 * QGEMM_PANEL, end < s->g->n ? end : s->g->n);
    }
}

void gemm_int_share(op_run *r, const qgemm *g, size_t m,
                    void (*after)(void *ctx, size_t m0, size_t m1, size_t j0, size_t j1), void *ctx) {
    if (m == 0 || g->n == 0) return;
    qgemm stopping = *g;
    stopping.stop = run_stop(r);
    share s = {.k = run_kernels(r), .g = &stopping, .m = m, .after = after, .ctx = ctx};
    s.row_units = (m + ROWS - 1) / ROWS;
    s.panel_units = (qgemm_panels(g->n) + PANELS - 1) / PANELS;
    const double work = (double)m * (double)g->n * (double)g->k / WORK_A_NANOSECOND;
    run_parallel(r, s.row_units * s.panel_units, work, run_units, &s);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

/* Scratch for the largest of the calls, used by one after the other. */
typedef struct room {
    uint8_t *rows;
    int8_t *b;
    int32_t *sums, *a_zero, *a_rest, *b_zero;
    float *b_scale, *bias;
} room;

static status make_room(op_run *r, const int_call *calls, size_t n_calls, room *out, error *err) {
    size_t m = 1, n = 1, rows = 1, most = 1;
    for (size_t i = 0; i < n_calls; i++) {
        const int_call *c = &calls[i];
        size_t bytes;
        if (!size_mul(c->m, qgemm_padded(c->k), &bytes))
            return run_error(r, err, CHURON_LIMIT, "product: %zu x %zu is too large", c->m, c->k);
        if (bytes > rows) rows = bytes;
        const size_t b = qgemm_packed_bytes(c->k, c->n);
        if (b > most) most = b;
        if (c->m > m) m = c->m;
        if (columns_of(c->n) > n) n = columns_of(c->n);
    }
    void *memory;
    *out = (room){0};
    TRY(run_scratch(r, rows, &memory, err));
    out->rows = memory;
    TRY(run_scratch(r, 2 * m * sizeof(int32_t), &memory, err));
    out->a_zero = memory;
    out->a_rest = out->a_zero + m;
    TRY(run_scratch(r, 4 * n * sizeof(int32_t), &memory, err));
    out->sums = memory;
    out->b_zero = out->sums + n;
    out->b_scale = (float *)(out->b_zero + n);
    out->bias = out->b_scale + n;
    TRY(run_scratch(r, most, &memory, err));
    out->b = memory;
    return CHURON_OK;
}

static const float *padded(const float *from, size_t n, float *to) {
    if (!from) return NULL;
    memcpy(to, from, n * sizeof *to);
    memset(to + n, 0, (columns_of(n) - n) * sizeof *to);
    return to;
}

typedef struct pack_job {
    const int_call *c;
    const room *to;
} pack_job;

static void pack_panels(void *ctx, size_t from, size_t to) {
    const pack_job *j = ctx;
    qgemm_pack(j->c->b, j->c->b_type == ELEM_I8, j->c->b_row, 1, j->c->k, j->c->n, from, to, j->to->b,
               j->to->sums);
}

/* B as the call gives it, its zero points moved to int8. */
static void describe_b(op_run *r, const int_call *c, const room *to, qgemm *g) {
    const bool ready = c->packed && c->packed->memory;
    const bool is_signed = ready ? c->packed->is_signed : c->b_type == ELEM_I8;
    if (ready) {
        g->b = c->packed->b;
        g->b_sums = c->packed->sums;
    } else {
        pack_job j = {c, to};
        run_parallel(r, qgemm_panels(c->n), (double)c->k * (double)c->n, pack_panels, &j);
        g->b = to->b;
        g->b_sums = to->sums;
    }
    int32_t any = 0;
    for (size_t j = 0; j < columns_of(c->n); j++) {
        to->b_zero[j] = j < c->n ? c->b_zero[j] - (is_signed ? 0 : 128) : 0;
        any |= to->b_zero[j];
    }
    g->b_zero = any ? to->b_zero : NULL;
}

static void describe_a(const int_call *c, const room *to, qgemm *g) {
    const bool is_signed = c->a_type == ELEM_I8;
    g->a = c->a;
    g->a_row = c->a_row;
    if (is_signed || c->k % QGEMM_QUAD != 0) {
        qgemm_rows(c->a, is_signed, c->a_row, c->m, c->k, to->rows);
        g->a = to->rows;
        g->a_row = qgemm_padded(c->k);
    }
    for (size_t i = 0; i < c->m; i++) to->a_zero[i] = c->a_zero[i] + (is_signed ? 128 : 0);
    g->a_zero = to->a_zero;
    if (g->b_zero) qgemm_rest(g->a, g->a_row, c->m, c->k, g->a_zero, to->a_rest);
    g->a_rest = to->a_rest;
}

status gemm_int(op_run *r, const int_call *calls, size_t n_calls, error *err) {
    room to;
    TRY(make_room(r, calls, n_calls, &to, err));
    for (size_t i = 0; i < n_calls; i++) {
        const int_call *c = &calls[i];
        if (c->m == 0 || c->n == 0) continue;
        qgemm g = {.n = c->n,
                   .k = c->k,
                   .sums = c->sums,
                   .y = c->y,
                   .c_row = c->n,
                   .a_scale = c->a_scale,
                   .b_scale = padded(c->b_scale, c->n, to.b_scale),
                   .bias = padded(c->bias, c->n, to.bias),
                   .low = -INFINITY,
                   .high = INFINITY};
        describe_b(r, c, &to, &g);
        describe_a(c, &to, &g);
        gemm_int_share(r, &g, c->m, NULL, NULL);
    }
    return CHURON_OK;
}
