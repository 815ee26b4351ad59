/* calendar.h: dates and times of ISO 8601 as numbers, in the proleptic Gregorian calendar, years 1 to 9999,
 * no leap seconds. */
#ifndef PIPELINE_CALENDAR_H
#define PIPELINE_CALENDAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct calendar_day {
    int year, month, day; /* 1 to 12, 1 to 31 */
    int weekday;          /* Monday 0 */
    int year_day;         /* from 1 */
} calendar_day;

int64_t date_from(int year, int month, int day); /* days since 1970-01-01; valid arguments only */
calendar_day date_to(int64_t days);
/* "2026-11-30" */
bool date_parse(const char *text, size_t n, int64_t *days);
/* "2026-11-30T12:34:56[.ffffff](Z|+hh:mm|-hh:mm)"; a time without its zone is refused, as it is no point in
 * time. Microseconds since 1970. */
bool time_parse(const char *text, size_t n, int64_t *micros);
const char *date_text(int64_t days, char buf[40]);
const char *time_text(int64_t micros, char buf[40]); /* in UTC, with as many digits as there are */

#endif
