/* rank.c: operators that compare along an axis, ArgMax, ArgMin, TopK, Hardmax; and the running CumSum,
 * CumProd.
 *
 * Every element becomes a 64-bit key whose unsigned order is the order of the type, NaN above all numbers, -0
 * equal to 0; so one comparison serves every type. Among equals the lower index comes first (ArgMax and
 * ArgMin may be asked for the last). */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/integers.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <string.h>

typedef struct rank_state {
    int64_t axis, k;        /* k: TopK 1 */
    bool keep, last, least; /* least: the smallest are wanted */
    bool flat;              /* Hardmax before 13: the axis and all behind it are one */
    bool exclusive, reverse;
    binary_op op; /* of CumSum, CumProd */
} rank_state;

static status new_state(op_node *n, int64_t axis, rank_state **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (*out == NULL) return error_no_memory(err, "operator state", sizeof **out);
    op_set_state(n, *out);
    return op_attr_int(n, "axis", axis, -TENSOR_MAX_RANK, TENSOR_MAX_RANK, &(*out)->axis, err);
}

/* The tensor as [outer, n, inner] around an axis. */
typedef struct around {
    size_t outer, n, inner;
} around;

static around around_axis(const tensor *x, size_t axis, bool flat) {
    around a = {dims_product(x->dims, 0, axis), (size_t)x->dims[axis],
                dims_product(x->dims, axis + 1, x->rank)};
    if (flat) {
        a.n *= a.inner;
        a.inner = 1;
    }
    return a;
}

/* ---- keys --------------------------------------------------------------------------------------------- */

#define SIGN64 ((uint64_t)1 << 63)

static uint64_t key_of_double(double v) {
    if (v != v) return UINT64_MAX;
    v += 0.0; /* -0 is 0 */
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & SIGN64 ? ~bits : bits | SIGN64;
}

static uint64_t key_of_float(float v) {
    if (v != v) return UINT64_MAX;
    v += 0.0f;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 31 ? (uint32_t)~bits : bits | (uint32_t)1 << 31;
}

/* keys[i] of elements at + i*stride. */
static void load_keys(const tensor *x, size_t at, size_t stride, size_t n, uint64_t *keys) {
    size_t size = tensor_elem_size(x);
    const char *p = (const char *)x->data + at * size;
    if (x->type == ELEM_F32) {
        for (size_t i = 0; i < n; i++) keys[i] = key_of_float(((const float *)x->data)[at + i * stride]);
    } else if (ELEM_BIT(x->type) & ELEMS_FLOAT) {
        for (size_t i = 0; i < n; i++) {
            double v;
            elem_to_f64(x->type, p + i * stride * size, &v, 1);
            keys[i] = key_of_double(v);
        }
    } else {
        uint64_t flip = ELEM_BIT(x->type) & ELEMS_SIGNED ? SIGN64 : 0;
        for (size_t i = 0; i < n; i++) {
            int64_t v;
            integers_load(x->type, p + i * stride * size, &v, 1);
            keys[i] = (uint64_t)v ^ flip;
        }
    }
}

/* ---- ArgMax, ArgMin, Hardmax -------------------------------------------------------------------------- */

static status prepare_arg(op_node *n, error *err) {
    rank_state *s;
    TRY(new_state(n, 0, &s, err));
    s->least = strcmp(op_operator(n), "ArgMin") == 0;
    TRY(op_attr_bool(n, "keepdims", true, &s->keep, err));
    return op_version(n) < 12 ? CHURON_OK : op_attr_bool(n, "select_last_index", false, &s->last, err);
}

static status infer_arg(op_shapes *s, error *err) {
    const rank_state *state = shapes_state(s);
    size_t rank, axis, m = 0;
    const dim *dims;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank == 0)
        return op_error(shapes_node(s), err, CHURON_INVALID, "data: expected rank 1 or more, got 0");
    TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
    if (dims[axis] == 0)
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "axis: expected a dimension of at least 1, got 0");
    dim out[TENSOR_MAX_RANK];
    for (size_t d = 0; d < rank; d++) {
        if (d != axis)
            out[m++] = dims[d];
        else if (state->keep)
            out[m++] = 1;
    }
    return shapes_out(s, 0, m, out, err);
}

typedef struct arg_job {
    const rank_state *s;
    const tensor *x;
    around a;
    int64_t *out;    /* ArgMax */
    tensor *one_hot; /* Hardmax */
    const void *one;
} arg_job;

enum { KEY_BLOCK = 256 };

/* The same for a contiguous run of f32 without NaN: the value first, then where it is. SIZE_MAX: there is
 * one. */
static size_t best_of_run(const rank_state *s, const float *x, size_t n) {
    enum { CHAINS = 16 };
    float chain[CHAINS];
    int nan = 0;
    for (size_t c = 0; c < CHAINS; c++) chain[c] = x[0];
    size_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (size_t c = 0; c < CHAINS; c++) {
            float v = x[i + c], a = chain[c];
            nan |= v != v;
            chain[c] = s->least ? (v < a ? v : a) : (v > a ? v : a);
        }
    for (size_t c = 0; i < n; i++, c++) {
        float v = x[i], a = chain[c];
        nan |= v != v;
        chain[c] = s->least ? (v < a ? v : a) : (v > a ? v : a);
    }
    if (nan || x[0] != x[0]) return SIZE_MAX;
    float best = chain[0];
    for (size_t c = 1; c < CHAINS; c++)
        best = s->least ? (chain[c] < best ? chain[c] : best) : (chain[c] > best ? chain[c] : best);
    size_t at = s->last ? n - 1 : 0;
    while (x[at] != best) at += s->last ? SIZE_MAX : 1;
    return at;
}

/* Index of the best of n elements from `at`. */
static size_t best_of(const rank_state *s, const tensor *x, size_t at, size_t stride, size_t n) {
    uint64_t keys[KEY_BLOCK], best = 0;
    size_t best_at = SIZE_MAX;
    if (x->type == ELEM_F32 && stride == 1 && n > 0) {
        best_at = best_of_run(s, (const float *)x->data + at, n);
        if (best_at != SIZE_MAX) return best_at;
    }
    for (size_t i = 0; i < n; i += KEY_BLOCK) {
        size_t m = n - i < KEY_BLOCK ? n - i : KEY_BLOCK;
        load_keys(x, at + i * stride, stride, m, keys);
        for (size_t e = 0; e < m; e++) {
            /* NaN wins on both sides, as in numpy. */
            uint64_t key = s->least && keys[e] != UINT64_MAX ? ~keys[e] - 1 : keys[e];
            if (best_at != SIZE_MAX && (key < best || (key == best && !s->last))) continue;
            best = key;
            best_at = i + e;
        }
    }
    return best_at;
}

static void arg_range(void *ctx, size_t begin, size_t end) {
    const arg_job *j = ctx;
    for (size_t o = begin; o < end; o++) {
        size_t at = o / j->a.inner * j->a.n * j->a.inner + o % j->a.inner;
        size_t best = best_of(j->s, j->x, at, j->a.inner, j->a.n);
        if (j->out) {
            j->out[o] = (int64_t)best;
        } else {
            size_t size = tensor_elem_size(j->x);
            memcpy((char *)j->one_hot->data + (at + best * j->a.inner) * size, j->one, size);
        }
    }
}

static status run_arg(op_run *r, error *err) {
    const rank_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t axis;
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    arg_job j = {.s = s, .x = x, .a = around_axis(x, axis, false), .out = out->data};
    run_parallel(r, out->count, (double)x->count * 2, arg_range, &j);
    return CHURON_OK;
}

static status prepare_hardmax(op_node *n, error *err) {
    rank_state *s;
    TRY(new_state(n, op_version(n) < 13 ? 1 : -1, &s, err));
    s->flat = op_version(n) < 13;
    return CHURON_OK;
}

static status run_hardmax(op_run *r, error *err) {
    const rank_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    memset(out->data, 0, tensor_bytes(out));
    if (x->count == 0) return CHURON_OK;
    const double one = 1;
    uint64_t bits = 0;
    elem_from_f64(x->type, &one, &bits, 1, false);
    arg_job j = {.s = s, .x = x, .one_hot = out, .one = &bits};
    if (s->flat && (s->axis == (int64_t)x->rank || x->rank == 0)) { /* rows of one element */
        j.a = (around){x->count, 1, 1};
    } else {
        size_t axis;
        TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
        j.a = around_axis(x, axis, s->flat);
    }
    run_parallel(r, j.a.outer * j.a.inner, (double)x->count * 2, arg_range, &j);
    return CHURON_OK;
}

/* ---- TopK --------------------------------------------------------------------------------------------- */

static status prepare_top_k(op_node *n, error *err) {
    rank_state *s;
    TRY(new_state(n, -1, &s, err));
    s->k = -1;
    if (op_version(n) < 10) {
        if (!op_attr_present(n, "k"))
            return op_error(n, err, CHURON_INVALID, "k is required: expected at least 0, got none");
        return op_attr_int(n, "k", 0, 0, INT64_MAX, &s->k, err);
    }
    if (op_version(n) < 11) return CHURON_OK;
    bool largest, sorted; /* sorted is one of the orders that unsorted allows */
    TRY(op_attr_bool(n, "largest", true, &largest, err));
    s->least = !largest;
    return op_attr_bool(n, "sorted", true, &sorted, err);
}

static status infer_top_k(op_shapes *s, error *err) {
    const rank_state *state = shapes_state(s);
    size_t rank, axis, n;
    const dim *dims, *k_in;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        shapes_out_unknown(s, 1);
        return CHURON_OK;
    }
    TRY(op_axis(shapes_node(s), state->axis, rank, "axis", &axis, err));
    dim out[TENSOR_MAX_RANK], k = state->k;
    memcpy(out, dims, rank * sizeof *dims);
    if (k < 0) {
        k = shapes_in_values(s, 1, &n, &k_in) && n == 1 ? k_in[0] : dim_fresh(s);
        if (dim_known(k) && k < 0)
            return op_error(shapes_node(s), err, CHURON_INVALID, "K: expected at least 0, got %lld",
                            (long long)k);
    }
    if (dim_known(k) && dim_known(dims[axis]) && k > dims[axis])
        return op_error(shapes_node(s), err, CHURON_INVALID, "K: expected at most %lld (the axis), got %lld",
                        (long long)dims[axis], (long long)k);
    out[axis] = k;
    TRY(shapes_out(s, 0, rank, out, err));
    return shapes_out(s, 1, rank, out, err);
}

typedef struct top_item {
    uint64_t key; /* descending order is wanted */
    uint64_t index;
} top_item;

static bool worse(top_item a, top_item b) {
    return a.key < b.key || (a.key == b.key && a.index > b.index);
}

/* The worst is at heap[0]. */
static void sift_down(top_item *heap, size_t n, size_t i) {
    top_item moved = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(heap[child + 1], heap[child])) child++;
        if (!worse(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

typedef struct top_job {
    const rank_state *s;
    const tensor *x;
    around a;
    size_t k, part;  /* rows of one part: each has its heap */
    top_item *heaps; /* [parts, k] */
    tensor *values;
    int64_t *indices;
    stop_flag *stop;
} top_job;

static void top_row(const top_job *j, size_t o, top_item *heap) {
    size_t at = o / j->a.inner * j->a.n * j->a.inner + o % j->a.inner, held = 0;
    uint64_t keys[KEY_BLOCK];
    for (size_t i = 0; i < j->a.n; i += KEY_BLOCK) {
        if (stop_at(j->stop, i / KEY_BLOCK, 64))
            return; /* the heap is not full: nothing may be read from it */
        size_t m = j->a.n - i < KEY_BLOCK ? j->a.n - i : KEY_BLOCK;
        load_keys(j->x, at + i * j->a.inner, j->a.inner, m, keys);
        for (size_t e = 0; e < m; e++) {
            top_item item = {j->s->least ? ~keys[e] : keys[e], i + e};
            if (held < j->k) {
                heap[held++] = item;
                if (held == j->k)
                    for (size_t h = j->k / 2; h-- > 0;) sift_down(heap, j->k, h);
            } else if (worse(heap[0], item)) {
                heap[0] = item;
                sift_down(heap, j->k, 0);
            }
        }
    }
    for (size_t n = j->k; n-- > 1;) { /* the worst goes to the end */
        if (stop_at(j->stop, n, 16384)) return;
        top_item worst = heap[0];
        heap[0] = heap[n];
        heap[n] = worst;
        sift_down(heap, n, 0);
    }
    size_t size = tensor_elem_size(j->x), to = o / j->a.inner * j->k * j->a.inner + o % j->a.inner;
    for (size_t i = 0; i < j->k; i++) {
        if (j->values)
            memcpy((char *)j->values->data + (to + i * j->a.inner) * size,
                   (const char *)j->x->data + (at + heap[i].index * j->a.inner) * size, size);
        if (j->indices) j->indices[to + i * j->a.inner] = (int64_t)heap[i].index;
    }
}

static void top_parts(void *ctx, size_t begin, size_t end) {
    const top_job *j = ctx;
    size_t rows = j->a.outer * j->a.inner;
    for (size_t p = begin; p < end; p++)
        for (size_t o = p * j->part; o < rows && o < (p + 1) * j->part && !stop_at(j->stop, o, 16); o++)
            top_row(j, o, j->heaps + p * j->k);
}

static status run_top_k(op_run *r, error *err) {
    enum { PARTS = 32 };
    const rank_state *s = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t axis;
    TRY(op_axis(run_node(r), s->axis, x->rank, "axis", &axis, err));
    tensor *values, *indices;
    TRY(run_out(r, 0, &values, err));
    TRY(run_out(r, 1, &indices, err));
    const tensor *any = values ? values : indices;
    if (any == NULL || any->count == 0) return CHURON_OK;
    top_job j = {.s = s,
                 .x = x,
                 .a = around_axis(x, axis, false),
                 .k = (size_t)any->dims[axis],
                 .values = values,
                 .indices = indices ? indices->data : NULL,
                 .stop = run_stop(r)};
    size_t rows = j.a.outer * j.a.inner, bytes;
    j.part = (rows + PARTS - 1) / PARTS;
    size_t parts = (rows + j.part - 1) / j.part;
    if (!size_mul(j.k, parts * sizeof *j.heaps, &bytes)) return error_no_memory(err, "TopK", SIZE_MAX);
    void *scratch;
    TRY(run_scratch(r, bytes, &scratch, err));
    j.heaps = scratch;
    run_parallel(r, parts, (double)x->count * 5, top_parts, &j);
    return CHURON_OK;
}

/* ---- CumSum, CumProd ---------------------------------------------------------------------------------- */

static status prepare_running(op_node *n, error *err) {
    rank_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    s->op = strcmp(op_operator(n), "CumProd") == 0 ? BINARY_MUL : BINARY_ADD;
    TRY(op_attr_bool(n, "exclusive", false, &s->exclusive, err));
    return op_attr_bool(n, "reverse", false, &s->reverse, err);
}

typedef struct running_job {
    const rank_state *s;
    const tensor *x;
    tensor *out;
    around a;
    const void *identity;
    stop_flag *stop;
} running_job;

enum { RUNNING_BLOCK = 64 };

/* Halves keep their running value in f32 and are rounded once an element. */
static void running_half(const running_job *j, size_t at, size_t n) {
    float acc[RUNNING_BLOCK], v[RUNNING_BLOCK];
    elem e = j->x->type;
    const uint16_t *x = j->x->data;
    uint16_t *y = j->out->data;
    for (size_t c = 0; c < n; c++) acc[c] = j->s->op == BINARY_MUL ? 1.0f : 0.0f;
    for (size_t i = 0; i < j->a.n && !stop_at(j->stop, i, 8192); i++) {
        size_t row = at + (j->s->reverse ? j->a.n - 1 - i : i) * j->a.inner;
        elem_to_f32(e, x + row, v, n);
        if (j->s->exclusive) elem_from_f32(e, acc, y + row, n, false);
        binary_apply(j->s->op, ELEM_F32, acc, v, acc, n, BINARY_BOTH);
        if (!j->s->exclusive) elem_from_f32(e, acc, y + row, n, false);
    }
}

/* Blocks of columns; each runs along the axis. */
static void running_range(void *ctx, size_t begin, size_t end) {
    const running_job *j = ctx;
    size_t blocks = (j->a.inner + RUNNING_BLOCK - 1) / RUNNING_BLOCK, size = tensor_elem_size(j->x);
    for (size_t b = begin; b < end; b++) {
        size_t first = b % blocks * RUNNING_BLOCK;
        size_t n = j->a.inner - first < RUNNING_BLOCK ? j->a.inner - first : RUNNING_BLOCK;
        size_t at = b / blocks * j->a.n * j->a.inner + first;
        if (j->x->type == ELEM_F16 || j->x->type == ELEM_BF16) {
            running_half(j, at, n);
            continue;
        }
        const char *x = j->x->data;
        char *y = j->out->data, *before = NULL;
        uint64_t acc[RUNNING_BLOCK];
        for (size_t i = 0; i < j->a.n && !stop_at(j->stop, i, 8192); i++) {
            size_t row = (at + (j->s->reverse ? j->a.n - 1 - i : i) * j->a.inner) * size;
            if (!j->s->exclusive) {
                if (before)
                    binary_apply(j->s->op, j->x->type, before, x + row, y + row, n, BINARY_BOTH);
                else
                    memmove(y + row, x + row, n * size);
                before = y + row;
                continue;
            }
            uint64_t sum[RUNNING_BLOCK];
            if (i == 0) move_fill(acc, j->identity, n, size);
            binary_apply(j->s->op, j->x->type, acc, x + row, sum, n, BINARY_BOTH);
            memcpy(y + row, acc, n * size);
            memcpy(acc, sum, n * size);
        }
    }
}

static status run_running(op_run *r, error *err) {
    const rank_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *axis_in = run_in(r, 1);
    size_t axis;
    if (axis_in->count != 1)
        return run_error(r, err, CHURON_INVALID, "axis: expected one element, got %zu", axis_in->count);
    TRY(op_axis(run_node(r), index_at(axis_in, 0), x->rank, "axis", &axis, err));
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    if (x->count == 0) return CHURON_OK;
    const double first = s->op == BINARY_MUL ? 1 : 0;
    uint64_t identity = 0;
    elem_from_f64(x->type, &first, &identity, 1, false);
    running_job j = {s, x, out, around_axis(x, axis, false), &identity, run_stop(r)};
    size_t blocks = (j.a.inner + RUNNING_BLOCK - 1) / RUNNING_BLOCK;
    run_parallel(r, j.a.outer * blocks, (double)x->count * 3, running_range, &j);
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define ARG(name)                                                                                              \
    {"", name, 1, 11, 0, "T>i", {{'T', TYPES_NUM_OLD}}, prepare_arg, mem_free, infer_arg, NULL, run_arg},      \
        {"", name, 12, 12, 0, "T>i", {{'T', TYPES_NUM_OLD}}, prepare_arg, mem_free, infer_arg, NULL, run_arg}, \
    {                                                                                                          \
        "", name, 13, 0, 0, "T>i", {{'T', ELEMS_NUMERIC}}, prepare_arg, mem_free, infer_arg, NULL, run_arg     \
    }
#define TOP(since, until, signature, types)                                                                  \
    {                                                                                                        \
        "", "TopK", since, until, 0, signature, {{'T', types}}, prepare_top_k, mem_free, infer_top_k, NULL,  \
            run_top_k                                                                                        \
    }
#define HARDMAX(since, until, types)                                                                         \
    {                                                                                                        \
        "", "Hardmax", since, until, 0, "T>T", {{'T', types}}, prepare_hardmax, mem_free, infer_same, NULL,  \
            run_hardmax                                                                                      \
    }
#define RUNNING(name, since, until, types)                                                                   \
    {                                                                                                        \
        "", name, since, until, OP_INPLACE, "TI>T", {{'T', types}, {'I', TYPES_INDEX}}, prepare_running,     \
            mem_free, infer_same, NULL, run_running                                                          \
    }

static const op_def rows[] = {
    ARG("ArgMax"),
    ARG("ArgMin"),
    TOP(1, 9, "T>Ti", TYPES_FLOAT_OLD),
    TOP(10, 10, "Ti>Ti", TYPES_FLOAT_OLD),
    TOP(11, 23, "Ti>Ti", TYPES_NUM_OLD),
    TOP(24, 0, "Ti>Ti", ELEMS_NUMERIC),
    HARDMAX(1, 12, TYPES_FLOAT_OLD),
    HARDMAX(13, 0, ELEMS_FLOAT),
    RUNNING("CumSum", 11, 13, TYPES_INT_WIDE | ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64)),
    RUNNING("CumSum", 14, 0, TYPES_WIDE),
    RUNNING("CumProd", 26, 0, TYPES_WIDE),
};
const op_table ops_rank = {rows, sizeof rows / sizeof *rows};
