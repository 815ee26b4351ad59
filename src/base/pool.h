/* pool.h: a team of threads that executes one function together (SPMD).
 *
 * pool_run calls fn(ctx, member) on every member at once, the caller being member 0, and returns when all are
 * done. Inside, members meet at pool_barrier. Work is split by the code in fn, statically, so that what a
 * thread computes never depends on timing. Workers spin about 50 us after the last job and then sleep
 * (waking costs tens of us in a guest, a spinning hand-over well under one).
 *
 * Every member computes in this library's floating-point environment (fp.h), subnormals kept unless
 * pool_set_subnormals says otherwise, whatever the calling program has set: its setting is back when pool_run
 * returns.
 * Owner: one thread at a time calls pool_run. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/fp.h"
#include "base/status.h"

enum { POOL_MAX_THREADS = 1024 };

typedef struct pool pool;

typedef struct pool_member {
    pool *pool;
    size_t index; /* 0 .. count-1 */
    size_t count;
} pool_member;

typedef void (*pool_fn)(void *ctx, const pool_member *me);

/* threads: 1..POOL_MAX_THREADS, the caller included. More than the machine has is slow but works. */
MUST_USE status pool_create(pool **out, size_t threads, error *err);
void pool_free(pool *p);
size_t pool_threads(const pool *p);
/* For the jobs that follow; by the owner, between jobs. */
void pool_set_subnormals(pool *p, fp_subnormals how);
void pool_run(pool *p, pool_fn fn, void *ctx);
/* All members of the running job wait for each other. Memory written before is visible after. Every member
 * calls it the same number of times in a job. */
void pool_barrier(const pool_member *me);

/* The part [*from, *to) of n items that member `me` does: sizes differ by at most one unit of `multiple`. */
void pool_split(const pool_member *me, size_t n, size_t multiple, size_t *from, size_t *to);

/* Physical cores that this process may run on (affinity and cgroup quota respected), at least 1. */
size_t pool_physical_cores(void);

#endif
