/* digest.c: see digest.h. */
#include "base/digest.h"

#include "base/file.h"

#include <openssl/evp.h>
#include <string.h>

void digest_to_hex(const uint8_t raw[DIGEST_BYTES], char hex[DIGEST_HEX]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[DIGEST_HEX - 1] = '\0';
}

static unsigned digit(char c) {
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    return (unsigned)((c | 0x20) - 'a' + 10) & 15u;
}

void digest_from_hex(const char *hex, uint8_t raw[DIGEST_BYTES]) {
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        raw[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    }
}

status digest_parse(const char *text, char hex[DIGEST_HEX], error *err) {
    size_t n = strlen(text);
    if (n != DIGEST_HEX - 1) {
        return error_set(err, CHURON_INVALID, "sha256: expected 64 hexadecimal digits, got %zu characters",
                         n);
    }
    for (size_t i = 0; i <= n; i++) {
        char c = text[i];
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        if (c && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
            return error_set(err, CHURON_INVALID, "sha256: expected hexadecimal digits, got \"%.64s\"", text);
        }
        hex[i] = c;
    }
    return CHURON_OK;
}

static status refused(error *err) {
    return error_set(err, CHURON_INTERNAL, "sha256: the library refused");
}

status digest_begin(digest_state *d, error *err) {
    *d = (digest_state){.context = EVP_MD_CTX_new()};
    if (!d->context) return error_no_memory(err, "sha256", 128);
    if (EVP_DigestInit_ex(d->context, EVP_sha256(), NULL) == 1) return CHURON_OK;
    digest_drop(d);
    return refused(err);
}

void digest_add(digest_state *d, const void *data, size_t n) {
    if (n && EVP_DigestUpdate(d->context, data, n) != 1) d->failed = true;
}

status digest_end(digest_state *d, char hex[DIGEST_HEX], error *err) {
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    bool ok = !d->failed && EVP_DigestFinal_ex(d->context, sum, &len) == 1 && len == DIGEST_BYTES;
    digest_drop(d);
    if (!ok) return refused(err);
    digest_to_hex(sum, hex);
    return CHURON_OK;
}

void digest_drop(digest_state *d) {
    EVP_MD_CTX_free(d->context);
    *d = (digest_state){0};
}

status digest_bytes(const void *data, size_t n, char hex[DIGEST_HEX], error *err) {
    digest_state d;
    TRY(digest_begin(&d, err));
    digest_add(&d, data, n);
    return digest_end(&d, hex, err);
}

status digest_file(const char *path, char hex[DIGEST_HEX], error *err) {
    const size_t piece = 4 << 20; /* bytes of the file that are in memory at once */
    file_map map;
    digest_state d;
    TRY(file_map_open(&map, path, err));
    status st = digest_begin(&d, err);
    for (size_t at = 0; at < map.size && st == CHURON_OK; at += piece) {
        const size_t n = map.size - at < piece ? map.size - at : piece;
        digest_add(&d, map.data + at, n);
        file_map_drop(&map, at, n);
    }
    if (st == CHURON_OK) st = digest_end(&d, hex, err);
    file_map_close(&map);
    return st;
}
