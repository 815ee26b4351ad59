/* fold.c: constants. A node whose inputs are constant is computed when the graph is loaded; a value whose
 * elements follow from shapes that are known becomes a constant too. */
#include "graph/passes/passes.h"

#include <string.h>

/* What folding may add to a model: a Tile or Expand of constants can be far larger than what it is made of.
 */
enum { GROWTH = 8, GROWTH_BYTES = 1 << 16 }; /* 8: weights of 4 bits become f32 */

static size_t bytes_in(const op_node *n) {
    size_t in = 0;
    for (size_t i = 0; i < n->n_inputs; i++) in += n->inputs[i] ? tensor_bytes(&n->inputs[i]->constant) : 0;
    return in;
}

static bool can_compute(const op_node *n) {
    if (!n->def || n->n_bodies || (n->def->flags & (OP_RANDOM | OP_OWN_INFERENCE)) || n->n_inputs == 0)
        return false;
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i] && !n->inputs[i]->is_constant) return false;
    }
    const size_t in = bytes_in(n);
    for (size_t i = 0; i < n->n_outputs; i++) {
        const ir_value *v = n->outputs[i];
        if (!v) continue;
        if (v->type.kind != ONNX_TENSOR || v->is_constant) return false;
        if (!value_known_shape(v)) continue; /* depends on the data: small enough for what made it */
        size_t count;
        if (tensor_count(v->type.type, v->rank, v->dims, &count, "constant", NULL) != CHURON_OK) return false;
        if (count * elem_describe(v->type.type)->bytes > GROWTH * in + GROWTH_BYTES) return false;
    }
    return true;
}

/* A node that cannot be computed stays: it says why when the graph runs. Unless the time for loading is over.
 */
static status compute(rewriter *w, op_node *n, error *err) {
    tensor few[8] = {0};
    error why;
    if (n->n_outputs > 8) return CHURON_OK;
    status st = exec_constant_node(w->x, n, few, &why);
    if (st == CHURON_NO_MEMORY) return ir_no_memory(err);
    if (st != CHURON_OK) return ir_check_stop(n, err);
    for (size_t i = 0; i < n->n_outputs; i++) {
        ir_value *v = n->outputs[i];
        if (!v) {
            tensor_free(&few[i]);
            continue;
        }
        tensor kept;
        if (st == CHURON_OK)
            st = ir_keep_constant(w->program, few[i], &kept, err);
        else
            tensor_free(&few[i]);
        if (st == CHURON_OK) st = ir_value_set_constant(v, kept, err);
        if (st == CHURON_OK) v->producer = NULL;
    }
    rewrite_remove(w, n);
    return st;
}

/* Known elements of an integer tensor of known shape. */
static status take_known(rewriter *w, op_node *n, error *err) {
    ir_value *v = n->n_outputs == 1 ? n->outputs[0] : NULL;
    if (!v || v->is_constant || !v->known || v->type.kind != ONNX_TENSOR || !value_known_shape(v))
        return CHURON_OK;
    const elem type = v->type.type;
    if (type != ELEM_I64 && type != ELEM_I32) return CHURON_OK;
    size_t count;
    if (tensor_count(type, v->rank, v->dims, &count, "constant", NULL) != CHURON_OK || count != v->n_known)
        return CHURON_OK;
    for (size_t i = 0; i < count; i++) {
        if (!dim_known(v->known[i])) return CHURON_OK;
    }
    tensor t, kept;
    TRY(tensor_alloc(&t, type, v->rank, v->dims, err));
    for (size_t i = 0; i < count; i++) {
        if (type == ELEM_I64) {
            ((int64_t *)t.data)[i] = v->known[i];
        } else {
            ((int32_t *)t.data)[i] = (int32_t)v->known[i];
        }
    }
    TRY(ir_keep_constant(w->program, t, &kept, err));
    v->producer = NULL;
    rewrite_remove(w, n);
    return ir_value_set_constant(v, kept, err);
}

static status fold_graph(rewriter *w, error *err) {
    ir_graph *g = w->g;
    for (size_t i = 0; i < g->n_captures; i++) {
        ir_value *inner = g->captures[i].inner;
        const ir_value *outer = g->captures[i].outer;
        if (outer->is_constant && !inner->is_constant)
            TRY(ir_value_set_constant(inner, outer->constant, err));
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        op_node *n = g->nodes[i];
        TRY(ir_check_stop(n, err));
        if (can_compute(n)) TRY(compute(w, n, err));
        if (rewrite_removed(n) || n->n_bodies || (n->def->flags & OP_RANDOM)) continue;
        TRY(take_known(w, n, err));
    }
    return CHURON_OK;
}

status pass_constant_folding(rewriter *w, error *err) {
    return rewrite_each(w, fold_graph, err);
}
