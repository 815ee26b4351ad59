/* status.c: see status.h. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* A message is one line for a terminal or a log: bytes of hostile files must not move the cursor. */
static void make_one_line(char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f) *s = '?';
    }
}

/* snprintf may cut a UTF-8 sequence in half at the end of the buffer: drop the torn tail. */
static void drop_torn_tail(char *s) {
    size_t n = strlen(s);
    size_t back = 0;
    while (back < 4 && back < n) {
        unsigned char c = (unsigned char)s[n - 1 - back];
        if (c < 0x80) return;
        if (c >= 0xc0) {
            size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            if (back + 1 < need) s[n - 1 - back] = '\0';
            return;
        }
        back++;
    }
}

status error_set(error *err, status code, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    if (n < 0) err->message[0] = '\0';
    if (n >= (int)sizeof err->message) drop_torn_tail(err->message);
    make_one_line(err->message);
    return code;
}

void error_prefix(error *err, const char *fmt, ...) {
    if (!err) return;
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    churon_error whole;
    (void)error_set(&whole, err->code, "%.200s: %.300s", text, err->message);
    *err = whole;
}

status error_no_memory(error *err, const char *what, size_t bytes) {
    return error_set(err, CHURON_NO_MEMORY, "%s: no memory for %zu bytes", what, bytes);
}

const char *churon_status_name(churon_status s) {
    switch (s) {
    case CHURON_OK: return "ok";
    case CHURON_INVALID: return "invalid";
    case CHURON_CORRUPT: return "corrupt";
    case CHURON_UNSUPPORTED: return "unsupported";
    case CHURON_NOT_FOUND: return "not found";
    case CHURON_LIMIT: return "limit";
    case CHURON_NO_MEMORY: return "no memory";
    case CHURON_IO: return "io";
    case CHURON_BUSY: return "busy";
    case CHURON_CANCELLED: return "cancelled";
    case CHURON_INTERNAL: return "internal";
    }
    return "unknown";
}

const char *churon_version(void) {
    return CHURON_VERSION;
}
