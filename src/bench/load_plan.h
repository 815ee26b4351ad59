/* load_plan.h: which requests a run sends, when, and how long they are; decided before the run begins, so
 * that no answer's slowness changes what is asked.
 *
 * Times are seconds from the run's start, ascending. Lengths are tokens. */
#ifndef BENCH_LOAD_PLAN_H
#define BENCH_LOAD_PLAN_H

#include "base/status.h"

enum { LOAD_REQUESTS_MAX = 1000000, LOAD_TOKENS_MAX = 10000000 };

typedef struct load_request {
    double at;
    uint32_t prompt_tokens, output_tokens; /* at least 1 */
} load_request;

/* Zero-initialise; free with load_plan_free. */
typedef struct load_plan {
    load_request *items;
    size_t n;
} load_plan;

typedef struct load_range {
    uint32_t lo, hi; /* both included */
} load_range;

void load_plan_free(load_plan *p);

/* "110" or "50-200". `field` is named in the error, e.g. "--prompt-tokens". */
MUST_USE status load_range_parse(load_range *out, const char *text, const char *field, error *err);

/* n requests with lengths drawn evenly from the ranges. rate > 0: a Poisson process of that many a second,
 * the first one at its own random time; 0: all at time 0 (a closed loop takes them as it has room). The same
 * seed gives the same plan on every machine with the same libm. */
MUST_USE status load_plan_make(load_plan *out, size_t n, double rate, load_range prompt, load_range output,
                               uint64_t seed, error *err);

/* A trace: lines of comma-separated values under a line of names, of which these count, in any case and
 * order: TIMESTAMP (or arrived_at: "2023-11-16 18:15:46.6805900" or seconds), ContextTokens (or
 * prompt_tokens), GeneratedTokens (or output_tokens). Times must not go back; the first becomes 0. Up to
 * max_requests rows are taken (0: all). A byte order mark and CRLF are accepted; a wrong line is named with
 * its number. */
MUST_USE status load_trace_parse(load_plan *out, const char *text, size_t n, size_t max_requests, error *err);
/* path "-": stdin. The error is prefixed with the path. */
MUST_USE status load_trace_read(load_plan *out, const char *path, size_t max_requests, error *err);

/* Multiplies times and lengths (rounded, at least one token). Both factors are finite and over 0. */
void load_plan_scale(load_plan *p, double time, double length);
/* Requests a second between the first and the last; 0 when there is no time between them. */
double load_plan_rate(const load_plan *p);

#endif
