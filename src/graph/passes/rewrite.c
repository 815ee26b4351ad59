/* rewrite.c: see rewrite.h. */
#include "graph/passes/rewrite.h"

#include "base/mem.h"

#include <string.h>

/* Of op_node.mark, free after the ordering. */
enum { MARK_REMOVED = 0x80, MARK_NEW = 0x40, MARK_BEHIND = 0x20 };

/* ---- readers ---------------------------------------------------------------------------------------- */

static void visit_reads(const rewriter *w, op_node *n, bool fill) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (!n->inputs[i]) continue;
        const uint32_t slot = n->inputs[i]->slot;
        if (fill) {
            w->readers[w->first[slot]++] = n;
        } else {
            w->first[slot + 1]++;
        }
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++) {
            const uint32_t slot = n->bodies[b]->captures[i].outer->slot;
            if (fill) {
                w->readers[w->first[slot]++] = n;
            } else {
                w->first[slot + 1]++;
            }
        }
    }
}

/* New nodes of a sweep wait in lists, two for each old node, the nearest one first; nodes[] has room for
 * them. One walk from the end moves all of them to their places. */
static op_node **list_of(const rewriter *w, uint32_t index, bool behind) {
    return &w->fresh[2 * (size_t)index + behind];
}

static void take_new(rewriter *w) {
    ir_graph *g = w->g;
    size_t at = g->n_nodes + w->n_fresh;
    if (w->n_fresh == 0) return;
    for (size_t i = g->n_nodes; i-- > 0;) {
        size_t n = 0;
        for (op_node *b = *list_of(w, (uint32_t)i, true); b; b = b->next) n++;
        at -= n;
        for (op_node *b = *list_of(w, (uint32_t)i, true); b; b = b->next) g->nodes[at++] = b;
        at -= n;
        g->nodes[--at] = g->nodes[i];
        for (op_node *f = *list_of(w, (uint32_t)i, false); f; f = f->next) g->nodes[--at] = f;
    }
    g->n_nodes += w->n_fresh;
    w->n_fresh = 0;
}

static void release(rewriter *w) {
    mem_free(w->first);
    mem_free(w->readers);
    mem_free(w->forward);
    mem_free(w->fresh);
    mem_free(w->taken);
    w->taken = NULL;
    w->first = NULL;
    w->readers = NULL;
    w->forward = NULL;
    w->fresh = NULL;
}

void rewrite_abandon(rewriter *w) {
    if (w->fresh) take_new(w); /* who releases the graph finds their states */
    release(w);
}

status rewrite_begin(rewriter *w, ir_graph *g, error *err) {
    w->g = g;
    w->n_values = g->n_values;
    w->changes = 0;
    w->first = mem_calloc(g->n_values + 2, sizeof *w->first);
    w->forward = mem_calloc(g->n_values + 1, sizeof *w->forward);
    w->fresh = mem_calloc(2 * g->n_nodes + 2, sizeof *w->fresh);
    w->taken = mem_calloc(g->n_values + 1, sizeof *w->taken);
    w->n_fresh = 0;
    w->readers = NULL;
    if (!w->first || !w->forward || !w->fresh || !w->taken) {
        rewrite_abandon(w);
        return ir_no_memory(err);
    }
    for (size_t i = 0; i < g->n_nodes; i++) visit_reads(w, g->nodes[i], false);
    for (size_t s = 0; s < g->n_values; s++) w->first[s + 1] += w->first[s];
    w->readers = mem_alloc((w->first[g->n_values] + 1) * sizeof(op_node *));
    if (!w->readers) {
        rewrite_abandon(w);
        return ir_no_memory(err);
    }
    for (size_t i = 0; i < g->n_nodes; i++) visit_reads(w, g->nodes[i], true);
    /* Filling moved every beginning to the next one's place. */
    memmove(w->first + 1, w->first, g->n_values * sizeof *w->first);
    w->first[0] = 0;
    return CHURON_OK;
}

size_t rewrite_n_uses(const rewriter *w, const ir_value *v) {
    return v->slot < w->n_values ? w->first[v->slot + 1] - w->first[v->slot] + v->is_output : SIZE_MAX;
}

op_node *rewrite_only_reader(const rewriter *w, const ir_value *v) {
    if (v->is_output || rewrite_n_uses(w, v) != 1) return NULL;
    op_node *n = w->readers[w->first[v->slot]];
    return n->n_bodies || rewrite_removed(n) ? NULL : n;
}

/* ---- changes ---------------------------------------------------------------------------------------- */

void rewrite_replace(rewriter *w, ir_value *from, ir_value *to) {
    w->forward[from->slot] = to;
    w->changes++;
}

void rewrite_remove(rewriter *w, op_node *n) {
    n->mark |= MARK_REMOVED;
    w->changes++;
}

bool rewrite_removed(const op_node *n) {
    return (n->mark & MARK_REMOVED) != 0;
}

static ir_value *followed(const rewriter *w, ir_value *v) {
    while (v && v->slot < w->n_values && w->forward[v->slot]) v = w->forward[v->slot];
    return v;
}

void rewrite_end(rewriter *w) {
    ir_graph *g = w->g;
    size_t kept = 0;
    take_new(w);
    for (size_t i = 0; i < g->n_nodes; i++) {
        op_node *n = g->nodes[i];
        n->mark &= (uint8_t) ~(MARK_NEW | MARK_BEHIND);
        n->next = NULL;
        if (rewrite_removed(n)) {
            if (n->state && n->def->release) n->def->release(n->state);
            n->state = NULL;
            continue;
        }
        for (size_t k = 0; k < n->n_inputs; k++) n->inputs[k] = followed(w, n->inputs[k]);
        for (size_t b = 0; b < n->n_bodies; b++) {
            for (size_t k = 0; k < n->bodies[b]->n_captures; k++) {
                ir_capture *c = &n->bodies[b]->captures[k];
                c->outer = followed(w, c->outer);
            }
        }
        n->index = (uint32_t)kept;
        g->nodes[kept++] = n;
    }
    g->n_nodes = kept;
    release(w);
}

status rewrite_each(rewriter *w, status (*sweep)(rewriter *w, error *err), error *err) {
    for (size_t i = 0; i < w->program->n_graphs; i++) {
        TRY(rewrite_begin(w, w->program->graphs[i], err));
        status st = sweep(w, err);
        if (st != CHURON_OK) {
            rewrite_abandon(w);
            return st;
        }
        rewrite_end(w);
    }
    return CHURON_OK;
}

status rewrite_constant(rewriter *w, const char *name, tensor t, ir_value **out, error *err) {
    tensor kept;
    TRY(ir_keep_constant(w->program, t, &kept, err));
    *out = ir_value_new(w->g, name);
    return *out ? ir_value_set_constant(*out, kept, err) : ir_no_memory(err);
}

status rewrite_value(rewriter *w, const char *name, elem type, size_t rank, const dim *dims, ir_value **out,
                     error *err) {
    const char *own =
        arena_printf(&w->program->memory, "%s~", name); /* a value of the file may be called so */
    *out = own ? ir_value_new(w->g, own) : NULL;
    if (!*out) return ir_no_memory(err);
    (*out)->type = (onnx_type){.kind = ONNX_TENSOR, .type = type};
    return ir_value_set_shape(*out, rank, dims, err);
}

static status set_list(arena *memory, ir_value ***list, size_t *n, ir_value *const *values, size_t count,
                       error *err) {
    *list = arena_array(memory, count, sizeof **list);
    if (!*list) return ir_no_memory(err);
    if (count) memcpy(*list, values, count * sizeof **list);
    *n = count;
    return CHURON_OK;
}

status rewrite_inputs(op_node *n, ir_value *const *inputs, size_t n_inputs, error *err) {
    return set_list(&n->graph->program->memory, &n->inputs, &n->n_inputs, inputs, n_inputs, err);
}

static void put_in_list(rewriter *w, op_node *n, op_node *at, bool behind) {
    const bool at_new = (at->mark & MARK_NEW) != 0,
               list_behind = at_new ? (at->mark & MARK_BEHIND) != 0 : behind;
    op_node **p = list_of(w, at->index, list_behind);
    if (at_new) { /* lists lead away from the old node */
        while (*p != at) p = &(*p)->next;
        if (behind == list_behind) p = &at->next;
    }
    n->next = *p;
    *p = n;
    n->index = at->index;
    n->mark = (uint8_t)(MARK_NEW | (list_behind ? MARK_BEHIND : 0));
    w->n_fresh++;
}

static status insert(rewriter *w, op_node *at, bool behind, const op_def *def, const char *name,
                     ir_value *const *inputs, size_t n_inputs, ir_value *const *outputs, size_t n_outputs,
                     void *state, op_node **out, error *err) {
    ir_graph *g = w->g;
    arena *memory = &g->program->memory;
    op_node *n = arena_array(memory, 1, sizeof *n);
    bool room =
        n && arena_grow(memory, (void **)&g->nodes, g->n_nodes + w->n_fresh, &g->cap_nodes, sizeof *g->nodes);
    status st = room ? CHURON_OK : ir_no_memory(err);
    if (st == CHURON_OK) {
        *n = (op_node){.def = def,
                       .name = name,
                       .op = def->name,
                       .domain = def->domain,
                       .version = def->since,
                       .graph = g,
                       .state = state,
                       .prepared = true};
        st = set_list(memory, &n->inputs, &n->n_inputs, inputs, n_inputs, err);
    }
    if (st == CHURON_OK) st = set_list(memory, &n->outputs, &n->n_outputs, outputs, n_outputs, err);
    if (st != CHURON_OK) {
        if (state && def->release) def->release(state);
        return st;
    }
    put_in_list(w, n, at, behind);
    for (size_t i = 0; i < n_inputs; i++) {
        if (inputs[i] && inputs[i]->slot < w->n_values) w->taken[inputs[i]->slot] = true;
    }
    for (size_t i = 0; i < n_outputs; i++) {
        if (outputs[i]) outputs[i]->producer = n;
    }
    w->changes++;
    if (out) *out = n;
    return CHURON_OK;
}

status rewrite_insert(rewriter *w, op_node *at, const op_def *def, const char *name, ir_value *const *inputs,
                      size_t n_inputs, ir_value *const *outputs, size_t n_outputs, void *state, op_node **out,
                      error *err) {
    return insert(w, at, false, def, name, inputs, n_inputs, outputs, n_outputs, state, out, err);
}

status rewrite_insert_behind(rewriter *w, op_node *at, const op_def *def, const char *name,
                             ir_value *const *inputs, size_t n_inputs, ir_value *const *outputs,
                             size_t n_outputs, void *state, op_node **out, error *err) {
    return insert(w, at, true, def, name, inputs, n_inputs, outputs, n_outputs, state, out, err);
}

/* Attributes as if the model had them. */
static ir_attr *make_attrs(arena *memory, const node_attr *attrs, size_t n) {
    ir_attr *list = arena_array(memory, n, sizeof *list);
    onnx_attr *values = arena_array(memory, n, sizeof *values);
    for (size_t i = 0; list && values && i < n; i++) {
        values[i] = (onnx_attr){.name = attrs[i].name, .n = 1};
        values[i].type = attrs[i].ints ? ONNX_ATTR_INTS : attrs[i].is_float ? ONNX_ATTR_FLOAT : ONNX_ATTR_INT;
        if (attrs[i].ints) {
            int64_t *copy = arena_array(memory, attrs[i].n_ints, sizeof *copy);
            if (!copy) return NULL;
            memcpy(copy, attrs[i].ints, attrs[i].n_ints * sizeof *copy);
            values[i].n = attrs[i].n_ints;
            values[i].ints = copy;
        } else if (attrs[i].is_float) {
            values[i].f = attrs[i].f;
        } else {
            values[i].i = attrs[i].i;
        }
        list[i] = (ir_attr){.name = attrs[i].name, .attr = &values[i]};
    }
    return values ? list : NULL;
}

static status put_operator(rewriter *w, op_node *at, const char *domain, const char *op, int64_t version,
                           ir_attr *attrs, size_t n_attrs, ir_value *const *inputs, size_t n_inputs,
                           ir_value *const *outputs, size_t n_outputs, error *err) {
    op_node *n;
    const op_def *def = op_find(domain, op, version);
    if (!def)
        return error_set(err, CHURON_INTERNAL, "operator %s: no row for version %lld", op,
                         (long long)version);
    if (!attrs) return ir_no_memory(err);
    TRY(rewrite_insert(w, at, def, at->name, inputs, n_inputs, outputs, n_outputs, NULL, &n, err));
    n->version = version;
    n->attrs = attrs;
    n->n_attrs = n_attrs;
    return def->prepare ? def->prepare(n, err) : CHURON_OK;
}

status rewrite_operator(rewriter *w, op_node *at, const char *domain, const char *op, int64_t version,
                        const node_attr *attrs, size_t n_attrs, ir_value *const *inputs, size_t n_inputs,
                        ir_value *const *outputs, size_t n_outputs, error *err) {
    return put_operator(w, at, domain, op, version, make_attrs(&w->program->memory, attrs, n_attrs), n_attrs,
                        inputs, n_inputs, outputs, n_outputs, err);
}

status rewrite_operator_like(rewriter *w, op_node *at, const op_node *like, const char *domain,
                             const char *op, int64_t version, ir_value *const *inputs, size_t n_inputs,
                             ir_value *const *outputs, size_t n_outputs, error *err) {
    ir_attr *attrs = arena_array(&w->program->memory, like->n_attrs, sizeof *attrs);
    if (attrs && like->n_attrs) memcpy(attrs, like->attrs, like->n_attrs * sizeof *attrs);
    return put_operator(w, at, domain, op, version, attrs, like->n_attrs, inputs, n_inputs, outputs,
                        n_outputs, err);
}

/* ---- looking ---------------------------------------------------------------------------------------- */

bool node_is_of(const op_node *n, const char *domain, const char *op) {
    return n && !rewrite_removed(n) && strcmp(n->op, op) == 0 && strcmp(n->domain, domain) == 0;
}

bool node_is(const op_node *n, const char *op) {
    return node_is_of(n, "", op);
}

int64_t node_int(const op_node *n, const char *name, int64_t absent) {
    const ir_attr *a = ir_find_attr(n, name);
    return a && a->attr->type == ONNX_ATTR_INT ? a->attr->i : absent;
}

float node_float(const op_node *n, const char *name, float absent) {
    const ir_attr *a = ir_find_attr(n, name);
    return a && a->attr->type == ONNX_ATTR_FLOAT ? a->attr->f : absent;
}

const int64_t *node_ints(const op_node *n, const char *name, size_t *count) {
    const ir_attr *a = ir_find_attr(n, name);
    *count = a && a->attr->type == ONNX_ATTR_INTS ? a->attr->n : 0;
    return *count ? a->attr->ints : NULL;
}

const tensor *node_f32_constant(const op_node *n, size_t i) {
    const ir_value *v = i < n->n_inputs ? n->inputs[i] : NULL;
    return v && v->is_constant && v->constant.type == ELEM_F32 ? &v->constant : NULL;
}

bool value_scalar(const ir_value *v, float *out) {
    if (!v || !v->is_constant || v->constant.type != ELEM_F32 || v->constant.count != 1) return false;
    memcpy(out, v->constant.data, sizeof *out);
    return true;
}

bool value_is_f32(const ir_value *v) {
    return v && v->type.kind == ONNX_TENSOR && v->type.type == ELEM_F32;
}

bool value_known_shape(const ir_value *v) {
    if (!v || !v->has_rank) return false;
    for (size_t i = 0; i < v->rank; i++) {
        if (!dim_known(v->dims[i])) return false;
    }
    return true;
}

bool value_same_shape(const ir_value *a, const ir_value *b) {
    return a->has_rank && b->has_rank && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0);
}
