/* speculate.h: guesses of the next tokens, from what the sequence itself says, and how many are worth a try.
 *
 * A guess is checked by one forward pass over all of its tokens; only speed depends on it, never an answer.
 * An ngram_index finds the longest earlier occurrence of a sequence's last tokens and proposes what followed
 * there. A draft_control decides how long a draft pays: it knows how often the tokens of drafts like this one
 * were right, and what one more row costs beside a step. Nothing here allocates after create.
 * Owner: the thread that steps the engine. */
#ifndef LM_SPECULATE_H
#define LM_SPECULATE_H

#include "base/status.h"

/* ---- lookup ----------------------------------------------------------------------------------------- */

enum {
    NGRAM_LEAST = 2,    /* tokens that must match */
    NGRAM_MOST = 32,    /* longer matches count as this long */
    NGRAM_VISITED = 32, /* earlier occurrences that are looked at, the latest first */
    DRAFT_MAX = 16      /* tokens of a draft */
};

typedef struct ngram_index ngram_index;

/* For a sequence of at most max_tokens. */
MUST_USE status ngram_create(ngram_index **out, size_t max_tokens, error *err);
void ngram_free(ngram_index *x);
/* Makes the index one of tokens [0, n): the caller's array, whose first tokens are those of the call before
 * up to the smaller n (else ngram_truncate first). Constant time for each token that is new. */
void ngram_follow(ngram_index *x, const int32_t *tokens, size_t n);
/* Forgets what was indexed from token `length` on. */
void ngram_truncate(ngram_index *x, size_t length);
/* What followed the latest of the longest earlier occurrences of the last tokens, up to `most` tokens.
 * Returns their number; *match: tokens that matched, 0 if none did. The index must follow tokens [0, n). */
size_t ngram_draft(const ngram_index *x, const int32_t *tokens, size_t n, size_t most, int32_t *draft,
                   size_t *match);

/* ---- how long a draft pays -------------------------------------------------------------------------- */

/* Cost of steps: seconds = fixed + rows * each, fitted to the steps of late. One for an engine. */
typedef struct step_cost { /* zero-initialise */
    double weight, rows, seconds, rows_rows, rows_seconds;
} step_cost;
void step_cost_add(step_cost *c, size_t rows, double seconds);
/* What one more row costs, as a part of what a row costs now, with n_rows rows: in (0, 1]. Before anything is
 * known: a guess. */
double step_cost_marginal(const step_cost *c, size_t n_rows);

/* How often drafts are right. They fall into classes, by the length of the match that they come from; each
 * class has its own record. One for an engine, and one for each sequence, which begins with the engine's. */
enum { DRAFT_CLASSES = 6 };
typedef struct draft_record {
    float right, wrong; /* tokens checked; older ones count less */
    uint32_t skipped;   /* drafts not tried since the last probe */
    uint32_t patience;  /* drafts to skip before the next probe; 0: the first time */
} draft_record;
typedef struct draft_control { /* zero-initialise */
    draft_record classes[DRAFT_CLASSES];
} draft_control;

/* Tokens to try, 0 .. most, of a draft whose match has this length (0: a draft model's). `marginal`: what one
 * more row costs, see step_cost_marginal. A class that does not pay is tried with one token now and then. */
size_t draft_length(draft_control *c, const draft_control *all, size_t match, size_t most, double marginal);
/* The outcome of a draft of `drafted` tokens, of which the first `accepted` were right. */
void draft_outcome(draft_control *c, draft_control *all, size_t match, size_t drafted, size_t accepted);

#endif
