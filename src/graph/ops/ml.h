/* ml.h: what the operators of ai.onnx.ml share: look-up tables from keys to positions, labels of classes,
 * what is done to scores, inputs as rows.
 *
 * Sums are taken in double and rounded once: scikit-learn, LightGBM and the like compute in double, and the
 * file's weights are rounded already. */
#ifndef GRAPH_OPS_ML_H
#define GRAPH_OPS_ML_H

#include "graph/ops/nn.h"

#define ML_DOMAIN  "ai.onnx.ml"
#define ML_NUMBERS (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_I64) | ELEM_BIT(ELEM_I32))

/* ---- look-up ---------------------------------------------------------------------------------------- */

/* From strings or 64-bit numbers to positions in a list. Immutable once filled; strings are borrowed. */
typedef struct ml_map {
    uint32_t *slots; /* [size] position + 1, 0: free */
    size_t size;     /* a power of two */
    const onnx_bytes *strings;
    uint64_t *numbers;
    size_t n;
} ml_map;

/* Of equal keys the last one counts. */
MUST_USE status ml_map_strings(ml_map *m, const onnx_bytes *keys, size_t n, error *err);
MUST_USE status ml_map_numbers(ml_map *m, const uint64_t *keys, size_t n, error *err);
void ml_map_free(ml_map *m);
/* Position, or SIZE_MAX. */
size_t ml_map_string(const ml_map *m, const char *bytes, size_t n);
size_t ml_map_number(const ml_map *m, uint64_t key);
/* Keys of numbers: equal numbers have equal keys, all NaN are one. */
static inline uint64_t ml_key_int(int64_t v) {
    return (uint64_t)v;
}
uint64_t ml_key_float(double v);
/* Key of element i of a tensor of numbers. */
uint64_t ml_key_of(const tensor *t, size_t i);

/* ---- labels of classes ------------------------------------------------------------------------------ */

typedef struct ml_labels {
    const int64_t *ints;
    const onnx_bytes *strings; /* one of the two, or none: then a class is its number */
    size_t n;
} ml_labels;

MUST_USE status ml_labels_read(op_node *n, const char *ints, const char *strings, ml_labels *out, error *err);
elem ml_labels_type(const ml_labels *l);
/* Writes the label of class `c` as element i; out of the list: its number, or an empty string. */
MUST_USE status ml_label_set(const ml_labels *l, tensor *t, size_t i, size_t c, error *err);

/* ---- scores ----------------------------------------------------------------------------------------- */

typedef enum ml_post { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT } ml_post;

MUST_USE status ml_post_read(op_node *n, ml_post *out, error *err);
void ml_post_apply(ml_post post, double *scores, size_t n);
double ml_logistic(double x);
size_t ml_argmax(const double *v, size_t n); /* the first of equals; NaN is passed over; n > 0 */

/* ---- rows ------------------------------------------------------------------------------------------- */

/* Input 0 as rows: [n, c], or [c], which is one row. False in *known: not known yet. */
MUST_USE status ml_rows(op_shapes *s, bool *known, dim *n, dim *c, error *err);
static inline void ml_rows_of(const tensor *x, size_t *n, size_t *c) {
    *n = x->rank == 2 ? (size_t)x->dims[0] : 1;
    *c = x->rank == 0 ? 1 : (size_t)x->dims[x->rank - 1];
}
/* Output i of shape [rows of input 0, width]; width 0: [rows]. */
MUST_USE status ml_rows_out(op_shapes *s, size_t i, int64_t width, error *err);

#endif
