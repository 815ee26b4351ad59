/* slice.c: Slice. Starts, ends and axes are attributes before operator set 10, inputs from there on. */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <inttypes.h>
#include <string.h>

typedef struct slice_state {
    bool has_axes;
    size_t n;
    int64_t starts[TENSOR_MAX_RANK], ends[TENSOR_MAX_RANK], axes[TENSOR_MAX_RANK];
} slice_state;

/* What is asked for on each axis. Not `asked`: all of it. */
typedef struct slice_axis {
    bool asked, known; /* known: start, end and step are numbers or symbols that inference has */
    dim start, end;
    int64_t step;
} slice_axis;

static status copy_list(op_node *n, const char *name, bool required, int64_t *to, size_t *count, error *err) {
    const int64_t *v;
    if (required && !op_attr_present(n, name))
        return op_error(n, err, CHURON_INVALID, "%s is required: expected a list of integers, got none",
                        name);
    TRY(op_attr_ints(n, name, &v, count, err));
    if (*count > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_LIMIT, "%s: expected at most %d numbers, got %zu", name,
                        TENSOR_MAX_RANK, *count);
    for (size_t i = 0; i < *count; i++) to[i] = dim_position(v[i]);
    return CHURON_OK;
}

static status prepare_slice_1(op_node *n, error *err) {
    slice_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    size_t n_ends, n_axes;
    TRY(copy_list(n, "starts", true, s->starts, &s->n, err));
    TRY(copy_list(n, "ends", true, s->ends, &n_ends, err));
    TRY(copy_list(n, "axes", false, s->axes, &n_axes, err));
    s->has_axes = n_axes > 0;
    if (n_ends != s->n || (s->has_axes && n_axes != s->n))
        return op_error(n, err, CHURON_INVALID,
                        "starts, ends and axes: expected lists of one length, got %zu, %zu and %zu", s->n,
                        n_ends, n_axes);
    return CHURON_OK;
}

typedef struct slice_lists {
    size_t n;
    const dim *starts, *ends, *axes, *steps; /* NULL: not known (axes, steps: or not given) */
    bool axes_given, steps_given;
} slice_lists;

/* Fills per[rank] from the lists. False in *sure if the axes themselves are not known. */
static status assign(const op_node *node, const slice_lists *l, size_t rank, slice_axis *per, bool *sure,
                     error *err) {
    memset(per, 0, rank * sizeof *per);
    *sure = !l->axes_given || l->axes;
    if (!*sure) return CHURON_OK;
    for (size_t i = 0; i < l->n; i++) {
        size_t axis = i;
        if (l->axes) {
            if (!dim_known(l->axes[i])) {
                *sure = false;
                return CHURON_OK;
            }
            TRY(op_axis(node, l->axes[i], rank, "axes", &axis, err));
        } else if (i >= rank) {
            return op_error(node, err, CHURON_INVALID,
                            "starts: expected at most %zu numbers (the rank), got %zu", rank, l->n);
        }
        if (per[axis].asked)
            return op_error(node, err, CHURON_INVALID, "axes: expected each axis once, got %zu twice", axis);
        bool step_known = !l->steps_given || (l->steps && dim_known(l->steps[i]));
        int64_t step = l->steps && step_known ? l->steps[i] : 1;
        if (step == 0) return op_error(node, err, CHURON_INVALID, "steps[%zu]: expected not 0, got 0", i);
        per[axis] = (slice_axis){.asked = true,
                                 .known = l->starts && l->ends && step_known,
                                 .start = l->starts ? l->starts[i] : 0,
                                 .end = l->ends ? l->ends[i] : 0,
                                 .step = step};
    }
    return CHURON_OK;
}

/* First index and number of elements on an axis of `size`. */
static void resolve(const slice_axis *a, int64_t size, int64_t *first, int64_t *count) {
    int64_t start = a->start, end = a->end, step = a->step;
    if (start < 0) start = start < -size ? -1 : start + size; /* below the array, whatever the size */
    if (end < 0) end = end < -size ? -1 : end + size;
    if (step > 0) {
        start = start < 0 ? 0 : start > size ? size : start;
        end = end < 0 ? 0 : end > size ? size : end;
        *count = end > start ? 1 + (end - start - 1) / step : 0;
    } else {
        int64_t last = size - 1;
        if (start < 0) start = 0;
        start = start > last ? last : start;
        end = end > last ? last : end;
        /* -(step + 1) + 1 cannot overflow as unsigned */
        uint64_t back = ~(uint64_t)step + 1;
        *count = start > end ? (int64_t)(1 + (uint64_t)(start - end - 1) / back) : 0;
    }
    *first = start;
}

/* The same where the size, start or end is a symbol; a fresh symbol where no rule fits. */
static dim symbolic_count(op_shapes *s, const slice_axis *a, dim size) {
    bool forward = dim_known(a->start) && dim_known(a->end) && a->step > 0;
    if (!forward) {
        if (a->step == -1 && dim_known(a->start) && a->start == -1 && dim_known(a->end) &&
            a->end <= INT32_MIN)
            return size;
        if (a->step == 1 && dim_known(a->start) && a->start == 0) return dim_min(s, a->end, size);
        return dim_fresh(s);
    }
    int64_t start = a->start, end = a->end;
    bool to_end = end >= INT32_MAX;
    if (to_end && start < 0) /* the last ones */
        return dim_div_ceil(s, start < INT32_MIN ? size : dim_min(s, size, -start), a->step);
    dim stop = to_end ? size : end >= 0 ? dim_min(s, size, end) : dim_max(s, 0, dim_add(s, size, end));
    if (end < INT32_MIN) return 0;
    if (start == 0) return dim_div_ceil(s, stop, a->step);
    dim begin = start > 0 ? start : dim_max(s, 0, dim_add(s, size, start < INT32_MIN ? INT32_MIN : start));
    return dim_div_ceil(s, dim_max(s, 0, dim_sub(s, stop, begin)), a->step);
}

static void lists_in_shapes(const op_shapes *s, slice_lists *l) {
    const slice_state *state = shapes_state(s);
    *l = (slice_lists){0};
    if (state) {
        l->n = state->n;
        l->starts = state->starts;
        l->ends = state->ends;
        l->axes_given = state->has_axes;
        l->axes = state->has_axes ? state->axes : NULL;
        return;
    }
    const op_node *node = shapes_node(s);
    size_t n[4] = {0};
    const dim *v[4];
    for (size_t k = 0; k < 4; k++)
        if (!op_has_input(node, k + 1) || !shapes_in_positions(s, k + 1, &n[k], &v[k])) v[k] = NULL;
    for (size_t k = 0; k < 4; k++)
        if (v[k]) l->n = n[k];
    /* Lists of different lengths are reported when it runs. */
    for (size_t k = 0; k < 4; k++)
        if (v[k] && n[k] < l->n) l->n = n[k];
    l->starts = v[0];
    l->ends = v[1];
    l->axes_given = op_has_input(node, 3);
    l->axes = v[2];
    l->steps_given = op_has_input(node, 4);
    l->steps = v[3];
    /* Without any list only its length may be known. */
    if (!v[0] && !v[1] && !v[2] && !v[3]) {
        size_t rank;
        const dim *dims;
        if (shapes_in(s, 1, &rank, &dims) && rank == 1 && dim_known(dims[0]) && !l->axes_given &&
            dims[0] <= TENSOR_MAX_RANK)
            l->n = (size_t)dims[0];
        else
            l->axes_given = true; /* nothing is known */
    }
}

static status infer_slice(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    slice_lists l;
    slice_axis per[TENSOR_MAX_RANK];
    bool sure;
    lists_in_shapes(s, &l);
    if (shapes_running(s)) {
        for (size_t k = 2; k < 5; k++) {
            size_t n, m;
            const dim *v;
            if (!op_has_input(shapes_node(s), 1) || !op_has_input(shapes_node(s), k)) continue;
            if (shapes_in_values(s, 1, &n, &v) && shapes_in_values(s, k, &m, &v) && n != m)
                return op_error(shapes_node(s), err, CHURON_INVALID,
                                "input %zu: expected %zu numbers as starts, got %zu", k, n, m);
        }
    }
    TRY(assign(shapes_node(s), &l, rank, per, &sure, err));
    dim out[TENSOR_MAX_RANK];
    for (size_t d = 0; d < rank; d++) {
        const slice_axis *a = &per[d];
        int64_t first;
        if (!sure || (a->asked && !a->known))
            out[d] = dim_fresh(s);
        else if (!a->asked)
            out[d] = dims[d];
        else if (dim_known(dims[d]) && dim_known(a->start) && dim_known(a->end))
            resolve(a, dims[d], &first, &out[d]);
        else
            out[d] = symbolic_count(s, a, dims[d]);
    }
    return shapes_out(s, 0, rank, out, err);
}

static status propagate_slice(op_shapes *s, error *err) {
    size_t n, rank;
    const dim *v, *dims;
    if (!shapes_in(s, 0, &rank, &dims) || rank != 1 || !shapes_in_values(s, 0, &n, &v)) return CHURON_OK;
    slice_lists l;
    slice_axis a;
    bool sure;
    lists_in_shapes(s, &l);
    TRY(assign(shapes_node(s), &l, 1, &a, &sure, err));
    if (!sure || (a.asked && (!a.known || !dim_known(a.start) || !dim_known(a.end)))) return CHURON_OK;
    int64_t first = 0, count = (int64_t)n;
    if (a.asked) resolve(&a, (int64_t)n, &first, &count);
    if (count > OP_MAX_VALUES) return CHURON_OK;
    dim out[OP_MAX_VALUES];
    for (int64_t i = 0; i < count; i++) out[i] = v[first + i * (a.asked ? a.step : 1)];
    shapes_out_values(s, 0, (size_t)count, out);
    return CHURON_OK;
}

static status run_slice(op_run *r, error *err) {
    const slice_state *state = run_state(r);
    const tensor *x = run_in(r, 0);
    slice_lists l = {0};
    int64_t lists[4][TENSOR_MAX_RANK];
    if (state) {
        l = (slice_lists){.n = state->n,
                          .starts = state->starts,
                          .ends = state->ends,
                          .axes = state->has_axes ? state->axes : NULL,
                          .axes_given = state->has_axes};
    } else {
        const dim **to[4] = {&l.starts, &l.ends, &l.axes, &l.steps};
        for (size_t k = 0; k < 4; k++) {
            const tensor *t = run_in(r, k + 1);
            if (t == NULL) continue;
            if (t->count > TENSOR_MAX_RANK || (k > 0 && t->count != l.n))
                return run_error(r, err, CHURON_INVALID, "input %zu: expected %zu numbers, got %zu", k + 1,
                                 l.n, t->count);
            l.n = t->count;
            for (size_t i = 0; i < t->count; i++) lists[k][i] = dim_position(index_at(t, i));
            *to[k] = lists[k];
        }
        l.axes_given = l.axes != NULL;
        l.steps_given = l.steps != NULL;
    }
    slice_axis per[TENSOR_MAX_RANK];
    bool sure;
    TRY(assign(run_node(r), &l, x->rank, per, &sure, err));
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    ptrdiff_t to[TENSOR_MAX_RANK], from[TENSOR_MAX_RANK], offset = 0;
    move_strides(out->dims, out->rank, to);
    move_strides(x->dims, x->rank, from);
    move m = {0};
    for (size_t d = 0; d < x->rank; d++) {
        int64_t first = 0, count = x->dims[d], step = 1;
        if (per[d].asked) {
            resolve(&per[d], x->dims[d], &first, &count);
            step = count > 1 ? per[d].step : 1;
        }
        if (count == 0) return CHURON_OK;
        if (count != out->dims[d]) /* a defect; elements must not be written past the output */
            return run_error(r, err, CHURON_INTERNAL, "axis %zu: expected %" PRId64 " elements, got %" PRId64,
                             d, out->dims[d], count);
        offset += (ptrdiff_t)first * from[d];
        move_dim(&m, count, to[d], from[d] * (ptrdiff_t)step);
    }
    size_t size = tensor_elem_size(x);
    move_run(r, &m, out->data, (const char *)x->data + offset * (ptrdiff_t)size, size);
    return strings_own(out, err);
}

#define SLICE(since, until, signature, types, prepare)                                                       \
    {                                                                                                        \
        "", "Slice", since, until, 0, signature, {{'T', types}, {'I', TYPES_INDEX}}, prepare, mem_free,      \
            infer_slice, propagate_slice, run_slice                                                          \
    }

static const op_def rows[] = {
    SLICE(1, 9, "T>T", TYPES_ALL_1, prepare_slice_1),
    SLICE(10, 12, "TII=II>T", TYPES_ALL_1, NULL),
    SLICE(13, 0, "TII=II>T", TYPES_ALL_13, NULL),
};
const op_table ops_slice = {rows, sizeof rows / sizeof *rows};
