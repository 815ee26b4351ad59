/* graph_internal.h: what the parts of a graph's server see of it. Everything belongs to the serving thread,
 * apart from the workers behind `work`. */
#ifndef SERVE_GRAPH_INTERNAL_H
#define SERVE_GRAPH_INTERNAL_H

#include "observe/metrics.h"
#include "base/digest.h"
#include "serve/graph_server.h"
#include "serve/graph_work.h"
#include "serve/key_ring.h"

#include <event2/event.h>

/* An inference request under way. */
typedef struct infer {
    work_job job;     /* first: a job of the queue is its infer */
    http_exchange *x; /* NULL when the client has its reply or has gone */
    graph_server *server;
    struct infer *prev, *next;
} infer;

typedef enum infer_failure {
    FAIL_REJECTED,
    FAIL_CANCELED,
    FAIL_BACKEND,
    FAIL_OTHER,
    N_FAILURES
} infer_failure;

/* Totals since the start, in Triton's terms; times in seconds. */
typedef struct infer_totals {
    uint64_t succeeded, failed[N_FAILURES];
    double request_s, fail_s, queue_s, input_s, infer_s, output_s;
    int64_t last_unix; /* of the newest success; 0: none */
} infer_totals;

typedef struct graph_metrics {
    metrics *all;
    str label; /* model="…",version="1" */
    metric *success, *failure[N_FAILURES], *count, *executions;
    metric *request_us, *queue_us, *input_us, *infer_us, *output_us;
    metric *pending, *seconds, *connections, *exchanges, *resident;
    infer_totals counted; /* what the counters have already */
} graph_metrics;

struct graph_server {
    graph_server_options o;
    graph *g;
    oip_model model;
    char *model_id;
    char digest[DIGEST_HEX];
    key_ring *keys; /* NULL: none are asked for */
    struct event_base *base;
    http_server *http;
    work *work;
    struct event *work_event, *tick, *sigterm, *sigint;
    bool draining;
    size_t n_live;
    infer *live;
    infer_totals totals;
    graph_metrics m;
    char id_prefix[17]; /* random, of this process */
    uint64_t next_id;
    int64_t created;
};

/* graph_routes.c */
void graph_routes_dispatch(void *user, http_exchange *x);
void graph_reply_error(graph_server *s, http_exchange *x, int code, const char *message);
/* graph_infer.c */
void graph_infer(graph_server *s, http_exchange *x);
void graph_infer_done(graph_server *s); /* replies to what the workers have finished */
void graph_infer_stop(graph_server *s); /* ends everything that is under way */
/* graph_measure.c */
MUST_USE status graph_measure_create(graph_server *s, error *err);
void graph_measure_free(graph_server *s);
void graph_measure_reply(graph_server *s, int code);
void graph_measure_update(graph_server *s);          /* before a scrape */
void graph_measure_stats(graph_server *s, str *out); /* Triton's statistics of the model */

#endif
