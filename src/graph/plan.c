/* plan.c: from the description of a graph to steps over slots, and the memory of a run. */
#include "graph/bucket.h"

#include "base/mem.h"

#include <string.h>

/* ---- steps ------------------------------------------------------------------------------------------ */

static int32_t slot_of(const ir_value *v) {
    return v ? (int32_t)v->slot : IR_NO_SLOT;
}

typedef struct uses {
    int64_t *last; /* by slot: index of the node that reads it last; -1: never read; INT64_MAX: kept */
} uses;

static void read_at(uses *u, const ir_value *v, size_t node) {
    if (v && u->last[v->slot] < (int64_t)node) u->last[v->slot] = (int64_t)node;
}

static void find_last_uses(const ir_graph *g, uses *u) {
    for (size_t i = 0; i < g->n_values; i++) {
        const ir_value *v = g->values[i];
        u->last[i] = v->is_constant || v->is_output ? INT64_MAX : -1;
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const op_node *n = g->nodes[i];
        for (size_t k = 0; k < n->n_inputs; k++) read_at(u, n->inputs[k], i);
        for (size_t b = 0; b < n->n_bodies; b++) {
            for (size_t k = 0; k < n->bodies[b]->n_captures; k++)
                read_at(u, n->bodies[b]->captures[k].outer, i);
        }
    }
}

/* Appends v to the step's frees if this is the last that is heard of it, once. */
static void maybe_free(exec_step *s, uses *u, const ir_value *v, size_t node) {
    if (!v || u->last[v->slot] != (int64_t)node) return;
    u->last[v->slot] = INT64_MAX;
    s->frees[s->n_frees++] = (int32_t)v->slot;
}

static status plan_step(exec_step *s, const op_node *n, uses *u, size_t index, error *err) {
    arena *memory = &n->graph->program->memory;
    size_t n_reads = n->n_inputs;
    for (size_t b = 0; b < n->n_bodies; b++) n_reads += n->bodies[b]->n_captures;
    *s = (exec_step){.node = n, .n_in = (uint32_t)n->n_inputs, .n_out = (uint32_t)n->n_outputs};
    s->in = arena_array(memory, n->n_inputs, sizeof *s->in);
    s->out = arena_array(memory, n->n_outputs, sizeof *s->out);
    s->frees = arena_array(memory, n_reads + n->n_outputs, sizeof *s->frees);
    if (!s->in || !s->out || !s->frees) return ir_no_memory(err);
    for (size_t k = 0; k < n->n_inputs; k++) {
        s->in[k] = slot_of(n->inputs[k]);
        if (n->inputs[k]) n->inputs[k]->readers++;
    }
    for (size_t k = 0; k < n->n_outputs; k++) s->out[k] = slot_of(n->outputs[k]);
    for (size_t k = 0; k < n->n_inputs; k++) {
        const ir_value *v = n->inputs[k];
        if (k < 2 && v && u->last[v->slot] == (int64_t)index) s->reuse |= k == 0 ? REUSE_0 : REUSE_1;
    }
    for (size_t k = 0; k < n->n_inputs; k++) maybe_free(s, u, n->inputs[k], index);
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t k = 0; k < n->bodies[b]->n_captures; k++)
            maybe_free(s, u, n->bodies[b]->captures[k].outer, index);
    }
    for (size_t k = 0; k < n->n_outputs; k++) { /* what nobody reads */
        ir_value *v = n->outputs[k];
        if (v && u->last[v->slot] == -1) {
            u->last[v->slot] = (int64_t)index;
            maybe_free(s, u, v, index);
        }
    }
    return CHURON_OK;
}

bool exec_step_is_constant(const exec_step *s) {
    for (size_t i = 0; i < s->n_out; i++) {
        const ir_value *v = s->node->outputs[i];
        if (v && !v->is_constant) return false;
    }
    return s->n_out > 0;
}

/* Nodes whose outputs are all constants were computed: they do not run. */
static status plan_graph(ir_graph *g, error *err) {
    g->steps = arena_array(&g->program->memory, g->n_nodes, sizeof *g->steps);
    uses u = {.last = mem_alloc((g->n_values + 1) * sizeof *u.last)};
    status st = g->steps && u.last ? CHURON_OK : ir_no_memory(err);
    if (st == CHURON_OK) find_last_uses(g, &u);
    for (size_t i = 0; i < g->n_nodes && st == CHURON_OK; i++)
        st = plan_step(&g->steps[i], g->nodes[i], &u, i, err);
    mem_free(u.last);
    return st;
}

status exec_plan(ir_program *p, error *err) {
    for (size_t i = 0; i < p->n_graphs; i++) TRY(plan_graph(p->graphs[i], err));
    return CHURON_OK;
}

/* ---- frames ----------------------------------------------------------------------------------------- */

static size_t most_outputs(const ir_graph *g) {
    size_t most = 1;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->n_outputs > most) most = g->nodes[i]->n_outputs;
    }
    return most;
}

static bool make_frame(exec_frame *f, const ir_graph *g) {
    f->slots = mem_calloc(g->n_values + 1, sizeof *f->slots);
    f->charged = mem_calloc(g->n_values + 1, sizeof *f->charged);
    f->shapes = mem_calloc(most_outputs(g), sizeof *f->shapes);
    if (!f->slots || !f->charged || !f->shapes) return false;
    for (size_t i = 0; i < g->n_values; i++) {
        const ir_value *v = g->values[i];
        if (v->is_constant) f->slots[i] = (value){.kind = VALUE_TENSOR, .t = v->constant};
    }
    return true;
}

status exec_init(exec *x, ir_program *p, size_t threads, uint64_t limit, error *err) {
    *x = (exec){.limit = limit};
    status st = kernels_select(&x->kernels, err);
    if (st == CHURON_OK) st = pool_create(&x->pool, threads, err);
    size_t n = p ? p->n_graphs : 0;
    if (st == CHURON_OK) {
        pool_set_subnormals(x->pool, FP_FLUSH_SUBNORMALS);
        x->frames = mem_calloc(n + 1, sizeof *x->frames);
        if (!x->frames) st = ir_no_memory(err);
    }
    for (size_t i = 0; i < n && st == CHURON_OK; i++) {
        x->n_frames = i + 1;
        if (!make_frame(&x->frames[i], p->graphs[i])) st = ir_no_memory(err);
    }
    if (st != CHURON_OK) exec_free(x, p);
    return st;
}

void exec_free(exec *x, const ir_program *p) {
    mem_free(x->wanted);
    mem_free(x->idle);
    if (p && x->n_frames) bucket_enter(x, p->main, NULL);
    bucket_free_all(x);
    for (size_t i = 0; i < x->n_frames; i++) {
        exec_frame *f = &x->frames[i];
        for (size_t k = 0; f->slots && k < p->graphs[i]->n_values; k++) {
            if (!p->graphs[i]->values[k]->is_constant) value_free(&f->slots[k]);
        }
        mem_free(f->slots);
        mem_free(f->charged);
        mem_free(f->shapes);
    }
    mem_free(x->frames);
    exec_scratch_release(x, (exec_mark){0});
    mem_free(x->scratch);
    pool_free(x->pool);
    *x = (exec){0};
}
