/* server.h: a language model behind HTTP: routes, limits, the thread that steps the engine, metrics, drain.
 *
 * Threads: server_run dispatches everything on its caller's thread; one more thread runs the engine. They
 * meet in the feed. server_stop may be called from a signal handler's event only (same thread). */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "bundle/lm_bundle.h"
#include "serve/http.h"
#include "serve/keys.h"

typedef struct server server;

typedef struct server_options {
    http_options http;
    const char *model_id; /* what clients call the model; copied */
    const char *digest;   /* SHA-256 of the model file in hex, or NULL; copied */
    const api_key *keys;  /* [n_keys]; NULL: none are asked for; copied, the keys as digests */
    size_t n_keys;
    size_t max_running;       /* of the engine; 0: 16 */
    size_t max_queued_tokens; /* of the engine; 0: 65,536 */
    bool temperature_given;   /* the model's file names a temperature: it is the default instead of 1 */
} server_options;

/* Binds the port. The bundle must have an engine and outlive the server. */
MUST_USE status server_create(server **out, lm_bundle *bundle, const server_options *o, error *err);
void server_free(server *s);
uint16_t server_port(const server *s);
/* Serves until SIGTERM or SIGINT (running answers are finished, new ones refused) or a second of these
 * (everything ends at once). */
MUST_USE status server_run(server *s, error *err);

#endif
