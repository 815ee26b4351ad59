/* bench_edit.h: an answer that repeats most of its prompt: what guessed tokens are for. */
#ifndef BENCH_BENCH_EDIT_H
#define BENCH_BENCH_EDIT_H

#include "bundle/lm_bundle.h"

enum { BENCH_EDIT_TOKENS = 128, BENCH_EDIT_CONTEXT = 512 };

/* The prompt: a text of 130 words and the wish for it with one word changed, through the chat template if the
 * model has one. The caller frees *ids. */
MUST_USE status bench_edit_prompt(lm_bundle *b, token_list *ids, error *err);
/* Tokens a second of an answer of BENCH_EDIT_TOKENS to it, greedy, the time for the prompt not counted; with
 * guessed tokens as the engine has them, or without. */
MUST_USE status bench_edit_time(lm_bundle *b, const token_list *ids, bool guesses, double *per_s, error *err);

#endif
