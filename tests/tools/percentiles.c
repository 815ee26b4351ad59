/* percentiles.c: numbers on stdin; their percentiles as the load generator computes them, one JSON object. */
#include "bench/load_stats.h"

#include <stdio.h>

int main(void) {
    load_samples s = {0};
    double v;
    while (scanf("%lf", &v) == 1) load_samples_add(&s, v);
    if (s.failed || s.n == 0) return 1;
    const load_quantiles q = load_samples_quantiles(&s);
    printf("{\"n\": %zu, \"mean\": %.17g, \"min\": %.17g, \"p50\": %.17g, \"p90\": %.17g, \"p95\": %.17g, "
           "\"p99\": %.17g, \"max\": %.17g, \"p0.7\": %.17g}\n",
           q.n, q.mean, q.min, q.p50, q.p90, q.p95, q.p99, q.max, load_percentile(s.v, s.n, 0.7));
    load_samples_free(&s);
    return 0;
}
