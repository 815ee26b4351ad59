/* binary.c: the loops. Each is written three times by a macro, so that a scalar operand stays in a register
 * and the compiler vectorizes all three. */
#include "graph/ops/binary.h"

#include "graph/ops/broadcast.h"
#include "graph/ops/move.h"

#include <math.h>
#include <string.h>

#define BINARY(name, T, O, EXPR)                                                                             \
    static void name(const void *pa, const void *pb, void *po, size_t n, binary_form form) {                 \
        const T *a = pa, *b = pb;                                                                            \
        O *o = po;                                                                                           \
        if (form == BINARY_BOTH) {                                                                           \
            for (size_t i = 0; i < n; i++) {                                                                 \
                T x = a[i], y = b[i];                                                                        \
                o[i] = (O)(EXPR);                                                                            \
            }                                                                                                \
        } else if (form == BINARY_A_ONE) {                                                                   \
            T x = *a;                                                                                        \
            for (size_t i = 0; i < n; i++) {                                                                 \
                T y = b[i];                                                                                  \
                o[i] = (O)(EXPR);                                                                            \
            }                                                                                                \
        } else {                                                                                             \
            T y = *b;                                                                                        \
            for (size_t i = 0; i < n; i++) {                                                                 \
                T x = a[i];                                                                                  \
                o[i] = (O)(EXPR);                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

/* Sums and products of any integer: as unsigned ones of at least 32 bits, cut to the width. */
#define WRAPPING(suffix, T, W)                                                                               \
    BINARY(add_##suffix, T, T, (W)x + (W)y)                                                                  \
    BINARY(sub_##suffix, T, T, (W)x - (W)y)                                                                  \
    BINARY(mul_##suffix, T, T, (W)x *(W)y)                                                                   \
    BINARY(and_##suffix, T, T, x &y)                                                                         \
    BINARY(or_##suffix, T, T, x | y)                                                                         \
    BINARY(xor_##suffix, T, T, x ^ y)                                                                        \
    BINARY(equal_##suffix, T, uint8_t, x == y)
WRAPPING(8, uint8_t, uint32_t)
WRAPPING(16, uint16_t, uint32_t)
WRAPPING(32, uint32_t, uint32_t)
WRAPPING(64, uint64_t, uint64_t)

#define ORDERED(suffix, T)                                                                                   \
    BINARY(max_##suffix, T, T, x > y ? x : y)                                                                \
    BINARY(min_##suffix, T, T, x < y ? x : y)                                                                \
    BINARY(less_##suffix, T, uint8_t, x < y)                                                                 \
    BINARY(less_equal_##suffix, T, uint8_t, x <= y)

#define UNSIGNED(suffix, T)                                                                                  \
    static T power_##suffix(T x, T y) {                                                                      \
        uint64_t base = x, p = 1;                                                                            \
        for (T e = y; e > 0; e = (T)(e >> 1)) {                                                              \
            if (e & 1) p *= base;                                                                            \
            base *= base;                                                                                    \
        }                                                                                                    \
        return (T)p;                                                                                         \
    }                                                                                                        \
    ORDERED(suffix, T)                                                                                       \
    BINARY(div_##suffix, T, T, x / y)                                                                        \
    BINARY(mod_##suffix, T, T, x % y)                                                                        \
    BINARY(pow_##suffix, T, T, power_##suffix(x, y))                                                         \
    BINARY(left_##suffix, T, T, y < 8 * sizeof(T) ? (uint64_t)x << y : 0)                                    \
    BINARY(right_##suffix, T, T, y < 8 * sizeof(T) ? x >> y : 0)
UNSIGNED(u8, uint8_t)
UNSIGNED(u16, uint16_t)
UNSIGNED(u32, uint32_t)
UNSIGNED(u64, uint64_t)

/* A negative exponent: 1 and -1 have their powers, all else (0 too) gives 0. A shift by a negative count or
 * by the width and more leaves nothing but the sign. */
#define SIGNED(suffix, T, U)                                                                                 \
    static T divide_##suffix(T x, T y) {                                                                     \
        return y == -1 ? (T)(U)(0 - (uint64_t)x) : (T)(x / y);                                               \
    }                                                                                                        \
    static T remainder_##suffix(T x, T y) {                                                                  \
        return y == -1 ? (T)0 : (T)(x % y);                                                                  \
    }                                                                                                        \
    static T modulo_##suffix(T x, T y) {                                                                     \
        T m = remainder_##suffix(x, y);                                                                      \
        return (T)(m != 0 && (m < 0) != (y < 0) ? m + y : m);                                                \
    }                                                                                                        \
    static T power_##suffix(T x, T y) {                                                                      \
        if (y < 0) return (T)(x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0);                                  \
        uint64_t base = (uint64_t)x, p = 1;                                                                  \
        for (U e = (U)y; e > 0; e = (U)(e >> 1)) {                                                           \
            if (e & 1) p *= base;                                                                            \
            base *= base;                                                                                    \
        }                                                                                                    \
        return (T)(U)p;                                                                                      \
    }                                                                                                        \
    ORDERED(suffix, T)                                                                                       \
    BINARY(div_##suffix, T, T, divide_##suffix(x, y))                                                        \
    BINARY(fmod_##suffix, T, T, remainder_##suffix(x, y))                                                    \
    BINARY(mod_##suffix, T, T, modulo_##suffix(x, y))                                                        \
    BINARY(pow_##suffix, T, T, power_##suffix(x, y))                                                         \
    BINARY(prelu_##suffix, T, T, x < 0 ? (U)((uint64_t)x * (uint64_t)y) : (U)x)                              \
    BINARY(left_##suffix, T, T, (U)y < 8 * sizeof(T) ? (U)((uint64_t)x << (U)y) : (U)0)                      \
    BINARY(right_##suffix, T, T, (U)y < 8 * sizeof(T) ? x >> (U)y : (x < 0 ? -1 : 0))
SIGNED(i8, int8_t, uint8_t)
SIGNED(i16, int16_t, uint16_t)
SIGNED(i32, int32_t, uint32_t)
SIGNED(i64, int64_t, uint64_t)

/* Remainders are exact. With the divisor's sign, a zero has it too. */
static float modulo_f32(float x, float y) {
    float m = fmodf(x, y);
    if (m == 0) return copysignf(m, y);
    return (m < 0) != (y < 0) ? m + y : m;
}
static double modulo_f64(double x, double y) {
    double m = fmod(x, y);
    if (m == 0) return copysign(m, y);
    return (m < 0) != (y < 0) ? m + y : m;
}

/* x^2 is rounded once, as a correct pow does; the square root is right from 0 upwards. */
static void pow_f32(const void *pa, const void *pb, void *po, size_t n, binary_form form) {
    const float *a = pa, *b = pb;
    float *o = po;
    if (form == BINARY_B_ONE && *b == 2.0f) {
        for (size_t i = 0; i < n; i++) o[i] = a[i] * a[i];
    } else if (form == BINARY_B_ONE && *b == 1.0f) {
        memmove(o, a, n * sizeof *o);
    } else if (form == BINARY_B_ONE && *b == 0.5f) {
        for (size_t i = 0; i < n; i++) {
            float x = a[i];
            o[i] = x > 0 ? sqrtf(x) : powf(x, 0.5f);
        }
    } else {
        float x = *a, y = *b;
        for (size_t i = 0; i < n; i++) {
            if (form != BINARY_A_ONE) x = a[i];
            if (form != BINARY_B_ONE) y = b[i];
            o[i] = powf(x, y);
        }
    }
}

#define FLOATING(suffix, T)                                                                                  \
    BINARY(add_##suffix, T, T, x + y)                                                                        \
    BINARY(sub_##suffix, T, T, x - y)                                                                        \
    BINARY(mul_##suffix, T, T, x *y)                                                                         \
    BINARY(div_##suffix, T, T, x / y)                                                                        \
    BINARY(max_##suffix, T, T, ((x > y) | (x != x)) ? x : y)                                                 \
    BINARY(min_##suffix, T, T, ((x < y) | (x != x)) ? x : y)                                                 \
    BINARY(prelu_##suffix, T, T, x < 0 ? x * y : x)                                                          \
    BINARY(equal_##suffix, T, uint8_t, x == y)                                                               \
    BINARY(less_##suffix, T, uint8_t, x < y)                                                                 \
    BINARY(less_equal_##suffix, T, uint8_t, x <= y)                                                          \
    BINARY(mod_##suffix, T, T, modulo_##suffix(x, y))
FLOATING(f32, float)
FLOATING(f64, double)
BINARY(fmod_f32, float, float, fmodf(x, y))
BINARY(fmod_f64, double, double, fmod(x, y))
BINARY(pow_f64, double, double, pow(x, y))

static bool same_string(tensor_string x, tensor_string y) {
    return x.len == y.len && (x.len == 0 || memcmp(x.data, y.data, x.len) == 0);
}
BINARY(equal_string, tensor_string, uint8_t, same_string(x, y))

/* Complex sums and products (Scatter's reductions). */
#define COMPLEX(suffix, T)                                                                                   \
    typedef struct complex_##suffix {                                                                        \
        T re, im;                                                                                            \
    } complex_##suffix;                                                                                      \
    BINARY(add_##suffix, complex_##suffix, complex_##suffix, ((complex_##suffix){x.re + y.re, x.im + y.im})) \
    BINARY(mul_##suffix, complex_##suffix, complex_##suffix,                                                 \
           ((complex_##suffix){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}))
/* The cast to a structure's own type is no conversion. */
#undef BINARY
#define BINARY(name, T, O, EXPR)                                                                             \
    static void name(const void *pa, const void *pb, void *po, size_t n, binary_form form) {                 \
        const T *a = pa, *b = pb;                                                                            \
        O *o = po;                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                                     \
            T x = form == BINARY_A_ONE ? a[0] : a[i], y = form == BINARY_B_ONE ? b[0] : b[i];                \
            o[i] = EXPR;                                                                                     \
        }                                                                                                    \
    }
COMPLEX(c64, float)
COMPLEX(c128, double)

/* What does not depend on the sign, by width. */
#define ANY_SIGN(op)                                                                                         \
    [ELEM_U8] = op##_8, [ELEM_I8] = op##_8, [ELEM_U16] = op##_16, [ELEM_I16] = op##_16,                      \
    [ELEM_U32] = op##_32, [ELEM_I32] = op##_32, [ELEM_U64] = op##_64, [ELEM_I64] = op##_64
#define EACH_INT(op)                                                                                         \
    [ELEM_U8] = op##_u8, [ELEM_I8] = op##_i8, [ELEM_U16] = op##_u16, [ELEM_I16] = op##_i16,                  \
    [ELEM_U32] = op##_u32, [ELEM_I32] = op##_i32, [ELEM_U64] = op##_u64, [ELEM_I64] = op##_i64
#define EACH_FLOAT(op)   [ELEM_F32] = op##_f32, [ELEM_F64] = op##_f64
#define EACH_COMPLEX(op) [ELEM_C64] = op##_c64, [ELEM_C128] = op##_c128

static const binary_loop loops[BINARY_COUNT][ELEM_COUNT] = {
    [BINARY_ADD] = {ANY_SIGN(add), EACH_FLOAT(add), EACH_COMPLEX(add), [ELEM_BOOL] = or_8},
    [BINARY_SUB] = {ANY_SIGN(sub), EACH_FLOAT(sub)},
    [BINARY_MUL] = {ANY_SIGN(mul), EACH_FLOAT(mul), EACH_COMPLEX(mul), [ELEM_BOOL] = and_8},
    [BINARY_DIV] = {EACH_INT(div), EACH_FLOAT(div)},
    [BINARY_MAX] = {EACH_INT(max), EACH_FLOAT(max), [ELEM_BOOL] = or_8},
    [BINARY_MIN] = {EACH_INT(min), EACH_FLOAT(min), [ELEM_BOOL] = and_8},
    [BINARY_MOD] = {EACH_INT(mod), EACH_FLOAT(mod)},
    [BINARY_FMOD] = {EACH_FLOAT(fmod), [ELEM_U8] = mod_u8, [ELEM_U16] = mod_u16, [ELEM_U32] = mod_u32,
                     [ELEM_U64] = mod_u64, [ELEM_I8] = fmod_i8, [ELEM_I16] = fmod_i16, [ELEM_I32] = fmod_i32,
                     [ELEM_I64] = fmod_i64},
    [BINARY_POW] = {EACH_INT(pow), EACH_FLOAT(pow)},
    [BINARY_PRELU] = {EACH_FLOAT(prelu), [ELEM_I8] = prelu_i8, [ELEM_I16] = prelu_i16, [ELEM_I32] = prelu_i32,
                      [ELEM_I64] = prelu_i64},
    [BINARY_AND] = {ANY_SIGN(and), [ELEM_BOOL] = and_8},
    [BINARY_OR] = {ANY_SIGN(or), [ELEM_BOOL] = or_8},
    [BINARY_XOR] = {ANY_SIGN(xor), [ELEM_BOOL] = xor_8},
    [BINARY_SHIFT_LEFT] = {EACH_INT(left)},
    [BINARY_SHIFT_RIGHT] = {EACH_INT(right)},
    [BINARY_EQUAL] = {ANY_SIGN(equal),
                      EACH_FLOAT(equal), [ELEM_BOOL] = equal_8, [ELEM_STRING] = equal_string},
    [BINARY_LESS] = {EACH_INT(less), EACH_FLOAT(less)},
    [BINARY_LESS_EQUAL] = {EACH_INT(less_equal), EACH_FLOAT(less_equal)},
};

static bool is_half(elem type) {
    return type == ELEM_F16 || type == ELEM_BF16;
}

binary_loop binary_find(binary_op op, elem type) {
    return loops[op][type];
}

bool binary_known(binary_op op, elem type) {
    return loops[op][is_half(type) ? ELEM_F32 : type] != NULL;
}

enum { HALF_BLOCK = 512 };

static void apply_half(binary_op op, elem type, const uint16_t *a, const uint16_t *b, void *out, size_t n,
                       binary_form form) {
    float fa[HALF_BLOCK], fb[HALF_BLOCK], fo[HALF_BLOCK];
    uint8_t *flags = out;
    uint16_t *half = out;
    if (form == BINARY_A_ONE) elem_to_f32(type, a, fa, 1);
    if (form == BINARY_B_ONE) elem_to_f32(type, b, fb, 1);
    for (size_t i = 0; i < n; i += HALF_BLOCK) {
        size_t m = n - i < HALF_BLOCK ? n - i : HALF_BLOCK;
        if (form != BINARY_A_ONE) elem_to_f32(type, a + i, fa, m);
        if (form != BINARY_B_ONE) elem_to_f32(type, b + i, fb, m);
        if (op >= BINARY_EQUAL) {
            loops[op][ELEM_F32](fa, fb, flags + i, m, form);
        } else {
            loops[op][ELEM_F32](fa, fb, fo, m, form);
            elem_from_f32(type, fo, half + i, m, false);
        }
    }
}

void binary_apply(binary_op op, elem type, const void *a, const void *b, void *out, size_t n,
                  binary_form form) {
    if (is_half(type))
        apply_half(op, type, a, b, out, n, form);
    else
        loops[op][type](a, b, out, n, form);
}

typedef struct job {
    broadcast plan;
    binary_op op;
    bool swap;
    elem type;
    const char *a, *b;
    char *out;
    size_t size, out_size; /* of an element */
} job;

static void run_part(void *ctx, size_t at, const size_t *in, size_t n) {
    const job *j = ctx;
    const char *a = j->a + in[0] * j->size, *b = j->b + in[1] * j->size;
    char *out = j->out + at * j->out_size;
    size_t last = j->plan.rank - 1;
    bool a_one = j->plan.strides[0][last] == 0, b_one = j->plan.strides[1][last] == 0;
    if (j->swap) {
        const char *first = a;
        bool first_one = a_one;
        a = b, b = first;
        a_one = b_one, b_one = first_one;
    }
    if (n == 1 || (a_one && b_one)) {
        binary_apply(j->op, j->type, a, b, out, 1, BINARY_BOTH);
        move_fill(out, out, n, j->out_size);
    } else {
        binary_apply(j->op, j->type, a, b, out, n, a_one ? BINARY_A_ONE : b_one ? BINARY_B_ONE : BINARY_BOTH);
    }
}

static void run_range(void *ctx, size_t from, size_t to) {
    job *j = ctx;
    broadcast_walk(&j->plan, from, to, run_part, j);
}

/* About nanoseconds an element. */
static double cost(binary_op op, elem type) {
    if (op == BINARY_POW || op == BINARY_FMOD || op == BINARY_MOD) return 10;
    if (op == BINARY_DIV && type != ELEM_F32) return 2;
    return is_half(type) ? 2 : 0.3;
}

void binary_run(op_run *r, binary_op op, const tensor *a, const tensor *b, tensor *out, size_t axis,
                bool swap) {
    job j = {.op = op,
             .swap = swap,
             .type = a->type,
             .a = a->data,
             .b = b->data,
             .out = out->data,
             .size = elem_describe(a->type)->bytes,
             .out_size = elem_describe(out->type)->bytes};
    if (axis == SIZE_MAX)
        broadcast_plan(&j.plan, out, (const tensor *[]){a, b}, 2);
    else
        broadcast_plan_at(&j.plan, out, a, b, axis);
    run_parallel(r, out->count, (double)out->count * cost(op, a->type), run_range, &j);
}
