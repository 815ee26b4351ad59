/* engine.c: creation, who steps, and what the engine says of its load. See engine_part.h. */
#include "base/mem.h"
#include "lm/engine_part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    if (e->o.inter_token_target == 0) e->o.inter_token_target = 0.05;
    if (!(e->o.inter_token_target > 0 && e->o.inter_token_target <= 3600)) {
        return error_set(err, CHURON_INVALID, "inter_token_target: expected over 0 and at most 3600, got %g",
                         o->inter_token_target);
    }
    if (e->o.max_running > 4096) {
        return error_set(err, CHURON_INVALID, "max_running: expected 1..4096, got %zu", o->max_running);
    }
    if (e->o.draft_tokens > DRAFT_MAX) {
        return error_set(err, CHURON_INVALID, "draft_tokens: expected 1..%d, got %zu", (int)DRAFT_MAX,
                         o->draft_tokens);
    }
    if (!e->o.draft_tokens) e->o.draft_tokens = 8;
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
    *n_pages = (size_t)(e->o.kv_memory || want > limit ? limit : want);
    return CHURON_OK;
}

static status allocate_step(engine *e, error *err) {
    const size_t n = e->o.max_running, rows = e->o.step_tokens + n;
    e->spans = mem_calloc(n, sizeof *e->spans);
    e->span_job = mem_calloc(n, sizeof *e->span_job);
    e->out_job = mem_calloc(rows, sizeof *e->out_job);
    e->out_position = mem_calloc(rows, sizeof *e->out_position);
    e->batch = mem_calloc(LOGITS_SLICE, sizeof *e->batch);
    e->batch_logits = mem_calloc(LOGITS_SLICE, sizeof *e->batch_logits);
    bool ok = e->spans && e->span_job && e->out_job && e->out_position && e->batch && e->batch_logits;
    return ok ? CHURON_OK : error_no_memory(err, "engine", rows * sizeof(void *));
}

static status create_scheduler(engine *e, error *err) {
    const sched_options o = {
        .places = e->o.max_running, .step_tokens = e->o.step_tokens, .target = e->o.inter_token_target};
    const sched_memory memory = engine_memory(e);
    TRY(sched_create(&e->sched, &o, &memory, err));
    for (size_t i = 0; i < e->o.n_tenants; i++) {
        TRY(sched_tenant_weight(e->sched, e->o.tenants[i].name, e->o.tenants[i].weight, err));
    }
    return CHURON_OK;
}

static status create_guesser(engine *e, error *err) {
    const lm_config *c = &e->o.draft->config;
    if (c->n_vocab != e->m->config.n_vocab) {
        return error_set(err, CHURON_INVALID,
                         "draft: expected a model with the same vocabulary (%u tokens), got %u tokens",
                         e->m->config.n_vocab, c->n_vocab);
    }
    const draft_model_options o = {.kv_type = e->o.kv_type,
                                   .context = e->o.context,
                                   .max_running = e->o.max_running,
                                   .step_tokens = e->o.step_tokens,
                                   .kv_memory = (e->o.kv_memory ? e->o.kv_memory : free_memory() / 2) / 4};
    return draft_model_create(&e->guesser, e->o.draft, e->p, &o, err);
}

status engine_create(engine **out, const lm_model *m, pool *p, const engine_options *o, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    engine *e = mem_calloc(1, sizeof *e);
    if (!e) return error_no_memory(err, "engine", sizeof *e);
    e->m = m;
    e->p = p;
    e->next_deadline = INFINITY;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    size_t n_pages = 0;
    TRY_GOTO(settle_options(e, o, err));
    TRY_GOTO(size_kv(e, &n_pages, err));
    TRY_GOTO(allocate_step(e, err));
    TRY_GOTO(kv_cache_create(&e->kv, &m->config, e->o.kv_type, n_pages, err));
    TRY_GOTO(create_scheduler(e, err));
    TRY_GOTO(forward_create(&e->f, m, p, kv_cache_pool(e->kv), e->o.step_tokens + e->o.max_running,
                            e->o.max_running, e->o.context, LOGITS_SLICE, err));
    if (e->o.draft && !e->o.no_speculation) TRY_GOTO(create_guesser(e, err));
    *out = e;
    e = NULL;
cleanup:
    engine_free(e);
    return st;
}

void engine_free(engine *e) {
    if (!e) return;
    draft_model_free(e->guesser);
    forward_free(e->f);
    sched_free(e->sched);
    kv_cache_free(e->kv);
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

/* ---- who steps -------------------------------------------------------------------------------------- */

static void step_as_driver(engine *e) {
    e->stepping = true;
    pthread_mutex_unlock(&e->lock);
    (void)engine_step(e);
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

void engine_run(engine *e, void (*after_step)(void *user), void *user) {
    pthread_mutex_lock(&e->lock);
    e->serving = true;
    while (e->stepping) pthread_cond_wait(&e->changed, &e->lock);
    while (!e->stop || engine_has_work(e)) {
        if (!engine_has_work(e)) {
            if (engine_warm(e)) continue;
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

/* ---- load ------------------------------------------------------------------------------------------- */

static size_t wasted(const engine *e) {
    size_t n, places = 0;
    sched_job *const *running = sched_running(e->sched, &n);
    for (size_t i = 0; i < n; i++) {
        const sched_job *j = running[i];
        if (job_of_const(j)->beams && job_of_const(j)->beams->branched) {
            places += engine_beams_wasted(job_of_const(j));
            continue;
        }
        places += job_of_const(j)->seq->kv.n_pages * KV_PAGE - (j->computed + j->planned);
    }
    return places;
}

void engine_load_get(engine *e, engine_load *out) {
    pthread_mutex_lock(&e->lock);
    *out = (engine_load){.waiting = sched_n_waiting(e->sched),
                         .waiting_tokens = sched_waiting_tokens(e->sched),
                         .kv_pages = kv_cache_pages(e->kv),
                         .kv_pages_free = kv_cache_n_available(e->kv),
                         .kv_pages_cached = e->o.no_prefix_cache ? 0 : kv_cache_n_kept(e->kv),
                         .kv_page_tokens = KV_PAGE,
                         .kv_tokens_wasted = wasted(e),
                         .steps = e->steps,
                         .prompt_tokens = e->prompt_tokens,
                         .generated_tokens = e->generated_tokens,
                         .preemptions = sched_preemptions(e->sched),
                         .cache_queries = e->cache_queries,
                         .cache_hits = e->cache_hits,
                         .cache_evictions = e->o.no_prefix_cache ? 0 : kv_cache_evictions(e->kv),
                         .drafted = e->drafted,
                         .accepted = e->accepted};
    (void)sched_running(e->sched, &out->running);
    pthread_mutex_unlock(&e->lock);
}

static engine_tenant_load load_of(const sched_tenant *t) {
    engine_tenant_load l = {.running = t->running,
                            .waiting = t->waiting,
                            .waiting_tokens = t->waiting_tokens,
                            .prompt_tokens = t->prompt_tokens,
                            .generated_tokens = t->generated_tokens};
    memcpy(l.name, t->name, strnlen(t->name, sizeof l.name - 1));
    return l;
}

size_t engine_tenants_get(engine *e, engine_tenant_load *out, size_t capacity) {
    size_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (const sched_tenant *t = sched_tenants(e->sched); t; t = t->next) {
        if (!t->asked) continue;
        if (n < capacity) out[n] = load_of(t);
        n++;
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

bool engine_tenant_get(engine *e, const char *name, engine_tenant_load *out) {
    *out = (engine_tenant_load){0};
    pthread_mutex_lock(&e->lock);
    const sched_tenant *t = sched_tenants(e->sched);
    while (t && strcmp(t->name, name) != 0) t = t->next;
    const bool found = t && t->asked;
    if (found) *out = load_of(t);
    pthread_mutex_unlock(&e->lock);
    return found;
}
