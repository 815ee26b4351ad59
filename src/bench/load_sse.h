/* load_sse.h: reading a stream of server-sent events piece by piece, as strictly as its standard allows.
 *
 * Lines end with LF, CRLF or CR. Known are the fields data, event, id and retry and comments; anything else
 * is refused, as it is no event stream that these servers send. An event ends with an empty line; its data
 * lines are joined by LF. Bounds: LOAD_SSE_MAX bytes for the data of an event and for a line. Owner: one
 * thread. */
#ifndef BENCH_LOAD_SSE_H
#define BENCH_LOAD_SSE_H

#include "base/str.h"

enum { LOAD_SSE_MAX = 1 << 20 };

/* Zero-initialise; free with load_sse_free. */
typedef struct load_sse {
    str line, data;
    bool has_data, after_cr, any;
} load_sse;

/* The data of one event; an error ends the reading. */
typedef status (*load_sse_fn)(void *user, const char *data, size_t n, error *err);

void load_sse_free(load_sse *s);
/* Hands over every event that these bytes complete. */
MUST_USE status load_sse_feed(load_sse *s, const char *bytes, size_t n, load_sse_fn fn, void *user,
                              error *err);
/* The stream has ended: CHURON_CORRUPT if that was in the middle of an event. */
MUST_USE status load_sse_end(const load_sse *s, error *err);

#endif
