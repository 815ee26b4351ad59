/* arithmetic.c: two numbers become one: sums, differences, products, ratios. */
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <math.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_OP, KEY_WITH, KEY_VALUE, KEY_ZERO };

typedef enum arithmetic_op { OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE } arithmetic_op;

typedef struct arithmetic_state {
    arithmetic_op op;
    int32_t with; /* slot of the second value; -1: `value` */
    size_t n;     /* of value */
    const double *value;
    bool has_zero;
    double zero;
    cell_type type;
} arithmetic_state;

static const key_spec ARITHMETIC_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The first number, or a tensor or list of numbers"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"op", KEY_CHOICE, .required = true, .choices = "add|subtract|multiply|divide", .doc = "field op with"},
    {"with", KEY_FIELD, .doc = "The second value: one number, or as many as the field has"},
    {"value", KEY_NUMBERS, .doc = "Instead of with: one number, or one for each"},
    {"zero", KEY_NUMBER, .doc = "The result of a division by 0; left out: that is a fault of the record"},
    {0}};

static status check_arithmetic(step_build *b, error *err) {
    arithmetic_state *s;
    vector_form form, with = {.n = 1, .element = ELEM_F32, .single = true};
    const key_value *other = &b->values[KEY_WITH], *constant = &b->values[KEY_VALUE];
    TRY(vector_expect(b, KEY_FIELD_, &form, err));
    if (other->given == constant->given)
        return step_fault(b, NULL, err, "expected either the key 'with' or the key 'value'");
    if (other->given) {
        TRY(vector_expect(b, KEY_WITH, &with, err));
        if (!with.single && (form.single || (form.n >= 0 && with.n >= 0 && form.n != with.n)))
            return step_fault(b, "with", err, "expected one number or as many as the field has");
    } else {
        TRY(vector_check_count(b, KEY_VALUE, &form, err));
    }
    TRY(step_state(b, sizeof *s, &s, err));
    const bool narrow = form.element == ELEM_F32 && (constant->given || with.element == ELEM_F32);
    *s = (arithmetic_state){.op = (arithmetic_op)b->values[KEY_OP].integer,
                            .with = other->given ? other->slot : -1,
                            .n = constant->n,
                            .value = constant->numbers,
                            .has_zero = b->values[KEY_ZERO].given,
                            .zero = b->values[KEY_ZERO].number,
                            .type = vector_type(b->values[KEY_FIELD_].type, narrow ? ELEM_F32 : ELEM_F64)};
    if (s->has_zero && s->op != OP_DIVIDE)
        return step_fault(b, "zero", err, "expected it with op: divide only");
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &s->type, err);
}

static status apply(const arithmetic_state *s, double a, double b, double *out, error *err) {
    switch (s->op) {
    case OP_ADD: *out = a + b; return CHURON_OK;
    case OP_SUBTRACT: *out = a - b; return CHURON_OK;
    case OP_MULTIPLY: *out = a * b; return CHURON_OK;
    case OP_DIVIDE: break;
    }
    if (b == 0 && !s->has_zero)
        return error_set(err, CHURON_INVALID, "expected a divisor that is not 0, got 0");
    *out = b == 0 ? s->zero : a / b;
    return CHURON_OK;
}

static status row_arithmetic(const step *st, run *r, cell *slots, error *err) {
    const arithmetic_state *s = st->state;
    const cell *in = &slots[st->in];
    const double *a, *b = s->value;
    double one[2], result, *to = &result;
    size_t n, m = s->n;
    TRY(vector_read(st, r, in, &one[0], &a, &n, err));
    if (s->with >= 0) TRY(vector_read(st, r, &slots[s->with], &one[1], &b, &m, err));
    TRY(vector_fits(m, n, err));
    if (a != &one[0]) TRY(vector_room(st, r, n, &to, err));
    for (size_t i = 0; i < n; i++) TRY(apply(s, a[i], b[m == 1 ? 0 : i], &to[i], err));
    return vector_store(st, r, in, &s->type, to, n, &slots[st->out], err);
}

const step_kind step_arithmetic = {.name = "arithmetic",
                                   .group = "tabular",
                                   .doc = "A sum, difference, product or ratio of two values, number by "
                                          "number, in float64; the result is float32 where "
                                          "both are.",
                                   .reference = "numpy",
                                   .keys = ARITHMETIC_KEYS,
                                   .check = check_arithmetic,
                                   .row = row_arithmetic};
