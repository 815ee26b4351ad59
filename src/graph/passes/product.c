/* product.c: matrix products with constant weights: packed once, with what follows fused: MatMul and Gemm,
 * then a bias, an addition of the same shape, then limits or a function of one element. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/product.h"

#include <math.h>
#include <string.h>

/* b is packed when the graph is final. */
static product *new_product(const tensor *b, bool across) {
    product *st = mem_alloc(sizeof *st);
    if (!st) return NULL;
    *st = (product){.k = (size_t)b->dims[across ? 1 : 0],
                    .n = (size_t)b->dims[across ? 0 : 1],
                    .source = tensor_borrow(b->type, b->rank, b->dims, b->data),
                    .across = across,
                    .low = -INFINITY,
                    .high = INFINITY};
    return st;
}

/* ---- MatMul and Gemm -------------------------------------------------------------------------------- */

static status put(rewriter *w, op_node *n, product *st, error *err) {
    TRY(rewrite_insert(w, n, &op_product, n->name, n->inputs, 1, n->outputs, 1, st, NULL, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

static bool is_matrix(const ir_value *v) {
    return value_is_f32(v) && v->has_rank && v->rank >= 2;
}

static status lower_matmul(rewriter *w, op_node *n, error *err) {
    const tensor *b = node_f32_constant(n, 1);
    if (!b || b->rank != 2 || b->count == 0 || !is_matrix(n->inputs[0])) return CHURON_OK;
    product *st = new_product(b, false);
    if (!st) return ir_no_memory(err);
    return put(w, n, st, err);
}

/* Gemm's third input as a bias of one number a column. */
static bool read_bias(const op_node *n, size_t cols, const tensor **bias) {
    *bias = NULL;
    if (n->n_inputs < 3 || !n->inputs[2]) return true;
    const tensor *c = node_f32_constant(n, 2);
    const bool row = c && ((c->rank == 1 && c->count == cols) ||
                           (c->rank == 2 && c->dims[0] == 1 && c->count == cols) || c->count == 1);
    *bias = c;
    return row;
}

static status lower_gemm(rewriter *w, op_node *n, error *err) {
    const tensor *b = node_f32_constant(n, 1), *bias;
    if (!b || b->rank != 2 || b->count == 0 || !is_matrix(n->inputs[0]) || n->inputs[0]->rank != 2)
        return CHURON_OK;
    const bool transposed = node_int(n, "transB", 0) != 0;
    const size_t cols = (size_t)b->dims[transposed ? 0 : 1];
    if (node_float(n, "alpha", 1.0f) != 1.0f || node_float(n, "beta", 1.0f) != 1.0f || n->version < 7 ||
        !read_bias(n, cols, &bias))
        return CHURON_OK;
    product *st = new_product(b, transposed);
    if (!st) return ir_no_memory(err);
    st->transposed = node_int(n, "transA", 0) != 0;
    if (bias) {
        st->bias = mem_calloc(gemm_panels(cols) * GEMM_PANEL, sizeof(float));
        if (!st->bias) {
            product_free(st);
            return ir_no_memory(err);
        }
        for (size_t i = 0; i < cols; i++) st->bias[i] = ((const float *)bias->data)[bias->count == 1 ? 0 : i];
    }
    return put(w, n, st, err);
}

static status lower_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "MatMul")) TRY(lower_matmul(w, n, err));
        if (node_is(n, "Gemm")) TRY(lower_gemm(w, n, err));
    }
    return CHURON_OK;
}

/* ---- what follows ----------------------------------------------------------------------------------- */

static product *state_of(const op_node *n) {
    return n && !rewrite_removed(n) && (n->def == &op_product || n->def == &op_product_int) ? n->state : NULL;
}

/* Inputs before the addition. */
static size_t own_inputs(const op_node *n) {
    return n->def == &op_product ? 1 : 3;
}

static bool is_plain(const product *st) {
    return !st->activate && isinf(st->low) && isinf(st->high);
}

/* A constant [n] added to the result of a product that has no bias yet. */
static status take_bias(rewriter *w, op_node *n, bool *took, error *err) {
    product *st = state_of(n);
    op_node *add = rewrite_only_reader(w, n->outputs[0]);
    *took = false;
    if (st->bias || !is_plain(st) || n->n_inputs > own_inputs(n) || !node_is(add, "Add") ||
        add->n_inputs != 2 || add->version < 7)
        return CHURON_OK;
    const size_t other = add->inputs[0] == n->outputs[0] ? 1 : 0;
    const tensor *c = node_f32_constant(add, other);
    if (!c || c->count != st->n || c->rank == 0 || c->dims[c->rank - 1] != (int64_t)st->n ||
        !value_same_shape(n->outputs[0], add->outputs[0]))
        return CHURON_OK;
    st->bias = mem_calloc(gemm_panels(st->n) * GEMM_PANEL, sizeof(float));
    if (!st->bias) return ir_no_memory(err);
    memcpy(st->bias, c->data, st->n * sizeof(float));
    n->outputs[0] = add->outputs[0];
    n->outputs[0]->producer = n;
    rewrite_remove(w, add);
    *took = true;
    return CHURON_OK;
}

static status take_addition(rewriter *w, op_node *add, error *err) {
    if ((!node_is(add, "Add") && !node_is(add, "Sum")) || add->n_inputs != 2 ||
        add->inputs[0] == add->inputs[1])
        return CHURON_OK;
    for (size_t i = 0; i < 2; i++) {
        ir_value *v = add->inputs[i], *other = add->inputs[1 - i];
        op_node *n = v ? v->producer : NULL;
        product *st = state_of(n);
        if (!st || n->n_inputs > own_inputs(n) || !is_plain(st) || rewrite_only_reader(w, v) != add ||
            !other || !value_is_f32(other) || !value_known_shape(v) || !value_same_shape(v, other))
            continue;
        const size_t own = own_inputs(n);
        ir_value *inputs[4];
        memcpy(inputs, n->inputs, own * sizeof *inputs);
        inputs[own] = other;
        n->state = NULL; /* it goes on in the new node, which stands where both inputs are there */
        TRY(rewrite_insert(w, add, n->def, n->name, inputs, own + 1, add->outputs, 1, st, NULL, err));
        rewrite_remove(w, n);
        rewrite_remove(w, add);
        return CHURON_OK;
    }
    return CHURON_OK;
}

static status bias_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        bool took = state_of(w->g->nodes[i]) != NULL;
        while (took) TRY(take_bias(w, w->g->nodes[i], &took, err));
    }
    return CHURON_OK;
}

static status addition_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        if (!rewrite_removed(w->g->nodes[i])) TRY(take_addition(w, w->g->nodes[i], err));
    }
    return CHURON_OK;
}

static status function_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        product *st = state_of(n);
        op_node *next = st && is_plain(st) ? rewrite_only_reader(w, n->outputs[0]) : NULL;
        node_function f;
        if (!next || next->inputs[0] != n->outputs[0] || !node_reads_function(next, &f)) continue;
        if (f.limits) {
            st->low = f.low;
            st->high = f.high;
        } else {
            st->activate = true;
            st->function = f.f;
            st->p = f.p;
            st->q = f.q;
        }
        n->outputs[0] = next->outputs[0];
        n->outputs[0]->producer = n;
        rewrite_remove(w, next);
    }
    return CHURON_OK;
}

status pass_matmul_epilogue(rewriter *w, error *err) {
    TRY(rewrite_each(w, lower_sweep, err));
    TRY(rewrite_each(w, bias_sweep, err));
    TRY(rewrite_each(w, addition_sweep, err));
    return rewrite_each(w, function_sweep, err);
}
