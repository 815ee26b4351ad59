/* json_in.h: reading a JSON request: bounded before it is parsed, then field by field with errors that name
 * the field, what was expected and what came.
 *
 * `where` is the path before the key, e.g. "messages[2]." or "". A field that is absent or null leaves *out
 * as it was. Numbers are not made from strings nor booleans from numbers. */
#ifndef SERVE_JSON_IN_H
#define SERVE_JSON_IN_H

#include "base/status.h"

#include <jansson.h>

typedef struct json_limits {
    size_t max_depth;  /* nesting of arrays and objects; 0: 32 */
    size_t max_values; /* values in all; 0: 262,144 */
} json_limits;

/* A parsed object and the memory of its tree, which is given back as a whole: nothing in it may be changed,
 * nor its reference counts. Zero-initialise. */
typedef struct json_doc {
    json_t *root;
    struct chunk *memory;
} json_doc;

/* Makes jansson allocate through base/mem. Call once before any other use, before threads start. */
void json_in_setup(void);

/* Parses one JSON object. Duplicate keys, NaN, numbers out of range and invalid UTF-8 are refused. */
MUST_USE status json_in_parse(json_doc *out, const char *bytes, size_t n, const json_limits *limits,
                              error *err);

void json_in_free(json_doc *d);

const char *json_in_type(const json_t *v); /* "a string", "an integer", … */
/* The member, or NULL when it is absent or null. */
const json_t *json_in_member(const json_t *object, const char *key);

MUST_USE status json_in_bool(const json_t *o, const char *where, const char *key, bool *out, error *err);
/* Finite, any size. */
MUST_USE status json_in_float(const json_t *o, const char *where, const char *key, float *out, error *err);
MUST_USE status json_in_double(const json_t *o, const char *where, const char *key, double *out, error *err);
MUST_USE status json_in_int(const json_t *o, const char *where, const char *key, int64_t min, int64_t max,
                            int64_t *out, error *err);
/* *out is borrowed from the object and zero-terminated. len NULL: a string with a zero byte is refused. */
MUST_USE status json_in_string(const json_t *o, const char *where, const char *key, const char **out,
                               size_t *len, error *err);

#endif
