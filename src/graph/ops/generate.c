/* generate.c: Range, EyeLike, Trilu, ReverseSequence; Range (whose step is 1 where it is left out) and Trilu
 * of com.microsoft too. */
#include "base/mem.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <math.h>
#include <string.h>

/* ---- Range -------------------------------------------------------------------------------------------- */

static status prepare_range(op_node *n, error *err) {
    if (op_version(n) < 27) return CHURON_OK;
    int64_t stash;
    return op_attr_int(n, "stash_type", 1, 1, 1, &stash, err); /* float: the only one that is defined */
}

static status infer_range(op_shapes *s, error *err) {
    size_t n;
    const dim *v[3], one = 1;
    dim count = dim_fresh(s);
    bool known = true;
    for (size_t k = 0; k < 3; k++) {
        v[k] = &one;
        if (!op_has_input(shapes_node(s), k)) continue;
        known = known && shapes_in_values(s, k, &n, &v[k]) && n == 1;
    }
    elem type = shapes_in_type(s, 0);
    if (known && !shapes_running(s) && (type == ELEM_I64 || type == ELEM_I32) && dim_known(*v[2]) &&
        *v[2] != 0) {
        dim delta = *v[2];
        if (delta > 0)
            count = dim_max(s, 0, dim_div_ceil(s, dim_sub(s, *v[1], *v[0]), delta));
        else if (delta > INT32_MIN)
            count = dim_max(s, 0, dim_div_ceil(s, dim_sub(s, *v[0], *v[1]), -delta));
        if (!shapes_exact(s)) count = dim_fresh(s);
    }
    return shapes_out(s, 0, 1, &count, err);
}

static status propagate_range(op_shapes *s, error *err) {
    (void)err;
    size_t n;
    const dim *v[3], one = 1;
    v[2] = &one;
    for (size_t k = 0; k < (op_has_input(shapes_node(s), 2) ? 3 : 2); k++)
        if (!shapes_in_values(s, k, &n, &v[k]) || n != 1 || !dim_known(*v[k]) || *v[k] > INT32_MAX ||
            *v[k] < -INT32_MAX)
            return CHURON_OK;
    int64_t start = *v[0], limit = *v[1], delta = *v[2];
    if (delta == 0) return CHURON_OK;
    int64_t count = delta > 0 ? (limit - start + delta - 1) / delta : (start - limit - delta - 1) / -delta;
    if (count < 0) count = 0;
    if (count > OP_MAX_VALUES) return CHURON_OK;
    dim out[OP_MAX_VALUES];
    for (int64_t i = 0; i < count; i++) out[i] = start + i * delta;
    shapes_out_values(s, 0, (size_t)count, out);
    return CHURON_OK;
}

/* Number of elements of an integer range, exact for all int64. */
static uint64_t integer_count(int64_t start, int64_t limit, int64_t delta) {
    uint64_t span, step;
    if (delta > 0) {
        if (limit <= start) return 0;
        span = (uint64_t)limit - (uint64_t)start;
        step = (uint64_t)delta;
    } else {
        if (limit >= start) return 0;
        span = (uint64_t)start - (uint64_t)limit;
        step = 0 - (uint64_t)delta;
    }
    return 1 + (span - 1) / step;
}

static int64_t integer_at(const tensor *t) {
    if (t->type == ELEM_I16) return *(const int16_t *)t->data;
    return index_at(t, 0);
}

static status run_range(op_run *r, error *err) {
    const tensor *in[3];
    for (size_t k = 0; k < 3; k++) {
        in[k] = run_in(r, k);
        if (in[k] && in[k]->count != 1)
            return run_error(r, err, CHURON_INVALID, "input %zu: expected one element, got %zu", k,
                             in[k]->count);
    }
    elem type = in[0]->type;
    bool integer = type == ELEM_I16 || type == ELEM_I32 || type == ELEM_I64;
    double v[3] = {0, 0, 1}, count;
    int64_t whole[3] = {0, 0, 1};
    for (size_t k = 0; k < 3; k++)
        if (in[k]) elem_to_f64(type, in[k]->data, &v[k], 1);
    if (v[2] == 0) return run_error(r, err, CHURON_INVALID, "delta: expected not 0, got 0");
    if (integer) {
        for (size_t k = 0; k < 3; k++)
            if (in[k]) whole[k] = integer_at(in[k]);
        count = (double)integer_count(whole[0], whole[1], whole[2]);
    } else {
        count = ceil((v[1] - v[0]) / v[2]);
        if (count < 0) count = 0;
    }
    if (!(count <= (double)TENSOR_MAX_BYTES))
        return run_error(r, err, CHURON_LIMIT,
                         "expected a finite range of at most %llu bytes, got %g elements",
                         (unsigned long long)TENSOR_MAX_BYTES, count);
    int64_t n = (int64_t)count;
    size_t checked;
    TRY(tensor_count(type, 1, &n, &checked, "output", err));
    tensor *out;
    TRY(run_out_shaped(r, 0, type, 1, &n, &out, err));
    for (int64_t i = 0; i < n; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        int64_t w = (int64_t)((uint64_t)whole[0] + (uint64_t)i * (uint64_t)whole[2]);
        switch (type) {
        case ELEM_I64: ((int64_t *)out->data)[i] = w; break;
        case ELEM_I32: ((int32_t *)out->data)[i] = (int32_t)w; break;
        case ELEM_I16: ((int16_t *)out->data)[i] = (int16_t)w; break;
        case ELEM_F64: ((double *)out->data)[i] = v[0] + (double)i * v[2]; break;
        default: { /* f16 and bf16 in f32, rounded once */
            float f = (float)v[0] + (float)i * (float)v[2];
            elem_from_f32(type, &f, (char *)out->data + (size_t)i * tensor_elem_size(out), 1, false);
        }
        }
    }
    return CHURON_OK;
}

/* ---- EyeLike ------------------------------------------------------------------------------------------ */

typedef struct eye_state {
    int64_t type, k;
} eye_state;

static elem_set eye_types(const op_node *n) {
    return op_version(n) < 22 ? TYPES_PLAIN_OLD : TYPES_PLAIN;
}

static status prepare_eye(op_node *n, error *err) {
    eye_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_int(n, "dtype", 0, 1, ELEM_COUNT - 1, &s->type, err));
    if (s->type != 0 && !(ELEM_BIT(s->type) & eye_types(n)))
        return op_error(n, err, CHURON_INVALID, "dtype: expected a number type or bool, got %s",
                        elem_name((elem)s->type));
    return op_attr_int(n, "k", 0, INT32_MIN, INT32_MAX, &s->k, err);
}

static status infer_eye(op_shapes *s, error *err) {
    const eye_state *state = shapes_state(s);
    size_t rank;
    const dim *dims;
    shapes_out_type(s, 0, state->type ? (elem)state->type : shapes_in_type(s, 0));
    if (shapes_in(s, 0, &rank, &dims) && rank != 2)
        return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected rank 2, got %zu", rank);
    return infer_same(s, err);
}

static status run_eye(op_run *r, error *err) {
    const eye_state *s = run_state(r);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    size_t size = tensor_elem_size(out);
    const double one = 1;
    uint64_t bits = 0;
    move_fill_run(r, out->data, &bits, out->count, size);
    elem_from_f64(out->type, &one, &bits, 1, false);
    for (int64_t i = 0; i < out->dims[0]; i++) {
        int64_t j = i + s->k;
        if (j >= 0 && j < out->dims[1])
            memcpy((char *)out->data + (size_t)(i * out->dims[1] + j) * size, &bits, size);
    }
    return CHURON_OK;
}

/* ---- Trilu -------------------------------------------------------------------------------------------- */

typedef struct trilu_state {
    bool upper;
} trilu_state;

static status prepare_trilu(op_node *n, error *err) {
    trilu_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    return op_attr_bool(n, "upper", true, &s->upper, err);
}

static status infer_trilu(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    if (shapes_in(s, 0, &rank, &dims) && rank < 2)
        return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected rank 2 or more, got %zu", rank);
    return infer_same(s, err);
}

static status run_trilu(op_run *r, error *err) {
    const trilu_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *k_in = run_in(r, 1);
    int64_t h = x->dims[x->rank - 2], w = x->dims[x->rank - 1];
    if (k_in && k_in->count != 1)
        return run_error(r, err, CHURON_INVALID, "k: expected one element, got %zu", k_in->count);
    int64_t k = k_in ? index_at(k_in, 0) : 0;
    k = k > w ? w : k < -h ? -h : k;
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    size_t size = tensor_elem_size(x), rows = w ? x->count / (size_t)w : 0;
    for (size_t row = 0; row < rows; row++) {
        if (row % 256 == 0) TRY(run_check(r, err));
        const char *from = (const char *)x->data + row * (size_t)w * size;
        char *to = (char *)out->data + row * (size_t)w * size;
        int64_t edge = (int64_t)(row % (size_t)h) + k + !s->upper; /* first of the right part */
        size_t left = (size_t)(edge < 0 ? 0 : edge > w ? w : edge);
        size_t kept = s->upper ? left : 0, n = s->upper ? (size_t)w - left : left;
        if (to != from) memcpy(to + kept * size, from + kept * size, n * size);
        memset(to + (s->upper ? 0 : left * size), 0, ((size_t)w - n) * size);
    }
    return strings_own(out, err);
}

/* ---- ReverseSequence ---------------------------------------------------------------------------------- */

typedef struct reverse_state {
    int64_t batch, time;
} reverse_state;

static status prepare_reverse(op_node *n, error *err) {
    reverse_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    TRY(op_attr_int(n, "batch_axis", 1, 0, 1, &s->batch, err));
    TRY(op_attr_int(n, "time_axis", 0, 0, 1, &s->time, err));
    if (s->batch == s->time)
        return op_error(n, err, CHURON_INVALID, "time_axis: expected another axis than batch_axis, got %lld",
                        (long long)s->time);
    return CHURON_OK;
}

static status infer_reverse(op_shapes *s, error *err) {
    const reverse_state *state = shapes_state(s);
    size_t rank, rank_l;
    const dim *dims, *lens;
    if (shapes_in(s, 0, &rank, &dims)) {
        if (rank < 2)
            return op_error(shapes_node(s), err, CHURON_INVALID, "input: expected rank 2 or more, got %zu",
                            rank);
        if (shapes_in(s, 1, &rank_l, &lens)) {
            if (rank_l != 1)
                return op_error(shapes_node(s), err, CHURON_INVALID,
                                "sequence_lens: expected rank 1, got %zu", rank_l);
            TRY(shapes_same(s, lens[0], dims[state->batch], "sequence_lens and the batch", NULL, err));
        }
    }
    return infer_same(s, err);
}

static status run_reverse(op_run *r, error *err) {
    const reverse_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *lens = run_in(r, 1);
    int64_t batches = x->dims[s->batch], times = x->dims[s->time];
    for (size_t b = 0; b < lens->count; b++) {
        int64_t n = index_at(lens, b);
        if (n < 0 || n > times)
            return run_error(r, err, CHURON_INVALID,
                             "sequence_lens: element %zu: expected 0 to %lld, got %lld", b, (long long)times,
                             (long long)n);
    }
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    size_t bytes = dims_product(x->dims, 2, x->rank) * tensor_elem_size(x);
    size_t b_step = s->batch == 0 ? (size_t)times : 1, t_step = s->time == 0 ? (size_t)batches : 1;
    for (int64_t b = 0; b < batches && bytes > 0; b++) {
        int64_t n = index_at(lens, (size_t)b);
        for (int64_t t = 0; t < times; t++) {
            if (t % 1024 == 0) TRY(run_check(r, err));
            int64_t source = t < n ? n - 1 - t : t;
            memcpy((char *)out->data + ((size_t)b * b_step + (size_t)t * t_step) * bytes,
                   (const char *)x->data + ((size_t)b * b_step + (size_t)source * t_step) * bytes, bytes);
        }
    }
    return strings_own(out, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define RANGE_OLD (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_I16) | TYPES_INDEX)

static const op_def rows[] = {
    {"",
     "Range",
     11,
     26,
     0,
     "TTT>T",
     {{'T', RANGE_OLD}},
     prepare_range,
     NULL,
     infer_range,
     propagate_range,
     run_range},
    {"",
     "Range",
     27,
     0,
     0,
     "TTT>T",
     {{'T', RANGE_OLD | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16)}},
     prepare_range,
     NULL,
     infer_range,
     propagate_range,
     run_range},
    {"com.microsoft",
     "Range",
     1,
     0,
     0,
     "TT=T>T",
     {{'T', RANGE_OLD}},
     NULL,
     NULL,
     infer_range,
     propagate_range,
     run_range},
    {"",
     "EyeLike",
     9,
     21,
     0,
     "T>@",
     {{'T', TYPES_PLAIN_OLD}},
     prepare_eye,
     mem_free,
     infer_eye,
     NULL,
     run_eye},
    {"", "EyeLike", 22, 0, 0, "T>@", {{'T', TYPES_PLAIN}}, prepare_eye, mem_free, infer_eye, NULL, run_eye},
    {"",
     "Trilu",
     14,
     0,
     OP_INPLACE,
     "T=i>T",
     {{'T', TYPES_ALL_13}},
     prepare_trilu,
     mem_free,
     infer_trilu,
     NULL,
     run_trilu},
    {"com.microsoft",
     "Trilu",
     1,
     0,
     OP_INPLACE,
     "T=i>T",
     {{'T', TYPES_ALL_13}},
     prepare_trilu,
     mem_free,
     infer_trilu,
     NULL,
     run_trilu},
    {"",
     "ReverseSequence",
     10,
     27,
     0,
     "Ti>T",
     {{'T', TYPES_ALL_1}},
     prepare_reverse,
     mem_free,
     infer_reverse,
     NULL,
     run_reverse},
    {"",
     "ReverseSequence",
     28,
     0,
     0,
     "Ti>T",
     {{'T', TYPES_ALL_13}},
     prepare_reverse,
     mem_free,
     infer_reverse,
     NULL,
     run_reverse},
};
const op_table ops_generate = {rows, sizeof rows / sizeof *rows};
