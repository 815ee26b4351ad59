/* bench_load_contest.c: measures one server, or two in turns so that both meet the same moods of the machine;
 * see bench_load.h. */
#include "cli/bench_load.h"

#include "base/mem.h"
#include "bench/load_peer.h"
#include "serve/json_in.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KNEE_REQUESTS_MIN = 12 };
static const double PEER_PATIENCE_SECONDS = 120;

typedef struct contest {
    const load_request_options *o;
    load_contest *out;
    load_session *s;
    load_plan plan; /* the first round's; a trace for all */
    progress *p;
    char label[80]; /* for the progress */
} contest;

void load_contest_free(load_contest *c) {
    for (size_t i = 0; i < LOAD_TARGETS; i++) {
        load_score *s = &c->scores[i];
        load_target_close(&s->target);
        load_records_free(&s->records);
        for (size_t k = 0; k < s->n_stalls; k++) load_stall_free(&s->stalls[k]);
    }
    *c = (load_contest){0};
}

static void show_progress(void *user, size_t ended, size_t of) {
    contest *c = user;
    progress_update(c->p, "load", (double)ended, (double)of, c->label);
}

/* ---- plans ------------------------------------------------------------------------------------------ */

/* `n` requests of a round at a rate (0: the trace's own, or a closed loop). */
static status make_plan(const contest *c, size_t n, double rate, uint64_t round, load_plan *out, error *err) {
    const load_request_options *o = c->o;
    if (!o->trace) {
        return load_plan_make(out, n, rate, o->prompt_tokens, o->output_tokens, o->seed + round, err);
    }
    *out = (load_plan){0};
    if (n > c->plan.n) n = c->plan.n;
    load_request *items = mem_alloc((n ? n : 1) * sizeof *items);
    if (!items) return error_no_memory(err, "requests", n * sizeof *items);
    memcpy(items, c->plan.items, n * sizeof *items);
    *out = (load_plan){items, n};
    const double own = load_plan_rate(out);
    if (rate > 0 && own > 0) load_plan_scale(out, own / rate, 1);
    return CHURON_OK;
}

/* A prompt that cannot fit is refused here, with both numbers, and not once for every request. */
static status check_lengths(const contest *c, const load_target *t, error *err) {
    const load_request_options *o = c->o;
    if (t->context == 0 || o->prompts) return CHURON_OK;
    uint64_t longest = 0;
    for (size_t i = 0; i < c->plan.n; i++) {
        const uint64_t n = (uint64_t)c->plan.items[i].prompt_tokens + c->plan.items[i].output_tokens;
        if (n > longest) longest = n;
    }
    longest += o->shared_prefix;
    if (o->mode == LOAD_STALL) longest = (uint64_t)o->prompt_tokens.hi + 8;
    if (longest <= t->context) return CHURON_OK;
    return error_set(
        err, CHURON_LIMIT,
        "%.200s: field %s: expected prompt and answer within its context of %llu tokens, got %llu", t->base,
        o->trace ? "--length-scale" : "--prompt-tokens", (unsigned long long)t->context,
        (unsigned long long)longest);
}

/* ---- runs ------------------------------------------------------------------------------------------- */

static status run_round(contest *c, size_t which, uint64_t round, error *err) {
    const load_request_options *o = c->o;
    load_score *score = &c->out->scores[which];
    load_plan plan;
    load_records records = {0};
    TRY(make_plan(c, c->plan.n, o->rate, round, &plan, err));
    snprintf(c->label, sizeof c->label, "%.50s, round %u", score->target.base, (unsigned)round + 1);
    const load_run_options run = {.plan = &plan,
                                  .concurrency = o->mode == LOAD_CLOSED ? (size_t)o->concurrency : 0,
                                  .duration = o->duration,
                                  .shared_prefix = (uint32_t)o->shared_prefix,
                                  .round = round,
                                  .progress = {show_progress, c}};
    status st = load_run(&records, c->s, &score->target, &run, NULL, err);
    if (st == CHURON_OK) st = load_records_join(&score->records, &records, err);
    load_records_free(&records);
    load_plan_free(&plan);
    return st;
}

/* Two servers take turns: the first begins in even rounds, the second in odd ones. */
static status run_rounds(contest *c, error *err) {
    for (uint64_t round = 0; round < c->o->rounds; round++) {
        for (size_t k = 0; k < c->out->n; k++) {
            TRY(run_round(c, round % 2 ? c->out->n - 1 - k : k, round, err));
        }
    }
    for (size_t k = 0; k < c->out->n; k++) {
        load_score *s = &c->out->scores[k];
        TRY(load_figures_make(&s->figures, &s->records, c->o->has_slo ? &c->o->slo : NULL, err));
    }
    return CHURON_OK;
}

static status run_stalls(contest *c, error *err) {
    for (uint64_t round = 0; round < c->o->rounds; round++) {
        for (size_t k = 0; k < c->out->n; k++) {
            load_score *s = &c->out->scores[round % 2 ? c->out->n - 1 - k : k];
            snprintf(c->label, sizeof c->label, "%.50s", s->target.base);
            progress_update(c->p, "stall", (double)round, (double)c->o->rounds, c->label);
            TRY(load_stall_run(&s->stalls[s->n_stalls], c->s, &s->target, c->o->prompt_tokens.hi, round,
                               err));
            s->n_stalls++;
        }
    }
    return CHURON_OK;
}

static status knee_step(contest *c, load_score *score, double rate, error *err) {
    const load_request_options *o = c->o;
    const uint64_t round = score->knee.n;
    load_plan plan;
    load_records records = {0};
    load_figures f;
    bool gave_up = false;
    /* As many requests as fill the time at this rate: a burst that is over before a queue can grow proves
     * nothing. */
    const double fill = ceil(rate * o->duration);
    const size_t most = o->trace ? c->plan.n : LOAD_REQUESTS_MAX;
    const size_t n = fill < KNEE_REQUESTS_MIN ? KNEE_REQUESTS_MIN : fill > (double)most ? most : (size_t)fill;
    TRY(make_plan(c, n, rate, round, &plan, err));
    snprintf(c->label, sizeof c->label, "%.50s at %.3g requests/s", score->target.base, rate);
    const load_run_options run = {.plan = &plan,
                                  .shared_prefix = (uint32_t)o->shared_prefix,
                                  .round = round,
                                  .give_up = &o->slo,
                                  .give_up_share = 1 - LOAD_KNEE_SHARE,
                                  .progress = {show_progress, c}};
    status st = load_run(&records, c->s, &score->target, &run, &gave_up, err);
    if (st == CHURON_OK) st = load_figures_make(&f, &records, &o->slo, err);
    if (st == CHURON_OK && f.completed == 0 && f.failed > 0) {
        st = error_set(err, CHURON_IO, "%.200s: expected answers at %.3g requests/s, got none: %.*s",
                       score->target.base, rate, LOAD_WHY - 1, f.errors[0].example);
    }
    if (st == CHURON_OK) {
        const load_knee_step step = {.rate = rate,
                                     .share = (double)f.good / (double)plan.n,
                                     .ttft_p99 = f.ttft.p99,
                                     .tpot_p99 = f.tpot.p99,
                                     .tokens_per_s = load_figures_tokens_per_s(&f),
                                     .gave_up = gave_up};
        load_knee_take(&score->knee, &step);
        st = load_records_join(&score->records, &records, err);
    }
    load_records_free(&records);
    load_plan_free(&plan);
    return st;
}

/* Each server's search goes on from its own figures; their steps take turns. */
static status run_knees(contest *c, error *err) {
    const double first = c->o->rate > 0 ? c->o->rate : load_plan_rate(&c->plan);
    for (size_t k = 0; k < c->out->n; k++) c->out->scores[k].knee.first = first;
    for (bool any = true; any;) {
        any = false;
        for (size_t k = 0; k < c->out->n; k++) {
            const double rate = load_knee_next(&c->out->scores[k].knee);
            if (rate <= 0) continue;
            any = true;
            TRY(knee_step(c, &c->out->scores[k], rate, err));
        }
    }
    for (size_t k = 0; k < c->out->n; k++) {
        load_score *s = &c->out->scores[k];
        TRY(load_figures_make(&s->figures, &s->records, &c->o->slo, err));
    }
    return CHURON_OK;
}

/* ---- all of it -------------------------------------------------------------------------------------- */

static status read_plan(contest *c, error *err) {
    const load_request_options *o = c->o;
    if (o->mode == LOAD_STALL) return CHURON_OK;
    if (!o->trace) return make_plan(c, o->find_knee ? 1 : (size_t)o->requests, o->rate, 0, &c->plan, err);
    TRY(load_trace_read(&c->plan, o->trace, (size_t)o->requests, err));
    load_plan_scale(&c->plan, o->time_scale, o->length_scale);
    if ((o->find_knee || o->rate > 0) && load_plan_rate(&c->plan) <= 0) {
        return error_set(
            err, CHURON_INVALID,
            "%s: field TIMESTAMP: expected some time between the first request and the last, got none",
            o->trace);
    }
    return CHURON_OK;
}

static status run_all(contest *c, const char *const urls[LOAD_TARGETS], error *err) {
    const load_request_options *o = c->o;
    for (size_t k = 0; k < c->out->n; k++) {
        TRY(load_target_open(&c->out->scores[k].target, c->s, urls[k], o->models[k], o->shared_prefix > 0,
                             err));
        TRY(check_lengths(c, &c->out->scores[k].target, err));
    }
    if (o->mode == LOAD_STALL) return run_stalls(c, err);
    return o->find_knee ? run_knees(c, err) : run_rounds(c, err);
}

static status open_inputs(const load_request_options *o, load_messages *messages, json_doc *body,
                          error *err) {
    if (o->prompts) TRY(load_messages_read(messages, o->prompts, err));
    if (!o->body) return CHURON_OK;
    status st = json_in_parse(body, o->body, strlen(o->body), NULL, err);
    if (st != CHURON_OK) error_prefix(err, "field --body");
    return st;
}

status load_contest_run(load_contest *out, const load_request_options *o, progress *p, error *err) {
    *out = (load_contest){0};
    contest c = {.o = o, .out = out, .p = p};
    const char *urls[LOAD_TARGETS] = {o->urls[0], o->urls[1]};
    load_messages messages = {0};
    json_doc body = {0};
    load_peer *peer = NULL;
    status st;
    json_in_setup();
    TRY_GOTO(open_inputs(o, &messages, &body, err));
    TRY_GOTO(read_plan(&c, err));
    const load_session_options so = {.timeout = o->timeout,
                                     .key = o->key,
                                     .extra = body.root,
                                     .completions = o->completions,
                                     .ignore_eos = !o->keep_eos,
                                     .temperature = o->temperature,
                                     .seed = o->seed,
                                     .prompts = o->prompts ? &messages : NULL};
    TRY_GOTO(load_session_create(&c.s, &so, err));
    if (o->peer) {
        progress_update(p, "load", 0, 0, "the peer starts");
        TRY_GOTO(load_peer_start(&peer, o->peer, PEER_PATIENCE_SECONDS, err));
        urls[1] = load_peer_url(peer);
    }
    out->n = urls[1] ? 2 : 1;
    st = run_all(&c, urls, err);
cleanup:
    load_peer_stop(peer);
    load_session_free(c.s);
    load_plan_free(&c.plan);
    load_messages_free(&messages);
    json_in_free(&body);
    return st;
}
