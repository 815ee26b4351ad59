/* tokenize.c: many texts through one tokenizer, for the comparisons with other libraries.
 *
 * tokenize FILE.gguf [special] [parse]: reads texts from stdin, each a little-endian u32 length and its
 * bytes, and writes for each a u32 count and the ids. With "decode" it reads lists of ids and writes texts;
 * with "stream" the same through the streaming detokenizer. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what) {
    (void)fprintf(stderr, "tokenize: %s\n", what);
    return 1;
}

static bool read_block(char **data, size_t *cap, uint32_t *n) {
    if (fread(n, sizeof *n, 1, stdin) != 1) return false;
    if (!*data || *n > *cap) {
        mem_free(*data);
        *data = mem_alloc(*n);
        *cap = *n;
    }
    return *data && (*n == 0 || fread(*data, *n, 1, stdin) == 1);
}

static bool write_block(const void *data, size_t items, size_t size) {
    uint32_t n = (uint32_t)items;
    return fwrite(&n, sizeof n, 1, stdout) == 1 && (items == 0 || fwrite(data, size, items, stdout) == items);
}

static status to_text(const tokenizer *t, const char *data, size_t n, bool stream, bool special, str *text,
                      error *err) {
    const int32_t *ids = (const int32_t *)(const void *)data;
    str_clear(text);
    if (!stream) return tokenizer_decode(t, ids, n / 4, special, text, err);
    detok_stream d;
    detok_begin(&d);
    for (size_t i = 0; i < n / 4; i++) {
        size_t before = text->len;
        detok_push(t, &d, ids[i], special, text);
        if (text->len > before &&
            utf8_validate(text->data + before, text->len - before) != text->len - before) {
            return error_set(err, CHURON_INTERNAL, "half a character came out at token %zu", i);
        }
    }
    detok_end(&d, text);
    return str_check(text, err);
}

int main(int argc, char **argv) {
    bool decode = false, stream = false;
    tokenize_options o = {0};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "special") == 0) o.add_special = true;
        if (strcmp(argv[i], "parse") == 0) o.parse_special = true;
        if (strcmp(argv[i], "decode") == 0) decode = true;
        if (strcmp(argv[i], "stream") == 0) decode = stream = true;
    }
    error err;
    gguf *g;
    tokenizer *t;
    if (argc < 2) return fail("FILE.gguf [special] [parse] [decode|stream]");
    if (gguf_open(&g, argv[1], &err) != CHURON_OK) return fail(err.message);
    if (tokenizer_from_gguf(&t, g, &err) != CHURON_OK) return fail(err.message);
    char *data = NULL;
    size_t cap = 0;
    uint32_t n;
    token_list ids = {0};
    str text = {0};
    while (read_block(&data, &cap, &n)) {
        status st;
        ids.len = 0;
        if (decode) {
            st = to_text(t, data, n, stream, o.add_special, &text, &err);
        } else {
            st = tokenizer_encode(t, data, n, o, &ids, &err);
        }
        if (st != CHURON_OK) return fail(err.message);
        if (decode ? !write_block(str_cstr(&text), text.len, 1) : !write_block(ids.ids, ids.len, 4)) return 1;
    }
    mem_free(data);
    token_list_free(&ids);
    str_free(&text);
    tokenizer_free(t);
    gguf_free(g);
    return 0;
}
