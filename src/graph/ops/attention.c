/* attention.c: Attention (ai.onnx 23 on) and FlexAttention (ai.onnx.preview), over attention_core.h. */
#include "base/mem.h"
#include "graph/ir.h"
#include "graph/ops/attention_core.h"
#include "graph/ops/gemm.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

typedef struct attention_state {
    int64_t q_heads, kv_heads, left, right, precision;
    bool causal, has_scale, has_score_mod, has_prob_mod;
    float scale, soft_cap;
    int tap;
    size_t score_mod, prob_mod;
} attention_state;

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, NONPAD };

static status read_precision(op_node *n, attention_state *st, error *err) {
    TRY(op_attr_int(n, "softmax_precision", 0, 0, ELEM_COUNT - 1, &st->precision, err));
    if (st->precision && !(ELEM_BIT(st->precision) & ELEMS_FLOAT))
        return op_error(n, err, CHURON_INVALID, "softmax_precision: a float type expected, got %s",
                        elem_name((elem)st->precision));
    return CHURON_OK;
}

static status attention_prepare(op_node *n, error *err) {
    attention_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t tap;
    st->left = st->right = -1;
    TRY(op_attr_int(n, "q_num_heads", 0, 1, INT32_MAX, &st->q_heads, err));
    TRY(op_attr_int(n, "kv_num_heads", 0, 1, INT32_MAX, &st->kv_heads, err));
    if (st->q_heads && st->kv_heads && st->q_heads % st->kv_heads)
        return op_error(n, err, CHURON_INVALID,
                        "q_num_heads: a multiple of kv_num_heads %lld expected, got %lld",
                        (long long)st->kv_heads, (long long)st->q_heads);
    TRY(op_attr_bool(n, "is_causal", false, &st->causal, err));
    TRY(op_attr_int(n, "qk_matmul_output_mode", 0, 0, 3, &tap, err));
    st->tap = (int)tap;
    st->has_scale = op_attr_present(n, "scale");
    TRY(op_attr_float(n, "scale", 0, &st->scale, err));
    TRY(op_attr_float(n, "softcap", 0, &st->soft_cap, err));
    if (op_version(n) >= 25) {
        TRY(op_attr_int(n, "left_window_size", -1, -1, INT32_MAX, &st->left, err));
        TRY(op_attr_int(n, "right_window_size", -1, -1, INT32_MAX, &st->right, err));
    }
    if (op_has_input(n, PAST_KEY) != op_has_input(n, PAST_VALUE))
        return op_error(n, err, CHURON_INVALID, "past_key, past_value: both or none expected, got one");
    if (op_has_input(n, PAST_KEY) && op_has_input(n, NONPAD))
        return op_error(n, err, CHURON_INVALID, "nonpad_kv_seqlen: absent expected where past_key is given");
    return read_precision(n, st, err);
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

typedef struct heads {
    dim batch, heads, length, size;
} heads;

/* [B, H, L, D], or [B, L, H * D] with the attribute's number of heads. */
static status read_heads(op_shapes *s, size_t i, int64_t n_heads, const char *what, const char *attr,
                         bool *known, size_t *rank, heads *h, error *err) {
    const dim *d;
    TRY(nn_rank(s, i, 3, 4, what, known, rank, &d, err));
    if (!*known) return CHURON_OK;
    if (*rank == 4) {
        *h = (heads){d[0], d[1], d[2], d[3]};
        return n_heads ? shapes_same(s, d[1], n_heads, attr, NULL, err) : CHURON_OK;
    }
    if (!n_heads)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "%s: a number expected for inputs of rank 3, got none", attr);
    if (dim_known(d[2]) && d[2] % n_heads)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "%s: a hidden size that is a multiple of %s %lld expected, got %lld", what, attr,
                        (long long)n_heads, (long long)d[2]);
    *h = (heads){d[0], n_heads, d[1], dim_div_floor(s, d[2], n_heads)};
    return CHURON_OK;
}

static void all_unknown(op_shapes *s) {
    for (size_t i = 0; i < op_n_outputs(shapes_node(s)); i++)
        if (op_has_output(shapes_node(s), i)) shapes_out_unknown(s, i);
}

static status check_groups(op_shapes *s, const heads *q, const heads *k, const heads *v, error *err) {
    TRY(shapes_same(s, q->batch, k->batch, "batches of Q and K", NULL, err));
    TRY(shapes_same(s, k->batch, v->batch, "batches of K and V", NULL, err));
    TRY(shapes_same(s, k->heads, v->heads, "heads of K and V", NULL, err));
    TRY(shapes_same(s, k->length, v->length, "lengths of K and V", NULL, err));
    TRY(shapes_same(s, q->size, k->size, "head sizes of Q and K", NULL, err));
    if (dim_known(q->heads) && dim_known(k->heads) && (k->heads < 1 || q->heads % k->heads))
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "Q: heads a multiple of K's %lld expected, got %lld", (long long)k->heads,
                        (long long)q->heads);
    return CHURON_OK;
}

static status check_past(op_shapes *s, size_t i, const heads *k, const char *what, dim *length, error *err) {
    bool known;
    size_t rank;
    const dim *d;
    TRY(nn_rank(s, i, 4, 4, what, &known, &rank, &d, err));
    *length = known ? d[2] : dim_fresh(s);
    if (!known) return CHURON_OK;
    TRY(shapes_same(s, d[0], k->batch, what, NULL, err));
    TRY(shapes_same(s, d[1], k->heads, what, NULL, err));
    return shapes_same(s, d[3], k->size, what, NULL, err);
}

static status attention_infer(op_shapes *s, error *err) {
    const attention_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    bool known_q, known_k, known_v;
    size_t rank, rank_k, rank_v;
    heads q, k, v;
    TRY(read_heads(s, Q, st->q_heads, "Q", "q_num_heads", &known_q, &rank, &q, err));
    TRY(read_heads(s, K, st->kv_heads, "K", "kv_num_heads", &known_k, &rank_k, &k, err));
    TRY(read_heads(s, V, st->kv_heads, "V", "kv_num_heads", &known_v, &rank_v, &v, err));
    if (!known_q || !known_k || !known_v) {
        all_unknown(s);
        return CHURON_OK;
    }
    if (rank != rank_k || rank != rank_v)
        return op_error(n, err, CHURON_INVALID, "Q, K, V: the same rank expected, got %zu, %zu, %zu", rank,
                        rank_k, rank_v);
    TRY(check_groups(s, &q, &k, &v, err));
    dim total = k.length, past, past_v;
    if (op_has_input(n, PAST_KEY)) {
        TRY(check_past(s, PAST_KEY, &k, "past_key", &past, err));
        TRY(check_past(s, PAST_VALUE, &v, "past_value", &past_v, err));
        TRY(shapes_same(s, past, past_v, "lengths of past_key and past_value", NULL, err));
        total = dim_add(s, total, past);
    }
    dim hidden = dim_mul(s, q.heads, v.size);
    const dim y3[3] = {q.batch, q.length, hidden}, y4[4] = {q.batch, q.heads, q.length, v.size};
    TRY(shapes_out(s, 0, rank, rank == 3 ? y3 : y4, err));
    if (op_has_output(n, 1)) TRY(shapes_out(s, 1, 4, (dim[]){k.batch, k.heads, total, k.size}, err));
    if (op_has_output(n, 2)) TRY(shapes_out(s, 2, 4, (dim[]){v.batch, v.heads, total, v.size}, err));
    if (op_has_output(n, 3)) TRY(shapes_out(s, 3, 4, (dim[]){q.batch, q.heads, q.length, total}, err));
    return CHURON_OK;
}

/* ---- run -------------------------------------------------------------------------------------------- */

/* Strides of a tensor [B, H, L, D] or [B, L, H * D]. */
static attention_view view_of(const void *data, const tensor *t, size_t n_heads) {
    size_t a = (size_t)t->dims[1], b = (size_t)t->dims[2];
    if (t->rank == 4) {
        size_t d = (size_t)t->dims[3];
        return (attention_view){.data = data, .batch = a * b * d, .head = b * d, .time = d};
    }
    return (attention_view){.data = data, .batch = a * b, .head = n_heads ? b / n_heads : 0, .time = b};
}

/* Keys or values with what came before: [B, H, P + L, D] of the tensor's own type, in output `out` if that is
 * wanted. */
static status join_past(op_run *r, const tensor *now, const tensor *past, size_t out, size_t n_heads,
                        tensor *joined, error *err) {
    attention_view view = view_of(now->data, now, n_heads);
    size_t batch = (size_t)now->dims[0], length = (size_t)now->dims[now->rank == 4 ? 2 : 1];
    size_t size = now->rank == 4 ? (size_t)now->dims[3] : view.head,
           before = past ? (size_t)past->dims[2] : 0;
    size_t total = before + length, bytes = elem_describe(now->type)->bytes;
    int64_t dims[4] = {(int64_t)batch, (int64_t)n_heads, (int64_t)total, (int64_t)size};
    void *memory;
    tensor *present = NULL;
    if (op_has_output(run_node(r), out)) TRY(run_out(r, out, &present, err));
    if (present)
        memory = present->data;
    else
        TRY(run_scratch(r, batch * n_heads * total * size * bytes + 1, &memory, err));
    *joined = tensor_borrow(now->type, 4, dims, memory);
    for (size_t b = 0; b < batch; b++)
        for (size_t h = 0; h < n_heads; h++) {
            char *to = (char *)memory + (b * n_heads + h) * total * size * bytes;
            if (before)
                memcpy(to, (const char *)past->data + (b * n_heads + h) * before * size * bytes,
                       before * size * bytes);
            for (size_t t = 0; t < length; t++)
                memcpy(to + (before + t) * size * bytes,
                       (const char *)now->data + (b * view.batch + h * view.head + t * view.time) * bytes,
                       size * bytes);
        }
    return CHURON_OK;
}

/* A boolean mask as numbers to add. */
static status mask_values(op_run *r, const tensor *mask, elem work, const void **out, error *err) {
    if (mask->type != ELEM_BOOL) return real_of(r, mask, work, out, err);
    void *memory;
    TRY(run_scratch(r, (mask->count + 1) * elem_describe(work)->bytes, &memory, err));
    const uint8_t *b = mask->data;
    for (size_t i = 0; i < mask->count; i++) {
        if (work == ELEM_F64)
            ((double *)memory)[i] = b[i] ? 0 : -(double)INFINITY;
        else
            ((float *)memory)[i] = b[i] ? 0 : -INFINITY;
    }
    *out = memory;
    return CHURON_OK;
}

static status set_mask(op_run *r, const tensor *mask, attention_call *c, error *err) {
    if (!mask) return CHURON_OK;
    const int64_t want[4] = {(int64_t)c->batch, (int64_t)c->q_heads, (int64_t)c->q_len, (int64_t)c->kv_len};
    if (mask->rank < 1 || mask->rank > 4)
        return run_error(r, err, CHURON_INVALID, "attn_mask: rank 1 to 4 expected, got %u", mask->rank);
    int64_t steps[4];
    for (size_t i = 0; i < mask->rank; i++) {
        size_t axis = 4 - mask->rank + i;
        bool fits = axis == 3 ? mask->dims[i] <= want[3] : mask->dims[i] == 1 || mask->dims[i] == want[axis];
        if (!fits)
            return run_error(r, err, CHURON_INVALID, "attn_mask: dimension %zu of %s%lld expected, got %lld",
                             i, axis == 3 ? "at most " : "1 or ", (long long)want[axis],
                             (long long)mask->dims[i]);
    }
    nn_broadcast_strides(mask->dims, mask->rank, 4, steps);
    for (size_t i = 0; i < 4; i++) c->bias_step[i] = (size_t)steps[i];
    c->bias_keys = (size_t)mask->dims[mask->rank - 1];
    return mask_values(r, mask, c->work, &c->bias, err);
}

static status set_lengths(op_run *r, const tensor *nonpad, attention_call *c, error *err) {
    if (!nonpad) return CHURON_OK;
    void *memory;
    if (nonpad->count != c->batch)
        return run_error(r, err, CHURON_INVALID, "nonpad_kv_seqlen: %zu elements expected, got %zu", c->batch,
                         nonpad->count);
    TRY(run_scratch(r, (c->batch + 1) * sizeof(int64_t), &memory, err));
    int64_t *offsets = memory;
    c->valid = nonpad->data;
    for (size_t b = 0; b < c->batch; b++) {
        if (c->valid[b] < 0 || (uint64_t)c->valid[b] > c->kv_len)
            return run_error(r, err, CHURON_INVALID, "nonpad_kv_seqlen[%zu]: 0 to %zu expected, got %lld", b,
                             c->kv_len, (long long)c->valid[b]);
        offsets[b] = c->valid[b] - (int64_t)c->q_len;
    }
    c->offsets = offsets;
    return CHURON_OK;
}

static void set_sizes(attention_call *c, const attention_state *st, const tensor *q, const tensor *k,
                      const tensor *v) {
    bool flat = q->rank == 3;
    c->batch = (size_t)q->dims[0];
    c->q_heads = flat ? (size_t)st->q_heads : (size_t)q->dims[1];
    c->kv_heads = flat ? (size_t)st->kv_heads : (size_t)k->dims[1];
    c->q_len = (size_t)q->dims[flat ? 1 : 2];
    c->kv_len = (size_t)k->dims[flat ? 1 : 2];
    c->head_k = (size_t)q->dims[flat ? 2 : 3] / (flat ? c->q_heads : 1);
    c->head_v = (size_t)v->dims[flat ? 2 : 3] / (flat ? c->kv_heads : 1);
    c->scale = st->has_scale ? (double)st->scale : c->head_k ? 1 / sqrt((double)c->head_k) : 1;
}

static status set_keys(op_run *r, attention_call *c, elem work, error *err) {
    const op_node *n = run_node(r);
    const tensor *k = run_in(r, K), *v = run_in(r, V), *past = run_in(r, PAST_KEY);
    tensor joined_k, joined_v;
    const void *pk, *pv;
    c->offset = past ? past->dims[2] : 0;
    if (past || op_has_output(n, 1) || op_has_output(n, 2)) {
        TRY(join_past(r, k, past, 1, c->kv_heads, &joined_k, err));
        TRY(join_past(r, v, run_in(r, PAST_VALUE), 2, c->kv_heads, &joined_v, err));
        k = &joined_k, v = &joined_v;
        c->kv_len = (size_t)joined_k.dims[2];
    }
    TRY(real_of(r, k, work, &pk, err));
    TRY(real_of(r, v, work, &pv, err));
    c->k = view_of(pk, k, c->kv_heads), c->v = view_of(pv, v, c->kv_heads);
    return CHURON_OK;
}

static status attention_op_run(op_run *r, error *err) {
    const attention_state *st = run_state(r);
    const tensor *q = run_in(r, Q), *k = run_in(r, K), *v = run_in(r, V);
    elem work = q->type == ELEM_F64 || v->type == ELEM_F64 ? ELEM_F64 : ELEM_F32;
    tensor *y, *tap = NULL;
    void *to;
    const void *pq;
    attention_call c = {.work = work,
                        .split_scale = true,
                        .soft_cap = (double)st->soft_cap,
                        .causal = st->causal,
                        .left = st->left,
                        .right = st->right,
                        .round = q->type,
                        .softmax_round = st->precision ? (elem)st->precision : q->type,
                        .tap_at = (enum attention_tap)st->tap};
    TRY(real_out(r, 0, work, &y, &to, err));
    if (op_has_output(run_node(r), 3)) TRY(real_out(r, 3, work, &tap, &c.tap, err));
    set_sizes(&c, st, q, k, v);
    if (!(c.scale >= 0))
        return run_error(r, err, CHURON_INVALID, "scale: at least 0 expected, got %g", c.scale);
    TRY(real_of(r, q, work, &pq, err));
    c.q = view_of(pq, q, c.q_heads);
    TRY(set_keys(r, &c, work, err));
    c.y = y->rank == 4 ? view_of(to, y, c.q_heads)
                       : (attention_view){.data = to,
                                          .batch = c.q_len * c.q_heads * c.head_v,
                                          .head = c.head_v,
                                          .time = c.q_heads * c.head_v};
    TRY(set_mask(r, run_in(r, MASK), &c, err));
    TRY(set_lengths(r, run_in(r, NONPAD), &c, err));
    TRY(attention_run(r, &c, err));
    real_out_done(r, y, work, to);
    real_out_done(r, tap, work, c.tap);
    return CHURON_OK;
}

/* ---- FlexAttention ---------------------------------------------------------------------------------- */

static status flex_prepare(op_node *n, error *err) {
    attention_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->has_scale = op_attr_present(n, "scale");
    TRY(op_attr_float(n, "scale", 0, &st->scale, err));
    st->has_score_mod = op_attr_present(n, "score_mod");
    st->has_prob_mod = op_attr_present(n, "prob_mod");
    if (st->has_score_mod) TRY(op_attr_body(n, "score_mod", &st->score_mod, err));
    if (st->has_prob_mod) TRY(op_attr_body(n, "prob_mod", &st->prob_mod, err));
    return read_precision(n, st, err);
}

static elem softmax_type(const attention_state *st, elem q) {
    return st->precision ? (elem)st->precision : q == ELEM_F64 ? ELEM_F64 : ELEM_F32;
}

/* The bodies see scores of the softmax's type; unknown shapes are left to the run. */
static status infer_mods(op_shapes *s, const dim *scores, error *err) {
    const attention_state *st = shapes_state(s);
    ir_value formal = {.type = {.kind = ONNX_TENSOR, .type = softmax_type(st, shapes_in_type(s, Q))},
                       .has_rank = scores != NULL,
                       .rank = scores ? 4 : 0,
                       .dims = scores};
    ir_value *given = &formal;
    if (st->has_score_mod) TRY(ir_infer_body(s, st->score_mod, &given, 1, err));
    return st->has_prob_mod ? ir_infer_body(s, st->prob_mod, &given, 1, err) : CHURON_OK;
}

static status flex_infer(op_shapes *s, error *err) {
    bool kq, kk, kv;
    size_t rank;
    heads q, k, v;
    const op_node *n = shapes_node(s);
    TRY(read_heads(s, Q, 0, "Q", "heads", &kq, &rank, &q, err));
    if (kq && rank != 4) return op_error(n, err, CHURON_INVALID, "Q: rank 4 expected, got %zu", rank);
    TRY(read_heads(s, K, 0, "K", "heads", &kk, &rank, &k, err));
    if (kk && rank != 4) return op_error(n, err, CHURON_INVALID, "K: rank 4 expected, got %zu", rank);
    TRY(read_heads(s, V, 0, "V", "heads", &kv, &rank, &v, err));
    if (kv && rank != 4) return op_error(n, err, CHURON_INVALID, "V: rank 4 expected, got %zu", rank);
    if (!kq || !kk || !kv) {
        all_unknown(s);
        return shapes_running(s) ? CHURON_OK : infer_mods(s, NULL, err);
    }
    TRY(check_groups(s, &q, &k, &v, err));
    if (!shapes_running(s)) TRY(infer_mods(s, (dim[]){q.batch, q.heads, q.length, k.length}, err));
    return shapes_out(s, 0, 4, (dim[]){q.batch, q.heads, q.length, v.size}, err);
}

/* x [batch, q_heads, q_len, kv_len] of the work type through a body whose values have the softmax's type. */
static status run_mod(op_run *r, size_t body, const attention_call *c, elem type, void *x, const char *what,
                      error *err) {
    const int64_t dims[4] = {(int64_t)c->batch, (int64_t)c->q_heads, (int64_t)c->q_len, (int64_t)c->kv_len};
    value in, out = {.kind = VALUE_NONE};
    tensor given = tensor_borrow(c->work, 4, dims, x), cast;
    if (run_body_n_inputs(r, body) != 1 || run_body_n_outputs(r, body) != 1)
        return run_error(r, err, CHURON_INVALID,
                         "%s: a graph of one input and one output expected, got %zu and %zu", what,
                         run_body_n_inputs(r, body), run_body_n_outputs(r, body));
    TRY(tensor_alloc(&cast, type, 4, dims, err));
    real_out_done(r, &cast, c->work, x);
    if (type == c->work) memcpy(cast.data, x, tensor_bytes(&given));
    in = value_of_tensor(cast);
    status st = run_body(r, body, &in, 1, &out, 1, err);
    if (st == CHURON_OK && (out.kind != VALUE_TENSOR || out.t.type != type || out.t.rank != 4 ||
                            memcmp(out.t.dims, dims, sizeof dims) != 0))
        st = run_error(r, err, CHURON_INVALID,
                       "%s: a result of the input's type and shape expected, got %s of rank %u", what,
                       out.kind == VALUE_TENSOR ? elem_name(out.t.type) : "no tensor",
                       out.kind == VALUE_TENSOR ? out.t.rank : 0);
    const void *back = NULL;
    if (st == CHURON_OK) st = real_of(r, &out.t, c->work, &back, err);
    if (st == CHURON_OK) memcpy(x, back, tensor_bytes(&given));
    value_free(&in);
    value_free(&out);
    return st;
}

/* y = probabilities times values. */
static status mix_values(op_run *r, const attention_call *c, const void *p, void *y, error *err) {
    size_t group = c->q_heads / c->kv_heads;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->q_heads; h++) {
            size_t row = (b * c->q_heads + h) * c->q_len, at = b * c->v.batch + h / group * c->v.head;
            if (c->work == ELEM_F64) {
                gemm_f64(run_kernels(r), run_stop(r), c->q_len, c->head_v, c->kv_len,
                         (const double *)p + row * c->kv_len, c->kv_len, 1, (const double *)c->v.data + at,
                         c->v.time, 1, (double *)y + row * c->head_v, c->head_v);
                continue;
            }
            gemm_call call = {.m = c->q_len,
                              .n = c->head_v,
                              .k = c->kv_len,
                              .a = (const float *)p + row * c->kv_len,
                              .a_row = c->kv_len,
                              .a_col = 1,
                              .b = (const float *)c->v.data + at,
                              .b_row = c->v.time,
                              .b_col = 1,
                              .c = (float *)y + row * c->head_v,
                              .ldc = c->head_v};
            TRY(gemm_f32(r, &call, 1, NULL, err));
        }
    return CHURON_OK;
}

static status flex_run(op_run *r, error *err) {
    const attention_state *st = run_state(r);
    const tensor *q = run_in(r, Q), *k = run_in(r, K), *v = run_in(r, V);
    elem type = softmax_type(st, q->type);
    elem work = q->type == ELEM_F64 || type == ELEM_F64 ? ELEM_F64 : ELEM_F32;
    tensor *y;
    void *to, *scores = NULL;
    const void *pq, *pk, *pv;
    TRY(real_out(r, 0, work, &y, &to, err));
    TRY(real_of(r, q, work, &pq, err));
    TRY(real_of(r, k, work, &pk, err));
    TRY(real_of(r, v, work, &pv, err));
    attention_call c = {
        .work = work, .split_scale = true, .left = -1, .right = -1, .round = q->type, .softmax_round = type};
    set_sizes(&c, st, q, k, v);
    if (!(c.scale >= 0))
        return run_error(r, err, CHURON_INVALID, "scale: at least 0 expected, got %g", c.scale);
    c.q = view_of(pq, q, 0), c.k = view_of(pk, k, 0), c.v = view_of(pv, v, 0), c.y = view_of(to, y, 0);
    size_t count = c.batch * c.q_heads * c.q_len * c.kv_len;
    bool modified = st->has_score_mod || st->has_prob_mod;
    if (modified) TRY(run_scratch(r, (count + 1) * elem_describe(work)->bytes, &scores, err));
    c.tap = scores;
    if (!st->has_score_mod) c.tap_at = ATTENTION_PROBABILITIES;
    TRY(attention_run(r, &c, err));
    if (st->has_score_mod) { /* once more: no product, the scores as the bias */
        TRY(run_mod(r, st->score_mod, &c, type, scores, "score_mod", err));
        void *p;
        TRY(run_scratch(r, (count + 1) * elem_describe(work)->bytes, &p, err));
        c.bias = scores, c.bias_keys = c.kv_len, c.scale = 0, c.round = type;
        c.bias_step[3] = 1, c.bias_step[2] = c.kv_len, c.bias_step[1] = c.kv_len * c.q_len;
        c.bias_step[0] = c.bias_step[1] * c.q_heads;
        c.tap = p, c.tap_at = ATTENTION_PROBABILITIES;
        TRY(attention_run(r, &c, err));
    }
    if (st->has_prob_mod) {
        TRY(run_mod(r, st->prob_mod, &c, type, c.tap, "prob_mod", err));
        TRY(mix_values(r, &c, c.tap, to, err));
    }
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define MASKS (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))
#define ATTENTION(first, last, sign)                                                                         \
    {                                                                                                        \
        .domain = "", .name = "Attention", .since = first, .until = last, .signature = sign,                 \
        .vars = {{'T', ELEMS_FLOAT}, {'V', ELEMS_FLOAT}, {'U', MASKS}}, .prepare = attention_prepare,        \
        .release = mem_free, .infer = attention_infer, .run = attention_op_run                               \
    }

static const op_def rows[] = {
    ATTENTION(23, 23, "TTV=UTV>TTVT"),
    ATTENTION(24, 24, "TTV=UTVi>TTVT"),
    ATTENTION(25, 0, "TTV=UTVi>TTVT"),
    {.domain = "ai.onnx.preview",
     .name = "FlexAttention",
     .since = 1,
     .signature = "TTT>T",
     .vars = {{'T', ELEMS_FLOAT}},
     .prepare = flex_prepare,
     .release = mem_free,
     .infer = flex_infer,
     .run = flex_run},
};
NN_TABLE(attention);
