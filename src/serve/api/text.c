/* text.c: /tokenize and /detokenize. Both forms in use are understood: {"prompt"} or {"messages"} (vLLM), and
 * {"content"} (llama-server). */
#include "serve/api/openai_request.h"
#include "serve/json_in.h"
#include "serve/server_internal.h"

#include "base/json_out.h"
#include "base/mem.h"

#include <string.h>

typedef struct text_request {
    bool add_special, parse_special, pieces;
    const char *text;
    size_t len;
    bool chat;
} text_request;

static status only_fields(json_t *root, const char *const *known, error *err) {
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i]) {
            return error_set(err, CHURON_UNSUPPORTED, "%.80s: not a field of this endpoint; leave it out",
                             key);
        }
    }
    return CHURON_OK;
}

static status body_object(const server *s, http_exchange *x, const char *const *known, json_doc *doc,
                          error *err) {
    size_t len;
    const char *body = http_request_body(x, &len);
    TRY(json_in_parse(doc, body, len, NULL, err));
    const char *model = NULL;
    TRY(only_fields(doc->root, known, err));
    TRY(json_in_string(doc->root, "", "model", &model, NULL, err));
    return server_check_model(s, model, err);
}

static status read_tokenize(text_request *r, json_t *root, error *err) {
    const bool prompt = json_in_member(root, "prompt"), content = json_in_member(root, "content");
    r->chat = json_in_member(root, "messages") != NULL;
    if ((int)prompt + (int)content + (int)r->chat != 1) {
        return error_set(err, CHURON_INVALID, "prompt: expected one of prompt, content and messages");
    }
    /* Each form has its own default; either server's names do. */
    r->add_special = prompt;
    r->parse_special = true;
    TRY(json_in_bool(root, "", "add_special", &r->add_special, err));
    TRY(json_in_bool(root, "", "add_special_tokens", &r->add_special, err));
    TRY(json_in_bool(root, "", "parse_special", &r->parse_special, err));
    TRY(json_in_bool(root, "", "with_pieces", &r->pieces, err));
    TRY(json_in_bool(root, "", "return_token_strs", &r->pieces, err));
    if (r->chat) return CHURON_OK;
    return json_in_string(root, "", prompt ? "prompt" : "content", &r->text, &r->len, err);
}

static status chat_ids(server *s, const json_t *root, token_list *ids, error *err) {
    openai_request r = {.kind = OPENAI_CHAT, .add_generation_prompt = true};
    str text = {0};
    status st = json_in_bool(root, "", "add_generation_prompt", &r.add_generation_prompt, err);
    if (st == CHURON_OK) st = openai_request_messages(&r, json_in_member(root, "messages"), err);
    if (st == CHURON_OK) {
        st = lm_bundle_chat_prompt(s->bundle, r.messages, r.n_messages, r.add_generation_prompt, &text, err);
    }
    if (st == CHURON_OK) st = str_check(&text, err);
    if (st == CHURON_OK) st = server_tokenize_prompt(s, str_cstr(&text), text.len, "messages", ids, err);
    str_free(&text);
    openai_request_free(&r);
    return st;
}

static void write_tokens(const server *s, const text_request *r, const token_list *ids, bool as_objects,
                         str *out) {
    const tokenizer *t = lm_bundle_tokenizer(s->bundle);
    str_fmt(out, "{\"count\":%zu,\"max_model_len\":%zu,\"tokens\":[", ids->len, s->capacity);
    for (size_t i = 0; i < ids->len; i++) {
        if (i) str_put(out, ',');
        str_fmt(out, as_objects ? "{\"id\":%d,\"piece\":" : "%d", (int)ids->ids[i]);
        if (!as_objects) continue;
        const token_text text = tokenizer_bytes(t, ids->ids[i]);
        str_json(out, text.data, text.len);
        str_put(out, '}');
    }
    str_cat(out, "],\"token_strs\":");
    if (r->pieces && !as_objects) {
        str_put(out, '[');
        for (size_t i = 0; i < ids->len; i++) {
            const token_text piece = tokenizer_piece(t, ids->ids[i]);
            if (i) str_put(out, ',');
            str_json(out, piece.data, piece.len);
        }
        str_cat(out, "]}");
    } else {
        str_cat(out, "null}");
    }
}

void text_tokenize(server *s, http_exchange *x) {
    static const char *const known[] = {"model",
                                        "prompt",
                                        "content",
                                        "messages",
                                        "add_special",
                                        "add_special_tokens",
                                        "parse_special",
                                        "with_pieces",
                                        "return_token_strs",
                                        "add_generation_prompt",
                                        NULL};
    error err = {0};
    json_doc doc = {0};
    token_list ids = {0};
    text_request r = {0};
    status st = body_object(s, x, known, &doc, &err);
    if (st == CHURON_OK) st = read_tokenize(&r, doc.root, &err);
    if (st == CHURON_OK && r.chat) {
        st = chat_ids(s, doc.root, &ids, &err);
    } else if (st == CHURON_OK) {
        const tokenize_options o = {.add_special = r.add_special, .parse_special = r.parse_special};
        st = tokenizer_encode(lm_bundle_tokenizer(s->bundle), r.text, r.len, o, &ids, &err);
    }
    if (st == CHURON_OK) {
        str out = {0};
        write_tokens(s, &r, &ids, r.pieces && json_in_member(doc.root, "content") != NULL, &out);
        server_reply_json(s, x, &out);
        str_free(&out);
    } else {
        server_reply_error(s, x, &err);
    }
    token_list_free(&ids);
    json_in_free(&doc);
}

static status read_ids(const server *s, const json_t *root, token_list *ids, error *err) {
    const json_t *list = json_in_member(root, "tokens");
    if (!json_is_array(list)) {
        return error_set(err, CHURON_INVALID, "tokens: expected a list of token ids, got %s",
                         json_in_type(list));
    }
    const size_t n_vocab = tokenizer_n_tokens(lm_bundle_tokenizer(s->bundle));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v)) {
            return error_set(err, CHURON_INVALID, "tokens[%zu]: expected a token id, got %s", i,
                             json_in_type(v));
        }
        if (id < 0 || (uint64_t)id >= n_vocab) {
            return error_set(err, CHURON_INVALID, "tokens[%zu]: expected a token id from 0 to %zu, got %lld",
                             i, n_vocab - 1, (long long)id);
        }
        TRY(token_list_add(ids, (int32_t)id, err));
    }
    return CHURON_OK;
}

void text_detokenize(server *s, http_exchange *x) {
    static const char *const known[] = {"model", "tokens", "special", NULL};
    error err = {0};
    json_doc doc = {0};
    token_list ids = {0};
    str text = {0};
    bool special = true;
    status st = body_object(s, x, known, &doc, &err);
    if (st == CHURON_OK) st = json_in_bool(doc.root, "", "special", &special, &err);
    if (st == CHURON_OK) st = read_ids(s, doc.root, &ids, &err);
    if (st == CHURON_OK) {
        st = tokenizer_decode(lm_bundle_tokenizer(s->bundle), ids.ids, ids.len, special, &text, &err);
    }
    if (st == CHURON_OK) {
        str out = {0};
        str_cat(&out, "{\"prompt\":");
        str_json(&out, str_cstr(&text), text.len);
        str_cat(&out, ",\"content\":");
        str_json(&out, str_cstr(&text), text.len);
        str_put(&out, '}');
        out.failed = out.failed || text.failed;
        server_reply_json(s, x, &out);
        str_free(&out);
    } else {
        server_reply_error(s, x, &err);
    }
    str_free(&text);
    token_list_free(&ids);
    json_in_free(&doc);
}
