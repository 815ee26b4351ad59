/* bucket.c: see bucket.h. */
#include "graph/bucket.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- buckets ---------------------------------------------------------------------------------------- */

static void free_bucket(bucket *b, size_t n_values) {
    for (size_t i = 0; b->notes && i < n_values; i++) value_free(&b->notes[i].kept);
    for (size_t i = 0; i < b->n_kept; i++) tensor_free(&b->kept[i]);
    mem_free(b->notes);
    mem_free(b->key);
    arena_free(&b->memory);
    if (b->pages) mem_pages_free(b->pages, b->n_pages);
    *b = (bucket){0};
}

void bucket_free_all(exec *x) {
    for (size_t i = 0; i < BUCKET_MOST && x->buckets; i++) free_bucket(&x->buckets[i], x->n_main_values);
    mem_free(x->buckets);
    mem_free(x->key);
    x->buckets = NULL;
    x->key = NULL;
}

/* Types and shapes of the inputs as numbers into x->key. 0: an input that is no tensor. */
static size_t make_key(exec *x, const ir_graph *g, const value *inputs) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const value *v = &inputs[i];
        if (v->kind != VALUE_TENSOR) return 0;
        x->key[n++] = (int64_t)v->t.type << 8 | v->t.rank;
        for (size_t k = 0; k < v->t.rank; k++) x->key[n++] = v->t.dims[k];
    }
    return n;
}

bucket *bucket_find(exec *x, const ir_graph *g, const value *inputs, bool *watch) {
    *watch = false;
    if (g->n_nodes > BUCKET_MOST_NODES || g->n_inputs == 0) return NULL;
    if (!x->buckets) {
        x->buckets = mem_calloc(BUCKET_MOST, sizeof *x->buckets);
        x->key = mem_alloc(g->n_inputs * (TENSOR_MAX_RANK + 1) * sizeof *x->key);
        x->n_main_values = g->n_values;
        if (!x->buckets || !x->key) {
            bucket_free_all(x);
            return NULL;
        }
    }
    size_t n = make_key(x, g, inputs);
    if (n == 0) return NULL;
    bucket *oldest = &x->buckets[0];
    for (size_t i = 0; i < BUCKET_MOST; i++) {
        bucket *b = &x->buckets[i];
        if (b->key && b->n_key == n && memcmp(b->key, x->key, n * sizeof *b->key) == 0) {
            b->used = ++x->clock;
            *watch = !b->planned && !b->hopeless;
            return b;
        }
        if (b->used < oldest->used) oldest = b;
    }
    if (oldest == x->entered) bucket_enter(x, g, NULL);
    free_bucket(oldest, x->n_main_values);
    oldest->key = mem_alloc(n * sizeof *oldest->key);
    if (!oldest->key) return NULL;
    memcpy(oldest->key, x->key, n * sizeof *oldest->key);
    oldest->n_key = n;
    oldest->used = ++x->clock;
    return oldest;
}

/* ---- watching --------------------------------------------------------------------------------------- */

/* Which slot's memory this is, among what the step read; -1: none of it. */
static int32_t shares_with(const op_run *r, const tensor *t) {
    if (!t->data || t->count == 0) return -1;
    const char *p = t->data;
    for (size_t i = 0; i < r->step->n_in; i++) {
        int32_t slot = r->step->in[i];
        const value *v = slot == IR_NO_SLOT ? NULL : &r->frame->slots[slot];
        if (!v || v->kind != VALUE_TENSOR || v->t.count == 0) continue;
        const char *from = v->t.data;
        if (p >= from && p < from + tensor_bytes(&v->t)) return slot;
    }
    return -1;
}

static bool slot_shape_fixed(const bucket *b, const ir_graph *g, int32_t slot) {
    const ir_value *v = g->values[slot];
    return v->is_constant || (!v->producer && slot >= 0) || b->notes[slot].shape_fixed;
}

static bool slot_value_fixed(const bucket *b, const ir_graph *g, int32_t slot) {
    return g->values[slot]->is_constant || b->notes[slot].value_fixed;
}

typedef struct step_facts {
    bool shapes, values; /* of all inputs, fixed */
    bool rule;           /* what the shape rule read was fixed */
} step_facts;

static step_facts look_at_inputs(const bucket *b, const ir_graph *g, const op_run *r) {
    step_facts f = {.shapes = true, .values = r->step->n_in > 0, .rule = true};
    for (size_t i = 0; i < r->step->n_in; i++) {
        int32_t slot = r->step->in[i];
        if (slot == IR_NO_SLOT) continue;
        f.shapes = f.shapes && slot_shape_fixed(b, g, slot);
        bool known = slot_value_fixed(b, g, slot);
        f.values = f.values && known;
        if (!known && (i >= 64 || (r->shapes.reads >> i & 1))) f.rule = false;
    }
    return f;
}

static bool tells_shape(const op_node *n) {
    return strcmp(n->domain, "") == 0 && (strcmp(n->op, "Shape") == 0 || strcmp(n->op, "Size") == 0);
}

static void keep_value(bucket_note *note, const tensor *t) {
    tensor copy;
    if (tensor_copy(&copy, t, NULL) != CHURON_OK) {
        note->value_fixed = false;
        return;
    }
    note->kept = value_of_tensor(copy);
}

void bucket_note_step(exec *x, const ir_graph *g, const op_run *r, size_t index) {
    bucket *b = x->watched;
    const op_node *n = r->node;
    step_facts f = look_at_inputs(b, g, r);
    bool plain = n->n_bodies == 0 && !(n->def->flags & (OP_RANDOM | OP_OWN_INFERENCE));
    for (size_t i = 0; i < r->step->n_out; i++) {
        int32_t slot = r->step->out[i];
        if (slot == IR_NO_SLOT) continue;
        const value *v = &r->frame->slots[slot];
        bucket_note *note = &b->notes[slot];
        value_free(&note->kept);
        *note = (bucket_note){
            .written = true, .parent = -1, .root = slot, .first = (int64_t)index, .last = (int64_t)index};
        if (v->kind != VALUE_TENSOR) continue;
        const tensor *t = &v->t;
        note->type = t->type;
        note->rank = t->rank;
        memcpy(note->dims, t->dims, sizeof note->dims);
        note->data = t->data;
        note->bytes = tensor_bytes(t);
        note->by_infer = r->by_infer >> (i < 63 ? i : 63) & 1;
        note->parent = shares_with(r, t);
        note->over = note->parent >= 0 && note->by_infer && !(n->def->flags & OP_VIEW);
        bool values = plain && t->type != ELEM_STRING && note->bytes <= BUCKET_SMALL &&
                      (f.values || (tells_shape(n) && f.shapes));
        note->value_fixed = values;
        note->shape_fixed = values || (plain && f.shapes && f.rule && note->by_infer);
        if (values) keep_value(note, t);
    }
}

/* ---- laying out ------------------------------------------------------------------------------------- */

typedef struct group { /* values that share memory */
    int32_t root;
    int64_t first, last;
    size_t bytes, offset;
} group;

static int by_size(const void *a, const void *b) {
    const group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->root < y->root ? -1 : 1;
}

static int by_offset(const void *a, const void *b) {
    const group *const *x = a, *const *y = b;
    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* Biggest first, each at the lowest place that is free while it lives. */
static size_t place_groups(group *groups, size_t n, const group **busy) {
    size_t total = 0;
    qsort(groups, n, sizeof *groups, by_size);
    for (size_t i = 0; i < n; i++) {
        size_t n_busy = 0, at = 0;
        for (size_t k = 0; k < i; k++) {
            if (groups[k].first <= groups[i].last && groups[i].first <= groups[k].last)
                busy[n_busy++] = &groups[k];
        }
        qsort(busy, n_busy, sizeof *busy, by_offset);
        for (size_t k = 0; k < n_busy; k++) {
            if (busy[k]->offset >= at + groups[i].bytes) break;
            if (busy[k]->offset + busy[k]->bytes > at) at = busy[k]->offset + busy[k]->bytes;
        }
        groups[i].offset = at;
        if (at + groups[i].bytes > total) total = at + groups[i].bytes;
    }
    return total;
}

/* A node that may keep what it reads beyond its run: in a sequence, in a body. */
static bool holds_on(const op_node *n) {
    if (n->n_bodies > 0 || (n->def->flags & OP_OWN_INFERENCE)) return true;
    if (!(n->def->flags & OP_VIEW) && strchr(n->def->signature, '?')) return true;
    for (size_t i = 0; i < n->n_outputs; i++) {
        if (n->outputs[i] && n->outputs[i]->type.kind != ONNX_TENSOR) return true;
    }
    return false;
}

/* Whose memory everything is. What was written over its input and goes to the caller gets memory of its own,
 * so that the chain before it can be planned. */
static void find_roots(const bucket *b, const ir_graph *g) {
    for (size_t i = g->n_nodes; i-- > 0;) {
        const op_node *n = g->nodes[i];
        for (size_t k = 0; k < n->n_outputs; k++) {
            if (!n->outputs[k]) continue;
            bucket_note *note = &b->notes[n->outputs[k]->slot];
            note->given = note->given || n->outputs[k]->is_output;
            if (note->given && note->written && note->parent >= 0 && !note->over)
                b->notes[note->parent].given = true;
        }
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const op_node *n = g->nodes[i];
        for (size_t k = 0; k < n->n_outputs; k++) {
            if (!n->outputs[k]) continue;
            bucket_note *note = &b->notes[n->outputs[k]->slot];
            bool own = !note->written || note->parent < 0 || (note->over && note->given);
            note->root = own ? (int32_t)n->outputs[k]->slot : b->notes[note->parent].root;
        }
    }
}

/* Extends lives to the last reader and finds the roots that cannot be planned. */
static void look_at_readers(const bucket *b, const ir_graph *g, bool *free_standing) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const op_node *n = g->nodes[i];
        bool held = holds_on(n);
        for (size_t k = 0; k < n->n_inputs; k++) {
            if (!n->inputs[k]) continue;
            bucket_note *note = &b->notes[n->inputs[k]->slot];
            bucket_note *root = &b->notes[note->root];
            if (root->last < (int64_t)i) root->last = (int64_t)i;
            if (held) free_standing[note->root] = true;
        }
        for (size_t k = 0; k < n->n_bodies; k++) {
            for (size_t c = 0; c < n->bodies[k]->n_captures; c++) {
                free_standing[b->notes[n->bodies[k]->captures[c].outer->slot].root] = true;
            }
        }
        for (size_t k = 0; k < n->n_outputs; k++) {
            if (!n->outputs[k]) continue;
            bucket_note *note = &b->notes[n->outputs[k]->slot];
            bucket_note *root = &b->notes[note->root];
            if (root->last < (int64_t)i) root->last = (int64_t)i;
            if (n->outputs[k]->is_output) free_standing[note->root] = true;
        }
    }
}

static bool can_be_planned(const bucket_note *note, const ir_value *v, bool free_standing) {
    return note->written && !free_standing && note->by_infer && note->shape_fixed && !note->value_fixed &&
           note->type != ELEM_NONE && note->type != ELEM_STRING && !v->is_constant;
}

/* Values in slots before a run starts: constants of the shapes, and places in the arena. */
static void preset_values(bucket *b, const ir_graph *g, const bool *planned, const size_t *offsets) {
    for (size_t i = 0; i < g->n_values; i++) {
        bucket_note *note = &b->notes[i];
        b->roots[i] = note->written ? note->root : (int32_t)i;
        if (!note->written || g->values[i]->is_constant || note->type == ELEM_NONE) continue;
        if (note->value_fixed && note->kept.kind == VALUE_TENSOR) {
            b->kept[b->n_kept] = note->kept.t;
            note->kept = (value){.kind = VALUE_NONE};
            b->preset[i] = value_of_tensor(b->kept[b->n_kept++]);
            b->preset[i].t.storage = NULL;
        } else if (note->shape_fixed && planned[note->root]) {
            size_t inside = (size_t)(note->data - b->notes[note->root].data);
            b->preset[i] = value_of_tensor(
                tensor_borrow(note->type, note->rank, note->dims, b->pages + offsets[note->root] + inside));
        } else if (note->shape_fixed && note->by_infer && note->root == (int32_t)i) {
            b->fixed[i] = value_of_tensor(tensor_borrow(note->type, note->rank, note->dims, NULL));
        }
    }
}

static status plan_bucket_step(bucket *b, bucket_step *out, const exec_step *s, bool *skip) {
    bool fast = true, all_kept = s->n_out > 0, all_views = (s->node->def->flags & OP_VIEW) && s->n_out == 1;
    for (size_t k = 0; k < s->n_out; k++) {
        int32_t slot = s->out[k];
        if (slot == IR_NO_SLOT) continue;
        const bucket_note *note = &b->notes[slot];
        bool preset = b->preset[slot].kind == VALUE_TENSOR;
        fast = fast && (preset || b->fixed[slot].kind == VALUE_TENSOR);
        all_kept = all_kept && preset && note->value_fixed;
        all_views = all_views && preset;
    }
    *skip = all_kept || all_views;
    /* A view that lies nowhere yet is made by the executor, by the slow way. */
    if ((s->node->def->flags & OP_VIEW) || s->node->n_bodies > 0) fast = false;
    *out = (bucket_step){.step = s, .fast = fast};
    out->frees = arena_array(&b->memory, s->n_frees, sizeof *out->frees);
    if (!out->frees) return CHURON_NO_MEMORY;
    for (size_t k = 0; k < s->n_frees; k++) {
        if (b->preset[s->frees[k]].kind != VALUE_TENSOR) out->frees[out->n_frees++] = s->frees[k];
    }
    return CHURON_OK;
}

/* What a skipped step would have freed is freed by the step before it. */
static bool hand_back_frees(bucket *b, const bucket_step *skipped) {
    if (b->n_steps == 0 || skipped->n_frees == 0) return true;
    bucket_step *before = &b->steps[b->n_steps - 1];
    int32_t *all = arena_array(&b->memory, before->n_frees + skipped->n_frees, sizeof *all);
    if (!all) return false;
    memcpy(all, before->frees, before->n_frees * sizeof *all);
    memcpy(all + before->n_frees, skipped->frees, skipped->n_frees * sizeof *all);
    before->frees = all;
    before->n_frees += skipped->n_frees;
    return true;
}

static bool plan_steps(bucket *b, const ir_graph *g) {
    b->steps = arena_array(&b->memory, g->n_nodes, sizeof *b->steps);
    if (!b->steps) return false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (exec_step_is_constant(&g->steps[i])) continue;
        bool skip;
        bucket_step step;
        if (plan_bucket_step(b, &step, &g->steps[i], &skip) != CHURON_OK) return false;
        if (!skip) {
            b->steps[b->n_steps++] = step;
        } else if (!hand_back_frees(b, &step)) {
            return false;
        }
    }
    return true;
}

typedef struct layout {
    bool *free_standing, *planned;
    size_t *offsets;
    group *groups;
    const group **busy;
    size_t n;
} layout;

static bool lay_out(exec *x, const ir_graph *g, bucket *b, layout *l) {
    find_roots(b, g);
    look_at_readers(b, g, l->free_standing);
    for (size_t i = 0; i < g->n_values; i++) {
        const bucket_note *note = &b->notes[i];
        if (note->root != (int32_t)i || !can_be_planned(note, g->values[i], l->free_standing[i])) continue;
        size_t bytes = (note->bytes + 63) / 64 * 64;
        l->groups[l->n++] = (group){
            .root = (int32_t)i, .first = note->first, .last = note->last, .bytes = bytes ? bytes : 64};
    }
    size_t total = place_groups(l->groups, l->n, l->busy);
    if (x->limit && total > x->limit) return false;
    for (size_t i = 0; i < l->n; i++) {
        l->planned[l->groups[i].root] = true;
        l->offsets[l->groups[i].root] = l->groups[i].offset;
    }
    if (total) {
        b->pages = mem_pages(total);
        if (!b->pages) return false;
        b->n_pages = total;
    }
    b->preset = arena_array(&b->memory, g->n_values, sizeof *b->preset);
    b->fixed = arena_array(&b->memory, g->n_values, sizeof *b->fixed);
    b->roots = arena_array(&b->memory, g->n_values, sizeof *b->roots);
    b->kept = arena_array(&b->memory, g->n_values, sizeof *b->kept);
    if (!b->preset || !b->fixed || !b->roots || !b->kept) return false;
    preset_values(b, g, l->planned, l->offsets);
    return plan_steps(b, g);
}

static void plan_bucket(exec *x, const ir_graph *g, bucket *b) {
    size_t n = g->n_values + 1;
    layout l = {.free_standing = mem_calloc(n, 1),
                .planned = mem_calloc(n, 1),
                .offsets = mem_calloc(n, sizeof *l.offsets),
                .groups = mem_calloc(n, sizeof *l.groups),
                .busy = mem_calloc(n, sizeof *l.busy)};
    b->planned = l.free_standing && l.planned && l.offsets && l.groups && l.busy && lay_out(x, g, b, &l);
    b->hopeless = !b->planned;
    mem_free(l.free_standing);
    mem_free(l.planned);
    mem_free(l.offsets);
    mem_free(l.groups);
    mem_free(l.busy);
}

void bucket_end(exec *x, const ir_graph *g, bool well) {
    bucket *b = x->watched;
    x->watched = NULL;
    if (!b) return;
    if (well) plan_bucket(x, g, b);
    for (size_t i = 0; i < g->n_values; i++) value_free(&b->notes[i].kept);
    mem_free(b->notes);
    b->notes = NULL;
}

/* ---- entering --------------------------------------------------------------------------------------- */

void bucket_enter(exec *x, const ir_graph *g, bucket *b) {
    if (x->entered == b) return;
    exec_frame *f = &x->frames[g->number];
    for (size_t i = 0; i < g->n_values; i++) {
        if (x->entered && x->entered->preset[i].kind == VALUE_TENSOR)
            f->slots[i] = (value){.kind = VALUE_NONE};
    }
    for (size_t i = 0; b && i < g->n_values; i++) {
        if (b->preset[i].kind == VALUE_TENSOR) f->slots[i] = b->preset[i];
    }
    x->entered = b;
}
