/* schema_record.c: records by their schema. Every fault is noted, then the next field is read. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pipeline/calendar.h"
#include "pipeline/element.h"
#include "pipeline/encode.h"
#include "pipeline/media_in.h"
#include "pipeline/schema.h"

#include "tensor/npy.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

typedef struct faults {
    str text;
    size_t n, left; /* noted; noted but not said, as the line is full */
    status st;      /* CHURON_INVALID, or what else ends the reading at once (no memory) */
    error other;
} faults;

typedef struct record_reading {
    const input_schema *schema;
    const record_source *source;
    arena *memory;
    faults *faults;
} record_reading;

enum { ROOM = 440 };

static void note(faults *f, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void note(faults *f, const char *name, const char *fmt, ...) {
    char what[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    f->n++;
    if (f->n > 1 && f->text.len + strlen(what) + strlen(name) + 12 > ROOM) {
        f->left++;
        return;
    }
    str_fmt(&f->text, "%sfield %.100s: %s", f->n > 1 ? "; " : "", name, what);
}

static void note_memory(faults *f, const record_reading *d, const char *name, size_t bytes) {
    if (f->st == CHURON_OK) f->st = arena_refused(d->memory, name, bytes, &f->other);
}

/* A failure that is a fault of the record is noted; others end the reading. */
static void note_error(faults *f, const char *name, status st, const error *e) {
    if (st == CHURON_NO_MEMORY || st == CHURON_CANCELLED || st == CHURON_INTERNAL) {
        if (f->st == CHURON_OK) {
            f->st = st;
            f->other = *e;
        }
    } else {
        note(f, name, "%s", e->message);
    }
}

/* ---- rules that do not depend on where a value came from --------------------------------------------- */

static bool same(const cell *a, const cell *b) {
    switch (a->kind) {
    case CELL_TEXT:
    case CELL_BYTES: return a->len == b->len && (a->len == 0 || memcmp(a->bytes, b->bytes, a->len) == 0);
    case CELL_FLOAT: return a->number == b->number;
    case CELL_BOOL: return a->flag == b->flag;
    default: return a->integer == b->integer;
    }
}

static void show(const cell *c, char *buf, size_t room) {
    char text[40];
    switch (c->kind) {
    case CELL_BOOL: snprintf(buf, room, "%s", c->flag ? "true" : "false"); break;
    case CELL_INT: snprintf(buf, room, "%" PRId64, c->integer); break;
    case CELL_FLOAT: snprintf(buf, room, "%.9g", c->number); break;
    case CELL_TEXT:
        snprintf(buf, room, "'%.*s'", (int)(c->len < 60 ? c->len : 60), c->bytes ? c->bytes : "");
        break;
    case CELL_DATE: snprintf(buf, room, "%s", date_text(c->integer, text)); break;
    case CELL_TIME: snprintf(buf, room, "%s", time_text(c->integer, text)); break;
    default: snprintf(buf, room, "a value");
    }
}

static void check_one_of(const record_reading *d, const input_field *f, const cell *c) {
    if (!f->n_one_of) return;
    for (size_t i = 0; i < f->n_one_of; i++) {
        if (same(&f->one_of[i], c)) return;
    }
    char got[80], list[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < f->n_one_of && used < 110; i++) {
        char one[80];
        show(&f->one_of[i], one, sizeof one);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.40s", i ? ", " : "", one);
    }
    show(c, got, sizeof got);
    note(d->faults, f->name, "expected one of %s%s, got %s", list, used >= 110 ? ", …" : "", got);
}

static void check_range(const record_reading *d, const input_field *f, const cell *c) {
    const bool real = c->kind == CELL_FLOAT;
    const bool low = f->has_min && (real ? c->number < f->min : c->integer < f->min_int);
    const bool high = f->has_max && (real ? c->number > f->max : c->integer > f->max_int);
    if (!low && !high) return;
    cell bound = {.kind = c->kind};
    if (real) {
        bound.number = low ? f->min : f->max;
    } else {
        bound.integer = low ? f->min_int : f->max_int;
    }
    char wanted[80], got[80];
    show(&bound, wanted, sizeof wanted);
    show(c, got, sizeof got);
    note(d->faults, f->name, "expected at %s %s%s%s, got %s", low ? "least" : "most", wanted,
         f->unit ? " " : "", f->unit ? f->unit : "", got);
}

static void check_length(const record_reading *d, const input_field *f, uint64_t n, const char *of) {
    if (n < f->min_length) {
        note(d->faults, f->name, "expected at least %" PRIu64 " %s, got %" PRIu64, f->min_length, of, n);
    } else if (f->max_length && n > f->max_length) {
        note(d->faults, f->name, "expected at most %" PRIu64 " %s, got %" PRIu64, f->max_length, of, n);
    }
}

static void check_text(const record_reading *d, const input_field *f, const cell *c) {
    const size_t bad = utf8_validate(c->bytes, c->len);
    if (bad < c->len) {
        note(d->faults, f->name, "expected UTF-8, got an invalid byte at %zu", bad);
        return;
    }
    if (f->min_length || f->max_length) {
        uint64_t n = 0;
        for (size_t i = 0; i < c->len; i++) n += ((unsigned char)c->bytes[i] & 0xc0) != 0x80;
        check_length(d, f, n, "characters");
    }
    if (!f->regex_code) return;
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    if (!m) {
        note_memory(d->faults, d, f->name, 64);
        return;
    }
    const int found = pcre2_match(f->regex_code, (PCRE2_SPTR)(c->len ? c->bytes : ""), c->len, 0,
                                  PCRE2_NO_UTF_CHECK, m, NULL);
    pcre2_match_data_free(m);
    char got[80];
    show(c, got, sizeof got);
    if (found == PCRE2_ERROR_NOMATCH) {
        note(d->faults, f->name, "expected text that matches %.80s, got %s", f->regex, got);
    } else if (found < 0) {
        note(d->faults, f->name,
             "expected text that %.80s can be matched with within its limit of steps, got %s", f->regex, got);
    }
}

static void check_floats(const record_reading *d, const input_field *f, const tensor *t) {
    if (f->allow_nan || !(ELEM_BIT(t->type) & (ELEMS_FLOAT | ELEMS_COMPLEX))) return;
    const size_t parts = ELEM_BIT(t->type) & ELEMS_COMPLEX ? 2 : 1;
    const elem type = t->type == ELEM_C64 ? ELEM_F32 : t->type == ELEM_C128 ? ELEM_F64 : t->type;
    const size_t bytes = elem_describe(type)->bytes;
    for (size_t i = 0; i < t->count * parts; i++) {
        double v;
        elem_to_f64(type, (const char *)t->data + i * bytes, &v, 1);
        if (isfinite(v)) continue;
        note(d->faults, f->name, "element %zu: expected a finite number (allow_nan is not set), got %s",
             i / parts, isnan(v) ? "NaN" : "infinity");
        return;
    }
}

static void check_shape(const record_reading *d, const input_field *f, const tensor *t) {
    cell_type got = {.kind = CELL_TENSOR, .element = t->type, .has_rank = true, .rank = t->rank};
    memcpy(got.dims, t->dims, sizeof got.dims);
    if (cell_type_accepts(&f->type, &got)) return;
    char wanted[120], is[120];
    note(d->faults, f->name, "expected %s, got %s", cell_type_text(&f->type, wanted, sizeof wanted),
         cell_type_text(&got, is, sizeof is));
}

/* All rules of a field for a value whose kind is right already. */
static void check_rules(const record_reading *d, const input_field *f, const cell *c) {
    switch (c->kind) {
    case CELL_FLOAT:
        if (!isfinite(c->number)) {
            if (!f->allow_nan)
                note(d->faults, f->name, "expected a finite number (allow_nan is not set), got %s",
                     isnan(c->number) ? "NaN" : "infinity");
            return;
        }
        check_range(d, f, c);
        break;
    case CELL_INT:
    case CELL_DATE:
    case CELL_TIME: check_range(d, f, c); break;
    case CELL_TEXT: check_text(d, f, c); break;
    case CELL_BYTES: check_length(d, f, c->len, "bytes"); return;
    case CELL_TENSOR:
        check_shape(d, f, c->t);
        check_floats(d, f, c->t);
        return;
    case CELL_LIST: check_length(d, f, c->n, "items"); return;
    default: break;
    }
    check_one_of(d, f, c);
}

/* ---- from JSON -------------------------------------------------------------------------------------- */

static void wrong(const record_reading *d, const input_field *f, const json_t *j) {
    char type[120], got[100];
    element_json_text(j, got, sizeof got);
    cell_type plain = f->type;
    plain.optional = false;
    const bool media = plain.kind == CELL_BYTES || plain.kind == CELL_IMAGE || plain.kind == CELL_AUDIO;
    note(d->faults, f->name, "expected %s%s, got %s", cell_type_text(&plain, type, sizeof type),
         media                     ? " as {\"b64\": \"…\"}"
         : plain.kind == CELL_DATE ? " (YYYY-MM-DD)"
         : plain.kind == CELL_TIME ? " (YYYY-MM-DDThh:mm:ssZ)"
                                   : "",
         got);
}

static bool int_fits(elem e, int64_t v) {
    const unsigned bits = elem_describe(e)->bits;
    const bool with_sign = (ELEM_BIT(e) & ELEMS_SIGNED) != 0;
    if (bits == 64) return with_sign || v >= 0;
    return with_sign ? v >= -((int64_t)1 << (bits - 1)) && v < (int64_t)1 << (bits - 1)
                     : v >= 0 && v < (int64_t)1 << bits;
}

/* {"b64": …} or {"file": …} to bytes; false: it is neither (or a fault was noted). */
static bool read_bytes(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    const json_t *b64 = json_object_get(j, "b64"), *file = json_object_get(j, "file");
    if (!json_is_object(j) || json_object_size(j) != 1 || !json_is_string(b64 ? b64 : file)) {
        wrong(d, f, j);
        return false;
    }
    str bytes = {0};
    error e = {0};
    status st = CHURON_OK;
    bool good = true;
    if (b64) {
        good = base64_decode(json_string_value(b64), json_string_length(b64), &bytes);
        if (!good) note(d->faults, f->name, "expected base64, got a character or padding that is none");
    } else if (!d->source) {
        note(d->faults, f->name,
             "expected {\"b64\": \"…\"}, got {\"file\": …}, which is for the command line only");
        good = false;
    } else {
        st = media_read_file(d->source, json_string_value(file), &bytes, &e);
    }
    if (st == CHURON_OK) st = str_check(&bytes, &e);
    if (st == CHURON_OK && good) {
        char *copy = arena_strndup(d->memory, str_cstr(&bytes), bytes.len);
        if (!copy) note_memory(d->faults, d, f->name, bytes.len);
        *out = (cell){.kind = CELL_BYTES, .len = bytes.len, .bytes = copy};
        good = copy != NULL;
    } else if (st != CHURON_OK) {
        note_error(d->faults, f->name, st, &e);
        good = false;
    }
    str_free(&bytes);
    return good;
}

typedef struct filling {
    const record_reading *d;
    const input_field *f;
    const tensor *t;
    size_t at;
    bool good;
} filling;

static void put_element(filling *g, const json_t *j) {
    const elem e = g->t->type;
    void *to = (char *)g->t->data + g->at * elem_describe(e)->bytes;
    element_fault f = {.expected = "a string"};
    if (e == ELEM_STRING) {
        g->good = json_is_string(j);
        *(tensor_string *)to = (tensor_string){.data = json_string_value(j), .len = json_string_length(j)};
        if (!g->good) element_json_text(j, f.got, sizeof f.got);
    } else {
        g->good = element_from_json(e, j, to, &f);
    }
    if (!g->good)
        note(g->d->faults, g->f->name, "element %zu: expected %s, got %s", g->at, f.expected, f.got);
    g->at++;
}

static void put_nested(filling *g, const json_t *j, uint32_t level) {
    if (!g->good) return;
    if (level == g->t->rank) {
        put_element(g, j);
        return;
    }
    if (!json_is_array(j) || json_array_size(j) != (size_t)g->t->dims[level]) {
        note(g->d->faults, g->f->name, "expected lists of the same length (%" PRId64 "), got %s",
             g->t->dims[level], json_is_array(j) ? "another" : element_json_kind(j));
        g->good = false;
        return;
    }
    for (size_t i = 0; i < json_array_size(j) && g->good; i++) put_nested(g, json_array_get(j, i), level + 1);
}

/* {"b64": raw little-endian elements, "shape": […]} */
static bool read_raw_tensor(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    const json_t *b64 = json_object_get(j, "b64"), *shape = json_object_get(j, "shape");
    int64_t dims[TENSOR_MAX_RANK];
    const size_t rank = json_array_size(shape);
    if (json_object_size(j) != 2 || !json_is_string(b64) || !json_is_array(shape) || rank > TENSOR_MAX_RANK ||
        f->type.element == ELEM_STRING) {
        note(d->faults, f->name,
             "expected nested lists or {\"b64\": \"…\", \"shape\": […]} of numbers, got an object");
        return false;
    }
    for (size_t i = 0; i < rank; i++)
        dims[i] =
            json_is_integer(json_array_get(shape, i)) ? json_integer_value(json_array_get(shape, i)) : -1;
    str bytes = {0};
    error e = {0};
    void *data = NULL;
    size_t count = 0;
    const bool valid = base64_decode(json_string_value(b64), json_string_length(b64), &bytes);
    status st = str_check(&bytes, &e);
    if (st == CHURON_OK) st = tensor_count(f->type.element, rank, dims, &count, "shape", &e);
    if (st == CHURON_OK && (!valid || bytes.len != elem_file_bytes(f->type.element, count))) {
        st = error_set(&e, CHURON_INVALID, "expected %zu bytes in base64, got %zu",
                       elem_file_bytes(f->type.element, count), bytes.len);
    }
    if (st == CHURON_OK)
        st = cell_new_tensor(out, CELL_TENSOR, d->memory, f->type.element, rank, dims, &data, f->name, &e);
    if (st == CHURON_OK && count) elem_unpack(f->type.element, bytes.data, data, count);
    if (st != CHURON_OK) note_error(d->faults, f->name, st, &e);
    str_free(&bytes);
    return st == CHURON_OK;
}

static bool read_tensor(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    int64_t dims[TENSOR_MAX_RANK];
    uint32_t rank = 0;
    error e = {0};
    void *data;
    if (json_is_object(j)) {
        const char *file = json_string_value(json_object_get(j, "file"));
        if (file && json_object_size(j) == 1) {
            if (!d->source) {
                note(d->faults, f->name,
                     "expected a list, got {\"file\": …}, which is for the command line only");
                return false;
            }
            status st = media_read_npy(d->source, file, &f->type, d->memory, out, &e);
            if (st != CHURON_OK) note_error(d->faults, f->name, st, &e);
            return st == CHURON_OK;
        }
        return read_raw_tensor(d, f, j, out);
    }
    if (ELEM_BIT(f->type.element) & ELEMS_COMPLEX) {
        note(d->faults, f->name, "expected {\"b64\": \"…\", \"shape\": […]} for complex numbers, got %s",
             element_json_kind(j));
        return false;
    }
    for (const json_t *at = j; json_is_array(at); at = json_array_get(at, 0)) {
        if (rank == TENSOR_MAX_RANK) {
            note(d->faults, f->name, "expected at most %d dimensions, got more", TENSOR_MAX_RANK);
            return false;
        }
        dims[rank++] = (int64_t)json_array_size(at);
        if (json_array_size(at) == 0) break;
    }
    status st = cell_new_tensor(out, CELL_TENSOR, d->memory, f->type.element, rank, dims, &data, f->name, &e);
    if (st != CHURON_OK) {
        note_error(d->faults, f->name, st, &e);
        return false;
    }
    filling g = {.d = d, .f = f, .t = out->t, .good = true};
    if (out->t->count) put_nested(&g, j, 0);
    return g.good;
}

static void read_value(const record_reading *d, const input_field *f, const json_t *j, cell *out);

static bool read_list(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    cell *items;
    error e = {0};
    if (!json_is_array(j)) {
        wrong(d, f, j);
        return false;
    }
    status st = cell_new_list(out, d->memory, json_array_size(j), &items, &e);
    if (st != CHURON_OK) {
        note_error(d->faults, f->name, st, &e);
        return false;
    }
    const size_t before = d->faults->n;
    for (uint32_t i = 0; i < out->n && d->faults->n == before; i++) {
        if (json_is_null(json_array_get(j, i))) {
            note(d->faults, f->name, "item %u: expected a value, got null", i);
        } else {
            read_value(d, f->of, json_array_get(j, i), &items[i]);
        }
    }
    return d->faults->n == before;
}

static bool read_media(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    cell bytes;
    error e = {0};
    if (!read_bytes(d, f, j, &bytes)) return false;
    status st = f->type.kind == CELL_IMAGE ? media_read_image(f, &bytes, d->memory, out, &e)
                                           : media_read_audio(f, &bytes, d->memory, out, &e);
    if (st != CHURON_OK) note_error(d->faults, f->name, st, &e);
    return st == CHURON_OK;
}

/* One value that is not null. */
static void read_value(const record_reading *d, const input_field *f, const json_t *j, cell *out) {
    bool good = true;
    double number[1]; /* room for an element of any float type */
    element_fault fault;
    *out = (cell){.kind = f->type.kind};
    switch (f->type.kind) {
    case CELL_BOOL:
        good = json_is_boolean(j);
        out->flag = json_is_true(j);
        break;
    case CELL_INT:
        good = json_is_integer(j) && int_fits(f->type.element, json_integer_value(j));
        out->integer = json_integer_value(j);
        break;
    case CELL_FLOAT:
        good = element_from_json(f->type.element, j, number, &fault);
        if (good) elem_to_f64(f->type.element, number, &out->number, 1);
        break;
    case CELL_TEXT:
        good = json_is_string(j);
        *out = cell_of_text(json_string_value(j), json_string_length(j));
        break;
    case CELL_DATE:
        good = json_is_string(j) && date_parse(json_string_value(j), json_string_length(j), &out->integer);
        break;
    case CELL_TIME:
        good = json_is_string(j) && time_parse(json_string_value(j), json_string_length(j), &out->integer);
        break;
    case CELL_BYTES:
        if (!read_bytes(d, f, j, out)) return;
        break;
    case CELL_IMAGE:
    case CELL_AUDIO:
        if (!read_media(d, f, j, out)) return;
        break;
    case CELL_TENSOR:
        if (!read_tensor(d, f, j, out)) return;
        break;
    case CELL_LIST:
        if (!read_list(d, f, j, out)) return;
        break;
    default: good = false;
    }
    if (!good) {
        wrong(d, f, j);
        return;
    }
    check_rules(d, f, out);
}

static void refuse_unknown(const record_reading *d, const json_t *record) {
    enum { MOST = 256 };
    const char *names[MOST], *key;
    const input_schema *s = d->schema;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)record, key, item) {
        size_t i = 0;
        while (i < s->n && strcmp(s->fields[i].name, key) != 0) i++;
        if (i < s->n) continue;
        for (i = 0; i < s->n && i < MOST; i++) names[i] = s->fields[i].name;
        const char *near = keys_nearest(key, names, i);
        note(d->faults, key,
             near ? "expected a field of the schema, got this one: did you mean '%.60s'?"
                  : "expected a field of the schema, got this one%s",
             near ? near : "");
    }
}

static status faults_end(faults *f, error *err) {
    status st = f->st;
    if (st != CHURON_OK) {
        if (err) *err = f->other;
    } else if (f->n) {
        if (f->left) str_fmt(&f->text, "; and %zu more", f->left);
        st = f->text.failed ? error_no_memory(err, "a record's faults", 0)
                            : error_set(err, CHURON_INVALID, "%s", str_cstr(&f->text));
    }
    str_free(&f->text);
    return st;
}

static void fill_missing(const record_reading *d, const input_field *f, cell *out) {
    *out = f->has_missing ? f->missing : (cell){.kind = CELL_MISSING};
    if (f->required) {
        cell_type plain = f->type;
        char type[120];
        note(d->faults, f->name, "expected %s, got none", cell_type_text(&plain, type, sizeof type));
    }
}

status schema_read_json(const input_schema *s, const json_t *record, const record_source *source, arena *a,
                        cell *cells, error *err) {
    faults f = {0};
    const record_reading d = {.schema = s, .source = source, .memory = a, .faults = &f};
    if (!json_is_object(record))
        return error_set(err, CHURON_INVALID, "record: expected an object of fields, got %s",
                         element_json_kind(record));
    for (size_t i = 0; i < s->n && f.st == CHURON_OK; i++) {
        const json_t *given = json_object_get(record, s->fields[i].name);
        if (!given || json_is_null(given)) {
            fill_missing(&d, &s->fields[i], &cells[i]);
        } else {
            read_value(&d, &s->fields[i], given, &cells[i]);
        }
    }
    if (!s->ignore_unknown && f.st == CHURON_OK) refuse_unknown(&d, record);
    return faults_end(&f, err);
}

/* ---- from cells ------------------------------------------------------------------------------------- */

static void check_cell(const record_reading *d, const input_field *f, cell *c) {
    char type[120];
    if (c->kind == CELL_BYTES && (f->type.kind == CELL_IMAGE || f->type.kind == CELL_AUDIO)) {
        const cell bytes = *c; /* a file: decoded as one in JSON would be */
        error e = {0};
        const status st = f->type.kind == CELL_IMAGE ? media_read_image(f, &bytes, d->memory, c, &e)
                                                     : media_read_audio(f, &bytes, d->memory, c, &e);
        if (st != CHURON_OK) {
            note_error(d->faults, f->name, st, &e);
            return;
        }
    }
    const bool element = (c->kind == CELL_INT && !int_fits(f->type.element, c->integer)) ||
                         (c->kind == CELL_FLOAT && f->type.element == ELEM_F32 && isfinite(c->number) &&
                          (double)(float)c->number != c->number);
    if (c->kind != f->type.kind || element) {
        cell_type plain = f->type;
        plain.optional = false;
        note(d->faults, f->name, "expected %s, got %s", cell_type_text(&plain, type, sizeof type),
             c->kind == f->type.kind ? "a number that it cannot hold" : "another kind of value");
        return;
    }
    if (c->kind == CELL_LIST) {
        for (uint32_t i = 0; i < c->n; i++) {
            cell item = c->items[i];
            check_cell(d, f->of, &item);
        }
    }
    check_rules(d, f, c);
}

status schema_check(const input_schema *s, cell *cells, arena *a, error *err) {
    faults f = {0};
    const record_reading d = {.schema = s, .memory = a, .faults = &f};
    for (size_t i = 0; i < s->n && f.st == CHURON_OK; i++) {
        if (cells[i].kind == CELL_MISSING) {
            fill_missing(&d, &s->fields[i], &cells[i]);
        } else {
            check_cell(&d, &s->fields[i], &cells[i]);
        }
    }
    return faults_end(&f, err);
}
