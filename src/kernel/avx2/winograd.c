/* winograd.c: the transforms of F(4x4, 3x3), local response normalization; see winograd_body.h and
 * lrn_body.h. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/lanes.h"

#include "kernel/lrn_body.h"
#include "kernel/winograd_body.h"

void winograd_input_avx2(const float *x, size_t x_row, float *v, size_t v_point) {
    wino_input(x, x_row, v, v_point);
}

void winograd_output_avx2(const float *m, size_t m_point, const float *bias, const float *add, size_t add_row,
                          float low, float high, float *y, size_t y_row) {
    wino_output(m, m_point, bias, add, add_row, low, high, y, y_row);
}

void lrn_pixel_avx2(const float *x, size_t block, size_t blocks, size_t size, float alpha, float bias,
                    float *squares, float *y) {
    lrn_body(x, block, blocks, size, alpha, bias, squares, y);
}
