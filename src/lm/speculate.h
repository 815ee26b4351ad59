/* speculate.h: guesses of the next tokens, from what the sequence itself says, and how many are worth a try.
 *
 * A guess is checked by one forward pass over all of its tokens; only speed depends on it, never an answer.
 * An ngram_index finds the longest earlier occurrence of a sequence's last tokens and proposes what followed
 * there. draft_allot decides how long drafts pay: it knows how often tokens of drafts like these were right,
 * and what a step with more rows takes. Nothing here allocates after create. Owner: the thread that steps the
 * engine. */
#ifndef LM_SPECULATE_H
#define LM_SPECULATE_H

#include "base/status.h"

/* ---- lookup ----------------------------------------------------------------------------------------- */

enum {
    NGRAM_LEAST = 2,    /* tokens that must match */
    NGRAM_MOST = 32,    /* longer matches count as this long */
    NGRAM_VISITED = 32, /* earlier occurrences that are looked at, the latest first */
    DRAFT_MAX = 16,     /* tokens of a draft */
    DRAFT_OFFERS = 32   /* sequences of a step that may have drafts; the others go without */
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

/* Seconds of a step by its number of rows, as measured of late. Not a line: up to a few rows cost what one
 * does, then a product takes another path. One for an engine; zero-initialise. */
enum { COST_ROWS = 64 };
typedef struct step_cost {
    float seconds[COST_ROWS + 1]; /* by rows; 0: not seen yet */
} step_cost;
void step_cost_add(step_cost *c, size_t rows, double seconds);
/* What a step of so many rows is thought to take, in units of one row's step where nothing was seen yet. */
double step_cost_of(const step_cost *c, size_t rows);

/* How often drafts are right. They fall into classes, by the length of the match that they come from; each
 * class has its own record. One for an engine, and one for each job, which begins with the engine's. */
enum { DRAFT_CLASSES = 6 };
typedef struct draft_record {
    float right, wrong; /* tokens checked; older ones count less */
    uint32_t skipped;   /* drafts not tried since the last one that was */
    uint32_t patience;  /* drafts to skip before a probe; 0: the first time */
} draft_record;
typedef struct draft_control { /* zero-initialise */
    draft_record classes[DRAFT_CLASSES];
} draft_control;

/* Probability that a token of a draft is right. match: tokens that matched; 0: a draft model's. */
double draft_likelihood(const draft_control *c, const draft_control *all, size_t match);
/* A draft that does not pay was not tried: true if it is time to try one token of it all the same. */
bool draft_probe(draft_control *c, size_t match);
/* The outcome of a draft of `drafted` tokens, of which the first `accepted` were right. */
void draft_outcome(draft_control *c, draft_control *all, size_t match, size_t drafted, size_t accepted);

typedef struct draft_offer {
    double likelihood; /* of each token */
    double seconds;    /* what each token costs to draft, in the units of step_cost */
    size_t most;       /* tokens offered, at most DRAFT_MAX */
    size_t length;     /* out: tokens to try */
} draft_offer;
/* Chooses the lengths that promise the most tokens a second, for sequences [n] that take `rows` rows without
 * drafts, with at most `room` rows more; all 0 unless that is clearly more than without. */
void draft_allot(const step_cost *c, size_t rows, size_t room, draft_offer *offers, size_t n);

#endif
