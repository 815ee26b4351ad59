/* http_head.h: the declared length of a request's body, read from the bytes of its head as they come, beside
 * the parser that reads the request itself: so that a body over the limit is refused before it is sent.
 *
 * Checks nothing: what is malformed is the parser's to refuse. */
#ifndef SERVE_HTTP_HEAD_H
#define SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise for each request. */
typedef struct http_head {
    bool complete;   /* the empty line has come */
    bool has_length; /* Content-Length was there, with digits */
    uint64_t length; /* its value; UINT64_MAX where it is more */
    /* the line that is being read */
    char line[48];
    size_t line_len; /* also what did not fit */
    bool any;        /* a line with something on it has come */
} http_head;

/* Takes bytes up to the head's end; what follows is not looked at. */
void http_head_feed(http_head *h, const char *bytes, size_t n);

#endif
