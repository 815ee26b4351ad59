/* pool.c: see pool.h.
 *
 * Meeting point: every member owns one line with the number of the last meeting it reached. A member arrives
 * by a release store in its own line and waits by acquire loads of the others' lines: no read-modify-write,
 * one line moved per pair (measured on two cores: a shared counter costs half as much again, a futex two
 * hundred times as much). Up to ALL_TO_ALL members everyone reads everyone; above, member 0 gathers and its
 * own line is the signal, so that the number of line transfers stays linear.
 *
 * The end of a job is a meeting at which only member 0 waits. */
#define _DEFAULT_SOURCE
#include "base/pool.h"

#include "base/cores.h"
#include "base/fp.h"
#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    LINE = 128, /* two lines: the adjacent-line prefetcher would tie neighbours together */
    ALL_TO_ALL = 4,
    SPIN_NS = 50 * 1000,
    SPIN_CROWDED_NS = 1000, /* more threads than processors: the one waited for may need this processor */
    YIELD_NS = 2 * 1000 * 1000,
    NAP_NS = 50 * 1000
};

typedef struct member_line {
    alignas(LINE) atomic_uint arrived; /* meetings reached; written by the owner, read by all */
    unsigned meetings;                 /* the owner's own count */
} member_line;

/* Owner: the thread in pool_run. Workers own their line and read fn and ctx while a job runs. */
struct pool {
    member_line *lines; /* [threads] */
    size_t threads;
    int64_t spin_ns;
    pool_fn fn; /* NULL: leave */
    void *ctx;
    fp_subnormals subnormals;
    pthread_t *workers; /* [threads - 1] */
    size_t started;
    pthread_mutex_t lock; /* only around sleeping and waking */
    pthread_cond_t wake;
    alignas(LINE) atomic_uint job; /* number of the newest job */
    alignas(LINE) atomic_uint sleepers;
};

typedef struct worker_start {
    pool *pool;
    size_t index;
} worker_start;

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

/* Spins until *counter is at least `want` (as numbers that wrap), at most `ns`. Acquire: what the writer did
 * before its release store is visible when this returns true. */
static bool spin_until(const atomic_uint *counter, unsigned want, int64_t ns) {
    int64_t deadline = 0;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            if ((int)(atomic_load_explicit(counter, memory_order_acquire) - want) >= 0) return true;
            cpu_relax();
        }
        int64_t now = now_ns();
        if (!deadline) deadline = now + ns;
        if (now >= deadline) return false;
    }
}

/* Waits without limit: spin, then offer the processor, then sleep in short naps (at most a few percent of the
 * time already waited), so that more members than processors slow down but never stall each other. */
static void wait_until(const pool *p, const atomic_uint *counter, unsigned want) {
    if (spin_until(counter, want, p->spin_ns)) return;
    int64_t nap_from = now_ns() + YIELD_NS;
    while ((int)(atomic_load_explicit(counter, memory_order_acquire) - want) < 0) {
        if (now_ns() < nap_from) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        }
    }
}

/* Release: what this member wrote before the meeting is visible to whoever sees it arrive. */
static void arrive(member_line *line) {
    atomic_store_explicit(&line->arrived, line->meetings, memory_order_release);
}

static void wait_for_others(const pool *p, size_t me, unsigned meeting) {
    for (size_t i = 0; i < p->threads; i++) {
        if (i != me) wait_until(p, &p->lines[i].arrived, meeting);
    }
}

void pool_barrier(const pool_member *me) {
    pool *p = me->pool;
    if (p->threads == 1) return;
    member_line *line = &p->lines[me->index];
    line->meetings++;
    if (p->threads <= ALL_TO_ALL) {
        arrive(line);
        wait_for_others(p, me->index, line->meetings);
    } else if (me->index == 0) {
        wait_for_others(p, 0, line->meetings);
        arrive(line);
    } else {
        arrive(line);
        wait_until(p, &p->lines[0].arrived, line->meetings);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------------- */

/* Either the sleeper, having counted itself, sees the new job, or the starter, having published the job, sees
 * the sleeper: store and load of both sides are sequentially consistent, which release and acquire alone do
 * not give for two different variables. */
static void wait_for_job(pool *p, unsigned job) {
    if (spin_until(&p->job, job, p->spin_ns)) return;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->sleepers, 1, memory_order_seq_cst);
    while ((int)(atomic_load_explicit(&p->job, memory_order_seq_cst) - job) < 0) {
        pthread_cond_wait(&p->wake, &p->lock);
    }
    /* Relaxed: only this count changes, and the starter reads it again for its next job. */
    atomic_fetch_sub_explicit(&p->sleepers, 1, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
}

static void start_job(pool *p, pool_fn fn, void *ctx) {
    p->fn = fn;
    p->ctx = ctx;
    atomic_fetch_add_explicit(&p->job, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->sleepers, memory_order_seq_cst) == 0) return;
    pthread_mutex_lock(&p->lock); /* a sleeper that counted itself but does not wait yet holds the lock */
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void work(pool *p, size_t index) {
    pool_member me = {.pool = p, .index = index, .count = p->threads};
    member_line *line = &p->lines[index];
    for (unsigned job = 1;; job++) {
        wait_for_job(p, job);
        if (!p->fn) return;
        (void)fp_enter(p->subnormals); /* a new thread starts with its creator's environment */
        p->fn(p->ctx, &me);
        line->meetings++;
        arrive(line);
    }
}

static void *worker_main(void *arg) {
    worker_start start = *(worker_start *)arg;
    mem_free(arg);
    work(start.pool, start.index);
    return NULL;
}

void pool_run(pool *p, pool_fn fn, void *ctx) {
    pool_member me = {.pool = p, .index = 0, .count = p->threads};
    fp_env was = fp_enter(p->subnormals);
    if (p->threads > 1) start_job(p, fn, ctx);
    fn(ctx, &me);
    if (p->threads > 1) {
        p->lines[0].meetings++;
        wait_for_others(p, 0, p->lines[0].meetings);
        arrive(&p->lines[0]);
    }
    fp_leave(&was);
}

/* ---- life ------------------------------------------------------------------------------------------- */

/* Workers take no signals: they belong to the program's own threads. */
static status start_workers(pool *p, error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status st = CHURON_OK;
    while (st == CHURON_OK && p->started < p->threads - 1) {
        worker_start *start = mem_alloc(sizeof *start);
        if (!start) {
            st = error_no_memory(err, "thread pool", sizeof *start);
            break;
        }
        *start = (worker_start){.pool = p, .index = p->started + 1};
        int code = pthread_create(&p->workers[p->started], NULL, worker_main, start);
        if (code != 0) {
            mem_free(start);
            st = error_set(err, CHURON_IO, "threads: cannot start %zu of %zu: %s", p->started + 1,
                           p->threads - 1, strerror(code));
            break;
        }
        p->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

status pool_create(pool **out, size_t threads, error *err) {
    *out = NULL;
    if (threads < 1 || threads > POOL_MAX_THREADS) {
        return error_set(err, CHURON_INVALID, "threads: expected 1 to %d, got %zu", POOL_MAX_THREADS,
                         threads);
    }
    pool *p = mem_aligned(LINE, sizeof *p);
    if (!p) return error_no_memory(err, "thread pool", sizeof *p);
    *p = (pool){.threads = threads, .spin_ns = threads > cores_logical() ? SPIN_CROWDED_NS : SPIN_NS};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    atomic_init(&p->job, 0);
    atomic_init(&p->sleepers, 0);
    status st = CHURON_OK;
    p->lines = mem_aligned(LINE, threads * sizeof *p->lines);
    p->workers = mem_calloc(threads, sizeof *p->workers);
    if (!p->lines || !p->workers) {
        st = error_no_memory(err, "thread pool", threads * sizeof *p->lines);
        goto cleanup;
    }
    for (size_t i = 0; i < threads; i++) {
        p->lines[i].meetings = 0;
        atomic_init(&p->lines[i].arrived, 0);
    }
    st = start_workers(p, err);
cleanup:
    if (st != CHURON_OK) {
        pool_free(p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

void pool_free(pool *p) {
    if (!p) return;
    if (p->started) {
        start_job(p, NULL, NULL);
        for (size_t i = 0; i < p->started; i++) pthread_join(p->workers[i], NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->lines);
    mem_free(p->workers);
    mem_free(p);
}

void pool_set_subnormals(pool *p, fp_subnormals how) {
    p->subnormals = how;
}

size_t pool_threads(const pool *p) {
    return p->threads;
}

void pool_split(const pool_member *me, size_t n, size_t multiple, size_t *from, size_t *to) {
    if (multiple == 0) multiple = 1;
    size_t units = n / multiple + (n % multiple != 0);
    size_t each = units / me->count, more = units % me->count;
    size_t first = me->index * each + (me->index < more ? me->index : more);
    size_t last = first + each + (me->index < more);
    *from = first * multiple < n ? first * multiple : n;
    *to = last < units ? last * multiple : n;
    if (*to < *from) *to = *from;
}
