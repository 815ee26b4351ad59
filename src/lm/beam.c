/* beam.c: see beam.h. */
#include "lm/beam.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef struct offer {
    double sum; /* of log-probabilities, with this token */
    uint32_t beam;
    int32_t token;
} offer;

typedef struct text {
    double score, sum;
    size_t n;
    uint64_t added; /* order of arrival */
    bool stopped;
    int32_t *ids; /* [max_tokens] */
} text;

struct beam_search {
    engine_beam_options o;
    int32_t *stop_ids;
    size_t n_stop_ids, max_tokens, n_vocab, n_looked; /* offers looked at in a step */
    size_t live, length;
    double *sums;         /* [width] */
    int32_t *ids, *spare; /* [width, max_tokens] */
    beam_step *next;      /* [width] */
    offer *offers;        /* [n_looked]: the best so far, in order */
    size_t n_offers;
    uint32_t *index; /* [n_looked] */
    float *value;
    text *texts; /* [width + 1]: the last is for the one to come */
    int32_t *text_ids;
    size_t n_texts;
    uint64_t added;
    bool done, over;
};

/* ---- creation --------------------------------------------------------------------------------------- */

static status check(const engine_beam_options *o, size_t n_looked, size_t n_vocab, error *err) {
    const size_t most = n_vocab < TOP_MAX ? n_vocab : TOP_MAX;
    if (o->width < 2 || n_looked > most) {
        return error_set(err, CHURON_INVALID,
                         "beam_width: expected 2..%zu (with this vocabulary and number of stop ids), got %zu",
                         o->width ? most / (n_looked / o->width) : 0, o->width);
    }
    if (!(fabs(o->length_penalty) <= 100)) {
        return error_set(err, CHURON_INVALID, "length_penalty: expected -100..100, got %g",
                         o->length_penalty);
    }
    if (o->early_stopping > ENGINE_BEAM_NEVER) {
        return error_set(err, CHURON_INVALID, "early_stopping: expected 0..%d, got %d", ENGINE_BEAM_NEVER,
                         (int)o->early_stopping);
    }
    return CHURON_OK;
}

status beam_search_create(beam_search **out, const engine_beam_options *o, const int32_t *stop_ids,
                          size_t n_stop_ids, size_t max_tokens, size_t n_vocab, error *err) {
    *out = NULL;
    const size_t n_looked = (n_stop_ids > 0 ? 1 + n_stop_ids : 2) * o->width;
    TRY(check(o, n_looked, n_vocab, err));
    beam_search *b = mem_calloc(1, sizeof *b);
    if (!b) return error_no_memory(err, "beam search", sizeof *b);
    b->o = *o;
    b->n_stop_ids = n_stop_ids;
    b->max_tokens = max_tokens;
    b->n_vocab = n_vocab;
    b->n_looked = n_looked;
    const size_t w = o->width;
    b->stop_ids = mem_calloc(n_stop_ids + 1, sizeof *b->stop_ids);
    b->sums = mem_calloc(w, sizeof *b->sums);
    b->ids = mem_calloc(w, max_tokens * sizeof *b->ids);
    b->spare = mem_calloc(w, max_tokens * sizeof *b->spare);
    b->next = mem_calloc(w, sizeof *b->next);
    b->offers = mem_calloc(n_looked, sizeof *b->offers);
    b->index = mem_calloc(n_looked, sizeof *b->index);
    b->value = mem_calloc(n_looked, sizeof *b->value);
    b->texts = mem_calloc(w + 1, sizeof *b->texts);
    b->text_ids = mem_calloc(w + 1, max_tokens * sizeof *b->text_ids);
    if (!b->stop_ids || !b->sums || !b->ids || !b->spare || !b->next || !b->offers || !b->index ||
        !b->value || !b->texts || !b->text_ids) {
        beam_search_free(b);
        return error_no_memory(err, "beam search", 3 * w * max_tokens * sizeof *b->ids);
    }
    if (n_stop_ids) memcpy(b->stop_ids, stop_ids, n_stop_ids * sizeof *stop_ids);
    for (size_t i = 0; i <= w; i++) b->texts[i].ids = b->text_ids + i * max_tokens;
    beam_search_restart(b);
    *out = b;
    return CHURON_OK;
}

void beam_search_free(beam_search *b) {
    if (!b) return;
    mem_free(b->stop_ids);
    mem_free(b->sums);
    mem_free(b->ids);
    mem_free(b->spare);
    mem_free(b->next);
    mem_free(b->offers);
    mem_free(b->index);
    mem_free(b->value);
    mem_free(b->texts);
    mem_free(b->text_ids);
    mem_free(b);
}

void beam_search_restart(beam_search *b) {
    b->live = 1;
    b->length = b->n_offers = b->n_texts = 0;
    b->sums[0] = 0;
    b->added = 0;
    b->done = b->over = false;
}

size_t beam_search_width(const beam_search *b) {
    return b->o.width;
}

size_t beam_search_live(const beam_search *b) {
    return b->live;
}

size_t beam_search_length(const beam_search *b) {
    return b->length;
}

bool beam_search_is_done(const beam_search *b) {
    return b->done;
}

/* ---- offers ----------------------------------------------------------------------------------------- */

static void add_offer(beam_search *b, offer o) {
    size_t at = b->n_offers;
    if (at == b->n_looked) {
        if (o.sum <= b->offers[at - 1].sum) return; /* a tie goes to the lower beam, which came before */
        at--;
    } else {
        b->n_offers++;
    }
    for (; at > 0 && b->offers[at - 1].sum < o.sum; at--) b->offers[at] = b->offers[at - 1];
    b->offers[at] = o;
}

bool beam_search_offer(beam_search *b, const kernels *k, size_t beam, const float *logits) {
    float max, lse;
    k->log_sum_exp(logits, b->n_vocab, &max, &lse);
    if (!isfinite(max) || !isfinite(lse)) return false;
    k->top_k(logits, b->n_vocab, b->n_looked, b->index, b->value);
    for (size_t i = 0; i < b->n_looked; i++) {
        const double logprob = ((double)b->value[i] - (double)max) - (double)lse;
        if (!(logprob > -INFINITY)) break;
        add_offer(b, (offer){b->sums[beam] + logprob, (uint32_t)beam, (int32_t)b->index[i]});
    }
    return true;
}

/* ---- finished texts --------------------------------------------------------------------------------- */

static double score_of(const beam_search *b, double sum, size_t length) {
    return sum / pow((double)length, b->o.length_penalty);
}

static size_t worst_text(const beam_search *b) {
    size_t worst = 0;
    for (size_t i = 1; i < b->n_texts; i++) {
        const text *t = &b->texts[i], *w = &b->texts[worst];
        if (t->score < w->score || (t->score == w->score && t->added < w->added)) worst = i;
    }
    return worst;
}

/* The text of a beam, and a stop id behind it if `stop` >= 0. */
static void add_text(beam_search *b, size_t beam, double sum, int32_t stop) {
    const size_t n = b->length + (stop >= 0);
    const double score = score_of(b, sum, n);
    const size_t width = b->o.width;
    if (b->n_texts == width && !(score > b->texts[worst_text(b)].score)) return;
    text *t = &b->texts[b->n_texts++];
    int32_t *ids = t->ids;
    memcpy(ids, b->ids + beam * b->max_tokens, b->length * sizeof *ids);
    if (stop >= 0) ids[b->length] = stop;
    *t = (text){.score = score, .sum = sum, .n = n, .added = b->added++, .stopped = stop >= 0, .ids = ids};
    if (b->n_texts <= width) return;
    const size_t worst = worst_text(b);
    const text last = b->texts[--b->n_texts];
    b->texts[b->n_texts] = b->texts[worst]; /* its memory is the next one's */
    if (worst != b->n_texts) b->texts[worst] = last;
}

/* `best`: the largest sum that was offered, for texts of `length` tokens. */
static bool is_done(const beam_search *b, double best, size_t length) {
    if (b->n_texts < b->o.width) return false;
    if (b->o.early_stopping == ENGINE_BEAM_FIRST) return true;
    const bool never = b->o.early_stopping == ENGINE_BEAM_NEVER && b->o.length_penalty > 0;
    const double attainable = score_of(b, best, never ? b->max_tokens : length);
    return b->texts[worst_text(b)].score >= attainable;
}

/* ---- a step ----------------------------------------------------------------------------------------- */

static bool is_stop(const beam_search *b, int32_t id) {
    for (size_t i = 0; i < b->n_stop_ids; i++) {
        if (b->stop_ids[i] == id) return true;
    }
    return false;
}

static void end(beam_search *b) {
    for (size_t i = 0; i < b->live && !b->done; i++) add_text(b, i, b->sums[i], -1);
    b->over = true;
}

const beam_step *beam_search_next(beam_search *b) {
    const size_t width = b->o.width;
    size_t n = 0;
    double *sums = b->sums;
    for (size_t rank = 0; rank < b->n_offers && n < width; rank++) {
        const offer *o = &b->offers[rank];
        if (is_stop(b, o->token)) {
            if (rank < width) add_text(b, o->beam, o->sum, o->token);
            continue;
        }
        int32_t *ids = b->spare + n * b->max_tokens;
        memcpy(ids, b->ids + o->beam * b->max_tokens, b->length * sizeof *ids);
        ids[b->length] = o->token;
        b->next[n++] = (beam_step){o->beam, o->token};
    }
    /* The sums last: texts were scored with those of the offers. */
    size_t kept = 0;
    for (size_t rank = 0; rank < b->n_offers && kept < n; rank++) {
        if (!is_stop(b, b->offers[rank].token)) sums[kept++] = b->offers[rank].sum;
    }
    const double best = b->n_offers > 0 ? b->offers[0].sum : -INFINITY;
    int32_t *const before = b->ids;
    b->ids = b->spare;
    b->spare = before;
    b->length++;
    b->live = n;
    b->n_offers = 0;
    b->done = is_done(b, best, b->length);
    if (b->done || n < width || b->length >= b->max_tokens) {
        end(b);
        return NULL;
    }
    return b->next;
}

/* Of equal scores the one that came later, as sorted() and pop() give it. */
size_t beam_search_best(beam_search *b, engine_hypothesis *out, size_t capacity) {
    for (size_t i = 1; i < b->n_texts; i++) {
        for (size_t at = i; at > 0; at--) {
            text *t = &b->texts[at], *before = t - 1;
            if (before->score > t->score || (before->score == t->score && before->added > t->added)) break;
            const text swap = *t;
            *t = *before;
            *before = swap;
        }
    }
    for (size_t i = 0; i < b->n_texts && i < capacity; i++) {
        const text *t = &b->texts[i];
        out[i] = (engine_hypothesis){
            .ids = t->ids, .n = t->n, .score = t->score, .logprob = t->sum, .stopped = t->stopped};
    }
    return b->n_texts;
}
