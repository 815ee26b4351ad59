/* tokenizer_gguf.c: the tokenizer that a GGUF file's tokenizer.ggml.* keys describe.
 *
 * Where a key is absent the defaults are those with which such files are written: "llama" adds bos and a
 * space in front, "gpt2" does what its pre-tokenizer's family does. The end-of-generation set is eos, eot,
 * eom and the tokens known to end a turn by their text, as files name only one of them. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "text/split.h"

#include <string.h>

#define KEY(name) "tokenizer.ggml." name

typedef struct reading {
    const gguf *g;
    tokenizer_spec spec;
    token_text *tokens, *merges;
    float *scores;
    int32_t *types;
    int32_t *eog;
} reading;

static bool is_text(gguf_string s, const char *z) {
    return s.len == strlen(z) && memcmp(s.data, z, s.len) == 0;
}

/* ---- lists ------------------------------------------------------------------------------------------ */

static status read_texts(const gguf *g, const char *key, token_text **out, size_t *n, error *err) {
    const gguf_value *v;
    TRY(gguf_get_array(g, key, GGUF_STRING, &v, err));
    size_t bytes;
    if (!size_mul((size_t)v->count, sizeof **out, &bytes) || !(*out = mem_alloc(bytes))) {
        return error_no_memory(err, key, (size_t)v->count);
    }
    *n = (size_t)v->count;
    for (size_t i = 0; i < *n; i++) {
        gguf_string s = gguf_item_string(g, v, i);
        (*out)[i] = (token_text){s.data, s.len};
    }
    return CHURON_OK;
}

/* An array beside the tokens: absent, or one item for each. */
static status find_column(const reading *r, const char *key, gguf_type item, const gguf_value **out,
                          error *err) {
    *out = NULL;
    if (!gguf_find(r->g, key)) return CHURON_OK;
    TRY(gguf_get_array(r->g, key, item, out, err));
    if ((*out)->count == r->spec.n_tokens) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT, "key '%s': expected %zu items, one for each token, got %llu", key,
                     r->spec.n_tokens, (unsigned long long)(*out)->count);
}

static status read_types(reading *r, error *err) {
    const gguf_value *v;
    TRY(find_column(r, KEY("token_type"), GGUF_I32, &v, err));
    if (!v) return CHURON_OK;
    r->types = mem_alloc(r->spec.n_tokens * sizeof *r->types);
    if (!r->types) return error_no_memory(err, "token types", r->spec.n_tokens);
    for (size_t i = 0; i < r->spec.n_tokens; i++) r->types[i] = (int32_t)gguf_item_int(v, i);
    r->spec.types = r->types;
    return CHURON_OK;
}

static status read_scores(reading *r, error *err) {
    const gguf_value *v;
    TRY(find_column(r, KEY("scores"), GGUF_F32, &v, err));
    if (!v) return CHURON_OK;
    r->scores = mem_alloc(r->spec.n_tokens * sizeof *r->scores);
    if (!r->scores) return error_no_memory(err, "scores", r->spec.n_tokens);
    for (size_t i = 0; i < r->spec.n_tokens; i++) r->scores[i] = (float)gguf_item_float(v, i);
    r->spec.scores = r->scores;
    return CHURON_OK;
}

/* ---- ids -------------------------------------------------------------------------------------------- */

static status read_id(const reading *r, const char *key, int32_t fallback, int32_t *out, error *err) {
    *out = fallback;
    if (!gguf_find(r->g, key)) return CHURON_OK;
    uint32_t id;
    TRY(gguf_get_u32(r->g, key, &id, err));
    if (id >= r->spec.n_tokens) {
        /* -1 says "none" in files whose writer had no such token. */
        if (id == UINT32_MAX) {
            *out = -1;
            return CHURON_OK;
        }
        return error_set(err, CHURON_CORRUPT, "key '%s': expected an id below %zu tokens, got %lu", key,
                         r->spec.n_tokens, (unsigned long)id);
    }
    *out = (int32_t)id;
    return CHURON_OK;
}

/* Texts that end a turn. A `sure` one is never ordinary text: where a file has it as an ordinary token (early
 * conversions did), it is read as a control token, or prompts would never contain it. The others count only
 * where the file marks them as special. */
static const struct {
    const char *text;
    bool sure;
} turn_ends[] = {
    {"<|im_end|>", true},    {"<|eot_id|>", true},    {"<|eom_id|>", true},
    {"<|end|>", true},       {"<|endoftext|>", true}, {"<|end_of_text|>", true},
    {"<end_of_turn>", true}, {"<|return|>", false},   {"<|call|>", false},
    {"<|calls|>", false},    {"<|flush|>", false},    {"</s>", false},
    {"<eos>", false},        {"<EOT>", false},        {"_<EOT>", false},
    {"[EOT]", false},        {"[EOS]", false},        {"<end_of_utterance>", false},
    {"<turn|>", false},      {"[e~[", false},         {"<｜end▁of▁sentence｜>", false},
};

enum { N_TURN_ENDS = sizeof turn_ends / sizeof *turn_ends };

static int turn_end_of(token_text t) {
    if (t.len < 4 || (t.data[0] != '<' && t.data[0] != '[' && t.data[0] != '_')) return -1;
    for (int i = 0; i < N_TURN_ENDS; i++) {
        if (is_text((gguf_string){t.data, t.len}, turn_ends[i].text)) return i;
    }
    return -1;
}

static status set_control(reading *r, size_t id, error *err) {
    if (!r->types) {
        r->types = mem_alloc(r->spec.n_tokens * sizeof *r->types);
        if (!r->types) return error_no_memory(err, "token types", r->spec.n_tokens);
        for (size_t i = 0; i < r->spec.n_tokens; i++) r->types[i] = TOKEN_NORMAL;
        r->spec.types = r->types;
    }
    r->types[id] = TOKEN_CONTROL;
    return CHURON_OK;
}

/* Vocabularies with channels write <|end|> between the parts of one answer; <|return|> and <|call|> end it.
 */
static bool has_channels(const int32_t *ids) {
    bool calls = false, returns = false;
    for (int i = 0; i < N_TURN_ENDS; i++) {
        if (ids[i] < 0) continue;
        calls = calls || strcmp(turn_ends[i].text, "<|call|>") == 0 ||
                strcmp(turn_ends[i].text, "<|calls|>") == 0;
        returns = returns || strcmp(turn_ends[i].text, "<|return|>") == 0 ||
                  strcmp(turn_ends[i].text, "<|flush|>") == 0;
    }
    return calls && returns;
}

static status read_ends(reading *r, error *err) {
    int32_t found[N_TURN_ENDS];
    for (size_t i = 0; i < N_TURN_ENDS; i++) found[i] = -1;
    for (size_t i = 0; i < r->spec.n_tokens; i++) {
        int which = turn_end_of(r->tokens[i]);
        if (which < 0) continue;
        int32_t type = r->types ? r->types[i] : TOKEN_NORMAL;
        bool special = type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
        if (!special && !turn_ends[which].sure) continue;
        if (!special) TRY(set_control(r, i, err));
        found[which] = (int32_t)i;
    }
    r->eog = mem_alloc((N_TURN_ENDS + 2) * sizeof *r->eog);
    if (!r->eog) return error_no_memory(err, "end-of-generation ids", (N_TURN_ENDS + 2) * sizeof *r->eog);
    size_t n = 0;
    int32_t eot, eom;
    TRY(read_id(r, KEY("eot_token_id"), -1, &eot, err));
    TRY(read_id(r, KEY("eom_token_id"), -1, &eom, err));
    if (eot >= 0) r->eog[n++] = eot;
    if (eom >= 0) r->eog[n++] = eom;
    bool channels = has_channels(found);
    for (size_t i = 0; i < N_TURN_ENDS; i++) {
        if (found[i] >= 0 && !(channels && strcmp(turn_ends[i].text, "<|end|>") == 0)) r->eog[n++] = found[i];
    }
    r->spec.eog = r->eog;
    r->spec.n_eog = n;
    return CHURON_OK;
}

/* ---- all -------------------------------------------------------------------------------------------- */

static status read_spec(reading *r, error *err) {
    gguf_string model, pre;
    TRY(gguf_get_string_or_null(r->g, KEY("model"), &model, err));
    TRY(gguf_get_string_or_null(r->g, KEY("pre"), &pre, err));
    if (!model.data)
        return error_set(err, CHURON_CORRUPT, "key '%s': expected gpt2 or llama, got no key", KEY("model"));
    bool by_score = is_text(model, "llama");
    r->spec.model = model.data;
    r->spec.model_len = model.len;
    r->spec.pre = pre.data;
    r->spec.pre_len = pre.len;
    TRY(read_texts(r->g, KEY("tokens"), &r->tokens, &r->spec.n_tokens, err));
    r->spec.tokens = r->tokens;
    TRY(read_types(r, err));
    if (by_score) {
        TRY(read_scores(r, err));
    } else if (is_text(model, "gpt2")) {
        TRY(read_texts(r->g, KEY("merges"), &r->merges, &r->spec.n_merges, err));
        r->spec.merges = r->merges;
    }
    TRY(read_id(r, KEY("bos_token_id"), by_score && r->spec.n_tokens > 2 ? 1 : -1, &r->spec.bos, err));
    TRY(read_id(r, KEY("eos_token_id"), by_score && r->spec.n_tokens > 2 ? 2 : -1, &r->spec.eos, err));
    TRY(read_id(r, KEY("unknown_token_id"), by_score && r->spec.n_tokens > 2 ? 0 : -1, &r->spec.unk, err));
    TRY(read_id(r, KEY("padding_token_id"), -1, &r->spec.pad, err));
    const split_rule *rule = by_score || !pre.data ? NULL : split_rule_find(pre.data, pre.len);
    bool adds_bos = (by_score || (rule && rule->adds_bos)) && r->spec.bos >= 0;
    TRY(gguf_get_bool_or(r->g, KEY("add_bos_token"), adds_bos, &r->spec.add_bos, err));
    TRY(gguf_get_bool_or(r->g, KEY("add_eos_token"), false, &r->spec.add_eos, err));
    TRY(gguf_get_bool_or(r->g, KEY("add_space_prefix"), by_score, &r->spec.add_space_prefix, err));
    return read_ends(r, err);
}

status tokenizer_from_gguf(tokenizer **out, const gguf *g, error *err) {
    *out = NULL;
    reading r = {.g = g};
    status st = read_spec(&r, err);
    if (st == CHURON_OK) st = tokenizer_create(out, &r.spec, err);
    mem_free(r.tokens);
    mem_free(r.merges);
    mem_free(r.scores);
    mem_free(r.types);
    mem_free(r.eog);
    return st;
}
