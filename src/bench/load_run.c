/* load_run.c: a plan sent to one target, closed or open loop; see load.h. */
#include "bench/load_session.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>

/* So many connections refused in a row, with nothing answered between: the server has gone. */
enum { GONE_AFTER = 3 };

typedef struct runner {
    load_session *s;
    const load_target *t;
    const load_run_options *o;
    load_records *out;
    load_hooks hooks;
    flight **flights; /* [plan] those in the air; NULL: ended or not sent */
    size_t ended, in_air, missed, unreachable, shared_words;
    bool over, gave_up; /* over: nothing more is sent */
} runner;

static void tell(const runner *u) {
    if (u->o->progress.fn) u->o->progress.fn(u->o->progress.user, u->ended, u->o->plan->n);
}

static status send_next(runner *u, double scheduled) {
    const size_t i = u->out->n;
    const load_request *q = &u->o->plan->items[i];
    const load_ask ask = {.index = i,
                          .round = u->o->round,
                          .words = load_words_for(u->t, q->prompt_tokens, u->shared_words > 0),
                          .shared_words = u->shared_words,
                          .output_tokens = q->output_tokens};
    error err;
    status st = load_send(u->s, u->t, &ask, scheduled, &u->out->items[i], &u->hooks, &u->flights[i], &err);
    if (st != CHURON_OK) {
        load_session_fail(u->s, st, &err);
        return st;
    }
    u->out->items[i].round = (uint32_t)u->o->round;
    u->out->n++;
    u->in_air++;
    return CHURON_OK;
}

static double now_of(const runner *u) {
    return clock_seconds() - u->s->start;
}

static bool may_send(const runner *u) {
    return !u->over && u->s->st == CHURON_OK && u->out->n < u->o->plan->n &&
           !(u->o->duration > 0 && now_of(u) >= u->o->duration);
}

/* Too many of the plan's requests have missed their objective for the rest to make up for it. */
static void maybe_give_up(runner *u) {
    const load_slo *slo = u->o->give_up;
    if (!slo || u->over) return;
    size_t late = 0;
    const double now = now_of(u);
    for (size_t i = 0; slo->ttft > 0 && i < u->out->n; i++) {
        const load_record *r = &u->out->items[i];
        if (u->flights[i] && isnan(r->first) && now - r->scheduled > slo->ttft) late++;
    }
    if ((double)(u->missed + late) <= u->o->give_up_share * (double)u->o->plan->n) return;
    u->over = u->gave_up = true;
    for (size_t i = 0; i < u->out->n; i++) {
        if (u->flights[i]) load_cancel(u->s, u->flights[i]);
    }
}

static void on_end(void *user, load_record *r) {
    runner *u = user;
    u->flights[r - u->out->items] = NULL;
    u->in_air--;
    u->ended++;
    if (u->o->give_up && !load_slo_met(u->o->give_up, r)) u->missed++;
    u->unreachable = r->outcome == LOAD_UNREACHABLE ? u->unreachable + 1 : 0;
    if (u->unreachable >= GONE_AFTER) u->over = true;
    tell(u);
    maybe_give_up(u);
    if (u->o->concurrency == 0) return;
    while (u->in_air < u->o->concurrency && may_send(u)) {
        if (send_next(u, -1) != CHURON_OK) return;
    }
}

/* Open loop: sends all that are due and sets the timer for the next. */
static void on_time(void *user) {
    runner *u = user;
    while (may_send(u)) {
        const double at = u->o->plan->items[u->out->n].at;
        if (at > now_of(u)) {
            load_http_at(u->s->http, u->s->start + at, on_time, u);
            break;
        }
        if (send_next(u, at) != CHURON_OK) return;
    }
    maybe_give_up(u);
}

static void start(runner *u) {
    if (u->o->concurrency == 0) {
        on_time(u);
        return;
    }
    while (u->in_air < u->o->concurrency && may_send(u)) {
        if (send_next(u, -1) != CHURON_OK) return;
    }
}

static void set_wall(load_records *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (!isnan(r->items[i].end) && r->items[i].end > r->wall) r->wall = r->items[i].end;
    }
}

status load_run(load_records *out, load_session *s, const load_target *t, const load_run_options *o,
                bool *gave_up, error *err) {
    *out = (load_records){0};
    const size_t n = o->plan->n;
    load_records made = {.items = mem_calloc(n ? n : 1, sizeof *made.items), .cap = n};
    runner u = {.s = s, .t = t, .o = o, .out = &made, .flights = mem_calloc(n ? n : 1, sizeof *u.flights)};
    status st = CHURON_OK;
    if (!made.items || !u.flights) {
        st = error_no_memory(err, "records", n * sizeof *made.items);
        goto cleanup;
    }
    u.hooks = (load_hooks){.user = &u, .on_end = on_end};
    u.shared_words = o->shared_prefix ? load_shared_words_for(t, o->shared_prefix) : 0;
    const double cpu = load_thread_cpu();
    load_session_begin(s);
    start(&u);
    TRY_GOTO(load_session_run(s, err));
    made.client_cpu = load_thread_cpu() - cpu;
    set_wall(&made);
    if (gave_up) *gave_up = u.gave_up;
cleanup:
    mem_free(u.flights);
    if (st == CHURON_OK) {
        *out = made;
    } else {
        load_records_free(&made);
    }
    return st;
}
