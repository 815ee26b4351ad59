/* attention_ms.c: Attention, QAttention, MultiHeadAttention and GroupQueryAttention of com.microsoft over
 * attention_core.h, in f32. Masks become numbers to add (0 or mask_filter_value). What only other runtimes'
 * devices need (shared past buffers, packed batches, quantized caches) is refused by name. */
#include "base/mem.h"
#include "graph/ops/attention_core.h"
#include "graph/ops/gemm.h"
#include "graph/ops/gemm_int.h"
#include "graph/ops/matmul.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct ms_state {
    int64_t heads, kv_heads, window;
    int64_t sizes[3]; /* qkv_hidden_sizes; 0: a third each */
    bool causal, rotary, interleaved, smooth, has_scale;
    float scale, filter, soft_cap;
    gemm_packed weights;
    int_packed int_weights; /* of QAttention */
} ms_state;

static void ms_release(void *state) {
    ms_state *st = state;
    if (!st) return;
    gemm_pack_free(&st->weights);
    int_pack_free(&st->int_weights);
    mem_free(st);
}

/* An attribute that must have its usual value. */
static status refuse_int(op_node *n, const char *name, int64_t usual, error *err) {
    int64_t v;
    TRY(op_attr_int(n, name, usual, INT64_MIN, INT64_MAX, &v, err));
    return v == usual ? CHURON_OK
                      : op_error(n, err, CHURON_UNSUPPORTED, "%s: %lld expected, got %lld", name,
                                 (long long)usual, (long long)v);
}

static status refuse_input(op_node *n, size_t i, const char *name, error *err) {
    return op_has_input(n, i)
               ? op_error(n, err, CHURON_UNSUPPORTED, "%s: expected to be absent, got a value", name)
               : CHURON_OK;
}

static status read_common(op_node *n, ms_state *st, error *err) {
    TRY(op_attr_int(n, "num_heads", 0, 1, INT32_MAX, &st->heads, err));
    st->has_scale = op_attr_present(n, "scale");
    TRY(op_attr_float(n, "scale", 0, &st->scale, err));
    if (st->has_scale && st->scale == 0) st->has_scale = false; /* 0 says "usual" */
    return st->heads ? CHURON_OK : op_error(n, err, CHURON_INVALID, "num_heads is required");
}

static double scale_of(const ms_state *st, size_t head) {
    return st->has_scale ? (double)st->scale : head ? 1 / sqrt((double)head) : 1;
}

/* ---- masks ------------------------------------------------------------------------------------------ */

/* Whether key j is masked for query i of batch b; past: keys before the queries. */
static bool masked(const tensor *m, size_t batch, size_t b, size_t i, size_t j, size_t past) {
    const int32_t *v = m->data;
    switch (m->rank) {
    case 1:
        if (m->count == 2 * batch) return (int64_t)j >= v[b] || (int64_t)j < v[batch + b];
        return (int64_t)j >= v[b];
    case 2: return v[b * (size_t)m->dims[1] + j] == 0;
    case 3: return v[(b * (size_t)m->dims[1] + i) * (size_t)m->dims[2] + j] == 0;
    default: return v[(b * (size_t)m->dims[2] + past + i) * (size_t)m->dims[3] + j] == 0;
    }
}

static status check_mask(op_run *r, const tensor *m, const attention_call *c, size_t past, error *err) {
    int64_t b = (int64_t)c->batch, s = (int64_t)c->q_len, t = (int64_t)c->kv_len, p = (int64_t)past;
    bool good = false;
    if (m->rank == 1) good = m->dims[0] == b || m->dims[0] == 2 * b || m->dims[0] == 3 * b + 2;
    if (m->rank == 2) good = m->dims[0] == b && m->dims[1] == t;
    if (m->rank == 3) good = m->dims[0] == b && m->dims[1] == s && m->dims[2] == t;
    if (m->rank == 4) good = m->dims[0] == b && m->dims[1] == 1 && m->dims[2] >= p + s && m->dims[3] >= t;
    return good ? CHURON_OK
                : run_error(r, err, CHURON_INVALID,
                            "mask: a shape for %lld sequences, %lld queries, %lld keys expected, got rank %u "
                            "and %zu elements",
                            (long long)b, (long long)s, (long long)t, m->rank, m->count);
}

/* Mask and bias [B or 1, N or 1, S, T] as one bias of the call. */
static status add_masks(op_run *r, const tensor *mask, const tensor *bias, float filter, attention_call *c,
                        error *err) {
    size_t past = (size_t)c->offset, S = c->q_len, T = c->kv_len;
    const void *extra;
    void *memory;
    if (!mask && !bias) return CHURON_OK;
    if (mask) TRY(check_mask(r, mask, c, past, err));
    if (bias && (bias->rank != 4 || (bias->dims[0] != 1 && bias->dims[0] != (int64_t)c->batch) ||
                 (bias->dims[1] != 1 && bias->dims[1] != (int64_t)c->q_heads) ||
                 bias->dims[2] != (int64_t)S || bias->dims[3] != (int64_t)T))
        return run_error(
            r, err, CHURON_INVALID,
            "attention_bias: [%zu or 1, %zu or 1, %zu, %zu] expected, got rank %u and %zu elements", c->batch,
            c->q_heads, S, T, bias->rank, bias->count);
    TRY(real_of(r, bias, ELEM_F32, &extra, err));
    size_t heads = bias ? (size_t)bias->dims[1] : 1, rows = mask && mask->rank <= 2 && !bias ? 1 : S;
    TRY(run_scratch(r, (c->batch * heads * rows * T + 1) * sizeof(float), &memory, err));
    float *to = memory;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < T; j++) {
                    size_t from = (((bias && bias->dims[0] == 1 ? 0 : b) * heads + h) * S + i) * T + j;
                    float v = extra ? ((const float *)extra)[from] : 0;
                    if (mask && masked(mask, c->batch, b, i, j, past)) v += filter;
                    to[((b * heads + h) * rows + i) * T + j] = v;
                }
    c->bias = to, c->bias_keys = T;
    c->bias_step[3] = 1, c->bias_step[2] = rows == 1 ? 0 : T, c->bias_step[1] = heads == 1 ? 0 : rows * T;
    c->bias_step[0] = heads * rows * T;
    return CHURON_OK;
}

/* ---- keys and values -------------------------------------------------------------------------------- */

/* Copies a view [B, H, n, d] into `to` [B, H, total, d] from row `at` on. */
static void place(const attention_view *v, size_t batch, size_t heads, size_t n, size_t d, size_t total,
                  size_t at, float *to) {
    for (size_t b = 0; b < batch; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t t = 0; t < n; t++)
                memcpy(to + ((b * heads + h) * total + at + t) * d,
                       (const float *)v->data + b * v->batch + h * v->head + t * v->time, d * sizeof(float));
}

static attention_view dense_view(const float *data, size_t heads, size_t n, size_t d) {
    return (attention_view){.data = data, .batch = heads * n * d, .head = n * d, .time = d};
}

static attention_view out_view(const void *data, size_t heads, size_t n, size_t d) {
    return (attention_view){.data = data, .batch = n * heads * d, .head = d, .time = heads * d};
}

/* ---- Attention, QAttention -------------------------------------------------------------------------- */

static status attention_read(op_node *n, bool quantized, error *err) {
    ms_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(read_common(n, st, err));
    TRY(op_attr_bool(n, "unidirectional", false, &st->causal, err));
    TRY(op_attr_float(n, "mask_filter_value", -10000, &st->filter, err));
    TRY(refuse_int(n, "do_rotary", 0, err));
    TRY(refuse_int(n, "past_present_share_buffer", 0, err));
    if (quantized) return CHURON_OK;
    op_attr_ignore(n, "rotary_embedding_dim"); /* of do_rotary */
    const int64_t *sizes;
    size_t count;
    TRY(op_attr_ints(n, "qkv_hidden_sizes", &sizes, &count, err));
    if (count && count != 3)
        return op_error(n, err, CHURON_INVALID, "qkv_hidden_sizes: 3 numbers expected, got %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] < 1 || sizes[i] > INT32_MAX || sizes[i] % st->heads)
            return op_error(n, err, CHURON_INVALID,
                            "qkv_hidden_sizes[%zu]: a multiple of num_heads expected, got %lld", i,
                            (long long)sizes[i]);
        st->sizes[i] = sizes[i];
    }
    if (count && sizes[0] != sizes[1])
        return op_error(n, err, CHURON_INVALID,
                        "qkv_hidden_sizes: equal sizes of q and k expected, got %lld and %lld",
                        (long long)sizes[0], (long long)sizes[1]);
    TRY(refuse_input(n, 6, "past_sequence_length", err));
    const tensor *w = op_constant(n, 1);
    if (!w || w->rank != 2) return CHURON_OK;
    const size_t rows = (size_t)w->dims[0], cols = (size_t)w->dims[1];
    if (ELEM_BIT(w->type) & NN_I8)
        return int_pack_create(&st->int_weights, w->data, w->type, rows, cols, cols, 1, err);
    if (w->type != ELEM_F32) return CHURON_OK;
    return gemm_pack_create(&st->weights, w->data, rows, cols, cols, 1, err);
}

static status attention_prepare(op_node *n, error *err) {
    return attention_read(n, false, err);
}

static status qattention_prepare(op_node *n, error *err) {
    return attention_read(n, true, err);
}

/* past: number of the input [2, B, N, P, D]. */
static status attention_shapes(op_shapes *s, size_t bias_in, size_t past_in, error *err) {
    const ms_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool kx, kw, kb = false, kp = false;
    size_t rank;
    const dim *x, *w, *b = NULL, *p = NULL;
    TRY(nn_rank(s, 0, 3, 3, "input", &kx, &rank, &x, err));
    TRY(nn_rank(s, 1, 2, 2, "weights", &kw, &rank, &w, err));
    if (op_has_input(n, bias_in)) TRY(nn_rank(s, bias_in, 1, 1, "bias", &kb, &rank, &b, err));
    if (op_has_input(n, past_in)) TRY(nn_rank(s, past_in, 5, 5, "past", &kp, &rank, &p, err));
    dim total = kw ? w[1] : kb ? b[0] : dim_fresh(s);
    if (kx && kw) TRY(shapes_same(s, x[2], w[0], "columns of input and rows of weights", NULL, err));
    if (kw && kb) TRY(shapes_same(s, b[0], w[1], "bias and columns of weights", NULL, err));
    if (st->sizes[0] && dim_known(total) && st->sizes[0] + st->sizes[1] + st->sizes[2] != total)
        return op_error(n, err, CHURON_INVALID, "qkv_hidden_sizes: a sum of %lld expected, got %lld",
                        (long long)total, (long long)(st->sizes[0] + st->sizes[1] + st->sizes[2]));
    if (!st->sizes[0] && dim_known(total) && total % (3 * st->heads))
        return op_error(n, err, CHURON_INVALID,
                        "weights: columns a multiple of 3 * num_heads expected, got %lld", (long long)total);
    dim hidden = st->sizes[2] ? st->sizes[2] : dim_div_floor(s, total, 3),
        head = dim_div_floor(s, hidden, st->heads);
    dim batch = kx ? x[0] : dim_fresh(s), length = kx ? x[1] : dim_fresh(s), before = 0;
    if (op_has_input(n, past_in)) {
        before = kp ? p[3] : dim_fresh(s);
        const dim want[5] = {2, batch, st->heads, before, head};
        for (size_t i = 0; kp && i < 5; i++) TRY(shapes_same(s, p[i], want[i], "past", NULL, err));
    }
    if ((op_has_input(n, past_in) || op_has_output(n, 1)) && st->sizes[0] != st->sizes[2])
        return op_error(n, err, CHURON_UNSUPPORTED, "past, present: equal sizes of k and v expected");
    TRY(shapes_out(s, 0, 3, (dim[]){batch, length, hidden}, err));
    if (!op_has_output(n, 1)) return CHURON_OK;
    return shapes_out(s, 1, 5, (dim[]){2, batch, st->heads, dim_add(s, before, length), head}, err);
}

static status attention_infer(op_shapes *s, error *err) {
    return attention_shapes(s, 2, 4, err);
}

static status qattention_infer(op_shapes *s, error *err) {
    return attention_shapes(s, 2, 8, err);
}

/* From projections [B, S, q + k + v] to outputs 0 and 1. */
static status attend(op_run *r, const ms_state *st, const float *qkv, size_t columns, const tensor *mask,
                     const tensor *past, const tensor *bias, tensor *y, void *to, error *err) {
    const tensor *x = run_in(r, 0);
    size_t q = st->sizes[0] ? (size_t)st->sizes[0] : columns / 3, v = columns - 2 * q,
           heads = (size_t)st->heads;
    attention_call c = {.work = ELEM_F32,
                        .batch = (size_t)x->dims[0],
                        .q_heads = heads,
                        .kv_heads = heads,
                        .q_len = (size_t)x->dims[1],
                        .kv_len = (size_t)x->dims[1],
                        .head_k = q / heads,
                        .head_v = v / heads,
                        .left = -1,
                        .right = -1,
                        .causal = st->causal};
    c.scale = scale_of(st, c.head_k);
    size_t S = c.q_len, before = past ? (size_t)past->dims[3] : 0, T = S + before;
    attention_view qv = {.data = qkv, .batch = S * columns, .head = c.head_k, .time = columns}, kv = qv,
                   vv = qv;
    kv.data = qkv + q, vv.data = qkv + 2 * q, vv.head = c.head_v;
    tensor *present = NULL;
    void *joined = NULL;
    const void *old;
    if (op_has_output(run_node(r), 1)) TRY(real_out(r, 1, ELEM_F32, &present, &joined, err));
    TRY(real_of(r, past, ELEM_F32, &old, err));
    if (past || present) {
        size_t half = c.batch * heads * T * c.head_k;
        if (!joined) TRY(run_scratch(r, (2 * half + 1) * sizeof(float), &joined, err));
        for (size_t i = 0; i < 2; i++) {
            float *dest = (float *)joined + i * half;
            attention_view o =
                dense_view((const float *)old + (old ? i * c.batch * heads * before * c.head_k : 0), heads,
                           before, c.head_k);
            if (before) place(&o, c.batch, heads, before, c.head_k, T, 0, dest);
            place(i ? &vv : &kv, c.batch, heads, S, c.head_k, T, before, dest);
            *(i ? &vv : &kv) = dense_view(dest, heads, T, c.head_k);
        }
    }
    c.q = qv, c.k = kv, c.v = vv, c.y = out_view(to, heads, S, c.head_v), c.kv_len = T,
    c.offset = (int64_t)before;
    TRY(add_masks(r, mask, bias, st->filter, &c, err));
    TRY(attention_run(r, &c, err));
    real_out_done(r, y, ELEM_F32, to);
    real_out_done(r, present, ELEM_F32, joined);
    return CHURON_OK;
}

static status attention_op_run(op_run *r, error *err) {
    const ms_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    tensor *y;
    void *to, *qkv;
    const void *px, *pw, *pb;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, x, ELEM_F32, &px, err));
    TRY(real_of(r, w, ELEM_F32, &pw, err));
    TRY(real_in(r, 2, ELEM_F32, &pb, err));
    size_t rows = (size_t)(x->dims[0] * x->dims[1]), k = (size_t)x->dims[2], n = (size_t)w->dims[1];
    TRY(run_scratch(r, (rows * n + 1) * sizeof(float), &qkv, err));
    gemm_call call = {.m = rows,
                      .n = n,
                      .k = k,
                      .a = px,
                      .a_row = k,
                      .a_col = 1,
                      .b = pw,
                      .b_row = n,
                      .b_col = 1,
                      .packed = st->weights.memory ? &st->weights : NULL,
                      .c = qkv,
                      .ldc = n};
    gemm_epilogue e = {.alpha = 1, .beta = 1, .bias = pb, .bias_col = 1};
    TRY(gemm_f32(r, &call, 1, pb ? &e : NULL, err));
    return attend(r, st, qkv, n, run_in(r, 3), run_in(r, 4), run_in(r, 5), y, to, err);
}

/* input, weight, bias, input_scale, weight_scale, mask_index, input_zero, weight_zero, past */
static status qattention_run(op_run *r, error *err) {
    const ms_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    tensor *y;
    void *to, *memory;
    const void *pb;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_in(r, 2, ELEM_F32, &pb, err));
    size_t rows = (size_t)(x->dims[0] * x->dims[1]), k = (size_t)x->dims[2], n = (size_t)w->dims[1];
    int32_t *zx, *zw;
    float *sx, *sw;
    TRY(quant_zeros(r, 6, rows, "input_zero_point", &zx, err));
    TRY(quant_zeros(r, 7, n, "weight_zero_point", &zw, err));
    TRY(quant_scales(r, 3, 1, "input_scale", &sx, err));
    TRY(quant_scales(r, 4, n, "weight_scale", &sw, err));
    TRY(run_scratch(r, (rows * n + 1) * sizeof(float), &memory, err));
    float *qkv = memory, *scales;
    TRY(run_scratch(r, (rows + 1) * sizeof(float), &memory, err));
    scales = memory;
    for (size_t i = 0; i < rows; i++) scales[i] = sx[0];
    const int_call call = {.m = rows,
                           .n = n,
                           .k = k,
                           .a_type = x->type,
                           .b_type = w->type,
                           .a = x->data,
                           .a_row = k,
                           .b = w->data,
                           .b_row = n,
                           .packed = &st->int_weights,
                           .a_zero = zx,
                           .b_zero = zw,
                           .y = qkv,
                           .a_scale = scales,
                           .b_scale = sw,
                           .bias = pb};
    TRY(gemm_int(r, &call, 1, err));
    return attend(r, st, qkv, n, run_in(r, 5), run_in(r, 8), NULL, y, to, err);
}

/* ---- MultiHeadAttention ----------------------------------------------------------------------------- */

enum {
    M_QUERY,
    M_KEY,
    M_VALUE,
    M_BIAS,
    M_MASK,
    M_ATTENTION_BIAS,
    M_PAST_KEY,
    M_PAST_VALUE,
    M_PAST_LENGTH,
    M_INDIRECTION
};

static status mha_prepare(op_node *n, error *err) {
    ms_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(read_common(n, st, err));
    TRY(op_attr_bool(n, "unidirectional", false, &st->causal, err));
    TRY(op_attr_float(n, "mask_filter_value", -10000, &st->filter, err));
    TRY(refuse_input(n, M_PAST_LENGTH, "past_sequence_length", err));
    TRY(refuse_input(n, M_INDIRECTION, "cache_indirection", err));
    if (op_has_input(n, M_PAST_KEY) != op_has_input(n, M_PAST_VALUE))
        return op_error(n, err, CHURON_INVALID, "past_key, past_value: both or none expected, got one");
    return CHURON_OK;
}

/* Query [B, S, N*D] or [B, S, N, 3, D]; key [B, L, N*D], [B, N, L, D] or [B, L, N, 2, D]. */
static status mha_infer(op_shapes *s, error *err) {
    const ms_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool kq, kk = false, kv = false, kp = false;
    size_t rq, rk = 0, rv = 0, rp;
    const dim *q, *k = NULL, *v = NULL, *p = NULL;
    TRY(nn_rank(s, M_QUERY, 3, 5, "query", &kq, &rq, &q, err));
    if (op_has_input(n, M_KEY)) TRY(nn_rank(s, M_KEY, 3, 5, "key", &kk, &rk, &k, err));
    if (op_has_input(n, M_VALUE)) TRY(nn_rank(s, M_VALUE, 3, 4, "value", &kv, &rv, &v, err));
    if (op_has_input(n, M_PAST_KEY)) TRY(nn_rank(s, M_PAST_KEY, 4, 4, "past_key", &kp, &rp, &p, err));
    if (!kq || (op_has_input(n, M_KEY) && !kk) || (op_has_input(n, M_VALUE) && !kv) ||
        (op_has_input(n, M_PAST_KEY) && !kp)) {
        for (size_t i = 0; i < op_n_outputs(n); i++)
            if (op_has_output(n, i)) shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    bool packed_qkv = rq == 5, packed_kv = rk == 5, separate = kk && kv && rk == rv && rk < 5 && rq == 3;
    if (!(packed_qkv && !kk && !kv) && !(packed_kv && !kv && rq == 3) && !separate)
        return op_error(
            n, err, CHURON_INVALID,
            "query, key, value: [B, S, H] and two alike, or packed ones expected, got ranks %zu, %zu, %zu",
            rq, rk, rv);
    dim heads = st->heads, size, length, v_size;
    if (packed_qkv) {
        TRY(shapes_same(s, q[2], heads, "heads of query", NULL, err));
        TRY(shapes_same(s, q[3], 3, "packed matrices of query", NULL, err));
        size = v_size = q[4], length = q[1];
    } else {
        if (dim_known(q[2]) && q[2] % heads)
            return op_error(n, err, CHURON_INVALID,
                            "query: a hidden size that is a multiple of num_heads %lld expected, got %lld",
                            (long long)heads, (long long)q[2]);
        size = dim_div_floor(s, q[2], heads);
        length = rk == 4 ? k[2] : k[1];
        TRY(shapes_same(s, q[0], k[0], "batches of query and key", NULL, err));
        if (packed_kv) {
            TRY(shapes_same(s, k[2], heads, "heads of key", NULL, err));
            TRY(shapes_same(s, k[3], 2, "packed matrices of key", NULL, err));
            TRY(shapes_same(s, k[4], size, "head sizes of query and key", NULL, err));
            v_size = size;
        } else {
            TRY(shapes_same(s, k[0], v[0], "batches of key and value", NULL, err));
            TRY(shapes_same(s, length, rv == 4 ? v[2] : v[1], "lengths of key and value", NULL, err));
            if (rk == 4) TRY(shapes_same(s, k[1], heads, "heads of key", NULL, err));
            if (rv == 4) TRY(shapes_same(s, v[1], heads, "heads of value", NULL, err));
            TRY(shapes_same(s, rk == 4 ? dim_mul(s, k[3], heads) : k[2], q[2],
                            "hidden sizes of query and key", NULL, err));
            if (rv == 3 && dim_known(v[2]) && v[2] % heads)
                return op_error(
                    n, err, CHURON_INVALID,
                    "value: a hidden size that is a multiple of num_heads %lld expected, got %lld",
                    (long long)heads, (long long)v[2]);
            v_size = rv == 4 ? v[3] : dim_div_floor(s, v[2], heads);
        }
    }
    if (kp) {
        const dim want[4] = {q[0], heads, p[2], size};
        size_t r2;
        const dim *pv;
        for (size_t i = 0; i < 4; i++) TRY(shapes_same(s, p[i], want[i], "past_key", NULL, err));
        if (shapes_in(s, M_PAST_VALUE, &r2, &pv)) {
            const dim other[4] = {q[0], heads, p[2], v_size};
            if (r2 != 4) return op_error(n, err, CHURON_INVALID, "past_value: rank 4 expected, got %zu", r2);
            for (size_t i = 0; i < 4; i++) TRY(shapes_same(s, pv[i], other[i], "past_value", NULL, err));
        }
        length = dim_add(s, length, p[2]);
    }
    TRY(shapes_out(s, 0, 3, (dim[]){q[0], q[1], dim_mul(s, v_size, heads)}, err));
    if (op_has_output(n, 1)) TRY(shapes_out(s, 1, 4, (dim[]){q[0], heads, length, size}, err));
    if (op_has_output(n, 3)) TRY(shapes_out(s, 3, 4, (dim[]){q[0], heads, q[1], length}, err));
    return op_has_output(n, 2) ? shapes_out(s, 2, 4, (dim[]){q[0], heads, length, v_size}, err) : CHURON_OK;
}

/* A view with a bias [heads * d] added, as a dense copy [B, H, n, d]. */
static status with_bias(op_run *r, attention_view *v, const float *bias, size_t batch, size_t heads, size_t n,
                        size_t d, error *err) {
    void *memory;
    if (!bias) return CHURON_OK;
    TRY(run_scratch(r, (batch * heads * n * d + 1) * sizeof(float), &memory, err));
    float *to = memory;
    for (size_t row = 0; row < batch * heads * n; row++, to += d) {
        const size_t b = row / n / heads, h = row / n % heads;
        const float *from = (const float *)v->data + b * v->batch + h * v->head + row % n * v->time;
        for (size_t i = 0; i < d; i++) to[i] = from[i] + bias[h * d + i];
    }
    to = memory;
    *v = dense_view(to, heads, n, d);
    return CHURON_OK;
}

static void mha_views(const tensor *q, const tensor *k, const tensor *v, const float *pq, const float *pk,
                      const float *pv, attention_call *c) {
    size_t N = c->q_heads, D = c->head_k, S = c->q_len, L = c->kv_len, Dv = c->head_v;
    if (q->rank == 5) {
        attention_view one = {.data = pq, .batch = S * N * 3 * D, .head = 3 * D, .time = N * 3 * D};
        c->q = c->k = c->v = one;
        c->k.data = pq + D, c->v.data = pq + 2 * D;
        return;
    }
    c->q = (attention_view){.data = pq, .batch = S * N * D, .head = D, .time = N * D};
    if (k->rank == 5) {
        c->k = c->v = (attention_view){.data = pk, .batch = L * N * 2 * D, .head = 2 * D, .time = N * 2 * D};
        c->v.data = pk + D;
        return;
    }
    c->k = k->rank == 4 ? dense_view(pk, N, L, D)
                        : (attention_view){.data = pk, .batch = L * N * D, .head = D, .time = N * D};
    c->v = v->rank == 4 ? dense_view(pv, N, L, Dv)
                        : (attention_view){.data = pv, .batch = L * N * Dv, .head = Dv, .time = N * Dv};
}

/* What is behind the past in output `out` or in scratch; *v becomes the whole. */
static status join(op_run *r, attention_view *v, const tensor *past, size_t out, const attention_call *c,
                   size_t d, tensor **present, void **joined, error *err) {
    size_t before = past ? (size_t)past->dims[2] : 0, T = before + c->kv_len, N = c->kv_heads;
    const void *old;
    *present = NULL, *joined = NULL;
    if (op_has_output(run_node(r), out)) TRY(real_out(r, out, ELEM_F32, present, joined, err));
    if (!past && !*present) return CHURON_OK;
    if (!*joined) TRY(run_scratch(r, (c->batch * N * T * d + 1) * sizeof(float), joined, err));
    TRY(real_of(r, past, ELEM_F32, &old, err));
    attention_view o = dense_view(old, N, before, d);
    if (before) place(&o, c->batch, N, before, d, T, 0, *joined);
    place(v, c->batch, N, c->kv_len, d, T, before, *joined);
    *v = dense_view(*joined, N, T, d);
    return CHURON_OK;
}

static status mha_run(op_run *r, error *err) {
    const ms_state *st = run_state(r);
    const tensor *q = run_in(r, M_QUERY), *k = run_in(r, M_KEY), *v = run_in(r, M_VALUE),
                 *past = run_in(r, M_PAST_KEY);
    tensor *y, *present_k, *present_v, *qk = NULL;
    void *to, *joined_k, *joined_v;
    const void *pq, *pk, *pv, *pb;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, q, ELEM_F32, &pq, err));
    TRY(real_of(r, k, ELEM_F32, &pk, err));
    TRY(real_of(r, v, ELEM_F32, &pv, err));
    TRY(real_in(r, M_BIAS, ELEM_F32, &pb, err));
    size_t N = (size_t)st->heads;
    attention_call c = {.work = ELEM_F32,
                        .batch = (size_t)q->dims[0],
                        .q_heads = N,
                        .kv_heads = N,
                        .q_len = (size_t)q->dims[1],
                        .head_k = q->rank == 5 ? (size_t)q->dims[4] : (size_t)q->dims[2] / N,
                        .head_v = (size_t)y->dims[2] / N,
                        .left = -1,
                        .right = -1,
                        .causal = st->causal};
    c.kv_len = q->rank == 5 ? c.q_len : (size_t)k->dims[k->rank == 4 ? 2 : 1];
    c.scale = scale_of(st, c.head_k);
    mha_views(q, k, v, pq, pk, pv, &c);
    size_t hidden = N * c.head_k;
    if (pb && run_in(r, M_BIAS)->count != 2 * hidden + N * c.head_v)
        return run_error(r, err, CHURON_INVALID, "bias: %zu elements expected, got %zu",
                         2 * hidden + N * c.head_v, run_in(r, M_BIAS)->count);
    TRY(with_bias(r, &c.q, pb, c.batch, N, c.q_len, c.head_k, err));
    bool cached = k && k->rank == 4; /* computed before: its bias is in it */
    TRY(with_bias(r, &c.k, pb && !cached ? (const float *)pb + hidden : NULL, c.batch, N, c.kv_len, c.head_k,
                  err));
    TRY(with_bias(r, &c.v, pb && !cached ? (const float *)pb + 2 * hidden : NULL, c.batch, N, c.kv_len,
                  c.head_v, err));
    TRY(join(r, &c.k, past, 1, &c, c.head_k, &present_k, &joined_k, err));
    TRY(join(r, &c.v, run_in(r, M_PAST_VALUE), 2, &c, c.head_v, &present_v, &joined_v, err));
    if (past) c.offset = past->dims[2], c.kv_len += (size_t)past->dims[2];
    c.y = out_view(to, N, c.q_len, c.head_v);
    TRY(add_masks(r, run_in(r, M_MASK), run_in(r, M_ATTENTION_BIAS), st->filter, &c, err));
    if (op_has_output(run_node(r), 3)) TRY(real_out(r, 3, ELEM_F32, &qk, &c.tap, err));
    c.tap_at = ATTENTION_BIASED;
    TRY(attention_run(r, &c, err));
    real_out_done(r, y, ELEM_F32, to);
    for (size_t i = 0; qk && i < qk->count; i++) /* keys behind a query: the least number, as ONNX Runtime */
        if (((float *)c.tap)[i] == -INFINITY) ((float *)c.tap)[i] = -FLT_MAX;
    real_out_done(r, qk, ELEM_F32, c.tap);
    real_out_done(r, present_k, ELEM_F32, joined_k);
    real_out_done(r, present_v, ELEM_F32, joined_v);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))
#define I32  ELEM_BIT(ELEM_I32)
#define ROW(op, sign, prep, inf, fn, ...)                                                                    \
    {                                                                                                        \
        .domain = "com.microsoft", .name = op, .since = 1, .signature = sign, .vars = {__VA_ARGS__},         \
        .prepare = prep, .release = ms_release, .infer = inf, .run = fn                                      \
    }

static const op_def rows[] = {
    ROW("Attention", "TT=TMTTM>TT", attention_prepare, attention_infer, attention_op_run, {'T', HALF},
        {'M', I32}),
    ROW("QAttention", "UVTTT=MUVT>TT", qattention_prepare, qattention_infer, qattention_run, {'T', HALF},
        {'U', NN_I8}, {'V', NN_I8}, {'M', I32}),
    ROW("MultiHeadAttention", "T=TTTMTTTMM>TTTT", mha_prepare, mha_infer, mha_run, {'T', HALF}, {'M', I32}),
};
NN_TABLE(attention_ms);
