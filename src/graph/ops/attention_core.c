/* attention_core.c: see attention_core.h. The usual f32 call goes by heads (attend.h). Else scores of a block
 * of queries of many heads exist as a matrix of bounded size, and blocks follow one another. */
#include "graph/ops/attention_core.h"

#include "graph/ops/attend.h"
#include "graph/ops/gemm.h"
#include "graph/ops/rows.h"

#include <string.h>
#include <tgmath.h>

enum { SCORE_BYTES = 1 << 25 }; /* of a block, where a single query needs no more */

typedef struct query {
    size_t b, h, i;
    int64_t first, end; /* keys that it may see */
} query;

typedef struct attention_job {
    const attention_call *call;
    const kernels *kernels;
    size_t group, i0, i1, u0, u1;
    void *queries, *keys, *scores, *outputs, *y; /* keys: scaled copies, or NULL: read where they are */
} attention_job;

float attention_round(elem type, float v) {
    if (type != ELEM_F16 && type != ELEM_BF16) return v;
    uint16_t h;
    elem_from_f32(type, &v, &h, 1, false);
    elem_to_f32(type, &h, &v, 1);
    return v;
}

static query query_at(const attention_call *c, size_t b, size_t h, size_t i) {
    query q = {.b = b, .h = h, .i = i};
    int64_t at = (c->offsets ? c->offsets[q.b] : c->offset) + (int64_t)q.i;
    q.first = c->left >= 0 ? at - c->left : 0;
    q.end = c->valid ? c->valid[q.b] : (int64_t)c->kv_len;
    if (c->causal && at + 1 < q.end) q.end = at + 1;
    if (c->right >= 0 && at + c->right + 1 < q.end) q.end = at + c->right + 1;
    return q;
}

/* Row of a block: [kv head][head of its group][query]. */
static query query_of(const attention_job *j, size_t row) {
    const attention_call *c = j->call;
    const size_t n = j->i1 - j->i0, u = j->u0 + row / (n * j->group);
    return query_at(c, u / c->kv_heads, u % c->kv_heads * j->group + row / n % j->group, j->i0 + row % n);
}

static void exponentials_f32(const kernels *k, float *x, size_t n) {
    (k->exp)(x, x, n);
}

static void exponentials_f64(const kernels *k, double *x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) x[i] = exp(x[i]);
}

/* q given: scores of q and the keys; o given: outputs of the scores and the values. */
static status products_f32(op_run *r, const attention_job *j, size_t rows, size_t n_heads, const float *q,
                           const float *keys, float *s, float *o, error *err) {
    const attention_call *c = j->call;
    void *memory;
    TRY(run_scratch(r, n_heads * sizeof(gemm_call), &memory, err));
    gemm_call *calls = memory;
    for (size_t i = 0; i < n_heads; i++) {
        size_t b = (j->u0 + i) / c->kv_heads, kv = (j->u0 + i) % c->kv_heads;
        const float *k = keys ? keys + i * c->kv_len * c->head_k
                              : (const float *)c->k.data + b * c->k.batch + kv * c->k.head;
        float *score = s + i * rows * c->kv_len;
        if (q)
            calls[i] = (gemm_call){.m = rows,
                                   .n = c->kv_len,
                                   .k = c->head_k,
                                   .a = q + i * rows * c->head_k,
                                   .a_row = c->head_k,
                                   .a_col = 1,
                                   .b = k,
                                   .b_row = 1,
                                   .b_col = keys ? c->head_k : c->k.time,
                                   .c = score,
                                   .ldc = c->kv_len};
        else
            calls[i] = (gemm_call){.m = rows,
                                   .n = c->head_v,
                                   .k = c->kv_len,
                                   .a = score,
                                   .a_row = c->kv_len,
                                   .a_col = 1,
                                   .b = (const float *)c->v.data + b * c->v.batch + kv * c->v.head,
                                   .b_row = c->v.time,
                                   .b_col = 1,
                                   .c = o + i * rows * c->head_v,
                                   .ldc = c->head_v};
    }
    return gemm_f32(r, calls, n_heads, NULL, err);
}

static status products_f64(op_run *r, const attention_job *j, size_t rows, size_t n_heads, const double *q,
                           const double *keys, double *s, double *o, error *err) {
    const attention_call *c = j->call;
    (void)r, (void)err;
    for (size_t i = 0; i < n_heads; i++) {
        size_t b = (j->u0 + i) / c->kv_heads, kv = (j->u0 + i) % c->kv_heads;
        const double *k = keys ? keys + i * c->kv_len * c->head_k
                               : (const double *)c->k.data + b * c->k.batch + kv * c->k.head;
        double *score = s + i * rows * c->kv_len;
        if (q)
            gemm_f64(run_kernels(r), run_stop(r), rows, c->kv_len, c->head_k, q + i * rows * c->head_k,
                     c->head_k, 1, k, 1, keys ? c->head_k : c->k.time, score, c->kv_len);
        else
            gemm_f64(run_kernels(r), run_stop(r), rows, c->head_v, c->kv_len, score, c->kv_len, 1,
                     (const double *)c->v.data + b * c->v.batch + kv * c->v.head, c->v.time, 1,
                     o + i * rows * c->head_v, c->head_v);
    }
    return CHURON_OK;
}

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/attention_core.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/attention_core.inc"
#undef REAL
#undef FN

/* ---- blocks of a head ------------------------------------------------------------------------------- */

static bool is_half(elem type) {
    return type == ELEM_F16 || type == ELEM_BF16;
}

/* Nothing wants scores but the softmax, and enough queries share the packing of keys. */
static bool goes_by_head(const attention_call *c) {
    enum { FEW = 4 };
    return c->work == ELEM_F32 && !c->tap && !is_half(c->round) && !is_half(c->softmax_round) && !c->sink &&
           c->q_len * (c->q_heads / c->kv_heads) > FEW && c->kv_len > 0 && c->head_k > 0 && c->head_v > 0;
}

static bool sees_any(const float *bias, size_t step, size_t n) {
    for (size_t k = 0; k < n; k++) {
        if (bias[k * step] != -INFINITY) return true;
    }
    return false;
}

/* Keys that the query does not see weigh nothing. */
static void soften(const void *ctx, size_t b, size_t h, size_t i, float *s) {
    const attention_job *j = ctx;
    const attention_call *c = j->call;
    const query q = query_at(c, b, h, i);
    const size_t step = c->bias_step[3],
                 most = c->bias && c->bias_keys < c->kv_len ? c->bias_keys : c->kv_len;
    const size_t first = q.first < 0 ? 0 : (size_t)q.first;
    size_t end = q.end < 0 ? 0 : (size_t)q.end;
    end = end > most ? most : end;
    if (first >= end) {
        memset(s, 0, c->kv_len * sizeof *s);
        return;
    }
    if (c->soft_cap > 0) soft_cap_f32(c, s);
    const float *bias = c->bias ? (const float *)c->bias + b * c->bias_step[0] + h * c->bias_step[1] +
                                      i * c->bias_step[2] + first * step
                                : NULL;
    const size_t n = end - first;
    float *seen = s + first;
    if (bias && step == 1) {
        for (size_t k = 0; k < n; k++) seen[k] = bias[k] == -INFINITY ? -INFINITY : seen[k] + bias[k];
    } else if (bias) {
        for (size_t k = 0; k < n; k++)
            seen[k] = bias[k * step] == -INFINITY ? -INFINITY : seen[k] + bias[k * step];
    }
    j->kernels->softmax(seen, seen, n);
    if (bias && seen[0] != seen[0] && !sees_any(bias, step, n)) memset(seen, 0, n * sizeof *s);
    memset(s, 0, first * sizeof *s);
    memset(s + end, 0, (c->kv_len - end) * sizeof *s);
}

static attend_operand steps_of(const attention_view *v) {
    return (attend_operand){.data = v->data, .step = {v->batch, v->head, v->time, 1}};
}

static status run_by_head(op_run *r, attention_job *j, error *err) {
    const attention_call *c = j->call;
    const attend a = {.q = steps_of(&c->q),
                      .k = steps_of(&c->k),
                      .v = steps_of(&c->v),
                      .y = j->y,
                      .y_step = {c->y.batch, c->y.head, c->y.time},
                      .batch = c->batch,
                      .heads = c->q_heads,
                      .group = j->group,
                      .n_queries = c->q_len,
                      .n_keys = c->kv_len,
                      .width = c->head_k,
                      .value_width = c->head_v,
                      .q_scale = c->split_scale ? (float)sqrt(c->scale) : (float)c->scale,
                      .k_scale = c->split_scale ? (float)sqrt(c->scale) : 1.0f,
                      .soften = soften,
                      .ctx = j};
    return attend_run(r, &a, err);
}

/* ---- everything else --------------------------------------------------------------------------------- */

static size_t at_least_one(size_t n) {
    return n ? n : 1;
}

status attention_run(op_run *r, const attention_call *c, error *err) {
    size_t units = c->batch * c->kv_heads, bytes = elem_describe(c->work)->bytes;
    if (units == 0 || c->q_len == 0 || c->q_heads == 0) return CHURON_OK;
    attention_job j = {.call = c, .kernels = run_kernels(r), .group = c->q_heads / c->kv_heads};
    memcpy(&j.y, &c->y.data, sizeof j.y); /* the one view that is written */
    if (goes_by_head(c)) return run_by_head(r, &j, err);
    size_t line = at_least_one(c->kv_len * j.group * bytes);
    size_t per_block = at_least_one(SCORE_BYTES / line); /* queries of a kv head */
    if (per_block > c->q_len) per_block = c->q_len;
    size_t heads = at_least_one(SCORE_BYTES / (per_block * line));
    if (heads > units) heads = units;
    size_t rows = heads * per_block * j.group;
    TRY(run_scratch(r, at_least_one(rows * c->head_k) * bytes, &j.queries, err));
    TRY(run_scratch(r, at_least_one(rows * c->kv_len) * bytes, &j.scores, err));
    TRY(run_scratch(r, at_least_one(rows * c->head_v) * bytes, &j.outputs, err));
    if (c->split_scale)
        TRY(run_scratch(r, at_least_one(heads * c->kv_len * c->head_k) * bytes, &j.keys, err));
    for (j.u0 = 0; j.u0 < units; j.u0 = j.u1) {
        j.u1 = j.u0 + heads < units ? j.u0 + heads : units;
        for (j.i0 = 0; j.i0 < c->q_len; j.i0 = j.i1) {
            j.i1 = j.i0 + per_block < c->q_len ? j.i0 + per_block : c->q_len;
            TRY(run_check(r, err));
            TRY(c->work == ELEM_F64 ? run_block_f64(r, &j, err) : run_block_f32(r, &j, err));
        }
    }
    return CHURON_OK;
}

void attention_rotate(const float *x, float *y, size_t n, size_t n_rot, const float *cosine,
                      const float *sine, bool interleaved, elem rounding) {
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
        float u = x[a], v = x[b], c = cosine[i], s = sine[i];
        float cu = attention_round(rounding, c * u), sv = attention_round(rounding, s * v);
        float su = attention_round(rounding, s * u), cv = attention_round(rounding, c * v);
        y[a] = cu - sv, y[b] = su + cv;
    }
    for (size_t i = 2 * half; i < n && y != x; i++) y[i] = x[i];
}
