/* epilogue.c: what follows a blocked convolution is done while its rows are in the nearest cache: an addition
 * of an image of the same shape, then limits or a function of one element. */
#include "graph/passes/passes.h"

#include "graph/ops/blocked.h"

#include <math.h>
#include <string.h>

static blocked_conv *conv_state(const op_node *n) {
    return n && !rewrite_removed(n) && n->def == &op_blocked_conv ? n->state : NULL;
}

static bool is_plain(const blocked_conv *st) {
    return !st->c.activate && isinf(st->c.low) && isinf(st->c.high);
}

/* ---- additions -------------------------------------------------------------------------------------- */

/* The convolution that makes v for this reader alone and adds nothing yet. */
static op_node *addable(const rewriter *w, const ir_value *v, const op_node *reader) {
    op_node *n = v->producer;
    const blocked_conv *st = conv_state(n);
    return st && n->n_inputs == 1 && is_plain(st) && !conv_spreads(&st->c) &&
                   rewrite_only_reader(w, v) == reader
               ? n
               : NULL;
}

/* The later one of two convolutions takes the other's result in: it is warm. */
static status fuse_add(rewriter *w, op_node *add, error *err) {
    if ((!node_is(add, "Add") && !node_is(add, "Sum")) || add->n_inputs != 2 ||
        add->inputs[0] == add->inputs[1])
        return CHURON_OK;
    ir_value *a = add->inputs[0], *b = add->inputs[1];
    if (!a || !b || !a->has_rank || a->rank != BLOCKED_RANK || !value_same_shape(a, b)) return CHURON_OK;
    op_node *of_a = addable(w, a, add), *of_b = addable(w, b, add);
    op_node *taken = of_a && of_b ? (of_a->index > of_b->index ? of_a : of_b) : of_a ? of_a : of_b;
    if (!taken) return CHURON_OK;
    ir_value *inputs[2] = {taken->inputs[0], taken == of_a ? b : a};
    void *state = taken->state;
    taken->state = NULL; /* it goes on in the new node, which stands where both inputs are there */
    TRY(rewrite_insert(w, add, &op_blocked_conv, taken->name, inputs, 2, add->outputs, 1, state, NULL, err));
    rewrite_remove(w, taken);
    rewrite_remove(w, add);
    return CHURON_OK;
}

static status add_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        if (!rewrite_removed(w->g->nodes[i])) TRY(fuse_add(w, w->g->nodes[i], err));
    }
    return CHURON_OK;
}

/* ---- activations ------------------------------------------------------------------------------------ */

static void fuse_activation(rewriter *w, op_node *n) {
    op_node *next = rewrite_only_reader(w, n->outputs[0]);
    node_function f;
    if (!next || next->inputs[0] != n->outputs[0] || !node_reads_function(next, &f)) return;
    blocked_conv *st = conv_state(n);
    blocked_affine *affine = n->def == &op_blocked_affine ? n->state : NULL;
    if (st && is_plain(st)) {
        if (f.limits) {
            st->c.low = f.low;
            st->c.high = f.high;
        } else {
            st->c.activate = true;
            st->c.function = f.f;
            st->c.p = f.p;
            st->c.q = f.q;
        }
    } else if (affine && f.limits && isinf(affine->low) && isinf(affine->high)) {
        affine->low = f.low;
        affine->high = f.high;
    } else {
        return;
    }
    n->outputs[0] = next->outputs[0];
    n->outputs[0]->producer = n;
    rewrite_remove(w, next);
}

static status activation_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (!rewrite_removed(n) && (n->def == &op_blocked_conv || n->def == &op_blocked_affine))
            fuse_activation(w, n);
    }
    return CHURON_OK;
}

status pass_conv_epilogue(rewriter *w, error *err) {
    TRY(rewrite_each(w, add_sweep, err));
    return rewrite_each(w, activation_sweep, err);
}
