/* graph_server.h: a graph (ONNX) behind HTTP in the Open Inference Protocol, version 2.
 *
 * Threads: graph_server_run dispatches everything that touches a connection on its caller's thread, which
 * never computes. Workers, each with a session of its own, read requests, run the graph and write answers;
 * they take requests in the order in which they came. What waits is bounded in number and bytes. */
#ifndef SERVE_GRAPH_SERVER_H
#define SERVE_GRAPH_SERVER_H

#include "graph/graph.h"
#include "serve/http.h"
#include "serve/keys.h"

typedef struct graph_server graph_server;

typedef struct graph_server_options {
    http_options http;
    const char *model_id; /* what clients call the model; copied */
    const char *digest;   /* SHA-256 of the model file in hex, or NULL; copied */
    const char *isa;      /* for GET /version; borrowed */
    const api_key *keys;  /* [n_keys]; NULL: none are asked for; copied, the keys as digests */
    size_t n_keys;
    size_t workers;           /* requests that are computed at the same time; 0: 1 */
    size_t threads;           /* of each worker; only told */
    size_t max_queue;         /* requests that wait; 0: 256. Over it: 429 */
    uint64_t max_queue_bytes; /* of their bodies together; 0: 256 MiB. Over it: 429, unless none waits */
    double timeout;           /* seconds that a request may take from its arrival; 0: no limit */
} graph_server_options;

/* Binds the port and starts the workers. The graph is referenced. */
MUST_USE status graph_server_create(graph_server **out, graph *g, const graph_server_options *o, error *err);
void graph_server_free(graph_server *s);
uint16_t graph_server_port(const graph_server *s);
/* Serves until SIGTERM or SIGINT (what was taken is answered, new requests are refused) or a second of these
 * (everything ends at once). */
MUST_USE status graph_server_run(graph_server *s, error *err);

#endif
