/* attend.c: see attend.h. */
#include "graph/ops/attend.h"

#include "kernel/gemm.h"

#include <math.h>

enum { MOST_ROWS = 168, SCORE_FLOATS = 1 << 17 };

typedef struct job {
    const attend *a;
    const kernels *kernels;
    stop_flag *stop;
    size_t rows, blocks, units; /* of a block; of a head; in all */
    size_t ld;                  /* of a row of scores */
    size_t each;                /* floats of scratch of a member */
    float *scratch;
} job;

/* ---- a unit ----------------------------------------------------------------------------------------- */

typedef struct places {
    float *queries, *keys, *values, *scores, *gemm;
} places;

static size_t round_up(size_t n) {
    return (n + 15) / 16 * 16;
}

/* `base` NULL: only the size is of interest. */
static size_t lay_out(const job *j, float *base, places *p) {
    const attend *a = j->a;
    const size_t deepest = a->n_keys > a->width ? a->n_keys : a->width;
    const size_t sizes[5] = {round_up(j->rows * a->width), gemm_packed_floats(a->width, a->n_keys),
                             gemm_packed_floats(a->n_keys, a->value_width), round_up(j->rows * j->ld),
                             round_up(gemm_scratch_floats(deepest))};
    size_t at[5], sum = 0;
    for (size_t i = 0; i < 5; i++) {
        at[i] = sum;
        sum += round_up(sizes[i]);
    }
    if (base)
        *p = (places){.queries = base + at[0],
                      .keys = base + at[1],
                      .values = base + at[2],
                      .scores = base + at[3],
                      .gemm = base + at[4]};
    return sum;
}

static const float *at_head(const attend_operand *o, size_t b, size_t h) {
    return o->data + b * o->step[ATTEND_BATCH] + h * o->step[ATTEND_HEAD];
}

/* h: of keys and values. */
static void pack_head(const attend *a, size_t b, size_t h, const places *p) {
    gemm_pack(at_head(&a->k, b, h), a->k.step[ATTEND_WIDTH], a->k.step[ATTEND_TIME], a->width, a->n_keys, 0,
              gemm_panels(a->n_keys), p->keys);
    gemm_pack(at_head(&a->v, b, h), a->v.step[ATTEND_TIME], a->v.step[ATTEND_WIDTH], a->n_keys,
              a->value_width, 0, gemm_panels(a->value_width), p->values);
    if (a->k_scale == 1.0f) return;
    const size_t n = gemm_packed_floats(a->width, a->n_keys);
    for (size_t i = 0; i < n; i++) p->keys[i] *= a->k_scale;
}

static void take_queries(const attend *a, size_t b, size_t h, size_t from, size_t n, float *to) {
    const float *q = at_head(&a->q, b, h) + from * a->q.step[ATTEND_TIME], scale = a->q_scale;
    const size_t step = a->q.step[ATTEND_WIDTH];
    for (size_t i = 0; i < n; i++, q += a->q.step[ATTEND_TIME], to += a->width) {
        if (step == 1) {
            for (size_t d = 0; d < a->width; d++) to[d] = q[d] * scale;
        } else {
            for (size_t d = 0; d < a->width; d++) to[d] = q[d * step] * scale;
        }
    }
}

static size_t at_row(const size_t step[ATTEND_WIDTH], size_t b, size_t h, size_t i) {
    return b * step[ATTEND_BATCH] + h * step[ATTEND_HEAD] + i * step[ATTEND_TIME];
}

static void run_unit(const job *j, size_t b, size_t h, size_t from, size_t n, const places *p) {
    const attend *a = j->a;
    take_queries(a, b, h, from, n, p->queries);
    gemm g = {.n = a->n_keys,
              .k = a->width,
              .a = p->queries,
              .a_row = a->width,
              .a_k = 1,
              .n_runs = 1,
              .run = a->width,
              .b = p->keys,
              .c = p->scores,
              .c_row = j->ld,
              .c_panel = GEMM_PANEL,
              .add = a->add ? a->add + at_row(a->add_step, b, h, from) : NULL,
              .add_row = a->add_step[ATTEND_TIME],
              .add_panel = GEMM_PANEL,
              .low = -INFINITY,
              .high = INFINITY,
              .stop = j->stop};
    gemm_run(j->kernels, &g, 0, n, 0, gemm_panels(a->n_keys), p->gemm);
    for (size_t i = 0; i < n; i++) a->soften(a->ctx, b, h, from + i, p->scores + i * j->ld);
    g = (gemm){.n = a->value_width,
               .k = a->n_keys,
               .a = p->scores,
               .a_row = j->ld,
               .a_k = 1,
               .n_runs = 1,
               .run = a->n_keys,
               .b = p->values,
               .c = a->y + at_row(a->y_step, b, h, from),
               .c_row = a->y_step[ATTEND_TIME],
               .c_panel = GEMM_PANEL,
               .low = -INFINITY,
               .high = INFINITY,
               .stop = j->stop};
    gemm_run(j->kernels, &g, 0, n, 0, gemm_panels(a->value_width), p->gemm);
}

static void member(void *ctx, const pool_member *me) {
    const job *j = ctx;
    const attend *a = j->a;
    places p;
    size_t from, to, at_hand = SIZE_MAX;
    (void)lay_out(j, j->scratch + me->index * j->each, &p);
    pool_split(me, j->units, 1, &from, &to);
    for (size_t u = from; u < to && !stop_now(j->stop); u++) {
        const size_t head = u / j->blocks, block = u % j->blocks, b = head / a->heads, h = head % a->heads;
        const size_t shared = head / a->group; /* heads are a multiple of the group */
        if (shared != at_hand) pack_head(a, b, h / a->group, &p);
        at_hand = shared;
        const size_t i0 = a->n_queries * block / j->blocks, i1 = a->n_queries * (block + 1) / j->blocks;
        run_unit(j, b, h, i0, i1 - i0, &p);
    }
}

/* ---- a run ------------------------------------------------------------------------------------------ */

static void cut(job *j, size_t threads) {
    const attend *a = j->a;
    const size_t heads = a->batch * a->heads;
    size_t most = SCORE_FLOATS / j->ld;
    most = most < 16 ? 16 : most > MOST_ROWS ? MOST_ROWS : most;
    j->blocks = (a->n_queries + most - 1) / most;
    if (heads * j->blocks < 2 * threads && a->n_queries >= 32 * threads)
        j->blocks = (2 * threads + heads - 1) / heads * j->blocks;
    j->units = heads * j->blocks;
    j->rows = (a->n_queries + j->blocks - 1) / j->blocks;
}

status attend_run(op_run *r, const attend *a, error *err) {
    job j = {.a = a, .kernels = run_kernels(r), .stop = run_stop(r)};
    j.ld = round_up(a->n_keys) + 16; /* no multiple of 2 KiB: see gemm_run */
    pool *team = run_pool(r);
    const double work = (double)a->batch * (double)a->heads * (double)a->n_queries * (double)a->n_keys *
                        (double)(a->width + a->value_width + 8);
    size_t threads = work > 400e3 ? pool_threads(team) : 1;
    cut(&j, threads);
    if (j.units < threads) threads = 1;
    places p;
    j.each = lay_out(&j, NULL, &p);
    void *memory;
    TRY(run_scratch(r, threads * j.each * sizeof(float), &memory, err));
    j.scratch = memory;
    if (threads > 1) {
        pool_run(team, member, &j);
    } else {
        member(&j, &(pool_member){.pool = team, .index = 0, .count = 1});
    }
    return CHURON_OK;
}
