/* load_plan.c: see load_plan.h. */
#include "bench/load_plan.h"

#include "base/file.h"
#include "base/mem.h"
#include "bench/load_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TRACE_MAX_BYTES = 1 << 30, COLUMNS_MAX = 64, FIELD_SHOWN = 60 };

void load_plan_free(load_plan *p) {
    mem_free(p->items);
    *p = (load_plan){0};
}

/* ---- made up ---------------------------------------------------------------------------------------- */

/* Decimal digits alone, 1..max. */
static bool read_count(const char *text, size_t n, uint32_t min, uint32_t max, uint32_t *out) {
    uint64_t v = 0;
    if (n == 0 || n > 10) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    *out = (uint32_t)v;
    return v >= min && v <= max;
}

status load_range_parse(load_range *out, const char *text, const char *field, error *err) {
    const char *dash = strchr(text, '-');
    size_t n = dash ? (size_t)(dash - text) : strlen(text);
    load_range r = {0};
    bool ok = read_count(text, n, 1, LOAD_TOKENS_MAX, &r.lo);
    r.hi = r.lo;
    if (ok && dash) ok = read_count(dash + 1, strlen(dash + 1), r.lo, LOAD_TOKENS_MAX, &r.hi);
    if (!ok) {
        return error_set(err, CHURON_INVALID,
                         "field %s: expected tokens such as 110 or 50-200, got \"%.60s\"", field, text);
    }
    *out = r;
    return CHURON_OK;
}

static uint32_t draw(load_range r, uint64_t *random) {
    return r.lo + (uint32_t)load_random_below(random, (uint64_t)(r.hi - r.lo) + 1);
}

status load_plan_make(load_plan *out, size_t n, double rate, load_range prompt, load_range output,
                      uint64_t seed, error *err) {
    *out = (load_plan){0};
    load_request *items = mem_calloc(n ? n : 1, sizeof *items);
    if (!items) return error_no_memory(err, "requests", n * sizeof *items);
    /* Two streams: the lengths of a seed are the same at every rate. */
    uint64_t times = load_random_mix(seed, 1), lengths = load_random_mix(seed, 2);
    double at = 0;
    for (size_t i = 0; i < n; i++) {
        if (rate > 0) at += load_random_exponential(&times) / rate;
        items[i].at = at;
        items[i].prompt_tokens = draw(prompt, &lengths);
        items[i].output_tokens = draw(output, &lengths);
    }
    *out = (load_plan){items, n};
    return CHURON_OK;
}

/* ---- a trace ---------------------------------------------------------------------------------------- */

typedef struct cell {
    const char *text;
    size_t n;
} cell;

/* Whole seconds and the part of one, apart: a date since 1970 with seven decimals needs more than a double.
 */
typedef struct moment {
    int64_t seconds;
    double part;
} moment;

typedef struct trace_reader {
    size_t columns, time, prompt, output; /* of the line of names */
    moment first, last;
    size_t cap;
} trace_reader;

static size_t split_cells(const char *line, size_t n, cell cells[COLUMNS_MAX]) {
    size_t count = 0;
    for (size_t at = 0; count < COLUMNS_MAX;) {
        const char *comma = memchr(line + at, ',', n - at);
        size_t len = comma ? (size_t)(comma - line) - at : n - at;
        cells[count++] = (cell){line + at, len};
        at += len + 1;
        if (!comma) return count;
    }
    return COLUMNS_MAX + 1;
}

static bool cell_is(cell c, const char *name) {
    return strlen(name) == c.n && strncasecmp(c.text, name, c.n) == 0;
}

static status read_names(trace_reader *r, const char *line, size_t n, error *err) {
    static const char *const names[3][2] = {{"TIMESTAMP", "arrived_at"},
                                            {"ContextTokens", "prompt_tokens"},
                                            {"GeneratedTokens", "output_tokens"}};
    size_t *at[3] = {&r->time, &r->prompt, &r->output};
    cell cells[COLUMNS_MAX];
    r->columns = split_cells(line, n, cells);
    if (r->columns > COLUMNS_MAX) {
        return error_set(err, CHURON_INVALID, "line 1: expected at most %d columns, got more", COLUMNS_MAX);
    }
    for (size_t k = 0; k < 3; k++) {
        size_t found = 0;
        for (size_t i = 0; i < r->columns; i++) {
            if (!cell_is(cells[i], names[k][0]) && !cell_is(cells[i], names[k][1])) continue;
            *at[k] = i;
            found++;
        }
        if (found != 1) {
            return error_set(err, CHURON_INVALID,
                             "line 1: column %s (or %s): expected once in the names, got %zu times in "
                             "\"%.*s\"",
                             names[k][0], names[k][1], found, n < FIELD_SHOWN ? (int)n : FIELD_SHOWN, line);
        }
    }
    return CHURON_OK;
}

/* n digits at *p, moved past. */
static bool digits(const char **p, const char *end, size_t n, int64_t *out) {
    int64_t v = 0;
    if ((size_t)(end - *p) < n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = *(*p)++;
        if (c < '0' || c > '9') return false;
        v = v * 10 + (c - '0');
    }
    *out = v;
    return true;
}

static bool mark(const char **p, const char *end, const char *any_of) {
    if (*p == end || !strchr(any_of, **p)) return false;
    (*p)++;
    return true;
}

/* Days since 1970-01-01 of the Gregorian calendar (Howard Hinnant's days_from_civil, years from 1 on). */
static int64_t days_since_1970(int64_t y, int64_t m, int64_t d) {
    y -= m <= 2;
    int64_t era = y / 400, of_era = y - era * 400;
    int64_t of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* ".6805900", may be absent. */
static bool read_part(const char **p, const char *end, double *out) {
    double scale = 0.1;
    *out = 0;
    if (*p == end || **p != '.') return true;
    const char *from = ++*p;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++, scale /= 10) *out += scale * (**p - '0');
    return *p > from;
}

static bool read_date(const char *p, const char *end, moment *out) {
    int64_t y, mo, d, h, mi, s;
    if (!digits(&p, end, 4, &y) || !mark(&p, end, "-") || !digits(&p, end, 2, &mo) || !mark(&p, end, "-") ||
        !digits(&p, end, 2, &d) || !mark(&p, end, " T") || !digits(&p, end, 2, &h) || !mark(&p, end, ":") ||
        !digits(&p, end, 2, &mi) || !mark(&p, end, ":") || !digits(&p, end, 2, &s) ||
        !read_part(&p, end, &out->part)) {
        return false;
    }
    bool utc = p == end || (end - p == 1 && *p == 'Z') || (end - p == 6 && memcmp(p, "+00:00", 6) == 0);
    if (!utc || y < 1 || mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || s > 60) return false;
    out->seconds = ((days_since_1970(y, mo, d) * 24 + h) * 60 + mi) * 60 + s;
    return true;
}

static bool read_seconds(const char *p, const char *end, moment *out) {
    const char *from = p;
    out->seconds = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (p - from > 15) return false;
        out->seconds = out->seconds * 10 + (*p - '0');
    }
    return p > from && read_part(&p, end, &out->part) && p == end;
}

static double seconds_between(moment a, moment b) {
    return (double)(b.seconds - a.seconds) + (b.part - a.part);
}

static status wrong_cell(size_t line, const char *column, const char *expected, cell c, error *err) {
    return error_set(err, CHURON_INVALID, "line %zu: column %s: expected %s, got \"%.*s\"", line, column,
                     expected, c.n < FIELD_SHOWN ? (int)c.n : FIELD_SHOWN, c.text);
}

static status read_row(trace_reader *r, load_plan *p, const char *line, size_t n, size_t number, error *err) {
    cell cells[COLUMNS_MAX];
    size_t columns = split_cells(line, n, cells);
    if (columns != r->columns) {
        return error_set(err, CHURON_INVALID, "line %zu: expected %zu values, got %zu%s", number, r->columns,
                         columns > COLUMNS_MAX ? (size_t)COLUMNS_MAX : columns,
                         columns > COLUMNS_MAX ? " and more" : "");
    }
    moment m;
    cell t = cells[r->time];
    if (!read_date(t.text, t.text + t.n, &m) && !read_seconds(t.text, t.text + t.n, &m)) {
        return wrong_cell(number, "TIMESTAMP", "a date such as 2023-11-16 18:15:46.68 or seconds", t, err);
    }
    if (p->n == 0) r->first = r->last = m;
    if (seconds_between(r->last, m) < 0) {
        return wrong_cell(number, "TIMESTAMP", "no earlier than the line before", t, err);
    }
    r->last = m;
    uint32_t prompt, output;
    if (!read_count(cells[r->prompt].text, cells[r->prompt].n, 0, LOAD_TOKENS_MAX, &prompt)) {
        return wrong_cell(number, "ContextTokens", "a number of tokens", cells[r->prompt], err);
    }
    if (!read_count(cells[r->output].text, cells[r->output].n, 0, LOAD_TOKENS_MAX, &output)) {
        return wrong_cell(number, "GeneratedTokens", "a number of tokens", cells[r->output], err);
    }
    if (p->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 256;
        load_request *more = mem_realloc(p->items, cap * sizeof *more);
        if (!more) return error_no_memory(err, "requests", cap * sizeof *more);
        p->items = more;
        r->cap = cap;
    }
    p->items[p->n++] = (load_request){seconds_between(r->first, m), prompt ? prompt : 1, output ? output : 1};
    return CHURON_OK;
}

static status read_lines(trace_reader *r, load_plan *p, const char *text, size_t n, size_t max, error *err) {
    size_t number = 0, blank = 0;
    for (size_t at = 0; at < n && p->n < max;) {
        const char *lf = memchr(text + at, '\n', n - at);
        size_t len = lf ? (size_t)(lf - text) - at : n - at, next = at + len + 1;
        if (len && text[at + len - 1] == '\r') len--;
        number++;
        if (len == 0) {
            if (!blank) blank = number;
        } else if (blank) {
            return error_set(err, CHURON_INVALID, "line %zu: expected %s, got an empty line", blank,
                             blank == 1 ? "names of columns" : "values");
        } else if (number == 1) {
            TRY(read_names(r, text + at, len, err));
        } else {
            TRY(read_row(r, p, text + at, len, number, err));
        }
        at = next;
    }
    if (p->n == 0) {
        return error_set(err, CHURON_INVALID, "expected a line of names and lines of values, got %zu line%s",
                         number, number == 1 ? "" : "s");
    }
    return CHURON_OK;
}

status load_trace_parse(load_plan *out, const char *text, size_t n, size_t max_requests, error *err) {
    *out = (load_plan){0};
    load_plan p = {0};
    trace_reader r = {0};
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, n -= 3;
    size_t max = max_requests ? max_requests : LOAD_REQUESTS_MAX;
    status st = read_lines(&r, &p, text, n, max, err);
    if (st == CHURON_OK) {
        *out = p;
    } else {
        load_plan_free(&p);
    }
    return st;
}

status load_trace_read(load_plan *out, const char *path, size_t max_requests, error *err) {
    *out = (load_plan){0};
    str text = {0};
    status st = file_read(&text, path, TRACE_MAX_BYTES, err);
    if (st == CHURON_OK) {
        st = load_trace_parse(out, str_cstr(&text), text.len, max_requests, err);
        if (st != CHURON_OK) error_prefix(err, "%s", path);
    }
    str_free(&text);
    return st;
}

/* ---- either ----------------------------------------------------------------------------------------- */

static uint32_t scaled(uint32_t tokens, double by) {
    double v = round((double)tokens * by);
    return v < 1 ? 1 : v > LOAD_TOKENS_MAX ? LOAD_TOKENS_MAX : (uint32_t)v;
}

void load_plan_scale(load_plan *p, double time, double length) {
    for (size_t i = 0; i < p->n; i++) {
        load_request *q = &p->items[i];
        q->at *= time;
        q->prompt_tokens = scaled(q->prompt_tokens, length);
        q->output_tokens = scaled(q->output_tokens, length);
    }
}

double load_plan_rate(const load_plan *p) {
    double span = p->n ? p->items[p->n - 1].at - p->items[0].at : 0;
    return span > 0 ? (double)(p->n - 1) / span : 0;
}
