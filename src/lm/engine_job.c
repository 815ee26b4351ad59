/* engine_job.c: jobs outside of steps: submitted, cancelled, looked at, freed. */
#include "base/clock.h"
#include "base/mem.h"
#include "lm/engine_part.h"

#include <string.h>

static void job_destroy(engine_job *j) {
    sampler_free(j->sampler);
    draft_seq_close(&j->guesser);
    engine_beams_close(j);
    mem_free(j->stop_ids);
    mem_free(j);
}

/* Where the job ends, and whether the pool can hold it then. The last token of an answer is told, not
 * computed. Who asks for as much as there is gets what the pool can hold. */
static status settle_limit(engine_job *j, error *err) {
    const engine *e = j->e;
    const size_t n = j->seq->n_tokens, held = kv_cache_pages(e->kv) * KV_PAGE;
    const size_t most = e->o.context < held ? e->o.context : held;
    j->limit = e->o.context;
    if (j->o.max_tokens >= e->o.context && n < most) {
        j->limit = most;
    } else if (j->o.max_tokens < e->o.context - n) {
        j->limit = n + j->o.max_tokens;
    }
    const size_t computed = j->o.max_tokens > 0 ? j->limit - 1 : n;
    if (computed <= held) return CHURON_OK;
    return error_set(err, CHURON_LIMIT, "KV cache: expected at most %zu tokens (prompt and answer), got %zu",
                     held, computed);
}

static status job_prepare(engine_job *j, error *err) {
    const engine *e = j->e;
    const engine_seq *s = j->seq;
    if (s->n_tokens == 0)
        return error_set(err, CHURON_INVALID, "prompt: expected at least one token, got none");
    if (j->o.max_tokens > 0) {
        if (s->n_tokens >= e->o.context) {
            return error_set(err, CHURON_LIMIT,
                             "context: expected room for an answer within %zu tokens, got a prompt of %zu",
                             e->o.context, s->n_tokens);
        }
    }
    if (j->o.max_tokens > 0 && j->o.beam.width == 0) {
        TRY(sampler_check(&j->o.sampling, e->m->config.n_vocab, err));
        TRY(sampler_create(&j->sampler, &j->o.sampling, e->m->config.n_vocab, e->o.context, err));
        for (size_t i = 0; i < s->n_tokens; i++) sampler_accept(j->sampler, s->tokens[i]);
    }
    if (j->o.n_stop_ids) {
        j->stop_ids = mem_alloc(j->o.n_stop_ids * sizeof *j->stop_ids);
        if (!j->stop_ids) return error_no_memory(err, "stop ids", j->o.n_stop_ids * sizeof *j->stop_ids);
        memcpy(j->stop_ids, j->o.stop_ids, j->o.n_stop_ids * sizeof *j->stop_ids);
        j->o.stop_ids = j->stop_ids;
    }
    TRY(settle_limit(j, err));
    if (engine_speculates(j)) TRY(engine_draft_open(j, err));
    return j->o.beam.width > 0 ? engine_beams_open(j, err) : CHURON_OK;
}

/* With the lock. An idle engine takes any prompt: the bound is on what waits behind others. */
static status enqueue(engine *e, engine_job *j, error *err) {
    const size_t waiting = sched_waiting_tokens(e->sched);
    if ((sched_n_waiting(e->sched) > 0 || sched_is_full(e->sched)) &&
        waiting + j->prompt_tokens > e->o.max_queued_tokens) {
        return error_set(err, CHURON_BUSY,
                         "queue: expected at most %zu waiting tokens, got %zu more than fit",
                         e->o.max_queued_tokens, waiting + j->prompt_tokens - e->o.max_queued_tokens);
    }
    if (e->stop) return error_set(err, CHURON_CANCELLED, "engine: it is stopping");
    j->seq->job = j;
    j->seq->n_public = j->seq->n_tokens;
    if (j->o.deadline > 0 && j->o.deadline < e->next_deadline) e->next_deadline = j->o.deadline;
    sched_submit(e->sched, &j->sched);
    pthread_cond_broadcast(&e->changed);
    return CHURON_OK;
}

status engine_submit(engine_job **out, engine_seq *s, const engine_job_options *o, error *err) {
    *out = NULL;
    if (s->job) return error_set(err, CHURON_INVALID, "sequence: expected no unfinished job, got one");
    engine *e = s->e;
    engine_job *j = mem_calloc(1, sizeof *j);
    if (!j) return error_no_memory(err, "job", sizeof *j);
    j->e = e;
    j->seq = s;
    j->o = *o;
    j->submitted = clock_seconds();
    j->prompt_tokens = s->n_tokens;
    j->sched = (sched_job){.tenant = s->tenant, .priority = o->priority, .rows = 1, .length = s->n_tokens};
    status st = job_prepare(j, err);
    if (st == CHURON_OK) {
        pthread_mutex_lock(&e->lock);
        *out = j; /* before anybody can call back */
        st = enqueue(e, j, err);
        pthread_mutex_unlock(&e->lock);
    }
    if (st != CHURON_OK) {
        *out = NULL;
        job_destroy(j);
    }
    return st;
}

void engine_cancel(engine_job *j) {
    engine *e = j->e;
    pthread_mutex_lock(&e->lock);
    j->cancelled = true;
    e->sweep = true;
    pthread_cond_broadcast(&e->changed); /* a sleeping service must look */
    pthread_mutex_unlock(&e->lock);
}

engine_job_stats engine_job_stats_get(const engine_job *j) {
    engine_job_stats s = {.prompt_tokens = j->prompt_tokens,
                          .tokens = j->tokens,
                          .cached_tokens = j->cached_tokens,
                          .preemptions = j->sched.preemptions,
                          .drafted = j->drafted,
                          .accepted = j->accepted};
    double end = j->ended != 0.0 ? j->ended : clock_seconds();
    double started = j->started != 0.0 ? j->started : end;
    double first = j->first_token != 0.0 ? j->first_token : end;
    s.queue_s = started - j->submitted;
    s.prefill_s = first - started;
    s.decode_s = end - first;
    return s;
}

static engine_phase phase_of(const engine_job *j) {
    if (j->finish != ENGINE_RUNNING) return ENGINE_ENDED;
    if (j->sched.running) return j->sched.length - j->sched.computed > 1 ? ENGINE_PREFILLS : ENGINE_DECODES;
    return j->sched.preemptions > 0 ? ENGINE_PREEMPTED : ENGINE_WAITS;
}

void engine_job_view_get(engine_job *j, engine_job_view *out) {
    pthread_mutex_lock(&j->e->lock);
    *out = (engine_job_view){.phase = phase_of(j),
                             .prompt_tokens = j->prompt_tokens,
                             .computed_tokens = j->sched.computed,
                             .tokens = j->public_tokens,
                             .kv_pages = j->sched.running ? j->seq->kv.n_pages : 0,
                             .cached_tokens = j->cached_tokens,
                             .preemptions = j->sched.preemptions};
    pthread_mutex_unlock(&j->e->lock);
}

void engine_job_free(engine_job *j) {
    if (!j) return;
    pthread_mutex_lock(&j->e->lock);
    while (j->finish == ENGINE_RUNNING) pthread_cond_wait(&j->e->changed, &j->e->lock);
    pthread_mutex_unlock(&j->e->lock);
    job_destroy(j);
}
