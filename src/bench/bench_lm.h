/* bench_lm.h: how fast a language model runs, and how fast this machine could run it.
 *
 * A case is timed as often as wanted; prompts are pseudo-random token ids, answers are greedy and never end
 * early. Decoding includes choosing the token. */
#ifndef BENCH_BENCH_LM_H
#define BENCH_BENCH_LM_H

#include "bench/bench_kernel.h"
#include "bundle/lm_bundle.h"

typedef struct bench_case {
    size_t prompt;   /* tokens of prompt to compute; 0: a decoding case */
    size_t gen;      /* tokens that each sequence generates; 0: a prompt case */
    size_t depth;    /* tokens that each sequence holds already, computed outside the time */
    size_t parallel; /* sequences that decode together, at least 1 */
} bench_case;

/* "pp512", "tg128", "tg128@4096", "tg128x16" */
void bench_case_name(const bench_case *c, char name[48]);

typedef struct bench_lm bench_lm;

/* Opens the sequences of a case. The engine must have room for c->parallel sequences of depth + gen. */
MUST_USE status bench_lm_open(bench_lm **out, lm_bundle *b, const bench_case *c, error *err);
void bench_lm_close(bench_lm *l);
/* Runs the case once: tokens per second, of all sequences together. */
MUST_USE status bench_lm_time(bench_lm *l, double *per_s, error *err);

/* Tokens per second if nothing but the machine's bound counted: for a step, the longer of reading every
 * weight and every key and value that it needs, and of its multiply-adds at the peak of their type. */
double bench_lm_bound(lm_bundle *b, const bench_case *c, const bench_bounds *bounds);

/* Seconds to choose one token from the logits that the model gives after a short prompt, with temperature
 * 0.8, top-k 40, top-p 0.95, min-p 0.05 and a repetition penalty: the median of `n` draws. */
MUST_USE status bench_lm_sampling(lm_bundle *b, size_t n, double *seconds, error *err);

#endif
