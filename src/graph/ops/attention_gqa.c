/* attention_gqa.c: GroupQueryAttention of com.microsoft: rotary positions, a cache of keys and values of
 * every sequence's own length, causal windows, soft cap, sinks, RMS norms of queries and keys. f32
 * arithmetic. A cache may hold codes of 8 bits (int8) or 4 (two a byte, the even channel low, 8 is zero) with
 * one scale or one a channel: new keys and values are rounded to codes first, and attention sees what the
 * codes stand for. Caches that are windows and padded chunks of queries are refused by name. */
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
    float scale, soft_cap, q_epsilon, k_epsilon;
    int64_t tap;  /* qk_output */
    int64_t bits; /* of a code of the caches; 0: they hold floats */
    int quant[2]; /* enum quant_type of keys and of values */
} gqa_state;

enum quant_type { QUANT_NONE, QUANT_TENSOR, QUANT_CHANNEL };

static status expect_int(op_node *n, const char *name, int64_t usual, error *err) {
    int64_t v;
    TRY(op_attr_int(n, name, usual, INT64_MIN, INT64_MAX, &v, err));
    return v == usual ? CHURON_OK
                      : op_error(n, err, CHURON_UNSUPPORTED, "%s: %lld expected, got %lld", name,
                                 (long long)usual, (long long)v);
}

/* How the caches hold their elements. */
static status read_quantization(op_node *n, gqa_state *st, error *err) {
    static const char *const types[] = {"NONE", "PER_TENSOR", "PER_CHANNEL", NULL};
    TRY(op_attr_choice(n, "k_quant_type", types, QUANT_NONE, &st->quant[0], err));
    TRY(op_attr_choice(n, "v_quant_type", types, QUANT_NONE, &st->quant[1], err));
    if ((st->quant[0] == QUANT_NONE) != (st->quant[1] == QUANT_NONE))
        return op_error(n, err, CHURON_UNSUPPORTED,
                        "k_quant_type, v_quant_type: both or none other than NONE expected, got one");
    const bool coded = st->quant[0] != QUANT_NONE;
    if (coded) {
        TRY(op_attr_int(n, "kv_cache_bit_width", 8, 4, 8, &st->bits, err));
        if (st->bits != 4 && st->bits != 8)
            return op_error(n, err, CHURON_INVALID, "kv_cache_bit_width: 4 or 8 expected, got %lld",
                            (long long)st->bits);
    }
    op_attr_ignore(n, "kv_cache_bit_width"); /* without a quantized cache it says nothing */
    if (op_has_input(n, K_SCALE) != coded || op_has_input(n, V_SCALE) != coded)
        return op_error(n, err, CHURON_INVALID, "k_scale, v_scale: %s expected",
                        coded ? "values for quantized caches" : "none without quantized caches");
    const elem want = !coded ? op_input_type(n, QUERY) : st->bits == 8 ? ELEM_I8 : ELEM_U8;
    if (op_has_input(n, PAST_KEY) && op_input_type(n, PAST_KEY) != want)
        return op_error(n, err, CHURON_UNSUPPORTED, "past_key: %s expected, got %s", elem_name(want),
                        elem_name(op_input_type(n, PAST_KEY)));
    return CHURON_OK;
}

static status read_norms(op_node *n, gqa_state *st, error *err) {
    float both;
    if (op_has_input(n, Q_NORM) != op_has_input(n, K_NORM))
        return op_error(n, err, CHURON_INVALID,
                        "q_norm_weight, k_norm_weight: both or none expected, got one");
    TRY(op_attr_float(n, "qk_norm_epsilon", 1e-6F, &both, err));
    TRY(op_attr_float(n, "q_norm_epsilon", both, &st->q_epsilon, err));
    return op_attr_float(n, "k_norm_epsilon", both, &st->k_epsilon, err);
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
    TRY(op_attr_int(n, "qk_output", 0, 0, 2, &st->tap, err));
    TRY(expect_int(n, "sliding_window_cache", 0, err));
    TRY(read_quantization(n, st, err));
    TRY(read_norms(n, st, err));
    if (op_has_input(n, LENGTHS))
        return op_error(n, err, CHURON_UNSUPPORTED, "query_seqlens: expected to be absent, got a value");
    if (op_has_input(n, KEY) != op_has_input(n, VALUE) ||
        op_has_input(n, PAST_KEY) != op_has_input(n, PAST_VALUE))
        return op_error(n, err, CHURON_INVALID,
                        "key and value, past_key and past_value: both or none expected, got one");
    if (st->rotary && (!op_has_input(n, COSINE) || !op_has_input(n, SINE)))
        return op_error(n, err, CHURON_INVALID, "cos_cache, sin_cache: expected for do_rotary 1, got none");
    return op_has_output(n, 3) && !st->tap
               ? op_error(n, err, CHURON_INVALID, "qk_output: 1 or 2 expected for output_qk, got 0")
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
    TRY(shapes_same(s, d[3], st->bits == 4 ? dim_div_ceil(s, size, 2) : size, "head sizes of query and past",
                    NULL, err));
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
    for (size_t i = 1; i < 3; i++)
        if (op_has_output(n, i))
            shapes_out_type(s, i, !st->bits ? shapes_in_type(s, QUERY) : st->bits == 8 ? ELEM_I8 : ELEM_U8);
    if (!kq) {
        for (size_t i = 0; i < op_n_outputs(n); i++)
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
    const dim stored = st->bits == 4 ? dim_div_ceil(s, size, 2) : size;
    for (size_t i = 1; i < 3; i++)
        if (op_has_output(n, i)) TRY(shapes_out(s, i, 4, (dim[]){q[0], st->kv_heads, length, stored}, err));
    if (!op_has_output(n, 3)) return CHURON_OK;
    return shapes_out(s, 3, 4, (dim[]){q[0], st->heads, q[1], known_total ? total[0] : dim_fresh(s)}, err);
}

/* ---- run -------------------------------------------------------------------------------------------- */

typedef struct gqa_run {
    size_t batch, length, size, heads, kv_heads, before, total,
        keys;      /* before: rows of the past caches; total: of the new; keys: of them that exist at most */
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
    if (all < 0)
        return run_error(r, err, CHURON_INVALID, "total_sequence_length: at least 0 expected, got %lld",
                         (long long)all);
    g->total = all > (int64_t)g->before ? (size_t)all : g->before, g->keys = (size_t)all;
    for (size_t b = 0; b < g->batch; b++) {
        int64_t keys = int_at(seqlens, b) + 1;
        g->past[b] =
            (int64_t)g->length == all ? 0 : keys - (int64_t)g->length; /* all: the first of its sequence */
        if (g->past[b] < 0 || g->past[b] > (int64_t)g->before || g->past[b] + (int64_t)g->length > all)
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

/* RMS norm of every head, from a view to a dense [B, S, H, D]; without weights nothing happens. */
static status normalize(op_run *r, const gqa_run *g, size_t weights, float epsilon, attention_view *v,
                        size_t n_heads, error *err) {
    const tensor *t = run_in(r, weights);
    const void *w;
    void *memory;
    if (!t) return CHURON_OK;
    if (t->count != g->size)
        return run_error(r, err, CHURON_INVALID, "%c_norm_weight: %zu elements expected, got %zu",
                         weights == Q_NORM ? 'q' : 'k', g->size, t->count);
    TRY(real_of(r, t, ELEM_F32, &w, err));
    TRY(run_scratch(r, (g->batch * g->length * n_heads * g->size + 1) * sizeof(float), &memory, err));
    float *to = memory;
    for (size_t b = 0; b < g->batch; b++)
        for (size_t t_at = 0; t_at < g->length; t_at++)
            for (size_t h = 0; h < n_heads; h++, to += g->size) {
                const float *x = (const float *)v->data + b * v->batch + h * v->head + t_at * v->time;
                double squares = 0;
                for (size_t d = 0; d < g->size; d++) squares += (double)x[d] * (double)x[d];
                const float scale = (float)(1 / sqrt(squares / (double)g->size + (double)epsilon));
                for (size_t d = 0; d < g->size; d++) to[d] = x[d] * scale * ((const float *)w)[d];
            }
    *v = (attention_view){
        .data = memory, .batch = g->length * n_heads * g->size, .head = g->size, .time = n_heads * g->size};
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

/* ---- caches ----------------------------------------------------------------------------------------- */

typedef struct codes {
    int64_t bits;
    size_t size, row;   /* channels, bytes of a row */
    const float *scale; /* [kv, D], or one number */
    size_t head_step, step;
} codes;

static void decode_row(const codes *c, size_t head, const uint8_t *row, float *x) {
    const float *scale = c->scale + head * c->head_step;
    for (size_t d = 0; d < c->size; d++) {
        const int code = c->bits == 8 ? (int)(int8_t)row[d] : (int)(row[d / 2] >> d % 2 * 4 & 15) - 8;
        x[d] = (float)code * scale[d * c->step];
    }
}

/* To nearest even, and to the range's ends. */
static void encode_row(const codes *c, size_t head, const float *x, uint8_t *row) {
    const float *scale = c->scale + head * c->head_step;
    const float most = c->bits == 8 ? 127 : 7;
    if (c->bits == 4) memset(row, 0, c->row);
    for (size_t d = 0; d < c->size; d++) {
        float v = nearbyintf(x[d] / scale[d * c->step]);
        v = v > most ? most : v > -most - 1 ? v : -most - 1; /* NaN too becomes the least */
        if (c->bits == 8)
            row[d] = (uint8_t)(int8_t)v;
        else
            row[d / 2] |= (uint8_t)((unsigned)((int)v + 8) << d % 2 * 4);
    }
}

static status read_codes(op_run *r, const gqa_run *g, size_t i, int quant, codes *c, error *err) {
    const gqa_state *st = run_state(r);
    const tensor *t = run_in(r, i);
    const size_t want = quant == QUANT_TENSOR ? 1 : g->kv_heads * g->size;
    if (t->count != want)
        return run_error(r, err, CHURON_INVALID, "%c_scale: %zu elements expected, got %zu",
                         i == K_SCALE ? 'k' : 'v', want, t->count);
    *c = (codes){.bits = st->bits, .size = g->size, .scale = t->data};
    c->row = st->bits == 8 ? g->size : (g->size + 1) / 2;
    if (quant == QUANT_CHANNEL) c->head_step = g->size, c->step = 1;
    return CHURON_OK;
}

/* One head of a cache of codes: what was is copied and decoded, what is new is encoded and decoded. to: codes
 * of the new cache, or NULL; x: what they stand for. */
static void extend_codes(const codes *c, const gqa_run *g, size_t head, size_t n, const uint8_t *old,
                         const float *fresh, size_t step, uint8_t *to, uint8_t *spare, float *x) {
    for (size_t t = 0; t < n + g->length; t++) {
        uint8_t *row = to ? to + t * c->row : spare;
        if (t < n)
            memcpy(row, old + t * c->row, c->row);
        else
            encode_row(c, head, fresh + (t - n) * step, row);
        decode_row(c, head, row, x + t * g->size);
    }
}

/* Cache [B, kv, total, D] of what was and what is new; rows behind are zero. present: output `out`, whose
 * memory real_done finishes from *floats where that is not NULL. */
static status extend(op_run *r, const gqa_run *g, size_t past_in, size_t out, const codes *c,
                     attention_view *v, tensor **present, void **floats, error *err) {
    const tensor *past = run_in(r, past_in);
    const void *old = NULL;
    size_t row = g->size * sizeof(float), count = g->batch * g->kv_heads * g->total * g->size;
    void *cache = NULL, *spare = NULL;
    *present = NULL, *floats = NULL;
    if (op_has_output(run_node(r), out) && c) {
        TRY(run_out(r, out, present, err));
        memset((*present)->data, 0, (*present)->count);
    } else if (op_has_output(run_node(r), out)) {
        TRY(real_out(r, out, ELEM_F32, present, floats, err));
        cache = *floats;
    }
    if (!cache) TRY(run_scratch(r, (count + 1) * sizeof(float), &cache, err));
    if (c) TRY(run_scratch(r, c->row + 1, &spare, err));
    if (!c) TRY(real_of(r, past, ELEM_F32, &old, err));
    memset(cache, 0, count * sizeof(float));
    for (size_t b = 0; b < g->batch; b++)
        for (size_t h = 0; h < g->kv_heads; h++) {
            size_t n = (size_t)g->past[b], at = b * g->kv_heads + h;
            float *to = (float *)cache + at * g->total * g->size;
            const float *fresh = (const float *)v->data + b * v->batch + h * v->head;
            if (c) {
                extend_codes(c, g, h, n, past ? (const uint8_t *)past->data + at * g->before * c->row : NULL,
                             fresh, v->time,
                             *present ? (uint8_t *)(*present)->data + at * g->total * c->row : NULL, spare,
                             to);
                continue;
            }
            if (n) memcpy(to, (const float *)old + at * g->before * g->size, n * row);
            for (size_t t = 0; t < g->length; t++) memcpy(to + (n + t) * g->size, fresh + t * v->time, row);
        }
    *v = (attention_view){.data = cache,
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

/* Output 3: the scores behind mask and bias, or the probabilities. */
static status set_tap(op_run *r, const gqa_state *st, attention_call *c, tensor **qk, error *err) {
    *qk = NULL;
    if (!op_has_output(run_node(r), 3)) return CHURON_OK;
    c->tap_at = st->tap == 1 ? ATTENTION_BIASED : ATTENTION_PROBABILITIES;
    return real_out(r, 3, ELEM_F32, qk, &c->tap, err);
}

/* Scores that no query sees stand as 0 in output 3, as in ONNX Runtime. */
static void show_unseen_as_zero(const attention_call *c) {
    float *x = c->tap;
    for (size_t i = 0; i < c->batch * c->q_heads * c->q_len * c->kv_len; i++)
        if (x[i] == -INFINITY) x[i] = 0;
}

static status gqa_op_run(op_run *r, error *err) {
    const gqa_state *st = run_state(r);
    const tensor *q = run_in(r, QUERY), *k = run_in(r, KEY), *past = run_in(r, PAST_KEY);
    tensor *y, *present_k, *present_v, *qk;
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
                        .kv_len = g.keys,
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
    TRY(normalize(r, &g, Q_NORM, st->q_epsilon, &c.q, g.heads, err));
    TRY(normalize(r, &g, K_NORM, st->k_epsilon, &c.k, g.kv_heads, err));
    TRY(rotate(r, &g, &c.q, g.heads, err));
    TRY(rotate(r, &g, &c.k, g.kv_heads, err));
    codes k_codes, v_codes;
    if (st->bits) {
        TRY(read_codes(r, &g, K_SCALE, st->quant[0], &k_codes, err));
        TRY(read_codes(r, &g, V_SCALE, st->quant[1], &v_codes, err));
    }
    TRY(extend(r, &g, PAST_KEY, 1, st->bits ? &k_codes : NULL, &c.k, &present_k, &cache_k, err));
    TRY(extend(r, &g, PAST_VALUE, 2, st->bits ? &v_codes : NULL, &c.v, &present_v, &cache_v, err));
    void *valid;
    TRY(run_scratch(r, (g.batch + 1) * sizeof(int64_t), &valid, err));
    for (size_t b = 0; b < g.batch; b++) ((int64_t *)valid)[b] = g.past[b] + (int64_t)g.length;
    c.valid = valid;
    c.y = (attention_view){.data = to, .batch = g.length * g.heads * D, .head = D, .time = g.heads * D};
    TRY(set_bias(r, &c, err));
    TRY(set_sink(r, st, &c, err));
    TRY(set_tap(r, st, &c, &qk, err));
    TRY(attention_run(r, &c, err));
    real_out_done(r, y, ELEM_F32, to);
    if (!st->bits) {
        real_out_done(r, present_k, ELEM_F32, cache_k);
        real_out_done(r, present_v, ELEM_F32, cache_v);
    }
    if (qk && st->tap == 1) show_unseen_as_zero(&c);
    real_out_done(r, qk, ELEM_F32, c.tap);
    return CHURON_OK;
}

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "GroupQueryAttention",
     .since = 1,
     .signature = "T=TTCCMMTTiTTffTTM>T@@T",
     .vars = {{'T', HALF}, {'C', HALF | ELEM_BIT(ELEM_I8) | ELEM_BIT(ELEM_U8)}, {'M', ELEM_BIT(ELEM_I32)}},
     .prepare = gqa_prepare,
     .release = mem_free,
     .infer = gqa_infer,
     .run = gqa_op_run},
};
NN_TABLE(attention_gqa);
