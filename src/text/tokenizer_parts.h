/* tokenizer_parts.h: what the tokenizer is made of; for the files of this room that make and use it. */
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include "text/bpe.h"
#include "text/special.h"
#include "text/split.h"

#include <string.h>

enum { TOKEN_FLAG_EOG = 1, TOKEN_FLAG_UTF8 = 2 }; /* UTF8: its bytes are whole characters */

typedef struct vocab_slot {
    uint32_t hash;
    int32_t id_plus_one; /* 0: empty */
} vocab_slot;

struct tokenizer {
    const split_rule *rule;   /* NULL: "llama" */
    size_t n_tokens, longest; /* longest: bytes of the longest token's text */
    char *text, *bytes; /* all tokens one after the other: as the vocabulary writes them, as they decode */
    uint32_t *text_at, *bytes_at; /* [n_tokens + 1] */
    uint8_t *types, *flags;       /* [n_tokens] */
    vocab_slot *slots;            /* text -> id, open addressing */
    size_t slots_mask;
    bpe_merges merges;
    special_set special;
    int32_t byte_ids[256];  /* "gpt2": the symbol of a byte; "llama": its fallback token; -1: none */
    int32_t ascii_ids[128]; /* "llama": the token that is this one character, or -1; ' ' stands for U+2581 */
    int32_t bos, eos, unk, pad;
    bool add_bos, add_eos, add_space_prefix, ignore_merges;
    bool cut_at_spaces; /* "llama": no token has U+2581 after another character */
};

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, "llama" vocabularies' space */

static inline uint64_t text_hash(const char *p, size_t n) {
    const uint64_t k = 0x9e3779b97f4a7c15u;
    uint64_t h = n * k;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w = w << 8 | (unsigned char)p[i];
    h = (h ^ w) * k;
    return h ^ h >> 32;
}

static inline token_text token_text_at(const char *all, const uint32_t *at, int32_t id) {
    return (token_text){all + at[id], at[id + 1] - at[id]};
}

/* tokenizer_find with the hash, text_hash(text, len), known; and the memory of it on its way. len > 0. */
int32_t vocab_find(const tokenizer *t, const char *text, size_t len, uint64_t hash);
static inline void vocab_prefetch(const tokenizer *t, uint64_t hash) {
#if defined(__GNUC__)
    __builtin_prefetch(&t->slots[hash & t->slots_mask]);
#else
    (void)t;
    (void)hash;
#endif
}

/* A byte as the byte-level alphabet writes it: printable Latin-1 as itself, the rest from U+0100 on. */
uint32_t byte_to_mapped(uint8_t b);
/* -1: no byte is written so. */
int mapped_to_byte(uint32_t cp);

#endif
