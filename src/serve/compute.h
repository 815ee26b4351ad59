/* compute.h: what a worker does: a request's bytes to the bytes of its answer, for every kind of request that
 * computes. Single records that wait together are run together where that pays: a record's answer does not
 * depend on company, so they are the same bytes.
 *
 * A job belongs to whoever holds it; only `cancelled` may be set meanwhile. A compute belongs to one thread.
 */
#ifndef SERVE_COMPUTE_H
#define SERVE_COMPUTE_H

#include "serve/sequences.h"
#include "serve/served.h"
#include "serve/unzip_body.h"

typedef enum job_kind { JOB_INFER, JOB_PREDICT, JOB_CLASSIFY, JOB_REGRESS } job_kind;
extern const char *const JOB_NAMES[]; /* "infer", … */

enum { JOB_ID_MAX = 64, COMPUTE_TOGETHER = 16 };

typedef struct work_job {
    struct work_job *next; /* of the queue or of what is done */
    const served *target;
    job_kind kind;
    size_t owner;            /* which API key asked */
    char id[JOB_ID_MAX + 1]; /* of the request */
    bool provenance;         /* wanted, by the request's target */
    char *body;              /* [len], a zero behind it */
    size_t len, json_len;
    body_coding coding;       /* as it came; computing unpacks it */
    size_t max_body;          /* of what it is unpacked to */
    double arrived, deadline; /* clock_seconds(); deadline 0: none */
    atomic_bool cancelled;
    /* the answer */
    status st;
    error err;  /* unless st is CHURON_OK */
    str faults; /* the whole message, where err may not hold it; "" otherwise */
    str answer;
    size_t answer_json; /* 0: all of it */
    size_t records;     /* that it had */
    bool first;         /* of those that ran together */
    bool in_sequence;
    double started, read, ran, written; /* clock_seconds(); 0: did not come to it */
    bool late;                          /* the deadline has passed */
    bool too_large;                     /* the body, once it was unpacked */
} work_job;

const char *job_message(const work_job *j); /* unless CHURON_OK */

typedef struct compute_shared {
    const served_list *models;
    sequences *sequences; /* NULL: sequences are refused */
    const char *record;   /* folder, or NULL: requests are not recorded */
    const char *isa;
} compute_shared;

typedef struct compute compute;

MUST_USE status compute_create(compute **out, const compute_shared *shared, error *err);
void compute_free(compute *c);
/* How many jobs like this one may run together with it, itself included. */
size_t compute_most_together(const compute *c, const work_job *j);
/* n jobs of the same target and kind (more than one: of JOB_PREDICT). Gives their bodies back. */
void compute_jobs(compute *c, work_job **jobs, size_t n);

#endif
