/* rnn.c: RNN, GRU, LSTM with all their attributes.
 *
 * The inputs' products of all steps are one matrix product; each step adds the state's. Constant weights are
 * packed once. A sequence that is over keeps its state and leaves zeros in Y; a backward direction begins at
 * its own end. What goes into any function is clipped, the cell before h too, as the standard says (ONNX
 * Runtime leaves that one out). DynamicQuantizeLSTM of com.microsoft holds W and R as bytes, [directions,
 * inputs, gates]: they become f32 (where they are constant, once); inputs and states are not rounded to bytes
 * here. */
#include "graph/ops/rnn.h"
#include "base/mem.h"
#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"

#include <ctype.h>
#include <string.h>
#include <tgmath.h>

enum rnn_kind { RNN_SIMPLE, RNN_GRU, RNN_LSTM };
enum { MAX_ACTS = 6 };

typedef enum act_kind {
    ACT_RELU,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_AFFINE,
    ACT_LEAKY_RELU,
    ACT_THRESHOLDED_RELU,
    ACT_SCALED_TANH,
    ACT_HARD_SIGMOID,
    ACT_ELU,
    ACT_SOFTSIGN,
    ACT_SOFTPLUS,
    ACT_COUNT
} act_kind;

typedef struct activation {
    act_kind kind;
    float alpha, beta;
} activation;

typedef struct rnn_state {
    enum rnn_kind kind;
    size_t gates, directions, acts_each;
    int direction;
    bool linear_before_reset, input_forget, batch_first, quantized;
    float clip; /* 0: none */
    int64_t hidden;
    activation acts[MAX_ACTS];
    gemm_packed w[2], r[2], r2[2]; /* of constant f32 weights */
} rnn_state;

typedef struct rnn_job {
    enum rnn_kind kind;
    size_t gates, directions, acts_each, steps, batch, input, hidden;
    bool linear_before_reset, input_forget, batch_first;
    bool backward[2];
    float clip;
    const activation *acts;
    const void *x, *w, *r, *b, *h0, *c0, *p; /* x: [T, B, I] */
    const int32_t *lengths;
    void *y, *y_h, *y_c;
    const gemm_packed *w_packed[2], *r_packed[2], *r2_packed[2];
    const kernels *kernels;
} rnn_job;

/* ---- products of either type ------------------------------------------------------------------------ */

typedef struct rnn_product_f32 {
    gemm_plan *plan; /* NULL: nothing to do */
    gemm_call *call;
} rnn_product_f32;

typedef struct rnn_product_f64 {
    size_t m, n, k, ldc;
    const double *a, *w;
    double *c;
} rnn_product_f64;

static void sigmoid_f32(const kernels *k, float *x, size_t n) {
    k->unary(UNARY_F32_SIGMOID, 0, 0, x, x, n);
}

static void tangent_f32(const kernels *k, float *x, size_t n) {
    k->unary(UNARY_F32_TANH, 0, 0, x, x, n);
}

static void sigmoid_f64(const kernels *k, double *x, size_t n) {
    k->unary64(UNARY_F32_SIGMOID, x, x, n);
}

static void tangent_f64(const kernels *k, double *x, size_t n) {
    k->unary64(UNARY_F32_TANH, x, x, n);
}

#define REAL     float
#define FN(name) name##_f32
#include "graph/ops/rnn.inc"
#undef REAL
#undef FN
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/rnn.inc"
#undef REAL
#undef FN

static status product_begin_f32(op_run *r, rnn_product_f32 *p, size_t m, size_t n, size_t k, const float *a,
                                const float *w, const gemm_packed *ready, float *c, size_t ldc, error *err) {
    void *memory;
    TRY(run_scratch(r, sizeof(gemm_call), &memory, err));
    p->call = memory;
    *p->call = (gemm_call){.m = m,
                           .n = n,
                           .k = k,
                           .a = a,
                           .a_row = k,
                           .a_col = 1,
                           .b = w,
                           .b_row = 1,
                           .b_col = k,
                           .packed = ready,
                           .c = c,
                           .ldc = ldc};
    return gemm_plan_f32(r, p->call, 1, NULL, &p->plan, err);
}

static void product_run_f32(op_run *r, rnn_product_f32 *p) {
    gemm_plan_run(r, p->plan);
}

static status product_begin_f64(op_run *r, rnn_product_f64 *p, size_t m, size_t n, size_t k, const double *a,
                                const double *w, const gemm_packed *ready, double *c, size_t ldc,
                                error *err) {
    (void)r, (void)ready, (void)err;
    *p = (rnn_product_f64){.m = m, .n = n, .k = k, .ldc = ldc, .a = a, .w = w, .c = c};
    return CHURON_OK;
}

static void product_run_f64(op_run *r, rnn_product_f64 *p) {
    gemm_f64(run_kernels(r), run_stop(r), p->m, p->n, p->k, p->a, p->k, 1, p->w, 1, p->k, p->c, p->ldc);
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static bool same_word(const onnx_bytes *s, const char *word) {
    if (s->len != strlen(word)) return false;
    for (size_t i = 0; i < s->len; i++)
        if (tolower((unsigned char)s->data[i]) != tolower((unsigned char)word[i])) return false;
    return true;
}

static const struct {
    const char *name;
    bool alpha, beta;
    float a, b;
} act_names[ACT_COUNT] = {
    [ACT_RELU] = {"Relu", false, false, 0, 0},
    [ACT_TANH] = {"Tanh", false, false, 0, 0},
    [ACT_SIGMOID] = {"Sigmoid", false, false, 0, 0},
    [ACT_AFFINE] = {"Affine", true, true, 1, 0},
    [ACT_LEAKY_RELU] = {"LeakyRelu", true, false, 0.01F, 0},
    [ACT_THRESHOLDED_RELU] = {"ThresholdedRelu", true, false, 1, 0},
    [ACT_SCALED_TANH] = {"ScaledTanh", true, true, 1, 1},
    [ACT_HARD_SIGMOID] = {"HardSigmoid", true, true, 0.2F, 0.5F},
    [ACT_ELU] = {"Elu", true, false, 1, 0},
    [ACT_SOFTSIGN] = {"Softsign", false, false, 0, 0},
    [ACT_SOFTPLUS] = {"Softplus", false, false, 0, 0},
};

/* Parameters are consumed in the order of the functions that have some. */
static status read_activations(op_node *n, rnn_state *st, error *err) {
    static const act_kind usual[3][3] = {
        {ACT_TANH}, {ACT_SIGMOID, ACT_TANH}, {ACT_SIGMOID, ACT_TANH, ACT_TANH}};
    const onnx_bytes *names;
    const float *alphas, *betas;
    size_t count, n_alpha, n_beta, at_alpha = 0, at_beta = 0, want = st->directions * st->acts_each;
    TRY(op_attr_strings(n, "activations", &names, &count, err));
    TRY(op_attr_floats(n, "activation_alpha", &alphas, &n_alpha, err));
    TRY(op_attr_floats(n, "activation_beta", &betas, &n_beta, err));
    if (count && count < want)
        return op_error(n, err, CHURON_INVALID, "activations: %zu names expected, got %zu", want, count);
    for (size_t i = 0; i < want; i++) {
        activation *a = &st->acts[i];
        a->kind = count ? ACT_COUNT : usual[st->kind][i % st->acts_each];
        for (size_t k = 0; count && k < ACT_COUNT; k++)
            if (same_word(&names[i], act_names[k].name)) a->kind = (act_kind)k;
        if (a->kind == ACT_COUNT)
            return op_error(n, err, CHURON_UNSUPPORTED,
                            "activations[%zu]: a function such as Tanh expected, got '%s'", i, names[i].data);
        a->alpha = act_names[a->kind].a, a->beta = act_names[a->kind].b;
        if (act_names[a->kind].alpha && at_alpha < n_alpha) a->alpha = alphas[at_alpha++];
        if (act_names[a->kind].beta && at_beta < n_beta) a->beta = betas[at_beta++];
    }
    return CHURON_OK;
}

/* Packs constant f32 weights: rows [from, from + n) of each direction's matrix [rows, k], transposed. */
static status pack_rows(op_node *node, size_t input, size_t from, size_t n, size_t directions,
                        gemm_packed *out, error *err) {
    const tensor *t = op_constant(node, input);
    if (!t || t->type != ELEM_F32 || t->rank != 3 || (size_t)t->dims[0] != directions ||
        (size_t)t->dims[1] < from + n)
        return CHURON_OK;
    size_t k = (size_t)t->dims[2], rows = (size_t)t->dims[1];
    if (out[0].memory) return CHURON_OK;
    for (size_t d = 0; d < directions; d++)
        TRY(gemm_pack_create(&out[d], (const float *)t->data + (d * rows + from) * k, k, n, 1, k, err));
    return CHURON_OK;
}

static status pack_weights(op_node *n, rnn_state *st, error *err) {
    const tensor *r = op_constant(n, 2);
    if (!r || r->rank != 3 || r->dims[2] < 1 || (uint64_t)r->dims[1] != st->gates * (uint64_t)r->dims[2])
        return CHURON_OK;
    size_t hidden = (size_t)r->dims[2], wide = st->gates * hidden;
    size_t split = st->kind == RNN_GRU && !st->linear_before_reset ? 2 * hidden : wide;
    TRY(pack_rows(n, 1, 0, wide, st->directions, st->w, err));
    TRY(pack_rows(n, 2, 0, split, st->directions, st->r, err));
    return split < wide ? pack_rows(n, 2, split, hidden, st->directions, st->r2, err) : CHURON_OK;
}

/* ---- DynamicQuantizeLSTM ---------------------------------------------------------------------------- */

enum { Q_W_SCALE = 8, Q_W_ZERO, Q_R_SCALE, Q_R_ZERO };

static bool quantized_fits(const tensor *w, const tensor *scale, const tensor *zero, size_t directions) {
    if (w->rank != 3 || (uint64_t)w->dims[0] != directions) return false;
    const size_t each = directions * (size_t)w->dims[2];
    return (scale->count == directions || scale->count == each) && zero->count == scale->count;
}

/* w [directions, k, n] of bytes to `to` [directions, n, k]. */
static void dequantize_rows(const tensor *w, const tensor *scale, const tensor *zero, float *to) {
    const size_t k = (size_t)w->dims[1], n = (size_t)w->dims[2], directions = (size_t)w->dims[0];
    const bool each = scale->count != directions;
    for (size_t d = 0; d < directions; d++)
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < n; j++) {
                const size_t at = each ? d * n + j : d;
                to[(d * n + j) * k + i] = ((const float *)scale->data)[at] *
                                          (float)(byte_of(w, (d * k + i) * n + j) - byte_of(zero, at));
            }
}

/* Packs a constant matrix of bytes; what does not fit is said by the run. */
static status pack_quantized(op_node *node, size_t input, size_t scale_in, const rnn_state *st,
                             gemm_packed *out, error *err) {
    const tensor *w = op_constant(node, input), *scale = op_constant(node, scale_in),
                 *zero = op_constant(node, scale_in + 1);
    if (!w || !scale || !zero || !quantized_fits(w, scale, zero, st->directions) || w->count == 0)
        return CHURON_OK;
    const size_t k = (size_t)w->dims[1], n = (size_t)w->dims[2];
    float *plain = mem_alloc(w->count * sizeof *plain);
    if (!plain) return error_no_memory(err, "weights", w->count * sizeof *plain);
    dequantize_rows(w, scale, zero, plain);
    status result = CHURON_OK;
    for (size_t d = 0; d < st->directions && result == CHURON_OK; d++)
        result = gemm_pack_create(&out[d], plain + d * n * k, k, n, 1, k, err);
    mem_free(plain);
    return result;
}

/* Matrix `input` as f32 rows, unless it is packed. */
static status quantized_in(op_run *r, size_t input, size_t scale_in, const rnn_state *st,
                           const gemm_packed *ready, const void **out, error *err) {
    const tensor *w = run_in(r, input), *scale = run_in(r, scale_in), *zero = run_in(r, scale_in + 1);
    void *memory;
    *out = NULL;
    if (ready[0].memory) return CHURON_OK;
    if (!quantized_fits(w, scale, zero, st->directions))
        return run_error(r, err, CHURON_INVALID,
                         "%c_scale, %c_zero_point: one or one a column for %zu directions expected",
                         input == 1 ? 'W' : 'R', input == 1 ? 'W' : 'R', st->directions);
    TRY(run_scratch(r, (w->count + 1) * sizeof(float), &memory, err));
    dequantize_rows(w, scale, zero, memory);
    *out = memory;
    return CHURON_OK;
}

status rnn_pack_constants(op_node *n, void *state, error *err) {
    const rnn_state *st = state;
    return st && !st->quantized ? pack_weights(n, state, err) : CHURON_OK;
}

static status rnn_prepare(op_node *n, enum rnn_kind kind, rnn_state **out, error *err) {
    static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};
    static const size_t gates[] = {1, 3, 4}, acts[] = {1, 2, 3};
    rnn_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    *out = st;
    int64_t v = op_version(n);
    st->kind = kind, st->gates = gates[kind], st->acts_each = acts[kind];
    TRY(op_attr_choice(n, "direction", directions, 0, &st->direction, err));
    st->directions = st->direction == 2 ? 2 : 1;
    TRY(op_attr_int(n, "hidden_size", 0, 1, INT32_MAX, &st->hidden, err));
    TRY(op_attr_float(n, "clip", 0, &st->clip, err));
    if (op_attr_present(n, "clip") && !(st->clip >= 0))
        return op_error(n, err, CHURON_INVALID, "clip: at least 0 expected, got %g", (double)st->clip);
    if (v < 7) op_attr_ignore(n, "output_sequence"); /* the output is there or is not */
    if (v >= 14) TRY(op_attr_bool(n, "layout", false, &st->batch_first, err));
    if (kind == RNN_GRU && v >= 3)
        TRY(op_attr_bool(n, "linear_before_reset", false, &st->linear_before_reset, err));
    if (kind == RNN_LSTM) TRY(op_attr_bool(n, "input_forget", false, &st->input_forget, err));
    TRY(read_activations(n, st, err));
    return pack_weights(n, st, err);
}

static status simple_prepare(op_node *n, error *err) {
    rnn_state *st;
    return rnn_prepare(n, RNN_SIMPLE, &st, err);
}

static status gru_prepare(op_node *n, error *err) {
    rnn_state *st;
    return rnn_prepare(n, RNN_GRU, &st, err);
}

static status lstm_prepare(op_node *n, error *err) {
    rnn_state *st;
    return rnn_prepare(n, RNN_LSTM, &st, err);
}

static status quantized_prepare(op_node *n, error *err) {
    rnn_state *st;
    TRY(rnn_prepare(n, RNN_LSTM, &st, err));
    st->quantized = true;
    for (size_t i = Q_W_SCALE; i <= Q_R_ZERO; i++)
        if (!op_has_input(n, i))
            return op_error(n, err, CHURON_INVALID, "input %zu: a value expected, got none", i);
    TRY(pack_quantized(n, 1, Q_W_SCALE, st, st->w, err));
    return pack_quantized(n, 2, Q_R_SCALE, st, st->r, err);
}

static void rnn_release(void *state) {
    rnn_state *st = state;
    for (size_t d = 0; st && d < 2; d++)
        gemm_pack_free(&st->w[d]), gemm_pack_free(&st->r[d]), gemm_pack_free(&st->r2[d]);
    mem_free(st);
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

static status check_dims(op_shapes *s, size_t i, size_t rank, const dim *want, const char *what, error *err) {
    bool known;
    size_t r;
    const dim *d;
    if (!op_has_input(shapes_node(s), i)) return CHURON_OK;
    TRY(nn_rank(s, i, rank, rank, what, &known, &r, &d, err));
    for (size_t k = 0; known && k < rank; k++) TRY(shapes_same(s, d[k], want[k], what, NULL, err));
    return CHURON_OK;
}

static status rnn_infer(op_shapes *s, error *err) {
    const rnn_state *st = shapes_state(s);
    bool kx, kr;
    size_t rank;
    const dim *x, *r;
    TRY(nn_rank(s, 0, 3, 3, "X", &kx, &rank, &x, err));
    TRY(nn_rank(s, 2, 3, 3, "R", &kr, &rank, &r, err));
    dim steps = kx ? x[st->batch_first] : dim_fresh(s), batch = kx ? x[!st->batch_first] : dim_fresh(s);
    dim input = kx ? x[2] : dim_fresh(s), hidden = kr           ? r[st->quantized ? 1 : 2]
                                                   : st->hidden ? st->hidden
                                                                : dim_fresh(s);
    dim dirs = (int64_t)st->directions, wide = dim_mul(s, hidden, (int64_t)st->gates);
    if (st->hidden) TRY(shapes_same(s, hidden, st->hidden, "hidden_size and R", &hidden, err));
    if (dim_known(hidden) && hidden < 1)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "R: hidden size of at least 1 expected, got %lld", (long long)hidden);
    const dim state[3] = {st->batch_first ? batch : dirs, st->batch_first ? dirs : batch, hidden};
    TRY(check_dims(s, 1, 3, st->quantized ? (dim[]){dirs, input, wide} : (dim[]){dirs, wide, input}, "W",
                   err));
    TRY(check_dims(s, 2, 3, st->quantized ? (dim[]){dirs, hidden, wide} : (dim[]){dirs, wide, hidden}, "R",
                   err));
    TRY(check_dims(s, 3, 2, (dim[]){dirs, dim_mul(s, wide, 2)}, "B", err));
    TRY(check_dims(s, 4, 1, &batch, "sequence_lens", err));
    TRY(check_dims(s, 5, 3, state, "initial_h", err));
    if (st->kind == RNN_LSTM) {
        TRY(check_dims(s, 6, 3, state, "initial_c", err));
        TRY(check_dims(s, 7, 2, (dim[]){dirs, dim_mul(s, hidden, 3)}, "P", err));
    }
    const dim forward[4] = {steps, dirs, batch, hidden}, first[4] = {batch, steps, dirs, hidden};
    TRY(shapes_out(s, 0, 4, st->batch_first ? first : forward, err));
    TRY(shapes_out(s, 1, 3, state, err));
    return st->kind == RNN_LSTM ? shapes_out(s, 2, 3, state, err) : CHURON_OK;
}

/* ---- run -------------------------------------------------------------------------------------------- */

static status check_lengths(op_run *r, const rnn_job *j, error *err) {
    for (size_t b = 0; j->lengths && b < j->batch; b++)
        if (j->lengths[b] < 0 || (size_t)j->lengths[b] > j->steps)
            return run_error(r, err, CHURON_INVALID, "sequence_lens[%zu]: 0 to %zu expected, got %d", b,
                             j->steps, (int)j->lengths[b]);
    return CHURON_OK;
}

/* X with time first. */
static status time_first(op_run *r, const rnn_job *j, elem work, const void **x, error *err) {
    size_t bytes = j->input * elem_describe(work)->bytes;
    if (!j->batch_first || j->batch == 1 || j->steps == 1) return CHURON_OK;
    void *memory;
    TRY(run_scratch(r, j->steps * j->batch * bytes + 1, &memory, err));
    for (size_t b = 0; b < j->batch; b++)
        for (size_t t = 0; t < j->steps; t++)
            memcpy((char *)memory + (t * j->batch + b) * bytes, (const char *)*x + (b * j->steps + t) * bytes,
                   bytes);
    *x = memory;
    return CHURON_OK;
}

static status rnn_inputs(op_run *r, const rnn_state *st, rnn_job *j, elem work, error *err) {
    const tensor *x = run_in(r, 0), *w = run_in(r, 1), *rec = run_in(r, 2);
    j->steps = (size_t)x->dims[st->batch_first], j->batch = (size_t)x->dims[!st->batch_first];
    j->input = (size_t)x->dims[2], j->hidden = (size_t)rec->dims[st->quantized ? 1 : 2];
    TRY(real_in(r, 0, work, &j->x, err));
    if (st->quantized) {
        TRY(quantized_in(r, 1, Q_W_SCALE, st, st->w, &j->w, err));
        TRY(quantized_in(r, 2, Q_R_SCALE, st, st->r, &j->r, err));
    } else {
        TRY(real_in(r, 1, work, &j->w, err));
        TRY(real_in(r, 2, work, &j->r, err));
    }
    TRY(real_in(r, 3, work, &j->b, err));
    TRY(real_in(r, 5, work, &j->h0, err));
    if (st->kind == RNN_LSTM) TRY(real_in(r, 6, work, &j->c0, err));
    if (st->kind == RNN_LSTM) TRY(real_in(r, 7, work, &j->p, err));
    j->lengths = run_in(r, 4) ? run_in(r, 4)->data : NULL;
    for (size_t d = 0; d < st->directions; d++) {
        j->backward[d] = st->direction == 1 || d == 1;
        const bool plain = w->type == ELEM_F32 || st->quantized,
                   plain_r = rec->type == ELEM_F32 || st->quantized;
        if (plain && st->w[d].memory) j->w_packed[d] = &st->w[d];
        if (plain_r && st->r[d].memory) j->r_packed[d] = &st->r[d];
        if (plain_r && st->r2[d].memory) j->r2_packed[d] = &st->r2[d];
    }
    TRY(check_lengths(r, j, err));
    return time_first(r, j, work, &j->x, err);
}

/* An output that is absent may be the one whose shape rule checks the inputs: any present one does it. */
static status rnn_run(op_run *r, error *err) {
    const rnn_state *st = run_state(r);
    elem work = real_work(run_in(r, 0)->type);
    tensor *y = NULL, *y_h = NULL, *y_c = NULL;
    rnn_job j = {.kind = st->kind,
                 .gates = st->gates,
                 .directions = st->directions,
                 .acts_each = st->acts_each,
                 .linear_before_reset = st->linear_before_reset,
                 .input_forget = st->input_forget,
                 .batch_first = st->batch_first,
                 .clip = st->clip,
                 .acts = st->acts,
                 .kernels = run_kernels(r)};
    TRY(real_out_optional(r, 0, work, &y, &j.y, err));
    TRY(real_out(r, 1, work, &y_h, &j.y_h, err));
    if (st->kind == RNN_LSTM) TRY(real_out(r, 2, work, &y_c, &j.y_c, err));
    if (!y && !y_h && !y_c) return CHURON_OK;
    TRY(rnn_inputs(r, st, &j, work, err));
    if (y && j.lengths) memset(j.y, 0, y->count * elem_describe(work)->bytes);
    for (size_t d = 0; d < st->directions; d++)
        TRY(work == ELEM_F64 ? run_direction_f64(r, &j, d, err) : run_direction_f32(r, &j, d, err));
    real_out_done(r, y, work, j.y);
    real_out_done(r, y_h, work, j.y_h);
    real_out_done(r, y_c, work, j.y_c);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define RECURRENT(op, first, last, sign, types, prep)                                                        \
    {                                                                                                        \
        .domain = "", .name = op, .since = first, .until = last, .signature = sign,                          \
        .vars = {{'T', types}, {'L', ELEM_BIT(ELEM_I32)}}, .prepare = prep, .release = rnn_release,          \
        .infer = rnn_infer, .run = rnn_run                                                                   \
    }
#define VERSIONS(op, sign, prep)                                                                             \
    RECURRENT(op, 1, 6, sign, NN_F3, prep), RECURRENT(op, 7, 13, sign, NN_F3, prep),                         \
        RECURRENT(op, 14, 21, sign, NN_F3, prep), RECURRENT(op, 22, 0, sign, ELEMS_FLOAT, prep)

static const op_def rows[] = {
    VERSIONS("RNN", "TTT=TLT>=TT", simple_prepare),
    VERSIONS("GRU", "TTT=TLT>=TT", gru_prepare),
    VERSIONS("LSTM", "TTT=TLTTT>=TTT", lstm_prepare),
    {.domain = "com.microsoft",
     .name = "DynamicQuantizeLSTM",
     .since = 1,
     .signature = "fBB=fLffffBfB>=fff",
     .vars = {{'B', NN_I8}, {'L', ELEM_BIT(ELEM_I32)}},
     .prepare = quantized_prepare,
     .release = rnn_release,
     .infer = rnn_infer,
     .run = rnn_run},
};
NN_TABLE(rnn);
