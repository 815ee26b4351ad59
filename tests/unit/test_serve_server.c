/* test_serve_server.c: the whole server in this process, on a tiny model: every allocation fails once and the
 * server goes on; it drains and can be created again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/server.h"
#include "tiny_model.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

static char path[40];
static lm_bundle *bundle;
static bool server_running;

typedef struct running {
    server *s;
    pthread_t thread;
    status st;
} running;

static void *run(void *user) {
    running *r = user;
    r->st = server_run(r->s, NULL);
    return NULL;
}

static const server_options options = {.http = {.host = "127.0.0.1"}, .model_id = "tiny"};

static void start(running *r) {
    error err;
    if (server_create(&r->s, bundle, &options, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
    server_running = true;
}

static void stop(running *r) {
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    pthread_join(r->thread, NULL);
    assert_int_equal(r->st, CHURON_OK);
    server_free(r->s);
    server_running = false;
}

/* Sends a request and reads until the server closes. */
static void request(const running *r, const char *target, const char *body, str *answer) {
    str_clear(answer);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct timeval patience = {30, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port(r->s))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    char head[512];
    const int n =
        snprintf(head, sizeof head,
                 "POST %s HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 target, strlen(body), body);
    assert_int_equal(send(fd, head, (size_t)n, MSG_NOSIGNAL), n);
    /* A buffer of its own: the test's reading must not be what the failing allocation hits. */
    static char bytes[1 << 16];
    size_t len = 0;
    for (ssize_t k; len < sizeof bytes && (k = recv(fd, bytes + len, sizeof bytes - len, 0)) > 0;) {
        len += (size_t)k;
    }
    close(fd);
    mem_fail_at(0);
    str_add(answer, bytes, len);
}

/* What follows "FIELD":" up to the next quotation mark, of every place it is in. */
static void collect(const char *json, const char *field, str *out) {
    str_clear(out);
    char key[32];
    snprintf(key, sizeof key, "\"%s\":\"", field);
    for (const char *p = json; (p = strstr(p, key)); p += strlen(key)) {
        const char *from = p + strlen(key);
        str_add(out, from, strcspn(from, "\""));
    }
}

typedef struct target {
    const char *path, *body;
    bool stream;
    const char *field;
} target;

static const target targets[] = {
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}],\"max_tokens\":4,"
     "\"temperature\":0,\"ignore_eos\":true,\"stop\":[\"never\"],\"logit_bias\":{\"1\":1}}",
     false, "content"},
    {"/v1/completions",
     "{\"prompt\":[\"a\"],\"max_tokens\":4,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
     "\"timeout\":60}",
     true, "text"},
    {"/tokenize", "{\"content\":\"the thing\",\"with_pieces\":true}", false, "piece"},
    {"/detokenize", "{\"tokens\":[97,98]}", false, "content"},
};

static bool is_refusal(const char *answer) {
    return strncmp(answer, "HTTP/1.1 503", 12) == 0 || strncmp(answer, "HTTP/1.1 500", 12) == 0;
}

/* Whole and right, a refusal, or a stream that says that it failed or breaks off: never a wrong answer. */
static void check_answer(const target *t, const str *answer, const str *expected, str *got) {
    const char *a = str_cstr(answer);
    if (answer->len == 0 || is_refusal(a)) return;
    if (strncmp(a, "HTTP/1.1 200", 12) != 0) fail_msg("%s: %s", t->path, a);
    if (t->stream && !strstr(a, "[DONE]")) return;
    collect(a, t->field, got);
    assert_string_equal(str_cstr(got), str_cstr(expected));
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    running r;
    start(&r);
    str answer = {0}, expected = {0}, got = {0};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        const target *t = &targets[i];
        request(&r, t->path, t->body, &answer);
        assert_memory_equal(str_cstr(&answer), "HTTP/1.1 200", 12);
        collect(str_cstr(&answer), t->field, &expected);
        size_t refused = 0;
        int64_t n = 1;
        for (;; n++) {
            assert_true(n < 5000);
            const int64_t before = mem_count();
            mem_fail_at(n);
            request(&r, t->path, t->body, &answer);
            refused += answer.len == 0 || is_refusal(str_cstr(&answer));
            check_answer(t, &answer, &expected, &got);
            if (mem_count() - before < n) break; /* it was never reached */
        }
        assert_true(refused > 0);
        request(&r, t->path, t->body, &answer); /* and all is well again */
        collect(str_cstr(&answer), t->field, &got);
        assert_string_equal(str_cstr(&got), str_cstr(&expected));
    }
    str_free(&answer);
    str_free(&expected);
    str_free(&got);
    stop(&r);
}

static void test_creation_without_memory(void **state) {
    (void)state;
    for (int64_t n = 1; n < 2000; n++) {
        server *s;
        error err = {0};
        mem_fail_at(n);
        const status st = server_create(&s, bundle, &options, &err);
        mem_fail_at(0);
        server_free(s);
        if (st == CHURON_OK) return;
        if (st != CHURON_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, err.message);
    }
    fail_msg("no run succeeded");
}

static void test_twice_in_a_row(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        running r;
        str answer = {0};
        start(&r);
        request(&r, "/tokenize", "{\"prompt\":\"a\"}", &answer);
        assert_memory_equal(str_cstr(&answer), "HTTP/1.1 200", 12);
        str_free(&answer);
        stop(&r);
    }
}

static int open_bundle(void **state) {
    (void)state;
    error err;
    if (!tiny_write(path, true, 1)) return -1;
    const lm_bundle_options o = {.threads = 2};
    if (lm_bundle_open(&bundle, path, &o, &err) != CHURON_OK) {
        puts(err.message);
        return -1;
    }
    return 0;
}

static int close_bundle(void **state) {
    (void)state;
    mem_fail_at(0);
    if (server_running) _exit(1); /* a failed assertion left it: do not wait for it for ever */
    lm_bundle_close(bundle);
    unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_can_fail),
                                       cmocka_unit_test(test_creation_without_memory),
                                       cmocka_unit_test(test_twice_in_a_row)};
    return cmocka_run_group_tests(tests, open_bundle, close_bundle);
}
