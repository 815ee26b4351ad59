/* sdpa.c: see sdpa.h. Views become strides, the arithmetic is attend.c's. */
#include "graph/ops/sdpa.h"

#include "base/mem.h"
#include "graph/ops/attend.h"
#include "graph/ops/nn.h"

#include <string.h>

enum { Q, K, V, MASKS };

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
    mask adds[SDPA_ADDS], condition;
    size_t first; /* addition that is left to be done; the product has done those before */
    size_t n_keys;
} job;

/* ---- scores ----------------------------------------------------------------------------------------- */

static const float *mask_row(const mask *m, size_t b, size_t h, size_t i) {
    return (const float *)m->data + b * m->step[SDPA_BATCH] + h * m->step[SDPA_HEAD] + i * m->step[SDPA_TIME];
}

/* The condition, then the additions that the product has not done, in the order of the pieces. */
static void apply_masks(const job *j, size_t b, size_t h, size_t i, float *s) {
    if (j->st->where != SDPA_NO_WHERE) {
        const mask *m = &j->condition;
        const uint8_t *c = (const uint8_t *)m->data + b * m->step[SDPA_BATCH] + h * m->step[SDPA_HEAD] +
                           i * m->step[SDPA_TIME];
        const bool fills = j->st->where == SDPA_FILL_WHERE_TRUE;
        for (size_t k = 0; k < j->n_keys; k++)
            s[k] = (c[k * m->step[SDPA_WIDTH]] != 0) == fills ? j->st->fill : s[k];
    }
    for (size_t a = j->first; a < j->st->n_adds; a++) {
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

static void soften(const void *ctx, size_t b, size_t h, size_t i, float *s) {
    const job *j = ctx;
    apply_masks(j, b, h, i, s);
    j->kernels->softmax(s, s, j->n_keys);
    if (j->st->nan_to_0 && s[0] != s[0]) clear_nan(s, j->n_keys); /* a row is all NaN or has none */
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

/* What the product adds while it has the scores at hand. */
static void add_early(job *j, attend *a) {
    const mask *m = &j->adds[0];
    if (j->st->n_adds == 0 || j->st->where != SDPA_NO_WHERE || m->step[SDPA_WIDTH] != 1) return;
    j->first = 1;
    a->add = m->data;
    memcpy(a->add_step, m->step, sizeof a->add_step);
}

static attend_operand steps_of(const operand *o) {
    attend_operand out = {.data = o->data};
    memcpy(out.step, o->step, sizeof out.step);
    return out;
}

static status run(op_run *r, error *err) {
    const sdpa *st = run_state(r);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    const operand q = operand_of(&st->q, run_in(r, Q)), k = operand_of(&st->k, run_in(r, K)),
                  v = operand_of(&st->v, run_in(r, V));
    const size_t head_axis = st->time_first ? 2 : 1, time_axis = y->rank == 3 || st->time_first ? 1 : 2;
    job j = {.st = st, .kernels = run_kernels(r), .n_keys = v.size[SDPA_TIME]};
    attend a = {.q = steps_of(&q),
                .k = steps_of(&k),
                .v = steps_of(&v),
                .y = y->data,
                .batch = (size_t)y->dims[0],
                .heads = y->rank == 3 ? 1 : (size_t)y->dims[head_axis],
                .group = 1,
                .n_queries = (size_t)y->dims[time_axis],
                .n_keys = j.n_keys,
                .width = q.size[SDPA_WIDTH],
                .value_width = v.size[SDPA_WIDTH],
                .q_scale = st->scale,
                .k_scale = 1.0f,
                .soften = soften,
                .ctx = &j};
    take_masks(r, &j);
    add_early(&j, &a);
    if (a.n_keys == 0) { /* sums over nothing */
        memset(y->data, 0, tensor_bytes(y));
        return CHURON_OK;
    }
    const size_t row = st->time_first ? a.heads * a.value_width : a.value_width;
    a.y_step[ATTEND_TIME] = row;
    a.y_step[ATTEND_HEAD] = st->time_first ? a.value_width : a.n_queries * a.value_width;
    a.y_step[ATTEND_BATCH] = a.n_queries * a.heads * a.value_width;
    return attend_run(r, &a, err);
}

const op_def op_sdpa = {.domain = "churon",
                        .name = "Attention",
                        .since = 1,
                        .signature = "TTT=T>T",
                        .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                        .release = mem_free,
                        .infer = infer,
                        .run = run};
