/* pipeline.h: a bundle as something that answers. Every front door comes through here.
 *
 * A pipeline is opened from a bundle (a directory, a .churon file, a bare model file): the manifest is read
 * and checked whole, models are opened, steps compiled. Immutable after that, counted; any number of sessions
 * run on it at once, a session on one thread at a time. */
#ifndef PIPELINE_PIPELINE_H
#define PIPELINE_PIPELINE_H

#include "base/json_out.h"
#include "pipeline/manifest.h"
#include "pipeline/step.h"

typedef struct pipeline_session pipeline_session;
typedef struct pipeline_sequence pipeline_sequence; /* state that outlives a call (a stream, a chat) */

typedef struct pipeline_options {
    size_t threads;               /* of each session; 0: physical cores */
    uint64_t max_memory;          /* bytes that a run may hold beside the models; 0: 4 GiB */
    const char *const *providers; /* of graphs; see graph_options. Borrowed while it opens */
    size_t n_providers;
    double deadline; /* of loading its graphs, clock_seconds(); 0: none */
} pipeline_options;

MUST_USE status pipeline_open(pipeline **out, const char *path, const pipeline_options *o, error *err);
/* The files of `path` under another manifest: to try one before it is written. Its digest is "". */
MUST_USE status pipeline_open_text(pipeline **out, const char *path, const char *text, size_t n,
                                   const pipeline_options *o, error *err);
pipeline *pipeline_ref(pipeline *p);
void pipeline_close(pipeline *p);

const manifest *pipeline_manifest(const pipeline *p);
/* Of the bundle: SHA-256 over the digests of all its files, in hex. */
const char *pipeline_digest(const pipeline *p);
/* bundle.yaml as it was read, or as it was derived from a bare model file. */
const char *pipeline_manifest_text(const pipeline *p, size_t *n);
bool pipeline_is_derived(const pipeline *p);
size_t pipeline_n_inputs(const pipeline *p);
size_t pipeline_n_outputs(const pipeline *p);
const input_field *pipeline_input(const pipeline *p, size_t i);
typedef struct pipeline_port {
    const char *name;
    const cell_type *type;
} pipeline_port;
pipeline_port pipeline_output(const pipeline *p, size_t i);

/* The graph of model i, borrowed; NULL: it is no graph. */
struct graph *pipeline_graph(const pipeline *p, size_t i);
/* The providers that execute nodes of its graphs, and cpu: "onednn,cpu". Appended. */
void pipeline_provider_names(const pipeline *p, str *out);
size_t pipeline_n_steps(const pipeline *p); /* of the outermost list */
const char *pipeline_step_label(const pipeline *p, size_t i);

MUST_USE status pipeline_session_create(pipeline_session **out, pipeline *p, error *err);
void pipeline_session_free(pipeline_session *s);
/* Seconds that its runs have spent inside models so far. */
double pipeline_session_model_seconds(const pipeline_session *s);

/* State that goes from call to call; begins as the manifest says. One call at a time. Refused for bundles
 * whose manifest has no state. */
MUST_USE status pipeline_sequence_create(pipeline_sequence **out, pipeline *p, error *err);
void pipeline_sequence_free(pipeline_sequence *q);

typedef struct pipeline_run_options {
    double deadline;             /* clock_seconds(); 0: none */
    const atomic_bool *cancel;   /* NULL: never */
    pipeline_sequence *sequence; /* NULL: none. With one: a single record */
    struct trace *trace;         /* trace.h; NULL: not recorded. With one: a single record */
} pipeline_run_options;

/* What became of one record. Borrowed from the session until its next run. */
typedef struct pipeline_answer {
    status st;
    const char *message; /* unless CHURON_OK: all faults of the record, one line */
    const cell *outputs; /* [n_outputs] */
} pipeline_answer;

/* n records in, n answers out (answers [n] are the caller's). Inputs [n][n_inputs] are cells that were
 * validated (schema.h) and are borrowed during the call. A record that fails does not disturb the others; the
 * status is that of the run itself (cancelled, deadline, memory). */
MUST_USE status pipeline_run(pipeline_session *s, const cell *inputs, size_t n, const pipeline_run_options *o,
                             pipeline_answer *answers, error *err);

/* The same from JSON and to JSON: what CLI and HTTP send. `records` are JSON objects. Appends to *out either
 * the outputs as an object, or nothing where the record failed. */
typedef struct json_t json_t;
MUST_USE status pipeline_run_json(pipeline_session *s, const json_t *const *records, size_t n,
                                  const record_source *source, const pipeline_run_options *o,
                                  pipeline_answer *answers, error *err);
void pipeline_answer_write(json_out *j, const char *key, const pipeline *p, const pipeline_answer *a);

#endif
