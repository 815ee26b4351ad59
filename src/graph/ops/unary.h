/* unary.h: functions of one element, and the one place where the loops for f32 are chosen.
 *
 * Parameters a and b are those of the operator (alpha and beta, lambd and bias, …), 0 where it has none. f16
 * and bf16 are computed in f32 and rounded once. y may be x. */
#ifndef GRAPH_OPS_UNARY_H
#define GRAPH_OPS_UNARY_H

#include "graph/op.h"

typedef enum unary_op {
    UNARY_ABS,
    UNARY_NEG,
    UNARY_SIGN,
    UNARY_CEIL,
    UNARY_FLOOR,
    UNARY_ROUND, /* halves to even */
    UNARY_SQRT,
    UNARY_RECIPROCAL,
    UNARY_EXP,
    UNARY_LOG,
    UNARY_SIN,
    UNARY_COS,
    UNARY_TAN,
    UNARY_ASIN,
    UNARY_ACOS,
    UNARY_ATAN,
    UNARY_SINH,
    UNARY_COSH,
    UNARY_TANH,
    UNARY_ASINH,
    UNARY_ACOSH,
    UNARY_ATANH,
    UNARY_ERF,
    UNARY_RELU,
    UNARY_LEAKY_RELU, /* a: slope below 0 */
    UNARY_ELU,        /* a: alpha */
    UNARY_SELU,       /* a: alpha, b: gamma */
    UNARY_CELU,       /* a: alpha */
    UNARY_THRESHOLDED_RELU,
    UNARY_SIGMOID,
    UNARY_HARD_SIGMOID, /* max(0, min(1, a*x + b)) */
    UNARY_HARD_SWISH,
    UNARY_SWISH, /* x * sigmoid(a*x) */
    UNARY_MISH,
    UNARY_GELU,
    UNARY_GELU_TANH,
    UNARY_SOFTPLUS,
    UNARY_SOFTSIGN,
    UNARY_SHRINK, /* a: lambd, b: bias */
    UNARY_COUNT
} unary_op;

/* Loops for f32. Whoever needs a function of many f32 elements takes it from here. */
void unary_f32(const kernels *k, unary_op op, const float *x, float *y, size_t n, float a, float b);
/* Any type that unary_known says yes to. */
void unary_apply(const kernels *k, unary_op op, elem type, const void *x, void *y, size_t n, float a,
                 float b);
bool unary_known(unary_op op, elem type);
/* About nanoseconds an element. */
double unary_cost(unary_op op, elem type);

#endif
