/* json_in.c: see json_in.h. */
#include "serve/json_in.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <string.h>

/* jansson 2.14 does not look whether its token buffer could grow and then writes past the end of the copy
 * that it makes of it: a failed allocation would become a heap overflow. So a parse allocates from chunks of
 * its own, and an allocation that fails there never returns: it jumps out of the parser, and all chunks are
 * given back at once. Other uses of jansson in the process are not concerned. */
typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t data[];
} chunk;

typedef struct parse_memory {
    chunk *chunks;
    jmp_buf failed;
} parse_memory;

enum { CHUNK_BYTES = 32 << 10 };

static _Thread_local parse_memory *parsing; /* NULL outside of json_in_parse */

static void *allocate(size_t n) {
    parse_memory *m = parsing;
    if (!m) return mem_alloc(n);
    if (n > SIZE_MAX / 2) longjmp(m->failed, 1);
    n = (n + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    if (!m->chunks || n > m->chunks->size - m->chunks->used) {
        const size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        chunk *c = mem_alloc(sizeof *c + size);
        if (!c) longjmp(m->failed, 1);
        *c = (chunk){.next = m->chunks, .size = size};
        m->chunks = c;
    }
    void *p = (char *)m->chunks->data + m->chunks->used;
    m->chunks->used += n;
    return p;
}

static void release(void *p) {
    if (!parsing) mem_free(p);
}

static void free_chunks(chunk *c) {
    while (c) {
        chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

void json_in_setup(void) {
    json_set_alloc_funcs(allocate, release);
}

void json_in_free(json_doc *d) {
    free_chunks(d->memory);
    *d = (json_doc){0};
}

/* One pass over the bytes: depth and number of values, so that the parser's memory is bounded by what is
 * allowed and not by what was sent (it makes some 40 bytes of a two-byte "1,"). */
static status check_size(const char *bytes, size_t n, const json_limits *limits, error *err) {
    const size_t max_depth = limits && limits->max_depth ? limits->max_depth : 32;
    const size_t max_values = limits && limits->max_values ? limits->max_values : (size_t)1 << 18;
    size_t depth = 0, values = 1;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        const char c = bytes[i];
        if (quoted) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                quoted = false;
            }
            continue;
        }
        if (c == '"') quoted = true;
        if (c == ',' || c == '[' || c == '{') values++;
        if (c == '[' || c == '{') depth++;
        if ((c == ']' || c == '}') && depth) depth--;
        if (depth > max_depth) {
            return error_set(err, CHURON_INVALID, "body: expected JSON nested at most %zu deep, got more",
                             max_depth);
        }
        if (values > max_values) {
            return error_set(err, CHURON_INVALID, "body: expected at most %zu JSON values, got more",
                             max_values);
        }
    }
    return CHURON_OK;
}

/* False when memory ran out. */
static bool load(parse_memory *m, json_t **out, const char *bytes, size_t n, json_error_t *why) {
    parsing = m;
    if (setjmp(m->failed)) {
        parsing = NULL;
        return false;
    }
    *out = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, why);
    parsing = NULL;
    return true;
}

status json_in_parse(json_doc *out, const char *bytes, size_t n, const json_limits *limits, error *err) {
    *out = (json_doc){0};
    if (n == 0) return error_set(err, CHURON_INVALID, "body: expected a JSON object, got nothing");
    TRY(check_size(bytes, n, limits, err));
    json_error_t why;
    json_t *v;
    parse_memory m = {0};
    if (!load(&m, &v, bytes, n, &why)) {
        free_chunks(m.chunks);
        return error_no_memory(err, "JSON", n);
    }
    if (v && json_is_object(v)) {
        *out = (json_doc){.root = v, .memory = m.chunks};
        return CHURON_OK;
    }
    status st = v ? error_set(err, CHURON_INVALID, "body: expected a JSON object, got %s", json_in_type(v))
                  : error_set(err, CHURON_INVALID,
                              "body: expected valid JSON, got an error in line %d, column %d: %s", why.line,
                              why.column, why.text);
    free_chunks(m.chunks);
    return st;
}

const char *json_in_type(const json_t *v) {
    if (!v) return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    default: return "something else";
    }
}

const json_t *json_in_member(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static status wrong_type(error *err, const char *where, const char *key, const char *expected,
                         const json_t *got) {
    return error_set(err, CHURON_INVALID, "%s%s: expected %s, got %s", where, key, expected,
                     json_in_type(got));
}

status json_in_bool(const json_t *o, const char *where, const char *key, bool *out, error *err) {
    const json_t *v = json_in_member(o, key);
    if (!v) return CHURON_OK;
    if (!json_is_boolean(v)) return wrong_type(err, where, key, "true or false", v);
    *out = json_is_true(v);
    return CHURON_OK;
}

status json_in_double(const json_t *o, const char *where, const char *key, double *out, error *err) {
    const json_t *v = json_in_member(o, key);
    if (!v) return CHURON_OK;
    if (!json_is_number(v)) return wrong_type(err, where, key, "a number", v);
    *out = json_number_value(v);
    return CHURON_OK;
}

status json_in_float(const json_t *o, const char *where, const char *key, float *out, error *err) {
    double d = (double)*out;
    TRY(json_in_double(o, where, key, &d, err));
    if (!isfinite((float)d)) {
        return error_set(err, CHURON_INVALID, "%s%s: expected a finite number, got %g", where, key, d);
    }
    *out = (float)d;
    return CHURON_OK;
}

status json_in_int(const json_t *o, const char *where, const char *key, int64_t min, int64_t max,
                   int64_t *out, error *err) {
    const json_t *v = json_in_member(o, key);
    if (!v) return CHURON_OK;
    if (!json_is_integer(v)) return wrong_type(err, where, key, "an integer", v);
    int64_t n = (int64_t)json_integer_value(v);
    if (n < min || n > max) {
        return error_set(err, CHURON_INVALID, "%s%s: expected %lld to %lld, got %lld", where, key,
                         (long long)min, (long long)max, (long long)n);
    }
    *out = n;
    return CHURON_OK;
}

status json_in_string(const json_t *o, const char *where, const char *key, const char **out, size_t *len,
                      error *err) {
    const json_t *v = json_in_member(o, key);
    if (!v) return CHURON_OK;
    if (!json_is_string(v)) return wrong_type(err, where, key, "a string", v);
    if (!len && strlen(json_string_value(v)) != json_string_length(v)) {
        return error_set(err, CHURON_INVALID, "%s%s: expected a string without a zero byte", where, key);
    }
    *out = json_string_value(v);
    if (len) *len = json_string_length(v);
    return CHURON_OK;
}
