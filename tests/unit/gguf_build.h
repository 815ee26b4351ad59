/* gguf_build.h: writes GGUF bytes, right or wrong, for tests. */
#ifndef TESTS_GGUF_BUILD_H
#define TESTS_GGUF_BUILD_H

#include "base/str.h"
#include "format/gguf.h"

#include <string.h>

static inline void put_le(str *s, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) str_put(s, (char)(v >> (8 * i) & 0xff));
}

static inline void put_text(str *s, const char *z) {
    put_le(s, strlen(z), 8);
    str_cat(s, z);
}

static inline void put_header(str *s, uint32_t version, uint64_t n_tensors, uint64_t n_values) {
    str_cat(s, "GGUF");
    put_le(s, version, 4);
    put_le(s, n_tensors, 8);
    put_le(s, n_values, 8);
}

static inline void put_key(str *s, const char *key, uint32_t type) {
    put_text(s, key);
    put_le(s, type, 4);
}

static inline void put_int(str *s, const char *key, uint32_t type, uint64_t v, size_t bytes) {
    put_key(s, key, type);
    put_le(s, v, bytes);
}

static inline void put_u32(str *s, const char *key, uint32_t v) {
    put_int(s, key, GGUF_U32, v, 4);
}

static inline void put_string(str *s, const char *key, const char *text) {
    put_key(s, key, GGUF_STRING);
    put_text(s, text);
}

static inline void put_array(str *s, const char *key, uint32_t item, uint64_t count) {
    put_key(s, key, GGUF_ARRAY);
    put_le(s, item, 4);
    put_le(s, count, 8);
}

static inline void put_tensor(str *s, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                              uint64_t offset) {
    put_text(s, name);
    put_le(s, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) put_le(s, dims[i], 8);
    put_le(s, type, 4);
    put_le(s, offset, 8);
}

static inline void put_zeros(str *s, size_t n) {
    for (size_t i = 0; i < n; i++) str_put(s, '\0');
}

static inline void pad_to(str *s, size_t multiple) {
    while (s->len % multiple) str_put(s, '\0');
}

#endif
