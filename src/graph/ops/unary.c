/* unary.c: loops over one operand. The f32 loops that have a vector kernel use it; the others are written so
 * that the compiler vectorizes what it can, and call libm for the rest. */
#include "graph/ops/unary.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

/* ---- f32 and f64 from one text ------------------------------------------------------------------------ */

#define LOOP(name, T, EXPR)                                                                                  \
    static void name(const T *xs, T *ys, size_t n, T a, T b) {                                               \
        (void)a;                                                                                             \
        (void)b;                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                     \
            T x = xs[i];                                                                                     \
            ys[i] = EXPR;                                                                                    \
        }                                                                                                    \
    }

static double sigmoid_value_f64(double x) {
    return 1 / (1 + exp(-x));
}
/* tanh(log(1 + e^x)) = m / (m + 2) with m = e^x (e^x + 2); beyond 20 it is 1. */
static float mish_value_f32(float x) {
    if (x > 20) return x;
    float e = expf(x), m = e * (e + 2);
    return x * m / (m + 2);
}
static double mish_value_f64(double x) {
    if (x > 40) return x;
    double e = exp(x), m = e * (e + 2);
    return x * m / (m + 2);
}

#define FUNCTIONS(s, T, F)                                                                                   \
    LOOP(abs_##s, T, F(fabs)(x))                                                                             \
    LOOP(neg_##s, T, -x)                                                                                     \
    LOOP(sign_##s, T, x > 0 ? 1 : x < 0 ? -1 : x)                                                            \
    LOOP(ceil_##s, T, F(ceil)(x))                                                                            \
    LOOP(floor_##s, T, F(floor)(x))                                                                          \
    LOOP(round_##s, T, F(nearbyint)(x))                                                                      \
    LOOP(sqrt_##s, T, F(sqrt)(x))                                                                            \
    LOOP(reciprocal_##s, T, 1 / x)                                                                           \
    LOOP(log_##s, T, F(log)(x))                                                                              \
    LOOP(sin_##s, T, F(sin)(x))                                                                              \
    LOOP(cos_##s, T, F(cos)(x))                                                                              \
    LOOP(tan_##s, T, F(tan)(x))                                                                              \
    LOOP(asin_##s, T, F(asin)(x))                                                                            \
    LOOP(acos_##s, T, F(acos)(x))                                                                            \
    LOOP(atan_##s, T, F(atan)(x))                                                                            \
    LOOP(sinh_##s, T, F(sinh)(x))                                                                            \
    LOOP(cosh_##s, T, F(cosh)(x))                                                                            \
    LOOP(tanh_##s, T, F(tanh)(x))                                                                            \
    LOOP(asinh_##s, T, F(asinh)(x))                                                                          \
    LOOP(acosh_##s, T, F(acosh)(x))                                                                          \
    LOOP(atanh_##s, T, F(atanh)(x))                                                                          \
    LOOP(erf_##s, T, F(erf)(x))                                                                              \
    LOOP(relu_##s, T, x < 0 ? 0 : x)                                                                         \
    LOOP(leaky_relu_##s, T, x < 0 ? a * x : x)                                                               \
    LOOP(elu_##s, T, x < 0 ? a * F(expm1)(x) : x)                                                            \
    LOOP(selu_##s, T, b *(x > 0 ? x : a * F(expm1)(x)))                                                      \
    LOOP(celu_##s, T, x < 0 ? a * F(expm1)(x / a) : x)                                                       \
    LOOP(thresholded_relu_##s, T, x > a ? x : 0)                                                   \
    LOOP(hard_sigmoid_##s, T, (a * x + b < 0 ? 0 : a * x + b > 1 ? 1 : a * x + b))                           \
    LOOP(hard_swish_##s, T, x *(x < -3 ? 0 : x > 3 ? 1 : x * (T)(1.0 / 6) + (T)0.5))                         \
    LOOP(mish_##s, T, mish_value_##s(x))                                                                     \
    LOOP(gelu_##s, T, (T)0.5 * x * (1 + F(erf)(x * (T)0.70710678118654752440)))                              \
    LOOP(gelu_tanh_##s, T,                                                                                   \
         (T)0.5 * x * (1 + F(tanh)((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x))))              \
    LOOP(softplus_##s, T, (x > 0 ? x : 0) + F(log1p)(F(exp)(-F(fabs)(x))))                                   \
    LOOP(softsign_##s, T, x / (1 + F(fabs)(x)))                                                              \
    LOOP(shrink_##s, T, x<-a ? x + b : x> a ? x - b : 0)

#define SUFFIX_F(name) name##f
#define SUFFIX_D(name) name
FUNCTIONS(f32, float, SUFFIX_F)
FUNCTIONS(f64, double, SUFFIX_D)
LOOP(exp_f64, double, exp(x))
LOOP(sigmoid_f64, double, sigmoid_value_f64(x))
LOOP(swish_f64, double, x *sigmoid_value_f64(a *x))

typedef void (*loop_f32)(const float *x, float *y, size_t n, float a, float b);
typedef void (*loop_f64)(const double *x, double *y, size_t n, double a, double b);

#define EVERY(s)                                                                                             \
    [FUNC_ABS] = abs_##s, [FUNC_NEG] = neg_##s, [FUNC_SIGN] = sign_##s, [FUNC_CEIL] = ceil_##s,              \
    [FUNC_FLOOR] = floor_##s, [FUNC_ROUND] = round_##s, [FUNC_SQRT] = sqrt_##s,                              \
    [FUNC_RECIPROCAL] = reciprocal_##s, [FUNC_LOG] = log_##s, [FUNC_SIN] = sin_##s, [FUNC_COS] = cos_##s,    \
    [FUNC_TAN] = tan_##s, [FUNC_ASIN] = asin_##s, [FUNC_ACOS] = acos_##s, [FUNC_ATAN] = atan_##s,            \
    [FUNC_SINH] = sinh_##s, [FUNC_COSH] = cosh_##s, [FUNC_TANH] = tanh_##s, [FUNC_ASINH] = asinh_##s,        \
    [FUNC_ACOSH] = acosh_##s, [FUNC_ATANH] = atanh_##s, [FUNC_ERF] = erf_##s, [FUNC_RELU] = relu_##s,        \
    [FUNC_LEAKY_RELU] = leaky_relu_##s, [FUNC_ELU] = elu_##s, [FUNC_SELU] = selu_##s,                        \
    [FUNC_CELU] = celu_##s, [FUNC_THRESHOLDED_RELU] = thresholded_relu_##s,                                  \
    [FUNC_HARD_SIGMOID] = hard_sigmoid_##s, [FUNC_HARD_SWISH] = hard_swish_##s, [FUNC_MISH] = mish_##s,      \
    [FUNC_GELU] = gelu_##s, [FUNC_GELU_TANH] = gelu_tanh_##s, [FUNC_SOFTPLUS] = softplus_##s,                \
    [FUNC_SOFTSIGN] = softsign_##s, [FUNC_SHRINK] = shrink_##s

static const loop_f32 loops_f32[FUNC_COUNT] = {EVERY(f32)}; /* EXP, SIGMOID, SWISH: vector kernels */
static const loop_f64 loops_f64[FUNC_COUNT] = {
    EVERY(f64), [FUNC_EXP] = exp_f64, [FUNC_SIGMOID] = sigmoid_f64, [FUNC_SWISH] = swish_f64};

/* y = x^swish / (1 + exp(-a*x)). */
static void sigmoid_blocks(const kernels *k, const float *x, float *y, size_t n, float a, bool swish) {
    float e[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < m; j++) e[j] = -a * x[i + j];
        k->exp(e, e, m);
        if (swish)
            for (size_t j = 0; j < m; j++) y[i + j] = x[i + j] / (1 + e[j]);
        else
            for (size_t j = 0; j < m; j++) y[i + j] = 1 / (1 + e[j]);
    }
}

void unary_f32(const kernels *k, unary_op op, const float *x, float *y, size_t n, float a, float b) {
    switch (op) {
    case FUNC_EXP: k->exp(x, y, n); return;
    case FUNC_SIGMOID: sigmoid_blocks(k, x, y, n, 1, false); return;
    case FUNC_SWISH: sigmoid_blocks(k, x, y, n, a, true); return;
    default: loops_f32[op](x, y, n, a, b);
    }
}

/* ---- integers ----------------------------------------------------------------------------------------- */

#define INT_LOOP(name, T, EXPR)                                                                              \
    static void name(const void *px, void *py, size_t n) {                                                   \
        const T *xs = px;                                                                                    \
        T *ys = py;                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                     \
            T x = xs[i];                                                                                     \
            ys[i] = (T)(EXPR);                                                                               \
        }                                                                                                    \
    }
/* The smallest integer is its own negative. */
#define SIGNED(s, T)                                                                                         \
    INT_LOOP(abs_##s, T, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)                                              \
    INT_LOOP(neg_##s, T, 0 - (uint64_t)x)                                                                    \
    INT_LOOP(sign_##s, T, (x > 0) - (x < 0))                                                                 \
    INT_LOOP(relu_##s, T, x < 0 ? 0 : x)
SIGNED(i8, int8_t)
SIGNED(i16, int16_t)
SIGNED(i32, int32_t)
SIGNED(i64, int64_t)
#define UNSIGNED(s, T) INT_LOOP(sign_##s, T, x != 0)
UNSIGNED(u8, uint8_t)
UNSIGNED(u16, uint16_t)
UNSIGNED(u32, uint32_t)
UNSIGNED(u64, uint64_t)

typedef void (*int_loop)(const void *x, void *y, size_t n);

static int_loop find_int(unary_op op, elem type) {
#define FOUR(name)                                                                                           \
    switch (type) {                                                                                          \
    case ELEM_I8: return name##_i8;                                                                          \
    case ELEM_I16: return name##_i16;                                                                        \
    case ELEM_I32: return name##_i32;                                                                        \
    case ELEM_I64: return name##_i64;                                                                        \
    default: break;                                                                                          \
    }
    if (op == FUNC_ABS) FOUR(abs)
    if (op == FUNC_NEG) FOUR(neg)
    if (op == FUNC_RELU) FOUR(relu)
    if (op != FUNC_SIGN) return NULL;
    FOUR(sign)
    switch (type) {
    case ELEM_U8: return sign_u8;
    case ELEM_U16: return sign_u16;
    case ELEM_U32: return sign_u32;
    case ELEM_U64: return sign_u64;
    default: return NULL;
    }
}

/* ---- any type ----------------------------------------------------------------------------------------- */

bool unary_known(unary_op op, elem type) {
    elem_set set = ELEM_BIT(type);
    return (set & ELEMS_FLOAT) ||
           ((set & ELEMS_INT) &&
            (op == FUNC_ABS || op == FUNC_SIGN || find_int(op, type) || op == FUNC_ERF || op == FUNC_SHRINK));
}

static void apply_half(const kernels *k, unary_op op, elem type, const uint16_t *x, uint16_t *y, size_t n,
                       float a, float b) {
    float f[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? n - i : BLOCK;
        elem_to_f32(type, x + i, f, m);
        unary_f32(k, op, f, f, m, a, b);
        elem_from_f32(type, f, y + i, m, false);
    }
}

/* Integers through double (Erf, Shrink): the result is cut toward zero. */
static void apply_double(unary_op op, elem type, const char *x, char *y, size_t n, float a, float b) {
    double f[BLOCK];
    size_t size = elem_describe(type)->bytes;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? n - i : BLOCK;
        elem_to_f64(type, x + i * size, f, m);
        loops_f64[op](f, f, m, (double)a, (double)b);
        elem_from_f64(type, f, y + i * size, m, false);
    }
}

void unary_apply(const kernels *k, unary_op op, elem type, const void *x, void *y, size_t n, float a,
                 float b) {
    if (type == ELEM_F32) {
        unary_f32(k, op, x, y, n, a, b);
    } else if (type == ELEM_F64) {
        loops_f64[op](x, y, n, (double)a, (double)b);
    } else if (type == ELEM_F16 || type == ELEM_BF16) {
        apply_half(k, op, type, x, y, n, a, b);
    } else {
        int_loop loop = find_int(op, type);
        if (loop)
            loop(x, y, n);
        else if (op == FUNC_ABS) /* unsigned */
            memmove(y, x, n * elem_describe(type)->bytes);
        else
            apply_double(op, type, x, y, n, a, b);
    }
}

double unary_cost(unary_op op, elem type) {
    switch (op) {
    case FUNC_ABS:
    case FUNC_NEG:
    case FUNC_SIGN:
    case FUNC_RELU:
    case FUNC_LEAKY_RELU:
    case FUNC_THRESHOLDED_RELU:
    case FUNC_HARD_SIGMOID:
    case FUNC_HARD_SWISH:
    case FUNC_SHRINK: return type == ELEM_F16 || type == ELEM_BF16 ? 2 : 0.3;
    case FUNC_EXP:
    case FUNC_SIGMOID:
    case FUNC_SWISH:
    case FUNC_SQRT:
    case FUNC_RECIPROCAL:
    case FUNC_SOFTSIGN: return type == ELEM_F32 ? 1 : 4;
    default: return 10;
    }
}
