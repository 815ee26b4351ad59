/* order.c: nodes in an order in which every value is made before it is read; what lies in a circle is named.
 *
 * A depth-first walk over producers in the order of the file: files that are in order stay as they are. The
 * walk keeps its own stack: a chain of 100,000 nodes is no reason to run out of the thread's. */
#include "graph/ir.h"

#include "base/mem.h"

enum { MARK_NEW, MARK_OPEN, MARK_DONE };

typedef struct visit {
    op_node *node;
    size_t next; /* of the values that it reads */
} visit;

typedef struct walk {
    ir_graph *graph;
    visit *stack; /* [n_nodes] */
    size_t depth;
    op_node **order;
    size_t n;
} walk;

/* The k-th value that a node reads, captures of its bodies included; NULL beyond the end or absent. */
static ir_value *read_value(const op_node *n, size_t k, bool *end) {
    *end = false;
    if (k < n->n_inputs) return n->inputs[k];
    k -= n->n_inputs;
    for (size_t b = 0; b < n->n_bodies; b++) {
        if (k < n->bodies[b]->n_captures) return n->bodies[b]->captures[k].outer;
        k -= n->bodies[b]->n_captures;
    }
    *end = true;
    return NULL;
}

static void push(walk *w, op_node *n) {
    n->mark = MARK_OPEN;
    w->stack[w->depth++] = (visit){.node = n};
}

static void pop(walk *w) {
    op_node *n = w->stack[--w->depth].node;
    n->mark = MARK_DONE;
    n->index = (uint32_t)w->n;
    w->order[w->n++] = n;
}

/* False: a circle through the node on top of the stack. */
static bool walk_from(walk *w, op_node *start) {
    push(w, start);
    while (w->depth > 0) {
        visit *top = &w->stack[w->depth - 1];
        bool end;
        ir_value *v = read_value(top->node, top->next, &end);
        if (end) {
            pop(w);
            continue;
        }
        top->next++;
        op_node *producer = v ? v->producer : NULL;
        if (!producer || producer->mark == MARK_DONE) continue;
        if (producer->mark == MARK_OPEN) return false;
        push(w, producer);
    }
    return true;
}

static status order_graph(ir_graph *g, error *err) {
    walk w = {.graph = g};
    w.order = arena_array(&g->program->memory, g->n_nodes, sizeof *w.order);
    w.stack = mem_calloc(g->n_nodes + 1, sizeof *w.stack);
    if (!w.order || !w.stack) {
        mem_free(w.stack);
        return ir_no_memory(err);
    }
    status st = CHURON_OK;
    for (size_t i = 0; i < g->n_nodes; i++) g->nodes[i]->mark = MARK_NEW;
    for (size_t i = 0; i < g->n_nodes && st == CHURON_OK; i++) {
        if (g->nodes[i]->mark != MARK_NEW || walk_from(&w, g->nodes[i])) continue;
        const op_node *n = w.stack[w.depth - 1].node;
        st = error_set(err, CHURON_CORRUPT, "graph '%s': expected no cycle, got one through node '%s' (%s)",
                       g->name, n->name, n->op);
    }
    mem_free(w.stack);
    if (st == CHURON_OK) {
        g->nodes = w.order;
        g->cap_nodes = g->n_nodes;
    }
    return st;
}

status ir_order(ir_program *p, error *err) {
    for (size_t i = 0; i < p->n_graphs; i++) TRY(order_graph(p->graphs[i], err));
    return CHURON_OK;
}
