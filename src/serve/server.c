/* server.c: see server.h: life of the server: creation, the loop, drain. Routes are in routes.c. */
#include "serve/server_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/json_in.h"
#include "serve/routes.h"

#include <errno.h>
#include <event2/event.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { TICK_MS = 500, DRAIN_TICK_MS = 20 };

/* ---- keys ------------------------------------------------------------------------------------------- */

static status copy_keys(server *s, error *err) {
    if (s->o.n_keys == 0) return CHURON_OK;
    s->keys = mem_calloc(s->o.n_keys, sizeof *s->keys);
    if (!s->keys) return error_no_memory(err, "keys", s->o.n_keys * sizeof *s->keys);
    for (size_t i = 0; i < s->o.n_keys; i++) {
        const api_key *from = &s->o.keys[i];
        server_key *to = &s->keys[i];
        TRY(digest_bytes(from->key, strlen(from->key), to->digest, err));
        snprintf(to->tenant, sizeof to->tenant, "%s", from->tenant);
        to->admin = from->admin;
    }
    s->n_keys = s->o.n_keys;
    for (size_t i = 1; i < s->n_keys; i++) {
        if (strcmp(s->keys[i].tenant, s->keys[0].tenant) != 0) s->several_tenants = true;
    }
    return CHURON_OK;
}

/* ---- the engine's thread ---------------------------------------------------------------------------- */

static void after_step(void *user) {
    feed_publish(((server *)user)->feed);
}

static void *run_engine(void *user) {
    server *s = user;
    engine_run(s->engine, after_step, s);
    feed_publish(s->feed);
    return NULL;
}

static void on_feed(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    server *s = user;
    http_server_check_clients(s->http);
    feed_take(s->feed, openai_feed, s);
    openai_flush(s);
}

/* ---- the loop --------------------------------------------------------------------------------------- */

/* The engine's recent speed, for Retry-After: a moving average over about two seconds. */
static void measure_speed(server *s) {
    const double now = clock_seconds(), dt = now - s->last_tick;
    if (dt < 0.5) return;
    engine_load l;
    engine_load_get(s->engine, &l);
    const uint64_t tokens = l.prompt_tokens + l.generated_tokens;
    const double rate = (double)(tokens - s->last_tokens) / dt;
    if (rate > 0) s->tokens_per_s += (rate - s->tokens_per_s) * (s->tokens_per_s > 0 ? 0.3 : 1);
    s->last_tokens = tokens;
    s->last_tick = now;
}

static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    server *s = user;
    measure_speed(s);
    const bool answered = http_server_exchanges(s->http) == 0 && !s->answers;
    if (s->draining && answered && http_server_closed(s->http)) event_base_loopbreak(s->base);
}

static void on_signal(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    server *s = user;
    if (s->draining) {
        s->stopping = true;
        event_base_loopbreak(s->base);
        return;
    }
    s->draining = true;
    http_server_set_closing(s->http);
    const struct timeval often = {0, DRAIN_TICK_MS * 1000};
    (void)event_add(s->tick, &often); /* on failure it goes on ticking as before */
}

static status create_events(server *s, error *err) {
    const struct timeval every = {0, TICK_MS * 1000};
    s->feed_event = event_new(s->base, feed_wait_fd(s->feed), EV_READ | EV_PERSIST, on_feed, s);
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->sigterm = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->sigint = evsignal_new(s->base, SIGINT, on_signal, s);
    bool ok = s->feed_event && s->tick && s->sigterm && s->sigint && event_add(s->feed_event, NULL) == 0 &&
              event_add(s->tick, &every) == 0 && event_add(s->sigterm, NULL) == 0 &&
              event_add(s->sigint, NULL) == 0;
    return ok ? CHURON_OK : error_no_memory(err, "events", 0);
}

static void silence(int severity, const char *message) {
    (void)severity, (void)message; /* libevent prints otherwise; what matters is counted */
}

static size_t longest_token(const lm_bundle *b) {
    const tokenizer *t = lm_bundle_tokenizer(b);
    size_t longest = 1;
    for (size_t id = 0; id < tokenizer_n_tokens(t); id++) {
        const size_t n = tokenizer_bytes(t, (int32_t)id).len;
        if (n > longest) longest = n;
    }
    return longest;
}

static size_t capacity(engine *e) {
    engine_load l;
    engine_load_get(e, &l);
    const size_t context = engine_context(e), held = l.kv_pages * l.kv_page_tokens;
    return held && held < context ? held : context;
}

static status name_server(server *s, error *err) {
    const char *name = s->o.model_id ? s->o.model_id : lm_bundle_name(s->bundle);
    s->model_id = mem_strdup(name);
    if (!s->model_id) return error_no_memory(err, "model name", strlen(name));
    if (s->o.digest) snprintf(s->digest, sizeof s->digest, "%s", s->o.digest);
    snprintf(s->fingerprint, sizeof s->fingerprint, "churon-%s-%.8s", CHURON_VERSION,
             *s->digest ? s->digest : "unknown");
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) {
        return error_set(err, CHURON_IO, "ids: the system gave no random number");
    }
    snprintf(s->id_prefix, sizeof s->id_prefix, "%016llx", (unsigned long long)random);
    s->created = clock_unix();
    s->longest_token = longest_token(s->bundle);
    return CHURON_OK;
}

status server_create(server **out, lm_bundle *bundle, const server_options *o, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    if (!lm_bundle_engine(bundle)) return error_set(err, CHURON_INVALID, "model: expected one with weights");
    server *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "server", sizeof *s);
    json_in_setup();
    event_set_log_callback(silence);
    s->o = *o;
    if (s->o.max_running == 0) s->o.max_running = 16;
    if (s->o.max_queued_tokens == 0) s->o.max_queued_tokens = 65536;
    const size_t connections = o->http.max_connections ? o->http.max_connections : HTTP_MAX_CONNECTIONS;
    s->max_answers = connections - connections / 8;
    s->bundle = bundle;
    s->engine = lm_bundle_engine(bundle);
    s->capacity = capacity(s->engine);
    s->started = s->last_tick = clock_seconds();
    TRY_GOTO(name_server(s, err));
    TRY_GOTO(copy_keys(s, err));
    TRY_GOTO(measure_create(s, err));
    TRY_GOTO(feed_create(&s->feed, FEED_BYTES, err));
    s->base = event_base_new();
    if (!s->base) {
        st = error_no_memory(err, "event loop", 0);
        goto cleanup;
    }
    TRY_GOTO(create_events(s, err));
    TRY_GOTO(http_server_create(&s->http, s->base, &s->o.http, routes_dispatch, routes_observe, s, err));
    *out = s;
    s = NULL;
cleanup:
    server_free(s);
    return st;
}

uint16_t server_port(const server *s) {
    return http_server_port(s->http);
}

status server_run(server *s, error *err) {
    if (pthread_create(&s->service, NULL, run_engine, s) != 0) {
        return error_set(err, CHURON_IO, "server: the system gave no thread for the engine");
    }
    s->service_started = true;
    if (event_base_dispatch(s->base) < 0) {
        return error_set(err, CHURON_INTERNAL, "server: the event loop failed");
    }
    return CHURON_OK;
}

/* Ends what still runs, so that every answer gets its last event and gives its sequence back. */
static void stop_engine(server *s) {
    if (!s->service_started) return;
    openai_cancel_all(s);
    engine_stop(s->engine);
    pthread_join(s->service, NULL);
    s->service_started = false;
    feed_take(s->feed, openai_feed, s);
    openai_flush(s);
}

void server_free(server *s) {
    if (!s) return;
    stop_engine(s);
    http_server_free(s->http);
    struct event *const events[] = {s->feed_event, s->tick, s->sigterm, s->sigint};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i]) event_free(events[i]);
    }
    if (s->base) event_base_free(s->base);
    feed_free(s->feed);
    measure_free(s);
    mem_free(s->keys);
    mem_free(s->model_id);
    mem_free(s);
}
