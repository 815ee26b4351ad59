/* sequence.c: sequences and optionals.
 *
 * A sequence shares its items: none is copied, but for tensors whose memory is not theirs (a caller's
 * buffer). An optional that holds something is that something; an empty one is VALUE_NONE. */
#include "base/mem.h"
#include "graph/exec.h"
#include "graph/ops/control.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

/* ---- types -------------------------------------------------------------------------------------------- */

static onnx_type tensor_type(elem e) {
    return (onnx_type){.kind = ONNX_TENSOR, .type = e};
}

static onnx_type sequence_type(const onnx_type *of) {
    return (onnx_type){.kind = ONNX_SEQUENCE, .of = of};
}

/* Type of the items of input i, which must be a sequence. */
static status item_type(const op_shapes *s, size_t i, onnx_type *out, error *err) {
    const onnx_type *t;
    TRY(shapes_in_value_type(s, i, &t, err));
    if (t->kind != ONNX_SEQUENCE || t->of == NULL)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "input %zu: expected a sequence, got another kind", i);
    *out = *t->of;
    out->has_shape = false; /* items differ */
    return CHURON_OK;
}

static status infer_item(op_shapes *s, error *err) {
    onnx_type item;
    TRY(item_type(s, 0, &item, err));
    shapes_out_unknown(s, 0);
    return shapes_out_value_type(s, 0, &item, err);
}

/* The output is the sequence of input 0 with other items. */
static status infer_same_sequence(op_shapes *s, error *err) {
    onnx_type item;
    TRY(item_type(s, 0, &item, err));
    elem given = op_n_inputs(shapes_node(s)) > 1 ? shapes_in_type(s, 1) : ELEM_NONE;
    bool inserts = strcmp(op_operator(shapes_node(s)), "SequenceInsert") == 0;
    if (inserts && item.kind == ONNX_TENSOR && item.type != given)
        return op_error(shapes_node(s), err, CHURON_INVALID, "tensor: expected %s as the sequence's, got %s",
                        elem_name(item.type), elem_name(given));
    onnx_type out = sequence_type(&item);
    return shapes_out_value_type(s, 0, &out, err);
}

static status infer_of_inputs(op_shapes *s, error *err) {
    onnx_type item = tensor_type(shapes_in_type(s, 0)), out = sequence_type(&item);
    return shapes_out_value_type(s, 0, &out, err);
}

static status infer_scalar(op_shapes *s, error *err) {
    return shapes_out(s, 0, 0, NULL, err);
}

/* ---- items -------------------------------------------------------------------------------------------- */

/* A reference that may outlive the run of this node. */
static status hold(const value *v, value *out, error *err) {
    if (v->kind != VALUE_TENSOR || v->t.storage) {
        *out = value_share(v);
        return CHURON_OK;
    }
    tensor copy;
    TRY(tensor_copy(&copy, &v->t, err));
    *out = value_of_tensor(copy);
    return CHURON_OK;
}

/* Input i as a sequence; another kind (a body may give anything) is an error. */
static status sequence_in(op_run *r, size_t i, const value **out, error *err) {
    *out = run_in_value(r, i);
    if (*out == NULL || (*out)->kind != VALUE_SEQUENCE)
        return run_error(r, err, CHURON_INVALID, "input %zu: expected a sequence, got another kind", i);
    return CHURON_OK;
}

/* Position input i in [-n, n + beyond): from 0. Absent: `absent`. */
static status position_in(op_run *r, size_t i, size_t n, size_t beyond, size_t absent, size_t *out,
                          error *err) {
    const tensor *t = run_in(r, i);
    *out = absent;
    if (t == NULL) return CHURON_OK;
    if (t->count != 1)
        return run_error(r, err, CHURON_INVALID, "position: expected one element, got %zu", t->count);
    int64_t at = index_at(t, 0), least = -(int64_t)n, most = (int64_t)(n + beyond) - 1;
    if (at < least || at > most)
        return run_error(r, err, CHURON_INVALID, "position: expected %lld to %lld (%zu items), got %lld",
                         (long long)least, (long long)most, n, (long long)at);
    *out = (size_t)(at < 0 ? at + (int64_t)n : at);
    return CHURON_OK;
}

static status run_at(op_run *r, error *err) {
    const value *sequence;
    size_t at;
    TRY(sequence_in(r, 0, &sequence, err));
    TRY(position_in(r, 1, value_count(sequence), 0, 0, &at, err));
    run_out_value(r, 0, value_share(value_item(sequence, at)));
    return CHURON_OK;
}

static status run_construct(op_run *r, error *err) {
    size_t n = op_n_inputs(run_node(r));
    value out;
    TRY(value_list_create(&out, VALUE_SEQUENCE, n, err));
    for (size_t i = 0; i < n; i++) {
        status st = hold(run_in_value(r, i), value_item(&out, i), err);
        if (st != CHURON_OK) {
            value_free(&out);
            return st;
        }
    }
    run_out_value(r, 0, out);
    return CHURON_OK;
}

/* The sequence without item `skip` (SIZE_MAX: all of it) and with `more` before item `before`. */
static status rebuilt(op_run *r, const value *sequence, size_t skip, const value *more, size_t before,
                      error *err) {
    size_t n = value_count(sequence), to = 0;
    value out;
    TRY(value_list_create(&out, VALUE_SEQUENCE, n - (skip != SIZE_MAX) + (more != NULL), err));
    for (size_t i = 0; i <= n; i++) {
        if (more && i == before) {
            status st = hold(more, value_item(&out, to++), err);
            if (st != CHURON_OK) {
                value_free(&out);
                return st;
            }
        }
        if (i < n && i != skip) *value_item(&out, to++) = value_share(value_item(sequence, i));
    }
    run_out_value(r, 0, out);
    return CHURON_OK;
}

static status run_erase(op_run *r, error *err) {
    const value *sequence;
    size_t at, n;
    TRY(sequence_in(r, 0, &sequence, err));
    n = value_count(sequence);
    if (n == 0) return run_error(r, err, CHURON_INVALID, "input 0: expected at least one item, got none");
    TRY(position_in(r, 1, n, 0, n - 1, &at, err));
    return rebuilt(r, sequence, at, NULL, 0, err);
}

static status run_insert(op_run *r, error *err) {
    const value *sequence;
    size_t at;
    TRY(sequence_in(r, 0, &sequence, err));
    TRY(position_in(r, 2, value_count(sequence), 1, value_count(sequence), &at, err));
    return rebuilt(r, sequence, SIZE_MAX, run_in_value(r, 1), at, err);
}

static status run_length(op_run *r, error *err) {
    const value *sequence;
    tensor *out;
    TRY(sequence_in(r, 0, &sequence, err));
    TRY(run_out_shaped(r, 0, ELEM_I64, 0, NULL, &out, err));
    *(int64_t *)out->data = (int64_t)value_count(sequence);
    return CHURON_OK;
}

/* ---- SequenceEmpty ------------------------------------------------------------------------------------ */

typedef struct sequence_state {
    int64_t type; /* SequenceEmpty */
    int64_t axis;
    bool new_axis, keep;
    size_t body;
} sequence_state;

static status new_state(op_node *n, sequence_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    return CHURON_OK;
}

static status prepare_empty(op_node *n, error *err) {
    sequence_state *s;
    TRY(new_state(n, &s, err));
    return op_attr_int(n, "dtype", ELEM_F32, 1, ELEM_COUNT - 1, &s->type, err);
}

static status infer_empty(op_shapes *s, error *err) {
    const sequence_state *state = shapes_state(s);
    onnx_type item = tensor_type((elem)state->type), out = sequence_type(&item);
    return shapes_out_value_type(s, 0, &out, err);
}

static status run_empty(op_run *r, error *err) {
    value out;
    TRY(value_list_create(&out, VALUE_SEQUENCE, 0, err));
    run_out_value(r, 0, out);
    return CHURON_OK;
}

/* ---- ConcatFromSequence ------------------------------------------------------------------------------- */

static status prepare_concat(op_node *n, error *err) {
    sequence_state *s;
    TRY(new_state(n, &s, err));
    if (!op_attr_present(n, "axis"))
        return op_error(n, err, CHURON_INVALID, "axis is required: expected a number, got none");
    TRY(op_attr_int(n, "axis", 0, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    return op_attr_bool(n, "new_axis", false, &s->new_axis, err);
}

/* Items must be alike but for the axis that they are joined along. */
static status check_items(op_run *r, const sequence_state *s, const value *sequence, size_t axis,
                          int64_t *dims, error *err) {
    size_t n = value_count(sequence);
    const tensor *first = &value_item(sequence, 0)->t;
    int64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const value *v = value_item(sequence, i);
        if (v->kind != VALUE_TENSOR || v->t.type != first->type || v->t.rank != first->rank)
            return run_error(r, err, CHURON_INVALID,
                             "item %zu: expected a tensor of type %s and rank %u as item 0, got another", i,
                             elem_name(first->type), first->rank);
        for (size_t d = 0; d < first->rank; d++)
            if (v->t.dims[d] != first->dims[d] && (s->new_axis || d != axis))
                return run_error(r, err, CHURON_INVALID, "item %zu: expected dimension %zu of %lld, got %lld",
                                 i, d, (long long)first->dims[d], (long long)v->t.dims[d]);
        total += s->new_axis ? 1 : v->t.dims[axis];
        if (total > (int64_t)TENSOR_MAX_BYTES)
            return run_error(r, err, CHURON_LIMIT, "expected a result of at most %llu bytes",
                             (unsigned long long)TENSOR_MAX_BYTES);
    }
    for (size_t d = 0, k = 0; d < first->rank + s->new_axis; d++)
        dims[d] = d == axis ? (k += !s->new_axis, total) : first->dims[k++];
    return CHURON_OK;
}

static status run_concat(op_run *r, error *err) {
    const sequence_state *s = run_state(r);
    const value *sequence;
    TRY(sequence_in(r, 0, &sequence, err));
    size_t n = value_count(sequence), axis;
    if (n == 0 || value_item(sequence, 0)->kind != VALUE_TENSOR)
        return run_error(r, err, CHURON_INVALID, "input 0: expected at least one tensor, got none");
    const tensor *first = &value_item(sequence, 0)->t;
    size_t rank = first->rank + s->new_axis;
    if (rank > TENSOR_MAX_RANK)
        return run_error(r, err, CHURON_LIMIT, "output: expected rank %d at most, got %zu", TENSOR_MAX_RANK,
                         rank);
    TRY(op_axis(run_node(r), s->axis, rank, "axis", &axis, err));
    int64_t dims[TENSOR_MAX_RANK];
    TRY(check_items(r, s, sequence, axis, dims, err));
    tensor *out;
    TRY(run_out_shaped(r, 0, first->type, rank, dims, &out, err));
    if (out == NULL) return CHURON_OK;
    size_t outer = dims_product(dims, 0, axis), inner = dims_product(dims, axis + 1, rank), at = 0;
    size_t row = (size_t)dims[axis] * inner, size = tensor_elem_size(out);
    for (size_t i = 0; i < n; i++) {
        const tensor *x = &value_item(sequence, i)->t;
        size_t part = (s->new_axis ? 1 : (size_t)x->dims[axis]) * inner;
        move m = {0};
        move_dim(&m, (int64_t)outer, (ptrdiff_t)row, (ptrdiff_t)part);
        move_dim(&m, (int64_t)part, 1, 1);
        move_run(r, &m, (char *)out->data + at * size, x->data, size);
        at += part;
    }
    return strings_own(out, err);
}

/* ---- SplitToSequence ---------------------------------------------------------------------------------- */

static status prepare_split(op_node *n, error *err) {
    sequence_state *s;
    TRY(new_state(n, &s, err));
    TRY(op_attr_int(n, "axis", 0, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    return op_attr_bool(n, "keepdims", true, &s->keep, err);
}

/* Number of parts; *each: their size, 0 if the input says them one by one. */
static status count_parts(op_run *r, const tensor *by, int64_t whole, size_t *parts, int64_t *each,
                          error *err) {
    *each = 1;
    *parts = (size_t)whole;
    if (by == NULL) return CHURON_OK;
    if (by->rank == 0) {
        *each = index_at(by, 0);
        if (*each < 1)
            return run_error(r, err, CHURON_INVALID, "split: expected at least 1, got %lld",
                             (long long)*each);
        *parts = (size_t)(whole / *each + (whole % *each != 0));
        return CHURON_OK;
    }
    *each = 0;
    *parts = by->count;
    int64_t left = whole;
    for (size_t i = 0; i < by->count; i++) {
        int64_t size = index_at(by, i);
        if (size < 0 || size > left)
            return run_error(r, err, CHURON_INVALID,
                             "split[%zu]: expected 0 to %lld (what is left), got %lld", i, (long long)left,
                             (long long)size);
        left -= size;
    }
    if (left != 0)
        return run_error(r, err, CHURON_INVALID, "split: expected a sum of %lld (the axis), got %lld",
                         (long long)whole, (long long)(whole - left));
    return CHURON_OK;
}

static status cut(op_run *r, const tensor *x, size_t axis, int64_t from, int64_t n, bool drop, value *out,
                  error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = 0;
    for (size_t d = 0; d < x->rank; d++)
        if (d != axis || !drop) dims[rank++] = d == axis ? n : x->dims[d];
    tensor part;
    TRY(tensor_alloc(&part, x->type, rank, dims, err));
    size_t outer = dims_product(x->dims, 0, axis), inner = dims_product(x->dims, axis + 1, x->rank);
    size_t size = tensor_elem_size(x);
    move m = {0};
    move_dim(&m, (int64_t)outer, (ptrdiff_t)((size_t)n * inner), (ptrdiff_t)((size_t)x->dims[axis] * inner));
    move_dim(&m, n * (int64_t)inner, 1, 1);
    move_run(r, &m, part.data, (const char *)x->data + (size_t)from * inner * size, size);
    status st = strings_own(&part, err);
    if (st == CHURON_OK)
        *out = value_of_tensor(part);
    else
        tensor_free(&part);
    return st;
}

static status run_split(op_run *r, error *err) {
    const sequence_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *by = run_in(r, 1);
    size_t axis, parts;
    int64_t each, from = 0;
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    TRY(count_parts(r, by, x->dims[axis], &parts, &each, err));
    value out;
    const uint64_t bytes = (uint64_t)parts * EXEC_ITEM_BYTES + tensor_held_bytes(x);
    TRY(exec_charge(r, bytes, err)); /* that there is room; the list is counted as an output */
    exec_uncharge(r, bytes);
    TRY(value_list_create(&out, VALUE_SEQUENCE, parts, err));
    for (size_t i = 0; i < parts; i++) {
        int64_t left = x->dims[axis] - from, n = each ? (each < left ? each : left) : index_at(by, i);
        status st = i % 256 ? CHURON_OK : run_check(r, err);
        if (st == CHURON_OK) st = cut(r, x, axis, from, n, by == NULL && !s->keep, value_item(&out, i), err);
        if (st != CHURON_OK) {
            value_free(&out);
            return st;
        }
        from += n;
    }
    run_out_value(r, 0, out);
    return CHURON_OK;
}

/* ---- SequenceMap -------------------------------------------------------------------------------------- */

static status prepare_map(op_node *n, error *err) {
    sequence_state *s;
    TRY(new_state(n, &s, err));
    return op_attr_body(n, "body", &s->body, err);
}

static status infer_map(op_shapes *s, error *err) {
    if (shapes_running(s)) return CHURON_OK;
    const sequence_state *state = shapes_state(s);
    const op_node *n = shapes_node(s);
    ir_value *formal = mem_calloc(n->n_inputs, sizeof *formal);
    ir_value **pointers = mem_calloc(n->n_inputs, sizeof *pointers);
    status st = formal && pointers ? CHURON_OK : ir_no_memory(err);
    for (size_t i = 0; i < n->n_inputs && st == CHURON_OK; i++) {
        pointers[i] = &formal[i];
        formal[i] = *n->inputs[i];
        if (i == 0 || formal[i].type.kind == ONNX_SEQUENCE) {
            st = item_type(s, i, &formal[i].type, err);
            formal[i].has_rank = false;
        }
        formal[i].is_constant = false; /* another item each time */
        formal[i].known = NULL;
    }
    if (st == CHURON_OK) st = ir_infer_body(s, state->body, pointers, n->n_inputs, err);
    const ir_graph *body = n->bodies[state->body];
    if (st == CHURON_OK && body->n_outputs != n->n_outputs)
        st = op_error(n, err, CHURON_INVALID, "body '%s': expected %zu outputs, got %zu", body->name,
                      n->n_outputs, body->n_outputs);
    for (size_t i = 0; i < n->n_outputs && st == CHURON_OK; i++) {
        onnx_type item = body->outputs[i]->type, out = sequence_type(&item);
        item.has_shape = false;
        st = shapes_out_value_type(s, i, &out, err);
    }
    mem_free(formal);
    mem_free(pointers);
    return st;
}

/* Item `at` of every sequence; what is no sequence is the same each time. Borrowed. */
static status map_inputs(op_run *r, value *in, size_t n_in, size_t at, error *err) {
    size_t n = value_count(run_in_value(r, 0));
    for (size_t i = 0; i < n_in; i++) {
        const value *v = run_in_value(r, i);
        in[i] = *v;
        if (v->kind != VALUE_SEQUENCE) continue;
        if (value_count(v) != n)
            return run_error(r, err, CHURON_INVALID, "input %zu: expected %zu items as input 0, got %zu", i,
                             n, value_count(v));
        in[i] = *value_item(v, at);
    }
    return CHURON_OK;
}

/* What the body gave, counted among `held`. */
static status keep_item(op_run *r, const value *v, value *out, uint64_t *held, error *err) {
    const uint64_t bytes = v->kind == VALUE_TENSOR ? tensor_held_bytes(&v->t) : 0;
    TRY(exec_charge(r, bytes, err));
    *held += bytes;
    return hold(v, out, err);
}

static status run_map(op_run *r, error *err) {
    const sequence_state *s = run_state(r);
    const value *first;
    TRY(sequence_in(r, 0, &first, err));
    size_t n = value_count(first), n_in = op_n_inputs(run_node(r)), n_out = op_n_outputs(run_node(r));
    value *all = mem_calloc(n_in + 2 * n_out, sizeof *all), *in = all, *given = all + n_in,
          *out = given + n_out;
    status st = all ? CHURON_OK : error_no_memory(err, "SequenceMap", (n_in + 2 * n_out) * sizeof *all);
    if (st != CHURON_OK) return st;
    uint64_t held = (uint64_t)n * n_out * EXEC_ITEM_BYTES; /* counted here until they are outputs */
    if (exec_charge(r, held, err) != CHURON_OK) {
        mem_free(all);
        return CHURON_LIMIT;
    }
    for (size_t k = 0; k < n_out && st == CHURON_OK; k++)
        st = value_list_create(&out[k], VALUE_SEQUENCE, n, err);
    for (size_t i = 0; i < n && st == CHURON_OK; i++) {
        st = run_check(r, err);
        if (st == CHURON_OK) st = map_inputs(r, in, n_in, i, err);
        if (st == CHURON_OK) st = run_body(r, s->body, in, n_in, given, n_out, err);
        for (size_t k = 0; k < n_out && st == CHURON_OK; k++) {
            st = keep_item(r, &given[k], value_item(&out[k], i), &held, err);
            value_free(&given[k]);
            given[k] = (value){0};
        }
    }
    exec_uncharge(r, held);
    for (size_t k = 0; k < n_out; k++) {
        value_free(&given[k]);
        if (st == CHURON_OK)
            run_out_value(r, k, out[k]);
        else
            value_free(&out[k]);
    }
    mem_free(all);
    return st;
}

/* ---- optionals ---------------------------------------------------------------------------------------- */

typedef struct optional_state {
    const onnx_type *type; /* of the model; NULL: that of the input */
} optional_state;

static status prepare_optional(op_node *n, error *err) {
    optional_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_type(n, "type", &s->type, err));
    if (s->type == NULL && !op_has_input(n, 0))
        return op_error(n, err, CHURON_INVALID, "expected an input or the attribute type, got neither");
    return CHURON_OK;
}

static status infer_optional(op_shapes *s, error *err) {
    const optional_state *state = shapes_state(s);
    const onnx_type *of = state->type;
    if (op_has_input(shapes_node(s), 0)) TRY(shapes_in_value_type(s, 0, &of, err));
    onnx_type out = {.kind = ONNX_OPTIONAL, .of = of};
    return shapes_out_value_type(s, 0, &out, err);
}

static status run_optional(op_run *r, error *err) {
    const value *v = run_in_value(r, 0);
    value out = {0};
    if (v) TRY(hold(v, &out, err));
    run_out_value(r, 0, out);
    return CHURON_OK;
}

static status infer_get(op_shapes *s, error *err) {
    const onnx_type *t;
    TRY(shapes_in_value_type(s, 0, &t, err));
    if (t->kind != ONNX_OPTIONAL && op_version(shapes_node(s)) < 18)
        return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected an optional, got another kind");
    if (t->kind == ONNX_OPTIONAL) t = t->of;
    size_t rank;
    const dim *dims;
    if (t->kind == ONNX_TENSOR && shapes_in(s, 0, &rank, &dims)) TRY(shapes_out(s, 0, rank, dims, err));
    return shapes_out_value_type(s, 0, t, err);
}

static status run_get(op_run *r, error *err) {
    const value *v = run_in_value(r, 0);
    if (v == NULL || v->kind == VALUE_NONE)
        return run_error(r, err, CHURON_INVALID,
                         "input: expected an optional that holds a value, got an empty one");
    value out;
    TRY(hold(v, &out, err));
    run_out_value(r, 0, out);
    return CHURON_OK;
}

static status run_has(op_run *r, error *err) {
    const value *v = run_in_value(r, 0);
    tensor *out;
    TRY(run_out_shaped(r, 0, ELEM_BOOL, 0, NULL, &out, err));
    if (out) *(uint8_t *)out->data = v != NULL && v->kind != VALUE_NONE;
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define SEQUENCE(name, since, until, signature, types, prepare, infer, run)                                  \
    {                                                                                                        \
        "", name, since, until, OP_OWN_INFERENCE, signature, {{'T', types}, {'I', TYPES_INDEX}}, prepare,    \
            mem_free, infer, NULL, run                                                                       \
    }

static const op_def rows[] = {
    SEQUENCE("SequenceAt", 11, 0, "?I>@", 0, NULL, infer_item, run_at),
    SEQUENCE("SequenceConstruct", 11, 0, "T*>@", TYPES_ALL_1, NULL, infer_of_inputs, run_construct),
    SEQUENCE("SequenceEmpty", 11, 0, ">@", 0, prepare_empty, infer_empty, run_empty),
    SEQUENCE("SequenceErase", 11, 0, "?=I>@", 0, NULL, infer_same_sequence, run_erase),
    SEQUENCE("SequenceInsert", 11, 0, "?T=I>@", TYPES_ALL_1, NULL, infer_same_sequence, run_insert),
    SEQUENCE("SequenceLength", 11, 0, "?>i", 0, NULL, infer_scalar, run_length),
    SEQUENCE("SequenceMap", 17, 0, "?=?+>@+", 0, prepare_map, infer_map, run_map),
    SEQUENCE("ConcatFromSequence", 11, 0, "?>@", 0, prepare_concat, infer_item, run_concat),
    SEQUENCE("SplitToSequence", 11, 23, "T=I>@", TYPES_ALL_1, prepare_split, infer_of_inputs, run_split),
    SEQUENCE("SplitToSequence", 24, 0, "T=I>@", TYPES_ALL_13, prepare_split, infer_of_inputs, run_split),
    SEQUENCE("Optional", 15, 0, "=?>@", 0, prepare_optional, infer_optional, run_optional),
    SEQUENCE("OptionalGetElement", 15, 17, "?>@", 0, NULL, infer_get, run_get),
    SEQUENCE("OptionalGetElement", 18, 0, "?>@", 0, NULL, infer_get, run_get),
    SEQUENCE("OptionalHasElement", 15, 17, "?>b", 0, NULL, infer_scalar, run_has),
    SEQUENCE("OptionalHasElement", 18, 0, "=?>b", 0, NULL, infer_scalar, run_has),
};
const op_table ops_sequence = {rows, sizeof rows / sizeof *rows};
