/* answer.h: one request to the chat or completion endpoint under way: its choices in the engine, and how what
 * they bring becomes one JSON object or a stream of server-sent events.
 *
 * An answer has one choice for every text that is computed for it: `best_of` for each prompt, of which the
 * best `n` are replied. A beam search is one generation, of the prompt's first choice; the others get their
 * texts at its end. Its exchange may end long before its choices do (the client left, an error was sent):
 * the answer is freed when both are over. Everything belongs to the serving thread. */
#ifndef SERVE_API_ANSWER_H
#define SERVE_API_ANSWER_H

#include "serve/api/openai_request.h"
#include "serve/api/openai_write.h"
#include "serve/server_internal.h"

typedef struct choice {
    struct answer *answer;
    feed_source source;
    engine_seq *seq;
    generation *gen;
    size_t prompt; /* index of its prompt */
    size_t prompt_tokens, cached_tokens, tokens;
    bool ended, role_sent, picked;
    finish_reason finish;
    str text; /* of the whole answer, or what is new in a stream */
    logprob_writer logprobs;
    double logprob_sum; /* of its tokens, where the best of several is looked for */
    double score;       /* in a beam search */
    double last_token;  /* time of it; 0: none yet */
} choice;

typedef struct answer {
    struct answer *prev, *next;
    struct answer *next_dirty;
    bool dirty;
    server *server;
    http_exchange *x; /* NULL: replied to */
    openai_request req;
    choice *choices;           /* [n_choices]: those of a prompt lie together */
    size_t n_choices, pending; /* choices that have not ended */
    tenant *tenant;            /* what is counted of who asks */
    char tenant_name[TENANT_NAME_MAX + 1];
    char id[48], request_id[REQUEST_ID_MAX + 1];
    int64_t created;
    double arrived, deadline; /* clock_seconds; deadline 0: none */
    str head;                 /* of each event of a stream, up to the choice's index */
    str out;                  /* of a stream, this round */
} answer;

/* openai.c. Each of these may end the exchange; answer_settle then frees the answer if nothing of it is under
 * way, and it must not be used after that. */
void answer_fail(answer *a, int code, const char *type, const char *error_code, const char *message);
void answer_end_gone(answer *a, const char *why); /* the client left; why: the reason that is counted */
void answer_settle(answer *a);

/* answer_write.c */
void answer_write_head(answer *a);   /* of a stream's events */
void answer_reply_whole(answer *a);  /* all choices have ended */
void answer_stream_round(answer *a); /* sends what a round of the feed brought */

#endif
