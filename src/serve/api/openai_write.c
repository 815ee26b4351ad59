/* openai_write.c: see openai_write.h. */
#include "serve/api/openai_write.h"

#include "base/json_out.h"

#include <math.h>

/* OpenAI's forms have no infinities: what is impossible is written as -9999. */
static void write_logprob(str *out, float v) {
    if (!isfinite(v)) {
        str_cat(out, "-9999.0");
        return;
    }
    json_out j = json_out_begin(out);
    json_out_float(&j, NULL, v);
}

static void write_entry_fields(str *out, const tokenizer *t, int32_t id, float logprob) {
    const token_text text = tokenizer_bytes(t, id);
    str_cat(out, "{\"token\":");
    str_json(out, text.data, text.len);
    str_cat(out, ",\"logprob\":");
    write_logprob(out, logprob);
    str_cat(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.len; i++) {
        str_fmt(out, i ? ",%u" : "%u", (unsigned)(unsigned char)text.data[i]);
    }
    str_put(out, ']');
}

static void add_chat(logprob_writer *w, const tokenizer *t, const sampled *token) {
    str *out = &w->entries;
    if (w->n) str_put(out, ',');
    write_entry_fields(out, t, token->id, token->logprob);
    str_cat(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < token->n_top; i++) {
        if (i) str_put(out, ',');
        write_entry_fields(out, t, token->top[i].id, token->top[i].logprob);
        str_put(out, '}');
    }
    str_cat(out, "]}");
}

/* The legacy form names tokens by their text alone: bytes that are no text become "bytes:\xNN…", so that two
 * tokens never share a name. */
static void write_token_name(str *out, const tokenizer *t, int32_t id) {
    const token_text text = tokenizer_bytes(t, id);
    if (utf8_validate(text.data, text.len) == text.len) {
        str_json(out, text.data, text.len);
        return;
    }
    str_cat(out, "\"bytes:");
    for (size_t i = 0; i < text.len; i++) str_fmt(out, "\\\\x%02x", (unsigned)(unsigned char)text.data[i]);
    str_put(out, '"');
}

static void add_legacy(logprob_writer *w, const tokenizer *t, const sampled *token) {
    if (w->n) {
        str_put(&w->entries, ',');
        str_put(&w->values, ',');
        str_put(&w->tops, ',');
        str_put(&w->offsets, ',');
    }
    write_token_name(&w->entries, t, token->id);
    write_logprob(&w->values, token->logprob);
    str_put(&w->tops, '{');
    for (size_t i = 0; i < token->n_top; i++) {
        if (i) str_put(&w->tops, ',');
        write_token_name(&w->tops, t, token->top[i].id);
        str_put(&w->tops, ':');
        write_logprob(&w->tops, token->top[i].logprob);
    }
    str_put(&w->tops, '}');
    str_fmt(&w->offsets, "%zu", w->offset);
    const token_text text = tokenizer_bytes(t, token->id);
    for (size_t i = 0; i < text.len; i++) w->offset += ((unsigned char)text.data[i] & 0xc0) != 0x80;
}

void logprob_writer_add(logprob_writer *w, const tokenizer *t, const sampled *token) {
    if (w->chat) {
        add_chat(w, t, token);
    } else {
        add_legacy(w, t, token);
    }
    w->n++;
}

void logprob_writer_take(logprob_writer *w, str *out) {
    if (w->chat) {
        str_cat(out, "{\"content\":[");
        str_cat(out, str_cstr(&w->entries));
        str_cat(out, "],\"refusal\":null}");
    } else {
        str_fmt(out, "{\"text_offset\":[%s],\"token_logprobs\":[%s],\"tokens\":[", str_cstr(&w->offsets),
                str_cstr(&w->values));
        str_cat(out, str_cstr(&w->entries));
        str_cat(out, "],\"top_logprobs\":[");
        str_cat(out, str_cstr(&w->tops));
        str_cat(out, "]}");
    }
    str_clear(&w->entries);
    str_clear(&w->values);
    str_clear(&w->tops);
    str_clear(&w->offsets);
    w->n = 0;
}

bool logprob_writer_failed(const logprob_writer *w) {
    return w->entries.failed || w->values.failed || w->tops.failed || w->offsets.failed;
}

void logprob_writer_free(logprob_writer *w) {
    str_free(&w->entries);
    str_free(&w->values);
    str_free(&w->tops);
    str_free(&w->offsets);
}

void openai_write_usage(str *out, const openai_usage *u) {
    str_fmt(out,
            "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
            "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
            u->prompt, u->completion, u->prompt + u->completion, u->cached);
}
