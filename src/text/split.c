/* split.c: see split.h. The stages are in split_stages.c. */
#include "text/split.h"

#include "text/split_stages.h"

#include <string.h>

/* Rules that differ in nothing share a row through aliases. NFC and ignore_merges are what the published
 * tokenizer.json has; a GGUF file does not tell. */
static const split_rule rules[] = {
    {"smollm", false, false, false, 1, {split_digits_gpt2}},
    {"gpt-2", false, false, false, 1, {split_gpt2}},
    {"llama-bpe", false, true, true, 1, {split_cl100k_3}},
    {"qwen2", true, false, false, 1, {split_cl100k_1}},
    {"deepseek-llm",
     false,
     false,
     false,
     6,
     {split_each_newline, split_space_alphabet, split_space_ascii, split_trailing_space, split_cjk_korean,
      split_each_digit}},
    {"falcon",
     false,
     false,
     false,
     4,
     {split_old_punctuation, split_gpt2, split_mapped_digits, split_digit_triples}},
    {"refact", false, false, false, 1, {split_digits_gpt2}},
    {"starcoder", false, false, false, 1, {split_digits_gpt2}},
    {"olmo", true, false, false, 1, {split_gpt2}},
    {"default", false, false, false, 4, {split_punctuation, split_gpt2, split_numbers, split_digit_triples}},
    {"command-r", true, false, false, 1, {split_digits_gpt2}},
    {"mpt", true, false, false, 1, {split_gpt2}},
    {"dbrx", false, false, false, 1, {split_cl100k_3}},
    {"smaug-bpe", false, false, false, 1, {split_cl100k_3}},
    {"chatglm-bpe", false, false, false, 1, {split_cl100k_3}},
    {"glm4", false, true, false, 1, {split_cl100k_3}},
    {"deepseek-r1-qwen", false, false, false, 1, {split_cl100k_1}},
    {"qwen35", false, false, false, 1, {split_qwen35}},
    {"deepseek-coder",
     false,
     false,
     false,
     5,
     {split_each_newline, split_space_letters, split_space_punctuation, split_cjk_korean, split_each_digit}},
    {"deepseek-v3", false, false, false, 3, {split_number_triples, split_cjk_kana, split_deepseek3}},
    {"tekken", false, true, true, 1, {split_tekken}},
    {"gpt-4o", false, false, false, 1, {split_o200k}},
    {"llama4", false, false, false, 1, {split_o200k}},
};

static const struct {
    const char *alias, *name;
} aliases[] = {
    {"gpt2", "gpt-2"},         {"phi-2", "gpt-2"},  {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"}, {"gpt-neox", "mpt"}, {"deepseek-r1", "deepseek-v3"},
};

static bool is_name(const char *known, const char *name, size_t len) {
    return strlen(known) == len && memcmp(known, name, len) == 0;
}

const split_rule *split_rule_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (is_name(aliases[i].alias, name, len)) {
            name = aliases[i].name;
            len = strlen(name);
            break;
        }
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (is_name(rules[i].name, name, len)) return &rules[i];
    }
    return NULL;
}

const char *split_rule_names(void) {
    return "smollm, gpt-2, llama-bpe, qwen2, deepseek-llm, falcon, refact, starcoder, olmo, default, "
           "command-r, "
           "mpt, dbrx, smaug-bpe, chatglm-bpe, glm4, deepseek-r1-qwen, qwen35, deepseek-coder, deepseek-v3, "
           "tekken, gpt-4o, llama4";
}

splitter splitter_begin(const split_rule *rule, const char *text, size_t len) {
    splitter s = {.rule = rule};
    s.ends[0] = text + len;
    for (size_t i = 1; i <= SPLIT_MAX_STAGES; i++) s.ends[i] = text;
    return s;
}

const char *splitter_next(splitter *s, const char *p) {
    size_t n = s->rule->n_stages;
    size_t level = n;
    while (s->ends[level] <= p) level--; /* ends[0] > p */
    for (; level < n; level++) s->ends[level + 1] = s->rule->stages[level](p, s->ends[level]);
    return s->ends[n];
}
