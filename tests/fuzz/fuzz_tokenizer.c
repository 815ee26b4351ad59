/* fuzz_tokenizer.c: any description of a tokenizer, and any text through it.
 *
 * Input: one byte of choices (model, rule, flags), then lines up to an empty one: a type digit and a token,
 * or
 * '+' and a merge; the rest is text. Byte-level vocabularies begin with the 256 bytes, the others with their
 * fallbacks and the space, so that most inputs get as far as encoding. What comes out must decode to what
 * went in, whole and as a stream, and be the same twice. */
#include "base/mem.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TOKENS = 600, MAX_MERGES = 300 };

static const char *const rules[] = {"smollm",  "gpt-2",          "llama-bpe",   "qwen2",  "deepseek-llm",
                                    "falcon",  "deepseek-coder", "deepseek-v3", "tekken", "gpt-4o",
                                    "default", "qwen35",         "no-such-rule"};

typedef struct description {
    tokenizer_spec spec;
    token_text tokens[MAX_TOKENS], merges[MAX_MERGES];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    char bytes[256][8];
} description;

static void add_token(description *d, token_text text, int32_t type) {
    size_t i = d->spec.n_tokens;
    if (i == MAX_TOKENS) return;
    d->tokens[i] = text;
    d->types[i] = type;
    d->scores[i] = -(float)(i * 7919 % MAX_TOKENS);
    d->spec.n_tokens++;
}

static void begin(description *d, uint8_t choice) {
    bool by_score = choice & 1;
    const char *rule = rules[(choice >> 1) % (sizeof rules / sizeof *rules)];
    d->spec = (tokenizer_spec){.model = by_score ? "llama" : "gpt2",
                               .model_len = by_score ? 5 : 4,
                               .pre = rule,
                               .pre_len = strlen(rule),
                               .tokens = d->tokens,
                               .types = d->types,
                               .scores = d->scores,
                               .merges = d->merges,
                               .bos = -1,
                               .eos = -1,
                               .unk = by_score ? 0 : -1,
                               .pad = -1,
                               .add_space_prefix = by_score && (choice & 0x80)};
    for (unsigned b = 0; b < 256; b++) {
        if (by_score) {
            (void)snprintf(d->bytes[b], sizeof d->bytes[b], "<0x%02X>", b);
        } else {
            d->bytes[b][utf8_encode(byte_to_mapped((uint8_t)b), d->bytes[b])] = '\0';
        }
        add_token(d, (token_text){d->bytes[b], strlen(d->bytes[b])}, by_score ? TOKEN_BYTE : TOKEN_NORMAL);
    }
    if (by_score) add_token(d, (token_text){SPACE_MARK, 3}, TOKEN_NORMAL);
}

/* Returns where the text begins. */
static const char *read_lines(description *d, const char *p, const char *end) {
    while (p < end && *p != '\n') {
        const char *line = p;
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        token_text rest = {line + 1, (size_t)(stop - line - 1)};
        if (*line == '+') {
            if (d->spec.n_merges < MAX_MERGES) d->merges[d->spec.n_merges++] = rest;
        } else {
            add_token(d, rest, *line >= '0' && *line <= '9' ? *line - '0' : TOKEN_NORMAL);
        }
        p = stop < end ? stop + 1 : end;
    }
    return p < end ? p + 1 : end;
}

/* Whether a text may come back as another: composed; with U+2581 as the space that it stands for; through
 * tokens added by hand that merges can make too, which decode to their text as it stands. */
static bool may_change(const tokenizer *t, const char *text, size_t n) {
    if (!t->rule) return t->add_space_prefix || memchr(text, '\xe2', n);
    if (t->rule->nfc) return true;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (t->types[i] == TOKEN_USER_DEFINED) return true;
    }
    return false;
}

static void check_stream(const tokenizer *t, const token_list *ids) {
    detok_stream d;
    str text = {0};
    detok_begin(&d);
    for (size_t i = 0; i < ids->len; i++) detok_push(t, &d, ids->ids[i], true, &text);
    detok_end(&d, &text);
    if (utf8_validate(str_cstr(&text), text.len) != text.len) abort();
    str_free(&text);
}

static void check_text(const tokenizer *t, const char *text, size_t n, bool changes) {
    error err;
    token_list ids = {0}, again = {0};
    str back = {0};
    for (int special = 0; special < 2; special++) {
        tokenize_options o = {.parse_special = special};
        ids.len = again.len = 0;
        if (tokenizer_encode(t, text, n, o, &ids, &err) != CHURON_OK) abort();
        if (tokenizer_encode(t, text, n, o, &again, &err) != CHURON_OK) abort();
        if (ids.len != again.len || (ids.len && memcmp(ids.ids, again.ids, ids.len * 4) != 0)) abort();
        str_clear(&back);
        if (tokenizer_decode(t, ids.ids, ids.len, true, &back, &err) != CHURON_OK) abort();
        if (!changes && (back.len != n || (n && memcmp(back.data, text, n) != 0))) abort();
        check_stream(t, &ids);
    }
    token_list_free(&ids);
    token_list_free(&again);
    str_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static description d;
    if (size == 0) return 0;
    begin(&d, data[0]);
    const char *end = (const char *)data + size;
    const char *text = read_lines(&d, (const char *)data + 1, end);
    error err = {.message = ""};
    tokenizer *t;
    if (tokenizer_create(&t, &d.spec, &err) == CHURON_OK) {
        char *exact = mem_alloc((size_t)(end - text)); /* ends where the text ends */
        if (!exact) abort();
        if (end > text) memcpy(exact, text, (size_t)(end - text));
        check_text(t, exact, (size_t)(end - text), may_change(t, exact, (size_t)(end - text)));
        mem_free(exact);
        tokenizer_free(t);
    } else if (!err.message[0] || t) {
        abort();
    }
    return 0;
}
