/* graph_work.h: requests on their way from the thread that serves clients to those that compute, and back: a
 * bounded queue, workers with sessions of their own, a descriptor that is readable when answers are there.
 * Where more waits than workers are there, a worker takes several jobs that may run together.
 *
 * A job belongs to the serving thread until work_push, to the workers until work_take gives it back. Only
 * `cancelled` may be set meanwhile. */
#ifndef SERVE_GRAPH_WORK_H
#define SERVE_GRAPH_WORK_H

#include "serve/compute.h"

typedef struct work work;

MUST_USE status work_create(work **out, const compute_shared *shared, size_t workers, size_t max_jobs,
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
