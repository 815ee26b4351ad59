/* tokenizer_json.c: tokenizer.json to a text_tokenizer. Every field that would change an id is read or, where
 * it has a value that is not supported, refused by name. */
#include "pipeline/text_tokenizer.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 256 << 20, MAX_ID = 1 << 24 };

typedef struct reader {
    const char *name;
    error *err;
    json_t *root;
    text_tokenizer *out;
    token_text *tokens; /* [n_tokens] by id; texts are the JSON's */
    size_t n_tokens, cap;
    const json_t *added; /* array */
    bool nfc;
} reader;

/* ---- fields ----------------------------------------------------------------------------------------- */

static status fault(const reader *r, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);
static status fault(const reader *r, const char *field, const char *fmt, ...) {
    char what[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return error_set(r->err, CHURON_UNSUPPORTED, "%s: %s: %s", r->name, field, what);
}

/* The text of a field, or "" for null and what is no text. */
static const char *text_of(const json_t *map, const char *key) {
    const char *s = json_string_value(json_object_get(map, key));
    return s ? s : "";
}

static bool flag_of(const json_t *map, const char *key, bool otherwise) {
    const json_t *v = json_object_get(map, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static bool is_nothing(const json_t *v) {
    return !v || json_is_null(v);
}

static status count_of(const reader *r, const json_t *map, const char *field, const char *key,
                       size_t otherwise, size_t *out) {
    const json_t *v = json_object_get(map, key);
    *out = otherwise;
    if (is_nothing(v)) return CHURON_OK;
    const json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 0 || n > INT32_MAX) return fault(r, field, "expected a count as %s", key);
    *out = (size_t)n;
    return CHURON_OK;
}

static status id_of(const reader *r, const json_t *v, const char *field, int32_t *out) {
    const json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < 0 || id >= MAX_ID) return fault(r, field, "expected the id of a token");
    *out = (int32_t)id;
    return CHURON_OK;
}

/* Sets the text of a token; the same text again is fine. */
static status put_token(reader *r, const char *field, int32_t id, const char *text, size_t len) {
    if ((size_t)id >= r->cap) {
        size_t cap = r->cap ? r->cap : 1024;
        while (cap <= (size_t)id) cap *= 2;
        token_text *grown = mem_realloc(r->tokens, cap * sizeof *grown);
        if (!grown) return error_no_memory(r->err, r->name, cap * sizeof *grown);
        memset(grown + r->cap, 0, (cap - r->cap) * sizeof *grown);
        r->tokens = grown;
        r->cap = cap;
    }
    token_text *t = &r->tokens[id];
    if (t->len && (t->len != len || memcmp(t->data, text, len) != 0))
        return fault(r, field, "expected one token with the id %d, got '%.40s' and '%.40s'", (int)id, t->data,
                     text);
    *t = (token_text){text, len};
    if ((size_t)id >= r->n_tokens) r->n_tokens = (size_t)id + 1;
    return CHURON_OK;
}

static int32_t find_token(const reader *r, const char *text) {
    const json_t *id = json_object_get(json_object_get(json_object_get(r->root, "model"), "vocab"), text);
    if (json_is_integer(id)) return (int32_t)json_integer_value(id);
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        const json_t *a = json_array_get(r->added, i);
        if (strcmp(text_of(a, "content"), text) == 0)
            return (int32_t)json_integer_value(json_object_get(a, "id"));
    }
    return -1;
}

static status read_vocab(reader *r, const json_t *model) {
    const json_t *vocab = json_object_get(model, "vocab");
    const char *text;
    json_t *id;
    if (!json_is_object(vocab)) return fault(r, "model.vocab", "expected a map from token to id");
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) {
        int32_t number = -1;
        TRY(id_of(r, id, "model.vocab", &number));
        TRY(put_token(r, "model.vocab", number, text, strlen(text)));
    }
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        const json_t *a = json_array_get(r->added, i), *content = json_object_get(a, "content");
        int32_t number = -1;
        TRY(id_of(r, json_object_get(a, "id"), "added_tokens", &number));
        if (json_string_length(content) == 0)
            return fault(r, "added_tokens", "expected a text for the id %d", (int)number);
        TRY(put_token(r, "added_tokens", number, json_string_value(content), json_string_length(content)));
    }
    return r->n_tokens ? CHURON_OK : fault(r, "model.vocab", "expected tokens, got none");
}

/* ---- WordPiece -------------------------------------------------------------------------------------- */

static status read_bert_normalizer(const reader *r, wordpiece_spec *spec) {
    const json_t *n = json_object_get(r->root, "normalizer");
    if (is_nothing(n)) return CHURON_OK;
    if (strcmp(text_of(n, "type"), "BertNormalizer") != 0)
        return fault(r, "normalizer", "expected BertNormalizer with WordPiece, got '%.40s'",
                     text_of(n, "type"));
    spec->clean_text = flag_of(n, "clean_text", true);
    spec->chinese = flag_of(n, "handle_chinese_chars", true);
    spec->lowercase = flag_of(n, "lowercase", true);
    spec->strip_accents = flag_of(n, "strip_accents", spec->lowercase);
    return CHURON_OK;
}

static status read_bert_added(const reader *r, wordpiece_added *added) {
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        const json_t *a = json_array_get(r->added, i);
        if (flag_of(a, "normalized", false))
            return fault(r, "added_tokens", "expected normalized: false with WordPiece, got true of '%.60s'",
                         text_of(a, "content"));
        added[i] = (wordpiece_added){.text = {json_string_value(json_object_get(a, "content")),
                                              json_string_length(json_object_get(a, "content"))},
                                     .id = (int32_t)json_integer_value(json_object_get(a, "id")),
                                     .lstrip = flag_of(a, "lstrip", false),
                                     .rstrip = flag_of(a, "rstrip", false),
                                     .single_word = flag_of(a, "single_word", false)};
    }
    return CHURON_OK;
}

static status read_wordpiece(reader *r, const json_t *model) {
    const char *pre = text_of(json_object_get(r->root, "pre_tokenizer"), "type");
    wordpiece_spec spec = {.n_added = json_array_size(r->added)};
    if (strcmp(pre, "BertPreTokenizer") != 0)
        return fault(r, "pre_tokenizer", "expected BertPreTokenizer with WordPiece, got '%.40s'", pre);
    TRY(read_bert_normalizer(r, &spec));
    TRY(count_of(r, model, "model", "max_input_chars_per_word", 100, &spec.max_word));
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    spec.prefix = prefix
                      ? (token_text){text_of(model, "continuing_subword_prefix"), json_string_length(prefix)}
                      : (token_text){"##", 2};
    const char *unk = *text_of(model, "unk_token") ? text_of(model, "unk_token") : "[UNK]";
    spec.unk = find_token(r, unk);
    if (spec.unk < 0)
        return fault(r, "model.unk_token", "expected a token of the vocabulary, got '%.60s'", unk);
    wordpiece_added *added = mem_calloc(spec.n_added ? spec.n_added : 1, sizeof *added);
    if (!added) return error_no_memory(r->err, r->name, spec.n_added * sizeof *added);
    status st = read_bert_added(r, added);
    spec.tokens = r->tokens;
    spec.n_tokens = r->n_tokens;
    spec.added = added;
    if (st == CHURON_OK) st = wordpiece_create(&r->out->wordpiece, &spec, r->err);
    mem_free(added);
    return st;
}

/* ---- byte-level BPE --------------------------------------------------------------------------------- */

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                                                                       \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define O200K                                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" CONTRACTION  \
    "?"                                                                                                      \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" CONTRACTION \
    "?"                                                                                                      \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define QWEN35                                                                                               \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES

/* Pre-tokenizers as published: "B" ByteLevel with its own expression, "b" without, "D" single digits, else
 * the expression of an isolated split. */
static const struct {
    const char *stages[3];
    bool nfc, ignore_merges;
    const char *rule;
} RULES[] = {
    {{"B"}, false, false, "gpt-2"},
    {{"B"}, true, false, "olmo"},
    {{"D", "B"}, false, false, "smollm"},
    {{"D", "B"}, true, false, "command-r"},
    {{CL100K("{1,3}"), "b"}, false, true, "llama-bpe"},
    {{CL100K("{1,3}"), "b"}, false, false, "dbrx"},
    {{CL100K(""), "b"}, true, false, "qwen2"},
    {{CL100K(""), "b"}, false, false, "deepseek-r1-qwen"},
    {{O200K, "b"}, false, false, "gpt-4o"},
    {{QWEN35, "b"}, false, false, "qwen35"},
};

static status read_stage(const reader *r, const json_t *pre, const char **out) {
    const char *type = text_of(pre, "type");
    if (strcmp(type, "ByteLevel") == 0) {
        if (flag_of(pre, "add_prefix_space", true))
            return fault(r, "pre_tokenizer.add_prefix_space", "expected false, got true");
        *out = flag_of(pre, "use_regex", true) ? "B" : "b";
        return CHURON_OK;
    }
    if (strcmp(type, "Digits") == 0 && flag_of(pre, "individual_digits", false)) {
        *out = "D";
        return CHURON_OK;
    }
    const char *regex = text_of(json_object_get(pre, "pattern"), "Regex");
    if (strcmp(type, "Split") == 0 && *regex && strcmp(text_of(pre, "behavior"), "Isolated") == 0 &&
        !flag_of(pre, "invert", false)) {
        *out = regex;
        return CHURON_OK;
    }
    return fault(
        r, "pre_tokenizer",
        "expected ByteLevel, Digits with individual_digits, or Split that isolates a Regex; got '%.40s'",
        type);
}

static status find_rule(const reader *r, const json_t *model, const char **out) {
    const json_t *pre = json_object_get(r->root, "pre_tokenizer");
    const bool many = strcmp(text_of(pre, "type"), "Sequence") == 0;
    const json_t *list = many ? json_object_get(pre, "pretokenizers") : NULL;
    const size_t n = many ? json_array_size(list) : 1;
    const char *stages[3] = {0};
    if (n < 1 || n > 3) return fault(r, "pre_tokenizer", "expected 1 to 3 stages, got %zu", n);
    for (size_t i = 0; i < n; i++) TRY(read_stage(r, many ? json_array_get(list, i) : pre, &stages[i]));
    const bool ignore_merges = flag_of(model, "ignore_merges", false);
    for (size_t k = 0; k < sizeof RULES / sizeof *RULES; k++) {
        bool same = RULES[k].nfc == r->nfc && RULES[k].ignore_merges == ignore_merges;
        for (size_t i = 0; i < 3 && same; i++)
            same = (stages[i] == NULL) == (RULES[k].stages[i] == NULL) &&
                   (!stages[i] || strcmp(stages[i], RULES[k].stages[i]) == 0);
        if (!same) continue;
        *out = RULES[k].rule;
        return CHURON_OK;
    }
    return fault(
        r, "pre_tokenizer",
        "expected one of the published ones (GPT-2, SmolLM, Llama 3, Qwen2, o200k), got another, with %s%s",
        r->nfc ? "NFC" : "no normalizer", ignore_merges ? " and ignore_merges" : "");
}

static status read_nfc(reader *r) {
    const json_t *n = json_object_get(r->root, "normalizer");
    const char *type = text_of(n, "type");
    if (is_nothing(n)) return CHURON_OK;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(n, "normalizers");
        if (json_array_size(list) == 0) return CHURON_OK;
        type = json_array_size(list) == 1 ? text_of(json_array_get(list, 0), "type") : "Sequence";
    }
    r->nfc = strcmp(type, "NFC") == 0;
    return r->nfc ? CHURON_OK : fault(r, "normalizer", "expected null or NFC with BPE, got '%.40s'", type);
}

/* Merges are "left right" or ["left", "right"]; the second form is joined into `joined`. */
static status read_merges(const reader *r, const json_t *list, token_text *out, str *joined) {
    size_t i;
    json_t *m;
    json_array_foreach(list, i, m) {
        const json_t *left = json_array_get(m, 0), *right = json_array_get(m, 1);
        if (json_is_string(m)) {
            out[i] = (token_text){json_string_value(m), json_string_length(m)};
        } else if (json_array_size(m) == 2 && json_is_string(left) && json_is_string(right)) {
            const size_t before = joined->len;
            str_add(joined, json_string_value(left), json_string_length(left));
            str_put(joined, ' ');
            str_add(joined, json_string_value(right), json_string_length(right));
            out[i].len = joined->len - before; /* its bytes move until all are there */
        } else {
            return fault(r, "model.merges", "expected two texts at %zu", i);
        }
    }
    TRY(str_check(joined, r->err));
    const char *at = str_cstr(joined);
    json_array_foreach(list, i, m) {
        if (json_is_string(m)) continue;
        out[i].data = at;
        at += out[i].len;
    }
    return CHURON_OK;
}

static status read_types(const reader *r, int32_t *types) {
    for (size_t i = 0; i < r->n_tokens; i++) {
        types[i] = TOKEN_NORMAL;
        if (r->tokens[i].len == 0)
            return fault(r, "model.vocab", "expected ids without gaps, got none of %zu", i);
    }
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        const json_t *a = json_array_get(r->added, i);
        static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
        for (size_t k = 0; k < 3; k++) {
            if (flag_of(a, flags[k], false))
                return fault(r, "added_tokens", "expected %s: false with BPE, got true of '%.60s'", flags[k],
                             text_of(a, "content"));
        }
        if (r->nfc && flag_of(a, "normalized", false))
            return fault(r, "added_tokens", "expected normalized: false with NFC, got true of '%.60s'",
                         text_of(a, "content"));
        types[json_integer_value(json_object_get(a, "id"))] =
            flag_of(a, "special", false) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    }
    return CHURON_OK;
}

static status check_bpe(const reader *r, const json_t *model) {
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return fault(r, "model.dropout", "expected null");
    if (*text_of(model, "continuing_subword_prefix"))
        return fault(r, "model.continuing_subword_prefix", "expected none with BPE");
    if (*text_of(model, "end_of_word_suffix"))
        return fault(r, "model.end_of_word_suffix", "expected none with BPE");
    if (flag_of(model, "byte_fallback", false))
        return fault(r, "model.byte_fallback", "expected false with ByteLevel");
    return json_is_array(json_object_get(model, "merges")) ? CHURON_OK
                                                           : fault(r, "model.merges", "expected a list");
}

static status read_bpe(reader *r, const json_t *model) {
    const char *rule = NULL;
    TRY(check_bpe(r, model));
    TRY(read_nfc(r));
    TRY(find_rule(r, model, &rule));
    const json_t *list = json_object_get(model, "merges");
    const size_t n = json_array_size(list);
    str joined = {0};
    token_text *merges = mem_calloc(n ? n : 1, sizeof *merges);
    int32_t *types = mem_calloc(r->n_tokens, sizeof *types);
    status st = merges && types ? CHURON_OK : error_no_memory(r->err, r->name, n * sizeof *merges);
    if (st == CHURON_OK) st = read_types(r, types);
    if (st == CHURON_OK) st = read_merges(r, list, merges, &joined);
    const tokenizer_spec spec = {.model = "gpt2",
                                 .model_len = 4,
                                 .pre = rule,
                                 .pre_len = strlen(rule),
                                 .tokens = r->tokens,
                                 .n_tokens = r->n_tokens,
                                 .types = types,
                                 .merges = merges,
                                 .n_merges = n,
                                 .bos = -1,
                                 .eos = -1,
                                 .unk = -1,
                                 .pad = -1};
    if (st == CHURON_OK) {
        st = tokenizer_create(&r->out->bpe, &spec, r->err);
        if (st != CHURON_OK) error_prefix(r->err, "%s", r->name);
    }
    mem_free(merges);
    mem_free(types);
    str_free(&joined);
    return st;
}

/* ---- special tokens around the text ----------------------------------------------------------------- */

static status template_add(const reader *r, token_template *t, int32_t id, int32_t type_id) {
    if (t->n == TEXT_TOKENIZER_MAX_PIECES)
        return fault(r, "post_processor", "expected at most %d pieces", TEXT_TOKENIZER_MAX_PIECES);
    if (id >= 0 && (size_t)id >= r->n_tokens)
        return fault(r, "post_processor", "expected the id of a token, got %d", (int)id);
    t->pieces[t->n++] = (template_piece){.id = id, .type_id = type_id};
    return CHURON_OK;
}

static status read_template(const reader *r, const json_t *post, const char *key, token_template *out) {
    const json_t *list = json_object_get(post, key);
    size_t i, k;
    json_t *piece, *id;
    json_array_foreach(list, i, piece) {
        const json_t *sequence = json_object_get(piece, "Sequence"),
                     *special = json_object_get(piece, "SpecialToken");
        const json_t *type = json_object_get(sequence ? sequence : special, "type_id");
        const int32_t type_id = (int32_t)json_integer_value(type);
        if (!json_is_integer(type) || json_integer_value(type) < 0 || json_integer_value(type) > 1000)
            return fault(r, "post_processor", "expected Sequence or SpecialToken with a type_id in %s", key);
        if (sequence) {
            TRY(template_add(r, out, strcmp(text_of(sequence, "id"), "B") == 0 ? -2 : -1, type_id));
            continue;
        }
        const json_t *ids = json_object_get(
            json_object_get(json_object_get(post, "special_tokens"), text_of(special, "id")), "ids");
        if (json_array_size(ids) == 0)
            return fault(r, "post_processor", "expected ids of '%.60s' among special_tokens",
                         text_of(special, "id"));
        json_array_foreach(ids, k, id) {
            int32_t number = -1;
            TRY(id_of(r, id, "post_processor.special_tokens", &number));
            TRY(template_add(r, out, number, type_id));
        }
    }
    return CHURON_OK;
}

/* cls A sep, and cls A sep B sep or, RoBERTa, cls A sep sep B sep with all type ids 0. */
static status read_bert_ends(const reader *r, const json_t *post, bool roberta) {
    int32_t sep = -1, cls = -1;
    TRY(id_of(r, json_array_get(json_object_get(post, "sep"), 1), "post_processor.sep", &sep));
    TRY(id_of(r, json_array_get(json_object_get(post, "cls"), 1), "post_processor.cls", &cls));
    token_template *both[2] = {&r->out->single, &r->out->pair};
    const int32_t second = roberta ? 0 : 1;
    for (size_t i = 0; i < 2; i++) {
        TRY(template_add(r, both[i], cls, 0));
        TRY(template_add(r, both[i], -1, 0));
        TRY(template_add(r, both[i], sep, 0));
    }
    if (roberta) TRY(template_add(r, &r->out->pair, sep, 0));
    TRY(template_add(r, &r->out->pair, -2, second));
    return template_add(r, &r->out->pair, sep, second);
}

static status read_post(const reader *r, const json_t *post) {
    const char *type = text_of(post, "type");
    if (is_nothing(post) || strcmp(type, "ByteLevel") == 0) return CHURON_OK;
    if (strcmp(type, "TemplateProcessing") == 0) {
        TRY(read_template(r, post, "single", &r->out->single));
        return read_template(r, post, "pair", &r->out->pair);
    }
    if (strcmp(type, "BertProcessing") == 0) return read_bert_ends(r, post, false);
    if (strcmp(type, "RobertaProcessing") == 0) return read_bert_ends(r, post, true);
    if (strcmp(type, "Sequence") == 0) {
        size_t i;
        json_t *one;
        json_array_foreach(json_object_get(post, "processors"), i, one) {
            if (strcmp(text_of(one, "type"), "Sequence") == 0)
                return fault(r, "post_processor", "expected no Sequence inside one");
            if (r->out->single.n && strcmp(text_of(one, "type"), "ByteLevel") != 0)
                return fault(r, "post_processor", "expected one that adds special tokens, got two");
            TRY(read_post(r, one));
        }
        return CHURON_OK;
    }
    return fault(r, "post_processor",
                 "expected TemplateProcessing, BertProcessing, RobertaProcessing or ByteLevel, got '%.40s'",
                 type);
}

/* ---- lengths ---------------------------------------------------------------------------------------- */

static status read_lengths(const reader *r) {
    text_lengths *l = &r->out->lengths;
    const json_t *cut = json_object_get(r->root, "truncation"), *pad = json_object_get(r->root, "padding");
    if (!is_nothing(cut)) {
        const char *strategy = text_of(cut, "strategy");
        TRY(count_of(r, cut, "truncation", "max_length", 0, &l->max_length));
        l->cut_left = strcmp(text_of(cut, "direction"), "Left") == 0;
        l->strategy = strcmp(strategy, "OnlyFirst") == 0    ? CUT_ONLY_FIRST
                      : strcmp(strategy, "OnlySecond") == 0 ? CUT_ONLY_SECOND
                                                            : CUT_LONGEST_FIRST;
    }
    const int32_t pad_token = find_token(r, "[PAD]");
    l->pad_id = pad_token >= 0 ? pad_token : 0;
    if (is_nothing(pad)) return CHURON_OK;
    size_t type_id;
    TRY(count_of(r, json_object_get(pad, "strategy"), "padding.strategy", "Fixed", 0, &l->pad_to));
    TRY(count_of(r, pad, "padding", "pad_to_multiple_of", 0, &l->pad_multiple));
    TRY(count_of(r, pad, "padding", "pad_type_id", 0, &type_id));
    TRY(id_of(r, json_object_get(pad, "pad_id"), "padding.pad_id", &l->pad_id));
    l->pad_type_id = (int32_t)type_id;
    l->pad_left = strcmp(text_of(pad, "direction"), "Left") == 0;
    return CHURON_OK;
}

static status read_all(reader *r) {
    const json_t *model = json_object_get(r->root, "model");
    const char *type = text_of(model, "type");
    r->added = json_object_get(r->root, "added_tokens");
    if (*type == 0 && json_object_get(model, "merges")) type = "BPE"; /* older files do not say */
    const bool bpe = strcmp(type, "BPE") == 0;
    if (!bpe && strcmp(type, "WordPiece") != 0)
        return fault(r, "model.type", "expected WordPiece or BPE, got '%.40s'", type);
    TRY(read_vocab(r, model));
    TRY(bpe ? read_bpe(r, model) : read_wordpiece(r, model));
    r->out->n_tokens = r->n_tokens;
    TRY(read_post(r, json_object_get(r->root, "post_processor")));
    if (r->out->single.n == 0) {
        TRY(template_add(r, &r->out->single, -1, 0));
        TRY(template_add(r, &r->out->pair, -1, 0));
        TRY(template_add(r, &r->out->pair, -2, 1));
    }
    return read_lengths(r);
}

status text_tokenizer_from_json(text_tokenizer *out, const char *name, const void *bytes, size_t n,
                                error *err) {
    json_error_t je;
    *out = (text_tokenizer){0};
    if (n > MAX_BYTES)
        return error_set(err, CHURON_LIMIT, "%s: expected at most %d bytes, got %zu", name, MAX_BYTES, n);
    reader r = {.name = name, .err = err, .out = out};
    r.root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &je);
    /* without memory jansson says nothing at all */
    if (!r.root && (!*je.text || json_error_code(&je) == json_error_out_of_memory))
        return error_no_memory(err, name, n);
    if (!r.root)
        return error_set(err, CHURON_CORRUPT, "%s: line %d: expected JSON, got: %s", name, je.line, je.text);
    status st = read_all(&r);
    mem_free(r.tokens);
    json_decref(r.root);
    if (st != CHURON_OK) text_tokenizer_free(out);
    return st;
}
