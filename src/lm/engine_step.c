/* engine_step.c: one step: who ends, who computes, the pass through the model, sampling, results. */
#include "base/clock.h"
#include "base/mem.h"
#include "lm/engine_part.h"

#include <assert.h>
#include <math.h>

/* ---- ends ------------------------------------------------------------------------------------------- */

bool engine_has_work(const engine *e) {
    size_t running;
    (void)sched_running(e->sched, &running);
    return running > 0 || sched_n_waiting(e->sched) > 0;
}

/* With the lock: the job's pages and its place are back. */
static void take_out(engine *e, engine_job *j, engine_job **list) {
    sched_end(e->sched, &j->sched);
    engine_draft_release(j);
    j->next_ending = *list;
    *list = j;
}

/* Calls on_end outside the lock, then publishes. After that a job may be freed by its owner at any time. */
static void end_jobs(engine *e, engine_job *list) {
    while (list) {
        engine_job *j = list;
        list = j->next_ending;
        j->ended = clock_seconds();
        if (j->beams && (j->ending == ENGINE_STOP || j->ending == ENGINE_LENGTH)) engine_beams_tell(j);
        if (j->o.on_end) j->o.on_end(j->o.user, j->ending, j->ending == ENGINE_FAILED ? &j->err : NULL);
        pthread_mutex_lock(&e->lock);
        j->seq->job = NULL;
        j->public_tokens = j->tokens;
        j->finish = j->ending;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
    }
}

static engine_finish must_end(const engine *e, const engine_job *j, double now) {
    if (j->ending != ENGINE_RUNNING) return j->ending;
    if (e->stop || j->cancelled) return ENGINE_CANCELLED;
    return j->o.deadline > 0 && now >= j->o.deadline ? ENGINE_DEADLINE : ENGINE_RUNNING;
}

static void look_at(engine *e, engine_job *j, double now, engine_job **list) {
    j->ending = must_end(e, j, now);
    if (j->ending != ENGINE_RUNNING) {
        take_out(e, j, list);
    } else if (j->o.deadline > 0 && j->o.deadline < e->next_deadline) {
        e->next_deadline = j->o.deadline;
    }
}

/* With the lock: the jobs that were cancelled or whose deadline passed, if there can be any. */
static engine_job *take_out_those_that_must(engine *e) {
    const double now = clock_seconds();
    engine_job *list = NULL;
    if (!e->sweep && !e->stop && now < e->next_deadline) return NULL;
    e->sweep = false;
    e->next_deadline = INFINITY;
    size_t n;
    sched_job *const *running = sched_running(e->sched, &n);
    for (size_t i = n; i-- > 0;) look_at(e, job_of(running[i]), now, &list);
    for (sched_tenant *t = sched_tenants(e->sched); t; t = t->next) {
        for (sched_job *j = t->first, *next; j; j = next) {
            next = j->next;
            look_at(e, job_of(j), now, &list);
        }
    }
    return list;
}

/* With the lock: nothing runs and nobody can start although submit refuses what the pool can never hold. */
static engine_job *take_out_stuck(engine *e) {
    engine_job *list = NULL;
    for (sched_tenant *t = sched_tenants(e->sched); t && !list; t = t->next) {
        if (!t->first) continue;
        engine_job *j = job_of(t->first);
        (void)error_set(&j->err, CHURON_INTERNAL, "scheduler: a job of %zu tokens cannot start",
                        j->sched.length);
        j->ending = ENGINE_FAILED;
        take_out(e, j, &list);
    }
    assert(!list);
    return list;
}

/* ---- the pass --------------------------------------------------------------------------------------- */

static void add_span(engine *e, engine_job *j) {
    engine_seq *s = j->seq;
    if (j->beams && j->beams->branched) {
        engine_beams_plan(j);
        return;
    }
    const size_t from = s->kv.length, n = j->sched.planned + j->n_draft, end = from + n;
    const bool last = from + j->sched.planned == s->n_tokens;
    size_t outputs = last ? 1 + j->n_draft : 0;
    if (j->o.all_logits) {
        const size_t first = from > j->reported ? from : j->reported;
        outputs = end > first ? end - first : 0;
    }
    e->n_rows += n;
    e->spans[e->n_spans++] =
        (span){.kv = &s->kv, .tokens = s->tokens + from, .n = n, .position = from, .n_outputs = outputs};
    j->wants_output = last;
    for (size_t i = 0; i < outputs; i++) {
        e->out_job[e->n_outputs] = j;
        e->out_position[e->n_outputs++] = end - outputs + i;
    }
}

/* With the lock. */
static void plan_jobs(engine *e) {
    mem_guard_begin();
    sched_job *const *plan = sched_plan(e->sched, &e->n_spans);
    mem_guard_end();
    e->n_jobs = e->n_spans;
    for (size_t i = 0; i < e->n_jobs; i++) e->span_job[i] = job_of(plan[i]);
}

/* Guesses, where they pay, then the spans. Without the lock. */
static void plan_spans(engine *e) {
    mem_guard_begin();
    engine_draft(e);
    mem_guard_end();
    if (e->n_offers > 0) {
        pthread_mutex_lock(&e->lock);
        engine_draft_reserve(e);
        pthread_mutex_unlock(&e->lock);
    }
    e->n_spans = e->n_outputs = e->n_rows = 0;
    for (size_t i = 0; i < e->n_jobs; i++) add_span(e, e->span_job[i]);
}

static bool is_stop_id(const engine_job *j, int32_t id) {
    for (size_t i = 0; i < j->o.n_stop_ids; i++) {
        if (j->o.stop_ids[i] == id) return true;
    }
    return false;
}

static void sample_member(void *ctx, const pool_member *me) {
    engine *e = ctx;
    mem_guard_begin();
    for (size_t i = me->index; i < e->n_batch; i += me->count) {
        engine_job *j = e->batch[i];
        j->sampled =
            sampler_next(j->sampler, e->m->k, e->batch_logits[i], j->tokens, &j->out, &j->err) == CHURON_OK;
    }
    mem_guard_end();
}

/* The step's answer of one job, on the stepping thread. */
static void deliver(engine_job *j) {
    if (j->o.max_tokens == 0) {
        j->first_token = clock_seconds();
        j->ending = ENGINE_LENGTH;
        return;
    }
    if (!j->sampled) {
        j->ending = ENGINE_FAILED;
        return;
    }
    engine_seq *s = j->seq;
    if (j->tokens++ == 0) j->first_token = clock_seconds();
    engine_draft_check(j, j->out.id);
    s->tokens[s->n_tokens++] = j->out.id;
    sampler_accept(j->sampler, j->out.id);
    engine_verdict verdict = j->o.on_token ? j->o.on_token(j->o.user, &j->out) : ENGINE_GO_ON;
    if (verdict == ENGINE_HALT || is_stop_id(j, j->out.id)) {
        j->ending = ENGINE_STOP;
    } else if (j->tokens >= j->o.max_tokens || s->n_tokens >= j->limit) {
        j->ending = ENGINE_LENGTH;
    }
}

static void sample_batch(engine *e) {
    size_t to_sample = 0;
    for (size_t i = 0; i < e->n_batch; i++) to_sample += e->batch[i]->o.max_tokens > 0;
    if (to_sample == e->n_batch && to_sample > 1) {
        pool_run(e->p, sample_member, e);
        return;
    }
    for (size_t i = 0; i < e->n_batch; i++) {
        engine_job *j = e->batch[i];
        if (j->o.max_tokens == 0) continue;
        j->sampled =
            sampler_next(j->sampler, e->m->k, e->batch_logits[i], j->tokens, &j->out, &j->err) == CHURON_OK;
    }
}

/* The rows [from, from + n) whose logits say what comes next: of each job at most one, and of those with
 * guesses the one behind the last token that was confirmed. */
static void choose_rows(engine *e, float *logits, size_t from, size_t n) {
    e->n_batch = 0;
    for (size_t i = 0; i < n; i++) {
        engine_job *j = e->out_job[from + i];
        if (j->beams || !j->wants_output || j->refuted || j->ending != ENGINE_RUNNING) continue;
        if (e->out_position[from + i] + 1 != j->seq->n_tokens) continue;
        e->batch[e->n_batch] = j;
        e->batch_logits[e->n_batch++] = logits + i * e->m->config.n_vocab;
        j->sampled = false;
    }
}

/* Rows of logits in slices, sampled by all threads, delivered in order. */
static void finish_outputs(engine *e) {
    for (size_t from = 0; from < e->n_outputs; from += LOGITS_SLICE) {
        size_t n = e->n_outputs - from < LOGITS_SLICE ? e->n_outputs - from : LOGITS_SLICE;
        float *logits = forward_logits(e->f, from, n);
        for (size_t i = 0; i < n; i++) {
            engine_job *j = e->out_job[from + i];
            const size_t position = e->out_position[from + i];
            float *row = logits + i * e->m->config.n_vocab;
            if (j->beams) {
                engine_beams_row(j, row);
                continue;
            }
            if (j->o.on_logits) j->o.on_logits(j->o.user, position, row);
            j->reported = position + 1;
        }
        for (choose_rows(e, logits, from, n); e->n_batch > 0; choose_rows(e, logits, from, n)) {
            sample_batch(e);
            for (size_t i = 0; i < e->n_batch; i++) deliver(e->batch[i]);
        }
    }
}

/* ---- results ---------------------------------------------------------------------------------------- */

/* With the lock: what the step computed is known to the scheduler and to others with the same beginning. */
static void publish_job(engine *e, engine_job *j, engine_job **ended) {
    engine_seq *s = j->seq;
    engine_draft_done(j);
    const size_t end = s->kv.length < j->prompt_tokens ? s->kv.length : j->prompt_tokens;
    const size_t prompt = end > j->counted ? end - j->counted : 0;
    const size_t generated = j->tokens - j->public_tokens;
    j->counted += prompt;
    e->prompt_tokens += prompt;
    j->sched.tenant->prompt_tokens += prompt;
    e->generated_tokens += generated;
    j->sched.tenant->generated_tokens += generated;
    j->public_tokens = j->tokens;
    s->n_public = s->n_tokens;
    const bool prefilled = j->sched.planned > 1 || j->tokens <= 1;
    j->sched.computed = s->kv.length;
    j->sched.length = s->n_tokens;
    j->sched.planned = 0;
    kv_seq_publish(e->kv, &s->kv, s->space, s->tokens, prefilled);
    if (j->beams && j->ending == ENGINE_RUNNING) engine_beams_publish(j);
    if (j->ending != ENGINE_RUNNING) take_out(e, j, ended);
}

/* ---- memory for pages to come ------------------------------------------------------------------------ */

/* A step that comes to fresh memory waits 5 to 15 ms for it, one thread after the other: the longest gaps of
 * those who decode. So the threads fetch what is needed together, before the step; a server gets WARM_IDLE
 * bytes ahead while it is idle, and a run of pages ahead, one piece a thread in each step, under load. */
enum { WARM_IDLE = 256 << 20 };

bool engine_warm(engine *e) {
    size_t piece;
    if (kv_cache_cold(e->kv, WARM_IDLE, 1, &piece) == 0) return false;
    pthread_mutex_unlock(&e->lock);
    kv_pool_fetch(kv_cache_pool(e->kv), piece);
    pthread_mutex_lock(&e->lock);
    return true;
}

static void fetch_member(void *ctx, const pool_member *me) {
    const engine *e = ctx;
    for (size_t i = me->index; i < e->n_cold; i += me->count) {
        kv_pool_fetch(kv_cache_pool(e->kv), e->cold_from + i);
    }
}

/* By the stepper, without the lock: nobody else takes pages. */
static void fetch_memory(engine *e, bool serving) {
    const size_t ahead = serving ? kv_cache_run_bytes(e->kv) : 0;
    e->n_cold = kv_cache_cold(e->kv, ahead, pool_threads(e->p), &e->cold_from);
    if (e->n_cold > 1) {
        pool_run(e->p, fetch_member, e);
    } else if (e->n_cold == 1) {
        kv_pool_fetch(kv_cache_pool(e->kv), e->cold_from);
    }
}

/* ---- a step ------------------------------------------------------------------------------------------ */

bool engine_step(engine *e) {
    const double begun = clock_seconds();
    pthread_mutex_lock(&e->lock);
    engine_job *ended = take_out_those_that_must(e);
    bool did = ended != NULL;
    const bool serving = e->serving;
    plan_jobs(e);
    if (e->n_spans == 0 && !ended && sched_n_waiting(e->sched) > 0) ended = take_out_stuck(e);
    pthread_mutex_unlock(&e->lock);
    end_jobs(e, ended);
    if (e->n_spans == 0) return did;

    plan_spans(e);
    fetch_memory(e, serving);
    const double planned = clock_seconds();
    forward_run(e->f, e->spans, e->n_spans);
    finish_outputs(e);
    if (e->n_rows == e->n_outputs) step_cost_add(&e->cost, e->n_rows, clock_seconds() - planned);

    ended = NULL;
    pthread_mutex_lock(&e->lock);
    sched_done(e->sched, clock_seconds() - begun);
    for (size_t i = e->n_jobs; i-- > 0;) publish_job(e, e->span_job[i], &ended);
    e->steps++;
    pthread_mutex_unlock(&e->lock);
    end_jobs(e, ended);
    return true;
}
