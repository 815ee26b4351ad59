/* shape.c: concat, cast, reshape, select: the same values in another form. */
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- concat ----------------------------------------------------------------------------------------- */

enum { CONCAT_FIELDS, CONCAT_INTO, CONCAT_DTYPE };

typedef struct concat_state {
    size_t n_fields;
    const int32_t *slots;
    elem element;
    int64_t n; /* -1: known when running */
} concat_state;

static const key_spec CONCAT_KEYS[] = {
    {"fields", KEY_FIELDS, .required = true, .doc = "Numbers, and tensors and lists of numbers"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the result"},
    {"dtype", KEY_CHOICE, .fallback = "float32", .choices = "float32|float64|int64",
     .doc = "Of the result; floats take every number, rounded to the nearest; int64 takes ints and bools"},
    {0}};

static status check_concat(step_build *b, error *err) {
    const key_value *fields = &b->values[CONCAT_FIELDS];
    concat_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (concat_state){.n_fields = fields->n,
                        .slots = fields->slots,
                        .element = elem_named(b->values[CONCAT_DTYPE].text, ELEMS_ALL)};
    if (s->n_fields == 0) return step_fault(b, "fields", err, "expected at least one field, got none");
    for (size_t i = 0; i < s->n_fields; i++) {
        vector_form form;
        char got[160];
        const char *expected = NULL;
        if (fields->types[i]->optional) {
            expected = "numbers that are always there (impute them)";
        } else if (!vector_form_of(fields->types[i], &form)) {
            expected = "numbers";
        } else if (s->element == ELEM_I64 && (ELEM_BIT(form.element) & ELEMS_FLOAT)) {
            expected = "ints and bools for int64";
        }
        if (expected)
            return step_fault(b, "fields", err, "expected %s, got '%.60s', which is %s", expected,
                              fields->texts[i], cell_type_text(fields->types[i], got, sizeof got));
        s->n = s->n < 0 || form.n < 0 ? -1 : s->n + form.n;
    }
    const cell_type type = {
        .kind = CELL_TENSOR, .element = s->element, .has_rank = true, .rank = 1, .dims = {s->n}};
    return step_output(b, CONCAT_INTO, CONCAT_FIELDS, &type, err);
}

static size_t count_of(const cell *c) {
    return c->kind == CELL_TENSOR ? c->t->count : c->kind == CELL_LIST ? c->n : 1;
}

/* Appends the numbers of a cell, as elements of type e. */
static status put_numbers(const step *st, run *r, const cell *c, elem e, char **to, error *err) {
    const size_t bytes = elem_describe(e)->bytes;
    const double *values;
    double one;
    size_t n;
    if (c->kind == CELL_TENSOR && c->t->type == e) { /* also int64 beyond 2^53 */
        if (c->t->count) memcpy(*to, c->t->data, c->t->count * bytes);
        *to += c->t->count * bytes;
        return CHURON_OK;
    }
    if (e == ELEM_I64 && c->kind == CELL_INT) {
        memcpy(*to, &c->integer, bytes);
        *to += bytes;
        return CHURON_OK;
    }
    TRY(vector_read(st, r, c, &one, &values, &n, err));
    elem_from_f64(e, values, *to, n, true);
    *to += n * bytes;
    return CHURON_OK;
}

static status row_concat(const step *st, run *r, cell *slots, error *err) {
    const concat_state *s = st->state;
    int64_t dims[1] = {s->n};
    if (s->n < 0) {
        size_t total = 0;
        for (size_t i = 0; i < s->n_fields; i++) total += count_of(&slots[s->slots[i]]);
        dims[0] = (int64_t)total;
    }
    void *data;
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, s->element, 1, dims, &data, st->label, err));
    char *to = data;
    for (size_t i = 0; i < s->n_fields; i++)
        TRY(put_numbers(st, r, &slots[s->slots[i]], s->element, &to, err));
    return CHURON_OK;
}

const step_kind step_concat = {
    .name = "concat",
    .group = "tabular",
    .doc = "One vector of all numbers of the fields, in their order, tensors row by row; true is 1, false 0.",
    .reference = "numpy.concatenate of the raveled fields",
    .keys = CONCAT_KEYS,
    .check = check_concat,
    .row = row_concat};

/* ---- cast ------------------------------------------------------------------------------------------- */

enum { CAST_FIELD, CAST_INTO, CAST_DTYPE, CAST_ROUNDING };

typedef enum cast_rounding { ROUND_EXACT, ROUND_NEAREST, ROUND_TRUNCATE } cast_rounding;

typedef struct cast_state {
    cell_type type;
    cast_rounding rounding;
} cast_state;

static const key_spec CAST_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A number, or a tensor or list of numbers"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"dtype", KEY_CHOICE, .required = true,
     .choices = "bool|int8|int16|int32|int64|uint8|uint16|uint32|uint64|float16|bfloat16|float32|float64",
     .doc = "The new type; float16 and bfloat16 for tensors only"},
    {"rounding", KEY_CHOICE, .fallback = "exact", .choices = "exact|nearest|truncate",
     .doc = "exact: a number that the type does not have is a fault of the record; nearest: the nearest one, "
            "of two the "
            "even one; truncate: towards zero, for integers only"},
    {0}};

static status check_cast(step_build *b, error *err) {
    cast_state *s;
    vector_form form;
    TRY(vector_expect(b, CAST_FIELD, &form, err));
    TRY(step_state(b, sizeof *s, &s, err));
    const elem e = elem_named(b->values[CAST_DTYPE].text, ELEMS_ALL);
    s->type = vector_type(b->values[CAST_FIELD].type, e);
    s->rounding = (cast_rounding)b->values[CAST_ROUNDING].integer;
    if (form.single && (e == ELEM_F16 || e == ELEM_BF16))
        return step_fault(b, "dtype", err, "expected float32 or float64 for a single number, got %s",
                          elem_name(e));
    if (s->rounding == ROUND_TRUNCATE && !(ELEM_BIT(e) & ELEMS_INT))
        return step_fault(b, "rounding", err, "expected exact or nearest for %s, got truncate", elem_name(e));
    b->s->in = b->values[CAST_FIELD].slot;
    return step_output(b, CAST_INTO, CAST_FIELD, &s->type, err);
}

/* Least and greatest integer of a type as float64; those of 64 bits within 2^53, where each has its own. */
static void int_range(elem e, double *least, double *most) {
    const bool is_signed = (ELEM_BIT(e) & ELEMS_SIGNED) != 0;
    const int bits = (int)(8 * elem_describe(e)->bytes);
    *most = bits == 64 ? 9007199254740992.0 : ldexp(1, bits - is_signed) - 1;
    *least = !is_signed ? 0 : bits == 64 ? -9007199254740992.0 : -ldexp(1, bits - 1);
}

static status not_had(elem e, double v, error *err) {
    return error_set(err, CHURON_INVALID, "expected a number that %s has, got %.17g", elem_name(e), v);
}

static status cast_number(const cast_state *s, double v, double *out, error *err) {
    const elem e = s->type.element;
    double least, most;
    *out = v;
    if (e == ELEM_BOOL) return v == 0 || v == 1 ? CHURON_OK : not_had(e, v, err);
    if (!(ELEM_BIT(e) & ELEMS_INT)) {
        uint64_t bits = 0;
        if (e == ELEM_F64 || isnan(v)) return CHURON_OK;
        elem_from_f64(e, &v, &bits, 1, true);
        elem_to_f64(e, &bits, out, 1);
        return s->rounding == ROUND_EXACT ? (*out == v ? CHURON_OK : not_had(e, v, err))
                                          : (isinf(*out) && !isinf(v) ? not_had(e, v, err) : CHURON_OK);
    }
    const double whole = s->rounding == ROUND_TRUNCATE ? trunc(v) : nearbyint(v);
    int_range(e, &least, &most);
    if (!(whole >= least && whole <= most) || (s->rounding == ROUND_EXACT && whole != v))
        return not_had(e, v, err);
    *out = whole;
    return CHURON_OK;
}

static status row_cast(const step *st, run *r, cell *slots, error *err) {
    const cast_state *s = st->state;
    const cell *in = &slots[st->in];
    const double *from;
    double one, result, *to = &result;
    size_t n;
    const bool wide = s->type.element == ELEM_I64;
    if (wide && (in->kind == CELL_INT || (in->kind == CELL_TENSOR && in->t->type == ELEM_I64))) {
        slots[st->out] = *in;
        return CHURON_OK;
    }
    TRY(vector_read(st, r, in, &one, &from, &n, err));
    if (from != &one) TRY(vector_room(st, r, n, &to, err));
    for (size_t i = 0; i < n; i++) TRY(cast_number(s, from[i], &to[i], err));
    return vector_store(st, r, in, &s->type, to, n, &slots[st->out], err);
}

const step_kind step_cast = {.name = "cast",
                             .group = "tabular",
                             .doc = "The same numbers in another type. A number out of the type's range is "
                                    "always a fault of the record, and so is "
                                    "NaN for integers.",
                             .reference = "numpy astype",
                             .keys = CAST_KEYS,
                             .check = check_cast,
                             .row = row_cast};

/* ---- reshape ---------------------------------------------------------------------------------------- */

enum { RESHAPE_FIELD, RESHAPE_INTO, RESHAPE_SHAPE };

typedef struct reshape_state {
    size_t rank;
    const int64_t *shape;
    elem element;
} reshape_state;

static const key_spec RESHAPE_KEYS[] = {
    {"field", KEY_FIELD, .required = true,
     .doc = "A number, or a tensor or list of numbers; a tensor of texts"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"shape", KEY_INTS, .required = true, .least = -1, .most = 1e9,
     .doc = "The new shape; one -1 stands for what is left"},
    {0}};

/* dims with -1 replaced. False: n elements do not have this shape. */
static bool solve_shape(const int64_t *shape, size_t rank, int64_t n, int64_t *dims) {
    int64_t known = 1;
    size_t open = rank;
    for (size_t i = 0; i < rank; i++) {
        dims[i] = shape[i];
        if (shape[i] < 0) {
            open = i;
        } else if (shape[i] != 0 && known > INT64_MAX / shape[i]) {
            return false;
        } else {
            known *= shape[i];
        }
    }
    if (open == rank) return known == n;
    if (known == 0 || n % known != 0) return false;
    dims[open] = n / known;
    return true;
}

static const char *shape_text(const int64_t *shape, size_t rank, char *buf, size_t room) {
    cell_type t = {.kind = CELL_TENSOR, .element = ELEM_F32, .has_rank = true, .rank = (uint32_t)rank};
    memcpy(t.dims, shape, rank * sizeof *shape);
    const char *text = cell_type_text(&t, buf, room);
    return strchr(text, '[') ? strchr(text, '[') : text;
}

static status check_reshape(step_build *b, error *err) {
    const key_value *shape = &b->values[RESHAPE_SHAPE];
    const cell_type *in = b->values[RESHAPE_FIELD].type;
    reshape_state *s;
    vector_form form = {.n = -1, .element = in->element};
    char text[160];
    size_t open = 0;
    if (in->optional || in->kind != CELL_TENSOR || in->element != ELEM_STRING)
        TRY(vector_expect(b, RESHAPE_FIELD, &form, err));
    if (shape->n > TENSOR_MAX_RANK - 1) return step_fault(b, "shape", err, "expected at most 11 dimensions");
    for (size_t i = 0; i < shape->n; i++) open += shape->integers[i] < 0;
    if (open > 1) return step_fault(b, "shape", err, "expected at most one -1, got %zu", open);
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (reshape_state){.rank = shape->n, .shape = shape->integers, .element = form.element};
    cell_type type = {
        .kind = CELL_TENSOR, .element = form.element, .has_rank = true, .rank = (uint32_t)shape->n};
    memcpy(type.dims, shape->integers, shape->n * sizeof *type.dims);
    if (form.n >= 0 && !solve_shape(shape->integers, shape->n, form.n, type.dims))
        return step_fault(b, "shape", err, "expected a shape of %" PRId64 " elements, got %s", form.n,
                          shape_text(shape->integers, shape->n, text, sizeof text));
    b->s->in = b->values[RESHAPE_FIELD].slot;
    return step_output(b, RESHAPE_INTO, RESHAPE_FIELD, &type, err);
}

static status row_reshape(const step *st, run *r, cell *slots, error *err) {
    const reshape_state *s = st->state;
    const cell *in = &slots[st->in];
    int64_t dims[TENSOR_MAX_RANK];
    char text[160];
    const size_t n = count_of(in);
    if (!solve_shape(s->shape, s->rank, (int64_t)n, dims))
        return error_set(err, CHURON_INVALID, "expected a shape of %zu elements, got %s", n,
                         shape_text(s->shape, s->rank, text, sizeof text));
    if (in->kind == CELL_TENSOR) {
        const tensor t = tensor_borrow(in->t->type, s->rank, dims, in->t->data);
        return cell_borrow_tensor(&slots[st->out], CELL_TENSOR, r->memory, &t, err);
    }
    void *data;
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, s->element, s->rank, dims, &data, st->label,
                        err));
    char *to = data;
    for (size_t i = 0; i < n; i++) {
        const cell *c = in->kind == CELL_LIST ? &in->items[i] : in;
        if (c->kind == CELL_INT) {
            memcpy(to, &c->integer, elem_describe(s->element)->bytes); /* little-endian: low bytes first */
            to += elem_describe(s->element)->bytes;
        } else {
            TRY(put_numbers(st, r, c, s->element, &to, err));
        }
    }
    return CHURON_OK;
}

const step_kind step_reshape = {.name = "reshape",
                                .group = "tabular",
                                .doc = "The same elements, row by row, as a tensor of another shape.",
                                .reference = "numpy.reshape",
                                .keys = RESHAPE_KEYS,
                                .check = check_reshape,
                                .row = row_reshape};

/* ---- select ----------------------------------------------------------------------------------------- */

enum { SELECT_FIELD, SELECT_INTO, SELECT_INDICES };

typedef struct select_state {
    size_t n;
    const int64_t *indices;
} select_state;

static const key_spec SELECT_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A tensor or a list"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"indices", KEY_INTS, .required = true, .most = 1e9,
     .doc = "Which elements, from 0, along the first dimension, in this order"},
    {0}};

static status check_select(step_build *b, error *err) {
    const key_value *indices = &b->values[SELECT_INDICES];
    select_state *s;
    TRY(step_expect(b, SELECT_FIELD, 1u << CELL_TENSOR | 1u << CELL_LIST, false, err));
    const cell_type *in = b->values[SELECT_FIELD].type;
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (select_state){.n = indices->n, .indices = indices->integers};
    cell_type type = *in;
    if (in->kind == CELL_TENSOR) {
        if (!in->has_rank || in->rank == 0)
            return step_fault(b, "field", err, "expected a tensor with at least one dimension");
        for (size_t i = 0; i < s->n && in->dims[0] >= 0; i++) {
            if (s->indices[i] >= in->dims[0])
                return step_fault(b, "indices", err, "expected at most %" PRId64 ", got %" PRId64,
                                  in->dims[0] - 1, s->indices[i]);
        }
        type.dims[0] = (int64_t)s->n;
    }
    b->s->in = b->values[SELECT_FIELD].slot;
    return step_output(b, SELECT_INTO, SELECT_FIELD, &type, err);
}

static status select_rows(const step *st, run *r, const tensor *t, cell *out, error *err) {
    const select_state *s = st->state;
    int64_t dims[TENSOR_MAX_RANK];
    const size_t rows = (size_t)t->dims[0];
    const size_t bytes = rows ? t->count / rows * elem_describe(t->type)->bytes : 0;
    void *data;
    memcpy(dims, t->dims, t->rank * sizeof *dims);
    dims[0] = (int64_t)s->n;
    TRY(cell_new_tensor(out, CELL_TENSOR, r->memory, t->type, t->rank, dims, &data, st->label, err));
    for (size_t i = 0; i < s->n && bytes; i++)
        memcpy((char *)data + i * bytes, (const char *)t->data + (size_t)s->indices[i] * bytes, bytes);
    return CHURON_OK;
}

static status row_select(const step *st, run *r, cell *slots, error *err) {
    const select_state *s = st->state;
    const cell *in = &slots[st->in];
    const size_t n = in->kind == CELL_TENSOR ? (size_t)in->t->dims[0] : in->n;
    cell *items;
    for (size_t i = 0; i < s->n; i++) {
        if ((uint64_t)s->indices[i] >= n)
            return error_set(err, CHURON_INVALID, "expected more than %" PRId64 " elements, got %zu",
                             s->indices[i], n);
    }
    if (in->kind == CELL_TENSOR) return select_rows(st, r, in->t, &slots[st->out], err);
    TRY(cell_new_list(&slots[st->out], r->memory, s->n, &items, err));
    for (size_t i = 0; i < s->n; i++) items[i] = in->items[s->indices[i]];
    return CHURON_OK;
}

const step_kind step_select = {
    .name = "select",
    .group = "tabular",
    .doc = "Some elements of a tensor (columns of a vector) or of a list, in the order of indices.",
    .reference = "numpy.take",
    .keys = SELECT_KEYS,
    .check = check_select,
    .row = row_select};
