/* tokenizer_decode.c: ids to bytes, and to whole characters as they come. See tokenizer.h. */
#include "text/tokenizer.h"

#include "text/tokenizer_parts.h"

/* The bytes of a token as part of a text; *at_start is whether nothing came before. "llama" texts were given
 * a space in front, which is taken away again. */
static token_text shown(const tokenizer *t, int32_t id, bool special, bool *at_start) {
    if (!special && tokenizer_is_control(t, id)) return (token_text){NULL, 0};
    token_text bytes = token_text_at(t->bytes, t->bytes_at, id);
    if (bytes.len == 0) return bytes;
    if (*at_start && t->add_space_prefix && bytes.data[0] == ' ') {
        bytes.data++;
        bytes.len--;
    }
    *at_start = false;
    return bytes;
}

status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, str *out,
                        error *err) {
    bool at_start = true;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= t->n_tokens) {
            return error_set(err, CHURON_INVALID, "ids[%zu]: expected 0 to %zu, got %d", i, t->n_tokens - 1,
                             (int)ids[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        token_text bytes = shown(t, ids[i], special, &at_start);
        str_add(out, bytes.data, bytes.len);
    }
    return str_check(out, err);
}

void detok_begin(detok_stream *d) {
    *d = (detok_stream){.at_start = true};
}

static size_t sequence_len(unsigned char lead) {
    return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

/* Whether c may follow the n pending bytes of an unfinished character. */
static bool continues(const char *pending, size_t n, unsigned char c) {
    unsigned char lead = (unsigned char)pending[0];
    unsigned char low = 0x80, high = 0xbf;
    if (n == 1) {
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    }
    return c >= low && c <= high;
}

static void put_replacement(str *out) {
    str_add(out, "\xef\xbf\xbd", 3);
}

static void push_byte(detok_stream *d, char byte, str *out) {
    unsigned char c = (unsigned char)byte;
    if (d->n_pending && !continues(d->pending, d->n_pending, c)) {
        put_replacement(out);
        d->n_pending = 0;
    }
    if (d->n_pending) {
        d->pending[d->n_pending++] = byte;
        if (d->n_pending == sequence_len((unsigned char)d->pending[0])) {
            str_add(out, d->pending, d->n_pending);
            d->n_pending = 0;
        }
    } else if (c < 0x80) {
        str_put(out, byte);
    } else if (c >= 0xc2 && c <= 0xf4) {
        d->pending[d->n_pending++] = byte;
    } else {
        put_replacement(out);
    }
}

void detok_push(const tokenizer *t, detok_stream *d, int32_t id, bool special, str *out) {
    if (id < 0 || (size_t)id >= t->n_tokens) return;
    token_text bytes = shown(t, id, special, &d->at_start);
    if (bytes.len == 0) return;
    if (d->n_pending == 0 && (t->flags[id] & TOKEN_FLAG_UTF8)) {
        str_add(out, bytes.data, bytes.len);
        return;
    }
    for (size_t i = 0; i < bytes.len; i++) push_byte(d, bytes.data[i], out);
}

void detok_end(detok_stream *d, str *out) {
    if (d->n_pending) put_replacement(out);
    d->n_pending = 0;
}
