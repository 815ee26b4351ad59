/* test_tokenizer_gguf.c: the keys of a GGUF file that describe a tokenizer, right and wrong. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "gguf_build.h"
#include "vocab_build.h"

#include <sys/mman.h>
#include <unistd.h>

static vocab v; /* large */

typedef struct file_text {
    str entries;
    uint64_t n;
} file_text;

static void add_texts(file_text *f, const char *key, const token_text *texts, size_t n) {
    put_array(&f->entries, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) {
        put_le(&f->entries, texts[i].len, 8);
        str_add(&f->entries, texts[i].data, texts[i].len);
    }
    f->n++;
}

static void add_types(file_text *f, size_t n) {
    put_array(&f->entries, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++) put_le(&f->entries, (uint32_t)v.types[i], 4);
    f->n++;
}

static void add_scores(file_text *f, size_t n) {
    put_array(&f->entries, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v.scores[i], 4);
        put_le(&f->entries, bits, 4);
    }
    f->n++;
}

static void add_u32(file_text *f, const char *key, uint32_t value) {
    put_u32(&f->entries, key, value);
    f->n++;
}

static void add_bool(file_text *f, const char *key, bool value) {
    put_int(&f->entries, key, GGUF_BOOL, value, 1);
    f->n++;
}

static void add_string(file_text *f, const char *key, const char *value) {
    put_string(&f->entries, key, value);
    f->n++;
}

/* What `v` says, without ids and flags. */
static void add_vocab(file_text *f, const char *pre) {
    add_string(f, "tokenizer.ggml.model", v.spec.model);
    if (pre) add_string(f, "tokenizer.ggml.pre", pre);
    add_texts(f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    add_types(f, v.spec.n_tokens);
    if (v.spec.model[0] == 'g') add_texts(f, "tokenizer.ggml.merges", v.merges, v.spec.n_merges);
    if (v.spec.model[0] == 'l') add_scores(f, v.spec.n_tokens);
}

static status open_file(file_text *f, tokenizer **t, error *err) {
    str all = {0};
    put_header(&all, 3, 0, f->n);
    str_add(&all, f->entries.data, f->entries.len);
    pad_to(&all, 32);
    char path[64];
    int fd = memfd_create("tokenizer", 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, all.data, all.len), (ssize_t)all.len);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    gguf *g;
    *t = NULL;
    status st = gguf_open(&g, path, err);
    if (st != CHURON_OK) fail_msg("%s", err->message);
    st = tokenizer_from_gguf(t, g, err);
    gguf_free(g); /* the tokenizer must not need it */
    assert_int_equal(close(fd), 0);
    str_free(&all);
    str_free(&f->entries);
    *f = (file_text){0};
    return st;
}

static tokenizer *opened(file_text *f) {
    tokenizer *t;
    error err;
    if (open_file(f, &t, &err) != CHURON_OK) fail_msg("%s", err.message);
    return t;
}

static void refused(file_text *f, const char *part) {
    tokenizer *t;
    error err;
    assert_int_not_equal(open_file(f, &t, &err), CHURON_OK);
    assert_null(t);
    if (!strstr(err.message, part)) fail_msg("expected \"%s\" in: %s", part, err.message);
}

static void test_byte_level(void **state) {
    (void)state;
    vocab_bytes(&v, NULL);
    int32_t start = vocab_add(&v, "<|im_start|>", TOKEN_CONTROL, 0);
    int32_t end = vocab_add(&v, "<|im_end|>", TOKEN_CONTROL, 0);
    int32_t sure =
        vocab_add(&v, "<|endoftext|>", TOKEN_NORMAL, 0); /* marked wrongly: a control token all the same */
    int32_t unsure = vocab_add(&v, "</s>", TOKEN_NORMAL, 0);
    int32_t eot = vocab_add(&v, "<own-eot>", TOKEN_CONTROL, 0);
    file_text f = {0};
    add_vocab(&f, "smollm");
    add_u32(&f, "tokenizer.ggml.bos_token_id", (uint32_t)start);
    add_u32(&f, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
    add_u32(&f, "tokenizer.ggml.padding_token_id", UINT32_MAX); /* "none" */
    tokenizer *t = opened(&f);
    assert_string_equal(tokenizer_pre(t), "smollm");
    assert_int_equal(tokenizer_bos(t), start);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_false(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_eog(t, end) && tokenizer_is_eog(t, sure) && tokenizer_is_eog(t, eot));
    assert_false(tokenizer_is_eog(t, unsure) || tokenizer_is_eog(t, start));
    assert_true(tokenizer_is_control(t, sure));
    assert_false(tokenizer_is_control(t, unsure));
    tokenizer_free(t);
}

static void test_defaults_of_rules(void **state) {
    (void)state;
    vocab_bytes(&v, NULL);
    file_text f = {0};
    add_vocab(&f, NULL);
    tokenizer *t = opened(&f);
    assert_string_equal(tokenizer_pre(t), "default");
    tokenizer_free(t);
    add_vocab(&f, "llama-bpe"); /* adds bos, if there is one */
    t = opened(&f);
    assert_false(tokenizer_adds_bos(t));
    tokenizer_free(t);
    add_vocab(&f, "llama3");
    add_u32(&f, "tokenizer.ggml.bos_token_id", 7);
    t = opened(&f);
    assert_true(tokenizer_adds_bos(t));
    tokenizer_free(t);
    add_vocab(&f, "llama3");
    add_u32(&f, "tokenizer.ggml.bos_token_id", 7);
    add_bool(&f, "tokenizer.ggml.add_bos_token", false);
    t = opened(&f);
    assert_false(tokenizer_adds_bos(t));
    tokenizer_free(t);
}

static void test_by_score(void **state) {
    (void)state;
    for (int prefix = 0; prefix < 2; prefix++) {
        vocab_scored(&v);
        file_text f = {0};
        add_vocab(&f, "default");
        if (!prefix) add_bool(&f, "tokenizer.ggml.add_space_prefix", false);
        tokenizer *t = opened(&f);
        assert_string_equal(tokenizer_model(t), "llama");
        assert_true(tokenizer_adds_bos(t));
        assert_int_equal(tokenizer_bos(t), 1);
        assert_true(tokenizer_is_eog(t, 2));
        token_list ids = {0};
        error err;
        assert_int_equal(tokenizer_encode(t, "hello", 5, (tokenize_options){.add_special = true}, &ids, &err),
                         CHURON_OK);
        assert_int_equal(ids.ids[0], 1);
        assert_int_equal(ids.len, prefix ? 2 : 4);
        token_list_free(&ids);
        tokenizer_free(t);
    }
}

/* Vocabularies with channels: <|end|> stands within an answer. */
static void test_channels(void **state) {
    (void)state;
    for (int channels = 0; channels < 2; channels++) {
        vocab_bytes(&v, NULL);
        int32_t end = vocab_add(&v, "<|end|>", TOKEN_CONTROL, 0);
        int32_t returns = vocab_add(&v, "<|return|>", TOKEN_CONTROL, 0);
        if (channels) (void)vocab_add(&v, "<|call|>", TOKEN_CONTROL, 0);
        file_text f = {0};
        add_vocab(&f, "gpt-4o");
        tokenizer *t = opened(&f);
        assert_true(tokenizer_is_eog(t, returns));
        assert_int_equal(tokenizer_is_eog(t, end), !channels);
        tokenizer_free(t);
    }
}

static void test_refuses_wrong_keys(void **state) {
    (void)state;
    file_text f = {0};
    vocab_bytes(&v, NULL);
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    refused(&f, "key 'tokenizer.ggml.model': expected gpt2 or llama, got no key");
    add_string(&f, "tokenizer.ggml.model", "gpt2");
    refused(&f, "tokenizer.ggml.tokens");
    add_string(&f, "tokenizer.ggml.model", "t5");
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    refused(&f, "model: expected gpt2 or llama, got \"t5\"");
    add_vocab(&f, "no-such-rule");
    refused(&f, "\"no-such-rule\": expected one of smollm");
    add_string(&f, "tokenizer.ggml.model", "gpt2");
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    refused(&f, "tokenizer.ggml.merges");
    add_string(&f, "tokenizer.ggml.model", "gpt2");
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    add_types(&f, v.spec.n_tokens - 1);
    refused(&f, "key 'tokenizer.ggml.token_type': expected 263 items, one for each token, got 262");
    add_vocab(&f, "smollm");
    add_u32(&f, "tokenizer.ggml.eos_token_id", 263);
    refused(&f, "key 'tokenizer.ggml.eos_token_id': expected an id below 263 tokens, got 263");
    add_vocab(&f, "smollm");
    add_string(&f, "tokenizer.ggml.add_bos_token", "yes");
    refused(&f, "tokenizer.ggml.add_bos_token");
    add_vocab(&f, "smollm");
    add_bool(&f, "tokenizer.ggml.add_bos_token", true);
    refused(&f, "expected a bos token, got none");
    vocab_scored(&v);
    add_string(&f, "tokenizer.ggml.model", "llama");
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    add_types(&f, v.spec.n_tokens);
    refused(&f, "scores: expected one for each token");
    add_string(&f, "tokenizer.ggml.model", "llama");
    add_texts(&f, "tokenizer.ggml.tokens", v.tokens, v.spec.n_tokens);
    add_scores(&f, v.spec.n_tokens - 3);
    refused(&f, "key 'tokenizer.ggml.scores': expected 271 items");
}

static void test_failing_allocations(void **state) {
    (void)state;
    for (int model = 0; model < 2; model++) {
        if (model) {
            vocab_scored(&v);
        } else {
            vocab_bytes(&v, NULL);
            (void)vocab_add(&v, "<|im_end|>", TOKEN_NORMAL, 0);
        }
        file_text f = {0};
        add_vocab(&f, "smollm");
        str all = {0};
        put_header(&all, 3, 0, f.n);
        str_add(&all, f.entries.data, f.entries.len);
        char path[64];
        int fd = memfd_create("tokenizer", 0);
        assert_int_equal(write(fd, all.data, all.len), (ssize_t)all.len);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        error err;
        gguf *g;
        assert_int_equal(gguf_open(&g, path, &err), CHURON_OK);
        tokenizer *t = NULL;
        status st = CHURON_NO_MEMORY;
        for (int64_t n = 1; st == CHURON_NO_MEMORY; n++) {
            mem_fail_at(n);
            st = tokenizer_from_gguf(&t, g, &err);
            mem_fail_at(0);
        }
        if (st != CHURON_OK) fail_msg("%s", err.message);
        tokenizer_free(t);
        gguf_free(g);
        assert_int_equal(close(fd), 0);
        str_free(&all);
        str_free(&f.entries);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),         cmocka_unit_test(test_defaults_of_rules),
        cmocka_unit_test(test_by_score),           cmocka_unit_test(test_channels),
        cmocka_unit_test(test_refuses_wrong_keys), cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
