/* impute.c: impute and missing_indicator: the two steps that take values which may be missing. */
#include "pipeline/calendar.h"
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_VALUE };

typedef struct impute_state {
    cell_type type;
    cell value; /* of single values */
    size_t n;   /* tensors: of numbers, 1 or as many as there are elements */
    const double *numbers;
} impute_state;

static const key_spec IMPUTE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The value that may be missing (or, a float, NaN)"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"value", KEY_ANY, .required = true,
     .doc = "What stands for a missing one: a constant, or the mean, median or most frequent value of the "
            "training "
            "data; for tensors one number or a list with one for each element"},
    {0}};

static const key_spec INDICATOR_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The value that may be missing (or, a float, NaN)"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the result"},
    {0}};

/* ---- check ------------------------------------------------------------------------------------------ */

static status expect_value(const step_build *b, const char *what, error *err) {
    char got[64];
    return step_fault(b, "value", err, "expected %s, got %s", what,
                      yaml_describe(b->values[KEY_VALUE].node, got));
}

/* The value of an int: an int that its type has, or any number, which makes the result float64. */
static status read_int(const step_build *b, cell_type *type, cell *out, error *err) {
    const yaml_node *node = b->values[KEY_VALUE].node;
    int64_t v;
    double number;
    if (scalar_int(node, &v)) {
        if (type->element != ELEM_I64 && type->element != ELEM_U64) {
            int64_t back = 0;
            double wide = (double)v, again;
            elem_from_f64(type->element, &wide, &back, 1, true);
            elem_to_f64(type->element, &back, &again, 1);
            if (wide != again) return expect_value(b, elem_name(type->element), err);
        } else if (type->element == ELEM_U64 && v < 0) {
            return expect_value(b, "uint64", err);
        }
        *out = cell_of_int(v);
        return CHURON_OK;
    }
    if (!scalar_number(node, &number)) return expect_value(b, "a number", err);
    *type = CELL_TYPE_DOUBLE;
    *out = cell_of_float(number);
    return CHURON_OK;
}

static status read_single(const step_build *b, cell_type *type, cell *out, error *err) {
    const yaml_node *node = b->values[KEY_VALUE].node;
    double number;
    bool flag;
    if (node->kind != YAML_SCALAR) return expect_value(b, "a single value", err);
    *out = (cell){.kind = type->kind};
    switch (type->kind) {
    case CELL_INT: return read_int(b, type, out, err);
    case CELL_FLOAT:
        if (!scalar_number(node, &number)) return expect_value(b, "a number", err);
        *out = cell_of_float(type->element == ELEM_F32 ? (double)(float)number : number);
        return CHURON_OK;
    case CELL_BOOL:
        if (!scalar_bool(node, &flag)) return expect_value(b, "true or false", err);
        *out = cell_of_bool(flag);
        return CHURON_OK;
    case CELL_DATE:
        if (!date_parse(node->text, node->len, &out->integer)) return expect_value(b, "a date", err);
        return CHURON_OK;
    case CELL_TIME:
        if (!time_parse(node->text, node->len, &out->integer))
            return expect_value(b, "a timestamp with its zone", err);
        return CHURON_OK;
    default: *out = cell_of_text(node->text, node->len); return CHURON_OK;
    }
}

static status read_numbers(step_build *b, const cell_type *type, impute_state *s, error *err) {
    const yaml_node *node = b->values[KEY_VALUE].node;
    const bool list = node->kind == YAML_LIST;
    cell_type there = *type;
    vector_form form;
    there.optional = false;
    if (!(ELEM_BIT(type->element) & (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64))) ||
        !vector_form_of(&there, &form))
        return step_fault(b, "field", err, "expected a tensor of float32 or float64, got one of %s",
                          elem_name(type->element));
    if (type->optional && form.n < 0)
        return step_fault(b, "field", err,
                          "expected a tensor whose shape is certain, as it may be missing as a whole");
    s->n = list ? node->n : 1;
    double *numbers = arena_array(b->memory, s->n ? s->n : 1, sizeof *numbers);
    if (!numbers) return arena_refused(b->memory, b->kind->name, s->n * sizeof *numbers, err);
    if (list && s->n != 1 && form.n >= 0 && form.n != (int64_t)s->n)
        return step_fault(b, "value", err, "expected one number or %" PRId64 ", got %zu", form.n, s->n);
    for (size_t i = 0; i < s->n; i++) {
        if (!scalar_number(list ? &node->items[i] : node, &numbers[i]))
            return expect_value(b, "a number or a list of numbers", err);
    }
    if (s->n == 0) return expect_value(b, "at least one number", err);
    s->numbers = numbers;
    return CHURON_OK;
}

static status check_impute(step_build *b, error *err) {
    const uint32_t kinds = 1u << CELL_BOOL | 1u << CELL_INT | 1u << CELL_FLOAT | 1u << CELL_TEXT |
                           1u << CELL_DATE | 1u << CELL_TIME | 1u << CELL_TENSOR;
    impute_state *s;
    TRY(step_expect(b, KEY_FIELD_, kinds, true, err));
    const cell_type *type = b->values[KEY_FIELD_].type;
    const bool may_be_nan = type->kind == CELL_FLOAT || type->kind == CELL_TENSOR;
    if (!type->optional && !may_be_nan)
        return step_fault(b, "field", err,
                          "expected a value that may be missing, got '%.80s', which is always there",
                          b->values[KEY_FIELD_].text);
    TRY(step_state(b, sizeof *s, &s, err));
    s->type = *type;
    if (type->kind == CELL_TENSOR) {
        TRY(read_numbers(b, type, s, err));
    } else {
        TRY(read_single(b, &s->type, &s->value, err));
    }
    s->type.optional = false;
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &s->type, err);
}

/* ---- running ---------------------------------------------------------------------------------------- */

static status impute_tensor(const step *st, run *r, const cell *in, cell *out, error *err) {
    const impute_state *s = st->state;
    const bool there = in->kind == CELL_TENSOR;
    const size_t rank = there ? in->t->rank : s->type.rank;
    const int64_t *dims = there ? in->t->dims : s->type.dims;
    void *data;
    TRY(cell_new_tensor(out, CELL_TENSOR, r->memory, s->type.element, rank, dims, &data, st->label, err));
    const size_t n = out->t->count, bytes = elem_describe(s->type.element)->bytes;
    TRY(vector_fits(s->n, n, err));
    for (size_t i = 0; i < n; i++) {
        double v = NAN;
        if (there) elem_to_f64(s->type.element, (const char *)in->t->data + i * bytes, &v, 1);
        if (isnan(v)) v = s->numbers[s->n == 1 ? 0 : i];
        elem_from_f64(s->type.element, &v, (char *)data + i * bytes, 1, true);
    }
    return CHURON_OK;
}

static bool is_missing(const cell *c) {
    return c->kind == CELL_MISSING || (c->kind == CELL_FLOAT && isnan(c->number));
}

static status row_impute(const step *st, run *r, cell *slots, error *err) {
    const impute_state *s = st->state;
    const cell *in = &slots[st->in];
    if (s->n) return impute_tensor(st, r, in, &slots[st->out], err);
    if (is_missing(in)) {
        slots[st->out] = s->value;
    } else if (in->kind == CELL_INT && s->value.kind == CELL_FLOAT) {
        const double *number;
        double one;
        size_t n;
        TRY(vector_read(st, r, in, &one, &number, &n, err));
        slots[st->out] = cell_of_float(*number);
    } else {
        slots[st->out] = *in;
    }
    return CHURON_OK;
}

const step_kind step_impute = {.name = "impute",
                               .group = "tabular",
                               .doc = "A missing value, and NaN of a float, becomes the given one. The type "
                                      "stays, but an int whose given value is "
                                      "no integer becomes float64.",
                               .reference = "scikit-learn SimpleImputer",
                               .keys = IMPUTE_KEYS,
                               .check = check_impute,
                               .row = row_impute};

/* ---- missing_indicator ------------------------------------------------------------------------------ */

static status check_indicator(step_build *b, error *err) {
    cell_type *type;
    const cell_type *in = b->values[KEY_FIELD_].type;
    if (!in->optional && in->kind != CELL_FLOAT && in->kind != CELL_TENSOR)
        return step_fault(b, "field", err,
                          "expected a value that may be missing, got '%.80s', which is always there",
                          b->values[KEY_FIELD_].text);
    TRY(step_state(b, sizeof *type, &type, err));
    *type = CELL_TYPE_BOOL;
    if (in->kind == CELL_TENSOR && !in->optional) {
        vector_form form;
        TRY(vector_expect(b, KEY_FIELD_, &form, err));
        *type = vector_type(in, ELEM_BOOL);
    }
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, type, err);
}

static status row_indicator(const step *st, run *r, cell *slots, error *err) {
    const cell_type *type = st->state;
    const cell *in = &slots[st->in];
    if (type->kind == CELL_BOOL) {
        slots[st->out] = cell_of_bool(is_missing(in));
        return CHURON_OK;
    }
    const tensor *t = in->t;
    const size_t bytes = elem_describe(t->type)->bytes;
    void *data;
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, ELEM_BOOL, t->rank, t->dims, &data,
                        st->label, err));
    for (size_t i = 0; i < t->count; i++) {
        double v;
        elem_to_f64(t->type, (const char *)t->data + i * bytes, &v, 1);
        ((uint8_t *)data)[i] = (uint8_t)(isnan(v) != 0);
    }
    return CHURON_OK;
}

const step_kind step_missing_indicator = {.name = "missing_indicator",
                                          .group = "tabular",
                                          .doc = "true where the value is missing or, a float, NaN; of a "
                                                 "tensor that is always there one for each element, of "
                                                 "one that may be missing one for the whole.",
                                          .reference = "scikit-learn MissingIndicator",
                                          .keys = INDICATOR_KEYS,
                                          .check = check_indicator,
                                          .row = row_indicator};
