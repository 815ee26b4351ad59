/* http_tls.h: TLS for the HTTP server: one certificate, TLS 1.2 and later. */
#ifndef SERVE_HTTP_TLS_H
#define SERVE_HTTP_TLS_H

#include "base/status.h"

struct bufferevent;
struct event_base;

typedef struct http_tls http_tls;

/* Reads a certificate chain and its private key (PEM); the error names the file. */
MUST_USE status http_tls_create(http_tls **out, const char *cert, const char *key, error *err);
void http_tls_free(http_tls *t);
/* A bufferevent, not yet on a socket, that will speak the server's side. It owns its session and closes its
 * socket when freed. NULL when memory ran out. */
struct bufferevent *http_tls_accept(http_tls *t, struct event_base *base);

/* Writes past the bufferevent, whose output must be empty, and says that no more will follow. False when the
 * session could not take all of it at once. */
bool http_tls_write(struct bufferevent *bev, const char *bytes, size_t n);

#endif
