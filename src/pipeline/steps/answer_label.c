/* answer_label.c: from scores to a decision: label, top_k, threshold, calibrate, abstain. Scores are numbers
 * of one dimension, or pairs {label, score}, which label and top_k make and threshold and abstain take. */
#include "pipeline/steps/scores.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static cell name_cell(const char *const *names, size_t i) {
    return cell_of_text(names[i], strlen(names[i]));
}

/* ---- label ------------------------------------------------------------------------------------------ */

enum { LABEL_FROM, LABEL_NAMES, LABEL_INTO, LABEL_SCORES, LABEL_SCORE };

static const key_spec LABEL_KEYS[] = {
    {"from", KEY_FIELD, .required = true,
     .doc = "Scores: numbers of one dimension, a list of {label, score}, or the index of a class"},
    {"names", KEY_TEXTS,
     .doc = "Names of the classes in their order: a list, or {file: labels.txt}; left out: their indices, or "
            "the labels that the scores have"},
    {"into", KEY_INTO, .fallback = "label",
     .doc = "Name of the label with the greatest score; of equals, the first"},
    {"scores", KEY_INTO, .fallback = "scores",
     .doc = "Name of all labels with their scores, in the order of the classes"},
    {"score", KEY_INTO, .doc = "Name for the score of the label"},
    {0}};

typedef struct label_state {
    score_form form;
    bool index; /* `from` is the index of a class */
    const char *const *names;
    size_t n;
    int32_t label, scores, score;
} label_state;

static status check_label(step_build *b, error *err) {
    const key_value *v = b->values;
    label_state *l;
    TRY(step_state(b, sizeof *l, &l, err));
    l->names = v[LABEL_NAMES].texts;
    l->n = v[LABEL_NAMES].n;
    l->scores = l->score = -1;
    b->s->in = v[LABEL_FROM].slot;
    const cell_type *from = v[LABEL_FROM].type;
    cell_type label = CELL_TYPE_INT, pairs;
    if (v[LABEL_NAMES].given) label = text_type(false);
    l->index = from->kind == CELL_INT;
    if (l->index) {
        TRY(step_expect(b, LABEL_FROM, KIND(CELL_INT), false, err));
        if (!l->names)
            return step_fault(b, "from", err, "expected the key 'names' with the index of a class");
        if (v[LABEL_SCORE].given)
            return step_fault(b, "score", err, "expected scores, got the index of a class");
        return step_output_again(b, v[LABEL_INTO].text, &label, &l->label, err);
    }
    TRY(scores_check(b, LABEL_FROM, &l->form, err));
    TRY(names_check(b, LABEL_NAMES, l->form.n, err));
    if (!l->names) label = l->form.label_type;
    TRY(step_output_again(b, v[LABEL_INTO].text, &label, &l->label, err));
    TRY(pairs_type(b, &label, &l->form.score_type, &pairs, err));
    TRY(step_output_again(b, v[LABEL_SCORES].text, &pairs, &l->scores, err));
    step_output_spare(b);
    if (!v[LABEL_SCORE].given) return CHURON_OK;
    return step_output_named(b, v[LABEL_SCORE].text, &l->form.score_type, &l->score, err);
}

static cell label_cell(const score_list *list, const char *const *names, size_t i) {
    if (names) return name_cell(names, i);
    return list->labels ? list->labels[i] : cell_of_int((int64_t)i);
}

static status run_label(const step *s, run *r, cell *slots, error *err) {
    const label_state *l = s->state;
    const cell from = slots[s->in];
    score_list list;
    cell *members;
    if (l->index) {
        if (from.integer < 0 || (uint64_t)from.integer >= l->n)
            return error_set(err, CHURON_INVALID, "expected the index of one of %zu names, got %" PRId64,
                             l->n, from.integer);
        slots[l->label] = name_cell(l->names, (size_t)from.integer);
        return CHURON_OK;
    }
    TRY(scores_read(&l->form, &from, r->memory, &list, err));
    if (list.n == 0) return error_set(err, CHURON_INVALID, "expected at least one score, got none");
    if (l->names) TRY(names_fit(l->n, list.n, err));
    TRY(pairs_new(&slots[l->scores], r->memory, list.n, &members, err));
    for (size_t i = 0; i < list.n; i++) {
        members[2 * i] = label_cell(&list, l->names, i);
        members[2 * i + 1] = cell_of_float(list.scores[i]);
    }
    const size_t best = scores_best(list.scores, list.n);
    slots[l->label] = members[2 * best];
    if (l->score >= 0) slots[l->score] = members[2 * best + 1];
    return CHURON_OK;
}

const step_kind step_label = {
    .name = "label",
    .group = "answer",
    .doc = "The name of the class with the greatest score; of equals, the first. Also all names with their "
           "scores, "
           "as threshold and abstain take them. NaN among the scores is refused.",
    .reference = "numpy.argmax",
    .keys = LABEL_KEYS,
    .check = check_label,
    .row = run_label,
};

/* ---- top_k ------------------------------------------------------------------------------------------ */

enum { TOP_FIELD, TOP_K, TOP_NAMES, TOP_MIN, TOP_INTO };

static const key_spec TOP_K_KEYS[] = {
    {"field", KEY_FIELD, .required = true,
     .doc = "Scores: numbers of one dimension, or a list of {label, score}"},
    {"k", KEY_INT, .required = true, .least = 1, .most = 1e9,
     .doc = "How many; fewer where there are fewer classes"},
    {"labels", KEY_TEXTS,
     .doc = "Names of the classes in their order: a list, or {file: labels.txt}; left out: their indices, or "
            "the labels that the scores have"},
    {"min_score", KEY_NUMBER, .doc = "Least score of those that are named"},
    {"into", KEY_INTO, .doc = "Name of the list of {label, score}; left out: that of the field"},
    {0}};

typedef struct top_state {
    score_form form;
    size_t k, n;
    const char *const *names;
    bool has_min;
    double min;
} top_state;

static status check_top_k(step_build *b, error *err) {
    const key_value *v = b->values;
    top_state *t;
    cell_type out;
    TRY(step_state(b, sizeof *t, &t, err));
    TRY(scores_check(b, TOP_FIELD, &t->form, err));
    TRY(names_check(b, TOP_NAMES, t->form.n, err));
    t->k = (size_t)v[TOP_K].integer;
    t->names = v[TOP_NAMES].texts;
    t->n = v[TOP_NAMES].n;
    t->has_min = v[TOP_MIN].given;
    t->min = v[TOP_MIN].number;
    b->s->in = v[TOP_FIELD].slot;
    const cell_type label = t->names ? text_type(false) : t->form.label_type;
    TRY(pairs_type(b, &label, &t->form.score_type, &out, err));
    return step_output(b, TOP_INTO, TOP_FIELD, &out, err);
}

static status run_top_k(const step *s, run *r, cell *slots, error *err) {
    const top_state *t = s->state;
    score_list list;
    cell *members;
    TRY(scores_read(&t->form, &slots[s->in], r->memory, &list, err));
    if (t->names) TRY(names_fit(t->n, list.n, err));
    size_t *order = arena_array(r->memory, list.n + 1, 2 * sizeof *order);
    if (!order) return run_no_memory(r, s, list.n * 2 * sizeof *order, err);
    scores_sort(list.scores, list.n, order, order + list.n + 1);
    size_t k = t->k < list.n ? t->k : list.n;
    while (t->has_min && k && list.scores[order[k - 1]] < t->min) k--;
    TRY(pairs_new(&slots[s->out], r->memory, k, &members, err));
    for (size_t i = 0; i < k; i++) {
        members[2 * i] = label_cell(&list, t->names, order[i]);
        members[2 * i + 1] = cell_of_float(list.scores[order[i]]);
    }
    return CHURON_OK;
}

const step_kind step_top_k = {
    .name = "top_k",
    .group = "answer",
    .doc =
        "The classes with the greatest scores, greatest first; of equals, the first class is first. NaN is "
        "refused.",
    .reference = "numpy.argsort of the negative, stable",
    .keys = TOP_K_KEYS,
    .check = check_top_k,
    .row = run_top_k,
};

/* ---- threshold -------------------------------------------------------------------------------------- */

enum { CUT_FIELD, CUT_AT, CUT_INCLUSIVE, CUT_LABEL, CUT_ABOVE, CUT_BELOW, CUT_INTO };

static const key_spec THRESHOLD_KEYS[] = {
    {"field", KEY_FIELD, .fallback = "scores", .doc = "Numbers, or the scores that the step label made"},
    {"at", KEY_NUMBER, .required = true, .doc = "The threshold"},
    {"inclusive", KEY_BOOL, .fallback = "true", .doc = "A score that equals the threshold reaches it"},
    {"label", KEY_TEXT,
     .doc = "With scores {label, score}: this label is the answer where its score reaches the threshold; "
            "else the best of the others is"},
    {"above", KEY_TEXT, .doc = "Text where the number reaches the threshold, instead of true"},
    {"below", KEY_TEXT, .doc = "Text where it does not, instead of false"},
    {"into", KEY_INTO,
     .doc = "Name of the result; left out: label where there is a label, else that of the field"},
    {0}};

typedef struct cut_state {
    score_form form;
    double at;
    bool inclusive, by_label;
    const char *label, *above, *below;
} cut_state;

static status check_threshold(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[CUT_FIELD].type;
    cut_state *c;
    int32_t slot;
    TRY(step_state(b, sizeof *c, &c, err));
    *c = (cut_state){.at = v[CUT_AT].number,
                     .inclusive = v[CUT_INCLUSIVE].flag,
                     .by_label = v[CUT_LABEL].given,
                     .label = v[CUT_LABEL].text,
                     .above = v[CUT_ABOVE].text,
                     .below = v[CUT_BELOW].text};
    b->s->in = v[CUT_FIELD].slot;
    if (v[CUT_ABOVE].given != v[CUT_BELOW].given || (c->by_label && c->above))
        return step_fault(b, NULL, err, "expected 'above' and 'below' together, without 'label'");
    if (c->by_label) {
        TRY(scores_check(b, CUT_FIELD, &c->form, err));
        if (!c->form.pairs || c->form.label_type.kind != CELL_TEXT)
            return step_fault(
                b, "label", err,
                "expected scores with names (as the step label makes them), got '%.60s' without",
                v[CUT_FIELD].text);
        return step_output_again(b, v[CUT_INTO].given ? v[CUT_INTO].text : "label", &CELL_TYPE_TEXT, &slot,
                                 err);
    }
    TRY(expect_numbers(b, CUT_FIELD, -1, err));
    cell_type one = c->above ? text_type(false) : CELL_TYPE_BOOL, out = one;
    const int64_t open = -1;
    if (t->kind == CELL_LIST) {
        out = tensor_type(ELEM_BOOL, 1, &open);
    } else if (t->kind == CELL_TENSOR) {
        out = *t;
        out.element = ELEM_BOOL;
    }
    if (c->above && t->kind != CELL_LIST && t->kind != CELL_TENSOR)
        return step_output(b, CUT_INTO, CUT_FIELD, &out, err);
    if (c->above) {
        if (t->kind == CELL_TENSOR && t->rank != 1)
            return step_fault(b, "above", err, "expected numbers of at most one dimension for texts");
        TRY(list_type(b, &one, &out, err));
    }
    return step_output(b, CUT_INTO, CUT_FIELD, &out, err);
}

static bool reaches(const cut_state *c, double v) {
    return c->inclusive ? v >= c->at : v > c->at;
}

static status run_cut_label(const step *s, run *r, cell *slots, error *err) {
    const cut_state *c = s->state;
    score_list list;
    TRY(scores_read(&c->form, &slots[s->in], r->memory, &list, err));
    const size_t len = strlen(c->label);
    size_t own = list.n, best = list.n;
    for (size_t i = 0; i < list.n; i++) {
        if (own == list.n && list.labels[i].len == len && memcmp(list.labels[i].bytes, c->label, len) == 0) {
            own = i;
        } else if (best == list.n || list.scores[i] > list.scores[best]) {
            best = i;
        }
    }
    if (own == list.n)
        return error_set(err, CHURON_INVALID,
                         "label: expected '%.60s' among the names of the scores, got none such", c->label);
    if (best == list.n)
        return error_set(err, CHURON_INVALID, "expected another label beside '%.60s', got none", c->label);
    slots[s->out] = list.labels[reaches(c, list.scores[own]) ? own : best];
    return CHURON_OK;
}

static status run_threshold(const step *s, run *r, cell *slots, error *err) {
    const cut_state *c = s->state;
    const cell from = slots[s->in];
    const double *x;
    size_t n;
    if (c->by_label) return run_cut_label(s, r, slots, err);
    TRY(cell_numbers(&x, &n, &from, r->memory, "threshold", err));
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) return error_set(err, CHURON_INVALID, "expected numbers, got NaN at %zu", i);
    }
    const bool many = from.kind == CELL_LIST || from.kind == CELL_TENSOR;
    if (!many && !c->above) {
        slots[s->out] = cell_of_bool(reaches(c, x[0]));
    } else if (!many) {
        slots[s->out] = name_cell(reaches(c, x[0]) ? &c->above : &c->below, 0);
    } else if (c->above) {
        cell *items;
        TRY(cell_new_list(&slots[s->out], r->memory, n, &items, err));
        for (size_t i = 0; i < n; i++) items[i] = name_cell(reaches(c, x[i]) ? &c->above : &c->below, 0);
    } else {
        const int64_t own[1] = {(int64_t)n};
        void *data;
        const bool tensor_in = from.kind == CELL_TENSOR;
        TRY(cell_new_tensor(&slots[s->out], CELL_TENSOR, r->memory, ELEM_BOOL, tensor_in ? from.t->rank : 1,
                            tensor_in ? from.t->dims : own, &data, "threshold", err));
        for (size_t i = 0; i < n; i++) ((uint8_t *)data)[i] = reaches(c, x[i]);
    }
    return CHURON_OK;
}

const step_kind step_threshold = {
    .name = "threshold",
    .group = "answer",
    .doc = "Whether numbers reach a threshold (true and false, or two texts). With a label: that label if "
           "its score "
           "reaches the threshold, else the best of the others. NaN is refused.",
    .reference = "scikit-learn FixedThresholdClassifier",
    .keys = THRESHOLD_KEYS,
    .check = check_threshold,
    .row = run_threshold,
};

/* ---- calibrate -------------------------------------------------------------------------------------- */

enum { CAL_FIELD, CAL_TEMPERATURE, CAL_INPUT, CAL_A, CAL_B, CAL_X, CAL_Y, CAL_NORMALIZE, CAL_INTO };

static const key_spec CALIBRATE_KEYS[] = {
    {"field", KEY_FIELD, .required = true,
     .doc = "Scores: a number, or numbers whose last dimension are the classes"},
    {"temperature", KEY_NUMBER, .least = 1e-6, .most = 1e6,
     .doc = "softmax(log(p) / temperature); of a single probability: sigmoid(logit(p) / temperature)"},
    {"input", KEY_CHOICE, .fallback = "probabilities", .choices = "probabilities|logits",
     .doc = "With temperature: logits are divided by it, and stay logits"},
    {"a", KEY_NUMBER, .doc = "Platt: 1 / (1 + exp(a * x + b))"},
    {"b", KEY_NUMBER, .doc = "Platt: see a"},
    {"x", KEY_NUMBERS, .doc = "Isotonic: scores, rising"},
    {"y", KEY_NUMBERS, .doc = "Isotonic: what they become; linear between them, constant outside"},
    {"normalize", KEY_BOOL, .fallback = "false",
     .doc = "Results are divided by their sum over the classes (where that is 0, all are equal)"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef enum cal_kind { CAL_KIND_TEMPERATURE, CAL_KIND_PLATT, CAL_KIND_ISOTONIC } cal_kind;

typedef struct cal_state {
    cal_kind kind;
    double temperature, a, b;
    bool logits, normalize, number;
    const double *x, *y;
    size_t n;
    cell_type type;
} cal_state;

static status check_table(const step_build *b, error *err) {
    const key_value *x = &b->values[CAL_X], *y = &b->values[CAL_Y];
    if (x->n != y->n || x->n == 0)
        return step_fault(b, "y", err, "expected as many numbers as in x (at least 1), got %zu and %zu", y->n,
                          x->n);
    for (size_t i = 1; i < x->n; i++) {
        if (!(x->numbers[i] > x->numbers[i - 1]))
            return step_fault(b, "x", err, "expected rising numbers, got %g behind %g", x->numbers[i],
                              x->numbers[i - 1]);
        if (!(y->numbers[i] >= y->numbers[i - 1]))
            return step_fault(b, "y", err, "expected numbers that do not fall, got %g behind %g",
                              y->numbers[i], y->numbers[i - 1]);
    }
    return CHURON_OK;
}

static status check_calibrate(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[CAL_FIELD].type;
    cal_state *c;
    TRY(expect_numbers(b, CAL_FIELD, -1, err));
    TRY(step_state(b, sizeof *c, &c, err));
    const bool platt = v[CAL_A].given && v[CAL_B].given, table = v[CAL_X].given && v[CAL_Y].given;
    if (v[CAL_A].given != v[CAL_B].given || v[CAL_X].given != v[CAL_Y].given ||
        v[CAL_TEMPERATURE].given + platt + table != 1)
        return step_fault(b, NULL, err, "expected one of 'temperature', 'a' and 'b', or 'x' and 'y'");
    if (table) TRY(check_table(b, err));
    *c = (cal_state){.kind = platt   ? CAL_KIND_PLATT
                             : table ? CAL_KIND_ISOTONIC
                                     : CAL_KIND_TEMPERATURE,
                     .temperature = v[CAL_TEMPERATURE].number,
                     .a = v[CAL_A].number,
                     .b = v[CAL_B].number,
                     .logits = v[CAL_INPUT].integer == 1,
                     .normalize = v[CAL_NORMALIZE].flag,
                     .x = v[CAL_X].numbers,
                     .y = v[CAL_Y].numbers,
                     .n = v[CAL_X].n};
    c->number = cell_type_is_number(t);
    b->s->in = v[CAL_FIELD].slot;
    cell_type out = *t;
    const int64_t open = -1;
    const elem e = t->kind == CELL_TENSOR ? t->element : number_element(t->kind == CELL_LIST ? t->of : t);
    const elem result = ELEM_BIT(e) & ELEMS_FLOAT ? e : ELEM_F64;
    if (t->kind == CELL_LIST) out = tensor_type(result, 1, &open);
    if (c->number) out = (cell_type){.kind = CELL_FLOAT};
    out.element = result;
    c->type = out;
    return step_output(b, CAL_INTO, CAL_FIELD, &out, err);
}

static double interpolate(const cal_state *c, double v) {
    if (isnan(v)) return v;
    if (v <= c->x[0]) return c->y[0];
    if (v >= c->x[c->n - 1]) return c->y[c->n - 1];
    size_t lo = 0, hi = c->n - 1;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (c->x[mid] <= v) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return c->y[lo] + (c->y[hi] - c->y[lo]) * ((v - c->x[lo]) / (c->x[hi] - c->x[lo]));
}

/* The classes of one row, in place. */
static void temper(const cal_state *c, double *p, size_t n) {
    double max = -INFINITY, sum = 0;
    if (c->logits) {
        for (size_t i = 0; i < n; i++) p[i] /= c->temperature;
        return;
    }
    if (c->number) {
        const double q = (log(p[0]) - log1p(-p[0])) / c->temperature;
        p[0] = 1 / (1 + exp(-q));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        p[i] = log(p[i]) / c->temperature;
        if (p[i] > max) max = p[i];
    }
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
}

static void calibrate_row(const cal_state *c, double *p, size_t n) {
    double sum = 0;
    if (c->kind == CAL_KIND_TEMPERATURE) temper(c, p, n);
    for (size_t i = 0; i < n && c->kind != CAL_KIND_TEMPERATURE; i++)
        p[i] = c->kind == CAL_KIND_PLATT ? 1 / (1 + exp(c->a * p[i] + c->b)) : interpolate(c, p[i]);
    if (!c->normalize || c->number) return;
    for (size_t i = 0; i < n; i++) sum += p[i];
    for (size_t i = 0; i < n; i++) p[i] = sum == 0 ? 1.0 / (double)n : p[i] / sum;
}

static status run_calibrate(const step *s, run *r, cell *slots, error *err) {
    const cal_state *c = s->state;
    const cell from = slots[s->in];
    number_rows rows;
    TRY(cell_number_rows(&from, &rows, r->memory, "calibrate", err));
    const size_t n = rows.rows * rows.columns;
    double *p = arena_alloc(r->memory, (n + 1) * sizeof *p);
    if (!p) return run_no_memory(r, s, n * sizeof *p, err);
    for (size_t i = 0; i < n; i++) {
        p[i] = rows.data[i];
        const bool fits = c->kind != CAL_KIND_TEMPERATURE || c->logits || (p[i] >= 0 && p[i] <= 1);
        if (isnan(p[i]) || !fits)
            return error_set(err, CHURON_INVALID, "expected %s, got %g at %zu",
                             c->kind == CAL_KIND_TEMPERATURE && !c->logits ? "probabilities of 0 to 1"
                                                                           : "numbers",
                             p[i], i);
    }
    for (size_t i = 0; i < rows.rows; i++) calibrate_row(c, p + i * rows.columns, rows.columns);
    if (c->number) {
        slots[s->out] = number_cell(&c->type, p[0]);
        return CHURON_OK;
    }
    const int64_t own[1] = {(int64_t)n};
    const bool tensor_in = from.kind == CELL_TENSOR;
    return tensor_of_numbers(&slots[s->out], r->memory, c->type.element, tensor_in ? from.t->rank : 1,
                             tensor_in ? from.t->dims : own, p, "calibrate", err);
}

const step_kind step_calibrate = {
    .name = "calibrate",
    .group = "answer",
    .doc = "Makes scores probabilities that hold: by a temperature, by Platt's sigmoid, or by an isotonic "
           "table.",
    .reference = "scikit-learn CalibratedClassifierCV, IsotonicRegression (out_of_bounds=clip)",
    .keys = CALIBRATE_KEYS,
    .check = check_calibrate,
    .row = run_calibrate,
};

/* ---- abstain ---------------------------------------------------------------------------------------- */

enum {
    ABSTAIN_LABEL,
    ABSTAIN_FIELD,
    ABSTAIN_BELOW,
    ABSTAIN_MARGIN,
    ABSTAIN_VALUE,
    ABSTAIN_FLAG,
    ABSTAIN_INTO
};

static const key_spec ABSTAIN_KEYS[] = {
    {"label", KEY_FIELD, .fallback = "label", .doc = "The answer that is given or withheld"},
    {"field", KEY_FIELD, .fallback = "scores",
     .doc = "What it is trusted by: a number, or scores, of which the greatest counts"},
    {"below", KEY_NUMBER, .doc = "The answer is withheld where the score is less than this, or NaN"},
    {"margin", KEY_NUMBER, .least = 0, .most = 1e300,
     .doc = "Likewise where the two greatest scores are closer than this"},
    {"value", KEY_TEXT,
     .doc = "What stands for it then (for answers that are texts); left out: nothing (null)"},
    {"flag", KEY_INTO, .fallback = "abstained", .doc = "Name for whether it was withheld"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the label"},
    {0}};

typedef struct abstain_state {
    score_form form;
    bool number, has_below, has_margin;
    double below, margin;
    const char *value;
    int32_t label, out, flag;
} abstain_state;

static status check_abstain(step_build *b, error *err) {
    const key_value *v = b->values;
    abstain_state *a;
    TRY(step_state(b, sizeof *a, &a, err));
    a->has_below = v[ABSTAIN_BELOW].given;
    a->has_margin = v[ABSTAIN_MARGIN].given;
    a->below = v[ABSTAIN_BELOW].number;
    a->margin = v[ABSTAIN_MARGIN].number;
    a->value = v[ABSTAIN_VALUE].text;
    a->label = v[ABSTAIN_LABEL].slot;
    b->s->in = v[ABSTAIN_FIELD].slot;
    a->number = cell_type_is_number(v[ABSTAIN_FIELD].type) && !v[ABSTAIN_FIELD].type->optional;
    if (!a->has_below && !a->has_margin)
        return step_fault(b, NULL, err, "expected the key 'below' or 'margin', got neither");
    if (a->number && a->has_margin)
        return step_fault(b, "margin", err, "expected scores for a margin, got a number");
    if (!a->number) TRY(scores_check(b, ABSTAIN_FIELD, &a->form, err));
    cell_type out = *v[ABSTAIN_LABEL].type;
    if (a->value && out.kind != CELL_TEXT)
        return step_fault(b, "value", err, "expected an answer that is a text, got '%.60s' of another type",
                          v[ABSTAIN_LABEL].text);
    if (!a->value) out.optional = true;
    if (v[ABSTAIN_INTO].given) {
        TRY(step_output_named(b, v[ABSTAIN_INTO].text, &out, &a->out, err));
    } else {
        TRY(step_output_again(b, v[ABSTAIN_LABEL].text, &out, &a->out, err));
    }
    TRY(step_output_named(b, v[ABSTAIN_FLAG].text, &CELL_TYPE_BOOL, &a->flag, err));
    step_output_spare(b);
    return CHURON_OK;
}

/* NaN is no score to trust. */
static bool withheld(const abstain_state *a, const double *scores, size_t n) {
    double best = -INFINITY, second = -INFINITY;
    if (n == 0) return true;
    for (size_t i = 0; i < n; i++) {
        if (isnan(scores[i])) return true;
        if (scores[i] > best) {
            second = best;
            best = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return (a->has_below && best < a->below) || (a->has_margin && n > 1 && !(best - second >= a->margin));
}

static status run_abstain(const step *s, run *r, cell *slots, error *err) {
    const abstain_state *a = s->state;
    const cell from = slots[s->in];
    const double *scores;
    size_t n;
    bool no;
    if (a->form.pairs) {
        score_list list;
        status st = scores_read(&a->form, &from, r->memory, &list, err);
        if (st != CHURON_OK && st != CHURON_INVALID) return st;
        no = st != CHURON_OK || withheld(a, list.scores, list.n);
    } else {
        TRY(cell_numbers(&scores, &n, &from, r->memory, "abstain", err));
        no = withheld(a, scores, n);
    }
    slots[a->flag] = cell_of_bool(no);
    slots[a->out] = slots[a->label];
    if (no)
        slots[a->out] = a->value ? cell_of_text(a->value, strlen(a->value)) : (cell){.kind = CELL_MISSING};
    return CHURON_OK;
}

const step_kind step_abstain = {
    .name = "abstain",
    .group = "answer",
    .doc = "Withholds an answer whose score is too low, or too close to the second best.",
    .reference = "a comparison in numpy",
    .keys = ABSTAIN_KEYS,
    .check = check_abstain,
    .row = run_abstain,
};
