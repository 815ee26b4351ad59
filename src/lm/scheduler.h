/* scheduler.h: who computes what in each step. No model and no memory here: pages are asked of the owner.
 *
 * A step is one row for every job that decodes, then chunks of the prompts of those that prefill. Urgency is
 * priority (lower first), then arrival. Between tenants of one priority, whoever was served the least goes
 * first: `served` counts tokens over the tenant's weight (a prompt when it starts, an answer as it grows). A
 * tenant that begins to wait joins within SCHED_CREDIT tokens of the least served one that waits: idle time
 * is no hoard and past use no debt.
 *
 * Places: at most `places` rows in a step. A waiting job takes the place of a less urgent one; and, of the
 * same priority, the place of a tenant that has more than its share while its own has less. Who loses its
 * place, or its pages because the pool ran out (the least urgent first, then the latest), keeps its arrival:
 * it waits where it would wait had it never started, and its tokens are computed again.
 *
 * Pages: a job starts when the pages for the tokens it has can be had, and one more for everybody who runs.
 * One that must wait for pages is passed by jobs of its priority at most SCHED_PASSES times, then nobody
 * starts before it.
 *
 * No starvation: at most one job at a time is promoted, which makes it the most urgent of all until it ends:
 * the oldest that had no token for SCHED_PATIENCE steps, and SCHED_PATIENCE steps after the last promotion.
 * So any job has its next token at most (2 + older) * max(SCHED_PATIENCE, L) + SCHED_PATIENCE steps after its
 * last (or its submission), where `older` unfinished jobs arrived before it and L is the most tokens, prompt
 * and answer, that a job has; whatever is submitted later.
 *
 * Chunks: while somebody decodes, a chunk grows or shrinks with each step, so that 19 of 20 steps take at
 * most `target` seconds, and hardly less; at least SCHED_LEAST_CHUNK tokens, so that prompts always advance.
 * Otherwise `step_tokens`.
 *
 * Nothing allocates after create and sched_tenant_get. Owner: whoever holds the engine's lock. */
#ifndef LM_SCHEDULER_H
#define LM_SCHEDULER_H

#include "base/status.h"

enum {
    SCHED_PATIENCE = 4096,   /* steps */
    SCHED_CREDIT = 4096,     /* tokens */
    SCHED_PASSES = 64,       /* jobs */
    SCHED_LEAST_CHUNK = 16,  /* tokens */
    SCHED_MAX_TENANTS = 4096 /* remembered; over it, one that is not in use is forgotten for each new one */
};

typedef struct scheduler scheduler;
typedef struct sched_job sched_job;

typedef struct sched_tenant {
    struct sched_tenant *next;
    char *name;
    double weight, served;
    sched_job *first, *last; /* waiting, in order of urgency */
    size_t running, waiting, waiting_tokens;
    uint64_t placeless;                       /* step in which it could have no more places */
    size_t refs;                              /* of those who may submit for it */
    bool keep;                                /* has a weight of its own: is never forgotten */
    bool asked;                               /* has submitted a job */
    uint64_t prompt_tokens, generated_tokens; /* the owner's totals */
} sched_tenant;

/* Part of the owner's job. */
struct sched_job {
    /* the owner's: set before sched_submit, kept up to date between steps */
    sched_tenant *tenant;
    int32_t priority;
    size_t rows;     /* places it takes: sequences that decode together, 1 or more */
    size_t length;   /* tokens of each: prompt and answer so far */
    size_t computed; /* of them, with keys and values; < length while it is unfinished */
    /* the scheduler's; to read */
    uint64_t arrival; /* 1, 2, … */
    bool running, promoted;
    size_t preemptions;
    size_t planned; /* tokens in this step */
    /* the scheduler's alone */
    sched_job *next, *before; /* waiting */
    size_t charged;           /* tokens that its tenant has paid for */
    uint64_t last_step;       /* when it had tokens */
    uint64_t tried;           /* step in which it could not start */
    size_t passed;
};

/* Pages, answered by the owner for one job. */
typedef struct sched_memory {
    void *ctx;
    size_t (*available)(void *ctx);
    /* More pages needed so that the job's rows hold `length` tokens. */
    size_t (*missing)(void *ctx, const sched_job *j, size_t length);
    size_t (*held)(void *ctx, const sched_job *j);
    /* The job would like to start: holds the pages of what is computed already, sets j->computed. */
    void (*adopt)(void *ctx, sched_job *j);
    /* It has started; may set j->computed higher, by pages that `missing` has counted. */
    void (*started)(void *ctx, sched_job *j);
    bool (*reserve)(void *ctx, sched_job *j, size_t length); /* false: nothing taken */
    void (*release)(void *ctx, sched_job *j);                /* all of it; j->computed becomes 0 */
    /* Somebody who runs computes what this job begins with: it had better wait. Never forever. */
    bool (*waits)(void *ctx, sched_job *j);
} sched_memory;

typedef struct sched_options {
    size_t places, step_tokens;
    double target; /* seconds */
} sched_options;

MUST_USE status sched_create(scheduler **out, const sched_options *o, const sched_memory *m, error *err);
void sched_free(scheduler *s);

/* The tenant of that name, with a reference more. */
MUST_USE status sched_tenant_get(sched_tenant **out, scheduler *s, const char *name, error *err);
void sched_tenant_put(sched_tenant *t);
sched_tenant *sched_tenants(scheduler *s); /* all that are remembered */
MUST_USE status sched_tenant_weight(scheduler *s, const char *name, double weight, error *err);

void sched_submit(scheduler *s, sched_job *j); /* it waits */
/* The job ended, waiting or running: its pages are released, it is the owner's. */
void sched_end(scheduler *s, sched_job *j);

/* Chooses the next step: jobs that get tokens have `planned` > 0 and their pages reserved up to computed +
 * planned. Returns the list, valid until the next call to the scheduler. */
sched_job *const *sched_plan(scheduler *s, size_t *n);
/* The step is done; `computed` and `length` are up to date. seconds: what it took. */
void sched_done(scheduler *s, double seconds);

sched_job *const *sched_running(const scheduler *s, size_t *n); /* most urgent first */
size_t sched_n_waiting(const scheduler *s);
size_t sched_waiting_tokens(const scheduler *s); /* of those that never started */
bool sched_is_full(const scheduler *s);          /* no place is free */
uint64_t sched_preemptions(const scheduler *s);

#endif
