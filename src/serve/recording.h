/* recording.h: requests on disk with the digest of their answer, one file a request (ID.json in a folder),
 * and the same computed again. A file appears whole, by one link, and is never replaced. */
#ifndef SERVE_RECORDING_H
#define SERVE_RECORDING_H

#include "serve/compute.h"

/* A job that was computed, its body still there. CHURON_INVALID: its id is on record already. */
MUST_USE status recording_write(const char *folder, const work_job *j, const char *isa, error *err);

/* Computes a request on record again. `model`: path of the model, NULL: where it was. The answer's bytes in
 * *answer (or the refusal's text); *same: their digest is the recorded one. A model whose digest is another,
 * or a request within a sequence: an error. */
MUST_USE status recording_replay(const char *folder, const char *id, const char *model, size_t threads,
                                 str *answer, bool *same, error *err);

#endif
