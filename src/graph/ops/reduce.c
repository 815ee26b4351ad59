/* reduce.c: the ten Reduce operators.
 *
 * Dimensions that lie together and share their fate are merged. Either the innermost one is reduced, then an
 * output element folds runs of it, or it is kept, then a block of output elements folds rows. Floats are
 * folded in double, so that the order within a run matters little; integers in 64 bits that wrap. The order
 * of an output element's folds depends on the shape alone. */
#include "base/mem.h"
#include "graph/ops/integers.h"
#include "graph/ops/move.h"
#include "graph/ops/ops.h"
#include "graph/ops/types.h"

#include <math.h>
#include <string.h>

typedef enum reduction { SUM, MEAN, PROD, MAX, MIN, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP } reduction;

typedef struct reduce_state {
    reduction kind;
    bool keep, noop, attr; /* attr: axes are an attribute */
    size_t n;
    int64_t axes[TENSOR_MAX_RANK];
} reduce_state;

/* ---- prepare and shapes ------------------------------------------------------------------------------- */

static status prepare(op_node *n, bool attr, error *err) {
    static const char *const names[] = {"ReduceSum",    "ReduceMean",     "ReduceProd", "ReduceMax",
                                        "ReduceMin",    "ReduceL1",       "ReduceL2",   "ReduceSumSquare",
                                        "ReduceLogSum", "ReduceLogSumExp"};
    reduce_state *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "operator state", sizeof *s);
    op_set_state(n, s);
    while (strcmp(names[s->kind], op_operator(n)) != 0) s->kind++;
    s->attr = attr;
    TRY(op_attr_bool(n, "keepdims", true, &s->keep, err));
    if (!attr) return op_attr_bool(n, "noop_with_empty_axes", false, &s->noop, err);
    const int64_t *v;
    TRY(op_attr_ints(n, "axes", &v, &s->n, err));
    if (s->n > TENSOR_MAX_RANK)
        return op_error(n, err, CHURON_LIMIT, "axes: expected at most %d, got %zu", TENSOR_MAX_RANK, s->n);
    for (size_t i = 0; i < s->n; i++) s->axes[i] = v[i];
    return CHURON_OK;
}

static status prepare_attr(op_node *n, error *err) {
    return prepare(n, true, err);
}

static status prepare_input(op_node *n, error *err) {
    return prepare(n, false, err);
}

/* mark[d]: dimension d is reduced. */
static status mark_axes(const op_node *node, const reduce_state *s, size_t n, const int64_t *axes,
                        size_t rank, bool *mark, error *err) {
    for (size_t d = 0; d < rank; d++) mark[d] = n == 0 && !s->noop;
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        TRY(op_axis(node, axes[i], rank, "axes", &axis, err));
        mark[axis] = true;
    }
    return CHURON_OK;
}

static status infer_reduce(op_shapes *s, error *err) {
    const reduce_state *state = shapes_state(s);
    size_t rank, n = state->n, m = 0;
    const dim *dims, *axes = state->axes;
    if (!shapes_in(s, 0, &rank, &dims)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    bool known = true, mark[TENSOR_MAX_RANK];
    if (!state->attr && op_has_input(shapes_node(s), 1)) {
        known = shapes_in_values(s, 1, &n, &axes);
        for (size_t i = 0; known && i < n; i++) known = dim_known(axes[i]);
    }
    dim out[TENSOR_MAX_RANK];
    if (!known) {
        if (!state->keep) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        for (size_t d = 0; d < rank; d++) out[d] = dim_fresh(s);
        return shapes_out(s, 0, rank, out, err);
    }
    TRY(mark_axes(shapes_node(s), state, n, axes, rank, mark, err));
    for (size_t d = 0; d < rank; d++) {
        if (!mark[d])
            out[m++] = dims[d];
        else if (state->keep)
            out[m++] = 1;
    }
    return shapes_out(s, 0, m, out, err);
}

static status propagate_reduce(op_shapes *s, error *err) {
    (void)err;
    const reduce_state *state = shapes_state(s);
    size_t n, rank, rank_out;
    const dim *v, *dims;
    if (!shapes_in(s, 0, &rank, &dims) || rank > 1 || !shapes_in_values(s, 0, &n, &v) || n == 0)
        return CHURON_OK;
    (void)rank_out;
    bool all = state->attr || !op_has_input(shapes_node(s), 1) || !state->noop;
    if (!all || (state->noop && !op_has_input(shapes_node(s), 1))) return CHURON_OK;
    dim out = v[0];
    for (size_t i = 1; i < n; i++) {
        switch (state->kind) {
        case SUM: out = dim_add(s, out, v[i]); break;
        case PROD: out = dim_mul(s, out, v[i]); break;
        case MAX: out = dim_max(s, out, v[i]); break;
        case MIN: out = dim_min(s, out, v[i]); break;
        default: return CHURON_OK;
        }
    }
    if (state->kind <= MIN && state->kind != MEAN) shapes_out_values(s, 0, 1, &out);
    return CHURON_OK;
}

/* ---- folds -------------------------------------------------------------------------------------------- */

/* What is folded: a type of the loops below. */
typedef enum source { SOURCE_F32, SOURCE_F64, SOURCE_I64, SOURCE_U64 } source;
typedef enum fold { FOLD_SUM, FOLD_ABS, FOLD_SQUARE, FOLD_PROD, FOLD_MAX, FOLD_MIN, FOLD_COUNT } fold;

typedef union accumulator {
    double f;
    int64_t i;
    uint64_t u;
} accumulator;

enum { COLS = 128, CHAINS = 8 };

/* row: folds n elements into *acc, in CHAINS interleaved chains. cols: acc[i] with element i. */
#define FOLD(name, T, A, member, IDENTITY, MAP, COMBINE)                                                     \
    static void row_##name(accumulator *acc, const void *from, size_t n) {                                   \
        const T *x = from;                                                                                   \
        A chain[CHAINS];                                                                                     \
        for (size_t c = 0; c < CHAINS; c++) chain[c] = (A)(IDENTITY);                                        \
        size_t i = 0;                                                                                        \
        for (; i + CHAINS <= n; i += CHAINS)                                                                 \
            for (size_t c = 0; c < CHAINS; c++) {                                                            \
                A v = (A)x[i + c], a = chain[c], b = (A)(MAP);                                               \
                chain[c] = (A)(COMBINE);                                                                     \
            }                                                                                                \
        for (size_t c = 0; i < n; i++, c++) {                                                                \
            A v = (A)x[i], a = chain[c], b = (A)(MAP);                                                       \
            chain[c] = (A)(COMBINE);                                                                         \
        }                                                                                                    \
        A b = chain[0];                                                                                      \
        for (size_t c = 1; c < CHAINS; c++) {                                                                \
            A a = chain[c];                                                                                  \
            b = (A)(COMBINE);                                                                                \
        }                                                                                                    \
        A a = acc->member;                                                                                   \
        acc->member = (A)(COMBINE);                                                                          \
    }                                                                                                        \
    static void cols_##name(accumulator *acc, const void *from, size_t n) {                                  \
        const T *x = from;                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                                     \
            A v = (A)x[i], a = acc[i].member, b = (A)(MAP);                                                  \
            acc[i].member = (A)(COMBINE);                                                                    \
        }                                                                                                    \
    }

/* f32 in f32: sums of SHORT terms, joined pairwise, which then go into a double; extremes throughout. */
enum { SHORT = 16 };

/* part[c] with x[c]: loops that the compiler vectorizes. Extremes pass NaN over, which has_nan finds. */
static void short_step(fold kind, float *part, const float *x, size_t n) {
    if (kind == FOLD_SUM)
        for (size_t c = 0; c < n; c++) part[c] += x[c];
    else if (kind == FOLD_MAX)
        for (size_t c = 0; c < n; c++) part[c] = x[c] > part[c] ? x[c] : part[c];
    else
        for (size_t c = 0; c < n; c++) part[c] = x[c] < part[c] ? x[c] : part[c];
}

static bool has_nan(const float *x, size_t n) {
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) any |= x[i] != x[i];
    return any != 0;
}

enum { FEW = 64 };

/* Short runs: four chains, value i in chain i % 4, that meet pairwise. */
#define FEW_ROW(name, combine)                                                                               \
    static float name(float start, const float *x, size_t n) {                                               \
        float part[4] = {start, start, start, start};                                                        \
        size_t i = 0;                                                                                        \
        for (; i + 4 <= n; i += 4)                                                                           \
            for (size_t c = 0; c < 4; c++) part[c] = combine(part[c], x[i + c]);                             \
        for (size_t c = 0; i + c < n; c++) part[c] = combine(part[c], x[i + c]);                             \
        return combine(combine(part[0], part[2]), combine(part[1], part[3]));                                \
    }

static inline float sum_of(float a, float b) {
    return a + b;
}
static inline float greater_of(float a, float b) {
    return b > a ? b : a;
}
static inline float lesser_of(float a, float b) {
    return b < a ? b : a;
}
FEW_ROW(few_sum, sum_of)
FEW_ROW(few_greatest, greater_of)
FEW_ROW(few_least, lesser_of)

static void few_row(fold kind, accumulator *acc, const float *x, size_t n) {
    if (kind == FOLD_SUM) {
        acc->f += (double)few_sum(0.0f, x, n);
    } else if (has_nan(x, n) || acc->f != acc->f) {
        acc->f = (double)NAN;
    } else {
        acc->f = (double)(kind == FOLD_MAX ? few_greatest : few_least)((float)acc->f, x, n);
    }
}

/* A run as rows of COLS, folded into one row, which is folded last. */
static void short_row(fold kind, accumulator *acc, const float *x, size_t n) {
    if (n <= FEW) {
        few_row(kind, acc, x, n);
        return;
    }
    float part[COLS];
    size_t width = n < COLS ? n : COLS, rows = 0;
    bool no_number = acc->f != acc->f;
    for (size_t c = 0; c < width; c++) part[c] = kind == FOLD_SUM ? 0.0f : (float)acc->f;
    for (size_t i = 0; i < n; i += COLS) {
        const size_t m = n - i < COLS ? n - i : COLS;
        short_step(kind, part, x + i, m);
        if (kind != FOLD_SUM) no_number |= has_nan(x + i, m);
        if (kind != FOLD_SUM || (++rows % SHORT != 0 && i + COLS < n)) continue;
        size_t w = width;
        for (; w > 8; w = (w + 1) / 2) short_step(FOLD_SUM, part, part + (w + 1) / 2, w / 2);
        for (size_t c = 0; c < w; c++) acc->f += (double)part[c];
        memset(part, 0, sizeof part);
    }
    for (; kind != FOLD_SUM && width > 1; width = (width + 1) / 2)
        short_step(kind, part, part + (width + 1) / 2, width / 2);
    if (kind != FOLD_SUM) acc->f = no_number ? (double)NAN : (double)part[0];
}

static void row_short_sum(accumulator *acc, const void *from, size_t n) {
    short_row(FOLD_SUM, acc, from, n);
}
static void row_greatest(accumulator *acc, const void *from, size_t n) {
    short_row(FOLD_MAX, acc, from, n);
}
static void row_least(accumulator *acc, const void *from, size_t n) {
    short_row(FOLD_MIN, acc, from, n);
}

#define FLOAT_FOLDS(s, T)                                                                                    \
    FOLD(abs_##s, T, double, f, 0, fabs(v), a + b)                                                           \
    FOLD(square_##s, T, double, f, 0, v *v, a + b)                                                           \
    FOLD(prod_##s, T, double, f, 1, v, a *b)
FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
FOLD(sum_f64, double, double, f, 0, v, a + b)
FOLD(max_f64, double, double, f, -INFINITY, v, ((b > a) | (b != b)) ? b : a)
FOLD(min_f64, double, double, f, INFINITY, v, ((b < a) | (b != b)) ? b : a)

/* Signed sums wrap as unsigned ones do. */
FOLD(sum_u64, uint64_t, uint64_t, u, 0, v, a + b)
FOLD(square_u64, uint64_t, uint64_t, u, 0, v *v, a + b)
FOLD(prod_u64, uint64_t, uint64_t, u, 1, v, a *b)
FOLD(max_u64, uint64_t, uint64_t, u, 0, v, b > a ? b : a)
FOLD(min_u64, uint64_t, uint64_t, u, UINT64_MAX, v, b < a ? b : a)
FOLD(abs_i64, uint64_t, uint64_t, u, 0, (v >> 63) ? 0 - v : v, a + b)
FOLD(max_i64, int64_t, int64_t, i, INT64_MIN, v, b > a ? b : a)
FOLD(min_i64, int64_t, int64_t, i, INT64_MAX, v, b < a ? b : a)

typedef void (*fold_loop)(accumulator *acc, const void *from, size_t n);
typedef struct fold_pair {
    fold_loop row, cols;
} fold_pair;

#define PAIR(name)                                                                                           \
    { row_##name, cols_##name }
static const fold_pair folds[4][FOLD_COUNT] = {
    {{row_short_sum, NULL}, /* columns: fold_short_cols */
     PAIR(abs_f32),
     PAIR(square_f32),
     PAIR(prod_f32),
     {row_greatest, NULL},
     {row_least, NULL}},
    {PAIR(sum_f64), PAIR(abs_f64), PAIR(square_f64), PAIR(prod_f64), PAIR(max_f64), PAIR(min_f64)},
    {PAIR(sum_u64), PAIR(abs_i64), PAIR(square_u64), PAIR(prod_u64), PAIR(max_i64), PAIR(min_i64)},
    {PAIR(sum_u64), PAIR(sum_u64), PAIR(square_u64), PAIR(prod_u64), PAIR(max_u64), PAIR(min_u64)},
};

/* ---- the nest ----------------------------------------------------------------------------------------- */

typedef struct nest {
    size_t n_kept, n_reduced; /* dimensions outside of the innermost one */
    size_t kept[TENSOR_MAX_RANK], kept_stride[TENSOR_MAX_RANK];
    size_t reduced[TENSOR_MAX_RANK], reduced_stride[TENSOR_MAX_RANK];
    size_t inner; /* elements of the innermost dimension */
    bool inner_reduced;
    size_t folds; /* product of reduced[] */
    size_t count; /* elements that one output element folds */
    size_t rows;  /* product of kept[] */
} nest;

static void make_nest(nest *t, const tensor *x, const bool *mark) {
    *t = (nest){.inner = 1, .folds = 1, .count = 1, .rows = 1};
    bool open = true; /* the innermost dimension may still grow */
    size_t stride = 1, last = SIZE_MAX;
    for (size_t d = x->rank; d-- > 0;) {
        size_t size = (size_t)x->dims[d];
        if (mark[d]) t->count *= size;
        if (size == 1) continue;
        if (open && (last == SIZE_MAX || mark[d] == mark[last])) {
            t->inner *= size;
            t->inner_reduced = mark[d];
        } else {
            bool grows = !open && mark[d] == mark[last];
            open = false;
            size_t *n = mark[d] ? &t->n_reduced : &t->n_kept;
            size_t *dims = mark[d] ? t->reduced : t->kept,
                   *strides = mark[d] ? t->reduced_stride : t->kept_stride;
            if (grows) {
                dims[*n - 1] *= size;
            } else {
                dims[*n] = size;
                strides[(*n)++] = stride;
            }
        }
        last = d;
        stride *= size;
    }
    for (size_t i = 0; i < t->n_reduced; i++) t->folds *= t->reduced[i];
    for (size_t i = 0; i < t->n_kept; i++) t->rows *= t->kept[i];
}

/* dims[0] is the innermost one. */
static size_t offset_of(size_t index, const size_t *dims, const size_t *strides, size_t n) {
    size_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        offset += index % dims[i] * strides[i];
        index /= dims[i];
    }
    return offset;
}

typedef struct reduce_job {
    const reduce_state *s;
    const kernels *k;
    const tensor *x;
    tensor *out;
    nest t;
    source from;
    fold kind;
    size_t blocks; /* of COLS in a row */
    stop_flag *stop;
} reduce_job;

enum { LOAD = 512 };
typedef union loaded {
    float f32[LOAD];
    double f64[LOAD];
    int64_t i64[LOAD];
} loaded;

/* n elements from `at` as the source's type: where they are, or converted into *buffer (n at most LOAD). */
static const void *load(const reduce_job *j, size_t at, size_t n, loaded *buffer) {
    const char *p = (const char *)j->x->data + at * tensor_elem_size(j->x);
    elem e = j->x->type;
    if (e == ELEM_F32 || e == ELEM_F64 || e == ELEM_I64 || e == ELEM_U64) return p;
    if (j->from == SOURCE_F32)
        elem_to_f32(e, p, buffer->f32, n);
    else
        integers_load(e, p, buffer->i64, n);
    return buffer;
}

static size_t load_most(const reduce_job *j) {
    elem e = j->x->type;
    return e == ELEM_F32 || e == ELEM_F64 || e == ELEM_I64 || e == ELEM_U64 ? SIZE_MAX : LOAD;
}

static accumulator identity(const reduce_job *j, fold kind) {
    accumulator a = {.u = 0};
    elem e = j->x->type;
    bool is_float = j->from == SOURCE_F32 || j->from == SOURCE_F64;
    unsigned bits = elem_describe(e)->bits;
    if (kind == FOLD_PROD) {
        if (is_float)
            a.f = 1;
        else
            a.u = 1;
    } else if (kind == FOLD_MAX || kind == FOLD_MIN) {
        if (is_float)
            a.f = kind == FOLD_MAX ? -(double)INFINITY : (double)INFINITY;
        else if (e == ELEM_BOOL)
            a.u = kind == FOLD_MIN;
        else if (ELEM_BIT(e) & ELEMS_SIGNED) /* least and most of the type */
            a.i = kind == FOLD_MAX ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits);
        else
            a.u = kind == FOLD_MAX ? 0 : UINT64_MAX >> (64 - bits);
    }
    return a;
}

static void fold_run(const reduce_job *j, fold kind, accumulator *acc, size_t at, size_t n) {
    loaded buffer;
    size_t most = load_most(j);
    for (size_t i = 0; i < n; i += most < n - i ? most : n - i) {
        size_t m = n - i < most ? n - i : most;
        folds[j->from][kind].row(acc, load(j, at + i, m, &buffer), m);
    }
}

/* sum += e^(x - top) */
static void exp_run(const reduce_job *j, double top, double *sum, size_t at, size_t n) {
    loaded buffer;
    size_t size = tensor_elem_size(j->x);
    for (size_t i = 0; i < n && !stop_at(j->stop, i / LOAD, 64); i += LOAD) {
        size_t m = n - i < LOAD ? n - i : LOAD;
        const char *p = (const char *)j->x->data + (at + i) * size;
        if (j->from == SOURCE_F32) {
            elem_to_f32(j->x->type, p, buffer.f32, m);
            for (size_t e = 0; e < m; e++) buffer.f32[e] -= (float)top;
            j->k->exp(buffer.f32, buffer.f32, m);
            for (size_t e = 0; e < m; e++) *sum += (double)buffer.f32[e];
        } else {
            elem_to_f64(j->x->type, p, buffer.f64, m);
            for (size_t e = 0; e < m; e++) *sum += exp(buffer.f64[e] - top);
        }
    }
}

static double as_double(const reduce_job *j, accumulator a) {
    return j->from == SOURCE_I64 ? (double)a.i : j->from == SOURCE_U64 ? (double)a.u : a.f;
}

/* Largest element as the exponent's reference; 0 where it is infinite or NaN. */
static double finite(double top) {
    return isfinite(top) ? top : 0;
}

static void store(const reduce_job *j, size_t at, accumulator a) {
    elem e = j->out->type;
    char *to = (char *)j->out->data + at * tensor_elem_size(j->out);
    bool is_float = j->from == SOURCE_F32 || j->from == SOURCE_F64;
    double v = as_double(j, a);
    switch (j->s->kind) {
    case MEAN:
        if (!is_float) {
            if (j->t.count == 0)
                a.u = 0;
            else if (j->from == SOURCE_I64)
                a.i /= (int64_t)j->t.count;
            else
                a.u /= j->t.count;
        }
        v /= (double)j->t.count;
        break;
    case L2: v = sqrt(v); break;
    case LOG_SUM: v = log(v); break;
    default: break;
    }
    if (e == ELEM_F32)
        *(float *)(void *)to = (float)v;
    else if (is_float || j->s->kind == L2 || j->s->kind == LOG_SUM)
        elem_from_f64(e, &v, to, 1, false);
    else
        integers_store(e, &a.i, to, 1);
}

static void store_log(const reduce_job *j, size_t at, double top, double sum) {
    double v = top + log(sum);
    elem_from_f64(j->out->type, &v, (char *)j->out->data + at * tensor_elem_size(j->out), 1, false);
}

/* Output elements [begin, end), each a fold of runs. */
static void reduce_runs(void *ctx, size_t begin, size_t end) {
    const reduce_job *j = ctx;
    const nest *t = &j->t;
    for (size_t o = begin; o < end; o++) {
        size_t base = offset_of(o, t->kept, t->kept_stride, t->n_kept);
        accumulator acc = identity(j, j->kind);
        for (size_t f = 0; f < t->folds && !stop_at(j->stop, f, 64); f++)
            fold_run(j, j->kind, &acc, base + offset_of(f, t->reduced, t->reduced_stride, t->n_reduced),
                     t->inner);
        if (j->s->kind != LOG_SUM_EXP) {
            store(j, o, acc);
            continue;
        }
        double sum = 0, top = finite(as_double(j, acc));
        for (size_t f = 0; f < t->folds && !stop_at(j->stop, f, 64); f++)
            exp_run(j, top, &sum, base + offset_of(f, t->reduced, t->reduced_stride, t->n_reduced), t->inner);
        store_log(j, o, top, sum);
    }
}

/* sum[c] += e^(x[c] - top[c]) */
static void exp_cols(const reduce_job *j, const double *top, double *sum, size_t at, size_t n) {
    loaded buffer;
    const char *p = (const char *)j->x->data + at * tensor_elem_size(j->x);
    if (j->from == SOURCE_F32) {
        elem_to_f32(j->x->type, p, buffer.f32, n);
        for (size_t c = 0; c < n; c++) buffer.f32[c] -= (float)top[c];
        j->k->exp(buffer.f32, buffer.f32, n);
        for (size_t c = 0; c < n; c++) sum[c] += (double)buffer.f32[c];
    } else {
        elem_to_f64(j->x->type, p, buffer.f64, n);
        for (size_t c = 0; c < n; c++) sum[c] += exp(buffer.f64[c] - top[c]);
    }
}

/* The folds of f32 columns whose loops keep f32: sums for SHORT rows, extremes throughout. */
static void fold_short_cols(const reduce_job *j, accumulator *acc, size_t base, size_t n) {
    const nest *t = &j->t;
    float part[COLS];
    loaded buffer;
    uint32_t no_number[COLS] = {0};
    bool sums = j->kind == FOLD_SUM;
    for (size_t c = 0; c < n; c++) part[c] = sums ? 0.0f : (float)acc[c].f;
    for (size_t f = 0; f < t->folds && !stop_at(j->stop, f, 1024); f++) {
        size_t from = base + offset_of(f, t->reduced, t->reduced_stride, t->n_reduced);
        const float *x = load(j, from, n, &buffer);
        short_step(j->kind, part, x, n);
        for (size_t c = 0; !sums && c < n; c++) no_number[c] |= x[c] != x[c];
        if (!sums || (f % SHORT != SHORT - 1 && f + 1 < t->folds)) continue;
        for (size_t c = 0; c < n; c++) {
            acc[c].f += (double)part[c];
            part[c] = 0;
        }
    }
    for (size_t c = 0; !sums && c < n; c++) acc[c].f = no_number[c] ? (double)NAN : (double)part[c];
}

/* Blocks of output elements, each a fold of rows. */
static void reduce_cols(void *ctx, size_t begin, size_t end) {
    const reduce_job *j = ctx;
    const nest *t = &j->t;
    for (size_t b = begin; b < end; b++) {
        size_t row = b / j->blocks, first = b % j->blocks * COLS;
        size_t n = t->inner - first < COLS ? t->inner - first : COLS, at = row * t->inner + first;
        size_t base = first + offset_of(row, t->kept, t->kept_stride, t->n_kept);
        accumulator acc[COLS];
        loaded buffer;
        for (size_t c = 0; c < n; c++) acc[c] = identity(j, j->kind);
        fold_loop cols = folds[j->from][j->kind].cols;
        if (cols == NULL) fold_short_cols(j, acc, base, n);
        for (size_t f = 0; cols && f < t->folds && !stop_at(j->stop, f, 1024); f++) {
            size_t from = base + offset_of(f, t->reduced, t->reduced_stride, t->n_reduced);
            cols(acc, load(j, from, n, &buffer), n);
        }
        if (j->s->kind != LOG_SUM_EXP) {
            for (size_t c = 0; c < n; c++) store(j, at + c, acc[c]);
            continue;
        }
        double top[COLS], sum[COLS] = {0};
        for (size_t c = 0; c < n; c++) top[c] = finite(as_double(j, acc[c]));
        for (size_t f = 0; f < t->folds && !stop_at(j->stop, f, 1024); f++)
            exp_cols(j, top, sum, base + offset_of(f, t->reduced, t->reduced_stride, t->n_reduced), n);
        for (size_t c = 0; c < n; c++) store_log(j, at + c, top[c], sum[c]);
    }
}

static status run_reduce(op_run *r, error *err) {
    static const fold kinds[] = {
        [SUM] = FOLD_SUM,     [MEAN] = FOLD_SUM,       [PROD] = FOLD_PROD, [MAX] = FOLD_MAX,
        [MIN] = FOLD_MIN,     [L1] = FOLD_ABS,         [L2] = FOLD_SQUARE, [SUM_SQUARE] = FOLD_SQUARE,
        [LOG_SUM] = FOLD_SUM, [LOG_SUM_EXP] = FOLD_MAX};
    const reduce_state *s = run_state(r);
    const tensor *x = run_in(r, 0), *axes_in = s->attr ? NULL : run_in(r, 1);
    int64_t axes[TENSOR_MAX_RANK];
    size_t n = axes_in ? axes_in->count : s->n;
    if (n > TENSOR_MAX_RANK)
        return run_error(r, err, CHURON_LIMIT, "axes: expected at most %d, got %zu", TENSOR_MAX_RANK, n);
    for (size_t i = 0; i < n; i++) axes[i] = axes_in ? index_at(axes_in, i) : s->axes[i];
    bool mark[TENSOR_MAX_RANK];
    TRY(mark_axes(run_node(r), s, n, axes, x->rank, mark, err));
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    reduce_job j = {
        .s = s, .k = run_kernels(r), .x = x, .out = out, .kind = kinds[s->kind], .stop = run_stop(r)};
    elem_set set = ELEM_BIT(x->type);
    j.from = x->type == ELEM_F64    ? SOURCE_F64
             : set & ELEMS_FLOAT    ? SOURCE_F32
             : set & ELEMS_UNSIGNED ? SOURCE_U64
                                    : SOURCE_I64;
    make_nest(&j.t, x, mark);
    if (out->count == 0) return CHURON_OK;
    double work = (double)x->count * (s->kind == LOG_SUM_EXP ? 4 : 0.5) + (double)out->count * 5;
    if (j.t.inner_reduced || x->count == 0) { /* nothing to fold: every output is an identity */
        if (x->count == 0) j.t.folds = 0, j.t.n_kept = 0;
        run_parallel(r, out->count, work, reduce_runs, &j);
    } else {
        j.blocks = (j.t.inner + COLS - 1) / COLS;
        run_parallel(r, j.t.rows * j.blocks, work, reduce_cols, &j);
    }
    return CHURON_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define REDUCE(name, since, until, signature, types, prepare)                                                \
    {                                                                                                        \
        "", name, since, until, 0, signature, {{'T', types}}, prepare, mem_free, infer_reduce,               \
            propagate_reduce, run_reduce                                                                     \
    }
#define USUAL(name)                                                                                          \
    REDUCE(name, 1, 12, "T>T", TYPES_WIDE_OLD, prepare_attr),                                                \
        REDUCE(name, 13, 17, "T>T", TYPES_WIDE, prepare_attr),                                               \
        REDUCE(name, 18, 0, "T=i>T", TYPES_WIDE, prepare_input)
#define LOGARITHMIC(name)                                                                                    \
    REDUCE(name, 1, 12, "T>T", TYPES_WIDE_OLD, prepare_attr),                                                \
        REDUCE(name, 13, 17, "T>T", TYPES_WIDE, prepare_attr),                                               \
        REDUCE(name, 18, 27, "T=i>T", TYPES_WIDE, prepare_input),                                            \
        REDUCE(name, 28, 0, "T=i>T", ELEMS_FLOAT, prepare_input)
#define EXTREME(name)                                                                                        \
    REDUCE(name, 1, 11, "T>T", TYPES_WIDE_OLD, prepare_attr),                                                \
        REDUCE(name, 12, 12, "T>T", TYPES_WIDE_OLD | TYPES_INT8, prepare_attr),                              \
        REDUCE(name, 13, 17, "T>T", TYPES_WIDE | TYPES_INT8, prepare_attr),                                  \
        REDUCE(name, 18, 19, "T=i>T", TYPES_WIDE | TYPES_INT8, prepare_input),                               \
        REDUCE(name, 20, 0, "T=i>T", TYPES_WIDE | TYPES_INT8 | TYPES_BOOL, prepare_input)

static const op_def rows[] = {
    USUAL("ReduceL1"),
    USUAL("ReduceL2"),
    USUAL("ReduceMean"),
    USUAL("ReduceProd"),
    USUAL("ReduceSumSquare"),
    REDUCE("ReduceSum", 1, 12, "T>T", TYPES_WIDE_OLD, prepare_attr),
    REDUCE("ReduceSum", 13, 0, "T=i>T", TYPES_WIDE, prepare_input),
    LOGARITHMIC("ReduceLogSum"),
    LOGARITHMIC("ReduceLogSumExp"),
    EXTREME("ReduceMax"),
    EXTREME("ReduceMin"),
};
const op_table ops_reduce = {rows, sizeof rows / sizeof *rows};
