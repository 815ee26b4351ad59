/* graph_measure.c: what a graph's server counts. Names and meanings are Triton's where it has one. */
#include "serve/graph_internal.h"

#include "base/json_out.h"
#include "observe/process.h"

#include <stdio.h>
#include <string.h>

static const double seconds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                 0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};
static const char *const failures[N_FAILURES] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

static metric *counter(graph_metrics *m, const char *name, const char *help) {
    return metrics_counter(m->all, name, str_cstr(&m->label), help);
}

static status register_model(graph_metrics *m, error *err) {
    m->success = counter(m, "nv_inference_request_success", "Requests answered.");
    for (size_t i = 0; i < N_FAILURES; i++) {
        str label = {0};
        str_cat(&label, str_cstr(&m->label));
        metrics_label(&label, "reason", failures[i]);
        m->failure[i] = metrics_counter(m->all, "nv_inference_request_failure", str_cstr(&label),
                                        "Requests not answered, by reason.");
        str_free(&label);
    }
    m->count = counter(m, "nv_inference_count", "Inferences, one a request.");
    m->executions = counter(m, "nv_inference_exec_count", "Runs of the graph.");
    m->request_us =
        counter(m, "nv_inference_request_duration_us", "From a whole request to its answer, in all.");
    m->queue_us = counter(m, "nv_inference_queue_duration_us", "Waiting for a worker, in all.");
    m->input_us = counter(m, "nv_inference_compute_input_duration_us", "Reading requests, in all.");
    m->infer_us = counter(m, "nv_inference_compute_infer_duration_us", "Running the graph, in all.");
    m->output_us = counter(m, "nv_inference_compute_output_duration_us", "Writing answers, in all.");
    m->pending = metrics_gauge(m->all, "nv_inference_pending_request_count", str_cstr(&m->label),
                               "Requests waiting for a worker.");
    m->seconds =
        metrics_histogram(m->all, "churon_inference_request_seconds", str_cstr(&m->label),
                          "From a whole request to its answer.", seconds, sizeof seconds / sizeof *seconds);
    return metrics_check(m->all, err);
}

status graph_measure_create(graph_server *s, error *err) {
    graph_metrics *m = &s->m;
    TRY(metrics_create(&m->all, err));
    metrics_label(&m->label, "model", s->model_id);
    metrics_label(&m->label, "version", "1");
    TRY(str_check(&m->label, err));
    m->connections = metrics_gauge(m->all, "churon_http_connections", NULL, "Open connections.");
    m->exchanges =
        metrics_gauge(m->all, "churon_http_requests_open", NULL, "Requests not yet answered in full.");
    m->resident = metrics_gauge(m->all, "process_resident_memory_bytes", NULL, "Resident memory.");
    metric_set(metrics_gauge(m->all, "process_start_time_seconds", NULL, "Start, seconds since 1970."),
               (double)s->created);
    str build = {0};
    metrics_label(&build, "version", CHURON_VERSION);
    metrics_label(&build, "isa", s->o.isa ? s->o.isa : "");
    metrics_label(&build, "digest", s->digest);
    metric_set(metrics_gauge(m->all, "churon_build_info", str_cstr(&build), "What runs; always 1."), 1);
    str_free(&build);
    return register_model(m, err);
}

void graph_measure_free(graph_server *s) {
    metrics_free(s->m.all);
    str_free(&s->m.label);
}

void graph_measure_reply(graph_server *s, int code) {
    char label[32];
    snprintf(label, sizeof label, "code=\"%d\"", code);
    metric_add(metrics_counter(s->m.all, "churon_http_responses_total", label, "Replies by status code."), 1);
}

/* Whole microseconds of `now` that `before` had not. */
static void add_us(metric *c, double now, double before) {
    metric_add(c, (uint64_t)(now * 1e6) - (uint64_t)(before * 1e6));
}

void graph_measure_update(graph_server *s) {
    graph_metrics *m = &s->m;
    const infer_totals *t = &s->totals, *b = &m->counted;
    metric_add(m->success, t->succeeded - b->succeeded);
    metric_add(m->count, t->succeeded - b->succeeded);
    metric_add(m->executions, t->succeeded - b->succeeded);
    for (size_t i = 0; i < N_FAILURES; i++) metric_add(m->failure[i], t->failed[i] - b->failed[i]);
    add_us(m->request_us, t->request_s, b->request_s);
    add_us(m->queue_us, t->queue_s, b->queue_s);
    add_us(m->input_us, t->input_s, b->input_s);
    add_us(m->infer_us, t->infer_s, b->infer_s);
    add_us(m->output_us, t->output_s, b->output_s);
    m->counted = *t;
    metric_set(m->pending, (double)work_waiting(s->work));
    metric_set(m->connections, (double)http_server_connections(s->http));
    metric_set(m->exchanges, (double)http_server_exchanges(s->http));
    metric_set(m->resident, process_resident_bytes());
}

static void put_total(json_out *j, const char *key, uint64_t n, double s) {
    json_out_object(j, key);
    json_out_uint(j, "count", n);
    json_out_uint(j, "ns", (uint64_t)(s * 1e9));
    json_out_end_object(j);
}

void graph_measure_stats(graph_server *s, str *out) {
    const infer_totals *t = &s->totals;
    uint64_t failed = 0;
    for (size_t i = 0; i < N_FAILURES; i++) failed += t->failed[i];
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_array(&j, "model_stats");
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", s->model_id);
    json_out_cstr(&j, "version", "1");
    json_out_uint(&j, "last_inference", (uint64_t)t->last_unix * 1000);
    json_out_uint(&j, "inference_count", t->succeeded);
    json_out_uint(&j, "execution_count", t->succeeded);
    json_out_object(&j, "inference_stats");
    put_total(&j, "success", t->succeeded, t->request_s);
    put_total(&j, "fail", failed, t->fail_s);
    put_total(&j, "queue", t->succeeded, t->queue_s);
    put_total(&j, "compute_input", t->succeeded, t->input_s);
    put_total(&j, "compute_infer", t->succeeded, t->infer_s);
    put_total(&j, "compute_output", t->succeeded, t->output_s);
    json_out_end_object(&j);
    json_out_array(&j, "batch_stats");
    json_out_end_array(&j);
    json_out_end_object(&j);
    json_out_end_array(&j);
    json_out_end_object(&j);
}
