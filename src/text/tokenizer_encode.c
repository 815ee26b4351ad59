/* tokenizer_encode.c: text to ids. See tokenizer.h.
 *
 * Special tokens are cut out first; what is between is composed where the rule asks for it, cut into pieces,
 * and each piece is looked up in a cache of this call's pieces before it is merged. */
#include "text/tokenizer.h"

#include "base/mem.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

enum {
    CACHED_BYTES = 24, /* longer pieces are rare and seldom repeat */
    CACHED_IDS = 3,
    CACHE_MIN_TEXT = 256, /* shorter texts are done before a cache is cleared */
    CACHE_MAX_SLOTS = 1 << 15
};

typedef struct piece {
    uint64_t words[CACHED_BYTES / 8]; /* its bytes, then zeros */
    uint8_t len;                      /* 0: an empty slot */
    uint8_t n_ids;
    int32_t ids[CACHED_IDS];
} piece;

typedef struct encoder {
    const tokenizer *t;
    token_list *out;
    error *err;
    piece *cache; /* NULL: none; each piece has two neighbouring slots it may be in */
    size_t cache_mask;
    int32_t *symbols;
    size_t symbols_cap;
    bpe_scratch *scratch;
    str mapped, composed;
} encoder;

static status cache_init(encoder *e, size_t text_len) {
    if (text_len < CACHE_MIN_TEXT) return CHURON_OK;
    size_t slots = 64;
    while (slots < text_len / 8 && slots < CACHE_MAX_SLOTS) slots *= 2;
    e->cache = mem_calloc(slots, sizeof *e->cache);
    if (!e->cache) return error_no_memory(e->err, "pieces", slots * sizeof *e->cache);
    e->cache_mask = slots - 1;
    return CHURON_OK;
}

/* The first n bytes of a word in memory order, n <= 8. */
static inline uint64_t low_bytes(uint64_t w, size_t n) {
    if (n >= 8) return w;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return n ? w & ~(UINT64_MAX >> (8 * n)) : 0;
#else
    return w & ((UINT64_C(1) << (8 * n)) - 1);
#endif
}

/* n <= CACHED_BYTES; `end` is how far memory may be read. */
static inline void load_words(uint64_t *words, const char *p, size_t n, const char *end) {
    if (end - p < CACHED_BYTES) {
        memset(words, 0, CACHED_BYTES);
        memcpy(words, p, n);
        return;
    }
    memcpy(words, p, CACHED_BYTES);
    words[0] = low_bytes(words[0], n);
    words[1] = n > 8 ? low_bytes(words[1], n - 8) : 0;
    words[2] = n > 16 ? low_bytes(words[2], n - 16) : 0;
}

static inline size_t words_hash(const uint64_t *w, size_t n) {
    uint64_t h = (w[0] ^ n) * 0x9e3779b97f4a7c15u;
    if (n > 8) h = ((h ^ w[1]) * 0xc2b2ae3d27d4eb4fu) ^ ((w[2] + h) * 0x165667b19e3779f9u);
    return (size_t)(h >> 40);
}

static status reserve_symbols(encoder *e, size_t n) {
    if (n <= e->symbols_cap) return CHURON_OK;
    size_t bytes;
    if (!size_mul(n, sizeof *e->symbols, &bytes)) return error_no_memory(e->err, "symbols", n);
    mem_free(e->symbols);
    e->symbols_cap = 0;
    e->symbols = mem_alloc(bytes);
    if (!e->symbols) return error_no_memory(e->err, "symbols", bytes);
    e->symbols_cap = n;
    return CHURON_OK;
}

/* ---- one piece -------------------------------------------------------------------------------------- */

/* The token that is this whole piece, or -1. */
static status whole_token(encoder *e, const char *p, size_t n, int32_t *id) {
    *id = -1;
    if (n > e->t->longest) return CHURON_OK;
    str_clear(&e->mapped);
    for (size_t i = 0; i < n; i++) {
        char c[4];
        str_add(&e->mapped, c, utf8_encode(byte_to_mapped((uint8_t)p[i]), c));
    }
    TRY(str_check(&e->mapped, e->err));
    int32_t found = tokenizer_find(e->t, e->mapped.data, e->mapped.len);
    if (found >= 0 && e->t->types[found] == TOKEN_NORMAL) *id = found;
    return CHURON_OK;
}

static status merge_bytes(encoder *e, const char *p, size_t n) {
    if (e->t->ignore_merges) {
        int32_t id;
        TRY(whole_token(e, p, n, &id));
        if (id >= 0) return token_list_add(e->out, id, e->err);
    }
    int32_t few[64], *symbols = few;
    if (n > sizeof few / sizeof *few) {
        TRY(reserve_symbols(e, n));
        symbols = e->symbols;
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_ids[(unsigned char)p[i]];
        if (id >= 0) symbols[count++] = id;
    }
    return bpe_encode(&e->t->merges, &e->scratch, symbols, count, e->out, e->err);
}

/* Writes the symbols of the character at p, at most four: itself, or the fallbacks of its bytes, or the
 * unknown token, of which one stands for a run. Returns the length of the character in bytes. */
static size_t char_symbols(const tokenizer *t, const char *p, const char *end, int32_t *symbols,
                           size_t *count) {
    if ((unsigned char)*p < 0x80 && t->ascii_ids[(unsigned char)*p] >= 0) {
        symbols[(*count)++] = t->ascii_ids[(unsigned char)*p];
        return 1;
    }
    size_t n = utf8_decode(p, end, NULL);
    if (n > 1) {
        int32_t id = tokenizer_find(t, p, n);
        if (id >= 0 && t->types[id] == TOKEN_NORMAL) {
            symbols[(*count)++] = id;
            return n;
        }
    }
    if (n == 0) n = 1;
    bool covered = true;
    for (size_t i = 0; i < n; i++) covered = covered && t->byte_ids[(unsigned char)p[i]] >= 0;
    if (covered) {
        for (size_t i = 0; i < n; i++) symbols[(*count)++] = t->byte_ids[(unsigned char)p[i]];
    } else if (*count == 0 || symbols[*count - 1] != t->unk) {
        symbols[(*count)++] = t->unk;
    }
    return n;
}

static status merge_chars(encoder *e, const char *p, size_t n, bool prefix) {
    int32_t few[64], *symbols = few;
    size_t room = n + 1;
    if (room > sizeof few / sizeof *few) {
        TRY(reserve_symbols(e, room));
        symbols = e->symbols;
    }
    size_t count = 0;
    if (prefix) symbols[count++] = e->t->ascii_ids[' '];
    for (const char *end = p + n; p < end;) p += char_symbols(e->t, p, end, symbols, &count);
    return bpe_encode(&e->t->merges, &e->scratch, symbols, count, e->out, e->err);
}

static status merge_piece(encoder *e, const char *p, size_t n) {
    return e->t->rule ? merge_bytes(e, p, n) : merge_chars(e, p, n, false);
}

static inline status encode_piece(encoder *e, const char *p, size_t n, const char *end) {
    if (!e->cache || n > CACHED_BYTES) return merge_piece(e, p, n);
    uint64_t words[CACHED_BYTES / 8];
    load_words(words, p, n, end);
    size_t at = words_hash(words, n) & e->cache_mask;
    for (size_t i = 0; i < 2; i++) {
        const piece *k = &e->cache[at ^ i];
        if (k->words[0] != words[0] || k->len != n || k->words[1] != words[1] || k->words[2] != words[2])
            continue;
        token_list *out = e->out;
        if (out->cap - out->len < CACHED_IDS) break;
        memcpy(out->ids + out->len, k->ids, sizeof k->ids);
        out->len += k->n_ids;
        return CHURON_OK;
    }
    size_t before = e->out->len;
    TRY(merge_piece(e, p, n));
    size_t n_ids = e->out->len - before;
    if (n_ids > CACHED_IDS) return CHURON_OK;
    piece *k = &e->cache[at];
    if (k->len && !e->cache[at ^ 1].len) k = &e->cache[at ^ 1];
    memcpy(k->words, words, sizeof words);
    k->len = (uint8_t)n;
    k->n_ids = (uint8_t)n_ids;
    if (n_ids) memcpy(k->ids, e->out->ids + before, n_ids * sizeof *k->ids);
    return CHURON_OK;
}

/* ---- text between special tokens -------------------------------------------------------------------- */

static status encode_byte_level(encoder *e, const char *p, size_t n) {
    const split_rule *rule = e->t->rule;
    if (rule->nfc && !unicode_is_plain(p, n)) {
        str_clear(&e->composed);
        TRY(unicode_nfc(p, n, &e->composed, e->err));
        p = e->composed.data;
        n = e->composed.len;
    }
    const char *end = p + n;
    if (rule->n_stages == 1) {
        split_fn next = rule->stages[0];
        while (p < end) {
            const char *q = next(p, end);
            TRY(encode_piece(e, p, (size_t)(q - p), end));
            p = q;
        }
        return CHURON_OK;
    }
    splitter s = splitter_begin(rule, p, n);
    while (p < end) {
        const char *q = splitter_next(&s, p);
        TRY(encode_piece(e, p, (size_t)(q - p), end));
        p = q;
    }
    return CHURON_OK;
}

static inline size_t space_at(const char *p, const char *end) {
    if (*p == ' ') return 1;
    return *p == SPACE_MARK[0] && end - p >= 3 && memcmp(p, SPACE_MARK, 3) == 0 ? 3 : 0;
}

/* Spaces and what follows up to the next space: no token reaches across that border, so no merge does. */
static const char *spaces_and_word(const char *p, const char *end) {
    size_t n;
    while (p < end && (n = space_at(p, end)) > 0) p += n;
    while (p < end && !space_at(p, end)) p++;
    return p;
}

static status encode_by_score(encoder *e, const char *p, size_t n) {
    const char *end = p + n;
    bool prefix = e->t->add_space_prefix;
    while (p < end) {
        const char *q = e->t->cut_at_spaces ? spaces_and_word(p, end) : end;
        if (prefix) {
            TRY(merge_chars(e, p, (size_t)(q - p), true));
        } else {
            TRY(encode_piece(e, p, (size_t)(q - p), end));
        }
        prefix = false;
        p = q;
    }
    return CHURON_OK;
}

static status encode_text(encoder *e, const char *p, size_t n) {
    if (n == 0) return CHURON_OK;
    return e->t->rule ? encode_byte_level(e, p, n) : encode_by_score(e, p, n);
}

static status encode_all(encoder *e, const char *text, size_t len, tokenize_options options) {
    const tokenizer *t = e->t;
    TRY(cache_init(e, len));
    bool wants_bos = options.add_special && t->add_bos;
    const char *p = text, *end = text + len;
    special_match m;
    while (p < end && special_set_find(&t->special, p, end, options.parse_special, &m)) {
        /* Chat templates often write bos themselves: twice would be a prompt that no model was trained with.
         */
        const bool begins_with_bos = m.begin == text && m.id == t->bos;
        if (wants_bos && !begins_with_bos) TRY(token_list_add(e->out, t->bos, e->err));
        wants_bos = false;
        TRY(encode_text(e, p, (size_t)(m.begin - p)));
        TRY(token_list_add(e->out, m.id, e->err));
        p = m.end;
    }
    if (wants_bos) TRY(token_list_add(e->out, t->bos, e->err));
    TRY(encode_text(e, p, (size_t)(end - p)));
    if (options.add_special && t->add_eos) TRY(token_list_add(e->out, t->eos, e->err));
    return CHURON_OK;
}

status tokenizer_encode(const tokenizer *t, const char *text, size_t len, tokenize_options options,
                        token_list *out, error *err) {
    if (len == 0) text = ""; /* may be NULL */
    encoder e = {.t = t, .out = out, .err = err};
    size_t before = out->len;
    status st = encode_all(&e, text, len, options);
    if (st != CHURON_OK) out->len = before;
    mem_free(e.cache);
    mem_free(e.symbols);
    bpe_scratch_free(e.scratch);
    str_free(&e.mapped);
    str_free(&e.composed);
    return st;
}
