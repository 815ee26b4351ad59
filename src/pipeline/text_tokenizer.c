/* text_tokenizer.c: see text_tokenizer.h. */
#include "pipeline/text_tokenizer.h"

#include <string.h>

status text_tokenizer_from_lm(text_tokenizer *out, const tokenizer *t, error *err) {
    token_list ends = {0};
    *out = (text_tokenizer){.lm = t, .n_tokens = tokenizer_n_tokens(t), .lengths = {.pad_id = 0}};
    /* the special tokens around no text are those around any */
    status st = tokenizer_encode(t, "", 0, (tokenize_options){.add_special = true}, &ends, err);
    const size_t before = tokenizer_adds_bos(t) && ends.len ? 1 : 0;
    for (size_t i = 0; i < ends.len + 1 && st == CHURON_OK && i < TEXT_TOKENIZER_MAX_PIECES; i++) {
        const int32_t id = i < before ? ends.ids[i] : i == before ? -1 : ends.ids[i - 1];
        out->single.pieces[out->single.n++] = (template_piece){.id = id};
    }
    token_list_free(&ends);
    return st;
}

void text_tokenizer_free(text_tokenizer *t) {
    wordpiece_free(t->wordpiece);
    tokenizer_free(t->bpe);
    *t = (text_tokenizer){0};
}

bool text_tokenizer_has_offsets(const text_tokenizer *t) {
    return t->wordpiece != NULL;
}

status text_tokenizer_encode(const text_tokenizer *t, const char *text, size_t len, bool special,
                             token_spans *out, error *err) {
    if (t->wordpiece) return wordpiece_encode(t->wordpiece, text, len, special, out, err);
    token_list ids = {0};
    const tokenize_options o = {.parse_special = special};
    status st = tokenizer_encode(t->bpe ? t->bpe : t->lm, text, len, o, &ids, err);
    for (size_t i = 0; i < ids.len && st == CHURON_OK; i++)
        st = token_spans_add(out, (token_span){.id = ids.ids[i]}, err);
    token_list_free(&ids);
    return st;
}
