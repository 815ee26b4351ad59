/* dead.c: what no output needs. Backwards, so that one walk is enough. */
#include "graph/passes/passes.h"

#include "base/mem.h"

static void read_all(const op_node *n, bool *live) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i]) live[n->inputs[i]->slot] = true;
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++)
            live[n->bodies[b]->captures[i].outer->slot] = true;
    }
}

static bool is_needed(const op_node *n, const bool *live) {
    for (size_t i = 0; i < n->n_outputs; i++) {
        const ir_value *v = n->outputs[i];
        if (v && !v->is_constant && (v->is_output || live[v->slot])) return true;
    }
    return false;
}

static status sweep(rewriter *w, error *err) {
    ir_graph *g = w->g;
    bool *live = mem_calloc(g->n_values + 1, sizeof *live);
    if (!live) return ir_no_memory(err);
    for (size_t i = g->n_nodes; i-- > 0;) {
        op_node *n = g->nodes[i];
        if (is_needed(n, live)) {
            read_all(n, live);
        } else {
            rewrite_remove(w, n);
        }
    }
    mem_free(live);
    return CHURON_OK;
}

status pass_dead_code(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
