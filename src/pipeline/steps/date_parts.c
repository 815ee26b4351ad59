/* date_parts.c: numbers of a date or a time. */
#include "pipeline/calendar.h"
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_PARTS, KEY_NAMES_, KEY_DTYPE };

typedef enum date_part {
    PART_YEAR,
    PART_QUARTER,
    PART_MONTH,
    PART_DAY,
    PART_WEEKDAY,
    PART_YEARDAY,
    PART_WEEK,
    PART_HOUR,
    PART_MINUTE,
    PART_SECOND,
    PART_MICROSECOND,
    PARTS
} date_part;

static const char *const PART_NAMES[PARTS] = {"year", "quarter", "month",  "day",    "weekday",    "yearday",
                                              "week", "hour",    "minute", "second", "microsecond"};

typedef struct date_state {
    size_t n;
    date_part *parts; /* [n] */
    int32_t *slots;   /* [n]; NULL: in one vector */
    elem element;
} date_state;

static const key_spec DATE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A date or a timestamp"},
    {"into", KEY_INTO, .doc = "Name of one vector with all parts; with parts"},
    {"parts", KEY_TEXTS,
     .doc = "In this order in the vector: year, quarter (1 to 4), month, day, weekday (Monday 0), yearday "
            "(from 1), week "
            "(of ISO 8601), hour, minute, second, microsecond"},
    {"names", KEY_NAMES, .doc = "Instead of into and parts: a map from part to the name of an int64"},
    {"dtype", KEY_CHOICE, .fallback = "int64", .choices = "int64|float64|float32", .doc = "Of the vector"},
    {0}};

static status read_part(step_build *b, const char *key, const char *name, bool date, date_part *out,
                        error *err) {
    size_t i = 0;
    while (i < PARTS && strcmp(PART_NAMES[i], name) != 0) i++;
    *out = (date_part)i;
    if (i == PARTS) {
        const char *near = keys_nearest(name, PART_NAMES, PARTS);
        return step_fault(b, key, err,
                          near ? "expected a part, got '%.40s': did you mean '%s'?"
                               : "expected a part (year, month, …), got '%.40s'%s",
                          name, near ? near : "");
    }
    if (date && i >= PART_HOUR)
        return step_fault(b, key, err, "expected a part that a date has, got '%s'", name);
    return CHURON_OK;
}

static status check_date_parts(step_build *b, error *err) {
    const key_value *parts = &b->values[KEY_PARTS], *names = &b->values[KEY_NAMES_];
    date_state *s;
    TRY(step_expect(b, KEY_FIELD_, 1u << CELL_DATE | 1u << CELL_TIME, false, err));
    const bool date = b->values[KEY_FIELD_].type->kind == CELL_DATE;
    if (names->given == parts->given || parts->given != b->values[KEY_INTO_].given)
        return step_fault(b, NULL, err, "expected the keys 'into' and 'parts', or the key 'names'");
    const key_value *v = names->given ? names : parts;
    TRY(step_state(b, sizeof *s, &s, err));
    s->n = v->n;
    s->element = elem_named(b->values[KEY_DTYPE].text, ELEMS_ALL);
    if (v->n == 0)
        return step_fault(b, names->given ? "names" : "parts", err, "expected at least one part, got none");
    s->parts = arena_array(b->memory, s->n, sizeof *s->parts);
    if (!s->parts) return arena_refused(b->memory, b->kind->name, s->n * sizeof *s->parts, err);
    for (size_t i = 0; i < s->n; i++)
        TRY(read_part(b, names->given ? "names" : "parts", v->texts[i], date, &s->parts[i], err));
    b->s->in = b->values[KEY_FIELD_].slot;
    if (!names->given) {
        const cell_type type = {
            .kind = CELL_TENSOR, .element = s->element, .has_rank = true, .rank = 1, .dims = {(int64_t)s->n}};
        return step_output(b, KEY_INTO_, KEY_FIELD_, &type, err);
    }
    if (b->values[KEY_DTYPE].given) return step_fault(b, "dtype", err, "expected it with parts only");
    s->slots = arena_array(b->memory, s->n, sizeof *s->slots);
    if (!s->slots) return arena_refused(b->memory, b->kind->name, s->n * sizeof *s->slots, err);
    for (size_t i = 0; i < s->n; i++)
        TRY(step_output_named(b, names->others[i], &CELL_TYPE_INT, &s->slots[i], err));
    return CHURON_OK;
}

/* ISO 8601: weeks begin on Monday; the first one holds the year's first Thursday. */
static int week_of(const calendar_day *d, int64_t days) {
    const int64_t thursday = days - d->weekday + 3;
    return (date_to(thursday).year_day - 1) / 7 + 1;
}

static int64_t part_of(date_part part, const calendar_day *d, int64_t days, int64_t rest) {
    switch (part) {
    case PART_YEAR: return d->year;
    case PART_QUARTER: return (d->month + 2) / 3;
    case PART_MONTH: return d->month;
    case PART_DAY: return d->day;
    case PART_WEEKDAY: return d->weekday;
    case PART_YEARDAY: return d->year_day;
    case PART_WEEK: return week_of(d, days);
    case PART_HOUR: return rest / INT64_C(3600000000);
    case PART_MINUTE: return rest / 60000000 % 60;
    case PART_SECOND: return rest / 1000000 % 60;
    default: return rest % 1000000;
    }
}

static status row_date_parts(const step *st, run *r, cell *slots, error *err) {
    const date_state *s = st->state;
    const cell *in = &slots[st->in];
    const int64_t of_day = INT64_C(86400000000);
    int64_t days = in->integer, rest = 0;
    if (in->kind == CELL_TIME) {
        days = in->integer / of_day;
        rest = in->integer % of_day;
        if (rest < 0) {
            rest += of_day;
            days--;
        }
    }
    const calendar_day d = date_to(days);
    double *out = NULL;
    if (!s->slots) TRY(vector_room(st, r, s->n, &out, err));
    for (size_t i = 0; i < s->n; i++) {
        const int64_t v = part_of(s->parts[i], &d, days, rest);
        if (s->slots) {
            slots[s->slots[i]] = cell_of_int(v);
        } else {
            out[i] = (double)v;
        }
    }
    return s->slots ? CHURON_OK : vector_store_row(st, r, s->element, out, s->n, &slots[st->out], err);
}

const step_kind step_date_parts = {
    .name = "date_parts",
    .group = "tabular",
    .doc = "Parts of a date, or of a timestamp in UTC, in the proleptic Gregorian calendar.",
    .reference = "Python datetime",
    .keys = DATE_KEYS,
    .check = check_date_parts,
    .row = row_date_parts};
