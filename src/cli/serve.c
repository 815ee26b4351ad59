/* serve.c: `churon serve`: a model behind HTTP. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "registry/store.h"
#include "serve/keys.h"
#include "serve/server.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct serve_flags {
    const char *host, *name, *tls_cert, *tls_key, *keys, *kv_type_text, *speculate, *draft;
    engine_options engine;
    uint64_t port, ctx, kv_memory, max_running, max_queued_tokens, step_tokens, max_body, max_connections;
    double inter_token_ms;
    bool no_prefix_cache;
} serve_flags;

/* The digest is computed beside loading, on its own thread. */
typedef struct digest_task {
    const char *path;
    char hex[DIGEST_HEX];
    status st;
    error err;
} digest_task;

static void *run_digest(void *user) {
    digest_task *t = user;
    t->st = store_digest(t->path, t->hex, &t->err);
    return NULL;
}

static status open_model(lm_bundle **out, const char *path, const serve_flags *f, const key_list *keys,
                         uint64_t threads, char digest[DIGEST_HEX], error *err) {
    *out = NULL;
    engine_tenant *tenants;
    size_t n_tenants;
    TRY(keys_tenants(keys, &tenants, &n_tenants, err));
    digest_task task = {.path = path};
    pthread_t thread;
    const bool started = pthread_create(&thread, NULL, run_digest, &task) == 0;
    if (!started) (void)run_digest(&task);
    const lm_bundle_options o = {.threads = (size_t)threads,
                                 .draft = f->draft,
                                 .engine = {.context = (size_t)f->ctx,
                                            .max_running = (size_t)f->max_running,
                                            .max_queued_tokens = (size_t)f->max_queued_tokens,
                                            .step_tokens = (size_t)f->step_tokens,
                                            .kv_type = f->engine.kv_type,
                                            .no_speculation = f->engine.no_speculation,
                                            .draft_tokens = f->engine.draft_tokens,
                                            .kv_memory = f->kv_memory,
                                            .inter_token_target = f->inter_token_ms / 1e3,
                                            .no_prefix_cache = f->no_prefix_cache,
                                            .tenants = tenants,
                                            .n_tenants = n_tenants}};
    status st = lm_bundle_open(out, path, &o, err);
    mem_free(tenants);
    if (started) pthread_join(thread, NULL);
    if (st == CHURON_OK && task.st != CHURON_OK) {
        if (err) *err = task.err;
        lm_bundle_close(*out);
        *out = NULL;
        return task.st;
    }
    memcpy(digest, task.hex, DIGEST_HEX);
    return st;
}

/* What clients call the model: --name, else the store's name as it was given, else the file's without its
 * ending. The caller frees it. */
static char *model_id(const char *model, const char *path, const char *name) {
    if (name) return mem_strdup(name);
    if (!file_exists(model)) return mem_strdup(model);
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = strlen(base), ending = strlen(".gguf");
    const bool cut = n > ending && strcmp(base + n - ending, ".gguf") == 0;
    return mem_strndup(base, cut ? n - ending : n);
}

static void print_ready(const server *s, const serve_flags *f, const char *id, double seconds,
                        const arg_common *common) {
    const char *scheme = f->tls_cert ? "https" : "http";
    const bool v6 = strchr(f->host, ':') != NULL;
    char url[300];
    snprintf(url, sizeof url, "%s://%s%s%s:%u", scheme, v6 ? "[" : "", f->host, v6 ? "]" : "",
             (unsigned)server_port(s));
    fprintf(stderr, "ready %s in %.0f ms\n", url, seconds * 1e3);
    fflush(stderr);
    if (!common->json) return;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "url", url);
    json_out_cstr(&j, "model", id);
    json_out_double(&j, "ready_s", seconds);
    json_out_end_object(&j);
    (void)cli_print_json(&out);
    str_free(&out);
}

/* What was asked for and is not what came. */
static void note_memory(lm_bundle *b, bool quiet) {
    engine *e = lm_bundle_engine(b);
    engine_load l;
    engine_load_get(e, &l);
    const size_t context = engine_context(e), held = l.kv_pages * l.kv_page_tokens;
    if (held >= context) return;
    cli_note(quiet,
             "note: --kv-memory: it holds %zu tokens, less than the context of %zu: no request can have more",
             held, context);
}

static status serve(lm_bundle *b, const char *id, const char *digest, const serve_flags *f,
                    const key_list *keys, const arg_common *common, double start, error *err) {
    server *s = NULL;
    const server_options o = {.http = {.host = f->host,
                                       .port = (uint16_t)f->port,
                                       .max_body = (size_t)f->max_body,
                                       .max_connections = (size_t)f->max_connections,
                                       .tls_cert = f->tls_cert,
                                       .tls_key = f->tls_key},
                              .model_id = id,
                              .digest = digest,
                              .keys = keys->items,
                              .n_keys = keys->n,
                              .max_running = (size_t)f->max_running,
                              .max_queued_tokens = (size_t)f->max_queued_tokens,
                              .temperature_given = lm_bundle_names_temperature(b)};
    status st = server_create(&s, b, &o, err);
    if (st == CHURON_OK) {
        print_ready(s, f, id, clock_seconds() - start, common);
        st = server_run(s, err);
    }
    server_free(s);
    return st;
}

int cmd_serve(int argc, char **argv) {
    if (bundle_is_asked(argc, argv) || graph_is_asked(argc, argv)) return graph_cmd_serve(argc, argv);
    const double start = clock_seconds();
    arg_common common = {0};
    serve_flags f = {.host = "127.0.0.1", .port = 8080};
    const arg_option options[] = {
        {.name = "host",
         .kind = ARG_STRING,
         .target = &f.host,
         .value = "HOST",
         .help = "name or address to listen on (default 127.0.0.1: this machine only)"},
        {.name = "port",
         .kind = ARG_UINT,
         .target = &f.port,
         .value = "N",
         .umax = 65535,
         .help = "port to listen on (default 8080; 0: any free one)"},
        {.name = "name",
         .kind = ARG_STRING,
         .target = &f.name,
         .value = "NAME",
         .help = "what clients call the model (default: its file's name)"},
        {.name = "ctx",
         .kind = ARG_UINT,
         .target = &f.ctx,
         .value = "N",
         .umin = 1,
         .umax = UINT32_MAX,
         .help = "tokens of prompt and answer together (default: what the model was trained with)"},
        {.name = "kv-memory",
         .kind = ARG_BYTES,
         .target = &f.kv_memory,
         .value = "BYTES",
         .umin = 1,
         .help = "memory for the KV cache (default: max-running contexts, at most half of what is free)"},
        settings_kv_type_option(&f.kv_type_text),
        settings_speculate_option(&f.speculate),
        settings_draft_option(&f.draft),
        {.name = "max-running",
         .kind = ARG_UINT,
         .target = &f.max_running,
         .value = "N",
         .umin = 1,
         .umax = 4096,
         .help = "answers computed together (default 16)"},
        {.name = "max-queued-tokens",
         .kind = ARG_UINT,
         .target = &f.max_queued_tokens,
         .value = "N",
         .umin = 1,
         .umax = UINT32_MAX,
         .help = "prompt tokens that may wait; over it requests get 429 (default 65536)"},
        {.name = "step-tokens",
         .kind = ARG_UINT,
         .target = &f.step_tokens,
         .value = "N",
         .umin = 1,
         .umax = 65536,
         .help = "tokens computed in one step, of answers and prompts together (default 128)"},
        {.name = "inter-token-target",
         .kind = ARG_DOUBLE,
         .target = &f.inter_token_ms,
         .value = "MS",
         .min = 0.1,
         .max = 60000,
         .help = "milliseconds between an answer's tokens that prompts must leave room for (default 50)"},
        {.name = "no-prefix-cache",
         .kind = ARG_FLAG,
         .target = &f.no_prefix_cache,
         .help = "compute every prompt whole, also where another began the same"},
        {.name = "max-body",
         .kind = ARG_BYTES,
         .target = &f.max_body,
         .value = "BYTES",
         .umin = 1,
         .help = "largest request body (default 4M)"},
        {.name = "max-connections",
         .kind = ARG_UINT,
         .target = &f.max_connections,
         .value = "N",
         .umin = 1,
         .umax = 65536,
         .help = "open connections (default 512)"},
        {.name = "keys",
         .kind = ARG_STRING,
         .target = &f.keys,
         .value = "FILE",
         .help = "API keys, one a line: KEY [tenant=NAME] [weight=W] [admin]; requests then need one"},
        {.name = "tls-cert",
         .kind = ARG_STRING,
         .target = &f.tls_cert,
         .value = "FILE",
         .help = "certificate chain (PEM): serve HTTPS"},
        {.name = "tls-key",
         .kind = ARG_STRING,
         .target = &f.tls_key,
         .value = "FILE",
         .help = "the certificate's private key (PEM)"},
    };
    const arg_command c = {
        .name = "serve",
        .synopsis = "MODEL",
        .summary = "Serves a model over HTTP in OpenAI's protocol, with a chat page at /.",
        .details = "SIGTERM or Ctrl-C lets running answers end; a second one stops at once.\n"
                   "A graph and a bundle have options of their own, --provider and --record among them:\n"
                   "churon serve MODEL.onnx --help.",
        .example = "churon serve model.gguf --port 8080",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (f.name && !*f.name) return args_wrong(&c, "--name", "a name", "\"\"");
    if (!settings_kv_type(f.kv_type_text, &f.engine.kv_type)) {
        return args_wrong(&c, "--kv-type", SETTINGS_KV_TYPES, f.kv_type_text);
    }
    if (!settings_speculate(f.speculate, &f.engine)) {
        return args_wrong(&c, "--speculate", SETTINGS_SPECULATE, f.speculate);
    }
    if (!f.tls_cert != !f.tls_key) {
        return args_wrong(&c, f.tls_cert ? "--tls-key" : "--tls-cert", "a file beside the other", "nothing");
    }

    error err = {0};
    str path = {0};
    lm_bundle *b = NULL;
    char *id = NULL;
    char digest[DIGEST_HEX] = "";
    key_list keys = {0};
    str draft = {0};
    status st = store_resolve(argv[0], &path, &err);
    if (st == CHURON_OK && f.draft) st = store_resolve(f.draft, &draft, &err);
    if (f.draft) f.draft = str_cstr(&draft);
    if (st == CHURON_OK && f.keys) st = keys_read(&keys, f.keys, &err);
    if (st == CHURON_OK) st = open_model(&b, str_cstr(&path), &f, &keys, common.threads, digest, &err);
    if (st == CHURON_OK) {
        note_memory(b, common.quiet);
        id = model_id(argv[0], str_cstr(&path), f.name);
        if (!id) st = error_no_memory(&err, "model name", path.len);
    }
    if (st == CHURON_OK) st = serve(b, id, digest, &f, &keys, &common, start, &err);
    lm_bundle_close(b);
    mem_free(id);
    keys_free(&keys);
    str_free(&path);
    str_free(&draft);
    return st == CHURON_OK ? EXIT_YES : cli_refuse(c.name, &err);
}
