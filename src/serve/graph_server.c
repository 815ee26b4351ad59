/* graph_server.c: see graph_server.h: life of the server: creation, the loop, drain. */
#include "serve/graph_server.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/graph_internal.h"
#include "serve/json_in.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    TICK_MS = 500,
    DRAIN_TICK_MS = 20,
    MAX_QUEUE = 256,
    MAX_QUEUE_BYTES = 256 << 20,
    MAX_SEQUENCES = 1024,
    SEQUENCE_IDLE_S = 60
};

static void on_work(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    graph_infer_done(user);
}

static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    graph_server *s = user;
    const bool answered = http_server_exchanges(s->http) == 0 && s->n_live == 0;
    if (s->draining && answered && http_server_closed(s->http)) event_base_loopbreak(s->base);
}

static void on_signal(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    graph_server *s = user;
    if (s->draining) {
        event_base_loopbreak(s->base);
        return;
    }
    s->draining = true;
    http_server_set_closing(s->http);
    const struct timeval often = {0, DRAIN_TICK_MS * 1000};
    (void)event_add(s->tick, &often); /* on failure it goes on ticking as before */
}

static void on_reply(void *user, int code) {
    graph_measure_reply(user, code);
}

static void silence(int severity, const char *message) {
    (void)severity, (void)message; /* libevent prints otherwise; what matters is counted */
}

static status create_events(graph_server *s, error *err) {
    const struct timeval every = {0, TICK_MS * 1000};
    event_set_log_callback(silence);
    s->base = event_base_new();
    if (!s->base) return error_no_memory(err, "event loop", 0);
    s->work_event = event_new(s->base, work_wait_fd(s->work), EV_READ | EV_PERSIST, on_work, s);
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->sigterm = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->sigint = evsignal_new(s->base, SIGINT, on_signal, s);
    const bool ok = s->work_event && s->tick && s->sigterm && s->sigint &&
                    event_add(s->work_event, NULL) == 0 && event_add(s->tick, &every) == 0 &&
                    event_add(s->sigterm, NULL) == 0 && event_add(s->sigint, NULL) == 0;
    return ok ? CHURON_OK : error_no_memory(err, "events", 0);
}

static status name_server(graph_server *s, error *err) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        return error_set(err, CHURON_IO, "ids: the system gave no random number");
    snprintf(s->id_prefix, sizeof s->id_prefix, "%016llx", (unsigned long long)random);
    s->created = clock_unix();
    return CHURON_OK;
}

status graph_server_create(graph_server **out, const served_list *models, const graph_server_options *o,
                           error *err) {
    *out = NULL;
    status st = CHURON_OK;
    graph_server *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "server", sizeof *s);
    s->o = *o;
    if (s->o.workers == 0) s->o.workers = 1;
    if (s->o.max_queue == 0) s->o.max_queue = MAX_QUEUE;
    if (s->o.max_queue_bytes == 0) s->o.max_queue_bytes = MAX_QUEUE_BYTES;
    if (s->o.max_sequences == 0) s->o.max_sequences = MAX_SEQUENCES;
    if (s->o.sequence_idle <= 0) s->o.sequence_idle = SEQUENCE_IDLE_S;
    s->models = models;
    json_in_setup();
    TRY_GOTO(name_server(s, err));
    if (o->n_keys) TRY_GOTO(key_ring_create(&s->keys, o->keys, o->n_keys, err));
    TRY_GOTO(graph_measure_create(s, err));
    TRY_GOTO(sequences_create(&s->sequences, s->o.max_sequences, s->o.sequence_idle, err));
    const compute_shared shared = {
        .models = models, .sequences = s->sequences, .record = o->record, .isa = o->isa};
    TRY_GOTO(work_create(&s->work, &shared, s->o.workers, s->o.max_queue, s->o.max_queue_bytes, err));
    TRY_GOTO(create_events(s, err));
    TRY_GOTO(http_server_create(&s->http, s->base, &s->o.http, graph_routes_dispatch, on_reply, s, err));
    *out = s;
    s = NULL;
cleanup:
    graph_server_free(s);
    return st;
}

uint16_t graph_server_port(const graph_server *s) {
    return http_server_port(s->http);
}

status graph_server_run(graph_server *s, error *err) {
    if (event_base_dispatch(s->base) < 0)
        return error_set(err, CHURON_INTERNAL, "server: the event loop failed");
    return CHURON_OK;
}

void graph_server_free(graph_server *s) {
    if (!s) return;
    if (s->work) graph_infer_stop(s);
    http_server_free(s->http);
    struct event *const events[] = {s->work_event, s->tick, s->sigterm, s->sigint};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i]) event_free(events[i]);
    }
    if (s->base) event_base_free(s->base);
    work_free(s->work);
    sequences_free(s->sequences);
    graph_measure_free(s);
    key_ring_free(s->keys);
    mem_free(s);
}
