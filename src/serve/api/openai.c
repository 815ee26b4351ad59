/* openai.c: the chat and completion endpoints: from a checked request to sequences in the engine, and what
 * their events do to it. Everything here runs on the serving thread except on_event. */
#include "serve/api/answer.h"

#include "base/clock.h"
#include "base/json_out.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- life ------------------------------------------------------------------------------------------- */

static void choice_close(choice *c) {
    generation_free(c->gen);
    engine_seq_close(c->seq);
    c->gen = NULL;
    c->seq = NULL;
}

static void answer_free(answer *a) {
    server *s = a->server;
    for (size_t i = 0; i < a->n_choices; i++) {
        choice_close(&a->choices[i]);
        str_free(&a->choices[i].text);
        logprob_writer_free(&a->choices[i].logprobs);
    }
    if (a->prev) {
        a->prev->next = a->next;
    } else {
        s->answers = a->next;
    }
    if (a->next) a->next->prev = a->prev;
    s->live_choices -= a->n_choices;
    s->n_answers--;
    openai_request_free(&a->req);
    mem_free(a->choices);
    str_free(&a->head);
    str_free(&a->out);
    mem_free(a);
}

/* Frees the answer if nothing of it is under way. It must not be used after this. */
void answer_settle(answer *a) {
    if (!a->x && a->pending == 0 && !a->dirty) answer_free(a);
}

static void cancel_choices(answer *a) {
    for (size_t i = 0; i < a->n_choices; i++) {
        if (a->choices[i].gen && !a->choices[i].ended) generation_cancel(a->choices[i].gen);
    }
}

/* Ends the exchange with an error: a reply, or an event in a stream that has begun. */
void answer_fail(answer *a, int code, const char *type, const char *error_code, const char *message) {
    http_exchange *x = a->x;
    a->x = NULL;
    cancel_choices(a);
    if (!x) return;
    if (!a->req.stream || http_client_gone(x) != HTTP_HERE) {
        server_reply_status(a->server, x, code, type, NULL, error_code, message);
        return;
    }
    str out = {0};
    str_cat(&out, "data: {\"error\":");
    server_write_error(&out, type, NULL, error_code, message);
    str_cat(&out, "}\n\n");
    (void)http_stream_write(x, str_cstr(&out), out.len);
    str_free(&out);
    http_stream_end(x);
}

void answer_end_gone(answer *a, const char *why) {
    http_exchange *x = a->x;
    a->x = NULL;
    cancel_choices(a);
    metric_add(server_counter_cancelled(a->server, why), 1);
    if (a->req.stream) {
        http_stream_end(x);
    } else {
        server_reply_status(a->server, x, 499, "invalid_request_error", NULL, "client_closed",
                            "connection: the client closed its side before the answer was ready");
    }
}

static void on_client_gone(void *user) {
    answer *a = user;
    if (!a->x) return;
    answer_end_gone(a, "disconnect");
    answer_settle(a);
}

static void end_late(answer *a) {
    char line[96];
    snprintf(line, sizeof line, "timeout: expected an answer within %g seconds, got none", a->req.timeout);
    metric_add(server_counter_cancelled(a->server, "timeout"), 1);
    answer_fail(a, 504, "timeout_error", "timeout", line);
}

void openai_cancel_all(server *s) {
    for (answer *a = s->answers; a; a = a->next) cancel_choices(a);
}

/* ---- starting --------------------------------------------------------------------------------------- */

/* The stepping thread. */
static bool on_event(void *user, const generation_event *event) {
    choice *c = user;
    return feed_push(c->answer->server->feed, &c->source, event);
}

static status prompt_ids(const server *s, const openai_request *r, size_t i, token_list *out, error *err) {
    if (r->kind == OPENAI_CHAT) {
        str text = {0};
        status st = lm_bundle_chat_prompt(s->bundle, r->messages, r->n_messages, r->add_generation_prompt,
                                          &text, err);
        if (st == CHURON_OK) st = str_check(&text, err);
        if (st == CHURON_OK) {
            st = server_tokenize_prompt(s, str_cstr(&text), text.len, "messages", out, err);
        }
        str_free(&text);
        return st;
    }
    const openai_prompt *p = &r->prompts[i];
    if (!p->ids) return server_tokenize_prompt(s, p->text, p->text_len, "prompt", out, err);
    for (size_t k = 0; k < p->n_ids; k++) TRY(token_list_add(out, p->ids[k], err));
    return CHURON_OK;
}

static status start_choice(answer *a, choice *c, size_t index, const token_list *ids, error *err) {
    server *s = a->server;
    const openai_request *r = &a->req;
    generation_request g = {.sampling = r->sampling,
                            .max_tokens = r->max_tokens ? r->max_tokens : s->capacity - ids->len,
                            .stop = r->stop,
                            .stop_len = r->stop_len,
                            .n_stop = r->n_stop,
                            .stop_ids = r->stop_ids,
                            .n_stop_ids = r->n_stop_ids,
                            .ignore_eos = r->ignore_eos,
                            .priority = r->priority,
                            .no_speculation = !r->speculate,
                            .beam = r->beam,
                            .deadline = a->deadline};
    const engine_seq_options who = {.tenant = a->tenant_name, .salt = r->cache_salt};
    if (!r->has_seed && getrandom(&g.sampling.seed, sizeof g.sampling.seed, 0) < 0) {
        return error_set(err, CHURON_IO, "seed: the system gave no random number");
    }
    /* Choice 0 draws as a request for one choice would; the others from seeds spread by an odd constant. */
    if (r->has_seed)
        g.sampling.seed = r->seed + (uint64_t)(index % r->best_of) * UINT64_C(0x9e3779b97f4a7c15);
    TRY(engine_seq_open(&c->seq, s->engine, &who, err));
    TRY(engine_seq_append(c->seq, ids->ids, ids->len, err));
    TRY(generation_start(&c->gen, s->bundle, c->seq, &g, on_event, c, err));
    a->pending++;
    c->prompt_tokens = ids->len;
    return CHURON_OK;
}

static status start_choices(answer *a, error *err) {
    const openai_request *r = &a->req;
    const size_t most = a->server->o.max_queued_tokens;
    size_t total = 0; /* every choice waits with its whole prompt */
    for (size_t i = 0; i < a->n_choices; i += r->best_of) {
        token_list ids = {0};
        status st = prompt_ids(a->server, r, i / r->best_of, &ids, err);
        if (st == CHURON_OK)
            st = server_check_length(a->server, r->kind == OPENAI_CHAT ? "messages" : "prompt", ids.len,
                                     r->max_tokens, err);
        total += ids.len * r->best_of;
        if (st == CHURON_OK && total - ids.len > most) { /* one may start at once */
            st = error_set(err, CHURON_INVALID,
                           "%s: expected at most %zu tokens in the prompts of all choices, got %zu",
                           r->kind == OPENAI_CHAT ? "messages" : "prompt", most, total);
        }
        for (size_t k = i; st == CHURON_OK && k < i + r->best_of; k++) {
            choice *c = &a->choices[k];
            c->answer = a;
            c->prompt = i / r->best_of;
            c->source.owner = c;
            c->logprobs.chat = r->kind == OPENAI_CHAT;
            if (r->beam.width == 0 || k == i) st = start_choice(a, c, k, &ids, err);
        }
        token_list_free(&ids);
        TRY(st);
    }
    return CHURON_OK;
}

static status answer_create(answer **out, server *s, http_exchange *x, openai_request *req, error *err) {
    *out = NULL;
    answer *a = mem_calloc(1, sizeof *a);
    const size_t n = req->best_of * (req->kind == OPENAI_CHAT ? 1 : req->n_prompts);
    choice *choices = mem_calloc(n, sizeof *choices);
    if (!a || !choices) {
        mem_free(a);
        mem_free(choices);
        return error_no_memory(err, "answer", sizeof *a + n * sizeof *choices);
    }
    *a = (answer){.server = s,
                  .x = x,
                  .req = *req,
                  .choices = choices,
                  .n_choices = n,
                  .tenant = measure_tenant(s, s->caller.tenant),
                  .next = s->answers,
                  .created = clock_unix(),
                  .arrived = s->arrived};
    *req = (openai_request){0};
    if (a->next) a->next->prev = a;
    s->answers = a;
    s->live_choices += n;
    s->n_answers++;
    if (a->req.timeout > 0) a->deadline = a->arrived + a->req.timeout;
    memcpy(a->tenant_name, s->caller.tenant, sizeof a->tenant_name);
    memcpy(a->request_id, s->request_id, sizeof a->request_id);
    server_unique_id(s, a->id, sizeof a->id, a->req.kind == OPENAI_CHAT ? "chatcmpl-" : "cmpl-");
    *out = a;
    return CHURON_OK;
}

/* From the body to choices in the engine. On an error *out may be an answer of which some choices run. */
static status start(server *s, http_exchange *x, openai_kind kind, answer **out, error *err) {
    *out = NULL;
    openai_context context = {.n_vocab = tokenizer_n_tokens(lm_bundle_tokenizer(s->bundle)),
                              .defaults = lm_bundle_sampling_defaults(s->bundle)};
    if (!s->o.temperature_given) context.defaults.temperature = 1; /* OpenAI's default */
    if (context.defaults.repeat_last_n == 0 || context.defaults.repeat_penalty == 1) {
        context.defaults.repeat_last_n = (uint32_t)s->capacity;
    }
    size_t len;
    const char *body = http_request_body(x, &len);
    openai_request req;
    TRY(openai_request_parse(&req, body, len, kind, &context, err));
    status st = server_check_model(s, req.model, err);
    const size_t n = req.best_of * (kind == OPENAI_CHAT ? 1 : req.n_prompts);
    if (st == CHURON_OK && s->live_choices + n > MAX_LIVE_CHOICES) {
        st = error_set(err, CHURON_BUSY, "queue: expected at most %d answers at once, got %zu more",
                       MAX_LIVE_CHOICES, s->live_choices + n - MAX_LIVE_CHOICES);
    }
    if (st == CHURON_OK) st = answer_create(out, s, x, &req, err);
    openai_request_free(&req);
    TRY(st);
    TRY(start_choices(*out, err));
    if ((*out)->req.stream) {
        answer_write_head(*out);
        TRY(str_check(&(*out)->head, err));
    }
    return CHURON_OK;
}

/* One of several tenants may take of a bounded thing only as much as stays free (dynamic thresholds,
 * Choudhury and Hahne 1998): one that floods gets half, and the others still come in. */
static status check_share(const server *s, const char *what, size_t own, size_t used, size_t most,
                          error *err) {
    if (used >= most) {
        return error_set(err, CHURON_BUSY, "queue: expected at most %zu %s, got %zu already", most, what,
                         used);
    }
    const bool several = s->several_tenants || engine_tenants_get(s->engine, NULL, 0) > 1;
    if (!several || own == 0 || own < most - used) return CHURON_OK;
    return error_set(err, CHURON_BUSY,
                     "queue: expected at most %zu %s of this tenant (as many as are free), got %zu already",
                     most - used, what, own);
}

/* What the caller's tenant has under way. */
static size_t own_answers(const server *s, size_t *choices) {
    size_t n = 0;
    *choices = 0;
    for (const answer *a = s->answers; a; a = a->next) {
        if (strcmp(a->tenant_name, s->caller.tenant) != 0) continue;
        n++;
        *choices += a->n_choices;
    }
    return n;
}

/* What can be known to be refused is refused before its body is read: the more come, the less each may cost.
 */
static status check_queue(server *s, error *err) {
    engine_load l;
    engine_load_get(s->engine, &l);
    engine_tenant_load own = {0};
    size_t choices;
    const size_t answers = own_answers(s, &choices);
    TRY(check_share(s, "requests at once", answers, s->n_answers, s->max_answers, err));
    TRY(check_share(s, "answers at once", choices, s->live_choices, MAX_LIVE_CHOICES, err));
    if (l.waiting_tokens > 0) (void)engine_tenant_get(s->engine, s->caller.tenant, &own);
    return check_share(s, "waiting tokens", own.waiting_tokens, l.waiting_tokens, s->o.max_queued_tokens,
                       err);
}

static void serve(server *s, http_exchange *x, openai_kind kind) {
    error err = {0};
    answer *a = NULL;
    status st = check_queue(s, &err);
    if (st == CHURON_OK) st = start(s, x, kind, &a, &err);
    if (st != CHURON_OK) {
        if (a) {
            a->x = NULL;
            cancel_choices(a);
        }
        if (st == CHURON_BUSY) metric_add(measure_tenant(s, s->caller.tenant)->refused, 1);
        server_reply_error(s, x, &err);
        if (a) answer_settle(a);
        return;
    }
    metric_add(a->tenant->requests, 1);
    metric_observe(s->m.choices, (double)a->req.n);
    if (a->req.max_tokens) metric_observe(s->m.max_tokens, (double)a->req.max_tokens);
    http_on_gone(x, on_client_gone, a);
    if (a->req.stream) {
        http_reply_header(x, "Cache-Control", "no-cache");
        http_reply_header(x, "X-Accel-Buffering", "no"); /* proxies: pass each event on at once */
        http_stream_begin(x, 200, "text/event-stream; charset=utf-8");
    }
}

void openai_chat(server *s, http_exchange *x) {
    serve(s, x, OPENAI_CHAT);
}

void openai_completions(server *s, http_exchange *x) {
    serve(s, x, OPENAI_COMPLETION);
}

/* ---- events of the engine --------------------------------------------------------------------------- */

/* Is it part of the answer? The token that ends an answer is not. */
static bool is_answer_token(const answer *a, int32_t id) {
    const tokenizer *t = lm_bundle_tokenizer(a->server->bundle);
    if (!a->req.ignore_eos && tokenizer_is_eog(t, id)) return false;
    for (size_t i = 0; i < a->req.n_stop_ids; i++) {
        if (a->req.stop_ids[i] == id) return false;
    }
    return true;
}

static void on_choice_token(choice *c, const feed_event *e) {
    answer *a = c->answer;
    server_metrics *m = &a->server->m;
    if (c->last_token == 0) {
        metric_observe(m->ttft, e->at - a->arrived);
        metric_observe(a->tenant->ttft, e->at - a->arrived);
    } else {
        metric_observe(m->inter_token, e->at - c->last_token);
    }
    c->last_token = e->at;
    c->logprob_sum += (double)e->token.logprob;
    if (a->x && a->req.logprobs && is_answer_token(a, e->token.id)) {
        logprob_writer_add(&c->logprobs, lm_bundle_tokenizer(a->server->bundle), &e->token);
    }
}

static void echo_prompt(choice *c) {
    const openai_prompt *p = &c->answer->req.prompts[c->prompt];
    if (!p->ids) {
        str_add(&c->text, p->text, p->text_len);
        return;
    }
    const tokenizer *t = lm_bundle_tokenizer(c->answer->server->bundle);
    if (tokenizer_decode(t, p->ids, p->n_ids, true, &c->text, NULL) != CHURON_OK) c->text.failed = true;
}

/* The texts of a beam search: the best to the first choice, the next ones to those behind it. A choice that
 * gets none (there are fewer texts than asked for) is not replied. */
static void take_beams(choice *first) {
    const answer *a = first->answer;
    const generation_beam *beams;
    const size_t n = generation_beams(first->gen, &beams);
    first->finish = FINISH_NONE;
    first->tokens = 0;
    for (size_t i = 0; i < n && i < a->req.n; i++) {
        choice *c = &first[i];
        c->ended = true;
        c->finish = beams[i].finish;
        c->tokens = beams[i].n_tokens;
        c->cached_tokens = first->cached_tokens;
        c->score = beams[i].score;
        if (!a->x) continue;
        if (i > 0 && a->req.echo) echo_prompt(c);
        str_add(&c->text, beams[i].text, beams[i].text_len);
    }
}

static void on_choice_end(choice *c, const feed_event *e) {
    answer *a = c->answer;
    server *s = a->server;
    const engine_job_stats stats = generation_stats(c->gen);
    c->ended = true;
    c->finish = e->finish;
    c->tokens = stats.tokens;
    c->cached_tokens = stats.cached_tokens;
    a->pending--;
    const bool whole = e->finish == FINISH_STOP || e->finish == FINISH_LENGTH;
    if (a->req.beam.width > 0 && whole) take_beams(c);
    choice_close(c); /* its pages are free from here on */
    metric_add(a->tenant->prompt_tokens, stats.prompt_tokens);
    metric_add(a->tenant->cached_tokens, stats.cached_tokens);
    metric_add(a->tenant->generation_tokens, stats.tokens);
    metric_observe(a->tenant->queue, stats.queue_s);
    if (e->finish == FINISH_TIMEOUT) {
        if (a->x) end_late(a);
        return;
    }
    if (!whole) {
        metric_add(server_counter_finished(s, e->finish == FINISH_ERROR ? "error" : "abort"), 1);
        if (!a->x) return;
        if (e->finish == FINISH_CANCELLED) {
            answer_fail(a, 503, "server_error", "stopping",
                        "server: it is stopping, the answer was not finished");
            return;
        }
        const char *type, *code;
        const int http = server_error_http(e->err, &type, &code);
        answer_fail(a, http, type, code, e->err->message);
        return;
    }
    metric_add(server_counter_finished(s, finish_reason_name(e->finish)), 1);
    metric_observe(s->m.e2e, e->at - a->arrived);
    metric_observe(s->m.queue, stats.queue_s);
    metric_observe(s->m.prefill, stats.prefill_s);
    metric_observe(s->m.decode, stats.decode_s);
    if (stats.tokens > 1) metric_observe(s->m.per_token, stats.decode_s / (double)(stats.tokens - 1));
    metric_observe(s->m.prompt_length, (double)c->prompt_tokens);
    metric_observe(s->m.answer_length, (double)stats.tokens);
}

void openai_feed(void *user, const feed_event *e) {
    server *s = user;
    choice *c = e->owner;
    answer *a = c->answer;
    if (a->x && a->req.echo && !c->role_sent) {
        c->role_sent = true;
        echo_prompt(c);
    }
    if (e->has_token) on_choice_token(c, e);
    if (a->x && e->text_len) str_add(&c->text, e->text, e->text_len);
    if (e->finish != FINISH_NONE) on_choice_end(c, e);
    if (!a->dirty) {
        a->dirty = true;
        a->next_dirty = s->dirty;
        s->dirty = a;
    }
}

void openai_flush(server *s) {
    while (s->dirty) {
        answer *a = s->dirty;
        s->dirty = a->next_dirty;
        a->dirty = false;
        if (a->x && a->req.stream) {
            answer_stream_round(a);
        } else if (a->x && a->pending == 0) {
            answer_reply_whole(a);
        }
        answer_settle(a);
    }
}
