/* metrics.c: see metrics.h. */
#include "observe/metrics.h"

#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef enum metric_kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM } metric_kind;

typedef struct family family;

/* Relaxed atomics throughout: numbers that publish nothing else. */
struct metric {
    metric *next; /* in its family; written once, under the lock */
    const family *of;
    char *labels;
    atomic_uint_least64_t count; /* counter's value; observations of a histogram are the sum of its buckets */
    _Atomic double value;        /* gauge's value; sum of a histogram's observations */
    atomic_uint_least64_t *buckets; /* [of->n_bounds + 1] */
};

struct family {
    family *next;
    metric_kind kind;
    char *name, *help;
    double *bounds; /* [n_bounds] */
    size_t n_bounds, n_series;
    metric *first, *last;
};

struct metrics {
    pthread_mutex_t lock; /* guards the lists */
    family *first, *last;
    bool failed;
};

status metrics_create(metrics **out, error *err) {
    *out = NULL;
    metrics *m = mem_calloc(1, sizeof *m);
    if (!m) return error_no_memory(err, "metrics", sizeof *m);
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        mem_free(m);
        return error_set(err, CHURON_IO, "metrics: the system has no mutex to give");
    }
    *out = m;
    return CHURON_OK;
}

static void metric_free(metric *s) {
    mem_free(s->labels);
    mem_free(s->buckets);
    mem_free(s);
}

static void family_free(family *f) {
    for (metric *s = f->first; s;) {
        metric *next = s->next;
        metric_free(s);
        s = next;
    }
    mem_free(f->name);
    mem_free(f->help);
    mem_free(f->bounds);
    mem_free(f);
}

void metrics_free(metrics *m) {
    if (!m) return;
    for (family *f = m->first; f;) {
        family *next = f->next;
        family_free(f);
        f = next;
    }
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

status metrics_check(const metrics *m, error *err) {
    return m->failed ? error_set(err, CHURON_NO_MEMORY, "metrics: a series could not be registered")
                     : CHURON_OK;
}

/* ---- registering ------------------------------------------------------------------------------------ */

static family *family_find(metrics *m, const char *name) {
    for (family *f = m->first; f; f = f->next) {
        if (strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}

static family *family_add(metrics *m, metric_kind kind, const char *name, const char *help,
                          const double *bounds, size_t n) {
    family *f = mem_calloc(1, sizeof *f);
    if (!f) return NULL;
    f->kind = kind;
    f->name = mem_strdup(name);
    f->help = mem_strdup(help);
    f->n_bounds = n;
    f->bounds = n ? mem_calloc(n, sizeof *f->bounds) : NULL;
    if (!f->name || !f->help || (n && !f->bounds)) {
        family_free(f);
        return NULL;
    }
    if (n) memcpy(f->bounds, bounds, n * sizeof *f->bounds);
    if (m->last) {
        m->last->next = f;
    } else {
        m->first = f;
    }
    m->last = f;
    return f;
}

static metric *series_find_or_add(family *f, const char *labels) {
    for (metric *s = f->first; s; s = s->next) {
        if (strcmp(s->labels, labels) == 0) return s;
    }
    if (f->n_series > METRICS_MAX_SERIES) return f->last; /* the shared one came last */
    if (f->n_series == METRICS_MAX_SERIES) labels = "other=\"true\"";
    metric *s = mem_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->of = f;
    s->labels = mem_strdup(labels);
    if (f->kind == KIND_HISTOGRAM) s->buckets = mem_calloc(f->n_bounds + 1, sizeof *s->buckets);
    if (!s->labels || (f->kind == KIND_HISTOGRAM && !s->buckets)) {
        metric_free(s);
        return NULL;
    }
    if (f->last) {
        f->last->next = s;
    } else {
        f->first = s;
    }
    f->last = s;
    f->n_series++;
    return s;
}

static metric *series(metrics *m, metric_kind kind, const char *name, const char *labels, const char *help,
                      const double *bounds, size_t n) {
    pthread_mutex_lock(&m->lock);
    family *f = family_find(m, name);
    if (!f) f = family_add(m, kind, name, help, bounds, n);
    metric *s = f && f->kind == kind ? series_find_or_add(f, labels ? labels : "") : NULL;
    if (!s) m->failed = true;
    pthread_mutex_unlock(&m->lock);
    return s;
}

metric *metrics_counter(metrics *m, const char *name, const char *labels, const char *help) {
    return series(m, KIND_COUNTER, name, labels, help, NULL, 0);
}

metric *metrics_gauge(metrics *m, const char *name, const char *labels, const char *help) {
    return series(m, KIND_GAUGE, name, labels, help, NULL, 0);
}

metric *metrics_histogram(metrics *m, const char *name, const char *labels, const char *help,
                          const double *bounds, size_t n) {
    return series(m, KIND_HISTOGRAM, name, labels, help, bounds, n);
}

/* ---- updating --------------------------------------------------------------------------------------- */

void metric_add(metric *c, uint64_t n) {
    if (c) atomic_fetch_add_explicit(&c->count, n, memory_order_relaxed);
}

void metric_set(metric *g, double value) {
    if (g) atomic_store_explicit(&g->value, value, memory_order_relaxed);
}

void metric_observe(metric *h, double value) {
    if (!h || isnan(value)) return;
    size_t i = 0;
    while (i < h->of->n_bounds && value > h->of->bounds[i]) i++;
    atomic_fetch_add_explicit(&h->buckets[i], 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&h->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->value, &sum, sum + value, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
}

uint64_t metric_count(const metric *c) {
    if (!c) return 0;
    if (c->of->kind != KIND_HISTOGRAM) return atomic_load_explicit(&c->count, memory_order_relaxed);
    uint64_t n = 0;
    for (size_t i = 0; i <= c->of->n_bounds; i++) {
        n += atomic_load_explicit(&c->buckets[i], memory_order_relaxed);
    }
    return n;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void write_escaped(str *out, const char *text, bool quotes) {
    for (const char *p = text; *p; p++) {
        if (*p == '\\') {
            str_cat(out, "\\\\");
        } else if (*p == '\n') {
            str_cat(out, "\\n");
        } else if (*p == '"' && quotes) {
            str_cat(out, "\\\"");
        } else {
            str_put(out, *p);
        }
    }
}

void metrics_label(str *labels, const char *key, const char *value) {
    if (labels->len) str_put(labels, ',');
    str_fmt(labels, "%s=\"", key);
    write_escaped(labels, value, true);
    str_put(labels, '"');
}

static void write_number(str *out, double v) {
    if (isinf(v)) {
        str_cat(out, v > 0 ? "+Inf" : "-Inf");
    } else if (isnan(v)) {
        str_cat(out, "NaN");
    } else if (v == floor(v) && fabs(v) < 1e15) {
        str_fmt(out, "%.0f", v);
    } else {
        str_fmt(out, "%.9g", v);
    }
}

/* name[suffix]{labels[,le="bound"]} */
static void write_name(str *out, const metric *s, const char *suffix, const double *le) {
    str_fmt(out, "%s%s", s->of->name, suffix);
    if (*s->labels || le) {
        str_put(out, '{');
        str_cat(out, s->labels);
        if (le) {
            if (*s->labels) str_put(out, ',');
            str_cat(out, "le=\"");
            write_number(out, *le);
            str_put(out, '"');
        }
        str_put(out, '}');
    }
    str_put(out, ' ');
}

static void write_histogram(str *out, const metric *s) {
    const double infinity = INFINITY;
    uint64_t cumulative = 0;
    for (size_t i = 0; i <= s->of->n_bounds; i++) {
        cumulative += atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        write_name(out, s, "_bucket", i < s->of->n_bounds ? &s->of->bounds[i] : &infinity);
        str_fmt(out, "%llu\n", (unsigned long long)cumulative);
    }
    write_name(out, s, "_sum", NULL);
    write_number(out, atomic_load_explicit(&s->value, memory_order_relaxed));
    str_put(out, '\n');
    write_name(out, s, "_count", NULL);
    str_fmt(out, "%llu\n", (unsigned long long)cumulative);
}

static void write_series(str *out, const metric *s) {
    if (s->of->kind == KIND_HISTOGRAM) {
        write_histogram(out, s);
        return;
    }
    write_name(out, s, "", NULL);
    if (s->of->kind == KIND_COUNTER) {
        str_fmt(out, "%llu\n", (unsigned long long)metric_count(s));
    } else {
        write_number(out, atomic_load_explicit(&s->value, memory_order_relaxed));
        str_put(out, '\n');
    }
}

void metrics_write(metrics *m, str *out) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    pthread_mutex_lock(&m->lock);
    for (const family *f = m->first; f; f = f->next) {
        str_fmt(out, "# HELP %s ", f->name);
        write_escaped(out, f->help, false);
        str_fmt(out, "\n# TYPE %s %s\n", f->name, kinds[f->kind]);
        for (const metric *s = f->first; s; s = s->next) write_series(out, s);
    }
    pthread_mutex_unlock(&m->lock);
}
