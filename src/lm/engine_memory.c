/* engine_memory.c: the pages of jobs, as the scheduler asks for them (scheduler.h, sched_memory). */
#include "lm/engine_part.h"

#include "base/clock.h"

enum { WORTH_WAITING = 16 }; /* tokens that another job is about to compute for this one too */

static size_t available(void *ctx) {
    return kv_cache_n_available(((engine *)ctx)->kv);
}

static size_t missing(void *ctx, const sched_job *sj, size_t length) {
    const engine_job *j = job_of_const(sj);
    if (j->beams) return engine_beams_missing(j, length);
    return kv_seq_missing(((engine *)ctx)->kv, &j->seq->kv, length);
}

static size_t held(void *ctx, const sched_job *sj) {
    (void)ctx;
    const engine_job *j = job_of_const(sj);
    return j->seq->kv.n_pages + (j->beams ? engine_beams_held(j) : 0);
}

/* How much of a job's tokens may be found instead of computed: the last one gives the logits that start the
 * answer; one that wants all logits needs those that were not told yet; without prefix cache a sequence finds
 * what it has computed and not taken back. */
static size_t most_to_find(const engine_job *j) {
    const engine_seq *s = j->seq;
    const size_t most = s->n_tokens - 1;
    if (!j->o.all_logits && !j->e->o.no_prefix_cache) return most;
    const size_t known = s->own > j->reported ? s->own : j->reported;
    return known < most ? known : most;
}

static void adopt(void *ctx, sched_job *sj) {
    const engine *e = ctx;
    engine_job *j = job_of(sj);
    engine_seq *s = j->seq;
    kv_seq_adopt(e->kv, &s->kv, s->space, s->tokens, most_to_find(j));
    sj->computed = s->kv.length;
}

static void started(void *ctx, sched_job *sj) {
    engine *e = ctx;
    engine_job *j = job_of(sj);
    engine_seq *s = j->seq;
    kv_seq_adopt_part(e->kv, &s->kv, s->space, s->tokens, most_to_find(j));
    sj->computed = s->kv.length;
    if (j->started != 0.0) return;
    j->started = clock_seconds();
    j->cached_tokens = sj->computed;
    j->counted = sj->computed;
    if (e->o.no_prefix_cache) return;
    e->cache_queries += j->prompt_tokens;
    e->cache_hits += sj->computed;
}

static bool reserve(void *ctx, sched_job *sj, size_t length) {
    engine_job *j = job_of(sj);
    if (j->beams && j->beams->branched) return engine_beams_reserve(j, length);
    return kv_seq_reserve(((engine *)ctx)->kv, &j->seq->kv, length);
}

static void release(void *ctx, sched_job *sj) {
    const engine *e = ctx;
    engine_job *j = job_of(sj);
    engine_seq *s = j->seq;
    if (j->beams) engine_beams_release(j);
    if (s->own < s->kv.length) s->own = s->kv.length;
    kv_seq_publish(e->kv, &s->kv, s->space, s->tokens, true);
    kv_seq_release(e->kv, &s->kv);
    sj->computed = 0;
}

static size_t common_tokens(const engine_seq *a, const engine_seq *b) {
    const size_t most = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens;
    size_t n = 0;
    while (n < most && a->tokens[n] == b->tokens[n]) n++;
    return n;
}

/* Several prompts that begin alike are computed once up to where they part: the others wait for the pages of
 * whoever runs, unless that one is less urgent. */
static bool waits(void *ctx, sched_job *sj) {
    const engine *e = ctx;
    engine_job *j = job_of(sj);
    if (e->o.no_prefix_cache || sj->promoted || j->o.all_logits) return false;
    size_t n;
    sched_job *const *running = sched_running(e->sched, &n);
    for (size_t i = 0; i < n; i++) {
        sched_job *other = running[i];
        engine_job *leader = job_of(other);
        if (other->length - other->computed <= WORTH_WAITING || leader->seq->space != j->seq->space) continue;
        if ((other->priority > sj->priority && !other->promoted) || leader->o.all_logits) continue;
        if (j->leader != other->arrival) {
            const size_t common = common_tokens(leader->seq, j->seq);
            if (common < WORTH_WAITING) continue;
            j->leader = other->arrival;
            j->leader_common = common;
        }
        const size_t most = j->seq->n_tokens - 1;
        const size_t usable = j->leader_common < most ? j->leader_common : most;
        if (usable >= other->computed + WORTH_WAITING) return true;
    }
    return false;
}

sched_memory engine_memory(engine *e) {
    return (sched_memory){.ctx = e,
                          .available = available,
                          .missing = missing,
                          .held = held,
                          .adopt = adopt,
                          .started = started,
                          .reserve = reserve,
                          .release = release,
                          .waits = waits};
}
