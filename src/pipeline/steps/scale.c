/* scale.c: standardize, min_max, robust, log1p, clip: each number by itself, with one parameter for all or
 * one for each. */
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <math.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_A, KEY_B, KEY_RANGE, KEY_CLIP };

typedef enum scale_op { OP_DIVIDE, OP_LINE, OP_LOG1P, OP_CLIP } scale_op;

typedef struct scale_state {
    scale_op op;
    bool narrow;      /* float32: the result of each operation is rounded, as the reference's arrays do */
    bool clip;        /* LINE */
    double low, high; /* LINE with clip */
    size_t n;         /* of a and b: 1 or as many as there are numbers */
    const double *a;  /* DIVIDE: subtracted; LINE: factor; CLIP: least */
    const double *b;  /* DIVIDE: divisor; LINE: added; CLIP: most */
    cell_type type;
} scale_state;

#define FIELD_KEYS                                                                                           \
    {"field", KEY_FIELD, .required = true, .doc = "A number, or a tensor or list of numbers"}, {             \
        "into", KEY_INTO, .doc = "Name of the result; left out: the field's name"                            \
    }

static const key_spec STANDARDIZE_KEYS[] = {
    FIELD_KEYS,
    {"mean", KEY_NUMBERS, .doc = "Subtracted first: one number, or one for each; left out: 0"},
    {"std", KEY_NUMBERS, .doc = "Divided by, above 0: one number, or one for each; left out: 1"},
    {0}};

static const key_spec MIN_MAX_KEYS[] = {
    FIELD_KEYS,
    {"min", KEY_NUMBERS, .required = true, .doc = "Least value of the training data: one, or one for each"},
    {"max", KEY_NUMBERS, .required = true, .doc = "Greatest value of the training data"},
    {"range", KEY_NUMBERS, .doc = "Where min and max go: two numbers; left out: [0, 1]"},
    {"clip", KEY_BOOL, .fallback = "false", .doc = "Results outside the range become its ends"},
    {0}};

static const key_spec ROBUST_KEYS[] = {
    FIELD_KEYS,
    {"center", KEY_NUMBERS, .doc = "Subtracted first (the median): one number, or one for each; left out: 0"},
    {"scale", KEY_NUMBERS, .doc = "Divided by (the interquartile range), above 0; left out: 1"},
    {0}};

static const key_spec LOG1P_KEYS[] = {FIELD_KEYS, {0}};

static const key_spec CLIP_KEYS[] = {
    FIELD_KEYS,
    {"min", KEY_NUMBERS, .doc = "Least result: one number, or one for each; left out: no bound"},
    {"max", KEY_NUMBERS, .doc = "Greatest result: one number, or one for each; left out: no bound"},
    {0}};

static double rounded(const scale_state *s, double v) {
    return s->narrow ? (double)(float)v : v;
}

/* ---- check ------------------------------------------------------------------------------------------ */

/* a and b, of one length; what was left out is `otherwise`. */
static status pair_up(step_build *b, const vector_form *form, double otherwise_a, double otherwise_b,
                      scale_state *out, error *err) {
    const key_value *v[2] = {&b->values[KEY_A], &b->values[KEY_B]};
    const double otherwise[2] = {otherwise_a, otherwise_b};
    out->n = 1;
    for (size_t k = 0; k < 2; k++) {
        if (!v[k]->given) continue;
        TRY(vector_check_count(b, KEY_A + k, form, err));
        if (v[k]->n == 1) continue;
        if (out->n != 1 && out->n != v[k]->n)
            return step_fault(b, b->kind->keys[KEY_A + k].name, err, "expected %zu numbers, got %zu", out->n,
                              v[k]->n);
        out->n = v[k]->n;
    }
    double *both = arena_array(b->memory, 2 * out->n, sizeof *both);
    if (!both) return arena_refused(b->memory, b->kind->name, 2 * out->n * sizeof *both, err);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < out->n; i++)
            both[k * out->n + i] = v[k]->given ? v[k]->numbers[v[k]->n == 1 ? 0 : i] : otherwise[k];
    }
    out->a = both;
    out->b = both + out->n;
    return CHURON_OK;
}

static status begin(step_build *b, scale_op op, vector_form *form, scale_state **out, error *err) {
    TRY(vector_expect(b, KEY_FIELD_, form, err));
    TRY(step_state(b, sizeof **out, out, err));
    b->s->in = b->values[KEY_FIELD_].slot;
    (*out)->op = op;
    (*out)->narrow = form->element == ELEM_F32;
    (*out)->type = vector_type(b->values[KEY_FIELD_].type, vector_result(form->element));
    return step_output(b, KEY_INTO_, KEY_FIELD_, &(*out)->type, err);
}

static status check_divide(step_build *b, error *err) {
    scale_state *s;
    vector_form form;
    TRY(begin(b, OP_DIVIDE, &form, &s, err));
    TRY(pair_up(b, &form, 0, 1, s, err));
    for (size_t i = 0; i < s->n; i++) {
        if (!(s->b[i] > 0))
            return step_fault(b, b->kind->keys[KEY_B].name, err, "expected numbers above 0, got %g", s->b[i]);
    }
    return CHURON_OK;
}

static status check_standardize(step_build *b, error *err) {
    TRY(check_divide(b, err));
    scale_state *s = b->s->state;
    if (!s->narrow) return CHURON_OK;
    double *both = arena_array(b->memory, 2 * s->n, sizeof *both);
    if (!both) return arena_refused(b->memory, b->kind->name, 2 * s->n * sizeof *both, err);
    for (size_t i = 0; i < s->n; i++) {
        both[i] = (double)(float)s->a[i];
        both[s->n + i] = (double)(float)s->b[i];
        if (both[s->n + i] == 0)
            return step_fault(b, "std", err, "expected numbers that float32 has, got %g", s->b[i]);
    }
    s->a = both;
    s->b = both + s->n;
    return CHURON_OK;
}

static status check_min_max(step_build *b, error *err) {
    scale_state *s;
    vector_form form;
    const key_value *range = &b->values[KEY_RANGE];
    TRY(begin(b, OP_LINE, &form, &s, err));
    TRY(pair_up(b, &form, 0, 0, s, err));
    s->low = 0;
    s->high = 1;
    if (range->given && (range->n != 2 || !(range->numbers[0] < range->numbers[1])))
        return step_fault(b, "range", err, "expected two numbers, the lower one first");
    if (range->given) {
        s->low = range->numbers[0];
        s->high = range->numbers[1];
    }
    s->clip = b->values[KEY_CLIP].flag;
    double *line = arena_array(b->memory, 2 * s->n, sizeof *line);
    if (!line) return arena_refused(b->memory, b->kind->name, 2 * s->n * sizeof *line, err);
    for (size_t i = 0; i < s->n; i++) {
        const double min = s->a[i], max = s->b[i];
        if (min > max) return step_fault(b, "max", err, "expected at least min, %g, got %g", min, max);
        line[i] = rounded(s, (s->high - s->low) / rounded(s, max == min ? 1 : max - min));
        line[s->n + i] = rounded(s, s->low - rounded(s, min * line[i]));
    }
    s->a = line;
    s->b = line + s->n;
    return CHURON_OK;
}

static status check_log1p(step_build *b, error *err) {
    scale_state *s;
    vector_form form;
    TRY(begin(b, OP_LOG1P, &form, &s, err));
    s->n = 1;
    return CHURON_OK;
}

static status check_clip(step_build *b, error *err) {
    scale_state *s;
    vector_form form;
    TRY(begin(b, OP_CLIP, &form, &s, err));
    if (!b->values[KEY_A].given && !b->values[KEY_B].given)
        return step_fault(b, NULL, err, "expected the key 'min' or 'max', got neither");
    TRY(pair_up(b, &form, -INFINITY, INFINITY, s, err));
    for (size_t i = 0; i < s->n; i++) {
        if (s->a[i] > s->b[i])
            return step_fault(b, "max", err, "expected at least min, %g, got %g", s->a[i], s->b[i]);
    }
    return CHURON_OK;
}

/* ---- running ---------------------------------------------------------------------------------------- */

static double apply(const scale_state *s, double x, size_t i) {
    switch (s->op) {
    case OP_DIVIDE: return rounded(s, x - s->a[i]) / s->b[i];
    case OP_LINE:
        x = rounded(s, rounded(s, x * s->a[i]) + s->b[i]);
        if (s->clip && x < s->low) return s->low;
        return s->clip && x > s->high ? s->high : x;
    case OP_LOG1P: return log1p(x);
    case OP_CLIP: return x < s->a[i] ? s->a[i] : x > s->b[i] ? s->b[i] : x;
    }
    return x;
}

static status row(const step *st, run *r, cell *slots, error *err) {
    const scale_state *s = st->state;
    const cell *in = &slots[st->in];
    const double *from;
    double one, result, *to = &result;
    size_t n;
    TRY(vector_read(st, r, in, &one, &from, &n, err));
    TRY(vector_fits(s->n, n, err));
    if (from != &one) TRY(vector_room(st, r, n, &to, err));
    const size_t stride = s->n > 1;
    for (size_t i = 0; i < n; i++) {
        if (s->op == OP_LOG1P && from[i] < -1)
            return error_set(err, CHURON_INVALID, "expected numbers of at least -1, got %g", from[i]);
        to[i] = apply(s, from[i], i * stride);
    }
    return vector_store(st, r, in, &s->type, to, n, &slots[st->out], err);
}

const step_kind step_clip = {.name = "clip",
                             .group = "tabular",
                             .doc = "Numbers below min become min, above max become max; NaN stays NaN. The "
                                    "result is float64, of float32 "
                                    "input float32.",
                             .reference = "numpy.clip",
                             .keys = CLIP_KEYS,
                             .check = check_clip,
                             .row = row};

const step_kind step_log1p = {.name = "log1p",
                              .group = "tabular",
                              .doc = "The natural logarithm of 1 + x; NaN stays NaN, a number below -1 is a "
                                     "fault of the record. The result is "
                                     "float64, of float32 input float32.",
                              .reference = "numpy.log1p",
                              .keys = LOG1P_KEYS,
                              .check = check_log1p,
                              .row = row};

const step_kind step_min_max = {.name = "min_max",
                                .group = "tabular",
                                .doc = "Maps min to the lower and max to the upper end of range, along a "
                                       "line: x * f + a with f = (upper - lower) / "
                                       "(max - min) and a = lower - min * f; where min is max, f is (upper - "
                                       "lower). NaN stays NaN. The result is "
                                       "float64; of float32 input everything is float32.",
                                .reference = "scikit-learn MinMaxScaler",
                                .keys = MIN_MAX_KEYS,
                                .check = check_min_max,
                                .row = row};

const step_kind step_robust = {
    .name = "robust",
    .group = "tabular",
    .doc = "(x - center) / scale, with the median and the interquartile range of the training data. NaN "
           "stays NaN. The "
           "result is float64; of float32 input each of the two results is rounded to float32.",
    .reference = "scikit-learn RobustScaler",
    .keys = ROBUST_KEYS,
    .check = check_divide,
    .row = row};

const step_kind step_standardize = {
    .name = "standardize",
    .group = "tabular",
    .doc = "(x - mean) / std, with the mean and the standard deviation of the training data. NaN stays NaN. "
           "The result "
           "is float64; of float32 input everything is float32, mean and std too.",
    .reference = "scikit-learn StandardScaler",
    .keys = STANDARDIZE_KEYS,
    .check = check_standardize,
    .row = row};
