/* routes.c: see routes.h. */
#include "serve/routes.h"

#include "base/clock.h"
#include "base/json_out.h"
#include "serve/api/openai_request.h"
#include "serve/server_internal.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- replies ---------------------------------------------------------------------------------------- */

void server_write_error(str *out, const char *type, const char *param, const char *code,
                        const char *message) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "message", message);
    json_out_cstr(&j, "type", type);
    json_out_cstr(&j, "param", param && *param ? param : NULL);
    json_out_cstr(&j, "code", code);
    json_out_end_object(&j);
}

void server_reply_status(server *s, http_exchange *x, int code, const char *type, const char *param,
                         const char *error_code, const char *message) {
    (void)s;
    str out = {0};
    str_cat(&out, "{\"error\":");
    server_write_error(&out, type, param, error_code, message);
    str_put(&out, '}');
    http_reply(x, code, "application/json", str_cstr(&out), out.len);
    str_free(&out);
}

int server_error_http(const error *err, const char **type, const char **code) {
    *code = churon_status_name(err->code);
    *type = "invalid_request_error";
    switch (err->code) {
    case CHURON_LIMIT: *code = "context_length_exceeded"; return 400;
    case CHURON_INVALID:
    case CHURON_UNSUPPORTED:
    case CHURON_CORRUPT: return 400;
    case CHURON_NOT_FOUND: *code = "model_not_found"; return 404;
    case CHURON_BUSY: *type = "rate_limit_error"; return 429;
    case CHURON_NO_MEMORY:
    case CHURON_CANCELLED: *type = "server_error"; return 503;
    case CHURON_OK:
    case CHURON_IO:
    case CHURON_INTERNAL:
    default: *type = "server_error"; return 500;
    }
}

/* Seconds until the queue has moved on, from its length and the engine's recent speed: 1 to 60. */
static void add_retry_after(server *s, http_exchange *x) {
    engine_load l;
    engine_load_get(s->engine, &l);
    double seconds = s->tokens_per_s > 0 ? (double)l.waiting_tokens / s->tokens_per_s / 2 : 1;
    if (!(seconds >= 1)) seconds = 1;
    if (seconds > 60) seconds = 60;
    char text[16];
    snprintf(text, sizeof text, "%d", (int)seconds);
    http_reply_header(x, "Retry-After", text);
}

static const char *refusal_name(churon_status code) {
    switch (code) {
    case CHURON_BUSY: return "queue";
    case CHURON_LIMIT: return "context";
    case CHURON_UNSUPPORTED: return "unsupported";
    case CHURON_INVALID:
    case CHURON_CORRUPT:
    case CHURON_NOT_FOUND: return "invalid";
    case CHURON_OK:
    case CHURON_NO_MEMORY:
    case CHURON_IO:
    case CHURON_CANCELLED:
    case CHURON_INTERNAL:
    default: return "error";
    }
}

void server_reply_error(server *s, http_exchange *x, const error *err) {
    const char *type, *code;
    const int http = server_error_http(err, &type, &code);
    char param[96];
    openai_error_param(err->message, param, sizeof param);
    metric_add(server_counter_refused(s, refusal_name(err->code)), 1);
    if (http == 429 || http == 503) add_retry_after(s, x);
    server_reply_status(s, x, http, type, param, code, err->message);
}

void server_reply_json(server *s, http_exchange *x, str *body) {
    if (body->failed) {
        server_reply_status(s, x, 503, "server_error", NULL, "no_memory",
                            "server: out of memory for the reply");
        return;
    }
    http_reply(x, 200, "application/json", str_cstr(body), body->len);
}

void server_unique_id(server *s, char *out, size_t size, const char *prefix) {
    snprintf(out, size, "%s%s%08llx", prefix, s->id_prefix, (unsigned long long)s->next_id++);
}

status server_check_model(const server *s, const char *model, error *err) {
    if (!model || strcmp(model, s->model_id) == 0) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "model: expected %s, got %.80s", s->model_id, model);
}

static const char *capacity_name(const server *s) {
    return s->capacity < engine_context(s->engine) ? "what --kv-memory holds" : "the context";
}

status server_check_length(const server *s, const char *field, size_t prompt, size_t max_tokens, error *err) {
    const size_t most = s->capacity, wanted = max_tokens ? max_tokens : 1;
    const char *what = capacity_name(s);
    if (prompt == 0)
        return error_set(err, CHURON_INVALID, "%s: expected at least one token, got none", field);
    if (prompt < most && wanted <= most - prompt) return CHURON_OK;
    if (!max_tokens || prompt >= most) {
        return error_set(err, CHURON_LIMIT,
                         "%s: expected at most %zu tokens with the answer (%s), got a prompt of %zu", field,
                         most, what, prompt);
    }
    return error_set(err, CHURON_LIMIT,
                     "max_tokens: expected at most %zu (%s, %zu, less the prompt's %zu), got %zu",
                     most - prompt, what, most, prompt, wanted);
}

status server_tokenize_prompt(const server *s, const char *text, size_t len, const char *field,
                              token_list *out, error *err) {
    /* Not worth reading when even the longest tokens would be too many. */
    if (len / s->longest_token > s->capacity) {
        return error_set(err, CHURON_LIMIT,
                         "%s: expected at most %zu tokens with the answer (%s), got at least %zu", field,
                         s->capacity, capacity_name(s), len / s->longest_token);
    }
    const tokenizer *t = lm_bundle_tokenizer(s->bundle);
    const tokenize_options o = {.add_special = true, .parse_special = true};
    TRY(tokenizer_encode(t, text, len, o, out, err));
    /* A template that writes the beginning-of-sequence token itself must not get a second one. */
    const int32_t bos = tokenizer_bos(t);
    if (out->len >= 2 && bos >= 0 && out->ids[0] == bos && out->ids[1] == bos) {
        memmove(out->ids, out->ids + 1, (out->len - 1) * sizeof *out->ids);
        out->len--;
    }
    return CHURON_OK;
}

/* ---- small endpoints -------------------------------------------------------------------------------- */

static void reply_text(http_exchange *x, int code, const char *json) {
    http_reply(x, code, "application/json", json, strlen(json));
}

static void get_health(server *s, http_exchange *x) {
    (void)s;
    reply_text(x, 200, "{\"status\":\"ok\"}");
}

static void get_ready(server *s, http_exchange *x) {
    if (s->draining) {
        reply_text(x, 503, "{\"status\":\"draining\"}");
    } else {
        reply_text(x, 200, "{\"status\":\"ready\"}");
    }
}

static void get_version(server *s, http_exchange *x) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "version", churon_version());
    json_out_cstr(&j, "model", s->model_id);
    json_out_cstr(&j, "digest", *s->digest ? s->digest : NULL);
    json_out_cstr(&j, "isa", lm_bundle_model(s->bundle)->k->name);
    json_out_uint(&j, "threads", lm_bundle_threads(s->bundle));
    json_out_cstr(&j, "kv_type", kv_type_name(engine_kv_type(lm_bundle_engine(s->bundle))));
    json_out_uint(&j, "context", s->capacity);
    /* What `churon run` takes when nothing is said; the page does too. */
    const sampler_params d = lm_bundle_sampling_defaults(s->bundle);
    json_out_object(&j, "sampling");
    json_out_float(&j, "temperature", d.temperature);
    json_out_uint(&j, "top_k", d.top_k);
    json_out_float(&j, "top_p", d.top_p);
    json_out_float(&j, "min_p", d.min_p);
    json_out_end_object(&j);
    json_out_end_object(&j);
    server_reply_json(s, x, &out);
    str_free(&out);
}

static void get_metrics(server *s, http_exchange *x) {
    str out = {0};
    measure_update(s);
    metrics_write(s->m.all, &out);
    if (out.failed) {
        server_reply_json(s, x, &out);
    } else {
        http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", str_cstr(&out), out.len);
    }
    str_free(&out);
}

/* The state of the moment and totals since the start, as the page draws them. server_load is vLLM's: requests
 * under way. */
static void get_load(server *s, http_exchange *x) {
    engine_load l;
    engine_load_get(s->engine, &l);
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_uint(&j, "server_load", s->n_answers);
    json_out_uint(&j, "running", l.running);
    json_out_uint(&j, "max_running", s->o.max_running);
    json_out_uint(&j, "waiting", l.waiting);
    json_out_uint(&j, "waiting_tokens", l.waiting_tokens);
    json_out_uint(&j, "max_queued_tokens", s->o.max_queued_tokens);
    json_out_uint(&j, "kv_pages", l.kv_pages);
    json_out_uint(&j, "kv_pages_free", l.kv_pages_free);
    json_out_uint(&j, "kv_pages_cached", l.kv_pages_cached);
    json_out_uint(&j, "kv_page_tokens", l.kv_page_tokens);
    json_out_uint(&j, "prompt_tokens", l.prompt_tokens);
    json_out_uint(&j, "generation_tokens", l.generated_tokens);
    json_out_uint(&j, "steps", l.steps);
    json_out_uint(&j, "preemptions", l.preemptions);
    json_out_uint(&j, "cache_queries", l.cache_queries);
    json_out_uint(&j, "cache_hits", l.cache_hits);
    json_out_double(&j, "uptime_s", clock_seconds() - s->started);
    json_out_end_object(&j);
    server_reply_json(s, x, &out);
    str_free(&out);
}

static void get_page(server *s, http_exchange *x) {
    (void)s;
    http_reply_header(x, "Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
    http_reply_header(x, "Referrer-Policy", "no-referrer");
    http_reply_header(x, "Cache-Control", "no-cache");
    http_reply(x, 200, "text/html; charset=utf-8", (const char *)page_html, page_html_len);
}

/* ---- dispatch --------------------------------------------------------------------------------------- */

typedef struct route {
    const char *path;
    bool post, guarded, computes;
    void (*run)(server *s, http_exchange *x);
} route;

static const route table[] = {
    {"/", false, false, false, get_page},
    {"/health", false, false, false, get_health},
    {"/ready", false, false, false, get_ready},
    {"/version", false, false, false, get_version},
    {"/metrics", false, false, false, get_metrics},
    {"/load", false, false, false, get_load},
    {"/admin/requests", false, true, false, admin_list},
    {"/v1/models", false, true, false, openai_models},
    {"/v1/chat/completions", true, true, true, openai_chat},
    {"/v1/completions", true, true, true, openai_completions},
    {"/tokenize", true, true, true, text_tokenize},
    {"/detokenize", true, true, true, text_detokenize},
};
static const char MODEL_PATH[] = "/v1/models/", ADMIN_PATH[] = "/admin/requests/", CANCEL[] = "/cancel";

void routes_observe(void *user, int code) {
    server *s = user;
    char label[32];
    snprintf(label, sizeof label, "code=\"%d\"", code);
    metric_add(metrics_counter(s->m.all, "churon_http_responses_total", label, "Replies by status code."), 1);
}

static bool is_sane_id(const char *id) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    const size_t n = id ? strlen(id) : 0;
    return n > 0 && n <= REQUEST_ID_MAX && strspn(id, allowed) == n;
}

static void add_provenance(server *s, http_exchange *x) {
    const char *given = http_request_header(x, "X-Request-Id");
    if (is_sane_id(given)) {
        snprintf(s->request_id, sizeof s->request_id, "%s", given);
    } else {
        server_unique_id(s, s->request_id, sizeof s->request_id, "");
    }
    http_reply_header(x, "X-Churon-Request-Id", s->request_id);
    http_reply_header(x, "X-Request-Id", s->request_id);
    http_reply_header(x, "X-Churon-Model", s->model_id);
    http_reply_header(x, "X-Churon-Version", churon_version());
    if (*s->digest) http_reply_header(x, "X-Churon-Digest", s->digest);
}

static const char ANONYMOUS[] = "default", TENANT_HEADER[] = "X-Churon-Tenant";

/* Compares digests of equal length with every key, so that neither time nor early exit tells anything. */
static const server_key *key_of(const server *s, const http_exchange *x) {
    const char *header = http_request_header(x, "Authorization");
    char digest[DIGEST_HEX] = "";
    if (!header || strncasecmp(header, "Bearer ", 7) != 0) return NULL;
    if (digest_bytes(header + 7, strlen(header + 7), digest, NULL) != CHURON_OK) return NULL;
    size_t match = s->n_keys;
    for (size_t i = 0; i < s->n_keys; i++) {
        if (CRYPTO_memcmp(digest, s->keys[i].digest, DIGEST_HEX) == 0) match = i;
    }
    return match < s->n_keys ? &s->keys[match] : NULL;
}

/* Fills s->caller. With keys the key says who asks, and a client that claims to be a tenant is refused: a
 * name that is chosen must not reach what another's prompts have left. Without keys the header separates
 * those whom something in front of the server has told apart. False: refused here. */
static bool identify(server *s, http_exchange *x, bool guarded) {
    const char *claim = http_request_header(x, TENANT_HEADER);
    s->caller = (caller){.admin = s->n_keys == 0};
    snprintf(s->caller.tenant, sizeof s->caller.tenant, "%s", ANONYMOUS);
    if (!guarded) return true;
    if (s->n_keys) {
        const server_key *k = key_of(s, x);
        if (!k) {
            http_reply_header(x, "WWW-Authenticate", "Bearer");
            server_reply_status(s, x, 401, "invalid_request_error", NULL, "invalid_api_key",
                                "Authorization: expected Bearer and a key that this server knows");
            return false;
        }
        snprintf(s->caller.tenant, sizeof s->caller.tenant, "%s", k->tenant);
        s->caller.admin = k->admin;
    }
    if (!claim) return true;
    if (s->n_keys || !tenant_name_is_valid(claim, strlen(claim))) {
        server_reply_status(s, x, 400, "invalid_request_error", TENANT_HEADER, "invalid",
                            s->n_keys ? "X-Churon-Tenant: expected none, the key says which tenant asks"
                                      : "X-Churon-Tenant: expected 1 to 63 letters, digits or . _ -");
        return false;
    }
    snprintf(s->caller.tenant, sizeof s->caller.tenant, "%s", claim);
    return true;
}

static bool is_json(const http_exchange *x) {
    const char *type = http_request_header(x, "Content-Type");
    const size_t n = type ? strcspn(type, "; \t") : 0;
    return n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0;
}

static bool refuse_method(server *s, http_exchange *x, const char *allowed, const char *line) {
    http_reply_header(x, "Allow", allowed);
    server_reply_status(s, x, 405, "invalid_request_error", NULL, "method_not_allowed", line);
    return false;
}

/* What every request is asked before its endpoint runs. False: refused here. */
static bool admit(server *s, http_exchange *x, bool post, bool guarded, bool computes) {
    const http_method m = http_request_method(x);
    if (post && m != HTTP_M_POST) return refuse_method(s, x, "POST", "method: expected POST");
    if (!post && m != HTTP_M_GET && m != HTTP_M_HEAD) {
        return refuse_method(s, x, "GET, HEAD", "method: expected GET");
    }
    if (!identify(s, x, guarded)) return false;
    if (computes && s->draining) {
        metric_add(server_counter_refused(s, "draining"), 1);
        http_reply_header(x, "Retry-After", "5");
        server_reply_status(s, x, 503, "server_error", NULL, "draining",
                            "server: it is stopping and takes no new requests");
        return false;
    }
    /* Also what keeps other sites' pages out: a browser asks before it sends JSON across origins. */
    if (post && !is_json(x)) {
        server_reply_status(s, x, 415, "invalid_request_error", NULL, "unsupported_media_type",
                            "Content-Type: expected application/json");
        return false;
    }
    return true;
}

/* DELETE /admin/requests/ID or POST /admin/requests/ID/cancel. */
static void cancel_request(server *s, http_exchange *x, const char *id) {
    const http_method m = http_request_method(x);
    size_t n = strlen(id);
    const size_t end = strlen(CANCEL);
    const bool named = n > end && strcmp(id + n - end, CANCEL) == 0;
    if (named ? m != HTTP_M_POST : m != HTTP_M_DELETE) {
        (void)refuse_method(s, x, named ? "POST" : "DELETE",
                            named ? "method: expected POST" : "method: expected DELETE");
        return;
    }
    if (identify(s, x, true)) admin_cancel(s, x, id, named ? n - end : n);
}

void routes_dispatch(void *user, http_exchange *x) {
    server *s = user;
    s->arrived = clock_seconds();
    add_provenance(s, x);
    const char *path = http_request_path(x);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const route *r = &table[i];
        if (strcmp(r->path, path) != 0) continue;
        if (admit(s, x, r->post, r->guarded, r->computes)) r->run(s, x);
        return;
    }
    const size_t n = strlen(MODEL_PATH);
    if (strncmp(path, MODEL_PATH, n) == 0 && path[n]) {
        if (admit(s, x, false, true, false)) openai_model(s, x, path + n);
        return;
    }
    if (strncmp(path, ADMIN_PATH, strlen(ADMIN_PATH)) == 0 && path[strlen(ADMIN_PATH)]) {
        cancel_request(s, x, path + strlen(ADMIN_PATH));
        return;
    }
    error err; /* for its message: one clean line */
    (void)error_set(&err, CHURON_NOT_FOUND, "path: expected an endpoint of this server, got %.100s", path);
    server_reply_status(s, x, 404, "invalid_request_error", NULL, "not_found", err.message);
}
