/* encode.h: bytes as base64 text. */
#ifndef PIPELINE_ENCODE_H
#define PIPELINE_ENCODE_H

#include "base/str.h"

void base64_encode(const void *bytes, size_t n, str *out);
/* Appends the bytes. False if a character is none of base64's, or padding is wrong. */
bool base64_decode(const char *text, size_t n, str *out);

#endif
