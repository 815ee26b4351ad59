/* pattern.c: several nodes as one; see rewrite.h. */
#include "graph/passes/rewrite.h"

#include <string.h>

op_node *pattern_maker(pattern *p, const ir_value *v, const char *op) {
    return pattern_maker_of(p, v, "", op);
}

op_node *pattern_maker_of(pattern *p, const ir_value *v, const char *domain, const char *op) {
    op_node *n = v && !v->is_constant ? v->producer : NULL;
    if (!node_is_of(n, domain, op)) return NULL;
    for (size_t i = 0; i < p->n; i++) {
        if (p->nodes[i] == n) return n;
    }
    if (p->n == PATTERN_MOST) return NULL;
    p->nodes[p->n++] = n;
    return n;
}

static bool has(const pattern *p, const op_node *n) {
    for (size_t i = 0; i < p->n; i++) {
        if (p->nodes[i] == n) return true;
    }
    return false;
}

static bool is_read_inside(const pattern *p, const ir_value *v) {
    const rewriter *w = p->w;
    if (v->is_output || v->slot >= w->n_values || w->taken[v->slot]) return false;
    for (uint32_t i = w->first[v->slot]; i < w->first[v->slot + 1]; i++) {
        if (!has(p, w->readers[i]) && !rewrite_removed(w->readers[i])) return false;
    }
    return true;
}

bool pattern_is_closed(const pattern *p, const op_node *last) {
    for (size_t i = 0; i < p->n; i++) {
        const op_node *n = p->nodes[i];
        if (rewrite_removed(n) || n->n_bodies) return false;
        for (size_t k = 0; n != last && k < n->n_outputs; k++) {
            if (n->outputs[k] && !is_read_inside(p, n->outputs[k])) return false;
        }
    }
    return has(p, last);
}

void pattern_remove(rewriter *w, const pattern *p) {
    for (size_t i = 0; i < p->n; i++) rewrite_remove(w, p->nodes[i]);
}

ir_value *node_with_scalar(const op_node *n, const char *op, float *scalar) {
    if (!node_is(n, op) || n->n_inputs != 2 || n->version < 7 || !n->inputs[0] || !n->inputs[1]) return NULL;
    if (value_scalar(n->inputs[1], scalar)) return n->inputs[0];
    const bool commutes = strcmp(op, "Add") == 0 || strcmp(op, "Mul") == 0;
    return commutes && value_scalar(n->inputs[0], scalar) ? n->inputs[1] : NULL;
}

ir_value *node_other_input(const op_node *n, const ir_value *v) {
    if (!n || n->n_inputs != 2) return NULL;
    return n->inputs[0] == v ? n->inputs[1] : n->inputs[1] == v ? n->inputs[0] : NULL;
}

const int64_t *node_said_axes(const op_node *n, size_t *count) {
    const ir_value *v = n->n_inputs > 1 ? n->inputs[1] : NULL;
    if (!v) return node_ints(n, "axes", count);
    *count = v->is_constant && v->constant.type == ELEM_I64 ? v->constant.count : 0;
    return *count ? v->constant.data : NULL;
}

bool node_reduced_axes(const op_node *n, size_t *first, size_t *count) {
    const ir_value *in = n->inputs[0];
    const int64_t *axes = node_said_axes(n, count);
    if (!axes || !in || !in->has_rank || in->rank == 0 || *count > in->rank ||
        node_int(n, "keepdims", 1) != 1)
        return false;
    const int64_t rank = in->rank;
    uint64_t seen = 0;
    for (size_t i = 0; i < *count; i++) {
        const int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a < 0 || a >= rank || (seen >> a & 1)) return false;
        seen |= (uint64_t)1 << a;
    }
    for (*first = 0; !(seen >> *first & 1); ++*first) {}
    for (size_t i = 0; i < *count; i++) {
        if (!(seen >> (*first + i) & 1)) return false;
    }
    return *count == 1 || *first + *count == (size_t)rank;
}
