/* load_http.h: many HTTP/1.1 exchanges at once on one thread, each body handed over as it comes: libcurl's
 * multi interface on a libevent base.
 *
 * A slow or hostile server costs no more than its own exchange: each has a deadline, its headers are bounded
 * (LOAD_HEADERS_MAX bytes), bodies are handed over in pieces and bounded by who takes them. Redirects are not
 * followed and no proxy is used: what is measured is the server that was named.
 * Threads: everything runs on the thread that calls load_http_run. Callbacks may start and cancel exchanges.
 */
#ifndef BENCH_LOAD_HTTP_H
#define BENCH_LOAD_HTTP_H

#include "base/status.h"

enum { LOAD_HEADERS_MAX = 64 << 10 };

typedef struct load_http load_http;
typedef struct load_exchange load_exchange;

typedef enum load_end {
    LOAD_END_WHOLE,       /* the response arrived whole */
    LOAD_END_UNREACHABLE, /* no connection */
    LOAD_END_TIMEOUT,
    LOAD_END_BROKEN,  /* the connection ended in the middle, or what came is not HTTP */
    LOAD_END_REFUSED, /* on_body returned false */
    LOAD_END_CANCELLED
} load_end;

typedef struct load_head {
    int code;
    const char *content_type; /* "" if none; borrowed during the call */
    double retry_after;       /* seconds; NaN without the header */
} load_head;

typedef struct load_call {
    const char *url;  /* copied */
    const char *key;  /* for Authorization: Bearer, or NULL; copied */
    const char *body; /* JSON to POST, copied; NULL: GET */
    size_t body_len;
    double timeout; /* seconds for the whole exchange, over 0 */
    void *user;
    void (*on_head)(void *user, const load_head *h); /* once, before the body and before the end */
    bool (*on_body)(void *user, const char *bytes, size_t n);
    /* Always called once, except from load_http_free. `why` is one line. The exchange is gone afterwards. */
    void (*on_end)(void *user, load_end how, const char *why);
} load_call;

MUST_USE status load_http_create(load_http **out, error *err);
void load_http_free(load_http *h); /* drops what is open, silently */

MUST_USE status load_http_start(load_http *h, const load_call *call, load_exchange **out, error *err);
/* Closes its connection; on_end comes soon, not from within this call. */
void load_http_cancel(load_http *h, load_exchange *x);

/* The one timer: `fn` is called at clock_seconds() == at, or at once if that is past. Replaces an older one.
 */
void load_http_at(load_http *h, double at, void (*fn)(void *user), void *user);

/* Runs until nothing is open and no timer is set, or until load_http_stop: then all that is open ends as
 * cancelled, and nothing may be started until the run has returned. */
void load_http_run(load_http *h);
void load_http_stop(load_http *h);

#endif
