/* graph_serve.c: `churon serve MODEL…` of bundles and graphs (ONNX): behind HTTP in the Open Inference
 * Protocol and in TensorFlow Serving's form. */
#include "cli/bundle_cli.h"
#include "cli/graph_cli.h"
#include "cli/graph_providers.h"
#include "cli/serve_rights.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernel/kernel.h"
#include "registry/store.h"
#include "serve/graph_server.h"
#include "serve/json_in.h"

#include <stdio.h>
#include <string.h>

enum { MAX_MODELS = 64 };

typedef struct serve_request {
    arg_common common;
    const char *host, *name, *tls_cert, *tls_key, *keys, *record, *signatures;
    sign_keys *trusted;
    char **given; /* [n_given] */
    size_t n_given;
    uint64_t port, workers, max_queue, max_body, max_connections, max_sequences;
    double timeout, sequence_idle;
    served_list models;
    provider_choice providers;
} serve_request;

/* ---- models ----------------------------------------------------------------------------------------- */

static void note_fault(const serve_request *r, const served *v) {
    cli_note(r->common.quiet, "note: %s: version %s is not served: %s", v->name, v->version,
             str_cstr(&v->fault));
}

static status add_path(serve_request *r, const char *path, served_options o, const served **out, error *err) {
    o.threads = (size_t)r->common.threads;
    o.trusted = r->trusted;
    o.providers = r->providers.names;
    o.n_providers = r->providers.n;
    TRY(served_add(&r->models, path, &o, out, err));
    if (!(*out)->available) note_fault(r, *out);
    return CHURON_OK;
}

static status add_ref(serve_request *r, const char *ref, served_options o, const served **out, error *err) {
    str path = {0};
    status st = bundle_resolve(ref, &path, err);
    if (st == CHURON_OK) st = add_path(r, str_cstr(&path), o, out, err);
    str_free(&path);
    return st;
}

/* The versions of a stored name that are older than the one that failed, newest first, until one is served.
 */
static status add_older(serve_request *r, const char *name, const char *called, const char *failed,
                        error *err) {
    store_listing l = {0};
    bool older = false, done = false;
    status st = store_list(&l, err);
    for (size_t i = 0; i < l.n && st == CHURON_OK && !done; i++) {
        const store_entry *e = &l.entries[i];
        if (strcmp(e->name, name) != 0) continue;
        if (older) {
            char ref[2 * STORE_NAME_MAX + 2];
            const served *v = NULL;
            snprintf(ref, sizeof ref, "%s:%s", e->name, e->version);
            st = add_ref(r, ref, (served_options){.name = called, .version = e->version, .stored = name}, &v,
                         err);
            done = st == CHURON_OK && v->available;
        }
        older = older || strcmp(e->version, failed) == 0;
    }
    store_listing_free(&l);
    return st;
}

/* A name of the store, with a version, an alias (then its label) or neither. */
static status add_stored(serve_request *r, const char *model, const store_ref *ref, error *err) {
    const char *called = r->name ? r->name : ref->name;
    const served *v = NULL;
    store_entry e = {0};
    TRY(store_find(model, &e, err));
    const served_options o = {
        .name = called, .version = e.version, .stored = ref->name, .label = *ref->alias ? ref->alias : NULL};
    status st = add_ref(r, model, o, &v, err);
    if (st == CHURON_OK && !v->available && !*ref->version && !*ref->alias)
        st = add_older(r, ref->name, called, e.version, err);
    store_entry_free(&e);
    return st;
}

static status add_model(serve_request *r, const char *model, error *err) {
    store_ref ref;
    const served *v = NULL;
    const bool path = file_exists(model) || file_is_dir(model) || strchr(model, '/');
    if (!path && store_ref_parse(&ref, model, NULL) == CHURON_OK) return add_stored(r, model, &ref, err);
    return add_ref(r, model, (served_options){.name = r->name}, &v, err);
}

/* Every name must have a version that is served. */
static status check_served(const serve_request *r, error *err) {
    for (size_t i = 0; i < r->models.n; i++) {
        const served *v = r->models.items[i];
        const served_wanted w = {.name = v->name, .name_len = strlen(v->name)};
        if (served_find(&r->models, &w, err)) continue;
        err->code = CHURON_INVALID;
        return err->code;
    }
    return CHURON_OK;
}

static status open_models(serve_request *r, error *err) {
    for (size_t i = 0; i < r->n_given; i++) {
        const status st = add_model(r, r->given[i], err);
        if (st == CHURON_OK) continue;
        cli_name_file(err, r->given[i]);
        return st;
    }
    return check_served(r, err);
}

static status check_folder(const serve_request *r, error *err) {
    if (!r->record || file_is_dir(r->record)) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "field --record: expected a folder that exists, got '%.200s'",
                     r->record);
}

/* ---- the server ------------------------------------------------------------------------------------- */

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
    json_out_cstr(&j, "model", r->models.items[0]->name);
    json_out_array(&j, "models");
    for (size_t i = 0; i < r->models.n; i++) {
        const served *v = r->models.items[i];
        json_out_object(&j, NULL);
        json_out_cstr(&j, "name", v->name);
        json_out_cstr(&j, "version", v->version);
        json_out_cstr(&j, "state", v->available ? "AVAILABLE" : "END");
        json_out_uint(&j, "golden_cases", v->golden);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_double(&j, "ready_s", seconds);
    json_out_end_object(&j);
    (void)cli_print_json(&out);
    str_free(&out);
}

static status serve(serve_request *r, const key_list *keys, const bool *callers, double start, error *err) {
    const kernels *k = NULL;
    TRY(kernels_select(&k, err));
    const graph_server_options o = {
        .http = {.host = r->host,
                 .port = (uint16_t)r->port,
                 .max_body = (size_t)r->max_body,
                 .max_connections = (size_t)r->max_connections,
                 .tls_cert = r->tls_cert,
                 .tls_key = r->tls_key},
        .isa = k->name,
        .keys = keys->items,
        .n_keys = keys->n,
        .callers = callers,
        .workers = (size_t)r->workers,
        .threads = r->common.threads ? (size_t)r->common.threads : pool_physical_cores(),
        .max_queue = (size_t)r->max_queue,
        .timeout = r->timeout,
        .max_sequences = (size_t)r->max_sequences,
        .sequence_idle = r->sequence_idle,
        .record = r->record,
    };
    graph_server *s = NULL;
    status st = graph_server_create(&s, &r->models, &o, err);
    if (st == CHURON_OK) {
        print_ready(r, s, clock_seconds() - start);
        st = graph_server_run(s, err);
    }
    graph_server_free(s);
    return st;
}

static int run_server(serve_request *r, double start) {
    error err = {0};
    key_list keys = {0};
    json_in_setup(); /* before anything reads JSON */
    bool *callers = NULL;
    status st = check_folder(r, &err);
    if (st == CHURON_OK) st = provider_choice_read(&r->providers, &err);
    if (st != CHURON_OK) { /* a value on the command line */
        provider_choice_free(&r->providers);
        return cli_fail("serve", &err);
    }
    if (r->keys) st = keys_read(&keys, r->keys, &err);
    if (st == CHURON_OK && r->signatures) st = sign_keys_load(&r->trusted, r->signatures, &err);
    if (st == CHURON_OK) st = open_models(r, &err);
    if (st == CHURON_OK) st = serve_rights(&r->models, &keys, &callers, &err);
    if (st == CHURON_OK) st = serve(r, &keys, callers, start, &err);
    served_free(&r->models);
    provider_choice_free(&r->providers);
    sign_keys_free(r->trusted);
    mem_free(callers);
    keys_free(&keys);
    return st == CHURON_OK ? EXIT_YES : cli_refuse("serve", &err);
}

int graph_cmd_serve(int argc, char **argv) {
    const double start = clock_seconds();
    serve_request r = {.host = "127.0.0.1",
                       .port = 8080,
                       .workers = 1,
                       .max_queue = 256,
                       .max_body = 64 << 20,
                       .max_sequences = 1024,
                       .sequence_idle = 60};
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
         .help = "what clients call the model, if there is one (default: the bundle's or its file's name)"},
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
        {.name = "max-sequences",
         .kind = ARG_UINT,
         .target = &r.max_sequences,
         .value = "N",
         .umin = 1,
         .umax = 65536,
         .help = "sequences whose state is kept at a time (default 1024)"},
        {.name = "sequence-idle",
         .kind = ARG_DOUBLE,
         .target = &r.sequence_idle,
         .value = "SECONDS",
         .min = 0.1,
         .max = 86400,
         .help = "a sequence that rests for longer is forgotten (default 60)"},
        {.name = "record",
         .kind = ARG_STRING,
         .target = &r.record,
         .value = "DIR",
         .help = "a folder for every request and its answer's digest, for churon replay"},
        {.name = "require-signature",
         .kind = ARG_STRING,
         .target = &r.signatures,
         .value = "KEYS",
         .help = "a public key or a folder of them: every model must be signed by one"},
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
        PROVIDER_OPTION(&r.providers),
    };
    const arg_command c = {
        .name = "serve",
        .synopsis = "MODEL...",
        .summary = "Serves bundles and graphs (ONNX) over HTTP: Open Inference Protocol (v2), TensorFlow "
                   "Serving's :predict.",
        .details = "SIGTERM or Ctrl-C lets what was taken end; a second one stops at once.",
        .example = "churon serve iris.onnx --port 8080",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .min_args = 1,
        .max_args = MAX_MODELS};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (r.name && !*r.name) return args_wrong(&c, "--name", "a name", "\"\"");
    if (!r.tls_cert != !r.tls_key) {
        return args_wrong(&c, r.tls_cert ? "--tls-key" : "--tls-cert", "a file beside the other", "nothing");
    }
    if (r.name && n_args > 1) return args_wrong(&c, "--name", "one model beside it", "several");
    r.given = argv;
    r.n_given = n_args;
    return run_server(&r, start);
}
