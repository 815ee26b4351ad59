/* engine_part.h: what the parts of the engine share: engine.c (creation, load, who steps), engine_seq.c,
 * engine_job.c, engine_beam.c, engine_memory.c (the scheduler's pages), engine_draft.c (guesses) and
 * engine_step.c.
 *
 * State that threads share (the scheduler, the pages, what callers may ask of a job) is guarded by one mutex.
 * A step takes it to choose its work and to publish its results; the model runs in between without it.
 * Whoever steps holds `stepping`; the keys and values, the sampler and the tokens of a job in a step are the
 * stepper's. */
#ifndef LM_ENGINE_PART_H
#define LM_ENGINE_PART_H

#include "lm/beam.h"
#include "lm/draft_model.h"
#include "lm/engine.h"
#include "lm/forward.h"
#include "lm/kv_cache.h"
#include "lm/scheduler.h"
#include "lm/speculate.h"

#include <pthread.h>

struct engine_seq {
    engine *e;
    sched_tenant *tenant;
    prefix_space *space;
    kv_seq kv;       /* holds pages only while its job runs */
    int32_t *tokens; /* [context] */
    size_t n_tokens;
    size_t n_public;     /* under the lock: those that a fork may copy while a job computes */
    size_t own;          /* tokens that a job of this sequence (or what it is a copy of) has computed */
    engine_job *job;     /* unfinished, or NULL */
    ngram_index *lookup; /* of tokens; NULL until a job speculates */
};

/* A beam search's sequences: none until its prompt is computed, then one for each beam, forked from the
 * prompt's keys and values, which the job's sequence goes on holding. */
typedef struct engine_beams {
    beam_search *search;
    size_t width, offered; /* beams that have offered in this step */
    bool branched;
    const beam_step *steps; /* what this step decided; NULL: it is over */
    kv_seq *kv, *spare;     /* [width] */
    int32_t *last;          /* [width]: token to compute */
    engine_hypothesis *best;
} engine_beams;

struct engine_job {
    sched_job sched; /* under the lock */
    engine *e;
    engine_seq *seq;
    engine_job_options o;
    sampler *sampler;
    engine_beams *beams; /* NULL: no beam search */
    int32_t *stop_ids;
    size_t limit; /* tokens, prompt and answer, at which it ends */
    size_t prompt_tokens, tokens;
    size_t cached_tokens;
    size_t counted;       /* prompt tokens that are in the totals */
    size_t reported;      /* positions before it had their on_logits */
    uint64_t leader;      /* arrival of the running job whose prompt begins alike, 0: none known */
    size_t leader_common; /* tokens that it has in common with it */
    double submitted, started, first_token, ended;
    bool cancelled;       /* under the lock */
    size_t public_tokens; /* under the lock: `tokens`, for those who look */
    engine_finish finish; /* under the lock once it is not RUNNING */
    engine_finish ending; /* stepper's: what this step decided */
    error err;
    engine_job *next_ending; /* stepper's list */
    sampled out;             /* of this step */
    bool wants_output, sampled;
    /* guesses: tokens[n_tokens ..) of the sequence while they are checked */
    draft_control control;
    draft_seq guesser;        /* what the draft model knows of the sequence */
    size_t n_draft, n_right;  /* of this step; the first n_right were sampled too */
    size_t match;             /* where the draft came from: tokens that matched, 0: the draft model */
    bool refuted;             /* another token was sampled than was guessed */
    size_t drafted, accepted; /* of all steps */
};

struct engine {
    const lm_model *m;
    pool *p;
    kv_cache *kv;
    forward *f;
    scheduler *sched;
    engine_options o;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job was submitted, cancelled or ended; the stepper went; stop was asked */
    bool stepping, serving, stop;
    bool sweep;           /* somebody was cancelled */
    double next_deadline; /* of the unfinished jobs, or earlier; INFINITY */
    size_t n_sequences;
    uint64_t steps, prompt_tokens, generated_tokens, cache_queries, cache_hits;
    /* one step, the stepper's */
    span *spans;           /* [max_running] */
    engine_job **span_job; /* [n_jobs] of the step; a beam search has more than one span */
    size_t n_jobs;
    engine_job **out_job; /* job of each kept row */
    size_t *out_position;
    size_t n_spans, n_outputs;
    size_t n_rows;
    size_t cold_from, n_cold; /* pieces of the pool to fetch */
    engine_job **batch;       /* jobs of the logits slice that sample */
    float **batch_logits;
    size_t n_batch;
    /* guesses, the stepper's */
    step_cost cost;
    draft_control control;
    draft_model *guesser; /* NULL: none */
    double guess_seconds; /* of one of its passes, of late; 0: not known */
    draft_offer offers[DRAFT_OFFERS];
    draft_ask asks[DRAFT_OFFERS];
    engine_job *offered[DRAFT_OFFERS];
    size_t n_offers;
    uint64_t drafted, accepted; /* under the lock */
};

enum { LOGITS_SLICE = 16 };

static inline engine_job *job_of(sched_job *j) {
    return (engine_job *)(void *)j; /* its first member */
}

static inline const engine_job *job_of_const(const sched_job *j) {
    return (const engine_job *)(const void *)j;
}

/* engine_memory.c: pages for the scheduler. ctx is the engine; with the lock. */
sched_memory engine_memory(engine *e);

/* engine_draft.c. Whether a job may have guesses, and what it needs for them: at submit; may allocate. */
bool engine_speculates(const engine_job *j);
MUST_USE status engine_draft_open(engine_job *j, error *err);
/* Guesses for the jobs of a step, span_job[n_spans], that decode; sets their n_draft. Without the lock. */
void engine_draft(engine *e);
/* With the lock: makes room for them, or takes some back. */
void engine_draft_reserve(engine *e);
/* A token was sampled for a job, and is not yet entered in its sequence: was it guessed? */
void engine_draft_check(engine_job *j, int32_t id);
/* With the lock: keys and values of wrong guesses are forgotten, and the outcome is recorded. */
void engine_draft_done(engine_job *j);
/* With the lock, by the stepper: the job ends. */
void engine_draft_release(engine_job *j);

/* engine_beam.c. open: after j->limit is known; checks that the pool can hold the search. */
MUST_USE status engine_beams_open(engine_job *j, error *err);
void engine_beams_close(engine_job *j);
/* Pages of all its beams, as sched_memory says; with the lock. */
size_t engine_beams_missing(const engine_job *j, size_t length);
size_t engine_beams_held(const engine_job *j);
bool engine_beams_reserve(engine_job *j, size_t length);
void engine_beams_release(engine_job *j);
/* Places behind the beams' tokens that hold nothing; with the lock. */
size_t engine_beams_wasted(const engine_job *j);
/* Adds a span for each beam. */
void engine_beams_plan(engine_job *j);
/* The next row of logits of this step; after the last one the step is decided. */
void engine_beams_row(engine_job *j, const float *logits);
/* With the lock: the beams of the next step take the place of these. */
void engine_beams_publish(engine_job *j);
void engine_beams_tell(const engine_job *j); /* on_beams */

/* engine_step.c: one step by the thread that holds `stepping`, without the lock. Returns false if there was
 * nothing to do. */
bool engine_step(engine *e);
/* With the lock, by the thread that serves, while nothing is to do: memory for pages to come. Lets go of the
 * lock meanwhile. False: enough is there. */
bool engine_warm(engine *e);
/* With the lock: is there anything that a step would do? */
bool engine_has_work(const engine *e);

#endif
