/* openai_write.h: the JSON of answers in OpenAI's form: pieces of it, without a tree. */
#ifndef SERVE_API_OPENAI_WRITE_H
#define SERVE_API_OPENAI_WRITE_H

#include "base/str.h"
#include "lm/sampler.h"
#include "text/tokenizer.h"

/* Log-probabilities of an answer's tokens so far, in the form that its endpoint uses. Zero-initialise. */
typedef struct logprob_writer {
    bool chat;
    size_t n;
    str entries;               /* chat: objects; legacy: the tokens */
    str values, tops, offsets; /* legacy */
    size_t offset;             /* legacy: characters of text before the next token */
} logprob_writer;

void logprob_writer_add(logprob_writer *w, const tokenizer *t, const sampled *token);
/* Appends the object that "logprobs" has, and forgets the entries (the offset goes on). */
void logprob_writer_take(logprob_writer *w, str *out);
bool logprob_writer_failed(const logprob_writer *w);
void logprob_writer_free(logprob_writer *w);

typedef struct openai_usage {
    size_t prompt, cached, completion; /* tokens; cached: of the prompt, not computed again */
} openai_usage;
void openai_write_usage(str *out, const openai_usage *u);

#endif
