/* graph_routes.c: the paths of the server: the inference protocol under /v2, TensorFlow Serving's form under
 * /v1. */
#include "serve/graph_internal.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "serve/api/tfs.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char V2_MODELS[] = "/v2/models/", V1_MODELS[] = "/v1/models/";

/* A request on its way through the tables. */
typedef struct asked {
    graph_server *s;
    http_exchange *x;
    const served *v; /* of paths that name a model */
    char id[JOB_ID_MAX + 1];
} asked;

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

static void get_health(asked *a) {
    reply_text(a->x, 200, "{\"status\":\"ok\"}");
}

/* Every name has a version that is served. */
static bool all_available(const served_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        const served_wanted w = {.name = l->items[i]->name, .name_len = strlen(l->items[i]->name)};
        if (!served_find(l, &w, NULL)) return false;
    }
    return true;
}

static const char *readiness(const graph_server *s) {
    return s->draining ? "draining" : all_available(s->models) ? "ready" : "not verified";
}

static void get_ready(asked *a) {
    const char *is = readiness(a->s);
    str out = {0};
    str_fmt(&out, "{\"status\":\"%s\"}", is);
    reply_text(a->x, strcmp(is, "ready") == 0 ? 200 : 503, str_cstr(&out));
    str_free(&out);
}

static void get_live(asked *a) {
    reply_text(a->x, 200, "{\"live\":true}");
}

static void get_v2_ready(asked *a) {
    const bool ready = strcmp(readiness(a->s), "ready") == 0;
    reply_text(a->x, ready ? 200 : 503, ready ? "{\"ready\":true}" : "{\"ready\":false}");
}

static void get_model_ready(asked *a) {
    reply_text(a->x, a->s->draining ? 503 : 200, a->s->draining ? "{\"ready\":false}" : "{\"ready\":true}");
}

static void get_version(asked *a) {
    const graph_server *s = a->s;
    const served *only = s->models->n == 1 ? s->models->items[0] : NULL;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "version", churon_version());
    if (only) json_out_cstr(&j, "model", only->name);
    if (only) json_out_cstr(&j, "digest", only->digest);
    json_out_cstr(&j, "isa", s->o.isa);
    json_out_uint(&j, "workers", s->o.workers);
    json_out_uint(&j, "threads", s->o.threads);
    json_out_end_object(&j);
    reply_body(a->s, a->x, &out);
}

static void get_metrics(asked *a) {
    str out = {0};
    graph_measure_update(a->s);
    metrics_write(a->s->metrics, &out);
    if (out.failed) {
        reply_body(a->s, a->x, &out);
        return;
    }
    http_reply(a->x, 200, "text/plain; version=0.0.4; charset=utf-8", str_cstr(&out), out.len);
    str_free(&out);
}

static void get_server(asked *a) {
    static const char *const extensions[] = {"binary_tensor_data", "model_configuration", "model_repository",
                                             "sequence", "statistics"};
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
    reply_body(a->s, a->x, &out);
}

static void get_index(asked *a) {
    const graph_server *s = a->s;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_array(&j, NULL);
    for (size_t i = 0; i < s->models->n; i++) {
        const served *v = s->models->items[i];
        const bool there = v->available && !s->draining;
        json_out_object(&j, NULL);
        json_out_cstr(&j, "name", v->name);
        json_out_cstr(&j, "version", v->version);
        json_out_cstr(&j, "state", there ? "READY" : "UNAVAILABLE");
        json_out_cstr(&j, "reason", there ? "" : v->available ? "stopping" : str_cstr(&v->fault));
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    reply_body(a->s, a->x, &out);
}

/* OpenAI's list, which other clients read too. */
static void get_models(asked *a) {
    const graph_server *s = a->s;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "object", "list");
    json_out_array(&j, "data");
    for (size_t i = 0; i < s->models->n; i++) {
        const served *v = s->models->items[i];
        json_out_object(&j, NULL);
        json_out_cstr(&j, "id", v->name);
        json_out_cstr(&j, "object", "model");
        json_out_int(&j, "created", s->created);
        json_out_cstr(&j, "owned_by", "churon");
        json_out_cstr(&j, "version", v->version);
        json_out_cstr(&j, "label", v->label);
        json_out_cstr(&j, "digest", v->digest);
        json_out_cstr(&j, "state", v->available ? "AVAILABLE" : "END");
        json_out_uint(&j, "golden_cases", v->golden);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    reply_body(a->s, a->x, &out);
}

static void get_all_stats(asked *a) {
    str out = {0};
    graph_measure_stats(a->s, NULL, &out);
    reply_body(a->s, a->x, &out);
}

static void get_stats(asked *a) {
    str out = {0};
    graph_measure_stats(a->s, a->v, &out);
    reply_body(a->s, a->x, &out);
}

/* Does the version speak the inference protocol? Otherwise it has been said why not. */
static bool speaks_oip(asked *a) {
    if (a->v->no_oip.code == CHURON_OK) return true;
    graph_reply_error(a->s, a->x, 400, a->v->no_oip.message);
    return false;
}

static void get_metadata(asked *a) {
    str out = {0};
    if (!speaks_oip(a)) return;
    oip_write_metadata(&a->v->oip, &out);
    reply_body(a->s, a->x, &out);
}

static void get_config(asked *a) {
    str out = {0};
    if (!speaks_oip(a)) return;
    oip_write_config(&a->v->oip, &out);
    reply_body(a->s, a->x, &out);
}

static void post_infer(asked *a) {
    graph_infer(a->s, a->x, a->v, JOB_INFER, a->id);
}

static void post_predict(asked *a) {
    graph_infer(a->s, a->x, a->v, JOB_PREDICT, a->id);
}

static void post_classify(asked *a) {
    graph_infer(a->s, a->x, a->v, JOB_CLASSIFY, a->id);
}

static void post_regress(asked *a) {
    graph_infer(a->s, a->x, a->v, JOB_REGRESS, a->id);
}

static void get_v1_metadata(asked *a) {
    str out = {0};
    if (!a->v->p) {
        graph_reply_error(a->s, a->x, 400, a->v->no_pipeline.message);
        return;
    }
    tfs_write_metadata(&out, a->v->p, a->v->name, a->v->version);
    reply_body(a->s, a->x, &out);
}

/* ---- admission -------------------------------------------------------------------------------------- */

static bool is_sane_id(const char *id) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    const size_t n = id ? strlen(id) : 0;
    return n > 0 && n <= 64 && strspn(id, allowed) == n;
}

static void add_id(asked *a) {
    const char *id = http_request_header(a->x, "X-Request-Id");
    if (is_sane_id(id)) {
        snprintf(a->id, sizeof a->id, "%s", id);
    } else {
        snprintf(a->id, sizeof a->id, "%s%08llx", a->s->id_prefix, (unsigned long long)a->s->next_id++);
    }
    http_reply_header(a->x, "X-Churon-Request-Id", a->id);
}

/* Of a bare graph, which has no version of its own, the program's. */
static void add_provenance(http_exchange *x, const served *v) {
    http_reply_header(x, "X-Churon-Model", v->name);
    http_reply_header(x, "X-Churon-Version", v->g ? churon_version() : v->version);
    http_reply_header(x, "X-Churon-Digest", v->digest);
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

/* Whoever may call a model need not be the one who may call another. */
static bool may_call(const asked *a) {
    const graph_server *s = a->s;
    if (!s->keys || !s->o.callers || !a->v) return true;
    const size_t key = key_ring_find(s->keys, http_request_header(a->x, "Authorization"));
    return key < s->o.n_keys && s->o.callers[a->v->index * s->o.n_keys + key];
}

static bool admit(const asked *a, bool post, bool guarded, bool computes) {
    graph_server *s = a->s;
    http_exchange *x = a->x;
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
    if (guarded && !may_call(a)) {
        graph_reply_error(s, x, 403,
                          "Authorization: expected a key with the right to call this model, got another");
        return false;
    }
    if (computes && s->draining) {
        http_reply_header(x, "Retry-After", "5");
        graph_reply_error(s, x, 503, "server: it is stopping and takes no new requests");
        return false;
    }
    if (!post) return true;
    body_coding coding;
    if (!body_coding_of(http_request_header(x, "Content-Encoding"), &coding)) {
        http_reply_header(x, "Accept-Encoding", "gzip, deflate");
        graph_reply_error(s, x, 415, "Content-Encoding: expected none, gzip or deflate, got another");
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
    void (*run)(asked *a);
} route;

static const route fixed[] = {
    {"/health", false, false, false, get_health},
    {"/ready", false, false, false, get_ready},
    {"/version", false, true, false, get_version},
    {"/metrics", false, true, false, get_metrics},
    {"/v1/models", false, true, false, get_models},
    {"/v2", false, false, false, get_server},
    {"/v2/", false, false, false, get_server},
    {"/v2/health/live", false, false, false, get_live},
    {"/v2/health/ready", false, false, false, get_v2_ready},
    {"/v2/models/stats", false, true, false, get_all_stats},
    {"/v2/repository/index", true, true, false, get_index},
};

static const route of_v2_model[] = {
    {"", false, true, false, get_metadata},      {"/ready", false, false, false, get_model_ready},
    {"/config", false, true, false, get_config}, {"/stats", false, true, false, get_stats},
    {"/infer", true, true, true, post_infer},
};

static const route of_v1_model[] = {
    {"/metadata", false, true, false, get_v1_metadata},
    {":predict", true, true, true, post_predict},
    {":classify", true, true, true, post_classify},
    {":regress", true, true, true, post_regress},
};

static bool dispatch(asked *a, const route *table, size_t n, const char *path) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].path, path) != 0) continue;
        if (admit(a, table[i].post, table[i].guarded, table[i].computes)) table[i].run(a);
        return true;
    }
    return false;
}

static void not_found(asked *a, const char *what, const char *expected, const char *got) {
    error err; /* for its message: one clean line */
    (void)error_set(&err, CHURON_NOT_FOUND, "%s: expected %.120s, got '%.100s'", what, expected, got);
    graph_reply_error(a->s, a->x, 404, err.message);
}

/* What stands behind `word` up to the next of `ends`; NULL: it does not stand here. *path goes on behind it.
 */
static const char *take_part(const char **path, const char *word, const char *ends, size_t *len) {
    const size_t n = strlen(word);
    if (strncmp(*path, word, n) != 0) return NULL;
    const char *part = *path + n;
    *len = strcspn(part, ends);
    *path = part + *len;
    return part;
}

/* Bytes of the name that a path begins with: the longest one that is known (it may have slashes), else up to
 * the next of `ends`. */
static size_t name_length(const served_list *l, const char *path, const char *ends) {
    size_t longest = 0;
    for (size_t i = 0; i < l->n; i++) {
        const size_t n = strlen(l->items[i]->name);
        if (n > longest && strncmp(path, l->items[i]->name, n) == 0 && (!path[n] || strchr(ends, path[n])))
            longest = n;
    }
    return longest ? longest : strcspn(path, ends);
}

/* NAME[/versions/V|/labels/L] and what follows. */
static const char *take_model(const served_list *l, const char *path, const char *ends, served_wanted *w) {
    *w = (served_wanted){.name = path, .name_len = name_length(l, path, ends)};
    path += w->name_len;
    w->version = take_part(&path, "/versions/", ends, &w->version_len);
    if (!w->version) w->label = take_part(&path, "/labels/", ends, &w->label_len);
    return path;
}

/* Has the server said no, because there is no such version? */
static bool refuse_model(asked *a, const served_wanted *w) {
    error err;
    a->v = served_find(a->s->models, w, &err);
    if (a->v) {
        if (a->s->models->n > 1) add_provenance(a->x, a->v);
        return false;
    }
    if (err.code == CHURON_BUSY) http_reply_header(a->x, "Retry-After", "60");
    graph_reply_error(a->s, a->x, err.code == CHURON_BUSY ? 503 : 404, err.message);
    return true;
}

static void dispatch_v2(asked *a, const char *path) {
    served_wanted w;
    const char *rest = take_model(a->s->models, path, "/", &w);
    if (refuse_model(a, &w)) return;
    if (!dispatch(a, of_v2_model, sizeof of_v2_model / sizeof *of_v2_model, rest))
        not_found(a, "path", "/infer, /ready, /config or /stats of the model", rest);
}

/* A version of that name, served or not: they have the same rights. */
static const served *served_any(const served_list *l, const served_wanted *w) {
    for (size_t i = 0; i < l->n; i++) {
        if (served_is(l->items[i], &(served_wanted){.name = w->name, .name_len = w->name_len}))
            return l->items[i];
    }
    return NULL;
}

/* GET /v1/models/NAME[…]: the state of its versions, whether they are served or not. */
static void get_status(asked *a, const served_wanted *w) {
    a->v = served_any(a->s->models, w);
    if (!admit(a, false, true, false)) return;
    tfs_version *found = mem_calloc(a->s->models->n + 1, sizeof *found);
    size_t n = 0;
    for (size_t i = 0; found && i < a->s->models->n; i++) {
        const served *v = a->s->models->items[i];
        if (served_is(v, w))
            found[n++] = (tfs_version){v->version, v->available ? NULL : str_cstr(&v->fault)};
    }
    str out = {0};
    error err;
    if (!found) {
        graph_reply_error(a->s, a->x, 503, "server: out of memory for the reply");
    } else if (n == 0) {
        (void)served_find(a->s->models, w, &err);
        graph_reply_error(a->s, a->x, 404, err.message);
    } else {
        tfs_write_status(&out, found, n);
        reply_body(a->s, a->x, &out);
    }
    mem_free(found);
}

static void dispatch_v1(asked *a, const char *path) {
    served_wanted w;
    const char *rest = take_model(a->s->models, path, "/:", &w);
    if (!*rest) {
        get_status(a, &w);
        return;
    }
    if (refuse_model(a, &w)) return;
    if (!dispatch(a, of_v1_model, sizeof of_v1_model / sizeof *of_v1_model, rest))
        not_found(a, "path", ":predict, :classify, :regress or /metadata of the model", rest);
}

void graph_routes_dispatch(void *user, http_exchange *x) {
    asked a = {.s = user, .x = x};
    add_id(&a);
    if (a.s->models->n == 1) add_provenance(x, a.s->models->items[0]);
    const char *path = http_request_path(x);
    const bool v2 = strncmp(path, V2_MODELS, strlen(V2_MODELS)) == 0;
    if (dispatch(&a, fixed, sizeof fixed / sizeof *fixed, path)) return;
    if (v2) {
        dispatch_v2(&a, path + strlen(V2_MODELS));
    } else if (strncmp(path, V1_MODELS, strlen(V1_MODELS)) == 0) {
        dispatch_v1(&a, path + strlen(V1_MODELS));
    } else {
        not_found(&a, "path", "an endpoint of this server, which begin with /v1 or /v2", path);
    }
}
