/* step.h: a step of a pipeline, and what it takes to write one.
 *
 * A step is one row of the table in steps/table.c and one file in steps/. Its `keys` say what a manifest may
 * write; `check` runs when the bundle is loaded: it looks at the types of what comes in, refuses what does
 * not fit, says the type of what comes out and prepares what running needs. `row` runs for each record alone,
 * so a record's answer cannot depend on others; only steps that put records together for a model have `rows`.
 *
 * A value never changes once it is there: every step writes new slots (into the same name, if `into` is left
 * out: later steps see the new value under it). Running allocates from the run's arena only. */
#ifndef PIPELINE_STEP_H
#define PIPELINE_STEP_H

#include "pipeline/keys.h"

#include <stdatomic.h>

typedef struct step step;
typedef struct step_kind step_kind;
typedef struct pipeline pipeline;
typedef struct run run;
typedef struct run_row run_row;
typedef struct scope scope; /* names and types of values while a bundle is loaded */

/* What `check` works with. */
typedef struct step_build {
    pipeline *p;
    scope *scope;
    const key_reader *reader;
    const yaml_node *node; /* the step's map */
    const step_kind *kind;
    const key_value *values; /* [as many as kind->keys], in their order; FIELD and FIELDS resolved */
    step *s;                 /* state and slots go here */
    arena *memory;           /* lives as long as the pipeline */
} step_build;

struct step_kind {
    const char *name;
    const char *group; /* "tabular", "text", "image", "audio", "answer", "flow": chapters of docs/steps.md */
    const char *doc;   /* one or two sentences for a user: what it computes, exactly */
    const char *reference; /* what its results are compared with: "scikit-learn StandardScaler" */
    const key_spec *keys;
    status (*check)(step_build *b, error *err);
    status (*row)(const step *s, run *r, cell *slots, error *err);
    status (*rows)(const step *s, run *r, run_row *rows, size_t n, error *err); /* instead of row */
    void (*release)(step *s); /* what `state` holds outside the arena; may be NULL */
};

enum { STEP_MAX_OUTPUTS = 64 };

struct step {
    const step_kind *kind;
    const char
        *label; /* "standardize amount": its name in traces and errors, one of a kind in the pipeline */
    uint32_t line;
    void *state;
    int32_t in, out;                   /* slots, for steps of one value: set by step_in/step_out; else -1 */
    int32_t outputs[STEP_MAX_OUTPUTS]; /* every slot that it writes, for traces */
    const char *output_names[STEP_MAX_OUTPUTS];
    const cell_type *output_types[STEP_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- while loading ---------------------------------------------------------------------------------- */

/* An error at the step, or at one of its keys (key NULL: the step itself). */
status step_fault(const step_build *b, const char *key, error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The type of keys[i] (a FIELD) must be of one of `kinds` (bits 1 << CELL_…), not optional unless allowed. */
MUST_USE status step_expect(const step_build *b, size_t key, uint32_t kinds, bool optional, error *err);
/* Adds an output: its name is that of keys[into_key] where given, else that of the field keys[field_key]
 * (then later steps see the new value under the same name). `type` is copied. */
MUST_USE status step_output(step_build *b, size_t into_key, size_t field_key, const cell_type *type,
                            error *err);
/* Adds an output with a name of its own; refused if that name is there already. */
MUST_USE status step_output_named(step_build *b, const char *name, const cell_type *type, int32_t *slot,
                                  error *err);
/* The same, but if the name is there already, later steps see the new value under it, and the old one counts
 * as used. */
MUST_USE status step_output_again(step_build *b, const char *name, const cell_type *type, int32_t *slot,
                                  error *err);
/* The value that was added last is there to be used, but need not be. */
void step_output_spare(step_build *b);
/* Finds a value by name; marks it as used. NULL type: an error with the nearest name was set. */
MUST_USE status step_find(const step_build *b, const char *key, const char *name, int32_t *slot,
                          const cell_type **type, error *err);
/* Zeroed memory that lives as long as the pipeline; also set as s->state. */
MUST_USE status step_state(step_build *b, size_t bytes, void *out, error *err);

/* Steps inside a step (for_each, scan, choose). Inside, everything outside can be seen; what is made inside
 * is gone outside, except what the step hands out itself. */
typedef struct step_block {
    step *steps;
    size_t n;
} step_block;
typedef struct step_name { /* a value that only the block sees, such as an item */
    const char *name;
    const cell_type *type;
    int32_t slot; /* set */
} step_name;
/* Compiles the steps under keys[key] with `names` added. `wanted` names [n_wanted] are looked up at the end
 * of the block (slots and types are set): they are what it hands out. */
MUST_USE status step_block_compile(step_build *b, size_t key, step_name *names, size_t n_names,
                                   step_name *wanted, size_t n_wanted, step_block *out, error *err);

/* ---- while running ---------------------------------------------------------------------------------- */

struct run_row { /* a record on its way */
    cell *slots; /* [pipeline's number of slots] */
    status st;   /* not CHURON_OK: it failed at a step before and is left alone */
    error err;   /* its message begins with the step's label */
};

struct run {
    const pipeline *p;
    struct pipeline_session *session;
    arena *memory;                      /* of this run */
    double deadline;                    /* clock_seconds(); 0: none */
    const atomic_bool *cancel;          /* NULL: never */
    struct trace *trace;                /* NULL: not recorded */
    struct pipeline_sequence *sequence; /* NULL: none */
};

/* Runs a block over rows whose slots are filled as far as the block needs them. */
MUST_USE status run_block(const step_block *block, run *r, run_row *rows, size_t n, error *err);
/* n rows, whose slots are copies of `outer`, for a block's items. */
MUST_USE status run_rows_create(run *r, const cell *outer, size_t n, run_row **out, error *err);
/* The arena's error, naming the step. */
status run_no_memory(const run *r, const step *s, size_t bytes, error *err);
/* CHURON_CANCELLED or CHURON_LIMIT when the run should end. Called between steps; long steps call it too. */
MUST_USE status run_may_go_on(const run *r, error *err);

/* The table, ends with a NULL name. */
extern const step_kind *const STEP_KINDS[];
const step_kind *step_kind_find(const char *name);

#endif
