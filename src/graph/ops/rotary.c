/* rotary.c: RotaryEmbedding of ai.onnx and com.microsoft, MRotaryEmbedding (three positions a token, each for
 * its part of the pairs), and LinearAttention. */
#include "base/mem.h"
#include "graph/ops/attention_core.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

/* ---- RotaryEmbedding -------------------------------------------------------------------------------- */

typedef struct rotary_state {
    int64_t heads, size;                /* 0: not said */
    bool interleaved, microsoft, mixed; /* mixed: MRotaryEmbedding's sections take turns */
    int64_t section[3];                 /* of MRotaryEmbedding: pairs of each position */
} rotary_state;

static status rotary_read(op_node *n, bool microsoft, rotary_state **out, error *err) {
    rotary_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    *out = st;
    bool packed_batch = false;
    float scale = 1;
    st->microsoft = microsoft;
    TRY(op_attr_int(n, "num_heads", 0, 0, INT32_MAX, &st->heads, err));
    TRY(op_attr_int(n, "rotary_embedding_dim", 0, 0, INT32_MAX, &st->size, err));
    TRY(op_attr_bool(n, "interleaved", false, &st->interleaved, err));
    if (!microsoft) return CHURON_OK;
    TRY(op_attr_bool(n, "is_packed_batching", false, &packed_batch, err));
    TRY(op_attr_float(n, "scale", 1, &scale, err));
    if (packed_batch) return op_error(n, err, CHURON_UNSUPPORTED, "is_packed_batching: 0 expected, got 1");
    if (scale != 1) return op_error(n, err, CHURON_UNSUPPORTED, "scale: 1 expected, got %g", (double)scale);
    return CHURON_OK;
}

static status rotary_prepare(op_node *n, error *err) {
    rotary_state *st;
    return rotary_read(n, false, &st, err);
}

static status ms_rotary_prepare(op_node *n, error *err) {
    rotary_state *st;
    return rotary_read(n, true, &st, err);
}

static status rotary_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 3, 4, "input", &known, &rank, &x, err));
    return infer_same(s, err);
}

typedef struct rotary_sizes {
    size_t batch, heads, length, size, rotated;
    bool heads_first;
} rotary_sizes;

/* com.microsoft takes the head's size from the caches where it has nothing else. */
static status rotary_size(op_run *r, const rotary_state *st, const tensor *x, const tensor *cosine,
                          rotary_sizes *z, error *err) {
    z->batch = (size_t)x->dims[0], z->heads_first = x->rank == 4;
    size_t columns = cosine->rank ? (size_t)cosine->dims[cosine->rank - 1] : 0;
    if (z->heads_first) {
        z->heads = (size_t)x->dims[1], z->length = (size_t)x->dims[2], z->size = (size_t)x->dims[3];
    } else {
        size_t hidden = (size_t)x->dims[2];
        z->length = (size_t)x->dims[1];
        z->heads = (size_t)st->heads;
        if (!z->heads && st->microsoft && columns) z->heads = hidden / (2 * columns);
        if (!z->heads || hidden % z->heads)
            return run_error(r, err, CHURON_INVALID,
                             "num_heads: a divisor of the hidden size %zu expected, got %zu", hidden,
                             z->heads);
        z->size = hidden / z->heads;
    }
    z->rotated = st->size ? (size_t)st->size : st->microsoft ? 2 * columns : z->size;
    if (z->rotated > z->size || z->rotated % 2)
        return run_error(r, err, CHURON_INVALID,
                         "rotary_embedding_dim: an even number up to %zu expected, got %zu", z->size,
                         z->rotated);
    if (columns != z->rotated / 2)
        return run_error(r, err, CHURON_INVALID, "cos_cache: %zu columns expected, got %zu", z->rotated / 2,
                         columns);
    return CHURON_OK;
}

/* Row of the caches for position t of batch b. Without positions the caches are [batch, length, columns]. */
static status cache_row(op_run *r, const rotary_sizes *z, const tensor *positions, size_t n_rows, size_t b,
                        size_t t, size_t *row, error *err) {
    int64_t at = (int64_t)(b * z->length + t);
    if (positions)
        at = positions->count == 1 ? int_at(positions, 0) + (int64_t)t : int_at(positions, b * z->length + t);
    if (at < 0 || (uint64_t)at >= n_rows)
        return run_error(r, err, CHURON_INVALID,
                         "position %zu of sequence %zu: a row of the caches (0 to %zu) expected, got %lld", t,
                         b, n_rows - 1, (long long)at);
    *row = (size_t)at;
    return CHURON_OK;
}

static status rotary_run(op_run *r, error *err) {
    const rotary_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *cosine = run_in(r, st->microsoft ? 2 : 1),
                 *sine = run_in(r, st->microsoft ? 3 : 2);
    const tensor *positions = run_in(r, st->microsoft ? 1 : 3);
    tensor *y;
    void *to;
    const void *px, *pc, *ps;
    rotary_sizes z = {0};
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, x, ELEM_F32, &px, err));
    TRY(real_of(r, cosine, ELEM_F32, &pc, err));
    TRY(real_of(r, sine, ELEM_F32, &ps, err));
    TRY(rotary_size(r, st, x, cosine, &z, err));
    if (sine->count != cosine->count)
        return run_error(r, err, CHURON_INVALID, "sin_cache: %zu elements expected, got %zu", cosine->count,
                         sine->count);
    if (positions && positions->count != z.batch * z.length && positions->count != 1)
        return run_error(r, err, CHURON_INVALID, "position_ids: %zu elements expected, got %zu",
                         z.batch * z.length, positions->count);
    size_t half = z.rotated / 2, n_rows = half ? cosine->count / half : z.batch * z.length;
    for (size_t b = 0; b < z.batch; b++)
        for (size_t t = 0; t < z.length; t++) {
            size_t row = 0;
            TRY(cache_row(r, &z, positions, n_rows, b, t, &row, err));
            for (size_t h = 0; h < z.heads; h++) {
                size_t at = z.heads_first ? ((b * z.heads + h) * z.length + t) * z.size
                                          : ((b * z.length + t) * z.heads + h) * z.size;
                attention_rotate((const float *)px + at, (float *)to + at, z.size, z.rotated,
                                 (const float *)pc + row * half, (const float *)ps + row * half,
                                 st->interleaved, x->type);
            }
        }
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- MRotaryEmbedding ------------------------------------------------------------------------------- */

static status m_rotary_prepare(op_node *n, error *err) {
    const int64_t *section;
    size_t count;
    rotary_state *st;
    TRY(rotary_read(n, true, &st, err));
    TRY(op_attr_bool(n, "mrope_layout", false, &st->mixed, err));
    TRY(op_attr_ints(n, "mrope_section", &section, &count, err));
    if (count != 3)
        return op_error(n, err, CHURON_INVALID, "mrope_section: 3 numbers expected, got %zu", count);
    for (size_t i = 0; i < 3; i++) {
        if (section[i] < 0 || section[i] > INT32_MAX)
            return op_error(n, err, CHURON_INVALID, "mrope_section[%zu]: 0 to %d expected, got %lld", i,
                            INT32_MAX, (long long)section[i]);
        st->section[i] = section[i];
    }
    return CHURON_OK;
}

static status m_rotary_infer(op_shapes *s, error *err) {
    bool kx, kp;
    size_t rank, rp;
    const dim *x, *p;
    TRY(nn_rank(s, 0, 3, 4, "input", &kx, &rank, &x, err));
    TRY(nn_rank(s, 1, 3, 3, "position_ids", &kp, &rp, &p, err));
    if (kp) TRY(shapes_same(s, p[0], 3, "position_ids: temporal, height, width", NULL, err));
    if (kx && kp) TRY(shapes_same(s, p[1], x[0], "batches of input and position_ids", NULL, err));
    if (kx && kp) TRY(shapes_same(s, p[2], x[rank - 2], "lengths of input and position_ids", NULL, err));
    return infer_same(s, err);
}

/* Which of the three positions turns pair i. */
static size_t stream_of(const rotary_state *st, size_t i) {
    if (st->mixed) {
        for (size_t k = 1; k < 3; k++)
            if (i % 3 == k && (int64_t)i < 3 * st->section[k]) return k;
        return 0;
    }
    return (int64_t)i < st->section[0] ? 0 : (int64_t)i < st->section[0] + st->section[1] ? 1 : 2;
}

static status m_rotary_run(op_run *r, error *err) {
    const rotary_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *positions = run_in(r, 1), *cosine = run_in(r, 2), *sine = run_in(r, 3);
    tensor *y;
    void *to, *memory;
    const void *px, *pc, *ps;
    rotary_sizes z = {0};
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, x, ELEM_F32, &px, err));
    TRY(real_of(r, cosine, ELEM_F32, &pc, err));
    TRY(real_of(r, sine, ELEM_F32, &ps, err));
    TRY(rotary_size(r, st, x, cosine, &z, err));
    const size_t half = z.rotated / 2, tokens = z.batch * z.length, n_rows = half ? cosine->count / half : 0;
    if (sine->count != cosine->count || st->section[0] + st->section[1] + st->section[2] != (int64_t)half)
        return run_error(r, err, CHURON_INVALID,
                         "sin_cache, mrope_section: %zu elements and a sum of %zu expected, got %zu and %lld",
                         cosine->count, half, sine->count,
                         (long long)(st->section[0] + st->section[1] + st->section[2]));
    TRY(run_scratch(r, (2 * half + 1) * sizeof(float), &memory, err));
    float *c = memory, *s = c + half;
    for (size_t token = 0; token < tokens; token++) {
        for (size_t i = 0; i < half; i++) {
            const int64_t at = int_at(positions, stream_of(st, i) * tokens + token);
            if (at < 0 || (uint64_t)at >= n_rows)
                return run_error(r, err, CHURON_INVALID,
                                 "position_ids: a row of the caches (0 to %zu) expected, got %lld",
                                 n_rows - 1, (long long)at);
            c[i] = ((const float *)pc)[(size_t)at * half + i],
            s[i] = ((const float *)ps)[(size_t)at * half + i];
        }
        for (size_t h = 0; h < z.heads; h++) {
            const size_t b = token / z.length, t = token % z.length;
            const size_t at =
                z.heads_first ? ((b * z.heads + h) * z.length + t) * z.size : (token * z.heads + h) * z.size;
            attention_rotate((const float *)px + at, (float *)to + at, z.size, z.rotated, c, s,
                             st->interleaved, x->type);
        }
    }
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- LinearAttention -------------------------------------------------------------------------------- */

enum rule { RULE_LINEAR, RULE_GATED, RULE_DELTA, RULE_GATED_DELTA };
enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };

typedef struct linear_state {
    int64_t q_heads, kv_heads;
    float scale;
    int rule;
} linear_state;

static status linear_prepare(op_node *n, error *err) {
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta", NULL};
    linear_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    op_attr_ignore(n, "chunk_size");
    TRY(op_attr_int(n, "q_num_heads", 0, 1, INT32_MAX, &st->q_heads, err));
    TRY(op_attr_int(n, "kv_num_heads", 0, 1, INT32_MAX, &st->kv_heads, err));
    TRY(op_attr_float(n, "scale", 0, &st->scale, err));
    TRY(op_attr_choice(n, "update_rule", rules, RULE_GATED_DELTA, &st->rule, err));
    if (!st->q_heads || !st->kv_heads || st->q_heads % st->kv_heads)
        return op_error(n, err, CHURON_INVALID,
                        "q_num_heads: a multiple of kv_num_heads %lld expected, got %lld",
                        (long long)st->kv_heads, (long long)st->q_heads);
    bool gated = st->rule == RULE_GATED || st->rule == RULE_GATED_DELTA, delta = st->rule >= RULE_DELTA;
    if (op_has_input(n, DECAY) != gated || op_has_input(n, BETA) != delta)
        return op_error(n, err, CHURON_INVALID, "update_rule: %s needs decay: %s, beta: %s", rules[st->rule],
                        gated ? "yes" : "no", delta ? "yes" : "no");
    return CHURON_OK;
}

static status ms_linear_prepare(op_node *n, error *err) {
    int64_t states;
    TRY(op_attr_int(n, "state_window", 0, 0, 0, &states, err));
    return linear_prepare(n, err);
}

static status head_size(op_shapes *s, dim hidden, int64_t n_heads, const char *what, dim *out, error *err) {
    if (dim_known(hidden) && hidden % n_heads)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "%s: a hidden size that is a multiple of %lld heads expected, got %lld", what,
                        (long long)n_heads, (long long)hidden);
    *out = dim_div_floor(s, hidden, n_heads);
    return CHURON_OK;
}

static status linear_infer(op_shapes *s, error *err) {
    const linear_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool known[6];
    size_t rank;
    const dim *d[6];
    static const char *const names[] = {"query", "key", "value", "past_state", "decay", "beta"};
    shapes_out_type(s, 0, shapes_in_type(s, QUERY));
    shapes_out_type(s, 1, shapes_in_type(s, op_has_input(n, PAST) ? PAST : QUERY));
    for (size_t i = 0; i < 6; i++) {
        size_t want = i == PAST ? 4 : 3;
        known[i] = false;
        if (op_has_input(n, i)) TRY(nn_rank(s, i, want, want, names[i], &known[i], &rank, &d[i], err));
        if (i != PAST && i != QUERY && known[i] && known[QUERY])
            for (size_t k = 0; k < 2; k++) TRY(shapes_same(s, d[i][k], d[QUERY][k], names[i], NULL, err));
    }
    if (!known[QUERY] || !known[VALUE] || !known[KEY]) {
        shapes_out_unknown(s, 0);
        shapes_out_unknown(s, 1);
        return CHURON_OK;
    }
    dim k = 0, kq = 0, v = 0;
    TRY(head_size(s, d[QUERY][2], st->q_heads, "query", &kq, err));
    TRY(head_size(s, d[KEY][2], st->kv_heads, "key", &k, err));
    TRY(head_size(s, d[VALUE][2], st->kv_heads, "value", &v, err));
    TRY(shapes_same(s, kq, k, "head sizes of query and key", NULL, err));
    const dim state[4] = {d[QUERY][0], st->kv_heads, k, v};
    for (size_t i = 0; known[PAST] && i < 4; i++)
        TRY(shapes_same(s, d[PAST][i], state[i], "past_state", NULL, err));
    TRY(shapes_out(s, 0, 3, (dim[]){d[QUERY][0], d[QUERY][1], dim_mul(s, v, st->q_heads)}, err));
    return shapes_out(s, 1, 4, state, err);
}

typedef struct linear_job {
    const linear_state *st;
    size_t steps, q_heads, kv_heads, k, v, decay_each, beta_heads; /* decay_each: 1 or k a head */
    const float *q, *key, *value, *decay, *beta;
    float *y, *state;
    float scale;
} linear_job;

/* One step of one kv head. S [k, v]; row: number of the (batch, step). */
static void linear_step(const linear_job *j, size_t row, size_t head, float *S) {
    const size_t dk = j->k, dv = j->v, group = j->q_heads / j->kv_heads;
    const float *key = j->key + (row * j->kv_heads + head) * dk,
                *given = j->value + (row * j->kv_heads + head) * dv;
    const float *decay = j->decay ? j->decay + (row * j->kv_heads + head) * j->decay_each : NULL;
    if (decay)
        for (size_t d = 0; d < dk; d++) {
            float g = expf(decay[j->decay_each == 1 ? 0 : d]);
            for (size_t m = 0; m < dv; m++) S[d * dv + m] *= g;
        }
    float beta = j->beta ? j->beta[row * j->beta_heads + (j->beta_heads == 1 ? 0 : head)] : 1;
    for (size_t m = 0; m < dv; m++) {
        float add = given[m];
        if (j->beta) {
            float found = 0;
            for (size_t d = 0; d < dk; d++) found += S[d * dv + m] * key[d];
            add = beta * (add - found);
        }
        for (size_t d = 0; d < dk; d++) S[d * dv + m] += key[d] * add;
    }
    for (size_t g = 0; g < group; g++) {
        const float *q = j->q + (row * j->q_heads + head * group + g) * dk;
        float *y = j->y + (row * j->q_heads + head * group + g) * dv;
        for (size_t m = 0; m < dv; m++) {
            float sum = 0;
            for (size_t d = 0; d < dk; d++) sum += q[d] * S[d * dv + m];
            y[m] = j->scale * sum;
        }
    }
}

static void linear_heads(void *ctx, size_t from, size_t to) { /* (batch, kv head) */
    const linear_job *j = ctx;
    for (size_t u = from; u < to; u++) {
        size_t b = u / j->kv_heads, head = u % j->kv_heads;
        for (size_t t = 0; t < j->steps; t++)
            linear_step(j, b * j->steps + t, head, j->state + u * j->k * j->v);
    }
}

static status linear_run(op_run *r, error *err) {
    const linear_state *st = run_state(r);
    const tensor *q = run_in(r, QUERY), *v = run_in(r, VALUE), *decay = run_in(r, DECAY),
                 *beta = run_in(r, BETA);
    tensor *y, *present;
    void *py, *ps;
    const void *in[6];
    TRY(real_out(r, 0, ELEM_F32, &y, &py, err));
    TRY(real_out(r, 1, ELEM_F32, &present, &ps, err));
    for (size_t i = 0; i < 6; i++) TRY(real_in(r, i, ELEM_F32, &in[i], err));
    linear_job j = {.st = st,
                    .steps = (size_t)q->dims[1],
                    .q_heads = (size_t)st->q_heads,
                    .kv_heads = (size_t)st->kv_heads,
                    .k = (size_t)(q->dims[2] / st->q_heads),
                    .v = (size_t)(v->dims[2] / st->kv_heads),
                    .q = in[QUERY],
                    .key = in[KEY],
                    .value = in[VALUE],
                    .decay = in[DECAY],
                    .beta = in[BETA],
                    .y = py,
                    .state = ps};
    j.scale = st->scale != 0 ? st->scale : (float)(1 / sqrt((double)j.k));
    if (decay) j.decay_each = (size_t)decay->dims[2] / j.kv_heads;
    if (decay && ((size_t)decay->dims[2] % j.kv_heads || (j.decay_each != 1 && j.decay_each != j.k)))
        return run_error(r, err, CHURON_INVALID, "decay: a last dimension of %zu or %zu expected, got %lld",
                         j.kv_heads, j.kv_heads * j.k, (long long)decay->dims[2]);
    if (beta) j.beta_heads = (size_t)beta->dims[2];
    if (beta && j.beta_heads != 1 && j.beta_heads != j.kv_heads)
        return run_error(r, err, CHURON_INVALID, "beta: a last dimension of 1 or %zu expected, got %zu",
                         j.kv_heads, j.beta_heads);
    size_t units = (size_t)q->dims[0] * j.kv_heads, state = units * j.k * j.v;
    if (!ps) TRY(run_scratch(r, (state + 1) * sizeof(float), &ps, err));
    j.state = ps;
    if (in[PAST])
        memcpy(ps, in[PAST], state * sizeof(float));
    else
        memset(ps, 0, state * sizeof(float));
    run_parallel(r, units, 4.0 * (double)state * (double)j.steps, linear_heads, &j);
    real_out_done(r, y, ELEM_F32, py);
    real_out_done(r, present, ELEM_F32, ps);
    return CHURON_OK;
}

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))

static const op_def rows[] = {
    {.domain = "",
     .name = "RotaryEmbedding",
     .since = 23,
     .signature = "TTT=i>T",
     .vars = {{'T', HALF}},
     .prepare = rotary_prepare,
     .release = mem_free,
     .infer = rotary_infer,
     .run = rotary_run},
    {.domain = "com.microsoft",
     .name = "RotaryEmbedding",
     .since = 1,
     .signature = "TiTT>T",
     .vars = {{'T', HALF}},
     .prepare = ms_rotary_prepare,
     .release = mem_free,
     .infer = rotary_infer,
     .run = rotary_run},
    {.domain = "",
     .name = "LinearAttention",
     .since = 27,
     .signature = "TTT=STT>@@",
     .vars = {{'T', HALF}, {'S', HALF}},
     .prepare = linear_prepare,
     .release = mem_free,
     .infer = linear_infer,
     .run = linear_run},
    {.domain = "com.microsoft",
     .name = "LinearAttention",
     .since = 1,
     .signature = "TTT=STT>@@",
     .vars = {{'T', HALF}, {'S', HALF}},
     .prepare = ms_linear_prepare,
     .release = mem_free,
     .infer = linear_infer,
     .run = linear_run},
    {.domain = "com.microsoft",
     .name = "MRotaryEmbedding",
     .since = 1,
     .signature = "TiTT>T",
     .vars = {{'T', HALF}},
     .prepare = m_rotary_prepare,
     .release = mem_free,
     .infer = m_rotary_infer,
     .run = m_rotary_run},
};
NN_TABLE(rotary);
