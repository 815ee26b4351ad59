/* graph_internal.h: what the parts of the server see of it. Everything belongs to the serving thread,
 * apart from the workers behind `work`. */
#ifndef SERVE_GRAPH_INTERNAL_H
#define SERVE_GRAPH_INTERNAL_H

#include "observe/metrics.h"
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

/* Totals of a version since the start, in Triton's terms; times in seconds. */
typedef struct infer_totals {
    uint64_t succeeded, failed[N_FAILURES], records, runs;
    double request_s, fail_s, queue_s, input_s, infer_s, output_s;
    int64_t last_unix; /* of the newest success; 0: none */
} infer_totals;

/* What is counted of one version. */
typedef struct version_metrics {
    metric *success, *failure[N_FAILURES], *count, *executions;
    metric *request_us, *queue_us, *input_us, *infer_us, *output_us;
    metric *seconds;
    infer_totals totals, counted; /* counted: what the counters have already */
} version_metrics;

struct graph_server {
    graph_server_options o;
    const served_list *models;
    key_ring *keys; /* NULL: none are asked for */
    struct event_base *base;
    http_server *http;
    sequences *sequences;
    work *work;
    struct event *work_event, *tick, *sigterm, *sigint;
    bool draining;
    size_t n_live;
    infer *live;
    metrics *metrics;
    version_metrics *versions; /* [models->n] */
    metric *pending, *connections, *exchanges, *resident, *kept;
    char id_prefix[17]; /* random, of this process */
    uint64_t next_id;
    int64_t created;
};

/* graph_routes.c */
void graph_routes_dispatch(void *user, http_exchange *x);
void graph_reply_error(graph_server *s, http_exchange *x, int code, const char *message);
/* graph_infer.c */
void graph_infer(graph_server *s, http_exchange *x, const served *v, job_kind kind, const char *id);
void graph_infer_done(graph_server *s); /* replies to what the workers have finished */
void graph_infer_stop(graph_server *s); /* ends everything that is under way */
/* graph_measure.c */
MUST_USE status graph_measure_create(graph_server *s, error *err);
void graph_measure_free(graph_server *s);
void graph_measure_reply(graph_server *s, int code);
void graph_measure_update(graph_server *s); /* before a scrape */
/* Triton's statistics of a version; NULL: of all. */
void graph_measure_stats(graph_server *s, const served *v, str *out);

#endif
