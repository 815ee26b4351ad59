/* sdpa.c: see sdpa.h. A unit of work is a block of queries of one head: keys and values are packed as
 * products read them, scores of the block lie in a matrix that stays in the second-level cache. */
#include "graph/ops/sdpa.h"

#include "base/mem.h"
#include "graph/ops/nn.h"
#include "kernel/gemm.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASKS, MOST_ROWS = 168, SCORE_FLOATS = 1 << 17 };

/* ---- shapes ----------------------------------------------------------------------------------------- */

static dim view_dim(const sdpa_view *v, size_t rank, const dim *dims, size_t axis) {
    return v->axis[axis] >= 0 && (size_t)v->axis[axis] < rank ? dims[v->axis[axis]] : 1;
}

/* Target `to` of a Reshape: its last dimensions, of which only the very first may be left open. */
static status check_guard(op_shapes *s, size_t input, size_t n, const dim *want, error *err) {
    size_t count;
    const dim *values;
    if (!shapes_running(s) || !shapes_in_values(s, input, &count, &values)) return CHURON_OK;
    bool same = count >= n;
    for (size_t i = 0; same && i < n; i++) same = values[count - n + i] == want[i];
    return same ? CHURON_OK
                : op_error(shapes_node(s), err, CHURON_INVALID,
                           "keys: their reshapes mix heads and positions: expected [.., %lld, %lld]",
                           (long long)want[n - 2], (long long)want[n - 1]);
}

/* Sizes of the scores: those of queries and keys, and of masks where these have more. */
static status score_dims(op_shapes *s, const dim *q, size_t nq, const dim *k, size_t nk, dim out[SDPA_AXES],
                         bool *known, error *err) {
    const sdpa *st = shapes_state(s);
    const dim *m;
    size_t n = SDPA_AXES, rank;
    *known = true;
    const dim own[SDPA_AXES] = {view_dim(&st->q, nq, q, SDPA_BATCH), view_dim(&st->q, nq, q, SDPA_HEAD),
                                view_dim(&st->q, nq, q, SDPA_TIME), view_dim(&st->k, nk, k, SDPA_TIME)};
    const dim of_keys[SDPA_AXES] = {view_dim(&st->k, nk, k, SDPA_BATCH), view_dim(&st->k, nk, k, SDPA_HEAD),
                                    1, 1};
    TRY(nn_broadcast(s, own, SDPA_AXES, of_keys, SDPA_AXES, out, &n, err));
    for (size_t i = 0; i < st->n_adds + (st->where != SDPA_NO_WHERE); i++) {
        if (!shapes_in(s, MASKS + i, &rank, &m)) {
            *known = false;
            continue;
        }
        dim wide[SDPA_AXES] = {1, 1, 1, 1}, sum[SDPA_AXES];
        for (size_t d = 0; d < rank; d++) {
            const size_t back = rank - 1 - d;
            wide[back == 2 && st->rank == 3 ? SDPA_BATCH : SDPA_AXES - 1 - back] = m[d];
        }
        TRY(nn_broadcast(s, out, SDPA_AXES, wide, SDPA_AXES, sum, &n, err));
        memcpy(out, sum, sizeof sum);
    }
    return CHURON_OK;
}

static status infer(op_shapes *s, error *err) {
    const sdpa *st = shapes_state(s);
    size_t rank[3], n = SDPA_AXES;
    const dim *in[3];
    bool known = true;
    for (size_t i = 0; i < 3; i++) known &= shapes_in(s, i, &rank[i], &in[i]);
    dim scores[SDPA_AXES], sizes[SDPA_AXES];
    if (known) TRY(score_dims(s, in[Q], rank[Q], in[K], rank[K], scores, &known, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    const dim keys = view_dim(&st->k, rank[K], in[K], SDPA_TIME),
              width = view_dim(&st->k, rank[K], in[K], SDPA_WIDTH);
    TRY(shapes_same(s, view_dim(&st->q, rank[Q], in[Q], SDPA_WIDTH), width, "widths of query and key", NULL,
                    err));
    TRY(shapes_same(s, view_dim(&st->v, rank[V], in[V], SDPA_TIME), scores[SDPA_WIDTH],
                    "numbers of keys and values", NULL, err));
    const size_t guard = MASKS + st->n_adds + (st->where != SDPA_NO_WHERE);
    if (st->n_guards) {
        TRY(check_guard(s, guard, 2, (const dim[]){keys, width}, err));
        TRY(check_guard(s, guard + 1, 2, (const dim[]){width, keys}, err));
    }
    const dim values[SDPA_AXES] = {view_dim(&st->v, rank[V], in[V], SDPA_BATCH),
                                   view_dim(&st->v, rank[V], in[V], SDPA_HEAD), 1, 1};
    scores[SDPA_WIDTH] = 1;
    TRY(nn_broadcast(s, scores, SDPA_AXES, values, SDPA_AXES, sizes, &n, err));
    sizes[SDPA_WIDTH] = view_dim(&st->v, rank[V], in[V], SDPA_WIDTH);
    const size_t order[SDPA_AXES] = {SDPA_BATCH, st->time_first ? SDPA_TIME : SDPA_HEAD,
                                     st->time_first ? SDPA_HEAD : SDPA_TIME, SDPA_WIDTH};
    dim out[SDPA_AXES];
    n = 0;
    for (size_t i = 0; i < SDPA_AXES; i++) {
        if (order[i] != SDPA_HEAD || st->rank == 4) out[n++] = sizes[order[i]];
    }
    return shapes_out(s, 0, n, out, err);
}

/* ---- operands --------------------------------------------------------------------------------------- */

typedef struct operand {
    const float *data;
    size_t size[SDPA_AXES], step[SDPA_AXES]; /* step 0: one for all */
} operand;

static operand operand_of(const sdpa_view *v, const tensor *t) {
    operand o = {.data = t->data};
    size_t strides[TENSOR_MAX_RANK], step = 1;
    for (size_t i = t->rank; i-- > 0;) {
        strides[i] = step;
        step *= (size_t)t->dims[i];
    }
    for (size_t a = 0; a < SDPA_AXES; a++) {
        o.size[a] = v->axis[a] < 0 ? 1 : (size_t)t->dims[v->axis[a]];
        o.step[a] = o.size[a] == 1 ? 0 : strides[v->axis[a]]; /* one for all */
    }
    if (v->pick_axis >= 0) {
        const int64_t at = v->pick < 0 ? v->pick + t->dims[v->pick_axis] : v->pick;
        if (at >= 0 && at < t->dims[v->pick_axis]) o.data += (size_t)at * strides[v->pick_axis];
    }
    return o;
}

/* Steps of a tensor that broadcasts to the scores, whose sizes the shape rule has checked. */
static void mask_steps(const tensor *t, size_t rank, size_t step[SDPA_AXES]) {
    size_t at = 1;
    memset(step, 0, SDPA_AXES * sizeof *step);
    for (size_t i = t->rank; i-- > 0;) {
        const size_t back = t->rank - 1 - i; /* from the last axis */
        if (t->dims[i] != 1) step[back == 2 && rank == 3 ? SDPA_BATCH : SDPA_AXES - 1 - back] = at;
        at *= (size_t)t->dims[i];
    }
}

typedef struct mask {
    const void *data;
    size_t step[SDPA_AXES];
} mask;

typedef struct job {
    const sdpa *st;
    const kernels *kernels;
    operand q, k, v;
    mask adds[SDPA_ADDS], condition;
    float *y;
    size_t y_step[SDPA_AXES];
    size_t batch, heads, n_queries, n_keys, width, value_width;
    size_t rows, blocks, units; /* of a block; of a head; in all */
    size_t ld;                  /* of a row of scores */
    size_t each;                /* floats of scratch of a member */
    float *scratch;
    stop_flag *stop;
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
    const size_t deepest = j->n_keys > j->width ? j->n_keys : j->width;
    const size_t sizes[5] = {round_up(j->rows * j->width), gemm_packed_floats(j->width, j->n_keys),
                             gemm_packed_floats(j->n_keys, j->value_width), round_up(j->rows * j->ld),
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

static const float *at_head(const operand *o, size_t b, size_t h) {
    return o->data + b * o->step[SDPA_BATCH] + h * o->step[SDPA_HEAD];
}

static void pack_head(const job *j, size_t b, size_t h, const places *p) {
    gemm_pack(at_head(&j->k, b, h), j->k.step[SDPA_WIDTH], j->k.step[SDPA_TIME], j->width, j->n_keys, 0,
              gemm_panels(j->n_keys), p->keys);
    gemm_pack(at_head(&j->v, b, h), j->v.step[SDPA_TIME], j->v.step[SDPA_WIDTH], j->n_keys, j->value_width, 0,
              gemm_panels(j->value_width), p->values);
}

static void take_queries(const job *j, size_t b, size_t h, size_t from, size_t n, float *to) {
    const float *q = at_head(&j->q, b, h) + from * j->q.step[SDPA_TIME], scale = j->st->scale;
    const size_t step = j->q.step[SDPA_WIDTH];
    for (size_t i = 0; i < n; i++, q += j->q.step[SDPA_TIME], to += j->width) {
        if (step == 1) {
            for (size_t d = 0; d < j->width; d++) to[d] = q[d] * scale;
        } else {
            for (size_t d = 0; d < j->width; d++) to[d] = q[d * step] * scale;
        }
    }
}

static const float *mask_row(const mask *m, size_t b, size_t h, size_t i) {
    return (const float *)m->data + b * m->step[SDPA_BATCH] + h * m->step[SDPA_HEAD] + i * m->step[SDPA_TIME];
}

/* The condition, then the additions that the product has not done, in the order of the pieces. */
static void apply_masks(const job *j, size_t b, size_t h, size_t i, size_t first, float *s) {
    if (j->st->where != SDPA_NO_WHERE) {
        const mask *m = &j->condition;
        const uint8_t *c = (const uint8_t *)m->data + b * m->step[SDPA_BATCH] + h * m->step[SDPA_HEAD] +
                           i * m->step[SDPA_TIME];
        const bool fills = j->st->where == SDPA_FILL_WHERE_TRUE;
        for (size_t k = 0; k < j->n_keys; k++)
            s[k] = (c[k * m->step[SDPA_WIDTH]] != 0) == fills ? j->st->fill : s[k];
    }
    for (size_t a = first; a < j->st->n_adds; a++) {
        const float *m = mask_row(&j->adds[a], b, h, i);
        const size_t step = j->adds[a].step[SDPA_WIDTH];
        if (step == 1) {
            for (size_t k = 0; k < j->n_keys; k++) s[k] += m[k];
        } else {
            for (size_t k = 0; k < j->n_keys; k++) s[k] += m[0];
        }
    }
}

static void clear_nan(float *s, size_t n) {
    for (size_t k = 0; k < n; k++) s[k] = s[k] == s[k] ? s[k] : 0.0f;
}

static void run_unit(const job *j, size_t b, size_t h, size_t from, size_t n, const places *p) {
    const sdpa *st = j->st;
    const mask *early =
        st->n_adds && st->where == SDPA_NO_WHERE && j->adds[0].step[SDPA_WIDTH] == 1 ? &j->adds[0] : NULL;
    take_queries(j, b, h, from, n, p->queries);
    gemm g = {.n = j->n_keys,
              .k = j->width,
              .a = p->queries,
              .a_row = j->width,
              .a_k = 1,
              .n_runs = 1,
              .run = j->width,
              .b = p->keys,
              .c = p->scores,
              .c_row = j->ld,
              .c_panel = GEMM_PANEL,
              .add = early ? mask_row(early, b, h, from) : NULL,
              .add_row = early ? early->step[SDPA_TIME] : 0,
              .add_panel = GEMM_PANEL,
              .low = -INFINITY,
              .high = INFINITY};
    gemm_run(j->kernels, &g, 0, n, 0, gemm_panels(j->n_keys), p->gemm);
    for (size_t i = 0; i < n; i++) {
        float *s = p->scores + i * j->ld;
        apply_masks(j, b, h, from + i, early ? 1 : 0, s);
        j->kernels->softmax(s, s, j->n_keys);
        if (st->nan_to_0 && s[0] != s[0]) clear_nan(s, j->n_keys); /* a row is all NaN or has none */
    }
    g = (gemm){.n = j->value_width,
               .k = j->n_keys,
               .a = p->scores,
               .a_row = j->ld,
               .a_k = 1,
               .n_runs = 1,
               .run = j->n_keys,
               .b = p->values,
               .c = j->y + b * j->y_step[SDPA_BATCH] + h * j->y_step[SDPA_HEAD] + from * j->y_step[SDPA_TIME],
               .c_row = j->y_step[SDPA_TIME],
               .c_panel = GEMM_PANEL,
               .low = -INFINITY,
               .high = INFINITY,
               .stop = j->stop};
    gemm_run(j->kernels, &g, 0, n, 0, gemm_panels(j->value_width), p->gemm);
}

static void member(void *ctx, const pool_member *me) {
    const job *j = ctx;
    places p;
    size_t from, to, at_hand = SIZE_MAX;
    (void)lay_out(j, j->scratch + me->index * j->each, &p);
    pool_split(me, j->units, 1, &from, &to);
    for (size_t u = from; u < to && !stop_now(j->stop); u++) {
        const size_t head = u / j->blocks, block = u % j->blocks, b = head / j->heads, h = head % j->heads;
        if (head != at_hand) pack_head(j, b, h, &p);
        at_hand = head;
        const size_t i0 = j->n_queries * block / j->blocks, i1 = j->n_queries * (block + 1) / j->blocks;
        run_unit(j, b, h, i0, i1 - i0, &p);
    }
}

/* ---- a run ------------------------------------------------------------------------------------------ */

static void take_masks(const op_run *r, job *j) {
    const size_t n = j->st->n_adds + (j->st->where != SDPA_NO_WHERE);
    for (size_t i = 0; i < n; i++) {
        const tensor *t = run_in(r, MASKS + i);
        mask *m = i < j->st->n_adds ? &j->adds[i] : &j->condition;
        m->data = t->data;
        mask_steps(t, j->st->rank, m->step);
    }
}

static void cut(job *j, size_t threads) {
    size_t most = SCORE_FLOATS / j->ld;
    most = most < 16 ? 16 : most > MOST_ROWS ? MOST_ROWS : most;
    j->blocks = (j->n_queries + most - 1) / most;
    if (j->batch * j->heads * j->blocks < 2 * threads && j->n_queries >= 32 * threads)
        j->blocks = (2 * threads + j->batch * j->heads - 1) / (j->batch * j->heads) * j->blocks;
    j->units = j->batch * j->heads * j->blocks;
    j->rows = (j->n_queries + j->blocks - 1) / j->blocks;
}

static status run(op_run *r, error *err) {
    const sdpa *st = run_state(r);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    job j = {.st = st,
             .kernels = run_kernels(r),
             .stop = run_stop(r),
             .q = operand_of(&st->q, run_in(r, Q)),
             .k = operand_of(&st->k, run_in(r, K)),
             .v = operand_of(&st->v, run_in(r, V)),
             .y = y->data};
    const size_t head_axis = st->time_first ? 2 : 1, time_axis = y->rank == 3 || st->time_first ? 1 : 2;
    j.batch = (size_t)y->dims[0];
    j.heads = y->rank == 3 ? 1 : (size_t)y->dims[head_axis];
    j.n_queries = (size_t)y->dims[time_axis];
    j.n_keys = j.v.size[SDPA_TIME];
    j.width = j.q.size[SDPA_WIDTH];
    j.value_width = j.v.size[SDPA_WIDTH];
    take_masks(r, &j);
    if (j.n_keys == 0) { /* sums over nothing */
        memset(y->data, 0, tensor_bytes(y));
        return CHURON_OK;
    }
    const size_t row = st->time_first ? j.heads * j.value_width : j.value_width;
    j.y_step[SDPA_TIME] = row;
    j.y_step[SDPA_HEAD] = st->time_first ? j.value_width : j.n_queries * j.value_width;
    j.y_step[SDPA_BATCH] = j.n_queries * j.heads * j.value_width;
    j.ld = round_up(j.n_keys) + 16; /* no multiple of 2 KiB: see gemm_run */
    pool *team = run_pool(r);
    const double work = (double)j.batch * (double)j.heads * (double)j.n_queries * (double)j.n_keys *
                        (double)(j.width + j.value_width + 8);
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

const op_def op_sdpa = {.domain = "churon",
                        .name = "Attention",
                        .since = 1,
                        .signature = "TTT=T>T",
                        .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                        .release = mem_free,
                        .infer = infer,
                        .run = run};
