/* golden.h: golden cases: records whose answers are known, run through the real path.
 *
 * The file of the manifest's `golden` has a case a line:
 *   {"name": "…", "in": {record}, "out": {answer}, "trace": {step: value}?}   or
 *   {"name": "…", "in": {record}, "error": "text that the refusal must contain"}
 * {"file": "PATH"} inside `in` is a file of the bundle. Answers are compared as JSON, field by field, within
 * the manifest's tolerances; without one numbers must be equal. A field of `out` that the answer lacks is a
 * difference, and so is the other way round. Where a case has a trace, the first step that left it is named.
 */
#ifndef PIPELINE_GOLDEN_H
#define PIPELINE_GOLDEN_H

#include "pipeline/pipeline.h"

typedef struct golden_result {
    const char *name; /* of the case; borrowed during the call */
    bool ok;
    double max_abs, max_rel; /* largest differences of numbers; relative to the expected one */
    str field;               /* first that differs, "scores[2].label"; "" if none or if there was no answer */
    str step;                /* first step whose value left the trace; "" if none or there is no trace */
    str why;                 /* one line; "" if ok */
} golden_result;

typedef struct golden_summary {
    size_t passed, failed;
} golden_summary;

/* on_case is called for every case in order; NULL: only counted. A bundle without golden cases:
 * CHURON_NOT_FOUND; a file that is no such list: CHURON_CORRUPT with its line. seconds: that each case may
 * take; 0: any time. */
MUST_USE status golden_verify(pipeline *p, double seconds,
                              void (*on_case)(void *user, const golden_result *r), void *user,
                              golden_summary *out, error *err);

/* The golden file anew, every case that passes with the trace of its run: what `trace` then compares with.
 * CHURON_INVALID names the first case that does not pass. Appends the whole file to *out. */
MUST_USE status golden_record_traces(pipeline *p, str *out, error *err);

/* One answer against another, both JSON. `type` of what is compared, or NULL. `path` begins the field's name.
 */
typedef struct golden_difference {
    double max_abs, max_rel;
    str field, why; /* of the first difference */
    bool differs;
} golden_difference;
void golden_compare(const json_t *expected, const json_t *got, const tolerance *t, const cell_type *type,
                    const char *path, golden_difference *d);
/* All fields of an answer, each with its tolerance. */
void golden_compare_answer(const pipeline *p, const json_t *expected, const json_t *got,
                           golden_difference *d);
void golden_difference_free(golden_difference *d);

#endif
