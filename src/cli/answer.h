/* answer.h: one answer of a language model: generated, shown while it comes, kept for a report. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "base/json_out.h"
#include "bundle/lm_bundle.h"

/* Zero-initialise (`show` is the caller's); free with answer_free. */
typedef struct answer {
    bool show;      /* write the text to stdout as it comes */
    str text;       /* all of it */
    token_list ids; /* tokens generated, the one that ended the answer included */
    str logprobs;   /* members of a JSON array, one for each token; empty unless asked for */
    finish_reason finish;
    engine_job_stats stats;
    /* inside */
    const sampler_params *sampling;
    bool reader_left, on_terminal;
    error err;
    status failed;
} answer;

void answer_free(answer *a);

/* Generates on seq, whose prompt was appended. SIGINT ends it early with FINISH_CANCELLED. What was generated
 * before an error stays in *a. */
MUST_USE status answer_generate(answer *a, lm_bundle *b, engine_seq *seq, const generation_request *r,
                                error *err);

/* "prompt 31 tokens, 620 per second; answer 128 tokens, 213 per second" */
void answer_speed(const answer *a, str *out);

#endif
