/* engine.h: sequences that are computed together, step by step.
 *
 * Each step takes a budget of tokens: one for every sequence that decodes, the rest for chunks of prompts, by
 * priority, then fairly between tenants, then in order of arrival; runs them through the model in one pass;
 * samples; and tells each job its token. What a sequence gets does not depend on who else is in the step.
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

/* Who asks. Sequences of different tenants never share keys and values unless they say that their prompt is
 * public; tenants that wait get tokens in proportion to their weights. */
typedef struct engine_tenant {
    const char *name;
    double weight; /* > 0 */
} engine_tenant;

typedef struct engine_options {
    size_t context;            /* tokens a sequence may hold; 0: trained. Over the trained: CHURON_LIMIT */
    size_t max_running;        /* sequences in one step; 0: 16 */
    size_t max_queued_tokens;  /* prompt tokens waiting for a place; over it submit gives CHURON_BUSY; 0:
                                  65,536 */
    size_t step_tokens;        /* budget of a step; 0: 128 */
    kv_type kv_type;           /* how keys and values are kept; 0: KV_F16 */
    uint64_t kv_memory;        /* bytes; 0: max_running * context, at most half of free memory */
    double inter_token_target; /* seconds between tokens of a sequence that decodes: the chunks of prompts
                                  shrink until steps keep it; 0: 0.05 */
    bool no_prefix_cache;      /* every prompt is computed whole */
    bool no_speculation;       /* one token of a sequence in a step, always */
    size_t draft_tokens;       /* most tokens of a sequence that are guessed ahead and checked in a step, up
                                  to 16; 0: 8. Never changes an answer */
    bool draft_always;         /* whether it pays or not */
    const lm_model *draft;     /* a smaller model of the same vocabulary that guesses; borrowed; NULL: guesses
                                  come from the sequence itself alone */
    const engine_tenant *tenants; /* those whose weight is not 1; copied */
    size_t n_tenants;
} engine_options;

MUST_USE status engine_create(engine **out, const lm_model *m, pool *p, const engine_options *o, error *err);
void engine_free(engine *e); /* no job may be unfinished, no sequence open */

/* ---- sequences -------------------------------------------------------------------------------------- */

typedef struct engine_seq_options {
    const char *tenant; /* NULL: the tenant "" */
    const char *salt;   /* NULL: none. Prompts with different salts share nothing either */
    bool shared;        /* what this sequence computes may serve other tenants' sequences that say so too */
} engine_seq_options;

/* o NULL: the tenant "", no salt. Strings are copied; at most 256 bytes each. */
MUST_USE status engine_seq_open(engine_seq **out, engine *e, const engine_seq_options *o, error *err);
/* A copy of an idle sequence, or of one whose job still computes: the same tokens; keys and values are shared
 * until either of them writes. */
MUST_USE status engine_seq_fork(engine_seq **out, engine_seq *of, error *err);
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
    ENGINE_DEADLINE, /* its deadline passed, in the queue or in service */
    ENGINE_FAILED    /* see job error */
} engine_finish;

typedef enum engine_verdict { ENGINE_GO_ON, ENGINE_HALT } engine_verdict;

/* Beam search, as transformers' BeamSearchScorer does it: see beam.h. */
typedef enum engine_early_stop {
    ENGINE_BEAM_HEURISTIC, /* false: ends when no beam can become better by its present length */
    ENGINE_BEAM_FIRST,     /* true: ends as soon as `width` texts are finished */
    ENGINE_BEAM_NEVER      /* "never": ends when no beam can become better at any length */
} engine_early_stop;

typedef struct engine_beam_options {
    size_t width;          /* 0: no beam search; else 2..max_running, each takes a place in a step */
    double length_penalty; /* a text scores sum of log-probabilities / length^length_penalty */
    engine_early_stop early_stopping;
} engine_beam_options;

typedef struct engine_hypothesis {
    const int32_t *ids; /* [n], the stop id included; borrowed during the call */
    size_t n;
    double score, logprob; /* logprob: the sum */
    bool stopped;          /* ended with a stop id; else cut by max_tokens or context */
} engine_hypothesis;

typedef struct engine_job_options {
    sampler_params sampling;
    size_t max_tokens;       /* 0: score only: computes the sequence, calls on_logits, ends with LENGTH */
    const int32_t *stop_ids; /* copied; ends the answer; the id is reported but gives no text */
    size_t n_stop_ids;
    bool no_speculation;
    bool all_logits;  /* on_logits for every position computed, not only the last */
    int32_t priority; /* lower goes first; jobs of one priority share by tenant, then by arrival */
    double deadline;  /* clock_seconds() after which it ends with ENGINE_DEADLINE; 0: none */
    /* With a width: no sampling, no on_token and no on_logits; the model's own distribution. The sequence
     * keeps its prompt. A job that is put off searches again from its prompt, with the same result. */
    engine_beam_options beam;
    void *user;
    /* A token was chosen. With ENGINE_HALT the job ends in this step, with finish ENGINE_STOP. */
    engine_verdict (*on_token)(void *user, const sampled *token);
    /* Optional. logits f32 [n_vocab] after the token at `position`, borrowed during the call. */
    void (*on_logits)(void *user, size_t position, const float *logits);
    /* The texts that a beam search found, best first, n <= width; before on_end with STOP or LENGTH. */
    void (*on_beams)(void *user, const engine_hypothesis *best, size_t n);
    /* The job ended; last call for this job. err is filled with ENGINE_FAILED. */
    void (*on_end)(void *user, engine_finish finish, const error *err);
} engine_job_options;

typedef struct engine_job_stats {
    size_t prompt_tokens, tokens;
    size_t cached_tokens;                /* of the prompt, found in the prefix cache */
    size_t preemptions;                  /* how often its pages were taken and computed again */
    size_t drafted, accepted;            /* tokens that were guessed and checked; that were right */
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

typedef enum engine_phase {
    ENGINE_WAITS,
    ENGINE_PREFILLS,
    ENGINE_DECODES,
    ENGINE_PREEMPTED,
    ENGINE_ENDED
} engine_phase;
typedef struct engine_job_view {
    engine_phase phase;
    size_t prompt_tokens, computed_tokens, tokens, kv_pages, cached_tokens, preemptions;
} engine_job_view;
void engine_job_view_get(engine_job *j, engine_job_view *out); /* any thread, also while it runs */
void engine_job_free(engine_job *j); /* after its on_end; waits for the end of that step; not in a callback */

/* ---- service ---------------------------------------------------------------------------------------- */

/* Steps until engine_stop; sleeps while nothing is to do. after_step (may be NULL) is called once after every
 * step, on this thread, when all callbacks of the step were made. */
void engine_run(engine *e, void (*after_step)(void *user), void *user);
void engine_stop(engine *e); /* engine_run returns after its step; unfinished jobs are cancelled */

typedef struct engine_load {
    size_t running, waiting, waiting_tokens;
    size_t kv_pages, kv_pages_free, kv_pages_cached; /* cached: hold a prefix that nobody uses now; given up
                                                        on demand, so they count as free too. Without prefix
                                                        cache 0, as all that is counted of it */
    size_t kv_page_tokens;                           /* tokens in a page */
    size_t kv_tokens_wasted;                         /* places of taken pages that hold no token */
    /* totals */
    uint64_t steps, prompt_tokens, generated_tokens;
    uint64_t preemptions, cache_queries, cache_hits; /* in tokens of prompts: asked for, found */
    uint64_t cache_evictions;                        /* pages */
    uint64_t drafted, accepted;                      /* tokens guessed and checked; right */
} engine_load;
void engine_load_get(engine *e, engine_load *out); /* any thread */

typedef struct engine_tenant_load {
    char name[64]; /* cut if longer */
    size_t running, waiting, waiting_tokens;
    uint64_t prompt_tokens, generated_tokens; /* totals */
} engine_tenant_load;
/* Up to `capacity` tenants that have asked for something; returns how many there are. Any thread. */
size_t engine_tenants_get(engine *e, engine_tenant_load *out, size_t capacity);
/* The one of that name; false (and zeros) if it has not asked. Any thread. */
bool engine_tenant_get(engine *e, const char *name, engine_tenant_load *out);
size_t engine_context(const engine *e);
kv_type engine_kv_type(const engine *e);

#endif
