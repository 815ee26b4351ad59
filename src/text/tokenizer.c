/* tokenizer.c: making a tokenizer out of a checked description; its accessors. See tokenizer.h. */
#include "text/tokenizer.h"

#include "base/mem.h"
#include "text/tokenizer_build.h"
#include "text/tokenizer_parts.h"

/* Byte -> alphabet: the bytes that are no printable Latin-1 character are numbered from U+0100 on. */
static bool maps_to_itself(unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

uint32_t byte_to_mapped(uint8_t b) {
    if (maps_to_itself(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    return b == 0xad ? 0x143u : 0x121u + (b - 0x7fu);
}

int mapped_to_byte(uint32_t cp) {
    if (cp < 0x100) return maps_to_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

/* ---- vocabulary ------------------------------------------------------------------------------------- */

static vocab_slot *slot_of(const tokenizer *t, const char *text, size_t len, uint64_t full_hash) {
    uint32_t hash = (uint32_t)full_hash;
    for (size_t i = full_hash & t->slots_mask;; i = (i + 1) & t->slots_mask) {
        vocab_slot *s = &t->slots[i];
        if (s->id_plus_one == 0) return s;
        if (s->hash != hash) continue;
        token_text known = token_text_at(t->text, t->text_at, s->id_plus_one - 1);
        if (known.len == len && memcmp(known.data, text, len) == 0) return s;
    }
}

int32_t vocab_find(const tokenizer *t, const char *text, size_t len, uint64_t hash) {
    return slot_of(t, text, len, hash)->id_plus_one - 1;
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t len) {
    return len ? vocab_find(t, text, len, text_hash(text, len)) : -1;
}

/* Shows a token in an error line: cut, and safe to print with %.*s. */
#define SHOWN(text) (int)((text).len < 40 ? (text).len : 40), (text).data ? (text).data : ""

static status check_ids(const tokenizer_spec *spec, error *err) {
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", spec->bos}, {"eos", spec->eos}, {"unk", spec->unk}, {"pad", spec->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (ids[i].id < -1 || (ids[i].id >= 0 && (size_t)ids[i].id >= spec->n_tokens)) {
            return error_set(err, CHURON_CORRUPT, "tokenizer: %s id: expected below %zu tokens, got %d",
                             ids[i].name, spec->n_tokens, (int)ids[i].id);
        }
    }
    for (size_t i = 0; i < spec->n_eog; i++) {
        if (spec->eog[i] < 0 || (size_t)spec->eog[i] >= spec->n_tokens) {
            return error_set(err, CHURON_CORRUPT,
                             "tokenizer: end-of-generation id: expected below %zu tokens, got %d",
                             spec->n_tokens, (int)spec->eog[i]);
        }
    }
    if (spec->add_bos && spec->bos < 0) {
        return error_set(err, CHURON_CORRUPT, "tokenizer: add_bos is set, expected a bos token, got none");
    }
    if (spec->add_eos && spec->eos < 0) {
        return error_set(err, CHURON_CORRUPT, "tokenizer: add_eos is set, expected an eos token, got none");
    }
    return CHURON_OK;
}

static status copy_texts(tokenizer *t, const tokenizer_spec *spec, error *err) {
    size_t total = 0;
    for (size_t i = 0; i < spec->n_tokens; i++) {
        if (!size_add(total, spec->tokens[i].len, &total) || total >= UINT32_MAX) {
            return error_set(err, CHURON_LIMIT, "tokenizer: tokens: expected under 4 GB of text");
        }
        if (spec->tokens[i].len > t->longest) t->longest = spec->tokens[i].len;
    }
    t->text = mem_alloc(total);
    t->text_at = mem_alloc((t->n_tokens + 1) * sizeof *t->text_at);
    t->types = mem_alloc(t->n_tokens);
    t->flags = mem_calloc(t->n_tokens, 1);
    if (!t->text || !t->text_at || !t->types || !t->flags) return error_no_memory(err, "tokens", total);
    uint32_t at = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        t->text_at[i] = at;
        if (spec->tokens[i].len) memcpy(t->text + at, spec->tokens[i].data, spec->tokens[i].len);
        at += (uint32_t)spec->tokens[i].len;
        int32_t type = spec->types ? spec->types[i] : TOKEN_NORMAL;
        if (type == 0) type = TOKEN_NORMAL; /* "undefined" in files; their own reader takes it as ordinary */
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE) {
            return error_set(err, CHURON_CORRUPT, "tokenizer: token %zu: type: expected 1 to 6, got %d", i,
                             (int)type);
        }
        t->types[i] = (uint8_t)type;
    }
    t->text_at[t->n_tokens] = at;
    return CHURON_OK;
}

enum { AHEAD = 16 }; /* how many tokens ahead memory is asked for */

/* Empty tokens (padding in some files) are tolerated: no text can ever give one. */
static status index_texts(tokenizer *t, error *err) {
    size_t slots = 16;
    while (slots / 2 < t->n_tokens) slots *= 2;
    t->slots = mem_calloc(slots, sizeof *t->slots);
    if (!t->slots) return error_no_memory(err, "vocabulary", slots * sizeof *t->slots);
    t->slots_mask = slots - 1;
    uint64_t hashes[AHEAD];
    for (size_t i = 0; i < t->n_tokens + AHEAD; i++) {
        size_t old = i - AHEAD;
        if (i >= AHEAD) {
            token_text text = token_text_at(t->text, t->text_at, (int32_t)old);
            vocab_slot *s = text.len ? slot_of(t, text.data, text.len, hashes[old % AHEAD]) : NULL;
            if (s && s->id_plus_one) {
                return error_set(err, CHURON_CORRUPT,
                                 "tokenizer: token %zu: expected a new text, got \"%.*s\" again (token %d)",
                                 old, SHOWN(text), (int)s->id_plus_one - 1);
            }
            if (s) *s = (vocab_slot){(uint32_t)hashes[old % AHEAD], (int32_t)old + 1};
        }
        if (i < t->n_tokens) {
            token_text text = token_text_at(t->text, t->text_at, (int32_t)i);
            hashes[i % AHEAD] = text_hash(text.data, text.len);
            vocab_prefetch(t, hashes[i % AHEAD]);
        }
    }
    return CHURON_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------ */

/* Appends what a byte-level token stands for. Some vocabularies hold texts outside the alphabet (added by
 * hand without their mark); they stand for themselves. */
static void append_mapped(str *to, token_text text) {
    size_t begin = to->len;
    const char *p = text.data, *end = text.data + text.len;
    while (p < end) {
        uint32_t cp = 0;
        size_t n = utf8_decode(p, end, &cp);
        int b = n ? mapped_to_byte(cp) : -1;
        if (b < 0) {
            to->len = begin;
            str_add(to, text.data, text.len);
            return;
        }
        str_put(to, (char)b);
        p += n;
    }
}

static void append_unmarked(str *to, token_text text) {
    const char *p = text.data, *end = text.data + text.len;
    while (p < end) {
        if (end - p >= 3 && memcmp(p, SPACE_MARK, 3) == 0) {
            str_put(to, ' ');
            p += 3;
        } else {
            str_put(to, *p++);
        }
    }
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" -> 10, else -1. */
static int fallback_byte(token_text text) {
    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int high = hex_value(text.data[3]), low = hex_value(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static status decode_texts(tokenizer *t, error *err) {
    str all = {0};
    (void)str_reserve(&all, t->text_at[t->n_tokens]); /* nothing decodes to more than its text */
    t->bytes_at = mem_alloc((t->n_tokens + 1) * sizeof *t->bytes_at);
    if (!t->bytes_at) {
        str_free(&all);
        return error_no_memory(err, "tokens", t->n_tokens * sizeof *t->bytes_at);
    }
    for (size_t i = 0; i < t->n_tokens; i++) {
        token_text text = token_text_at(t->text, t->text_at, (int32_t)i);
        size_t begin = all.len;
        t->bytes_at[i] = (uint32_t)begin;
        int b;
        if (t->types[i] == TOKEN_BYTE && !t->rule && (b = fallback_byte(text)) >= 0) {
            str_put(&all, (char)b);
        } else if (t->types[i] != TOKEN_NORMAL && t->types[i] != TOKEN_UNUSED) {
            str_add(&all, text.data, text.len);
        } else if (t->rule) {
            append_mapped(&all, text);
        } else {
            append_unmarked(&all, text);
        }
        if (!all.failed && utf8_validate(all.data + begin, all.len - begin) == all.len - begin) {
            t->flags[i] |= TOKEN_FLAG_UTF8;
        }
    }
    t->bytes_at[t->n_tokens] = (uint32_t)all.len;
    t->bytes = all.data; /* mem_free frees it: a str is one block */
    return str_check(&all, err);
}

/* ---- special tokens --------------------------------------------------------------------------------- */

static status index_special(tokenizer *t, error *err) {
    size_t bytes = 0;
    for (size_t pass = 0; pass < 2; pass++) {
        if (pass == 1) TRY(special_set_init(&t->special, bytes, err));
        for (size_t i = 0; i < t->n_tokens; i++) {
            bool control = t->types[i] == TOKEN_CONTROL || t->types[i] == TOKEN_UNKNOWN;
            if (!control && t->types[i] != TOKEN_USER_DEFINED) continue;
            token_text text = token_text_at(t->text, t->text_at, (int32_t)i);
            if (pass == 0) {
                bytes += text.len;
            } else if (text.len) {
                special_set_add(&t->special, text.data, text.len, (int32_t)i, control);
            }
        }
    }
    return CHURON_OK;
}

/* ---- create ----------------------------------------------------------------------------------------- */

static bool is_model(const tokenizer_spec *spec, const char *name) {
    return spec->model && spec->model_len == strlen(name) && memcmp(spec->model, name, spec->model_len) == 0;
}

static status choose_model(tokenizer *t, const tokenizer_spec *spec, error *err) {
    if (is_model(spec, "llama")) return CHURON_OK;
    token_text model = {spec->model, spec->model ? spec->model_len : 0};
    if (!is_model(spec, "gpt2")) {
        return error_set(err, CHURON_UNSUPPORTED, "tokenizer: model: expected gpt2 or llama, got \"%.*s\"",
                         SHOWN(model));
    }
    token_text pre = {spec->pre ? spec->pre : "default", spec->pre ? spec->pre_len : 7};
    t->rule = split_rule_find(pre.data, pre.len);
    if (t->rule) return CHURON_OK;
    return error_set(err, CHURON_UNSUPPORTED, "tokenizer: pre-tokenizer \"%.*s\": expected one of %s",
                     SHOWN(pre), split_rule_names());
}

static status build(tokenizer *t, const tokenizer_spec *spec, error *err) {
    TRY(choose_model(t, spec, err));
    if (spec->n_tokens == 0 || spec->n_tokens > INT32_MAX) {
        return error_set(err, CHURON_CORRUPT, "tokenizer: tokens: expected 1 to %d, got %zu", INT32_MAX,
                         spec->n_tokens);
    }
    TRY(check_ids(spec, err));
    t->n_tokens = spec->n_tokens;
    t->bos = spec->bos;
    t->eos = spec->eos;
    t->unk = spec->unk;
    t->pad = spec->pad;
    t->add_bos = spec->add_bos;
    t->add_eos = spec->add_eos;
    t->add_space_prefix = !t->rule && spec->add_space_prefix;
    t->ignore_merges = t->rule && (spec->ignore_merges || t->rule->ignore_merges);
    TRY(copy_texts(t, spec, err));
    TRY(index_texts(t, err));
    TRY(decode_texts(t, err));
    if (t->eos >= 0) t->flags[t->eos] |= TOKEN_FLAG_EOG;
    for (size_t i = 0; i < spec->n_eog; i++) t->flags[spec->eog[i]] |= TOKEN_FLAG_EOG;
    TRY(index_special(t, err));
    return t->rule ? build_byte_level(t, spec, err) : build_by_score(t, spec, err);
}

status tokenizer_create(tokenizer **out, const tokenizer_spec *spec, error *err) {
    *out = NULL;
    tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t) return error_no_memory(err, "tokenizer", sizeof *t);
    for (size_t i = 0; i < 256; i++) t->byte_ids[i] = -1;
    for (size_t i = 0; i < 128; i++) t->ascii_ids[i] = -1;
    status st = build(t, spec, err);
    if (st != CHURON_OK) {
        tokenizer_free(t);
        return st;
    }
    *out = t;
    return CHURON_OK;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    mem_free(t->text);
    mem_free(t->bytes);
    mem_free(t->text_at);
    mem_free(t->bytes_at);
    mem_free(t->types);
    mem_free(t->flags);
    mem_free(t->slots);
    bpe_merges_free(&t->merges);
    special_set_free(&t->special);
    mem_free(t);
}

/* ---- accessors -------------------------------------------------------------------------------------- */

size_t tokenizer_n_tokens(const tokenizer *t) {
    return t->n_tokens;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

bool tokenizer_adds_bos(const tokenizer *t) {
    return t->add_bos;
}

const char *tokenizer_pre(const tokenizer *t) {
    return t->rule ? t->rule->name : "default";
}

const char *tokenizer_model(const tokenizer *t) {
    return t->rule ? "gpt2" : "llama";
}

static bool in_range(const tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->n_tokens;
}

bool tokenizer_is_eog(const tokenizer *t, int32_t id) {
    return in_range(t, id) && (t->flags[id] & TOKEN_FLAG_EOG);
}

bool tokenizer_is_control(const tokenizer *t, int32_t id) {
    return in_range(t, id) && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN);
}

token_text tokenizer_bytes(const tokenizer *t, int32_t id) {
    return in_range(t, id) ? token_text_at(t->bytes, t->bytes_at, id) : (token_text){NULL, 0};
}

token_text tokenizer_piece(const tokenizer *t, int32_t id) {
    return in_range(t, id) ? token_text_at(t->text, t->text_at, id) : (token_text){NULL, 0};
}

/* ---- lists ------------------------------------------------------------------------------------------ */

void token_list_free(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

status token_list_append(token_list *l, const int32_t *ids, size_t n, error *err) {
    if (n > l->cap - l->len) {
        size_t cap = l->cap + l->cap / 2 + n + 16, bytes;
        int32_t *grown = size_mul(cap, sizeof *l->ids, &bytes) ? mem_realloc(l->ids, bytes) : NULL;
        if (!grown) return error_no_memory(err, "tokens", cap * sizeof *l->ids);
        l->ids = grown;
        l->cap = cap;
    }
    if (n) memcpy(l->ids + l->len, ids, n * sizeof *ids);
    l->len += n;
    return CHURON_OK;
}

status token_list_add(token_list *l, int32_t id, error *err) {
    return token_list_append(l, &id, 1, err);
}
