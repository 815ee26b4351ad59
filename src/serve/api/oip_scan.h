/* oip_scan.h: the JSON of inference requests, read in one pass without a tree: a million numbers cost their
 * own bytes and nothing else.
 *
 * A scan is a cursor over bytes that stay where they are and end with a zero behind `end`. Strict JSON, but
 * for the tokens NaN, Infinity and -Infinity where a float is wanted (what Python writes). Every function
 * leaves the cursor behind what it has read; on an error its place means nothing. Errors name `what`, what
 * was expected and what came. Owner: one thread. */
#ifndef SERVE_API_OIP_SCAN_H
#define SERVE_API_OIP_SCAN_H

#include "base/str.h"
#include "tensor/tensor.h"

typedef struct oip_scan {
    const char *p, *end;
} oip_scan;

enum { OIP_MAX_DEPTH = 32 }; /* of what is skipped */

/* The next byte that is not a blank, not taken; '\0' at the end. */
char oip_peek(oip_scan *s);
/* Takes c if it is the next byte that is not a blank. */
bool oip_take(oip_scan *s, char c);
MUST_USE status oip_expect(oip_scan *s, char c, const char *what, error *err);

/* The members of an object or the items of an array whose bracket was taken: *more is false after the closing
 * one. `first` is true before the first call and belongs to these. */
MUST_USE status oip_next_member(oip_scan *s, bool *first, str *key, bool *more, const char *what, error *err);
MUST_USE status oip_next_item(oip_scan *s, bool *first, bool *more, const char *what, error *err);

MUST_USE status oip_string(oip_scan *s, str *out, const char *what, error *err); /* replaces *out */
MUST_USE status oip_bool(oip_scan *s, bool *out, const char *what, error *err);
MUST_USE status oip_i64(oip_scan *s, int64_t *out, const char *what, error *err);
MUST_USE status oip_u64(oip_scan *s, uint64_t *out, const char *what, error *err);
/* Nearest double; over its range: an error. NaN and infinities only as tokens. */
MUST_USE status oip_double(oip_scan *s, double *out, const char *what, error *err);
/* Any value, checked and passed over. */
MUST_USE status oip_skip(oip_scan *s, const char *what, error *err);

/* Elements of a tensor whose type and shape are known: flat, or nested as its shape says. Numbers of the
 * tensor's type exactly (floats to nearest even), true and false for bool, strings for strings. Not for
 * float16 and bfloat16, which the protocol leaves to the binary form. */
MUST_USE status oip_elements(oip_scan *s, tensor *t, const char *what, error *err);

#endif
