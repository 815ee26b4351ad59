/* dtype.h: element types and the block formats of quantized tensors, as they lie in files.
 *
 * A quantized type stores `block` consecutive values of a row in `bytes` bytes. Nothing here computes. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q8_0,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_COUNT
} dtype;

typedef struct dtype_info {
    const char *name; /* "q4_1": lower case, as shown to users (upper-cased) and in kernel names */
    size_t block;     /* values in a block, 1 for plain types */
    size_t bytes;     /* bytes of a block */
} dtype_info;

const dtype_info *dtype_describe(dtype type); /* static */
/* Bytes of a row of n values. n must be a multiple of the block, and the product is the caller's to check. */
size_t dtype_row_bytes(dtype type, size_t n);
bool dtype_is_float(dtype type); /* F32, F16, BF16 */
/* Upper-case name, e.g. "Q4_K". Static. */
const char *dtype_name(dtype type);

/* Row of n values (a multiple of the block) to f32: the reference that defines each format. */
void dtype_to_f32(dtype type, const void *row, float *out, size_t n);
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* round to nearest even; overflow gives infinity, NaN stays NaN */
float bf16_to_f32(uint16_t h);

#endif
