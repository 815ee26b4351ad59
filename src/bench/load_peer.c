/* load_peer.c: see load_peer.h. */
#include "bench/load_peer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "bench/load_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { LAST_LINE = 200, TAIL_BYTES = 2000 };
static const double TERM_SECONDS = 5, POLL_SECONDS = 0.05;

struct load_peer {
    char url[LOAD_PEER_URL];
    pid_t child; /* 0: has been waited for */
    FILE *log;   /* what it writes; an unnamed file */
};

static atomic_int running; /* child for load_peer_abandon, which runs on a thread of its own */

static void sleep_for(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static status free_port(unsigned *port, error *err) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
              getsockname(fd, (struct sockaddr *)&a, &n) == 0;
    int code = errno;
    if (fd >= 0) close(fd);
    if (!ok) return error_set(err, CHURON_IO, "peer: cannot find a free port: %s", strerror(code));
    *port = ntohs(a.sin_port);
    return CHURON_OK;
}

static status fill_in(str *to, const char *command, unsigned port, error *err) {
    static const char mark[] = "{port}";
    size_t found = 0;
    str_cat(to, "exec ");
    for (const char *at = command; *at;) {
        const char *next = strstr(at, mark);
        if (!next) {
            str_cat(to, at);
            break;
        }
        str_add(to, at, (size_t)(next - at));
        str_fmt(to, "%u", port);
        at = next + sizeof mark - 1;
        found++;
    }
    if (!found) {
        return error_set(err, CHURON_INVALID,
                         "field --peer: expected a command with {port} in it, got \"%.100s\"", command);
    }
    return str_check(to, err);
}

static int spawn(load_peer *p, const char *line) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    const char *argv[] = {"sh", "-c", line, NULL};
    int code = posix_spawn_file_actions_init(&files);
    if (code) return code;
    code = posix_spawnattr_init(&attributes);
    if (code) {
        posix_spawn_file_actions_destroy(&files);
        return code;
    }
    /* This program waits for its signals on one thread and blocks them elsewhere; the child must not. */
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    code = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", 0, 0);
    if (!code) code = posix_spawn_file_actions_adddup2(&files, fileno(p->log), 1);
    if (!code) code = posix_spawn_file_actions_adddup2(&files, fileno(p->log), 2);
    if (!code) code = posix_spawn(&p->child, "/bin/sh", &files, &attributes, (char **)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (!code) atomic_store(&running, (int)p->child);
    return code;
}

static bool has_ended(load_peer *p) {
    int how;
    if (p->child && waitpid(p->child, &how, WNOHANG) == p->child) {
        atomic_store(&running, 0);
        p->child = 0;
    }
    return p->child == 0;
}

/* The last line with something in it. */
static void last_line(load_peer *p, char out[LAST_LINE]) {
    char tail[TAIL_BYTES + 1];
    out[0] = '\0';
    if (fseek(p->log, 0, SEEK_END) != 0) return;
    const long size = ftell(p->log);
    if (size <= 0 || fseek(p->log, size > TAIL_BYTES ? size - TAIL_BYTES : 0, SEEK_SET) != 0) return;
    size_t n = fread(tail, 1, TAIL_BYTES, p->log);
    while (n && (tail[n - 1] == '\n' || tail[n - 1] == '\r')) n--;
    tail[n] = '\0';
    const char *lf = strrchr(tail, '\n');
    snprintf(out, LAST_LINE, "%.*s", LAST_LINE - 1, lf ? lf + 1 : tail);
}

typedef struct health {
    bool ok;
} health;

static void on_head(void *user, const load_head *h) {
    ((health *)user)->ok = h->code == 200;
}

static bool on_body(void *user, const char *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return true;
}

static void on_end(void *user, load_end how, const char *why) {
    (void)why;
    health *h = user;
    h->ok = h->ok && how == LOAD_END_WHOLE;
}

static status is_healthy(load_http *http, const char *url, bool *ok, error *err) {
    health h = {false};
    load_exchange *x;
    char path[LOAD_PEER_URL + 16];
    snprintf(path, sizeof path, "%s/health", url);
    const load_call call = {
        .url = path, .timeout = 5, .user = &h, .on_head = on_head, .on_body = on_body, .on_end = on_end};
    TRY(load_http_start(http, &call, &x, err));
    load_http_run(http);
    *ok = h.ok;
    return CHURON_OK;
}

static status wait_ready(load_peer *p, const char *command, double patience, error *err) {
    load_http *http;
    char line[LAST_LINE];
    TRY(load_http_create(&http, err));
    const double until = clock_seconds() + patience;
    status st = CHURON_OK;
    for (bool ok = false; !ok;) {
        TRY_GOTO(is_healthy(http, p->url, &ok, err));
        if (ok) break;
        const bool ended = has_ended(p);
        if (ended || clock_seconds() > until) {
            last_line(p, line);
            st = error_set(err, CHURON_IO,
                           "peer: expected %.100s to answer %s/health, got %s; its last line: %.*s", command,
                           p->url, ended ? "its end" : "no answer in time", LAST_LINE - 1,
                           line[0] ? line : "(none)");
            goto cleanup;
        }
        sleep_for(POLL_SECONDS);
    }
cleanup:
    load_http_free(http);
    return st;
}

status load_peer_start(load_peer **out, const char *command, double patience, error *err) {
    *out = NULL;
    unsigned port = 0;
    str line = {0};
    load_peer *p = mem_calloc(1, sizeof *p);
    if (!p) return error_no_memory(err, "peer", sizeof *p);
    status st;
    TRY_GOTO(free_port(&port, err));
    TRY_GOTO(fill_in(&line, command, port, err));
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%u", port);
    p->log = tmpfile();
    const int code = p->log ? spawn(p, line.data) : errno;
    if (code) {
        st = error_set(err, CHURON_IO, "peer: cannot run %.100s: %s", command, strerror(code));
        goto cleanup;
    }
    TRY_GOTO(wait_ready(p, command, patience, err));
    *out = p;
    p = NULL;
cleanup:
    str_free(&line);
    load_peer_stop(p);
    return st;
}

const char *load_peer_url(const load_peer *p) {
    return p->url;
}

void load_peer_stop(load_peer *p) {
    if (!p) return;
    if (!has_ended(p)) {
        kill(p->child, SIGTERM);
        const double until = clock_seconds() + TERM_SECONDS;
        while (!has_ended(p) && clock_seconds() < until) sleep_for(POLL_SECONDS);
        if (!has_ended(p)) {
            kill(p->child, SIGKILL);
            (void)waitpid(p->child, NULL, 0);
            atomic_store(&running, 0);
        }
    }
    if (p->log) fclose(p->log);
    mem_free(p);
}

void load_peer_abandon(void) {
    const int child = atomic_load(&running);
    if (child > 0) (void)kill(child, SIGTERM);
}
