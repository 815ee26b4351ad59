/* graph_serve.c: `churon serve MODEL.onnx`: a graph behind HTTP in the Open Inference Protocol. */
#include "cli/graph_cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernel/kernel.h"
#include "registry/store.h"
#include "serve/graph_server.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct serve_request {
    arg_common common;
    const char *model, *host, *name, *tls_cert, *tls_key, *keys;
    uint64_t port, workers, max_queue, max_body, max_connections;
    double timeout;
    graph *g;
    char *id;
    char digest[DIGEST_HEX];
} serve_request;

/* The digest is computed beside loading, on its own thread. */
typedef struct digest_task {
    const char *path;
    char *hex;
    status st;
    error err;
} digest_task;

static void *run_digest(void *user) {
    digest_task *t = user;
    t->st = store_digest(t->path, t->hex, &t->err);
    return NULL;
}

static status open_graph(serve_request *r, const char *path, error *err) {
    digest_task task = {.path = path, .hex = r->digest};
    pthread_t thread;
    const bool started = pthread_create(&thread, NULL, run_digest, &task) == 0;
    if (!started) (void)run_digest(&task);
    const graph_options o = {.threads = (size_t)r->common.threads};
    const status st = graph_open(&r->g, path, &o, err);
    if (started) pthread_join(thread, NULL);
    if (st == CHURON_OK && task.st != CHURON_OK && err) *err = task.err;
    return st == CHURON_OK ? task.st : st;
}

/* What clients call the model: --name, else the store's name as it was given, else the file's without its
 * ending. */
static char *model_id(const serve_request *r, const char *path) {
    if (r->name) return mem_strdup(r->name);
    if (!file_exists(r->model)) return mem_strdup(r->model);
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = strlen(base), ending = strlen(".onnx");
    const bool cut = n > ending && strcmp(base + n - ending, ".onnx") == 0;
    return mem_strndup(base, cut ? n - ending : n);
}

static void print_ready(const serve_request *r, const graph_server *s, double seconds) {
    const bool v6 = strchr(r->host, ':') != NULL;
    char url[300];
    snprintf(url, sizeof url, "%s://%s%s%s:%u", r->tls_cert ? "https" : "http", v6 ? "[" : "", r->host,
             v6 ? "]" : "", (unsigned)graph_server_port(s));
    fprintf(stderr, "ready %s in %.0f ms\n", url, seconds * 1e3);
    fflush(stderr);
    if (!r->common.json) return;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "url", url);
    json_out_cstr(&j, "model", r->id);
    json_out_double(&j, "ready_s", seconds);
    json_out_end_object(&j);
    (void)cli_print_json(&out);
    str_free(&out);
}

static status serve(serve_request *r, const key_list *keys, double start, error *err) {
    const kernels *k = NULL;
    TRY(kernels_select(&k, err));
    const graph_server_options o = {
        .http = {.host = r->host,
                 .port = (uint16_t)r->port,
                 .max_body = (size_t)r->max_body,
                 .max_connections = (size_t)r->max_connections,
                 .tls_cert = r->tls_cert,
                 .tls_key = r->tls_key},
        .model_id = r->id,
        .digest = r->digest,
        .isa = k->name,
        .keys = keys->items,
        .n_keys = keys->n,
        .workers = (size_t)r->workers,
        .threads = r->common.threads ? (size_t)r->common.threads : pool_physical_cores(),
        .max_queue = (size_t)r->max_queue,
        .timeout = r->timeout,
    };
    graph_server *s = NULL;
    status st = graph_server_create(&s, r->g, &o, err);
    if (st == CHURON_OK) {
        print_ready(r, s, clock_seconds() - start);
        st = graph_server_run(s, err);
    }
    graph_server_free(s);
    return st;
}

static int run(serve_request *r, double start) {
    error err = {0};
    str path = {0};
    key_list keys = {0};
    status st = store_resolve(r->model, &path, &err);
    if (st == CHURON_OK && r->keys) st = keys_read(&keys, r->keys, &err);
    if (st == CHURON_OK) st = open_graph(r, str_cstr(&path), &err);
    if (st == CHURON_OK) {
        r->id = model_id(r, str_cstr(&path));
        if (!r->id) st = error_no_memory(&err, "model name", path.len);
    }
    if (st == CHURON_OK) st = serve(r, &keys, start, &err);
    graph_close(r->g);
    mem_free(r->id);
    keys_free(&keys);
    str_free(&path);
    return st == CHURON_OK ? EXIT_YES : cli_refuse("serve", &err);
}

int graph_cmd_serve(int argc, char **argv) {
    const double start = clock_seconds();
    serve_request r = {
        .host = "127.0.0.1", .port = 8080, .workers = 1, .max_queue = 256, .max_body = 64 << 20};
    const arg_option options[] = {
        {.name = "host",
         .kind = ARG_STRING,
         .target = &r.host,
         .value = "HOST",
         .help = "name or address to listen on (default 127.0.0.1: this machine only)"},
        {.name = "port",
         .kind = ARG_UINT,
         .target = &r.port,
         .value = "N",
         .umax = 65535,
         .help = "port to listen on (default 8080; 0: any free one)"},
        {.name = "name",
         .kind = ARG_STRING,
         .target = &r.name,
         .value = "NAME",
         .help = "what clients call the model (default: its file's name)"},
        {.name = "workers",
         .kind = ARG_UINT,
         .target = &r.workers,
         .value = "N",
         .umin = 1,
         .umax = 64,
         .help = "requests computed at the same time, each with --threads threads (default 1)"},
        {.name = "max-queue",
         .kind = ARG_UINT,
         .target = &r.max_queue,
         .value = "N",
         .umin = 1,
         .umax = 65536,
         .help = "requests that may wait; over it they get 429 (default 256)"},
        {.name = "timeout",
         .kind = ARG_DOUBLE,
         .target = &r.timeout,
         .value = "SECONDS",
         .min = 0.001,
         .max = 86400,
         .help = "longest time from a request to its answer; over it 504 (default: none)"},
        {.name = "max-body",
         .kind = ARG_BYTES,
         .target = &r.max_body,
         .value = "BYTES",
         .umin = 1,
         .help = "largest request body (default 64M)"},
        {.name = "max-connections",
         .kind = ARG_UINT,
         .target = &r.max_connections,
         .value = "N",
         .umin = 1,
         .umax = 65536,
         .help = "open connections (default 512)"},
        {.name = "keys",
         .kind = ARG_STRING,
         .target = &r.keys,
         .value = "FILE",
         .help = "API keys, one a line; requests then need one"},
        {.name = "tls-cert",
         .kind = ARG_STRING,
         .target = &r.tls_cert,
         .value = "FILE",
         .help = "certificate chain (PEM): serve HTTPS"},
        {.name = "tls-key",
         .kind = ARG_STRING,
         .target = &r.tls_key,
         .value = "FILE",
         .help = "the certificate's private key (PEM)"},
    };
    const arg_command c = {.name = "serve",
                           .synopsis = "MODEL.onnx",
                           .summary = "Serves a graph (ONNX) over HTTP in the Open Inference Protocol (v2).",
                           .details =
                               "SIGTERM or Ctrl-C lets what was taken end; a second one stops at once.",
                           .example = "churon serve iris.onnx --port 8080",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .min_args = 1,
                           .max_args = 1};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (r.name && !*r.name) return args_wrong(&c, "--name", "a name", "\"\"");
    if (!r.tls_cert != !r.tls_key) {
        return args_wrong(&c, r.tls_cert ? "--tls-key" : "--tls-cert", "a file beside the other", "nothing");
    }
    r.model = argv[0];
    return run(&r, start);
}
