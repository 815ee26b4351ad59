/* attention.c: scaled dot-product attention that was exported in pieces:
 *
 *   MatMul(p, v),  p = Softmax(scores)           or 0 where that is NaN (IsNaN, Where)
 *   scores = MatMul(q, k^T), FusedMatMul         then * or / a scalar,
 *                                                then Where(condition, scalar, .) either way round,
 *                                                then + a mask, twice at most
 *
 * of rank 4, or 3 where batch and heads are one axis. Scalars may also multiply q or k. Transpositions and
 * picks of a packed tensor (Gather of one element) in front, and the transposition back to [batch, time,
 * head, width] behind, become strides. Keys that are transposed as [batch * head, time, width] between two
 * Reshapes are recognized too; the shapes stay and are checked when the graph runs. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/sdpa.h"

#include <string.h>

enum { PEELS = 12, MOST_INPUTS = 3 + SDPA_ADDS + 1 + 2, SCORE_STEPS = 6 };

typedef struct match {
    rewriter *w;
    pattern p;
    sdpa st;
    ir_value *inputs[3], *adds[SDPA_ADDS], *condition, *guards[2];
} match;

/* ---- views ------------------------------------------------------------------------------------------ */

/* Axis i of what came out is axis from[i] of what went in. */
static void move_axes(sdpa_view *v, const int64_t *from) {
    for (size_t a = 0; a < SDPA_AXES; a++) {
        if (v->axis[a] >= 0) v->axis[a] = (int)from[v->axis[a]];
    }
    if (v->pick_axis >= 0) v->pick_axis = (int)from[v->pick_axis];
}

static bool peel_transpose(const op_node *n, sdpa_view *v) {
    size_t count;
    const int64_t *perm = node_ints(n, "perm", &count);
    if (!n->inputs[0]->has_rank || count != n->inputs[0]->rank) return false;
    move_axes(v, perm);
    return true;
}

/* Gather of one element: that axis is gone. */
static bool peel_pick(const op_node *n, sdpa_view *v) {
    const ir_value *in = n->inputs[0], *index = n->inputs[1];
    if (v->pick_axis >= 0 || !index->is_constant || index->constant.rank != 0 ||
        index->constant.type != ELEM_I64 || !in->has_rank || in->rank == 0)
        return false;
    int64_t at, axis = node_int(n, "axis", 0);
    memcpy(&at, index->constant.data, sizeof at);
    if (axis < 0) axis += in->rank;
    if (axis < 0 || axis >= (int64_t)in->rank || !dim_known(in->dims[axis]) || at < -in->dims[axis] ||
        at >= in->dims[axis])
        return false;
    for (size_t a = 0; a < SDPA_AXES; a++) v->axis[a] += v->axis[a] >= axis;
    v->pick_axis = (int)axis;
    v->pick = at;
    return true;
}

/* The two last elements of a shape are these, as far as is known now. */
static bool ends_with(const ir_value *shape, dim a, dim b) {
    dim last[2];
    if (shape->is_constant) {
        const tensor *t = &shape->constant;
        if (t->type != ELEM_I64 || t->count < 2) return false;
        memcpy(last, (const int64_t *)t->data + t->count - 2, sizeof last);
    } else {
        if (!shape->known || shape->n_known < 2) return false;
        memcpy(last, shape->known + shape->n_known - 2, sizeof last);
    }
    return last[0] == a && last[1] == b;
}

/* Reshape to [batch * head, time, width], Transpose, Reshape: the two last axes change places. */
static ir_value *peel_merged_transpose(match *m, const ir_value *v, sdpa_view *view) {
    static const int64_t swapped[] = {0, 1, 3, 2};
    const op_node *split = v->producer, *turn = split->inputs[0]->producer;
    if (m->st.n_guards || !node_is(turn, "Transpose") || !node_is(turn->inputs[0]->producer, "Reshape"))
        return NULL;
    const op_node *merge = turn->inputs[0]->producer;
    ir_value *in = merge->inputs[0];
    const ir_value *merged = merge->outputs[0];
    size_t count;
    const int64_t *perm = node_ints(turn, "perm", &count);
    if (merge->version < 5 || split->version < 5 || count != 3 || perm[0] != 0 || perm[1] != 2 ||
        !in->has_rank || in->rank != 4 || !v->has_rank || v->rank != 4 || !merged->has_rank ||
        merged->rank != 3 || v->dims[0] != in->dims[0] || v->dims[1] != in->dims[1] ||
        !ends_with(merge->inputs[1], in->dims[2], in->dims[3]) ||
        !ends_with(split->inputs[1], in->dims[3], in->dims[2]))
        return NULL;
    m->guards[0] = merge->inputs[1];
    m->guards[1] = split->inputs[1];
    m->st.n_guards = 2;
    move_axes(view, swapped);
    return in;
}

static ir_value *peel_scalar(const ir_value *v, float *scale) {
    float s;
    const op_node *n = v->producer;
    ir_value *in = node_with_scalar(n, "Mul", &s);
    const bool divides = !in && (in = node_with_scalar(n, "Div", &s)) != NULL;
    if (!in || !in->has_rank || in->rank != v->rank) return NULL;
    *scale = divides ? *scale / s : *scale * s;
    return in;
}

/* What v is a view of. scale: NULL where a scalar may not be taken out; is_keys: merged transpositions too.
 */
static ir_value *peel(match *m, ir_value *v, sdpa_view *view, float *scale, bool is_keys) {
    for (size_t i = 0; i < PEELS && v->producer && !v->is_constant; i++) {
        const op_node *n = v->producer;
        ir_value *in = scale ? peel_scalar(v, scale) : NULL;
        if (!in && node_is(n, "Transpose") && peel_transpose(n, view)) in = n->inputs[0];
        if (!in && node_is(n, "Gather") && peel_pick(n, view)) in = n->inputs[0];
        if (!in && is_keys && node_is(n, "Reshape") && n->inputs[0]->producer)
            in = peel_merged_transpose(m, v, view);
        if (!in) break;
        v = in;
    }
    return v;
}

static sdpa_view plain_view(size_t rank, bool turned) {
    const int last = (int)rank - 1, time = turned ? last : last - 1;
    return (sdpa_view){.axis = {0, rank == 4 ? 1 : -1, time, turned ? last - 1 : last}, .pick_axis = -1};
}

/* ---- scores ----------------------------------------------------------------------------------------- */

static bool is_operand(const ir_value *v, size_t rank) {
    return value_is_f32(v) && v->has_rank && v->rank == rank;
}

static bool match_product(match *m, op_node *n, bool turned_q, bool turned_k) {
    const size_t rank = m->st.rank;
    ir_value *q = n->inputs[0], *k = n->inputs[1];
    if (!is_operand(q, rank) || !is_operand(k, rank)) return false;
    m->st.q = plain_view(rank, turned_q);
    m->st.k = plain_view(rank, turned_k);
    m->inputs[0] = peel(m, q, &m->st.q, &m->st.scale, false);
    m->inputs[1] = peel(m, k, &m->st.k, &m->st.scale, true);
    return !m->inputs[1]->is_constant; /* constant keys are better packed once */
}

static bool match_fused_product(match *m, op_node *n) {
    if (node_int(n, "transBatchA", 0) || node_int(n, "transBatchB", 0) ||
        !match_product(m, n, node_int(n, "transA", 0) != 0, node_int(n, "transB", 0) == 0))
        return false;
    m->st.scale *= node_float(n, "alpha", 1.0f);
    return true;
}

static bool match_scores(match *m, const ir_value *v, int depth);

/* inner + mask: which of the two is which. */
static bool match_addition(match *m, const op_node *n, int depth) {
    for (size_t i = 0; i < 2; i++) {
        const match before = *m;
        ir_value *mask = n->inputs[1 - i];
        if (mask && value_is_f32(mask) && mask->has_rank && mask->rank <= m->st.rank &&
            match_scores(m, n->inputs[i], depth - 1) && m->st.n_adds < SDPA_ADDS) {
            m->adds[m->st.n_adds++] = mask;
            return true;
        }
        *m = before;
    }
    return false;
}

/* Where(condition, scalar, inner) or Where(condition, inner, scalar). */
static bool match_where(match *m, const op_node *n, int depth) {
    const bool fills = value_scalar(n->inputs[1], &m->st.fill);
    if (!fills && !value_scalar(n->inputs[2], &m->st.fill)) return false;
    const float fill = m->st.fill;
    ir_value *inner = n->inputs[fills ? 2 : 1];
    if (!n->inputs[0]->has_rank || n->inputs[0]->rank > m->st.rank ||
        !value_same_shape(inner, n->outputs[0]) || !match_scores(m, inner, depth - 1) || m->st.n_adds ||
        m->st.where != SDPA_NO_WHERE)
        return false;
    m->st.fill = fill;
    m->st.where = fills ? SDPA_FILL_WHERE_TRUE : SDPA_FILL_WHERE_FALSE;
    m->condition = n->inputs[0];
    return true;
}

static bool match_scores(match *m, const ir_value *v, int depth) {
    op_node *n;
    float scale = 1.0f;
    if (depth == 0 || !is_operand(v, m->st.rank)) return false;
    if ((n = pattern_maker(&m->p, v, "MatMul"))) return match_product(m, n, false, true);
    if ((n = pattern_maker_of(&m->p, v, "com.microsoft", "FusedMatMul"))) return match_fused_product(m, n);
    if ((n = pattern_maker(&m->p, v, "Add"))) return n->version >= 7 && match_addition(m, n, depth);
    if ((n = pattern_maker(&m->p, v, "Where"))) return match_where(m, n, depth);
    const ir_value *inner = !v->is_constant && v->producer ? peel_scalar(v, &scale) : NULL;
    if (!inner || !pattern_maker(&m->p, v, v->producer->op) || !match_scores(m, inner, depth - 1) ||
        m->st.n_adds || m->st.where != SDPA_NO_WHERE)
        return false;
    m->st.scale *= scale;
    return true;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static bool is_over_last_axis(const op_node *softmax, size_t rank) {
    const int64_t axis = node_int(softmax, "axis", softmax->version < 13 ? 1 : -1);
    return axis == -1 || axis == (int64_t)rank - 1;
}

/* p, or 0 where p is NaN; gives p. */
static const ir_value *without_nan(match *m, const ir_value *v) {
    float zero;
    const op_node *where = pattern_maker(&m->p, v, "Where");
    if (!where) return v;
    const op_node *test = pattern_maker(&m->p, where->inputs[0], "IsNaN");
    if (!test || test->inputs[0] != where->inputs[2] || !value_scalar(where->inputs[1], &zero) ||
        zero != 0.0f || where->inputs[1]->constant.rank > m->st.rank)
        return NULL;
    m->st.nan_to_0 = true;
    return where->inputs[2];
}

static bool match_all(match *m, op_node *n) {
    ir_value *v = n->inputs[1];
    m->st = (sdpa){.rank = n->outputs[0]->rank, .scale = 1.0f};
    m->p = (pattern){.w = m->w, .nodes = {n}, .n = 1};
    if (!is_operand(v, m->st.rank) || !is_operand(n->inputs[0], m->st.rank)) return false;
    const ir_value *p = without_nan(m, n->inputs[0]);
    const op_node *softmax = p ? pattern_maker(&m->p, p, "Softmax") : NULL;
    if (!softmax || !is_over_last_axis(softmax, m->st.rank) ||
        !match_scores(m, softmax->inputs[0], SCORE_STEPS))
        return false;
    m->st.v = plain_view(m->st.rank, false);
    m->inputs[2] = peel(m, v, &m->st.v, NULL, false);
    return !m->inputs[2]->is_constant && pattern_is_closed(&m->p, n);
}

/* [batch, head, time, width] to [batch, time, head, width] behind it. */
static op_node *time_first(const match *m, const op_node *n) {
    size_t count;
    op_node *next = rewrite_only_reader(m->w, n->outputs[0]);
    const int64_t *perm = node_is(next, "Transpose") ? node_ints(next, "perm", &count) : NULL;
    const bool fits = perm && m->st.rank == 4 && count == 4 && perm[0] == 0 && perm[1] == 2 && perm[2] == 1;
    return fits ? next : NULL;
}

static status lower(rewriter *w, op_node *n, error *err) {
    match m = {.w = w};
    if (!match_all(&m, n)) return CHURON_OK;
    op_node *back = time_first(&m, n), *last = back ? back : n;
    m.st.time_first = back != NULL;
    ir_value *inputs[MOST_INPUTS];
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) inputs[count++] = m.inputs[i];
    for (size_t i = 0; i < m.st.n_adds; i++) inputs[count++] = m.adds[i];
    if (m.condition) inputs[count++] = m.condition;
    for (size_t i = 0; i < m.st.n_guards; i++) inputs[count++] = m.guards[i];
    sdpa *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = m.st;
    TRY(rewrite_insert(w, last, &op_sdpa, n->name, inputs, count, last->outputs, 1, st, NULL, err));
    pattern_remove(w, &m.p);
    if (back) rewrite_remove(w, back);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "MatMul") && n->outputs[0]->has_rank &&
            (n->outputs[0]->rank == 3 || n->outputs[0]->rank == 4))
            TRY(lower(w, n, err));
    }
    return CHURON_OK;
}

status pass_attention(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err); /* transpositions that nobody reads */
}
