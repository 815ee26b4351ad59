/* load_stats.c: see load_stats.h. */
#include "bench/load_stats.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

void load_samples_free(load_samples *s) {
    mem_free(s->v);
    *s = (load_samples){0};
}

void load_samples_add(load_samples *s, double value) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64, bytes;
        double *more = size_mul(cap, sizeof *s->v, &bytes) ? mem_realloc(s->v, bytes) : NULL;
        if (!more) {
            s->failed = true;
            return;
        }
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = value;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void load_samples_sort(load_samples *s) {
    if (s->n > 1) qsort(s->v, s->n, sizeof *s->v, ascending);
}

double load_percentile(const double *v, size_t n, double p) {
    /* The product first: p * n is exact for whole p, so the rank has no rounding of its own. */
    double rank = ceil(p * (double)n / 100);
    size_t i = rank < 1 ? 0 : (size_t)rank - 1;
    return v[i < n ? i : n - 1];
}

load_quantiles load_samples_quantiles(load_samples *s) {
    if (s->n == 0) return (load_quantiles){0, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    load_samples_sort(s);
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    return (load_quantiles){.n = s->n,
                            .mean = sum / (double)s->n,
                            .min = s->v[0],
                            .p50 = load_percentile(s->v, s->n, 50),
                            .p90 = load_percentile(s->v, s->n, 90),
                            .p95 = load_percentile(s->v, s->n, 95),
                            .p99 = load_percentile(s->v, s->n, 99),
                            .max = s->v[s->n - 1]};
}

uint64_t load_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double load_random_unit(uint64_t *state) {
    return (double)((load_random(state) >> 11) + 1) * 0x1p-53;
}

double load_random_exponential(uint64_t *state) {
    return -log(load_random_unit(state));
}

uint64_t load_random_below(uint64_t *state, uint64_t n) {
    /* What is above the last whole multiple of n is drawn again, so that no value is likelier. */
    uint64_t over = UINT64_MAX - UINT64_MAX % n, r;
    do {
        r = load_random(state);
    } while (r >= over);
    return r % n;
}

uint64_t load_random_mix(uint64_t seed, uint64_t counter) {
    uint64_t state = seed ^ (counter * UINT64_C(0xd1342543de82ef95));
    return load_random(&state);
}
