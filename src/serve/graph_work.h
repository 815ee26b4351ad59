/* graph_work.h: inference requests on their way from the thread that serves clients to those that compute,
 * and back: a bounded queue, workers with a session each, a descriptor that is readable when answers are
 * there.
 *
 * A job belongs to the serving thread until work_push, to the workers until work_take gives it back. Only
 * `cancelled` may be set meanwhile. */
#ifndef SERVE_GRAPH_WORK_H
#define SERVE_GRAPH_WORK_H

#include "serve/api/oip.h"

#include <stdatomic.h>

typedef struct work work;

typedef struct work_job {
    struct work_job *next; /* of the queue or of what is done */
    char *body;            /* [len], a zero behind it */
    size_t len, json_len;
    double arrived, deadline; /* clock_seconds(); deadline 0: none */
    atomic_bool cancelled;
    /* the answer */
    status st;
    error err; /* unless st is CHURON_OK */
    str answer;
    size_t answer_json;                 /* 0: all of it */
    double started, read, ran, written; /* clock_seconds(); 0: did not come to it */
    bool late;                          /* the deadline has passed */
} work_job;

MUST_USE status work_create(work **out, const oip_model *m, size_t workers, size_t max_jobs,
                            uint64_t max_bytes, error *err);
/* Ends what runs (cancelled) and waits for the workers. Jobs that were not taken back are given to `fn`. */
void work_stop(work *w, void (*fn)(void *user, work_job *j), void *user);
void work_free(work *w); /* after work_stop */
int work_wait_fd(const work *w);
/* CHURON_BUSY when the queue is full. */
MUST_USE status work_push(work *w, work_job *j, error *err);
/* All answers that are there, in the order in which they were done: a list by `next`. */
work_job *work_take(work *w);
size_t work_waiting(work *w);

#endif
