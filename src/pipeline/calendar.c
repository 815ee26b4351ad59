/* calendar.c: days are counted in eras of 400 years that begin on 1 March, so that the leap day comes last.
 */
#include "pipeline/calendar.h"

#include <inttypes.h>
#include <stdio.h>

enum { DAYS_OF_ERA = 146097, EPOCH = 719468 /* days from 0000-03-01 to 1970-01-01 */ };

int64_t date_from(int year, int month, int day) {
    const int64_t y = year - (month <= 2);
    const int64_t era = y / 400, of_era = y - era * 400;
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH;
}

static bool leap(int year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

calendar_day date_to(int64_t days) {
    const int64_t z = days + EPOCH;
    const int64_t era = (z >= 0 ? z : z - (DAYS_OF_ERA - 1)) / DAYS_OF_ERA;
    const int64_t of_era = z - era * DAYS_OF_ERA;
    const int64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * years + years / 4 - years / 100);
    const int64_t shifted = (5 * of_year + 2) / 153;
    calendar_day d = {.day = (int)(of_year - (153 * shifted + 2) / 5 + 1),
                      .month = (int)(shifted < 10 ? shifted + 3 : shifted - 9)};
    d.year = (int)(years + era * 400 + (d.month <= 2));
    const int64_t week = (days % 7 + 7 + 3) % 7; /* 1970-01-01 was a Thursday */
    d.weekday = (int)week;
    d.year_day = (int)(days - date_from(d.year, 1, 1)) + 1;
    return d;
}

/* Exactly n digits. */
static bool digits(const char **p, const char *end, int n, int *out) {
    int v = 0;
    if (end - *p < n) return false;
    for (int i = 0; i < n; i++) {
        const char c = (*p)[i];
        if (c < '0' || c > '9') return false;
        v = v * 10 + (c - '0');
    }
    *p += n;
    *out = v;
    return true;
}

static bool sign(const char **p, const char *end, char c) {
    if (*p == end || **p != c) return false;
    (*p)++;
    return true;
}

static bool read_date(const char **p, const char *end, int64_t *days) {
    static const int length[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y, m, d;
    if (!digits(p, end, 4, &y) || !sign(p, end, '-') || !digits(p, end, 2, &m) || !sign(p, end, '-') ||
        !digits(p, end, 2, &d)) {
        return false;
    }
    if (y < 1 || m < 1 || m > 12 || d < 1 || d > length[m - 1] + (m == 2 && leap(y))) return false;
    *days = date_from(y, m, d);
    return true;
}

bool date_parse(const char *text, size_t n, int64_t *days) {
    const char *p = text, *end = text + n;
    return read_date(&p, end, days) && p == end;
}

bool time_parse(const char *text, size_t n, int64_t *micros) {
    const char *p = text, *end = text + n;
    int64_t days;
    int h, m, s, zone_h = 0, zone_m = 0;
    if (!read_date(&p, end, &days) || (!sign(&p, end, 'T') && !sign(&p, end, ' '))) return false;
    if (!digits(&p, end, 2, &h) || !sign(&p, end, ':') || !digits(&p, end, 2, &m) || !sign(&p, end, ':') ||
        !digits(&p, end, 2, &s) || h > 23 || m > 59 || s > 59) {
        return false;
    }
    int64_t fraction = 0;
    if (sign(&p, end, '.')) {
        int64_t unit = 100000;
        const char *first = p;
        for (; p < end && *p >= '0' && *p <= '9'; p++, unit /= 10) fraction += unit * (*p - '0');
        if (p == first || p - first > 6) return false; /* finer than microseconds would be lost */
    }
    int64_t zone = 0;
    if (!sign(&p, end, 'Z')) {
        const bool west = p < end && *p == '-';
        if (!sign(&p, end, '+') && !sign(&p, end, '-')) return false;
        if (!digits(&p, end, 2, &zone_h) || !sign(&p, end, ':') || !digits(&p, end, 2, &zone_m) ||
            zone_h > 23 || zone_m > 59) {
            return false;
        }
        zone = (zone_h * 60 + zone_m) * (west ? -60 : 60);
    }
    *micros = ((days * 24 + h) * 60 + m) * INT64_C(60000000) + (s - zone) * INT64_C(1000000) + fraction;
    return p == end;
}

const char *date_text(int64_t days, char buf[40]) {
    const calendar_day d = date_to(days);
    snprintf(buf, 40, "%04d-%02d-%02d", d.year, d.month, d.day);
    return buf;
}

const char *time_text(int64_t micros, char buf[40]) {
    const int64_t day = INT64_C(86400000000);
    int64_t days = micros / day, rest = micros % day;
    if (rest < 0) {
        rest += day;
        days--;
    }
    const calendar_day d = date_to(days);
    const int seconds = (int)(rest / 1000000), fraction = (int)(rest % 1000000);
    int n = snprintf(buf, 40, "%04d-%02d-%02dT%02d:%02d:%02d", d.year, d.month, d.day, seconds / 3600,
                     seconds / 60 % 60, seconds % 60);
    if (fraction)
        n += snprintf(buf + n, 40 - (size_t)n, fraction % 1000 ? ".%06d" : ".%03d",
                      fraction % 1000 ? fraction : fraction / 1000);
    snprintf(buf + n, 40 - (size_t)n, "Z");
    return buf;
}
