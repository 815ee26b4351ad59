/* npy.h: tensors in NumPy's .npy files. Hostile bytes in, an error or a tensor out: the file
 * has exactly the bytes that its header says.
 *
 * Reads versions 1 to 3, both orders of dimensions, both byte orders of what has more than one byte: bool,
 * integers, float16/32/64, complex, bytes (S) and text (U) as strings, and '<V2' as bfloat16 (ml_dtypes
 * writes it so). Writes little-endian C order; types that NumPy lacks are written as the smallest type that
 * holds their values exactly (bfloat16 and float8 as float32, int4 as int8); strings as U. */
#ifndef TENSOR_NPY_H
#define TENSOR_NPY_H

#include "base/str.h"
#include "tensor/tensor.h"

/* The caller frees *out. The error names the path. */
MUST_USE status npy_read(tensor *out, const char *path, error *err);
MUST_USE status npy_parse(tensor *out, const void *bytes, size_t n, error *err);
MUST_USE status npy_write(const tensor *t, str *out, error *err);

#endif
