/* schema.c: the input fields of a manifest. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pipeline/schema.h"

#include "pipeline/calendar.h"

#include <float.h>
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

const key_spec INPUT_KEYS[] = {
    {"type", KEY_CHOICE, .required = true,
     .choices = "bool|int|int8|int16|int32|int64|uint8|uint16|uint32|uint64|float|double|string|text|"
                "category|bytes|date|"
                "timestamp|image|audio|tensor|list",
     .doc = "What the field holds. int is int64, float is 32 bits, double 64; text and string are the same; "
            "a category "
            "is a text out of one_of"},
    {"required", KEY_BOOL,
     .doc = "false: a record may leave the field out or say null. Default: true, unless missing is given"},
    {"missing", KEY_SCALAR,
     .doc = "The value that stands for the field where a record leaves it out or says null"},
    {"min", KEY_SCALAR, .doc = "Least value of a number, a date or a timestamp"},
    {"max", KEY_SCALAR, .doc = "Greatest value of a number, a date or a timestamp"},
    {"one_of", KEY_SCALARS, .doc = "All values that the field may have"},
    {"regex", KEY_TEXT, .doc = "A regular expression (PCRE2) that the whole text must match"},
    {"min_length", KEY_INT, .least = 0, .most = 1e15,
     .doc = "Least number of characters of a text, of bytes, of items of a list"},
    {"max_length", KEY_INT, .least = 0, .most = 1e15, .doc = "Greatest number of these; 0: no limit"},
    {"allow_nan", KEY_BOOL, .fallback = "false",
     .doc = "Floats and tensors of floats may be NaN or infinite (\"NaN\", \"Infinity\", \"-Infinity\" in "
            "JSON)"},
    {"dtype", KEY_TEXT, .doc = "Element type of a tensor: float32, int64, string, …"},
    {"shape", KEY_INTS, .least = -1, .most = 1e15, .doc = "Shape of a tensor; -1: any size"},
    {"of", KEY_ANY, .doc = "The items of a list, described as a field"},
    {"color", KEY_CHOICE, .choices = "rgb|bgr|gray|rgba", .fallback = "rgb",
     .doc = "Order of an image's channels"},
    {"max_pixels", KEY_INT, .fallback = "100000000", .least = 1, .most = 1e10,
     .doc = "Most pixels of an image, checked before it is decoded"},
    {"max_seconds", KEY_NUMBER, .fallback = "3600", .least = 1e-6, .most = 1e7, .doc = "Longest audio"},
    {"rate", KEY_NUMBER, .least = 1, .most = 1e7,
     .doc = "Samples a second that audio must have; left out: any, a resample step then makes it one"},
    {"unit", KEY_TEXT, .doc = "Unit of the number, for readers"},
    {"description", KEY_TEXT, .doc = "What the field means, for readers"},
    {0}};

enum {
    AT_TYPE,
    AT_REQUIRED,
    AT_MISSING,
    AT_MIN,
    AT_MAX,
    AT_ONE_OF,
    AT_REGEX,
    AT_MIN_LENGTH,
    AT_MAX_LENGTH,
    AT_ALLOW_NAN,
    AT_DTYPE,
    AT_SHAPE,
    AT_OF,
    AT_COLOR,
    AT_MAX_PIXELS,
    AT_MAX_SECONDS,
    AT_RATE,
    AT_UNIT,
    AT_DESCRIPTION,
    N_KEYS
};

static const struct type_row {
    const char *name;
    cell_kind kind;
    elem element;
} TYPES[] = {{"bool", CELL_BOOL, ELEM_BOOL},       {"int", CELL_INT, ELEM_I64},
             {"int8", CELL_INT, ELEM_I8},          {"int16", CELL_INT, ELEM_I16},
             {"int32", CELL_INT, ELEM_I32},        {"int64", CELL_INT, ELEM_I64},
             {"uint8", CELL_INT, ELEM_U8},         {"uint16", CELL_INT, ELEM_U16},
             {"uint32", CELL_INT, ELEM_U32},       {"uint64", CELL_INT, ELEM_U64},
             {"float", CELL_FLOAT, ELEM_F32},      {"double", CELL_FLOAT, ELEM_F64},
             {"string", CELL_TEXT, ELEM_STRING},   {"text", CELL_TEXT, ELEM_STRING},
             {"category", CELL_TEXT, ELEM_STRING}, {"bytes", CELL_BYTES, ELEM_NONE},
             {"date", CELL_DATE, ELEM_NONE},       {"timestamp", CELL_TIME, ELEM_NONE},
             {"image", CELL_IMAGE, ELEM_U8},       {"audio", CELL_AUDIO, ELEM_F32},
             {"tensor", CELL_TENSOR, ELEM_NONE},   {"list", CELL_LIST, ELEM_NONE}};

/* ---- values of a manifest with the field's type ------------------------------------------------------ */

static status int_bounds(elem e, int64_t *least, int64_t *most) {
    const unsigned bits = elem_describe(e)->bits;
    const bool with_sign = (ELEM_BIT(e) & ELEMS_SIGNED) != 0;
    *least = with_sign ? (bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1))) : 0;
    *most = with_sign ? (bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1)
                      : (bits == 64 ? INT64_MAX : ((int64_t)1 << bits) - 1);
    return CHURON_OK;
}

/* A scalar of the manifest as a value of the type; false: it is none. */
static bool scalar_cell(const cell_type *type, const yaml_node *at, cell *out) {
    int64_t v = 0, least, most;
    double number;
    bool flag;
    switch (type->kind) {
    case CELL_BOOL:
        if (!scalar_bool(at, &flag)) return false;
        *out = cell_of_bool(flag);
        return true;
    case CELL_INT:
        int_bounds(type->element, &least, &most);
        if (!scalar_int(at, &v) || v < least || v > most) return false;
        *out = cell_of_int(v);
        return true;
    case CELL_FLOAT:
        if (!scalar_number(at, &number)) return false;
        if (type->element == ELEM_F32) number = (double)(float)number;
        *out = cell_of_float(number);
        return isfinite(number) != 0;
    case CELL_TEXT:
        if (at->kind != YAML_SCALAR) return false;
        *out = cell_of_text(at->text, at->len);
        return true;
    case CELL_DATE:
    case CELL_TIME:
        if (at->kind != YAML_SCALAR) return false;
        *out = (cell){.kind = type->kind};
        return type->kind == CELL_DATE ? date_parse(at->text, at->len, &out->integer)
                                       : time_parse(at->text, at->len, &out->integer);
    default: return false;
    }
}

typedef struct field_reading {
    const key_reader *r;
    const char *name;
    const key_value *v; /* [N_KEYS] */
    input_field *f;
    error *err;
} field_reading;

static status field_fault(const field_reading *d, int key, const char *expected) {
    char what[200], got[64];
    snprintf(what, sizeof what, "inputs.%.80s.%s", d->name, INPUT_KEYS[key].name);
    return keys_fault(d->r, d->v[key].node, what, d->err, "expected %s, got %s", expected,
                      yaml_describe(d->v[key].node, got));
}

static status typed_scalar(const field_reading *d, int key, const yaml_node *at, cell *out) {
    if (scalar_cell(&d->f->type, at, out)) return CHURON_OK;
    char what[200], type[80], got[64];
    snprintf(what, sizeof what, "inputs.%.80s.%s", d->name, INPUT_KEYS[key].name);
    return keys_fault(d->r, at, what, d->err, "expected a value of type %s, got %s",
                      cell_type_text(&d->f->type, type, sizeof type), yaml_describe(at, got));
}

/* Keys that have a meaning for some types only: a key that would do nothing is a mistake. */
static status refuse_useless(const field_reading *d) {
    const uint32_t kind = 1u << d->f->type.kind;
    const uint32_t numbers = 1u << CELL_INT | 1u << CELL_FLOAT, times = 1u << CELL_DATE | 1u << CELL_TIME;
    const uint32_t scalars = numbers | times | 1u << CELL_BOOL | 1u << CELL_TEXT;
    static const struct {
        int key;
        const char *of;
    } fits[] = {{AT_MISSING, "a field of one value"},
                {AT_MIN, "numbers, dates and timestamps"},
                {AT_MAX, "numbers, dates and timestamps"},
                {AT_ONE_OF, "a field of one value"},
                {AT_REGEX, "text"},
                {AT_MIN_LENGTH, "text, bytes and lists"},
                {AT_MAX_LENGTH, "text, bytes and lists"},
                {AT_ALLOW_NAN, "floats and tensors"},
                {AT_DTYPE, "tensors"},
                {AT_SHAPE, "tensors"},
                {AT_OF, "lists"},
                {AT_COLOR, "images"},
                {AT_MAX_PIXELS, "images"},
                {AT_MAX_SECONDS, "audio"},
                {AT_RATE, "audio"}};
    const uint32_t kinds[] = {scalars,
                              numbers | times,
                              numbers | times,
                              scalars,
                              1u << CELL_TEXT,
                              1u << CELL_TEXT | 1u << CELL_BYTES | 1u << CELL_LIST,
                              1u << CELL_TEXT | 1u << CELL_BYTES | 1u << CELL_LIST,
                              1u << CELL_FLOAT | 1u << CELL_TENSOR,
                              1u << CELL_TENSOR,
                              1u << CELL_TENSOR,
                              1u << CELL_LIST,
                              1u << CELL_IMAGE,
                              1u << CELL_IMAGE,
                              1u << CELL_AUDIO,
                              1u << CELL_AUDIO};
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        if (!d->v[fits[i].key].given || (kind & kinds[i])) continue;
        char expected[120];
        snprintf(expected, sizeof expected, "this key only for %s", fits[i].of);
        return field_fault(d, fits[i].key, expected);
    }
    return CHURON_OK;
}

static status read_bounds(const field_reading *d) {
    input_field *f = d->f;
    cell c;
    f->has_min = d->v[AT_MIN].given;
    f->has_max = d->v[AT_MAX].given;
    if (f->has_min) {
        TRY(typed_scalar(d, AT_MIN, d->v[AT_MIN].node, &c));
        f->min = cell_number(&c);
        f->min_int = c.integer;
    }
    if (f->has_max) {
        TRY(typed_scalar(d, AT_MAX, d->v[AT_MAX].node, &c));
        f->max = cell_number(&c);
        f->max_int = c.integer;
    }
    const bool real = f->type.kind == CELL_FLOAT;
    if (f->has_min && f->has_max && (real ? f->min > f->max : f->min_int > f->max_int))
        return field_fault(d, AT_MAX, "at least min");
    return CHURON_OK;
}

static status read_one_of(const field_reading *d) {
    const yaml_node *list = d->v[AT_ONE_OF].node;
    input_field *f = d->f;
    const bool category = strcmp(f->type_name, "category") == 0;
    if (!d->v[AT_ONE_OF].given) {
        return category ? keys_fault(d->r, d->v[AT_TYPE].node, d->name, d->err,
                                     "expected the key 'one_of' with a category, got none")
                        : CHURON_OK;
    }
    if (list->n == 0) return field_fault(d, AT_ONE_OF, "at least one value");
    cell *values = arena_array(d->r->memory, list->n, sizeof *values);
    if (!values) return arena_refused(d->r->memory, d->name, list->n * sizeof *values, d->err);
    for (size_t i = 0; i < list->n; i++) {
        TRY(typed_scalar(d, AT_ONE_OF, &list->items[i], &values[i]));
        for (size_t k = 0; k < i; k++) {
            if (list->items[k].len == list->items[i].len &&
                strcmp(list->items[k].text, list->items[i].text) == 0)
                return keys_fault(d->r, &list->items[i], d->name, d->err,
                                  "expected each value of one_of once, got '%.60s' again",
                                  list->items[i].text);
        }
    }
    f->one_of = values;
    f->n_one_of = list->n;
    return CHURON_OK;
}

static status read_regex(const field_reading *d) {
    if (!d->v[AT_REGEX].given) return CHURON_OK;
    int code;
    PCRE2_SIZE offset;
    const char *text = d->v[AT_REGEX].text;
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &offset, NULL);
    if (!re) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(code, message, sizeof message);
        char expected[200];
        snprintf(expected, sizeof expected, "a regular expression (%s at %zu)", (const char *)message,
                 (size_t)offset);
        return field_fault(d, AT_REGEX, expected);
    }
    d->f->regex = text;
    d->f->regex_code = re;
    return CHURON_OK;
}

static status read_tensor_type(const field_reading *d) {
    cell_type *t = &d->f->type;
    if (!d->v[AT_DTYPE].given)
        return keys_fault(d->r, d->v[AT_TYPE].node, d->name, d->err,
                          "expected the key 'dtype' with a tensor, got none");
    for (int e = 1; e < ELEM_COUNT; e++) {
        if (strcmp(elem_name((elem)e), d->v[AT_DTYPE].text) == 0) t->element = (elem)e;
    }
    if (t->element == ELEM_NONE) return field_fault(d, AT_DTYPE, "an element type such as float32 or int64");
    t->has_rank = d->v[AT_SHAPE].given;
    if (d->v[AT_SHAPE].n > TENSOR_MAX_RANK) return field_fault(d, AT_SHAPE, "at most 12 dimensions");
    t->rank = (uint32_t)d->v[AT_SHAPE].n;
    for (uint32_t i = 0; i < t->rank; i++) t->dims[i] = d->v[AT_SHAPE].integers[i];
    return CHURON_OK;
}

static status read_field(const key_reader *r, const yaml_node *key, const yaml_node *at, int depth,
                         input_field *f, error *err);

static status read_items(const field_reading *d, int depth) {
    if (!d->v[AT_OF].given)
        return keys_fault(d->r, d->v[AT_TYPE].node, d->name, d->err,
                          "expected the key 'of' with a list, got none");
    if (depth > 4) return field_fault(d, AT_OF, "at most 4 lists inside each other");
    input_field *item = arena_array(d->r->memory, 1, sizeof *item);
    if (!item) return arena_refused(d->r->memory, d->name, sizeof *item, d->err);
    d->f->of = item; /* before it is read: what it holds is released with the field */
    yaml_node name = *d->v[AT_OF].node;
    name.text = d->name;
    TRY(read_field(d->r, &name, d->v[AT_OF].node, depth + 1, item, d->err));
    d->f->type.of = &item->type;
    return CHURON_OK;
}

static status read_field(const key_reader *r, const yaml_node *key, const yaml_node *at, int depth,
                         input_field *f, error *err) {
    static const char *const colors[] = {"rgb", "bgr", "gray", "rgba"};
    char what[160];
    key_value v[N_KEYS];
    snprintf(what, sizeof what, "inputs.%.100s", key->text);
    TRY(keys_read_map(r, at, what, INPUT_KEYS, v, err));
    f->name = key->text;
    f->type_name = TYPES[v[AT_TYPE].integer].name;
    f->type =
        (cell_type){.kind = TYPES[v[AT_TYPE].integer].kind, .element = TYPES[v[AT_TYPE].integer].element};
    const field_reading d = {.r = r, .name = key->text, .v = v, .f = f, .err = err};
    TRY(refuse_useless(&d));
    if (f->type.kind == CELL_TENSOR) TRY(read_tensor_type(&d));
    if (f->type.kind == CELL_LIST) TRY(read_items(&d, depth));
    if (f->type.kind == CELL_IMAGE) {
        f->color = colors[v[AT_COLOR].integer];
        f->type.order = (cell_order)v[AT_COLOR].integer;
        f->type.rank = 3;
        f->type.dims[0] = f->type.dims[1] = -1;
        f->type.dims[2] = f->type.order == ORDER_GRAY ? 1 : f->type.order == ORDER_RGBA ? 4 : 3;
    }
    if (f->type.kind == CELL_AUDIO) {
        f->type.rank = 2;
        f->type.dims[0] = f->type.dims[1] = -1;
        f->type.rate = v[AT_RATE].given ? v[AT_RATE].number : 0;
    }
    TRY(read_bounds(&d));
    TRY(read_one_of(&d));
    TRY(read_regex(&d));
    f->min_length = (uint64_t)v[AT_MIN_LENGTH].integer;
    f->max_length = (uint64_t)v[AT_MAX_LENGTH].integer;
    f->allow_nan = v[AT_ALLOW_NAN].flag;
    f->max_pixels = (uint64_t)v[AT_MAX_PIXELS].integer;
    f->max_seconds = v[AT_MAX_SECONDS].number;
    f->unit = v[AT_UNIT].text;
    f->description = v[AT_DESCRIPTION].text;
    f->has_missing = v[AT_MISSING].given;
    if (f->has_missing) TRY(typed_scalar(&d, AT_MISSING, v[AT_MISSING].node, &f->missing));
    f->required = v[AT_REQUIRED].given ? v[AT_REQUIRED].flag : !f->has_missing;
    if (f->required && f->has_missing)
        return field_fault(&d, AT_REQUIRED, "false where missing gives a value");
    f->type.optional = !f->required && !f->has_missing;
    if (depth > 0 && f->type.optional)
        return field_fault(&d, AT_REQUIRED, "items of a list that are always there");
    if (f->has_missing) { /* it must be good by the field's own rules */
        cell copy = f->missing;
        const input_schema one = {.fields = f, .n = 1};
        error inner;
        if (schema_check(&one, &copy, r->memory, &inner) != CHURON_OK) {
            char expected[300];
            snprintf(expected, sizeof expected, "a value by the field's own rules (%.200s)", inner.message);
            return field_fault(&d, AT_MISSING, expected);
        }
    }
    return CHURON_OK;
}

status schema_read(const key_reader *r, const yaml_node *inputs, bool ignore_unknown, input_schema *out,
                   error *err) {
    *out = (input_schema){.ignore_unknown = ignore_unknown};
    if (inputs->kind != YAML_MAP) {
        char got[64];
        return keys_fault(r, inputs, "inputs", err, "expected a map from field to its description, got %s",
                          yaml_describe(inputs, got));
    }
    input_field *fields = arena_array(r->memory, inputs->n ? inputs->n : 1, sizeof *fields);
    if (!fields) return arena_refused(r->memory, "inputs", inputs->n * sizeof *fields, err);
    out->fields = fields;
    out->n = inputs->n; /* those not read yet release nothing */
    for (size_t i = 0; i < inputs->n; i++) {
        const yaml_node *key = &inputs->keys[i];
        if (key->len == 0) return keys_fault(r, key, "inputs", err, "expected a name, got ''");
        TRY(read_field(r, key, &inputs->items[i], 0, &fields[i], err));
    }
    return CHURON_OK;
}

void schema_release(input_schema *s) {
    for (size_t i = 0; i < s->n; i++) {
        for (const input_field *f = &s->fields[i]; f; f = f->of) pcre2_code_free(f->regex_code);
    }
    *s = (input_schema){0};
}
