/* digest.h: SHA-256 of bytes and files, as lower-case hex. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/status.h"

enum { DIGEST_HEX = 65 }; /* 64 digits and a zero */

MUST_USE status digest_file(const char *path, char hex[DIGEST_HEX], error *err);
MUST_USE status digest_bytes(const void *data, size_t n, char hex[DIGEST_HEX], error *err);

#endif
