/* gguf_part.h: one GGUF file, mapped and checked; a model is one part or several. Private to src/format.
 *
 * gguf_parse.c builds a part and verifies it by itself; gguf.c joins parts and answers look-ups. */
#ifndef FORMAT_GGUF_PART_H
#define FORMAT_GGUF_PART_H

#include "format/gguf.h"

#include <string.h>

/* A metadata value with the offsets of its strings, if it is an array of them. */
typedef struct gguf_entry {
    gguf_value value; /* first, so that a value that was handed out leads back here */
    size_t *item_at;  /* [count] offset from value.data of each string's length, or NULL */
} gguf_entry;

typedef struct gguf_part {
    file_map map;
    uint32_t version;
    gguf_entry *entries; /* [n_entries] in file order */
    size_t n_entries;
    size_t *by_key;       /* [n_entries] indices, ascending by key */
    gguf_tensor *tensors; /* [n_tensors] in file order; `map` is set when parts are joined */
    size_t n_tensors;
} gguf_part;

/* Maps and checks the file. On an error *out is empty. */
/* `size` bytes from `offset` on; size UINT64_MAX: the whole file. */
MUST_USE status gguf_part_open(gguf_part *out, const char *path, uint64_t offset, uint64_t size, error *err);
void gguf_part_close(gguf_part *p);
/* The checking alone, of what p->map holds; the rest of *p is empty. After an error *p is still to be closed.
 */
MUST_USE status gguf_part_parse(gguf_part *p, error *err);
const gguf_entry *gguf_part_find(const gguf_part *p, const char *key, size_t len);

/* Integer value with a range; the error names key, expected and got. */
MUST_USE status gguf_value_int(const gguf_value *v, int64_t min, int64_t max, int64_t *out, error *err);

int gguf_string_compare(gguf_string a, gguf_string b);

/* Sorts indices [n] so that before(ctx, index[i+1], index[i]) never holds. Heap sort: no memory, no
 * recursion, n log n whatever the file says. */
void gguf_sort(size_t *index, size_t n, bool (*before)(const void *ctx, size_t a, size_t b), const void *ctx);

static inline uint64_t gguf_read_le(const void *p, size_t bytes) {
    const uint8_t *b = p;
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)b[i] << (8 * i);
    return v;
}

/* Bytes of a number or bool; 0 for strings and arrays. */
size_t gguf_type_bytes(gguf_type type);

/* Printing a name of the file in a message: at most 80 bytes of it. */
#define GGUF_NAME(s) ((s).len < 80 ? (int)(s).len : 80), (s).data

#endif
