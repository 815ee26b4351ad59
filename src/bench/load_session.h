/* load_session.h: the parts that runs share: one streamed request from its body to its record. */
#ifndef BENCH_LOAD_SESSION_H
#define BENCH_LOAD_SESSION_H

#include "bench/load.h"
#include "bench/load_http.h"

typedef struct flight flight;

struct load_session {
    load_session_options o;
    load_http *http;
    double start; /* clock_seconds of the current run */
    status st;    /* what went wrong with this program itself, first error kept */
    error err;
};

/* What one request asks. */
typedef struct load_ask {
    uint64_t index; /* of its prompt */
    uint64_t round;
    size_t words; /* of the user's part */
    size_t shared_words;
    uint32_t output_tokens;
} load_ask;

typedef struct load_hooks {
    void *user;
    void (*on_text)(void *user, load_record *r); /* after each stamp; may be NULL */
    void (*on_end)(void *user, load_record *r);  /* r is complete */
} load_hooks;

/* Words for a prompt of so many tokens on this target, at least one. */
size_t load_words_for(const load_target *t, uint32_t tokens, bool beside_shared);
size_t load_shared_words_for(const load_target *t, uint32_t tokens);

/* Sends one request now. `record` must stay until on_end, or until the session is freed. An error is one of
 * this program (memory). */
MUST_USE status load_send(load_session *s, const load_target *t, const load_ask *ask, double scheduled,
                          load_record *record, const load_hooks *hooks, flight **out, error *err);
void load_cancel(load_session *s, flight *f);

/* Begins a run's clock; runs until all is ended; gives the session's first error. */
void load_session_begin(load_session *s);
MUST_USE status load_session_run(load_session *s, error *err);
void load_session_fail(load_session *s, status st, const error *err);

double load_thread_cpu(void); /* seconds that this thread has computed */

#endif
