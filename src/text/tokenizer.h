/* tokenizer.h: text to token ids and back.
 *
 * Byte-level BPE with each model family's own pre-tokenizer rule ("gpt2" in files), and SentencePiece-style
 * BPE by score with byte fallback ("llama" in files). Built from checked descriptions, not from a file: the
 * caller (bundle) reads those from its container. Immutable after create; any thread may use it at once. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/str.h"

typedef struct tokenizer tokenizer;

typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_type;

typedef struct token_text {
    const char *data;
    size_t len;
} token_text;

/* What a container says about a tokenizer. Borrowed during tokenizer_create only. */
typedef struct tokenizer_spec {
    const char *model; /* "gpt2" or "llama"; another name is an error that lists these */
    size_t model_len;
    const char *pre; /* pre-tokenizer name, NULL: "default"; an unknown one is an error listing all */
    size_t pre_len;
    const token_text *tokens; /* [n_tokens], in the file's own encoding (byte-level: mapped characters) */
    size_t n_tokens;
    const float *scores;      /* [n_tokens] or NULL ("llama") */
    const int32_t *types;     /* token_type [n_tokens] or NULL: all normal */
    const token_text *merges; /* [n_merges] "left right" ("gpt2") */
    size_t n_merges;
    int32_t bos, eos, unk, pad; /* -1: none */
    const int32_t *eog;         /* further end-of-generation ids */
    size_t n_eog;
    bool add_bos, add_eos, add_space_prefix;
    bool ignore_merges; /* a whole piece that is a token needs no merges (llama-bpe); set it also by `pre` */
} tokenizer_spec;

/* Checks everything: ids in range, duplicate tokens, merges whose parts or result are no ordinary tokens or
 * that are listed twice, a printable ASCII character (byte level), byte or space (by score) without a token.
 * The error names the index and the text. */
MUST_USE status tokenizer_create(tokenizer **out, const tokenizer_spec *spec, error *err);
void tokenizer_free(tokenizer *t);

size_t tokenizer_n_tokens(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);
const char *tokenizer_pre(const tokenizer *t); /* the rule in use, e.g. "smollm" */
const char *tokenizer_model(const tokenizer *t);
/* Ends an answer: eos, eot, <|im_end|>, <end_of_turn> and the like. */
bool tokenizer_is_eog(const tokenizer *t, int32_t id);
bool tokenizer_is_control(const tokenizer *t, int32_t id);
/* Token with exactly this text in the vocabulary's own encoding, or -1. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t len);
/* The bytes that a token stands for (mapped back from byte level); borrowed. Control tokens give their name.
 */
token_text tokenizer_bytes(const tokenizer *t, int32_t id);
/* The token as the vocabulary writes it (e.g. "Ġhello"); borrowed. */
token_text tokenizer_piece(const tokenizer *t, int32_t id);

/* Growing list of ids; zero-initialise, free with token_list_free. */
typedef struct token_list {
    int32_t *ids;
    size_t len, cap;
} token_list;
void token_list_free(token_list *l);
MUST_USE status token_list_add(token_list *l, int32_t id, error *err);
MUST_USE status token_list_append(token_list *l, const int32_t *ids, size_t n, error *err);

typedef struct tokenize_options {
    bool add_special;   /* bos/eos as the file asks; no second bos where the text begins with one */
    bool parse_special; /* control tokens in the text are read as such; else they are plain text. Tokens of
                         * type user-defined are always matched, as in the `tokenizers` library. */
} tokenize_options;

/* Appends the ids of the text to *out: those of the `tokenizers` library. Any bytes are allowed: what is not
 * UTF-8 is encoded byte by byte, so that decoding gives it back. Decoding gives the text, but where the rule
 * composes it first (NFC: qwen2, olmo, mpt, command-r), and but for bytes that the vocabulary has no token
 * for: they give none. Time is linear in len. On an error *out is as it was. */
MUST_USE status tokenizer_encode(const tokenizer *t, const char *text, size_t len, tokenize_options options,
                                 token_list *out, error *err);

/* Appends the bytes of ids. Control tokens give nothing unless `special`. An id out of range is an error. */
MUST_USE status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, str *out,
                                 error *err);

/* Streaming: tokens in, whole characters out. Bytes of an unfinished character wait for the next token; bytes
 * that can no longer become valid come out as U+FFFD at once. One owner, no allocation. */
typedef struct detok_stream {
    char pending[4];
    size_t n_pending;
    bool at_start; /* "llama" drops the first space of a text */
} detok_stream;
void detok_begin(detok_stream *d);
/* Appends to *out what became certain. */
void detok_push(const tokenizer *t, detok_stream *d, int32_t id, bool special, str *out);
/* The end: what still waits comes out as U+FFFD. */
void detok_end(detok_stream *d, str *out);

#endif
