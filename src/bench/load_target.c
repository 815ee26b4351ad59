/* load_target.c: a server before it is measured: does it answer, what does it serve, and how many tokens does
 * its chat template put around a prompt; see load.h. */
#include "bench/load_session.h"

#include "base/mem.h"
#include "serve/json_in.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MODELS_MAX_BYTES = 1 << 20, SHORT_WORDS = 16, LONG_WORDS = 80 };
static const double LOOK_UP_SECONDS = 10;

status load_url_check(const char *url, const char *field, error *err) {
    const size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                          : strncasecmp(url, "https://", 8) == 0 ? 8
                                                                 : 0;
    const char *host = url + scheme;
    const size_t n = strcspn(host, "/?#");
    const char *path = host + n;
    bool ok = scheme > 0 && n > 0 && host[0] != ':' && !memchr(host, '@', n) && strlen(url) < 1024;
    for (const char *p = url; *p; p++) ok = ok && (unsigned char)*p > ' ' && (unsigned char)*p < 0x7f;
    ok = ok && (!*path || strcmp(path, "/") == 0 || strcmp(path, "/v1") == 0 || strcmp(path, "/v1/") == 0);
    if (ok) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "field %s: expected a server such as http://127.0.0.1:8080, got \"%.100s\"", field, url);
}

void load_target_close(load_target *t) {
    mem_free(t->base);
    *t = (load_target){0};
}

/* ---- what is served --------------------------------------------------------------------------------- */

typedef struct look_up {
    str body;
    int code;
    load_end how;
    char why[LOAD_WHY];
} look_up;

static void on_head(void *user, const load_head *h) {
    ((look_up *)user)->code = h->code;
}

static bool on_body(void *user, const char *bytes, size_t n) {
    look_up *l = user;
    if (l->body.len + n > MODELS_MAX_BYTES) return false;
    str_add(&l->body, bytes, n);
    return !l->body.failed;
}

static void on_end(void *user, load_end how, const char *why) {
    look_up *l = user;
    l->how = how;
    snprintf(l->why, sizeof l->why, "%.*s", LOAD_WHY - 1, why);
}

static status ask(look_up *l, load_session *s, const char *url, error *err) {
    const double timeout = s->o.timeout < LOOK_UP_SECONDS ? s->o.timeout : LOOK_UP_SECONDS;
    const load_call call = {.url = url,
                            .key = s->o.key,
                            .timeout = timeout,
                            .user = l,
                            .on_head = on_head,
                            .on_body = on_body,
                            .on_end = on_end};
    load_exchange *x;
    load_session_begin(s);
    TRY(load_http_start(s->http, &call, &x, err));
    TRY(load_session_run(s, err));
    TRY(str_check(&l->body, err));
    if (l->how == LOAD_END_REFUSED)
        snprintf(l->why, sizeof l->why, "a list of over %d bytes", MODELS_MAX_BYTES);
    if (l->how == LOAD_END_WHOLE) return CHURON_OK;
    return error_set(err, CHURON_IO, "%.300s: expected an OpenAI-compatible server, got: %.150s", url,
                     l->why);
}

static void copy_name(char to[LOAD_NAME], const json_t *v) {
    if (json_is_string(v)) snprintf(to, LOAD_NAME, "%.*s", LOAD_NAME - 1, json_string_value(v));
}

static status take_models(load_target *t, const look_up *l, const char *model, const char *url, error *err) {
    json_doc doc;
    if (l->code != 200) {
        return error_set(err, CHURON_IO,
                         "%.300s: expected status 200, got %d. Name the model with --model if the "
                         "server has no such list.",
                         url, l->code);
    }
    status st = json_in_parse(&doc, str_cstr(&l->body), l->body.len, NULL, err);
    if (st != CHURON_OK) {
        error_prefix(err, "%.200s", url);
        return st;
    }
    const json_t *list = json_in_member(doc.root, "data"), *chosen = json_array_get(list, 0);
    for (size_t i = 0; model && i < json_array_size(list); i++) {
        const json_t *id = json_object_get(json_array_get(list, i), "id");
        if (json_is_string(id) && strcmp(json_string_value(id), model) == 0) chosen = json_array_get(list, i);
    }
    copy_name(t->model, json_object_get(chosen, "id"));
    if (model) snprintf(t->model, sizeof t->model, "%.*s", LOAD_NAME - 1, model);
    copy_name(t->server, json_object_get(chosen, "owned_by"));
    const json_t *context = json_object_get(chosen, "max_model_len");
    if (!json_is_integer(context)) context = json_object_get(json_object_get(chosen, "meta"), "n_ctx");
    if (json_is_integer(context) && json_integer_value(context) > 0)
        t->context = (uint64_t)json_integer_value(context);
    if (!t->model[0]) {
        st = error_set(err, CHURON_IO, "%.300s: field data: expected a model with an id, got none", url);
    }
    json_in_free(&doc);
    return st;
}

static status find_model(load_target *t, load_session *s, const char *model, error *err) {
    str url = {0};
    look_up l = {0};
    str_fmt(&url, "%s/v1/models", t->base);
    status st;
    TRY_GOTO(str_check(&url, err));
    TRY_GOTO(ask(&l, s, url.data, err));
    if (l.code != 200 && model) {
        snprintf(t->model, sizeof t->model, "%.*s", LOAD_NAME - 1, model);
    } else {
        st = take_models(t, &l, model, url.data, err);
    }
cleanup:
    str_free(&l.body);
    str_free(&url);
    return st;
}

/* ---- what the template adds ------------------------------------------------------------------------- */

/* Tokens of a prompt of so many words. Its answer is one token. */
static status count_tokens(load_session *s, const load_target *t, uint64_t index, size_t words,
                           size_t shared_words, double *tokens, error *err) {
    load_record r = {0};
    const load_ask a = {.index = index,
                        .round = UINT32_MAX, /* apart from every run's prompts */
                        .words = words,
                        .shared_words = shared_words,
                        .output_tokens = 1};
    load_session_begin(s);
    status st = load_send(s, t, &a, -1, &r, NULL, NULL, err);
    if (st == CHURON_OK) st = load_session_run(s, err);
    if (st == CHURON_OK && r.outcome != LOAD_OK) {
        st = error_set(err, CHURON_IO, "%.200s: expected an answer to a first short request, got %s: %.*s",
                       t->base, load_outcome_name(r.outcome), LOAD_WHY - 1, r.why);
    } else if (st == CHURON_OK && !r.has_usage && !s->o.prompts) {
        st = error_set(err, CHURON_IO,
                       "%.200s: field usage: expected token counts at the end of the stream, got none",
                       t->base);
    }
    *tokens = (double)r.prompt_tokens;
    mem_free(r.stamps);
    return st;
}

static status measure_template(load_target *t, load_session *s, bool with_shared, error *err) {
    double few, many, with = 0;
    t->per_word = 1;
    TRY(count_tokens(s, t, 0, SHORT_WORDS, 0, &few, err));
    if (s->o.prompts) return CHURON_OK;
    TRY(count_tokens(s, t, 1, LONG_WORDS, 0, &many, err));
    t->per_word = (many - few) / (LONG_WORDS - SHORT_WORDS);
    if (!(t->per_word >= 0.5 && t->per_word <= 16)) {
        return error_set(
            err, CHURON_IO,
            "%.200s: field usage.prompt_tokens: expected 0.5 to 16 tokens a word, got %.0f tokens for %d "
            "words and %.0f for %d",
            t->base, few, SHORT_WORDS, many, LONG_WORDS);
    }
    t->around = few - SHORT_WORDS * t->per_word;
    if (with_shared) {
        /* A template may put a system message of its own where there is none, so this is measured too. */
        TRY(count_tokens(s, t, 2, SHORT_WORDS, LONG_WORDS, &with, err));
        t->shared = 0;
        t->around_shared = with - (SHORT_WORDS + LONG_WORDS) * t->per_word;
    }
    return CHURON_OK;
}

status load_target_open(load_target *t, load_session *s, const char *url, const char *model,
                        bool with_shared_prefix, error *err) {
    *t = (load_target){0};
    load_target made = {0};
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    if (n > 3 && strncmp(url + n - 3, "/v1", 3) == 0) n -= 3;
    made.base = mem_strndup(url, n);
    status st = made.base ? find_model(&made, s, model, err) : error_no_memory(err, "URL", n);
    if (st == CHURON_OK) st = measure_template(&made, s, with_shared_prefix, err);
    if (st == CHURON_OK) {
        *t = made;
    } else {
        load_target_close(&made);
    }
    return st;
}
