/* manifest.h: bundle.yaml as a checked description. It computes nothing and opens no model.
 *
 * The form is documented in docs/bundles.md; the tables here are its source. */
#ifndef PIPELINE_MANIFEST_H
#define PIPELINE_MANIFEST_H

#include "pipeline/schema.h"

typedef struct manifest_model {
    const char *name;   /* "main" where there is one and it has no name */
    const char *file;   /* path in the bundle */
    const char *sha256; /* or NULL */
    const char *kind;   /* "graph", "lm": by content unless said */
    const yaml_node *node;
} manifest_model;

typedef enum tolerance_kind {
    TOLERANCE_EXACT, /* also: text_equal, token_equal */
    TOLERANCE_ABS,
    TOLERANCE_REL,
    TOLERANCE_ULP,
    TOLERANCE_COSINE, /* 1 - cosine similarity, at most */
    TOLERANCE_SET     /* the same items in any order */
} tolerance_kind;

typedef struct tolerance {
    double abs, rel, ulp, cosine; /* 0: not given */
    bool set, exact;
} tolerance;

typedef struct manifest_tolerance {
    const char *field; /* of the answer, "a.b" inside records; NULL: all that no other names */
    tolerance t;
} manifest_tolerance;

typedef struct manifest_output {
    const char *name; /* in the answer */
    const char *from; /* value of the pipeline */
    bool has_round;
    int round; /* digits after the point */
    const char *description, *unit;
    const yaml_node *node;
} manifest_output;

typedef struct manifest_source {
    const char *name, *url, *sha256;
} manifest_source;

typedef struct manifest {
    const char *file; /* for errors: "bundle.yaml" */
    const char *name, *version, *task, *description, *owner, *intended_use, *limits, *licence, *derived_from;
    const manifest_model *models;
    size_t n_models;
    input_schema inputs;
    const yaml_node *pre, *post, *steps; /* lists of steps; pre and post, or steps */
    bool single_rows; /* models of `pre`/`post` form take one record at a time (batch: false) */
    const manifest_output *outputs;
    size_t n_outputs;
    const char *golden; /* path in the bundle, or NULL */
    const manifest_tolerance *tolerances;
    size_t n_tolerances;
    const manifest_source *sources;
    size_t n_sources;
    const yaml_node *state; /* map of values that a sequence carries, or NULL */
} manifest;

/* Reads and checks. Everything lives in `memory` and refers to `text`, which must live as long. */
MUST_USE status manifest_read(manifest *out, const char *text, size_t n, const files *files, arena *memory,
                              error *err);
void manifest_release(manifest *m);
/* Of one output; exact where the manifest says nothing. */
const tolerance *manifest_tolerance_of(const manifest *m, const char *output);

/* The JSON Schema (draft 2020-12) of bundle.yaml, steps included. */
void manifest_schema_write(json_out *j);
extern const key_spec MANIFEST_KEYS[], MANIFEST_MODEL_KEYS[], MANIFEST_OUTPUT_KEYS[], MANIFEST_STATE_KEYS[],
    MANIFEST_TOLERANCE_KEYS[], MANIFEST_SOURCE_KEYS[];

#endif
