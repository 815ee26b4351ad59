/* elements.h: what steps of the groups flow and answer share: lists and first dimensions walked alike,
 * elements as numbers, items put together again. */
#ifndef PIPELINE_STEPS_ELEMENTS_H
#define PIPELINE_STEPS_ELEMENTS_H

#include "pipeline/step.h"

#define KIND(k)      ((uint32_t)1 << (k))
#define KINDS_TENSOR (KIND(CELL_TENSOR) | KIND(CELL_IMAGE) | KIND(CELL_AUDIO))
#define KINDS_NUMBER (KIND(CELL_INT) | KIND(CELL_FLOAT))

static inline bool cell_has_tensor(const cell *c) {
    return (KINDS_TENSOR >> c->kind & 1) != 0;
}

/* ---- types ------------------------------------------------------------------------------------------ */

cell_type tensor_type(elem e, size_t rank, const int64_t *dims);
cell_type text_type(bool optional);
/* The type of one element of a tensor: BOOL, INT, FLOAT (16-bit floats become float32), TEXT. False: none. */
bool element_type(elem e, cell_type *out);
/* The element type of a BOOL, INT or FLOAT as elements of a tensor. */
elem number_element(const cell_type *t);
/* A list type of `of`, which is copied. NULL: no memory. */
const cell_type *type_keep(arena *a, const cell_type *t);
MUST_USE status list_type(step_build *b, const cell_type *of, cell_type *out, error *err);
/* A record of n members; names and types are copied. */
MUST_USE status record_type(step_build *b, size_t n, const char *const *names, const cell_type *types,
                            cell_type *out, error *err);
/* What is both: dims that differ become open. False: they are not of one kind. */
bool type_join(arena *a, const cell_type *x, const cell_type *y, cell_type *out);
/* Does a tensor have the dims that its type promises? */
bool cell_fits(const cell_type *t, const cell *c);

/* A tensor of real numbers (or bool), or a list of numbers, or a number: refused otherwise. rank -1: any. */
MUST_USE status expect_numbers(const step_build *b, size_t key, int rank, error *err);

/* ---- items ------------------------------------------------------------------------------------------ */

/* Lists give their items, tensors their slices along the first dimension (of rank 1: their elements). */
MUST_USE status walk_check(const step_build *b, const char *key, const char *name, const cell_type *type,
                           cell_type *item, error *err);
size_t walk_count(const cell *c);
MUST_USE status walk_item(const cell *c, size_t i, arena *a, cell *out, error *err);
/* Length that is known of a list or first dimension; -1: open. */
int64_t walk_length(const cell_type *t);

/* The items at these places [n], as a list or tensor like `from`. */
MUST_USE status gather_items(const cell *from, const size_t *places, size_t n, const char *name, arena *a,
                             cell *out, error *err);

/* n items as a tensor [n, …]: of numbers or of tensors of one shape. Of no items, the open dimensions are 0.
 */
MUST_USE status stack_type(const step_build *b, const char *name, const cell_type *item, int64_t length,
                           cell_type *out, error *err);
MUST_USE status stack_items(const cell_type *type, const cell *items, size_t n, const char *what, arena *a,
                            cell *out, error *err);

/* Height and width: an image's, or two numbers [height, width]. */
MUST_USE status size_check(const step_build *b, size_t key, error *err);
MUST_USE status size_read(const cell *c, arena *a, size_t *height, size_t *width, error *err);

/* ---- numbers ---------------------------------------------------------------------------------------- */

/* The elements of a cell that expect_numbers let through, as doubles in the arena. */
MUST_USE status cell_numbers(const double **out, size_t *n, const cell *c, arena *a, const char *what,
                             error *err);
/* A new tensor with these values; the caller's numbers are rounded to the element type. */
MUST_USE status tensor_of_numbers(cell *out, arena *a, elem e, size_t rank, const int64_t *dims,
                                  const double *numbers, const char *what, error *err);
/* A number as a cell of the type: rounded to float32 where the type is that. */
cell number_cell(const cell_type *t, double v);
/* Any cell's tensor as [rows, columns] of its last dimension; a list or number: one row. */
typedef struct number_rows {
    const double *data;
    size_t rows, columns;
} number_rows;
MUST_USE status cell_number_rows(const cell *c, number_rows *out, arena *a, const char *what, error *err);

#endif
