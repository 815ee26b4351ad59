/* polynomial.c: products of numbers up to a degree. */
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

enum { KEY_FIELD_, KEY_INTO_, KEY_DEGREE, KEY_INTERACTION, KEY_BIAS };

enum { MAX_TERMS = 1 << 20 };

/* A term is a number times an earlier term: (first, rest). */
typedef struct poly_term {
    uint32_t first;
    int32_t rest; /* -1: the number alone */
} poly_term;

typedef struct poly_state {
    size_t n, n_terms; /* numbers; terms without the bias */
    poly_term *terms;
    bool bias;
    elem element;
} poly_state;

static const key_spec POLYNOMIAL_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A number, or a tensor of numbers whose count is certain"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"degree", KEY_INT, .fallback = "2", .least = 1, .most = 16, .doc = "Most numbers in a product"},
    {"interaction_only", KEY_BOOL, .fallback = "false", .doc = "No number twice in a product"},
    {"bias", KEY_BOOL, .fallback = "true", .doc = "A 1 comes first"},
    {0}};

static status term_add(step_build *b, poly_state *s, size_t *cap, poly_term t, error *err) {
    if (s->n_terms == MAX_TERMS)
        return step_fault(b, "degree", err, "expected at most %d products, got more", MAX_TERMS);
    if (s->n_terms == *cap) {
        void *items = s->terms;
        if (!arena_grow(b->memory, &items, s->n_terms, cap, sizeof *s->terms))
            return arena_refused(b->memory, b->kind->name, *cap * sizeof *s->terms, err);
        s->terms = items;
    }
    s->terms[s->n_terms++] = t;
    return CHURON_OK;
}

/* Degree by degree; within one by the first number, then in the order of the degree before. The terms of a
 * degree that begin with number f or a later one lie together: number f multiplies those. */
static status make_terms(step_build *b, poly_state *s, int64_t degree, bool distinct, error *err) {
    size_t cap = 0, begin = 0, end = 0;
    for (size_t f = 0; f < s->n; f++) TRY(term_add(b, s, &cap, (poly_term){(uint32_t)f, -1}, err));
    for (int64_t d = 2; d <= degree; d++) {
        begin = end;
        end = s->n_terms;
        for (size_t f = 0; f < s->n; f++) {
            for (size_t t = begin; t < end; t++) {
                if (s->terms[t].first < f + distinct) continue;
                TRY(term_add(b, s, &cap, (poly_term){(uint32_t)f, (int32_t)t}, err));
            }
        }
    }
    return CHURON_OK;
}

static status check_polynomial(step_build *b, error *err) {
    poly_state *s;
    vector_form form;
    TRY(vector_expect(b, KEY_FIELD_, &form, err));
    if (form.n < 1 || form.n > 65536)
        return step_fault(b, "field", err, "expected 1 to 65536 numbers, their count certain");
    TRY(step_state(b, sizeof *s, &s, err));
    s->n = (size_t)form.n;
    s->bias = b->values[KEY_BIAS].flag;
    s->element = vector_result(form.element);
    TRY(make_terms(b, s, b->values[KEY_DEGREE].integer, b->values[KEY_INTERACTION].flag, err));
    const int64_t n = (int64_t)(s->n_terms + s->bias);
    const cell_type type = {
        .kind = CELL_TENSOR, .element = s->element, .has_rank = true, .rank = 1, .dims = {n}};
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &type, err);
}

static status row_polynomial(const step *st, run *r, cell *slots, error *err) {
    const poly_state *s = st->state;
    const double *x;
    double one, *out;
    size_t n;
    TRY(vector_read(st, r, &slots[st->in], &one, &x, &n, err));
    if (n != s->n) return error_set(err, CHURON_INVALID, "expected %zu numbers, got %zu", s->n, n);
    TRY(vector_room(st, r, s->n_terms + 1, &out, err));
    double *terms = out + s->bias;
    if (s->bias) *out = 1;
    for (size_t i = 0; i < s->n_terms; i++) {
        const poly_term t = s->terms[i];
        terms[i] = t.rest < 0 ? x[t.first] : terms[t.rest] * x[t.first];
    }
    return vector_store_row(st, r, s->element, out, s->n_terms + s->bias, &slots[st->out], err);
}

const step_kind step_polynomial = {
    .name = "polynomial",
    .group = "tabular",
    .doc = "All products of up to `degree` of the numbers: 1 (the bias), the numbers, the products of two in "
           "the order "
           "aa, ab, …, bb, …, then of three, and so on. The result is float64, of float32 input float32.",
    .reference = "scikit-learn PolynomialFeatures",
    .keys = POLYNOMIAL_KEYS,
    .check = check_polynomial,
    .row = row_polynomial};
