/* encode_category.c: one_hot and ordinal: categories as numbers. */
#include "pipeline/steps/category.h"
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <math.h>
#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_CATEGORIES, KEY_UNKNOWN, KEY_INFREQUENT, KEY_DROP, KEY_DTYPE };
enum { KEY_UNKNOWN_VALUE = KEY_INFREQUENT, KEY_ORDINAL_DTYPE = KEY_DROP };

typedef enum on_unknown { UNKNOWN_ERROR, UNKNOWN_IGNORE, UNKNOWN_INFREQUENT } on_unknown;

static status unknown_category(const cell *c, error *err) {
    char text[80];
    return error_set(err, CHURON_INVALID, "expected one of the categories, got %s", category_text(c, text));
}

/* ---- one_hot ---------------------------------------------------------------------------------------- */

typedef struct one_hot_state {
    category_set categories;
    int64_t *columns; /* [categories]; -1: none */
    size_t width;
    int64_t other; /* the column of unknown ones; -1: none */
    on_unknown unknown;
    elem element;
} one_hot_state;

static const key_spec ONE_HOT_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text, an int or a bool"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"categories", KEY_TEXTS, .doc = "In the order of the columns; left out: the one_of of the input"},
    {"unknown", KEY_CHOICE, .fallback = "error", .choices = "error|ignore|infrequent",
     .doc = "A value that is no category: error: a fault of the record; ignore: all zeros; infrequent: the "
            "last column"},
    {"infrequent", KEY_TEXTS, .doc = "Categories that share the last column"},
    {"drop", KEY_CHOICE, .fallback = "none", .choices = "none|first|if_binary",
     .doc = "first: the first column is left out; if_binary: only where there are two"},
    {"dtype", KEY_CHOICE, .fallback = "float64", .choices = "float64|float32|int64|bool",
     .doc = "Of the result"},
    {0}};

/* Columns of categories: those that are infrequent share one behind the others. */
static status place_columns(step_build *b, one_hot_state *s, error *err) {
    const key_value *rare = &b->values[KEY_INFREQUENT];
    const category_set *set = &s->categories;
    category_set rare_set = {0};
    if (rare->given) TRY(category_set_read(b, KEY_INFREQUENT, KEY_FIELD_, &rare_set, err));
    for (size_t i = 0; i < rare_set.n; i++) {
        if (category_find(set, &rare_set.values[i]) < 0)
            return step_fault(b, "infrequent", err, "expected some of the categories, got '%.60s'",
                              rare->texts[i]);
    }
    s->columns = arena_array(b->memory, set->n, sizeof *s->columns);
    if (!s->columns) return arena_refused(b->memory, b->kind->name, set->n * sizeof *s->columns, err);
    for (size_t i = 0; i < set->n; i++) {
        const bool is_rare = rare->given && category_find(&rare_set, &set->values[i]) >= 0;
        s->columns[i] = is_rare ? -1 : (int64_t)s->width++;
    }
    s->other = -1;
    if (!rare->given) return CHURON_OK;
    const int64_t shared = (int64_t)s->width++;
    for (size_t i = 0; i < set->n; i++) {
        if (s->columns[i] < 0) s->columns[i] = shared;
    }
    if (s->unknown == UNKNOWN_INFREQUENT) s->other = shared;
    return CHURON_OK;
}

static status check_one_hot(step_build *b, error *err) {
    one_hot_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(category_set_read(b, KEY_CATEGORIES, KEY_FIELD_, &s->categories, err));
    s->unknown = (on_unknown)b->values[KEY_UNKNOWN].integer;
    s->element = elem_named(b->values[KEY_DTYPE].text, ELEMS_ALL);
    if (s->unknown == UNKNOWN_INFREQUENT && !b->values[KEY_INFREQUENT].given)
        return step_fault(b, "unknown", err, "expected the key 'infrequent' with it, got none");
    TRY(place_columns(b, s, err));
    const int64_t drop = b->values[KEY_DROP].integer;
    if (drop == 1 || (drop == 2 && s->width == 2)) {
        for (size_t i = 0; i < s->categories.n; i++) s->columns[i]--;
        if (s->other >= 0) s->other--;
        s->width--;
    }
    const cell_type type = {
        .kind = CELL_TENSOR, .element = s->element, .has_rank = true, .rank = 1, .dims = {(int64_t)s->width}};
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &type, err);
}

static status row_one_hot(const step *st, run *r, cell *slots, error *err) {
    const one_hot_state *s = st->state;
    const int64_t dims[1] = {(int64_t)s->width};
    void *data;
    const int64_t at = category_find(&s->categories, &slots[st->in]);
    if (at < 0 && s->unknown == UNKNOWN_ERROR) return unknown_category(&slots[st->in], err);
    const int64_t column = at < 0 ? s->other : s->columns[at];
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, s->element, 1, dims, &data, st->label, err));
    const size_t bytes = elem_describe(s->element)->bytes;
    const double one = 1;
    if (s->width) memset(data, 0, s->width * bytes);
    if (column >= 0) elem_from_f64(s->element, &one, (char *)data + (size_t)column * bytes, 1, true);
    return CHURON_OK;
}

const step_kind step_one_hot = {.name = "one_hot",
                                .group = "tabular",
                                .doc = "A vector with a column for each category: 1 in that of the value, 0 "
                                       "in the others. Texts are compared byte "
                                       "by byte.",
                                .reference = "scikit-learn OneHotEncoder",
                                .keys = ONE_HOT_KEYS,
                                .check = check_one_hot,
                                .row = row_one_hot};

/* ---- ordinal ---------------------------------------------------------------------------------------- */

typedef struct ordinal_state {
    category_set categories;
    bool has_unknown;
    double unknown;
    cell_type type;
} ordinal_state;

static const key_spec ORDINAL_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text, an int or a bool"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"categories", KEY_TEXTS, .doc = "In the order of their numbers; left out: the one_of of the input"},
    {"unknown", KEY_CHOICE, .fallback = "error", .choices = "error|value",
     .doc = "A value that is no category: error: a fault of the record; value: becomes unknown_value"},
    {"unknown_value", KEY_SCALAR,
     .doc = "The number of unknown values, none of the categories' own; .nan with a float dtype"},
    {"dtype", KEY_CHOICE, .fallback = "int64", .choices = "int64|float64|float32", .doc = "Of the result"},
    {0}};

static status read_unknown(step_build *b, ordinal_state *s, error *err) {
    const key_value *v = &b->values[KEY_UNKNOWN_VALUE];
    const bool wanted = b->values[KEY_UNKNOWN].integer == 1;
    if (wanted != v->given)
        return step_fault(b, wanted ? "unknown" : "unknown_value", err,
                          wanted ? "expected the key 'unknown_value' with it, got none"
                                 : "expected unknown: value with it");
    if (!wanted) return CHURON_OK;
    s->has_unknown = true;
    if (s->type.kind == CELL_FLOAT && !v->node->quoted && strcmp(v->node->text, ".nan") == 0) {
        s->unknown = NAN;
        return CHURON_OK;
    }
    if (!scalar_number(v->node, &s->unknown) ||
        (s->type.kind == CELL_INT && s->unknown != trunc(s->unknown)) || fabs(s->unknown) > 1e9)
        return step_fault(b, "unknown_value", err, "expected %s up to 1e9 in size, got '%.40s'",
                          s->type.kind == CELL_INT ? "an integer" : "a number", v->node->text);
    if (s->unknown >= 0 && s->unknown < (double)s->categories.n && s->unknown == trunc(s->unknown))
        return step_fault(b, "unknown_value", err, "expected the number of no category, got %g", s->unknown);
    return CHURON_OK;
}

static status check_ordinal(step_build *b, error *err) {
    ordinal_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(category_set_read(b, KEY_CATEGORIES, KEY_FIELD_, &s->categories, err));
    s->type = vector_type(&CELL_TYPE_INT, elem_named(b->values[KEY_ORDINAL_DTYPE].text, ELEMS_ALL));
    TRY(read_unknown(b, s, err));
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &s->type, err);
}

static status row_ordinal(const step *st, run *r, cell *slots, error *err) {
    const ordinal_state *s = st->state;
    const int64_t at = category_find(&s->categories, &slots[st->in]);
    if (at < 0 && !s->has_unknown) return unknown_category(&slots[st->in], err);
    double v = at < 0 ? s->unknown : (double)at;
    return vector_store(st, r, &slots[st->in], &s->type, &v, 1, &slots[st->out], err);
}

const step_kind step_ordinal = {
    .name = "ordinal",
    .group = "tabular",
    .doc = "The place of the value in the categories, from 0. Texts are compared byte by byte.",
    .reference = "scikit-learn OrdinalEncoder",
    .keys = ORDINAL_KEYS,
    .check = check_ordinal,
    .row = row_ordinal};
