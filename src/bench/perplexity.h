/* perplexity.h: how well a language model predicts a text.
 *
 * The text's tokens are cut into windows of `window` tokens, each computed for itself; where the model's file
 * asks for a bos token, it takes the place of a window's first. A window's second half is scored: token j+1
 * by the logits after j, for j from window/2 to window-2, so that every score has at least half a window
 * before it. Tokens after the last whole window are left out. This is the usual measure for GGUF files. */
#ifndef BENCH_PERPLEXITY_H
#define BENCH_PERPLEXITY_H

#include "bundle/lm_bundle.h"

typedef struct perplexity_result {
    double nll;       /* mean negative log-likelihood of a scored token, natural log */
    double nll_error; /* standard error of that mean */
    double ppl;       /* exp(nll) */
    size_t tokens;    /* scored */
    size_t windows;
    size_t computed; /* tokens that went through the model */
    double seconds;  /* of that */
} perplexity_result;

/* After each window; false ends early with CHURON_CANCELLED. */
typedef bool (*perplexity_progress)(void *user, const perplexity_result *so_far, size_t of_windows);

/* `ids`: the text, encoded with add_special. A text shorter than one window is CHURON_INVALID with both
 * numbers. The bundle's engine must have a context of at least `window`. */
MUST_USE status perplexity_measure(perplexity_result *out, lm_bundle *b, const int32_t *ids, size_t n,
                                   size_t window, perplexity_progress on_window, void *user, error *err);

#endif
