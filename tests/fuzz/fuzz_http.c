/* fuzz_http.c: bytes of a client to a whole HTTP server in this process, over loopback. The first byte
 * chooses how its handler replies and how the client leaves. */
#define _GNU_SOURCE
#include "base/mem.h"
#include "serve/http.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MODE_REPLY, MODE_STREAM, MODE_LATER, MODE_LATER_STREAM };

typedef struct later {
    struct event *ev;
    http_exchange *x;
    int mode;
} later;

static struct event_base *base;
static http_server *server;
static int mode;
static later *waiting;

static void finish(later *l, const char *text) {
    http_exchange *x = l->x;
    if (l->mode == MODE_LATER) {
        http_reply(x, 200, "text/plain", text, strlen(text));
    } else {
        (void)http_stream_write(x, text, strlen(text));
        http_stream_end(x);
    }
    event_free(l->ev);
    mem_free(l);
    waiting = NULL;
}

static void on_later(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    finish(user, "later");
}

static void on_gone(void *user) {
    finish(user, "gone");
}

static void handler(void *user, http_exchange *x) {
    (void)user;
    size_t len;
    const char *body = http_request_body(x, &len);
    if (len > 4096 || (len && !body)) abort();
    if (!http_request_path(x) || strlen(http_request_path(x)) == 0) abort();
    (void)http_request_header(x, "x");
    http_reply_header(x, "X-Path", http_request_path(x));
    if (mode == MODE_REPLY) {
        http_reply(x, 200, "text/plain", body, len);
        return;
    }
    if (mode != MODE_LATER) {
        http_stream_begin(x, 200, "text/plain");
        (void)http_stream_write(x, "piece", 5);
    }
    if (mode == MODE_STREAM) {
        http_stream_end(x);
        return;
    }
    later *l = mem_calloc(1, sizeof *l);
    if (!l || waiting) abort();
    *l = (later){.x = x, .mode = mode};
    l->ev = event_new(base, -1, 0, on_later, l);
    waiting = l;
    http_on_gone(x, on_gone, l);
    const struct timeval soon = {0, 200};
    event_add(l->ev, &soon);
}

static void start(void) {
    base = event_base_new();
    const http_options o = {.host = "127.0.0.1", .max_header = 2048, .max_body = 4096, .max_connections = 16};
    error err;
    if (http_server_create(&server, base, &o, handler, NULL, NULL, &err) != CHURON_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!server) start();
    if (size < 2 || size > 16384) return 0;
    mode = data[0] & 3;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(http_server_port(server))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const struct linger reset = {.l_onoff = 1, .l_linger = 0}; /* leaves no socket in TIME_WAIT */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) abort();
    /* In two parts, so that a head may arrive torn. */
    const size_t half = data[0] & 4 ? size / 2 : size;
    (void)!send(fd, data + 1, half - 1, MSG_NOSIGNAL);
    for (int i = 0; i < 3; i++) event_base_loop(base, EVLOOP_NONBLOCK);
    (void)!send(fd, data + half, size - half, MSG_NOSIGNAL);
    if (data[0] & 8) (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 6; i++) {
        char reply[4096];
        event_base_loop(base, EVLOOP_NONBLOCK);
        http_server_check_clients(server);
        while (recv(fd, reply, sizeof reply, MSG_DONTWAIT) > 0) {}
    }
    close(fd);
    for (int i = 0; i < 1000 && (http_server_connections(server) || waiting); i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        http_server_check_clients(server);
    }
    if (http_server_connections(server) || http_server_exchanges(server) || waiting) abort(); /* a leak */
    return 0;
}
