/* test_model.c: descriptions that contradict each other are refused by name, before a weight is read; rotary
 * frequencies against their formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/model.h"
#include "lm/rope.h"
#include "tiny_model.h"

static char path[40];
static pool *workers;
static const kernels *table;

static char *find_text(str *s, const char *text) {
    size_t n = strlen(text);
    for (size_t i = 8; i + n <= s->len; i++) {
        uint64_t len = 0;
        memcpy(&len, s->data + i - 8, 8);
        if (len == n && memcmp(s->data + i, text, n) == 0) return s->data + i;
    }
    fail_msg("%s is not in the file", text);
    return NULL;
}

/* The value of an integer key. */
static void patch_u32(str *s, const char *key, uint32_t v) {
    memcpy(find_text(s, key) + strlen(key) + 4, &v, 4);
}

static void patch_f32(str *s, const char *key, float v) {
    memcpy(find_text(s, key) + strlen(key) + 4, &v, 4);
}

/* Renames a key or a tensor; both names are of one length. */
static void rename_text(str *s, const char *from, const char *to) {
    assert_int_equal(strlen(from), strlen(to));
    memcpy(find_text(s, from), to, strlen(to));
}

static void patch_dim(str *s, const char *tensor, size_t dim, uint64_t v) {
    memcpy(find_text(s, tensor) + strlen(tensor) + 4 + 8 * dim, &v, 8);
}

static status load(str *s, lm_model **m, error *err) {
    *m = NULL;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(s->data, 1, s->len, f), s->len);
    fclose(f);
    gguf *g;
    TRY(gguf_open(&g, path, err));
    status st = lm_model_load(m, g, table, workers, err);
    gguf_free(g);
    return st;
}

typedef struct fault {
    const char *what; /* key or tensor */
    const char *to;   /* new name, or NULL */
    size_t dim;       /* 1 + dimension of a tensor to change, 0: a u32 key */
    uint64_t value;
    status expected;
    const char *message; /* part of it */
} fault;

static void test_contradictions_are_refused_by_name(void **state) {
    (void)state;
    static const fault faults[] = {
        {"llama", "lzama", 0, 0, CHURON_UNSUPPORTED, "general.architecture: expected one of llama"},
        {"llama.context_length", NULL, 0, 0, CHURON_CORRUPT, "llama.context_length: expected 1.."},
        {"llama.embedding_length", NULL, 0, 128, CHURON_CORRUPT, "token_embd.weight"},
        {"llama.embedding_length", NULL, 0, 0, CHURON_CORRUPT, "llama.embedding_length"},
        {"llama.embedding_length", "llama.embedding_lengtX", 0, 0, CHURON_CORRUPT, "llama.embedding_length"},
        {"llama.block_count", NULL, 0, 3, CHURON_CORRUPT, "blk.2.attn_norm.weight: expected this tensor"},
        {"llama.block_count", NULL, 0, 1, CHURON_UNSUPPORTED, "blk.1."},
        {"llama.block_count", NULL, 0, 4000000000u, CHURON_CORRUPT, "llama.block_count"},
        {"llama.attention.head_count", NULL, 0, 0, CHURON_CORRUPT, "head_count"},
        {"llama.attention.head_count", NULL, 0, 3, CHURON_CORRUPT, "head_count_kv"},
        {"llama.attention.head_count", NULL, 0, 8, CHURON_UNSUPPORTED, "multiples of 16, got 8"},
        {"llama.attention.head_count_kv", NULL, 0, 3, CHURON_CORRUPT, "divisor of head_count 4, got 3"},
        {"llama.attention.head_count_kv", NULL, 0, 4, CHURON_CORRUPT,
         "blk.0.attn_k.weight: expected shape [64, 64]"},
        {"llama.feed_forward_length", NULL, 0, 95, CHURON_CORRUPT, "blk.0.ffn_gate.weight"},
        {"blk.1.ffn_up.weight", "blk.1.ffn_uq.weight", 0, 0, CHURON_CORRUPT,
         "blk.1.ffn_up.weight: expected this"},
        {"blk.0.attn_q.weight", NULL, 2, 32, CHURON_CORRUPT, "blk.0.attn_q.weight"},
        {"token_embd.weight", NULL, 2, 263, CHURON_CORRUPT, "tokenizer.ggml.tokens"},
        {"output_norm.weight", NULL, 1, 63, CHURON_CORRUPT, "output_norm.weight"},
        {"tokenizer.ggml.pre", "llama.expert_count", 0, 0, CHURON_CORRUPT, "llama.expert_count"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        str s = {0};
        tiny_bytes(&s, false, 1);
        if (f->to) {
            rename_text(&s, f->what, f->to);
        } else if (f->dim) {
            patch_dim(&s, f->what, f->dim - 1, f->value);
        } else {
            patch_u32(&s, f->what, (uint32_t)f->value);
        }
        lm_model *m;
        error err = {0};
        status st = load(&s, &m, &err);
        if (st != f->expected || !strstr(err.message, f->message)) {
            fail_msg("fault %zu (%s): got %s \"%s\"", i, f->what, churon_status_name(st), err.message);
        }
        assert_null(m);
        str_free(&s);
    }
}

static void test_bad_epsilon(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -1.0f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        str s = {0};
        tiny_bytes(&s, false, 1);
        patch_f32(&s, "llama.attention.layer_norm_rms_epsilon", bad[i]);
        lm_model *m;
        error err;
        assert_int_equal(load(&s, &m, &err), CHURON_CORRUPT);
        assert_non_null(strstr(err.message, "layer_norm_rms_epsilon"));
        str_free(&s);
    }
}

/* Random changes anywhere in the metadata: an error or a model, never a crash (with sanitizers: nor worse).
 */
static void test_random_damage(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 400; round++) {
        str s = {0};
        tiny_bytes(&s, round % 2, 1);
        for (int i = 0; i < 1 + round % 3; i++) {
            seed = seed * 1664525u + 1013904223u;
            s.data[(seed >> 8) % 6500] = (char)(seed >> 3);
        }
        lm_model *m;
        error err;
        status st = load(&s, &m, &err);
        assert_true(st == CHURON_OK || err.message[0] != '\0');
        lm_model_free(m);
        str_free(&s);
    }
}

/* ---- rotary embedding ------------------------------------------------------------------------------- */

static lm_model rope_model(rope_scaling scaling, float factor) {
    lm_model m = {0};
    m.config = (lm_config){.n_rot = 64,
                           .head_dim_k = 64,
                           .rope_base = 10000.0f,
                           .scaling = scaling,
                           .rope_factor = factor,
                           .rope_original_context = 4096,
                           .yarn_attn_factor = 1.0f,
                           .yarn_beta_fast = 32.0f,
                           .yarn_beta_slow = 1.0f,
                           .yarn_ext_factor = 1.0f};
    return m;
}

static void test_rope_plain_and_linear(void **state) {
    (void)state;
    for (int linear = 0; linear < 2; linear++) {
        lm_model m = rope_model(linear ? ROPE_LINEAR : ROPE_NONE, linear ? 4.0f : 1.0f);
        rope_table t;
        error err;
        float cs[64];
        assert_int_equal(rope_table_create(&t, &m, &err), CHURON_OK);
        rope_angles(&t, 100000, false, cs);
        for (size_t i = 0; i < 32; i++) {
            double angle = 100000.0 * pow(10000.0, -2.0 * (double)i / 64.0) / (linear ? 4.0 : 1.0);
            assert_true(fabs(cs[2 * i] - cos(angle)) < 1e-6 && fabs(cs[2 * i + 1] - sin(angle)) < 1e-6);
        }
        rope_table_free(&t);
    }
}

/* YaRN's ends: the fastest pair is left alone, the slowest is interpolated, both scaled by 0.1 ln s + 1. */
static void test_rope_yarn(void **state) {
    (void)state;
    lm_model m = rope_model(ROPE_YARN, 8.0f);
    rope_table t;
    error err;
    assert_int_equal(rope_table_create(&t, &m, &err), CHURON_OK);
    assert_true(fabs(t.magnitude - (0.1 * log(8.0) + 1.0)) < 1e-12);
    assert_true(fabs(t.frequency[0] - 1.0) < 1e-12);
    double slowest = pow(10000.0, -62.0 / 64.0);
    assert_true(fabs(t.frequency[31] / (slowest / 8.0) - 1.0) < 1e-9);
    for (size_t i = 1; i < 32; i++) assert_true(t.frequency[i] < t.frequency[i - 1]);
    rope_table_free(&t);
}

static void test_rope_divisors(void **state) {
    (void)state;
    lm_model m = rope_model(ROPE_LLAMA3, 1.0f);
    float divisors[32];
    for (size_t i = 0; i < 32; i++) divisors[i] = 1.0f + (float)i;
    m.rope_factors = divisors;
    rope_table t;
    error err;
    assert_int_equal(rope_table_create(&t, &m, &err), CHURON_OK);
    for (size_t i = 0; i < 32; i++) {
        double expected = pow(10000.0, -2.0 * (double)i / 64.0) / (1.0 + (double)i);
        assert_true(fabs(t.frequency[i] / expected - 1.0) < 1e-12);
    }
    rope_table_free(&t);
}

static void test_layers_of_variations(void **state) {
    (void)state;
    lm_config c = {.window = 512, .window_pattern = 6, .no_rope_every = 4};
    for (uint32_t i = 0; i < 24; i++) {
        assert_int_equal(lm_layer_has_window(&c, i), i % 6 != 5);
        assert_int_equal(lm_layer_has_rope(&c, i), i % 4 != 3);
    }
    c.window_pattern = 1;
    assert_true(lm_layer_has_window(&c, 0));
    c.window = 0;
    assert_false(lm_layer_has_window(&c, 0));
}

static int begin(void **state) {
    (void)state;
    error err;
    strcpy(path, "/tmp/churon-model-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    return pool_create(&workers, 2, &err) == CHURON_OK && kernels_select(&table, &err) == CHURON_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    pool_free(workers);
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contradictions_are_refused_by_name),
        cmocka_unit_test(test_bad_epsilon),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_rope_plain_and_linear),
        cmocka_unit_test(test_rope_yarn),
        cmocka_unit_test(test_rope_divisors),
        cmocka_unit_test(test_layers_of_variations),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
