/* answer_write.c: see answer.h: the JSON of an answer, whole or as a stream. */
#include "serve/api/answer.h"

#include "base/json_out.h"

#include <stdio.h>
#include <string.h>

/* ---- one JSON object -------------------------------------------------------------------------------- */

static void write_choice_logprobs(answer *a, choice *c, str *out) {
    str_cat(out, ",\"logprobs\":");
    if (a->req.logprobs) {
        logprob_writer_take(&c->logprobs, out);
    } else {
        str_cat(out, "null");
    }
}

/* Of the choices of one prompt that are not yet picked the one with the highest log-probability a token; in
 * their own order where as many are wanted as there are. */
static choice *pick(const answer *a, choice *of_prompt) {
    const size_t n = a->req.best_of;
    choice *best = NULL;
    double highest = 0;
    for (choice *c = of_prompt; c < of_prompt + n; c++) {
        const double mean = c->tokens ? c->logprob_sum / (double)c->tokens : 0;
        if (c->picked || (best && (a->req.n == n || mean <= highest))) continue;
        best = c;
        highest = mean;
    }
    if (best) best->picked = true;
    return best;
}

static void write_whole_choice(answer *a, choice *c, size_t index, str *out) {
    if (index) str_put(out, ',');
    str_fmt(out, "{\"index\":%zu,", index);
    if (a->req.kind == OPENAI_CHAT) {
        str_cat(out, "\"message\":{\"role\":\"assistant\",\"content\":");
        str_json(out, str_cstr(&c->text), c->text.len);
        str_cat(out, ",\"refusal\":null}");
    } else {
        str_cat(out, "\"text\":");
        str_json(out, str_cstr(&c->text), c->text.len);
    }
    write_choice_logprobs(a, c, out);
    if (a->req.beam.width > 0) str_fmt(out, ",\"score\":%.9g", c->score);
    str_fmt(out, ",\"finish_reason\":\"%s\"}", finish_reason_name(c->finish));
}

static openai_usage usage_of(const answer *a) {
    openai_usage u = {0};
    for (const choice *c = a->choices; c < a->choices + a->n_choices; c += a->req.best_of) {
        size_t cached = SIZE_MAX; /* the choices after the first find what the first has computed */
        for (size_t k = 0; k < a->req.best_of; k++) {
            u.completion += c[k].tokens;
            if (c[k].cached_tokens < cached) cached = c[k].cached_tokens;
        }
        u.prompt += c->prompt_tokens;
        u.cached += cached;
    }
    return u;
}

void answer_reply_whole(answer *a) {
    server *s = a->server;
    str out = {0};
    str_fmt(&out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id,
            a->req.kind == OPENAI_CHAT ? "chat.completion" : "text_completion", (long long)a->created);
    str_json(&out, s->model_id, strlen(s->model_id));
    str_cat(&out, ",\"choices\":[");
    bool lost = false;
    for (size_t i = 0; i < a->n_choices / a->req.best_of * a->req.n; i++) {
        choice *c = pick(a, a->choices + i / a->req.n * a->req.best_of);
        if (c->finish == FINISH_NONE) continue;
        lost = lost || c->text.failed || logprob_writer_failed(&c->logprobs);
        write_whole_choice(a, c, i, &out);
    }
    str_cat(&out, "],\"usage\":");
    const openai_usage usage = usage_of(a);
    openai_write_usage(&out, &usage);
    str_fmt(&out, ",\"system_fingerprint\":\"%s\"}", s->fingerprint);
    out.failed = out.failed || lost;
    http_exchange *x = a->x;
    a->x = NULL;
    if (usage.cached) {
        char tokens[24];
        snprintf(tokens, sizeof tokens, "%zu", usage.cached);
        http_reply_header(x, "X-Churon-Cache", tokens);
    }
    server_reply_json(s, x, &out);
    str_free(&out);
}

/* ---- a stream --------------------------------------------------------------------------------------- */

void answer_write_head(answer *a) {
    const bool chat = a->req.kind == OPENAI_CHAT;
    str_fmt(&a->head, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id,
            chat ? "chat.completion.chunk" : "text_completion", (long long)a->created);
    str_json(&a->head, a->server->model_id, strlen(a->server->model_id));
    str_fmt(&a->head, ",\"system_fingerprint\":\"%s\",\"choices\":[", a->server->fingerprint);
}

/* data: {…,"choices":[{"index":N,CONTENT,"logprobs":…,"finish_reason":…}]}\n\n */
static void write_event(answer *a, choice *c, const char *finish) {
    str *out = &a->out;
    const bool chat = a->req.kind == OPENAI_CHAT;
    str_add(out, a->head.data, a->head.len);
    str_fmt(out, "{\"index\":%zu,", (size_t)(c - a->choices));
    if (!chat) {
        str_cat(out, "\"text\":");
        str_json(out, str_cstr(&c->text), c->text.len);
    } else if (finish && c->text.len == 0 && c->logprobs.n == 0) {
        str_cat(out, "\"delta\":{}");
    } else {
        str_cat(out, "\"delta\":{\"content\":");
        str_json(out, str_cstr(&c->text), c->text.len);
        str_put(out, '}');
    }
    if (a->req.logprobs && c->logprobs.n) {
        write_choice_logprobs(a, c, out);
    } else {
        str_cat(out, ",\"logprobs\":null");
    }
    if (finish) {
        str_fmt(out, ",\"finish_reason\":\"%s\"}]", finish);
    } else {
        str_cat(out, ",\"finish_reason\":null}]");
    }
    str_cat(out, a->req.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

static void write_first_event(answer *a, choice *c) {
    c->role_sent = true;
    str *out = &a->out;
    if (a->req.kind == OPENAI_CHAT) {
        str_add(out, a->head.data, a->head.len);
        str_fmt(out,
                "{\"index\":%zu,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                "\"finish_reason\":null}]%s}\n\n",
                (size_t)(c - a->choices), a->req.include_usage ? ",\"usage\":null" : "");
    }
}

/* What a round of the feed brought for a choice. */
static void stream_choice(answer *a, choice *c) {
    const bool finished = c->ended && c->finish != FINISH_NONE;
    if (c->text.len == 0 && c->logprobs.n == 0 && !finished) return;
    if (!c->role_sent) write_first_event(a, c);
    /* The text before its finish reason, as OpenAI streams it. */
    if (c->text.len || c->logprobs.n) write_event(a, c, NULL);
    str_clear(&c->text);
    if (finished) {
        write_event(a, c, finish_reason_name(c->finish));
        c->finish = FINISH_NONE; /* said */
    }
}

static void stream_end(answer *a) {
    if (a->req.include_usage) {
        str_add(&a->out, a->head.data, a->head.len);
        str_cat(&a->out, "],\"usage\":");
        const openai_usage usage = usage_of(a);
        openai_write_usage(&a->out, &usage);
        str_cat(&a->out, "}\n\n");
    }
    str_cat(&a->out, "data: [DONE]\n\n");
}

void answer_stream_round(answer *a) {
    bool lost = false;
    for (size_t i = 0; i < a->n_choices; i++) {
        choice *c = &a->choices[i];
        lost = lost || c->text.failed || logprob_writer_failed(&c->logprobs);
        stream_choice(a, c);
    }
    if (a->pending == 0) stream_end(a);
    if (lost || a->out.failed) {
        answer_fail(a, 503, "server_error", "no_memory",
                    "server: out of memory while the answer was written");
        return;
    }
    if (a->out.len && !http_stream_write(a->x, a->out.data, a->out.len)) {
        answer_end_gone(a, http_client_gone(a->x) == HTTP_SLOW ? "slow_reader" : "disconnect");
        return;
    }
    str_clear(&a->out);
    if (a->pending == 0) {
        http_exchange *x = a->x;
        a->x = NULL;
        http_stream_end(x);
    }
}
