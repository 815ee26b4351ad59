/* graph_routes.c: the paths of a graph's server. */
#include "serve/graph_internal.h"

#include "base/json_out.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char MODELS[] = "/v2/models/";

/* ---- replies ---------------------------------------------------------------------------------------- */

void graph_reply_error(graph_server *s, http_exchange *x, int code, const char *message) {
    (void)s;
    str out = {0};
    oip_write_error(&out, message);
    http_reply(x, code, "application/json", str_cstr(&out), out.len);
    str_free(&out);
}

/* 200 and the body, which is freed. */
static void reply_body(graph_server *s, http_exchange *x, str *body) {
    if (body->failed) {
        graph_reply_error(s, x, 503, "server: out of memory for the reply");
    } else {
        http_reply(x, 200, "application/json", str_cstr(body), body->len);
    }
    str_free(body);
}

static void reply_text(http_exchange *x, int code, const char *json) {
    http_reply(x, code, "application/json", json, strlen(json));
}

/* ---- small endpoints -------------------------------------------------------------------------------- */

static void get_health(graph_server *s, http_exchange *x) {
    (void)s;
    reply_text(x, 200, "{\"status\":\"ok\"}");
}

static void get_ready(graph_server *s, http_exchange *x) {
    reply_text(x, s->draining ? 503 : 200,
               s->draining ? "{\"status\":\"draining\"}" : "{\"status\":\"ready\"}");
}

static void get_live(graph_server *s, http_exchange *x) {
    (void)s;
    reply_text(x, 200, "{\"live\":true}");
}

static void get_v2_ready(graph_server *s, http_exchange *x) {
    reply_text(x, s->draining ? 503 : 200, s->draining ? "{\"ready\":false}" : "{\"ready\":true}");
}

static void get_version(graph_server *s, http_exchange *x) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "version", churon_version());
    json_out_cstr(&j, "model", s->model_id);
    json_out_cstr(&j, "digest", *s->digest ? s->digest : NULL);
    json_out_cstr(&j, "isa", s->o.isa);
    json_out_uint(&j, "workers", s->o.workers);
    json_out_uint(&j, "threads", s->o.threads);
    json_out_end_object(&j);
    reply_body(s, x, &out);
}

static void get_metrics(graph_server *s, http_exchange *x) {
    str out = {0};
    graph_measure_update(s);
    metrics_write(s->m.all, &out);
    if (out.failed) {
        reply_body(s, x, &out);
        return;
    }
    http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", str_cstr(&out), out.len);
    str_free(&out);
}

static void get_server(graph_server *s, http_exchange *x) {
    static const char *const extensions[] = {"binary_tensor_data", "model_configuration", "model_repository",
                                             "statistics"};
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", "churon");
    json_out_cstr(&j, "version", churon_version());
    json_out_array(&j, "extensions");
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        json_out_cstr(&j, NULL, extensions[i]);
    json_out_end_array(&j);
    json_out_end_object(&j);
    reply_body(s, x, &out);
}

static void get_index(graph_server *s, http_exchange *x) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_array(&j, NULL);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", s->model_id);
    json_out_cstr(&j, "version", "1");
    json_out_cstr(&j, "state", s->draining ? "UNAVAILABLE" : "READY");
    json_out_cstr(&j, "reason", s->draining ? "stopping" : "");
    json_out_end_object(&j);
    json_out_end_array(&j);
    reply_body(s, x, &out);
}

static void get_stats(graph_server *s, http_exchange *x) {
    str out = {0};
    graph_measure_stats(s, &out);
    reply_body(s, x, &out);
}

static void get_metadata(graph_server *s, http_exchange *x) {
    str out = {0};
    oip_write_metadata(&s->model, &out);
    reply_body(s, x, &out);
}

static void get_config(graph_server *s, http_exchange *x) {
    str out = {0};
    oip_write_config(&s->model, &out);
    reply_body(s, x, &out);
}

/* ---- admission -------------------------------------------------------------------------------------- */

static bool is_sane_id(const char *id) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    const size_t n = id ? strlen(id) : 0;
    return n > 0 && n <= 64 && strspn(id, allowed) == n;
}

static void add_provenance(graph_server *s, http_exchange *x) {
    char own[40];
    const char *id = http_request_header(x, "X-Request-Id");
    if (!is_sane_id(id)) {
        snprintf(own, sizeof own, "%s%08llx", s->id_prefix, (unsigned long long)s->next_id++);
        id = own;
    }
    http_reply_header(x, "X-Churon-Request-Id", id);
    http_reply_header(x, "X-Churon-Model", s->model_id);
    http_reply_header(x, "X-Churon-Version", churon_version());
    if (*s->digest) http_reply_header(x, "X-Churon-Digest", s->digest);
}

static bool type_is(const char *type, const char *name) {
    const size_t n = strcspn(type, "; \t");
    return n == strlen(name) && strncasecmp(type, name, n) == 0;
}

/* Other sites' pages are kept out: a browser asks before it sends these types across origins, and says where
 * a request without a type comes from. The protocol's clients in C++ and Python send none. */
static bool has_body_type(const http_exchange *x) {
    const char *type = http_request_header(x, "Content-Type");
    if (!type) return !http_request_header(x, "Origin");
    return type_is(type, "application/json") || type_is(type, "application/octet-stream");
}

static bool admit(graph_server *s, http_exchange *x, bool post, bool guarded, bool computes) {
    const http_method m = http_request_method(x);
    if (post ? m != HTTP_M_POST : m != HTTP_M_GET && m != HTTP_M_HEAD) {
        http_reply_header(x, "Allow", post ? "POST" : "GET, HEAD");
        graph_reply_error(s, x, 405, post ? "method: expected POST" : "method: expected GET");
        return false;
    }
    if (guarded && s->keys && !key_ring_knows(s->keys, http_request_header(x, "Authorization"))) {
        http_reply_header(x, "WWW-Authenticate", "Bearer");
        graph_reply_error(s, x, 401, "Authorization: expected Bearer and a key that this server knows");
        return false;
    }
    if (computes && s->draining) {
        http_reply_header(x, "Retry-After", "5");
        graph_reply_error(s, x, 503, "server: it is stopping and takes no new requests");
        return false;
    }
    if (!post) return true;
    const char *coding = http_request_header(x, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0) {
        graph_reply_error(s, x, 415, "Content-Encoding: expected none, got another; send the body as it is");
        return false;
    }
    if (has_body_type(x)) return true;
    graph_reply_error(s, x, 415, "Content-Type: expected application/json or application/octet-stream");
    return false;
}

/* ---- dispatch --------------------------------------------------------------------------------------- */

typedef struct route {
    const char *path;
    bool post, guarded, computes;
    void (*run)(graph_server *s, http_exchange *x);
} route;

static const route fixed[] = {
    {"/health", false, false, false, get_health},
    {"/ready", false, false, false, get_ready},
    {"/version", false, true, false, get_version},
    {"/metrics", false, true, false, get_metrics},
    {"/v2", false, false, false, get_server},
    {"/v2/", false, false, false, get_server},
    {"/v2/health/live", false, false, false, get_live},
    {"/v2/health/ready", false, false, false, get_v2_ready},
    {"/v2/models/stats", false, true, false, get_stats},
    {"/v2/repository/index", true, true, false, get_index},
};

static const route of_model[] = {
    {"", false, true, false, get_metadata},      {"/ready", false, false, false, get_v2_ready},
    {"/config", false, true, false, get_config}, {"/stats", false, true, false, get_stats},
    {"/infer", true, true, true, graph_infer},
};

static bool dispatch(graph_server *s, http_exchange *x, const route *table, size_t n, const char *path) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].path, path) != 0) continue;
        if (admit(s, x, table[i].post, table[i].guarded, table[i].computes)) table[i].run(s, x);
        return true;
    }
    return false;
}

static void not_found(graph_server *s, http_exchange *x, const char *what, const char *expected,
                      const char *got) {
    error err; /* for its message: one clean line */
    (void)error_set(&err, CHURON_NOT_FOUND, "%s: expected %.120s, got '%.100s'", what, expected, got);
    graph_reply_error(s, x, 404, err.message);
}

/* NAME[/versions/1][/ACTION] */
static void dispatch_model(graph_server *s, http_exchange *x, const char *path) {
    static const char versions[] = "/versions/";
    const size_t n = strlen(s->model_id);
    if (strncmp(path, s->model_id, n) != 0 || (path[n] && path[n] != '/')) {
        char got[104];
        snprintf(got, sizeof got, "%.*s", (int)(strcspn(path, "/") < 100 ? strcspn(path, "/") : 100), path);
        not_found(s, x, "model", s->model_id, got);
        return;
    }
    const char *rest = path + n;
    if (strncmp(rest, versions, strlen(versions)) == 0) {
        rest += strlen(versions);
        if (rest[0] != '1' || (rest[1] && rest[1] != '/')) {
            not_found(s, x, "version", "1, the only one", rest);
            return;
        }
        rest++;
    }
    if (!dispatch(s, x, of_model, sizeof of_model / sizeof *of_model, rest)) {
        not_found(s, x, "path", "/infer, /ready, /config or /stats of the model", rest);
    }
}

void graph_routes_dispatch(void *user, http_exchange *x) {
    graph_server *s = user;
    add_provenance(s, x);
    const char *path = http_request_path(x);
    if (dispatch(s, x, fixed, sizeof fixed / sizeof *fixed, path)) return;
    if (strncmp(path, MODELS, strlen(MODELS)) == 0) {
        dispatch_model(s, x, path + strlen(MODELS));
    } else {
        not_found(s, x, "path", "an endpoint of this server, which begin with /v2", path);
    }
}
