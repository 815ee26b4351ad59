/* bench_load.h: the parts of `churon bench --load`: what was asked for, and the contest that measures it. */
#ifndef CLI_BENCH_LOAD_H
#define CLI_BENCH_LOAD_H

#include "bench/load.h"
#include "bench/load_figures.h"
#include "bench/load_knee.h"
#include "cli/progress.h"

enum { LOAD_TARGETS = 2, LOAD_ROUNDS_MAX = 100 };

typedef enum load_mode { LOAD_CLOSED, LOAD_OPEN, LOAD_TRACE, LOAD_STALL } load_mode;

typedef struct load_request_options {
    const char *urls[LOAD_TARGETS]; /* [1] NULL: no peer, or one that `peer` starts */
    const char *models[LOAD_TARGETS];
    const char *peer; /* a command, or NULL */
    const char *scenario, *trace, *prompts, *body, *records, *key;
    const char *prompt_tokens_text, *output_tokens_text, *slo_text;
    uint64_t concurrency, requests, shared_prefix, rounds, seed;
    double rate, duration, time_scale, length_scale, timeout, temperature;
    bool find_knee, keep_eos, completions;
    /* read from the texts */
    load_mode mode;
    load_range prompt_tokens, output_tokens;
    load_slo slo;
    bool has_slo;
} load_request_options;

/* What one target came to. */
typedef struct load_score {
    load_target target;
    load_records records; /* of all rounds */
    load_figures figures;
    load_knee knee;
    load_stall stalls[LOAD_ROUNDS_MAX];
    size_t n_stalls;
} load_score;

typedef struct load_contest {
    load_score scores[LOAD_TARGETS];
    size_t n;
} load_contest;

/* Measures every target, taking turns. Free with load_contest_free, also after an error. */
MUST_USE status load_contest_run(load_contest *out, const load_request_options *o, progress *p, error *err);
void load_contest_free(load_contest *c);

/* One JSON object, or text for people. */
void load_contest_json(const load_contest *c, const load_request_options *o, str *to);
void load_contest_table(const load_contest *c, const load_request_options *o, str *to);

/* The command, with --load somewhere in argv. */
int cmd_bench_load(int argc, char **argv);

#endif
