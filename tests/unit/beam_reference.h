/* beam_reference.h: beam search as the paper of transformers' BeamSearchScorer would be written down: all
 * texts of a step in one list, sorted. For tests. */
#ifndef TESTS_BEAM_REFERENCE_H
#define TESTS_BEAM_REFERENCE_H

#include "lm/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REF_MAX_WIDTH = 8, REF_MAX_TOKENS = 24, REF_MAX_VOCAB = 300 };

typedef struct ref_text {
    int32_t ids[REF_MAX_TOKENS];
    size_t n;
    double sum, score;
    bool stopped;
} ref_text;

typedef struct ref_search {
    engine_beam_options o;
    const int32_t *stops;
    size_t n_stops, max_tokens, n_vocab;
    /* Logits f32 [n_vocab] behind the answer ids [n]. */
    void (*logits)(void *ctx, const int32_t *ids, size_t n, float *out);
    void *ctx;
    ref_text found[REF_MAX_WIDTH + 1];
    size_t n_found;
    bool done;
} ref_search;

typedef struct ref_offer {
    double sum;
    size_t beam;
    int32_t token;
} ref_offer;

static inline int ref_by_sum(const void *a, const void *b) {
    const ref_offer *x = a, *y = b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    if (x->beam != y->beam) return x->beam < y->beam ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static inline bool ref_is_stop(const ref_search *s, int32_t id) {
    for (size_t i = 0; i < s->n_stops; i++) {
        if (s->stops[i] == id) return true;
    }
    return false;
}

static inline double ref_worst(const ref_search *s) {
    double worst = INFINITY;
    for (size_t i = 0; i < s->n_found; i++) worst = fmin(worst, s->found[i].score);
    return worst;
}

static inline void ref_add(ref_search *s, const ref_text *beam, double sum, int32_t stop) {
    ref_text t = *beam;
    if (stop >= 0) t.ids[t.n++] = stop;
    t.stopped = stop >= 0;
    t.sum = sum;
    t.score = sum / pow((double)t.n, s->o.length_penalty);
    if (s->n_found >= s->o.width && t.score <= ref_worst(s)) return;
    s->found[s->n_found++] = t;
    if (s->n_found <= s->o.width) return;
    size_t at = 0;
    while (s->found[at].score != ref_worst(s)) at++;
    memmove(&s->found[at], &s->found[at + 1], (s->n_found - at - 1) * sizeof *s->found);
    s->n_found--;
}

static inline size_t ref_offers(ref_search *s, const ref_text *beams, size_t n_beams, ref_offer *out) {
    static float logits[REF_MAX_VOCAB];
    size_t n = 0;
    for (size_t b = 0; b < n_beams; b++) {
        s->logits(s->ctx, beams[b].ids, beams[b].n, logits);
        double max = -INFINITY, sum = 0;
        for (size_t i = 0; i < s->n_vocab; i++) max = fmax(max, (double)logits[i]);
        for (size_t i = 0; i < s->n_vocab; i++) sum += exp((double)logits[i] - max);
        for (size_t i = 0; i < s->n_vocab; i++) {
            out[n++] = (ref_offer){beams[b].sum + ((double)logits[i] - max - log(sum)), b, (int32_t)i};
        }
    }
    qsort(out, n, sizeof *out, ref_by_sum);
    const size_t looked = (s->n_stops > 0 ? 1 + s->n_stops : 2) * s->o.width;
    return n < looked ? n : looked;
}

static inline bool ref_done(const ref_search *s, double best, size_t length) {
    if (s->n_found < s->o.width) return false;
    if (s->o.early_stopping == ENGINE_BEAM_FIRST) return true;
    if (s->o.early_stopping == ENGINE_BEAM_NEVER && s->o.length_penalty > 0) length = s->max_tokens;
    return ref_worst(s) >= best / pow((double)length, s->o.length_penalty);
}

/* Fills found, best first. */
static inline void ref_run(ref_search *s) {
    static ref_offer offers[REF_MAX_WIDTH * REF_MAX_VOCAB];
    ref_text beams[REF_MAX_WIDTH] = {{.n = 0}}, next[REF_MAX_WIDTH];
    size_t n_beams = 1;
    s->n_found = 0;
    s->done = false;
    for (size_t length = 1; length <= s->max_tokens && !s->done; length++) {
        const size_t n_offers = ref_offers(s, beams, n_beams, offers);
        size_t n = 0;
        for (size_t rank = 0; rank < n_offers && n < s->o.width; rank++) {
            const ref_offer *o = &offers[rank];
            if (ref_is_stop(s, o->token)) {
                if (rank < s->o.width) ref_add(s, &beams[o->beam], o->sum, o->token);
                continue;
            }
            next[n] = beams[o->beam];
            next[n].ids[next[n].n++] = o->token;
            next[n++].sum = o->sum;
        }
        memcpy(beams, next, n * sizeof *next);
        n_beams = n;
        s->done = ref_done(s, offers[0].sum, length);
    }
    for (size_t i = 0; i < n_beams && !s->done; i++) ref_add(s, &beams[i], beams[i].sum, -1);
    for (size_t i = 1; i < s->n_found; i++) {
        for (size_t at = i; at > 0 && s->found[at].score >= s->found[at - 1].score; at--) {
            const ref_text t = s->found[at];
            s->found[at] = s->found[at - 1];
            s->found[at - 1] = t;
        }
    }
}

#endif
