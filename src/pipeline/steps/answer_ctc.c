/* answer_ctc.c: text out of the scores of every time step (connectionist temporal classification). */
#include "base/mem.h"
#include "pipeline/steps/scores.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CTC_FIELD, CTC_LABELS, CTC_BLANK, CTC_SPACE, CTC_INPUT, CTC_METHOD, CTC_WIDTH, CTC_SCORE, CTC_INTO };
enum { IN_PROBABILITIES, IN_LOGITS, IN_LOG };

static const key_spec CTC_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Scores [time, classes], float32"},
    {"labels", KEY_TEXTS, .required = true,
     .doc = "Texts of the classes in their order, without the blank: a list, or {file: labels.txt}"},
    {"blank", KEY_INT, .fallback = "0", .least = -1, .most = 1e7, .doc = "Class of the blank; -1: the last"},
    {"space", KEY_BOOL, .fallback = "false", .doc = "A space is added to the end of the labels"},
    {"input", KEY_CHOICE, .fallback = "probabilities", .choices = "probabilities|logits|log_probabilities",
     .doc = "What the scores are"},
    {"method", KEY_CHOICE, .fallback = "greedy", .choices = "greedy|beam",
     .doc = "greedy: the best class of every step; beam: the best text of the `width` best beginnings, with "
            "the probabilities of all its paths among them added up"},
    {"width", KEY_INT, .fallback = "10", .least = 1, .most = 100, .doc = "beam: beginnings that are kept"},
    {"score", KEY_INTO,
     .doc = "greedy: name for the mean probability of the classes that are read (0 where none is); beam: for "
            "the text's probability"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the text"},
    {0}};

typedef struct ctc_state {
    const char *const *labels;
    size_t *lengths;
    size_t n, classes, width; /* n labels */
    size_t blank;
    int input;
    bool beam;
    int32_t score;
} ctc_state;

static status check_ctc(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[CTC_FIELD].type;
    ctc_state *c;
    int32_t slot;
    TRY(step_state(b, sizeof *c, &c, err));
    TRY(expect_numbers(b, CTC_FIELD, 2, err));
    if (t->element != ELEM_F32)
        return step_fault(b, "field", err, "expected float32, got '%.60s' of %s", v[CTC_FIELD].text,
                          elem_name(t->element));
    c->n = v[CTC_LABELS].n + v[CTC_SPACE].flag;
    c->classes = c->n + 1;
    const char **labels = arena_array(b->memory, c->n + 1, sizeof *labels);
    c->lengths = arena_array(b->memory, c->n + 1, sizeof *c->lengths);
    if (!labels || !c->lengths) return arena_refused(b->memory, "labels", c->n * 16, err);
    for (size_t i = 0; i < c->n; i++) {
        labels[i] = i < v[CTC_LABELS].n ? v[CTC_LABELS].texts[i] : " ";
        c->lengths[i] = strlen(labels[i]);
    }
    c->labels = labels;
    if (t->dims[1] >= 0 && (size_t)t->dims[1] != c->classes)
        return step_fault(b, "labels", err,
                          "expected %" PRId64 " texts, one for each class but the blank, got %zu",
                          t->dims[1] - 1, c->n);
    if (v[CTC_BLANK].integer > (int64_t)c->n)
        return step_fault(b, "blank", err, "expected a class of 0 to %zu, got %" PRId64, c->n,
                          v[CTC_BLANK].integer);
    c->blank = v[CTC_BLANK].integer < 0 ? c->n : (size_t)v[CTC_BLANK].integer;
    c->input = (int)v[CTC_INPUT].integer;
    c->beam = v[CTC_METHOD].integer == 1;
    c->width = (size_t)v[CTC_WIDTH].integer;
    c->score = -1;
    b->s->in = v[CTC_FIELD].slot;
    TRY(step_output_named(b, v[CTC_INTO].text, &CELL_TYPE_TEXT, &slot, err));
    if (!v[CTC_SCORE].given) return CHURON_OK;
    return step_output_named(b, v[CTC_SCORE].text, &CELL_TYPE_DOUBLE, &c->score, err);
}

static size_t label_of(const ctc_state *c, size_t class) {
    return class > c->blank ? class - 1 : class;
}

static status join_labels(const ctc_state *c, const size_t *classes, size_t n, arena *a, cell *out,
                          error *err) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!size_add(bytes, c->lengths[label_of(c, classes[i])], &bytes))
            return error_no_memory(err, "a text", bytes);
    }
    char *text = arena_alloc(a, bytes + 1);
    if (!text) return arena_refused(a, "a text", bytes, err);
    for (size_t i = 0; i < n; i++) {
        const size_t k = label_of(c, classes[i]);
        memcpy(text + at, c->labels[k], c->lengths[k]);
        at += c->lengths[k];
    }
    text[at] = 0;
    *out = cell_of_text(text, at);
    return CHURON_OK;
}

/* log(sum of exp) of a step's scores, for logits; 0 for others. */
static double step_norm(const ctc_state *c, const float *x) {
    double max = -INFINITY, sum = 0;
    if (c->input != IN_LOGITS) return 0;
    for (size_t i = 0; i < c->classes; i++) max = x[i] > max ? x[i] : max;
    if (!isfinite(max)) return max;
    for (size_t i = 0; i < c->classes; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

static double log_probability(const ctc_state *c, double norm, float x) {
    if (c->input == IN_PROBABILITIES) return x > 0 ? log(x) : -INFINITY;
    return x - norm;
}

static status greedy(const ctc_state *c, const float *x, size_t steps, arena *a, cell *text, double *score,
                     error *err) {
    size_t *classes = arena_alloc(a, (steps + 1) * sizeof *classes), n = 0, before = c->blank;
    double sum = 0;
    if (!classes) return arena_refused(a, "ctc", steps * sizeof *classes, err);
    for (size_t t = 0; t < steps; t++, x += c->classes) {
        size_t best = 0;
        for (size_t i = 1; i < c->classes; i++) best = x[i] > x[best] ? i : best;
        if (best != c->blank && (t == 0 || best != before)) {
            sum += c->input == IN_PROBABILITIES ? x[best] : exp(log_probability(c, step_norm(c, x), x[best]));
            classes[n++] = best;
        }
        before = best;
    }
    *score = n ? sum / (double)n : 0;
    return join_labels(c, classes, n, a, text, err);
}

/* ---- beams ------------------------------------------------------------------------------------------ */

/* A beginning of a text: the class that ends it, and what it goes on from. The sums of the probabilities of
 * its paths, as logarithms: those that end in a blank, and those that end in its class. */
typedef struct beginning beginning;
struct beginning {
    const beginning *from; /* NULL: the empty one */
    size_t class, length;
    uint64_t hash;       /* of the text */
    double blank, label; /* up to now */
    double next_blank, next_label;
    beginning *grown; /* a list of those that are alive and go on from this text */
    beginning *sibling;
};

static double add_logs(double x, double y) {
    const double max = x > y ? x : y, min = x > y ? y : x;
    if (max == -INFINITY) return max;
    return max + log1p(exp(min - max));
}

static double whole(const beginning *b) {
    return add_logs(b->blank, b->label);
}

static int by_score(const void *a, const void *b) {
    const beginning *p = *(beginning *const *)a, *q = *(beginning *const *)b;
    const double x = whole(p), y = whole(q);
    if (x != y) return x > y ? -1 : 1;
    if (p->length != q->length) return p->length < q->length ? -1 : 1;
    return (p->class > q->class) - (p->class < q->class);
}

/* The same text: one that was dropped may have been found again beside what went on from it. */
static bool same_text(const beginning *a, const beginning *b) {
    if (a->hash != b->hash || a->length != b->length) return false;
    for (; a != b; a = a->from, b = b->from) {
        if (a->class != b->class) return false;
    }
    return true;
}

typedef struct beams {
    const ctc_state *c;
    arena *memory;
    beginning **alive; /* [n] */
    size_t n, cap;
    size_t *likely; /* [n_likely] classes but the blank with the greatest probability: no other can be new and
                       stay */
    size_t n_likely;
} beams;

static void find_likely(beams *b, const double *log_p) {
    const ctc_state *c = b->c;
    const size_t most = c->width + 1;
    b->n_likely = 0;
    for (size_t k = 0; k < c->classes; k++) {
        if (k == c->blank || log_p[k] == -INFINITY) continue;
        if (b->n_likely == most && !(log_p[k] > log_p[b->likely[most - 1]])) continue;
        size_t at = b->n_likely < most ? b->n_likely++ : most - 1;
        for (; at && log_p[k] > log_p[b->likely[at - 1]]; at--) b->likely[at] = b->likely[at - 1];
        b->likely[at] = k;
    }
}

/* The beginning that goes on from `from` by a class: there already, or new. */
static beginning *grow(beams *b, beginning *from, size_t class) {
    for (beginning *g = from->grown; g; g = g->sibling) {
        if (g->class == class) return g;
    }
    void *alive = b->alive;
    if (b->n == b->cap && !arena_grow(b->memory, &alive, b->n, &b->cap, sizeof *b->alive)) return NULL;
    b->alive = alive;
    beginning *made = arena_alloc(b->memory, sizeof *made);
    if (!made) return NULL;
    *made = (beginning){.from = from,
                        .class = class,
                        .length = from->length + 1,
                        .hash = (from->hash ^ (class + 1)) * UINT64_C(0x9E3779B97F4A7C15),
                        .blank = -INFINITY,
                        .label = -INFINITY,
                        .next_blank = -INFINITY,
                        .next_label = -INFINITY,
                        .sibling = from->grown};
    from->grown = made;
    b->alive[b->n++] = made;
    return made;
}

/* The same class again is another letter only behind a blank. */
static bool go_on(beams *b, beginning *p, size_t class, const double *log_p) {
    const double with = (p->from && class == p->class ? p->blank : whole(p)) + log_p[class];
    if (with == -INFINITY) return true;
    beginning *g = grow(b, p, class);
    if (g) g->next_label = add_logs(g->next_label, with);
    return g != NULL;
}

static bool is_likely(const beams *b, size_t class) {
    for (size_t i = 0; i < b->n_likely; i++) {
        if (b->likely[i] == class) return true;
    }
    return false;
}

static bool step_beams(beams *b, const double *log_p) {
    const ctc_state *c = b->c;
    const size_t n = b->n;
    find_likely(b, log_p);
    for (size_t i = 0; i < n; i++) {
        beginning *p = b->alive[i];
        p->next_blank = add_logs(p->next_blank, whole(p) + log_p[c->blank]);
        if (p->from) p->next_label = add_logs(p->next_label, p->label + log_p[p->class]);
        for (beginning *g = p->grown; g; g = g->sibling) {
            if (!is_likely(b, g->class) && !go_on(b, p, g->class, log_p)) return false;
        }
        for (size_t k = 0; k < b->n_likely; k++) {
            if (!go_on(b, p, b->likely[k], log_p)) return false;
        }
    }
    return true;
}

/* The best go on; those that do not are taken out of their parents' lists. */
static void prune(beams *b) {
    for (size_t i = 0; i < b->n; i++) {
        beginning *p = b->alive[i];
        p->blank = p->next_blank;
        p->label = p->next_label;
        p->next_blank = p->next_label = -INFINITY;
    }
    qsort(b->alive, b->n, sizeof *b->alive, by_score);
    if (b->n > b->c->width) b->n = b->c->width;
    for (size_t i = 0; i < b->n; i++) b->alive[i]->grown = NULL;
    for (size_t i = 0; i < b->n; i++) {
        beginning *p = b->alive[i];
        for (size_t k = 0; k < b->n && p->from; k++) {
            if (!same_text(b->alive[k], p->from)) continue;
            p->sibling = b->alive[k]->grown;
            b->alive[k]->grown = p;
            break;
        }
    }
}

static status beam(const ctc_state *c, run *r, const float *x, size_t steps, arena *a, cell *text,
                   double *score, error *err) {
    beams b = {.c = c, .memory = a};
    double *log_p = arena_alloc(a, c->classes * sizeof *log_p);
    void *alive = NULL;
    beginning *empty = arena_array(a, 1, sizeof *empty);
    b.likely = arena_array(a, c->width + 2, sizeof *b.likely);
    if (!log_p || !empty || !b.likely || !arena_grow(a, &alive, 0, &b.cap, sizeof *b.alive))
        return arena_refused(a, "ctc", c->classes * 8, err);
    b.alive = alive;
    *empty = (beginning){.label = -INFINITY, .next_blank = -INFINITY, .next_label = -INFINITY};
    b.alive[b.n++] = empty;
    for (size_t t = 0; t < steps; t++, x += c->classes) {
        const double norm = step_norm(c, x);
        TRY(run_may_go_on(r, err));
        for (size_t i = 0; i < c->classes; i++) log_p[i] = log_probability(c, norm, x[i]);
        if (!step_beams(&b, log_p)) return arena_refused(a, "ctc", b.n * sizeof *b.alive, err);
        prune(&b);
    }
    const beginning *best = b.alive[0];
    size_t n = best->length, *classes = arena_alloc(a, (n + 1) * sizeof *classes);
    if (!classes) return arena_refused(a, "ctc", n * sizeof *classes, err);
    *score = exp(whole(best));
    for (const beginning *p = best; p->from; p = p->from) classes[--n] = p->class;
    return join_labels(c, classes, best->length, a, text, err);
}

static status run_ctc(const step *s, run *r, cell *slots, error *err) {
    const ctc_state *c = s->state;
    const tensor *t = slots[s->in].t;
    const float *x = t->data;
    const size_t steps = (size_t)t->dims[0];
    cell text;
    double score = 0;
    if ((size_t)t->dims[1] != c->classes)
        return error_set(err, CHURON_INVALID, "expected %zu classes, the labels and a blank, got %" PRId64,
                         c->classes, t->dims[1]);
    for (size_t i = 0; i < t->count; i++) {
        if (isnan(x[i]) || (c->input != IN_PROBABILITIES && x[i] == INFINITY))
            return error_set(err, CHURON_INVALID, "expected scores that are numbers, got %g at step %zu",
                             (double)x[i], i / c->classes);
    }
    if (!c->beam) {
        TRY(greedy(c, x, steps, r->memory, &text, &score, err));
        slots[s->out] = text;
    } else {
        arena scratch = {.limit = r->memory->limit};
        status st = beam(c, r, x, steps, &scratch, &text, &score, err);
        if (st == CHURON_OK) st = cell_copy(&slots[s->out], &text, r->memory, err);
        arena_free(&scratch);
        TRY(st);
    }
    if (c->score >= 0) slots[c->score] = cell_of_float(score);
    return CHURON_OK;
}

const step_kind step_ctc = {
    .name = "ctc",
    .group = "answer",
    .doc = "Text out of the scores of every time step: of equal classes behind each other one is read, "
           "blanks none. NaN "
           "is refused.",
    .reference = "RapidOCR's CTCLabelDecode; prefix beam search in Python",
    .keys = CTC_KEYS,
    .check = check_ctc,
    .row = run_ctc,
};
