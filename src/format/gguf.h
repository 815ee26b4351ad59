/* gguf.h: a GGUF file (v2, v3; one file or split) as a checked description. Computes nothing.
 *
 * Everything a reader could trip over is verified in gguf_open before anything is handed out: counts against
 * the bytes that are there, offsets and alignment, tensor sizes against their shape and type, duplicate keys
 * and names, overlapping tensors. A fault names the key or tensor, what was expected, what came and the
 * offset. Immutable after open. Strings and arrays are borrowed from the mapping and live as long as the
 * gguf. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/file.h"
#include "tensor/dtype.h"

typedef enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12
} gguf_type;

typedef struct gguf_string {
    const char *data; /* not zero-terminated; bytes of the file, not checked to be UTF-8 */
    size_t len;
} gguf_string;

typedef struct gguf_value {
    gguf_string key;
    gguf_type type;
    gguf_type item;   /* of an array; arrays of arrays are refused */
    uint64_t count;   /* items of an array, else 1 */
    const void *data; /* packed little-endian items, unaligned: read through gguf_get_* */
} gguf_value;

enum { GGUF_MAX_DIMS = 4 };

typedef struct gguf_tensor {
    gguf_string name;
    dtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the row length (contiguous); unused dims are 1 */
    const void *data;
    size_t bytes;
    const file_map *map; /* the mapping that holds it, for file_map_drop */
    size_t offset;       /* of data in that mapping */
} gguf_tensor;

typedef struct gguf gguf;

/* For a split model, `path` is any of its parts NAME-00001-of-000NN.gguf; all parts are opened. */
MUST_USE status gguf_open(gguf **out, const char *path, error *err);
/* A model of `size` bytes that lies in a larger file (a pack) from `offset` on, a multiple of 4096. One part
 * only. size UINT64_MAX: the file is the model. */
MUST_USE status gguf_open_in(gguf **out, const char *path, uint64_t offset, uint64_t size, error *err);
void gguf_free(gguf *g);

uint32_t gguf_version(const gguf *g);
size_t gguf_file_bytes(const gguf *g); /* all parts */
size_t gguf_n_values(const gguf *g);
const gguf_value *gguf_value_at(const gguf *g, size_t i); /* of the first part; i < gguf_n_values */
size_t gguf_n_tensors(const gguf *g);                     /* of all parts */
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name); /* NULL if there is none; O(log n) */
const gguf_value *gguf_find(const gguf *g, const char *key);          /* NULL if there is none; O(log n) */

/* Typed reads of a key. The _or forms take `fallback` when the key is absent. A value of another type, or one
 * that does not fit, is an error that names key, expected and got (any integer type is taken for an integer,
 * f32 and f64 for a float). */
MUST_USE status gguf_get_u32(const gguf *g, const char *key, uint32_t *out, error *err);
MUST_USE status gguf_get_u32_or(const gguf *g, const char *key, uint32_t fallback, uint32_t *out, error *err);
MUST_USE status gguf_get_f32_or(const gguf *g, const char *key, float fallback, float *out, error *err);
MUST_USE status gguf_get_bool_or(const gguf *g, const char *key, bool fallback, bool *out, error *err);
/* Absent: out->data = NULL. */
MUST_USE status gguf_get_string_or_null(const gguf *g, const char *key, gguf_string *out, error *err);

/* Items of an array value, by index below v->count. The type must have been checked: gguf_item_string for
 * item == GGUF_STRING is O(1) (an index is built once at open for every string array). */
MUST_USE status gguf_get_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out,
                               error *err);
gguf_string gguf_item_string(const gguf *g, const gguf_value *v, uint64_t i);
int64_t gguf_item_int(const gguf_value *v, uint64_t i);  /* any integer or bool type */
double gguf_item_float(const gguf_value *v, uint64_t i); /* F32, F64 */
const char *gguf_type_name(gguf_type type);              /* "u32", "array", … static */

#endif
