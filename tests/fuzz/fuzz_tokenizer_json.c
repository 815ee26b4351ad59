/* fuzz_tokenizer_json.c: any bytes as tokenizer.json and, behind a line "---text", as a text for what was
 * read. */
#include "pipeline/text_tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static const char MARK[] = "\n---text\n";

static void check_spans(const text_tokenizer *t, const token_spans *s, size_t len) {
    for (size_t i = 0; i < s->len; i++) {
        must(s->items[i].id >= 0 && (size_t)s->items[i].id < t->n_tokens);
        must(s->items[i].begin <= s->items[i].end && s->items[i].end <= len);
        must(!t->wordpiece || i == 0 || s->items[i - 1].end <= s->items[i].end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char plain[] = "Ab\xc3\xa9 \xe4\xbd\xa0[SEP]e\xcc\x81...x";
    const size_t mark = sizeof MARK - 1;
    size_t n = 0;
    while (n + mark <= size && memcmp(data + n, MARK, mark) != 0) n++;
    const bool marked = n + mark <= size;
    const char *text = marked ? (const char *)data + n + mark : plain;
    const size_t len = marked ? size - n - mark : sizeof plain - 1;
    text_tokenizer t;
    token_spans spans = {0};
    error err = {0};
    if (text_tokenizer_from_json(&t, "tokenizer.json", data, marked ? n : size, &err) != CHURON_OK) {
        must(strncmp(err.message, "tokenizer.json: ", 16) == 0 || strstr(err.message, "token") ||
             strstr(err.message, "max_input"));
        return 0;
    }
    if (utf8_validate(text, len) == len) {
        must(text_tokenizer_encode(&t, text, len, true, &spans, &err) == CHURON_OK);
        check_spans(&t, &spans, len);
    }
    token_spans_free(&spans);
    text_tokenizer_free(&t);
    return 0;
}
