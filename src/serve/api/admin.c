/* admin.c: what is under way, for whoever runs the server, and ending it. Never a byte of a prompt or of an
 * answer. */
#include "serve/api/answer.h"

#include "base/clock.h"
#include "base/json_out.h"

#include <string.h>
#include <strings.h>

/* ---- right ------------------------------------------------------------------------------------------ */

/* Is the server addressed by a name that only this machine can mean? A page of another site whose name was
 * made to point here is not. */
static bool is_local_host(const char *host) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':')) return true;
    }
    return false;
}

static bool may(server *s, http_exchange *x) {
    if (s->n_keys ? s->caller.admin
                  : http_request_is_local(x) && is_local_host(http_request_header(x, "Host"))) {
        return true;
    }
    server_reply_status(s, x, 403, "invalid_request_error", NULL, "forbidden",
                        s->n_keys
                            ? "Authorization: expected a key that is marked admin"
                            : "admin: expected a client on this machine, or --keys and a key marked admin");
    return false;
}

/* ---- list ------------------------------------------------------------------------------------------- */

/* Of the choices of a request: sums, and the phase of the one that is furthest. */
static engine_job_view view_of(const answer *a) {
    static const int order[] = {[ENGINE_ENDED] = 0,
                                [ENGINE_WAITS] = 1,
                                [ENGINE_PREEMPTED] = 2,
                                [ENGINE_PREFILLS] = 3,
                                [ENGINE_DECODES] = 4};
    engine_job_view sum = {.phase = ENGINE_ENDED};
    for (size_t i = 0; i < a->n_choices; i++) {
        const choice *c = &a->choices[i];
        engine_job_view v = {.phase = ENGINE_ENDED,
                             .prompt_tokens = c->prompt_tokens,
                             .computed_tokens = c->prompt_tokens + c->tokens,
                             .tokens = c->tokens,
                             .cached_tokens = c->cached_tokens};
        if (c->gen && !c->ended) generation_view(c->gen, &v);
        if (order[v.phase] > order[sum.phase]) sum.phase = v.phase;
        sum.prompt_tokens += v.prompt_tokens;
        sum.computed_tokens += v.computed_tokens;
        sum.tokens += v.tokens;
        sum.kv_pages += v.kv_pages;
        sum.cached_tokens += v.cached_tokens;
        sum.preemptions += v.preemptions;
    }
    return sum;
}

static void write_answer(json_out *j, const answer *a, double now) {
    static const char *const phases[] = {[ENGINE_WAITS] = "queued",
                                         [ENGINE_PREFILLS] = "prefilling",
                                         [ENGINE_DECODES] = "decoding",
                                         [ENGINE_PREEMPTED] = "preempted",
                                         [ENGINE_ENDED] = "ended"};
    const engine_job_view v = view_of(a);
    json_out_object(j, NULL);
    json_out_cstr(j, "id", a->id);
    json_out_cstr(j, "request_id", a->request_id);
    json_out_cstr(j, "tenant", a->tenant_name);
    json_out_int(j, "priority", a->req.priority);
    json_out_cstr(j, "endpoint", a->req.kind == OPENAI_CHAT ? "chat" : "completion");
    json_out_bool(j, "stream", a->req.stream);
    json_out_cstr(j, "phase", phases[v.phase]);
    json_out_uint(j, "choices", a->n_choices);
    json_out_uint(j, "choices_ended", a->n_choices - a->pending);
    json_out_uint(j, "prompt_tokens", v.prompt_tokens);
    json_out_uint(j, "cached_tokens", v.cached_tokens);
    json_out_uint(j, "computed_tokens", v.computed_tokens);
    json_out_uint(j, "tokens", v.tokens);
    json_out_uint(j, "kv_pages", v.kv_pages);
    json_out_uint(j, "preemptions", v.preemptions);
    json_out_float(j, "age_s", (float)(now - a->arrived));
    if (a->deadline > 0) {
        json_out_float(j, "deadline_s", (float)(a->deadline - now));
    } else {
        json_out_null(j, "deadline_s");
    }
    json_out_end_object(j);
}

void admin_list(server *s, http_exchange *x) {
    if (!may(s, x)) return;
    str out = {0};
    const double now = clock_seconds();
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_array(&j, "requests");
    answer *a = s->answers; /* the newest; those that came first are written first */
    while (a && a->next) a = a->next;
    for (; a; a = a->prev) {
        if (a->pending > 0) write_answer(&j, a, now);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    server_reply_json(s, x, &out);
    str_free(&out);
}

/* ---- cancel ----------------------------------------------------------------------------------------- */

void admin_cancel(server *s, http_exchange *x, const char *id, size_t len) {
    if (!may(s, x)) return;
    answer *a = s->answers;
    while (a && !(a->x && strlen(a->id) == len && memcmp(a->id, id, len) == 0)) a = a->next;
    if (!a) {
        error err;
        (void)error_set(&err, CHURON_NOT_FOUND, "id: expected that of a request under way, got %.*s",
                        len < 64 ? (int)len : 64, id);
        server_reply_status(s, x, 404, "invalid_request_error", "id", "not_found", err.message);
        return;
    }
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "id", a->id);
    json_out_bool(&j, "cancelled", true);
    json_out_end_object(&j);
    metric_add(server_counter_cancelled(s, "admin"), 1);
    answer_fail(a, 503, "server_error", "cancelled", "request: cancelled by the server's administrator");
    answer_settle(a);
    server_reply_json(s, x, &out);
    str_free(&out);
}
