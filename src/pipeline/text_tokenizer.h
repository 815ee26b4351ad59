/* text_tokenizer.h: tokenizers of the pipeline: a tokenizer.json (Hugging Face) or a language model's own.
 *
 * What the file's fields say is done, or the file is refused with the field's name: WordPiece with BERT's
 * normalizer and pre-tokenizer; byte-level BPE with the pre-tokenizers of text/split.h; special tokens around
 * one text or two by TemplateProcessing, BertProcessing and RobertaProcessing. Immutable once made; any
 * thread may encode. */
#ifndef PIPELINE_TEXT_TOKENIZER_H
#define PIPELINE_TEXT_TOKENIZER_H

#include "text/wordpiece.h"

enum { TEXT_TOKENIZER_MAX_PIECES = 32 };

typedef struct template_piece {
    int32_t id;      /* a special token; -1: the first text, -2: the second */
    int32_t type_id; /* of all its tokens */
} template_piece;

typedef struct token_template {
    template_piece pieces[TEXT_TOKENIZER_MAX_PIECES];
    size_t n;
} token_template;

typedef enum cut_strategy { CUT_LONGEST_FIRST, CUT_ONLY_FIRST, CUT_ONLY_SECOND } cut_strategy;

/* What the file says about lengths; a step may say otherwise. */
typedef struct text_lengths {
    size_t max_length; /* 0: no limit */
    bool cut_left;
    cut_strategy strategy;
    size_t pad_to;       /* 0: no fixed length */
    size_t pad_multiple; /* 0: none */
    bool pad_left;
    int32_t pad_id, pad_type_id;
} text_lengths;

typedef struct text_tokenizer {
    wordpiece *wordpiece; /* or */
    tokenizer *bpe;       /* own */
    const tokenizer *lm;  /* of a language model, borrowed */
    token_template single, pair;
    text_lengths lengths;
    size_t n_tokens;
} text_tokenizer;

/* `name` of the file begins each error. */
MUST_USE status text_tokenizer_from_json(text_tokenizer *out, const char *name, const void *bytes, size_t n,
                                         error *err);
MUST_USE status text_tokenizer_from_lm(text_tokenizer *out, const tokenizer *t, error *err);
void text_tokenizer_free(text_tokenizer *t);
bool text_tokenizer_has_offsets(const text_tokenizer *t);
/* Appends the tokens of one text, without special tokens around it. `special`: special tokens in the text are
 * read as such. begin and end are 0 without offsets. */
MUST_USE status text_tokenizer_encode(const text_tokenizer *t, const char *text, size_t len, bool special,
                                      token_spans *out, error *err);

#endif
