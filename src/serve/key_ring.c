/* key_ring.c: see key_ring.h. */
#include "serve/key_ring.h"

#include "base/digest.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

struct key_ring {
    size_t n;
    char digests[][DIGEST_HEX];
};

status key_ring_create(key_ring **out, const api_key *keys, size_t n, error *err) {
    *out = NULL;
    key_ring *r = mem_calloc(1, sizeof *r + n * sizeof r->digests[0]);
    if (!r) return error_no_memory(err, "keys", n);
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        const status st = digest_bytes(keys[i].key, strlen(keys[i].key), r->digests[i], err);
        if (st != CHURON_OK) {
            mem_free(r);
            return st;
        }
    }
    *out = r;
    return CHURON_OK;
}

void key_ring_free(key_ring *r) {
    mem_free(r);
}

size_t key_ring_find(const key_ring *r, const char *authorization) {
    char digest[DIGEST_HEX] = "";
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) return SIZE_MAX;
    if (digest_bytes(authorization + 7, strlen(authorization + 7), digest, NULL) != CHURON_OK)
        return SIZE_MAX;
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < r->n; i++) {
        const bool same = CRYPTO_memcmp(digest, r->digests[i], DIGEST_HEX) == 0;
        found = same ? i : found;
    }
    return found;
}

bool key_ring_knows(const key_ring *r, const char *authorization) {
    return key_ring_find(r, authorization) != SIZE_MAX;
}
