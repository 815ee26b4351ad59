/* draft_model.h: a smaller model that guesses the next tokens of sequences, all of them together.
 *
 * It keeps keys and values of its own. A sequence that it has not seen, or that went on without it, is caught
 * up with first. Its guesses are greedy and decide speed alone, never an answer. Nothing allocates after
 * create and open. Owner: the thread that steps the engine. */
#ifndef LM_DRAFT_MODEL_H
#define LM_DRAFT_MODEL_H

#include "lm/kv_cache.h"
#include "lm/model.h"

enum { DRAFT_MODEL_MOST = 16 }; /* tokens of a guess */

typedef struct draft_model draft_model;

typedef struct draft_model_options {
    kv_type kv_type;
    size_t context; /* tokens a sequence may hold; more than the model was trained with: no guesses there */
    size_t max_running; /* sequences at once */
    size_t step_tokens; /* tokens caught up with in one run */
    uint64_t kv_memory; /* bytes at most; sequences that find no room go without guesses */
} draft_model_options;

MUST_USE status draft_model_create(draft_model **out, const lm_model *m, pool *p,
                                   const draft_model_options *o, error *err);
void draft_model_free(draft_model *d);

/* What it knows of one sequence; zero-initialise. */
typedef struct draft_seq {
    kv_seq kv;
} draft_seq;
MUST_USE status draft_seq_open(draft_seq *s, const draft_model *d, error *err);
/* Tokens from `length` on are forgotten. */
void draft_seq_truncate(draft_model *d, draft_seq *s, size_t length);
void draft_seq_release(draft_model *d, draft_seq *s); /* all of them: it holds no page any more */
void draft_seq_close(draft_seq *s);                   /* after release; any thread */

typedef struct draft_ask {
    draft_seq *seq;
    int32_t *tokens; /* [n + want]: the sequence, and room for the guesses behind it */
    size_t n, want;
    size_t got; /* the answer: 0 if it has not caught up yet, or has no room */
} draft_ask;
void draft_model_run(draft_model *d, draft_ask *asks, size_t n);

#endif
