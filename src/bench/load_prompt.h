/* load_prompt.h: what the requests say: made-up words of a given count, or messages from a file. */
#ifndef BENCH_LOAD_PROMPT_H
#define BENCH_LOAD_PROMPT_H

#include "base/str.h"

/* Appends n words drawn by (seed, index): common English words, which are one token each in nearly every
 * vocabulary. The same pair gives the same text, another pair one that differs from its first words on. */
void load_words(str *to, uint64_t seed, uint64_t index, size_t n);

/* Messages from a file of JSON lines, each {"messages": [...]} or {"prompt": "..."}. Zero-initialise, free
 * with load_messages_free; immutable otherwise. */
typedef struct load_messages {
    str text;     /* the messages as JSON arrays, one after the other */
    size_t *ends; /* [n] where each ends in text */
    size_t n;
} load_messages;

void load_messages_free(load_messages *m);
/* A wrong line is named with path and number. path "-": stdin. json_in_setup must have been called. */
MUST_USE status load_messages_read(load_messages *out, const char *path, error *err);
/* Number i modulo n. Not zero-terminated. */
const char *load_messages_at(const load_messages *m, size_t i, size_t *len);

#endif
