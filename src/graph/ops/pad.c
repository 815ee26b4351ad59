/* pad.c: Pad in its four modes, CenterCropPad.
 *
 * Each axis of the output has a map: which index of the input it shows, or -1 for the constant. Negative pads
 * cut first; what is left is then padded. */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode;

typedef struct pad_state {
    int mode;
    float fill; /* attribute forms */
    bool fixed; /* pads are an attribute */
    size_t n;   /* numbers in pads, or axes of CenterCropPad */
    int64_t *pads;
} pad_state;

static void release_pad(void *state) {
    pad_state *s = state;
    if (s) mem_free(s->pads);
    mem_free(s);
}

static status new_state(op_node *n, pad_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    return CHURON_OK;
}

static status copy_ints(op_node *n, const char *name, pad_state *s, error *err) {
    const int64_t *v;
    TRY(op_attr_ints(n, name, &v, &s->n, err));
    if (s->n == 0) return CHURON_OK;
    s->pads = mem_calloc(s->n, sizeof *v);
    if (s->pads == NULL) return error_no_memory(err, name, s->n * sizeof *v);
    for (size_t i = 0; i < s->n; i++) s->pads[i] = dim_position(v[i]);
    return CHURON_OK;
}

static const char *const modes[] = {"constant", "reflect", "edge", "wrap", NULL};
static const char *const modes_old[] = {"constant", "reflect", "edge", NULL};

static status prepare_pad_attr(op_node *n, error *err) {
    pad_state *s;
    TRY(new_state(n, &s, err));
    const char *name = op_version(n) < 2 ? "paddings" : "pads";
    if (!op_attr_present(n, name))
        return op_error(n, err, CHURON_INVALID, "%s is required: expected a list of integers, got none",
                        name);
    s->fixed = true;
    TRY(copy_ints(n, name, s, err));
    TRY(op_attr_float(n, "value", 0, &s->fill, err));
    return op_attr_choice(n, "mode", modes_old, 0, &s->mode, err);
}

static status prepare_pad(op_node *n, error *err) {
    pad_state *s;
    TRY(new_state(n, &s, err));
    return op_attr_choice(n, "mode", op_version(n) < 19 ? modes_old : modes, 0, &s->mode, err);
}

#define PAD_MOST ((int64_t)1 << 40)

/* Pads of each axis from the lists. */
static status spread(const op_node *node, size_t rank, const dim *pads, size_t n, const dim *axes,
                     size_t n_axes, dim *before, dim *after, error *err) {
    size_t per = axes ? n_axes : rank;
    if (n != 2 * per)
        return op_error(node, err, CHURON_INVALID, "pads: expected %zu numbers (two for each axis), got %zu",
                        2 * per, n);
    for (size_t d = 0; d < rank; d++) before[d] = after[d] = 0;
    for (size_t i = 0; i < per; i++) {
        size_t axis = i;
        if (axes) TRY(op_axis(node, axes[i], rank, "axes", &axis, err));
        for (size_t k = i; k < 2 * per; k += per)
            if (dim_known(pads[k]) && (pads[k] > PAD_MOST || pads[k] < -PAD_MOST))
                return op_error(node, err, CHURON_LIMIT, "pads[%zu]: expected -%lld to %lld, got %lld", k,
                                (long long)PAD_MOST, (long long)PAD_MOST, (long long)pads[k]);
        before[axis] = pads[i];
        after[axis] = pads[i + per];
    }
    return CHURON_OK;
}

static bool all_known(const dim *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!dim_known(v[i])) return false;
    return true;
}

static status infer_pad(op_shapes *s, error *err) {
    const pad_state *state = shapes_state(s);
    const op_node *node = shapes_node(s);
    size_t rank, n = state->n, n_axes = 0;
    const dim *dims, *pads = state->pads, *axes = NULL;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    bool known = state->fixed || shapes_in_values(s, 1, &n, &pads);
    if (known && !state->fixed && op_has_input(node, 3))
        known = shapes_in_values(s, 3, &n_axes, &axes) && all_known(axes, n_axes);
    dim out[TENSOR_MAX_RANK], before[TENSOR_MAX_RANK], after[TENSOR_MAX_RANK];
    if (!known) {
        for (size_t d = 0; d < rank; d++) out[d] = dim_fresh(s);
        return shapes_out(s, 0, rank, out, err);
    }
    TRY(spread(node, rank, pads, n, axes, n_axes, before, after, err));
    for (size_t d = 0; d < rank; d++) {
        out[d] = dim_add(s, dims[d], dim_add(s, before[d], after[d]));
        if (dim_known(out[d]) && out[d] < 0)
            return op_error(node, err, CHURON_INVALID,
                            "pads: expected axis %zu of %lld to keep at least 0, got %lld", d,
                            (long long)dims[d], (long long)out[d]);
    }
    return shapes_out(s, 0, rank, out, err);
}

/* ---- run ---------------------------------------------------------------------------------------------- */

/* Index that position p (from the first that is left after cutting) shows in an array of n elements. */
static int64_t shown(pad_mode mode, int64_t p, int64_t n) {
    if (p >= 0 && p < n) return p;
    switch (mode) {
    case PAD_CONSTANT: return -1;
    case PAD_EDGE: return p < 0 ? 0 : n - 1;
    case PAD_WRAP: {
        int64_t m = p % n;
        return m < 0 ? m + n : m;
    }
    default: {
        if (n == 1) return 0;
        int64_t period = 2 * (n - 1), m = p % period;
        if (m < 0) m += period;
        return m < n ? m : period - m;
    }
    }
}

typedef struct pad_job {
    const tensor *x;
    tensor *out;
    const int64_t *map[TENSOR_MAX_RANK];
    ptrdiff_t strides[TENSOR_MAX_RANK];
    const char *fill;
    size_t size;
    size_t head, body, tail; /* of a row: mapped, copied as one run, mapped */
} pad_job;

static void pad_piece(const pad_job *j, char *to, const char *from, size_t begin, size_t end) {
    const int64_t *map = j->map[j->x->rank - 1];
    for (size_t i = begin; i < end; i++)
        memcpy(to + i * j->size, map[i] < 0 ? j->fill : from + (size_t)map[i] * j->size, j->size);
}

static void pad_rows(void *ctx, size_t begin, size_t end) {
    const pad_job *j = ctx;
    size_t rank = j->x->rank, width = (size_t)j->out->dims[rank - 1];
    for (size_t row = begin; row < end; row++) {
        size_t rest = row;
        ptrdiff_t at = 0;
        bool constant = false;
        for (size_t d = rank - 1; d-- > 0;) {
            int64_t i = j->map[d][rest % (size_t)j->out->dims[d]];
            rest /= (size_t)j->out->dims[d];
            if (i < 0) constant = true;
            at += (ptrdiff_t)i * j->strides[d];
        }
        char *to = (char *)j->out->data + row * width * j->size;
        if (constant) {
            move_fill(to, j->fill, width, j->size);
            continue;
        }
        const char *from = (const char *)j->x->data + at * (ptrdiff_t)j->size;
        pad_piece(j, to, from, 0, j->head);
        if (j->body > 0)
            memcpy(to + j->head * j->size, from + (size_t)j->map[rank - 1][j->head] * j->size,
                   j->body * j->size);
        pad_piece(j, to, from, j->head + j->body, width);
    }
}

/* out = x padded by before and after, which add up to the output's dimensions. */
static status pad_into(op_run *r, pad_mode mode, const tensor *x, tensor *out, const int64_t *before,
                       const int64_t *after, const void *fill, error *err) {
    pad_job j = {.x = x, .out = out, .fill = fill, .size = tensor_elem_size(x)};
    if (out->count == 0) return CHURON_OK;
    if (x->rank == 0) {
        memcpy(out->data, x->data, j.size);
        return strings_own(out, err);
    }
    move_strides(x->dims, x->rank, j.strides);
    for (size_t d = 0; d < x->rank; d++) {
        void *scratch;
        TRY(run_scratch(r, (size_t)out->dims[d] * sizeof(int64_t), &scratch, err));
        int64_t *map = scratch, cut = before[d] < 0 ? -before[d] : 0;
        int64_t left = x->dims[d] - cut - (after[d] < 0 ? -after[d] : 0);
        if (left <= 0 && mode != PAD_CONSTANT)
            return run_error(r, err, CHURON_INVALID,
                             "pads: expected something left of axis %zu (%lld long) to pad from, got nothing",
                             d, (long long)x->dims[d]);
        for (int64_t i = 0; i < out->dims[d]; i++) {
            int64_t p = shown(mode, i - (before[d] > 0 ? before[d] : 0), left);
            map[i] = p < 0 ? -1 : p + cut;
        }
        j.map[d] = map;
    }
    size_t last = x->rank - 1, width = (size_t)out->dims[last];
    j.head = before[last] > 0 ? (size_t)before[last] : 0;
    if (j.head > width) j.head = width;
    while (j.head + j.body < width && j.map[last][j.head] >= 0 &&
           j.map[last][j.head + j.body] == j.map[last][j.head] + (int64_t)j.body)
        j.body++;
    size_t rows = out->count / width;
    run_parallel(r, rows, move_work(out->count * j.size) + (double)rows * 20, pad_rows, &j);
    return strings_own(out, err);
}

static status run_pad(op_run *r, error *err) {
    const pad_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *pads = s->fixed ? NULL : run_in(r, 1),
                 *axes = s->fixed ? NULL : run_in(r, 3);
    const tensor *constant = s->fixed ? NULL : run_in(r, 2);
    int64_t list[2 * TENSOR_MAX_RANK], axis_list[TENSOR_MAX_RANK], before[TENSOR_MAX_RANK],
        after[TENSOR_MAX_RANK];
    size_t n = pads ? pads->count : s->n;
    if (n > 2 * TENSOR_MAX_RANK || (axes && axes->count > TENSOR_MAX_RANK))
        return run_error(r, err, CHURON_LIMIT, "pads: expected at most %d numbers, got %zu",
                         2 * TENSOR_MAX_RANK, n);
    for (size_t i = 0; i < n; i++) list[i] = pads ? dim_position(index_at(pads, i)) : s->pads[i];
    for (size_t i = 0; axes && i < axes->count; i++) axis_list[i] = index_at(axes, i);
    TRY(spread(run_node(r), x->rank, list, n, axes ? axis_list : NULL, axes ? axes->count : 0, before, after,
               err));
    if (constant && constant->count != 1)
        return run_error(r, err, CHURON_INVALID, "constant_value: expected one element, got %zu",
                         constant->count);
    uint64_t fill[2] = {0, 0};
    if (s->fixed) {
        double fill_value = (double)s->fill;
        elem_from_f64(x->type, &fill_value, fill, 1, false);
    } else if (constant) {
        memcpy(fill, constant->data, tensor_elem_size(x));
    }
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    return pad_into(r, (pad_mode)s->mode, x, out, before, after, fill, err);
}

/* ---- CenterCropPad ------------------------------------------------------------------------------------ */

static status prepare_center(op_node *n, error *err) {
    pad_state *s;
    TRY(new_state(n, &s, err));
    s->fixed = op_attr_present(n, "axes");
    return copy_ints(n, "axes", s, err);
}

static status infer_center(op_shapes *s, error *err) {
    const pad_state *state = shapes_state(s);
    const op_node *node = shapes_node(s);
    size_t rank, n;
    const dim *dims, *shape;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    size_t n_axes = state->fixed ? state->n : rank;
    bool known = shapes_in_values(s, 1, &n, &shape);
    if (known && n != n_axes)
        return op_error(node, err, CHURON_INVALID, "shape: expected %zu numbers (one for each axis), got %zu",
                        n_axes, n);
    dim out[TENSOR_MAX_RANK];
    memcpy(out, dims, rank * sizeof *dims);
    for (size_t i = 0; i < n_axes; i++) {
        size_t axis = i;
        if (state->fixed) TRY(op_axis(node, state->pads[i], rank, "axes", &axis, err));
        if (known && dim_known(shape[i]) && shape[i] < 0)
            return op_error(node, err, CHURON_INVALID, "shape[%zu]: expected at least 0, got %lld", i,
                            (long long)shape[i]);
        out[axis] = known ? shape[i] : dim_fresh(s);
    }
    return shapes_out(s, 0, rank, out, err);
}

static status run_center(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    int64_t before[TENSOR_MAX_RANK], after[TENSOR_MAX_RANK];
    for (size_t d = 0; d < x->rank; d++) { /* halves of an odd difference: the smaller one comes first */
        int64_t more = out->dims[d] - x->dims[d];
        before[d] = more / 2;
        after[d] = more - before[d];
    }
    static const uint64_t zero[2];
    return pad_into(r, PAD_CONSTANT, x, out, before, after, zero, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define PAD(since, until, signature, types, prepare)                                                         \
    {                                                                                                        \
        "", "Pad", since, until, 0, signature, {{'T', types}, {'I', TYPES_INDEX}}, prepare, release_pad,     \
            infer_pad, NULL, run_pad                                                                         \
    }

static const op_def rows[] = {
    PAD(1, 1, "T>T", TYPES_FLOAT_OLD, prepare_pad_attr),
    PAD(2, 10, "T>T", TYPES_FLOAT_OLD, prepare_pad_attr),
    PAD(11, 12, "Ti=T>T", TYPES_NUM_OLD, prepare_pad),
    PAD(13, 17, "Ti=T>T", TYPES_ALL_13, prepare_pad),
    PAD(18, 18, "Ti=TI>T", TYPES_ALL_13, prepare_pad),
    PAD(19, 20, "Ti=TI>T", TYPES_ALL_13, prepare_pad),
    PAD(21, 22, "Ti=TI>T", TYPES_ALL_21, prepare_pad),
    PAD(23, 23, "Ti=TI>T", TYPES_ALL_23, prepare_pad),
    PAD(24, 24, "Ti=TI>T", TYPES_ALL_24, prepare_pad),
    PAD(25, 0, "Ti=TI>T", TYPES_ALL_25, prepare_pad),
    {"com.microsoft",
     "Pad",
     1,
     0,
     0,
     "Ti=T>T",
     {{'T', TYPES_NUM_OLD}},
     prepare_pad,
     release_pad,
     infer_pad,
     NULL,
     run_pad},
    {"",
     "CenterCropPad",
     18,
     0,
     0,
     "TI>T",
     {{'T', TYPES_ALL_13}, {'I', TYPES_INDEX}},
     prepare_center,
     release_pad,
     infer_center,
     NULL,
     run_center},
};
const op_table ops_pad = {rows, sizeof rows / sizeof *rows};
