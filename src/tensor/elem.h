/* elem.h: element types of tensors, with ONNX's numbers (TensorProto.DataType), so that a file's number is
 * checked once and used as it is.
 *
 * In memory every element has its own bytes: types of 2, 4 and 6 bits take one byte an element (integers as
 * their value, signed ones as int8_t; small floats as their bit pattern). They are packed in files and on the
 * wire only. Nothing here computes beyond conversions. */
#ifndef TENSOR_ELEM_H
#define TENSOR_ELEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum elem {
    ELEM_NONE = 0,
    ELEM_F32 = 1,
    ELEM_U8,
    ELEM_I8,
    ELEM_U16,
    ELEM_I16,
    ELEM_I32,
    ELEM_I64,
    ELEM_STRING, /* tensor_string */
    ELEM_BOOL,   /* a byte, 0 or 1 */
    ELEM_F16,
    ELEM_F64,
    ELEM_U32,
    ELEM_U64,
    ELEM_C64,  /* float[2]: real, imaginary */
    ELEM_C128, /* double[2] */
    ELEM_BF16,
    ELEM_F8E4M3FN,
    ELEM_F8E4M3FNUZ,
    ELEM_F8E5M2,
    ELEM_F8E5M2FNUZ,
    ELEM_U4,
    ELEM_I4,
    ELEM_F4E2M1,
    ELEM_F8E8M0,
    ELEM_U2,
    ELEM_I2,
    ELEM_F6E2M3,
    ELEM_F6E3M2,
    ELEM_COUNT
} elem;

typedef struct elem_info {
    const char *name; /* "float32", "int64", "float8_e4m3fn", "string": numpy's and ml_dtypes' names */
    size_t bytes;     /* of an element in memory */
    unsigned bits;    /* of an element in a file; strings 0 */
} elem_info;

const elem_info *elem_describe(elem e); /* static; ELEM_NONE and numbers out of range: NULL */
const char *elem_name(elem e);          /* "undefined" for what is no element type */

/* Sets of element types, for type constraints. */
typedef uint64_t elem_set;
#define ELEM_BIT(e)    ((elem_set)1 << (e))
#define ELEMS_FLOAT    (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))
#define ELEMS_SIGNED   (ELEM_BIT(ELEM_I8) | ELEM_BIT(ELEM_I16) | ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64))
#define ELEMS_UNSIGNED (ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_U16) | ELEM_BIT(ELEM_U32) | ELEM_BIT(ELEM_U64))
#define ELEMS_INT      (ELEMS_SIGNED | ELEMS_UNSIGNED)
#define ELEMS_COMPLEX  (ELEM_BIT(ELEM_C64) | ELEM_BIT(ELEM_C128))
#define ELEMS_F8                                                                                             \
    (ELEM_BIT(ELEM_F8E4M3FN) | ELEM_BIT(ELEM_F8E4M3FNUZ) | ELEM_BIT(ELEM_F8E5M2) | ELEM_BIT(ELEM_F8E5M2FNUZ))
#define ELEMS_LOWBIT                                                                                         \
    (ELEM_BIT(ELEM_U4) | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_U2) | ELEM_BIT(ELEM_I2) | ELEM_BIT(ELEM_F4E2M1) | \
     ELEM_BIT(ELEM_F6E2M3) | ELEM_BIT(ELEM_F6E3M2) | ELEM_BIT(ELEM_F8E8M0))
#define ELEMS_NUMERIC (ELEMS_FLOAT | ELEMS_INT)
#define ELEMS_ALL     ((((elem_set)1 << ELEM_COUNT) - 1) & ~(elem_set)1)

/* Conversions of n elements. To f64: every real type (bool 0/1), exact but for 64-bit integers beyond 2^53.
 * From f64: rounds to nearest even for float types; integers truncate toward zero. What the type does not
 * hold, where C leaves it undefined, is as x86 and ONNX Runtime have it: int32 and narrower types of 8 and 16
 * bits go through int32, where NaN and what does not fit are INT32_MIN, and keep its low bits; int64 is
 * INT64_MIN then; uint32 keeps the low bits of that int64; uint64 is 2^63 for NaN and below -2^63, 0 from
 * 2^64 on; `saturate` as ONNX's Cast means it for float8 (and always for float4/6). Not for strings and
 * complex. */
void elem_to_f64(elem e, const void *from, double *to, size_t n);
void elem_from_f64(elem e, const double *from, void *to, size_t n, bool saturate);
/* The same through f32, for float types of at most 32 bits: the usual way for f16 and bf16 arithmetic. */
void elem_to_f32(elem e, const void *from, float *to, size_t n);
void elem_from_f32(elem e, const float *from, void *to, size_t n, bool saturate);
/* File form of the low-bit types (first element in the lowest bits) and little-endian plain types. n
 * elements; bytes in the file: elem_file_bytes. Not for strings. */
size_t elem_file_bytes(elem e, size_t n); /* SIZE_MAX on overflow */
void elem_unpack(elem e, const void *file, void *memory, size_t n);
void elem_pack(elem e, const void *memory, void *file, size_t n);

#endif
