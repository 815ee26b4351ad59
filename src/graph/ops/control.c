/* control.c: If and Loop; what Scan shares with them. Bodies see outer values through captures, which the
 * executor binds. */
#include "graph/ops/control.h"

#include "base/mem.h"
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <string.h>

/* ---- types ------------------------------------------------------------------------------------------ */

status control_out(op_shapes *s, size_t i, const ir_value *v, error *err) {
    TRY(shapes_out_value_type(s, i, &v->type, err));
    if (!v->has_rank) {
        shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    return shapes_out(s, i, v->rank, v->dims, err);
}

status control_out_stacked(op_shapes *s, size_t i, const ir_value *v, size_t axis, dim length, error *err) {
    if (v->type.kind != ONNX_TENSOR) {
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "output %zu: expected a body that gives tensors to stack", i);
    }
    TRY(shapes_out_value_type(s, i, &v->type, err));
    if (!v->has_rank || axis > v->rank || v->rank == TENSOR_MAX_RANK) {
        shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    dim dims[TENSOR_MAX_RANK];
    for (size_t k = 0, j = 0; k <= v->rank; k++) dims[k] = k == axis ? length : v->dims[j++];
    return shapes_out(s, i, v->rank + 1, dims, err);
}

/* An optional state may come back as what it held: values do not tell the difference. */
static bool same_types(const onnx_type *a, const onnx_type *b) {
    if (a->kind == ONNX_OPTIONAL && b->kind != ONNX_OPTIONAL && a->of) return same_types(a->of, b);
    if (a->kind != b->kind || a->type != b->type) return false;
    return !a->of || !b->of || same_types(a->of, b->of);
}

/* *a becomes what both are: dimensions that differ are unknown, and marked in *relaxed: they may be anything.
 * False: another kind or element type. */
static bool merge(op_shapes *s, ir_value *a, dim *dims, const ir_value *b, uint32_t *relaxed, bool *changed) {
    if (!same_types(&a->type, &b->type)) return false;
    if (!a->has_rank) return true;
    if (!b->has_rank || a->rank != b->rank) {
        a->has_rank = false;
        *changed = true;
        return true;
    }
    for (size_t k = 0; k < a->rank; k++) {
        dims[k] = a->dims[k];
        if (dims[k] == b->dims[k] || (*relaxed >> k & 1)) continue;
        dims[k] = dim_fresh(s);
        *relaxed |= 1u << k;
        *changed = true;
    }
    a->dims = dims;
    return true;
}

status control_infer_states(op_shapes *s, size_t body, ir_value *formal, size_t n_formal, size_t first_state,
                            size_t n_states, size_t first_output, error *err) {
    const op_node *n = shapes_node(s);
    const ir_graph *g = n->bodies[body];
    size_t depth = 0;
    for (const ir_graph *up = g; up; up = up->parent) depth++;
    ir_value **pointers = mem_calloc(n_formal + 1, sizeof *pointers);
    dim(*dims)[TENSOR_MAX_RANK] = mem_calloc(n_states + 1, sizeof *dims);
    uint32_t *relaxed = mem_calloc(n_states + 1, sizeof *relaxed);
    status st = pointers && dims && relaxed ? CHURON_OK : ir_no_memory(err);
    for (size_t i = 0; i < n_formal && st == CHURON_OK; i++) pointers[i] = &formal[i];
    bool again = st == CHURON_OK;
    for (size_t pass = 0; again && st == CHURON_OK; pass++) {
        /* Loops in loops would be walked 3^depth times; the last pass knows nothing and is always right. */
        if (pass + 1 == CONTROL_MAX_PASSES || depth > CONTROL_DEPTH) {
            for (size_t i = 0; i < n_states; i++) formal[first_state + i].has_rank = false;
        }
        again = false;
        st = ir_infer_body(s, body, pointers, n_formal, err);
        if (st == CHURON_OK && g->n_outputs < first_output + n_states) {
            st = op_error(n, err, CHURON_INVALID, "body '%s': expected at least %zu outputs, got %zu",
                          g->name, first_output + n_states, g->n_outputs);
        }
        for (size_t i = 0; i < n_states && st == CHURON_OK; i++) {
            const ir_value *given = g->outputs[first_output + i];
            if (merge(s, &formal[first_state + i], dims[i], given, &relaxed[i], &again)) continue;
            st = op_error(n, err, CHURON_INVALID, "body '%s': expected output %zu of the type of input %zu",
                          g->name, first_output + i, first_state + i);
        }
    }
    /* The caller reads shapes from `formal`: they must outlive dims. */
    for (size_t i = 0; i < n_states && st == CHURON_OK; i++) {
        ir_value *v = &formal[first_state + i];
        v->graph = n->graph;
        v->type = g->outputs[first_output + i]->type;
        if (v->has_rank) st = ir_value_set_shape(v, v->rank, v->dims, err);
    }
    mem_free(pointers);
    mem_free(dims);
    mem_free(relaxed);
    return st;
}

void control_free(value *v, size_t n) {
    for (size_t i = 0; v && i < n; i++) value_free(&v[i]);
}

/* ---- slices ----------------------------------------------------------------------------------------- */

bool control_same_shape(const tensor *a, const tensor *b) {
    if (a->type != b->type || a->rank != b->rank) return false;
    for (size_t i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) return false;
    }
    return true;
}

/* Elements before, along and behind an axis. */
static void around(const tensor *t, size_t axis, size_t *outer, size_t *inner) {
    *outer = *inner = 1;
    for (size_t i = 0; i < axis; i++) *outer *= (size_t)t->dims[i];
    for (size_t i = axis + 1; i < t->rank; i++) *inner *= (size_t)t->dims[i];
}

static status copy_elements(tensor *to, size_t at, const tensor *from, size_t from_at, size_t n, error *err) {
    if (to->type == ELEM_STRING) {
        const tensor_string *s = (const tensor_string *)from->data + from_at;
        for (size_t i = 0; i < n; i++) TRY(tensor_string_set(to, at + i, s[i].data, s[i].len, err));
        return CHURON_OK;
    }
    size_t bytes = elem_describe(to->type)->bytes;
    if (n) memcpy((char *)to->data + at * bytes, (const char *)from->data + from_at * bytes, n * bytes);
    return CHURON_OK;
}

status control_take(const tensor *t, size_t axis, size_t at, tensor *out, error *err) {
    size_t outer, inner;
    int64_t dims[TENSOR_MAX_RANK];
    around(t, axis, &outer, &inner);
    for (size_t k = 0, j = 0; k < t->rank; k++) {
        if (k != axis) dims[j++] = t->dims[k];
    }
    if (outer == 1) {
        *out = tensor_share(t);
        out->rank = t->rank - 1;
        memcpy(out->dims, dims, out->rank * sizeof dims[0]);
        out->count = inner;
        out->data = (char *)t->data + at * inner * elem_describe(t->type)->bytes;
        return CHURON_OK;
    }
    TRY(tensor_alloc(out, t->type, t->rank - 1, dims, err));
    size_t length = (size_t)t->dims[axis];
    for (size_t i = 0; i < outer; i++) {
        status st = copy_elements(out, i * inner, t, (i * length + at) * inner, inner, err);
        if (st == CHURON_OK) continue;
        tensor_free(out);
        return st;
    }
    return CHURON_OK;
}

status control_put(tensor *to, size_t axis, size_t at, const tensor *item, error *err) {
    size_t outer, inner, length = (size_t)to->dims[axis];
    around(to, axis, &outer, &inner);
    for (size_t i = 0; i < outer; i++) {
        TRY(copy_elements(to, (i * length + at) * inner, item, i * inner, inner, err));
    }
    return CHURON_OK;
}

/* ---- If --------------------------------------------------------------------------------------------- */

typedef struct if_state {
    size_t branch[2]; /* else, then */
} if_state;

static status if_prepare(op_node *n, error *err) {
    if_state *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "attributes", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_body(n, "then_branch", &s->branch[1], err));
    return op_attr_body(n, "else_branch", &s->branch[0], err);
}

static status if_infer(op_shapes *s, error *err) {
    const op_node *n = shapes_node(s);
    if (shapes_running(s)) return CHURON_OK;
    const if_state *state = shapes_state(s);
    for (size_t b = 0; b < 2; b++) {
        TRY(ir_infer_body(s, state->branch[b], NULL, 0, err));
        const ir_graph *g = n->bodies[state->branch[b]];
        if (g->n_outputs < n->n_outputs) {
            return op_error(n, err, CHURON_INVALID, "body '%s': expected %zu outputs, got %zu", g->name,
                            n->n_outputs, g->n_outputs);
        }
    }
    for (size_t i = 0; i < n->n_outputs; i++) {
        ir_value both = *n->bodies[state->branch[1]]->outputs[i];
        dim dims[TENSOR_MAX_RANK];
        bool changed = false;
        uint32_t relaxed = 0;
        if (!merge(s, &both, dims, n->bodies[state->branch[0]]->outputs[i], &relaxed, &changed)) {
            return op_error(n, err, CHURON_INVALID,
                            "output %zu: expected both branches to give the same type", i);
        }
        TRY(control_out(s, i, &both, err));
    }
    return CHURON_OK;
}

static status read_condition(op_run *r, const tensor *t, bool *out, error *err) {
    if (!t || t->type != ELEM_BOOL || t->count != 1) {
        return run_error(r, err, CHURON_INVALID, "condition: expected one bool, got %zu elements",
                         t ? t->count : 0);
    }
    *out = *(const uint8_t *)t->data != 0;
    return CHURON_OK;
}

static status if_run(op_run *r, error *err) {
    const if_state *state = run_state(r);
    bool condition = false;
    TRY(read_condition(r, run_in(r, 0), &condition, err));
    size_t n = op_n_outputs(run_node(r));
    void *memory;
    TRY(run_scratch(r, n * sizeof(value), &memory, err));
    value *out = memory;
    TRY(run_body(r, state->branch[condition], NULL, 0, out, n, err));
    for (size_t i = 0; i < n; i++) run_out_value(r, i, out[i]);
    return CHURON_OK;
}

/* ---- Loop ------------------------------------------------------------------------------------------- */

/* Body: (iteration, condition, states…) -> (condition, states…, items…). */
typedef struct loop_state {
    size_t body;
    size_t n_states;
    bool iteration_is_list, condition_is_list; /* the body declares [1] where a scalar is meant */
} loop_state;

static bool declares_list(const ir_graph *g, size_t i) {
    return i < g->n_inputs && g->inputs[i]->has_rank && g->inputs[i]->rank == 1;
}

static status loop_prepare(op_node *n, error *err) {
    loop_state *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "attributes", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_body(n, "body", &s->body, err));
    s->n_states = n->n_inputs > 2 ? n->n_inputs - 2 : 0;
    const ir_graph *g = n->bodies[s->body];
    s->iteration_is_list = declares_list(g, 0);
    s->condition_is_list = declares_list(g, 1);
    for (size_t i = 0; i < s->n_states; i++) {
        if (!op_has_input(n, 2 + i)) {
            return op_error(n, err, CHURON_CORRUPT,
                            "input %zu: expected the first value of a state, got none", 2 + i);
        }
    }
    if (g->n_outputs < 1 + s->n_states || n->n_outputs > g->n_outputs - 1) {
        return op_error(n, err, CHURON_INVALID, "body '%s': expected %zu outputs or more, got %zu", g->name,
                        1 + (n->n_outputs > s->n_states ? n->n_outputs : s->n_states), g->n_outputs);
    }
    return CHURON_OK;
}

static const dim one[1] = {1};

static ir_value scalar_value(const char *name, elem type, bool list) {
    return (ir_value){.name = name,
                      .type = {.kind = ONNX_TENSOR, .type = type},
                      .has_rank = true,
                      .rank = list ? 1 : 0,
                      .dims = one};
}

static status loop_infer(op_shapes *s, error *err) {
    if (shapes_running(s)) return CHURON_OK;
    const op_node *n = shapes_node(s);
    const loop_state *state = shapes_state(s);
    size_t n_formal = 2 + state->n_states;
    ir_value *formal = mem_calloc(n_formal, sizeof *formal);
    if (!formal) return ir_no_memory(err);
    formal[0] = scalar_value("iteration", ELEM_I64, state->iteration_is_list);
    formal[1] = scalar_value("condition", ELEM_BOOL, state->condition_is_list);
    for (size_t i = 0; i < state->n_states; i++) formal[2 + i] = *n->inputs[2 + i];
    status st = control_infer_states(s, state->body, formal, n_formal, 2, state->n_states, 1, err);
    for (size_t i = 0; i < n->n_outputs && st == CHURON_OK; i++) {
        if (i < state->n_states) {
            st = control_out(s, i, &formal[2 + i], err);
        } else {
            const ir_value *item = n->bodies[state->body]->outputs[1 + i];
            st = control_out_stacked(s, i, item, 0, dim_fresh(s), err);
        }
    }
    mem_free(formal);
    return st;
}

/* Items of one stacked output, as they come. */
typedef struct item_list {
    tensor *items;
    size_t n, cap;
} item_list;

typedef struct loop_run_state {
    op_run *r;
    const loop_state *s;
    value *in;  /* [2 + n_states] */
    value *out; /* [1 + n_states + n_lists] */
    item_list *lists;
    size_t n_lists;
    uint64_t charged;
} loop_run_state;

static void loop_free(loop_run_state *l) {
    control_free(l->in, 2 + l->s->n_states);
    control_free(l->out, 1 + l->s->n_states + l->n_lists);
    for (size_t i = 0; i < l->n_lists; i++) {
        for (size_t k = 0; k < l->lists[i].n; k++) tensor_free(&l->lists[i].items[k]);
        mem_free(l->lists[i].items);
    }
    exec_uncharge(l->r, l->charged);
}

static status loop_start(loop_run_state *l, error *err) {
    op_run *r = l->r;
    size_t n_in = 2 + l->s->n_states, n_out = 1 + l->s->n_states + l->n_lists;
    void *memory;
    size_t bytes = (n_in + n_out) * sizeof(value) + l->n_lists * sizeof(item_list);
    TRY(run_scratch(r, bytes, &memory, err));
    memset(memory, 0, bytes);
    l->in = memory;
    l->out = l->in + n_in;
    l->lists = (item_list *)(void *)(l->out + n_out);
    for (size_t i = 0; i < l->s->n_states; i++) l->in[2 + i] = value_share(run_in_value(r, 2 + i));
    const int64_t length[1] = {1};
    tensor t;
    TRY(tensor_alloc(&t, ELEM_BOOL, l->s->condition_is_list ? 1 : 0, length, err));
    *(uint8_t *)t.data = 1;
    l->in[1] = value_of_tensor(t);
    return CHURON_OK;
}

static status keep_item(loop_run_state *l, size_t list, const value *v, error *err) {
    item_list *items = &l->lists[list];
    if (v->kind != VALUE_TENSOR)
        return run_error(l->r, err, CHURON_INVALID, "body: expected a tensor to stack");
    if (items->n > 0 && !control_same_shape(&items->items[0], &v->t)) {
        return run_error(
            l->r, err, CHURON_INVALID,
            "body: expected output %zu of the same shape in every iteration, got another in iteration %zu",
            1 + l->s->n_states + list, items->n);
    }
    if (items->n == items->cap) {
        size_t cap = items->cap ? items->cap * 2 : 16;
        tensor *more = mem_realloc(items->items, cap * sizeof *more);
        if (!more) return error_no_memory(err, "items of a loop", cap * sizeof *more);
        items->items = more;
        items->cap = cap;
    }
    uint64_t bytes = tensor_held_bytes(&v->t) + EXEC_ITEM_BYTES;
    TRY(exec_charge(l->r, bytes, err));
    l->charged += bytes;
    items->items[items->n++] = tensor_share(&v->t);
    return CHURON_OK;
}

static status loop_iterate(loop_run_state *l, int64_t i, bool *go_on, error *err) {
    size_t n_states = l->s->n_states;
    const int64_t length[1] = {1};
    tensor t;
    value_free(&l->in[0]);
    TRY(tensor_alloc(&t, ELEM_I64, l->s->iteration_is_list ? 1 : 0, length, err));
    *(int64_t *)t.data = i;
    l->in[0] = value_of_tensor(t);
    TRY(run_body(l->r, l->s->body, l->in, 2 + n_states, l->out, 1 + n_states + l->n_lists, err));
    TRY(read_condition(l->r, l->out[0].kind == VALUE_TENSOR ? &l->out[0].t : NULL, go_on, err));
    for (size_t k = 0; k < n_states; k++) {
        value_free(&l->in[2 + k]);
        l->in[2 + k] = l->out[1 + k];
        l->out[1 + k] = (value){.kind = VALUE_NONE};
    }
    for (size_t k = 0; k < l->n_lists; k++) TRY(keep_item(l, k, &l->out[1 + n_states + k], err));
    control_free(l->out, 1 + n_states + l->n_lists);
    return CHURON_OK;
}

static status stack_items(loop_run_state *l, size_t list, error *err) {
    const item_list *items = &l->lists[list];
    size_t output = l->s->n_states + list;
    const ir_value *v = l->r->node->bodies[l->s->body]->outputs[1 + output];
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = items->n ? items->items[0].rank : v->has_rank ? v->rank : 0;
    if (rank >= TENSOR_MAX_RANK) {
        return run_error(l->r, err, CHURON_UNSUPPORTED, "output %zu: expected a rank of at most %d", output,
                         TENSOR_MAX_RANK);
    }
    dims[0] = (int64_t)items->n;
    /* Without an iteration only the inferred shape is there; what it does not know is 0. */
    for (size_t i = 0; i < rank; i++) {
        dims[1 + i] = items->n ? items->items[0].dims[i] : dim_known(v->dims[i]) ? v->dims[i] : 0;
    }
    tensor *out;
    TRY(run_out_shaped(l->r, output, v->type.type, rank + 1, dims, &out, err));
    for (size_t i = 0; out && i < items->n; i++) TRY(control_put(out, 0, i, &items->items[i], err));
    return CHURON_OK;
}

static status loop_execute(loop_run_state *l, error *err) {
    int64_t most = INT64_MAX;
    bool go_on = true;
    const tensor *count = run_in(l->r, 0), *condition = run_in(l->r, 1);
    if (count) {
        if (count->count != 1) {
            return run_error(l->r, err, CHURON_INVALID, "trip count: expected one number, got %zu",
                             count->count);
        }
        most = *(const int64_t *)count->data;
    }
    if (condition) TRY(read_condition(l->r, condition, &go_on, err));
    TRY(loop_start(l, err));
    for (int64_t i = 0; i < most && go_on; i++) TRY(loop_iterate(l, i, &go_on, err));
    for (size_t i = 0; i < l->s->n_states; i++) {
        run_out_value(l->r, i, l->in[2 + i]);
        l->in[2 + i] = (value){.kind = VALUE_NONE};
    }
    for (size_t i = 0; i < l->n_lists; i++) TRY(stack_items(l, i, err));
    return CHURON_OK;
}

static status loop_run(op_run *r, error *err) {
    const loop_state *s = run_state(r);
    size_t n_outputs = op_n_outputs(run_node(r));
    loop_run_state l = {.r = r, .s = s, .n_lists = n_outputs > s->n_states ? n_outputs - s->n_states : 0};
    status st = loop_execute(&l, err);
    if (l.in) loop_free(&l);
    return st;
}

/* ---- table ------------------------------------------------------------------------------------------ */

static const op_def rows[] = {
    {.domain = "",
     .name = "If",
     .since = 1,
     .flags = OP_OWN_INFERENCE,
     .signature = "b>?*",
     .prepare = if_prepare,
     .release = mem_free,
     .infer = if_infer,
     .run = if_run},
    {.domain = "",
     .name = "Loop",
     .since = 1,
     .flags = OP_OWN_INFERENCE,
     .signature = "=ib?*>?*",
     .prepare = loop_prepare,
     .release = mem_free,
     .infer = loop_infer,
     .run = loop_run},
    {.domain = "",
     .name = "Scan",
     .since = 8,
     .flags = OP_OWN_INFERENCE,
     .signature = "=?*>?*",
     .prepare = scan_prepare,
     .release = scan_release,
     .infer = scan_infer,
     .run = scan_run},
};

const op_table ops_control = {rows, sizeof rows / sizeof rows[0]};
