/* test_tokenizer.c: what a description may say, special tokens, ids to text and back, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "vocab_build.h"

#include <math.h>

static vocab v; /* large */

static tokenizer *make(void) {
    error err;
    tokenizer *t;
    if (tokenizer_create(&t, &v.spec, &err) != CHURON_OK) fail_msg("%s", err.message);
    return t;
}

static void refused(status expected, const char *part) {
    error err;
    tokenizer *t = (tokenizer *)1;
    status st = tokenizer_create(&t, &v.spec, &err);
    if (st != expected) fail_msg("status %s", churon_status_name(st));
    assert_null(t);
    if (!strstr(err.message, part)) fail_msg("expected \"%s\" in: %s", part, err.message);
}

static void encode_as(const tokenizer *t, const char *text, size_t len, tokenize_options o, token_list *out) {
    error err;
    out->len = 0;
    if (tokenizer_encode(t, text, len, o, out, &err) != CHURON_OK) fail_msg("%s", err.message);
}

/* Pieces joined by '|'. */
static void check_pieces(const tokenizer *t, const char *text, tokenize_options o, const char *expected) {
    token_list ids = {0};
    str got = {0};
    encode_as(t, text, strlen(text), o, &ids);
    for (size_t i = 0; i < ids.len; i++) {
        token_text p = tokenizer_piece(t, ids.ids[i]);
        if (i) str_put(&got, '|');
        str_add(&got, p.data, p.len);
    }
    assert_string_equal(str_cstr(&got), expected);
    token_list_free(&ids);
    str_free(&got);
}

static const tokenize_options plain = {0};
static const tokenize_options parse = {.parse_special = true};
static const tokenize_options both = {.add_special = true, .parse_special = true};

/* ---- descriptions ----------------------------------------------------------------------------------- */

static void test_refuses_wrong_descriptions(void **state) {
    (void)state;
    vocab_bytes(&v, "smollm");
    v.spec.model = "bert";
    v.spec.model_len = 4;
    refused(CHURON_UNSUPPORTED, "expected gpt2 or llama, got \"bert\"");
    vocab_bytes(&v, "no-such-rule");
    refused(CHURON_UNSUPPORTED, "\"no-such-rule\": expected one of smollm, gpt-2,");
    vocab_bytes(&v, "smollm");
    v.spec.n_tokens = 0;
    refused(CHURON_CORRUPT, "tokens: expected 1 to");
    vocab_bytes(&v, "smollm");
    v.spec.eos = 9999;
    refused(CHURON_CORRUPT, "eos id: expected below 263 tokens, got 9999");
    vocab_bytes(&v, "smollm");
    v.spec.pad = -2;
    refused(CHURON_CORRUPT, "pad id");
    vocab_bytes(&v, "smollm");
    v.spec.eog = (const int32_t[]){0, 263};
    v.spec.n_eog = 2;
    refused(CHURON_CORRUPT, "end-of-generation id: expected below 263 tokens, got 263");
    vocab_bytes(&v, "smollm");
    v.spec.add_bos = true;
    refused(CHURON_CORRUPT, "expected a bos token, got none");
    vocab_bytes(&v, "smollm");
    v.spec.add_eos = true;
    refused(CHURON_CORRUPT, "expected an eos token, got none");
    vocab_bytes(&v, "smollm");
    v.types[7] = 9;
    refused(CHURON_CORRUPT, "token 7: type: expected 1 to 6, got 9");
    vocab_bytes(&v, "smollm");
    (void)vocab_add(&v, "hello", TOKEN_NORMAL, 0);
    refused(CHURON_CORRUPT, "token 263: expected a new text, got \"hello\" again (token 259)");
    vocab_bytes(&v, "smollm");
    v.tokens['A'] = (token_text){"other", 5};
    refused(CHURON_CORRUPT, "printable ASCII character, got none for \"A\"");
}

static void test_refuses_wrong_merges(void **state) {
    (void)state;
    static const struct {
        const char *merge, *says;
    } wrong[] = {
        {"he", "merge 7: expected two tokens and a space"},
        {"he ", "merge 7: expected two tokens and a space"},
        {" ", "merge 7: expected two tokens and a space"},
        {"", "merge 7: expected two tokens and a space"},
        {"he llx", "merge 7 \"he llx\": expected a token \"llx\", got none"},
        {"hex ll", "expected a token \"hex\", got none"},
        {"o o", "merge 7 \"o o\": expected a token of the two together, got none"},
        {"he ll", "merge 7: expected a new pair, got \"he ll\" again"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vocab_bytes(&v, "smollm");
        v.merges[v.spec.n_merges++] = (token_text){wrong[i].merge, strlen(wrong[i].merge)};
        refused(CHURON_CORRUPT, wrong[i].says);
    }
    vocab_bytes(&v, "smollm");
    v.types[259] = TOKEN_CONTROL; /* plain text would become one */
    refused(CHURON_CORRUPT, "merge 3 \"hell o\": expected ordinary tokens, got a control token");
    vocab_bytes(&v, "smollm");
    v.spec.n_merges = 0;
    refused(CHURON_CORRUPT, "merges: expected 1 to");
}

static void test_refuses_wrong_scores(void **state) {
    (void)state;
    vocab_scored(&v);
    v.spec.scores = NULL;
    refused(CHURON_CORRUPT, "scores: expected one for each token");
    vocab_scored(&v);
    v.scores[260] = NAN;
    refused(CHURON_CORRUPT, "score 260: expected a number, got NaN");
    vocab_scored(&v);
    v.tokens[3 + 10] = (token_text){"<0xZZ>", 6};
    refused(CHURON_CORRUPT, "token 13: expected a byte like <0x0A>, got \"<0xZZ>\"");
    vocab_scored(&v);
    v.types[3 + 256 + 6] = TOKEN_UNUSED;
    refused(CHURON_CORRUPT, "expected one for the space \"\u2581\", got none");
    vocab_scored(&v);
    v.types[3 + 10] = TOKEN_UNUSED;
    v.spec.unk = -1;
    refused(CHURON_CORRUPT, "expected one for byte <0x0A> or an unknown token");
}

static void test_tolerates_what_does_no_harm(void **state) {
    (void)state;
    vocab_bytes(&v, "smollm");
    v.tokens[0xc0] = v.tokens[4] =
        (token_text){"", 0}; /* real vocabularies lack bytes, and pad with empty texts */
    v.types['z'] = 0;
    tokenizer *t = make();
    check_pieces(t, "a\x04z\xc0", plain, "a|z");
    assert_int_equal(tokenizer_find(t, "", 0), -1);
    tokenizer_free(t);
}

static void test_accessors(void **state) {
    (void)state;
    vocab_bytes(&v, "qwen2");
    v.spec.eos = vocab_add(&v, "<|end|>", TOKEN_CONTROL, 0);
    v.spec.eog = (const int32_t[]){5};
    v.spec.n_eog = 1;
    v.spec.bos = 3;
    tokenizer *t = make();
    assert_int_equal(tokenizer_n_tokens(t), 264);
    assert_int_equal(tokenizer_bos(t), 3);
    assert_int_equal(tokenizer_eos(t), 263);
    assert_false(tokenizer_adds_bos(t));
    assert_string_equal(tokenizer_pre(t), "qwen2");
    assert_string_equal(tokenizer_model(t), "gpt2");
    assert_true(tokenizer_is_eog(t, 263) && tokenizer_is_eog(t, 5));
    assert_false(tokenizer_is_eog(t, 6) || tokenizer_is_eog(t, -1) || tokenizer_is_eog(t, 264));
    assert_true(tokenizer_is_control(t, 263));
    assert_false(tokenizer_is_control(t, 5) || tokenizer_is_control(t, 264));
    assert_int_equal(tokenizer_find(t, "\u0120hello", 7), 260);
    assert_int_equal(tokenizer_find(t, "\u0120hell", 6), -1);
    token_text bytes = tokenizer_bytes(t, 260), piece = tokenizer_piece(t, 260);
    assert_int_equal(bytes.len, 6);
    assert_memory_equal(bytes.data, " hello", 6);
    assert_int_equal(piece.len, 7);
    assert_null(tokenizer_bytes(t, 264).data);
    assert_null(tokenizer_piece(t, -1).data);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

/* ---- encoding --------------------------------------------------------------------------------------- */

static void test_merges(void **state) {
    (void)state;
    vocab_bytes(&v, "gpt-2");
    tokenizer *t = make();
    check_pieces(t, "", plain, "");
    check_pieces(t, "hello", plain, "hello");
    check_pieces(t, "hello hello hellx", plain, "hello|\u0120hello|\u0120|hell|x");
    check_pieces(t, "aaaaaaa", plain, "aaaa|aa|a");
    check_pieces(t, "he llo", plain, "he|\u0120|ll|o");
    tokenizer_free(t);
}

static void test_whole_pieces_need_no_merges(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        vocab_bytes(&v, i ? "llama-bpe" : "dbrx");
        (void)vocab_add(&v, "world", TOKEN_NORMAL, 0);
        (void)vocab_add(&v, "secret", TOKEN_CONTROL, 0);
        tokenizer *t = make();
        check_pieces(t, "world", plain, i ? "world" : "w|o|r|l|d");
        check_pieces(t, "secret", plain, "s|e|c|r|e|t"); /* no control token out of plain text */
        tokenizer_free(t);
    }
    vocab_bytes(&v, "dbrx");
    (void)vocab_add(&v, "world", TOKEN_NORMAL, 0);
    v.spec.ignore_merges = true;
    tokenizer *t = make();
    check_pieces(t, "world", plain, "world");
    tokenizer_free(t);
}

static void test_special_tokens(void **state) {
    (void)state;
    vocab_bytes(&v, "gpt-2");
    v.spec.bos = vocab_add(&v, "<s>", TOKEN_CONTROL, 0);
    v.spec.eos = vocab_add(&v, "<s>>", TOKEN_CONTROL, 0);
    (void)vocab_add(&v, "<s><s>!", TOKEN_CONTROL, 0);
    (void)vocab_add(&v, "[x]", TOKEN_USER_DEFINED, 0);
    (void)vocab_add(&v, "[x][", TOKEN_CONTROL, 0);
    (void)vocab_add(&v, "unk", TOKEN_UNKNOWN, 0);
    (void)vocab_add(&v, "not", TOKEN_UNUSED, 0);
    v.spec.add_bos = v.spec.add_eos = true;
    tokenizer *t = make();
    check_pieces(t, "a<s>b", parse, "a|<s>|b");
    check_pieces(t, "<s>>", parse, "<s>>");              /* the longest */
    check_pieces(t, "<s><s><s>!", parse, "<s>|<s><s>!"); /* the leftmost goes first */
    check_pieces(t, "<s><s>", parse, "<s>|<s>");
    check_pieces(t, "<s", parse, "<|s");
    check_pieces(t, "unknot", parse, "unk|n|o|t");
    check_pieces(t, "<s>unk", plain, "<|s|>|u|n|k");
    check_pieces(t, "[x][x]", plain, "[x]|[x]"); /* user-defined: always */
    check_pieces(t, "[x][x]", parse, "[x][|x|]");
    check_pieces(t, "a", both, "<s>|a|<s>>");
    check_pieces(t, "", both, "<s>|<s>>");
    check_pieces(t, "<s>a", both, "<s>|a|<s>>"); /* never twice at the beginning */
    check_pieces(t, "<s><s>a", both, "<s>|<s>|a|<s>>");
    check_pieces(t, "a<s>", both, "<s>|a|<s>|<s>>");
    tokenizer_free(t);
}

static void test_by_score(void **state) {
    (void)state;
    vocab_scored(&v);
    tokenizer *t = make();
    assert_string_equal(tokenizer_model(t), "llama");
    check_pieces(t, "hello", plain, "\u2581hello");
    check_pieces(t, "hello", both, "<s>|\u2581hello");
    check_pieces(t, "", both, "<s>");
    check_pieces(t, "xhello hel", plain, "\u2581|x|h|el|lo|\u2581hel");
    check_pieces(t, "  x", plain, "\u2581\u2581|\u2581|x");
    check_pieces(t, "x\n", plain, "\u2581|x|<0x0A>");
    check_pieces(t, "x\u2581hello", plain, "\u2581|x|\u2581hello"); /* the mark itself is a space */
    check_pieces(t, "hello<s>hello", parse, "\u2581hello|<s>|\u2581hello");
    check_pieces(t, "<s>", plain, "\u2581|<0x3C>|<0x73>|<0x3E>");
    check_pieces(t, "\u00e9", plain, "\u2581|<0xC3>|<0xA9>");
    tokenizer_free(t);
    vocab_scored(&v);
    v.spec.add_space_prefix = false;
    for (size_t i = 0; i < 256; i++) v.types[3 + i] = TOKEN_UNUSED;
    (void)vocab_add(&v, "lo\u2581h", TOKEN_NORMAL, 9); /* reaches over a space */
    t = make();
    check_pieces(t, "??lo h", plain, "<unk>|lo\u2581h"); /* one <unk> for a run */
    tokenizer_free(t);
}

/* The best merge first, whatever the cut: "lo" + U+2581 "h" is a token of the highest score, so it wins. */
static void test_by_score_across_spaces(void **state) {
    (void)state;
    vocab_scored(&v);
    v.spec.add_space_prefix = false;
    (void)vocab_add(&v, "o\u2581", TOKEN_NORMAL, 9);
    tokenizer *t = make();
    check_pieces(t, "xo hello", plain, "x|o\u2581|h|el|lo");
    tokenizer_free(t);
}

static void test_any_bytes_come_back(void **state) {
    (void)state;
    static const char *const rules[] = {"smollm",      "gpt-2",          "llama-bpe", "deepseek-llm",
                                        "falcon",      "default",        "tekken",    "gpt-4o",
                                        "deepseek-v3", "deepseek-coder", NULL};
    uint64_t seed = 1;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        if (rules[r]) {
            vocab_bytes(&v, rules[r]);
        } else {
            vocab_scored(&v);
        }
        tokenizer *t = make();
        token_list ids = {0};
        str back = {0};
        for (size_t n = 0; n < 400; n++) {
            char text[400];
            for (size_t i = 0; i < n; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                text[i] = n % 3 ? (char)(seed >> 56) : " ah\xe2\x96\x81\xf0\n"[seed >> 61];
            }
            encode_as(t, text, n, plain, &ids);
            str_clear(&back);
            error err;
            assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, false, &back, &err), CHURON_OK);
            /* The mark itself comes back as the space that it stands for. */
            if (rules[r] || !memchr(text, '\xe2', n)) {
                assert_int_equal(back.len, n);
                if (n) assert_memory_equal(back.data, text, n);
            }
        }
        token_list_free(&ids);
        str_free(&back);
        tokenizer_free(t);
    }
}

/* Long text goes through the cache of pieces, short text does not: the ids must not depend on it. */
static void test_cache_changes_nothing(void **state) {
    (void)state;
    vocab_bytes(&v, "llama-bpe");
    tokenizer *t = make();
    str text = {0};
    token_list one = {0}, all = {0};
    uint64_t seed = 7;
    error err;
    for (size_t i = 0; i < 4000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        for (size_t n = seed >> 59; n > 0; n--) str_put(&text, "aehlo"[(seed >> n) % 5]);
        str_put(&text, "\n 1"[(seed >> 40) % 3]);
    }
    encode_as(t, text.data, text.len, plain, &all);
    splitter s = splitter_begin(split_rule_find("llama-bpe", 9), text.data, text.len);
    const char *end = text.data + text.len;
    for (const char *p = text.data; p < end;) {
        const char *q = splitter_next(&s, p);
        assert_int_equal(tokenizer_encode(t, p, (size_t)(q - p), plain, &one, &err), CHURON_OK);
        p = q;
    }
    assert_int_equal(one.len, all.len);
    assert_memory_equal(one.ids, all.ids, one.len * sizeof *one.ids);
    token_list_free(&one);
    token_list_free(&all);
    str_free(&text);
    tokenizer_free(t);
}

/* ---- decoding --------------------------------------------------------------------------------------- */

static void test_decode(void **state) {
    (void)state;
    vocab_bytes(&v, "gpt-2");
    int32_t control = vocab_add(&v, "<c>", TOKEN_CONTROL, 0);
    int32_t user = vocab_add(&v, "\u0120u", TOKEN_USER_DEFINED, 0);
    int32_t raw = vocab_add(&v, "\u2122", TOKEN_NORMAL, 0); /* outside the byte alphabet: itself */
    tokenizer *t = make();
    error err;
    str out = {0};
    const int32_t ids[] = {260, control, user, raw};
    assert_int_equal(tokenizer_decode(t, ids, 4, false, &out, &err), CHURON_OK);
    assert_string_equal(str_cstr(&out), " hello\u0120u\u2122");
    str_clear(&out);
    assert_int_equal(tokenizer_decode(t, ids, 4, true, &out, &err), CHURON_OK);
    assert_string_equal(str_cstr(&out), " hello<c>\u0120u\u2122");
    str_clear(&out);
    const int32_t wrong[] = {260, 266};
    assert_int_equal(tokenizer_decode(t, wrong, 2, true, &out, &err), CHURON_INVALID);
    assert_string_equal(err.message, "ids[1]: expected 0 to 265, got 266");
    assert_int_equal(out.len, 0);
    str_free(&out);
    tokenizer_free(t);
}

static void test_decode_drops_the_space_in_front(void **state) {
    (void)state;
    vocab_scored(&v);
    tokenizer *t = make();
    int32_t hello = tokenizer_find(t, "\u2581hello", 8);
    const int32_t ids[] = {1, hello, hello};
    error err;
    str out = {0};
    assert_int_equal(tokenizer_decode(t, ids, 3, false, &out, &err), CHURON_OK);
    assert_string_equal(str_cstr(&out), "hello hello");
    str_clear(&out);
    assert_int_equal(tokenizer_decode(t, ids, 3, true, &out, &err), CHURON_OK);
    assert_string_equal(str_cstr(&out), "<s> hello hello");
    str_clear(&out);
    detok_stream d;
    detok_begin(&d);
    for (size_t i = 0; i < 3; i++) detok_push(t, &d, ids[i], false, &out);
    detok_end(&d, &out);
    assert_string_equal(str_cstr(&out), "hello hello");
    str_free(&out);
    tokenizer_free(t);
}

static void push_bytes(const tokenizer *t, const char *bytes, str *steps) {
    detok_stream d;
    detok_begin(&d);
    for (; *bytes; bytes++) {
        detok_push(t, &d, (unsigned char)*bytes, false, steps);
        str_put(steps, '|');
    }
    detok_end(&d, steps);
}

static void test_stream_gives_whole_characters(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *steps;
    } cases[] = {
        {"ab", "a|b|"},
        {"\xed\x95\x9c", "||한|"},
        {"\xf0\x9f\x91\x8d!", "|||\U0001f44d|!|"},
        {"\xed\x95", "||\ufffd"},
        {"\xed\x95x", "||\ufffdx|"},
        {"\xff\x80", "\ufffd|\ufffd|"},
        {"\xe0\x80", "|\ufffd\ufffd|"},
        {"\xed\xa0\x80", "|\ufffd\ufffd|\ufffd|"},
        {"\xf4\x90", "|\ufffd\ufffd|"},
        {"\xf0\x9f\xed\x95\x9c", "||\ufffd||한|"},
        {"\xc3\xc3\xa9", "|\ufffd|\u00e9|"},
        {"\xf0\x9f\x91", "|||\ufffd"},
    };
    vocab_bytes(&v, "gpt-2");
    tokenizer *t = make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str steps = {0};
        push_bytes(t, cases[i].bytes, &steps);
        assert_string_equal(str_cstr(&steps), cases[i].steps);
        str_free(&steps);
    }
    tokenizer_free(t);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

static void test_failing_allocations(void **state) {
    (void)state;
    for (int model = 0; model < 2; model++) {
        if (model) {
            vocab_scored(&v);
        } else {
            vocab_bytes(&v, "qwen2");
            (void)vocab_add(&v, "<c>", TOKEN_CONTROL, 0);
        }
        error err;
        tokenizer *t = NULL;
        status st = CHURON_NO_MEMORY;
        for (int64_t n = 1; st == CHURON_NO_MEMORY; n++) {
            mem_fail_at(n);
            st = tokenizer_create(&t, &v.spec, &err);
            mem_fail_at(0);
            assert_true((st == CHURON_OK) == (t != NULL));
        }
        assert_int_equal(st, CHURON_OK);
        str text = {0};
        for (int i = 0; i < 300; i++) str_cat(&text, "hello e\u0301 <c> aaa ");
        for (int i = 0; i < 9000; i++) str_put(&text, 'h');
        token_list out = {0};
        assert_int_equal(token_list_add(&out, 42, &err), CHURON_OK);
        st = CHURON_NO_MEMORY;
        for (int64_t n = 1; st == CHURON_NO_MEMORY; n++) {
            mem_fail_at(n);
            st = tokenizer_encode(t, text.data, text.len, parse, &out, &err);
            mem_fail_at(0);
            if (st != CHURON_OK) assert_int_equal(out.len, 1); /* as it was */
        }
        assert_int_equal(st, CHURON_OK);
        str back = {0};
        assert_int_equal(tokenizer_decode(t, out.ids + 1, out.len - 1, true, &back, &err), CHURON_OK);
        str_free(&back);
        mem_fail_at(1);
        assert_int_equal(tokenizer_decode(t, out.ids + 1, out.len - 1, true, &back, &err), CHURON_NO_MEMORY);
        mem_fail_at(0);
        str_free(&back);
        str_free(&text);
        token_list_free(&out);
        tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_wrong_descriptions),
        cmocka_unit_test(test_refuses_wrong_merges),
        cmocka_unit_test(test_refuses_wrong_scores),
        cmocka_unit_test(test_tolerates_what_does_no_harm),
        cmocka_unit_test(test_accessors),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_whole_pieces_need_no_merges),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_by_score),
        cmocka_unit_test(test_by_score_across_spaces),
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_cache_changes_nothing),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_drops_the_space_in_front),
        cmocka_unit_test(test_stream_gives_whole_characters),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
