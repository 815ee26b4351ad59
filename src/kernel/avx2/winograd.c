/* winograd.c: the transforms of F(4x4, 3x3); see winograd_body.h. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/lanes.h"
#include "kernel/winograd_body.h"

void winograd_input_avx2(const float *x, size_t x_row, float *v, size_t v_point) {
    wino_input(x, x_row, v, v_point);
}

void winograd_output_avx2(const float *m, size_t m_point, const float *bias, const float *add, size_t add_row,
                          float low, float high, float *y, size_t y_row) {
    wino_output(m, m_point, bias, add, add_row, low, high, y, y_row);
}
