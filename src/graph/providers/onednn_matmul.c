/* onednn_matmul.c: MatMul and Gemm of f32 with a constant right side; Gemm's alpha and beta go into the
 * weights and the bias. */
#include "base/mem.h"
#include "graph/providers/onednn_call.h"

#include <string.h>

typedef struct state {
    onednn_product product; /* first: onednn.c takes a state for one */
    int64_t k, n;
    bool transposed; /* X is [k, m] */
} state;

static void state_free(void *s) {
    if (!s) return;
    onednn_product_end(&((state *)s)->product);
    mem_free(s);
}

static status infer(op_shapes *s, error *err) {
    const state *st = shapes_state(s);
    size_t rank;
    const dim *in;
    dim out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank < 2 || (st->transposed && rank != 2))
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected a matrix, got rank %zu", rank);
    TRY(shapes_same(s, in[st->transposed ? 0 : rank - 1], st->k, "inner dimensions of the product", NULL,
                    err));
    memcpy(out, in, rank * sizeof *in);
    if (st->transposed) out[0] = in[1];
    out[rank - 1] = st->n;
    return shapes_out(s, 0, rank, out, err);
}

/* The product of m rows. */
static status describe(const state *st, int64_t m, size_t threads, onednn_call *c, error *err) {
    const int64_t x[] = {m, st->k}, y[] = {m, st->n}, w[] = {st->k, st->n}, columns[] = {1, m};
    dnnl_memory_desc_t weights;
    *c = (onednn_call){.threads = threads, .key = {m}};
    TRY(onednn_dense(&c->x, 2, x, st->transposed ? columns : NULL, err));
    TRY(onednn_dense(&c->y, 2, y, NULL, err));
    TRY(onednn_any(&weights, 2, w, err));
    return onednn_check(dnnl_matmul_desc_init(&c->operation.matmul, &c->x, &weights,
                                              st->product.bias ? &st->product.bias_form : NULL, &c->y),
                        "matrix product", err);
}

static status run(op_run *r, error *err) {
    state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    onednn_call c;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    status done =
        describe(st, (int64_t)y->count / st->n, run_pool(r) ? pool_threads(run_pool(r)) : 1, &c, err);
    if (done == CHURON_OK) done = onednn_execute(r, &st->product, &c, x->data, y->data, err);
    if (done != CHURON_OK) error_prefix(err, "node '%s'", op_name_of(run_node(r)));
    return done;
}

static const op_def op_onednn_matmul = {.domain = "churon.onednn",
                                        .name = "onednn.MatMul",
                                        .since = 1,
                                        .signature = "T>T",
                                        .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                        .release = state_free,
                                        .infer = infer,
                                        .run = run};

/* Gemm's third input as one number a column, times beta: *bias [cols], the caller's; NULL: none. False: it is
 * another. */
static bool read_bias(const op_node *n, size_t cols, float **bias, bool *no_memory) {
    *bias = NULL;
    *no_memory = false;
    if (!node_is(n, "Gemm") || n->n_inputs < 3 || !n->inputs[2]) return true;
    const tensor *c = node_f32_constant(n, 2);
    const bool row = c && ((c->rank == 1 && c->count == cols) ||
                           (c->rank == 2 && c->dims[0] == 1 && c->count == cols) || c->count == 1);
    if (!row) return false;
    const float beta = node_float(n, "beta", 1.0f), *from = c->data;
    *bias = mem_alloc(cols * sizeof **bias);
    *no_memory = !*bias;
    for (size_t i = 0; *bias && i < cols; i++) (*bias)[i] = beta * from[c->count == 1 ? 0 : i];
    return true;
}

static status fill(state *st, const op_node *n, const float *bias, error *err) {
    const tensor *b = node_f32_constant(n, 1);
    const bool gemm = node_is(n, "Gemm"), across = gemm && node_int(n, "transB", 0) != 0;
    const float alpha = gemm ? node_float(n, "alpha", 1.0f) : 1.0f;
    st->k = b->dims[across ? 1 : 0];
    st->n = b->dims[across ? 0 : 1];
    st->transposed = gemm && node_int(n, "transA", 0) != 0;
    TRY(onednn_product_begin(&st->product, bias, (size_t)st->n, true, err));
    st->product.weights = b->data;
    st->product.operations = 2.0 * (double)st->k;
    if (alpha != 1.0f) {
        st->product.scaled = mem_alloc(b->count * sizeof(float));
        if (!st->product.scaled) return ir_no_memory(err);
        for (size_t i = 0; i < b->count; i++) st->product.scaled[i] = alpha * ((const float *)b->data)[i];
        st->product.weights = st->product.scaled;
    }
    const int64_t dims[] = {st->k, st->n}, columns[] = {1, st->k};
    return onednn_dense(&st->product.weights_dense, 2, dims, across ? columns : NULL, err);
}

static bool can_claim(const op_node *n) {
    const tensor *b = node_f32_constant(n, 1);
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!b || b->rank != 2 || b->count == 0 || !value_is_f32(x) || !x->has_rank || x->rank < 2 || !y ||
        !value_is_f32(y))
        return false;
    return node_is(n, "MatMul") || (x->rank == 2 && n->version >= 7);
}

/* Rows of the result, if they are known. */
static int64_t known_rows(const ir_value *y) {
    int64_t rows = value_known_shape(y) ? 1 : 0;
    for (size_t i = 0; rows && i + 1 < y->rank; i++) rows *= y->dims[i];
    return rows;
}

status onednn_claim_matmul(rewriter *w, op_node *n, size_t threads, error *err) {
    float *bias;
    bool no_memory;
    if (!can_claim(n)) return CHURON_OK;
    const size_t cols =
        (size_t)n->inputs[1]->constant.dims[node_is(n, "Gemm") && node_int(n, "transB", 0) ? 0 : 1];
    if (!read_bias(n, cols, &bias, &no_memory)) return CHURON_OK;
    state *st = mem_calloc(1, sizeof *st);
    status made = st && !no_memory ? fill(st, n, bias, err) : ir_no_memory(err);
    mem_free(bias);
    ir_value *out = made == CHURON_OK ? onednn_take_limits(w, n, &st->product) : NULL;
    const int64_t rows = known_rows(n->outputs[0]);
    if (made == CHURON_OK && rows > 0) {
        onednn_call c;
        made = describe(st, rows, threads, &c, err);
        if (made == CHURON_OK) made = onednn_prepare(&st->product, &c, err);
    }
    if (made != CHURON_OK) {
        state_free(st);
        return made;
    }
    op_node *put;
    TRY(rewrite_insert(w, n, &op_onednn_matmul, n->name, n->inputs, 1, &out, 1, st, &put, err));
    put->borrowed = n->inputs[1]; /* plans of other shapes read it */
    rewrite_remove(w, n);
    return CHURON_OK;
}
