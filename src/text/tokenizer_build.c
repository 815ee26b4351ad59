/* tokenizer_build.c: see tokenizer_build.h. */
#include "text/tokenizer_build.h"

#include "base/mem.h"
#include "text/tokenizer_parts.h"

#include <math.h>
#include <stdlib.h>

#define SHOWN(text) (int)((text).len < 40 ? (text).len : 40), (text).data ? (text).data : ""

/* ---- byte level ------------------------------------------------------------------------------------- */

/* Real vocabularies lack bytes that their training text did not have (SmolLM2, StarCoder and Falcon some
 * control characters and bytes that UTF-8 never uses); such a byte gives no token, as in the `tokenizers`
 * library. One without a printable ASCII character is not of the byte level. */
static status find_byte_symbols(tokenizer *t, error *err) {
    for (unsigned b = 0; b < 256; b++) {
        char text[4];
        int32_t id = tokenizer_find(t, text, utf8_encode(byte_to_mapped((uint8_t)b), text));
        if (id >= 0 && t->types[id] == TOKEN_NORMAL) t->byte_ids[b] = id;
        if (t->byte_ids[b] < 0 && b >= 0x20 && b <= 0x7e) {
            return error_set(
                err, CHURON_CORRUPT,
                "tokenizer: tokens: expected one for each printable ASCII character, got none for \"%c\"",
                (int)b);
        }
    }
    return CHURON_OK;
}

/* A merge on its way into the table: what must be looked up, and its hashes. */
typedef struct merge_parts {
    token_text left, right;
    uint64_t left_hash, right_hash;
} merge_parts;

/* "left right": the border is the first space behind the first byte, as a part may itself begin with one. */
static bool cut_merge(token_text merge, merge_parts *out) {
    if (merge.len < 3) return false;
    const char *border = memchr(merge.data + 1, ' ', merge.len - 1);
    if (!border || border + 1 == merge.data + merge.len) return false;
    out->left = (token_text){merge.data, (size_t)(border - merge.data)};
    out->right = (token_text){border + 1, merge.len - out->left.len - 1};
    return true;
}

/* The look-ups of a merge are asked for some merges before they are needed: they are at random, and waiting
 * for each in turn takes most of the time of making a tokenizer. */
static status prepare_merge(const tokenizer *t, size_t i, token_text merge, merge_parts *out, error *err) {
    if (!cut_merge(merge, out)) {
        return error_set(err, CHURON_CORRUPT,
                         "tokenizer: merge %zu: expected two tokens and a space, got \"%.*s\"", i,
                         SHOWN(merge));
    }
    out->left_hash = text_hash(out->left.data, out->left.len);
    out->right_hash = text_hash(out->right.data, out->right.len);
    vocab_prefetch(t, out->left_hash);
    vocab_prefetch(t, out->right_hash);
    return CHURON_OK;
}

static bool is_joined(const tokenizer *t, int32_t id, const merge_parts *m) {
    if (id < 0 || (size_t)id >= t->n_tokens) return false;
    token_text text = token_text_at(t->text, t->text_at, id);
    return text.len == m->left.len + m->right.len && memcmp(text.data, m->left.data, m->left.len) == 0 &&
           memcmp(text.data + m->left.len, m->right.data, m->right.len) == 0;
}

/* The token that the two parts make. Tokens are mostly numbered in the order of their merges. */
static status find_joined(const tokenizer *t, const merge_parts *m, int32_t last, str *joined, int32_t *id,
                          error *err) {
    *id = is_joined(t, last + 1, m) ? last + 1 : last;
    if (*id > last || is_joined(t, last, m)) return CHURON_OK;
    str_clear(joined);
    str_add(joined, m->left.data, m->left.len);
    str_add(joined, m->right.data, m->right.len);
    TRY(str_check(joined, err));
    *id = tokenizer_find(t, joined->data, joined->len);
    return CHURON_OK;
}

/* Control tokens come from prompts, never out of plain text. */
static bool may_be_merged(const tokenizer *t, int32_t id) {
    return t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_UNKNOWN && t->types[id] != TOKEN_BYTE;
}

/* A merge that names a text without a token would silently change what later merges see, so it is refused, as
 * is a pair listed twice: readers disagree on which of the two ranks counts. */
static status add_merge(tokenizer *t, size_t i, token_text merge, const merge_parts *parts, int32_t id,
                        error *err) {
    int32_t left = vocab_find(t, parts->left.data, parts->left.len, parts->left_hash);
    int32_t right = vocab_find(t, parts->right.data, parts->right.len, parts->right_hash);
    if (left < 0 || right < 0 || id < 0) {
        token_text missing = left < 0 ? parts->left : parts->right;
        if (left >= 0 && right >= 0) {
            return error_set(err, CHURON_CORRUPT,
                             "tokenizer: merge %zu \"%.*s\": expected a token of the two together, got none",
                             i, SHOWN(merge));
        }
        return error_set(err, CHURON_CORRUPT,
                         "tokenizer: merge %zu \"%.*s\": expected a token \"%.*s\", got none", i,
                         SHOWN(merge), SHOWN(missing));
    }
    if (!may_be_merged(t, left) || !may_be_merged(t, right) || !may_be_merged(t, id)) {
        return error_set(err, CHURON_CORRUPT,
                         "tokenizer: merge %zu \"%.*s\": expected ordinary tokens, got a control token", i,
                         SHOWN(merge));
    }
    if (!bpe_merges_add(&t->merges, left, right, (uint32_t)i, id)) {
        return error_set(err, CHURON_CORRUPT, "tokenizer: merge %zu: expected a new pair, got \"%.*s\" again",
                         i, SHOWN(merge));
    }
    return CHURON_OK;
}

static status add_merges(tokenizer *t, const tokenizer_spec *spec, str *joined, error *err) {
    enum { AHEAD = 16 };
    merge_parts parts[AHEAD];
    int32_t last = -1;
    for (size_t i = 0; i < spec->n_merges + AHEAD; i++) {
        if (i >= AHEAD) {
            const merge_parts *p = &parts[i % AHEAD];
            TRY(find_joined(t, p, last, joined, &last, err));
            TRY(add_merge(t, i - AHEAD, spec->merges[i - AHEAD], p, last, err));
        }
        if (i < spec->n_merges) TRY(prepare_merge(t, i, spec->merges[i], &parts[i % AHEAD], err));
    }
    return CHURON_OK;
}

status build_byte_level(tokenizer *t, const tokenizer_spec *spec, error *err) {
    TRY(find_byte_symbols(t, err));
    if (spec->n_merges == 0 || spec->n_merges >= BPE_NO_RANK) {
        return error_set(err, CHURON_CORRUPT, "tokenizer: merges: expected 1 to %u, got %zu", BPE_NO_RANK - 1,
                         spec->n_merges);
    }
    TRY(bpe_merges_init(&t->merges, spec->n_merges, err));
    str joined = {0};
    status st = add_merges(t, spec, &joined, err);
    str_free(&joined);
    return st;
}

/* ---- by score --------------------------------------------------------------------------------------- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

typedef struct pair {
    int32_t left, right, id;
} pair;

typedef struct pair_list {
    pair *items;
    size_t len, cap;
} pair_list;

static int by_score_then_id(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_parts(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

static status pair_list_add(pair_list *l, pair p, error *err) {
    if (l->len == l->cap) {
        size_t cap = l->cap + l->cap / 2 + 1024, bytes;
        pair *grown = size_mul(cap, sizeof *l->items, &bytes) ? mem_realloc(l->items, bytes) : NULL;
        if (!grown) return error_no_memory(err, "merges", cap * sizeof *l->items);
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->len++] = p;
    return CHURON_OK;
}

static int32_t find_normal(const tokenizer *t, const char *text, size_t len) {
    int32_t id = tokenizer_find(t, text, len);
    return id >= 0 && t->types[id] == TOKEN_NORMAL ? id : -1;
}

static size_t char_len(const char *p, const char *end) {
    size_t n = utf8_decode(p, end, NULL);
    return n ? n : 1;
}

/* All cuts of a token into two, in the order in which the `tokenizers` conversion lists them. */
static status add_cuts(const tokenizer *t, int32_t id, pair_list *pairs, error *err) {
    token_text text = token_text_at(t->text, t->text_at, id);
    const char *end = text.data + text.len;
    size_t first = pairs->len;
    for (const char *p = text.data + char_len(text.data, end); p < end; p += char_len(p, end)) {
        int32_t left = find_normal(t, text.data, (size_t)(p - text.data));
        if (left < 0) continue;
        int32_t right = find_normal(t, p, (size_t)(end - p));
        if (right >= 0) TRY(pair_list_add(pairs, (pair){left, right, id}, err));
    }
    if (pairs->len - first > 1)
        qsort(pairs->items + first, pairs->len - first, sizeof *pairs->items, by_parts);
    return CHURON_OK;
}

/* Whether U+2581 follows another character in the token. */
static bool has_inner_space(token_text text) {
    bool other = false;
    const char *p = text.data, *end = text.data + text.len;
    while (p < end) {
        bool space = end - p >= 3 && memcmp(p, SPACE_MARK, 3) == 0;
        if (space && other) return true;
        if (!space) other = true;
        p += space ? 3 : 1;
    }
    return false;
}

static status find_fallbacks(tokenizer *t, error *err) {
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (t->types[i] != TOKEN_BYTE) continue;
        if (t->bytes_at[i + 1] - t->bytes_at[i] != 1) {
            token_text text = token_text_at(t->text, t->text_at, (int32_t)i);
            return error_set(err, CHURON_CORRUPT,
                             "tokenizer: token %zu: expected a byte like <0x0A>, got \"%.*s\"", i,
                             SHOWN(text));
        }
        t->byte_ids[(unsigned char)t->bytes[t->bytes_at[i]]] = (int32_t)i;
    }
    for (unsigned b = 0; b < 256; b++) {
        if (t->byte_ids[b] < 0 && t->unk < 0) {
            return error_set(
                err, CHURON_CORRUPT,
                "tokenizer: tokens: expected one for byte <0x%02X> or an unknown token, got neither", b);
        }
    }
    for (unsigned c = 0; c < 128; c++) {
        char text = (char)c;
        t->ascii_ids[c] = c == ' ' ? find_normal(t, SPACE_MARK, 3) : find_normal(t, &text, 1);
    }
    if (t->ascii_ids[' '] < 0) {
        return error_set(err, CHURON_CORRUPT,
                         "tokenizer: tokens: expected one for the space \"" SPACE_MARK "\", got none");
    }
    return CHURON_OK;
}

static status order_by_score(const tokenizer *t, const float *scores, scored **order, size_t *n, error *err) {
    *order = mem_alloc(t->n_tokens * sizeof **order);
    if (!*order) return error_no_memory(err, "scores", t->n_tokens * sizeof **order);
    *n = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (isnan(scores[i]))
            return error_set(err, CHURON_CORRUPT, "tokenizer: score %zu: expected a number, got NaN", i);
        bool empty = t->text_at[i] == t->text_at[i + 1];
        if (t->types[i] == TOKEN_NORMAL && !empty) (*order)[(*n)++] = (scored){scores[i], (int32_t)i};
    }
    qsort(*order, *n, sizeof **order, by_score_then_id);
    return CHURON_OK;
}

status build_by_score(tokenizer *t, const tokenizer_spec *spec, error *err) {
    if (!spec->scores)
        return error_set(err, CHURON_CORRUPT, "tokenizer: scores: expected one for each token, got none");
    TRY(find_fallbacks(t, err));
    scored *order = NULL;
    size_t n = 0;
    pair_list pairs = {0};
    status st;
    TRY_GOTO(order_by_score(t, spec->scores, &order, &n, err));
    t->cut_at_spaces = true;
    for (size_t i = 0; i < n; i++) {
        TRY_GOTO(add_cuts(t, order[i].id, &pairs, err));
        if (has_inner_space(token_text_at(t->text, t->text_at, order[i].id))) t->cut_at_spaces = false;
    }
    TRY_GOTO(bpe_merges_init(&t->merges, pairs.len, err));
    for (size_t i = 0; i < pairs.len; i++) {
        pair p = pairs.items[i];
        (void)bpe_merges_add(&t->merges, p.left, p.right, (uint32_t)i, p.id); /* two parts make one text */
    }
    st = CHURON_OK;
cleanup:
    mem_free(order);
    mem_free(pairs.items);
    return st;
}
