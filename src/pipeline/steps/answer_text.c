/* answer_text.c: answers that are parts of a text: span (extractive question answering) and token_classes
 * (names in a text). Offsets are where each token lies in the text: [tokens, 2], start and end. */
#include "base/mem.h"
#include "pipeline/steps/scores.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_KEY                                                                                             \
    {                                                                                                        \
        "unit", KEY_CHOICE, .fallback = "characters", .choices = "characters|bytes",                         \
                            .doc = "What offsets count: characters (Unicode code points) or bytes of UTF-8"  \
    }

/* ---- places in a text ------------------------------------------------------------------------------- */

typedef struct place_in {
    const char *text;
    size_t len;   /* bytes */
    size_t *byte; /* [count + 1] of each character; NULL: offsets are bytes */
    size_t count; /* of characters, or of bytes */
} place_in;

static status read_text(const cell *c, bool characters, arena *a, place_in *out, error *err) {
    *out = (place_in){.text = c->len ? c->bytes : "", .len = c->len, .count = c->len};
    if (!characters) return CHURON_OK;
    size_t n = 0;
    out->byte = arena_array(a, c->len + 1, sizeof *out->byte);
    if (!out->byte) return arena_refused(a, "a text", c->len * sizeof *out->byte, err);
    for (size_t i = 0; i < c->len; i++) {
        if (((unsigned char)c->bytes[i] & 0xC0) != 0x80) out->byte[n++] = i;
    }
    out->byte[n] = c->len;
    out->count = n;
    return CHURON_OK;
}

/* Offsets far outside any text are cut. */
static int64_t offset_of(double v) {
    return v < -1e15 ? (int64_t)-1e15 : v > 1e15 ? (int64_t)1e15 : (int64_t)v;
}

/* The part from start to end; empty where they are no part. */
static cell part(const place_in *p, int64_t start, int64_t end) {
    const int64_t most = (int64_t)p->count;
    const int64_t from = start < 0      ? 0
                         : start > most ? most
                                        : start,
                  to = end < from   ? from
                       : end > most ? most
                                    : end;
    const size_t a = p->byte ? p->byte[from] : (size_t)from, b = p->byte ? p->byte[to] : (size_t)to;
    return cell_of_text(p->text + a, b - a);
}

static status expect_offsets(const step_build *b, size_t key, error *err) {
    const cell_type *t = b->values[key].type;
    char got[120];
    TRY(step_expect(b, key, KIND(CELL_TENSOR), false, err));
    if ((ELEM_BIT(t->element) & ELEMS_INT) && t->has_rank && t->rank == 2 &&
        (t->dims[1] == 2 || t->dims[1] < 0))
        return CHURON_OK;
    return step_fault(b, b->kind->keys[key].name, err,
                      "expected integers [tokens, 2], got '%.60s', which is %s", b->values[key].text,
                      cell_type_text(t, got, sizeof got));
}

static status read_offsets(const cell *c, size_t n, arena *a, const double **out, error *err) {
    size_t count;
    TRY(cell_numbers(out, &count, c, a, "offsets", err));
    if (c->t->dims[1] == 2 && (size_t)c->t->dims[0] == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "offsets: expected [%zu, 2], got [%" PRId64 ", %" PRId64 "]", n,
                     c->t->dims[0], c->t->dims[1]);
}

/* A row for each of n tokens; absent: NULL. */
static status read_tokens(const cell *slots, int32_t slot, size_t n, const char *what, arena *a,
                          const double **out, error *err) {
    size_t count;
    *out = NULL;
    if (slot < 0) return CHURON_OK;
    TRY(cell_numbers(out, &count, &slots[slot], a, what, err));
    if (count == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %zu numbers, one a token, got %zu", what, n, count);
}

static status no_nan(const double *v, size_t n, const char *what, error *err) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i]))
            return error_set(err, CHURON_INVALID, "%s: expected numbers, got NaN at %zu", what, i);
    }
    return CHURON_OK;
}

/* ---- span ------------------------------------------------------------------------------------------- */

enum {
    SPAN_START,
    SPAN_END,
    SPAN_OFFSETS,
    SPAN_TEXT,
    SPAN_MASK,
    SPAN_MAX,
    SPAN_UNIT,
    SPAN_CLS,
    SPAN_EMPTY,
    SPAN_INTO
};

static const key_spec SPAN_KEYS[] = {
    {"start", KEY_FIELD, .required = true, .doc = "Logits of the first token [tokens]"},
    {"end", KEY_FIELD, .required = true, .doc = "Logits of the last token [tokens]"},
    {"offsets", KEY_FIELD, .required = true, .doc = "Where each token lies in the text [tokens, 2]"},
    {"text", KEY_FIELD, .required = true, .doc = "The text that the answer is a part of"},
    {"mask", KEY_FIELD,
     .doc = "Tokens of the text, those that are not 0, in contrast to those of the question and special ones "
            "[tokens]; left out: all"},
    {"max_tokens", KEY_INT, .fallback = "15", .least = 1, .most = 1000000, .doc = "Most tokens of an answer"},
    UNIT_KEY,
    {"cls", KEY_BOOL, .fallback = "true",
     .doc = "The first token is a special one: it counts among the probabilities, but begins and ends no "
            "answer"},
    {"empty", KEY_BOOL, .fallback = "false",
     .doc = "No answer is one too: where that first token is the better start and end"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the record {answer, score, start, end}"},
    {0}};

typedef struct span_state {
    int32_t start, end, offsets, text, mask;
    size_t most;
    bool characters, cls, empty;
} span_state;

static status check_span(step_build *b, error *err) {
    const key_value *v = b->values;
    span_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(expect_numbers(b, SPAN_START, 1, err));
    TRY(expect_numbers(b, SPAN_END, 1, err));
    TRY(expect_offsets(b, SPAN_OFFSETS, err));
    TRY(step_expect(b, SPAN_TEXT, KIND(CELL_TEXT), false, err));
    if (v[SPAN_MASK].given) TRY(expect_numbers(b, SPAN_MASK, 1, err));
    *s = (span_state){.start = v[SPAN_START].slot,
                      .end = v[SPAN_END].slot,
                      .offsets = v[SPAN_OFFSETS].slot,
                      .text = v[SPAN_TEXT].slot,
                      .mask = v[SPAN_MASK].given ? v[SPAN_MASK].slot : -1,
                      .most = (size_t)v[SPAN_MAX].integer,
                      .characters = v[SPAN_UNIT].integer == 0,
                      .cls = v[SPAN_CLS].flag,
                      .empty = v[SPAN_EMPTY].flag};
    if (s->empty && !s->cls) return step_fault(b, "empty", err, "expected cls: true with it");
    const char *const names[] = {"answer", "score", "start", "end"};
    const cell_type types[] = {CELL_TYPE_TEXT, CELL_TYPE_DOUBLE, CELL_TYPE_INT, CELL_TYPE_INT};
    cell_type record;
    int32_t slot;
    TRY(record_type(b, 4, names, types, &record, err));
    return step_output_named(b, v[SPAN_INTO].text, &record, &slot, err);
}

/* Softmax over the tokens of the mask, in a copy; 0 elsewhere. False: there is none. */
static bool token_probabilities(const double *logits, const double *mask, size_t n, bool first_too,
                                double *p) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        const bool in = !mask || mask[i] != 0 || (first_too && i == 0);
        p[i] = in ? logits[i] : -INFINITY;
        if (p[i] > max) max = p[i];
    }
    if (!isfinite(max)) return false;
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
    return true;
}

static status run_span(const step *st, run *r, cell *slots, error *err) {
    const span_state *s = st->state;
    const double *start, *end, *offsets, *mask;
    place_in text;
    size_t n;
    TRY(cell_numbers(&start, &n, &slots[s->start], r->memory, "start", err));
    TRY(read_tokens(slots, s->end, n, "end", r->memory, &end, err));
    TRY(read_tokens(slots, s->mask, n, "mask", r->memory, &mask, err));
    TRY(read_offsets(&slots[s->offsets], n, r->memory, &offsets, err));
    TRY(read_text(&slots[s->text], s->characters, r->memory, &text, err));
    TRY(no_nan(start, n, "start", err));
    TRY(no_nan(end, n, "end", err));
    double *p = arena_array(r->memory, 2 * n + 1, sizeof *p), *q = p + n;
    cell *members = arena_array(r->memory, 4, sizeof *members);
    if (!p || !members) return run_no_memory(r, st, 2 * n * sizeof *p, err);
    if (!token_probabilities(start, mask, n, s->cls, p) || !token_probabilities(end, mask, n, s->cls, q))
        return error_set(err, CHURON_INVALID,
                         "expected at least one token of the text with a finite logit, got none");
    const double none = s->empty ? p[0] * q[0] : -1;
    if (s->cls) p[0] = q[0] = 0;
    double best = -1;
    size_t from = 0, to = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i; k < n && k - i < s->most; k++) {
            if (!(p[i] * q[k] > best)) continue;
            best = p[i] * q[k];
            from = i;
            to = k;
        }
        if ((i & 4095) == 0) TRY(run_may_go_on(r, err));
    }
    const bool nothing = none > best;
    const int64_t a = nothing ? 0 : offset_of(offsets[2 * from]),
                  z = nothing ? 0 : offset_of(offsets[2 * to + 1]);
    members[0] = part(&text, a, z);
    members[1] = cell_of_float(nothing ? none : best);
    members[2] = cell_of_int(a);
    members[3] = cell_of_int(z);
    slots[st->out] = (cell){.kind = CELL_RECORD, .n = 4, .items = members};
    return CHURON_OK;
}

const step_kind step_span = {
    .name = "span",
    .group = "answer",
    .doc = "The part of a text with the greatest product of the probabilities of its first and its last "
           "token; of equals the first. "
           "NaN is refused.",
    .reference = "the question-answering pipeline of transformers",
    .keys = SPAN_KEYS,
    .check = check_span,
    .row = run_span,
};

/* ---- token_classes ---------------------------------------------------------------------------------- */

enum {
    TOK_FIELD,
    TOK_LABELS,
    TOK_OFFSETS,
    TOK_TEXT,
    TOK_INPUT,
    TOK_SKIP,
    TOK_WORDS,
    TOK_AGGREGATION,
    TOK_OUTSIDE,
    TOK_UNIT,
    TOK_INTO
};
enum { AGG_NONE, AGG_SIMPLE, AGG_FIRST, AGG_AVERAGE, AGG_MAX };

static const key_spec TOKEN_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Scores [tokens, classes]"},
    {"labels", KEY_TEXTS, .required = true,
     .doc = "Names of the classes in their order: B-PER, I-PER, O, …: a list, or {file: labels.txt}"},
    {"offsets", KEY_FIELD, .required = true, .doc = "Where each token lies in the text [tokens, 2]"},
    {"text", KEY_FIELD, .required = true, .doc = "The text"},
    {"input", KEY_CHOICE, .fallback = "logits", .choices = "logits|probabilities",
     .doc = "Logits become probabilities by softmax"},
    {"skip", KEY_FIELD,
     .doc = "Tokens that are none of the text, those that are not 0 [tokens]; left out: those whose offsets "
            "are empty"},
    {"words", KEY_FIELD,
     .doc = "Word of each token [tokens], the same number for tokens of one word; left out: a token without "
            "a space before it goes on"},
    {"aggregation", KEY_CHOICE, .fallback = "simple", .choices = "none|simple|first|average|max",
     .doc = "none: every token; simple: tokens of one name behind each other are one; first, average, max: "
            "likewise, but a word has the class of its first token, of the mean of its tokens' "
            "probabilities, or of the token with the greatest"},
    {"outside", KEY_TEXT, .fallback = "O", .doc = "The class that is no name"},
    UNIT_KEY,
    {"into", KEY_INTO, .required = true, .doc = "Name of the list of {label, score, text, start, end}"},
    {0}};

typedef struct label_parts { /* "B-PER" */
    char tag; /* B, I; for the schemes with E, L (ends) and S, U (alone) those; I where there is none */
    const char *name;
} label_parts;

typedef struct tokens_state {
    const char *const *labels;
    label_parts *parts;
    size_t n;
    int32_t offsets, text, skip, words;
    int aggregation;
    bool logits, characters;
    const char *outside;
} tokens_state;

static label_parts split_label(const char *label) {
    if (label[0] && strchr("BIELSU", label[0]) && label[1] == '-') return (label_parts){label[0], label + 2};
    return (label_parts){'I', label};
}

static status check_tokens(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[TOK_FIELD].type;
    tokens_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(expect_numbers(b, TOK_FIELD, 2, err));
    TRY(names_check(b, TOK_LABELS, t->dims[1], err));
    TRY(expect_offsets(b, TOK_OFFSETS, err));
    TRY(step_expect(b, TOK_TEXT, KIND(CELL_TEXT), false, err));
    if (v[TOK_SKIP].given) TRY(expect_numbers(b, TOK_SKIP, 1, err));
    if (v[TOK_WORDS].given) TRY(expect_numbers(b, TOK_WORDS, 1, err));
    *s = (tokens_state){.labels = v[TOK_LABELS].texts,
                        .n = v[TOK_LABELS].n,
                        .offsets = v[TOK_OFFSETS].slot,
                        .text = v[TOK_TEXT].slot,
                        .skip = v[TOK_SKIP].given ? v[TOK_SKIP].slot : -1,
                        .words = v[TOK_WORDS].given ? v[TOK_WORDS].slot : -1,
                        .aggregation = (int)v[TOK_AGGREGATION].integer,
                        .logits = v[TOK_INPUT].integer == 0,
                        .characters = v[TOK_UNIT].integer == 0,
                        .outside = v[TOK_OUTSIDE].text};
    if (s->n == 0) return step_fault(b, "labels", err, "expected at least one name, got none");
    s->parts = arena_array(b->memory, s->n, sizeof *s->parts);
    if (!s->parts) return arena_refused(b->memory, "labels", s->n * sizeof *s->parts, err);
    for (size_t i = 0; i < s->n; i++) s->parts[i] = split_label(s->labels[i]);
    b->s->in = v[TOK_FIELD].slot;
    const char *const names[] = {"label", "score", "text", "start", "end"};
    const cell_type types[] = {CELL_TYPE_TEXT, CELL_TYPE_DOUBLE, CELL_TYPE_TEXT, CELL_TYPE_INT,
                               CELL_TYPE_INT};
    cell_type record, list;
    int32_t slot;
    TRY(record_type(b, 5, names, types, &record, err));
    TRY(list_type(b, &record, &list, err));
    return step_output_named(b, v[TOK_INTO].text, &list, &slot, err);
}

/* A token, then a word, then a name. */
typedef struct piece {
    size_t label, row; /* row: of its scores */
    double score, sum;
    size_t count; /* pieces that it was put together from, for the mean */
    int64_t start, end;
    bool goes_on; /* a token of the same word as the one before */
} piece;

/* False: there is no softmax of them. */
static bool to_probabilities(double *p, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = p[i] > max ? p[i] : max;
    if (!isfinite(max)) return false;
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
    return true;
}

static bool space_near(const place_in *t, int64_t at) {
    for (int64_t k = at - 1; k <= at; k++) {
        const cell c = part(t, k, k + 1);
        if (c.len == 1 && c.bytes[0] == ' ') return true;
    }
    return false;
}

/* The tokens of the text. */
static size_t list_tokens(const tokens_state *s, const place_in *text, const double *p, size_t n,
                          const double *offsets, const double *skip, const double *words, piece *out) {
    size_t have = 0;
    double before = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t start = offset_of(offsets[2 * i]), end = offset_of(offsets[2 * i + 1]);
        if (skip ? skip[i] != 0 : start >= end) continue;
        const size_t best = scores_best(p + i * s->n, s->n);
        const bool same_word = words ? have > 0 && words[i] == before : start > 0 && !space_near(text, start);
        out[have++] = (piece){.label = best,
                              .row = i,
                              .score = p[i * s->n + best],
                              .start = start,
                              .end = end,
                              .goes_on = same_word};
        before = words ? words[i] : 0;
    }
    return have;
}

/* Tokens [from, to) of one word. */
static piece word_of(const tokens_state *s, const double *p, const piece *t, size_t from, size_t to,
                     double *mean) {
    piece w = t[from];
    w.end = t[to - 1].end;
    if (s->aggregation == AGG_MAX) {
        for (size_t i = from + 1; i < to; i++) {
            if (!(t[i].score > w.score)) continue;
            w.score = t[i].score;
            w.label = t[i].label;
        }
    } else if (s->aggregation == AGG_AVERAGE) {
        memset(mean, 0, s->n * sizeof *mean);
        for (size_t i = from; i < to; i++) {
            for (size_t k = 0; k < s->n; k++) mean[k] += p[t[i].row * s->n + k];
        }
        for (size_t k = 0; k < s->n; k++) mean[k] /= (double)(to - from);
        w.label = scores_best(mean, s->n);
        w.score = mean[w.label];
    }
    return w;
}

static size_t join_words(const tokens_state *s, const double *p, piece *t, size_t n, double *mean) {
    size_t have = 0;
    for (size_t i = 0; i < n;) {
        size_t to = i + 1;
        while (to < n && t[to].goes_on) to++;
        const piece word = word_of(s, p, t, i, to, mean);
        t[have++] = word;
        i = to;
    }
    return have;
}

/* Pieces of one name behind each other. A B (and what is alone) begins anew; what ends a name, ends it. */
static size_t join_names(const tokens_state *s, piece *t, size_t n) {
    size_t have = 0;
    bool ended = false;
    for (size_t i = 0; i < n; i++) {
        const label_parts *now = &s->parts[t[i].label];
        const bool begins = strchr("BSU", now->tag) != NULL;
        const bool same =
            have && !ended && !begins && strcmp(s->parts[t[have - 1].label].name, now->name) == 0;
        if (same) {
            piece *to = &t[have - 1];
            to->sum += t[i].score;
            to->count++;
            to->end = t[i].end;
        } else {
            piece one = t[i];
            one.sum = one.score;
            one.count = 1;
            t[have++] = one;
        }
        ended = strchr("ELSU", now->tag) != NULL;
    }
    for (size_t i = 0; i < have; i++) t[i].score = t[i].sum / (double)t[i].count;
    return have;
}

static status give_names(const step *st, run *r, const place_in *text, const piece *t, size_t n, cell *out,
                         error *err) {
    const tokens_state *s = st->state;
    const bool whole = s->aggregation != AGG_NONE;
    cell *items, *members = arena_array(r->memory, n + 1, 5 * sizeof *members);
    size_t have = 0;
    if (!members) return run_no_memory(r, st, n * 5 * sizeof *members, err);
    for (size_t i = 0; i < n; i++) {
        const char *label = whole ? s->parts[t[i].label].name : s->labels[t[i].label];
        if (strcmp(label, s->outside) == 0) continue;
        cell *m = members + 5 * have++;
        m[0] = cell_of_text(label, strlen(label));
        m[1] = cell_of_float(t[i].score);
        m[2] = part(text, t[i].start, t[i].end);
        m[3] = cell_of_int(t[i].start);
        m[4] = cell_of_int(t[i].end);
    }
    TRY(cell_new_list(out, r->memory, have, &items, err));
    for (size_t i = 0; i < have; i++)
        items[i] = (cell){.kind = CELL_RECORD, .n = 5, .items = members + 5 * i};
    return CHURON_OK;
}

static status run_tokens(const step *st, run *r, cell *slots, error *err) {
    const tokens_state *s = st->state;
    const cell from = slots[st->in];
    const double *scores, *offsets, *skip, *words;
    place_in text;
    size_t count;
    const size_t n = (size_t)from.t->dims[0];
    TRY(names_fit(s->n, (size_t)from.t->dims[1], err));
    TRY(cell_numbers(&scores, &count, &from, r->memory, "scores", err));
    TRY(no_nan(scores, count, "scores", err));
    TRY(read_offsets(&slots[s->offsets], n, r->memory, &offsets, err));
    TRY(read_tokens(slots, s->skip, n, "skip", r->memory, &skip, err));
    TRY(read_tokens(slots, s->words, n, "words", r->memory, &words, err));
    TRY(read_text(&slots[s->text], s->characters, r->memory, &text, err));
    double *p = arena_array(r->memory, count + s->n + 1, sizeof *p), *mean = p + count;
    piece *t = arena_array(r->memory, n + 1, sizeof *t);
    if (!p || !t) return run_no_memory(r, st, n * sizeof *t + count * sizeof *p, err);
    if (count) memcpy(p, scores, count * sizeof *p);
    for (size_t i = 0; i < n && s->logits; i++) {
        if (!to_probabilities(p + i * s->n, s->n))
            return error_set(err, CHURON_INVALID, "scores: expected a finite greatest logit for token %zu",
                             i);
    }
    size_t have = list_tokens(s, &text, p, n, offsets, skip, words, t);
    if (s->aggregation > AGG_SIMPLE) have = join_words(s, p, t, have, mean);
    if (s->aggregation != AGG_NONE) have = join_names(s, t, have);
    return give_names(st, r, &text, t, have, &slots[st->out], err);
}

const step_kind step_token_classes = {
    .name = "token_classes",
    .group = "answer",
    .doc = "Names in a text out of the class of every token (BIO; E, L, S and U are understood too): their "
           "label, the mean "
           "probability, the part of the text, and where it lies. NaN is refused.",
    .reference = "the token-classification pipeline of transformers",
    .keys = TOKEN_KEYS,
    .check = check_tokens,
    .row = run_tokens,
};
