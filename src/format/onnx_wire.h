/* onnx_wire.h: the protobuf wire format with bounds, and where a reader of ONNX messages stands.
 *
 * A message is a span of bytes. wire_next takes one field off its front; nothing in a field reaches beyond
 * the span. The reader keeps the path to the message at hand for errors, the arena that everything is
 * allocated in, and the limits. One thread. */
#ifndef FORMAT_ONNX_WIRE_H
#define FORMAT_ONNX_WIRE_H

#include "base/file.h"
#include "tensor/elem.h"

enum {
    ONNX_MAX_DEPTH = 100, /* of nested messages, protobuf's own limit */
    WIRE_COUNTED = 32     /* field numbers below this are counted: all that the schema has */
};

typedef enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_GROUP = 3,
    WIRE_GROUP_END = 4,
    WIRE_FIXED32 = 5
} wire_type;

typedef struct wire {
    const uint8_t *at, *end;
} wire;

typedef struct wire_field {
    uint32_t number;
    wire_type type;
    uint64_t value; /* VARINT and FIXED */
    wire bytes;     /* BYTES */
} wire_field;

typedef struct arena_chunk arena_chunk;
typedef struct onnx_files onnx_files; /* mapped files of external data, onnx_external.c */

typedef struct onnx_reader {
    error *err;
    struct {
        const char *name;
        size_t index; /* SIZE_MAX: not a list */
    } path[ONNX_MAX_DEPTH];
    size_t depth;
    arena_chunk *chunks;   /* newest first */
    uint64_t taken, limit; /* bytes of structures; elements of tensors are bounded by the file */
    const file_map *map;   /* NULL when parsing memory */
    const char *folder;    /* for external data; NULL: refused */
    onnx_files *files;     /* opened so far */
    bool describe;         /* elements that would be copied, and are many, are left out: see onnx_describe */
} onnx_reader;

/* "PATH: " and the message. Returns code. */
status onnx_fail(onnx_reader *r, status code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A message inside the one at hand: goes to the path until onnx_leave. index SIZE_MAX: not one of a list. */
MUST_USE status onnx_enter(onnx_reader *r, const char *name, size_t index);
void onnx_leave(onnx_reader *r);

/* Zeroed room for n items, aligned to 16, counted against the limit. Valid for n = 0. */
MUST_USE status onnx_take(onnx_reader *r, size_t n, size_t item, void *out_pointer);
/* Room for elements of tensors: aligned to 64, not zeroed, not counted. */
MUST_USE status onnx_take_data(onnx_reader *r, size_t bytes, void **out);
void onnx_free_chunks(arena_chunk *chunks);
/* Gives whole pages of [at, at + bytes) back if they lie in a chunk: their contents are lost. */
void onnx_forget(const arena_chunk *chunks, const void *at, size_t bytes);

/* Takes the next field; groups are skipped whole and never returned (number 0: nothing was left). */
MUST_USE status wire_next(onnx_reader *r, wire *w, wire_field *f);
/* How often each field number occurs in the message. */
MUST_USE status wire_count(onnx_reader *r, wire message, size_t counts[WIRE_COUNTED]);

/* The value of a field under the schema's type; `name` is the field's, for errors. */
MUST_USE status wire_message(onnx_reader *r, const wire_field *f, const char *name, wire *out);
MUST_USE status wire_int(onnx_reader *r, const wire_field *f, const char *name, int64_t *out);
MUST_USE status wire_float(onnx_reader *r, const wire_field *f, const char *name, float *out);
/* Zero-terminated copy in the arena: valid UTF-8 without zero bytes. */
MUST_USE status wire_string(onnx_reader *r, const wire_field *f, const char *name, const char **out);

/* Lists of numbers, packed or not: the number of items of field `number`, all occurrences together.
 * fixed: 4 or 8 bytes an item, 0: varints. */
MUST_USE status wire_list_count(onnx_reader *r, wire message, uint32_t number, size_t fixed, const char *name,
                                size_t *n);
/* Copies the items of a list of fixed-width numbers that wire_list_count counted. */
MUST_USE status wire_list_fixed(onnx_reader *r, wire message, uint32_t number, size_t fixed, void *to);
/* Decodes varints into elements of type e (1, 2, 4 or 8 bytes each); out of its range is an error. */
MUST_USE status wire_list_varints(onnx_reader *r, wire message, uint32_t number, const char *name, elem e,
                                  void *to);

#endif
