/* scan.c: Scan: a body over the items of its inputs along an axis. Version 8 has a batch in front of
 * everything and lengths of its sequences; later versions have axes and directions instead. */
#include "graph/ops/control.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* Body: (states…, items…) -> (states…, items…). */
typedef struct scan_state {
    size_t body;
    size_t first;                 /* of the node's inputs: 1 in version 8, whose input 0 holds lengths */
    size_t n_states, n_in, n_out; /* states; inputs and outputs that are scanned */
    bool batch;                   /* version 8 */
    int64_t *in_axis, *out_axis;  /* [n_in], [n_out]; as the file says, may be negative */
    bool *in_reverse, *out_reverse;
} scan_state;

void scan_release(void *state) {
    scan_state *s = state;
    mem_free(s->in_axis);
    mem_free(s->out_axis);
    mem_free(s->in_reverse);
    mem_free(s->out_reverse);
    mem_free(s);
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static status read_list(op_node *n, const char *name, size_t expected, int64_t *out, error *err) {
    const int64_t *list;
    size_t count;
    TRY(op_attr_ints(n, name, &list, &count, err));
    if (list && count != expected) {
        return op_error(n, err, CHURON_INVALID, "attribute '%s': expected %zu numbers, got %zu", name,
                        expected, count);
    }
    for (size_t i = 0; i < expected; i++) out[i] = list ? list[i] : 0;
    return CHURON_OK;
}

static status read_directions(op_node *n, const char *name, size_t count, int64_t *room, bool *out,
                              error *err) {
    TRY(read_list(n, name, count, room, err));
    for (size_t i = 0; i < count; i++) {
        if (room[i] != 0 && room[i] != 1) {
            return op_error(n, err, CHURON_INVALID, "attribute '%s': expected 0 or 1, got %" PRId64, name,
                            room[i]);
        }
        out[i] = room[i] == 1;
        room[i] = 0;
    }
    return CHURON_OK;
}

static status read_axes(op_node *n, scan_state *s, error *err) {
    s->in_axis = mem_calloc(s->n_in + 1, sizeof *s->in_axis);
    s->out_axis = mem_calloc(s->n_out + 1, sizeof *s->out_axis);
    s->in_reverse = mem_calloc(s->n_in + 1, sizeof *s->in_reverse);
    s->out_reverse = mem_calloc(s->n_out + 1, sizeof *s->out_reverse);
    if (!s->in_axis || !s->out_axis || !s->in_reverse || !s->out_reverse) {
        return error_no_memory(err, "attributes", sizeof *s);
    }
    if (s->batch) return read_directions(n, "directions", s->n_in, s->in_axis, s->in_reverse, err);
    TRY(read_directions(n, "scan_input_directions", s->n_in, s->in_axis, s->in_reverse, err));
    TRY(read_directions(n, "scan_output_directions", s->n_out, s->out_axis, s->out_reverse, err));
    TRY(read_list(n, "scan_input_axes", s->n_in, s->in_axis, err));
    return read_list(n, "scan_output_axes", s->n_out, s->out_axis, err);
}

status scan_prepare(op_node *n, error *err) {
    scan_state *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "attributes", sizeof *s);
    op_set_state(n, s);
    s->batch = op_version(n) < 9;
    s->first = s->batch ? 1 : 0;
    int64_t n_in;
    size_t given = n->n_inputs > s->first ? n->n_inputs - s->first : 0;
    TRY(op_attr_body(n, "body", &s->body, err));
    TRY(op_attr_int(n, "num_scan_inputs", 0, 1, (int64_t)given, &n_in, err));
    s->n_in = (size_t)n_in;
    s->n_states = given - s->n_in;
    const ir_graph *g = n->bodies[s->body];
    if (s->n_in == 0 || g->n_outputs < s->n_states || n->n_outputs > g->n_outputs) {
        return op_error(n, err, CHURON_INVALID,
                        "body '%s': expected an input to scan and at least %zu outputs, got %zu and %zu",
                        g->name, n->n_outputs > s->n_states ? n->n_outputs : s->n_states, s->n_in,
                        g->n_outputs);
    }
    s->n_out = g->n_outputs - s->n_states;
    for (size_t i = 0; i < given; i++) {
        if (!op_has_input(n, s->first + i)) {
            return op_error(n, err, CHURON_CORRUPT, "input %zu: expected a value, got none", s->first + i);
        }
    }
    return read_axes(n, s, err);
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

/* The value without its first `skip` dimensions and without the one at `axis` of the rest. */
static status item_of(const op_node *n, const ir_value *v, size_t skip, const int64_t *axis, ir_value *item,
                      dim *dims, dim *length, error *err) {
    *item = *v;
    item->has_rank = false;
    if (v->type.kind != ONNX_TENSOR) {
        return op_error(n, err, CHURON_INVALID, "input '%s': expected a tensor to scan", v->name);
    }
    if (!v->has_rank) return CHURON_OK;
    if (v->rank < skip + (axis ? 1 : 0)) {
        return op_error(n, err, CHURON_INVALID, "input '%s': expected a dimension to scan, got rank %" PRIu32,
                        v->name, v->rank);
    }
    size_t at = SIZE_MAX;
    if (axis) TRY(op_axis(n, *axis, v->rank - skip, "scan_input_axes", &at, err));
    if (axis) *length = v->dims[skip + at];
    size_t rank = 0;
    for (size_t k = skip; k < v->rank; k++) {
        if (!axis || k != skip + at) dims[rank++] = v->dims[k];
    }
    item->has_rank = true;
    item->rank = (uint32_t)rank;
    item->dims = dims;
    return CHURON_OK;
}

static status out_with_batch(op_shapes *s, size_t i, const ir_value *v, dim batch, dim length, bool stacked,
                             error *err) {
    TRY(shapes_out_value_type(s, i, &v->type, err));
    size_t more = stacked ? 2 : 1;
    if (!v->has_rank || v->rank + more > TENSOR_MAX_RANK) {
        shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    dim dims[TENSOR_MAX_RANK] = {batch, length};
    for (size_t k = 0; k < v->rank; k++) dims[more + k] = v->dims[k];
    return shapes_out(s, i, v->rank + more, dims, err);
}

static status scan_outputs(op_shapes *s, const ir_value *formal, dim batch, dim length, error *err) {
    const op_node *n = shapes_node(s);
    const scan_state *state = shapes_state(s);
    for (size_t i = 0; i < n->n_outputs; i++) {
        bool stacked = i >= state->n_states;
        const ir_value *v = stacked ? n->bodies[state->body]->outputs[i] : &formal[i];
        if (v->type.kind != ONNX_TENSOR) {
            return op_error(n, err, CHURON_INVALID, "output %zu: expected a body that gives tensors", i);
        }
        if (state->batch) {
            TRY(out_with_batch(s, i, v, batch, length, stacked, err));
        } else if (!stacked) {
            TRY(control_out(s, i, v, err));
        } else {
            size_t axis = TENSOR_MAX_RANK;
            if (v->has_rank) {
                TRY(op_axis(n, state->out_axis[i - state->n_states], v->rank + 1, "scan_output_axes", &axis,
                            err));
            }
            TRY(control_out_stacked(s, i, v, axis, length, err));
        }
    }
    return CHURON_OK;
}

status scan_infer(op_shapes *s, error *err) {
    if (shapes_running(s)) return CHURON_OK;
    const op_node *n = shapes_node(s);
    const scan_state *state = shapes_state(s);
    size_t n_formal = state->n_states + state->n_in, skip = state->batch ? 1 : 0;
    ir_value *formal = mem_calloc(n_formal, sizeof *formal);
    dim(*dims)[TENSOR_MAX_RANK] = mem_calloc(n_formal, sizeof *dims);
    status st = formal && dims ? CHURON_OK : ir_no_memory(err);
    dim length = dim_fresh(s), batch = dim_fresh(s);
    for (size_t i = 0; i < n_formal && st == CHURON_OK; i++) {
        const ir_value *v = n->inputs[state->first + i];
        bool scanned = i >= state->n_states;
        dim got = length;
        st = item_of(n, v, skip, scanned ? &state->in_axis[i - state->n_states] : NULL, &formal[i], dims[i],
                     &got, err);
        if (dim_known(got)) length = got;
        if (state->batch && v->has_rank && v->rank > 0) batch = v->dims[0];
    }
    if (st == CHURON_OK)
        st = control_infer_states(s, state->body, formal, n_formal, 0, state->n_states, 0, err);
    if (st == CHURON_OK) st = scan_outputs(s, formal, batch, length, err);
    mem_free(formal);
    mem_free(dims);
    return st;
}

/* ---- run -------------------------------------------------------------------------------------------- */

typedef struct scan_run_state {
    op_run *r;
    const scan_state *s;
    const tensor *scanned; /* [n_in] of this row of the batch */
    size_t length;         /* of the axis */
    size_t steps;          /* to be done; less than length in short sequences */
    value *in, *out;       /* of the body */
    tensor *stacked;       /* [n_out]; data NULL until the first item has come */
    size_t n_stacked;      /* that the node asks for */
} scan_run_state;

static void scan_free(scan_run_state *c) {
    control_free(c->in, c->s->n_states + c->s->n_in);
    control_free(c->out, c->s->n_states + c->s->n_out);
    for (size_t i = 0; i < c->s->n_out; i++) tensor_free(&c->stacked[i]);
}

/* A tensor of zeros with the item's shape and the length at the axis. */
static status start_stack(scan_run_state *c, size_t i, size_t rank, const int64_t *item, elem type,
                          error *err) {
    size_t axis;
    int64_t dims[TENSOR_MAX_RANK];
    if (rank >= TENSOR_MAX_RANK) {
        return run_error(c->r, err, CHURON_UNSUPPORTED, "scan output %zu: expected a rank of at most %d", i,
                         TENSOR_MAX_RANK);
    }
    TRY(op_axis(c->r->node, c->s->out_axis[i], rank + 1, "scan_output_axes", &axis, err));
    for (size_t k = 0, j = 0; k <= rank; k++) dims[k] = k == axis ? (int64_t)c->length : item[j++];
    size_t count;
    TRY(tensor_count(type, rank + 1, dims, &count, "scan output", err));
    TRY(exec_charge(c->r, count * elem_describe(type)->bytes, err));
    exec_uncharge(c->r, count * elem_describe(type)->bytes);
    TRY(tensor_alloc(&c->stacked[i], type, rank + 1, dims, err));
    if (c->steps < c->length && type != ELEM_STRING)
        memset(c->stacked[i].data, 0, tensor_bytes(&c->stacked[i]));
    return CHURON_OK;
}

static status put_item(scan_run_state *c, size_t i, size_t step, const value *v, error *err) {
    if (v->kind != VALUE_TENSOR)
        return run_error(c->r, err, CHURON_INVALID, "body: expected a tensor to stack");
    tensor *to = &c->stacked[i];
    if (!to->data) TRY(start_stack(c, i, v->t.rank, v->t.dims, v->t.type, err));
    size_t axis;
    TRY(op_axis(c->r->node, c->s->out_axis[i], to->rank, "scan_output_axes", &axis, err));
    bool same = to->rank == v->t.rank + 1;
    for (size_t k = 0, j = 0; same && k < to->rank; k++) same = k == axis || to->dims[k] == v->t.dims[j++];
    if (!same) {
        return run_error(
            c->r, err, CHURON_INVALID,
            "body: expected scan output %zu of the same shape in every step, got another in step %zu", i,
            step);
    }
    return control_put(to, axis, c->s->out_reverse[i] ? c->steps - 1 - step : step, &v->t, err);
}

static status scan_step(scan_run_state *c, size_t step, error *err) {
    const scan_state *s = c->s;
    for (size_t i = 0; i < s->n_in; i++) {
        size_t axis;
        tensor item;
        TRY(op_axis(c->r->node, s->in_axis[i], c->scanned[i].rank, "scan_input_axes", &axis, err));
        TRY(control_take(&c->scanned[i], axis, s->in_reverse[i] ? c->steps - 1 - step : step, &item, err));
        value_free(&c->in[s->n_states + i]);
        c->in[s->n_states + i] = value_of_tensor(item);
    }
    TRY(run_body(c->r, s->body, c->in, s->n_states + s->n_in, c->out, s->n_states + s->n_out, err));
    for (size_t i = 0; i < s->n_states; i++) {
        value_free(&c->in[i]);
        c->in[i] = c->out[i];
        c->out[i] = (value){.kind = VALUE_NONE};
    }
    for (size_t i = 0; i < c->n_stacked; i++) TRY(put_item(c, i, step, &c->out[s->n_states + i], err));
    control_free(c->out, s->n_states + s->n_out);
    return CHURON_OK;
}

/* The length that all scanned inputs have along their axis. */
static status common_length(op_run *r, const scan_state *s, const tensor *scanned, size_t *length,
                            error *err) {
    for (size_t i = 0; i < s->n_in; i++) {
        size_t axis;
        TRY(op_axis(r->node, s->in_axis[i], scanned[i].rank, "scan_input_axes", &axis, err));
        size_t got = (size_t)scanned[i].dims[axis];
        if (i > 0 && got != *length) {
            return run_error(r, err, CHURON_INVALID, "scan inputs: expected the same length, got %zu and %zu",
                             *length, got);
        }
        *length = got;
    }
    return CHURON_OK;
}

static status run_steps(scan_run_state *c, error *err) {
    for (size_t i = 0; i < c->steps; i++) TRY(scan_step(c, i, err));
    for (size_t i = 0; i < c->n_stacked; i++) {
        if (c->stacked[i].data) continue;
        /* No step was done: what is not known of the items' shape is 0. */
        const ir_value *v = c->r->node->bodies[c->s->body]->outputs[c->s->n_states + i];
        int64_t dims[TENSOR_MAX_RANK] = {0};
        for (size_t k = 0; v->has_rank && k < v->rank; k++) dims[k] = dim_known(v->dims[k]) ? v->dims[k] : 0;
        TRY(start_stack(c, i, v->has_rank ? v->rank : 0, dims, v->type.type, err));
    }
    return CHURON_OK;
}

static status scan_memory(scan_run_state *c, error *err) {
    const scan_state *s = c->s;
    void *memory;
    size_t n = s->n_states + s->n_in, m = s->n_states + s->n_out;
    size_t bytes = (n + m) * sizeof(value) + s->n_out * sizeof(tensor);
    TRY(run_scratch(c->r, bytes, &memory, err));
    memset(memory, 0, bytes);
    c->in = memory;
    c->out = c->in + n;
    c->stacked = (tensor *)(void *)(c->out + m);
    return CHURON_OK;
}

static size_t wanted_stacks(const op_run *r, const scan_state *s) {
    size_t n = op_n_outputs(r->node);
    return n > s->n_states ? n - s->n_states : 0;
}

static status input_tensor(const op_run *r, size_t i, const tensor **out, error *err) {
    *out = run_in(r, i);
    return *out ? CHURON_OK : run_error(r, err, CHURON_INVALID, "input %zu: expected a tensor", i);
}

static status scan_whole(op_run *r, const scan_state *s, error *err) {
    scan_run_state c = {.r = r, .s = s, .n_stacked = wanted_stacks(r, s)};
    void *memory;
    TRY(run_scratch(r, s->n_in * sizeof(tensor), &memory, err));
    tensor *scanned = memory;
    for (size_t i = 0; i < s->n_in; i++) {
        const tensor *t;
        TRY(input_tensor(r, s->n_states + i, &t, err));
        scanned[i] = *t;
    }
    c.scanned = scanned;
    TRY(common_length(r, s, scanned, &c.length, err));
    c.steps = c.length;
    TRY(scan_memory(&c, err));
    for (size_t i = 0; i < s->n_states; i++) c.in[i] = value_share(run_in_value(r, i));
    status st = run_steps(&c, err);
    for (size_t i = 0; i < s->n_states && st == CHURON_OK; i++) {
        run_out_value(r, i, c.in[i]);
        c.in[i] = (value){.kind = VALUE_NONE};
    }
    for (size_t i = 0; i < c.n_stacked && st == CHURON_OK; i++) {
        run_out_tensor(r, s->n_states + i, c.stacked[i]);
        c.stacked[i] = (tensor){0};
    }
    scan_free(&c);
    return st;
}

/* ---- version 8: row by row of the batch ------------------------------------------------------------- */

/* Adds the row's result to output i, which is made when the first row has come. */
static status put_row(op_run *r, tensor **outputs, size_t i, size_t batch, size_t row, const value *v,
                      error *err) {
    if (v->kind != VALUE_TENSOR || v->t.rank >= TENSOR_MAX_RANK) {
        return run_error(r, err, CHURON_INVALID, "output %zu: expected a tensor of a rank below %d", i,
                         TENSOR_MAX_RANK);
    }
    if (row == 0) {
        int64_t dims[TENSOR_MAX_RANK] = {(int64_t)batch};
        for (size_t k = 0; k < v->t.rank; k++) dims[1 + k] = v->t.dims[k];
        TRY(run_out_shaped(r, i, v->t.type, v->t.rank + 1, dims, &outputs[i], err));
    }
    if (!outputs[i]) return CHURON_OK;
    tensor first;
    TRY(control_take(outputs[i], 0, 0, &first, err));
    bool same = control_same_shape(&first, &v->t);
    tensor_free(&first);
    if (!same)
        return run_error(r, err, CHURON_INVALID, "output %zu: expected the same shape in every row", i);
    return control_put(outputs[i], 0, row, &v->t, err);
}

static status scan_row(op_run *r, const scan_state *s, size_t batch, size_t row, tensor *scanned,
                       tensor **outputs, error *err) {
    scan_run_state c = {.r = r, .s = s, .scanned = scanned, .n_stacked = wanted_stacks(r, s)};
    TRY(common_length(r, s, scanned, &c.length, err));
    c.steps = c.length;
    const tensor *lengths = run_in(r, 0);
    if (lengths) {
        int64_t got =
            lengths->type == ELEM_I64 && row < lengths->count ? ((const int64_t *)lengths->data)[row] : -1;
        if (got < 0 || (uint64_t)got > c.length) {
            return run_error(r, err, CHURON_INVALID,
                             "sequence_lens: expected 0 to %zu for row %zu, got %" PRId64, c.length, row,
                             got);
        }
        c.steps = (size_t)got;
    }
    TRY(scan_memory(&c, err));
    status st = CHURON_OK;
    for (size_t i = 0; i < s->n_states && st == CHURON_OK; i++) {
        tensor t = {0};
        st = control_take(run_in(r, 1 + i), 0, row, &t, err);
        if (st == CHURON_OK) c.in[i] = value_of_tensor(t);
    }
    if (st == CHURON_OK) st = run_steps(&c, err);
    for (size_t i = 0; i < op_n_outputs(r->node) && st == CHURON_OK; i++) {
        value v = i < s->n_states ? c.in[i] : (value){.kind = VALUE_TENSOR, .t = c.stacked[i - s->n_states]};
        st = put_row(r, outputs, i, batch, row, &v, err);
    }
    scan_free(&c);
    return st;
}

static status scan_batch(op_run *r, const scan_state *s, error *err) {
    size_t batch = 0;
    for (size_t i = 0; i < s->n_states + s->n_in; i++) {
        const tensor *t;
        TRY(input_tensor(r, 1 + i, &t, err));
        if (t->rank == 0 || (i > 0 && (size_t)t->dims[0] != batch)) {
            return run_error(r, err, CHURON_INVALID, "input %zu: expected a batch of %zu rows", 1 + i, batch);
        }
        batch = (size_t)t->dims[0];
    }
    if (batch == 0)
        return run_error(r, err, CHURON_INVALID, "inputs: expected at least one row in the batch");
    void *memory;
    size_t n_out = op_n_outputs(r->node);
    TRY(run_scratch(r, s->n_in * sizeof(tensor) + n_out * sizeof(tensor *), &memory, err));
    tensor *scanned = memory;
    tensor **outputs = (tensor **)(void *)(scanned + s->n_in);
    for (size_t row = 0; row < batch; row++) {
        size_t taken = 0;
        status st = CHURON_OK;
        for (; taken < s->n_in && st == CHURON_OK; taken++) {
            st = control_take(run_in(r, 1 + s->n_states + taken), 0, row, &scanned[taken], err);
            if (st != CHURON_OK) break;
        }
        if (st == CHURON_OK) st = scan_row(r, s, batch, row, scanned, outputs, err);
        for (size_t i = 0; i < taken; i++) tensor_free(&scanned[i]);
        TRY(st);
    }
    return CHURON_OK;
}

status scan_run(op_run *r, error *err) {
    const scan_state *s = run_state(r);
    return s->batch ? scan_batch(r, s, err) : scan_whole(r, s, err);
}
