/* graph_work.c: see graph_work.h. */
#include "serve/graph_work.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct worker {
    work *w;
    compute *compute;
    work_job *running[COMPUTE_TOGETHER]; /* [n_running], under the lock */
    size_t n_running;
    pthread_t thread;
    bool started;
} worker;

struct work {
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t some;
    bool has_lock, has_some, stopping;
    work_job *first, **last; /* the queue */
    size_t waiting, max_jobs;
    uint64_t bytes, max_bytes; /* of the bodies that wait */
    work_job *done, **done_last;
    int fd;
    size_t n_workers;
    worker *workers;
};

/* ---- workers ---------------------------------------------------------------------------------------- */

static work_job *unlink_first(worker *k) {
    work *w = k->w;
    work_job *j = w->first;
    w->first = j->next;
    if (!w->first) w->last = &w->first;
    w->waiting--;
    w->bytes -= j->len;
    k->running[k->n_running++] = j;
    return j;
}

/* The next job into running[], and those right behind it that may run with it: this worker's share of what
 * waits. False: the end. */
static bool pop(worker *k) {
    work *w = k->w;
    while (!w->first && !w->stopping) pthread_cond_wait(&w->some, &w->lock);
    if (w->stopping) return false;
    const work_job *j = unlink_first(k);
    const size_t share = 1 + w->waiting / w->n_workers, most = compute_most_together(k->compute, j);
    while (k->n_running < most && k->n_running < share && w->first && w->first->target == j->target &&
           w->first->kind == j->kind && compute_most_together(k->compute, w->first) > 1) {
        (void)unlink_first(k);
    }
    return true;
}

static void finish(worker *k, work_job *const *jobs, size_t n) {
    work *w = k->w;
    const bool wake = !w->done;
    for (size_t i = 0; i < n; i++) {
        jobs[i]->next = NULL;
        *w->done_last = jobs[i];
        w->done_last = &jobs[i]->next;
    }
    k->n_running = 0;
    if (!wake) return;
    const uint64_t one = 1;
    ssize_t written;
    do written = write(w->fd, &one, sizeof one); /* cannot fill: it is read whenever the list was taken */
    while (written < 0 && errno == EINTR);
}

static void *run_worker(void *user) {
    worker *k = user;
    work *w = k->w;
    pthread_mutex_lock(&w->lock);
    while (pop(k)) {
        work_job *jobs[COMPUTE_TOGETHER];
        const size_t n = k->n_running;
        memcpy(jobs, k->running, n * sizeof(work_job *));
        pthread_mutex_unlock(&w->lock);
        compute_jobs(k->compute, jobs, n);
        pthread_mutex_lock(&w->lock);
        finish(k, jobs, n);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static status start_worker(work *w, worker *k, const compute_shared *shared, error *err) {
    k->w = w;
    TRY(compute_create(&k->compute, shared, err));
    k->started = pthread_create(&k->thread, NULL, run_worker, k) == 0;
    return k->started ? CHURON_OK
                      : error_set(err, CHURON_IO, "server: the system gave no thread for a worker");
}

status work_create(work **out, const compute_shared *shared, size_t workers, size_t max_jobs,
                   uint64_t max_bytes, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    work *w = mem_calloc(1, sizeof *w);
    if (!w) return error_no_memory(err, "work", sizeof *w);
    w->fd = -1;
    w->last = &w->first;
    w->done_last = &w->done;
    w->max_jobs = max_jobs;
    w->max_bytes = max_bytes;
    w->has_lock = pthread_mutex_init(&w->lock, NULL) == 0;
    w->has_some = pthread_cond_init(&w->some, NULL) == 0;
    w->workers = mem_calloc(workers, sizeof *w->workers);
    if (!w->workers || !w->has_lock || !w->has_some) {
        st = error_no_memory(err, "workers", workers * sizeof *w->workers);
        goto cleanup;
    }
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0) {
        st = error_set(err, CHURON_IO, "server: the system gave no event descriptor: %s", strerror(errno));
        goto cleanup;
    }
    w->n_workers = workers;
    for (size_t i = 0; i < workers; i++) TRY_GOTO(start_worker(w, &w->workers[i], shared, err));
    *out = w;
    w = NULL;
cleanup:
    if (w) {
        work_stop(w, NULL, NULL);
        work_free(w);
    }
    return st;
}

static void give_back(work_job *list, void (*fn)(void *user, work_job *j), void *user) {
    while (list) {
        work_job *next = list->next;
        fn(user, list);
        list = next;
    }
}

void work_stop(work *w, void (*fn)(void *user, work_job *j), void *user) {
    if (w->has_lock) {
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        for (size_t i = 0; i < w->n_workers; i++) {
            for (size_t k = 0; k < w->workers[i].n_running; k++)
                atomic_store_explicit(&w->workers[i].running[k]->cancelled, true, memory_order_relaxed);
        }
        if (w->has_some) pthread_cond_broadcast(&w->some);
        pthread_mutex_unlock(&w->lock);
    }
    for (size_t i = 0; i < w->n_workers; i++) {
        if (w->workers[i].started) pthread_join(w->workers[i].thread, NULL);
        w->workers[i].started = false;
    }
    if (fn) {
        give_back(w->done, fn, user);
        for (work_job *j = w->first; j; j = j->next)
            j->st = error_set(&j->err, CHURON_CANCELLED, "server: it stops before the request was computed");
        give_back(w->first, fn, user);
    }
    w->done = w->first = NULL;
}

void work_free(work *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_workers; i++) {
        compute_free(w->workers[i].compute);
    }
    if (w->fd >= 0) close(w->fd);
    if (w->has_lock) pthread_mutex_destroy(&w->lock);
    if (w->has_some) pthread_cond_destroy(&w->some);
    mem_free(w->workers);
    mem_free(w);
}

/* ---- the serving thread's side ---------------------------------------------------------------------- */

int work_wait_fd(const work *w) {
    return w->fd;
}

status work_push(work *w, work_job *j, error *err) {
    pthread_mutex_lock(&w->lock);
    const size_t waiting = w->waiting;
    const bool full = waiting >= w->max_jobs || (waiting > 0 && w->bytes + j->len > w->max_bytes);
    if (!full) {
        j->next = NULL;
        *w->last = j;
        w->last = &j->next;
        w->waiting++;
        w->bytes += j->len;
        pthread_cond_signal(&w->some);
    }
    pthread_mutex_unlock(&w->lock);
    if (!full) return CHURON_OK;
    return error_set(err, CHURON_BUSY,
                     "queue: expected at most %zu requests waiting, got one more; try again later", waiting);
}

work_job *work_take(work *w) {
    uint64_t count;
    pthread_mutex_lock(&w->lock);
    (void)!read(w->fd, &count, sizeof count);
    work_job *list = w->done;
    w->done = NULL;
    w->done_last = &w->done;
    pthread_mutex_unlock(&w->lock);
    return list;
}

size_t work_waiting(work *w) {
    pthread_mutex_lock(&w->lock);
    const size_t n = w->waiting;
    pthread_mutex_unlock(&w->lock);
    return n;
}
