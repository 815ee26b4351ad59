/* str.h: a growing byte string. Zero-initialise it (`str s = {0}`), append, free.
 *
 * Appending never reports by itself: after a failed allocation the string stays as it was and `failed` is
 * set, so a long run of appends is checked once at its end with str_check. `data` is always zero-terminated
 * once anything was appended (it is NULL before; str_cstr gives "" then). */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/status.h"

typedef struct str {
    char *data;
    size_t len, cap;
    bool failed;
} str;

void str_free(str *s);
void str_clear(str *s); /* keeps the memory */
bool str_reserve(str *s, size_t extra);
void str_put(str *s, char c);
void str_add(str *s, const char *bytes, size_t n);
void str_cat(str *s, const char *zero_terminated);
void str_fmt(str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
MUST_USE status str_check(const str *s, error *err); /* CHURON_NO_MEMORY if any append failed */
const char *str_cstr(const str *s);

/* Length in bytes (1..4) of the valid UTF-8 sequence at p, or 0 when the bytes up to `end` are not one:
 * overlong forms, surrogates and values over U+10FFFF are invalid. Sets *cp if not NULL. p < end. */
size_t utf8_decode(const char *p, const char *end, uint32_t *cp);
/* Writes cp as UTF-8, returns 1..4. cp must be a Unicode scalar value. */
size_t utf8_encode(uint32_t cp, char out[4]);
/* Offset of the first invalid byte, or n if all is valid. */
size_t utf8_validate(const char *p, size_t n);

#endif
