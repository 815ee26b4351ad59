/* template_time.c: strftime_now: local time with English names, whatever the locale of the process. */
#include "text/template_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const DAYS[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const MONTHS[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static void put_number(tpl_buf *b, long v, int width, char pad, char flag) {
    char text[32];
    if (flag == '-') width = 0;
    if (flag == '_') pad = ' ';
    if (flag == '0') pad = '0';
    (void)snprintf(text, sizeof text, pad == '0' ? "%0*ld" : "%*ld", width, v);
    tpl_buf_cat(b, text);
}

static void put_name(tpl_buf *b, const char *name, size_t n, char flag) {
    for (size_t i = 0; i < n && name[i]; i++) {
        tpl_buf_put(b, flag == '^' && name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i]);
    }
}

static bool is_leap(long y) {
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

/* Week and year of ISO 8601. */
static long iso_week(const struct tm *t, long *year) {
    long y = t->tm_year + 1900L, day = t->tm_wday == 0 ? 7 : t->tm_wday;
    long week = (t->tm_yday + 1 - day + 10) / 7;
    if (week == 0) {
        y--;
        long days = is_leap(y) ? 366 : 365;
        week = (t->tm_yday + 1 + days - day + 10) / 7;
    } else if (week == 53) {
        long days = is_leap(y) ? 366 : 365;
        if (t->tm_yday - days + 4 - day >= 0) {
            week = 1;
            y++;
        }
    }
    *year = y;
    return week;
}

static void put_parts(tpl_buf *b, const struct tm *t, const char *directives);

/* Directives that are numbers; false: it is none of them. */
static bool put_numeric(tpl_buf *b, const struct tm *t, char c, char flag, int64_t now) {
    long year = t->tm_year + 1900L, iso_year, week = iso_week(t, &iso_year),
         hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    switch (c) {
    case 'd': put_number(b, t->tm_mday, 2, '0', flag); break;
    case 'e': put_number(b, t->tm_mday, 2, ' ', flag); break;
    case 'm': put_number(b, t->tm_mon + 1, 2, '0', flag); break;
    case 'Y': put_number(b, year, 0, '0', flag); break;
    case 'y': put_number(b, year % 100, 2, '0', flag); break;
    case 'C': put_number(b, year / 100, 2, '0', flag); break;
    case 'H': put_number(b, t->tm_hour, 2, '0', flag); break;
    case 'k': put_number(b, t->tm_hour, 2, ' ', flag); break;
    case 'I': put_number(b, hour12, 2, '0', flag); break;
    case 'l': put_number(b, hour12, 2, ' ', flag); break;
    case 'M': put_number(b, t->tm_min, 2, '0', flag); break;
    case 'S': put_number(b, t->tm_sec, 2, '0', flag); break;
    case 'j': put_number(b, t->tm_yday + 1, 3, '0', flag); break;
    case 'u': put_number(b, t->tm_wday ? t->tm_wday : 7, 1, '0', flag); break;
    case 'w': put_number(b, t->tm_wday, 1, '0', flag); break;
    case 'U': put_number(b, (t->tm_yday + 7 - t->tm_wday) / 7, 2, '0', flag); break;
    case 'W': put_number(b, (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7, 2, '0', flag); break;
    case 'V': put_number(b, week, 2, '0', flag); break;
    case 'G': put_number(b, iso_year, 0, '0', flag); break;
    case 'g': put_number(b, iso_year % 100, 2, '0', flag); break;
    case 's': put_number(b, (long)now, 0, '0', flag); break;
    default: return false;
    }
    return true;
}

static bool put_text(tpl_buf *b, const struct tm *t, char c, char flag) {
    const char *pm = t->tm_hour >= 12 ? "PM" : "AM";
    switch (c) {
    case 'a': put_name(b, DAYS[t->tm_wday], 3, flag); break;
    case 'A': put_name(b, DAYS[t->tm_wday], 20, flag); break;
    case 'b':
    case 'h': put_name(b, MONTHS[t->tm_mon], 3, flag); break;
    case 'B': put_name(b, MONTHS[t->tm_mon], 20, flag); break;
    case 'p': tpl_buf_cat(b, pm); break;
    case 'P': tpl_buf_cat(b, t->tm_hour >= 12 ? "pm" : "am"); break;
    case 'n': tpl_buf_put(b, '\n'); break;
    case 't': tpl_buf_put(b, '\t'); break;
    case '%': tpl_buf_put(b, '%'); break;
    case 'Z':
    case 'z': break; /* Python's now() has no time zone */
    case 'F': put_parts(b, t, "Y-m-d"); break;
    case 'D':
    case 'x': put_parts(b, t, "m/d/y"); break;
    case 'R': put_parts(b, t, "H:M"); break;
    case 'T':
    case 'X': put_parts(b, t, "H:M:S"); break;
    case 'r': put_parts(b, t, "I:M:S p"); break;
    case 'c': put_parts(b, t, "a b e H:M:S Y"); break;
    default: return false;
    }
    return true;
}

static void put_parts(tpl_buf *b, const struct tm *t, const char *directives) {
    for (; *directives; directives++) {
        if (!put_numeric(b, t, *directives, 0, 0) && !put_text(b, t, *directives, 0))
            tpl_buf_put(b, *directives);
    }
}

status tpl_strftime(tpl_rt *rt, tvalue format, tvalue *out) {
    if (format.kind != TPL_STRING)
        return tpl_fail(rt, "strftime_now: expected a string, got %s", tpl_type_name(format));
    struct tm t;
    time_t now = (time_t)rt->now;
    tzset();
    if (!localtime_r(&now, &t) || t.tm_year < -899 || t.tm_year > 8099)
        return tpl_fail(rt, "strftime_now: no such time");
    tpl_buf b = tpl_buf_begin(rt);
    const char *p = format.s, *end = format.s + format.len;
    while (p < end) {
        if (*p != '%') {
            tpl_buf_put(&b, *p++);
            continue;
        }
        p++;
        char flag = '\0';
        if (p < end && strchr("-_0^", *p) && *p) flag = *p++;
        if (p >= end) return tpl_refuse(rt, "strftime_now: a '%%' at the end of the format");
        char c = *p++;
        bool numeric = put_numeric(&b, &t, c, flag == '^' ? 0 : flag, rt->now);
        bool known = numeric || ((flag == '\0' || flag == '^') && put_text(&b, &t, c, flag));
        if (!known) {
            return tpl_refuse(rt, "strftime_now: '%%%c' is not supported", c >= 0x20 && c < 0x7f ? c : '?');
        }
    }
    return tpl_buf_end(&b, out);
}
