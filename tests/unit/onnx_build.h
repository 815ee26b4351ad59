/* onnx_build.h: protobuf messages for tests, written front to back into a str. */
#ifndef TESTS_ONNX_BUILD_H
#define TESTS_ONNX_BUILD_H

#include "base/str.h"

#include <string.h>

static inline void pb_varint(str *s, uint64_t v) {
    for (; v >= 0x80; v >>= 7) str_put(s, (char)(v | 0x80));
    str_put(s, (char)v);
}

static inline void pb_int(str *s, uint32_t field, int64_t v) {
    pb_varint(s, (uint64_t)field << 3);
    pb_varint(s, (uint64_t)v);
}

static inline void pb_bytes(str *s, uint32_t field, const void *p, size_t n) {
    pb_varint(s, (uint64_t)field << 3 | 2);
    pb_varint(s, n);
    str_add(s, p, n);
}

static inline void pb_text(str *s, uint32_t field, const char *z) {
    pb_bytes(s, field, z, strlen(z));
}

static inline void pb_fixed32(str *s, uint32_t field, const void *four) {
    pb_varint(s, (uint64_t)field << 3 | 5);
    str_add(s, four, 4);
}

/* Appends `inner` as a message and frees it. */
static inline void pb_message(str *s, uint32_t field, str *inner) {
    pb_bytes(s, field, str_cstr(inner), inner->len);
    str_free(inner);
}

#endif
