/* load_http.c: see load_http.h.
 *
 * libcurl forbids adding and removing transfers from its own callbacks, so both wait in lists until it has
 * returned (`inside` counts the calls into it). */
#include "bench/load_http.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct load_exchange {
    load_http *h;
    load_exchange *next, *prev; /* of all that are open, oldest first */
    load_call call;             /* url, key and body are owned copies */
    CURL *curl;
    struct curl_slist *headers;
    size_t header_bytes;
    bool has_retry_after, headed, added, refused, headers_over, cancelled, ended;
    char why[CURL_ERROR_SIZE];
};

struct load_http {
    struct event_base *base;
    CURLM *multi;
    struct event *curl_timer, *user_timer, *kick;
    void (*timer_fn)(void *user);
    void *timer_user;
    load_exchange *open, *newest;
    int inside;
    bool has_changes; /* an exchange waits to be added or removed */
    bool stopped;
};

/* ---- libcurl's callbacks ---------------------------------------------------------------------------- */

static void tell_head(load_exchange *x) {
    if (x->headed) return;
    x->headed = true;
    long code = 0;
    char *type = NULL;
    curl_off_t wait = 0;
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(x->curl, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(x->curl, CURLINFO_RETRY_AFTER, &wait);
    const load_head head = {.code = (int)code,
                            .content_type = type ? type : "",
                            .retry_after = x->has_retry_after ? (double)wait : (double)NAN};
    if (x->call.on_head) x->call.on_head(x->call.user, &head);
}

static size_t on_header(char *line, size_t size, size_t count, void *user) {
    load_exchange *x = user;
    size_t n = size * count;
    x->header_bytes += n;
    if (x->header_bytes > LOAD_HEADERS_MAX) {
        x->headers_over = true;
        return 0;
    }
    static const char name[] = "retry-after:";
    if (n >= sizeof name - 1 && strncasecmp(line, name, sizeof name - 1) == 0) x->has_retry_after = true;
    return n;
}

static size_t on_data(char *bytes, size_t size, size_t count, void *user) {
    load_exchange *x = user;
    size_t n = size * count;
    if (x->cancelled) return 0;
    tell_head(x);
    if (!x->call.on_body(x->call.user, bytes, n)) {
        x->refused = true;
        return 0;
    }
    return n;
}

static void act(load_http *h, curl_socket_t fd, int what);

static void on_ready(evutil_socket_t fd, short what, void *user) {
    act(user, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static int on_socket(CURL *curl, curl_socket_t fd, int what, void *user, void *socket_user) {
    (void)curl;
    load_http *h = user;
    struct event *e = socket_user;
    if (e) event_free(e);
    e = NULL;
    if (what != CURL_POLL_REMOVE) {
        short kind = (short)((what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));
        e = event_new(h->base, fd, (short)(kind | EV_PERSIST), on_ready, h);
        if (!e || event_add(e, NULL) != 0) {
            if (e) event_free(e);
            e = NULL;
        }
    }
    curl_multi_assign(h->multi, fd, e);
    return e || what == CURL_POLL_REMOVE ? 0 : -1;
}

static void set_timer(struct event *e, double seconds) {
    if (seconds < 0) seconds = 0;
    if (seconds > 1e9) seconds = 1e9;
    const struct timeval after = {(time_t)seconds, (suseconds_t)((seconds - floor(seconds)) * 1e6)};
    (void)evtimer_add(e, &after);
}

static int on_timeout_change(CURLM *multi, long ms, void *user) {
    (void)multi;
    load_http *h = user;
    if (ms < 0) {
        (void)evtimer_del(h->curl_timer);
    } else {
        set_timer(h->curl_timer, (double)ms / 1e3);
    }
    return 0;
}

/* ---- the life of an exchange ------------------------------------------------------------------------ */

static void exchange_free(load_exchange *x) {
    if (x->added) curl_multi_remove_handle(x->h->multi, x->curl);
    if (x->curl) curl_easy_cleanup(x->curl);
    curl_slist_free_all(x->headers);
    if (x->prev) x->prev->next = x->next;
    if (x->next) x->next->prev = x->prev;
    if (x->h->open == x) x->h->open = x->next;
    if (x->h->newest == x) x->h->newest = x->prev;
    mem_free((char *)x->call.url);
    mem_free((char *)x->call.body);
    mem_free((char *)x->call.key);
    mem_free(x);
}

static void finish(load_exchange *x, load_end how, const char *why) {
    const load_call call = x->call;
    exchange_free(x); /* frees the copies in `call`: only user and on_end are read from it */
    call.on_end(call.user, how, why);
}

static load_end end_of(CURLcode code) {
    switch (code) {
    case CURLE_OK: return LOAD_END_WHOLE;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION: return LOAD_END_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT: return LOAD_END_TIMEOUT;
    default: return LOAD_END_BROKEN;
    }
}

static void conclude(load_exchange *x, CURLcode code) {
    char why[CURL_ERROR_SIZE + 80];
    load_end how = end_of(code);
    if (x->cancelled) {
        how = LOAD_END_CANCELLED;
    } else if (x->refused) {
        how = LOAD_END_REFUSED;
    } else if (how == LOAD_END_TIMEOUT) {
        snprintf(why, sizeof why, "expected the whole answer within %g s, got no end", x->call.timeout);
        finish(x, how, why);
        return;
    }
    if (x->headers_over) {
        snprintf(why, sizeof why, "headers: expected at most %d bytes, got more", LOAD_HEADERS_MAX);
    } else {
        snprintf(why, sizeof why, "%s", x->why[0] ? x->why : curl_easy_strerror(code));
    }
    if (how == LOAD_END_WHOLE || how == LOAD_END_REFUSED) tell_head(x);
    finish(x, how, why);
}

/* Adds and removes what callbacks asked for. */
static void apply_changes(load_http *h) {
    while (h->has_changes && !h->inside && !h->stopped) {
        h->has_changes = false;
        for (load_exchange *x = h->open, *next; x; x = next) {
            next = x->next;
            if (x->cancelled) {
                finish(x, LOAD_END_CANCELLED, "cancelled");
                h->has_changes = true; /* the list may have changed under us */
                break;
            }
            if (x->added) continue;
            x->added = true;
            h->inside++;
            CURLMcode code = curl_multi_add_handle(h->multi, x->curl);
            h->inside--;
            if (code != CURLM_OK) {
                x->added = false;
                finish(x, LOAD_END_UNREACHABLE, curl_multi_strerror(code));
                h->has_changes = true;
                break;
            }
        }
    }
}

static void take_finished(load_http *h) {
    CURLMsg *m;
    int left;
    while (!h->stopped && (m = curl_multi_info_read(h->multi, &left))) {
        if (m->msg != CURLMSG_DONE) continue;
        load_exchange *x = NULL;
        const CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        conclude(x, code);
    }
}

static void act(load_http *h, curl_socket_t fd, int what) {
    int running;
    h->inside++;
    (void)curl_multi_socket_action(h->multi, fd, what, &running);
    h->inside--;
    take_finished(h);
    apply_changes(h);
}

static void on_curl_timer(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    act(user, CURL_SOCKET_TIMEOUT, 0);
}

static void on_kick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    apply_changes(user);
}

static void on_user_timer(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    load_http *h = user;
    void (*fn)(void *) = h->timer_fn;
    h->timer_fn = NULL;
    if (fn) fn(h->timer_user);
    apply_changes(h);
}

static bool add_header(load_exchange *x, const char *line) {
    struct curl_slist *more = curl_slist_append(x->headers, line);
    if (more) x->headers = more;
    return more != NULL;
}

static bool set_up(load_exchange *x) {
    CURL *c = x->curl = curl_easy_init();
    if (!c) return false;
    const load_call *call = &x->call;
    str bearer = {0};
    bool ok = add_header(x, "Expect:");
    if (call->key) {
        str_fmt(&bearer, "Authorization: Bearer %s", call->key);
        ok = ok && !bearer.failed && add_header(x, bearer.data);
    }
    str_free(&bearer);
    if (call->body) {
        ok = ok && add_header(x, "Content-Type: application/json");
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, call->body);
    }
    const double ms = call->timeout * 1e3;
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, ms < 1 ? 1L : ms > 2e9 ? 2000000000L : (long)ms);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "churon/" CHURON_VERSION);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->why);
    curl_easy_setopt(c, CURLOPT_PRIVATE, x);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    return ok && curl_easy_setopt(c, CURLOPT_URL, call->url) == CURLE_OK;
}

status load_http_start(load_http *h, const load_call *call, load_exchange **out, error *err) {
    *out = NULL;
    load_exchange *x = mem_calloc(1, sizeof *x);
    if (!x) return error_no_memory(err, "exchange", sizeof *x);
    x->h = h;
    x->call = *call;
    x->call.url = mem_strdup(call->url);
    x->call.key = call->key ? mem_strdup(call->key) : NULL;
    x->call.body = call->body ? mem_strndup(call->body, call->body_len) : NULL;
    x->prev = h->newest;
    if (x->prev) {
        x->prev->next = x;
    } else {
        h->open = x;
    }
    h->newest = x;
    if (!x->call.url || (call->key && !x->call.key) || (call->body && !x->call.body) || !set_up(x)) {
        exchange_free(x);
        return error_no_memory(err, "exchange", call->body_len);
    }
    h->has_changes = true;
    event_active(h->kick, EV_TIMEOUT, 0);
    *out = x;
    return CHURON_OK;
}

void load_http_cancel(load_http *h, load_exchange *x) {
    x->cancelled = true;
    h->has_changes = true;
    event_active(h->kick, EV_TIMEOUT, 0);
}

void load_http_at(load_http *h, double at, void (*fn)(void *user), void *user) {
    h->timer_fn = fn;
    h->timer_user = user;
    set_timer(h->user_timer, at - clock_seconds());
}

void load_http_run(load_http *h) {
    h->stopped = false;
    apply_changes(h);
    while (!h->stopped && (h->open || h->timer_fn)) {
        if (event_base_loop(h->base, EVLOOP_ONCE) < 0) break;
    }
    while (h->open) finish(h->open, LOAD_END_CANCELLED, "stopped");
}

void load_http_stop(load_http *h) {
    h->stopped = true;
    h->timer_fn = NULL;
    (void)evtimer_del(h->user_timer);
}

/* ---- making and freeing ----------------------------------------------------------------------------- */

static void curl_start(void) {
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void load_http_free(load_http *h) {
    if (!h) return;
    while (h->open) exchange_free(h->open);
    if (h->multi) curl_multi_cleanup(h->multi);
    if (h->curl_timer) event_free(h->curl_timer);
    if (h->user_timer) event_free(h->user_timer);
    if (h->kick) event_free(h->kick);
    if (h->base) event_base_free(h->base);
    mem_free(h);
}

/* Timers of microseconds: epoll alone rounds to milliseconds, which would show in every open loop. */
static struct event_base *make_base(void) {
    struct event_config *c = event_config_new();
    struct event_base *base = NULL;
    if (c && event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NOLOCK) == 0) {
        base = event_base_new_with_config(c);
    }
    if (c) event_config_free(c);
    return base;
}

status load_http_create(load_http **out, error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_start);
    *out = NULL;
    load_http *h = mem_calloc(1, sizeof *h);
    if (!h) return error_no_memory(err, "HTTP client", sizeof *h);
    h->base = make_base();
    h->multi = h->base ? curl_multi_init() : NULL;
    if (h->multi) {
        h->curl_timer = evtimer_new(h->base, on_curl_timer, h);
        h->user_timer = evtimer_new(h->base, on_user_timer, h);
        h->kick = event_new(h->base, -1, 0, on_kick, h);
    }
    if (!h->curl_timer || !h->user_timer || !h->kick) {
        load_http_free(h);
        return error_no_memory(err, "HTTP client", 0);
    }
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timeout_change);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    *out = h;
    return CHURON_OK;
}
