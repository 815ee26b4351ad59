/* load_figures.c: see load_figures.h. */
#include "bench/load_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- adding up -------------------------------------------------------------------------------------- */

typedef struct sample_sets {
    load_samples ttft, tpot, itl, e2e, late, refusal;
} sample_sets;

static void add_known(load_samples *s, double value) {
    if (!isnan(value)) load_samples_add(s, value);
}

static void take_completed(load_figures *f, sample_sets *s, const load_record *r) {
    f->completed++;
    f->events += r->n_stamps;
    if (!r->has_usage) f->without_usage++;
    f->prompt_tokens += r->prompt_tokens;
    f->output_tokens += r->output_tokens;
    f->cached_tokens += r->cached_tokens;
    add_known(&s->ttft, load_record_ttft(r));
    add_known(&s->tpot, load_record_tpot(r));
    add_known(&s->e2e, r->end - r->scheduled);
    for (size_t i = 1; i < r->n_stamps; i++) load_samples_add(&s->itl, r->stamps[i] - r->stamps[i - 1]);
    size_t k = 0;
    while (k < f->n_finishes && strcmp(f->finishes[k].name, r->finish) != 0) k++;
    if (k == LOAD_FINISH_ROWS) return;
    if (k == f->n_finishes) snprintf(f->finishes[f->n_finishes++].name, LOAD_FINISH, "%s", r->finish);
    f->finishes[k].count++;
}

static void take_refused(load_figures *f, sample_sets *s, const load_record *r) {
    f->refused++;
    load_samples_add(&s->refusal, r->end - r->sent);
    if (isnan(r->retry_after)) return;
    f->refused_with_retry++;
    if (!(r->retry_after >= f->retry_after_min)) f->retry_after_min = r->retry_after;
    if (!(r->retry_after <= f->retry_after_max)) f->retry_after_max = r->retry_after;
}

static void take_error(load_figures *f, const load_record *r) {
    size_t k = 0;
    while (k < f->n_errors && (f->errors[k].outcome != r->outcome || f->errors[k].code != r->code)) k++;
    if (k == LOAD_ERROR_ROWS) return;
    load_error_row *row = &f->errors[k];
    if (k == f->n_errors) {
        f->n_errors++;
        row->outcome = r->outcome;
        row->code = r->code;
        memcpy(row->example, r->why, sizeof row->example);
    }
    row->count++;
}

status load_figures_make(load_figures *out, const load_records *records, const load_slo *slo, error *err) {
    sample_sets s = {0};
    *out = (load_figures){.wall = records->wall,
                          .client_cpu = records->client_cpu,
                          .requests = records->n,
                          .retry_after_min = (double)NAN,
                          .retry_after_max = (double)NAN};
    for (size_t i = 0; i < records->n; i++) {
        const load_record *r = &records->items[i];
        load_samples_add(&s.late, r->sent - r->scheduled);
        if (slo && load_slo_met(slo, r)) out->good++;
        switch (r->outcome) {
        case LOAD_OK: take_completed(out, &s, r); break;
        case LOAD_REFUSED:
            take_refused(out, &s, r);
            take_error(out, r);
            break;
        case LOAD_CANCELLED: out->cancelled++; break;
        default:
            out->failed++;
            take_error(out, r);
            break;
        }
    }
    load_samples *const sets[] = {&s.ttft, &s.tpot, &s.itl, &s.e2e, &s.late, &s.refusal};
    load_quantiles *const to[] = {&out->ttft, &out->tpot, &out->itl, &out->e2e, &out->late, &out->refusal};
    bool failed = false;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        failed = failed || sets[i]->failed;
        *to[i] = load_samples_quantiles(sets[i]);
        load_samples_free(sets[i]);
    }
    return failed ? error_no_memory(err, "samples", 0) : CHURON_OK;
}

double load_figures_tokens_per_s(const load_figures *f) {
    return f->wall > 0 && f->without_usage == 0 ? (double)f->output_tokens / f->wall : (double)NAN;
}

double load_figures_requests_per_s(const load_figures *f) {
    return f->wall > 0 ? (double)f->completed / f->wall : (double)NAN;
}

double load_figures_goodput(const load_figures *f) {
    return f->wall > 0 ? (double)f->good / f->wall : (double)NAN;
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

/* Microseconds are all that means anything here: fewer digits to read. */
static double ms(double seconds) {
    return round(seconds * 1e6) / 1e3;
}

static double rounded(double v) {
    return round(v * 1e4) / 1e4;
}

void load_quantiles_json(const load_quantiles *q, const char *key, json_out *j) {
    json_out_object(j, key);
    json_out_uint(j, "n", q->n);
    json_out_double(j, "mean", ms(q->mean));
    json_out_double(j, "min", ms(q->min));
    json_out_double(j, "p50", ms(q->p50));
    json_out_double(j, "p90", ms(q->p90));
    json_out_double(j, "p95", ms(q->p95));
    json_out_double(j, "p99", ms(q->p99));
    json_out_double(j, "max", ms(q->max));
    json_out_end_object(j);
}

static void refusals_json(const load_figures *f, json_out *j) {
    json_out_object(j, "refusals");
    json_out_uint(j, "count", f->refused);
    json_out_uint(j, "with_retry_after", f->refused_with_retry);
    json_out_double(j, "retry_after_min_s", f->retry_after_min);
    json_out_double(j, "retry_after_max_s", f->retry_after_max);
    load_quantiles_json(&f->refusal, "ms", j);
    json_out_end_object(j);
}

static void errors_json(const load_figures *f, json_out *j) {
    json_out_array(j, "errors");
    for (size_t i = 0; i < f->n_errors; i++) {
        const load_error_row *e = &f->errors[i];
        json_out_object(j, NULL);
        json_out_cstr(j, "kind", load_outcome_name(e->outcome));
        json_out_int(j, "status", e->code);
        json_out_uint(j, "count", e->count);
        json_out_cstr(j, "example", e->example);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void goodput_json(const load_figures *f, const load_slo *slo, json_out *j) {
    if (!slo) {
        json_out_null(j, "goodput");
        return;
    }
    json_out_object(j, "goodput");
    json_out_uint(j, "good", f->good);
    json_out_double(j, "share", f->requests ? rounded((double)f->good / (double)f->requests) : (double)NAN);
    json_out_double(j, "per_s", rounded(load_figures_goodput(f)));
    json_out_end_object(j);
}

static void client_json(const load_figures *f, json_out *j) {
    json_out_object(j, "client");
    json_out_double(j, "cpu_s", rounded(f->client_cpu));
    json_out_double(j, "cpu_share", f->wall > 0 ? rounded(f->client_cpu / f->wall) : (double)NAN);
    json_out_double(j, "us_per_event", f->events ? ms(f->client_cpu / (double)f->events * 1e3) : (double)NAN);
    json_out_end_object(j);
}

void load_figures_json(const load_figures *f, const load_slo *slo, json_out *j) {
    const double n = (double)f->completed;
    json_out_uint(j, "requests", f->requests);
    json_out_uint(j, "completed", f->completed);
    json_out_uint(j, "refused", f->refused);
    json_out_uint(j, "failed", f->failed);
    json_out_uint(j, "cancelled", f->cancelled);
    json_out_double(j, "wall_s", rounded(f->wall));
    json_out_double(j, "prompt_tokens_mean",
                    f->completed ? rounded((double)f->prompt_tokens / n) : (double)NAN);
    json_out_uint(j, "cached_tokens", f->cached_tokens);
    json_out_uint(j, "output_tokens", f->output_tokens);
    json_out_uint(j, "without_usage", f->without_usage);
    json_out_uint(j, "events", f->events);
    json_out_double(j, "output_tokens_per_s", rounded(load_figures_tokens_per_s(f)));
    json_out_double(j, "requests_per_s", rounded(load_figures_requests_per_s(f)));
    load_quantiles_json(&f->ttft, "ttft_ms", j);
    load_quantiles_json(&f->tpot, "tpot_ms", j);
    load_quantiles_json(&f->itl, "itl_ms", j);
    load_quantiles_json(&f->e2e, "e2e_ms", j);
    load_quantiles_json(&f->late, "late_ms", j);
    goodput_json(f, slo, j);
    refusals_json(f, j);
    errors_json(f, j);
    json_out_object(j, "finish");
    for (size_t i = 0; i < f->n_finishes; i++) json_out_uint(j, f->finishes[i].name, f->finishes[i].count);
    json_out_end_object(j);
    client_json(f, j);
}

/* ---- for people ------------------------------------------------------------------------------------- */

static void table_row(str *to, const char *name, const load_quantiles *q) {
    if (q->n == 0) return;
    const double v[] = {q->p50, q->p90, q->p95, q->p99, q->max};
    str_fmt(to, "  %-20s", name);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const double value = v[i] * 1e3;
        str_fmt(to, " %9.*f", value < 10 ? 2 : value < 1000 ? 1 : 0, value);
    }
    str_put(to, '\n');
}

static void table_totals(const load_figures *f, const load_slo *slo, str *to) {
    if (f->without_usage) {
        str_fmt(to, "  output tokens: the server did not count them for %zu of %zu answers;",
                f->without_usage, f->completed);
    } else {
        str_fmt(to, "  output %.1f tokens/s;", load_figures_tokens_per_s(f));
    }
    str_fmt(to, " %.2f requests/s; %.0f tokens in (%.0f cached), %.0f out a request\n",
            load_figures_requests_per_s(f),
            f->completed ? (double)f->prompt_tokens / (double)f->completed : 0,
            f->completed ? (double)f->cached_tokens / (double)f->completed : 0,
            f->completed ? (double)f->output_tokens / (double)f->completed : 0);
    if (slo) {
        str_fmt(to, "  goodput %.2f requests/s: %zu of %zu within the objective\n", load_figures_goodput(f),
                f->good, f->requests);
    }
}

void load_figures_table(const load_figures *f, const load_slo *slo, str *to) {
    str_fmt(to, "  %-20s %9s %9s %9s %9s %9s\n", "ms", "p50", "p90", "p95", "p99", "max");
    table_row(to, "first token", &f->ttft);
    table_row(to, "time a token", &f->tpot);
    table_row(to, "between events", &f->itl);
    table_row(to, "whole answer", &f->e2e);
    if (f->late.max > 1e-3) table_row(to, "sent too late", &f->late);
    table_totals(f, slo, to);
    if (f->refused) {
        str_fmt(to, "  refused with 429: %zu, %zu of them with Retry-After; at most %.1f ms to say so\n",
                f->refused, f->refused_with_retry, f->refusal.max * 1e3);
    }
    for (size_t i = 0; i < f->n_errors; i++) {
        const load_error_row *e = &f->errors[i];
        str_fmt(to, "  %s: %zu, such as: %s\n", load_outcome_name(e->outcome), e->count, e->example);
    }
    if (f->events) {
        str_fmt(to, "  this client: %.1f %% of a core, %.1f us an event\n",
                f->wall > 0 ? f->client_cpu / f->wall * 100 : 0, f->client_cpu / (double)f->events * 1e6);
    }
}

static void stamps_json(json_out *j, const double *stamps, size_t n) {
    json_out_array(j, "stamps_s");
    for (size_t k = 0; k < n; k++) json_out_double(j, NULL, round(stamps[k] * 1e6) / 1e6);
    json_out_end_array(j);
}

void load_stall_jsonl(const load_stall *r, const char *target, str *to) {
    json_out j = json_out_begin(to);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "target", target);
    json_out_double(&j, "long_sent_s", r->sent);
    json_out_double(&j, "long_first_s", r->first);
    json_out_uint(&j, "long_tokens", r->long_tokens);
    stamps_json(&j, r->stamps, r->n_stamps);
    json_out_end_object(&j);
    str_put(to, '\n');
}

void load_records_jsonl(const load_records *records, const char *target, str *to) {
    for (size_t i = 0; i < records->n; i++) {
        const load_record *r = &records->items[i];
        json_out j = json_out_begin(to);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "target", target);
        json_out_uint(&j, "round", r->round);
        json_out_cstr(&j, "outcome", load_outcome_name(r->outcome));
        json_out_int(&j, "status", r->code);
        json_out_double(&j, "scheduled_s", r->scheduled);
        json_out_double(&j, "sent_s", r->sent);
        json_out_double(&j, "end_s", r->end);
        json_out_uint(&j, "prompt_tokens", r->prompt_tokens);
        json_out_uint(&j, "output_tokens", r->output_tokens);
        json_out_uint(&j, "cached_tokens", r->cached_tokens);
        json_out_cstr(&j, "finish_reason", r->finish);
        json_out_cstr(&j, "why", r->why);
        stamps_json(&j, r->stamps, r->n_stamps);
        json_out_end_object(&j);
        str_put(to, '\n');
    }
}
