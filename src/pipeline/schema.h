/* schema.h: what a record may hold: the input fields of a bundle, and reading records by them.
 *
 * Nothing is coerced: "3" is not 3, 3.7 is no int, an int that a float field takes must be a number that the
 * field's type has exactly; NaN and infinities pass only where the field allows them. All faults of a record
 * are reported together, each naming the field, what was expected and what came. */
#ifndef PIPELINE_SCHEMA_H
#define PIPELINE_SCHEMA_H

#include "pipeline/keys.h"

typedef struct json_t json_t;

typedef struct input_field {
    const char *name;
    cell_type type;
    const char *type_name; /* as the manifest wrote it: "category" */
    bool required;         /* false: may be left out (or null) */
    bool has_missing;      /* then this value stands for it */
    cell missing;
    bool has_min, has_max;
    double min, max; /* of numbers (of dates and times: as their integers) */
    int64_t min_int, max_int;
    bool allow_nan; /* floats: NaN and infinities too */
    size_t n_one_of;
    const cell *one_of; /* [n_one_of] */
    const char *regex;  /* of text: the whole text must match */
    void *regex_code;   /* pcre2 */
    uint64_t min_length,
        max_length;               /* characters of text, bytes of bytes, items of a list; max 0: no limit */
    uint64_t max_pixels;          /* image: 0: 100 million */
    double max_seconds;           /* audio: 0: 3,600 */
    const struct input_field *of; /* list: its items */
    const char *unit, *description;
    const char *color; /* image: rgb, bgr, gray, rgba */
} input_field;

typedef struct input_schema {
    const input_field *fields;
    size_t n;
    bool ignore_unknown; /* fields that the schema does not name; else they are refused */
} input_schema;

/* The table of an input field's keys (for the JSON Schema and the documentation). */
extern const key_spec INPUT_KEYS[];

MUST_USE status schema_read(const key_reader *r, const yaml_node *inputs, bool ignore_unknown,
                            input_schema *out, error *err);
void schema_release(input_schema *s); /* what is outside the arena */

/* Where {"file": "PATH"} of a record is looked for: relative to a folder, or inside a bundle. */
typedef struct record_source {
    const char *folder;  /* "": the current one */
    const files *bundle; /* instead of folder */
} record_source;

/* Reads a record. `cells` [n]; memory of values from the arena; texts and numbers borrow from the JSON, which
 * outlives the run. `source` NULL: {"file": …} is refused. On failure the
 * message has all faults (CHURON_INVALID; as many as fit, and how many more). */
MUST_USE status schema_read_json(const input_schema *s, const json_t *record, const record_source *source,
                                 arena *a, cell *cells, error *err);
/* The same for cells that a program made: types and rules are checked, missing ones filled in. */
MUST_USE status schema_check(const input_schema *s, cell *cells, arena *a, error *err);

#endif
