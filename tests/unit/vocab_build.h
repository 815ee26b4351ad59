/* vocab_build.h: small tokenizer descriptions for tests. */
#ifndef TESTS_VOCAB_BUILD_H
#define TESTS_VOCAB_BUILD_H

#include "text/tokenizer_parts.h"

#include <stdio.h>
#include <string.h>

enum { VOCAB_MAX = 1024 };

/* Texts live in `names`; the spec borrows all of it. */
typedef struct vocab {
    tokenizer_spec spec;
    token_text tokens[VOCAB_MAX], merges[VOCAB_MAX];
    int32_t types[VOCAB_MAX];
    float scores[VOCAB_MAX];
    char names[VOCAB_MAX][48];
} vocab;

static inline int32_t vocab_add(vocab *v, const char *text, int32_t type, float score) {
    size_t i = v->spec.n_tokens++;
    size_t n = strlen(text) < sizeof v->names[i] ? strlen(text) : sizeof v->names[i] - 1;
    memcpy(v->names[i], text, n);
    v->names[i][n] = '\0';
    v->tokens[i] = (token_text){v->names[i], n};
    v->types[i] = type;
    v->scores[i] = score;
    return (int32_t)i;
}

/* "left right", which must live as long as v; adds the token that it makes. */
static inline int32_t vocab_merge(vocab *v, const char *merge) {
    char joined[96];
    size_t n = 0;
    for (const char *p = merge; *p; p++) {
        if (*p != ' ') joined[n++] = *p;
    }
    joined[n] = '\0';
    v->merges[v->spec.n_merges++] = (token_text){merge, strlen(merge)};
    return vocab_add(v, joined, TOKEN_NORMAL, 0);
}

static inline void vocab_begin(vocab *v, const char *model, const char *pre) {
    memset(v, 0, sizeof *v);
    v->spec = (tokenizer_spec){.model = model,
                               .model_len = strlen(model),
                               .pre = pre,
                               .pre_len = pre ? strlen(pre) : 0,
                               .tokens = v->tokens,
                               .types = v->types,
                               .merges = v->merges,
                               .scores = v->scores,
                               .bos = -1,
                               .eos = -1,
                               .unk = -1,
                               .pad = -1};
}

/* The 256 byte symbols as ids 0 to 255, and a merge to have one. */
static inline void vocab_bytes(vocab *v, const char *pre) {
    vocab_begin(v, "gpt2", pre);
    for (unsigned b = 0; b < 256; b++) {
        char text[5] = {0};
        (void)utf8_encode(byte_to_mapped((uint8_t)b), text);
        (void)vocab_add(v, text, TOKEN_NORMAL, 0);
    }
    (void)vocab_merge(v, "h e");
    (void)vocab_merge(v, "l l");
    (void)vocab_merge(v, "he ll");
    (void)vocab_merge(v, "hell o");
    (void)vocab_merge(v, "\u0120 hello");
    (void)vocab_merge(v, "a a");
    (void)vocab_merge(v, "aa aa");
}

/* <unk> <s> </s>, the 256 fallbacks, and a few pieces. */
static inline void vocab_scored(vocab *v) {
    vocab_begin(v, "llama", NULL);
    v->spec.unk = vocab_add(v, "<unk>", TOKEN_UNKNOWN, 0);
    v->spec.bos = vocab_add(v, "<s>", TOKEN_CONTROL, 0);
    v->spec.eos = vocab_add(v, "</s>", TOKEN_CONTROL, 0);
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", b);
        (void)vocab_add(v, text, TOKEN_BYTE, 0);
    }
    static const char *const pieces[] = {"\u2581h", "el", "lo", "\u2581hel", "\u2581hello", "\u2581\u2581",
                                         "\u2581",  "h",  "e",  "l",         "o",           "x"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        (void)vocab_add(v, pieces[i], TOKEN_NORMAL, -(float)i - 1);
    }
    v->spec.add_bos = true;
    v->spec.add_space_prefix = true;
}

#endif
