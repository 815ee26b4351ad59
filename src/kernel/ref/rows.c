/* rows.c: rows that are normalized, multiplied or converted; see rows_body.h. */
#include "kernel/ref/lanes.h"
#include "kernel/ref/ref.h"

#include "kernel/rows_body.h"
#include "tensor/dtype.h"

void softmax_ref(const float *x, float *y, size_t n) {
    softmax_row(x, y, n);
}

void layer_norm_ref(const float *x, const float *w, const float *b, size_t n, float eps, float *y) {
    layer_norm_row(x, w, b, n, eps, y);
}

void vector_matrix_ref(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y) {
    vector_matrix_row(a, b, ldb, k, n, y);
}

void widen_f16_ref(const uint16_t *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = f16_to_f32(x[i]);
}

void narrow_f16_ref(const float *x, uint16_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = f32_to_f16(x[i]);
}
