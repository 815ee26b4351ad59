/* digest.h: SHA-256 of bytes and files, as lower-case hex. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/status.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 65 }; /* 64 digits and a zero */

MUST_USE status digest_file(const char *path, char hex[DIGEST_HEX], error *err);
MUST_USE status digest_bytes(const void *data, size_t n, char hex[DIGEST_HEX], error *err);

/* Of bytes that come in parts. Zero-initialise; digest_end releases it, and so does digest_drop (always
 * allowed). A part that failed makes digest_end fail. */
typedef struct digest_state {
    void *context;
    bool failed;
} digest_state;

MUST_USE status digest_begin(digest_state *d, error *err);
void digest_add(digest_state *d, const void *data, size_t n);
MUST_USE status digest_end(digest_state *d, char hex[DIGEST_HEX], error *err);
void digest_drop(digest_state *d);

void digest_to_hex(const uint8_t raw[DIGEST_BYTES], char hex[DIGEST_HEX]);
/* hex: 64 hexadecimal digits. */
void digest_from_hex(const char *hex, uint8_t raw[DIGEST_BYTES]);

/* 64 hexadecimal digits, to lower case; CHURON_INVALID otherwise. */
MUST_USE status digest_parse(const char *text, char hex[DIGEST_HEX], error *err);

#endif
