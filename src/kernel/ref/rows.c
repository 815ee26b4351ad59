/* rows.c: rows that are normalized; see rows_body.h. */
#include "kernel/ref/lanes.h"
#include "kernel/ref/ref.h"

#include "kernel/rows_body.h"

void softmax_ref(const float *x, float *y, size_t n) {
    softmax_row(x, y, n);
}

void layer_norm_ref(const float *x, const float *w, const float *b, size_t n, float eps, float *y) {
    layer_norm_row(x, w, b, n, eps, y);
}
