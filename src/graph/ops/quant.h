/* quant.h: scales and zero points of the quantized operators. */
#ifndef GRAPH_OPS_QUANT_H
#define GRAPH_OPS_QUANT_H

#include "graph/ops/nn.h"

#include <math.h>

/* round half to even of v, plus zero, saturated to the range of an 8-bit type. NaN gives the zero point. */
static inline int32_t quant_clamp(double v, int32_t zero, elem type) {
    int32_t least = type == ELEM_I8 ? -128 : 0, most = type == ELEM_I8 ? 127 : 255;
    double x = nearbyint(v) + zero;
    if (!(x == x)) return zero;
    return x < least ? least : x > most ? most : (int32_t)x;
}
static inline int32_t byte_of(const tensor *t, size_t i) {
    return t->type == ELEM_I8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
}
static inline void byte_set(tensor *t, size_t i, int32_t v) {
    ((uint8_t *)t->data)[i] = (uint8_t)v;
}
/* n zero points of input i (one for all, or one each; absent or SIZE_MAX: 0) and n scales, in scratch. `what`
 * names them. */
MUST_USE status quant_zeros(op_run *r, size_t i, size_t n, const char *what, int32_t **out, error *err);
MUST_USE status quant_scales(op_run *r, size_t i, size_t n, const char *what, float **out, error *err);
MUST_USE status quant_scalar(op_run *r, size_t scale, size_t zero, const char *what, float *s, int32_t *z,
                             error *err); /* scale SIZE_MAX: not wanted */

/* As DynamicQuantizeLinear defines it: y [x->count] uint8, one scale and zero point for all of the f32 x. */
MUST_USE status quant_dynamic(op_run *r, const tensor *x, uint8_t *y, float *scale, int32_t *zero,
                              error *err);

#endif
