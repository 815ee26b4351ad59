/* scores.h: scores of classes, in the forms that steps take and give them: numbers, or a list of {label,
 * score}.
 */
#ifndef PIPELINE_STEPS_SCORES_H
#define PIPELINE_STEPS_SCORES_H

#include "pipeline/steps/elements.h"

/* How a field holds scores; static per step. */
typedef struct score_form {
    bool pairs;          /* a list of records with the members label and score */
    size_t label, score; /* their places */
    cell_type label_type, score_type;
    int64_t n; /* classes; -1: open */
} score_form;

/* keys[key] must be numbers of one dimension, or pairs. */
MUST_USE status scores_check(const step_build *b, size_t key, score_form *out, error *err);
/* The scores of a record; NaN is refused. labels [n] where the form has them, else NULL. */
typedef struct score_list {
    size_t n;
    const double *scores;
    const cell *labels;
} score_list;
MUST_USE status scores_read(const score_form *f, const cell *c, arena *a, score_list *out, error *err);

/* The type list of {label, score}. */
MUST_USE status pairs_type(step_build *b, const cell_type *label, const cell_type *score, cell_type *out,
                           error *err);
/* A new list of n pairs of missing values; pair i is (*members)[2 * i] and the one behind it. */
MUST_USE status pairs_new(cell *out, arena *a, size_t n, cell **members, error *err);

/* Is x before y in order of falling score? Of equals, the lower index is first. */
static inline bool score_before(double x, size_t i, double y, size_t k) {
    return x > y || (x == y && i < k);
}
/* Index of the greatest; of equals the lowest. n > 0. */
size_t scores_best(const double *scores, size_t n);
/* Indices [n] in order of falling score. `spare` [n]. */
void scores_sort(const double *scores, size_t n, size_t *order, size_t *spare);
/* Names must be as many as there are scores. */
MUST_USE status names_check(const step_build *b, size_t key, int64_t n, error *err);
MUST_USE status names_fit(size_t names, size_t n, error *err);

#endif
