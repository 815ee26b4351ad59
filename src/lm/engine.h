/* engine.h: sequences that are computed together, step by step.
 *
 * Each step takes a budget of tokens: one for every sequence that decodes, the rest for chunks of prompts, in
 * order of arrival; runs them through the model in one pass; samples; and tells each job its token. What a
 * sequence gets does not depend on who else is in the step.
 *
 * Threads: any thread may submit and cancel. One thread at a time steps: either a service thread that calls
 * engine_run until engine_stop, or the callers themselves: engine_wait steps the engine when nobody else
 * does, so a single caller pays no hand-over and several callers share steps. Callbacks run on the stepping
 * thread and must not block or call back into the engine. */
#ifndef LM_ENGINE_H
#define LM_ENGINE_H

#include "lm/kv.h"
#include "lm/model.h"
#include "lm/sampler.h"

typedef struct engine engine;
typedef struct engine_seq engine_seq; /* tokens and KV that outlive one job */
typedef struct engine_job engine_job;

typedef struct engine_options {
    size_t context;           /* tokens a sequence may hold; 0: trained. Over the trained: CHURON_LIMIT */
    size_t max_running;       /* sequences in one step; 0: 16 */
    size_t max_queued_tokens; /* prompt tokens waiting for a place; over it submit gives CHURON_BUSY; 0:
                                 65,536 */
    size_t step_tokens;       /* budget of a step; 0: 128 */
    uint64_t kv_memory;       /* bytes; 0: max_running * context, at most half of free memory */
} engine_options;

MUST_USE status engine_create(engine **out, const lm_model *m, pool *p, const engine_options *o, error *err);
void engine_free(engine *e); /* no job may be unfinished, no sequence open */

/* ---- sequences -------------------------------------------------------------------------------------- */

MUST_USE status engine_seq_open(engine_seq **out, engine *e, error *err);
void engine_seq_close(engine_seq *s); /* like engine_job_free; its job must have ended */
size_t engine_seq_length(const engine_seq *s);
const int32_t *engine_seq_tokens(const engine_seq *s); /* borrowed until the next change */
MUST_USE status engine_seq_append(engine_seq *s, const int32_t *ids, size_t n, error *err);
MUST_USE status engine_seq_truncate(engine_seq *s, size_t length, error *err);

/* ---- jobs ------------------------------------------------------------------------------------------- */

typedef enum engine_finish {
    ENGINE_RUNNING,
    ENGINE_STOP,   /* end-of-generation token or stop id, or the callback said ENGINE_HALT */
    ENGINE_LENGTH, /* max_tokens or context */
    ENGINE_CANCELLED,
    ENGINE_FAILED /* see job error */
} engine_finish;

typedef enum engine_verdict { ENGINE_GO_ON, ENGINE_HALT } engine_verdict;

typedef struct engine_job_options {
    sampler_params sampling;
    size_t max_tokens;       /* 0: score only: computes the sequence, calls on_logits, ends with LENGTH */
    const int32_t *stop_ids; /* copied; ends the answer; the id is reported but gives no text */
    size_t n_stop_ids;
    bool all_logits; /* on_logits for every position computed, not only the last */
    void *user;
    /* A token was chosen. With ENGINE_HALT the job ends in this step, with finish ENGINE_STOP. */
    engine_verdict (*on_token)(void *user, const sampled *token);
    /* Optional. logits f32 [n_vocab] after the token at `position`, borrowed during the call. */
    void (*on_logits)(void *user, size_t position, const float *logits);
    /* The job ended; last call for this job. err is filled with ENGINE_FAILED. */
    void (*on_end)(void *user, engine_finish finish, const error *err);
} engine_job_options;

typedef struct engine_job_stats {
    size_t prompt_tokens, tokens;
    double queue_s, prefill_s, decode_s; /* wall time to first token, and from there on */
} engine_job_stats;

/* Starts a job on a sequence (which has no other unfinished job). */
MUST_USE status engine_submit(engine_job **out, engine_seq *s, const engine_job_options *o, error *err);
/* Ends a job within one step; on_end follows with ENGINE_CANCELLED unless it has ended already. Any thread.
 */
void engine_cancel(engine_job *j);
/* Blocks until the job has ended, stepping the engine if no other thread does. */
engine_finish engine_wait(engine_job *j);
/* The same, but returns after at most one step, with ENGINE_RUNNING if the job goes on. */
engine_finish engine_wait_step(engine_job *j);
engine_job_stats engine_job_stats_get(const engine_job *j); /* after its end, or in its callbacks */
void engine_job_free(engine_job *j); /* after its on_end; waits for the end of that step; not in a callback */

/* ---- service ---------------------------------------------------------------------------------------- */

/* Steps until engine_stop; sleeps while nothing is to do. after_step (may be NULL) is called once after every
 * step, on this thread, when all callbacks of the step were made. */
void engine_run(engine *e, void (*after_step)(void *user), void *user);
void engine_stop(engine *e); /* engine_run returns after its step; unfinished jobs are cancelled */

typedef struct engine_load {
    size_t running, waiting, waiting_tokens;
    size_t kv_pages, kv_pages_free;
    uint64_t steps, prompt_tokens, generated_tokens; /* totals */
} engine_load;
void engine_load_get(engine *e, engine_load *out); /* any thread */
size_t engine_context(const engine *e);

#endif
