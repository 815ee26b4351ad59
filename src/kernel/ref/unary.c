/* unary.c: functions of one f32, one at a time; see unary_body.h. */
#include "kernel/ref/lanes.h"
#include "kernel/ref/ref.h"

#include "kernel/unary_body.h"

void unary_ref(kernel_unary f, float p, float q, const float *x, float *y, size_t n) {
    unary_all(f, p, q, x, y, n);
}
