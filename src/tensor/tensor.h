/* tensor.h: dense arrays of elements in row-major order, and what else ONNX calls a value.
 *
 * A tensor borrows or shares its elements: `storage` NULL means borrowed (a mapped file, a caller's buffer, a
 * planned arena), else it holds one reference of a counted block. Tensors are small and copied by assignment;
 * tensor_share takes the reference that makes the copy own something. Elements are immutable once a tensor is
 * shared. Threads: reference counts are atomic, all else belongs to one owner. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "base/status.h"
#include "tensor/elem.h"

enum { TENSOR_MAX_RANK = 12 };
/* No tensor may take more (a lying shape is refused before memory is asked for). */
#define TENSOR_MAX_BYTES ((uint64_t)1 << 36)

typedef struct tensor_storage tensor_storage; /* a counted block of memory */

typedef struct tensor_string { /* bytes belong to the storage (tensor_string_bytes) or to whom was borrowed
                                  from */
    const char *data;          /* not zero-terminated */
    size_t len;
} tensor_string;

typedef struct tensor {
    elem type;
    uint32_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    size_t count; /* product of dims; 1 for a scalar */
    void *data;   /* [count] elements, aligned to at least the element's size; 64 bytes when allocated here */
    tensor_storage *storage;
} tensor;

/* Checks rank, dims (>= 0) and the product of those that are not 0 against TENSOR_MAX_BYTES; `what` names the
 * tensor in the error. */
MUST_USE status tensor_count(elem type, size_t rank, const int64_t *dims, size_t *count, const char *what,
                             error *err);
/* A new tensor with storage of its own. Elements are not initialised (strings: empty). */
MUST_USE status tensor_alloc(tensor *out, elem type, size_t rank, const int64_t *dims, error *err);
/* Over memory of the caller, which outlives it. dims must be checked already. */
tensor tensor_borrow(elem type, size_t rank, const int64_t *dims, void *data);
tensor tensor_share(const tensor *t); /* another reference; of a borrowed tensor: borrows likewise */
MUST_USE status tensor_copy(tensor *out, const tensor *t, error *err); /* deep, strings included */
bool tensor_is_unique(const tensor *t); /* owns its elements and shares them with nobody */
void tensor_free(tensor *t);            /* gives the reference back; zeroes *t */
static inline size_t tensor_bytes(const tensor *t) {
    return t->count * elem_describe(t->type)->bytes;
}
/* Room for n bytes of string contents that lives as long as the storage of t (which was allocated here). */
MUST_USE status tensor_string_bytes(tensor *t, size_t n, char **out, error *err);
/* What contents of strings the storage may hold from now on; over it CHURON_LIMIT. Without: any. t was
 * allocated here and is not shared. */
void tensor_string_limit(tensor *t, size_t bytes);
/* Bytes of its elements and, where it owns them, of the contents of strings. */
size_t tensor_held_bytes(const tensor *t);
/* Sets element i to a copy of the bytes. */
MUST_USE status tensor_string_set(tensor *t, size_t i, const char *bytes, size_t n, error *err);

/* ---- values ----------------------------------------------------------------------------------------- */

typedef enum value_kind { VALUE_NONE, VALUE_TENSOR, VALUE_SEQUENCE, VALUE_MAP } value_kind;

/* A value of a graph. VALUE_NONE is an empty optional (and an absent input). A sequence holds values; a map
 * holds a 1-D tensor of keys (int64 or string) and a tensor of as many values, or, for maps to other things,
 * a sequence. */
typedef struct value value;
typedef struct value_list value_list; /* counted, immutable once shared */
struct value {
    value_kind kind;
    tensor t;         /* TENSOR; MAP: the keys */
    value_list *list; /* SEQUENCE: its items; MAP: one item, the values (a 1-D tensor or a sequence) */
};

value value_of_tensor(tensor t); /* takes over the reference */
MUST_USE status value_list_create(value *out, value_kind kind, size_t n, error *err); /* items VALUE_NONE */
size_t value_count(const value *v);          /* items of a sequence, keys of a map; 0 for others */
size_t value_n_items(const value *v);        /* that value_item has: of a map one, its values */
value *value_item(const value *v, size_t i); /* borrowed; to be written only by who created the list */
value value_share(const value *v);
void value_free(value *v);

#endif
