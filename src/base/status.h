/* status.h: errors are values. Every function that can fail returns a churon_status that must be used and
 * describes the failure in a caller-owned churon_error (which may be NULL). */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "churon.h"

#include <stdarg.h>

#define MUST_USE CHURON_MUST_USE
#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

typedef churon_status status;
typedef churon_error error;

/* Fills *err (if not NULL) with code and one formatted line; control characters become '?'. Returns code, so
 * that `return error_set(err, CHURON_CORRUPT, "...")` is the usual last line of a check. */
status error_set(error *err, status code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts "PREFIX: " before the message that is already there. */
void error_prefix(error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The usual out-of-memory line, naming what was wanted. */
status error_no_memory(error *err, const char *what, size_t bytes);

#define TRY(expr)                                                                                            \
    do {                                                                                                     \
        status try_status_ = (expr);                                                                         \
        if (try_status_ != CHURON_OK) return try_status_;                                                    \
    } while (0)

/* For constructors with one `cleanup:` label and a local `status st`. */
#define TRY_GOTO(expr)                                                                                       \
    do {                                                                                                     \
        st = (expr);                                                                                         \
        if (st != CHURON_OK) goto cleanup;                                                                   \
    } while (0)

#endif
