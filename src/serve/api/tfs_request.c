/* tfs_request.c: requests in TensorFlow Serving's form as records; see tfs.h. */
#include "serve/api/tfs.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const json_limits LIMITS = {.max_depth = 64, .max_values = (size_t)1 << 22};

static status wrong(error *err, const char *key, const char *expected, const json_t *got) {
    return error_set(err, CHURON_INVALID, "%s: expected %s, got %s", key, expected, json_in_type(got));
}

static status make_room(tfs_request *r, size_t n, error *err) {
    r->records = mem_calloc(n + 1, sizeof(const json_t *));
    r->made = mem_calloc(n + 1, sizeof(json_t *));
    if (!r->records || !r->made) return error_no_memory(err, "records", n * sizeof(const json_t *));
    r->n = n;
    return CHURON_OK;
}

/* A record of its own: an object whose members are those of the document. */
static json_t *new_record(tfs_request *r, size_t i) {
    r->made[i] = json_object();
    r->records[i] = r->made[i];
    return r->made[i];
}

static bool set_member(json_t *record, const char *key, const json_t *v) {
    return json_object_set_new_nocheck(record, key, json_incref((json_t *)(uintptr_t)v)) == 0;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

/* Of a bundle with one field: is this its value, rather than a record? */
static bool is_bare(const pipeline *p, const json_t *v) {
    if (pipeline_n_inputs(p) != 1) return false;
    if (!json_is_object(v)) return true;
    return !json_object_get(v, pipeline_input(p, 0)->name) && json_object_get(v, "b64");
}

static status read_rows(tfs_request *r, const pipeline *p, const json_t *rows, error *err) {
    if (!json_is_array(rows)) return wrong(err, "instances", "a list of records", rows);
    TRY(make_room(r, json_array_size(rows), err));
    for (size_t i = 0; i < r->n; i++) {
        const json_t *v = json_array_get(rows, i);
        r->records[i] = v;
        if (!is_bare(p, v)) continue;
        json_t *record = new_record(r, i);
        if (!record || !set_member(record, pipeline_input(p, 0)->name, v))
            return error_no_memory(err, "a record", 64);
    }
    return CHURON_OK;
}

/* ---- columns ---------------------------------------------------------------------------------------- */

static status check_columns(const json_t *columns, size_t *n, error *err) {
    const char *key, *first = NULL;
    json_t *column;
    *n = 0;
    json_object_foreach((json_t *)(uintptr_t)columns, key, column) {
        char name[140];
        snprintf(name, sizeof name, "inputs.%.120s", key);
        if (!json_is_array(column)) return wrong(err, name, "a list with a value for each record", column);
        if (first && json_array_size(column) != *n)
            return error_set(err, CHURON_INVALID, "%s: expected %zu values as inputs.%.120s has, got %zu",
                             name, *n, first, json_array_size(column));
        first = key;
        *n = json_array_size(column);
    }
    return CHURON_OK;
}

static status read_columns(tfs_request *r, const pipeline *p, const json_t *columns, error *err) {
    size_t n;
    const char *key;
    json_t *column;
    r->columns = true;
    const bool bare = json_is_array(columns) && pipeline_n_inputs(p) == 1;
    if (bare) {
        n = json_array_size(columns);
    } else if (json_is_object(columns)) {
        TRY(check_columns(columns, &n, err));
    } else {
        return wrong(err, "inputs", "an object of lists", columns);
    }
    TRY(make_room(r, n, err));
    for (size_t i = 0; i < n; i++) {
        json_t *record = new_record(r, i);
        bool good = record != NULL;
        if (bare) {
            good = good && set_member(record, pipeline_input(p, 0)->name, json_array_get(columns, i));
        } else {
            json_object_foreach((json_t *)(uintptr_t)columns, key, column) {
                good = good && set_member(record, key, json_array_get(column, i));
            }
        }
        if (!good) return error_no_memory(err, "a record", 64);
    }
    return CHURON_OK;
}

/* ---- examples of :classify and :regress ------------------------------------------------------------- */

static bool add_members(json_t *record, const json_t *from) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v) {
        if (!set_member(record, key, v)) return false;
    }
    return true;
}

static status read_examples(tfs_request *r, const json_t *context, const json_t *examples, error *err) {
    if (context && !json_is_object(context)) return wrong(err, "context", "an object of features", context);
    if (!json_is_array(examples)) return wrong(err, "examples", "a list of objects", examples);
    TRY(make_room(r, json_array_size(examples), err));
    for (size_t i = 0; i < r->n; i++) {
        const json_t *example = json_array_get(examples, i);
        if (!json_is_object(example)) {
            char name[40];
            snprintf(name, sizeof name, "examples[%zu]", i);
            return wrong(err, name, "an object of features", example);
        }
        json_t *record = new_record(r, i);
        if (!record || (context && !add_members(record, context)) || !add_members(record, example))
            return error_no_memory(err, "a record", 64);
    }
    return CHURON_OK;
}

/* ---- the request ------------------------------------------------------------------------------------ */

static const char *const PREDICT_KEYS[] = {"instances",      "inputs",       "signature_name",
                                           "partial",        "provenance",   "sequence_id",
                                           "sequence_start", "sequence_end", NULL};
static const char *const EXAMPLE_KEYS[] = {"examples", "context", "signature_name", "provenance", NULL};

static status check_keys(const json_t *root, const char *const *known, error *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        size_t n = 0;
        while (known[n] && strcmp(known[n], key) != 0) n++;
        if (known[n]) continue;
        const char *near = keys_nearest(key, known, n);
        return error_set(err, CHURON_INVALID, "%.60s: expected a field of the request, got this one%s%s%s",
                         key, near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    const char *signature = "serving_default";
    TRY(json_in_string(root, "", "signature_name", &signature, NULL, err));
    if (strcmp(signature, "serving_default") == 0) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "signature_name: expected serving_default, got '%.60s'", signature);
}

static status read_sequence(tfs_request *r, const json_t *root, error *err) {
    const json_t *id = json_in_member(root, "sequence_id");
    TRY(json_in_bool(root, "", "sequence_start", &r->sequence_start, err));
    TRY(json_in_bool(root, "", "sequence_end", &r->sequence_end, err));
    r->has_sequence = id != NULL;
    if (!id) {
        if (!r->sequence_start && !r->sequence_end) return CHURON_OK;
        return error_set(err, CHURON_INVALID,
                         "sequence_id: expected it beside sequence_start and sequence_end, "
                         "got none");
    }
    if (json_is_string(id)) {
        str_add(&r->sequence_id, json_string_value(id), json_string_length(id));
    } else if (json_is_integer(id)) {
        str_fmt(&r->sequence_id, "%" PRId64, (int64_t)json_integer_value(id));
    } else {
        return wrong(err, "sequence_id", "a string or an integer", id);
    }
    if (r->n != 1)
        return error_set(err, CHURON_INVALID, "instances: expected one record with sequence_id, got %zu",
                         r->n);
    return str_check(&r->sequence_id, err);
}

static status read_predict(tfs_request *r, const pipeline *p, error *err) {
    const json_t *root = r->doc.root;
    TRY(check_keys(root, PREDICT_KEYS, err));
    const json_t *rows = json_in_member(root, "instances"), *columns = json_in_member(root, "inputs");
    if (!rows == !columns)
        return error_set(err, CHURON_INVALID, "instances: expected either instances or inputs, got %s",
                         rows ? "both" : "neither");
    TRY(json_in_bool(root, "", "partial", &r->partial, err));
    TRY(json_in_bool(root, "", "provenance", &r->provenance, err));
    if (r->partial && columns)
        return error_set(err, CHURON_INVALID, "partial: expected it with instances only, got it with inputs");
    TRY(rows ? read_rows(r, p, rows, err) : read_columns(r, p, columns, err));
    return read_sequence(r, root, err);
}

status tfs_request_read(tfs_request *out, const pipeline *p, tfs_method method, const char *body, size_t len,
                        error *err) {
    *out = (tfs_request){.method = method};
    TRY(json_in_parse(&out->doc, body, len, &LIMITS, err));
    if (method == TFS_PREDICT) return read_predict(out, p, err);
    TRY(check_keys(out->doc.root, EXAMPLE_KEYS, err));
    TRY(json_in_bool(out->doc.root, "", "provenance", &out->provenance, err));
    const json_t *examples = json_in_member(out->doc.root, "examples");
    if (!examples) return error_set(err, CHURON_INVALID, "examples: expected a list of objects, got none");
    return read_examples(out, json_in_member(out->doc.root, "context"), examples, err);
}

void tfs_request_free(tfs_request *r) {
    for (size_t i = 0; r->made && i < r->n; i++) json_decref(r->made[i]);
    mem_free(r->made);
    mem_free((void *)r->records);
    json_in_free(&r->doc);
    str_free(&r->sequence_id);
    *r = (tfs_request){0};
}
