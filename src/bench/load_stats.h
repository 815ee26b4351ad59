/* load_stats.h: samples kept whole, and percentiles of them that are samples themselves; random numbers that
 * are the same on every machine.
 *
 * A percentile is by nearest rank: the smallest sample that at least p percent of the samples do not exceed.
 * Nothing is binned or interpolated. Owner: one thread. */
#ifndef BENCH_LOAD_STATS_H
#define BENCH_LOAD_STATS_H

#include "base/status.h"

/* Zero-initialise; free with load_samples_free. After a failed allocation `failed` is set and later samples
 * are dropped: check once at the end. */
typedef struct load_samples {
    double *v;
    size_t n, cap;
    bool failed;
} load_samples;

void load_samples_free(load_samples *s);
void load_samples_add(load_samples *s, double value);
void load_samples_sort(load_samples *s);

/* v: ascending, n >= 1, 0 < p <= 100. */
double load_percentile(const double *v, size_t n, double p);

/* All NaN when there are no samples. */
typedef struct load_quantiles {
    size_t n;
    double mean, min, p50, p90, p95, p99, max;
} load_quantiles;

/* Sorts the samples. */
load_quantiles load_samples_quantiles(load_samples *s);

/* splitmix64. */
uint64_t load_random(uint64_t *state);
double load_random_unit(uint64_t *state);                  /* in (0, 1], 53 bits */
double load_random_exponential(uint64_t *state);           /* mean 1 */
uint64_t load_random_below(uint64_t *state, uint64_t n);   /* 0..n-1, n >= 1 */
uint64_t load_random_mix(uint64_t seed, uint64_t counter); /* a state that depends on both */

#endif
