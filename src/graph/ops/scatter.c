/* scatter.c: Scatter, ScatterElements, ScatterND, TensorScatter.
 *
 * The output begins as a copy of the data (or is the data, where the executor gives it away). Updates are
 * applied in their order on one thread, so that repeated indices have one answer. */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

typedef struct scatter_state {
    int64_t axis;
    int reduction; /* 0: none */
    int circular;
} scatter_state;

static const char *const reductions[] = {"none", "add", "mul", "max", "min", NULL};
static const binary_op reduction_ops[] = {BINARY_ADD, BINARY_ADD, BINARY_MUL, BINARY_MAX, BINARY_MIN};

static status new_state(op_node *n, scatter_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    return CHURON_OK;
}

static status read_reduction(op_node *n, scatter_state *s, error *err) {
    if (op_version(n) < 16) return CHURON_OK;
    TRY(op_attr_choice(n, "reduction", reductions, 0, &s->reduction, err));
    if (op_version(n) < 18 && s->reduction > 2)
        return op_error(n, err, CHURON_INVALID, "reduction: expected none, add or mul, got %s",
                        reductions[s->reduction]);
    elem type = op_input_type(n, 0);
    if (s->reduction && !binary_known(reduction_ops[s->reduction], type))
        return op_error(n, err, CHURON_UNSUPPORTED, "reduction %s: expected a type that has it, got %s",
                        reductions[s->reduction], elem_name(type));
    return CHURON_OK;
}

static status prepare_elements(op_node *n, error *err) {
    scatter_state *s;
    TRY(new_state(n, &s, err));
    TRY(op_attr_int(n, "axis", 0, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    return read_reduction(n, s, err);
}

static status prepare_nd(op_node *n, error *err) {
    scatter_state *s;
    TRY(new_state(n, &s, err));
    return read_reduction(n, s, err);
}

static status prepare_tensor_scatter(op_node *n, error *err) {
    scatter_state *s;
    TRY(new_state(n, &s, err));
    TRY(op_attr_int(n, "axis", -2, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    return op_attr_choice(n, "mode", (const char *const[]){"linear", "circular", NULL}, 0, &s->circular, err);
}

/* Output 0 with the contents of input 0. */
static status copied_output(op_run *r, tensor **out, error *err) {
    const tensor *x = run_in(r, 0);
    TRY(run_out(r, 0, out, err));
    if ((*out)->data == x->data) return CHURON_OK;
    move m = {0};
    move_dim(&m, (int64_t)x->count, 1, 1);
    move_run(r, &m, (*out)->data, x->data, tensor_elem_size(x));
    return CHURON_OK;
}

static status checked_index(op_run *r, const tensor *indices, size_t i, int64_t size, size_t *out,
                            error *err) {
    int64_t v = index_at(indices, i);
    *out = 0;
    if (v < -size || v >= size)
        return run_error(r, err, CHURON_INVALID, "indices: element %zu: expected %lld to %lld, got %lld", i,
                         (long long)-size, (long long)(size - 1), (long long)v);
    *out = (size_t)(v < 0 ? v + size : v);
    return CHURON_OK;
}

/* to[0, n) = from, or reduced with it. */
static void update(const scatter_state *s, const tensor *out, size_t at, const char *from, size_t n) {
    size_t size = tensor_elem_size(out);
    char *to = (char *)out->data + at * size;
    if (s->reduction == 0)
        memcpy(to, from, n * size);
    else
        binary_apply(reduction_ops[s->reduction], out->type, to, from, to, n, BINARY_BOTH);
}

/* ---- ScatterElements ---------------------------------------------------------------------------------- */

static status infer_elements(op_shapes *s, error *err) {
    const scatter_state *state = shapes_state(s);
    size_t rank, rank_i, rank_u, axis;
    const dim *dims, *indices, *updates;
    if (shapes_in(s, 0, &rank, &dims) && shapes_in(s, 1, &rank_i, &indices) &&
        shapes_in(s, 2, &rank_u, &updates)) {
        const op_node *node = shapes_node(s);
        if (rank == 0 || rank_i != rank || rank_u != rank)
            return op_error(node, err, CHURON_INVALID,
                            "data, indices, updates: expected one rank (1 or more), got %zu, %zu, %zu", rank,
                            rank_i, rank_u);
        TRY(op_axis(node, state->axis, rank, "axis", &axis, err));
        for (size_t d = 0; d < rank; d++) {
            TRY(shapes_same(s, indices[d], updates[d], "a dimension of indices and of updates", NULL, err));
            if (d != axis && dim_known(dims[d]) && dim_known(indices[d]) && indices[d] > dims[d])
                return op_error(node, err, CHURON_INVALID,
                                "indices: expected dimension %zu to be at most %lld, got %lld", d,
                                (long long)dims[d], (long long)indices[d]);
        }
    }
    return infer_same(s, err);
}

static status run_elements(op_run *r, error *err) {
    const scatter_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *indices = run_in(r, 1), *updates = run_in(r, 2);
    size_t axis, rank = x->rank, size = tensor_elem_size(x), base = 0, index[TENSOR_MAX_RANK] = {0};
    TRY(op_axis(run_node(r), s->axis, rank, "axis", &axis, err));
    for (size_t i = 0; i < indices->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        size_t on_axis;
        TRY(checked_index(r, indices, i, x->dims[axis], &on_axis, err));
    }
    tensor *out;
    TRY(copied_output(r, &out, err));
    ptrdiff_t strides[TENSOR_MAX_RANK];
    move_strides(x->dims, rank, strides);
    for (size_t i = 0; i < indices->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        size_t on_axis;
        TRY(checked_index(r, indices, i, x->dims[axis], &on_axis, err));
        update(s, out, base + on_axis * (size_t)strides[axis], (const char *)updates->data + i * size, 1);
        for (size_t d = rank; d-- > 0;) {
            if (d != axis) base += (size_t)strides[d];
            if (++index[d] < (size_t)indices->dims[d]) break;
            if (d != axis) base -= index[d] * (size_t)strides[d];
            index[d] = 0;
        }
    }
    return strings_own(out, err);
}

/* ---- ScatterND ---------------------------------------------------------------------------------------- */

static status infer_nd(op_shapes *s, error *err) {
    size_t rank, q, rank_u;
    const dim *dims, *indices, *updates;
    if (shapes_in(s, 0, &rank, &dims) && shapes_in(s, 1, &q, &indices)) {
        const op_node *node = shapes_node(s);
        if (rank == 0 || q == 0)
            return op_error(node, err, CHURON_INVALID,
                            "data and indices: expected rank 1 or more, got %zu and %zu", rank, q);
        dim k = indices[q - 1];
        if (dim_known(k)) {
            if (k < 0 || k > (dim)rank)
                return op_error(node, err, CHURON_INVALID,
                                "indices: expected a last dimension of at most %zu, got %lld", rank,
                                (long long)k);
            if (shapes_in(s, 2, &rank_u, &updates)) {
                if (rank_u != q - 1 + rank - (size_t)k)
                    return op_error(node, err, CHURON_INVALID, "updates: expected rank %zu, got %zu",
                                    q - 1 + rank - (size_t)k, rank_u);
                for (size_t d = 0; d < rank_u; d++)
                    TRY(shapes_same(s, updates[d], d < q - 1 ? indices[d] : dims[(size_t)k + d - (q - 1)],
                                    "a dimension of updates", NULL, err));
            }
        }
    }
    return infer_same(s, err);
}

static status run_nd(op_run *r, error *err) {
    const scatter_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *indices = run_in(r, 1), *updates = run_in(r, 2);
    size_t k = (size_t)indices->dims[indices->rank - 1], size = tensor_elem_size(x);
    size_t tuples = dims_product(indices->dims, 0, indices->rank - 1),
           slice = dims_product(x->dims, k, x->rank);
    void *scratch;
    TRY(run_scratch(r, tuples * sizeof(size_t), &scratch, err));
    size_t *at = scratch;
    for (size_t t = 0; t < tuples; t++) {
        if (t % 65536 == 0) TRY(run_check(r, err));
        at[t] = 0;
        for (size_t c = 0; c < k; c++) {
            size_t v;
            TRY(checked_index(r, indices, t * k + c, x->dims[c], &v, err));
            at[t] = at[t] * (size_t)x->dims[c] + v;
        }
    }
    tensor *out;
    TRY(copied_output(r, &out, err));
    for (size_t t = 0; t < tuples; t++) {
        if (t % 4096 == 0) TRY(run_check(r, err));
        update(s, out, at[t] * slice, (const char *)updates->data + t * slice * size, slice);
    }
    return strings_own(out, err);
}

/* ---- TensorScatter ------------------------------------------------------------------------------------ */

static status infer_tensor_scatter(op_shapes *s, error *err) {
    const scatter_state *state = shapes_state(s);
    const op_node *node = shapes_node(s);
    size_t rank, rank_u, axis;
    const dim *dims, *updates;
    if (shapes_in(s, 0, &rank, &dims) && shapes_in(s, 1, &rank_u, &updates)) {
        if (rank != rank_u)
            return op_error(node, err, CHURON_INVALID, "update: expected rank %zu as past_cache, got %zu",
                            rank, rank_u);
        TRY(op_axis(node, state->axis, rank, "axis", &axis, err));
        if (axis == 0)
            return op_error(node, err, CHURON_INVALID, "axis: expected another than 0 (the batch), got 0");
        for (size_t d = 0; d < rank; d++) {
            if (d != axis)
                TRY(shapes_same(s, dims[d], updates[d], "a dimension of past_cache and of update", NULL,
                                err));
            else if (dim_known(dims[d]) && dim_known(updates[d]) && updates[d] > dims[d])
                return op_error(node, err, CHURON_INVALID,
                                "update: expected at most %lld (the cache's length), got %lld",
                                (long long)dims[d], (long long)updates[d]);
        }
        size_t rank_w;
        const dim *writes;
        if (op_has_input(node, 2) && shapes_in(s, 2, &rank_w, &writes)) {
            if (rank_w != 1)
                return op_error(node, err, CHURON_INVALID, "write_indices: expected rank 1, got %zu", rank_w);
            TRY(shapes_same(s, writes[0], dims[0], "write_indices and the batch", NULL, err));
        }
    }
    return infer_same(s, err);
}

static status run_tensor_scatter(op_run *r, error *err) {
    const scatter_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *u = run_in(r, 1), *writes = run_in(r, 2);
    size_t axis;
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    int64_t length = x->dims[axis], n = u->dims[axis];
    for (size_t b = 0; writes && b < writes->count; b++) {
        int64_t at = index_at(writes, b);
        if (at < 0 || (!s->circular && at > length - n))
            return run_error(r, err, CHURON_INVALID,
                             "write_indices: element %zu: expected 0 to %lld, got %lld", b,
                             s->circular ? INT64_MAX : (long long)(length - n), (long long)at);
    }
    tensor *out;
    TRY(copied_output(r, &out, err));
    size_t prefixes = dims_product(x->dims, 0, axis), row = dims_product(x->dims, axis + 1, x->rank);
    size_t per_batch = dims_product(x->dims, 1, axis), bytes = row * tensor_elem_size(x);
    for (size_t p = 0; p < prefixes; p++) {
        int64_t at = writes ? index_at(writes, p / per_batch) : 0;
        for (int64_t i = 0; i < n; i++) {
            if (i % 4096 == 0) TRY(run_check(r, err));
            size_t to = p * (size_t)length +
                        (size_t)((int64_t)((uint64_t)at % (uint64_t)length) + i) % (size_t)length;
            memcpy((char *)out->data + to * bytes,
                   (const char *)u->data + (p * (size_t)n + (size_t)i) * bytes, bytes);
        }
    }
    return strings_own(out, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define ELEMENTS(name, since, until, types)                                                                  \
    {                                                                                                        \
        "", name, since, until, OP_INPLACE, "TIT>T", {{'T', types}, {'I', TYPES_INDEX}}, prepare_elements,   \
            mem_free, infer_elements, NULL, run_elements                                                     \
    }
#define ND(since, until, types)                                                                              \
    {                                                                                                        \
        "", "ScatterND", since, until, OP_INPLACE, "TiT>T", {{'T', types}}, prepare_nd, mem_free, infer_nd,  \
            NULL, run_nd                                                                                     \
    }

static const op_def rows[] = {
    ELEMENTS("Scatter", 9, 0, TYPES_ALL_1), /* deprecated from 11 on, the meaning stays */
    ELEMENTS("ScatterElements", 11, 12, TYPES_ALL_1),
    ELEMENTS("ScatterElements", 13, 15, TYPES_ALL_13),
    ELEMENTS("ScatterElements", 16, 17, TYPES_ALL_13),
    ELEMENTS("ScatterElements", 18, 0, TYPES_ALL_13),
    ND(11, 12, TYPES_ALL_1),
    ND(13, 15, TYPES_ALL_13),
    ND(16, 17, TYPES_ALL_13),
    ND(18, 0, TYPES_ALL_13),
    {"",
     "TensorScatter",
     24,
     0,
     OP_INPLACE,
     "TT=i>T",
     {{'T', TYPES_ALL_24}},
     prepare_tensor_scatter,
     mem_free,
     infer_tensor_scatter,
     NULL,
     run_tensor_scatter},
};
const op_table ops_scatter = {rows, sizeof rows / sizeof *rows};
