/* test_split.c: where each rule cuts; composition; character classes. The comparison with the reference
 * library over many texts is in tests/oracle/test_tokenizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/split.h"
#include "text/unicode.h"

#include <string.h>

static const char *const names[] = {
    "smollm",      "gpt-2",     "llama-bpe", "qwen2",          "deepseek-llm",    "falcon",
    "refact",      "starcoder", "olmo",      "default",        "command-r",       "mpt",
    "dbrx",        "smaug-bpe", "glm4",      "chatglm-bpe",    "qwen35",          "tekken",
    "deepseek-v3", "gpt-4o",    "llama4",    "deepseek-coder", "deepseek-r1-qwen"};

static const split_rule *rule(const char *name) {
    const split_rule *r = split_rule_find(name, strlen(name));
    if (!r) fail_msg("no rule %s", name);
    return r;
}

/* The pieces joined by '|'. */
static void check(const char *name, const char *text, const char *expected) {
    str got = {0};
    size_t n = strlen(text);
    splitter s = splitter_begin(rule(name), text, n);
    for (const char *p = text; p < text + n;) {
        const char *q = splitter_next(&s, p);
        if (p > text) str_put(&got, '|');
        str_add(&got, p, (size_t)(q - p));
        p = q;
    }
    if (strcmp(str_cstr(&got), expected) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", name, str_cstr(&got), expected);
    str_free(&got);
}

static void test_rules(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *pieces;
    } cases[] = {
        {"gpt-2", "Hello  world's 1234 'S\n\nx", "Hello| | world|'s| 1234| '|S|\n|\n|x"},
        {"gpt-2", "a\u00a0b \u3000", "a|\u00a0|b| \u3000"},
        {"smollm", "in  2024 x²", "in|  |2|0|2|4| x|²"},
        {"smollm", "a 1", "a| |1"},
        {"llama-bpe", "Hello  world'S 12345 .\n\n  x", "Hello| | world|'S| |123|45| .\n\n| | x"},
        {"llama-bpe", "'ſ\tx (y", "'ſ|\tx| (|y"},
        {"llama-bpe", " \n \n y", " \n \n| y"},
        {"qwen2", "12 e\u0301", "1|2| e|\u0301"},
        {"qwen35", "12 e\u0301x", "1|2| e\u0301x"},
        {"deepseek-llm", " abc\u00e9 12\n\n!? 中文", " abc|\u00e9| |1|2|\n|\n|!?| |中文"},
        {"deepseek-coder", "x 12!\n", "x| |1|2|!|\n"},
        {"deepseek-v3", "abc_def 12345 中文x", "abc|_def| |123|45| |中文|x"},
        {"falcon", "a,b 12345 don't", "a|,|b| |123|45| don|'|t"},
        {"default", "a,b 12345", "a|,|b| |123|45"},
        {"tekken", "HTMLParser aB 12 x/", "HTMLParser| a|B| |1|2| x|/"},
        {"gpt-4o", "HTMLParser's 1234 ABC", "HTMLParser's| |123|4| ABC"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].name, cases[i].text, cases[i].pieces);
}

static void test_names(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(rule(names[i])->name, names[i]);
        assert_non_null(strstr(split_rule_names(), names[i]));
    }
    assert_string_equal(rule("gpt2")->name, "gpt-2");
    assert_string_equal(rule("llama3")->name, "llama-bpe");
    assert_null(split_rule_find("llama", 5));
    assert_null(split_rule_find("", 0));
}

/* Every rule takes any bytes, gives pieces that are not empty, and reads nothing behind the end. */
static void test_any_bytes(void **state) {
    (void)state;
    uint64_t seed = 3;
    static const char *const atoms[] = {"a", "Z",  "1",      " ",      "\n", "\r",   "'",        "s",
                                        "ſ", "한", "中",     "\u0301", "²",  "\xff", "\xe2\x96", "\xf0\x9f",
                                        "!", "_",  "\u3000", "\u2019", "Ⅳ",  "ǅ",    "\xb2",     "/"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t round = 0; round < 500; round++) {
            str text = {0};
            for (size_t n = round % 20; n > 0; n--) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                str_cat(&text, atoms[(seed >> 33) % (sizeof atoms / sizeof *atoms)]);
            }
            char *exact = mem_alloc(text.len); /* ends where the text ends: for the sanitizers */
            if (text.len) memcpy(exact, text.data, text.len);
            splitter s = splitter_begin(rule(names[i]), exact, text.len);
            for (const char *p = exact; p < exact + text.len;) {
                const char *q = splitter_next(&s, p);
                assert_true(q > p && q <= exact + text.len);
                p = q;
            }
            mem_free(exact);
            str_free(&text);
        }
    }
}

static void check_nfc(const char *text, const char *expected) {
    str out = {0};
    error err;
    assert_int_equal(unicode_nfc(text, strlen(text), &out, &err), CHURON_OK);
    assert_string_equal(str_cstr(&out), expected);
    if (unicode_is_plain(text, strlen(text))) assert_string_equal(text, expected);
    str_free(&out);
}

static void test_composition(void **state) {
    (void)state;
    check_nfc("plain é 한 中", "plain é 한 中");
    check_nfc("e\u0301", "\u00e9");
    check_nfc("xe\u0301y e\u0301", "x\u00e9y \u00e9");
    check_nfc("s\u0307\u0323", "\u1e69"); /* ordered, then both composed */
    check_nfc("\u1112\u1161\u11ab", "한");
    check_nfc("\ud558\u11ab", "한");
    check_nfc("\uac00\u11a7", "\uac00\u11a7");
    check_nfc("\u212b\u2126", "\u00c5\u03a9");
    check_nfc("\u0301a", "\u0301a");
    check_nfc("\xff"
              "e\u0301\xe2\x82",
              "\xff\u00e9\xe2\x82");
    check_nfc("\xff\u0301", "\xff\u0301");
}

/* Half a million marks in the worst order: sorting them by exchange would take minutes. */
static void test_long_runs_of_marks(void **state) {
    (void)state;
    enum { N = 250000 };
    str text = {0}, out = {0};
    str_put(&text, 'e');
    for (size_t i = 0; i < N; i++) str_cat(&text, "\u0301\u0323");
    error err;
    assert_int_equal(unicode_nfc(text.data, text.len, &out, &err), CHURON_OK);
    assert_int_equal(out.len, text.len); /* e and one dot below, three bytes, became one character of three */
    assert_memory_equal(out.data, "\u1eb9\u0323\u0323", 7);
    str_free(&text);
    str_free(&out);
}

static void test_classes(void **state) {
    (void)state;
    static const struct {
        uint32_t cp;
        unsigned class;
    } cases[] = {
        {0x85, UC_SPACE},
        {0xa0, UC_SPACE},
        {0x180e, 0},
        {0x200b, 0},
        {0xb2, UC_NUMBER | UC_DIGIT},
        {0x301, UC_MARK | UC_UPPER | UC_LOWER},
        {0x1c5, UC_LETTER | UC_UPPER},
        {0xaa, UC_LETTER | UC_UPPER | UC_LOWER},
        {0xff, UC_LETTER | UC_LOWER},
        {0x20ac, UC_SYMBOL},
        {0x2019, UC_PUNCT},
        {0x1c89, UC_LETTER | UC_UPPER}, /* of Unicode 16 */
        {0x2ebf0, UC_LETTER | UC_UPPER | UC_LOWER},
        {0x10ffff, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(unicode_class(cases[i].cp), cases[i].class);
    }
    assert_true(unicode_is_old_punctuation('+') && unicode_is_old_punctuation(0x166d));
    assert_false(unicode_is_old_punctuation('a') || unicode_is_old_punctuation(0x61d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_composition),
        cmocka_unit_test(test_classes),   cmocka_unit_test(test_long_runs_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
