/* skip.c: an addition and the layer normalization of its result, as residual branches of transformers end.
 * The sum stays a value where somebody else reads it, as the next residual branch does. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/skipnorm.h"

/* A vector of n numbers. */
static bool is_row(const ir_value *v, dim n) {
    return value_is_f32(v) && v->has_rank && v->rank == 1 && v->dims[0] == n;
}

static status lower(rewriter *w, op_node *n, error *err) {
    ir_value *sum = n->inputs[0];
    op_node *add = sum ? sum->producer : NULL;
    if (!node_is(add, "Add") || add->version < 7 || add->n_inputs != 2 || !value_is_f32(sum) ||
        !sum->has_rank || sum->rank == 0 || (n->n_outputs > 1 && n->outputs[1]) ||
        (n->n_outputs > 2 && n->outputs[2]))
        return CHURON_OK;
    const dim width = sum->dims[sum->rank - 1];
    const int64_t axis = node_int(n, "axis", -1);
    ir_value *bias = n->n_inputs > 2 ? n->inputs[2] : NULL;
    if (!dim_known(width) || width < 1 || width > SKIP_NORM_MOST ||
        (axis != -1 && axis != (int64_t)sum->rank - 1) || !is_row(n->inputs[1], width) ||
        (bias && !is_row(bias, width)))
        return CHURON_OK;
    skip_norm *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (skip_norm){.epsilon = node_float(n, "epsilon", 1e-5f)};
    ir_value *inputs[4] = {add->inputs[0], add->inputs[1], n->inputs[1], bias};
    ir_value *outputs[2] = {n->outputs[0], sum};
    const bool kept = rewrite_n_uses(w, sum) > 1;
    /* Where the addition stood: everybody who reads the sum comes behind it, scale and bias before. */
    if (kept && !(n->inputs[1]->is_constant && (!bias || bias->is_constant))) {
        mem_free(st);
        return CHURON_OK;
    }
    TRY(rewrite_insert(w, kept ? add : n, &op_skip_norm, n->name, inputs, bias ? 4 : 3, outputs, kept ? 2 : 1,
                       st, NULL, err));
    rewrite_remove(w, add);
    rewrite_remove(w, n);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "LayerNormalization")) TRY(lower(w, n, err));
    }
    return CHURON_OK;
}

status pass_skip_normalization(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
