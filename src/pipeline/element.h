/* element.h: one element of a tensor from JSON or from text, as records give them.
 *
 * A number there is decimal: for a float it is rounded to the nearest value once. What would become another
 * number is refused: a fraction for an integer, an integer that a float does not hold exactly, what is out of
 * range. "NaN", "Infinity" and "-Infinity" stand for themselves where the type has them. */
#ifndef PIPELINE_ELEMENT_H
#define PIPELINE_ELEMENT_H

#include "tensor/tensor.h"

#include <jansson.h>

/* For a message: "expected EXPECTED, got GOT". */
typedef struct element_fault {
    char expected[112], got[112];
} element_fault;

/* Writes the element to `to`, or says what is wrong. Every type but strings, which belong to somebody;
 * complex ones are [real, imaginary]. */
bool element_from_json(elem e, const json_t *j, void *to, element_fault *f);
/* The same of a cell of a table, blanks around it left out: bool as true, false, 1 or 0 (first letter or all
 * in capitals as well), NaN and infinities as they are usually written. Not for complex numbers. */
bool element_from_text(elem e, const char *text, void *to, element_fault *f);
/* A number of another type: false if this type would make another one of it than by rounding a fraction. */
bool element_from_double(elem e, double v, void *to);

/* All elements of a tensor (no strings, no complex numbers) as another type, to[count]; `what` names it. */
MUST_USE status element_convert(const tensor *t, elem e, void *to, const char *what, error *err);

/* "an integer", "a list", … */
const char *element_json_kind(const json_t *j);
/* The value itself where it is short: "the string 'x'", "300", "1.5"; else its kind. Into buf. */
void element_json_text(const json_t *j, char *buf, size_t room);

#endif
