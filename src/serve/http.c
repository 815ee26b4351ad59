/* http.c: see http.h.
 *
 * Facts about evhttp 2.1 that shape this file:
 * - While a handler computes, evhttp does not read, so it does not notice a client that leaves. Enabling
 *   reading would end the process at the first pipelined byte. Instead poll(2) is asked about all waiting
 *   sockets at once: no event per request, no state inside libevent. A half-close counts as leaving.
 * - While a reply is written evhttp reads without a consumer: a read high watermark bounds what piles up.
 * - Its timeouts restart with every byte and also run while a reply streams: only the write timeout is used,
 *   and the deadlines for reading are kept here.
 * - A close callback stays on its connection; when it fires during an exchange and the request has lost its
 *   connection, the request is the handler's to free, otherwise evhttp frees it. */
#define _GNU_SOURCE
#include "serve/http.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/http_head.h"
#include "serve/http_tls.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SOCKET_SEND_BUFFER = 256 << 10, /* of the kernel, per connection */
    WAITING_READ_LIMIT = 32 << 10,  /* pipelined bytes kept while a reply is under way */
    CONNECTION_MARGIN = 64,         /* connections over the limit that are told so with 503 */
    TICK_MS = 200,
    CLOSING_TICK_MS = 20
};

/* From http_server_set_closing on: a connection that rests is closed when no request has come for GRACE, so
 * that one that was on its way is answered; one that has begun to arrive has PATIENCE to arrive whole; the
 * port is closed after GRACE, and connections that wait in it without a break can put that off to PORT. */
static const double GRACE_S = 0.5, PATIENCE_S = 5, PORT_S = 1;

typedef struct connection {
    struct connection *prev, *next;
    http_server *server;
    struct bufferevent *bev;
    struct evhttp_connection *evcon;
    struct event *adopt;     /* until evcon is known */
    http_exchange *exchange; /* the open one, or NULL */
    double deadline;         /* for the next request to be complete */
    double rests_since;      /* accepted, or the newest exchange ended */
    http_head head;          /* of the request that is being read */
    struct event *refuse;    /* of a body that is declared over the limit; NULL until one is */
    bool counted_over;       /* came when the limit was reached */
} connection;

struct http_exchange {
    http_exchange *prev, *next;
    http_server *server;
    connection *conn;           /* NULL after the connection was closed */
    struct evhttp_request *req; /* NULL when evhttp has taken it back with the connection */
    char *path;
    http_gone gone;
    bool streaming, told;
    void (*on_gone)(void *user);
    void *on_gone_user;
};

struct http_server {
    http_options o;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener; /* NULL once the port is closed */
    struct evhttp_bound_socket *bound;
    struct event *tick;
    http_tls *tls;
    http_handler handler;
    http_observer observer;
    void *user;
    uint16_t port;
    connection *connections;
    size_t n_connections;
    http_exchange *exchanges;
    size_t n_exchanges;
    struct pollfd *polled; /* [max_connections + CONNECTION_MARGIN] */
    http_exchange **polled_for;
    bool closing, listening, freeing;
    double closing_since;
};

/* ---- checks ----------------------------------------------------------------------------------------- */

static bool is_token(const char *s) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    if (!*s) return false;
    for (; *s; s++) {
        bool alnum = (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (!alnum && !strchr(others, *s)) return false;
    }
    return true;
}

static bool is_field_value(const char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

static bool is_digits(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && s[n] == '\0';
}

static int refuse(const char **why, const char *line) {
    *why = line;
    return 400;
}

int http_check_fields(const http_field *fields, size_t n, int minor, const char **why) {
    size_t hosts = 0, tenants = 0, lengths = 0, codings = 0;
    *why = "";
    for (size_t i = 0; i < n; i++) {
        const char *name = fields[i].name, *value = fields[i].value;
        if (!is_token(name)) return refuse(why, "header name: expected a token (RFC 9110), got other bytes");
        if (!is_field_value(value)) return refuse(why, "header value: expected no control characters");
        if (strcasecmp(name, "Host") == 0) hosts++;
        if (strcasecmp(name, "X-Churon-Tenant") == 0) tenants++; /* a gateway's beside the client's own */
        if (strcasecmp(name, "Content-Length") == 0) {
            lengths++;
            if (!is_digits(value)) return refuse(why, "Content-Length: expected decimal digits only");
        }
        if (strcasecmp(name, "Transfer-Encoding") == 0) {
            codings++;
            if (strcasecmp(value, "chunked") != 0) {
                return refuse(why, "Transfer-Encoding: expected chunked, got another coding");
            }
        }
    }
    if (lengths > 1) return refuse(why, "Content-Length: expected once, got several");
    if (codings > 1) return refuse(why, "Transfer-Encoding: expected once, got several");
    if (lengths && codings) {
        return refuse(why, "Content-Length: expected it alone, got Transfer-Encoding beside it");
    }
    if (tenants > 1) return refuse(why, "X-Churon-Tenant: expected at most once, got several");
    if (hosts > 1) return refuse(why, "Host: expected once, got several");
    if (hosts == 0 && minor >= 1) return refuse(why, "Host: expected once, got none");
    return 0;
}

/* The checks on a parsed request. 0, or the status to refuse it with. */
static int check_request(struct evhttp_request *req, const char **why) {
    enum { MAX_FIELDS = 100 };
    if (req->major != 1) {
        *why = "HTTP version: expected 1.0 or 1.1";
        return 505;
    }
    http_field fields[MAX_FIELDS];
    size_t n = 0;
    struct evkeyval *kv;
    TAILQ_FOREACH(kv, evhttp_request_get_input_headers(req), next) {
        if (n == MAX_FIELDS) {
            *why = "headers: expected at most 100";
            return 431;
        }
        fields[n++] = (http_field){kv->key, kv->value};
    }
    return http_check_fields(fields, n, req->minor, why);
}

/* ---- exchanges -------------------------------------------------------------------------------------- */

static void read_head(connection *c, struct evbuffer *in, size_t from);

static void exchange_free(http_exchange *x) {
    http_server *s = x->server;
    if (x->prev) {
        x->prev->next = x->next;
    } else {
        s->exchanges = x->next;
    }
    if (x->next) x->next->prev = x->prev;
    s->n_exchanges--;
    if (x->conn) {
        x->conn->exchange = NULL;
        x->conn->rests_since = clock_seconds();
        x->conn->deadline = x->conn->rests_since + s->o.idle_timeout;
        x->conn->head = (http_head){0}; /* what came meanwhile is the next request */
        read_head(x->conn, bufferevent_get_input(x->conn->bev), 0);
    }
    mem_free(x->path);
    mem_free(x);
}

static void tell_gone(http_exchange *x, http_gone how) {
    if (x->gone == HTTP_HERE) x->gone = how;
    if (x->told || !x->on_gone) return;
    x->told = true;
    x->on_gone(x->on_gone_user); /* may free x */
}

void http_on_gone(http_exchange *x, void (*fn)(void *user), void *user) {
    x->on_gone = fn;
    x->on_gone_user = user;
}

http_gone http_client_gone(const http_exchange *x) {
    return x->gone;
}

/* The path of the request's target. What begins with a slash is a path, also with a second slash, which a URI
 * parser would take for a host's name. */
static char *raw_path(struct evhttp_request *req) {
    const char *target = evhttp_request_get_uri(req);
    if (target && *target == '/') return mem_strndup(target, strcspn(target, "?#"));
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    return mem_strdup(path && *path ? path : "/");
}

static char *decoded_path(struct evhttp_request *req) {
    char *path = raw_path(req);
    if (!path) return NULL;
    char *to = path;
    for (const char *p = path; *p; p++) {
        unsigned v;
        int used = 0;
        if (*p == '%' && sscanf(p + 1, "%2x%n", &v, &used) == 1 && used == 2 && v != 0) {
            *to++ = (char)v;
            p += 2;
        } else {
            *to++ = *p;
        }
    }
    *to = '\0';
    return path;
}

static void on_request(struct evhttp_request *req, void *user) {
    http_server *s = user;
    struct evhttp_connection *evcon = evhttp_request_get_connection(req);
    connection *c = s->connections;
    while (c && c->evcon != evcon) c = c->next;
    http_exchange *x = c ? mem_calloc(1, sizeof *x) : NULL;
    char *path = x ? decoded_path(req) : NULL;
    if (!path) {
        mem_free(x);
        evhttp_send_error(req, 503, NULL);
        return;
    }
    *x = (http_exchange){.server = s, .conn = c, .req = req, .path = path, .next = s->exchanges};
    if (s->exchanges) s->exchanges->prev = x;
    s->exchanges = x;
    s->n_exchanges++;
    c->exchange = x;
    bufferevent_setwatermark(c->bev, EV_READ, 0, WAITING_READ_LIMIT);

    const char *why = "";
    int code = check_request(req, &why);
    if (code == 0 && c->counted_over) {
        code = 503;
        why = "connections: the limit is reached, try again later";
        http_reply_header(x, "Retry-After", "1");
    }
    if (code == 0) {
        s->handler(s->user, x);
        return;
    }
    /* What follows on this connection cannot be trusted to start where we think. */
    http_reply_header(x, "Connection", "close");
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}", why,
                     code == 503 ? "server_error" : "invalid_request_error");
    http_reply(x, code, "application/json", body, (size_t)n);
}

/* ---- request ---------------------------------------------------------------------------------------- */

http_method http_request_method(const http_exchange *x) {
    switch (x->req ? evhttp_request_get_command(x->req) : EVHTTP_REQ_OPTIONS) {
    case EVHTTP_REQ_GET: return HTTP_M_GET;
    case EVHTTP_REQ_HEAD: return HTTP_M_HEAD;
    case EVHTTP_REQ_POST: return HTTP_M_POST;
    case EVHTTP_REQ_DELETE: return HTTP_M_DELETE;
    case EVHTTP_REQ_PUT:
    case EVHTTP_REQ_OPTIONS:
    case EVHTTP_REQ_TRACE:
    case EVHTTP_REQ_CONNECT:
    case EVHTTP_REQ_PATCH:
    default: return HTTP_M_OTHER;
    }
}

const char *http_request_path(const http_exchange *x) {
    return x->path;
}

const char *http_request_query(const http_exchange *x) {
    const char *target = evhttp_request_get_uri(x->req), *mark = target ? strchr(target, '?') : NULL;
    return mark ? mark + 1 : "";
}

const char *http_request_header(const http_exchange *x, const char *name) {
    if (!x->req) return NULL;
    return evhttp_find_header(evhttp_request_get_input_headers(x->req), name);
}

bool http_request_is_local(const http_exchange *x) {
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    if (!x->conn || getpeername(bufferevent_getfd(x->conn->bev), (struct sockaddr *)&at, &len) != 0)
        return false;
    if (at.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
    if (at.ss_family != AF_INET6) return false;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127;
    return mapped || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

const char *http_request_body(http_exchange *x, size_t *len) {
    struct evbuffer *b = x->req ? evhttp_request_get_input_buffer(x->req) : NULL;
    *len = b ? evbuffer_get_length(b) : 0;
    if (*len == 0) return "";
    const char *bytes = (const char *)evbuffer_pullup(b, -1);
    if (!bytes) *len = 0;
    return bytes ? bytes : "";
}

/* ---- reply ------------------------------------------------------------------------------------------ */

void http_reply_header(http_exchange *x, const char *name, const char *value) {
    if (!x->req || !is_field_value(value)) return;
    evhttp_add_header(evhttp_request_get_output_headers(x->req), name, value);
}

static const char *reason(int code) {
    switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
    }
}

/* The headers that every reply has. */
static void prepare(http_exchange *x, int code, const char *content_type) {
    struct evkeyvalq *headers = evhttp_request_get_output_headers(x->req);
    if (content_type) evhttp_add_header(headers, "Content-Type", content_type);
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    /* HTTP/1.0 has no chunks: the end of a streamed answer is the end of the connection. */
    bool close = x->server->closing || (x->streaming && x->req->minor == 0);
    if (close && !evhttp_find_header(headers, "Connection")) {
        evhttp_add_header(headers, "Connection", "close");
    }
    if (x->server->observer) x->server->observer(x->server->user, code);
}

static void restore_reading(http_exchange *x) {
    if (!x->conn) return;
    const http_options *o = &x->server->o;
    bufferevent_setwatermark(x->conn->bev, EV_READ, 0, o->max_header + o->max_body + WAITING_READ_LIMIT);
}

void http_reply(http_exchange *x, int code, const char *content_type, const char *body, size_t len) {
    struct evhttp_request *req = x->req;
    if (!req) {
        exchange_free(x);
        return;
    }
    prepare(x, code, content_type);
    if (http_request_method(x) == HTTP_M_HEAD) { /* evhttp would send the body too */
        char length[24];
        snprintf(length, sizeof length, "%zu", len);
        http_reply_header(x, "Content-Length", length);
        len = 0;
    }
    struct evbuffer *b = evbuffer_new();
    bool ok = b && (len == 0 || evbuffer_add(b, body, len) == 0);
    restore_reading(x);
    exchange_free(x);
    if (ok) {
        evhttp_send_reply(req, code, reason(code), b);
    } else {
        evhttp_send_reply(req, 500, reason(500), NULL);
    }
    if (b) evbuffer_free(b);
}

void http_stream_begin(http_exchange *x, int code, const char *content_type) {
    x->streaming = true;
    if (!x->req) return;
    prepare(x, code, content_type);
    if (evhttp_request_get_connection(x->req)) evhttp_send_reply_start(x->req, code, reason(code));
}

/* Past libevent, where nothing waits in front of it: one call to the kernel for a token instead of four.
 * Returns how many bytes of the parts it took, 0 if it would have to wait or fails; libevent finds out why.
 */
static size_t send_now(const http_exchange *x, struct iovec parts[3]) {
    if (x->server->tls || evbuffer_get_length(bufferevent_get_output(x->conn->bev)) > 0) return 0;
    const struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
    const ssize_t sent = sendmsg(bufferevent_getfd(x->conn->bev), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? (size_t)sent : 0;
}

bool http_stream_write(http_exchange *x, const char *bytes, size_t len) {
    if (x->gone != HTTP_HERE || !x->conn) return false;
    struct evbuffer *out = bufferevent_get_output(x->conn->bev);
    if (evbuffer_get_length(out) + len > x->server->o.max_pending) {
        x->gone = HTTP_SLOW;
        x->told = true;
        (void)shutdown(bufferevent_getfd(x->conn->bev), SHUT_RDWR); /* evhttp sees the end and cleans up */
        return false;
    }
    if (len == 0) return true; /* an empty chunk would end the reply */
    char head[24], tail[] = "\r\n";
    const int n = x->req->chunked ? snprintf(head, sizeof head, "%zx\r\n", len) : 0;
    struct iovec parts[3] = {{head, (size_t)n}, {(void *)(uintptr_t)bytes, len}, {tail, n ? 2 : 0}};
    size_t sent = send_now(x, parts);
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++) {
        const size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;
        sent -= skip;
        if (skip == parts[i].iov_len) continue;
        ok = bufferevent_write(x->conn->bev, (char *)parts[i].iov_base + skip, parts[i].iov_len - skip) == 0;
    }
    return ok;
}

void http_stream_end(http_exchange *x) {
    struct evhttp_request *req = x->req;
    restore_reading(x);
    exchange_free(x);
    if (req) evhttp_send_reply_end(req); /* frees a request that has lost its connection */
}

/* ---- connections ------------------------------------------------------------------------------------ */

/* What evhttp would reply only when all of the body has come, or never to a client that waits for "100
 * Continue": written past evhttp, which goes on taking and dropping the body so that the reply is not lost to
 * a reset, and closes when its own reply finds the way shut. */
static void on_too_large(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    connection *c = user;
    const http_server *s = c->server;
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) > 0) return; /* an earlier reply is not out yet */
    char body[200], reply[512];
    const int len = snprintf(
        body, sizeof body,
        "{\"error\":{\"message\":\"body: expected at most %zu bytes, got a Content-Length of "
        "%llu%s\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"too_large\"}}",
        s->o.max_body, (unsigned long long)c->head.length, c->head.length == UINT64_MAX ? " or more" : "");
    const int n =
        snprintf(reply, sizeof reply,
                 "HTTP/1.1 413 %s\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
                 "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                 reason(413), len, body);
    if (s->tls ? !http_tls_write(c->bev, reply, (size_t)n)
               : send(bufferevent_getfd(c->bev), reply, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n) {
        return;
    }
    (void)shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    if (s->observer) s->observer(s->user, 413);
}

/* Reads on in the head of the request that is arriving; in[from…] is new. */
static void read_head(connection *c, struct evbuffer *in, size_t from) {
    struct evbuffer_ptr at;
    struct evbuffer_iovec parts[16];
    if (c->head.complete || evbuffer_ptr_set(in, &at, from, EVBUFFER_PTR_SET) != 0) return;
    int n = evbuffer_peek(in, -1, &at, parts, 16);
    if (n > 16) n = 16; /* of more than 64 KiB at once: over every limit of a head */
    for (int i = 0; i < n; i++) http_head_feed(&c->head, parts[i].iov_base, parts[i].iov_len);
    if (!c->head.complete || !c->head.has_length || c->head.length <= c->server->o.max_body || c->refuse)
        return;
    c->refuse = event_new(c->server->base, -1, 0, on_too_large, c);
    if (c->refuse) event_active(c->refuse, EV_TIMEOUT, 1);
}

static void on_bytes(struct evbuffer *in, const struct evbuffer_cb_info *info, void *user) {
    connection *c = user;
    if (info->n_added && !c->exchange) read_head(c, in, info->orig_size - info->n_deleted);
}

static void connection_free(connection *c) {
    http_server *s = c->server;
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        s->connections = c->next;
    }
    if (c->next) c->next->prev = c->prev;
    s->n_connections--;
    (void)evbuffer_remove_cb(bufferevent_get_input(c->bev), on_bytes, c);
    if (c->refuse) event_free(c->refuse);
    if (c->adopt) {
        event_free(c->adopt);
        bufferevent_decref(c->bev);
    }
    mem_free(c);
    if (!s->listening && s->listener && !s->freeing &&
        s->n_connections < s->o.max_connections + CONNECTION_MARGIN) {
        s->listening = evconnlistener_enable(s->listener) == 0;
    }
}

static void on_close(struct evhttp_connection *evcon, void *user) {
    connection *c = user;
    http_exchange *x = c->exchange;
    if (x) {
        x->conn = NULL;
        /* Still attached: evhttp frees the request after this call, and nobody may touch it again. */
        if (evhttp_request_get_connection(x->req) == evcon) x->req = NULL;
        tell_gone(x, HTTP_LEFT);
    }
    connection_free(c);
}

/* Runs right after evhttp has made its connection around our bufferevent. evhttp's callbacks carry the
 * connection as their argument: the only way to it before the first request, and we need it for the close
 * callback, which must count connections that never send one. */
static void on_adopt(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    connection *c = user;
    bufferevent_event_cb error_cb = NULL;
    void *arg = NULL;
    bufferevent_getcb(c->bev, NULL, NULL, &error_cb, &arg);
    if (!error_cb) { /* evhttp gave up on it */
        connection_free(c);
        return;
    }
    c->evcon = arg;
    evhttp_connection_set_closecb(c->evcon, on_close, c);
    bufferevent_decref(c->bev);
    event_free(c->adopt);
    c->adopt = NULL;
}

/* evhttp asks for a bufferevent for a connection that was accepted. NULL makes it use one of its own, which
 * we would not know: its requests are then refused in on_request. */
static struct bufferevent *on_accept(struct event_base *base, void *user) {
    http_server *s = user;
    connection *c = mem_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->server = s;
    c->bev = s->tls ? http_tls_accept(s->tls, base) : bufferevent_socket_new(base, -1, 0);
    c->adopt = c->bev ? event_new(base, -1, 0, on_adopt, c) : NULL;
    if (!c->adopt || !evbuffer_add_cb(bufferevent_get_input(c->bev), on_bytes, c)) {
        if (c->adopt) event_free(c->adopt);
        if (c->bev) bufferevent_free(c->bev);
        mem_free(c);
        return NULL;
    }
    bufferevent_incref(c->bev);
    struct timeval write = {(time_t)s->o.write_timeout,
                            (suseconds_t)((s->o.write_timeout - (double)(time_t)s->o.write_timeout) * 1e6)};
    bufferevent_set_timeouts(c->bev, NULL, &write);
    bufferevent_setwatermark(c->bev, EV_READ, 0, s->o.max_header + s->o.max_body + WAITING_READ_LIMIT);
    c->rests_since = clock_seconds();
    c->deadline = c->rests_since + s->o.request_timeout;
    c->counted_over = s->n_connections >= s->o.max_connections;
    c->next = s->connections;
    if (c->next) c->next->prev = c;
    s->connections = c;
    s->n_connections++;
    if (s->listener && s->n_connections >= s->o.max_connections + CONNECTION_MARGIN) {
        s->listening = false;
        (void)evconnlistener_disable(s->listener);
    }
    event_active(c->adopt, EV_TIMEOUT, 1);
    return c->bev;
}

void http_server_check_clients(http_server *s) {
    nfds_t n = 0;
    for (http_exchange *x = s->exchanges; x; x = x->next) {
        if (!x->conn || x->gone != HTTP_HERE || n == s->o.max_connections + CONNECTION_MARGIN) continue;
        s->polled[n] = (struct pollfd){.fd = bufferevent_getfd(x->conn->bev), .events = POLLRDHUP};
        s->polled_for[n++] = x;
    }
    if (n == 0 || poll(s->polled, n, 0) <= 0) return;
    /* A gone callback may end its own exchange but no other, so the pointers stay good. */
    for (nfds_t i = 0; i < n; i++) {
        if (s->polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) {
            tell_gone(s->polled_for[i], HTTP_LEFT);
        }
    }
}

static bool readable(evutil_socket_t fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* Connections that wait in the port would be reset with it: it closes when none does. */
static void close_port(http_server *s, double now) {
    if (!s->listener || (readable(evconnlistener_get_fd(s->listener)) && now < s->closing_since + PORT_S))
        return;
    evhttp_del_accept_socket(s->http, s->bound);
    s->listener = NULL;
    s->listening = false;
}

static void close_idle(http_server *s, double now) {
    if (now >= s->closing_since + GRACE_S || s->n_connections == 0) close_port(s, now);
    for (connection *c = s->connections; c; c = c->next) {
        const bool begun = c->head.any || c->head.line_len > 0 || c->head.complete;
        const double since = c->rests_since > s->closing_since ? c->rests_since : s->closing_since;
        if (c->exchange || now < since + (begun ? PATIENCE_S : GRACE_S)) continue;
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) > 0) continue; /* has a timeout of its own */
        if (!begun && readable(bufferevent_getfd(c->bev)))
            continue; /* a request that is not read yet, or the end */
        (void)shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    http_server *s = user;
    http_server_check_clients(s);
    double now = clock_seconds();
    for (connection *c = s->connections; c; c = c->next) {
        bool writes = evbuffer_get_length(bufferevent_get_output(c->bev)) > 0; /* has its own timeout */
        if (!c->exchange && !writes && now > c->deadline) {
            (void)shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
        }
    }
    if (s->closing) close_idle(s, now);
}

/* ---- server ----------------------------------------------------------------------------------------- */

static void set_defaults(http_options *o) {
    if (o->max_header == 0) o->max_header = 16 << 10;
    if (o->max_body == 0) o->max_body = 4 << 20;
    if (o->max_connections == 0) o->max_connections = HTTP_MAX_CONNECTIONS;
    if (o->max_pending == 0) o->max_pending = 1 << 20;
    if (o->request_timeout <= 0) o->request_timeout = 30;
    if (o->idle_timeout <= 0) o->idle_timeout = 75;
    if (o->write_timeout <= 0) o->write_timeout = 30;
}

static int listening_socket(const struct addrinfo *a) {
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    const int on = 1, send = SOCKET_SEND_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send, sizeof send); /* accepted sockets inherit it */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  /* tokens must not wait for each other */
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Binds the first address of the host that can be bound. */
static status open_socket(http_server *s, int *out, error *err) {
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)s->o.port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(s->o.host, port, &hints, &list);
    if (rc != 0) {
        return error_set(err, CHURON_INVALID, "host: expected a name or address of this machine, got %s (%s)",
                         s->o.host, gai_strerror(rc));
    }
    int fd = -1, why = 0;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = listening_socket(a);
        if (fd < 0) why = errno;
    }
    freeaddrinfo(list);
    if (fd < 0 && why == EADDRINUSE) {
        return error_set(err, CHURON_IO,
                         "port: %s:%s is in use by another program. Choose another with --port", s->o.host,
                         port);
    }
    if (fd < 0) {
        return error_set(err, CHURON_IO, "port: cannot listen on %s:%s: %s", s->o.host, port, strerror(why));
    }
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    s->port = s->o.port;
    if (getsockname(fd, (struct sockaddr *)&at, &len) == 0) {
        char text[8];
        if (getnameinfo((struct sockaddr *)&at, len, NULL, 0, text, sizeof text, NI_NUMERICSERV) == 0) {
            unsigned v = 0;
            if (sscanf(text, "%u", &v) == 1) s->port = (uint16_t)v;
        }
    }
    *out = fd;
    return CHURON_OK;
}

static status start(http_server *s, error *err) {
    int fd = -1;
    TRY(open_socket(s, &fd, err));
    s->http = evhttp_new(s->base);
    s->listener =
        evconnlistener_new(s->base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!s->listener) close(fd);
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    const struct timeval every = {0, TICK_MS * 1000};
    if (!s->http || !s->listener || !s->tick || event_add(s->tick, &every) != 0 ||
        !(s->bound = evhttp_bind_listener(s->http, s->listener))) {
        if (s->listener) evconnlistener_free(s->listener);
        s->listener = NULL;
        return error_set(err, CHURON_NO_MEMORY, "server: libevent could not start");
    }
    s->listening = true;
    evhttp_set_max_headers_size(s->http, (ev_ssize_t)s->o.max_header);
    evhttp_set_max_body_size(s->http, (ev_ssize_t)s->o.max_body);
    evhttp_set_default_content_type(s->http, NULL);
    evhttp_set_allowed_methods(s->http, UINT16_MAX); /* refused by the handler, in its protocol's shape */
    (void)evhttp_set_flags(s->http, EVHTTP_SERVER_LINGERING_CLOSE); /* so that a 413 reaches its sender */
    evhttp_set_bevcb(s->http, on_accept, s);
    evhttp_set_gencb(s->http, on_request, s);
    return CHURON_OK;
}

status http_server_create(http_server **out, struct event_base *base, const http_options *o,
                          http_handler handler, http_observer observer, void *user, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    http_server *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "server", sizeof *s);
    s->o = *o;
    set_defaults(&s->o);
    s->base = base;
    s->handler = handler;
    s->observer = observer;
    s->user = user;
    size_t n = s->o.max_connections + CONNECTION_MARGIN;
    s->polled = mem_calloc(n, sizeof *s->polled);
    s->polled_for = mem_calloc(n, sizeof(http_exchange *));
    if (!s->polled || !s->polled_for) {
        st = error_no_memory(err, "connections", n * sizeof *s->polled);
        goto cleanup;
    }
    if (s->o.tls_cert || s->o.tls_key) {
        TRY_GOTO(http_tls_create(&s->tls, s->o.tls_cert, s->o.tls_key, err));
    }
    TRY_GOTO(start(s, err));
    *out = s;
    s = NULL;
cleanup:
    http_server_free(s);
    return st;
}

void http_server_free(http_server *s) {
    if (!s) return;
    s->freeing = true;
    if (s->http) evhttp_free(s->http); /* frees listener and connections; on_close for each */
    if (s->tick) event_free(s->tick);
    while (s->connections) connection_free(s->connections); /* not yet adopted */
    http_tls_free(s->tls);
    mem_free(s->polled);
    mem_free(s->polled_for);
    mem_free(s);
}

uint16_t http_server_port(const http_server *s) {
    return s->port;
}

size_t http_server_connections(const http_server *s) {
    return s->n_connections;
}

size_t http_server_max_body(const http_server *s) {
    return s->o.max_body;
}

size_t http_server_exchanges(const http_server *s) {
    return s->n_exchanges;
}

bool http_server_closed(const http_server *s) {
    return !s->listener && s->n_connections == 0;
}

void http_server_set_closing(http_server *s) {
    const struct timeval often = {0, CLOSING_TICK_MS * 1000};
    s->closing = true;
    s->closing_since = clock_seconds();
    (void)event_add(s->tick, &often); /* on failure it goes on ticking as before */
}
