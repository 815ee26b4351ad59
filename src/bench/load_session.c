/* load_session.c: see load_session.h. */
#include "bench/load_session.h"

#include "base/clock.h"
#include "base/json_out.h"
#include "base/mem.h"
#include "bench/load_sse.h"
#include "serve/json_in.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ERROR_BODY_MAX = 8 << 10, EXCERPT = 120 };

struct flight {
    load_session *s;
    load_record *r;
    load_hooks hooks;
    load_exchange *x;
    load_sse sse;
    str error_body;       /* of an answer that is no stream */
    bool is_stream, done; /* done: [DONE] came */
    error err;            /* why on_body gave up */
    load_outcome failed;  /* then */
};

double load_thread_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *load_outcome_name(load_outcome o) {
    static const char *const names[] = {"ok",     "refused",   "http",   "unreachable", "timeout",
                                        "broken", "malformed", "failed", "cancelled"};
    _Static_assert(sizeof names / sizeof *names == LOAD_N_OUTCOMES, "a name for each");
    return names[o];
}

void load_session_fail(load_session *s, status st, const error *err) {
    if (s->st == CHURON_OK) {
        s->st = st;
        s->err = *err;
    }
    load_http_stop(s->http);
}

/* ---- an answer -------------------------------------------------------------------------------------- */

static status add_stamp(flight *f, error *err) {
    load_record *r = f->r;
    if (r->n_stamps == r->cap_stamps) {
        size_t cap = r->cap_stamps ? r->cap_stamps * 2 : 128;
        double *more = mem_realloc(r->stamps, cap * sizeof *more);
        if (!more) return error_no_memory(err, "times", cap * sizeof *more);
        r->stamps = more;
        r->cap_stamps = cap;
    }
    double now = clock_seconds() - f->s->start;
    if (r->n_stamps == 0) r->first = now;
    r->last = now;
    r->stamps[r->n_stamps++] = now;
    return CHURON_OK;
}

static bool has_text(const json_t *v) {
    return json_is_string(v) && json_string_length(v) > 0;
}

/* The text of an error in any of the shapes that servers use; NULL if there is none. */
static const char *error_text(const json_t *root) {
    const json_t *e = json_object_get(root, "error");
    if (json_is_object(e)) e = json_object_get(e, "message");
    if (!json_is_string(e)) e = json_object_get(root, "message");
    if (!json_is_string(e)) e = json_object_get(root, "detail");
    return json_is_string(e) ? json_string_value(e) : NULL;
}

static status take_usage(load_record *r, const json_t *usage, error *err) {
    int64_t prompt = -1, output = -1, cached = 0;
    TRY(json_in_int(usage, "usage.", "prompt_tokens", 0, INT64_MAX, &prompt, err));
    TRY(json_in_int(usage, "usage.", "completion_tokens", 0, INT64_MAX, &output, err));
    const json_t *details = json_in_member(usage, "prompt_tokens_details");
    if (json_is_object(details)) {
        TRY(json_in_int(details, "usage.prompt_tokens_details.", "cached_tokens", 0, INT64_MAX, &cached,
                        err));
    }
    if (prompt < 0 || output < 0) return CHURON_OK;
    r->prompt_tokens = (uint64_t)prompt;
    r->output_tokens = (uint64_t)output;
    r->cached_tokens = (uint64_t)cached;
    r->has_usage = true;
    return CHURON_OK;
}

static status take_choice(flight *f, const json_t *choice, bool *text, error *err) {
    if (!json_is_object(choice)) {
        return error_set(err, CHURON_CORRUPT, "event: field choices[0]: expected an object, got %s",
                         json_in_type(choice));
    }
    const json_t *delta = json_in_member(choice, "delta"), *finish = json_in_member(choice, "finish_reason");
    if (f->s->o.completions) {
        *text = has_text(json_object_get(choice, "text"));
    } else {
        *text = has_text(json_object_get(delta, "content")) ||
                has_text(json_object_get(delta, "reasoning_content")) ||
                has_text(json_object_get(delta, "reasoning"));
    }
    if (json_is_string(finish)) {
        snprintf(f->r->finish, sizeof f->r->finish, "%.*s", LOAD_FINISH - 1, json_string_value(finish));
    }
    return CHURON_OK;
}

static status take_object(flight *f, const json_t *root, bool *text, error *err) {
    if (json_in_member(root, "error")) {
        const char *why = error_text(root);
        f->failed = LOAD_FAILED;
        return error_set(err, CHURON_IO, "%.150s", why ? why : "an error without a message");
    }
    const json_t *choices = json_in_member(root, "choices"), *usage = json_in_member(root, "usage");
    if (choices && !json_is_array(choices)) {
        return error_set(err, CHURON_CORRUPT, "event: field choices: expected a list, got %s",
                         json_in_type(choices));
    }
    if (json_array_size(choices) > 0) TRY(take_choice(f, json_array_get(choices, 0), text, err));
    if (json_is_object(usage)) TRY(take_usage(f->r, usage, err));
    return CHURON_OK;
}

static status take_event(void *user, const char *data, size_t n, error *err) {
    flight *f = user;
    if (f->done) {
        return error_set(err, CHURON_CORRUPT, "event stream: expected nothing after [DONE], got %.60s", data);
    }
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        f->done = true;
        return CHURON_OK;
    }
    json_doc doc;
    bool text = false;
    TRY(json_in_parse(&doc, data, n, NULL, err));
    status st = take_object(f, doc.root, &text, err);
    json_in_free(&doc);
    if (st != CHURON_OK || !text) return st;
    TRY(add_stamp(f, err));
    if (f->hooks.on_text) f->hooks.on_text(f->hooks.user, f->r);
    return CHURON_OK;
}

static void on_head(void *user, const load_head *h) {
    static const char stream[] = "text/event-stream";
    flight *f = user;
    f->r->code = h->code;
    f->r->retry_after = h->retry_after;
    f->is_stream = h->code == 200 && strncmp(h->content_type, stream, sizeof stream - 1) == 0;
    if (h->code == 200 && !f->is_stream) {
        f->failed = LOAD_MALFORMED;
        (void)error_set(&f->err, CHURON_CORRUPT, "Content-Type: expected text/event-stream, got \"%.60s\"",
                        h->content_type);
    }
}

static bool on_body(void *user, const char *bytes, size_t n) {
    flight *f = user;
    if (f->failed != LOAD_OK) return false;
    if (!f->is_stream) {
        size_t room = ERROR_BODY_MAX - f->error_body.len;
        str_add(&f->error_body, bytes, n < room ? n : room);
        return n <= room;
    }
    status st = load_sse_feed(&f->sse, bytes, n, take_event, f, &f->err);
    if (st == CHURON_OK) return true;
    if (st == CHURON_NO_MEMORY) load_session_fail(f->s, st, &f->err);
    if (f->failed == LOAD_OK) f->failed = LOAD_MALFORMED;
    return false;
}

static void set_why(load_record *r, const char *fmt, const char *text) {
    error line; /* makes one line of whatever a server sent */
    (void)error_set(&line, CHURON_IO, fmt, text);
    snprintf(r->why, sizeof r->why, "%.*s", LOAD_WHY - 1, line.message);
}

/* Why an answer other than 200 came: the message in it, or its first bytes. */
static void explain_status(flight *f) {
    json_doc doc = {0};
    const str *b = &f->error_body;
    const char *text = NULL;
    if (b->len && json_in_parse(&doc, b->data, b->len, NULL, NULL) == CHURON_OK) text = error_text(doc.root);
    char line[LOAD_WHY];
    if (text) {
        snprintf(line, sizeof line, "%d: %.150s", f->r->code, text);
    } else if (b->len) {
        snprintf(line, sizeof line, "%d, no JSON error: %.*s", f->r->code, EXCERPT, str_cstr(b));
    } else {
        snprintf(line, sizeof line, "%d, without a body", f->r->code);
    }
    set_why(f->r, "%s", line);
    json_in_free(&doc);
}

/* The whole response has come. */
static void judge_whole(flight *f) {
    load_record *r = f->r;
    error err;
    if (f->failed != LOAD_OK) {
        r->outcome = f->failed;
        set_why(r, "%s", f->err.message);
    } else if (r->code != 200) {
        r->outcome = r->code == 429 ? LOAD_REFUSED : LOAD_HTTP_STATUS;
        explain_status(f);
    } else if (load_sse_end(&f->sse, &err) != CHURON_OK) {
        r->outcome = LOAD_BROKEN;
        set_why(r, "%s", err.message);
    } else if (!r->finish[0]) {
        r->outcome = LOAD_BROKEN;
        set_why(r, "%s", "event stream: expected a finish_reason, got the end");
    } else if (!f->done) {
        r->outcome = LOAD_BROKEN;
        set_why(r, "%s", "event stream: expected [DONE], got the end");
    } else {
        r->outcome = LOAD_OK;
    }
}

static void on_end(void *user, load_end how, const char *why) {
    flight *f = user;
    load_record *r = f->r;
    r->end = clock_seconds() - f->s->start;
    switch (how) {
    case LOAD_END_WHOLE: judge_whole(f); break;
    case LOAD_END_REFUSED: /* by on_body */
        if (f->failed != LOAD_OK) {
            r->outcome = f->failed;
            set_why(r, "%s", f->err.message);
        } else {
            judge_whole(f); /* an error's body that was too long */
        }
        break;
    case LOAD_END_UNREACHABLE: r->outcome = LOAD_UNREACHABLE; break;
    case LOAD_END_TIMEOUT: r->outcome = LOAD_TIMEOUT; break;
    case LOAD_END_BROKEN: r->outcome = LOAD_BROKEN; break;
    case LOAD_END_CANCELLED: r->outcome = LOAD_CANCELLED; break;
    }
    if (r->outcome != LOAD_OK && !r->why[0]) set_why(r, "%s", why);
    const load_hooks hooks = f->hooks;
    load_sse_free(&f->sse);
    str_free(&f->error_body);
    mem_free(f);
    if (hooks.on_end) hooks.on_end(hooks.user, r);
}

/* ---- a request -------------------------------------------------------------------------------------- */

static size_t words_of(double tokens, double per_word) {
    double words = round(tokens / per_word);
    return words < 1 ? 1 : words > 1e7 ? 10000000 : (size_t)words;
}

size_t load_words_for(const load_target *t, uint32_t tokens, bool beside_shared) {
    return words_of((double)tokens - (beside_shared ? t->around_shared : t->around), t->per_word);
}

size_t load_shared_words_for(const load_target *t, uint32_t tokens) {
    return words_of((double)tokens - t->shared, t->per_word);
}

/* The shared part of a round is one text, apart from all others. */
static void add_shared(const load_session *s, const load_ask *ask, str *to) {
    load_words(to, s->o.seed ^ ~ask->round, UINT64_MAX, ask->shared_words);
}

static void add_user(const load_session *s, const load_ask *ask, str *to) {
    load_words(to, s->o.seed, (ask->round << 32) + ask->index, ask->words);
}

static void write_message(json_out *j, const char *role, const str *text) {
    json_out_object(j, NULL);
    json_out_cstr(j, "role", role);
    json_out_string(j, "content", str_cstr(text), text->len);
    json_out_end_object(j);
}

static status write_prompt(const load_session *s, const load_ask *ask, json_out *j, error *err) {
    if (s->o.prompts) {
        size_t n;
        const char *messages = load_messages_at(s->o.prompts, (size_t)ask->index, &n);
        json_out_raw(j, "messages", messages, n);
        return CHURON_OK;
    }
    str shared = {0}, text = {0};
    if (ask->shared_words) add_shared(s, ask, &shared);
    if (s->o.completions && shared.len) {
        str_add(&text, shared.data, shared.len);
        str_cat(&text, "\n\n");
    }
    add_user(s, ask, &text);
    if (s->o.completions) {
        json_out_string(j, "prompt", str_cstr(&text), text.len);
    } else {
        json_out_array(j, "messages");
        if (ask->shared_words) write_message(j, "system", &shared);
        write_message(j, "user", &text);
        json_out_end_array(j);
    }
    status st = str_check(&shared, err);
    if (st == CHURON_OK) st = str_check(&text, err);
    str_free(&shared);
    str_free(&text);
    return st;
}

static bool is_mine(const load_session *s, const char *key) {
    return !json_object_get(s->o.extra, key); /* what the user gives stands instead */
}

static int dump(const char *bytes, size_t n, void *user) {
    str_add(user, bytes, n);
    return 0;
}

static void write_extra(const load_session *s, json_out *j) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s->o.extra, key, value) {
        str text = {0};
        (void)json_dump_callback(value, dump, &text, JSON_COMPACT | JSON_ENCODE_ANY);
        if (text.failed) j->to->failed = true;
        json_out_raw(j, key, str_cstr(&text), text.len);
        str_free(&text);
    }
}

static status write_body(const load_session *s, const load_target *t, const load_ask *ask, str *to,
                         error *err) {
    json_out j = json_out_begin(to);
    json_out_object(&j, NULL);
    if (is_mine(s, "model")) json_out_cstr(&j, "model", t->model);
    TRY(write_prompt(s, ask, &j, err));
    if (is_mine(s, "max_tokens")) json_out_uint(&j, "max_tokens", ask->output_tokens);
    if (is_mine(s, "temperature")) json_out_double(&j, "temperature", s->o.temperature);
    if (s->o.temperature > 0 && is_mine(s, "seed")) {
        json_out_uint(&j, "seed", (s->o.seed + ask->index) & 0x7fffffff);
    }
    if (s->o.ignore_eos && is_mine(s, "ignore_eos")) json_out_bool(&j, "ignore_eos", true);
    json_out_bool(&j, "stream", true);
    json_out_object(&j, "stream_options");
    json_out_bool(&j, "include_usage", true);
    json_out_end_object(&j);
    if (s->o.extra) write_extra(s, &j);
    json_out_end_object(&j);
    return str_check(to, err);
}

static load_record fresh_record(double scheduled, double sent) {
    const double none = (double)NAN;
    return (load_record){.scheduled = scheduled,
                         .sent = sent,
                         .first = none,
                         .last = none,
                         .end = none,
                         .retry_after = none,
                         .outcome = LOAD_CANCELLED};
}

status load_send(load_session *s, const load_target *t, const load_ask *ask, double scheduled,
                 load_record *record, const load_hooks *hooks, flight **out, error *err) {
    str body = {0}, url = {0};
    flight *f = mem_calloc(1, sizeof *f);
    if (out) *out = NULL;
    if (!f) return error_no_memory(err, "request", sizeof *f);
    status st;
    TRY_GOTO(write_body(s, t, ask, &body, err));
    str_fmt(&url, "%s/v1/%s", t->base, s->o.completions ? "completions" : "chat/completions");
    TRY_GOTO(str_check(&url, err));
    const double now = clock_seconds() - s->start;
    *record = fresh_record(scheduled >= 0 ? scheduled : now, now);
    *f = (flight){.s = s, .r = record, .hooks = hooks ? *hooks : (load_hooks){0}};
    const load_call call = {.url = url.data,
                            .key = s->o.key,
                            .body = body.data,
                            .body_len = body.len,
                            .timeout = s->o.timeout,
                            .user = f,
                            .on_head = on_head,
                            .on_body = on_body,
                            .on_end = on_end};
    TRY_GOTO(load_http_start(s->http, &call, &f->x, err));
    if (out) *out = f;
    f = NULL;
cleanup:
    mem_free(f);
    str_free(&url);
    str_free(&body);
    return st;
}

void load_cancel(load_session *s, flight *f) {
    load_http_cancel(s->http, f->x);
}

/* ---- the session ------------------------------------------------------------------------------------ */

status load_session_create(load_session **out, const load_session_options *o, error *err) {
    *out = NULL;
    load_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "session", sizeof *s);
    s->o = *o;
    status st = load_http_create(&s->http, err);
    if (st != CHURON_OK) {
        mem_free(s);
        return st;
    }
    *out = s;
    return CHURON_OK;
}

void load_session_free(load_session *s) {
    if (!s) return;
    load_http_free(s->http);
    mem_free(s);
}

void load_session_begin(load_session *s) {
    s->start = clock_seconds();
    s->st = CHURON_OK;
}

status load_session_run(load_session *s, error *err) {
    load_http_run(s->http);
    if (s->st != CHURON_OK && err) *err = s->err;
    return s->st;
}
