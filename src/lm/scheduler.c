/* scheduler.c: see scheduler.h. */
#include "lm/scheduler.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct scheduler {
    sched_options o;
    sched_memory m;
    sched_tenant *tenants;
    size_t n_tenants;
    sched_job **running; /* [places], most urgent first */
    sched_job **plan;    /* [places] */
    size_t n_running, n_plan, places_used, n_waiting, waiting_tokens;
    uint64_t arrivals, step, preemptions;
    sched_job *promoted;
    uint64_t last_promotion;
    double token_cost; /* seconds, of steps with chunks; 0: not known */
    double chunk;      /* tokens beside those that decode; 0: not known */
    double margin;     /* seconds that a step is planned to stay below the target */
    size_t decoding;   /* rows of this step */
    size_t budget;     /* tokens of its chunks */
};

/* ---- creation, tenants ------------------------------------------------------------------------------ */

status sched_create(scheduler **out, const sched_options *o, const sched_memory *m, error *err) {
    *out = NULL;
    scheduler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "scheduler", sizeof *s);
    s->o = *o;
    s->m = *m;
    s->running = mem_calloc(o->places, sizeof *s->running);
    s->plan = mem_calloc(o->places, sizeof *s->plan);
    if (!s->running || !s->plan) {
        sched_free(s);
        return error_no_memory(err, "scheduler", 2 * o->places * sizeof *s->plan);
    }
    *out = s;
    return CHURON_OK;
}

static void free_tenant(sched_tenant *t) {
    mem_free(t->name);
    mem_free(t);
}

void sched_free(scheduler *s) {
    if (!s) return;
    while (s->tenants) {
        sched_tenant *t = s->tenants;
        s->tenants = t->next;
        free_tenant(t);
    }
    mem_free(s->running);
    mem_free(s->plan);
    mem_free(s);
}

static void forget_one(scheduler *s) {
    for (sched_tenant **at = &s->tenants; *at; at = &(*at)->next) {
        sched_tenant *t = *at;
        if (t->refs > 0 || t->keep) continue;
        *at = t->next;
        s->n_tenants--;
        free_tenant(t);
        return;
    }
}

status sched_tenant_get(sched_tenant **out, scheduler *s, const char *name, error *err) {
    *out = NULL;
    sched_tenant *t = s->tenants;
    while (t && strcmp(t->name, name) != 0) t = t->next;
    if (!t) {
        t = mem_calloc(1, sizeof *t);
        if (!t) return error_no_memory(err, "tenant", sizeof *t);
        t->name = mem_strdup(name);
        if (!t->name) {
            mem_free(t);
            return error_no_memory(err, "tenant", strlen(name) + 1);
        }
        t->weight = 1;
        if (s->n_tenants >= SCHED_MAX_TENANTS) forget_one(s);
        t->next = s->tenants;
        s->tenants = t;
        s->n_tenants++;
    }
    t->refs++;
    *out = t;
    return CHURON_OK;
}

void sched_tenant_put(sched_tenant *t) {
    if (t) t->refs--;
}

sched_tenant *sched_tenants(scheduler *s) {
    return s->tenants;
}

status sched_tenant_weight(scheduler *s, const char *name, double weight, error *err) {
    if (!(weight > 0 && weight <= 1e9)) {
        return error_set(err, CHURON_INVALID,
                         "weight of tenant \"%s\": expected over 0 and at most 1e9, got %g", name, weight);
    }
    sched_tenant *t;
    TRY(sched_tenant_get(&t, s, name, err));
    t->weight = weight;
    t->keep = true;
    sched_tenant_put(t);
    return CHURON_OK;
}

/* ---- order ------------------------------------------------------------------------------------------ */

/* By urgency: negative if a goes first. */
static int compare_urgency(const sched_job *a, const sched_job *b) {
    if (a->promoted != b->promoted) return a->promoted ? -1 : 1;
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    return a->arrival < b->arrival ? -1 : 1;
}

/* May a take what b holds because it matters more? Arrival is no reason. */
static bool outranks(const sched_job *a, const sched_job *b) {
    if (a->promoted != b->promoted) return a->promoted;
    return a->priority < b->priority;
}

/* In the order in which jobs start and prompts are computed: the least served tenant between. */
static bool goes_before(const sched_job *a, const sched_job *b) {
    if (a->promoted == b->promoted && a->priority == b->priority && a->tenant->served != b->tenant->served)
        return a->tenant->served < b->tenant->served;
    return compare_urgency(a, b) < 0;
}

static void charge(sched_job *j, size_t tokens) {
    if (tokens <= j->charged) return;
    j->tenant->served += (double)(tokens - j->charged) / j->tenant->weight;
    j->charged = tokens;
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

static bool never_started(const sched_job *j) {
    return j->preemptions == 0;
}

static void queue(scheduler *s, sched_job *j) {
    sched_tenant *t = j->tenant;
    sched_job *after = t->last;
    while (after && compare_urgency(j, after) < 0) after = after->before;
    j->before = after;
    j->next = after ? after->next : t->first;
    *(j->next ? &j->next->before : &t->last) = j;
    *(after ? &after->next : &t->first) = j;
    t->waiting++;
    s->n_waiting++;
    if (never_started(j)) {
        t->waiting_tokens += j->length;
        s->waiting_tokens += j->length;
    }
}

static void unqueue(scheduler *s, sched_job *j) {
    sched_tenant *t = j->tenant;
    *(j->next ? &j->next->before : &t->last) = j->before;
    *(j->before ? &j->before->next : &t->first) = j->next;
    j->next = j->before = NULL;
    t->waiting--;
    s->n_waiting--;
    if (never_started(j)) {
        t->waiting_tokens -= j->length;
        s->waiting_tokens -= j->length;
    }
}

/* A tenant that begins to wait joins those that do. */
static void join(const scheduler *s, sched_tenant *t) {
    if (t->waiting > 0) return;
    const sched_tenant *least = NULL;
    for (const sched_tenant *o = s->tenants; o; o = o->next) {
        if (o->waiting + o->running > 0 && o != t && (!least || o->served < least->served)) least = o;
    }
    if (!least) return;
    if (t->served < least->served) t->served = least->served;
    const double most = least->served + SCHED_CREDIT;
    if (t->served > most) t->served = most;
}

void sched_submit(scheduler *s, sched_job *j) {
    j->arrival = ++s->arrivals;
    j->running = j->promoted = false;
    j->preemptions = j->planned = j->charged = j->passed = 0;
    j->tried = 0;
    j->last_step = s->step;
    j->tenant->asked = true;
    join(s, j->tenant);
    queue(s, j);
}

/* ---- running ---------------------------------------------------------------------------------------- */

static void insert_running(scheduler *s, sched_job *j) {
    size_t at = s->n_running++;
    for (; at > 0 && compare_urgency(j, s->running[at - 1]) < 0; at--) s->running[at] = s->running[at - 1];
    s->running[at] = j;
}

static void remove_running(scheduler *s, sched_job *j) {
    size_t at = 0;
    while (s->running[at] != j) at++;
    s->n_running--;
    for (; at < s->n_running; at++) s->running[at] = s->running[at + 1];
}

static void leave(scheduler *s, sched_job *j) {
    remove_running(s, j);
    s->places_used -= j->rows;
    j->tenant->running--;
    j->running = false;
    j->planned = 0;
    s->m.release(s->m.ctx, j);
}

static void preempt(scheduler *s, sched_job *j) {
    leave(s, j);
    j->preemptions++;
    s->preemptions++;
    queue(s, j);
}

void sched_end(scheduler *s, sched_job *j) {
    if (j->running) {
        leave(s, j);
    } else {
        unqueue(s, j);
    }
    if (s->promoted == j) s->promoted = NULL;
}

/* ---- starting --------------------------------------------------------------------------------------- */

/* The oldest that has had nothing for too long becomes the most urgent of all. */
static void promote(scheduler *s) {
    if (s->promoted || s->step < s->last_promotion + SCHED_PATIENCE) return;
    sched_job *oldest = NULL;
    for (sched_tenant *t = s->tenants; t; t = t->next) {
        for (sched_job *j = t->first; j; j = j->next) {
            if (s->step > j->last_step + SCHED_PATIENCE && (!oldest || j->arrival < oldest->arrival))
                oldest = j;
        }
    }
    for (size_t i = 0; i < s->n_running; i++) {
        sched_job *j = s->running[i];
        if (s->step > j->last_step + SCHED_PATIENCE && (!oldest || j->arrival < oldest->arrival)) oldest = j;
    }
    /* Nobody is that old: no need to look again before somebody can be. */
    s->last_promotion = s->step;
    if (!oldest) {
        s->last_promotion -= SCHED_PATIENCE - SCHED_PATIENCE / 16;
        return;
    }
    s->promoted = oldest;
    if (oldest->running) {
        remove_running(s, oldest);
        oldest->promoted = true;
        insert_running(s, oldest);
    } else {
        unqueue(s, oldest);
        oldest->promoted = true;
        queue(s, oldest);
    }
}

/* The next to start that was not tried in this step, or NULL. head: one that is blocked; only its equals go
 * past it. */
static sched_job *next_waiting(scheduler *s, const sched_job *head) {
    sched_job *best = NULL;
    for (sched_tenant *t = s->tenants; t; t = t->next) {
        if (t->placeless == s->step) continue;
        for (sched_job *j = t->first; j; j = j->next) {
            if (best && !goes_before(j, best)) break;
            if (head && outranks(head, j)) break;
            if (j->tried == s->step || s->m.waits(s->m.ctx, j)) continue;
            best = j;
            break;
        }
    }
    return best;
}

/* Pages that those who run will need for the tokens they have. */
static size_t promised(const scheduler *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        n += s->m.missing(s->m.ctx, s->running[i], s->running[i]->length);
    }
    return n;
}

static bool fits(const scheduler *s, const sched_job *j) {
    return s->m.missing(s->m.ctx, j, j->length) + promised(s) + s->n_running <= s->m.available(s->m.ctx);
}

static void start(scheduler *s, sched_job *j) {
    unqueue(s, j);
    j->running = true;
    j->tenant->running++;
    s->places_used += j->rows;
    insert_running(s, j);
    s->m.started(s->m.ctx, j);
    if (j->charged < j->computed) j->charged = j->computed; /* what was found costs nothing */
    charge(j, j->length);
}

static bool try_start(scheduler *s, sched_job *j) {
    s->m.adopt(s->m.ctx, j);
    if (fits(s, j)) {
        start(s, j);
        return true;
    }
    s->m.release(s->m.ctx, j);
    return false;
}

static sched_job *least_urgent(const scheduler *s) {
    return s->n_running > 0 ? s->running[s->n_running - 1] : NULL;
}

/* Places of its own priority that are a tenant's share; all who wait or run count. */
static double share(const scheduler *s, const sched_tenant *t) {
    double all = 0;
    for (const sched_tenant *o = s->tenants; o; o = o->next) {
        if (o->waiting + o->running > 0) all += o->weight;
    }
    return (double)s->o.places * t->weight / all;
}

static size_t places_of(const scheduler *s, const sched_tenant *t) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_running; i++) n += s->running[i]->tenant == t ? s->running[i]->rows : 0;
    return n;
}

/* Whom a waiting job may put off its place: the least urgent if it outranks it; else, if its tenant stays
 * within its share with it, the latest of its priority whose tenant stays at its share or over it without, if
 * that gives it pages enough. */
static sched_job *who_yields(const scheduler *s, const sched_job *j) {
    sched_job *last = least_urgent(s);
    if (!last || outranks(j, last)) return last;
    if ((double)(places_of(s, j->tenant) + j->rows) > share(s, j->tenant)) return NULL;
    const size_t need = s->m.missing(s->m.ctx, j, j->length) + promised(s) + s->n_running;
    for (size_t i = s->n_running; i-- > 0;) {
        sched_job *v = s->running[i];
        if (v->promoted || v->priority != j->priority || v->tenant == j->tenant) continue;
        const double left = (double)places_of(s, v->tenant) - (double)v->rows;
        if (left < share(s, v->tenant)) continue;
        if (need <= s->m.available(s->m.ctx) + s->m.held(s->m.ctx, v)) return v;
    }
    return NULL;
}

static bool make_places(scheduler *s, const sched_job *j) {
    while (s->places_used + j->rows > s->o.places) {
        sched_job *v = who_yields(s, j);
        if (!v) return false;
        preempt(s, v);
    }
    return true;
}

/* Could the job start if all that it outranks gave their pages? */
static bool could_fit(const scheduler *s, const sched_job *j) {
    size_t pages = s->m.available(s->m.ctx), left = 0;
    size_t need = s->m.missing(s->m.ctx, j, j->length);
    for (size_t i = 0; i < s->n_running; i++) {
        const sched_job *v = s->running[i];
        if (outranks(j, v)) {
            pages += s->m.held(s->m.ctx, v);
        } else {
            need += s->m.missing(s->m.ctx, v, v->length);
            left++;
        }
    }
    return need + left <= pages;
}

static bool start_over_others(scheduler *s, sched_job *j) {
    if (try_start(s, j)) return true;
    if (!could_fit(s, j)) return false;
    while (s->n_running > 0 && outranks(j, least_urgent(s))) {
        preempt(s, least_urgent(s));
        if (try_start(s, j)) return true;
    }
    return false;
}

static void admit(scheduler *s) {
    sched_job *head = NULL;
    for (;;) {
        sched_job *j = next_waiting(s, head);
        if (!j) return;
        j->tried = s->step;
        if (!make_places(s, j)) {
            j->tenant->placeless = s->step;
            continue;
        }
        if (start_over_others(s, j)) {
            if (head) head->passed++;
        } else if (!head) {
            head = j;
        }
        if (head && head->passed >= SCHED_PASSES) return;
    }
}

/* ---- a step ----------------------------------------------------------------------------------------- */

/* Pages for n more tokens of a running job, if need be from those that are less urgent. Otherwise it is
 * put off itself. */
static void give(scheduler *s, sched_job *j, size_t n) {
    while (!s->m.reserve(s->m.ctx, j, j->computed + n)) {
        sched_job *victim = least_urgent(s);
        preempt(s, victim);
        if (victim == j) return;
    }
    j->planned = n;
    j->last_step = s->step;
    charge(j, j->computed + n);
}

/* Decode rows, the most urgent first. Those that are put off leave the end of the list. */
static void plan_decodes(scheduler *s) {
    s->decoding = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        sched_job *j = s->running[i];
        if (j->length - j->computed == 1) give(s, j, 1);
    }
    for (size_t i = 0; i < s->n_running; i++) s->decoding += s->running[i]->planned * s->running[i]->rows;
}

static size_t chunk_tokens(const scheduler *s) {
    if (s->decoding == 0) return s->o.step_tokens;
    double n = s->chunk;
    if (n == 0) n = s->token_cost > 0 ? 0.7 * s->o.target / s->token_cost : (double)s->o.step_tokens / 4;
    const double most = (double)s->o.step_tokens, least = most < SCHED_LEAST_CHUNK ? most : SCHED_LEAST_CHUNK;
    n = n < least ? least : n > most ? most : n;
    return (size_t)n;
}

static void plan_chunks(scheduler *s) {
    size_t budget = s->budget = chunk_tokens(s);
    while (budget > 0) {
        sched_job *best = NULL;
        for (size_t i = 0; i < s->n_running; i++) {
            sched_job *j = s->running[i];
            if (j->planned > 0 || j->length - j->computed == 1) continue;
            if (!best || goes_before(j, best)) best = j;
        }
        if (!best) return;
        size_t n = best->length - best->computed;
        if (n > budget) n = budget;
        give(s, best, n);
        budget -= best->planned;
    }
}

sched_job *const *sched_plan(scheduler *s, size_t *n) {
    s->step++;
    for (size_t i = 0; i < s->n_running; i++) s->running[i]->planned = 0;
    promote(s);
    if (s->n_waiting > 0) admit(s);
    plan_decodes(s);
    plan_chunks(s);
    s->n_plan = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        if (s->running[i]->planned > 0) s->plan[s->n_plan++] = s->running[i];
    }
    *n = s->n_plan;
    return s->plan;
}

/* Steps of one plan differ, by what else the machine does: the margin grows by 19 parts with a step that is
 * longer than the target and shrinks by one with any other, so that it rests where one in 20 is longer. */
static void adapt_margin(scheduler *s, double seconds) {
    const double part = s->o.target / 1000, most = s->o.target / 5;
    s->margin += seconds > s->o.target ? 19 * part : -part;
    s->margin = s->margin < 0 ? 0 : s->margin > most ? most : s->margin;
}

/* A step has a fixed cost besides that of its tokens, so its length is steered by the difference from the
 * target and not by a cost per token: that would settle where the fixed cost weighs most. */
static void adapt_chunk(scheduler *s, size_t chunk, double seconds) {
    if (s->decoding == 0) return;
    const bool whole = chunk * 4 >= s->budget * 3;
    if (whole) adapt_margin(s, seconds);
    const double aim = s->o.target - s->margin;
    if (!whole && seconds <= aim) return;
    const double most = (double)s->o.step_tokens, least = most < SCHED_LEAST_CHUNK ? most : SCHED_LEAST_CHUNK;
    const double gain = seconds > aim ? 0.8 : 0.5;
    double n = (double)chunk + gain * (aim - seconds) / s->token_cost;
    if (n < 0.5 * (double)chunk) n = 0.5 * (double)chunk; /* one step that was disturbed says little */
    s->chunk = n < least ? least : n > most ? most : n;
}

void sched_done(scheduler *s, double seconds) {
    size_t rows = 0, chunk = 0;
    for (size_t i = 0; i < s->n_plan; i++) {
        rows += s->plan[i]->planned * s->plan[i]->rows;
        if (s->plan[i]->planned > 1) chunk += s->plan[i]->planned;
    }
    s->n_plan = 0;
    if (chunk < SCHED_LEAST_CHUNK || seconds <= 0) return;
    double cost = seconds / (double)rows;
    if (s->token_cost == 0) s->token_cost = cost;
    if (cost > 4 * s->token_cost) cost = 4 * s->token_cost;
    s->token_cost += (cost > s->token_cost ? 0.5 : 0.3) * (cost - s->token_cost);
    adapt_chunk(s, chunk, seconds);
}

sched_job *const *sched_running(const scheduler *s, size_t *n) {
    *n = s->n_running;
    return s->running;
}

size_t sched_n_waiting(const scheduler *s) {
    return s->n_waiting;
}

size_t sched_waiting_tokens(const scheduler *s) {
    return s->waiting_tokens;
}

bool sched_is_full(const scheduler *s) {
    return s->places_used >= s->o.places;
}

uint64_t sched_preemptions(const scheduler *s) {
    return s->preemptions;
}
