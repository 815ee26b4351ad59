/* unary.c: functions of one f32, 8 at a time; see unary_body.h. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/lanes.h"

#include "kernel/unary_body.h"

void unary_avx2(kernel_unary f, float p, float q, const float *x, float *y, size_t n) {
    unary_all(f, p, q, x, y, n);
}
