/* load_sse.c: see load_sse.h. */
#include "bench/load_sse.h"

#include <string.h>

void load_sse_free(load_sse *s) {
    str_free(&s->line);
    str_free(&s->data);
    *s = (load_sse){0};
}

static bool is_name(const char *line, size_t n, const char *name) {
    return strlen(name) == n && memcmp(line, name, n) == 0;
}

static status take_event(load_sse *s, load_sse_fn fn, void *user, error *err) {
    if (!s->has_data) return CHURON_OK;
    s->has_data = false;
    TRY(str_check(&s->data, err));
    status st = fn(user, str_cstr(&s->data), s->data.len, err);
    str_clear(&s->data);
    return st;
}

static status take_field(load_sse *s, const char *line, size_t n, error *err) {
    const char *colon = memchr(line, ':', n);
    size_t name = colon ? (size_t)(colon - line) : n, at = colon ? name + 1 : n;
    if (name == 0 && colon) return CHURON_OK; /* a comment, such as a sign of life */
    if (at < n && line[at] == ' ') at++;
    if (is_name(line, name, "data")) {
        if (s->data.len + (n - at) > LOAD_SSE_MAX) {
            return error_set(err, CHURON_LIMIT, "event: expected at most %d bytes, got more", LOAD_SSE_MAX);
        }
        if (s->has_data) str_put(&s->data, '\n');
        str_add(&s->data, line + at, n - at);
        s->has_data = true;
        return CHURON_OK;
    }
    if (is_name(line, name, "event") || is_name(line, name, "id") || is_name(line, name, "retry")) {
        return CHURON_OK;
    }
    return error_set(err, CHURON_CORRUPT,
                     "event stream: field: expected data, event, id, retry or a comment, got \"%.*s\"",
                     name < 60 ? (int)name : 60, line);
}

/* A whole line, without its end. */
static status take_line(load_sse *s, const char *line, size_t n, load_sse_fn fn, void *user, error *err) {
    static const char bom[] = "\xef\xbb\xbf";
    if (!s->any && n >= 3 && memcmp(line, bom, 3) == 0) line += 3, n -= 3;
    s->any = true;
    return n == 0 ? take_event(s, fn, user, err) : take_field(s, line, n, err);
}

/* Bytes up to the next end of a line, n if there is none. */
static size_t line_length(const char *bytes, size_t n) {
    const char *lf = memchr(bytes, '\n', n);
    size_t len = lf ? (size_t)(lf - bytes) : n;
    const char *cr = memchr(bytes, '\r', len);
    return cr ? (size_t)(cr - bytes) : len;
}

status load_sse_feed(load_sse *s, const char *bytes, size_t n, load_sse_fn fn, void *user, error *err) {
    for (size_t at = 0; at < n;) {
        if (s->after_cr) {
            s->after_cr = false;
            if (bytes[at] == '\n' && ++at == n) break;
        }
        size_t len = line_length(bytes + at, n - at);
        bool whole = at + len < n;
        if (s->line.len + len > LOAD_SSE_MAX + 16) {
            return error_set(err, CHURON_LIMIT, "event stream: line: expected at most %d bytes, got more",
                             LOAD_SSE_MAX);
        }
        if (!whole || s->line.len) { /* a line in pieces */
            str_add(&s->line, bytes + at, len);
            TRY(str_check(&s->line, err));
        }
        if (!whole) break;
        const bool buffered = s->line.len > 0;
        TRY(take_line(s, buffered ? s->line.data : bytes + at, buffered ? s->line.len : len, fn, user, err));
        str_clear(&s->line);
        at += len;
        s->after_cr = bytes[at++] == '\r';
    }
    return CHURON_OK;
}

status load_sse_end(const load_sse *s, error *err) {
    if (s->line.len == 0 && !s->has_data) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT,
                     "event stream: expected an empty line after the last event, got its end");
}
