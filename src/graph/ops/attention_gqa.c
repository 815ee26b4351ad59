/* attention_gqa.c: GroupQueryAttention of com.microsoft: rotary positions, a cache of keys and values of
 * every sequence's own length, causal windows, soft cap, sinks. f32 arithmetic. Quantized caches, norms of
 * queries and caches that are windows are refused by name. */
#include "base/mem.h"
#include "graph/ops/attention_core.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    SEQLENS,
    TOTAL,
    COSINE,
    SINE,
    POSITIONS,
    BIAS,
    SINK,
    K_SCALE,
    V_SCALE,
    Q_NORM,
    K_NORM,
    LENGTHS
};

typedef struct gqa_state {
    int64_t heads, kv_heads, window;
    bool rotary, interleaved, smooth, causal;
    float scale, soft_cap;
} gqa_state;

static status expect_int(op_node *n, const char *name, int64_t usual, error *err) {
    int64_t v;
    TRY(op_attr_int(n, name, usual, INT64_MIN, INT64_MAX, &v, err));
    return v == usual ? CHURON_OK
                      : op_error(n, err, CHURON_UNSUPPORTED, "%s: %lld expected, got %lld", name,
                                 (long long)usual, (long long)v);
}

static status expect_unquantized(op_node *n, const char *name, error *err) {
    static const char *const only[] = {"NONE", NULL};
    int unused;
    return op_attr_choice(n, name, only, 0, &unused, err);
}

static status gqa_prepare(op_node *n, error *err) {
    gqa_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "num_heads", 0, 1, INT32_MAX, &st->heads, err));
    TRY(op_attr_int(n, "kv_num_heads", 0, 1, INT32_MAX, &st->kv_heads, err));
    if (!st->heads || !st->kv_heads || st->heads % st->kv_heads)
        return op_error(n, err, CHURON_INVALID,
                        "num_heads: a multiple of kv_num_heads %lld expected, got %lld",
                        (long long)st->kv_heads, (long long)st->heads);
    TRY(op_attr_float(n, "scale", 0, &st->scale, err));
    TRY(op_attr_float(n, "softcap", 0, &st->soft_cap, err));
    TRY(op_attr_int(n, "local_window_size", -1, -1, INT32_MAX, &st->window, err));
    TRY(op_attr_bool(n, "do_rotary", false, &st->rotary, err));
    TRY(op_attr_bool(n, "rotary_interleaved", false, &st->interleaved, err));
    TRY(op_attr_bool(n, "causal", true, &st->causal, err));
    if (op_attr_present(n, "smooth_softmax")) {
        int64_t smooth;
        TRY(op_attr_int(n, "smooth_softmax", 0, -1, 1, &smooth, err));
        st->smooth = smooth == 1;
    }
    TRY(expect_int(n, "qk_output", 0, err));
    TRY(expect_int(n, "sliding_window_cache", 0, err));
    TRY(expect_unquantized(n, "k_quant_type", err));
    TRY(expect_unquantized(n, "v_quant_type", err));
    static const char *const of_others[] = {"kv_cache_bit_width", "qk_norm_epsilon", "q_norm_epsilon",
                                            "k_norm_epsilon"};
    for (size_t i = 0; i < 4; i++) op_attr_ignore(n, of_others[i]); /* of what is refused here */
    for (size_t i = K_SCALE; i <= LENGTHS; i++)
        if (op_has_input(n, i))
            return op_error(n, err, CHURON_UNSUPPORTED, "input %zu: expected to be absent, got a value", i);
    if (op_has_input(n, KEY) != op_has_input(n, VALUE) ||
        op_has_input(n, PAST_KEY) != op_has_input(n, PAST_VALUE))
        return op_error(n, err, CHURON_INVALID,
                        "key and value, past_key and past_value: both or none expected, got one");
    if (st->rotary && (!op_has_input(n, COSINE) || !op_has_input(n, SINE)))
        return op_error(n, err, CHURON_INVALID, "cos_cache, sin_cache: expected for do_rotary 1, got none");
    return op_has_output(n, 3) ? op_error(n, err, CHURON_UNSUPPORTED, "output_qk: expected to be absent")
                               : CHURON_OK;
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

static status check_cache(op_shapes *s, size_t i, dim batch, dim size, dim *length, bool *known, error *err) {
    const gqa_state *st = shapes_state(s);
    size_t rank;
    const dim *d;
    TRY(nn_rank(s, i, 4, 4, i == PAST_KEY ? "past_key" : "past_value", known, &rank, &d, err));
    if (!*known) return CHURON_OK;
    TRY(shapes_same(s, d[0], batch, "batches of query and past", NULL, err));
    TRY(shapes_same(s, d[1], st->kv_heads, "heads of past", NULL, err));
    TRY(shapes_same(s, d[3], size, "head sizes of query and past", NULL, err));
    *length = d[2];
    return CHURON_OK;
}

static status gqa_infer(op_shapes *s, error *err) {
    const gqa_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool kq, kk = false, fused = !op_has_input(n, KEY);
    size_t rank, count;
    const dim *q, *k = NULL, *v, *total;
    TRY(nn_rank(s, QUERY, 3, 3, "query", &kq, &rank, &q, err));
    if (!fused) TRY(nn_rank(s, KEY, 3, 3, "key", &kk, &rank, &k, err));
    if (!kq) {
        for (size_t i = 0; i < op_n_outputs(n) && i < 3; i++)
            if (op_has_output(n, i)) shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    int64_t parts = st->heads + (fused ? 2 * st->kv_heads : 0);
    if (dim_known(q[2]) && q[2] % parts)
        return op_error(n, err, CHURON_INVALID,
                        "query: a hidden size that is a multiple of %lld heads expected, got %lld",
                        (long long)parts, (long long)q[2]);
    dim size = dim_div_floor(s, q[2], parts), hidden = dim_mul(s, size, st->heads),
        kv_hidden = dim_mul(s, size, st->kv_heads);
    for (size_t i = KEY; !fused && i <= VALUE; i++) {
        bool known;
        TRY(nn_rank(s, i, 3, 3, i == KEY ? "key" : "value", &known, &rank, &v, err));
        const dim want[3] = {q[0], q[1], kv_hidden};
        for (size_t d = 0; known && d < 3; d++)
            TRY(shapes_same(s, v[d], want[d], i == KEY ? "key" : "value", NULL, err));
    }
    dim length = 0, before = 0, other = 0;
    bool known_total = shapes_in_values(s, TOTAL, &count, &total) && count == 1, known_past = true;
    if (op_has_input(n, PAST_KEY)) {
        bool known_v;
        TRY(check_cache(s, PAST_KEY, q[0], size, &before, &known_past, err));
        TRY(check_cache(s, PAST_VALUE, q[0], size, &other, &known_v, err));
        if (known_past && known_v)
            TRY(shapes_same(s, before, other, "lengths of past_key and past_value", NULL, err));
    }
    length = !known_total || !known_past ? dim_fresh(s)
             : op_has_input(n, PAST_KEY) ? dim_max(s, total[0], before)
                                         : total[0];
    TRY(shapes_out(s, 0, 3, (dim[]){q[0], q[1], hidden}, err));
    for (size_t i = 1; i < 3; i++)
        if (op_has_output(n, i)) TRY(shapes_out(s, i, 4, (dim[]){q[0], st->kv_heads, length, size}, err));
    return CHURON_OK;
}

/* ---- run -------------------------------------------------------------------------------------------- */

typedef struct gqa_run {
    size_t batch, length, size, heads, kv_heads, before,
        total;     /* before: rows of the past caches; total: of the new */
    int64_t *past; /* [batch] keys that exist before these queries */
    const float *cosine, *sine;
    size_t cache_rows, half;
} gqa_run;

static status read_lengths(op_run *r, gqa_run *g, error *err) {
    const tensor *seqlens = run_in(r, SEQLENS), *total = run_in(r, TOTAL);
    void *memory;
    if (seqlens->count != g->batch || total->count != 1)
        return run_error(r, err, CHURON_INVALID,
                         "seqlens_k, total_sequence_length: %zu and 1 elements expected, got %zu and %zu",
                         g->batch, seqlens->count, total->count);
    int64_t all = int_at(total, 0);
    TRY(run_scratch(r, (g->batch + 1) * sizeof(int64_t), &memory, err));
    g->past = memory;
    g->total = all > (int64_t)g->before ? (size_t)all : g->before;
    for (size_t b = 0; b < g->batch; b++) {
        int64_t keys = int_at(seqlens, b) + 1;
        g->past[b] =
            (int64_t)g->length == all ? 0 : keys - (int64_t)g->length; /* all: the first of its sequence */
        if (g->past[b] < 0 || g->past[b] > (int64_t)g->before ||
            g->past[b] + (int64_t)g->length > (int64_t)g->total)
            return run_error(r, err, CHURON_INVALID,
                             "seqlens_k[%zu]: keys that fit %zu queries, a past of %zu and a total of %lld "
                             "expected, got %lld",
                             b, g->length, g->before, (long long)all, (long long)(keys - 1));
    }
    return CHURON_OK;
}

static status read_caches(op_run *r, gqa_run *g, error *err) {
    const tensor *c = run_in(r, COSINE), *s = run_in(r, SINE);
    const void *pc, *ps;
    if (c->rank != 2 || s->count != c->count || c->dims[1] < 1 || (size_t)c->dims[1] * 2 > g->size)
        return run_error(r, err, CHURON_INVALID,
                         "cos_cache, sin_cache: two tables of up to %zu columns expected, got %lld",
                         g->size / 2, (long long)(c->rank == 2 ? c->dims[1] : 0));
    TRY(real_of(r, c, ELEM_F32, &pc, err));
    TRY(real_of(r, s, ELEM_F32, &ps, err));
    g->cosine = pc, g->sine = ps, g->cache_rows = (size_t)c->dims[0], g->half = (size_t)c->dims[1];
    return CHURON_OK;
}

/* Rotates n_heads heads of every position, from a view to a dense [B, S, H, D]. */
static status rotate(op_run *r, const gqa_run *g, attention_view *v, size_t n_heads, error *err) {
    const gqa_state *st = run_state(r);
    const tensor *positions = run_in(r, POSITIONS);
    void *memory;
    if (!g->cosine) return CHURON_OK;
    if (positions && positions->count != g->batch * g->length)
        return run_error(r, err, CHURON_INVALID, "position_ids: %zu elements expected, got %zu",
                         g->batch * g->length, positions->count);
    TRY(run_scratch(r, (g->batch * g->length * n_heads * g->size + 1) * sizeof(float), &memory, err));
    for (size_t b = 0; b < g->batch; b++)
        for (size_t t = 0; t < g->length; t++) {
            int64_t at = positions ? int_at(positions, b * g->length + t) : g->past[b] + (int64_t)t;
            if (at < 0 || (uint64_t)at >= g->cache_rows)
                return run_error(
                    r, err, CHURON_INVALID,
                    "position %zu of sequence %zu: a row of cos_cache (0 to %zu) expected, got %lld", t, b,
                    g->cache_rows - 1, (long long)at);
            for (size_t h = 0; h < n_heads; h++)
                attention_rotate((const float *)v->data + b * v->batch + h * v->head + t * v->time,
                                 (float *)memory + ((b * g->length + t) * n_heads + h) * g->size, g->size,
                                 2 * g->half, g->cosine + (size_t)at * g->half,
                                 g->sine + (size_t)at * g->half, st->interleaved, ELEM_F32);
        }
    *v = (attention_view){
        .data = memory, .batch = g->length * n_heads * g->size, .head = g->size, .time = n_heads * g->size};
    return CHURON_OK;
}

/* Cache [B, kv, total, D] of what was and what is new; rows behind are zero. */
static status extend(op_run *r, const gqa_run *g, size_t past_in, size_t out, attention_view *v,
                     tensor **present, void **cache, error *err) {
    const tensor *past = run_in(r, past_in);
    const void *old;
    size_t row = g->size * sizeof(float), count = g->batch * g->kv_heads * g->total * g->size;
    *present = NULL, *cache = NULL;
    if (op_has_output(run_node(r), out)) TRY(real_out(r, out, ELEM_F32, present, cache, err));
    if (!*cache) TRY(run_scratch(r, (count + 1) * sizeof(float), cache, err));
    TRY(real_of(r, past, ELEM_F32, &old, err));
    memset(*cache, 0, count * sizeof(float));
    for (size_t b = 0; b < g->batch; b++)
        for (size_t h = 0; h < g->kv_heads; h++) {
            float *to = (float *)*cache + (b * g->kv_heads + h) * g->total * g->size;
            size_t n = (size_t)g->past[b];
            if (n) memcpy(to, (const float *)old + (b * g->kv_heads + h) * g->before * g->size, n * row);
            for (size_t t = 0; t < g->length; t++)
                memcpy(to + (n + t) * g->size,
                       (const float *)v->data + b * v->batch + h * v->head + t * v->time, row);
        }
    *v = (attention_view){.data = *cache,
                          .batch = g->kv_heads * g->total * g->size,
                          .head = g->total * g->size,
                          .time = g->size};
    return CHURON_OK;
}

static status set_bias(op_run *r, attention_call *c, error *err) {
    const tensor *bias = run_in(r, BIAS);
    if (!bias) return CHURON_OK;
    const int64_t want[4] = {(int64_t)c->batch, (int64_t)c->q_heads, (int64_t)c->q_len, (int64_t)c->kv_len};
    for (size_t i = 0; i < 4; i++) {
        bool good = bias->rank == 4 && (i == 3 ? bias->dims[3] <= want[3]
                                               : bias->dims[i] == want[i] || (i < 2 && bias->dims[i] == 1));
        if (!good)
            return run_error(r, err, CHURON_INVALID,
                             "attention_bias: dimension %zu of %lld expected, got %lld", i,
                             (long long)want[i], (long long)(i < bias->rank ? bias->dims[i] : 0));
    }
    int64_t steps[4];
    nn_broadcast_strides(bias->dims, 4, 4, steps);
    for (size_t i = 0; i < 4; i++) c->bias_step[i] = (size_t)steps[i];
    c->bias_keys = (size_t)bias->dims[3];
    return real_of(r, bias, ELEM_F32, &c->bias, err);
}

static status set_sink(op_run *r, const gqa_state *st, attention_call *c, error *err) {
    const tensor *sink = run_in(r, SINK);
    const void *values;
    if (sink && sink->count != c->q_heads)
        return run_error(r, err, CHURON_INVALID, "head_sink: %zu elements expected, got %zu", c->q_heads,
                         sink->count);
    TRY(real_of(r, sink, ELEM_F32, &values, err));
    c->sink = values;
    if (sink || !st->smooth) return CHURON_OK;
    void *memory;
    TRY(run_scratch(r, c->q_heads * sizeof(float), &memory, err));
    memset(memory, 0, c->q_heads * sizeof(float));
    c->sink = memory;
    return CHURON_OK;
}

static status gqa_op_run(op_run *r, error *err) {
    const gqa_state *st = run_state(r);
    const tensor *q = run_in(r, QUERY), *k = run_in(r, KEY), *past = run_in(r, PAST_KEY);
    tensor *y, *present_k, *present_v;
    void *to, *cache_k, *cache_v;
    const void *pq, *pk, *pv;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, q, ELEM_F32, &pq, err));
    TRY(real_of(r, k, ELEM_F32, &pk, err));
    TRY(real_in(r, VALUE, ELEM_F32, &pv, err));
    gqa_run g = {.batch = (size_t)q->dims[0],
                 .length = (size_t)q->dims[1],
                 .heads = (size_t)st->heads,
                 .kv_heads = (size_t)st->kv_heads,
                 .size = (size_t)(y->dims[2] / st->heads),
                 .before = past ? (size_t)past->dims[2] : 0};
    TRY(read_lengths(r, &g, err));
    if (st->rotary) TRY(read_caches(r, &g, err));
    size_t D = g.size, wide = k ? g.heads : g.heads + 2 * g.kv_heads, kv_wide = k ? g.kv_heads : wide;
    attention_call c = {.work = ELEM_F32,
                        .batch = g.batch,
                        .q_heads = g.heads,
                        .kv_heads = g.kv_heads,
                        .q_len = g.length,
                        .kv_len = g.total,
                        .head_k = D,
                        .head_v = D,
                        .soft_cap = (double)st->soft_cap,
                        .causal = st->causal,
                        .left = st->window >= 0 ? st->window - 1 : -1,
                        .right = -1,
                        .offsets = g.past};
    c.scale = st->scale != 0 ? (double)st->scale : D ? 1 / sqrt((double)D) : 1;
    c.q = (attention_view){.data = pq, .batch = g.length * wide * D, .head = D, .time = wide * D};
    c.k = (attention_view){.data = k ? pk : (const float *)pq + g.heads * D,
                           .batch = g.length * kv_wide * D,
                           .head = D,
                           .time = kv_wide * D};
    c.v = c.k;
    c.v.data = k ? pv : (const float *)pq + (g.heads + g.kv_heads) * D;
    TRY(rotate(r, &g, &c.q, g.heads, err));
    TRY(rotate(r, &g, &c.k, g.kv_heads, err));
    TRY(extend(r, &g, PAST_KEY, 1, &c.k, &present_k, &cache_k, err));
    TRY(extend(r, &g, PAST_VALUE, 2, &c.v, &present_v, &cache_v, err));
    void *valid;
    TRY(run_scratch(r, (g.batch + 1) * sizeof(int64_t), &valid, err));
    for (size_t b = 0; b < g.batch; b++) ((int64_t *)valid)[b] = g.past[b] + (int64_t)g.length;
    c.valid = valid;
    c.y = (attention_view){.data = to, .batch = g.length * g.heads * D, .head = D, .time = g.heads * D};
    TRY(set_bias(r, &c, err));
    TRY(set_sink(r, st, &c, err));
    TRY(attention_run(r, &c, err));
    real_done(y, ELEM_F32, to);
    real_done(present_k, ELEM_F32, cache_k);
    real_done(present_v, ELEM_F32, cache_v);
    return CHURON_OK;
}

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "GroupQueryAttention",
     .since = 1,
     .signature = "T=TTTTMMTTiTTffTTM>TTTT",
     .vars = {{'T', HALF}, {'M', ELEM_BIT(ELEM_I32)}},
     .prepare = gqa_prepare,
     .release = mem_free,
     .infer = gqa_infer,
     .run = gqa_op_run},
};
NN_TABLE(attention_gqa);
