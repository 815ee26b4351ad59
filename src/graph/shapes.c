/* shapes.c: what a shape rule sees and says, when a graph is loaded (symbols) and when it runs (numbers). */
#include "graph/exec.h"

#include <inttypes.h>
#include <string.h>

const op_node *shapes_node(const op_shapes *s) {
    return s->node;
}

void *shapes_state(const op_shapes *s) {
    return s->node->state;
}

bool shapes_running(const op_shapes *s) {
    return s->exec != NULL;
}

/* ---- inputs ----------------------------------------------------------------------------------------- */

static const tensor *running_tensor(const op_shapes *s, size_t i) {
    if (i >= s->node->n_inputs || s->in[i] == IR_NO_SLOT) return NULL;
    const value *v = &s->slots[s->in[i]];
    return v->kind == VALUE_TENSOR ? &v->t : NULL;
}

static const ir_value *described(const op_shapes *s, size_t i) {
    return i < s->node->n_inputs ? s->node->inputs[i] : NULL;
}

bool shapes_in(const op_shapes *s, size_t i, size_t *rank, const dim **dims) {
    if (s->exec) {
        const tensor *t = running_tensor(s, i);
        if (!t) return false;
        *rank = t->rank;
        *dims = t->dims;
        return true;
    }
    const ir_value *v = described(s, i);
    if (!v || !v->has_rank) return false;
    *rank = v->rank;
    *dims = v->dims;
    return true;
}

elem shapes_in_type(const op_shapes *s, size_t i) {
    return op_input_type(s->node, i);
}

const tensor *shapes_in_tensor(const op_shapes *s, size_t i) {
    if (!s->exec) return op_constant(s->node, i);
    ((op_shapes *)(uintptr_t)s)->reads |= (uint64_t)1 << (i < 63 ? i : 63);
    return running_tensor(s, i);
}

static void *temporary(const op_shapes *s, size_t bytes) {
    void *p = s->exec ? exec_scratch(s->exec, bytes) : arena_array(&s->program->memory, 1, bytes);
    if (!p) ((op_shapes *)(uintptr_t)s)->out_of_memory = true;
    return p;
}

/* Elements as dims. */
static bool tensor_values(const op_shapes *s, const tensor *t, size_t *n, const dim **values) {
    *n = t->count;
    if (t->type != ELEM_I64 && t->type != ELEM_I32) return false;
    if (t->type == ELEM_I64) {
        const int64_t *data = t->data;
        bool plain = true;
        for (size_t i = 0; i < t->count; i++) plain = plain && dim_known(data[i]);
        *values = data;
        if (plain) return true;
    }
    dim *copy = temporary(s, t->count * sizeof *copy);
    if (!copy) return false;
    for (size_t i = 0; i < t->count; i++) {
        int64_t v = t->type == ELEM_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
        copy[i] = dim_position(v);
        if (copy[i] != v) ((op_shapes *)(uintptr_t)s)->inexact = true;
    }
    *values = copy;
    return true;
}

bool shapes_in_values(const op_shapes *s, size_t i, size_t *n, const dim **values) {
    const tensor *t = shapes_in_tensor(s, i);
    if (t) return tensor_values(s, t, n, values);
    if (s->exec) return false;
    const ir_value *v = described(s, i);
    if (!v || !v->known) return false;
    *n = v->n_known;
    *values = v->known;
    return true;
}

bool shapes_exact(const op_shapes *s) {
    return !s->inexact;
}

bool shapes_in_positions(const op_shapes *s, size_t i, size_t *n, const dim **values) {
    const bool before = s->inexact, known = shapes_in_values(s, i, n, values);
    ((op_shapes *)(uintptr_t)s)->inexact = before;
    return known;
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

status shapes_out(op_shapes *s, size_t i, size_t rank, const dim *dims, error *err) {
    if (i >= s->node->n_outputs) return CHURON_OK;
    shape_out *o = &s->out[i];
    if (rank > TENSOR_MAX_RANK) {
        return op_error(s->node, err, CHURON_UNSUPPORTED,
                        "output %zu: expected a rank of at most %d, got %zu", i, TENSOR_MAX_RANK, rank);
    }
    o->rank = (uint32_t)rank;
    o->state = SHAPE_KNOWN;
    for (size_t k = 0; k < rank; k++) {
        o->dims[k] = dims[k];
        if (!dim_known(dims[k])) {
            o->state = SHAPE_PARTIAL;
        } else if (dims[k] < 0) {
            return op_error(s->node, err, CHURON_INVALID,
                            "output %zu: expected dimension %zu to be at least 0, got %" PRId64, i, k,
                            dims[k]);
        }
    }
    return CHURON_OK;
}

void shapes_out_unknown(op_shapes *s, size_t i) {
    if (i < s->node->n_outputs) s->out[i].state = SHAPE_UNKNOWN;
}

void shapes_out_type(op_shapes *s, size_t i, elem type) {
    if (i < s->node->n_outputs) s->out[i].type = type;
}

void shapes_out_values(op_shapes *s, size_t i, size_t n, const dim *values) {
    if (s->exec || s->inexact || i >= s->node->n_outputs || n > OP_MAX_VALUES) return;
    dim *copy = temporary(s, n * sizeof *copy);
    if (!copy) return;
    if (n) memcpy(copy, values, n * sizeof *copy);
    s->out[i].values = copy;
    s->out[i].n_values = n;
}

status shapes_in_value_type(const op_shapes *s, size_t i, const onnx_type **out, error *err) {
    *out = NULL;
    if (i >= s->node->n_inputs || !s->node->inputs[i]) {
        return op_error(s->node, err, CHURON_CORRUPT, "input %zu: expected a value, got none", i);
    }
    if (s->exec) {
        *out = &s->node->inputs[i]->type;
        return CHURON_OK;
    }
    onnx_type *t = arena_array(&s->program->memory, 1, sizeof *t);
    if (!t) return ir_no_memory(err);
    *out = t;
    return ir_value_type(s->node->inputs[i], t, err);
}

static status copy_type(arena *memory, const onnx_type *from, const onnx_type **out, int depth, error *err) {
    onnx_type *t = arena_array(memory, 1, sizeof *t);
    if (!t || depth > IR_MAX_DEPTH) return ir_no_memory(err);
    *t = *from;
    if (from->has_shape && from->rank) {
        onnx_dim *dims = arena_array(memory, from->rank, sizeof *dims);
        if (!dims) return ir_no_memory(err);
        memcpy(dims, from->dims, from->rank * sizeof *dims);
        t->dims = dims;
    }
    *out = t;
    return from->of ? copy_type(memory, from->of, &t->of, depth + 1, err) : CHURON_OK;
}

status shapes_out_value_type(op_shapes *s, size_t i, const onnx_type *type, error *err) {
    if (s->exec || i >= s->node->n_outputs) return CHURON_OK;
    return copy_type(&s->program->memory, type, &s->out[i].value_type, 0, err);
}

/* ---- dimensions ------------------------------------------------------------------------------------- */

dim dim_fresh(op_shapes *s) {
    /* A run has numbers only: what depends on data is said by run_out_shaped. */
    return s->exec ? DIM_SYMBOL_BASE : symbols_fresh(&s->program->symbols);
}

/* Sums and products that leave 62 bits are as large as any: no shape is that big, shapes_out refuses them. */
static const int64_t most = INT64_MAX / 4;

static int64_t clamp(op_shapes *s, int64_t v) {
    if (v >= -most && v <= most) return v;
    s->inexact = true;
    return v > most ? most : -most;
}

dim dim_add(op_shapes *s, dim a, dim b) {
    if (dim_known(a) && dim_known(b)) return clamp(s, clamp(s, a) + clamp(s, b));
    return s->exec ? dim_fresh(s) : symbols_add(&s->program->symbols, a, b);
}

dim dim_sub(op_shapes *s, dim a, dim b) {
    if (dim_known(a) && dim_known(b)) return clamp(s, clamp(s, a) - clamp(s, b));
    return s->exec ? dim_fresh(s) : symbols_sub(&s->program->symbols, a, b);
}

dim dim_mul(op_shapes *s, dim a, dim b) {
    if (a == 0 || b == 0) return 0;
    if (dim_known(a) && dim_known(b)) {
        int64_t x = clamp(s, a), y = clamp(s, b), size_x = x < 0 ? -x : x, size_y = y < 0 ? -y : y;
        if (size_x > most / size_y) {
            s->inexact = true;
            return (x < 0) == (y < 0) ? most : -most;
        }
        return x * y;
    }
    return s->exec ? dim_fresh(s) : symbols_mul(&s->program->symbols, a, b);
}

dim dim_div_floor(op_shapes *s, dim a, dim b) {
    if (b == 0) return 0;
    if (dim_known(a) && dim_known(b)) {
        int64_t q = a / b;
        return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
    }
    return s->exec ? dim_fresh(s) : symbols_div(&s->program->symbols, a, b, false);
}

dim dim_div_ceil(op_shapes *s, dim a, dim b) {
    if (b == 0) return 0;
    if (dim_known(a) && dim_known(b)) {
        int64_t q = a / b;
        return a % b != 0 && (a < 0) == (b < 0) ? q + 1 : q;
    }
    return s->exec ? dim_fresh(s) : symbols_div(&s->program->symbols, a, b, true);
}

dim dim_max(op_shapes *s, dim a, dim b) {
    if (dim_known(a) && dim_known(b)) return a > b ? a : b;
    return s->exec ? dim_fresh(s) : symbols_most(&s->program->symbols, a, b);
}

dim dim_min(op_shapes *s, dim a, dim b) {
    if (dim_known(a) && dim_known(b)) return a < b ? a : b;
    return s->exec ? dim_fresh(s) : symbols_least(&s->program->symbols, a, b);
}

status shapes_same(op_shapes *s, dim a, dim b, const char *what, dim *out, error *err) {
    if (out) *out = dim_known(a) ? a : b;
    if (dim_known(a) && dim_known(b) && a != b) {
        return op_error(s->node, err, CHURON_INVALID,
                        "%s: expected equal dimensions, got %" PRId64 " and %" PRId64, what, a, b);
    }
    return CHURON_OK;
}

status op_axis(const op_node *n, int64_t axis, size_t rank, const char *name, size_t *out, error *err) {
    int64_t r = (int64_t)rank;
    if (axis < -r || axis >= r) {
        return op_error(n, err, CHURON_INVALID, "%s: expected %" PRId64 " to %" PRId64 ", got %" PRId64, name,
                        -r, r - 1, axis);
    }
    *out = (size_t)(axis < 0 ? axis + r : axis);
    return CHURON_OK;
}

/* ---- usual rules ------------------------------------------------------------------------------------ */

/* *d becomes the broadcast of *d and e. */
static status broadcast_dim(op_shapes *s, dim *d, dim e, size_t from_end, error *err) {
    if (*d == e || e == 1) return CHURON_OK;
    if (*d == 1) {
        *d = e;
        return CHURON_OK;
    }
    if (dim_known(*d) && dim_known(e)) {
        return op_error(s->node, err, CHURON_INVALID,
                        "inputs: expected dimensions that are equal or 1, got %" PRId64 " and %" PRId64
                        " as dimension -%zu",
                        *d, e, from_end);
    }
    /* A number above 1 decides; of two symbols either may be 1. */
    if (dim_known(e)) {
        *d = e;
    } else if (!dim_known(*d)) {
        *d = dim_fresh(s);
    }
    return CHURON_OK;
}

status shapes_broadcast(op_shapes *s, size_t from, size_t to, size_t *rank, dim *dims, error *err) {
    *rank = 0;
    for (size_t i = from; i < to; i++) {
        size_t r;
        const dim *d;
        if (!op_has_input(s->node, i)) continue;
        if (!shapes_in(s, i, &r, &d)) {
            *rank = SIZE_MAX;
            return CHURON_OK;
        }
        if (r > *rank) *rank = r;
    }
    for (size_t k = 0; k < *rank; k++) dims[k] = 1;
    for (size_t i = from; i < to; i++) {
        size_t r;
        const dim *d;
        if (!shapes_in(s, i, &r, &d)) continue;
        for (size_t k = 0; k < r; k++) TRY(broadcast_dim(s, &dims[*rank - r + k], d[k], r - k, err));
    }
    return CHURON_OK;
}

status infer_same(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    if (shapes_in(s, 0, &rank, &dims)) return shapes_out(s, 0, rank, dims, err);
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

status infer_broadcast(op_shapes *s, error *err) {
    size_t rank;
    dim dims[TENSOR_MAX_RANK];
    TRY(shapes_broadcast(s, 0, s->node->n_inputs, &rank, dims, err));
    if (rank != SIZE_MAX) return shapes_out(s, 0, rank, dims, err);
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}
