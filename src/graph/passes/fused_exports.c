/* fused_exports.c: operators that ONNX Runtime's optimizer puts into files, taken apart where what follows
 * joins the pieces with their neighbours:
 *
 *   BiasGelu, FastGelu with a bias             x + bias, then the function
 *   SkipLayerNormalization                     (input + bias) + skip, then LayerNormalization
 *   SkipSimplifiedLayerNormalization           the same, then RMSNormalization
 *
 * The bias goes first: a product in front takes it in. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/blocked.h"

static bool is_there(const op_node *n, size_t i) {
    return i < n->n_inputs && n->inputs[i];
}

/* Before n: a + b, of the shape of a. */
static status put_sum(rewriter *w, op_node *n, ir_value *a, ir_value *b, ir_value **out, error *err) {
    ir_value *const inputs[] = {a, b};
    TRY(rewrite_value(w, n->name, ELEM_F32, a->rank, a->dims, out, err));
    return rewrite_operator(w, n, "", "Add", 14, NULL, 0, inputs, 2, out, 1, err);
}

/* A row of as many numbers as x has in its last dimension. */
static bool is_row(const ir_value *v, const ir_value *x) {
    return value_is_f32(v) && v->has_rank && v->rank == 1 && x->rank > 0 &&
           v->dims[0] == x->dims[x->rank - 1];
}

static bool is_ready(const ir_value *x) {
    return value_is_f32(x) && x->has_rank;
}

static status lower_gelu(rewriter *w, op_node *n, error *err) {
    ir_value *x = n->inputs[0], *sum;
    if (!is_there(n, 1) || !is_ready(x) || !is_row(n->inputs[1], x)) return CHURON_OK;
    unary_state *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (unary_state){.function = node_is_of(n, "com.microsoft", "FastGelu") ? UNARY_F32_GELU_TANH
                                                                               : UNARY_F32_GELU};
    status s = put_sum(w, n, x, n->inputs[1], &sum, err);
    if (s != CHURON_OK) {
        mem_free(st);
        return s;
    }
    TRY(rewrite_insert(w, n, &op_unary, n->name, &sum, 1, n->outputs, 1, st, NULL, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

enum { INPUT, SKIP, GAMMA, BETA, BIAS, RMS_BIAS = 3, Y = 0, SUM = 3 };

static bool has_output(const op_node *n, size_t i) {
    return i < n->n_outputs && n->outputs[i];
}

static status lower_skip(rewriter *w, op_node *n, bool rms, error *err) {
    ir_value *x = n->inputs[INPUT], *skip = n->inputs[SKIP];
    const size_t bias = rms ? RMS_BIAS : BIAS;
    if (!is_ready(x) || !is_ready(skip) || !value_same_shape(x, skip) || !is_row(n->inputs[GAMMA], x) ||
        has_output(n, 1) || has_output(n, 2) || (is_there(n, bias) && !is_row(n->inputs[bias], x)) ||
        (!rms && is_there(n, BETA) && !is_row(n->inputs[BETA], x)))
        return CHURON_OK;
    if (is_there(n, bias)) TRY(put_sum(w, n, x, n->inputs[bias], &x, err));
    ir_value *sum = has_output(n, SUM) ? n->outputs[SUM] : NULL, *const pair[] = {x, skip};
    if (!sum) TRY(rewrite_value(w, n->name, ELEM_F32, x->rank, x->dims, &sum, err));
    TRY(rewrite_operator(w, n, "", "Add", 14, NULL, 0, pair, 2, &sum, 1, err));
    const node_attr attrs[] = {{.name = "axis", .i = -1},
                               {.name = "epsilon", .is_float = true, .f = node_float(n, "epsilon", 1e-12f)}};
    ir_value *const inputs[] = {sum, n->inputs[GAMMA], rms || !is_there(n, BETA) ? NULL : n->inputs[BETA]};
    TRY(rewrite_operator(w, n, "", rms ? "RMSNormalization" : "LayerNormalization", rms ? 23 : 17, attrs, 2,
                         inputs, inputs[2] ? 3 : 2, &n->outputs[Y], 1, err));
    rewrite_remove(w, n);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is_of(n, "com.microsoft", "BiasGelu") || node_is_of(n, "com.microsoft", "FastGelu"))
            TRY(lower_gelu(w, n, err));
        if (node_is_of(n, "com.microsoft", "SkipLayerNormalization")) TRY(lower_skip(w, n, false, err));
        if (node_is_of(n, "com.microsoft", "SkipSimplifiedLayerNormalization"))
            TRY(lower_skip(w, n, true, err));
    }
    return CHURON_OK;
}

status pass_fused_exports(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
