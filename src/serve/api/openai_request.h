/* openai_request.h: a chat or completion request in OpenAI's form, checked and turned into what the engine
 * takes. Computes nothing and needs no model: bytes in, a description or one error out.
 *
 * Every field of the body is either honoured, accepted as having no effect (user, metadata and the like: see
 * docs/server.md), or refused by its name. */
#ifndef SERVE_API_OPENAI_REQUEST_H
#define SERVE_API_OPENAI_REQUEST_H

#include "bundle/lm_bundle.h"
#include "serve/json_in.h"

enum { OPENAI_MAX_CHOICES = 128, OPENAI_MAX_STOPS = 64, OPENAI_MAX_LOGPROBS = 20, OPENAI_MAX_SALT = 256 };

typedef enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION } openai_kind;

/* What the parser must know of the server. */
typedef struct openai_context {
    size_t n_vocab;
    sampler_params defaults; /* sampling when the request says nothing */
} openai_context;

/* A prompt of a completion: text, or ids when `ids` is not NULL. */
typedef struct openai_prompt {
    const char *text;
    size_t text_len;
    int32_t *ids; /* [n_ids], owned */
    size_t n_ids;
} openai_prompt;

/* Owns what it points to; texts are borrowed from `doc`, which it owns too. */
typedef struct openai_request {
    openai_kind kind;
    json_doc doc;
    const char *model; /* NULL: not given */
    /* chat */
    chat_message *messages; /* [n_messages] */
    char **joined;          /* [n_messages], texts made of several parts; NULL where there is one */
    size_t n_messages;
    bool add_generation_prompt;
    /* completion */
    openai_prompt *prompts; /* [n_prompts] */
    size_t n_prompts;
    bool echo;
    /* both */
    bool stream, include_usage;
    size_t n, best_of; /* choices that are replied and that are computed for each prompt: n <= best_of; with a
                          beam search best_of is n, and its width is in `beam` */
    size_t max_tokens; /* 0: not given (chat: up to the context) */
    bool logprobs;
    size_t top_logprobs;
    bool has_seed;
    uint64_t seed;
    double timeout;          /* seconds; 0: none */
    int32_t priority;        /* lower goes first */
    const char *cache_salt;  /* NULL: none */
    sampler_params sampling; /* bias points to `bias`; seed is set by the caller, for each choice */
    logit_bias *bias;
    const char **stop; /* [n_stop] */
    size_t *stop_len;
    size_t n_stop;
    int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    bool ignore_eos, speculate;
    engine_beam_options beam; /* width 0: no beam search */
} openai_request;

/* CHURON_INVALID: wrong; CHURON_UNSUPPORTED: a field that this server does not have. The message begins with
 * the field's path. On an error *out is zero. */
MUST_USE status openai_request_parse(openai_request *out, const char *body, size_t len, openai_kind kind,
                                     const openai_context *context, error *err);
void openai_request_free(openai_request *r);

/* Shared with /tokenize: the messages of a chat, into r->messages. */
MUST_USE status openai_request_messages(openai_request *r, const json_t *list, error *err);

/* use_beam_search and its fields, into r->beam; after all fields that it excludes. */
MUST_USE status openai_request_beams(openai_request *r, error *err);

/* Copies the field path that begins an error message ("messages[0].role: expected …") into `out`, cut to its
 * size; "" when the message does not begin with one. */
void openai_error_param(const char *message, char *out, size_t size);

#endif
