/* bench_text.h: texts of any length to measure tokenizers on, and the measuring. */
#ifndef BENCH_BENCH_TEXT_H
#define BENCH_BENCH_TEXT_H

#include "text/tokenizer.h"

/* Kinds of text. "prose" is English-like: the common words by Zipf's law, 20,000 rarer ones made of
 * syllables, sentences, paragraphs, some numbers and contractions. The others are one thing repeated
 * ("letter", "spaces", "ab", "newlines", "digits", "hyphens", "emoji", "accents", "marks", "specials") or
 * random characters of one script without a space ("han", "hangul"): what a tokenizer that is not linear
 * chokes on. */
size_t bench_text_n_kinds(void);
const char *bench_text_kind(size_t i);

/* Appends `bytes` bytes of that kind, the same at every call. An unknown kind is CHURON_INVALID. */
MUST_USE status bench_text_make(const char *kind, size_t bytes, str *out, error *err);

/* Tokenizes the text once on the calling thread. *seconds and *n_tokens may be NULL. */
MUST_USE status bench_tokenizer_once(const tokenizer *t, const str *text, double *seconds, size_t *n_tokens,
                                     error *err);

typedef struct bench_tokenizer_result {
    double bytes_per_s; /* the best repetition */
    size_t bytes, tokens;
} bench_tokenizer_result;

/* Prose of `bytes` bytes, `reps` times. */
MUST_USE status bench_tokenizer(const tokenizer *t, size_t bytes, size_t reps, bench_tokenizer_result *out,
                                error *err);

#endif
