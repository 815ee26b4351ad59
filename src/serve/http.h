/* http.h: an HTTP/1.1 server on libevent that holds its bounds against any client.
 *
 * libevent's evhttp reads requests and writes replies. This layer adds what it leaves out: requests that two
 * parsers could read differently are refused (duplicate Content-Length, Content-Length beside
 * Transfer-Encoding, odd transfer codings, no or two Hosts, bad header names), connections are counted and
 * bounded, a request that does not arrive whole in time is dropped however busily it drips, a client that
 * leaves is noticed while its answer is still being computed, and what a slow reader has not taken is
 * bounded.
 *
 * Ownership: an exchange (a request and its reply) belongs to the handler from the moment it is called until
 * it calls http_reply or http_stream_end, exactly one of them, also when the client has gone.
 * Threads: everything runs on the thread that dispatches the event base. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "base/str.h"

#include <sys/types.h>

struct event_base;

typedef struct http_server http_server;
typedef struct http_exchange http_exchange;

enum { HTTP_MAX_CONNECTIONS = 512 };

typedef struct http_options {
    const char *host;  /* name or address to bind */
    uint16_t port;     /* 0: any free one */
    size_t max_header; /* bytes of request line and headers; 0: 16 KiB. Over it: 400 */
    size_t max_body;   /* 0: 4 MiB. Over it: 413 */
    size_t
        max_connections; /* 0: HTTP_MAX_CONNECTIONS. Over it: 503, and beyond a margin the kernel's backlog */
    size_t max_pending;  /* bytes of a streamed reply that the client has not taken; 0: 1 MiB. Over it the
                            client counts as gone */
    double request_timeout;         /* seconds for a request to arrive whole; 0: 30 */
    double idle_timeout;            /* seconds until the next request on a kept connection is there; 0: 75 */
    double write_timeout;           /* seconds without the client taking a byte; 0: 30 */
    const char *tls_cert, *tls_key; /* PEM files; both or neither */
} http_options;

/* A request is complete. Must lead to http_reply or http_stream_end sooner or later. */
typedef void (*http_handler)(void *user, http_exchange *x);
/* Every reply that was sent or begun, for counting. */
typedef void (*http_observer)(void *user, int code);

MUST_USE status http_server_create(http_server **out, struct event_base *base, const http_options *o,
                                   http_handler handler, http_observer observer, void *user, error *err);
/* Closes every connection. Exchanges that are still open become gone (their callback is called) and must
 * still be ended before this returns: by their gone callback. */
void http_server_free(http_server *s);
uint16_t http_server_port(const http_server *s);
size_t http_server_connections(const http_server *s);
size_t http_server_max_body(const http_server *s);
size_t http_server_exchanges(const http_server *s); /* open ones */
/* The end begins: every reply from now on closes its connection, connections that rest are closed after a
 * moment, then the port, so that no request that was sent is left without an answer. */
void http_server_set_closing(http_server *s);
/* The end has come: the port is closed, no connection is open. */
bool http_server_closed(const http_server *s);
/* Asks the kernel which waiting clients have left, and tells their exchanges. Called by the owner as often as
 * it wants to know (once per engine step); the server does it itself five times a second. */
void http_server_check_clients(http_server *s);

/* ---- request ---------------------------------------------------------------------------------------- */

typedef enum http_method { HTTP_M_GET, HTTP_M_HEAD, HTTP_M_POST, HTTP_M_DELETE, HTTP_M_OTHER } http_method;

http_method http_request_method(const http_exchange *x);
/* Decoded path without the query; borrowed for the life of the exchange. */
const char *http_request_path(const http_exchange *x);
/* What follows the path's ?, as it was sent; "" if nothing. */
const char *http_request_query(const http_exchange *x);
const char *http_request_header(const http_exchange *x, const char *name); /* NULL if absent */
bool http_request_is_local(const http_exchange *x);           /* did it come from this machine? */
const char *http_request_body(http_exchange *x, size_t *len); /* borrowed, likewise */

/* ---- reply ------------------------------------------------------------------------------------------ */

/* Adds a header to the reply that is not yet begun. A value with control characters is not added. */
void http_reply_header(http_exchange *x, const char *name, const char *value);
/* Sends the whole reply and ends the exchange. content_type may be NULL with an empty body. */
void http_reply(http_exchange *x, int code, const char *content_type, const char *body, size_t len);

/* A reply in pieces: begin, write as often as wanted, end. */
void http_stream_begin(http_exchange *x, int code, const char *content_type);
/* False when the client has gone (or does not read): end the exchange then. */
bool http_stream_write(http_exchange *x, const char *bytes, size_t len);
void http_stream_end(http_exchange *x);

typedef enum http_gone { HTTP_HERE, HTTP_LEFT, HTTP_SLOW } http_gone;
/* `fn` is called once when the client leaves before the exchange has ended. It may end the exchange. */
void http_on_gone(http_exchange *x, void (*fn)(void *user), void *user);
http_gone http_client_gone(const http_exchange *x);

/* ---- checks, on their own for tests and fuzzing ----------------------------------------------------- */

/* A header field as evhttp hands it over. */
typedef struct http_field {
    const char *name, *value;
} http_field;
/* 0, or the status code to refuse a request with; *why is then a static line. minor: of HTTP/1.x. */
int http_check_fields(const http_field *fields, size_t n, int minor, const char **why);

#endif
