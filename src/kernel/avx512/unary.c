/* unary.c: functions of one f32, 16 at a time; see unary_body.h. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/lanes.h"

#include "kernel/unary_body.h"

void unary_avx512(kernel_unary f, float p, float q, const float *x, float *y, size_t n) {
    unary_all(f, p, q, x, y, n);
}
