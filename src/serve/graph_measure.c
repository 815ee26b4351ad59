/* graph_measure.c: what the server counts. Names and meanings are Triton's where it has one. */
#include "serve/graph_internal.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "observe/process.h"

#include <stdio.h>
#include <string.h>

static const double seconds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                 0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};
static const char *const failures[N_FAILURES] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

static metric *counter(graph_server *s, const str *label, const char *name, const char *help) {
    return metrics_counter(s->metrics, name, str_cstr(label), help);
}

static status register_version(graph_server *s, const served *v, error *err) {
    version_metrics *m = &s->versions[v->index];
    str own = {0}, *label = &own;
    metrics_label(label, "model", v->name);
    metrics_label(label, "version", v->version);
    m->success = counter(s, label, "nv_inference_request_success", "Requests answered.");
    for (size_t i = 0; i < N_FAILURES; i++) {
        str with = {0};
        str_cat(&with, str_cstr(label));
        metrics_label(&with, "reason", failures[i]);
        m->failure[i] =
            counter(s, &with, "nv_inference_request_failure", "Requests not answered, by reason.");
        str_free(&with);
    }
    m->count = counter(s, label, "nv_inference_count", "Inferences: of a bundle its records.");
    m->executions = counter(s, label, "nv_inference_exec_count", "Runs of the model.");
    m->request_us =
        counter(s, label, "nv_inference_request_duration_us", "From a whole request to its answer, in all.");
    m->queue_us = counter(s, label, "nv_inference_queue_duration_us", "Waiting for a worker, in all.");
    m->input_us = counter(s, label, "nv_inference_compute_input_duration_us", "Reading requests, in all.");
    m->infer_us = counter(s, label, "nv_inference_compute_infer_duration_us", "Running the model, in all.");
    m->output_us = counter(s, label, "nv_inference_compute_output_duration_us", "Writing answers, in all.");
    m->seconds =
        metrics_histogram(s->metrics, "churon_inference_request_seconds", str_cstr(label),
                          "From a whole request to its answer.", seconds, sizeof seconds / sizeof *seconds);
    str_free(&own);
    return metrics_check(s->metrics, err);
}

static metric *gauge(graph_server *s, const char *name, const char *help) {
    return metrics_gauge(s->metrics, name, NULL, help);
}

/* Which versions there are, with their digests; 1: served, 0: not. */
static void register_build(graph_server *s, const served *v) {
    str build = {0};
    metrics_label(&build, "version", CHURON_VERSION);
    metrics_label(&build, "isa", s->o.isa ? s->o.isa : "");
    metrics_label(&build, "model", v->name);
    metrics_label(&build, "model_version", v->version);
    metrics_label(&build, "digest", v->digest);
    metric_set(metrics_gauge(s->metrics, "churon_build_info", str_cstr(&build),
                             "What runs; 1: served, 0: its golden cases failed."),
               v->available);
    str_free(&build);
}

status graph_measure_create(graph_server *s, error *err) {
    TRY(metrics_create(&s->metrics, err));
    s->versions = mem_calloc(s->models->n + 1, sizeof *s->versions);
    if (!s->versions) return error_no_memory(err, "metrics", s->models->n * sizeof *s->versions);
    s->connections = gauge(s, "churon_http_connections", "Open connections.");
    s->exchanges = gauge(s, "churon_http_requests_open", "Requests not yet answered in full.");
    s->resident = gauge(s, "process_resident_memory_bytes", "Resident memory.");
    s->pending = gauge(s, "nv_inference_pending_request_count", "Requests waiting for a worker.");
    s->kept = gauge(s, "churon_sequences", "Sequences whose state is kept.");
    metric_set(gauge(s, "process_start_time_seconds", "Start, seconds since 1970."), (double)s->created);
    for (size_t i = 0; i < s->models->n; i++) {
        register_build(s, s->models->items[i]);
        TRY(register_version(s, s->models->items[i], err));
    }
    return CHURON_OK;
}

void graph_measure_free(graph_server *s) {
    metrics_free(s->metrics);
    mem_free(s->versions);
}

void graph_measure_reply(graph_server *s, int code) {
    char label[32];
    snprintf(label, sizeof label, "code=\"%d\"", code);
    metric_add(metrics_counter(s->metrics, "churon_http_responses_total", label, "Replies by status code."),
               1);
}

/* Whole microseconds of `now` that `before` had not. */
static void add_us(metric *c, double now, double before) {
    metric_add(c, (uint64_t)(now * 1e6) - (uint64_t)(before * 1e6));
}

static void update_version(version_metrics *m) {
    const infer_totals *t = &m->totals, *b = &m->counted;
    metric_add(m->success, t->succeeded - b->succeeded);
    metric_add(m->count, t->records - b->records);
    metric_add(m->executions, t->runs - b->runs);
    for (size_t i = 0; i < N_FAILURES; i++) metric_add(m->failure[i], t->failed[i] - b->failed[i]);
    add_us(m->request_us, t->request_s, b->request_s);
    add_us(m->queue_us, t->queue_s, b->queue_s);
    add_us(m->input_us, t->input_s, b->input_s);
    add_us(m->infer_us, t->infer_s, b->infer_s);
    add_us(m->output_us, t->output_s, b->output_s);
    m->counted = *t;
}

void graph_measure_update(graph_server *s) {
    for (size_t i = 0; i < s->models->n; i++) update_version(&s->versions[i]);
    metric_set(s->pending, (double)work_waiting(s->work));
    metric_set(s->connections, (double)http_server_connections(s->http));
    metric_set(s->exchanges, (double)http_server_exchanges(s->http));
    metric_set(s->kept, (double)sequences_count(s->sequences));
    metric_set(s->resident, process_resident_bytes());
}

static void put_total(json_out *j, const char *key, uint64_t n, double s) {
    json_out_object(j, key);
    json_out_uint(j, "count", n);
    json_out_uint(j, "ns", (uint64_t)(s * 1e9));
    json_out_end_object(j);
}

static void put_stats(json_out *j, const served *v, const infer_totals *t) {
    uint64_t failed = 0;
    for (size_t i = 0; i < N_FAILURES; i++) failed += t->failed[i];
    json_out_object(j, NULL);
    json_out_cstr(j, "name", v->name);
    json_out_cstr(j, "version", v->version);
    json_out_uint(j, "last_inference", (uint64_t)t->last_unix * 1000);
    json_out_uint(j, "inference_count", t->records);
    json_out_uint(j, "execution_count", t->runs);
    json_out_object(j, "inference_stats");
    put_total(j, "success", t->succeeded, t->request_s);
    put_total(j, "fail", failed, t->fail_s);
    put_total(j, "queue", t->succeeded, t->queue_s);
    put_total(j, "compute_input", t->succeeded, t->input_s);
    put_total(j, "compute_infer", t->succeeded, t->infer_s);
    put_total(j, "compute_output", t->succeeded, t->output_s);
    json_out_end_object(j);
    json_out_array(j, "batch_stats");
    json_out_end_array(j);
    json_out_end_object(j);
}

void graph_measure_stats(graph_server *s, const served *v, str *out) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_array(&j, "model_stats");
    for (size_t i = 0; i < s->models->n; i++) {
        if (!v || v == s->models->items[i]) put_stats(&j, s->models->items[i], &s->versions[i].totals);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
}
