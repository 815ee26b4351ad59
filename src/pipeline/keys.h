/* keys.h: maps of a manifest, described by tables.
 *
 * Every map that a manifest may hold (its top level, an input field, a step) has one table of keys: the
 * reader, the JSON Schema that editors complete with, and the documentation all come from it. Whatever does
 * not fit is refused with line, column, key, what was expected and what was there; an unknown key with the
 * nearest known one.
 *
 * Values live in the arena of the pipeline. Names of fields are resolved by who knows the fields
 * (step.h). */
#ifndef PIPELINE_KEYS_H
#define PIPELINE_KEYS_H

#include "base/yaml.h"
#include "bundle/files.h"
#include "pipeline/cell.h"

typedef enum key_kind {
    KEY_TEXT,    /* text */
    KEY_CHOICE,  /* one of `choices`: number is its place in them */
    KEY_BOOL,    /* flag */
    KEY_INT,     /* integer (and number); least, most */
    KEY_NUMBER,  /* number; least, most; .inf and .nan are refused */
    KEY_NUMBERS, /* numbers [n]: a list, one number, or {file: x.npy} of floats, or {file: x.txt} with one a
                    line */
    KEY_INTS,    /* integers [n]: a list */
    KEY_TEXTS,   /* texts [n]: a list, or {file: labels.txt} with one a line */
    KEY_SCALAR,  /* node: a scalar that who reads it gives a type */
    KEY_SCALARS, /* node: a list of such */
    KEY_ANY,     /* node: whatever stands there */
    KEY_FILE,    /* text: a path inside the bundle, which exists */
    KEY_FIELD,   /* text: the name of a value that is there; slot and type are set for steps */
    KEY_FIELDS,  /* texts [n]: likewise; slots, types */
    KEY_INTO,    /* text: the name of a new value */
    KEY_MODEL,   /* text: the name of a model; integer is its place */
    KEY_NAMES,   /* texts [n], others [n]: a map from name to name */
    KEY_STEPS    /* node: a list of steps inside this one */
} key_kind;

typedef struct key_spec {
    const char *name;
    key_kind kind;
    bool required;
    const char *fallback; /* as it would be written, for kinds of one scalar; NULL: not given */
    const char *choices;  /* CHOICE: "bilinear|bicubic" */
    double least, most;   /* both 0: any */
    const char *doc;      /* one sentence for a user */
    const char *schema;   /* ANY: name of what may stand there among the schema's $defs; NULL: anything */
} key_spec;

typedef struct key_value {
    bool given;            /* false: the fallback, or nothing */
    const yaml_node *node; /* where it stands, for errors; of the whole map when not given */
    const char *text;
    bool flag;
    int64_t integer;
    double number;
    size_t n;
    const double *numbers;
    const int64_t *integers;
    const char *const *texts;
    const char *const *others;
    int32_t slot; /* FIELD */
    const cell_type *type;
    const int32_t *slots; /* FIELDS */
    const cell_type *const *types;
} key_value;

typedef struct key_reader {
    const char *file;   /* name of the manifest, for errors */
    const files *files; /* for {file: …}; NULL: none */
    arena *memory;      /* where values go */
} key_reader;

/* Fills values [as many as specs]; specs end with a NULL name. `what` names the map in errors ("step
 * standardize"). */
MUST_USE status keys_read_map(const key_reader *r, const yaml_node *map, const char *what,
                              const key_spec *specs, key_value *values, error *err);
/* "FILE: line L, column C: KEY: " and the rest. */
status keys_fault(const key_reader *r, const yaml_node *at, const char *key, error *err, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
/* The known name nearest to `got`, or NULL if none is near. */
const char *keys_nearest(const char *got, const char *const *names, size_t n);
/* Appends "properties" of a JSON Schema object, and "required". */
void keys_schema(json_out *j, const key_spec *specs);

/* Scalars with a wanted type; false if the text is not one. A quoted scalar is no number and no boolean. */
bool scalar_int(const yaml_node *n, int64_t *out);
bool scalar_number(const yaml_node *n, double *out);
bool scalar_bool(const yaml_node *n, bool *out);

#endif
