/* graph_server.h: bundles and graphs (ONNX) behind HTTP in the Open Inference Protocol, version 2, and in
 * TensorFlow Serving's REST form.
 *
 * Threads: graph_server_run dispatches everything that touches a connection on its caller's thread, which
 * never computes. Workers, each with sessions of its own, read requests, run the model and write answers;
 * they take requests in the order in which they came. What waits is bounded in number and bytes. */
#ifndef SERVE_GRAPH_SERVER_H
#define SERVE_GRAPH_SERVER_H

#include "serve/http.h"
#include "serve/keys.h"
#include "serve/served.h"

typedef struct graph_server graph_server;

typedef struct graph_server_options {
    http_options http;
    const char *isa;     /* for GET /version; borrowed */
    const api_key *keys; /* [n_keys]; NULL: none are asked for; copied, the keys as digests */
    size_t n_keys;
    const bool *callers;      /* [models.n][n_keys]: which keys may ask which model; NULL: all. Borrowed */
    size_t workers;           /* requests that are computed at the same time; 0: 1 */
    size_t threads;           /* of each worker; only told */
    size_t max_queue;         /* requests that wait; 0: 256. Over it: 429 */
    uint64_t max_queue_bytes; /* of their bodies together; 0: 256 MiB. Over it: 429, unless none waits */
    double timeout;           /* seconds that a request may take from its arrival; 0: no limit */
    size_t max_sequences;     /* that are kept at a time; 0: 1,024 */
    double sequence_idle;     /* seconds until one that rests is forgotten; 0: 60 */
    const char *record;       /* folder for every request with its answer's digest; NULL: none. Borrowed */
} graph_server_options;

/* Binds the port and starts the workers. The models outlive the server. */
MUST_USE status graph_server_create(graph_server **out, const served_list *models,
                                    const graph_server_options *o, error *err);
void graph_server_free(graph_server *s);
uint16_t graph_server_port(const graph_server *s);
/* Serves until SIGTERM or SIGINT (what was taken is answered, new requests are refused) or a second of these
 * (everything ends at once). */
MUST_USE status graph_server_run(graph_server *s, error *err);

#endif
