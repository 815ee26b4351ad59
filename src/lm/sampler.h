/* sampler.h: from logits to the next token. A fixed, documented order of steps, seeded per request.
 *
 * Order: logit bias, repetition, frequency and presence penalties, DRY, temperature, top-k, typical, top-p,
 * min-p, XTC, draw. The draw uses a counter-based generator keyed by (seed, number of the token), so it
 * depends on nothing but the request. A sampler allocates only in create; sampling allocates nothing. Owner:
 * the thread that steps the engine. */
#ifndef LM_SAMPLER_H
#define LM_SAMPLER_H

#include "base/status.h"
#include "kernel/kernel.h"

typedef struct logit_bias {
    int32_t id;
    float bias; /* -INFINITY bans the token */
} logit_bias;

typedef struct sampler_params {
    uint64_t seed;
    float temperature;                         /* 0: greedy */
    uint32_t top_k;                            /* 0: off */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    float typical_p;                           /* 1: off */
    float repeat_penalty;                      /* 1: off */
    uint32_t repeat_last_n;                    /* 0: off; window of repeat/frequency/presence */
    float frequency_penalty, presence_penalty; /* 0: off */
    float dry_multiplier;                      /* 0: off */
    float dry_base;
    uint32_t dry_allowed_length;
    uint32_t dry_last_n;         /* 0: whole context */
    const int32_t *dry_breakers; /* token ids that end a repeated run; borrowed in create (copied) */
    size_t n_dry_breakers;
    float xtc_probability, xtc_threshold; /* probability 0: off */
    const logit_bias *bias;               /* copied */
    size_t n_bias;
    size_t n_logprobs;  /* top log-probabilities to report, 0..TOP_MAX; of the model's own distribution
                           (before any step), natural log */
    bool want_logprobs; /* report the chosen token's log-probability (also with n_logprobs 0) */
} sampler_params;

sampler_params sampler_defaults(void); /* every step off, temperature 0.8, seed 0 */

/* Checks ranges: the error names the field (SURFACE's spelling, e.g. "temperature"), expected and got; NaN
 * and infinities are refused. n_vocab: for ids in bias. */
MUST_USE status sampler_check(const sampler_params *p, size_t n_vocab, error *err);

typedef struct token_logprob {
    int32_t id;
    float logprob;
} token_logprob;

typedef struct sampled {
    int32_t id;
    float logprob;            /* of the model's own distribution; NaN unless asked for */
    const token_logprob *top; /* [n_top], borrowed until the next sampler_next */
    size_t n_top;
} sampled;

typedef struct sampler sampler;

MUST_USE status sampler_create(sampler **out, const sampler_params *p, size_t n_vocab, size_t max_context,
                               error *err);
void sampler_free(sampler *s);
/* Records a token as context (prompt and generated alike), for penalties and DRY. */
void sampler_accept(sampler *s, int32_t id);
/* The distribution that sampler_next drew from last: the tokens that were kept, [n], and their probabilities,
 * f64 sums to 1, in the order of the draw. Writes at most `capacity`; returns the number kept. For tests. */
size_t sampler_kept(const sampler *s, int32_t *ids, double *probabilities, size_t capacity);
/* Chooses the next token from logits f32 [n_vocab], which it may overwrite; `index` is the number of the
 * token in its answer (0, 1, …), the generator's counter. Does not accept it. When every logit is NaN or -inf
 * the status is CHURON_INTERNAL. */
MUST_USE status sampler_next(sampler *s, const kernels *k, float *logits, uint64_t index, sampled *out,
                             error *err);

/* The generator: Philox-4x32-10 (Salmon et al., 2011), key = seed, counter = (index, stream). Uniform in
 * [0, 1) with 53 bits. Exposed for tests. Streams: 0 the draw, 1 whether XTC acts. */
double sampler_uniform(uint64_t seed, uint64_t index, uint32_t stream);
void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
