/* engine.c: see engine.h.
 *
 * State that threads share (the lists, the counters, the page pool) is guarded by one mutex. A step takes it
 * twice: to choose its work, and to publish its results; the model runs in between without it. Whoever steps
 * holds `stepping`; what a running job's step touches (its sequence's KV, its sampler) belongs to the
 * stepper. */
#include "lm/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "lm/forward.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct engine_seq {
    engine *e;
    kv_seq kv;
    int32_t *tokens; /* [context] */
    size_t n_tokens;
    engine_job *job;           /* unfinished, or NULL */
    engine_seq *next, *before; /* in the engine's list, under the lock */
};

struct engine_job {
    engine *e;
    engine_seq *seq;
    engine_job *next; /* in the waiting list */
    engine_job_options o;
    sampler *sampler;
    int32_t *stop_ids;
    size_t reserve; /* tokens that it may grow to: its pages are taken when it starts */
    size_t prompt_tokens, tokens;
    double submitted, started, first_token, ended;
    atomic_bool cancelled; /* relaxed: a flag that is polled */
    bool running, wants_output;
    engine_finish finish; /* under the lock once it is not RUNNING */
    engine_finish ending; /* stepper's: what this step decided */
    error err;
    sampled out; /* of this step */
    bool sampled;
};

struct engine {
    const lm_model *m;
    pool *p;
    kv_pool *kv;
    forward *f;
    engine_options o;
    pthread_mutex_t lock;
    pthread_cond_t changed;   /* a job was submitted, cancelled or ended; the stepper went; stop was asked */
    engine_job *first, *last; /* waiting */
    engine_job **running;     /* [max_running] */
    size_t n_running, n_waiting, waiting_tokens;
    engine_seq *sequences; /* all open ones */
    bool stepping, serving, stop;
    uint64_t steps, prompt_tokens, generated_tokens;
    /* one step, the stepper's */
    span *spans; /* [max_running] */
    engine_job **span_job;
    engine_job **out_job; /* job of each kept row */
    size_t *out_position;
    size_t n_spans, n_outputs, max_outputs;
    engine_job **batch; /* jobs of the logits slice that sample */
    float **batch_logits;
    size_t n_batch;
};

enum { LOGITS_SLICE = 16 };

/* ---- creation --------------------------------------------------------------------------------------- */

static uint64_t free_memory(void) {
    uint64_t available = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (f) {
        char line[128];
        while (fgets(line, sizeof line, f)) {
            unsigned long long kb;
            if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1) available = (uint64_t)kb * 1024;
        }
        fclose(f);
    }
    if (available == 0) {
        long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        available = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)1 << 30;
    }
    return available;
}

static status settle_options(engine *e, const engine_options *o, error *err) {
    static const engine_options none;
    if (!o) o = &none;
    const lm_config *c = &e->m->config;
    e->o = *o;
    if (o->context > c->context_trained) {
        return error_set(err, CHURON_LIMIT,
                         "context: expected at most %u tokens (what the model was trained with), got %zu",
                         c->context_trained, o->context);
    }
    if (!e->o.context) e->o.context = c->context_trained;
    if (!e->o.max_running) e->o.max_running = 16;
    if (!e->o.max_queued_tokens) e->o.max_queued_tokens = 65536;
    if (!e->o.step_tokens)
        e->o.step_tokens = 128; /* their activations stay in L2: 512 at once measured 10 % slower */
    if (e->o.max_running > 4096) {
        return error_set(err, CHURON_INVALID, "max_running: expected 1..4096, got %zu", o->max_running);
    }
    if (e->o.kv_type >= KV_TYPE_COUNT) {
        return error_set(err, CHURON_INVALID, "kv_type: expected 0..%d, got %d", KV_TYPE_COUNT - 1,
                         (int)e->o.kv_type);
    }
    if (e->o.step_tokens > 65536) {
        return error_set(err, CHURON_INVALID, "step_tokens: expected 1..65536, got %zu", o->step_tokens);
    }
    return CHURON_OK;
}

static status size_kv(engine *e, size_t *n_pages, error *err) {
    const lm_config *c = &e->m->config;
    const uint64_t page = (uint64_t)kv_bytes_per_token(c, e->o.kv_type) * KV_PAGE;
    const uint64_t per_seq = (e->o.context + KV_PAGE - 1) / KV_PAGE;
    uint64_t want = per_seq * e->o.max_running;
    uint64_t limit = e->o.kv_memory ? e->o.kv_memory / page : free_memory() / 2 / page;
    if (limit < 1) {
        return error_set(err, CHURON_LIMIT,
                         "kv_memory: expected at least %llu bytes (one page of %d tokens), got %llu",
                         (unsigned long long)page, KV_PAGE, (unsigned long long)e->o.kv_memory);
    }
    if (want > limit) want = limit;
    *n_pages = (size_t)want;
    return CHURON_OK;
}

static status allocate_step(engine *e, error *err) {
    const size_t n = e->o.max_running, rows = e->o.step_tokens + n;
    e->max_outputs = rows;
    e->running = mem_calloc(n, sizeof *e->running);
    e->spans = mem_calloc(n, sizeof *e->spans);
    e->span_job = mem_calloc(n, sizeof *e->span_job);
    e->out_job = mem_calloc(rows, sizeof *e->out_job);
    e->out_position = mem_calloc(rows, sizeof *e->out_position);
    e->batch = mem_calloc(LOGITS_SLICE, sizeof *e->batch);
    e->batch_logits = mem_calloc(LOGITS_SLICE, sizeof *e->batch_logits);
    bool ok =
        e->running && e->spans && e->span_job && e->out_job && e->out_position && e->batch && e->batch_logits;
    return ok ? CHURON_OK : error_no_memory(err, "engine", rows * sizeof(void *));
}

status engine_create(engine **out, const lm_model *m, pool *p, const engine_options *o, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    engine *e = mem_calloc(1, sizeof *e);
    if (!e) return error_no_memory(err, "engine", sizeof *e);
    e->m = m;
    e->p = p;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    size_t n_pages = 0;
    TRY_GOTO(settle_options(e, o, err));
    TRY_GOTO(size_kv(e, &n_pages, err));
    TRY_GOTO(allocate_step(e, err));
    TRY_GOTO(kv_pool_create(&e->kv, &m->config, e->o.kv_type, n_pages, err));
    TRY_GOTO(forward_create(&e->f, m, p, e->kv, e->o.step_tokens + e->o.max_running, e->o.max_running,
                            e->o.context, LOGITS_SLICE, err));
    *out = e;
    e = NULL;
cleanup:
    engine_free(e);
    return st;
}

void engine_free(engine *e) {
    if (!e) return;
    forward_free(e->f);
    kv_pool_free(e->kv);
    mem_free(e->running);
    mem_free(e->spans);
    mem_free(e->span_job);
    mem_free(e->out_job);
    mem_free(e->out_position);
    mem_free(e->batch);
    mem_free(e->batch_logits);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

size_t engine_context(const engine *e) {
    return e->o.context;
}

kv_type engine_kv_type(const engine *e) {
    return e->o.kv_type;
}

/* ---- sequences -------------------------------------------------------------------------------------- */

status engine_seq_open(engine_seq **out, engine *e, const engine_seq_options *o, error *err) {
    (void)o;
    *out = NULL;
    status st = CHURON_OK;
    engine_seq *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "sequence", sizeof *s);
    s->e = e;
    s->tokens = mem_alloc(e->o.context * sizeof *s->tokens);
    if (!s->tokens) {
        st = error_no_memory(err, "sequence", e->o.context * sizeof *s->tokens);
        goto cleanup;
    }
    TRY_GOTO(kv_seq_open(&s->kv, e->o.context, err));
    pthread_mutex_lock(&e->lock);
    s->next = e->sequences;
    if (s->next) s->next->before = s;
    e->sequences = s;
    pthread_mutex_unlock(&e->lock);
    *out = s;
    s = NULL;
cleanup:
    if (s) {
        mem_free(s->tokens);
        mem_free(s);
    }
    return st;
}

void engine_seq_close(engine_seq *s) {
    if (!s) return;
    engine *e = s->e;
    pthread_mutex_lock(&e->lock);
    while (s->job) pthread_cond_wait(&e->changed, &e->lock);
    kv_seq_close(e->kv, &s->kv);
    if (s->next) s->next->before = s->before;
    *(s->before ? &s->before->next : &e->sequences) = s->next;
    pthread_cond_broadcast(&e->changed); /* its pages may be what a waiting job needs */
    pthread_mutex_unlock(&e->lock);
    mem_free(s->tokens);
    mem_free(s);
}

size_t engine_seq_length(const engine_seq *s) {
    return s->n_tokens;
}

const int32_t *engine_seq_tokens(const engine_seq *s) {
    return s->tokens;
}

static status check_idle(const engine_seq *s, error *err) {
    if (!s->job) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "sequence: expected no unfinished job, got one");
}

status engine_seq_append(engine_seq *s, const int32_t *ids, size_t n, error *err) {
    TRY(check_idle(s, err));
    if (n > s->e->o.context - s->n_tokens) {
        return error_set(err, CHURON_LIMIT, "context: expected at most %zu tokens, got %zu", s->e->o.context,
                         s->n_tokens + n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->e->m->config.n_vocab) {
            return error_set(err, CHURON_INVALID, "ids[%zu]: expected 0..%u, got %d", i,
                             s->e->m->config.n_vocab - 1, ids[i]);
        }
    }
    if (n) memcpy(s->tokens + s->n_tokens, ids, n * sizeof *ids);
    s->n_tokens += n;
    return CHURON_OK;
}

status engine_seq_truncate(engine_seq *s, size_t length, error *err) {
    TRY(check_idle(s, err));
    if (length > s->n_tokens) {
        return error_set(err, CHURON_INVALID, "length: expected at most %zu, got %zu", s->n_tokens, length);
    }
    s->n_tokens = length;
    pthread_mutex_lock(&s->e->lock);
    kv_seq_truncate(s->e->kv, &s->kv, length < s->kv.length ? length : s->kv.length);
    pthread_cond_broadcast(&s->e->changed);
    pthread_mutex_unlock(&s->e->lock);
    return CHURON_OK;
}

/* ---- jobs ------------------------------------------------------------------------------------------- */

static void job_destroy(engine_job *j) {
    sampler_free(j->sampler);
    mem_free(j->stop_ids);
    mem_free(j);
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
    size_t room = e->o.context - s->n_tokens;
    j->reserve = s->n_tokens + (j->o.max_tokens < room ? j->o.max_tokens : room);
    const size_t pages = (j->reserve + KV_PAGE - 1) / KV_PAGE;
    if (pages > kv_pool_pages(e->kv)) {
        return error_set(err, CHURON_LIMIT,
                         "KV cache: expected at most %zu tokens (prompt and answer), got %zu",
                         kv_pool_pages(e->kv) * KV_PAGE, j->reserve);
    }
    return CHURON_OK;
}

status engine_submit(engine_job **out, engine_seq *s, const engine_job_options *o, error *err) {
    *out = NULL;
    TRY(check_idle(s, err));
    engine *e = s->e;
    engine_job *j = mem_calloc(1, sizeof *j);
    if (!j) return error_no_memory(err, "job", sizeof *j);
    j->e = e;
    j->seq = s;
    j->o = *o;
    j->submitted = clock_seconds();
    status st = CHURON_OK;
    TRY_GOTO(job_prepare(j, err));
    pthread_mutex_lock(&e->lock);
    const size_t computed = s->kv.length;
    j->prompt_tokens = computed < s->n_tokens ? s->n_tokens - computed : 1;
    /* An idle engine takes any prompt: the bound is on what waits behind others. */
    if ((e->n_waiting > 0 || e->n_running >= e->o.max_running) &&
        e->waiting_tokens + j->prompt_tokens > e->o.max_queued_tokens) {
        st = error_set(err, CHURON_BUSY, "queue: expected at most %zu waiting tokens, got %zu more than fit",
                       e->o.max_queued_tokens, e->waiting_tokens + j->prompt_tokens - e->o.max_queued_tokens);
    } else if (e->stop) {
        st = error_set(err, CHURON_CANCELLED, "engine: it is stopping");
    } else {
        *out = j; /* before anybody can call back */
        s->job = j;
        if (e->last) {
            e->last->next = j;
        } else {
            e->first = j;
        }
        e->last = j;
        e->n_waiting++;
        e->waiting_tokens += j->prompt_tokens;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
cleanup:
    if (st != CHURON_OK) job_destroy(j);
    return st;
}

void engine_cancel(engine_job *j) {
    atomic_store_explicit(&j->cancelled, true, memory_order_relaxed);
    pthread_mutex_lock(&j->e->lock);
    pthread_cond_broadcast(&j->e->changed); /* a sleeping service must look */
    pthread_mutex_unlock(&j->e->lock);
}

engine_job_stats engine_job_stats_get(const engine_job *j) {
    engine_job_stats s = {.prompt_tokens = j->prompt_tokens, .tokens = j->tokens};
    double end = j->ended != 0.0 ? j->ended : clock_seconds();
    double started = j->started != 0.0 ? j->started : end;
    double first = j->first_token != 0.0 ? j->first_token : end;
    s.queue_s = started - j->submitted;
    s.prefill_s = first - started;
    s.decode_s = end - first;
    return s;
}

void engine_job_free(engine_job *j) {
    if (!j) return;
    pthread_mutex_lock(&j->e->lock);
    while (j->finish == ENGINE_RUNNING) pthread_cond_wait(&j->e->changed, &j->e->lock);
    pthread_mutex_unlock(&j->e->lock);
    job_destroy(j);
}

/* ---- one step --------------------------------------------------------------------------------------- */

static bool is_cancelled(const engine_job *j) {
    return atomic_load_explicit(&j->cancelled, memory_order_relaxed);
}

/* With the lock: takes the first waiting job out. */
static engine_job *take_first(engine *e) {
    engine_job *j = e->first;
    e->first = j->next;
    if (!e->first) e->last = NULL;
    j->next = NULL;
    e->n_waiting--;
    e->waiting_tokens -= j->prompt_tokens;
    return j;
}

/* With the lock: marks the end and gives back what the job held. Its on_end is the stepper's to call first.
 */
static void publish_end(engine *e, engine_job *j) {
    engine_seq *s = j->seq;
    kv_seq_truncate(e->kv, &s->kv, s->kv.length); /* pages reserved for an answer that ended earlier */
    s->job = NULL;
    j->running = false;
    j->ended = clock_seconds();
    j->finish = j->ending;
}

/* Calls on_end outside the lock, then publishes. After that the job may be freed by its owner at any time. */
static void end_job(engine *e, engine_job *j, engine_finish finish) {
    j->ending = finish;
    j->ended = clock_seconds();
    if (j->o.on_end) j->o.on_end(j->o.user, finish, finish == ENGINE_FAILED ? &j->err : NULL);
    pthread_mutex_lock(&e->lock);
    publish_end(e, j);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* With the lock: the keys and values of a sequence that is not in a step are a cache: they can be computed
 * again from its tokens. Takes them, one sequence after the other, until `pages` are free; nothing if that
 * many cannot be had without the running ones'. */
static void reclaim(engine *e, const engine_seq *except, size_t pages) {
    size_t could_be_free = kv_pool_free_pages(e->kv);
    for (const engine_seq *s = e->sequences; s; s = s->next) {
        if (s != except && !(s->job && s->job->running)) could_be_free += s->kv.n_pages;
    }
    if (could_be_free < pages) return;
    for (engine_seq *s = e->sequences; s && kv_pool_free_pages(e->kv) < pages; s = s->next) {
        if (s != except && !(s->job && s->job->running)) kv_seq_truncate(e->kv, &s->kv, 0);
    }
}

/* With the lock: starts the first waiting job if a place and its pages are free. *failed: its pages cannot be
 * had although nothing runs (engine_submit refuses what the pool can never hold, so this is a defect). */
static bool start_next(engine *e, engine_job **failed) {
    *failed = NULL;
    if (!e->first || e->n_running >= e->o.max_running) return false;
    engine_job *j = e->first;
    engine_seq *s = j->seq;
    /* A sequence whose every token is computed has no logits any more: compute the last one again. */
    if (s->kv.length >= s->n_tokens) kv_seq_truncate(e->kv, &s->kv, s->n_tokens - 1);
    const size_t pages = (j->reserve + KV_PAGE - 1) / KV_PAGE;
    if (pages > s->kv.n_pages) reclaim(e, s, pages - s->kv.n_pages);
    if (kv_seq_reserve(e->kv, &s->kv, j->reserve, &j->err) != CHURON_OK) {
        if (e->n_running == 0) *failed = take_first(e);
        return false;
    }
    take_first(e);
    j->prompt_tokens = s->n_tokens - s->kv.length; /* what was reclaimed while it waited counts again */
    j->running = true;
    j->started = clock_seconds();
    e->running[e->n_running++] = j;
    return true;
}

static size_t pending(const engine_job *j) {
    return j->seq->n_tokens - j->seq->kv.length;
}

static void add_span(engine *e, engine_job *j, size_t n) {
    engine_seq *s = j->seq;
    const bool last = n == pending(j);
    size_t outputs = j->o.all_logits ? n : last ? 1 : 0;
    e->spans[e->n_spans] = (span){.kv = &s->kv,
                                  .tokens = s->tokens + s->kv.length,
                                  .n = n,
                                  .position = s->kv.length,
                                  .n_outputs = outputs};
    e->span_job[e->n_spans++] = j;
    j->wants_output = last;
    for (size_t i = 0; i < outputs; i++) {
        e->out_job[e->n_outputs] = j;
        e->out_position[e->n_outputs++] = s->kv.length + n - outputs + i;
    }
}

/* Decode rows first, then prompt chunks in order of arrival until the budget is spent. While somebody
 * decodes, chunks are a quarter as long: a prompt that arrives must not stop the others' answers for long. */
static void plan_step(engine *e) {
    e->n_spans = e->n_outputs = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        if (pending(e->running[i]) == 1) add_span(e, e->running[i], 1);
    }
    size_t budget = e->n_spans > 0 ? (e->o.step_tokens + 3) / 4 : e->o.step_tokens;
    for (size_t i = 0; i < e->n_running && budget > 0; i++) {
        size_t n = pending(e->running[i]);
        if (n == 1) continue;
        if (n > budget) n = budget;
        add_span(e, e->running[i], n);
        budget -= n;
    }
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
    s->tokens[s->n_tokens++] = j->out.id;
    sampler_accept(j->sampler, j->out.id);
    engine_verdict verdict = j->o.on_token ? j->o.on_token(j->o.user, &j->out) : ENGINE_GO_ON;
    if (verdict == ENGINE_HALT || is_stop_id(j, j->out.id)) {
        j->ending = ENGINE_STOP;
    } else if (j->tokens >= j->o.max_tokens || s->n_tokens >= j->e->o.context) {
        j->ending = ENGINE_LENGTH;
    }
}

/* Rows of logits in slices, sampled by all threads, delivered in order. Returns the number of new tokens. */
static size_t finish_outputs(engine *e) {
    size_t new_tokens = 0;
    for (size_t from = 0; from < e->n_outputs; from += LOGITS_SLICE) {
        size_t n = e->n_outputs - from < LOGITS_SLICE ? e->n_outputs - from : LOGITS_SLICE;
        float *logits = forward_logits(e->f, from, n);
        e->n_batch = 0;
        for (size_t i = 0; i < n; i++) {
            engine_job *j = e->out_job[from + i];
            float *row = logits + i * e->m->config.n_vocab;
            const size_t position = e->out_position[from + i];
            if (j->o.on_logits) j->o.on_logits(j->o.user, position, row);
            if (!j->wants_output || position + 1 != j->seq->n_tokens) continue;
            e->batch[e->n_batch] = j;
            e->batch_logits[e->n_batch++] = row;
            j->sampled = false;
        }
        size_t to_sample = 0;
        for (size_t i = 0; i < e->n_batch; i++) to_sample += e->batch[i]->o.max_tokens > 0;
        if (to_sample == e->n_batch && to_sample > 1) {
            pool_run(e->p, sample_member, e);
        } else {
            for (size_t i = 0; i < e->n_batch; i++) {
                engine_job *j = e->batch[i];
                if (j->o.max_tokens == 0) continue;
                j->sampled = sampler_next(j->sampler, e->m->k, e->batch_logits[i], j->tokens, &j->out,
                                          &j->err) == CHURON_OK;
            }
        }
        for (size_t i = 0; i < e->n_batch; i++) {
            new_tokens += e->batch[i]->sampled;
            deliver(e->batch[i]);
        }
    }
    return new_tokens;
}

/* With the lock: cancelled jobs of the waiting list, as a list. */
static engine_job *take_cancelled(engine *e) {
    engine_job *taken = NULL, **at = &e->first, *before = NULL;
    while (*at) {
        engine_job *j = *at;
        if (!is_cancelled(j) && !e->stop) {
            before = j;
            at = &j->next;
            continue;
        }
        *at = j->next;
        if (e->last == j) e->last = before;
        e->n_waiting--;
        e->waiting_tokens -= j->prompt_tokens;
        j->next = taken;
        taken = j;
    }
    return taken;
}

/* Ends running jobs that were cancelled or decided to end; keeps the others in order. */
static void sweep_running(engine *e, bool all) {
    size_t kept = 0, n = e->n_running;
    for (size_t i = 0; i < n; i++) {
        engine_job *j = e->running[i];
        if (j->ending == ENGINE_RUNNING && (all || is_cancelled(j))) j->ending = ENGINE_CANCELLED;
        if (j->ending == ENGINE_RUNNING) {
            e->running[kept++] = j;
        } else {
            end_job(e, j, j->ending);
        }
    }
    pthread_mutex_lock(&e->lock);
    e->n_running = kept;
    pthread_mutex_unlock(&e->lock);
}

/* One step by the thread that holds `stepping`; the lock is not held. Returns false if there was nothing. */
static bool step(engine *e) {
    pthread_mutex_lock(&e->lock);
    const bool stop = e->stop;
    engine_job *cancelled = take_cancelled(e);
    pthread_mutex_unlock(&e->lock);
    bool did = cancelled != NULL;
    while (cancelled) {
        engine_job *next = cancelled->next;
        end_job(e, cancelled, ENGINE_CANCELLED);
        cancelled = next;
    }
    sweep_running(e, stop);

    engine_job *failed;
    pthread_mutex_lock(&e->lock);
    while (start_next(e, &failed)) {}
    pthread_mutex_unlock(&e->lock);
    if (failed) {
        end_job(e, failed, ENGINE_FAILED);
        did = true;
    }
    if (e->n_running == 0) return did;

    plan_step(e);
    forward_run(e->f, e->spans, e->n_spans);
    size_t prompt = 0;
    for (size_t i = 0; i < e->n_spans; i++) prompt += e->span_job[i]->tokens == 0 ? e->spans[i].n : 0;
    const size_t generated = finish_outputs(e);
    pthread_mutex_lock(&e->lock);
    e->steps++;
    e->prompt_tokens += prompt;
    e->generated_tokens += generated;
    pthread_mutex_unlock(&e->lock);
    sweep_running(e, false);
    return true;
}

/* ---- who steps -------------------------------------------------------------------------------------- */

static void step_as_driver(engine *e) {
    e->stepping = true;
    pthread_mutex_unlock(&e->lock);
    (void)step(e);
    pthread_mutex_lock(&e->lock);
    e->stepping = false;
    pthread_cond_broadcast(&e->changed);
}

engine_finish engine_wait_step(engine_job *j) {
    engine *e = j->e;
    pthread_mutex_lock(&e->lock);
    const uint64_t before = e->steps;
    while (j->finish == ENGINE_RUNNING && e->steps == before) {
        if (e->stepping || e->serving) {
            pthread_cond_wait(&e->changed, &e->lock);
        } else {
            step_as_driver(e);
            break;
        }
    }
    engine_finish finish = j->finish;
    pthread_mutex_unlock(&e->lock);
    return finish;
}

engine_finish engine_wait(engine_job *j) {
    engine *e = j->e;
    pthread_mutex_lock(&e->lock);
    while (j->finish == ENGINE_RUNNING) {
        if (e->stepping || e->serving) {
            pthread_cond_wait(&e->changed, &e->lock);
        } else {
            step_as_driver(e);
        }
    }
    engine_finish finish = j->finish;
    pthread_mutex_unlock(&e->lock);
    return finish;
}

/* With the lock: is there anything that a step would do? */
static bool has_work(const engine *e) {
    return e->first || e->n_running > 0;
}

void engine_run(engine *e, void (*after_step)(void *user), void *user) {
    pthread_mutex_lock(&e->lock);
    e->serving = true;
    while (e->stepping) pthread_cond_wait(&e->changed, &e->lock);
    while (!e->stop || has_work(e)) {
        if (!has_work(e)) {
            pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        step_as_driver(e);
        if (after_step) {
            pthread_mutex_unlock(&e->lock);
            after_step(user);
            pthread_mutex_lock(&e->lock);
        }
    }
    e->serving = false;
    e->stop = false;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void engine_stop(engine *e) {
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void engine_load_get(engine *e, engine_load *out) {
    pthread_mutex_lock(&e->lock);
    *out = (engine_load){.running = e->n_running,
                         .waiting = e->n_waiting,
                         .waiting_tokens = e->waiting_tokens,
                         .kv_pages = kv_pool_pages(e->kv),
                         .kv_pages_free = kv_pool_free_pages(e->kv),
                         .steps = e->steps,
                         .prompt_tokens = e->prompt_tokens,
                         .generated_tokens = e->generated_tokens};
    pthread_mutex_unlock(&e->lock);
}
