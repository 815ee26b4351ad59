/* elem.c: see elem.h. Small floats are described by four numbers and what their top codes mean; one encoder
 * and one decoder serve all of them. A float is rounded once, from f64, to the nearest code, ties to even. */
#include "tensor/elem.h"

#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

static const elem_info infos[ELEM_COUNT] = {
    [ELEM_F32] = {"float32", 4, 32},
    [ELEM_U8] = {"uint8", 1, 8},
    [ELEM_I8] = {"int8", 1, 8},
    [ELEM_U16] = {"uint16", 2, 16},
    [ELEM_I16] = {"int16", 2, 16},
    [ELEM_I32] = {"int32", 4, 32},
    [ELEM_I64] = {"int64", 8, 64},
    [ELEM_STRING] = {"string", 16, 0},
    [ELEM_BOOL] = {"bool", 1, 8},
    [ELEM_F16] = {"float16", 2, 16},
    [ELEM_F64] = {"float64", 8, 64},
    [ELEM_U32] = {"uint32", 4, 32},
    [ELEM_U64] = {"uint64", 8, 64},
    [ELEM_C64] = {"complex64", 8, 64},
    [ELEM_C128] = {"complex128", 16, 128},
    [ELEM_BF16] = {"bfloat16", 2, 16},
    [ELEM_F8E4M3FN] = {"float8_e4m3fn", 1, 8},
    [ELEM_F8E4M3FNUZ] = {"float8_e4m3fnuz", 1, 8},
    [ELEM_F8E5M2] = {"float8_e5m2", 1, 8},
    [ELEM_F8E5M2FNUZ] = {"float8_e5m2fnuz", 1, 8},
    [ELEM_U4] = {"uint4", 1, 4},
    [ELEM_I4] = {"int4", 1, 4},
    [ELEM_F4E2M1] = {"float4_e2m1fn", 1, 4},
    [ELEM_F8E8M0] = {"float8_e8m0fnu", 1, 8},
    [ELEM_U2] = {"uint2", 1, 2},
    [ELEM_I2] = {"int2", 1, 2},
    [ELEM_F6E2M3] = {"float6_e2m3fn", 1, 6},
    [ELEM_F6E3M2] = {"float6_e3m2fn", 1, 6},
};

const elem_info *elem_describe(elem e) {
    return e > ELEM_NONE && e < ELEM_COUNT ? &infos[e] : NULL;
}

const char *elem_name(elem e) {
    const elem_info *info = elem_describe(e);
    return info ? info->name : "undefined";
}

/* ---- small floats ----------------------------------------------------------------------------------- */

typedef struct small_float {
    unsigned exponent_bits, fraction_bits;
    int bias;
    uint32_t max;     /* code of the largest finite value */
    int32_t infinity; /* its code, or -1: there is none */
    int32_t nan;      /* a code, or -1: there is none */
    bool negative_zero;
} small_float;

static const small_float *small(elem e) {
    static const small_float f16 = {5, 10, 15, 0x7bff, 0x7c00, 0x7e00, true};
    static const small_float bf16 = {8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, true};
    static const small_float e4m3fn = {4, 3, 7, 0x7e, -1, 0x7f, true};
    static const small_float e4m3fnuz = {4, 3, 8, 0x7f, -1, 0x80, false};
    static const small_float e5m2 = {5, 2, 15, 0x7b, 0x7c, 0x7e, true};
    static const small_float e5m2fnuz = {5, 2, 16, 0x7f, -1, 0x80, false};
    static const small_float e2m1 = {2, 1, 1, 7, -1, -1, true};
    static const small_float e2m3 = {2, 3, 1, 31, -1, -1, true};
    static const small_float e3m2 = {3, 2, 3, 31, -1, -1, true};
    switch (e) {
    case ELEM_F16: return &f16;
    case ELEM_BF16: return &bf16;
    case ELEM_F8E4M3FN: return &e4m3fn;
    case ELEM_F8E4M3FNUZ: return &e4m3fnuz;
    case ELEM_F8E5M2: return &e5m2;
    case ELEM_F8E5M2FNUZ: return &e5m2fnuz;
    case ELEM_F4E2M1: return &e2m1;
    case ELEM_F6E2M3: return &e2m3;
    case ELEM_F6E3M2: return &e3m2;
    default: return NULL;
    }
}

static double decode_small(const small_float *f, uint32_t code) {
    unsigned sign_at = f->exponent_bits + f->fraction_bits;
    bool negative = code >> sign_at & 1;
    uint32_t magnitude = code & ((1u << sign_at) - 1);
    if (!f->negative_zero && (int32_t)code == f->nan) return NAN;
    if (magnitude > f->max) {
        if ((int32_t)magnitude == f->infinity) return negative ? -(double)INFINITY : (double)INFINITY;
        return negative ? -(double)NAN : (double)NAN;
    }
    int exponent = (int)(magnitude >> f->fraction_bits);
    uint32_t fraction = magnitude & ((1u << f->fraction_bits) - 1);
    if (exponent) fraction |= 1u << f->fraction_bits;
    double v = ldexp(fraction, (exponent ? exponent : 1) - f->bias - (int)f->fraction_bits);
    return negative ? -v : v;
}

/* Code without sign of |v| rounded, which may lie above f->max. v is finite. */
static uint64_t round_small(const small_float *f, uint64_t bits) {
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t significand = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == -1023) return 0; /* below 2^-1022: half of no format's smallest */
    significand |= (uint64_t)1 << 52;
    int least = 1 - f->bias; /* exponent of the smallest normal */
    int base = exponent > least ? exponent : least;
    int shift = 52 - (int)f->fraction_bits + (base - exponent);
    if (shift > 54) return 0;
    uint64_t whole = significand >> shift;
    uint64_t rest = significand & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    if (rest > half || (rest == half && (whole & 1))) whole++;
    /* The leading one of a normal number counts as one step of the exponent: carries come out right. */
    return ((uint64_t)(base - least) << f->fraction_bits) + whole;
}

static uint32_t encode_small(const small_float *f, double v, bool saturate) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << (f->exponent_bits + f->fraction_bits);
    if (v != v) {
        if (f->nan < 0) return sign; /* no NaN: zero */
        return f->negative_zero ? sign | (uint32_t)f->nan : (uint32_t)f->nan;
    }
    uint64_t code = isinf(v) ? UINT64_MAX : round_small(f, bits);
    if (code > f->max) {
        if (saturate || f->nan < 0) {
            code = f->max;
        } else if (f->infinity >= 0) {
            code = (uint64_t)f->infinity;
        } else {
            return f->negative_zero ? sign | (uint32_t)f->nan : (uint32_t)f->nan;
        }
    }
    if (code == 0 && !f->negative_zero) return 0;
    return sign | (uint32_t)code;
}

/* 2^(code - 127), 255 is NaN; no sign and no zero. */
static double decode_e8m0(uint8_t code) {
    return code == 255 ? (double)NAN : ldexp(1, code - 127);
}

/* As ONNX casts with round_mode "nearest": the sign is dropped, zero is the smallest value, ties go up. */
static uint8_t encode_e8m0(double v, bool saturate) {
    v = fabs(v);
    if (v != v || isinf(v)) return 255;
    if (v <= 0x1p-127) return 0;
    int exponent;
    double m = frexp(v, &exponent); /* v = m * 2^exponent, m in [0.5, 1) */
    int code = exponent - 1 + 127 + (m >= 0.75);
    if (code > 254) return saturate ? 254 : 255;
    return (uint8_t)code;
}

/* ---- conversions ------------------------------------------------------------------------------------ */

/* Codes of up to 8 bits: every value once, then look-ups. */
static void decode_bytes(elem e, const uint8_t *from, double *to, size_t n) {
    const small_float *f = small(e);
    double table[256];
    unsigned codes = 1u << infos[e].bits;
    bool use_table = n >= codes;
    for (unsigned c = 0; use_table && c < codes; c++) {
        table[c] = f ? decode_small(f, c) : decode_e8m0((uint8_t)c);
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t c = from[i] & (uint8_t)(codes - 1);
        to[i] = use_table ? table[c] : f ? decode_small(f, c) : decode_e8m0(c);
    }
}

#define LOOP_TO(type, expr)                                                                                  \
    do {                                                                                                     \
        const type *x = from;                                                                                \
        for (size_t i = 0; i < n; i++) to[i] = (expr);                                                       \
    } while (0)

void elem_to_f64(elem e, const void *from, double *to, size_t n) {
    switch (e) {
    case ELEM_F64:
        if (n) memmove(to, from, n * sizeof *to);
        break;
    case ELEM_F32: LOOP_TO(float, (double)x[i]); break;
    case ELEM_F16: LOOP_TO(uint16_t, (double)f16_to_f32(x[i])); break;
    case ELEM_BF16: LOOP_TO(uint16_t, (double)bf16_to_f32(x[i])); break;
    case ELEM_BOOL: LOOP_TO(uint8_t, x[i] ? 1.0 : 0.0); break;
    case ELEM_U8:
    case ELEM_U4:
    case ELEM_U2: LOOP_TO(uint8_t, (double)x[i]); break;
    case ELEM_I8:
    case ELEM_I4:
    case ELEM_I2: LOOP_TO(int8_t, (double)x[i]); break;
    case ELEM_U16: LOOP_TO(uint16_t, (double)x[i]); break;
    case ELEM_I16: LOOP_TO(int16_t, (double)x[i]); break;
    case ELEM_U32: LOOP_TO(uint32_t, (double)x[i]); break;
    case ELEM_I32: LOOP_TO(int32_t, (double)x[i]); break;
    case ELEM_U64: LOOP_TO(uint64_t, (double)x[i]); break;
    case ELEM_I64: LOOP_TO(int64_t, (double)x[i]); break;
    case ELEM_F8E4M3FN:
    case ELEM_F8E4M3FNUZ:
    case ELEM_F8E5M2:
    case ELEM_F8E5M2FNUZ:
    case ELEM_F4E2M1:
    case ELEM_F8E8M0:
    case ELEM_F6E2M3:
    case ELEM_F6E3M2: decode_bytes(e, from, to, n); break;
    case ELEM_NONE:
    case ELEM_STRING:
    case ELEM_C64:
    case ELEM_C128:
    case ELEM_COUNT: break;
    }
}

/* C leaves out-of-range conversions undefined; here NaN and what does not fit give the least int64, as the
 * processors at hand do. */
static int64_t to_i64(double v) {
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

/* By way of 32 bits, for the types of at most so many but uint32: the least int32 in place of the int64. */
static int32_t to_i32(double v) {
    return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN;
}

/* From 2^63 on the distance to 2^63 is converted, and is 0 where it does not fit. */
static uint64_t to_u64(double v) {
    return v < 0x1p63 || v != v ? (uint64_t)to_i64(v) : v < 0x1p64 ? (uint64_t)v : 0;
}

static int8_t sign_extend(uint64_t v, unsigned bits) {
    uint64_t sign = (uint64_t)1 << (bits - 1);
    return (int8_t)(((v & (2 * sign - 1)) ^ sign) - sign);
}

#define LOOP_FROM(type, expr)                                                                                \
    do {                                                                                                     \
        type *y = to;                                                                                        \
        for (size_t i = 0; i < n; i++) {                                                                     \
            double v = from[i];                                                                              \
            y[i] = (type)(expr);                                                                             \
        }                                                                                                    \
    } while (0)

void elem_from_f64(elem e, const double *from, void *to, size_t n, bool saturate) {
    const small_float *f = small(e);
    switch (e) {
    case ELEM_F64:
        if (n) memmove(to, from, n * sizeof *from);
        break;
    case ELEM_F32: LOOP_FROM(float, v); break;
    case ELEM_F16:
    case ELEM_BF16: LOOP_FROM(uint16_t, encode_small(f, v, false)); break;
    case ELEM_BOOL: LOOP_FROM(uint8_t, v != 0); break;
    case ELEM_U8: LOOP_FROM(uint8_t, to_i32(v)); break;
    case ELEM_I8: LOOP_FROM(int8_t, to_i32(v)); break;
    case ELEM_U16: LOOP_FROM(uint16_t, to_i32(v)); break;
    case ELEM_I16: LOOP_FROM(int16_t, to_i32(v)); break;
    case ELEM_U32: LOOP_FROM(uint32_t, to_i64(v)); break;
    case ELEM_I32: LOOP_FROM(int32_t, to_i32(v)); break;
    case ELEM_U64: LOOP_FROM(uint64_t, to_u64(v)); break;
    case ELEM_I64: LOOP_FROM(int64_t, to_i64(v)); break;
    case ELEM_U4: LOOP_FROM(uint8_t, to_i64(v) & 15); break;
    case ELEM_U2: LOOP_FROM(uint8_t, to_i64(v) & 3); break;
    case ELEM_I4: LOOP_FROM(int8_t, sign_extend((uint64_t)to_i64(v), 4)); break;
    case ELEM_I2: LOOP_FROM(int8_t, sign_extend((uint64_t)to_i64(v), 2)); break;
    case ELEM_F8E4M3FN:
    case ELEM_F8E4M3FNUZ:
    case ELEM_F8E5M2:
    case ELEM_F8E5M2FNUZ:
    case ELEM_F4E2M1:
    case ELEM_F6E2M3:
    case ELEM_F6E3M2: LOOP_FROM(uint8_t, encode_small(f, v, saturate)); break;
    case ELEM_F8E8M0: LOOP_FROM(uint8_t, encode_e8m0(v, saturate)); break;
    case ELEM_NONE:
    case ELEM_STRING:
    case ELEM_C64:
    case ELEM_C128:
    case ELEM_COUNT: break;
    }
}

void elem_to_f32(elem e, const void *from, float *to, size_t n) {
    switch (e) {
    case ELEM_F32:
        if (n) memmove(to, from, n * sizeof *to);
        break;
    case ELEM_F16: LOOP_TO(uint16_t, f16_to_f32(x[i])); break;
    case ELEM_BF16: LOOP_TO(uint16_t, bf16_to_f32(x[i])); break;
    default:
        for (size_t i = 0; i < n; i += 256) {
            double part[256];
            size_t m = n - i < 256 ? n - i : 256;
            elem_to_f64(e, (const uint8_t *)from + i * infos[e].bytes, part, m);
            for (size_t j = 0; j < m; j++) to[i + j] = (float)part[j];
        }
    }
}

static uint16_t f32_to_bf16(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void elem_from_f32(elem e, const float *from, void *to, size_t n, bool saturate) {
    switch (e) {
    case ELEM_F32:
        if (n) memmove(to, from, n * sizeof *from);
        break;
    case ELEM_F16:
        for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = f32_to_f16(from[i]);
        break;
    case ELEM_BF16:
        for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = f32_to_bf16(from[i]);
        break;
    default:
        for (size_t i = 0; i < n; i += 256) {
            double part[256];
            size_t m = n - i < 256 ? n - i : 256;
            for (size_t j = 0; j < m; j++) part[j] = (double)from[i + j];
            elem_from_f64(e, part, (uint8_t *)to + i * infos[e].bytes, m, saturate);
        }
    }
}

/* ---- the form in files ------------------------------------------------------------------------------ */

size_t elem_file_bytes(elem e, size_t n) {
    unsigned bits = infos[e].bits;
    if (bits >= 8) return n > SIZE_MAX / (bits / 8) ? SIZE_MAX : n * (bits / 8);
    if (n > (SIZE_MAX - 7) / 8) return SIZE_MAX;
    return (n / 8) * bits + (n % 8 * bits + 7) / 8;
}

void elem_unpack(elem e, const void *file, void *memory, size_t n) {
    const uint8_t *in = file;
    uint8_t *out = memory;
    unsigned bits = infos[e].bits;
    if (e == ELEM_BOOL) {
        for (size_t i = 0; i < n; i++) out[i] = in[i] != 0;
        return;
    }
    if (bits >= 8) {
        if (n) memcpy(memory, file, n * infos[e].bytes);
        return;
    }
    bool is_signed = e == ELEM_I4 || e == ELEM_I2;
    for (size_t i = 0; i < n; i++) {
        /* Bits i*bits and up; the second byte counts only where the element crosses into it. */
        size_t at = i / 8 * bits + i % 8 * bits / 8;
        unsigned shift = (unsigned)(i % 8 * bits % 8);
        unsigned v = (unsigned)in[at] >> shift;
        if (shift + bits > 8) v |= (unsigned)in[at + 1] << (8 - shift);
        v &= (1u << bits) - 1;
        out[i] = is_signed ? (uint8_t)sign_extend(v, bits) : (uint8_t)v;
    }
}

void elem_pack(elem e, const void *memory, void *file, size_t n) {
    const uint8_t *in = memory;
    uint8_t *out = file;
    unsigned bits = infos[e].bits;
    if (bits >= 8) {
        if (n) memcpy(file, memory, n * infos[e].bytes);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = i / 8 * bits + i % 8 * bits / 8;
        unsigned shift = (unsigned)(i % 8 * bits % 8);
        unsigned v = in[i] & ((1u << bits) - 1);
        out[at] = (uint8_t)((shift ? out[at] : 0) | v << shift); /* shift 0: the first in its byte */
        if (shift + bits > 8) out[at + 1] = (uint8_t)(v >> (8 - shift));
    }
}
