/* graph_infer.c: requests that compute: from a request to a job and from its end to a reply. */
#include "serve/graph_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LENGTH_HEADER[] = "Inference-Header-Content-Length";

/* ---- the end of a request --------------------------------------------------------------------------- */

static void infer_free(infer *f) {
    graph_server *s = f->server;
    if (f->prev) {
        f->prev->next = f->next;
    } else {
        s->live = f->next;
    }
    if (f->next) f->next->prev = f->prev;
    s->n_live--;
    mem_free(f->job.body);
    str_free(&f->job.answer);
    str_free(&f->job.faults);
    mem_free(f);
}

static int error_code(const work_job *j) {
    switch (j->err.code) {
    case CHURON_LIMIT: return j->late ? 504 : j->too_large ? 413 : 400;
    case CHURON_INVALID:
    case CHURON_UNSUPPORTED:
    case CHURON_CORRUPT: return 400;
    case CHURON_NOT_FOUND: return 404;
    case CHURON_BUSY: return 429;
    case CHURON_NO_MEMORY:
    case CHURON_CANCELLED: return 503;
    case CHURON_OK:
    case CHURON_IO:
    case CHURON_INTERNAL:
    default: return 500;
    }
}

static infer_failure failure_kind(const work_job *j) {
    if (j->st == CHURON_CANCELLED) return FAIL_CANCELED;
    if (j->st == CHURON_BUSY || (j->late && j->read == 0)) return FAIL_REJECTED;
    return j->read != 0 ? FAIL_BACKEND : FAIL_OTHER; /* read: the request itself was sound */
}

static void count(graph_server *s, const work_job *j) {
    version_metrics *m = &s->versions[j->target->index];
    infer_totals *t = &m->totals;
    const double whole = clock_seconds() - j->arrived;
    if (j->st != CHURON_OK) {
        t->failed[failure_kind(j)]++;
        t->fail_s += whole;
        return;
    }
    t->succeeded++;
    t->records += j->records;
    t->runs += j->first;
    t->request_s += whole;
    t->queue_s += j->started - j->arrived;
    t->input_s += j->read - j->started;
    t->infer_s += j->ran - j->read;
    t->output_s += j->written - j->ran;
    t->last_unix = clock_unix();
    metric_observe(m->seconds, whole);
}

static void reply_failed(graph_server *s, http_exchange *x, const work_job *j) {
    const int code = error_code(j);
    if (code == 429 || code == 503) {
        /* What waits, at the model's mean pace so far: 1 to 60 seconds. */
        const infer_totals *t = &s->versions[j->target->index].totals;
        const double pace = t->succeeded ? (t->infer_s + t->input_s) / (double)t->succeeded : 0;
        const double wait = pace * (double)work_waiting(s->work) / (double)s->o.workers;
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", wait < 1 ? 1 : wait > 60 ? 60 : (int)wait);
        http_reply_header(x, "Retry-After", seconds);
    }
    graph_reply_error(s, x, code, job_message(j));
}

static void reply(graph_server *s, http_exchange *x, const work_job *j) {
    if (j->st != CHURON_OK) {
        reply_failed(s, x, j);
        return;
    }
    const char *type = "application/json";
    if (j->answer_json) {
        char length[24];
        snprintf(length, sizeof length, "%zu", j->answer_json);
        http_reply_header(x, LENGTH_HEADER, length);
        type = "application/octet-stream";
    }
    http_reply(x, 200, type, str_cstr(&j->answer), j->answer.len);
}

static void settle(infer *f) {
    graph_server *s = f->server;
    http_exchange *x = f->x;
    f->x = NULL;
    count(s, &f->job);
    if (x) reply(s, x, &f->job);
    infer_free(f);
}

void graph_infer_done(graph_server *s) {
    for (work_job *j = work_take(s->work), *next; j; j = next) {
        next = j->next;
        settle((infer *)j);
    }
}

static void give_back(void *user, work_job *j) {
    (void)user;
    settle((infer *)j);
}

void graph_infer_stop(graph_server *s) {
    work_stop(s->work, give_back, s);
}

/* The job goes on to belong to the workers, who look at `cancelled`. */
static void on_gone(void *user) {
    infer *f = user;
    http_exchange *x = f->x;
    f->x = NULL;
    atomic_store_explicit(&f->job.cancelled, true, memory_order_relaxed);
    if (x)
        graph_reply_error(f->server, x, 499,
                          "connection: the client closed its side before the answer was ready");
}

/* ---- its beginning ---------------------------------------------------------------------------------- */

/* Bytes of JSON at the body's beginning: all of it, unless the header says less. */
static status json_length(const http_exchange *x, body_coding coding, size_t len, size_t *out, error *err) {
    const char *text = http_request_header(x, LENGTH_HEADER);
    *out = coding == BODY_PLAIN ? len : SIZE_MAX;
    if (!text) return CHURON_OK;
    const size_t digits = strspn(text, "0123456789");
    const unsigned long long n =
        digits && digits < 19 && !text[digits] ? strtoull(text, NULL, 10) : ULLONG_MAX;
    if (coding != BODY_PLAIN && n < (unsigned long long)LLONG_MAX) { /* compared when it is unpacked */
        *out = (size_t)n;
        return CHURON_OK;
    }
    if (n > len) {
        return error_set(err, CHURON_INVALID,
                         "%s: expected a number of at most the body's %zu bytes, got '%.30s'", LENGTH_HEADER,
                         len, text);
    }
    *out = (size_t)n;
    return CHURON_OK;
}

/* The body is copied: a client that leaves takes its own with it while a worker still reads. */
static status take_body(http_exchange *x, work_job *j, error *err) {
    size_t len;
    const char *body = http_request_body(x, &len);
    (void)body_coding_of(http_request_header(x, "Content-Encoding"), &j->coding); /* another was refused */
    TRY(json_length(x, j->coding, len, &j->json_len, err));
    j->body = mem_strndup(body, len);
    if (!j->body) return error_no_memory(err, "request", len);
    j->len = len;
    return CHURON_OK;
}

/* ?provenance=1 */
static bool wants_provenance(const http_exchange *x) {
    const char *q = http_request_query(x);
    for (; *q; q += strcspn(q, "&")) {
        q += *q == '&';
        if (strncmp(q, "provenance=1", 12) == 0 && (!q[12] || q[12] == '&')) return true;
    }
    return false;
}

void graph_infer(graph_server *s, http_exchange *x, const served *v, job_kind kind, const char *id) {
    infer *f = mem_calloc(1, sizeof *f);
    if (!f) {
        graph_reply_error(s, x, 503, "server: out of memory for the request");
        return;
    }
    *f = (infer){.x = x, .server = s, .next = s->live};
    if (s->live) s->live->prev = f;
    s->live = f;
    s->n_live++;
    work_job *j = &f->job;
    atomic_init(&j->cancelled, false);
    j->target = v;
    j->kind = kind;
    snprintf(j->id, sizeof j->id, "%s", id);
    j->provenance = wants_provenance(x);
    if (s->keys) j->owner = key_ring_find(s->keys, http_request_header(x, "Authorization"));
    j->arrived = clock_seconds();
    if (s->o.timeout > 0) j->deadline = j->arrived + s->o.timeout;
    j->max_body = http_server_max_body(s->http);
    error err;
    status st = take_body(x, j, &err);
    if (st == CHURON_OK) st = work_push(s->work, j, &err);
    if (st != CHURON_OK) { /* still ours: what was pushed belongs to a worker from that moment */
        j->st = st;
        j->err = err;
        settle(f);
        return;
    }
    http_on_gone(x, on_gone, f);
}
