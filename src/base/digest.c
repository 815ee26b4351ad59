/* digest.c: see digest.h. */
#include "base/digest.h"

#include "base/file.h"

#include <openssl/evp.h>
#include <stdio.h>

status digest_bytes(const void *data, size_t n, char hex[DIGEST_HEX], error *err) {
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    if (EVP_Digest(data, n, sum, &len, EVP_sha256(), NULL) != 1 || len != 32) {
        return error_set(err, CHURON_INTERNAL, "sha256: the library refused");
    }
    for (unsigned i = 0; i < len; i++) snprintf(hex + (size_t)i * 2, 3, "%02x", sum[i]);
    return CHURON_OK;
}

status digest_file(const char *path, char hex[DIGEST_HEX], error *err) {
    file_map map;
    TRY(file_map_open(&map, path, err));
    status st = digest_bytes(map.data ? map.data : (const uint8_t *)"", map.size, hex, err);
    file_map_close(&map);
    return st;
}
