/* load.h: drives one OpenAI-compatible server with streamed requests and records when what came.
 *
 * A session is one thread's client. A target is a server that has answered and whose chat template was
 * measured, so that prompts of a wanted number of tokens can be made for it. A run sends a plan (load_plan.h)
 * to one target, in a closed loop (a new request when one ends) or an open one (at the plan's times, whatever
 * the server does). All token counts are those that the server reports. Owner: one thread. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "base/str.h"
#include "bench/load_plan.h"
#include "bench/load_prompt.h"

#include <jansson.h>

typedef enum load_outcome {
    LOAD_OK,
    LOAD_REFUSED,     /* 429: the server says that it is full */
    LOAD_HTTP_STATUS, /* another status than 200 */
    LOAD_UNREACHABLE,
    LOAD_TIMEOUT,
    LOAD_BROKEN,    /* the connection or the event stream ended before the answer did */
    LOAD_MALFORMED, /* what came is no such stream */
    LOAD_FAILED,    /* the server reported an error within the stream */
    LOAD_CANCELLED, /* by this program */
    LOAD_N_OUTCOMES
} load_outcome;
const char *load_outcome_name(load_outcome o); /* "ok", "refused", "http", … */

enum { LOAD_WHY = 200, LOAD_NAME = 128, LOAD_FINISH = 24 };

/* One request. Times are seconds from the run's start; NaN: did not happen. */
typedef struct load_record {
    double scheduled; /* when it was to be sent; equal to `sent` in a closed loop */
    double sent;
    double first, last; /* first and last event with text */
    double end;
    double *stamps; /* [n_stamps] when each event with text came; owned */
    size_t n_stamps, cap_stamps;
    uint64_t prompt_tokens, output_tokens, cached_tokens; /* with has_usage */
    bool has_usage;
    int code;       /* HTTP status; 0: none came */
    uint32_t round; /* of its run */
    load_outcome outcome;
    double retry_after;       /* seconds that a refusal asked for, or NaN */
    char finish[LOAD_FINISH]; /* finish_reason; "" if none came */
    char why[LOAD_WHY];       /* one line, unless LOAD_OK */
} load_record;

typedef struct load_records {
    load_record *items;
    size_t n, cap;
    double wall;       /* seconds from the run's start to the last end */
    double client_cpu; /* seconds that this thread computed meanwhile */
} load_records;
void load_records_free(load_records *r);
/* Moves the records of `from` behind those of `to` and adds up the times. `from` is empty afterwards. */
MUST_USE status load_records_join(load_records *to, load_records *from, error *err);

/* Seconds between events with text, TTFT from `scheduled`; NaN where there is none. */
double load_record_ttft(const load_record *r);
double load_record_tpot(const load_record *r); /* by the server's count; NaN below two tokens */
double load_record_longest_gap(const load_record *r);

typedef struct load_slo {
    double ttft, tpot, itl, e2e; /* seconds; 0: not asked for. itl: the longest gap of the request */
} load_slo;
/* "ttft=500ms,tpot=50ms,itl=1s,e2e=10s", each at most once, at least one. */
MUST_USE status load_slo_parse(load_slo *out, const char *text, error *err);
bool load_slo_met(const load_slo *slo, const load_record *r);

/* ---- session and target ----------------------------------------------------------------------------- */

typedef struct load_session load_session;

typedef struct load_session_options {
    double timeout; /* seconds for a request */
    const char *key;
    const json_t *extra;          /* an object whose members every request carries; borrowed; NULL: none */
    bool completions;             /* /v1/completions instead of chat */
    bool ignore_eos;              /* asks for answers of exactly the wanted length */
    double temperature;           /* over 0: each request also has a seed of its own */
    uint64_t seed;                /* of made-up prompts */
    const load_messages *prompts; /* instead of made-up ones; borrowed; NULL: none */
} load_session_options;

MUST_USE status load_session_create(load_session **out, const load_session_options *o, error *err);
void load_session_free(load_session *s);

typedef struct load_target {
    char *base;            /* "http://host:port", without /v1; owned */
    char model[LOAD_NAME]; /* as it is asked for */
    char server[LOAD_NAME];
    uint64_t context;                     /* tokens; 0: not said */
    double around, around_shared, shared; /* tokens that the template adds; tokens of a word */
    double per_word;
} load_target;

/* http:// or https://, a host, nothing after it but "/" or "/v1". */
MUST_USE status load_url_check(const char *url, const char *field, error *err);
/* Asks for the models, and with two or three short prompts what the template adds. model NULL: the first one
 * that the server names. */
MUST_USE status load_target_open(load_target *t, load_session *s, const char *url, const char *model,
                                 bool with_shared_prefix, error *err);
void load_target_close(load_target *t);

/* ---- runs ------------------------------------------------------------------------------------------- */

typedef struct load_progress {
    void (*fn)(void *user, size_t ended, size_t of);
    void *user;
} load_progress;

typedef struct load_run_options {
    const load_plan *plan;
    size_t concurrency;      /* over 0: closed loop */
    double duration;         /* seconds after which no more is sent; 0: none */
    uint32_t shared_prefix;  /* tokens of a system prompt that all requests of this run share; 0: none */
    uint64_t round;          /* runs of different rounds have different prompts */
    const load_slo *give_up; /* ends early once more than give_up_share of the plan has missed it; or NULL */
    double give_up_share;
    load_progress progress;
} load_run_options;

/* Records are in the order of sending. When the server cannot be reached any more the run ends early. What
 * the server does wrong is in the records, not in the status. */
MUST_USE status load_run(load_records *out, load_session *s, const load_target *t, const load_run_options *o,
                         bool *gave_up, error *err);

typedef struct load_stall {
    double alone;          /* seconds to the first token of the long prompt, nothing else running */
    double beside;         /* the same while a chat decodes */
    double gap_before_p50; /* seconds between the chat's events before the long prompt came */
    double gap_before_max;
    double gap_longest;   /* from the long prompt's sending to its first token */
    uint64_t long_tokens; /* of the long prompt, as the server counted */
    size_t events_beside; /* events of the chat meanwhile */
    double sent, first;   /* of the long prompt, seconds from the chat's sending */
    double *stamps;       /* [n_stamps] the chat's events, likewise; owned */
    size_t n_stamps;
} load_stall;
void load_stall_free(load_stall *r);

/* A prompt of `prompt` tokens alone; then one chat that decodes, and such a prompt beside it. */
MUST_USE status load_stall_run(load_stall *out, load_session *s, const load_target *t, uint32_t prompt,
                               uint64_t round, error *err);

#endif
