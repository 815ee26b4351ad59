/* stats.h: medians and spreads of repeated measurements. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>

/* Sorts v. n >= 1. Even n: the mean of the middle two. */
double stats_median(double *v, size_t n);
/* Standard deviation of a sample; 0 for n < 2. */
double stats_sd(const double *v, size_t n);

#endif
