/* select.c: operators whose output is as long as the data says: Compress, NonZero, Unique; and OneHot. */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <stdlib.h>
#include <string.h>

typedef struct select_state {
    bool has_axis, sorted, microsoft;
    int64_t axis;
} select_state;

static status prepare_axis(op_node *n, int64_t absent, error *err) {
    select_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->has_axis = op_attr_present(n, "axis");
    s->sorted = true;
    TRY(op_attr_int(n, "axis", absent, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &s->axis, err));
    if (strcmp(op_operator(n), "Unique") == 0) TRY(op_attr_bool(n, "sorted", true, &s->sorted, err));
    return CHURON_OK;
}

static status prepare_optional_axis(op_node *n, error *err) {
    return prepare_axis(n, 0, err);
}

static status prepare_one_hot(op_node *n, error *err) {
    return prepare_axis(n, -1, err);
}

/* ---- Compress ----------------------------------------------------------------------------------------- */

static status infer_compress(op_shapes *s, error *err) {
    const select_state *state = shapes_state(s);
    size_t rank, axis;
    const dim *dims;
    if (!state->has_axis) return shapes_out(s, 0, 1, (dim[]){dim_fresh(s)}, err);
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
    dim out[TENSOR_MAX_RANK];
    memcpy(out, dims, rank * sizeof *dims);
    out[axis] = dim_fresh(s);
    return shapes_out(s, 0, rank, out, err);
}

static status run_compress(op_run *r, error *err) {
    const select_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *condition = run_in(r, 1);
    size_t axis = 0, size = tensor_elem_size(x);
    tensor flat = *x;
    if (s->has_axis) {
        TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    } else {
        flat.rank = 1;
        flat.dims[0] = (int64_t)x->count;
    }
    if (condition->rank != 1)
        return run_error(r, err, CHURON_INVALID, "condition: expected rank 1, got %u", condition->rank);
    const uint8_t *wanted = condition->data;
    size_t n = condition->count, kept = 0;
    if (n > (size_t)flat.dims[axis])
        return run_error(r, err, CHURON_INVALID, "condition: expected at most %lld elements, got %zu",
                         (long long)flat.dims[axis], n);
    for (size_t i = 0; i < n; i++) kept += wanted[i] != 0;
    int64_t dims[TENSOR_MAX_RANK];
    memcpy(dims, flat.dims, sizeof dims);
    dims[axis] = (int64_t)kept;
    tensor *out;
    TRY(run_out_shaped(r, 0, x->type, flat.rank, dims, &out, err));
    size_t outer = dims_product(flat.dims, 0, axis),
           bytes = dims_product(flat.dims, axis + 1, flat.rank) * size;
    char *to = out->data;
    for (size_t o = 0; o < outer && bytes > 0; o++) {
        const char *from = (const char *)x->data + o * (size_t)flat.dims[axis] * bytes;
        TRY(run_check(r, err));
        for (size_t i = 0; i < n;) {
            size_t run = i;
            while (run < n && wanted[run]) run++;
            if (run > i) memcpy(to, from + i * bytes, (run - i) * bytes);
            to += (run - i) * bytes;
            i = run + 1;
        }
    }
    return strings_own(out, err);
}

/* ---- NonZero ------------------------------------------------------------------------------------------ */

static status infer_non_zero(op_shapes *s, error *err) {
    size_t rank;
    const dim *dims;
    bool ranked = shapes_in(s, 0, &rank, &dims);
    return shapes_out(s, 0, 2, (dim[]){ranked ? (dim)rank : dim_fresh(s), dim_fresh(s)}, err);
}

/* What counts as zero: -0 too, the empty string too. */
static bool is_zero(const tensor *x, size_t i) {
    size_t size = tensor_elem_size(x);
    const unsigned char *p = (const unsigned char *)x->data + i * size;
    double v[2] = {0, 0};
    switch (x->type) {
    case ELEM_STRING: return ((const tensor_string *)x->data)[i].len == 0;
    case ELEM_C64:
        v[0] = (double)((const float *)x->data)[2 * i];
        v[1] = (double)((const float *)x->data)[2 * i + 1];
        return v[0] == 0 && v[1] == 0;
    case ELEM_C128: memcpy(v, p, sizeof v); return v[0] == 0 && v[1] == 0;
    case ELEM_F32: return ((const float *)x->data)[i] == 0;
    case ELEM_F64: return ((const double *)x->data)[i] == 0;
    case ELEM_F16:
    case ELEM_BF16: return (((const uint16_t *)x->data)[i] & 0x7fff) == 0;
    default:
        for (size_t k = 0; k < size; k++)
            if (p[k]) return false;
        return true;
    }
}

static status run_non_zero(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    size_t found = 0, at = 0;
    for (size_t i = 0; i < x->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        found += !is_zero(x, i);
    }
    tensor *out;
    TRY(run_out_shaped(r, 0, ELEM_I64, 2, (int64_t[]){x->rank, (int64_t)found}, &out, err));
    int64_t *to = out->data;
    for (size_t i = 0; i < x->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        if (is_zero(x, i)) continue;
        size_t rest = i;
        for (size_t d = x->rank; d-- > 0;) {
            to[d * found + at] = (int64_t)(rest % (size_t)x->dims[d]);
            rest /= (size_t)x->dims[d];
        }
        at++;
    }
    return CHURON_OK;
}

/* ---- OneHot ------------------------------------------------------------------------------------------- */

static status infer_one_hot(op_shapes *s, error *err) {
    const select_state *state = shapes_state(s);
    size_t rank, axis, n;
    const dim *dims, *depth;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank + 1 > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT, "indices: expected rank %d at most, got %zu",
                        TENSOR_MAX_RANK - 1, rank);
    TRY(op_axis(shapes_node(s), state->axis, rank + 1, "axis", &axis, err));
    dim out[TENSOR_MAX_RANK], size = shapes_in_values(s, 1, &n, &depth) && n == 1 ? depth[0] : dim_fresh(s);
    if (dim_known(size) && size < 0)
        return op_error(shapes_node(s), err, CHURON_INVALID, "depth: expected at least 0, got %lld",
                        (long long)size);
    for (size_t d = 0; d <= rank; d++) out[d] = d == axis ? size : *dims++;
    return shapes_out(s, 0, rank + 1, out, err);
}

/* No tensor has so many elements; below it doubles are exact. */
#define DEPTH_LIMIT 1e12

static status run_one_hot(op_run *r, error *err) {
    const select_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *depth_in = run_in(r, 1), *pair = run_in(r, 2);
    size_t axis;
    TRY(op_axis(run_node(r), s->axis, x->rank + 1, "axis", &axis, err));
    if (pair->count != 2 || depth_in->count != 1)
        return run_error(r, err, CHURON_INVALID, "expected one depth and two values, got %zu and %zu",
                         depth_in->count, pair->count);
    double wide;
    elem_to_f64(depth_in->type, depth_in->data, &wide, 1);
    if (!(wide >= 0 && wide < DEPTH_LIMIT))
        return run_error(r, err, wide >= 0 ? CHURON_LIMIT : CHURON_INVALID,
                         "depth: expected 0 or more and less than %.0f, got %.17g", DEPTH_LIMIT, wide);
    int64_t depth = (int64_t)wide, dims[TENSOR_MAX_RANK];
    for (size_t d = 0, k = 0; d <= x->rank; d++) dims[d] = d == axis ? depth : x->dims[k++];
    size_t count;
    TRY(tensor_count(pair->type, x->rank + 1, dims, &count, "output", err));
    tensor *out;
    TRY(run_out_shaped(r, 0, pair->type, x->rank + 1, dims, &out, err));
    size_t size = tensor_elem_size(pair), inner = dims_product(x->dims, axis, x->rank);
    char *to = out->data;
    move_fill_run(r, to, pair->data, out->count, size);
    for (size_t i = 0; i < x->count; i++) {
        if (i % 65536 == 0) TRY(run_check(r, err));
        double v;
        elem_to_f64(x->type, (const char *)x->data + i * tensor_elem_size(x), &v, 1);
        if (!(v > -1 - (double)depth && v < (double)depth)) continue; /* outside: all off */
        int64_t at = (int64_t)v;
        if (at < -depth) continue;
        if (at < 0) at += depth;
        memcpy(to + ((i / inner * (size_t)depth + (size_t)at) * inner + i % inner) * size,
               (const char *)pair->data + size, size);
    }
    return strings_own(out, err);
}

/* ---- Unique ------------------------------------------------------------------------------------------- */

/* Items to compare: `count` of them, each `outer` runs of `inner` elements. */
typedef struct unique_items {
    const tensor *x;
    size_t count, outer, inner;
} unique_items;

static int compare_elements(const tensor *x, size_t a, size_t b) {
#define COMPARE(T)                                                                                           \
    {                                                                                                        \
        T va = ((const T *)x->data)[a], vb = ((const T *)x->data)[b];                                        \
        return (va > vb) - (va < vb);                                                                        \
    }
    switch (x->type) {
    case ELEM_U8:
    case ELEM_BOOL: COMPARE(uint8_t)
    case ELEM_I8: COMPARE(int8_t)
    case ELEM_U16: COMPARE(uint16_t)
    case ELEM_I16: COMPARE(int16_t)
    case ELEM_U32: COMPARE(uint32_t)
    case ELEM_I32: COMPARE(int32_t)
    case ELEM_U64: COMPARE(uint64_t)
    case ELEM_I64: COMPARE(int64_t)
    case ELEM_STRING: {
        const tensor_string *sa = (const tensor_string *)x->data + a,
                            *sb = (const tensor_string *)x->data + b;
        size_t n = sa->len < sb->len ? sa->len : sb->len;
        int order = n ? memcmp(sa->data, sb->data, n) : 0;
        return order ? order : (sa->len > sb->len) - (sa->len < sb->len);
    }
    default: break;
    }
    double va[2] = {0, 0}, vb[2] = {0, 0};
    size_t size = tensor_elem_size(x);
    const char *pa = (const char *)x->data + a * size, *pb = (const char *)x->data + b * size;
    if (x->type == ELEM_C64 || x->type == ELEM_C128) {
        elem part = x->type == ELEM_C64 ? ELEM_F32 : ELEM_F64;
        elem_to_f64(part, pa, va, 2);
        elem_to_f64(part, pb, vb, 2);
    } else {
        elem_to_f64(x->type, pa, va, 1);
        elem_to_f64(x->type, pb, vb, 1);
    }
    for (size_t k = 0; k < 2; k++) { /* NaN is equal to itself and above all numbers */
        if (va[k] != va[k] || vb[k] != vb[k]) {
            int order = (va[k] != va[k]) - (vb[k] != vb[k]);
            if (order) return order;
        } else if (va[k] != vb[k]) {
            return va[k] > vb[k] ? 1 : -1;
        }
    }
    return 0;
}

static int compare_items(const unique_items *u, size_t a, size_t b) {
    for (size_t o = 0; o < u->outer; o++)
        for (size_t i = 0; i < u->inner; i++) {
            size_t base = o * u->count * u->inner + i;
            int order = compare_elements(u->x, base + a * u->inner, base + b * u->inner);
            if (order) return order;
        }
    return 0;
}

/* Stable merge sort of item numbers: equal items stay in the order of their first appearance. */
static status sort_items(op_run *r, const unique_items *u, size_t *order, size_t *spare, error *err) {
    size_t work = 0; /* elements compared since the last look at the clock, about */
    const size_t item = u->outer * u->inner;
    for (size_t i = 0; i < u->count; i++) order[i] = i;
    for (size_t width = 1; width < u->count; width *= 2) {
        for (size_t begin = 0; begin < u->count; begin += 2 * width) {
            size_t middle = begin + width < u->count ? begin + width : u->count;
            size_t end = begin + 2 * width < u->count ? begin + 2 * width : u->count;
            size_t a = begin, b = middle;
            for (size_t i = begin; i < end; i++) {
                if ((work += item) >= 65536) {
                    TRY(run_check(r, err));
                    work = 0;
                }
                spare[i] = a < middle && (b >= end || compare_items(u, order[a], order[b]) <= 0) ? order[a++]
                                                                                                 : order[b++];
            }
        }
        memcpy(order, spare, u->count * sizeof *order);
    }
    return CHURON_OK;
}

/* com.microsoft's: no attributes, values as they first appear. */
static status prepare_ms_unique(op_node *n, error *err) {
    select_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->microsoft = true;
    return CHURON_OK;
}

static status infer_unique(op_shapes *s, error *err) {
    const select_state *state = shapes_state(s);
    size_t rank, axis;
    const dim *dims;
    dim n = dim_fresh(s), inverse = dim_fresh(s);
    bool ranked = shapes_in(s, 0, &rank, &dims);
    if (ranked && !state->has_axis) {
        inverse = 1;
        for (size_t d = 0; d < rank; d++) inverse = dim_mul(s, inverse, dims[d]);
    }
    if (!state->has_axis) {
        TRY(shapes_out(s, 0, 1, &n, err));
    } else if (ranked) {
        dim out[TENSOR_MAX_RANK];
        TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
        memcpy(out, dims, rank * sizeof *dims);
        inverse = dims[axis];
        out[axis] = n;
        TRY(shapes_out(s, 0, rank, out, err));
    } else {
        shapes_out_unknown(s, 0);
    }
    const dim sizes[3] = {state->microsoft ? inverse : n, state->microsoft ? n : inverse, n};
    for (size_t i = 1; i < 4; i++)
        if (op_has_output(shapes_node(s), i)) TRY(shapes_out(s, i, 1, &sizes[i - 1], err));
    return CHURON_OK;
}

static status write_numbers(op_run *r, size_t i, size_t n, const size_t *v, error *err) {
    if (!op_has_output(run_node(r), i)) return CHURON_OK;
    tensor *out;
    TRY(run_out_shaped(r, i, ELEM_I64, 1, (int64_t[]){(int64_t)n}, &out, err));
    for (size_t k = 0; k < n; k++) ((int64_t *)out->data)[k] = (int64_t)v[k];
    return CHURON_OK;
}

static int by_number(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Groups of equal items in `order` become numbers: first[g], count[g], and inverse[item]. */
static size_t group_items(const unique_items *u, bool sorted, const size_t *order, size_t *first,
                          size_t *count, size_t *inverse, size_t *rank_of) {
    size_t n = 0;
    for (size_t i = 0; i < u->count; i++) {
        if (i == 0 || compare_items(u, order[i - 1], order[i]) != 0) {
            first[n] = order[i];
            rank_of[n++] = order[i];
        }
        inverse[order[i]] = n - 1;
    }
    if (!sorted) { /* groups in the order of their first items */
        qsort(rank_of, n, sizeof *rank_of, by_number);
        for (size_t i = 0; i < u->count; i++) inverse[i] = first[inverse[i]];
        memcpy(first, rank_of, n * sizeof *first);
        for (size_t i = 0; i < u->count; i++) {
            const size_t *found = bsearch(&inverse[i], first, n, sizeof *first, by_number);
            inverse[i] = (size_t)(found - first);
        }
    }
    memset(count, 0, n * sizeof *count);
    for (size_t i = 0; i < u->count; i++) count[inverse[i]]++;
    return n;
}

static status run_unique(op_run *r, error *err) {
    const select_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t axis = 0, size = tensor_elem_size(x);
    unique_items u = {x, x->count, 1, 1};
    if (s->has_axis) {
        TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
        u = (unique_items){x, (size_t)x->dims[axis], dims_product(x->dims, 0, axis),
                           dims_product(x->dims, axis + 1, x->rank)};
    }
    void *scratch;
    TRY(run_scratch(r, (u.count + 1) * 6 * sizeof(size_t), &scratch, err));
    size_t *order = scratch, *first = order + u.count, *count = first + u.count, *inverse = count + u.count,
           *ranks = inverse + u.count, *spare = ranks + u.count;
    TRY(sort_items(r, &u, order, spare, err));
    size_t n = group_items(&u, s->sorted, order, first, count, inverse, ranks);
    int64_t dims[TENSOR_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = (int64_t)n;
    tensor *out;
    TRY(run_out_shaped(r, 0, x->type, s->has_axis ? x->rank : 1, dims, &out, err));
    size_t bytes = u.inner * size;
    for (size_t o = 0; o < u.outer && bytes > 0; o++)
        for (size_t g = 0; g < n; g++)
            memcpy((char *)out->data + (o * n + g) * bytes,
                   (const char *)x->data + (o * u.count + first[g]) * bytes, bytes);
    TRY(strings_own(out, err));
    if (s->microsoft) { /* the first places are no output */
        TRY(write_numbers(r, 1, u.count, inverse, err));
        return write_numbers(r, 2, n, count, err);
    }
    TRY(write_numbers(r, 1, n, first, err));
    TRY(write_numbers(r, 2, u.count, inverse, err));
    return write_numbers(r, 3, n, count, err);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define SELECT(name, since, until, signature, types, prepare, infer, run)                                    \
    { "", name, since, until, 0, signature, {{'T', types}}, prepare, mem_free, infer, NULL, run }
#define ONE_HOT(since, until, types)                                                                         \
    {                                                                                                        \
        "", "OneHot", since, until, 0, "IDT>T", {{'T', types}, {'I', TYPES_NUM_OLD}, {'D', TYPES_NUM_OLD}},  \
            prepare_one_hot, mem_free, infer_one_hot, NULL, run_one_hot                                      \
    }

static const op_def rows[] = {
    SELECT("Compress", 9, 27, "Tb>T", TYPES_ALL_1, prepare_optional_axis, infer_compress, run_compress),
    SELECT("Compress", 28, 0, "Tb>T", TYPES_ALL_13, prepare_optional_axis, infer_compress, run_compress),
    SELECT("NonZero", 9, 12, "T>i", TYPES_ALL_1, NULL, infer_non_zero, run_non_zero),
    SELECT("NonZero", 13, 0, "T>i", TYPES_ALL_13, NULL, infer_non_zero, run_non_zero),
    SELECT("Unique", 11, 27, "T>Tiii", TYPES_ALL_1, prepare_optional_axis, infer_unique, run_unique),
    SELECT("Unique", 28, 0, "T>Tiii", TYPES_ALL_13, prepare_optional_axis, infer_unique, run_unique),
    {"com.microsoft",
     "Unique",
     1,
     0,
     0,
     "T>Tii",
     {{'T', TYPES_ALL_1}},
     prepare_ms_unique,
     mem_free,
     infer_unique,
     NULL,
     run_unique},
    ONE_HOT(9, 27, TYPES_ALL_1),
    ONE_HOT(28, 0, TYPES_ALL_13),
};
const op_table ops_select = {rows, sizeof rows / sizeof *rows};
