/* arrange.c: operators that put elements elsewhere, all of them one strided copy (move.h): Transpose, Concat,
 * Split, Expand, Tile, DepthToSpace, SpaceToDepth. */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

/* ---- Transpose ---------------------------------------------------------------------------------------- */

typedef struct perm_state {
    bool given;
    size_t n;
    size_t perm[TENSOR_MAX_RANK];
} perm_state;

static status prepare_transpose(op_node *n, error *err) {
    perm_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->given = op_attr_present(n, "perm");
    const int64_t *v;
    TRY(op_attr_ints(n, "perm", &v, &s->n, err));
    if (s->n > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_LIMIT, "perm: expected at most %d axes, got %zu", TENSOR_MAX_RANK,
                        s->n);
    bool seen[TENSOR_MAX_RANK] = {false};
    for (size_t i = 0; i < s->n; i++) {
        TRY(op_axis(n, v[i], s->n, "perm", &s->perm[i], err));
        if (seen[s->perm[i]])
            return op_error(n, err, CHURON_INVALID, "perm: expected each axis once, got %zu twice",
                            s->perm[i]);
        seen[s->perm[i]] = true;
    }
    return CHURON_OK;
}

static size_t perm_at(const perm_state *s, size_t rank, size_t d) {
    return s->given ? s->perm[d] : rank - 1 - d;
}

static status infer_transpose(op_shapes *s, error *err) {
    const perm_state *state = shapes_state(s);
    size_t rank;
    const dim *dims;
    dim out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &rank, &dims)) {
        if (!state->given) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        for (size_t d = 0; d < state->n; d++) out[d] = dim_fresh(s);
        return shapes_out(s, 0, state->n, out, err);
    }
    if (state->given && state->n != rank)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "perm: expected %zu axes (the rank of the input), got %zu", rank, state->n);
    for (size_t d = 0; d < rank; d++) out[d] = dims[perm_at(state, rank, d)];
    return shapes_out(s, 0, rank, out, err);
}

static status propagate_transpose(op_shapes *s, error *err) {
    (void)err;
    size_t n, rank;
    const dim *v, *dims;
    if (shapes_in(s, 0, &rank, &dims) && rank <= 1 && shapes_in_values(s, 0, &n, &v) && n <= OP_MAX_VALUES)
        shapes_out_values(s, 0, n, v);
    return CHURON_OK;
}

static status run_transpose(op_run *r, error *err) {
    const perm_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    ptrdiff_t from[TENSOR_MAX_RANK], to[TENSOR_MAX_RANK];
    move_strides(x->dims, x->rank, from);
    move_strides(out->dims, out->rank, to);
    move m = {0};
    for (size_t d = 0; d < x->rank; d++) move_dim(&m, out->dims[d], to[d], from[perm_at(s, x->rank, d)]);
    move_run(r, &m, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

/* ---- Concat ------------------------------------------------------------------------------------------- */

typedef struct axis_state {
    int64_t axis;
    int64_t n_parts; /* Split: num_outputs, 0: not said */
    size_t n_sizes;  /* Split before 13: sizes of the parts */
    int64_t *sizes;
} axis_state;

static void release_axis(void *state) {
    axis_state *s = state;
    if (s) mem_free(s->sizes);
    mem_free(s);
}

static status new_axis_state(op_node *n, axis_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    return CHURON_OK;
}

static status prepare_concat(op_node *n, error *err) {
    axis_state *s;
    TRY(new_axis_state(n, &s, err));
    if (op_version(n) >= 4 && !op_attr_present(n, "axis"))
        return op_error(n, err, CHURON_INVALID, "axis is required: expected a number, got none");
    return op_attr_int(n, "axis", 1, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err);
}

static status infer_concat(op_shapes *s, error *err) {
    const axis_state *state = shapes_state(s);
    size_t n = op_n_inputs(shapes_node(s)), rank = SIZE_MAX, axis = 0;
    dim out[TENSOR_MAX_RANK];
    bool whole = true; /* every input's size along the axis is known, as a number or a symbol */
    for (size_t k = 0; k < n; k++) {
        size_t rank_k;
        const dim *dims;
        if (!shapes_in(s, k, &rank_k, &dims)) {
            whole = false;
            continue;
        }
        if (rank == SIZE_MAX) {
            rank = rank_k;
            TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
            memcpy(out, dims, rank * sizeof *dims);
            continue;
        }
        if (rank_k != rank)
            return op_error(shapes_node(s), err, CHURON_INVALID, "input %zu: expected rank %zu, got %zu", k,
                            rank, rank_k);
        for (size_t d = 0; d < rank; d++) {
            if (d == axis)
                out[d] = dim_add(s, out[d], dims[d]);
            else
                TRY(shapes_same(s, out[d], dims[d], "a dimension of two concatenated inputs", &out[d], err));
        }
    }
    if (rank == SIZE_MAX) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (!whole) out[axis] = dim_fresh(s);
    return shapes_out(s, 0, rank, out, err);
}

static status propagate_concat(op_shapes *s, error *err) {
    (void)err;
    size_t n = op_n_inputs(shapes_node(s)), total = 0, rank;
    dim out[OP_MAX_VALUES];
    for (size_t k = 0; k < n; k++) {
        size_t m;
        const dim *v, *dims;
        if (!shapes_in(s, k, &rank, &dims) || rank != 1 || !shapes_in_values(s, k, &m, &v) ||
            total + m > OP_MAX_VALUES)
            return CHURON_OK;
        memcpy(out + total, v, m * sizeof *v);
        total += m;
    }
    shapes_out_values(s, 0, total, out);
    return CHURON_OK;
}

static status run_concat(op_run *r, error *err) {
    const axis_state *s = run_state(r);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    size_t axis, size = tensor_elem_size(out), n = op_n_inputs(run_node(r));
    TRY(op_axis(run_node(r), s->axis, out->rank, "axis", &axis, err));
    size_t outer = dims_product(out->dims, 0, axis), inner = dims_product(out->dims, axis + 1, out->rank);
    size_t row = (size_t)out->dims[axis] * inner, at = 0;
    for (size_t k = 0; k < n; k++) {
        const tensor *x = run_in(r, k);
        size_t part = (size_t)x->dims[axis] * inner;
        move m = {0};
        move_dim(&m, (int64_t)outer, (ptrdiff_t)row, (ptrdiff_t)part);
        move_dim(&m, (int64_t)part, 1, 1);
        move_run(r, &m, (char *)out->data + at * size, x->data, size);
        at += part;
    }
    return strings_own(out, err);
}

/* ---- Split -------------------------------------------------------------------------------------------- */

static status prepare_split(op_node *n, error *err) {
    axis_state *s;
    TRY(new_axis_state(n, &s, err));
    TRY(op_attr_int(n, "axis", 0, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    if (op_version(n) >= 18) {
        TRY(op_attr_int(n, "num_outputs", 0, 1, INT32_MAX, &s->n_parts, err));
        if (s->n_parts > 0 && op_has_input(n, 1))
            return op_error(n, err, CHURON_INVALID,
                            "num_outputs: expected either it or the input split, got both");
        if (s->n_parts > 0 && (size_t)s->n_parts != op_n_outputs(n))
            return op_error(n, err, CHURON_INVALID,
                            "num_outputs: expected %zu (the outputs of the node), got %lld", op_n_outputs(n),
                            (long long)s->n_parts);
    }
    if (op_version(n) >= 13) return CHURON_OK;
    const int64_t *v;
    TRY(op_attr_ints(n, "split", &v, &s->n_sizes, err));
    const tensor *by = NULL;
    if (op_has_input(n, 1)) { /* Split 1 may take the sizes as an input of the data's type */
        by = op_constant(n, 1);
        if (by == NULL || by->rank > 1)
            return op_error(n, err, CHURON_UNSUPPORTED,
                            "split: expected a constant list, got a computed one");
        s->n_sizes = by->count;
    }
    if (s->n_sizes == 0) return CHURON_OK;
    s->sizes = mem_calloc(s->n_sizes, sizeof *v);
    if (s->sizes == NULL) return error_no_memory(err, "split", s->n_sizes * sizeof *v);
    for (size_t i = 0; i < s->n_sizes; i++) {
        double size = 0;
        if (by) elem_to_f64(by->type, (const char *)by->data + i * tensor_elem_size(by), &size, 1);
        s->sizes[i] = by ? (size >= 0 && size < 1e15 ? (int64_t)size : -1) : v[i];
    }
    return CHURON_OK;
}

static status check_sizes(op_shapes *s, const dim *sizes, size_t n, dim whole, error *err) {
    size_t n_out = op_n_outputs(shapes_node(s));
    if (n != n_out)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "split: expected %zu sizes (the outputs of the node), got %zu", n_out, n);
    dim sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (dim_known(sizes[i]) && sizes[i] < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID, "split[%zu]: expected at least 0, got %lld",
                            i, (long long)sizes[i]);
        sum = dim_add(s, sum, sizes[i]);
    }
    return shapes_same(s, sum, whole, "the sum of split and the dimension", NULL, err);
}

static status infer_split(op_shapes *s, error *err) {
    const axis_state *state = shapes_state(s);
    const op_node *node = shapes_node(s);
    size_t n_out = op_n_outputs(node), rank, axis, n;
    const dim *dims, *sizes = state->sizes;
    if (!shapes_in(s, 0, &rank, &dims)) {
        for (size_t i = 0; i < n_out; i++) shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    TRY(op_axis(node, state->axis, rank, "axis", &axis, err));
    dim out[TENSOR_MAX_RANK], whole = dims[axis], each = 0;
    memcpy(out, dims, rank * sizeof *dims);
    bool by_input = op_has_input(node, 1), known = true;
    if (sizes) {
        TRY(check_sizes(s, sizes, state->n_sizes, whole, err));
    } else if (by_input) {
        known = shapes_in_values(s, 1, &n, &sizes);
        if (known) TRY(check_sizes(s, sizes, n, whole, err));
    } else {
        if (dim_known(whole) && whole % (int64_t)n_out != 0 && op_version(node) < 18)
            return op_error(node, err, CHURON_INVALID,
                            "axis: expected a dimension that %zu outputs divide, got %lld", n_out,
                            (long long)whole);
        each = dim_div_ceil(s, whole, (dim)n_out);
    }
    for (size_t i = 0; i < n_out; i++) {
        if (sizes)
            out[axis] = sizes[i];
        else if (!known)
            out[axis] = dim_fresh(s);
        else /* equal parts; what is left for the last ones may be less */
            out[axis] = dim_max(s, 0, dim_min(s, each, dim_sub(s, whole, dim_mul(s, each, (dim)i))));
        if (op_has_output(node, i)) TRY(shapes_out(s, i, rank, out, err));
    }
    return CHURON_OK;
}

static status run_split(op_run *r, error *err) {
    const axis_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t axis, size = tensor_elem_size(x), at = 0, n_out = op_n_outputs(run_node(r));
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    size_t outer = dims_product(x->dims, 0, axis), inner = dims_product(x->dims, axis + 1, x->rank);
    size_t row = (size_t)x->dims[axis] * inner;
    const tensor *by = run_in(r, 1);
    size_t each = ((size_t)x->dims[axis] + n_out - 1) / n_out, done = 0;
    for (size_t i = 0; i < n_out; i++) {
        size_t left = (size_t)x->dims[axis] - done, part = each < left ? each : left;
        if (s->sizes)
            part = (size_t)s->sizes[i];
        else if (by)
            part = (size_t)index_at(by, i);
        done += part;
        part *= inner;
        tensor *out;
        TRY(run_out(r, i, &out, err));
        if (out) {
            move m = {0};
            move_dim(&m, (int64_t)outer, (ptrdiff_t)part, (ptrdiff_t)row);
            move_dim(&m, (int64_t)part, 1, 1);
            move_run(r, &m, out->data, (const char *)x->data + at * size, size);
            TRY(strings_own(out, err));
        }
        at += part;
    }
    return CHURON_OK;
}

/* ---- Expand ------------------------------------------------------------------------------------------- */

static status infer_expand(op_shapes *s, error *err) {
    size_t rank, n;
    const dim *dims, *shape;
    if (!shapes_in(s, 0, &rank, &dims) || !shapes_in_values(s, 1, &n, &shape)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    size_t total = rank > n ? rank : n;
    if (total > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT, "shape: expected at most %d dimensions, got %zu",
                        TENSOR_MAX_RANK, n);
    dim out[TENSOR_MAX_RANK];
    for (size_t d = 0; d < total; d++) {
        dim a = d + rank >= total ? dims[d + rank - total] : 1, b = d + n >= total ? shape[d + n - total] : 1;
        if (dim_known(b) && b < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID, "shape: expected at least 0, got %lld",
                            (long long)b);
        if (a == 1)
            out[d] = b;
        else if (b == 1 || a == b)
            out[d] = a;
        else if (dim_known(a) && dim_known(b))
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "shape: expected 1 or %lld to broadcast with the input, got %lld", (long long)a,
                            (long long)b);
        else
            out[d] = dim_known(a) ? a : dim_known(b) ? b : dim_fresh(s); /* a number over 1 wins */
    }
    return shapes_out(s, 0, total, out, err);
}

static status propagate_expand(op_shapes *s, error *err) {
    (void)err;
    size_t n, m, rank;
    const dim *v, *shape, *dims;
    dim out[OP_MAX_VALUES];
    if (!shapes_in(s, 0, &rank, &dims) || rank > 1 || !shapes_in_values(s, 0, &n, &v) ||
        !shapes_in_values(s, 1, &m, &shape) || m > 1)
        return CHURON_OK;
    dim count = m == 1 ? shape[0] : 1;
    if (!dim_known(count) || count > OP_MAX_VALUES || n > OP_MAX_VALUES) return CHURON_OK;
    if (count == 1) count = (dim)n;
    if (n != 1 && (dim)n != count) return CHURON_OK;
    for (size_t i = 0; i < (size_t)count; i++) out[i] = v[n == 1 ? 0 : i];
    shapes_out_values(s, 0, (size_t)count, out);
    return CHURON_OK;
}

static status run_expand(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    ptrdiff_t to[TENSOR_MAX_RANK], from[TENSOR_MAX_RANK];
    move_strides(out->dims, out->rank, to);
    move_strides(x->dims, x->rank, from);
    move m = {0};
    size_t first = out->rank - x->rank;
    for (size_t d = 0; d < out->rank; d++)
        move_dim(&m, out->dims[d], to[d], d < first || x->dims[d - first] == 1 ? 0 : from[d - first]);
    move_run(r, &m, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

/* ---- Tile --------------------------------------------------------------------------------------------- */

static status infer_tile(op_shapes *s, error *err) {
    size_t rank, n;
    const dim *dims, *repeats;
    dim out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    bool known = shapes_in_values(s, 1, &n, &repeats);
    if (known && n != rank)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "repeats: expected %zu numbers (the rank of the input), got %zu", rank, n);
    for (size_t d = 0; d < rank; d++) {
        if (known && dim_known(repeats[d]) && repeats[d] < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "repeats[%zu]: expected at least 0, got %lld", d, (long long)repeats[d]);
        out[d] = known ? dim_mul(s, dims[d], repeats[d]) : dim_fresh(s);
    }
    return shapes_out(s, 0, rank, out, err);
}

/* Each dimension is two: the repetition, which stands still in the input, and the dimension itself. */
static status tile_into(op_run *r, const tensor *x, tensor *out, error *err) {
    ptrdiff_t to[TENSOR_MAX_RANK], from[TENSOR_MAX_RANK];
    move_strides(out->dims, out->rank, to);
    move_strides(x->dims, x->rank, from);
    move m = {0};
    for (size_t d = 0; d < x->rank; d++) {
        if (x->dims[d] == 0) return CHURON_OK;
        move_dim(&m, out->dims[d] / x->dims[d], to[d] * (ptrdiff_t)x->dims[d], 0);
        move_dim(&m, x->dims[d], to[d], from[d]);
    }
    move_run(r, &m, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

static status run_tile(op_run *r, error *err) {
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    return tile_into(r, run_in(r, 0), out, err);
}

/* Tile 1: along one axis; count and axis are floats. Their values are known when it runs. */
static status infer_tile_1(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    dim out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    for (size_t d = 0; d < rank; d++) out[d] = dim_fresh(s);
    return shapes_out(s, 0, rank, out, err);
}

static status run_tile_1(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *tiles = run_in(r, 1), *axis_in = run_in(r, 2);
    double n, at;
    if (tiles->count != 1 || axis_in->count != 1)
        return run_error(r, err, CHURON_INVALID, "tiles and axis: expected one element each, got %zu and %zu",
                         tiles->count, axis_in->count);
    elem_to_f64(tiles->type, tiles->data, &n, 1);
    elem_to_f64(axis_in->type, axis_in->data, &at, 1);
    if (!(n >= 0 && n <= 1e9) || !(at >= 0 && at < (double)x->rank))
        return run_error(r, err, CHURON_INVALID,
                         "expected tiles of at least 0 and an axis below %u, got %g and %g", x->rank, n, at);
    int64_t dims[TENSOR_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    size_t count;
    if (dims[(size_t)at] > INT32_MAX) return run_error(r, err, CHURON_LIMIT, "tiles: result too large");
    dims[(size_t)at] *= (int64_t)n;
    TRY(tensor_count(x->type, x->rank, dims, &count, "output", err));
    tensor *out;
    TRY(run_out_shaped(r, 0, x->type, x->rank, dims, &out, err));
    return tile_into(r, x, out, err);
}

/* ---- DepthToSpace, SpaceToDepth ----------------------------------------------------------------------- */

typedef struct block_state {
    int64_t block;
    int crd; /* column, row, depth */
} block_state;

static status prepare_block(op_node *n, bool moded, error *err) {
    block_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    if (!op_attr_present(n, "blocksize"))
        return op_error(n, err, CHURON_INVALID, "blocksize is required: expected at least 1, got none");
    TRY(op_attr_int(n, "blocksize", 1, 1, 1 << 15, &s->block, err));
    if (!moded) return CHURON_OK;
    return op_attr_choice(n, "mode", (const char *const[]){"DCR", "CRD", NULL}, 0, &s->crd, err);
}

static status prepare_block_plain(op_node *n, error *err) {
    return prepare_block(n, false, err);
}

static status prepare_block_moded(op_node *n, error *err) {
    return prepare_block(n, true, err);
}

static status infer_block(op_shapes *s, bool to_space, error *err) {
    const block_state *state = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in))
        return shapes_out(s, 0, 4, (dim[]){dim_fresh(s), dim_fresh(s), dim_fresh(s), dim_fresh(s)}, err);
    if (rank != 4)
        return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected rank 4, got %zu", rank);
    dim b = state->block, b2 = b * b;
    for (size_t d = 1; d < 4; d++) {
        dim by = d == 1 ? (to_space ? b2 : 1) : (to_space ? 1 : b);
        if (dim_known(in[d]) && in[d] % by != 0)
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "input: expected dimension %zu to be a multiple of %lld, got %lld", d,
                            (long long)by, (long long)in[d]);
    }
    if (to_space)
        return shapes_out(
            s, 0, 4, (dim[]){in[0], dim_div_floor(s, in[1], b2), dim_mul(s, in[2], b), dim_mul(s, in[3], b)},
            err);
    return shapes_out(
        s, 0, 4,
        (dim[]){in[0], dim_mul(s, in[1], b2), dim_div_floor(s, in[2], b), dim_div_floor(s, in[3], b)}, err);
}

static status infer_depth_to_space(op_shapes *s, error *err) {
    return infer_block(s, true, err);
}

static status infer_space_to_depth(op_shapes *s, error *err) {
    return infer_block(s, false, err);
}

/* Both are one rearrangement between [n, depth, h, w], depth = (c, row, column) in the mode's order, and
 * [n, c, h*b, w*b]. */
static void block_move(move *m, const block_state *s, const tensor *deep, const tensor *wide, bool to_space) {
    int64_t b = s->block, c = wide->dims[1], h = deep->dims[2], w = deep->dims[3];
    ptrdiff_t plane = (ptrdiff_t)(h * w), bb = (ptrdiff_t)b, cc = (ptrdiff_t)c, ww = (ptrdiff_t)w;
    ptrdiff_t deep_c = s->crd ? bb * bb * plane : plane;
    ptrdiff_t deep_col = s->crd ? plane : cc * plane, deep_row = deep_col * bb;
    ptrdiff_t wide_plane = plane * bb * bb;
    const int64_t dims[6] = {deep->dims[0], c, h, b, w, b};
    const ptrdiff_t of_deep[6] = {
        deep_c == plane ? cc * bb * bb * plane : cc * deep_c, deep_c, ww, deep_row, 1, deep_col};
    const ptrdiff_t of_wide[6] = {cc * wide_plane, wide_plane, ww * bb * bb, ww * bb, bb, 1};
    for (size_t d = 0; d < 6; d++)
        move_dim(m, dims[d], to_space ? of_wide[d] : of_deep[d], to_space ? of_deep[d] : of_wide[d]);
}

static status run_depth_to_space(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    move m = {0};
    block_move(&m, run_state(r), x, out, true);
    move_run(r, &m, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

static status run_space_to_depth(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    move m = {0};
    block_move(&m, run_state(r), out, x, false);
    /* The innermost dimension of the output is w: it goes last. */
    size_t order[6] = {0, 3, 5, 1, 2, 4};
    move sorted = {.rank = 6};
    for (size_t d = 0; d < 6; d++) {
        sorted.dims[d] = m.dims[order[d]];
        sorted.to[d] = m.to[order[d]];
        sorted.from[d] = m.from[order[d]];
    }
    move_run(r, &sorted, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define TRANSPOSE(since, until, types)                                                                       \
    {                                                                                                        \
        "", "Transpose", since, until, 0, "T>T", {{'T', types}}, prepare_transpose, mem_free,                \
            infer_transpose, propagate_transpose, run_transpose                                              \
    }
#define CONCAT(since, until, types)                                                                          \
    {                                                                                                        \
        "", "Concat", since, until, 0, "T*>T", {{'T', types}}, prepare_concat, release_axis, infer_concat,   \
            propagate_concat, run_concat                                                                     \
    }
#define SPLIT(since, until, signature, types)                                                                \
    {                                                                                                        \
        "", "Split", since, until, 0, signature, {{'T', types}}, prepare_split, release_axis, infer_split,   \
            NULL, run_split                                                                                  \
    }
#define BLOCK(name, since, until, types, prepare, infer, run)                                                \
    { "", name, since, until, 0, "T>T", {{'T', types}}, prepare, mem_free, infer, NULL, run }

static const op_def rows[] = {
    TRANSPOSE(1, 12, TYPES_ALL_1),
    TRANSPOSE(13, 20, TYPES_ALL_13),
    TRANSPOSE(21, 22, TYPES_ALL_21),
    TRANSPOSE(23, 23, TYPES_ALL_23),
    TRANSPOSE(24, 24, TYPES_ALL_24),
    TRANSPOSE(25, 0, TYPES_ALL_25),
    CONCAT(1, 3, TYPES_FLOAT_OLD),
    CONCAT(4, 12, TYPES_ALL_1),
    CONCAT(13, 0, TYPES_ALL_13),
    SPLIT(1, 1, "T=T>T*", TYPES_FLOAT_OLD),
    SPLIT(2, 12, "T>T*", TYPES_ALL_1),
    SPLIT(13, 17, "T=i>T*", TYPES_ALL_13),
    SPLIT(18, 0, "T=i>T*", TYPES_ALL_13),
    {"",
     "Expand",
     8,
     12,
     0,
     "Ti>T",
     {{'T', TYPES_ALL_1}},
     NULL,
     NULL,
     infer_expand,
     propagate_expand,
     run_expand},
    {"",
     "Expand",
     13,
     0,
     0,
     "Ti>T",
     {{'T', TYPES_ALL_13}},
     NULL,
     NULL,
     infer_expand,
     propagate_expand,
     run_expand},
    {"", "Tile", 1, 5, 0, "TTT>T", {{'T', TYPES_FLOAT_OLD}}, NULL, NULL, infer_tile_1, NULL, run_tile_1},
    {"", "Tile", 6, 12, 0, "Ti>T", {{'T', TYPES_ALL_1}}, NULL, NULL, infer_tile, NULL, run_tile},
    {"", "Tile", 13, 0, 0, "Ti>T", {{'T', TYPES_ALL_13}}, NULL, NULL, infer_tile, NULL, run_tile},
    BLOCK("DepthToSpace", 1, 10, TYPES_ALL_1, prepare_block_plain, infer_depth_to_space, run_depth_to_space),
    BLOCK("DepthToSpace", 11, 12, TYPES_ALL_1, prepare_block_moded, infer_depth_to_space, run_depth_to_space),
    BLOCK("DepthToSpace", 13, 0, TYPES_ALL_13, prepare_block_moded, infer_depth_to_space, run_depth_to_space),
    BLOCK("SpaceToDepth", 1, 12, TYPES_ALL_1, prepare_block_plain, infer_space_to_depth, run_space_to_depth),
    BLOCK("SpaceToDepth", 13, 27, TYPES_ALL_13, prepare_block_plain, infer_space_to_depth,
          run_space_to_depth),
    BLOCK("SpaceToDepth", 28, 0, TYPES_ALL_13, prepare_block_moded, infer_space_to_depth, run_space_to_depth),
};
const op_table ops_arrange = {rows, sizeof rows / sizeof *rows};
