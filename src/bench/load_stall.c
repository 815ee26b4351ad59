/* load_stall.c: what a chat notices when a long prompt arrives; see load.h. */
#include "bench/load_session.h"

#include "base/mem.h"
#include "bench/load_stats.h"

#include <math.h>

/* The chat has this many events before the long prompt is sent, and as many after its first token; it would
 * be as long as CHAT_TOKENS if nobody ended it. */
enum { EVENTS_BEFORE = 32, EVENTS_AFTER = 16, CHAT_PROMPT = 110, CHAT_TOKENS = 3000, LONG_OUTPUT = 8 };

typedef struct stall {
    load_session *s;
    const load_target *t;
    uint32_t prompt;
    uint64_t round;
    load_record chat, guest; /* guest: the long prompt */
    flight *chat_flight;     /* NULL once it has ended */
    bool guest_sent;
    size_t events_at_first; /* the chat's when the guest's first token came; 0: not yet */
} stall;

static void guest_text(void *user, load_record *r) {
    stall *u = user;
    if (r->n_stamps == 1) u->events_at_first = u->chat.n_stamps;
}

static void guest_end(void *user, load_record *r) {
    stall *u = user;
    if (r->outcome != LOAD_OK && u->chat_flight) load_cancel(u->s, u->chat_flight);
}

static load_ask long_ask(const stall *u, uint64_t index) {
    return (load_ask){.index = index,
                      .round = u->round,
                      .words = load_words_for(u->t, u->prompt, false),
                      .output_tokens = LONG_OUTPUT};
}

static void chat_text(void *user, load_record *r) {
    stall *u = user;
    error err;
    if (r->n_stamps == EVENTS_BEFORE && !u->guest_sent) {
        u->guest_sent = true;
        const load_ask ask = long_ask(u, 2);
        const load_hooks hooks = {u, guest_text, guest_end};
        status st = load_send(u->s, u->t, &ask, -1, &u->guest, &hooks, NULL, &err);
        if (st != CHURON_OK) load_session_fail(u->s, st, &err);
    }
    if (u->events_at_first && r->n_stamps == u->events_at_first + EVENTS_AFTER && u->chat_flight) {
        load_cancel(u->s, u->chat_flight);
    }
}

static void chat_end(void *user, load_record *r) {
    (void)r;
    ((stall *)user)->chat_flight = NULL;
}

static status check(const load_target *t, const load_record *r, const char *which, error *err) {
    if (r->outcome == LOAD_OK) return CHURON_OK;
    return error_set(err, CHURON_IO, "%.200s: expected an answer to %s, got %s: %.*s", t->base, which,
                     load_outcome_name(r->outcome), LOAD_WHY - 1, r->why);
}

/* The prompt with nothing beside it. */
static status run_alone(stall *u, double *seconds, error *err) {
    load_record r = {0};
    const load_ask ask = long_ask(u, 1);
    load_session_begin(u->s);
    status st = load_send(u->s, u->t, &ask, -1, &r, NULL, NULL, err);
    if (st == CHURON_OK) st = load_session_run(u->s, err);
    if (st == CHURON_OK) st = check(u->t, &r, "the long prompt", err);
    if (st == CHURON_OK) *seconds = load_record_ttft(&r);
    mem_free(r.stamps);
    return st;
}

static status run_beside(stall *u, error *err) {
    const load_ask ask = {.index = 0,
                          .round = u->round,
                          .words = load_words_for(u->t, CHAT_PROMPT, false),
                          .output_tokens = CHAT_TOKENS};
    const load_hooks hooks = {u, chat_text, chat_end};
    load_session_begin(u->s);
    TRY(load_send(u->s, u->t, &ask, -1, &u->chat, &hooks, &u->chat_flight, err));
    TRY(load_session_run(u->s, err));
    if (u->chat.outcome != LOAD_CANCELLED) TRY(check(u->t, &u->chat, "the chat", err));
    if (!u->guest_sent) {
        return error_set(err, CHURON_IO, "%.200s: the chat: expected at least %d events, got %zu", u->t->base,
                         EVENTS_BEFORE, u->chat.n_stamps);
    }
    TRY(check(u->t, &u->guest, "the long prompt beside a chat", err));
    if (u->chat.outcome == LOAD_OK && u->chat.last < u->guest.first) {
        return error_set(
            err, CHURON_IO,
            "%.200s: expected the chat to last until the long prompt's first token, got its end after "
            "%zu events",
            u->t->base, u->chat.n_stamps);
    }
    return CHURON_OK;
}

static status sum_up(stall *u, load_stall *out, error *err) {
    load_samples before = {0};
    const double sent = u->guest.sent, first = u->guest.first;
    for (size_t i = 1; i < u->chat.n_stamps; i++) {
        const double from = u->chat.stamps[i - 1], to = u->chat.stamps[i];
        if (to <= sent) {
            load_samples_add(&before, to - from);
        } else if (from < first) {
            if (to - from > out->gap_longest) out->gap_longest = to - from;
            out->events_beside++;
        }
    }
    if (before.failed) return error_no_memory(err, "gaps", 0);
    const load_quantiles q = load_samples_quantiles(&before);
    out->gap_before_p50 = q.p50;
    out->gap_before_max = q.max;
    out->beside = load_record_ttft(&u->guest);
    out->long_tokens = u->guest.prompt_tokens;
    out->sent = sent;
    out->first = first;
    out->stamps = u->chat.stamps;
    out->n_stamps = u->chat.n_stamps;
    u->chat.stamps = NULL;
    load_samples_free(&before);
    return CHURON_OK;
}

void load_stall_free(load_stall *r) {
    mem_free(r->stamps);
    *r = (load_stall){0};
}

status load_stall_run(load_stall *out, load_session *s, const load_target *t, uint32_t prompt, uint64_t round,
                      error *err) {
    *out = (load_stall){0};
    load_stall made = {0};
    stall u = {.s = s, .t = t, .prompt = prompt, .round = round};
    status st;
    TRY_GOTO(run_alone(&u, &made.alone, err));
    TRY_GOTO(run_beside(&u, err));
    TRY_GOTO(sum_up(&u, &made, err));
    *out = made;
cleanup:
    mem_free(u.chat.stamps);
    mem_free(u.guest.stamps);
    return st;
}
