#include "graph/ops/gemm.h"

#include "base/mem.h"
#include "kernel/gemm.h"
#include "kernel/gemm64.h"

#include <math.h>
#include <string.h>

/* ---- packing ---------------------------------------------------------------------------------------- */

enum {
    LANES = PACK_ROWS,
    BLOCK_BYTES = 1 << 20, /* of packed B that is made at once: half of a usual second-level cache */
    IN_PLACE_ROWS = 4,
    SERIAL_WORK = 1 << 17 /* multiply-adds that do not pay for waking a team */
};

static size_t groups_of(size_t n) {
    return (n + LANES - 1) / LANES;
}

/* Groups [g0, g1) of columns of b to [g1 - g0][k][LANES]. Rows of b that lie together are read along. */
static void pack_panels(const float *b, size_t k, size_t n, size_t row_stride, size_t col_stride, size_t g0,
                        size_t g1, float *to) {
    if (col_stride != 1) {
        gemm_pack(b + g0 * LANES * col_stride, row_stride, col_stride, k, n - g0 * LANES, 0, g1 - g0, to);
        return;
    }
    const size_t whole = n / LANES < g1 ? n / LANES : g1, rest = n % LANES;
    for (size_t p = 0; p < k; p++) {
        const float *from = b + p * row_stride + g0 * LANES;
        float *row = to + p * LANES;
        for (size_t g = g0; g < whole; g++, from += LANES, row += k * LANES)
            memcpy(row, from, LANES * sizeof *row);
        if (whole == g1) continue;
        memcpy(row, from, rest * sizeof *row);
        memset(row + rest, 0, (LANES - rest) * sizeof *row);
    }
}

static packed describe(size_t k, size_t n, void *data) {
    return (packed){
        .type = DTYPE_F32, .rows = n, .cols = k, .group_bytes = k * LANES * sizeof(float), .data = data};
}

status gemm_pack_create(gemm_packed *out, const float *b, size_t k, size_t n, size_t row_stride,
                        size_t col_stride, error *err) {
    *out = (gemm_packed){0};
    size_t count;
    if (!size_mul(groups_of(n) * LANES, k, &count) || count > SIZE_MAX / sizeof(float))
        return error_set(err, CHURON_LIMIT, "packed matrix: %zu x %zu is too large", k, n);
    size_t bytes = count * sizeof(float);
    out->memory = mem_aligned(64, bytes ? bytes : 64);
    if (!out->memory) return error_no_memory(err, "packed matrix", bytes);
    pack_panels(b, k, n, row_stride, col_stride, 0, groups_of(n), out->memory);
    out->w = describe(k, n, out->memory);
    return CHURON_OK;
}

void gemm_pack_free(gemm_packed *b) {
    mem_free(b->memory);
    *b = (gemm_packed){0};
}

/* ---- epilogue --------------------------------------------------------------------------------------- */

void gemm_activate(const gemm_epilogue *e, float *x, size_t n) {
    switch (e->act) {
    case GEMM_NONE: break;
    case GEMM_RELU:
        for (size_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
        break;
    case GEMM_SIGMOID:
        for (size_t i = 0; i < n; i++) x[i] = 1 / (1 + expf(-x[i]));
        break;
    case GEMM_TANH:
        for (size_t i = 0; i < n; i++) x[i] = tanhf(x[i]);
        break;
    case GEMM_LEAKY:
        for (size_t i = 0; i < n; i++) x[i] = x[i] < 0 ? e->p0 * x[i] : x[i];
        break;
    case GEMM_CLIP:
        for (size_t i = 0; i < n; i++) x[i] = x[i] < e->p0 ? e->p0 : x[i] > e->p1 ? e->p1 : x[i];
        break;
    case GEMM_HARD_SIGMOID:
        for (size_t i = 0; i < n; i++) {
            float v = e->p0 * x[i] + e->p1;
            x[i] = v < 0 ? 0 : v > 1 ? 1 : v;
        }
        break;
    }
}

/* Rows [0, m) and columns [j0, j1) of c. */
static void finish(const gemm_epilogue *e, size_t m, size_t j0, size_t j1, size_t i0, float *c, size_t ldc) {
    if (!e) return;
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        if (e->alpha != 1.0F)
            for (size_t j = j0; j < j1; j++) row[j] *= e->alpha;
        if (e->bias) {
            const float *bias = e->bias + (i0 + i) * e->bias_row;
            if (e->bias_col == 0) {
                float add = e->beta * bias[0];
                for (size_t j = j0; j < j1; j++) row[j] += add;
            } else {
                for (size_t j = j0; j < j1; j++) row[j] += e->beta * bias[j * e->bias_col];
            }
        }
        if (e->act) gemm_activate(e, row + j0, j1 - j0);
    }
}

/* ---- f32 -------------------------------------------------------------------------------------------- */

struct gemm_plan {
    const kernels *kernels;
    const gemm_call *calls;
    size_t n_calls, block_groups;
    const gemm_epilogue *epilogue;
    char *scratch; /* per member: packed block, then the kernel's */
    size_t scratch_each, block_bytes;
    size_t members;
    bool by_call;
    stop_flag *stop;
};

/* Rows [i0, i1) of A times columns [j0, j1), whose panels lie at b. */
static void run_panels(const gemm_plan *job, const gemm_call *call, const float *b, size_t j0, size_t j1,
                       size_t i0, size_t i1, float *scratch) {
    gemm g = {.n = j1 - j0,
              .k = call->k,
              .a = call->a + i0 * call->a_row,
              .a_row = call->a_row,
              .a_k = call->a_col,
              .n_runs = 1,
              .run = call->k,
              .b = b,
              .c = call->c + i0 * call->ldc + j0,
              .c_row = call->ldc,
              .c_panel = GEMM_PANEL,
              .low = -INFINITY,
              .high = INFINITY,
              .stop = job->stop};
    gemm_run(job->kernels, &g, 0, i1 - i0, 0, gemm_panels(g.n), scratch);
}

/* Few rows do not pay for packing B. */
static bool reads_b_in_place(const gemm_call *call) {
    return !call->packed && call->m <= IN_PLACE_ROWS && call->b_col == 1 &&
           (call->a_col == 1 || call->k <= 1);
}

/* Panels [g0, g1) and rows [i0, i1). */
static void run_part(const gemm_plan *job, size_t index, size_t g0, size_t g1, size_t i0, size_t i1,
                     char *scratch) {
    const gemm_call *call = &job->calls[index];
    const size_t last = g1 * LANES < call->n ? g1 * LANES : call->n;
    if (i0 == i1 || g0 == g1) return;
    float *c = call->c + i0 * call->ldc, *work = (float *)(void *)(scratch + job->block_bytes);
    if (reads_b_in_place(call)) {
        for (size_t i = i0; i < i1 && !stop_now(job->stop); i++)
            job->kernels->vector_matrix(call->a + i * call->a_row, call->b + g0 * LANES, call->b_row, call->k,
                                        last - g0 * LANES, call->c + i * call->ldc + g0 * LANES);
        finish(job->epilogue, i1 - i0, g0 * LANES, last, i0, c, call->ldc);
        return;
    }
    for (size_t g = g0, end; g < g1 && !stop_now(job->stop); g = end) {
        end = call->packed || g1 - g < job->block_groups ? g1 : g + job->block_groups;
        const size_t j0 = g * LANES, j1 = end * LANES < call->n ? end * LANES : call->n;
        const float *panels = (const float *)(void *)scratch;
        if (call->packed) {
            panels = (const float *)(const void *)call->packed->w.data + g * LANES * call->k;
        } else {
            pack_panels(call->b, call->k, call->n, call->b_row, call->b_col, g, end,
                        (float *)(void *)scratch);
        }
        run_panels(job, call, panels, j0, j1, i0, i1, work);
        finish(job->epilogue, i1 - i0, j0, j1, i0, c, call->ldc);
    }
}

static void run_member(void *ctx, const pool_member *me) {
    const gemm_plan *job = ctx;
    char *scratch = job->scratch + me->index * job->scratch_each;
    size_t from, to;
    if (job->by_call) {
        pool_split(me, job->n_calls, 1, &from, &to);
        for (size_t i = from; i < to && !stop_now(job->stop); i++)
            run_part(job, i, 0, groups_of(job->calls[i].n), 0, job->calls[i].m, scratch);
        return;
    }
    for (size_t i = 0; i < job->n_calls && !stop_now(job->stop); i++) {
        const gemm_call *call = &job->calls[i];
        size_t groups = groups_of(call->n);
        if (groups >= 2 * me->count || groups >= call->m) {
            pool_split(me, groups, 1, &from, &to);
            run_part(job, i, from, to, 0, call->m, scratch);
        } else {
            pool_split(me, call->m, 1, &from, &to);
            run_part(job, i, 0, groups, from, to, scratch);
        }
    }
}

static status fill_plan(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e,
                        gemm_plan *job, error *err) {
    *job = (gemm_plan){
        .kernels = run_kernels(r), .calls = calls, .n_calls = n_calls, .epilogue = e, .stop = run_stop(r)};
    size_t max_k = 1, max_n = 1;
    bool packs = false;
    double work = 0;
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].k > max_k) max_k = calls[i].k;
        if (calls[i].n > max_n) max_n = calls[i].n;
        packs |= !calls[i].packed && !reads_b_in_place(&calls[i]);
        work += (double)calls[i].m * (double)calls[i].n * (double)calls[i].k;
    }
    size_t group_bytes = max_k * LANES * sizeof(float);
    job->block_groups = group_bytes < BLOCK_BYTES / 2 ? BLOCK_BYTES / group_bytes : 2;
    if (job->block_groups > groups_of(max_n)) job->block_groups = groups_of(max_n);
    job->block_bytes = packs ? job->block_groups * group_bytes : 0;
    pool *team = run_pool(r);
    job->members = team && work > SERIAL_WORK ? pool_threads(team) : 1;
    job->by_call = n_calls >= 2 * job->members;
    job->scratch_each = (job->block_bytes + gemm_scratch_floats(max_k) * sizeof(float) + 127) / 64 * 64;
    void *memory;
    TRY(run_scratch(r, job->members * job->scratch_each, &memory, err));
    job->scratch = memory;
    return CHURON_OK;
}

void gemm_plan_run(op_run *r, gemm_plan *plan) {
    pool *team = run_pool(r);
    if (plan->members > 1)
        pool_run(team, run_member, plan);
    else
        run_member(plan, &(pool_member){.pool = team, .index = 0, .count = 1});
}

status gemm_plan_f32(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e,
                     gemm_plan **out, error *err) {
    void *memory;
    TRY(run_scratch(r, sizeof **out, &memory, err));
    *out = memory;
    return fill_plan(r, calls, n_calls, e, *out, err);
}

status gemm_f32(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e, error *err) {
    if (n_calls == 0) return CHURON_OK;
    gemm_plan plan;
    TRY(fill_plan(r, calls, n_calls, e, &plan, err));
    gemm_plan_run(r, &plan);
    return CHURON_OK;
}

/* ---- f64 --------------------------------------------------------------------------------------------- */

void gemm_f64(const kernels *table, stop_flag *end, size_t m, size_t n, size_t k, const double *a,
              size_t a_row, size_t a_col, const double *b, size_t b_row, size_t b_col, double *c,
              size_t ldc) {
    const gemm64 g = {.m = m,
                      .n = n,
                      .k = k,
                      .a = a,
                      .a_row = a_row,
                      .a_k = a_col,
                      .b = b,
                      .b_k = b_row,
                      .b_col = b_col,
                      .c = c,
                      .c_row = ldc,
                      .stop = end};
    gemm64_run(table, &g);
}
