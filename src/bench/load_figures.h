/* load_figures.h: what the records of one target's runs add up to, as JSON and as a table.
 *
 * Percentiles are of exact samples (load_stats.h). TTFT counts from when the request was due, TPOT is (last -
 * first event) / (tokens - 1) of a request by the server's count, ITL is between events with text, of all
 * requests pooled; one event may carry several tokens. Times in JSON are milliseconds unless the name says
 * otherwise. */
#ifndef BENCH_LOAD_FIGURES_H
#define BENCH_LOAD_FIGURES_H

#include "base/json_out.h"
#include "bench/load.h"
#include "bench/load_stats.h"

enum { LOAD_ERROR_ROWS = 16, LOAD_FINISH_ROWS = 8 };

typedef struct load_error_row {
    load_outcome outcome;
    int code;
    size_t count;
    char example[LOAD_WHY]; /* the first one's reason */
} load_error_row;

typedef struct load_finish_row {
    char name[LOAD_FINISH];
    size_t count;
} load_finish_row;

typedef struct load_figures {
    size_t requests, completed, refused, refused_with_retry, failed, cancelled;
    size_t without_usage; /* completed ones whose tokens the server did not count */
    size_t events, good;
    uint64_t prompt_tokens, output_tokens, cached_tokens; /* of completed requests */
    double wall, client_cpu;                              /* seconds */
    double retry_after_min, retry_after_max;              /* seconds; NaN: none */
    load_quantiles ttft, tpot, itl, e2e, late, refusal;   /* seconds; late: sent after it was due */
    load_error_row errors[LOAD_ERROR_ROWS];
    load_finish_row finishes[LOAD_FINISH_ROWS];
    size_t n_errors, n_finishes;
} load_figures;

/* slo NULL: `good` stays 0. */
MUST_USE status load_figures_make(load_figures *out, const load_records *r, const load_slo *slo, error *err);

double load_figures_tokens_per_s(const load_figures *f); /* NaN when tokens were not counted */
double load_figures_requests_per_s(const load_figures *f);
double load_figures_goodput(const load_figures *f); /* good requests a second */

/* Members of an object that is open. */
void load_figures_json(const load_figures *f, const load_slo *slo, json_out *j);
void load_quantiles_json(const load_quantiles *q, const char *key, json_out *j);
void load_figures_table(const load_figures *f, const load_slo *slo, str *to);

/* One JSON object a line for each request: {"target", "round", "scheduled_s", "sent_s", "end_s", "stamps_s":
 * [...], "outcome", ...}. */
void load_records_jsonl(const load_records *r, const char *target, str *to);

/* The chat of one stall in the same form, with the long prompt's "long_sent_s" and "long_first_s". */
void load_stall_jsonl(const load_stall *r, const char *target, str *to);

#endif
