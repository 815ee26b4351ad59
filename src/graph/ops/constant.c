/* constant.c: values that a file says outright, and what is known of a value without looking at its elements:
 * Constant, ConstantOfShape, Identity, Shape, Size. */
#include "base/mem.h"
#include "graph/ir.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"

#include <string.h>

/* ---- Constant --------------------------------------------------------------------------------------- */

static void constant_release(void *state) {
    tensor_free(state);
    mem_free(state);
}

static status constant_strings(const onnx_bytes *strings, size_t n, bool scalar, tensor *out, error *err) {
    const int64_t dims[1] = {(int64_t)n};
    TRY(tensor_alloc(out, ELEM_STRING, scalar ? 0 : 1, dims, err));
    for (size_t i = 0; i < n; i++) TRY(tensor_string_set(out, i, strings[i].data, strings[i].len, err));
    return CHURON_OK;
}

static status constant_numbers(elem e, const void *data, size_t n, bool scalar, tensor *out, error *err) {
    const int64_t dims[1] = {(int64_t)n};
    TRY(tensor_alloc(out, e, scalar ? 0 : 1, dims, err));
    if (n) memcpy(out->data, data, n * elem_describe(e)->bytes);
    return CHURON_OK;
}

/* The one attribute that says the value, in whichever form. */
static status constant_read(op_node *n, tensor *out, error *err) {
    const onnx_attr *found = NULL;
    for (size_t i = 0; i < n->n_attrs; i++) {
        if (strncmp(n->attrs[i].name, "value", 5) != 0 && strcmp(n->attrs[i].name, "sparse_value") != 0)
            continue;
        if (found)
            return op_error(n, err, CHURON_CORRUPT, "expected one value, got both '%s' and '%s'", found->name,
                            n->attrs[i].name);
        found = n->attrs[i].attr;
    }
    if (!found) return op_error(n, err, CHURON_CORRUPT, "attribute 'value': expected a tensor, got none");
    for (size_t i = 0; i < n->n_attrs; i++)
        n->attrs[i].asked = n->attrs[i].asked || n->attrs[i].attr == found;
    switch (found->type) {
    case ONNX_ATTR_TENSOR: {
        const tensor *t;
        const char *name = NULL;
        for (size_t i = 0; i < n->n_attrs; i++) {
            if (n->attrs[i].attr == found) name = n->attrs[i].name;
        }
        TRY(op_attr_tensor(n, name, &t, err));
        *out = tensor_share(t);
        return CHURON_OK;
    }
    case ONNX_ATTR_SPARSE: return ir_sparse_to_dense(&found->sparses[0], out, err);
    case ONNX_ATTR_FLOAT: return constant_numbers(ELEM_F32, &found->f, 1, true, out, err);
    case ONNX_ATTR_INT: return constant_numbers(ELEM_I64, &found->i, 1, true, out, err);
    case ONNX_ATTR_STRING: return constant_strings(&found->s, 1, true, out, err);
    case ONNX_ATTR_FLOATS: return constant_numbers(ELEM_F32, found->floats, found->n, false, out, err);
    case ONNX_ATTR_INTS: return constant_numbers(ELEM_I64, found->ints, found->n, false, out, err);
    case ONNX_ATTR_STRINGS: return constant_strings(found->strings, found->n, false, out, err);
    default:
        return op_error(n, err, CHURON_CORRUPT, "attribute '%s': expected a value, got a graph or a type",
                        found->name);
    }
}

static status constant_prepare(op_node *n, error *err) {
    tensor *t = mem_calloc(1, sizeof *t);
    if (!t) return error_no_memory(err, "a constant", sizeof *t);
    op_set_state(n, t);
    return constant_read(n, t, err);
}

static status constant_infer(op_shapes *s, error *err) {
    const tensor *t = shapes_state(s);
    shapes_out_type(s, 0, t->type);
    return shapes_out(s, 0, t->rank, t->dims, err);
}

static status constant_run(op_run *r, error *err) {
    (void)err;
    run_out_tensor(r, 0, tensor_share(run_state(r)));
    return CHURON_OK;
}

/* ---- ConstantOfShape -------------------------------------------------------------------------------- */

static status fill_prepare(op_node *n, error *err) {
    const tensor *t;
    TRY(op_attr_tensor(n, "value", &t, err));
    if (t && (t->count != 1 || t->type == ELEM_STRING)) {
        return op_error(n, err, CHURON_CORRUPT, "attribute 'value': expected one number, got %zu of %s",
                        t->count, elem_name(t->type));
    }
    op_set_state(n, (void *)(uintptr_t)t); /* borrowed from the model */
    return CHURON_OK;
}

static status fill_infer(op_shapes *s, error *err) {
    const tensor *t = shapes_state(s);
    shapes_out_type(s, 0, t ? t->type : ELEM_F32);
    size_t n, rank;
    const dim *values, *dims;
    if (shapes_in_values(s, 0, &n, &values)) return shapes_out(s, 0, n, values, err);
    if (shapes_in(s, 0, &rank, &dims) && rank == 1 && dim_known(dims[0]) && dims[0] <= TENSOR_MAX_RANK) {
        dim fresh[TENSOR_MAX_RANK];
        for (int64_t i = 0; i < dims[0]; i++) fresh[i] = dim_fresh(s);
        return shapes_out(s, 0, (size_t)dims[0], fresh, err);
    }
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

static status fill_propagate(op_shapes *s, error *err) {
    (void)err;
    const tensor *t = shapes_state(s);
    size_t n;
    const dim *values;
    if (!t || t->type != ELEM_I64 || !shapes_in_values(s, 0, &n, &values) || n > 1) return CHURON_OK;
    dim count = n ? values[0] : 1;
    if (!dim_known(count) || count < 0 || count > OP_MAX_VALUES) return CHURON_OK;
    dim filled[OP_MAX_VALUES];
    const int64_t fill = *(const int64_t *)t->data;
    if (!dim_known(fill)) return CHURON_OK; /* it would be taken for a symbol */
    for (int64_t i = 0; i < count; i++) filled[i] = fill;
    shapes_out_values(s, 0, (size_t)count, filled);
    return CHURON_OK;
}

static status fill_run(op_run *r, error *err) {
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    const tensor *t = run_state(r);
    const float zero = 0;
    move_fill_run(r, out->data, t ? t->data : &zero, out->count, elem_describe(out->type)->bytes);
    return CHURON_OK;
}

/* ---- Identity --------------------------------------------------------------------------------------- */

static status identity_propagate(op_shapes *s, error *err) {
    (void)err;
    size_t n;
    const dim *values;
    if (shapes_in_values(s, 0, &n, &values) && n <= OP_MAX_VALUES) shapes_out_values(s, 0, n, values);
    return CHURON_OK;
}

/* ---- Shape, Size ------------------------------------------------------------------------------------ */

typedef struct shape_range {
    int64_t start, end;
} shape_range;

static status shape_prepare_range(op_node *n, error *err) {
    shape_range *range = mem_alloc(sizeof *range);
    if (!range) return error_no_memory(err, "attributes", sizeof *range);
    op_set_state(n, range);
    TRY(op_attr_int(n, "start", 0, INT64_MIN, INT64_MAX, &range->start, err));
    return op_attr_int(n, "end", INT64_MAX, INT64_MIN, INT64_MAX, &range->end, err);
}

static size_t shape_end(int64_t at, size_t rank) {
    int64_t r = (int64_t)rank;
    if (at < 0) at = at < -r ? 0 : at + r;
    return (size_t)(at > r ? r : at);
}

/* The dimensions [*from, *to) that are asked for. */
static void shape_part(const shape_range *range, size_t rank, size_t *from, size_t *to) {
    *from = range ? shape_end(range->start, rank) : 0;
    *to = range ? shape_end(range->end, rank) : rank;
    if (*to < *from) *to = *from;
}

static status shape_infer(op_shapes *s, error *err) {
    size_t rank, from, to;
    const dim *dims;
    dim n = DIM_SYMBOL_BASE;
    if (shapes_in(s, 0, &rank, &dims)) {
        shape_part(shapes_state(s), rank, &from, &to);
        n = (dim)(to - from);
    } else {
        n = dim_fresh(s);
    }
    return shapes_out(s, 0, 1, &n, err);
}

static status shape_propagate(op_shapes *s, error *err) {
    (void)err;
    size_t rank, from, to;
    const dim *dims;
    if (!shapes_in(s, 0, &rank, &dims)) return CHURON_OK;
    shape_part(shapes_state(s), rank, &from, &to);
    shapes_out_values(s, 0, to - from, dims + from);
    return CHURON_OK;
}

static status shape_run(op_run *r, error *err) {
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    const tensor *in = run_in(r, 0);
    size_t from, to;
    shape_part(run_state(r), in->rank, &from, &to);
    memcpy(out->data, in->dims + from, (to - from) * sizeof in->dims[0]);
    return CHURON_OK;
}

static status size_infer(op_shapes *s, error *err) {
    return shapes_out(s, 0, 0, NULL, err);
}

static status size_propagate(op_shapes *s, error *err) {
    (void)err;
    size_t rank;
    const dim *dims;
    if (!shapes_in(s, 0, &rank, &dims)) return CHURON_OK;
    dim product = 1;
    for (size_t i = 0; i < rank; i++) product = dim_mul(s, product, dims[i]);
    shapes_out_values(s, 0, 1, &product);
    return CHURON_OK;
}

static status size_run(op_run *r, error *err) {
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    *(int64_t *)out->data = (int64_t)run_in(r, 0)->count;
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "Constant",
     .since = 1,
     .signature = ">@",
     .prepare = constant_prepare,
     .release = constant_release,
     .infer = constant_infer,
     .run = constant_run},
    {.domain = "",
     .name = "ConstantOfShape",
     .since = 9,
     .signature = "i>@",
     .prepare = fill_prepare,
     .infer = fill_infer,
     .propagate = fill_propagate,
     .run = fill_run},
    {.domain = "",
     .name = "Identity",
     .since = 1,
     .flags = OP_VIEW,
     .signature = "?>0",
     .infer = infer_same,
     .propagate = identity_propagate},
    {.domain = "",
     .name = "Shape",
     .since = 1,
     .until = 14,
     .signature = "#>i",
     .infer = shape_infer,
     .propagate = shape_propagate,
     .run = shape_run},
    {.domain = "",
     .name = "Shape",
     .since = 15,
     .signature = "#>i",
     .prepare = shape_prepare_range,
     .release = mem_free,
     .infer = shape_infer,
     .propagate = shape_propagate,
     .run = shape_run},
    {.domain = "",
     .name = "Size",
     .since = 1,
     .signature = "#>i",
     .infer = size_infer,
     .propagate = size_propagate,
     .run = size_run},
};

const op_table ops_constant = {rows, sizeof rows / sizeof rows[0]};
