/* vector.h: what steps on numbers share: one number, or many of them, in; the same form out.
 *
 * Numbers are an int (but a uint64), a float, a bool (0 or 1), a list of such, or a tensor of any of them.
 * They are computed with as float64; a 64-bit integer that float64 does not have exactly is refused when it
 * comes. Results are float64, of float32 input float32. Everything
 * that running makes lies in the run's arena. */
#ifndef PIPELINE_STEPS_VECTOR_H
#define PIPELINE_STEPS_VECTOR_H

#include "pipeline/step.h"

typedef struct vector_form {
    int64_t n;    /* elements; -1: known when running */
    elem element; /* of what comes in */
    bool single;  /* one number, no tensor and no list */
} vector_form;

/* False: these are no numbers that are always there. */
bool vector_form_of(const cell_type *t, vector_form *out);
/* keys[key], a FIELD, must be numbers. */
MUST_USE status vector_expect(const step_build *b, size_t key, vector_form *out, error *err);
/* The type of a result: the form of `in` (a list becomes a tensor of rank 1) with elements of another type.
 */
cell_type vector_type(const cell_type *in, elem element);
/* The element of results by the rule above. */
elem vector_result(elem in);
/* keys[key], NUMBERS: one, or as many as the field has. */
MUST_USE status vector_check_count(const step_build *b, size_t key, const vector_form *form, error *err);

/* The numbers of a cell: in *one for a single number, borrowed or in the arena for others. */
MUST_USE status vector_read(const step *s, run *r, const cell *c, double *one, const double **values,
                            size_t *n, error *err);
/* Room for n results, 64-byte aligned. */
MUST_USE status vector_room(const step *s, run *r, size_t n, double **values, error *err);
/* n results as a cell of `type` (of vector_type) in the shape of `like`; `values` are kept where the type is
 * float64. */
MUST_USE status vector_store(const step *s, run *r, const cell *like, const cell_type *type, double *values,
                             size_t n, cell *out, error *err);
/* A new tensor of rank 1 from n results. */
MUST_USE status vector_store_row(const step *s, run *r, elem element, double *values, size_t n, cell *out,
                                 error *err);
/* The error where a step with `wanted` parameters meets n numbers; CHURON_OK if wanted is 1 or n. */
MUST_USE status vector_fits(size_t wanted, size_t n, error *err);

/* Element types by name ("float32"); ELEM_NONE: none of `allowed`. */
elem elem_named(const char *name, elem_set allowed);

#endif
