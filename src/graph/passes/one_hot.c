/* one_hot.c: products of a one-hot tensor with a constant matrix, which only pick its rows:
 *
 *   MatMul(Cast(Equal(x, c)), w)    x [..., 1], c the integers first, first + 1, ... for the rows of w
 *   MatMul(OneHot(x, rows, [0, 1]), w)
 *
 * A row's sum over products with 0 and one 1 is the row; where nothing is 1 it is 0. What follows element by
 * element (a bias, a function) is done to the rows when the model is loaded. The matrix must be finite, since
 * 0 times infinity is not 0. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/picked.h"

#include <math.h>
#include <string.h>

typedef struct match {
    pattern p;
    ir_value *x;
    picked_rows st; /* without rows */
} match;

static bool is_integer(const ir_value *v) {
    return v && v->type.kind == ONNX_TENSOR && (v->type.type == ELEM_I32 || v->type.type == ELEM_I64);
}

static int64_t integer_at(const tensor *t, size_t i) {
    return t->type == ELEM_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

/* [1, ..., n] of consecutive integers, ascending. */
static bool is_range(const ir_value *v, size_t n, int64_t *first) {
    if (!v || !v->is_constant || !is_integer(v) || v->constant.rank == 0 || v->constant.count != n ||
        v->constant.dims[v->constant.rank - 1] != (int64_t)n)
        return false;
    *first = integer_at(&v->constant, 0);
    if (*first > INT64_MAX - (int64_t)n) return false;
    for (size_t i = 0; i < n; i++) {
        if (integer_at(&v->constant, i) != *first + (int64_t)i) return false;
    }
    return true;
}

static bool match_equal(match *m, const op_node *equal) {
    for (size_t i = 0; i < 2; i++) {
        ir_value *x = equal->inputs[i];
        const ir_value *c = equal->inputs[1 - i];
        if (!is_integer(x) || x->is_constant || !x->has_rank || x->rank == 0 || x->dims[x->rank - 1] != 1 ||
            !is_range(c, m->st.count, &m->st.first) || c->constant.rank > x->rank)
            continue;
        m->x = x;
        return true;
    }
    return false;
}

static bool match_one_hot(match *m, const op_node *n) {
    const ir_value *depth = n->inputs[1], *values = n->inputs[2];
    const int64_t axis = node_int(n, "axis", -1);
    m->x = n->inputs[0];
    m->st.wraps = m->st.open = true;
    if (!is_integer(m->x) || m->x->is_constant || !m->x->has_rank ||
        (axis != -1 && axis != (int64_t)m->x->rank) || !is_integer(depth) || !depth->is_constant ||
        depth->constant.count != 1 || integer_at(&depth->constant, 0) != (int64_t)m->st.count ||
        !values->is_constant || values->constant.type != ELEM_F32 || values->constant.count != 2)
        return false;
    const float *v = values->constant.data;
    return v[0] == 0.0f && v[1] == 1.0f;
}

static bool match_all(match *m, op_node *n, const tensor *w) {
    m->st = (picked_rows){.count = (size_t)w->dims[0], .n = (size_t)w->dims[1]};
    m->p.nodes[m->p.n++] = n;
    const op_node *cast = pattern_maker(&m->p, n->inputs[0], "Cast");
    const op_node *equal = cast ? pattern_maker(&m->p, cast->inputs[0], "Equal") : NULL;
    const op_node *one_hot = cast ? NULL : pattern_maker(&m->p, n->inputs[0], "OneHot");
    return (equal ? match_equal(m, equal) : one_hot && match_one_hot(m, one_hot)) &&
           m->x->rank < TENSOR_MAX_RANK && pattern_is_closed(&m->p, n);
}

/* Rows and one of zeros behind them; false: not all are finite. -0 becomes 0, as in a sum from 0 on. */
static bool copy_rows(const tensor *w, float *rows, size_t n) {
    const float *from = w->data;
    bool finite = true;
    for (size_t i = 0; i < w->count; i++) {
        rows[i] = from[i] + 0.0f;
        finite &= isfinite(from[i]) != 0;
    }
    memset(rows + w->count, 0, n * sizeof *rows);
    return finite;
}

static status lower(rewriter *w, op_node *n, const tensor *b, error *err) {
    match m = {.p = {.w = w}};
    size_t floats;
    if (!match_all(&m, n, b) || !size_add(b->count, m.st.n, &floats)) return CHURON_OK;
    picked_rows *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = m.st;
    st->rows = floats <= SIZE_MAX / sizeof(float) ? mem_alloc(floats * sizeof(float)) : NULL;
    if (!st->rows) {
        mem_free(st);
        return ir_no_memory(err);
    }
    if (!copy_rows(b, st->rows, st->n)) {
        picked_free(st);
        return CHURON_OK;
    }
    TRY(rewrite_insert(w, n, &op_picked_rows, n->name, &m.x, 1, n->outputs, 1, st, NULL, err));
    pattern_remove(w, &m.p);
    return CHURON_OK;
}

static status lower_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        const tensor *b = node_is(n, "MatMul") && !rewrite_removed(n) ? node_f32_constant(n, 1) : NULL;
        if (b && b->rank == 2 && b->count) TRY(lower(w, n, b, err));
    }
    return CHURON_OK;
}

/* ---- what follows ----------------------------------------------------------------------------------- */

static bool add_to_rows(const op_node *n, const op_node *next, picked_rows *st) {
    if (!node_is(next, "Add") || next->n_inputs != 2 || next->version < 7 ||
        !value_same_shape(n->outputs[0], next->outputs[0]))
        return false;
    const tensor *c = node_f32_constant(next, next->inputs[0] == n->outputs[0] ? 1 : 0);
    if (!c || c->count != st->n || c->rank == 0 || c->dims[c->rank - 1] != (int64_t)st->n) return false;
    for (size_t i = 0; i <= st->count; i++) {
        for (size_t k = 0; k < st->n; k++) st->rows[i * st->n + k] += ((const float *)c->data)[k];
    }
    return true;
}

static bool apply_to_rows(const rewriter *w, const op_node *n, const op_node *next, picked_rows *st) {
    node_function f;
    if (next->inputs[0] != n->outputs[0] || !node_reads_function(next, &f)) return false;
    const size_t all = (st->count + 1) * st->n;
    w->x->kernels->unary(f.limits ? UNARY_F32_CLIP : f.f, f.limits ? f.low : f.p, f.limits ? f.high : f.q,
                         st->rows, st->rows, all);
    return true;
}

static status follow_sweep(rewriter *w, error *err) {
    (void)err;
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->def != &op_picked_rows) continue;
        op_node *next = rewrite_only_reader(w, n->outputs[0]);
        if (!next || rewrite_removed(next) ||
            (!add_to_rows(n, next, n->state) && !apply_to_rows(w, n, next, n->state)))
            continue;
        n->outputs[0] = next->outputs[0];
        n->outputs[0]->producer = n;
        rewrite_remove(w, next);
    }
    return CHURON_OK;
}

enum { FOLLOWERS = 4 };

status pass_one_hot(rewriter *w, error *err) {
    TRY(rewrite_each(w, lower_sweep, err));
    for (size_t i = 0; i < FOLLOWERS; i++) TRY(rewrite_each(w, follow_sweep, err));
    return CHURON_OK;
}
