/* beam.h: beam search without a model: which beams go on, which texts are finished, when it ends. As in
 * transformers' BeamSearchScorer (Hugging Face, 4.x).
 *
 * A beam is a text with the sum of its tokens' log-probabilities. In each step every beam offers its best
 * next tokens; of all offers the best (1 + stop ids) * width (at least 2 * width) are looked at in order: one
 * that is a stop id finishes a text if it is among the first `width`, the others become the next beams until
 * there are `width`. A finished text scores sum / length^length_penalty, its stop id counted; the best
 * `width` are kept. Ties go to the lower beam, then to the lower token. Sums are f64. Nothing allocates after
 * create. Owner: the thread that steps the engine. */
#ifndef LM_BEAM_H
#define LM_BEAM_H

#include "lm/engine.h"

typedef struct beam_search beam_search;

/* One beam of the next step: beam `from` of this one, and a token. */
typedef struct beam_step {
    uint32_t from;
    int32_t token;
} beam_step;

/* Checks the options. prompt may be empty; it is no part of what is scored. */
MUST_USE status beam_search_create(beam_search **out, const engine_beam_options *o, const int32_t *stop_ids,
                                   size_t n_stop_ids, size_t max_tokens, size_t n_vocab, error *err);
void beam_search_free(beam_search *b);
void beam_search_restart(beam_search *b); /* as after create */

size_t beam_search_width(const beam_search *b);
size_t beam_search_live(const beam_search *b);   /* beams that offer: 1 before the first step, then width */
size_t beam_search_length(const beam_search *b); /* tokens of each */

/* The logits f32 [n_vocab] behind beam `beam` of this step; each live beam once, in ascending order. False if
 * they are no numbers. */
MUST_USE bool beam_search_offer(beam_search *b, const kernels *k, size_t beam, const float *logits);
/* After all offers: the next beams [width] (valid until the next call), or NULL when the search is over. */
const beam_step *beam_search_next(beam_search *b);
bool beam_search_is_done(const beam_search *b); /* it ended before max_tokens */

/* After the end: the texts, best first; returns how many there are, at most width. */
size_t beam_search_best(beam_search *b, engine_hypothesis *out, size_t capacity);

#endif
