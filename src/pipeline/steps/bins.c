/* bins.c: bucketize and quantile: numbers by their place in a table. */
#include "pipeline/steps/normal.h"
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_TABLE, KEY_CLOSED, KEY_LABELS };
enum { KEY_REFERENCES = KEY_CLOSED, KEY_OUTPUT = KEY_LABELS };

/* The number of entries of sorted v [n] that are below x, or with `equal` at most x. */
static size_t count_below(const double *v, size_t n, double x, bool equal) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (v[mid] < x || (equal && v[mid] == x)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* ---- bucketize -------------------------------------------------------------------------------------- */

typedef struct bucket_state {
    const double *boundaries;
    size_t n;
    bool closed_left;
    const char *const *labels; /* [n + 1] or NULL */
    cell_type type;
} bucket_state;

static const key_spec BUCKETIZE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A number, or a tensor or list of numbers"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"boundaries", KEY_NUMBERS, .required = true, .doc = "Where one bucket ends and the next begins, rising"},
    {"closed", KEY_CHOICE, .fallback = "left", .choices = "left|right",
     .doc = "A number that is a boundary: left: belongs to the bucket that begins there, [a, b); right: to "
            "the one "
            "that ends there, (a, b]"},
    {"labels", KEY_TEXTS,
     .doc = "Texts instead of numbers of buckets, for a single number: one more than boundaries"},
    {0}};

static status check_bucketize(step_build *b, error *err) {
    bucket_state *s;
    vector_form form;
    const key_value *table = &b->values[KEY_TABLE], *labels = &b->values[KEY_LABELS];
    TRY(vector_expect(b, KEY_FIELD_, &form, err));
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (bucket_state){.boundaries = table->numbers,
                        .n = table->n,
                        .closed_left = b->values[KEY_CLOSED].integer == 0,
                        .type = vector_type(b->values[KEY_FIELD_].type, ELEM_I64)};
    if (s->n == 0) return step_fault(b, "boundaries", err, "expected at least one number, got none");
    for (size_t i = 1; i < s->n; i++) {
        if (!(s->boundaries[i - 1] < s->boundaries[i]))
            return step_fault(b, "boundaries", err, "expected rising numbers, got %g behind %g",
                              s->boundaries[i], s->boundaries[i - 1]);
    }
    if (labels->given) {
        if (!form.single) return step_fault(b, "labels", err, "expected them for a single number only");
        if (labels->n != s->n + 1)
            return step_fault(b, "labels", err, "expected %zu, one more than boundaries, got %zu", s->n + 1,
                              labels->n);
        s->labels = labels->texts;
        s->type = CELL_TYPE_TEXT;
    }
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &s->type, err);
}

static status row_bucketize(const step *st, run *r, cell *slots, error *err) {
    const bucket_state *s = st->state;
    const cell *in = &slots[st->in];
    const double *from;
    double one, result, *to = &result;
    size_t n;
    TRY(vector_read(st, r, in, &one, &from, &n, err));
    if (from != &one) TRY(vector_room(st, r, n, &to, err));
    for (size_t i = 0; i < n; i++) {
        if (isnan(from[i]))
            return error_set(err, CHURON_INVALID, "expected numbers, got NaN, which has no bucket");
        to[i] = (double)count_below(s->boundaries, s->n, from[i], s->closed_left);
    }
    if (s->labels) {
        const char *label = s->labels[(size_t)*to];
        slots[st->out] = cell_of_text(label, strlen(label));
        return CHURON_OK;
    }
    return vector_store(st, r, in, &s->type, to, n, &slots[st->out], err);
}

const step_kind step_bucketize = {
    .name = "bucketize",
    .group = "tabular",
    .doc = "The number of the bucket, int64 from 0: how many boundaries are below the number (closed: right) "
           "or at most "
           "it (closed: left). NaN is a fault of the record.",
    .reference =
        "numpy.digitize; scikit-learn KBinsDiscretizer (ordinal) with closed: left and its inner edges",
    .keys = BUCKETIZE_KEYS,
    .check = check_bucketize,
    .row = row_bucketize};

/* ---- quantile --------------------------------------------------------------------------------------- */

typedef struct quantile_state {
    size_t n, features;
    const double *references; /* [n] */
    const double *quantiles;  /* [features][n] */
    bool normal;
    double least, most; /* of normal results */
    cell_type type;
} quantile_state;

static const double EDGE = 1e-7; /* normal: what lies so near to an end is the end */

static const key_spec QUANTILE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A number, or a tensor or list of numbers"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"quantiles", KEY_NUMBERS, .required = true,
     .doc = "Quantiles of the training data, not falling: those of one number, or a table with a row for "
            "each quantile "
            "and a column for each number (scikit-learn's quantiles_, as .npy)"},
    {"references", KEY_NUMBERS,
     .doc = "The fraction that each quantile stands for; left out: evenly from 0 to 1"},
    {"output", KEY_CHOICE, .fallback = "uniform", .choices = "uniform|normal",
     .doc = "What the results are distributed as"},
    {0}};

static status read_references(step_build *b, quantile_state *s, error *err) {
    const key_value *v = &b->values[KEY_REFERENCES];
    double *references = arena_array(b->memory, s->n, sizeof *references);
    if (!references) return arena_refused(b->memory, b->kind->name, s->n * sizeof *references, err);
    for (size_t i = 0; i < s->n; i++)
        references[i] = v->given        ? v->numbers[i]
                        : i + 1 == s->n ? 1.0
                                        : (double)i * (1.0 / (double)(s->n - 1));
    for (size_t i = 1; i < s->n; i++) {
        if (!(references[i - 1] < references[i]) || references[0] < 0 || references[i] > 1)
            return step_fault(b, "references", err, "expected rising numbers from 0 to 1");
    }
    s->references = references;
    return CHURON_OK;
}

static status check_quantile(step_build *b, error *err) {
    quantile_state *s;
    vector_form form;
    const key_value *table = &b->values[KEY_TABLE], *references = &b->values[KEY_REFERENCES];
    TRY(vector_expect(b, KEY_FIELD_, &form, err));
    TRY(step_state(b, sizeof *s, &s, err));
    s->type = vector_type(b->values[KEY_FIELD_].type, vector_result(form.element));
    s->features = 1;
    if (references->given && references->n && table->n % references->n == 0) {
        s->features = table->n / references->n;
    } else if (references->given) {
        return step_fault(b, "quantiles", err,
                          "expected a multiple of %zu numbers, as many as references, got %zu", references->n,
                          table->n);
    } else if (form.n > 1 && table->n % (size_t)form.n == 0 && table->n / (size_t)form.n > 1) {
        s->features = (size_t)form.n;
    }
    if (s->features != 1 && form.n >= 0 && (int64_t)s->features != form.n)
        return step_fault(b, "quantiles", err,
                          "expected a column for each of %" PRId64 " numbers, got %zu columns", form.n,
                          s->features);
    s->n = table->n / s->features;
    if (s->n < 2) return step_fault(b, "quantiles", err, "expected at least two quantiles, got %zu", s->n);
    TRY(read_references(b, s, err));
    double *columns = arena_array(b->memory, table->n, sizeof *columns);
    if (!columns) return arena_refused(b->memory, b->kind->name, table->n * sizeof *columns, err);
    for (size_t f = 0; f < s->features; f++) {
        for (size_t i = 0; i < s->n; i++) {
            columns[f * s->n + i] = table->numbers[i * s->features + f];
            if (i && columns[f * s->n + i - 1] > columns[f * s->n + i])
                return step_fault(b, "quantiles", err, "expected numbers that do not fall, got %g behind %g",
                                  columns[f * s->n + i], columns[f * s->n + i - 1]);
        }
    }
    s->quantiles = columns;
    s->normal = b->values[KEY_OUTPUT].integer == 1;
    s->least = normal_quantile(EDGE - 2.220446049250313e-16);
    s->most = normal_quantile(1 - (EDGE - 2.220446049250313e-16));
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &s->type, err);
}

/* The line through the points (q[j], f[j]) around x; with `last`, of equal quantiles the last one counts. */
static double interpolate(const double *q, const double *f, size_t n, double x, bool last) {
    if (last) {
        const size_t at = count_below(q, n, x, true);
        if (at == 0) return f[0];
        if (at == n) return f[n - 1];
        if (q[at - 1] == x) return f[at - 1];
        return (f[at] - f[at - 1]) / (q[at] - q[at - 1]) * (x - q[at - 1]) + f[at - 1];
    }
    const size_t at = count_below(q, n, x, false);
    if (at == n) return f[n - 1];
    if (at == 0 || q[at] == x) return f[at];
    return f[at] - (f[at] - f[at - 1]) / (q[at] - q[at - 1]) * (q[at] - x);
}

static double quantile_of(const quantile_state *s, const double *q, double x) {
    const double edge = s->normal ? EDGE : 0;
    double y;
    if (isnan(x)) return x;
    if (s->normal ? x - edge < q[0] : x <= q[0]) {
        y = 0;
    } else if (s->normal ? x + edge > q[s->n - 1] : x >= q[s->n - 1]) {
        y = 1;
    } else {
        y = 0.5 *
            (interpolate(q, s->references, s->n, x, true) + interpolate(q, s->references, s->n, x, false));
    }
    if (!s->normal) return y;
    if (y <= 0) return s->least;
    if (y >= 1) return s->most;
    y = normal_quantile(y);
    return y < s->least ? s->least : y > s->most ? s->most : y;
}

static status row_quantile(const step *st, run *r, cell *slots, error *err) {
    const quantile_state *s = st->state;
    const cell *in = &slots[st->in];
    const double *from;
    double one, result, *to = &result;
    size_t n;
    TRY(vector_read(st, r, in, &one, &from, &n, err));
    TRY(vector_fits(s->features, n, err));
    if (from != &one) TRY(vector_room(st, r, n, &to, err));
    for (size_t i = 0; i < n; i++)
        to[i] = quantile_of(s, s->quantiles + (s->features == 1 ? 0 : i * s->n), from[i]);
    return vector_store(st, r, in, &s->type, to, n, &slots[st->out], err);
}

const step_kind step_quantile = {.name = "quantile",
                                 .group = "tabular",
                                 .doc = "The fraction of the training data below the number, from its "
                                        "quantiles with lines between them; of equal "
                                        "quantiles the mean of the first and the last fraction; below the "
                                        "first quantile 0, above the last 1. output: "
                                        "normal: the standard normal quantile of it, between those of 1e-7 "
                                        "and 1 - 1e-7. NaN stays NaN. The result is "
                                        "float64, of float32 input float32.",
                                 .reference = "scikit-learn QuantileTransformer",
                                 .keys = QUANTILE_KEYS,
                                 .check = check_quantile,
                                 .row = row_quantile};
