/* answer_numbers.c: numbers to numbers of the same shape, or along one dimension: softmax, sigmoid, argmax,
 * round, l2_normalize, pool. All of it computes in double and rounds once, to the element type. */
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD, INTO, AXIS, MORE };

#define FIELD_KEY                                                                                            \
    { "field", KEY_FIELD, .required = true, .doc = "Numbers" }
#define INTO_KEY                                                                                             \
    { "into", KEY_INTO, .doc = "Name of the result; left out: that of the field" }
#define AXIS_KEY                                                                                             \
    {                                                                                                        \
        "axis", KEY_INT, .fallback = "-1", .least = -12, .most = 11,                                         \
                         .doc = "Along which dimension; -1: the last"                                        \
    }

typedef struct numbers_state {
    elem element; /* of the result */
    bool number;  /* the result is one number */
    cell_type type;
    size_t axis;
    double eps;
    int digits, kind;
    int32_t mask;
    int32_t value; /* a second result; -1: none */
} numbers_state;

/* Floats stay as they are, others become float64. */
static elem float_of(elem e) {
    return ELEM_BIT(e) & ELEMS_FLOAT ? e : ELEM_F64;
}

/* The result of the same shape, of floats. */
static status same_shape(step_build *b, numbers_state *st, cell_type *out, error *err) {
    const cell_type *t = b->values[FIELD].type;
    b->s->in = b->values[FIELD].slot;
    if (t->kind == CELL_TENSOR) {
        *out = *t;
        out->element = float_of(t->element);
    } else if (t->kind == CELL_LIST) {
        const int64_t open = -1;
        *out = tensor_type(float_of(number_element(t->of)), 1, &open);
    } else {
        *out = (cell_type){.kind = CELL_FLOAT, .element = float_of(number_element(t))};
        st->number = true;
    }
    st->element = out->element;
    st->type = *out;
    return step_output(b, INTO, FIELD, out, err);
}

static status read_axis(const step_build *b, numbers_state *st, error *err) {
    const cell_type *t = b->values[FIELD].type;
    const int64_t rank = t->kind == CELL_TENSOR ? t->rank : t->kind == CELL_LIST ? 1 : 0;
    const int64_t axis = b->values[AXIS].integer, at = axis < 0 ? axis + rank : axis;
    if (rank == 0)
        return step_fault(b, "field", err, "expected numbers with a dimension, got '%.60s', a single one",
                          b->values[FIELD].text);
    if (at < 0 || at >= rank)
        return step_fault(b, "axis", err, "expected %" PRId64 " to %" PRId64 ", got %" PRId64, -rank,
                          rank - 1, axis);
    st->axis = (size_t)at;
    return CHURON_OK;
}

/* A tensor seen as [outer, n, inner] around an axis. */
typedef struct lines {
    size_t outer, n, inner;
    size_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    const double *in;
    size_t count;
} lines;

static status read_lines(const cell *c, size_t axis, arena *a, const char *what, lines *out, error *err) {
    *out = (lines){.outer = 1, .inner = 1};
    TRY(cell_numbers(&out->in, &out->count, c, a, what, err));
    if (cell_has_tensor(c)) {
        out->rank = c->t->rank;
        memcpy(out->dims, c->t->dims, sizeof out->dims);
    } else {
        out->rank = c->kind == CELL_LIST;
        out->dims[0] = (int64_t)out->count;
    }
    for (size_t i = 0; i < out->rank; i++) {
        if (i < axis) out->outer *= (size_t)out->dims[i];
        if (i > axis) out->inner *= (size_t)out->dims[i];
    }
    out->n = out->rank ? (size_t)out->dims[axis] : 1;
    return CHURON_OK;
}

static status give(const step *s, run *r, const lines *l, const double *numbers, cell *out, error *err) {
    const numbers_state *st = s->state;
    if (st->number) {
        *out = number_cell(&st->type, numbers[0]);
        return CHURON_OK;
    }
    return tensor_of_numbers(out, r->memory, st->element, l->rank, l->dims, numbers, s->label, err);
}

static status new_numbers(const step *s, run *r, size_t n, double **out, error *err) {
    *out = arena_alloc(r->memory, (n + 1) * sizeof **out);
    return *out ? CHURON_OK : run_no_memory(r, s, n * sizeof **out, err);
}

/* ---- along an axis ---------------------------------------------------------------------------------- */

static const key_spec AXIS_KEYS[] = {FIELD_KEY, INTO_KEY, AXIS_KEY, {0}};

static status check_axis(step_build *b, error *err) {
    numbers_state *st;
    cell_type out;
    TRY(expect_numbers(b, FIELD, -1, err));
    TRY(step_state(b, sizeof *st, &st, err));
    TRY(read_axis(b, st, err));
    return same_shape(b, st, &out, err);
}

/* Along a line of n numbers, `apart` from each other. */
static void softmax_line(const double *x, double *y, size_t n, size_t apart) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(x[i * apart] <= max)) max = x[i * apart]; /* NaN comes through */
    }
    for (size_t i = 0; i < n; i++) sum += y[i * apart] = exp(x[i * apart] - max);
    for (size_t i = 0; i < n; i++) y[i * apart] /= sum;
}

static void normalize_line(const double *x, double *y, size_t n, size_t apart, double eps) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i * apart] * x[i * apart];
    const double norm = sqrt(sum), by = norm > eps || isnan(norm) ? norm : eps;
    for (size_t i = 0; i < n; i++) y[i * apart] = x[i * apart] / by;
}

static status each_line(const step *s, run *r, cell *slots, bool softmax, error *err) {
    const numbers_state *st = s->state;
    lines l;
    double *y;
    TRY(read_lines(&slots[s->in], st->axis, r->memory, s->label, &l, err));
    TRY(new_numbers(s, r, l.count, &y, err));
    for (size_t o = 0; o < l.outer && l.n; o++) {
        for (size_t i = 0; i < l.inner; i++) {
            const size_t at = o * l.n * l.inner + i;
            if (softmax) {
                softmax_line(l.in + at, y + at, l.n, l.inner);
            } else {
                normalize_line(l.in + at, y + at, l.n, l.inner, st->eps);
            }
        }
    }
    return give(s, r, &l, y, &slots[s->out], err);
}

static status run_softmax(const step *s, run *r, cell *slots, error *err) {
    return each_line(s, r, slots, true, err);
}

const step_kind step_softmax = {
    .name = "softmax",
    .group = "answer",
    .doc = "exp(x - max) / sum of those, along one dimension.",
    .reference = "scipy.special.softmax",
    .keys = AXIS_KEYS,
    .check = check_axis,
    .row = run_softmax,
};

static const key_spec NORMALIZE_KEYS[] = {
    FIELD_KEY,
    INTO_KEY,
    AXIS_KEY,
    {"eps", KEY_NUMBER, .fallback = "1e-12", .least = 0, .most = 1, .doc = "Least norm that is divided by"},
    {0}};

static status check_normalize(step_build *b, error *err) {
    TRY(check_axis(b, err));
    ((numbers_state *)b->s->state)->eps = b->values[MORE].number;
    return CHURON_OK;
}

static status run_normalize(const step *s, run *r, cell *slots, error *err) {
    return each_line(s, r, slots, false, err);
}

const step_kind step_l2_normalize = {
    .name = "l2_normalize",
    .group = "answer",
    .doc = "x / max(norm, eps) along one dimension, with the Euclidean norm.",
    .reference = "torch.nn.functional.normalize",
    .keys = NORMALIZE_KEYS,
    .check = check_normalize,
    .row = run_normalize,
};

/* ---- argmax ----------------------------------------------------------------------------------------- */

static const key_spec ARGMAX_KEYS[] = {FIELD_KEY,
                                       INTO_KEY,
                                       AXIS_KEY,
                                       {"value", KEY_INTO, .doc = "Name for the greatest values themselves"},
                                       {0}};

static status check_argmax(step_build *b, error *err) {
    const cell_type *t = b->values[FIELD].type;
    numbers_state *st;
    TRY(expect_numbers(b, FIELD, -1, err));
    TRY(step_state(b, sizeof *st, &st, err));
    TRY(read_axis(b, st, err));
    b->s->in = b->values[FIELD].slot;
    const size_t rank = t->kind == CELL_TENSOR ? t->rank : 1;
    st->element = float_of(t->kind == CELL_TENSOR ? t->element : number_element(t->of));
    st->number = rank == 1;
    cell_type index = CELL_TYPE_INT, greatest = {.kind = CELL_FLOAT};
    greatest.element = st->element == ELEM_F64 ? ELEM_F64 : ELEM_F32;
    if (!st->number) {
        int64_t dims[TENSOR_MAX_RANK];
        for (size_t i = 0, k = 0; i < rank; i++) {
            if (i != st->axis) dims[k++] = t->dims[i];
        }
        index = tensor_type(ELEM_I64, rank - 1, dims);
        greatest = tensor_type(st->element, rank - 1, dims);
    }
    st->type = greatest;
    st->value = -1;
    TRY(step_output(b, INTO, FIELD, &index, err));
    const int32_t out = b->s->out;
    if (b->values[MORE].given) TRY(step_output_named(b, b->values[MORE].text, &greatest, &st->value, err));
    b->s->out = out;
    return CHURON_OK;
}

static status run_argmax(const step *s, run *r, cell *slots, error *err) {
    const numbers_state *st = s->state;
    lines l;
    double *best, *where;
    TRY(read_lines(&slots[s->in], st->axis, r->memory, s->label, &l, err));
    if (l.n == 0) return error_set(err, CHURON_INVALID, "expected at least one number, got none");
    const size_t n = l.outer * l.inner;
    TRY(new_numbers(s, r, n, &best, err));
    TRY(new_numbers(s, r, n, &where, err));
    for (size_t o = 0; o < n; o++) {
        const double *x = l.in + o / l.inner * l.n * l.inner + o % l.inner;
        best[o] = x[0];
        where[o] = 0;
        for (size_t i = 0; i < l.n; i++) {
            if (isnan(x[i * l.inner]))
                return error_set(err, CHURON_INVALID, "expected numbers, got NaN at %zu", i);
            if (!(x[i * l.inner] > best[o])) continue;
            best[o] = x[i * l.inner];
            where[o] = (double)i;
        }
    }
    if (st->number) {
        slots[s->out] = cell_of_int((int64_t)where[0]);
        if (st->value >= 0) slots[st->value] = number_cell(&st->type, best[0]);
        return CHURON_OK;
    }
    memmove(l.dims + st->axis, l.dims + st->axis + 1, (l.rank - 1 - st->axis) * sizeof *l.dims);
    TRY(tensor_of_numbers(&slots[s->out], r->memory, ELEM_I64, l.rank - 1, l.dims, where, s->label, err));
    if (st->value < 0) return CHURON_OK;
    return tensor_of_numbers(&slots[st->value], r->memory, st->element, l.rank - 1, l.dims, best, s->label,
                             err);
}

const step_kind step_argmax = {
    .name = "argmax",
    .group = "answer",
    .doc = "Index of the greatest number along one dimension; of equals, the lowest. NaN is refused.",
    .reference = "numpy.argmax",
    .keys = ARGMAX_KEYS,
    .check = check_argmax,
    .row = run_argmax,
};

/* ---- number by number ------------------------------------------------------------------------------- */

static const key_spec SIGMOID_KEYS[] = {FIELD_KEY, INTO_KEY, {0}};
static const key_spec ROUND_KEYS[] = {
    FIELD_KEY,
    INTO_KEY,
    {"digits", KEY_INT, .required = true, .least = 0, .most = 15, .doc = "Digits after the point"},
    {0}};

static status check_sigmoid(step_build *b, error *err) {
    numbers_state *st;
    cell_type out;
    TRY(expect_numbers(b, FIELD, -1, err));
    TRY(step_state(b, sizeof *st, &st, err));
    return same_shape(b, st, &out, err);
}

static status check_round(step_build *b, error *err) {
    TRY(check_sigmoid(b, err));
    ((numbers_state *)b->s->state)->digits = (int)b->values[AXIS].integer;
    return CHURON_OK;
}

static double rounded(double v, int digits) {
    char text[400];
    if (!isfinite(v) || fabs(v) >= 1e300) return v;
    snprintf(text, sizeof text, "%.*f", digits, v);
    return strtod(text, NULL);
}

static double sigmoid(double x) {
    if (x >= 0) return 1 / (1 + exp(-x));
    const double e = exp(x);
    return e / (1 + e);
}

static status run_sigmoid(const step *s, run *r, cell *slots, error *err) {
    lines l;
    double *y;
    TRY(read_lines(&slots[s->in], 0, r->memory, s->label, &l, err));
    TRY(new_numbers(s, r, l.count, &y, err));
    for (size_t i = 0; i < l.count; i++) y[i] = sigmoid(l.in[i]);
    return give(s, r, &l, y, &slots[s->out], err);
}

static status run_round(const step *s, run *r, cell *slots, error *err) {
    const numbers_state *st = s->state;
    lines l;
    double *y;
    TRY(read_lines(&slots[s->in], 0, r->memory, s->label, &l, err));
    TRY(new_numbers(s, r, l.count, &y, err));
    for (size_t i = 0; i < l.count; i++) y[i] = rounded(l.in[i], st->digits);
    return give(s, r, &l, y, &slots[s->out], err);
}

const step_kind step_sigmoid = {
    .name = "sigmoid",
    .group = "answer",
    .doc = "1 / (1 + exp(-x)).",
    .reference = "scipy.special.expit",
    .keys = SIGMOID_KEYS,
    .check = check_sigmoid,
    .row = run_sigmoid,
};

const step_kind step_round = {
    .name = "round",
    .group = "answer",
    .doc =
        "The nearest number with so many digits after the point, of the exact value (half to even where it "
        "lies exactly between).",
    .reference = "Python's round",
    .keys = ROUND_KEYS,
    .check = check_round,
    .row = run_round,
};

/* ---- pool ------------------------------------------------------------------------------------------- */

enum { POOL_MASK = AXIS, POOL_KIND };
enum { POOL_MEAN, POOL_CLS, POOL_MAX };

static const key_spec POOL_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Vectors of tokens [tokens, size]"},
    INTO_KEY,
    {"mask", KEY_FIELD, .doc = "Which tokens count [tokens]: those that are not 0; left out: all"},
    {"kind", KEY_CHOICE, .fallback = "mean", .choices = "mean|cls|max",
     .doc =
         "mean: sum / max(count, 1e-9); cls: the first token; max: of every component, -1e9 where no token "
         "counts"},
    {0}};

static status check_pool(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[FIELD].type;
    numbers_state *st;
    TRY(expect_numbers(b, FIELD, 2, err));
    TRY(step_state(b, sizeof *st, &st, err));
    st->kind = (int)v[POOL_KIND].integer;
    st->mask = -1;
    if (v[POOL_MASK].given) {
        TRY(expect_numbers(b, POOL_MASK, 1, err));
        st->mask = v[POOL_MASK].slot;
        const int64_t n = walk_length(v[POOL_MASK].type);
        if (n >= 0 && t->dims[0] >= 0 && n != t->dims[0])
            return step_fault(b, "mask", err, "expected %" PRId64 " numbers, one a token, got %" PRId64,
                              t->dims[0], n);
    }
    st->element = float_of(t->element);
    b->s->in = v[FIELD].slot;
    const cell_type out = tensor_type(st->element, 1, &t->dims[1]);
    return step_output(b, INTO, FIELD, &out, err);
}

static void pool_tokens(const numbers_state *st, const lines *l, const double *mask, double *y) {
    const size_t size = l->inner;
    double count = 0;
    for (size_t k = 0; k < size; k++) y[k] = st->kind == POOL_MAX ? -1e9 : 0;
    for (size_t i = 0; i < l->n; i++) {
        const double *x = l->in + i * size;
        if (mask && !(mask[i] != 0)) continue;
        count++;
        for (size_t k = 0; k < size; k++) {
            if (st->kind == POOL_MEAN) {
                y[k] += x[k];
            } else if (st->kind == POOL_MAX && !(x[k] <= y[k])) {
                y[k] = x[k];
            }
        }
    }
    for (size_t k = 0; k < size && st->kind == POOL_MEAN; k++) y[k] /= count > 0 ? count : 1e-9;
    if (st->kind == POOL_CLS) memcpy(y, l->in, size * sizeof *y);
}

static status run_pool(const step *s, run *r, cell *slots, error *err) {
    const numbers_state *st = s->state;
    lines l;
    const double *mask = NULL;
    double *y;
    size_t n;
    TRY(read_lines(&slots[s->in], 0, r->memory, s->label, &l, err));
    if (st->mask >= 0) TRY(cell_numbers(&mask, &n, &slots[st->mask], r->memory, s->label, err));
    if (mask && n != l.n)
        return error_set(err, CHURON_INVALID, "mask: expected %zu numbers, one a token, got %zu", l.n, n);
    if (st->kind == POOL_CLS && l.n == 0)
        return error_set(err, CHURON_INVALID, "expected a first token, got none");
    TRY(new_numbers(s, r, l.inner, &y, err));
    pool_tokens(st, &l, mask, y);
    return tensor_of_numbers(&slots[s->out], r->memory, st->element, 1, &l.dims[1], y, s->label, err);
}

const step_kind step_pool = {
    .name = "pool",
    .group = "answer",
    .doc = "One vector of the vectors of all tokens.",
    .reference = "sentence-transformers' pooling",
    .keys = POOL_KEYS,
    .check = check_pool,
    .row = run_pool,
};
