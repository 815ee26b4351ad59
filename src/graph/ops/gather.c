/* gather.c: Gather, GatherElements, GatherND. Every index is checked before a byte is read through it. */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

typedef struct gather_state {
    int64_t axis; /* GatherND: batch_dims */
} gather_state;

static status prepare_int(op_node *n, const char *name, int64_t least, error *err) {
    gather_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    return op_attr_int(n, name, 0, least, TENSOR_MAX_RANK, &s->axis, err);
}

static status prepare_axis(op_node *n, error *err) {
    return prepare_int(n, "axis", -TENSOR_MAX_RANK, err);
}

static status prepare_batch(op_node *n, error *err) {
    return prepare_int(n, "batch_dims", 0, err);
}

static status prepare_no_batch(op_node *n, error *err) {
    gather_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    return CHURON_OK;
}

/* Index i of `indices` as one from 0 on an axis of `size`. */
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

/* ---- rows --------------------------------------------------------------------------------------------- */

/* Row i of the output is `bytes` from where at[i % n] says, plus a step for each n rows. */
typedef struct row_job {
    char *to;
    const char *from;
    const size_t *at; /* [n], in rows */
    size_t n, bytes, outer_bytes;
} row_job;

#define ROWS(T)                                                                                              \
    {                                                                                                        \
        const T *x = (const T *)(const void *)from;                                                          \
        T *o = (T *)(void *)j->to + i;                                                                       \
        for (size_t k = 0; k < m; k++) o[k] = x[at[k]];                                                      \
    }

static void copy_rows(void *ctx, size_t begin, size_t end) {
    const row_job *j = ctx;
    for (size_t i = begin; i < end;) {
        size_t first = i % j->n, m = j->n - first < end - i ? j->n - first : end - i;
        const char *from = j->from + i / j->n * j->outer_bytes;
        const size_t *at = j->at + first;
        switch (j->bytes) {
        case 1: ROWS(uint8_t) break;
        case 2: ROWS(uint16_t) break;
        case 4: ROWS(uint32_t) break;
        case 8: ROWS(uint64_t) break;
        default:
            for (size_t k = 0; k < m; k++)
                memcpy(j->to + (i + k) * j->bytes, from + at[k] * j->bytes, j->bytes);
        }
        i += m;
    }
}

static void run_rows(op_run *r, row_job *j, size_t rows) {
    if (rows == 0 || j->bytes == 0) return;
    run_parallel(r, rows, (double)rows * (2 + (double)j->bytes * 0.1), copy_rows, j);
}

/* ---- Gather ------------------------------------------------------------------------------------------- */

static status infer_gather(op_shapes *s, error *err) {
    const gather_state *state = shapes_state(s);
    size_t rank, rank_i, axis;
    const dim *dims, *indices;
    if (!shapes_in(s, 0, &rank, &dims) || !shapes_in(s, 1, &rank_i, &indices)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank == 0)
        return op_error(shapes_node(s), err, CHURON_INVALID, "data: expected rank 1 or more, got 0");
    TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
    if (rank - 1 + rank_i > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT, "output: expected rank %d at most, got %zu",
                        TENSOR_MAX_RANK, rank - 1 + rank_i);
    dim out[2 * TENSOR_MAX_RANK];
    memcpy(out, dims, axis * sizeof *dims);
    memcpy(out + axis, indices, rank_i * sizeof *dims);
    memcpy(out + axis + rank_i, dims + axis + 1, (rank - axis - 1) * sizeof *dims);
    return shapes_out(s, 0, rank - 1 + rank_i, out, err);
}

static status propagate_gather(op_shapes *s, error *err) {
    (void)err;
    size_t rank, n, m;
    const dim *dims, *v, *indices;
    dim out[OP_MAX_VALUES];
    if (!shapes_in(s, 0, &rank, &dims) || rank != 1 || !shapes_in_values(s, 0, &n, &v) ||
        !shapes_in_values(s, 1, &m, &indices) || m > OP_MAX_VALUES)
        return CHURON_OK;
    for (size_t i = 0; i < m; i++) {
        dim at = indices[i];
        if (!dim_known(at) || at < -(dim)n || at >= (dim)n) return CHURON_OK; /* the run reports it */
        out[i] = v[at < 0 ? at + (dim)n : at];
    }
    shapes_out_values(s, 0, m, out);
    return CHURON_OK;
}

static status run_gather(op_run *r, error *err) {
    const gather_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *indices = run_in(r, 1);
    size_t axis, *at, n = indices->count;
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    void *scratch;
    TRY(run_scratch(r, n * sizeof *at, &scratch, err));
    at = scratch;
    for (size_t i = 0; i < n; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        TRY(checked_index(r, indices, i, x->dims[axis], &at[i], err));
    }
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    if (out->count == 0) return CHURON_OK;
    size_t outer = dims_product(x->dims, 0, axis);
    size_t bytes = dims_product(x->dims, axis + 1, x->rank) * tensor_elem_size(x);
    row_job j = {out->data, x->data, at, n, bytes, bytes * (size_t)x->dims[axis]};
    run_rows(r, &j, outer * n);
    return strings_own(out, err);
}

/* ---- GatherElements ----------------------------------------------------------------------------------- */

static status infer_gather_elements(op_shapes *s, error *err) {
    const gather_state *state = shapes_state(s);
    size_t rank, rank_i, axis;
    const dim *dims, *indices;
    if (!shapes_in(s, 1, &rank_i, &indices)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (shapes_in(s, 0, &rank, &dims)) {
        if (rank != rank_i || rank == 0)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "indices: expected rank %zu as data (1 or more), got %zu", rank, rank_i);
        TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
        for (size_t d = 0; d < rank; d++)
            if (d != axis && dim_known(dims[d]) && dim_known(indices[d]) && indices[d] > dims[d])
                return op_error(shapes_node(s), err, CHURON_INVALID,
                                "indices: expected dimension %zu to be at most %lld, got %lld", d,
                                (long long)dims[d], (long long)indices[d]);
    }
    return shapes_out(s, 0, rank_i, indices, err);
}

static status run_gather_elements(op_run *r, error *err) {
    const gather_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *indices = run_in(r, 1);
    size_t axis, n = indices->count, rank = x->rank, size = tensor_elem_size(x);
    TRY(op_axis(run_node(r), s->axis, rank, "axis", &axis, err));
    void *scratch;
    TRY(run_scratch(r, n * sizeof(size_t), &scratch, err));
    size_t *at = scratch, index[TENSOR_MAX_RANK] = {0}, base = 0;
    ptrdiff_t strides[TENSOR_MAX_RANK];
    move_strides(x->dims, rank, strides);
    for (size_t i = 0; i < n; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        size_t on_axis;
        TRY(checked_index(r, indices, i, x->dims[axis], &on_axis, err));
        at[i] = base + on_axis * (size_t)strides[axis];
        for (size_t d = rank; d-- > 0;) { /* base: the offset of all dimensions but the axis */
            if (d != axis) base += (size_t)strides[d];
            if (++index[d] < (size_t)indices->dims[d]) break;
            if (d != axis) base -= index[d] * (size_t)strides[d];
            index[d] = 0;
        }
    }
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    row_job j = {out->data, x->data, at, n, size, 0};
    run_rows(r, &j, n);
    return strings_own(out, err);
}

/* ---- GatherND ----------------------------------------------------------------------------------------- */

static status infer_gather_nd(op_shapes *s, error *err) {
    const gather_state *state = shapes_state(s);
    size_t rank, q, batch = (size_t)state->axis;
    const dim *dims, *indices;
    if (!shapes_in(s, 0, &rank, &dims) || !shapes_in(s, 1, &q, &indices)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    const op_node *node = shapes_node(s);
    if (rank == 0 || q == 0)
        return op_error(node, err, CHURON_INVALID,
                        "data and indices: expected rank 1 or more, got %zu and %zu", rank, q);
    if (batch >= rank || batch >= q)
        return op_error(node, err, CHURON_INVALID,
                        "batch_dims: expected less than the ranks %zu and %zu, got %zu", rank, q, batch);
    for (size_t d = 0; d < batch; d++)
        TRY(shapes_same(s, dims[d], indices[d], "a batch dimension of data and of indices", NULL, err));
    dim k = indices[q - 1];
    if (!dim_known(k)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (k < 1 || (size_t)k > rank - batch)
        return op_error(node, err, CHURON_INVALID, "indices: expected a last dimension of 1 to %zu, got %lld",
                        rank - batch, (long long)k);
    size_t first = batch + (size_t)k, total = q - 1 + rank - first;
    if (total > TENSOR_MAX_RANK)
        return op_error(node, err, CHURON_LIMIT, "output: expected rank %d at most, got %zu", TENSOR_MAX_RANK,
                        total);
    dim out[2 * TENSOR_MAX_RANK];
    memcpy(out, indices, (q - 1) * sizeof *dims);
    memcpy(out + q - 1, dims + first, (rank - first) * sizeof *dims);
    return shapes_out(s, 0, total, out, err);
}

static status run_gather_nd(op_run *r, error *err) {
    const gather_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *indices = run_in(r, 1);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    if (out->count == 0) return CHURON_OK;
    size_t batch = (size_t)s->axis, k = (size_t)indices->dims[indices->rank - 1], tuples = indices->count / k;
    size_t batches = dims_product(x->dims, 0, batch), per_batch = tuples / batches;
    size_t batch_rows = dims_product(x->dims, batch, batch + k);
    void *scratch;
    TRY(run_scratch(r, tuples * sizeof(size_t), &scratch, err));
    size_t *at = scratch;
    for (size_t t = 0; t < tuples; t++) {
        if (t % 65536 == 0) TRY(run_check(r, err));
        size_t row = 0;
        for (size_t c = 0; c < k; c++) {
            size_t v;
            TRY(checked_index(r, indices, t * k + c, x->dims[batch + c], &v, err));
            row = row * (size_t)x->dims[batch + c] + v;
        }
        at[t] = t / per_batch * batch_rows + row;
    }
    size_t bytes = dims_product(x->dims, batch + k, x->rank) * tensor_elem_size(x);
    row_job j = {out->data, x->data, at, tuples, bytes, 0};
    run_rows(r, &j, tuples);
    return strings_own(out, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define GATHER(name, since, until, signature, types, prepare, infer, propagate, run)                         \
    {                                                                                                        \
        "", name, since, until, 0, signature, {{'T', types}, {'I', TYPES_INDEX}}, prepare, mem_free, infer,  \
            propagate, run                                                                                   \
    }

static const op_def rows[] = {
    GATHER("Gather", 1, 12, "TI>T", TYPES_ALL_1, prepare_axis, infer_gather, propagate_gather, run_gather),
    GATHER("Gather", 13, 0, "TI>T", TYPES_ALL_13, prepare_axis, infer_gather, propagate_gather, run_gather),
    GATHER("GatherElements", 11, 12, "TI>T", TYPES_ALL_1, prepare_axis, infer_gather_elements, NULL,
           run_gather_elements),
    GATHER("GatherElements", 13, 0, "TI>T", TYPES_ALL_13, prepare_axis, infer_gather_elements, NULL,
           run_gather_elements),
    GATHER("GatherND", 11, 11, "Ti>T", TYPES_ALL_1, prepare_no_batch, infer_gather_nd, NULL, run_gather_nd),
    GATHER("GatherND", 12, 12, "Ti>T", TYPES_ALL_1, prepare_batch, infer_gather_nd, NULL, run_gather_nd),
    GATHER("GatherND", 13, 0, "Ti>T", TYPES_ALL_13, prepare_batch, infer_gather_nd, NULL, run_gather_nd),
    {"com.microsoft",
     "GatherND",
     1,
     0,
     0,
     "TI>T",
     {{'T', TYPES_ALL_13}, {'I', TYPES_INDEX}},
     prepare_no_batch,
     mem_free,
     infer_gather_nd,
     NULL,
     run_gather_nd},
};
const op_table ops_gather = {rows, sizeof rows / sizeof *rows};
