/* reshape.c: operators that give the same elements another shape: Reshape, Flatten, Squeeze, Unsqueeze.
 *
 * Squeeze and Unsqueeze take their axes from an attribute before operator set 13, Reshape its shape before 5.
 */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

typedef struct axes_state {
    bool given;
    size_t n;
    int64_t axes[2 * TENSOR_MAX_RANK];
} axes_state;

static status prepare_list(op_node *n, const char *name, bool required, error *err) {
    axes_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->given = op_attr_present(n, name);
    if (required && !s->given)
        return op_error(n, err, CHURON_INVALID, "%s is required: expected a list of integers, got none",
                        name);
    const int64_t *v;
    TRY(op_attr_ints(n, name, &v, &s->n, err));
    if (s->n > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_LIMIT, "%s: expected at most %d numbers, got %zu", name,
                        TENSOR_MAX_RANK, s->n);
    for (size_t i = 0; i < s->n; i++) s->axes[i] = v[i];
    return CHURON_OK;
}

static status prepare_squeeze_1(op_node *n, error *err) {
    return prepare_list(n, "axes", false, err);
}

static status prepare_unsqueeze_1(op_node *n, error *err) {
    return prepare_list(n, "axes", true, err);
}

static status prepare_reshape_1(op_node *n, error *err) {
    op_attr_ignore(n, "consumed_inputs");
    return prepare_list(n, "shape", false, err);
}

/* Axes of this node: the attribute's, or the values of input 1. *given false: none were said; *known false:
 * only the run will tell. */
static void get_axes(const op_shapes *s, bool *given, bool *known, size_t *n, const int64_t **axes) {
    const axes_state *state = shapes_state(s);
    *known = true;
    if (state) {
        *given = state->given;
        *n = state->n;
        *axes = state->axes;
        return;
    }
    *given = op_has_input(shapes_node(s), 1);
    *n = 0;
    if (!*given) return;
    const dim *v;
    *known = shapes_in_values(s, 1, n, &v);
    for (size_t i = 0; *known && i < *n; i++) *known = dim_known(v[i]);
    *axes = v;
}

/* mark[axis] for each axis; an axis that is said twice is an error. */
static status mark_axes(const op_shapes *s, size_t n, const int64_t *axes, size_t rank, bool *mark,
                        error *err) {
    memset(mark, 0, rank * sizeof *mark);
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        TRY(op_axis(shapes_node(s), axes[i], rank, "axes", &axis, err));
        if (mark[axis])
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "axes: expected each axis once, got axis %zu twice", axis);
        mark[axis] = true;
    }
    return CHURON_OK;
}

/* ---- Squeeze ------------------------------------------------------------------------------------------ */

static status infer_squeeze(op_shapes *s, error *err) {
    size_t rank, n, m = 0;
    const dim *dims;
    const int64_t *axes;
    bool given, known, mark[TENSOR_MAX_RANK];
    get_axes(s, &given, &known, &n, &axes);
    if (!shapes_in(s, 0, &rank, &dims) || !known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[TENSOR_MAX_RANK];
    if (given) {
        TRY(mark_axes(s, n, axes, rank, mark, err));
        for (size_t d = 0; d < rank; d++) {
            if (mark[d])
                TRY(shapes_same(s, dims[d], 1, "a squeezed dimension and 1", NULL, err));
            else
                out[m++] = dims[d];
        }
        return shapes_out(s, 0, m, out, err);
    }
    for (size_t d = 0; d < rank; d++) {
        if (!dim_known(dims[d])) { /* may turn out to be 1 */
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        if (dims[d] != 1) out[m++] = dims[d];
    }
    return shapes_out(s, 0, m, out, err);
}

/* ---- Unsqueeze ---------------------------------------------------------------------------------------- */

static status infer_unsqueeze(op_shapes *s, error *err) {
    size_t rank, n = 0;
    const dim *dims;
    const int64_t *axes = NULL;
    bool given, known, mark[2 * TENSOR_MAX_RANK];
    get_axes(s, &given, &known, &n, &axes);
    if (!shapes_in(s, 0, &rank, &dims) || !known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    size_t total = rank + n;
    if (total > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT,
                        "axes: expected a result of rank %d at most, got rank %zu and %zu axes",
                        TENSOR_MAX_RANK, rank, n);
    TRY(mark_axes(s, n, axes, total, mark, err));
    dim out[TENSOR_MAX_RANK];
    for (size_t d = 0; d < total; d++) out[d] = mark[d] ? 1 : *dims++;
    return shapes_out(s, 0, total, out, err);
}

/* The values pass through, whatever the shape. */
static status propagate_view(op_shapes *s, error *err) {
    (void)err;
    size_t n;
    const dim *v;
    if (shapes_in_values(s, 0, &n, &v) && n <= OP_MAX_VALUES) shapes_out_values(s, 0, n, v);
    return CHURON_OK;
}

/* ---- Flatten ------------------------------------------------------------------------------------------ */

typedef struct flatten_state {
    int64_t axis;
} flatten_state;

static status prepare_flatten(op_node *n, error *err) {
    flatten_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    return op_attr_int(n, "axis", 1, op_version(n) < 11 ? 0 : -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis,
                       err);
}

static status infer_flatten(op_shapes *s, error *err) {
    const flatten_state *state = shapes_state(s);
    size_t rank;
    const dim *dims;
    if (!shapes_in(s, 0, &rank, &dims)) return shapes_out(s, 0, 2, (dim[]){dim_fresh(s), dim_fresh(s)}, err);
    int64_t axis = state->axis < 0 ? state->axis + (int64_t)rank : state->axis;
    if (axis < 0 || axis > (int64_t)rank)
        return op_error(shapes_node(s), err, CHURON_INVALID, "axis: expected -%zu to %zu, got %lld", rank,
                        rank, (long long)state->axis);
    dim out[2] = {1, 1};
    for (size_t d = 0; d < rank; d++) {
        size_t side = d >= (size_t)axis;
        out[side] = dim_mul(s, out[side], dims[d]);
    }
    return shapes_out(s, 0, 2, out, err);
}

/* ---- Reshape ------------------------------------------------------------------------------------------ */

typedef struct reshape_state {
    bool allow_zero;
} reshape_state;

static status prepare_reshape(op_node *n, error *err) {
    reshape_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    if (op_version(n) < 14) return CHURON_OK;
    return op_attr_bool(n, "allowzero", false, &s->allow_zero, err);
}

static bool only_known(const dim *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!dim_known(v[i])) return false;
    return true;
}

/* The dimension that -1 stands for: all elements over the product of the others. Equal factors on both sides
 * are left out first, so that symbols cancel. */
static status rest_dim(op_shapes *s, const dim *in, size_t rank, const dim *out, size_t n, size_t hole,
                       dim *rest, error *err) {
    bool used[TENSOR_MAX_RANK] = {false};
    dim below = 1, above = 1;
    for (size_t i = 0; i < n; i++) {
        if (i == hole) continue;
        size_t d = 0;
        while (d < rank && (used[d] || in[d] != out[i] || out[i] == 0)) d++;
        if (d < rank)
            used[d] = true;
        else
            below = dim_mul(s, below, out[i]);
    }
    for (size_t d = 0; d < rank; d++)
        if (!used[d]) above = dim_mul(s, above, in[d]);
    if (below == 0)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "shape: expected no 0 beside -1, got both: -1 could be any number");
    if (!dim_known(above) || !dim_known(below)) {
        *rest = dim_known(below) ? dim_div_floor(s, above, below) : dim_fresh(s);
        return CHURON_OK;
    }
    if (above % below != 0)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "shape: expected a product that divides %lld (what is left for -1), got %lld",
                        (long long)above, (long long)below);
    *rest = above / below;
    return CHURON_OK;
}

static status infer_reshape_to(op_shapes *s, size_t n, const dim *shape, bool allow_zero, error *err) {
    size_t rank = 0, hole = SIZE_MAX;
    const dim *in = NULL;
    bool ranked = shapes_in(s, 0, &rank, &in);
    if (n > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT, "shape: expected at most %d dimensions, got %zu",
                        TENSOR_MAX_RANK, n);
    dim out[TENSOR_MAX_RANK];
    for (size_t i = 0; i < n; i++) {
        out[i] = shape[i];
        if (!dim_known(shape[i])) continue;
        if (shape[i] == -1 && hole == SIZE_MAX) {
            hole = i;
        } else if (shape[i] < 0) {
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "shape[%zu]: expected at least 0, or -1 once, got %lld", i, (long long)shape[i]);
        } else if (shape[i] == 0 && !allow_zero) {
            if (ranked && i >= rank)
                return op_error(shapes_node(s), err, CHURON_INVALID,
                                "shape[%zu]: 0 copies a dimension of the input, which has rank %zu", i, rank);
            out[i] = ranked ? in[i] : dim_fresh(s);
        }
    }
    if (hole != SIZE_MAX) {
        if (ranked)
            TRY(rest_dim(s, in, rank, out, n, hole, &out[hole], err));
        else
            out[hole] = dim_fresh(s);
    }
    if (ranked && only_known(in, rank) && only_known(out, n)) {
        dim a = 1, b = 1;
        for (size_t d = 0; d < rank; d++) a = dim_mul(s, a, in[d]);
        for (size_t i = 0; i < n; i++) b = dim_mul(s, b, out[i]);
        if (a != b) /* a product stops at the largest that dimensions can be */
            return op_error(shapes_node(s), err, CHURON_INVALID,
                            "shape: expected a product of %lld (the elements of the input), got %s%lld",
                            (long long)a, b >= INT64_MAX / 4 ? "at least " : "", (long long)b);
    }
    return shapes_out(s, 0, n, out, err);
}

static status infer_reshape(op_shapes *s, error *err) {
    const reshape_state *state = shapes_state(s);
    size_t n, rank_shape;
    const dim *shape, *length;
    if (shapes_in_values(s, 1, &n, &shape)) return infer_reshape_to(s, n, shape, state->allow_zero, err);
    if (shapes_in(s, 1, &rank_shape, &length) && rank_shape == 1 && dim_known(length[0]) && length[0] >= 0 &&
        length[0] <= TENSOR_MAX_RANK) {
        dim out[TENSOR_MAX_RANK];
        for (size_t d = 0; d < (size_t)length[0]; d++) out[d] = dim_fresh(s);
        return shapes_out(s, 0, (size_t)length[0], out, err);
    }
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

static status infer_reshape_1(op_shapes *s, error *err) {
    const axes_state *state = shapes_state(s);
    return infer_reshape_to(s, state->n, state->axes, false, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define VIEW(name, since, until, signature, types, prepare, infer)                                           \
    {                                                                                                        \
        "", name, since, until, OP_VIEW, signature, {{'T', types}}, prepare, mem_free, infer,                \
            propagate_view, NULL                                                                             \
    }
#define NEWER(name, signature, prepare, infer)                                                               \
    VIEW(name, 21, 22, signature, TYPES_ALL_21, prepare, infer),                                             \
        VIEW(name, 23, 23, signature, TYPES_ALL_23, prepare, infer),                                         \
        VIEW(name, 24, 24, signature, TYPES_ALL_24, prepare, infer),                                         \
        VIEW(name, 25, 0, signature, TYPES_ALL_25, prepare, infer)

static const op_def rows[] = {
    VIEW("Reshape", 1, 4, "T>T", TYPES_FLOAT_OLD, prepare_reshape_1, infer_reshape_1),
    VIEW("Reshape", 5, 12, "Ti>T", TYPES_ALL_1, prepare_reshape, infer_reshape),
    VIEW("Reshape", 13, 13, "Ti>T", TYPES_ALL_13, prepare_reshape, infer_reshape),
    VIEW("Reshape", 14, 18, "Ti>T", TYPES_ALL_13, prepare_reshape, infer_reshape),
    VIEW("Reshape", 19, 20, "Ti>T", TYPES_ALL_19, prepare_reshape, infer_reshape),
    NEWER("Reshape", "Ti>T", prepare_reshape, infer_reshape),
    VIEW("Flatten", 1, 8, "T>T", TYPES_FLOAT_OLD, prepare_flatten, infer_flatten),
    VIEW("Flatten", 9, 12, "T>T", TYPES_ALL_1, prepare_flatten, infer_flatten),
    VIEW("Flatten", 13, 20, "T>T", TYPES_ALL_13, prepare_flatten, infer_flatten),
    NEWER("Flatten", "T>T", prepare_flatten, infer_flatten),
    VIEW("Squeeze", 1, 12, "T>T", TYPES_ALL_1, prepare_squeeze_1, infer_squeeze),
    VIEW("Squeeze", 13, 20, "T=i>T", TYPES_ALL_13, NULL, infer_squeeze),
    NEWER("Squeeze", "T=i>T", NULL, infer_squeeze),
    VIEW("Unsqueeze", 1, 12, "T>T", TYPES_ALL_1, prepare_unsqueeze_1, infer_unsqueeze),
    VIEW("Unsqueeze", 13, 20, "Ti>T", TYPES_ALL_13, NULL, infer_unsqueeze),
    NEWER("Unsqueeze", "Ti>T", NULL, infer_unsqueeze),
};
const op_table ops_reshape = {rows, sizeof rows / sizeof *rows};
