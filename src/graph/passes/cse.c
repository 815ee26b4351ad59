/* cse.c: nodes that compute the same from the same. */
#include "graph/passes/passes.h"

#include "base/mem.h"

#include <string.h>

typedef struct table {
    op_node **slots;
    size_t mask;
} table;

static uint64_t mixed(uint64_t h, uint64_t v) {
    return (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29);
}

static uint64_t hash_node(const op_node *n) {
    uint64_t h = (uint64_t)(uintptr_t)n->def;
    for (size_t i = 0; i < n->n_inputs; i++) h = mixed(h, n->inputs[i] ? n->inputs[i]->slot : UINT32_MAX);
    return mixed(mixed(h, n->n_attrs), n->n_outputs) ^ h >> 32;
}

static bool same_tensor(const tensor *a, const tensor *b) {
    return a->type == b->type && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0) &&
           a->type != ELEM_STRING && a->data && b->data && memcmp(a->data, b->data, tensor_bytes(a)) == 0;
}

/* Attributes of the kinds that operators of tensors have; others count as different. */
static bool same_attr(const onnx_attr *a, const onnx_attr *b) {
    if (a == b) return true;
    if (a->type != b->type || a->n != b->n) return false;
    switch (a->type) {
    case ONNX_ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case ONNX_ATTR_INT: return a->i == b->i;
    case ONNX_ATTR_STRING: return a->s.len == b->s.len && memcmp(a->s.data, b->s.data, a->s.len) == 0;
    case ONNX_ATTR_FLOATS: return a->n == 0 || memcmp(a->floats, b->floats, a->n * sizeof *a->floats) == 0;
    case ONNX_ATTR_INTS: return a->n == 0 || memcmp(a->ints, b->ints, a->n * sizeof *a->ints) == 0;
    case ONNX_ATTR_TENSOR: return same_tensor(&a->tensors[0].contents, &b->tensors[0].contents);
    default: return false;
    }
}

static bool same_nodes(const op_node *a, const op_node *b) {
    if (a->def != b->def || a->version != b->version || a->n_inputs != b->n_inputs ||
        a->n_outputs != b->n_outputs || a->n_attrs != b->n_attrs)
        return false;
    if (a->n_inputs && memcmp(a->inputs, b->inputs, a->n_inputs * sizeof *a->inputs) != 0) return false;
    for (size_t i = 0; i < a->n_outputs; i++) {
        if (!a->outputs[i] != !b->outputs[i]) return false;
    }
    for (size_t i = 0; i < a->n_attrs; i++) {
        const ir_attr *other = ir_find_attr(b, a->attrs[i].name);
        if (!other || !same_attr(a->attrs[i].attr, other->attr)) return false;
    }
    return true;
}

static bool is_candidate(const op_node *n) {
    if (rewrite_removed(n) || n->n_bodies || n->n_inputs == 0 ||
        (n->def->flags & (OP_RANDOM | OP_OWN_INFERENCE)))
        return false;
    for (size_t i = 0; i < n->n_outputs; i++) {
        const ir_value *v = n->outputs[i];
        if (v && (v->is_output || v->is_constant || v->type.kind != ONNX_TENSOR)) return false;
    }
    return true;
}

static ir_value *newest(const rewriter *w, ir_value *v) {
    while (v && v->slot < w->n_values && w->forward[v->slot]) v = w->forward[v->slot];
    return v;
}

/* The node in the table that n repeats, or NULL after n was put there. */
static op_node *find_or_add(table *t, op_node *n) {
    size_t at = hash_node(n) & t->mask;
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        if (same_nodes(t->slots[at], n)) return t->slots[at];
    }
    t->slots[at] = n;
    return NULL;
}

static status sweep(rewriter *w, error *err) {
    size_t cap = 16;
    while (cap < 2 * w->g->n_nodes) cap *= 2;
    table t = {.slots = mem_calloc(cap, sizeof(op_node *)), .mask = cap - 1};
    if (!t.slots) return ir_no_memory(err);
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        for (size_t k = 0; k < n->n_inputs; k++) n->inputs[k] = newest(w, n->inputs[k]);
        if (!is_candidate(n)) continue;
        const op_node *earlier = find_or_add(&t, n);
        if (!earlier) continue;
        for (size_t k = 0; k < n->n_outputs; k++) {
            if (n->outputs[k]) rewrite_replace(w, n->outputs[k], earlier->outputs[k]);
        }
        rewrite_remove(w, n);
    }
    mem_free(t.slots);
    return CHURON_OK;
}

status pass_common_subexpressions(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
