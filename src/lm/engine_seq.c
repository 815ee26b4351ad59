/* engine_seq.c: sequences: tokens that outlive a job. Their keys and values do so in the prefix cache. */
#include "base/mem.h"
#include "lm/engine_part.h"

#include <string.h>

enum { NAME_MAX_BYTES = 256 };

static status check_name(const char *field, const char *value, error *err) {
    const size_t n = value ? strnlen(value, NAME_MAX_BYTES + 1) : 0;
    if (n <= NAME_MAX_BYTES) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected at most %d bytes, got more", field, NAME_MAX_BYTES);
}

static void seq_destroy(engine_seq *s) {
    engine *e = s->e;
    pthread_mutex_lock(&e->lock);
    sched_tenant_put(s->tenant);
    prefix_space_close(kv_cache_prefix(e->kv), s->space);
    if (s->kv.pages) kv_seq_close(e->kv, &s->kv);
    e->n_sequences--;
    pthread_mutex_unlock(&e->lock);
    ngram_free(s->lookup);
    mem_free(s->tokens);
    mem_free(s);
}

/* Without tenant and space. */
static status seq_create(engine_seq **out, engine *e, error *err) {
    *out = NULL;
    engine_seq *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "sequence", sizeof *s);
    s->e = e;
    pthread_mutex_lock(&e->lock);
    e->n_sequences++;
    pthread_mutex_unlock(&e->lock);
    s->tokens = mem_alloc(e->o.context * sizeof *s->tokens);
    status st = s->tokens ? kv_seq_open(&s->kv, e->o.context, err)
                          : error_no_memory(err, "sequence", e->o.context * sizeof *s->tokens);
    if (st != CHURON_OK) {
        seq_destroy(s);
        return st;
    }
    *out = s;
    return CHURON_OK;
}

static status open_space(engine_seq *s, const engine_seq_options *o, error *err) {
    engine *e = s->e;
    prefix_cache *c = kv_cache_prefix(e->kv);
    const char *tenant = o->tenant ? o->tenant : "";
    TRY(sched_tenant_get(&s->tenant, e->sched, tenant, err));
    if (e->o.no_prefix_cache) return prefix_space_open_alone(&s->space, c, err);
    return prefix_space_open(&s->space, c, o->shared ? NULL : tenant, o->salt ? o->salt : "", err);
}

status engine_seq_open(engine_seq **out, engine *e, const engine_seq_options *o, error *err) {
    static const engine_seq_options none;
    *out = NULL;
    if (!o) o = &none;
    TRY(check_name("tenant", o->tenant, err));
    TRY(check_name("salt", o->salt, err));
    engine_seq *s;
    TRY(seq_create(&s, e, err));
    pthread_mutex_lock(&e->lock);
    status st = open_space(s, o, err);
    pthread_mutex_unlock(&e->lock);
    if (st != CHURON_OK) {
        seq_destroy(s);
        return st;
    }
    *out = s;
    return CHURON_OK;
}

status engine_seq_fork(engine_seq **out, engine_seq *of, error *err) {
    *out = NULL;
    engine *e = of->e;
    engine_seq *s;
    TRY(seq_create(&s, e, err));
    pthread_mutex_lock(&e->lock);
    s->tenant = of->tenant;
    s->tenant->refs++;
    s->space = prefix_space_ref(of->space);
    /* While a job runs n_tokens is the stepping thread's: volatile, so that no compiler reads it all the
     * same. */
    s->n_tokens = of->job ? of->n_public : *(const volatile size_t *)&of->n_tokens;
    s->own = of->own;
    memcpy(s->tokens, of->tokens, s->n_tokens * sizeof *s->tokens);
    pthread_mutex_unlock(&e->lock);
    *out = s;
    return CHURON_OK;
}

void engine_seq_close(engine_seq *s) {
    if (!s) return;
    pthread_mutex_lock(&s->e->lock);
    while (s->job) pthread_cond_wait(&s->e->changed, &s->e->lock);
    pthread_mutex_unlock(&s->e->lock);
    seq_destroy(s);
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
    if (s->lookup) ngram_truncate(s->lookup, length);
    s->n_tokens = length;
    if (s->own > length) s->own = length;
    return CHURON_OK;
}
