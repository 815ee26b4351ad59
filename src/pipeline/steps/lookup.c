/* lookup.c: a table of the manifest from categories to texts or numbers. */
#include "pipeline/steps/category.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_KEYS, KEY_VALUES, KEY_DEFAULT, KEY_DTYPE };

typedef struct lookup_state {
    category_set keys;
    const cell *values; /* [keys.n] */
    bool has_default;
    cell other;
} lookup_state;

static const key_spec KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text, an int or a bool"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"keys", KEY_TEXTS,
     .doc = "What is looked up: a list, or {file: keys.txt}; left out: the one_of of the input"},
    {"values", KEY_TEXTS, .required = true,
     .doc = "What each key stands for, in the order of the keys: a list, {file: values.txt}, or one for all"},
    {"default", KEY_SCALAR,
     .doc = "What a value stands for that is no key; left out: that is a fault of the record"},
    {"dtype", KEY_CHOICE, .fallback = "text", .choices = "text|float64|float32|int64",
     .doc = "Of the result"},
    {0}};

/* The text as a value of the type. False: it is none. */
static bool read_value(const cell_type *type, const char *text, size_t len, cell *out) {
    const yaml_node node = {.kind = YAML_SCALAR, .text = text, .len = len};
    *out = cell_of_text(text, len);
    if (type->kind == CELL_TEXT) return true;
    out->bytes = NULL;
    out->kind = type->kind;
    if (type->kind == CELL_INT) return scalar_int(&node, &out->integer);
    double v;
    if (!scalar_number(&node, &v)) return false;
    *out = number_cell(type, v);
    return true;
}

static status read_values(step_build *b, const cell_type *type, lookup_state *s, error *err) {
    const key_value *v = &b->values[KEY_VALUES], *other = &b->values[KEY_DEFAULT];
    const char *wanted = type->kind == CELL_INT ? "an integer" : "a number";
    if (v->n != s->keys.n && v->n != 1)
        return step_fault(b, "values", err, "expected one value for each of the %zu keys, got %zu", s->keys.n,
                          v->n);
    cell *values = arena_array(b->memory, s->keys.n, sizeof *values);
    if (!values) return arena_refused(b->memory, b->kind->name, s->keys.n * sizeof *values, err);
    for (size_t i = 0; i < s->keys.n; i++) {
        const char *text = v->texts[v->n == 1 ? 0 : i];
        if (!read_value(type, text, strlen(text), &values[i]))
            return step_fault(b, "values", err, "expected %s, got '%.60s'", wanted, text);
    }
    s->values = values;
    s->has_default = other->given;
    if (other->given && !read_value(type, other->node->text, other->node->len, &s->other))
        return step_fault(b, "default", err, "expected %s, got '%.60s'", wanted, other->node->text);
    return CHURON_OK;
}

static status check_lookup(step_build *b, error *err) {
    lookup_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(category_set_read(b, KEY_KEYS, KEY_FIELD_, &s->keys, err));
    const elem element = elem_named(b->values[KEY_DTYPE].text, ELEMS_NUMERIC);
    const cell_type type = element == ELEM_NONE ? text_type(false) : vector_type(&CELL_TYPE_DOUBLE, element);
    TRY(read_values(b, &type, s, err));
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &type, err);
}

static status row_lookup(const step *st, run *r, cell *slots, error *err) {
    const lookup_state *s = st->state;
    const int64_t at = category_find(&s->keys, &slots[st->in]);
    (void)r;
    if (at < 0 && !s->has_default) {
        char text[80];
        return error_set(err, CHURON_INVALID, "expected one of the keys, got %s",
                         category_text(&slots[st->in], text));
    }
    slots[st->out] = at < 0 ? s->other : s->values[at];
    return CHURON_OK;
}

const step_kind step_lookup = {.name = "lookup",
                               .group = "tabular",
                               .doc = "What a table says about a value: a text or a number for each key "
                                      "(target encoding, thresholds of classes, names of codes).",
                               .reference = "dict.get in Python; scikit-learn TargetEncoder's transform",
                               .keys = KEYS,
                               .check = check_lookup,
                               .row = row_lookup};
