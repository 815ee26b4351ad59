/* server_internal.h: what the server's parts see of it. Everything belongs to the serving thread, apart from
 * the feed's other end. */
#ifndef SERVE_SERVER_INTERNAL_H
#define SERVE_SERVER_INTERNAL_H

#include "base/digest.h"
#include "serve/feed.h"
#include "serve/measure.h"
#include "serve/server.h"

#include <event2/event.h>
#include <pthread.h>

enum { MAX_LIVE_CHOICES = 1024, REQUEST_ID_MAX = 64 };

typedef struct server_key {
    char digest[DIGEST_HEX];
    char tenant[TENANT_NAME_MAX + 1];
    bool admin;
} server_key;

/* Who sent a request. */
typedef struct caller {
    char tenant[TENANT_NAME_MAX + 1];
    bool admin;
} caller;

struct answer;

struct server {
    server_options o;
    char *model_id;
    char digest[DIGEST_HEX];
    char fingerprint[32];
    int64_t created;
    lm_bundle *bundle;
    engine *engine;
    struct event_base *base;
    http_server *http;
    feed *feed;
    struct event *feed_event, *tick, *sigterm, *sigint;
    pthread_t service;
    bool service_started;
    server_metrics m;
    double tokens_per_s; /* recent speed of the engine, for Retry-After */
    double started, last_tick;
    uint64_t last_tokens;
    server_key *keys; /* [n_keys] */
    size_t n_keys;
    size_t
        capacity; /* tokens that one sequence can have: the context, or less where the KV cache is smaller */
    bool draining, stopping;
    size_t live_choices, n_answers;
    size_t max_answers;     /* fewer than connections, so that some are left to be told that it is full */
    bool several_tenants;   /* among the keys */
    struct answer *answers; /* all, for stopping */
    struct answer *dirty;   /* with output that this round of the feed brought */
    size_t longest_token;   /* bytes */
    char id_prefix[17];     /* random, of this process */
    uint64_t next_id;
    char request_id[REQUEST_ID_MAX + 1]; /* of the request being dispatched */
    caller caller;                       /* of the request being dispatched */
    double arrived;                      /* of the request being dispatched */
};

/* ---- for the endpoints ------------------------------------------------------------------------------ */

/* The reply to a failed request, in OpenAI's shape: status and type follow from the error's code. */
void server_reply_error(server *s, http_exchange *x, const error *err);
void server_reply_status(server *s, http_exchange *x, int code, const char *type, const char *param,
                         const char *error_code, const char *message);
void server_reply_json(server *s, http_exchange *x, str *body); /* 200; a failed str becomes 503 */
/* {"message":…,"type":…,"param":…,"code":…}, for replies and for streams. */
void server_write_error(str *out, const char *type, const char *param, const char *code, const char *message);
int server_error_http(const error *err, const char **type, const char **code);
void server_unique_id(server *s, char *out, size_t size, const char *prefix);
/* Is it the model that is served? NULL (not named) is. Fills err with CHURON_NOT_FOUND. */
MUST_USE status server_check_model(const server *s, const char *model, error *err);

/* Fills err with CHURON_LIMIT if a prompt of that many tokens and an answer of max_tokens (0: at least one)
 * are more than the context or the KV cache can hold. `field`: the prompt's. */
MUST_USE status server_check_length(const server *s, const char *field, size_t prompt, size_t max_tokens,
                                    error *err);

/* Ids of a prompt that is text, special tokens recognised, with the file's bos; refuses early what cannot fit
 * the context. `field`: its name in errors. */
MUST_USE status server_tokenize_prompt(const server *s, const char *text, size_t len, const char *field,
                                       token_list *out, error *err);

/* api/admin.c */
void admin_list(server *s, http_exchange *x);
void admin_cancel(server *s, http_exchange *x, const char *id, size_t len);
/* api/models.c */
void openai_models(server *s, http_exchange *x);
void openai_model(server *s, http_exchange *x, const char *id);
/* api/openai.c */
void openai_chat(server *s, http_exchange *x);
void openai_completions(server *s, http_exchange *x);
void openai_feed(void *user, const feed_event *event); /* user: server */
void openai_flush(server *s);                          /* sends what a round of the feed brought */
void openai_cancel_all(server *s);
/* api/text.c */
void text_tokenize(server *s, http_exchange *x);
void text_detokenize(server *s, http_exchange *x);

/* page: generated from page.html at build time */
extern const unsigned char page_html[];
extern const size_t page_html_len;

#endif
