/* test_generation.c: from tokens to text, and the public interface: stop strings wherever they are cut, whole
 * characters, callbacks on the caller's thread, wrong arguments, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "tiny_model.h"

#include <pthread.h>

static char path[40];
static churon_model *model;

typedef struct told {
    str text;
    size_t calls, stop_after;
    pthread_t thread;
} told;

static bool tell(void *user, const char *text, size_t len) {
    told *t = user;
    assert_true(pthread_equal(pthread_self(), t->thread));
    assert_int_equal(utf8_validate(text, len), len);
    str_add(&t->text, text, len);
    return ++t->calls != t->stop_after;
}

static churon_generate_options greedy(size_t max_tokens) {
    churon_generate_options o;
    churon_generate_options_init(model, &o);
    o.temperature = 0;
    o.max_tokens = max_tokens;
    return o;
}

static churon_generation generate(const char *prompt, const churon_generate_options *o, told *t) {
    churon_sequence *seq;
    churon_error err;
    int32_t ids[256];
    size_t n;
    t->thread = pthread_self();
    if (churon_sequence_open(&seq, model, &err) != CHURON_OK) fail_msg("%s", err.message);
    if (churon_tokenize(model, prompt, strlen(prompt), true, ids, 256, &n, &err) != CHURON_OK) {
        fail_msg("%s", err.message);
    }
    if (churon_sequence_feed(seq, ids, n, &err) != CHURON_OK) fail_msg("%s", err.message);
    churon_generation result = {.size = sizeof result};
    if (churon_sequence_generate(seq, o, tell, t, &result, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(churon_sequence_length(seq), n + result.tokens);
    churon_sequence_close(seq);
    return result;
}

/* ---- text ------------------------------------------------------------------------------------------- */

/* Random weights babble bytes: whatever they are, the stream must be valid UTF-8 (checked in tell). */
static void test_stream_is_valid_text(void **state) {
    (void)state;
    churon_generate_options o = greedy(200);
    o.temperature = 1.5f;
    o.ignore_eos = true;
    for (o.seed = 1; o.seed <= 20; o.seed++) {
        told t = {0};
        churon_generation g = generate("the thing", &o, &t);
        assert_int_equal(g.finish, CHURON_FINISH_LENGTH);
        assert_int_equal(g.tokens, 200);
        str_free(&t.text);
    }
}

/* Every substring of an answer as stop string: the text ends right before its first occurrence, although the
 * string may begin and end inside tokens. */
static void test_stop_strings_at_every_place(void **state) {
    (void)state;
    churon_generate_options o = greedy(40);
    o.temperature = 0.7f;
    o.seed = 3;
    o.ignore_eos = true;
    told full = {0};
    (void)generate("and then", &o, &full);
    const char *text = str_cstr(&full.text);
    for (size_t from = 0; from + 1 < full.text.len; from += 3) {
        for (size_t len = 1; len < 6 && from + len <= full.text.len; len += 2) {
            char stop[8] = "";
            memcpy(stop, text + from, len);
            if (utf8_validate(stop, len) != len || strlen(stop) != len) continue;
            const char *list[] = {"\x01never", stop};
            o.stop = list;
            o.n_stop = 2;
            told t = {0};
            churon_generation g = generate("and then", &o, &t);
            const char *expected_end = strstr(text, stop);
            assert_int_equal(g.finish, CHURON_FINISH_STOP);
            assert_int_equal(t.text.len, expected_end - text);
            if (t.text.len) assert_memory_equal(t.text.data, text, t.text.len);
            str_free(&t.text);
        }
    }
    str_free(&full.text);
}

static void test_callback_stops_within_a_step(void **state) {
    (void)state;
    churon_generate_options o = greedy(100);
    o.temperature = 1.0f;
    o.ignore_eos = true;
    told t = {.stop_after = 3};
    churon_generation g = generate("in the end", &o, &t);
    assert_int_equal(g.finish, CHURON_FINISH_CANCELLED);
    assert_int_equal(t.calls, 3);
    assert_true(g.tokens < 100);
    str_free(&t.text);
}

/* ---- the same through every way --------------------------------------------------------------------- */

static void test_logits_choose_the_greedy_token(void **state) {
    (void)state;
    churon_sequence *seq;
    churon_error err;
    int32_t ids[64];
    size_t n, n_vocab;
    const float *logits;
    assert_int_equal(churon_sequence_open(&seq, model, &err), CHURON_OK);
    assert_int_equal(churon_tokenize(model, "thing", 5, false, ids, 64, &n, &err), CHURON_OK);
    assert_int_equal(churon_sequence_feed(seq, ids, n, &err), CHURON_OK);
    assert_int_equal(churon_sequence_logits(seq, &logits, &n_vocab, &err), CHURON_OK);
    assert_int_equal(n_vocab, TINY_VOCAB);
    size_t best = 0;
    for (size_t i = 1; i < n_vocab; i++) best = logits[i] > logits[best] ? i : best;
    churon_generate_options o = greedy(1);
    assert_int_equal(churon_sequence_generate(seq, &o, NULL, NULL, NULL, &err), CHURON_OK);
    assert_int_equal(churon_sequence_length(seq), n + 1);
    char a[16];
    size_t a_len;
    assert_int_equal(churon_sequence_truncate(seq, n, &err), CHURON_OK);
    told t = {.thread = pthread_self()};
    assert_int_equal(churon_sequence_generate(seq, &o, tell, &t, NULL, &err), CHURON_OK);
    int32_t id = (int32_t)best;
    assert_int_equal(churon_detokenize(model, &id, 1, false, a, sizeof a, &a_len, &err), CHURON_OK);
    if (utf8_validate(a, a_len) == a_len) {
        assert_int_equal(t.text.len, a_len);
        if (a_len) assert_memory_equal(t.text.data, a, a_len);
    }
    str_free(&t.text);
    churon_sequence_close(seq);
}

static void test_chat_prompt(void **state) {
    (void)state;
    churon_message m[] = {{"system", "be brief", 8}, {"user", "안녕", 6}};
    char text[256];
    size_t len;
    churon_error err;
    assert_int_equal(churon_chat_prompt(model, m, 2, text, sizeof text, &len, &err), CHURON_OK);
    static const char expected[] =
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n안녕<|im_end|>\n"
        "<|im_start|>assistant\n";
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(text, expected, len);
    assert_int_equal(churon_chat_prompt(model, m, 2, text, 10, &len, &err), CHURON_LIMIT);
    assert_int_equal(len, strlen(expected));
    m[1].content = "\xff";
    m[1].content_len = 1;
    assert_int_equal(churon_chat_prompt(model, m, 2, text, sizeof text, &len, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "messages[1].content"));
}

typedef struct thread_job {
    churon_generate_options o;
    told t;
} thread_job;

static void *generate_in_thread(void *ctx) {
    thread_job *j = ctx;
    (void)generate("the thing and", &j->o, &j->t);
    return NULL;
}

static void test_threads_generate_together(void **state) {
    (void)state;
    enum { N = 5 };
    thread_job alone[N] = {0}, together[N] = {0};
    pthread_t threads[N];
    for (size_t i = 0; i < N; i++) {
        alone[i].o = greedy(60);
        alone[i].o.temperature = 1.2f;
        alone[i].o.seed = i;
        together[i].o = alone[i].o;
        (void)generate_in_thread(&alone[i]);
    }
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, generate_in_thread, &together[i]), 0);
    }
    for (size_t i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(str_cstr(&alone[i].t.text), str_cstr(&together[i].t.text));
        str_free(&alone[i].t.text);
        str_free(&together[i].t.text);
    }
}

/* ---- wrong use -------------------------------------------------------------------------------------- */

static void test_wrong_arguments(void **state) {
    (void)state;
    churon_error err;
    churon_model *m = model;
    churon_sequence *seq;
    size_t n;
    assert_int_equal(churon_model_open(&m, NULL, NULL, &err), CHURON_INVALID);
    assert_null(m);
    assert_int_equal(churon_model_open(&m, "/nonexistent", NULL, &err), CHURON_NOT_FOUND);
    assert_int_equal(churon_model_open(&m, path, &(churon_model_options){.size = 4}, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "options.size"));
    assert_int_equal(churon_model_open(NULL, path, NULL, NULL), CHURON_INVALID);
    assert_int_equal(churon_sequence_open(&seq, model, &err), CHURON_OK);
    churon_generate_options o = greedy(4);
    assert_int_equal(churon_sequence_generate(seq, &o, NULL, NULL, NULL, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "prompt"));
    o.temperature = NAN;
    int32_t id = 1;
    assert_int_equal(churon_sequence_feed(seq, &id, 1, &err), CHURON_OK);
    assert_int_equal(churon_sequence_generate(seq, &o, NULL, NULL, NULL, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "temperature"));
    o = greedy(4);
    o.stop = (const char *const[]){""};
    o.n_stop = 1;
    assert_int_equal(churon_sequence_generate(seq, &o, NULL, NULL, NULL, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "stop"));
    assert_int_equal(churon_tokenize(model, "abc", 3, false, NULL, 0, &n, &err), CHURON_LIMIT);
    assert_int_equal(n, 3);
    id = -1;
    assert_int_equal(churon_sequence_feed(seq, &id, 1, &err), CHURON_INVALID);
    churon_sequence_close(seq);
    churon_sequence_close(NULL);
    churon_model_close(NULL);
}

static void test_sequence_keeps_the_model(void **state) {
    (void)state;
    churon_model *m;
    churon_sequence *seq;
    churon_error err;
    assert_int_equal(churon_model_open(&m, path, NULL, &err), CHURON_OK);
    assert_int_equal(churon_sequence_open(&seq, m, &err), CHURON_OK);
    churon_model_close(m);
    int32_t id = 5;
    assert_int_equal(churon_sequence_feed(seq, &id, 1, &err), CHURON_OK);
    assert_int_equal(churon_sequence_generate(seq, NULL, NULL, NULL, NULL, &err), CHURON_OK);
    churon_sequence_close(seq);
}

static status whole_run(str *text, churon_error *err) {
    churon_model *m = NULL;
    churon_sequence *seq = NULL;
    int32_t ids[64];
    char prompt[256];
    size_t n, len;
    churon_message message = {"user", "the end", 7};
    churon_model_options options = {.size = sizeof options, .threads = 1, .context = 128};
    churon_generate_options o = greedy(10);
    o.stop = (const char *const[]){"zzzzzzz"};
    o.n_stop = 1;
    told t = {.thread = pthread_self()};
    status st = churon_model_open(&m, path, &options, err);
    if (st == CHURON_OK) st = churon_chat_prompt(m, &message, 1, prompt, sizeof prompt, &len, err);
    if (st == CHURON_OK) st = churon_tokenize(m, prompt, len, true, ids, 64, &n, err);
    if (st == CHURON_OK) st = churon_sequence_open(&seq, m, err);
    if (st == CHURON_OK) st = churon_sequence_feed(seq, ids, n, err);
    if (st == CHURON_OK) st = churon_sequence_generate(seq, &o, tell, &t, NULL, err);
    churon_sequence_close(seq);
    churon_model_close(m);
    if (st == CHURON_OK && t.text.failed) st = CHURON_NO_MEMORY; /* this test's own string */
    *text = t.text;
    return st;
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    churon_error err;
    str expected, text;
    assert_int_equal(whole_run(&expected, &err), CHURON_OK);
    bool done = false;
    for (int64_t n = 1; !done && n < 100000; n++) {
        int64_t before = mem_count();
        mem_fail_at(n);
        status st = whole_run(&text, &err);
        mem_fail_at(0);
        done = mem_count() - before < n;
        if (st == CHURON_OK) {
            assert_string_equal(str_cstr(&expected), str_cstr(&text));
        } else {
            assert_int_equal(st, CHURON_NO_MEMORY);
        }
        str_free(&text);
    }
    assert_true(done);
    str_free(&expected);
}

static int open_model(void **state) {
    (void)state;
    churon_error err;
    churon_model_options o = {.size = sizeof o, .threads = 2};
    if (!tiny_write(path, true, 1)) return -1;
    if (churon_model_open(&model, path, &o, &err) == CHURON_OK) return 0;
    print_error("%s\n", err.message);
    return -1;
}

static int close_model(void **state) {
    (void)state;
    churon_model_close(model);
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_is_valid_text),
        cmocka_unit_test(test_stop_strings_at_every_place),
        cmocka_unit_test(test_callback_stops_within_a_step),
        cmocka_unit_test(test_logits_choose_the_greedy_token),
        cmocka_unit_test(test_chat_prompt),
        cmocka_unit_test(test_threads_generate_together),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_sequence_keeps_the_model),
        cmocka_unit_test(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
