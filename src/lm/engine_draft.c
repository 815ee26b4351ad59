/* engine_draft.c: guesses of the next tokens, checked in the same pass that computes the last one.
 *
 * A sequence that decodes gets rows for guessed tokens behind its last one, where its own text or a draft
 * model has a guess and the rows promise to pay. The pass gives every position the logits that it would have
 * had alone, and the sampler depends on nothing but those and what came before: so position after position is
 * sampled as always, up to the first token that differs from its guess. Answers are those without guesses.
 * Only steps in which everybody decodes have guesses: chunks of prompts fill their steps anyway. */
#include "base/clock.h"
#include "lm/engine_part.h"

enum { TRUSTED_MATCH = 4 }; /* tokens: a match as long goes before a draft model */
#define GUESS_SECONDS 0.2   /* of a pass of the draft model beside a step, before it is known */
#define GUESS_NEW     0.25  /* weight of a new measurement */

bool engine_speculates(const engine_job *j) {
    return j->o.beam.width == 0 && !j->e->o.no_speculation && !j->o.no_speculation && j->o.max_tokens > 1 &&
           !j->o.on_logits;
}

status engine_draft_open(engine_job *j, error *err) {
    engine_seq *s = j->seq;
    if (!s->lookup) TRY(ngram_create(&s->lookup, j->e->o.context, err));
    if (j->e->guesser) TRY(draft_seq_open(&j->guesser, j->e->guesser, err));
    return CHURON_OK;
}

void engine_draft_release(engine_job *j) {
    if (j->e->guesser) draft_seq_release(j->e->guesser, &j->guesser);
}

/* ---- guesses ---------------------------------------------------------------------------------------- */

/* Tokens that a guess may have: the token sampled behind the last one must still be wanted. */
static size_t room_of(const engine_job *j) {
    const size_t left = j->limit - j->seq->n_tokens, most = j->e->o.draft_tokens;
    return left < 2 ? 0 : left - 1 < most ? left - 1 : most;
}

static double guess_seconds(const engine *e) {
    return e->guess_seconds > 0 ? e->guess_seconds : GUESS_SECONDS * step_cost_of(&e->cost, 1);
}

/* What one job could try: its own text's continuation, written behind its tokens, or the draft model's. */
static void offer(engine *e, engine_job *j) {
    engine_seq *s = j->seq;
    draft_offer *o = &e->offers[e->n_offers];
    const size_t most = room_of(j);
    if (most == 0) return;
    ngram_follow(s->lookup, s->tokens, s->n_tokens);
    *o = (draft_offer){
        .most = ngram_draft(s->lookup, s->tokens, s->n_tokens, most, s->tokens + s->n_tokens, &j->match)};
    if (o->most > 0) o->likelihood = draft_likelihood(&j->control, &e->control, j->match);
    if (e->guesser) {
        const double p = draft_likelihood(&j->control, &e->control, 0);
        if (j->match < TRUSTED_MATCH || o->likelihood < p) {
            *o = (draft_offer){.likelihood = p, .most = most, .seconds = guess_seconds(e)};
            j->match = 0;
        }
    }
    if (o->most > 0) e->offered[e->n_offers++] = j;
}

/* The draft model's turn: those that chose it, together. */
static void ask_guesser(engine *e) {
    size_t n = 0, passes = 0;
    for (size_t i = 0; i < e->n_offers; i++) {
        engine_job *j = e->offered[i];
        const size_t want = e->offers[i].length;
        if (j->match > 0 || want == 0) continue;
        e->asks[n++] =
            (draft_ask){.seq = &j->guesser, .tokens = j->seq->tokens, .n = j->seq->n_tokens, .want = want};
        if (want > passes) passes = want;
    }
    if (n == 0) return;
    const double begun = clock_seconds();
    draft_model_run(e->guesser, e->asks, n);
    double seconds = (clock_seconds() - begun) / (double)(passes * n);
    if (seconds > 4 * guess_seconds(e)) seconds = 4 * guess_seconds(e); /* it caught up with a prompt */
    e->guess_seconds = guess_seconds(e) + GUESS_NEW * (seconds - guess_seconds(e));
    for (size_t i = 0, ask = 0; i < e->n_offers; i++) {
        if (e->offered[i]->match == 0 && e->offers[i].length > 0) e->offers[i].length = e->asks[ask++].got;
    }
}

static void choose_lengths(engine *e) {
    size_t room = e->o.step_tokens;
    draft_allot(&e->cost, e->n_spans, room, e->offers, e->n_offers);
    for (size_t i = 0; i < e->n_offers; i++) {
        draft_offer *o = &e->offers[i];
        engine_job *j = e->offered[i];
        if (e->o.draft_always) o->length = o->most < room ? o->most : room;
        if (o->length == 0 && room > 0 && draft_probe(&j->control, j->match)) o->length = 1;
        room = room > o->length ? room - o->length : 0;
    }
}

static bool decodes(const engine_job *j) {
    return j->sched.planned == 1 && j->seq->n_tokens - j->seq->kv.length == 1 && j->tokens > 0;
}

void engine_draft(engine *e) {
    bool all_decode = true;
    e->n_offers = 0;
    for (size_t i = 0; i < e->n_spans; i++) {
        engine_job *j = e->span_job[i];
        j->n_draft = j->n_right = 0;
        j->refuted = false;
        all_decode &= decodes(j);
    }
    if (!all_decode || e->o.no_speculation) return;
    for (size_t i = 0; i < e->n_spans && e->n_offers < DRAFT_OFFERS; i++) {
        if (engine_speculates(e->span_job[i])) offer(e, e->span_job[i]);
    }
    choose_lengths(e);
    if (e->guesser) ask_guesser(e);
    for (size_t i = 0; i < e->n_offers; i++) e->offered[i]->n_draft = e->offers[i].length;
}

void engine_draft_reserve(engine *e) {
    for (size_t i = 0; i < e->n_offers; i++) {
        engine_job *j = e->offered[i];
        kv_seq *kv = &j->seq->kv;
        if (j->n_draft == 0 || kv_seq_reserve(e->kv, kv, kv->length + 1 + j->n_draft)) continue;
        const size_t held = kv->n_pages * KV_PAGE - kv->length - 1;
        j->n_draft = held < j->n_draft ? held : j->n_draft;
    }
}

/* ---- what became of them ---------------------------------------------------------------------------- */

void engine_draft_check(engine_job *j, int32_t id) {
    if (j->n_right == j->n_draft) return;
    if (j->seq->tokens[j->seq->n_tokens] == id) {
        j->n_right++;
    } else {
        j->refuted = true;
    }
}

void engine_draft_done(engine_job *j) {
    engine *e = j->e;
    if (j->n_draft == 0) return;
    /* The last token is computed in the next step, as ever. */
    const size_t computed = j->seq->n_tokens - 1;
    kv_seq_truncate(e->kv, &j->seq->kv, computed);
    if (e->guesser) draft_seq_truncate(e->guesser, &j->guesser, computed);
    /* What follows the end of an answer was not checked. */
    draft_outcome(&j->control, &e->control, j->match, j->refuted ? j->n_draft : j->n_right, j->n_right);
    j->drafted += j->n_draft;
    j->accepted += j->n_right;
    e->drafted += j->n_draft;
    e->accepted += j->n_right;
}
