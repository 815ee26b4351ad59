/* unary.c: loops over one operand. f32 takes the vector kernel where there is one; the others are written so
 * that the compiler vectorizes what it can, and call libm for the rest. */
#include "graph/ops/unary.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

/* ---- f32 and f64 ------------------------------------------------------------------------ */

#define LOOP(name, T, EXPR)                                                                                  \
    static void name(const T *xs, T *ys, size_t n, T a, T b) {                                               \
        (void)a;                                                                                             \
        (void)b;                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                     \
            T x = xs[i];                                                                                     \
            ys[i] = EXPR;                                                                                    \
        }                                                                                                    \
    }

static double sigmoid_value(double x) {
    return 1 / (1 + exp(-x));
}
/* tanh(log(1 + e^x)) = m / (m + 2) with m = e^x (e^x + 2); beyond 40 it is 1. */
static double mish_value(double x) {
    if (x > 40) return x;
    double e = exp(x), m = e * (e + 2);
    return x * m / (m + 2);
}

/* Without a vector kernel for f32. */
#define FUNCTIONS(s, T, F)                                                                                   \
    LOOP(sign_##s, T, x > 0 ? 1 : x < 0 ? -1 : x == x ? 0 : x)                                               \
    LOOP(sin_##s, T, F(sin)(x))                                                                              \
    LOOP(cos_##s, T, F(cos)(x))                                                                              \
    LOOP(tan_##s, T, F(tan)(x))                                                                              \
    LOOP(asin_##s, T, F(asin)(x))                                                                            \
    LOOP(acos_##s, T, F(acos)(x))                                                                            \
    LOOP(atan_##s, T, F(atan)(x))                                                                            \
    LOOP(sinh_##s, T, F(sinh)(x))                                                                            \
    LOOP(cosh_##s, T, F(cosh)(x))                                                                            \
    LOOP(asinh_##s, T, F(asinh)(x))                                                                          \
    LOOP(acosh_##s, T, F(acosh)(x))                                                                          \
    LOOP(atanh_##s, T, F(atanh)(x))                                                                          \
    LOOP(celu_##s, T, x < 0 ? a * F(expm1)(x / a) : x)                                                       \
    LOOP(thresholded_relu_##s, T, x > a ? x : 0)                                                             \
    LOOP(shrink_##s, T, (x < -a ? x + b : x > a ? x - b : 0))
#define SUFFIX_F(name) name##f
#define SUFFIX_D(name) name
FUNCTIONS(f32, float, SUFFIX_F)
FUNCTIONS(f64, double, SUFFIX_D)

LOOP(abs_f64, double, fabs(x))
LOOP(neg_f64, double, -x)
LOOP(ceil_f64, double, ceil(x))
LOOP(floor_f64, double, floor(x))
LOOP(round_f64, double, nearbyint(x))
LOOP(sqrt_f64, double, sqrt(x))
LOOP(reciprocal_f64, double, 1 / x)
LOOP(log_f64, double, log(x))
LOOP(erf_f64, double, erf(x))
LOOP(relu_f64, double, x < 0 ? 0 : x)
LOOP(leaky_relu_f64, double, x < 0 ? a * x : x)
LOOP(elu_f64, double, x < 0 ? a * expm1(x) : x)
LOOP(selu_f64, double, b *(x > 0 ? x : a * expm1(x)))
LOOP(hard_sigmoid_f64, double, (a * x + b < 0 ? 0 : a * x + b > 1 ? 1 : a * x + b))
LOOP(hard_swish_f64, double, x *(x<-3 ? 0 : x> 3 ? 1 : x *(1.0 / 6) + 0.5))
LOOP(mish_f64, double, mish_value(x))
LOOP(gelu_f64, double, 0.5 * x * (1 + erf(x * 0.70710678118654752440)))
LOOP(gelu_tanh_f64, double, 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))))
LOOP(softplus_f64, double, (x > 0 ? x : 0) + log1p(exp(-fabs(x))))
LOOP(softsign_f64, double, x / (1 + fabs(x)))
LOOP(swish_f64, double, x *sigmoid_value(a *x))

typedef void (*loop_f32)(const float *x, float *y, size_t n, float a, float b);
typedef void (*loop_f64)(const double *x, double *y, size_t n, double a, double b);

#define NO_KERNEL(s)                                                                                         \
    [FUNC_SIGN] = sign_##s, [FUNC_SIN] = sin_##s, [FUNC_COS] = cos_##s, [FUNC_TAN] = tan_##s,                \
    [FUNC_ASIN] = asin_##s, [FUNC_ACOS] = acos_##s, [FUNC_ATAN] = atan_##s, [FUNC_SINH] = sinh_##s,          \
    [FUNC_COSH] = cosh_##s, [FUNC_ASINH] = asinh_##s, [FUNC_ACOSH] = acosh_##s, [FUNC_ATANH] = atanh_##s,    \
    [FUNC_CELU] = celu_##s, [FUNC_THRESHOLDED_RELU] = thresholded_relu_##s, [FUNC_SHRINK] = shrink_##s

static const loop_f32 loops_f32[FUNC_COUNT] = {NO_KERNEL(f32)};
static const loop_f64 loops_f64[FUNC_COUNT] = {NO_KERNEL(f64),
                                               [FUNC_ABS] = abs_f64,
                                               [FUNC_NEG] = neg_f64,
                                               [FUNC_CEIL] = ceil_f64,
                                               [FUNC_FLOOR] = floor_f64,
                                               [FUNC_ROUND] = round_f64,
                                               [FUNC_SQRT] = sqrt_f64,
                                               [FUNC_RECIPROCAL] = reciprocal_f64,
                                               [FUNC_LOG] = log_f64,
                                               [FUNC_ERF] = erf_f64,
                                               [FUNC_RELU] = relu_f64,
                                               [FUNC_LEAKY_RELU] = leaky_relu_f64,
                                               [FUNC_ELU] = elu_f64,
                                               [FUNC_SELU] = selu_f64,
                                               [FUNC_HARD_SIGMOID] = hard_sigmoid_f64,
                                               [FUNC_HARD_SWISH] = hard_swish_f64,
                                               [FUNC_MISH] = mish_f64,
                                               [FUNC_GELU] = gelu_f64,
                                               [FUNC_GELU_TANH] = gelu_tanh_f64,
                                               [FUNC_SOFTPLUS] = softplus_f64,
                                               [FUNC_SOFTSIGN] = softsign_f64,
                                               [FUNC_SWISH] = swish_f64};

/* The vector kernel of each function, plus one; 0: none. Its parameters p and q are a and b but for ELU's. */
static const uint8_t kernel_of[FUNC_COUNT] = {
    [FUNC_ABS] = UNARY_F32_ABS + 1,
    [FUNC_NEG] = UNARY_F32_NEG + 1,
    [FUNC_CEIL] = UNARY_F32_CEIL + 1,
    [FUNC_FLOOR] = UNARY_F32_FLOOR + 1,
    [FUNC_ROUND] = UNARY_F32_ROUND + 1,
    [FUNC_SQRT] = UNARY_F32_SQRT + 1,
    [FUNC_RECIPROCAL] = UNARY_F32_RECIPROCAL + 1,
    [FUNC_EXP] = UNARY_F32_EXP + 1,
    [FUNC_LOG] = UNARY_F32_LOG + 1,
    [FUNC_TANH] = UNARY_F32_TANH + 1,
    [FUNC_ERF] = UNARY_F32_ERF + 1,
    [FUNC_RELU] = UNARY_F32_RELU + 1,
    [FUNC_LEAKY_RELU] = UNARY_F32_LEAKY_RELU + 1,
    [FUNC_ELU] = UNARY_F32_ELU + 1,
    [FUNC_SELU] = UNARY_F32_ELU + 1,
    [FUNC_SIGMOID] = UNARY_F32_SIGMOID + 1,
    [FUNC_HARD_SIGMOID] = UNARY_F32_HARD_SIGMOID + 1,
    [FUNC_HARD_SWISH] = UNARY_F32_HARD_SWISH + 1,
    [FUNC_SWISH] = UNARY_F32_SWISH + 1,
    [FUNC_MISH] = UNARY_F32_MISH + 1,
    [FUNC_GELU] = UNARY_F32_GELU + 1,
    [FUNC_GELU_TANH] = UNARY_F32_GELU_TANH + 1,
    [FUNC_SOFTPLUS] = UNARY_F32_SOFTPLUS + 1,
    [FUNC_SOFTSIGN] = UNARY_F32_SOFTSIGN + 1,
};

void unary_f32(const kernels *k, unary_op op, const float *x, float *y, size_t n, float a, float b) {
    unsigned kernel = kernel_of[op];
    if (op == FUNC_CELU && a == 1) kernel = UNARY_F32_ELU + 1;
    if (kernel == 0)
        loops_f32[op](x, y, n, a, b);
    else
        k->unary((kernel_unary)(kernel - 1), a, op == FUNC_ELU || op == FUNC_CELU ? 1.0f : b, x, y, n);
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
        if (type == ELEM_F16)
            k->widen_f16(x + i, f, m);
        else
            elem_to_f32(type, x + i, f, m);
        unary_f32(k, op, f, f, m, a, b);
        if (type == ELEM_F16)
            k->narrow_f16(f, y + i, m);
        else
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
    } else if (type == ELEM_F64 && (op == FUNC_EXP || op == FUNC_TANH || op == FUNC_SIGMOID)) {
        k->unary64((kernel_unary)(kernel_of[op] - 1), x, y, n);
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
