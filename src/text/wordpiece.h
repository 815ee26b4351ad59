/* wordpiece.h: BERT's tokenizer: its normalizer, its pre-tokenizer and WordPiece, with the place in the text
 * that each token came from.
 *
 * Text is cut at white space and around punctuation (and, with `chinese`, around each Han character); each
 * word is written with the longest pieces of the vocabulary from its begin on, or is unknown as a whole. Time
 * is linear in the text. Tables follow the `tokenizers` library, whose Unicode differs by function. Immutable
 * after create; any thread may encode at once. */
#ifndef TEXT_WORDPIECE_H
#define TEXT_WORDPIECE_H

#include "text/tokenizer.h"

typedef struct wordpiece wordpiece;

/* A token that is looked for in the raw text before all else; the leftmost match counts, of those the
 * longest.
 */
typedef struct wordpiece_added {
    token_text text; /* not empty */
    int32_t id;
    bool lstrip, rstrip; /* takes the white space beside it */
    bool single_word;    /* only where no letter, digit or mark is beside it */
} wordpiece_added;

/* Borrowed during wordpiece_create only. */
typedef struct wordpiece_spec {
    const token_text *tokens; /* [n_tokens] by id; empty: no token has this id */
    size_t n_tokens;
    token_text prefix; /* of pieces that continue a word: "##" */
    int32_t unk;
    size_t max_word; /* characters; longer words are unknown */
    const wordpiece_added *added;
    size_t n_added;
    bool clean_text; /* control characters vanish */
    bool chinese, strip_accents, lowercase;
} wordpiece_spec;

enum { WORDPIECE_MAX_WORD = 10000 };

MUST_USE status wordpiece_create(wordpiece **out, const wordpiece_spec *spec, error *err);
void wordpiece_free(wordpiece *w);

typedef struct token_span {
    int32_t id;
    uint32_t begin, end; /* bytes of the text */
} token_span;

/* Zero-initialise, free with token_spans_free. */
typedef struct token_spans {
    token_span *items;
    size_t len, cap;
} token_spans;
void token_spans_free(token_spans *s);
MUST_USE status token_spans_add(token_spans *s, token_span span, error *err);

/* Appends the tokens of valid UTF-8 of less than 4 GiB. `special`: added tokens are looked for. On an error
 * *out may have some of them. */
MUST_USE status wordpiece_encode(const wordpiece *w, const char *text, size_t len, bool special,
                                 token_spans *out, error *err);

#endif
