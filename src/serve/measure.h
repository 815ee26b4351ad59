/* measure.h: what the server counts: its metrics by name, per tenant, and how they come to a scrape.
 *
 * Tenants that metrics know apart are bounded: the first MEASURE_MAX_TENANTS that ask have a label of their
 * own, all others share the label "other", so that made-up names cannot exhaust memory. Everything belongs to
 * the serving thread. */
#ifndef SERVE_MEASURE_H
#define SERVE_MEASURE_H

#include "lm/engine.h"
#include "observe/metrics.h"
#include "serve/keys.h"

enum { MEASURE_MAX_TENANTS = 32 };

typedef struct tenant {
    char name[TENANT_NAME_MAX + 1];
    metric *requests, *refused, *prompt_tokens, *cached_tokens, *generation_tokens;
    metric *running, *waiting, *waiting_tokens;
    metric *ttft, *queue;
} tenant;

typedef struct server_metrics {
    metrics *all;
    str label; /* model_name="…" */
    metric *running, *waiting, *waiting_tokens, *kv_use, *kv_pages, *kv_free, *kv_cached, *kv_page_tokens;
    metric *kv_wasted, *max_wasted;
    metric *connections, *exchanges, *resident, *tenants_known;
    metric *prompt_tokens, *generation_tokens, *steps, *preemptions;
    metric *cache_queries, *cache_hits, *cache_evictions, *drafted, *accepted;
    metric *ttft, *inter_token, *e2e, *queue, *prefill, *decode, *per_token;
    metric *prompt_length, *answer_length, *max_tokens, *choices;
    engine_load counted;                     /* totals that the counters have already */
    tenant tenants[MEASURE_MAX_TENANTS + 1]; /* the one after the last is "other" */
    size_t n_tenants;
} server_metrics;

struct server;

MUST_USE status measure_create(struct server *s, error *err);
void measure_free(struct server *s);
void measure_update(struct server *s); /* gauges and totals of the engine, before a scrape */
tenant *measure_tenant(struct server *s, const char *name);

metric *server_counter_refused(struct server *s, const char *reason);
metric *server_counter_cancelled(struct server *s, const char *reason);
metric *server_counter_finished(struct server *s, const char *reason);

#endif
