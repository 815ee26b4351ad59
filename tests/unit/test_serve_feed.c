/* test_serve_feed.c: events between the two threads: order, bounds, ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/feed.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SOURCES = 8, TOKENS = 3000 };

typedef struct reader {
    str text[SOURCES];
    size_t tokens[SOURCES], ends;
    finish_reason finish[SOURCES];
    feed_source *sources;
    char why[508];
} reader;

static void on_event(void *user, const feed_event *e) {
    reader *r = user;
    const size_t i = (size_t)((feed_source *)e->owner - r->sources);
    assert_int_equal(r->finish[i], FINISH_NONE); /* nothing after an end */
    if (e->has_token) {
        assert_int_equal(e->token.id, (int)r->tokens[i]);
        assert_int_equal(e->token.n_top, r->tokens[i] % 3);
        for (size_t k = 0; k < e->token.n_top; k++) assert_int_equal(e->token.top[k].id, (int)k);
        r->tokens[i]++;
    }
    str_add(&r->text[i], e->text, e->text_len);
    if (e->finish != FINISH_NONE) {
        r->finish[i] = e->finish;
        r->ends++;
        if (e->err) snprintf(r->why, sizeof r->why, "%s", e->err->message);
    }
}

static bool push_token(feed *f, feed_source *s, size_t n, const char *text) {
    static const token_logprob top[3] = {{0, -1}, {1, -2}, {2, -3}};
    const sampled token = {.id = (int32_t)n, .logprob = -0.5F, .top = top, .n_top = n % 3};
    const generation_event e = {.text = text, .text_len = strlen(text), .token = &token};
    return feed_push(f, s, &e);
}

static bool push_end(feed *f, feed_source *s, const char *text, finish_reason why) {
    const generation_event e = {.text = text, .text_len = strlen(text), .finish = why};
    return feed_push(f, s, &e);
}

typedef struct writer {
    feed *f;
    feed_source *sources;
} writer;

static void *write_steps(void *user) {
    writer *w = user;
    for (size_t n = 0; n < TOKENS; n++) {
        for (size_t i = 0; i < SOURCES; i++) {
            char text[24];
            snprintf(text, sizeof text, "%zu ", n);
            while (!push_token(w->f, &w->sources[i], n, text))
                w->sources[i].overflowed = false; /* try again */
        }
        feed_publish(w->f);
    }
    for (size_t i = 0; i < SOURCES; i++) (void)push_end(w->f, &w->sources[i], "end", FINISH_LENGTH);
    feed_publish(w->f);
    return NULL;
}

static void test_two_threads(void **state) {
    (void)state;
    feed *f;
    assert_int_equal(feed_create(&f, 4096, NULL), CHURON_OK);
    feed_source sources[SOURCES];
    memset(sources, 0, sizeof sources);
    for (size_t i = 0; i < SOURCES; i++) sources[i].owner = &sources[i];
    reader r = {.sources = sources};
    writer w = {f, sources};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, write_steps, &w), 0);
    while (r.ends < SOURCES) {
        struct pollfd p = {.fd = feed_wait_fd(f), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1); /* woken for everything that was published */
        feed_take(f, on_event, &r);
    }
    pthread_join(t, NULL);
    str expected = {0};
    for (size_t n = 0; n < TOKENS; n++) str_fmt(&expected, "%zu ", n);
    str_cat(&expected, "end");
    for (size_t i = 0; i < SOURCES; i++) {
        assert_int_equal(r.tokens[i], TOKENS);
        assert_int_equal(r.finish[i], FINISH_LENGTH);
        assert_string_equal(r.text[i].data, expected.data);
        str_free(&r.text[i]);
    }
    str_free(&expected);
    feed_free(f);
}

static void test_nobody_takes(void **state) {
    (void)state;
    feed *f;
    assert_int_equal(feed_create(&f, 1024, NULL), CHURON_OK);
    feed_source sources[2];
    memset(sources, 0, sizeof sources);
    sources[0].owner = &sources[0];
    sources[1].owner = &sources[1];
    reader r = {.sources = sources};
    size_t n = 0;
    while (push_token(f, &sources[0], n, "abc")) {
        n++;
        feed_publish(f);
        assert_true(n < 100);
    }
    assert_false(push_token(f, &sources[0], n, "")); /* once over, over: no hole in the text */
    assert_false(push_end(f, &sources[0], "x", FINISH_STOP));
    (void)push_end(f, &sources[1], "", FINISH_STOP); /* ends always fit */
    feed_publish(f);
    feed_take(f, on_event, &r);
    assert_int_equal(r.tokens[0], n);
    assert_int_equal(r.finish[0], FINISH_ERROR);
    assert_non_null(strstr(r.why, "1024 bytes waiting"));
    assert_int_equal(r.finish[1], FINISH_STOP);
    feed_take(f, on_event, &r); /* nothing twice */
    assert_int_equal(r.ends, 2);
    str_free(&r.text[0]);
    str_free(&r.text[1]);
    feed_free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_threads),
                                       cmocka_unit_test(test_nobody_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
