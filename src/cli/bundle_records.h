/* bundle_records.h: records of a bundle from the command line or from files. */
#ifndef CLI_BUNDLE_RECORDS_H
#define CLI_BUNDLE_RECORDS_H

#include "cli/bundle_cli.h"

#include <jansson.h>

/* Set p and at most one of the three sources; free with bundle_records_free. None: one empty record. */
typedef struct bundle_records {
    const pipeline *p;
    const char *record; /* JSON: a record or a list of them */
    const char
        *input; /* .json, .jsonl, .csv, "-" (JSON), or a file that is the value of the one field it can be */
    const char *prompt; /* the value of the one field that is text */
    json_t **items;     /* [n] */
    size_t *lines;      /* [n]: of the file, where a record is a line or a row; else 0 */
    size_t n, cap;
    str folder; /* of the input file */
    record_source source;
} bundle_records;

MUST_USE status bundle_records_read(bundle_records *r, error *err);
void bundle_records_free(bundle_records *r);
/* "FILE:LINE", or "record N" counted from 1. Into buf, which is returned. */
const char *bundle_records_place(const bundle_records *r, size_t i, char *buf, size_t room);

#endif
