/* tfs.h: bundles in TensorFlow Serving's REST form: requests of :predict, :classify and :regress as records,
 * answers, and what a client may ask about a version.
 *
 * :predict takes {"instances": [record, …]} (a bundle of one field also takes its bare values) and gives
 * {"predictions": [answer, …]}, or {"inputs": {field: [value, …]}} and gives {"outputs": {field: [value,
 * …]}}. Beside them: "partial" (a record that fails gives {"error": message} in its place; otherwise the
 * request fails with the faults of all records), "provenance", "sequence_id", "sequence_start",
 * "sequence_end", and "signature_name", which must be "serving_default".
 *
 * Any thread, one request to a thread. Errors name the field, what was expected and what came. */
#ifndef SERVE_API_TFS_H
#define SERVE_API_TFS_H

#include "pipeline/pipeline.h"
#include "serve/json_in.h"

typedef enum tfs_method { TFS_PREDICT, TFS_CLASSIFY, TFS_REGRESS } tfs_method;

/* One request, read. Zero-initialise. Records borrow from the document. */
typedef struct tfs_request {
    tfs_method method;
    json_doc doc;
    const json_t **records; /* [n] */
    json_t **made;          /* [n]: records put together here; NULL: borrowed */
    size_t n;
    bool columns, partial, provenance;
    bool has_sequence, sequence_start, sequence_end;
    str sequence_id; /* numbers as text */
} tfs_request;

MUST_USE status tfs_request_read(tfs_request *out, const pipeline *p, tfs_method method, const char *body,
                                 size_t len, error *err);
void tfs_request_free(tfs_request *r);

/* Appends the answer. Records that failed, unless that is allowed: CHURON_INVALID (or the status of the first
 * one), and all faults in *faults, "instances[3]: field …; instances[7]: …". `provenance`: JSON or NULL. */
MUST_USE status tfs_answer_write(str *out, str *faults, const pipeline *p, const tfs_request *r,
                                 const pipeline_answer *answers, const char *provenance, error *err);

/* Can this bundle do it? CHURON_UNSUPPORTED says what it would take. */
MUST_USE status tfs_check_task(const pipeline *p, tfs_method method, error *err);

typedef struct tfs_version {
    const char *version, *fault; /* fault: NULL: it is available */
} tfs_version;
void tfs_write_status(str *out, const tfs_version *versions, size_t n);
void tfs_write_metadata(str *out, const pipeline *p, const char *name, const char *version);

#endif
