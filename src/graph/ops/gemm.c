#include "graph/ops/gemm.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- packing ---------------------------------------------------------------------------------------- */

enum {
    LANES = PACK_ROWS,
    BLOCK_BYTES = 1 << 20, /* of packed B that is made at once: half of a usual second-level cache */
    SERIAL_WORK = 1 << 17  /* multiply-adds that do not pay for waking a team */
};

static size_t groups_of(size_t n) {
    return (n + LANES - 1) / LANES;
}

/* Columns [j0, j0+LANES) of b to [k][LANES]. */
static void pack_group(const float *b, size_t k, size_t n, size_t row_stride, size_t col_stride, size_t j0,
                       float *to) {
    size_t width = n - j0 < LANES ? n - j0 : LANES;
    b += j0 * col_stride;
    if (col_stride == 1) {
        for (size_t p = 0; p < k; p++) {
            memcpy(to + p * LANES, b + p * row_stride, width * sizeof(float));
            if (width < LANES) memset(to + p * LANES + width, 0, (LANES - width) * sizeof(float));
        }
        return;
    }
    if (width < LANES) memset(to, 0, k * LANES * sizeof(float));
    for (size_t j = 0; j < width; j++)
        for (size_t p = 0; p < k; p++) to[p * LANES + j] = b[j * col_stride + p * row_stride];
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
    for (size_t g = 0; g < groups_of(n); g++)
        pack_group(b, k, n, row_stride, col_stride, g * LANES, (float *)out->memory + g * LANES * k);
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
    const float *const *dense; /* A of each call as dense rows */
    size_t n_calls, block_groups;
    const gemm_epilogue *epilogue;
    char *scratch; /* per member: packed block, then the kernel's */
    size_t scratch_each, block_bytes;
    size_t members;
    bool by_call;
};

/* Groups [g0, g1) of columns and rows [i0, i1). */
static void run_part(const gemm_plan *job, size_t index, size_t g0, size_t g1, size_t i0, size_t i1,
                     char *scratch) {
    const gemm_call *call = &job->calls[index];
    if (i0 == i1 || g0 == g1) return;
    float *c = call->c + i0 * call->ldc;
    activations x = {.cols = call->k, .f32 = job->dense[index] + i0 * call->k};
    size_t m = i1 - i0;
    for (size_t g = g0, end; g < g1; g = end) {
        size_t j0 = g * LANES, j1;
        if (call->k == 0) {
            end = g1, j1 = end * LANES < call->n ? end * LANES : call->n;
            for (size_t i = 0; i < m; i++) memset(c + i * call->ldc + j0, 0, (j1 - j0) * sizeof(float));
        } else if (call->packed) {
            end = g1, j1 = end * LANES < call->n ? end * LANES : call->n;
            job->kernels->matmul(&call->packed->w, g, end, &x, m, c, call->ldc, scratch + job->block_bytes);
        } else {
            end = g + job->block_groups < g1 ? g + job->block_groups : g1;
            j1 = end * LANES < call->n ? end * LANES : call->n;
            float *block = (float *)scratch;
            for (size_t i = g; i < end; i++)
                pack_group(call->b, call->k, call->n, call->b_row, call->b_col, i * LANES,
                           block + (i - g) * LANES * call->k);
            packed w = describe(call->k, j1 - j0, block);
            job->kernels->matmul(&w, 0, end - g, &x, m, c + j0, call->ldc, scratch + job->block_bytes);
        }
        finish(job->epilogue, m, j0, j1, i0, c, call->ldc);
    }
}

static void run_member(void *ctx, const pool_member *me) {
    const gemm_plan *job = ctx;
    char *scratch = job->scratch + me->index * job->scratch_each;
    size_t from, to;
    if (job->by_call) {
        pool_split(me, job->n_calls, 1, &from, &to);
        for (size_t i = from; i < to; i++)
            run_part(job, i, 0, groups_of(job->calls[i].n), 0, job->calls[i].m, scratch);
        return;
    }
    for (size_t i = 0; i < job->n_calls; i++) {
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

/* A of every call as dense rows: its own memory or a copy. */
static status dense_rows(op_run *r, const gemm_call *calls, size_t n, const float *const **out, error *err) {
    void *memory;
    TRY(run_scratch(r, n * sizeof(float *), &memory, err));
    const float **list = memory;
    for (size_t c = 0; c < n; c++) {
        const gemm_call *call = &calls[c];
        list[c] = call->a;
        if ((call->a_col == 1 || call->k <= 1) && (call->a_row == call->k || call->m <= 1)) continue;
        TRY(run_scratch(r, call->m * call->k * sizeof(float), &memory, err));
        float *to = memory;
        for (size_t i = 0; i < call->m; i++)
            for (size_t p = 0; p < call->k; p++)
                to[i * call->k + p] = call->a[i * call->a_row + p * call->a_col];
        list[c] = to;
    }
    *out = (const float *const *)list;
    return CHURON_OK;
}

static status fill_plan(op_run *r, const gemm_call *calls, size_t n_calls, const gemm_epilogue *e,
                        gemm_plan *job, error *err) {
    *job = (gemm_plan){.kernels = run_kernels(r), .calls = calls, .n_calls = n_calls, .epilogue = e};
    TRY(dense_rows(r, calls, n_calls, &job->dense, err));
    size_t max_k = 1, max_m = 1, max_n = 1;
    bool packs = false;
    double work = 0;
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].k > max_k) max_k = calls[i].k;
        if (calls[i].m > max_m) max_m = calls[i].m;
        if (calls[i].n > max_n) max_n = calls[i].n;
        packs |= !calls[i].packed;
        work += (double)calls[i].m * (double)calls[i].n * (double)calls[i].k;
    }
    size_t group_bytes = max_k * LANES * sizeof(float);
    job->block_groups = group_bytes < BLOCK_BYTES / 2 ? BLOCK_BYTES / group_bytes : 2;
    if (job->block_groups > groups_of(max_n)) job->block_groups = groups_of(max_n);
    job->block_bytes = packs ? job->block_groups * group_bytes : 0;
    pool *team = run_pool(r);
    job->members = team && work > SERIAL_WORK ? pool_threads(team) : 1;
    job->by_call = n_calls >= 2 * job->members;
    job->scratch_each = (job->block_bytes + matmul_scratch(max_k, max_m) + 127) / 64 * 64;
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

void gemm_f64(size_t m, size_t n, size_t k, const double *a, size_t a_row, size_t a_col, const double *b,
              size_t b_row, size_t b_col, double *c, size_t ldc) {
    for (size_t i = 0; i < m; i++) {
        double *row = c + i * ldc;
        for (size_t j = 0; j < n; j++) row[j] = 0;
        for (size_t p = 0; p < k; p++) {
            double v = a[i * a_row + p * a_col];
            const double *from = b + p * b_row;
            if (b_col == 1)
                for (size_t j = 0; j < n; j++) row[j] += v * from[j];
            else
                for (size_t j = 0; j < n; j++) row[j] += v * from[j * b_col];
        }
    }
}
