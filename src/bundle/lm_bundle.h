/* lm_bundle.h: a language model with everything that its answers need: weights, tokenizer, chat template and
 * generation defaults, from one file. Every front door (C API, CLI, HTTP) generates through this interface,
 * so the same request gives the same bytes through all of them.
 *
 * Reference counted; immutable after open apart from the engine it owns; any thread. */
#ifndef BUNDLE_LM_BUNDLE_H
#define BUNDLE_LM_BUNDLE_H

#include "format/gguf.h"
#include "lm/engine.h"
#include "text/template.h"
#include "text/tokenizer.h"

typedef struct lm_bundle lm_bundle;

typedef struct lm_bundle_options {
    size_t threads;        /* 0: physical cores */
    bool text_only;        /* tokenizer and template only, no weights (tokenize) */
    uint64_t offset, size; /* of the model in a file that holds more (gguf_open_in); size 0: the whole file */
    const char *draft;     /* path of a smaller model with the same tokens, for engine.draft; NULL: none */
    engine_options engine;
} lm_bundle_options;

MUST_USE status lm_bundle_open(lm_bundle **out, const char *path, const lm_bundle_options *o, error *err);
lm_bundle *lm_bundle_ref(lm_bundle *b);
void lm_bundle_close(lm_bundle *b);

const tokenizer *lm_bundle_tokenizer(const lm_bundle *b);
const lm_model *lm_bundle_model(const lm_bundle *b); /* NULL if text_only */
engine *lm_bundle_engine(lm_bundle *b);
const char *lm_bundle_name(const lm_bundle *b); /* general.name or the file's name */
bool lm_bundle_has_template(const lm_bundle *b);
const char *lm_bundle_template_source(const lm_bundle *b, size_t *len); /* NULL if none */
size_t lm_bundle_threads(const lm_bundle *b);
double lm_bundle_load_seconds(const lm_bundle *b);

/* Builds a tokenizer from a GGUF's metadata (also for tools that want no more). */
MUST_USE status tokenizer_from_gguf(tokenizer **out, const gguf *g, error *err);

/* ---- prompts ---------------------------------------------------------------------------------------- */

typedef struct chat_message {
    const char *role, *content;
    size_t role_len, content_len;
} chat_message;

/* Appends the prompt that the chat template makes of the messages. No template in the file: an error that
 * says so. */
MUST_USE status lm_bundle_chat_prompt(const lm_bundle *b, const chat_message *messages, size_t n,
                                      bool add_generation_prompt, str *out, error *err);

/* ---- generation ------------------------------------------------------------------------------------- */

enum { GENERATION_MAX_STOPS = 64 };

typedef struct generation_request {
    sampler_params sampling;
    size_t max_tokens;       /* 0: up to the context */
    const char *const *stop; /* strings, copied */
    const size_t *stop_len;
    size_t n_stop;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    bool ignore_eos;
    bool special_text; /* show control tokens as text */
    int32_t priority;  /* of engine_job_options */
    bool no_speculation;
    double deadline; /* clock_seconds() after which it ends with FINISH_TIMEOUT; 0: none */
    /* With a width: no sampling and no stop strings; no token is told, see generation_beams. */
    engine_beam_options beam;
} generation_request;

/* Checks everything that does not depend on the prompt; names the field in SURFACE's spelling. */
MUST_USE status generation_check(const lm_bundle *b, const generation_request *r, error *err);

/* Sampling as the model's file says (general.sampling.* keys) or the documented default (temperature 0.8). */
sampler_params lm_bundle_sampling_defaults(const lm_bundle *b);
bool lm_bundle_names_temperature(const lm_bundle *b); /* the file recommends one */

typedef enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_TIMEOUT, /* its deadline passed */
    FINISH_ERROR
} finish_reason;
const char *finish_reason_name(
    finish_reason f); /* "stop", "length", "cancelled", "timeout", "error"; NONE: NULL */

/* One step of an answer. Text: whole characters that are certain (no part of a stop string, no half
 * character); may be empty while something is held back. Token is NULL at the end. */
typedef struct generation_event {
    const char *text;
    size_t text_len;
    const sampled *token;
    finish_reason finish; /* FINISH_NONE until the last event */
    const error *err;     /* with FINISH_ERROR */
} generation_event;

/* Runs on the thread that steps the engine; must not block. Return false to stop. After an event with a
 * finish there is no further one. */
typedef bool (*generation_fn)(void *user, const generation_event *event);

typedef struct generation generation;

/* Starts generating on a sequence whose prompt was appended. Several may run at once. */
MUST_USE status generation_start(generation **out, lm_bundle *b, engine_seq *seq, const generation_request *r,
                                 generation_fn on_event, void *user, error *err);
void generation_cancel(generation *g);        /* any thread; the last event follows within one step */
finish_reason generation_wait(generation *g); /* blocks; steps the engine if no other thread does */
/* The same, but returns after at most one step, with FINISH_NONE if the answer goes on. */
finish_reason generation_wait_step(generation *g);
engine_job_stats generation_stats(const generation *g);

typedef struct generation_beam {
    const char *text; /* borrowed until generation_free */
    size_t text_len, n_tokens;
    const int32_t *ids;    /* [n_tokens], the stop id included; borrowed likewise */
    double score, logprob; /* sum / length^length_penalty; the sum */
    finish_reason finish;  /* FINISH_STOP or FINISH_LENGTH */
} generation_beam;
/* The texts that a beam search found, best first; *out [n], n returned: at most the width. Filled when the
 * last event came with FINISH_STOP or FINISH_LENGTH. */
size_t generation_beams(const generation *g, const generation_beam **out);
void generation_view(generation *g, engine_job_view *out); /* any thread, also while it runs */
void generation_free(generation *g);                       /* after its last event has returned */

#endif
