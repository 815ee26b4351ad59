/* load_record.c: what one request came to, and whether that was good enough; see load.h. */
#include "bench/load.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void load_records_free(load_records *r) {
    for (size_t i = 0; i < r->n; i++) mem_free(r->items[i].stamps);
    mem_free(r->items);
    *r = (load_records){0};
}

status load_records_join(load_records *to, load_records *from, error *err) {
    const size_t n = to->n + from->n;
    load_record *items = mem_realloc(to->items, (n ? n : 1) * sizeof *items);
    if (!items) return error_no_memory(err, "records", n * sizeof *items);
    if (from->n) memcpy(items + to->n, from->items, from->n * sizeof *items);
    to->items = items;
    to->n = to->cap = n;
    to->wall += from->wall;
    to->client_cpu += from->client_cpu;
    mem_free(from->items);
    *from = (load_records){0};
    return CHURON_OK;
}

double load_record_ttft(const load_record *r) {
    return r->first - r->scheduled;
}

double load_record_tpot(const load_record *r) {
    if (!r->has_usage || r->output_tokens < 2 || r->n_stamps == 0) return (double)NAN;
    return (r->last - r->first) / (double)(r->output_tokens - 1);
}

double load_record_longest_gap(const load_record *r) {
    double longest = (double)NAN;
    for (size_t i = 1; i < r->n_stamps; i++) {
        const double gap = r->stamps[i] - r->stamps[i - 1];
        if (!(gap <= longest)) longest = gap;
    }
    return longest;
}

/* ---- objectives ------------------------------------------------------------------------------------- */

/* "500ms", "0.5s", "800us" to seconds, over 0. */
static bool read_duration(const char *text, size_t n, double *out) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
    char number[32];
    size_t digits = 0;
    while (digits < n && strchr("0123456789.", text[digits])) digits++;
    if (digits == 0 || digits >= sizeof number) return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    char *end;
    const double v = strtod(number, &end);
    if (*end || !(v > 0)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].unit) != n - digits || memcmp(text + digits, units[i].unit, n - digits) != 0)
            continue;
        *out = v * units[i].seconds;
        return true;
    }
    return false;
}

status load_slo_parse(load_slo *out, const char *text, error *err) {
    load_slo slo = {0};
    const struct {
        const char *name;
        double *to;
    } parts[] = {{"ttft", &slo.ttft}, {"tpot", &slo.tpot}, {"itl", &slo.itl}, {"e2e", &slo.e2e}};
    for (const char *at = text;;) {
        const size_t n = strcspn(at, ","), name = strcspn(at, "=,");
        bool ok = false;
        for (size_t i = 0; name < n && i < sizeof parts / sizeof *parts; i++) {
            if (strlen(parts[i].name) != name || memcmp(parts[i].name, at, name) != 0) continue;
            ok = *parts[i].to == 0 && read_duration(at + name + 1, n - name - 1, parts[i].to);
        }
        if (!ok) {
            return error_set(err, CHURON_INVALID,
                             "field --slo: expected parts of ttft=500ms,tpot=50ms,itl=1s,e2e=10s, each once, "
                             "got \"%.60s\"",
                             text);
        }
        at += n;
        if (!*at++) break;
    }
    *out = slo;
    return CHURON_OK;
}

static bool within(double value, double limit) {
    return limit == 0 || isnan(value) || value <= limit;
}

bool load_slo_met(const load_slo *slo, const load_record *r) {
    return r->outcome == LOAD_OK && !isnan(r->first) && within(load_record_ttft(r), slo->ttft) &&
           within(load_record_tpot(r), slo->tpot) &&
           (slo->itl == 0 || within(load_record_longest_gap(r), slo->itl)) &&
           within(r->end - r->scheduled, slo->e2e);
}
