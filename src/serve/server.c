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

/* ---- metrics ---------------------------------------------------------------------------------------- */

/* Seconds: a small model's token takes half a millisecond, a large one's prompt minutes. */
static const double fine_seconds[] = {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015,
                                      0.02,   0.03,  0.05,  0.075, 0.1,   0.2,    0.5,  1,
                                      2.5,    5,     10,    30,    60,    120,    300};
static const double token_counts[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
enum {
    N_FINE = sizeof fine_seconds / sizeof *fine_seconds,
    N_COUNTS = sizeof token_counts / sizeof *token_counts
};

static status create_metrics(server *s, error *err) {
    server_metrics *m = &s->m;
    TRY(metrics_create(&m->all, err));
    metrics_label(&m->label, "model_name", s->model_id);
    TRY(str_check(&m->label, err));
    metrics *all = m->all;
    const char *l = str_cstr(&m->label);
    m->running = metrics_gauge(all, "vllm:num_requests_running", l, "Answers in the current step.");
    m->waiting = metrics_gauge(all, "vllm:num_requests_waiting", l, "Answers waiting for a place.");
    m->kv_use = metrics_gauge(all, "vllm:kv_cache_usage_perc", l, "Share of the KV cache in use, 0 to 1.");
    m->prompt_tokens = metrics_counter(all, "vllm:prompt_tokens_total", l, "Prompt tokens computed.");
    m->generation_tokens = metrics_counter(all, "vllm:generation_tokens_total", l, "Tokens generated.");
    m->ttft =
        metrics_histogram(all, "vllm:time_to_first_token_seconds", l,
                          "From a whole request to the first token of each choice.", fine_seconds, N_FINE);
    m->inter_token = metrics_histogram(all, "vllm:inter_token_latency_seconds", l,
                                       "Between two tokens of one choice.", fine_seconds, N_FINE);
    m->e2e = metrics_histogram(all, "vllm:e2e_request_latency_seconds", l,
                               "From a whole request to the end of each choice.", fine_seconds, N_FINE);
    m->queue = metrics_histogram(all, "vllm:request_queue_time_seconds", l, "Waiting for a place.",
                                 fine_seconds, N_FINE);
    m->prefill = metrics_histogram(all, "vllm:request_prefill_time_seconds", l,
                                   "From the place to the first token.", fine_seconds, N_FINE);
    m->decode = metrics_histogram(all, "vllm:request_decode_time_seconds", l,
                                  "From the first token to the last.", fine_seconds, N_FINE);
    m->prompt_length = metrics_histogram(all, "vllm:request_prompt_tokens", l, "Tokens of a prompt.",
                                         token_counts, N_COUNTS);
    m->answer_length = metrics_histogram(all, "vllm:request_generation_tokens", l, "Tokens of an answer.",
                                         token_counts, N_COUNTS);
    m->waiting_tokens = metrics_gauge(all, "churon_queued_tokens", l, "Prompt tokens waiting for a place.");
    m->kv_pages = metrics_gauge(all, "churon_kv_pages", l, "Pages of the KV cache.");
    m->kv_free = metrics_gauge(all, "churon_kv_pages_free", l, "Free pages of the KV cache.");
    m->steps = metrics_counter(all, "churon_steps_total", l, "Steps of the engine.");
    m->connections = metrics_gauge(all, "churon_http_connections", NULL, "Open connections.");
    m->exchanges =
        metrics_gauge(all, "churon_http_requests_open", NULL, "Requests not yet answered in full.");
    m->resident = metrics_gauge(all, "process_resident_memory_bytes", NULL, "Resident memory.");
    metric *start = metrics_gauge(all, "process_start_time_seconds", NULL, "Start, seconds since 1970.");
    metric_set(start, (double)s->created);
    str build = {0};
    metrics_label(&build, "version", CHURON_VERSION);
    metrics_label(&build, "isa", lm_bundle_model(s->bundle)->k->name);
    metrics_label(&build, "digest", s->digest);
    metric_set(metrics_gauge(all, "churon_build_info", str_cstr(&build), "What runs; always 1."), 1);
    str_free(&build);
    /* So that a scrape shows them before they first happen. */
    static const char *const refusals[] = {"queue", "context", "invalid", "unsupported", "draining"};
    static const char *const cancels[] = {"disconnect", "slow_reader", "timeout"};
    static const char *const finishes[] = {"stop", "length", "abort", "error"};
    for (size_t i = 0; i < 5; i++) (void)server_counter_refused(s, refusals[i]);
    for (size_t i = 0; i < 3; i++) (void)server_counter_cancelled(s, cancels[i]);
    for (size_t i = 0; i < 4; i++) (void)server_counter_finished(s, finishes[i]);
    return metrics_check(all, err);
}

static metric *counter_by_reason(server *s, const char *name, const char *key, const char *reason,
                                 const char *help) {
    str label = {0};
    str_cat(&label, str_cstr(&s->m.label));
    metrics_label(&label, key, reason);
    metric *c = label.failed ? NULL : metrics_counter(s->m.all, name, str_cstr(&label), help);
    str_free(&label);
    return c;
}

metric *server_counter_refused(server *s, const char *reason) {
    return counter_by_reason(s, "churon_requests_refused_total", "reason", reason,
                             "Requests refused before anything was computed.");
}

metric *server_counter_cancelled(server *s, const char *reason) {
    return counter_by_reason(s, "churon_requests_cancelled_total", "reason", reason,
                             "Requests ended before their answer was complete.");
}

metric *server_counter_finished(server *s, const char *reason) {
    return counter_by_reason(s, "vllm:request_success_total", "finished_reason", reason,
                             "Choices that ended, by how.");
}

static double resident_bytes(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

void server_update_metrics(server *s) {
    engine_load l;
    engine_load_get(s->engine, &l);
    server_metrics *m = &s->m;
    metric_set(m->running, (double)l.running);
    metric_set(m->waiting, (double)l.waiting);
    metric_set(m->waiting_tokens, (double)l.waiting_tokens);
    metric_set(m->kv_pages, (double)l.kv_pages);
    metric_set(m->kv_free, (double)l.kv_pages_free);
    metric_set(m->kv_use, l.kv_pages ? (double)(l.kv_pages - l.kv_pages_free) / (double)l.kv_pages : 0);
    metric_add(m->steps, l.steps - s->counted.steps);
    metric_add(m->prompt_tokens, l.prompt_tokens - s->counted.prompt_tokens);
    metric_add(m->generation_tokens, l.generated_tokens - s->counted.generated_tokens);
    s->counted = l;
    metric_set(m->connections, (double)http_server_connections(s->http));
    metric_set(m->exchanges, (double)http_server_exchanges(s->http));
    metric_set(m->resident, resident_bytes());
}

/* ---- keys ------------------------------------------------------------------------------------------- */

status server_keys_read(char ***keys, size_t *n, const char *path, error *err) {
    *keys = NULL;
    *n = 0;
    char *line = NULL;
    size_t cap = 0;
    status st = CHURON_OK;
    FILE *f = fopen(path, "r");
    if (!f) return error_set(err, CHURON_IO, "keys: cannot read %s: %s", path, strerror(errno));
    while (getline(&line, &cap, f) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!*line || *line == '#') continue;
        char **grown = mem_realloc(*keys, (*n + 1) * sizeof **keys);
        if (grown) *keys = grown;
        char *copy = grown ? mem_strdup(line) : NULL;
        if (!copy) {
            st = error_no_memory(err, "keys", cap);
            break;
        }
        (*keys)[(*n)++] = copy;
    }
    free(line);
    fclose(f);
    if (st == CHURON_OK && *n == 0) {
        st = error_set(err, CHURON_INVALID, "keys: expected at least one key in %s, got none", path);
    }
    if (st != CHURON_OK) {
        server_keys_free(*keys, *n);
        *keys = NULL;
        *n = 0;
    }
    return st;
}

void server_keys_free(char **keys, size_t n) {
    for (size_t i = 0; i < n; i++) mem_free(keys[i]);
    mem_free(keys);
}

static status copy_keys(server *s, error *err) {
    if (s->o.n_keys == 0) return CHURON_OK;
    s->keys = mem_calloc(s->o.n_keys, sizeof *s->keys);
    if (!s->keys) return error_no_memory(err, "keys", s->o.n_keys * sizeof *s->keys);
    for (size_t i = 0; i < s->o.n_keys; i++) {
        TRY(digest_bytes(s->o.keys[i], strlen(s->o.keys[i]), s->keys[i], err));
    }
    s->n_keys = s->o.n_keys;
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
    if (s->draining && answered && http_server_flushed(s->http)) event_base_loopbreak(s->base);
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
    s->bundle = bundle;
    s->engine = lm_bundle_engine(bundle);
    s->last_tick = clock_seconds();
    TRY_GOTO(name_server(s, err));
    TRY_GOTO(copy_keys(s, err));
    TRY_GOTO(create_metrics(s, err));
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
    metrics_free(s->m.all);
    str_free(&s->m.label);
    mem_free(s->keys);
    mem_free(s->model_id);
    mem_free(s);
}
