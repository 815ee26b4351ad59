/* wordpiece.c: see wordpiece.h. Characters go one by one through the normalizer into the word that is being
 * collected; a word that ends is looked up in a trie of all tokens. */
#include "text/wordpiece.h"

#include "base/mem.h"
#include "text/bert_chars.h"
#include "text/special.h"
#include "text/unicode.h"

#include <string.h>

typedef struct trie_edge {
    uint64_t key; /* (node << 8 | byte) + 1; 0: an empty slot */
    uint32_t node;
} trie_edge;

struct wordpiece {
    trie_edge *edges; /* open addressing, at most half full */
    size_t mask;
    int32_t *ids; /* [nodes]: the token that ends there, or -1 */
    uint32_t n_nodes;
    uint32_t inner; /* where pieces that continue a word begin; 0: there are none */
    int32_t unk;
    size_t max_word;
    special_set specials; /* ids are places in `added` */
    wordpiece_added *added;
    bool clean_text, chinese, strip_accents, lowercase;
};

/* ---- making ----------------------------------------------------------------------------------------- */

static trie_edge *edge_at(const wordpiece *w, uint32_t node, char c) {
    const uint64_t key = ((uint64_t)node << 8 | (unsigned char)c) + 1;
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & w->mask;
    while (w->edges[i].key != 0 && w->edges[i].key != key) i = (i + 1) & w->mask;
    return &w->edges[i];
}

static uint32_t add_path(wordpiece *w, token_text t) {
    uint32_t node = 0;
    for (size_t i = 0; i < t.len; i++) {
        trie_edge *e = edge_at(w, node, t.data[i]);
        if (e->key == 0) {
            *e = (trie_edge){((uint64_t)node << 8 | (unsigned char)t.data[i]) + 1, w->n_nodes};
            w->ids[w->n_nodes++] = -1;
        }
        node = e->node;
    }
    return node;
}

static status build_trie(wordpiece *w, const wordpiece_spec *spec, error *err) {
    size_t bytes = spec->prefix.len + 1, slots = 16;
    for (size_t i = 0; i < spec->n_tokens; i++) bytes += spec->tokens[i].len;
    if (bytes > UINT32_MAX / 8)
        return error_set(err, CHURON_LIMIT, "vocabulary: expected less text, got %zu bytes", bytes);
    while (slots / 2 < bytes) slots *= 2;
    w->edges = mem_calloc(slots, sizeof *w->edges);
    w->ids = mem_alloc((bytes + 1) * sizeof *w->ids);
    if (!w->edges || !w->ids) return error_no_memory(err, "vocabulary", slots * sizeof *w->edges);
    w->mask = slots - 1;
    w->ids[0] = -1;
    w->n_nodes = 1;
    w->inner = add_path(w, spec->prefix);
    for (size_t i = 0; i < spec->n_tokens; i++) {
        if (spec->tokens[i].len == 0) continue;
        const uint32_t node = add_path(w, spec->tokens[i]);
        if (w->ids[node] >= 0)
            return error_set(err, CHURON_CORRUPT,
                             "vocabulary: expected different tokens, got the text of %d again at %zu",
                             (int)w->ids[node], i);
        w->ids[node] = (int32_t)i;
    }
    return CHURON_OK;
}

static status build_added(wordpiece *w, const wordpiece_spec *spec, error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < spec->n_added; i++) bytes += spec->added[i].text.len;
    w->added = mem_calloc(spec->n_added ? spec->n_added : 1, sizeof *w->added);
    if (!w->added) return error_no_memory(err, "added tokens", spec->n_added * sizeof *w->added);
    TRY(special_set_init(&w->specials, bytes, err));
    for (size_t i = 0; i < spec->n_added; i++) {
        const token_text t = spec->added[i].text;
        w->added[i] = spec->added[i];
        w->added[i].text = (token_text){0}; /* was borrowed */
        if (t.len == 0)
            return error_set(err, CHURON_CORRUPT, "added token %zu: expected a text, got none", i);
        special_set_add(&w->specials, t.data, t.len, (int32_t)i, false);
    }
    return CHURON_OK;
}

status wordpiece_create(wordpiece **out, const wordpiece_spec *spec, error *err) {
    status st;
    *out = NULL;
    if (spec->n_tokens > INT32_MAX)
        return error_set(err, CHURON_LIMIT, "vocabulary: expected fewer tokens, got %zu", spec->n_tokens);
    if (spec->unk < 0 || (size_t)spec->unk >= spec->n_tokens || spec->tokens[spec->unk].len == 0)
        return error_set(err, CHURON_CORRUPT, "unk_token: expected a token of the vocabulary, got %d",
                         (int)spec->unk);
    if (spec->max_word < 1 || spec->max_word > WORDPIECE_MAX_WORD)
        return error_set(err, CHURON_INVALID, "max_input_chars_per_word: expected 1 to %d, got %zu",
                         WORDPIECE_MAX_WORD, spec->max_word);
    wordpiece *w = mem_calloc(1, sizeof *w);
    if (!w) return error_no_memory(err, "vocabulary", sizeof *w);
    w->unk = spec->unk;
    w->max_word = spec->max_word;
    w->clean_text = spec->clean_text;
    w->chinese = spec->chinese;
    w->strip_accents = spec->strip_accents;
    w->lowercase = spec->lowercase;
    TRY_GOTO(build_trie(w, spec, err));
    TRY_GOTO(build_added(w, spec, err));
    *out = w;
    return CHURON_OK;
cleanup:
    wordpiece_free(w);
    return st;
}

void wordpiece_free(wordpiece *w) {
    if (!w) return;
    mem_free(w->edges);
    mem_free(w->ids);
    mem_free(w->added);
    special_set_free(&w->specials);
    mem_free(w);
}

void token_spans_free(token_spans *s) {
    mem_free(s->items);
    *s = (token_spans){0};
}

status token_spans_add(token_spans *s, token_span span, error *err) {
    if (s->len == s->cap) {
        const size_t cap = s->cap ? s->cap * 2 : 64;
        token_span *grown = mem_realloc(s->items, cap * sizeof *grown);
        if (!grown) return error_no_memory(err, "tokens", cap * sizeof *grown);
        s->items = grown;
        s->cap = cap;
    }
    s->items[s->len++] = span;
    return CHURON_OK;
}

/* ---- words ------------------------------------------------------------------------------------------ */

/* The word that is being collected: its characters as they are after normalizing, and where each came from.
 */
typedef struct word {
    const wordpiece *w;
    token_spans *out;
    error *err;
    char *bytes;                /* [4 * max_word] */
    uint32_t *at, *begin, *end; /* [max_word + 1]: byte in `bytes`; bytes of the text */
    size_t n;                   /* characters; more than max_word: only counted */
    uint32_t first, last;       /* bytes of the text that it spans */
} word;

static status word_unknown(word *b) {
    return token_spans_add(b->out, (token_span){b->w->unk, b->first, b->last}, b->err);
}

/* Longest piece from byte `from` on: its token and where it ends. -1: none. */
static int32_t longest_piece(const wordpiece *w, const word *b, uint32_t from, uint32_t len, uint32_t *end) {
    uint32_t node = from ? w->inner : 0;
    int32_t best = -1;
    if (from && !node) return -1;
    for (uint32_t i = from; i < len;) {
        const trie_edge *e = edge_at(w, node, b->bytes[i++]);
        if (e->key == 0) break;
        node = e->node;
        if (w->ids[node] < 0) continue;
        best = w->ids[node];
        *end = i;
    }
    return best;
}

static status word_end(word *b) {
    const size_t n = b->n, before = b->out->len;
    if (n == 0) return CHURON_OK;
    b->n = 0;
    if (n > b->w->max_word) return word_unknown(b);
    const uint32_t len = b->at[n];
    size_t c = 0; /* character at `from` */
    for (uint32_t from = 0, end = 0; from < len; from = end) {
        const int32_t id = longest_piece(b->w, b, from, len, &end);
        if (id < 0) {
            b->out->len = before;
            return word_unknown(b);
        }
        const size_t first = c;
        while (b->at[c] < end) c++;
        TRY(token_spans_add(b->out, (token_span){id, b->begin[first], b->end[c - 1]}, b->err));
    }
    return CHURON_OK;
}

static void word_put(word *b, uint32_t cp, uint32_t begin, uint32_t end) {
    if (b->n == 0) b->first = begin;
    b->last = end;
    if (b->n++ >= b->w->max_word) return;
    const size_t i = b->n - 1;
    const uint32_t at = i ? b->at[i] : 0;
    b->at[i] = at;
    b->begin[i] = begin;
    b->end[i] = end;
    b->at[i + 1] = at + (uint32_t)utf8_encode(cp, b->bytes + at);
}

/* A character of the normalized text, before the cutting. */
static status put_normal(word *b, uint32_t cp, uint32_t begin, uint32_t end) {
    if (bert_is_space(cp)) return word_end(b);
    if (!unicode_is_old_punctuation(cp)) {
        word_put(b, cp, begin, end);
        return CHURON_OK;
    }
    TRY(word_end(b));
    word_put(b, cp, begin, end);
    return word_end(b);
}

static status put_lower(word *b, uint32_t cp, uint32_t begin, uint32_t end) {
    if (!b->w->lowercase) return put_normal(b, cp, begin, end);
    if (cp == 0x130) { /* the one letter that becomes two */
        TRY(put_normal(b, 'i', begin, end));
        return put_normal(b, 0x307, begin, end);
    }
    return put_normal(b, bert_lower(cp), begin, end);
}

static status put_char(word *b, uint32_t cp, uint32_t begin, uint32_t end) {
    const wordpiece *w = b->w;
    uint32_t parts[4];
    if (w->clean_text && bert_is_control(cp)) return CHURON_OK;
    const bool han = w->chinese && bert_is_chinese(cp);
    if (han) TRY(word_end(b));
    if (w->strip_accents && cp >= 0x80) {
        const size_t n = bert_decompose(cp, parts);
        for (size_t i = 0; i < n; i++) {
            if (!bert_is_accent(parts[i])) TRY(put_lower(b, parts[i], begin, end));
        }
    } else {
        TRY(put_lower(b, cp, begin, end));
    }
    return han ? word_end(b) : CHURON_OK;
}

static status encode_part(word *b, const char *text, uint32_t from, uint32_t to) {
    for (uint32_t at = from; at < to;) {
        uint32_t cp = (unsigned char)text[at], n = 1;
        if (cp >= 0x80) n = (uint32_t)utf8_decode(text + at, text + to, &cp);
        if (n == 0)
            return error_set(b->err, CHURON_INVALID, "text: expected UTF-8, got another byte at %u",
                             (unsigned)at);
        TRY(put_char(b, cp, at, at + n));
        at += n;
    }
    return word_end(b);
}

/* ---- added tokens ----------------------------------------------------------------------------------- */

/* Begin of the character that ends at p. */
static const char *char_before(const char *text, const char *p) {
    do p--;
    while (p > text && ((unsigned char)*p & 0xc0) == 0x80);
    return p;
}

static bool is_word_char(const char *p, const char *end) {
    uint32_t cp;
    if (!utf8_decode(p, end, &cp)) return false;
    if (cp == '_') return true;
    return ((cp < 0x80 ? unicode_ascii_class[cp] : unicode_class(cp)) & (UC_LETTER | UC_NUMBER | UC_MARK)) !=
           0;
}

static bool is_space_at(const char *p, const char *end, size_t *n) {
    uint32_t cp;
    *n = utf8_decode(p, end, &cp);
    return *n && bert_is_space(cp);
}

static bool stands_alone(const special_match *m, const char *text, const char *end) {
    if (m->end < end && is_word_char(m->end, end)) return false;
    return m->begin == text || !is_word_char(char_before(text, m->begin), end);
}

static status encode_all(word *b, const char *text, size_t len, bool special) {
    const char *end = text + len, *done = text;
    special_match m;
    size_t n;
    for (const char *p = text; special && special_set_find(&b->w->specials, p, end, false, &m); p = m.end) {
        const wordpiece_added *a = &b->w->added[m.id];
        const char *begin = m.begin, *behind = m.end;
        if (a->single_word && !stands_alone(&m, text, end)) continue;
        while (a->lstrip && begin > done && is_space_at(char_before(text, begin), begin, &n))
            begin = char_before(text, begin);
        while (a->rstrip && behind < end && is_space_at(behind, end, &n)) behind += n;
        if (begin < done) begin = done; /* the space before was taken by the token before */
        TRY(encode_part(b, text, (uint32_t)(done - text), (uint32_t)(begin - text)));
        TRY(token_spans_add(b->out, (token_span){a->id, (uint32_t)(begin - text), (uint32_t)(behind - text)},
                            b->err));
        done = behind;
    }
    return encode_part(b, text, (uint32_t)(done - text), (uint32_t)len);
}

status wordpiece_encode(const wordpiece *w, const char *text, size_t len, bool special, token_spans *out,
                        error *err) {
    if (len >= UINT32_MAX)
        return error_set(err, CHURON_LIMIT, "text: expected less than 4 GiB, got %zu bytes", len);
    const size_t marks = w->max_word + 1;
    uint32_t *room = mem_alloc(3 * marks * sizeof *room + 4 * w->max_word);
    if (!room) return error_no_memory(err, "a word", 3 * marks * sizeof *room);
    word b = {.w = w,
              .out = out,
              .err = err,
              .at = room,
              .begin = room + marks,
              .end = room + 2 * marks,
              .bytes = (char *)(room + 3 * marks)};
    const status st = encode_all(&b, text, len, special);
    mem_free(room);
    return st;
}
