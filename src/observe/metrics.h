/* metrics.h: counters, gauges and histograms, written out in Prometheus' text format.
 *
 * A family is a name with one kind and one help text; a series is a family with one set of labels. Series are
 * registered, never removed, and live as long as their metrics. Registering returns NULL when memory ran out
 * or a name is used for two kinds; every update accepts NULL and does nothing then, and metrics_check says so
 * once, after all were registered.
 *
 * Threads: registering takes a lock; updates are lock-free; all of it may be called from any thread. A scrape
 * sees each number whole, but not all numbers of the same instant. */
#ifndef OBSERVE_METRICS_H
#define OBSERVE_METRICS_H

#include "base/str.h"

typedef struct metrics metrics;
typedef struct metric metric;

MUST_USE status metrics_create(metrics **out, error *err);
void metrics_free(metrics *m);
MUST_USE status metrics_check(const metrics *m, error *err); /* did every registration succeed? */

/* `labels`: as written between the braces, e.g. `code="200"`; NULL or "" for none. Registering the same name
 * and labels again gives the same series. Counters' names end in _total. At most METRICS_MAX_SERIES series of
 * one family: the rest share one series labelled other="true", so that labels cannot exhaust memory. */
enum { METRICS_MAX_SERIES = 64 };
metric *metrics_counter(metrics *m, const char *name, const char *labels, const char *help);
metric *metrics_gauge(metrics *m, const char *name, const char *labels, const char *help);
/* `bounds`: [n] upper bounds, increasing, copied; the bucket +Inf is added. */
metric *metrics_histogram(metrics *m, const char *name, const char *labels, const char *help,
                          const double *bounds, size_t n);

/* Appends `key="value"` with the value escaped, after a comma if *labels is not empty. */
void metrics_label(str *labels, const char *key, const char *value);

void metric_add(metric *c, uint64_t n);       /* counter */
void metric_set(metric *g, double value);     /* gauge */
void metric_observe(metric *h, double value); /* histogram */
uint64_t metric_count(const metric *c);       /* counter's value, or number of observations */

/* Appends the exposition (text format 0.0.4): families in order of registration. */
void metrics_write(metrics *m, str *out);

#endif
