/* measure.c: see measure.h. Names are vLLM's where the meaning is the same, Churon's own otherwise. */
#include "serve/measure.h"

#include "observe/process.h"
#include "serve/server_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Seconds: a small model's token takes half a millisecond, a large one's prompt minutes. */
static const double fine_seconds[] = {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015,
                                      0.02,   0.03,  0.05,  0.075, 0.1,   0.2,    0.5,  1,
                                      2.5,    5,     10,    30,    60,    120,    300};
/* The same for each tenant, coarser: there are many. */
static const double tenant_seconds[] = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30, 120};
static const double token_counts[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double small_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128};
#define BOUNDS(a) a, sizeof(a) / sizeof *(a)

typedef enum series_kind { COUNTER, GAUGE, HISTOGRAM } series_kind;

typedef struct series {
    size_t at; /* offset of its pointer */
    series_kind kind;
    const char *name, *help;
    const double *bounds;
    size_t n_bounds;
} series;

#define M(field) offsetof(server_metrics, field)
static const series of_model[] = {
    {M(running), GAUGE, "vllm:num_requests_running", "Answers that are computed in steps.", NULL, 0},
    {M(waiting), GAUGE, "vllm:num_requests_waiting", "Answers waiting for a place.", NULL, 0},
    {M(kv_use), GAUGE, "vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", NULL, 0},
    {M(prompt_tokens), COUNTER, "vllm:prompt_tokens_total", "Prompt tokens computed.", NULL, 0},
    {M(generation_tokens), COUNTER, "vllm:generation_tokens_total", "Tokens generated.", NULL, 0},
    {M(preemptions), COUNTER, "vllm:num_preemptions_total",
     "Answers whose pages were taken and computed again.", NULL, 0},
    {M(cache_queries), COUNTER, "vllm:prefix_cache_queries_total",
     "Prompt tokens looked up in the prefix cache.", NULL, 0},
    {M(cache_hits), COUNTER, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", NULL,
     0},
    {M(drafted), COUNTER, "vllm:spec_decode_num_draft_tokens_total", "Tokens guessed and checked.", NULL, 0},
    {M(accepted), COUNTER, "vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
     NULL, 0},
    {M(ttft), HISTOGRAM, "vllm:time_to_first_token_seconds",
     "From a whole request to the first token of each choice.", BOUNDS(fine_seconds)},
    {M(inter_token), HISTOGRAM, "vllm:inter_token_latency_seconds", "Between two tokens of one choice.",
     BOUNDS(fine_seconds)},
    {M(per_token), HISTOGRAM, "vllm:request_time_per_output_token_seconds",
     "Mean time between the tokens of a choice.", BOUNDS(fine_seconds)},
    {M(e2e), HISTOGRAM, "vllm:e2e_request_latency_seconds", "From a whole request to the end of each choice.",
     BOUNDS(fine_seconds)},
    {M(queue), HISTOGRAM, "vllm:request_queue_time_seconds", "Waiting for a place.", BOUNDS(fine_seconds)},
    {M(prefill), HISTOGRAM, "vllm:request_prefill_time_seconds", "From the place to the first token.",
     BOUNDS(fine_seconds)},
    {M(decode), HISTOGRAM, "vllm:request_decode_time_seconds", "From the first token to the last.",
     BOUNDS(fine_seconds)},
    {M(prompt_length), HISTOGRAM, "vllm:request_prompt_tokens", "Tokens of a prompt.", BOUNDS(token_counts)},
    {M(answer_length), HISTOGRAM, "vllm:request_generation_tokens", "Tokens of an answer.",
     BOUNDS(token_counts)},
    {M(max_tokens), HISTOGRAM, "vllm:request_params_max_tokens", "max_tokens of requests that give it.",
     BOUNDS(token_counts)},
    {M(choices), HISTOGRAM, "vllm:request_params_n", "n of requests.", BOUNDS(small_counts)},
    {M(waiting_tokens), GAUGE, "churon_queued_tokens", "Prompt tokens waiting for a place.", NULL, 0},
    {M(kv_pages), GAUGE, "churon_kv_pages", "Pages of the KV cache.", NULL, 0},
    {M(kv_free), GAUGE, "churon_kv_pages_free", "Pages that no answer holds; those of cached prefixes too.",
     NULL, 0},
    {M(kv_cached), GAUGE, "churon_kv_pages_cached",
     "Free pages that hold a prefix for later; given up on demand.", NULL, 0},
    {M(kv_page_tokens), GAUGE, "churon_kv_page_tokens", "Tokens in a page.", NULL, 0},
    {M(kv_wasted), GAUGE, "churon_kv_tokens_wasted", "Places of taken pages that hold no token.", NULL, 0},
    {M(cache_evictions), COUNTER, "churon_prefix_cache_evictions_total",
     "Pages of cached prefixes given up for others.", NULL, 0},
    {M(steps), COUNTER, "churon_steps_total", "Steps of the engine.", NULL, 0},
    {M(tenants_known), GAUGE, "churon_tenants", "Tenants that the engine knows.", NULL, 0},
};
static const series of_process[] = {
    {M(connections), GAUGE, "churon_http_connections", "Open connections.", NULL, 0},
    {M(exchanges), GAUGE, "churon_http_requests_open", "Requests not yet answered in full.", NULL, 0},
    {M(resident), GAUGE, "process_resident_memory_bytes", "Resident memory.", NULL, 0},
};
#undef M

#define T(field) offsetof(tenant, field)
static const series of_tenant[] = {
    {T(requests), COUNTER, "churon_tenant_requests_total", "Requests accepted, by tenant.", NULL, 0},
    {T(refused), COUNTER, "churon_tenant_requests_refused_total",
     "Requests refused because the queue was full, by tenant.", NULL, 0},
    {T(prompt_tokens), COUNTER, "churon_tenant_prompt_tokens_total", "Prompt tokens of ended answers.", NULL,
     0},
    {T(cached_tokens), COUNTER, "churon_tenant_cached_tokens_total",
     "Those of them that were found in the prefix cache.", NULL, 0},
    {T(generation_tokens), COUNTER, "churon_tenant_generation_tokens_total", "Tokens generated, by tenant.",
     NULL, 0},
    {T(running), GAUGE, "churon_tenant_requests_running", "Answers that are computed, by tenant.", NULL, 0},
    {T(waiting), GAUGE, "churon_tenant_requests_waiting", "Answers waiting for a place, by tenant.", NULL, 0},
    {T(waiting_tokens), GAUGE, "churon_tenant_queued_tokens", "Prompt tokens waiting, by tenant.", NULL, 0},
    {T(ttft), HISTOGRAM, "churon_tenant_time_to_first_token_seconds",
     "From a whole request to the first token, by tenant.", BOUNDS(tenant_seconds)},
    {T(queue), HISTOGRAM, "churon_tenant_queue_time_seconds", "Waiting for a place, by tenant.",
     BOUNDS(tenant_seconds)},
};
#undef T
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void register_all(metrics *all, void *object, const series *list, size_t n, const char *labels) {
    for (size_t i = 0; i < n; i++) {
        const series *x = &list[i];
        metric *m = NULL;
        switch (x->kind) {
        case COUNTER: m = metrics_counter(all, x->name, labels, x->help); break;
        case GAUGE: m = metrics_gauge(all, x->name, labels, x->help); break;
        case HISTOGRAM: m = metrics_histogram(all, x->name, labels, x->help, x->bounds, x->n_bounds); break;
        }
        memcpy((char *)object + x->at, &m, sizeof m);
    }
}

status measure_create(server *s, error *err) {
    server_metrics *m = &s->m;
    TRY(metrics_create(&m->all, err));
    metrics_label(&m->label, "model_name", s->model_id);
    TRY(str_check(&m->label, err));
    register_all(m->all, m, of_model, COUNT(of_model), str_cstr(&m->label));
    register_all(m->all, m, of_process, COUNT(of_process), NULL);
    metric_set(metrics_gauge(m->all, "process_start_time_seconds", NULL, "Start, seconds since 1970."),
               (double)s->created);
    str build = {0};
    metrics_label(&build, "version", CHURON_VERSION);
    metrics_label(&build, "isa", lm_bundle_model(s->bundle)->k->name);
    metrics_label(&build, "digest", s->digest);
    metric_set(metrics_gauge(m->all, "churon_build_info", str_cstr(&build), "What runs; always 1."), 1);
    str_free(&build);
    /* So that a scrape shows them before they first happen. */
    static const char *const refusals[] = {"queue", "context", "invalid", "unsupported", "draining"};
    static const char *const cancels[] = {"disconnect", "slow_reader", "timeout", "admin"};
    static const char *const finishes[] = {"stop", "length", "abort", "error"};
    for (size_t i = 0; i < COUNT(refusals); i++) (void)server_counter_refused(s, refusals[i]);
    for (size_t i = 0; i < COUNT(cancels); i++) (void)server_counter_cancelled(s, cancels[i]);
    for (size_t i = 0; i < COUNT(finishes); i++) (void)server_counter_finished(s, finishes[i]);
    return metrics_check(m->all, err);
}

void measure_free(server *s) {
    metrics_free(s->m.all);
    str_free(&s->m.label);
}

/* ---- by reason -------------------------------------------------------------------------------------- */

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

/* ---- tenants ---------------------------------------------------------------------------------------- */

tenant *measure_tenant(server *s, const char *name) {
    server_metrics *m = &s->m;
    for (size_t i = 0; i < m->n_tenants; i++) {
        if (strcmp(m->tenants[i].name, name) == 0) return &m->tenants[i];
    }
    const bool known = m->n_tenants < MEASURE_MAX_TENANTS;
    tenant *t = &m->tenants[m->n_tenants];
    if (!known && *t->name) return t;
    str label = {0};
    str_cat(&label, str_cstr(&m->label));
    metrics_label(&label, "tenant", known ? name : "other");
    snprintf(t->name, sizeof t->name, "%s", known ? name : "other");
    if (!label.failed) register_all(m->all, t, of_tenant, COUNT(of_tenant), str_cstr(&label));
    str_free(&label);
    if (known) m->n_tenants++;
    return t;
}

/* The tenants that are counted apart; what is left of the whole is the others'. */
static void update_tenants(server *s, const engine_load *all) {
    server_metrics *m = &s->m;
    size_t running = all->running, waiting = all->waiting, waiting_tokens = all->waiting_tokens;
    for (size_t k = 0; k < m->n_tenants; k++) {
        engine_tenant_load l;
        (void)engine_tenant_get(s->engine, m->tenants[k].name, &l);
        metric_set(m->tenants[k].running, (double)l.running);
        metric_set(m->tenants[k].waiting, (double)l.waiting);
        metric_set(m->tenants[k].waiting_tokens, (double)l.waiting_tokens);
        running -= l.running < running ? l.running : running;
        waiting -= l.waiting < waiting ? l.waiting : waiting;
        waiting_tokens -= l.waiting_tokens < waiting_tokens ? l.waiting_tokens : waiting_tokens;
    }
    tenant *others = &m->tenants[MEASURE_MAX_TENANTS]; /* without a name it has no series: nothing is set */
    metric_set(others->running, (double)running);
    metric_set(others->waiting, (double)waiting);
    metric_set(others->waiting_tokens, (double)waiting_tokens);
    metric_set(m->tenants_known, (double)engine_tenants_get(s->engine, NULL, 0));
}

/* ---- scrape ----------------------------------------------------------------------------------------- */

void measure_update(server *s) {
    engine_load l;
    engine_load_get(s->engine, &l);
    server_metrics *m = &s->m;
    metric_set(m->running, (double)l.running);
    metric_set(m->waiting, (double)l.waiting);
    metric_set(m->waiting_tokens, (double)l.waiting_tokens);
    metric_set(m->kv_pages, (double)l.kv_pages);
    metric_set(m->kv_free, (double)l.kv_pages_free);
    metric_set(m->kv_cached, (double)l.kv_pages_cached);
    metric_set(m->kv_page_tokens, (double)l.kv_page_tokens);
    metric_set(m->kv_wasted, (double)l.kv_tokens_wasted);
    metric_set(m->kv_use, l.kv_pages ? (double)(l.kv_pages - l.kv_pages_free) / (double)l.kv_pages : 0);
    metric_add(m->steps, l.steps - m->counted.steps);
    metric_add(m->prompt_tokens, l.prompt_tokens - m->counted.prompt_tokens);
    metric_add(m->generation_tokens, l.generated_tokens - m->counted.generated_tokens);
    metric_add(m->preemptions, l.preemptions - m->counted.preemptions);
    metric_add(m->cache_queries, l.cache_queries - m->counted.cache_queries);
    metric_add(m->cache_hits, l.cache_hits - m->counted.cache_hits);
    metric_add(m->cache_evictions, l.cache_evictions - m->counted.cache_evictions);
    metric_add(m->drafted, l.drafted - m->counted.drafted);
    metric_add(m->accepted, l.accepted - m->counted.accepted);
    m->counted = l;
    update_tenants(s, &l);
    metric_set(m->connections, (double)http_server_connections(s->http));
    metric_set(m->exchanges, (double)http_server_exchanges(s->http));
    metric_set(m->resident, process_resident_bytes());
}
