/* epilogue.c: what follows a blocked convolution is done while its rows are in the nearest cache: an addition
 * of an image of the same shape, then limits or a function of one element, then scalar factors and summands.
 */
#include "graph/passes/passes.h"

#include "graph/ops/blocked.h"

#include <math.h>
#include <string.h>

static blocked_conv *conv_state(const op_node *n) {
    return n && !rewrite_removed(n) && n->def == &op_blocked_conv ? n->state : NULL;
}

static bool is_plain(const conv *c) {
    return !c->activate && !c->affine && isinf(c->low) && isinf(c->high);
}

/* ---- additions -------------------------------------------------------------------------------------- */

/* The convolution that makes v for this reader alone and adds nothing yet. */
static op_node *addable(const rewriter *w, const ir_value *v, const op_node *reader) {
    op_node *n = v->producer;
    const blocked_conv *st = conv_state(n);
    return st && n->n_inputs == 1 && is_plain(&st->c) && !conv_spreads(&st->c) &&
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

static void take_function(conv *c, const node_function *f) {
    if (f->limits) {
        c->low = f->low;
        c->high = f->high;
        return;
    }
    c->activate = true;
    c->function = f->f;
    c->p = f->p;
    c->q = f->q;
}

static void take_over(rewriter *w, op_node *n, op_node *next) {
    n->outputs[0] = next->outputs[0];
    n->outputs[0]->producer = n;
    rewrite_remove(w, next);
}

static void fuse_activation(rewriter *w, op_node *n) {
    op_node *next = rewrite_only_reader(w, n->outputs[0]);
    node_function f;
    if (!next || next->inputs[0] != n->outputs[0] || !node_reads_function(next, &f)) return;
    blocked_conv *st = conv_state(n);
    blocked_affine *affine = n->def == &op_blocked_affine ? n->state : NULL;
    blocked_transpose *up = n->def == &op_blocked_transpose ? n->state : NULL;
    if (st && is_plain(&st->c)) {
        take_function(&st->c, &f);
    } else if (up && is_plain(&up->c) && (f.limits || up->phases[0].c.every)) {
        for (size_t i = 0; i < up->n_phases; i++) take_function(&up->phases[i].c, &f);
        take_function(&up->c, &f);
    } else if (affine && f.limits && isinf(affine->low) && isinf(affine->high)) {
        affine->low = f.low;
        affine->high = f.high;
    } else {
        return;
    }
    take_over(w, n, next);
}

static status activation_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (!rewrite_removed(n) &&
            (n->def == &op_blocked_conv || n->def == &op_blocked_affine || n->def == &op_blocked_transpose))
            fuse_activation(w, n);
    }
    return CHURON_OK;
}

/* ---- one factor and one summand of all ---------------------------------------------------------------- */

/* Behind a function, where it could not go into the weights. */
static bool fuse_scalar(rewriter *w, op_node *n) {
    conv *c = &conv_state(n)->c;
    const ir_value *y = n->outputs[0];
    op_node *next = rewrite_only_reader(w, y);
    if (!next || !next->outputs[0] || !value_same_shape(y, next->outputs[0])) return false;
    static const char *const known[] = {"Mul", "Div", "Add", "Sub", NULL};
    float s, scale = c->affine ? c->scale : 1.0f, shift = c->affine ? c->shift : 0.0f;
    size_t i = 0;
    while (known[i] && node_with_scalar(next, known[i], &s) != y) i++;
    if (!known[i] || !isfinite(s) || (i == 1 && s == 0.0f)) return false;
    if (i == 0) scale *= s, shift *= s;
    if (i == 1) scale /= s, shift /= s;
    if (i >= 2) shift += i == 2 ? s : -s;
    if (!isfinite(scale) || !isfinite(shift)) return false;
    c->affine = true;
    c->scale = scale;
    c->shift = shift;
    take_over(w, n, next);
    return true;
}

static status scalar_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        while (conv_state(n) && fuse_scalar(w, n)) continue;
    }
    return CHURON_OK;
}

/* ---- functions in front ------------------------------------------------------------------------------- */

/* Cheap enough to be taken once for each convolution that reads it. */
static bool is_cheap(const op_node *n, node_function *f) {
    if (!node_reads_function(n, f)) return false;
    if (f->limits) { /* as a function */
        f->f = UNARY_F32_CLIP;
        f->p = f->low;
        f->q = f->high;
    }
    return f->limits || f->f == UNARY_F32_LEAKY_RELU;
}

/* A function that convolutions alone read, all of which copy what they read anyway. */
static void fuse_input(rewriter *w, op_node *n) {
    node_function f;
    const ir_value *y = n->n_outputs == 1 ? n->outputs[0] : NULL;
    if (!y || y->is_output || !y->has_rank || y->rank != BLOCKED_RANK || y->slot >= w->n_values ||
        !is_cheap(n, &f))
        return;
    const uint32_t first = w->first[y->slot], end = w->first[y->slot + 1];
    if (first == end || rewrite_n_uses(w, y) != end - first) return;
    for (uint32_t i = first; i < end; i++) {
        const op_node *reader = w->readers[i];
        const blocked_conv *st = conv_state(reader);
        if (!st || st->c.before || !conv_takes_function(&st->c) || reader->inputs[0] != y ||
            (reader->n_inputs > 1 && reader->inputs[1] == y))
            return;
    }
    for (uint32_t i = first; i < end; i++) {
        conv *c = &conv_state(w->readers[i])->c;
        c->before = true;
        c->input = f.f;
        c->input_p = f.p;
        c->input_q = f.q;
        w->readers[i]->inputs[0] = n->inputs[0];
    }
    rewrite_remove(w, n);
}

static status input_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        if (!rewrite_removed(w->g->nodes[i])) fuse_input(w, w->g->nodes[i]);
    }
    return CHURON_OK;
}

status pass_conv_epilogue(rewriter *w, error *err) {
    TRY(rewrite_each(w, add_sweep, err));
    TRY(rewrite_each(w, activation_sweep, err));
    TRY(rewrite_each(w, scalar_sweep, err));
    return rewrite_each(w, input_sweep, err);
}
