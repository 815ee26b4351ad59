/* unary.h: functions of one element, and the one place where the loops for f32 are chosen.
 *
 * Parameters a and b are those of the operator (alpha and beta, lambd and bias, …), 0 where it has none. f16
 * and bf16 are computed in f32 and rounded once. y may be x. */
#ifndef GRAPH_OPS_UNARY_H
#define GRAPH_OPS_UNARY_H

#include "graph/op.h"

typedef enum unary_op {
    FUNC_ABS,
    FUNC_NEG,
    FUNC_SIGN,
    FUNC_CEIL,
    FUNC_FLOOR,
    FUNC_ROUND, /* halves to even */
    FUNC_SQRT,
    FUNC_RECIPROCAL,
    FUNC_EXP,
    FUNC_LOG,
    FUNC_SIN,
    FUNC_COS,
    FUNC_TAN,
    FUNC_ASIN,
    FUNC_ACOS,
    FUNC_ATAN,
    FUNC_SINH,
    FUNC_COSH,
    FUNC_TANH,
    FUNC_ASINH,
    FUNC_ACOSH,
    FUNC_ATANH,
    FUNC_ERF,
    FUNC_RELU,
    FUNC_LEAKY_RELU, /* a: slope below 0 */
    FUNC_ELU,        /* a: alpha */
    FUNC_SELU,       /* a: alpha, b: gamma */
    FUNC_CELU,       /* a: alpha */
    FUNC_THRESHOLDED_RELU,
    FUNC_SIGMOID,
    FUNC_HARD_SIGMOID, /* max(0, min(1, a*x + b)) */
    FUNC_HARD_SWISH,
    FUNC_SWISH, /* x * sigmoid(a*x) */
    FUNC_MISH,
    FUNC_GELU,
    FUNC_GELU_TANH,
    FUNC_SOFTPLUS,
    FUNC_SOFTSIGN,
    FUNC_SHRINK, /* a: lambd, b: bias */
    FUNC_COUNT
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
