/* bundle_records.c: see bundle_records.h. */
#include "cli/bundle_records.h"
#include "cli/csv.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX_BYTES = 1 << 30 };

/* ---- records ---------------------------------------------------------------------------------------- */

/* Takes the reference over. */
static status add_record(bundle_records *r, json_t *record, size_t line, error *err) {
    if (r->n == r->cap) {
        const size_t cap = r->cap ? r->cap * 2 : 64;
        json_t **more = mem_realloc(r->items, cap * sizeof *more);
        if (more) r->items = more;
        size_t *lines = more ? mem_realloc(r->lines, cap * sizeof *lines) : NULL;
        if (!lines) {
            json_decref(record);
            return error_no_memory(err, "records", cap * sizeof *more);
        }
        r->lines = lines;
        r->cap = cap;
    }
    r->items[r->n] = record;
    r->lines[r->n++] = line;
    return CHURON_OK;
}

/* `line`: 0, or the line that is one record whatever it is. */
static status add_json(bundle_records *r, const char *text, size_t n, const char *what, size_t line,
                       error *err) {
    json_error_t e;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
        text += 3;
        n -= 3;
    }
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!json) return error_set(err, CHURON_INVALID, "%s: line %d: expected JSON: %s", what, e.line, e.text);
    if (line || !json_is_array(json)) return add_record(r, json, line, err);
    status st = CHURON_OK;
    for (size_t i = 0; i < json_array_size(json) && st == CHURON_OK; i++)
        st = add_record(r, json_incref(json_array_get(json, i)), 0, err);
    json_decref(json);
    return st;
}

static status add_lines(bundle_records *r, const str *text, error *err) {
    const char *at = str_cstr(text), *end = at + text->len;
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (stop > at + strspn(at, " \t\r")) {
            char what[300];
            snprintf(what, sizeof what, "%.250s:%zu", r->input, line);
            TRY(add_json(r, at, (size_t)(stop - at), what, line, err));
        }
        at = stop + 1;
    }
    return CHURON_OK;
}

/* A cell of a table as its field's type; what is none stays text, so that the schema says what is wrong. */
static json_t *typed_cell(const cell_type *type, const char *text) {
    char *end;
    const yaml_node node = {.kind = YAML_SCALAR, .text = text, .len = strlen(text)};
    bool flag;
    int64_t integer;
    double number;
    if (type && type->kind == CELL_BOOL && scalar_bool(&node, &flag)) return json_boolean(flag);
    if (type && type->kind == CELL_INT && scalar_int(&node, &integer)) return json_integer(integer);
    if (type && type->kind == CELL_FLOAT && scalar_int(&node, &integer)) return json_integer(integer);
    if (type && type->kind == CELL_FLOAT && scalar_number(&node, &number))
        return json_real(strtod(text, &end));
    return json_string(text);
}

static status add_table(bundle_records *r, error *err) {
    csv c = {0};
    status st = csv_read(&c, r->input, err);
    for (size_t row = 0; st == CHURON_OK && row < c.n_rows; row++) {
        json_t *record = json_object();
        bool good = record != NULL;
        for (size_t k = 0; k < c.n_columns && good; k++) {
            const char *text = csv_cell(&c, row, k);
            const cell_type *type = NULL;
            for (size_t i = 0; i < pipeline_n_inputs(r->p); i++) {
                if (strcmp(pipeline_input(r->p, i)->name, c.cells[k]) == 0)
                    type = &pipeline_input(r->p, i)->type;
            }
            if (*text) good = json_object_set_new(record, c.cells[k], typed_cell(type, text)) == 0;
        }
        if (good) {
            st = add_record(r, record, csv_line(&c, row), err);
        } else {
            json_decref(record);
            st = error_set(err, CHURON_INVALID, "%s:%zu: expected UTF-8 text", r->input, csv_line(&c, row));
        }
    }
    csv_free(&c);
    return st;
}

/* The one field that a file or a text on the command line can be the value of. */
static const input_field *only_field(const bundle_records *r, uint32_t kinds) {
    const input_field *found = NULL;
    for (size_t i = 0; i < pipeline_n_inputs(r->p); i++) {
        const input_field *f = pipeline_input(r->p, i);
        if (kinds >> f->type.kind & 1) {
            if (found) return NULL;
            found = f;
        }
    }
    return found;
}

static status add_file(bundle_records *r, error *err) {
    const input_field *f =
        only_field(r, 1u << CELL_IMAGE | 1u << CELL_AUDIO | 1u << CELL_BYTES | 1u << CELL_TENSOR);
    if (!f)
        return error_set(err, CHURON_INVALID,
                         "field -i: expected .json, .jsonl or .csv, or a bundle with one field that is an "
                         "image, audio, bytes or a "
                         "tensor, got '%.200s'",
                         r->input);
    r->source.folder = "";
    json_t *record = json_pack("{s:{s:s}}", f->name, "file", r->input);
    if (!record) return error_set(err, CHURON_INVALID, "field -i: expected a path in UTF-8");
    return add_record(r, record, 0, err);
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static status read_input(bundle_records *r, error *err) {
    const char *slash = strrchr(r->input, '/');
    if (slash) str_add(&r->folder, r->input, slash == r->input ? 1 : (size_t)(slash - r->input));
    r->source.folder = str_cstr(&r->folder);
    if (ends_with(r->input, ".csv")) return add_table(r, err);
    const bool lines = ends_with(r->input, ".jsonl");
    if (!lines && !ends_with(r->input, ".json") && strcmp(r->input, "-") != 0) return add_file(r, err);
    str text = {0};
    status st = file_read(&text, r->input, RECORDS_MAX_BYTES, err);
    if (st == CHURON_OK)
        st = lines ? add_lines(r, &text, err) : add_json(r, str_cstr(&text), text.len, r->input, 0, err);
    str_free(&text);
    return st;
}

status bundle_records_read(bundle_records *r, error *err) {
    r->source.folder = "";
    if (r->record) return add_json(r, r->record, strlen(r->record), "field --record", 0, err);
    if (r->input) return read_input(r, err);
    if (r->prompt) {
        const input_field *f = only_field(r, 1u << CELL_TEXT);
        if (!f)
            return error_set(err, CHURON_INVALID,
                             "field PROMPT: expected a bundle with exactly one field of text, got another: "
                             "give --record JSON");
        json_t *record = json_pack("{s:s}", f->name, r->prompt);
        if (!record) return error_set(err, CHURON_INVALID, "field PROMPT: expected UTF-8");
        return add_record(r, record, 0, err);
    }
    return add_record(r, json_object(), 0, err);
}

void bundle_records_free(bundle_records *r) {
    for (size_t i = 0; i < r->n; i++) json_decref(r->items[i]);
    mem_free(r->items);
    mem_free(r->lines);
    str_free(&r->folder);
}

const char *bundle_records_place(const bundle_records *r, size_t i, char *buf, size_t room) {
    if (r->lines[i]) {
        snprintf(buf, room, "%.200s:%zu", r->input, r->lines[i]);
    } else {
        snprintf(buf, room, "record %zu", i + 1);
    }
    return buf;
}
