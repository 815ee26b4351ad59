/* fuzz_pack.c: any bytes as a pack: an error, or a table whose entries lie inside the bytes, sorted and
 * apart. A second reading takes the bytes with the digest made right, so that what comes after it is reached
 * too. */
#include "base/mem.h"
#include "bundle/pack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_entries(const pack *p) {
    error err;
    uint64_t end = PACK_HEADER;
    for (size_t i = 0; i < p->n; i++) {
        const pack_entry *e = &p->entries[i];
        const uint8_t *bytes;
        void *heap;
        if (e->offset < end || e->stored > p->size || e->offset > p->size - e->stored) abort();
        end = e->offset + e->stored;
        if (pack_find(p, e->file.path) != e) abort();
        if (e->file.size > 1 << 22 || pack_content(p, e, &bytes, &heap, &err) != CHURON_OK) continue;
        if (e->file.size && bytes[0] + bytes[e->file.size - 1] < 0) abort(); /* touches both ends */
        mem_free(heap);
    }
    status st = p->size < 1 << 22 ? pack_verify(p, &err) : CHURON_OK;
    if (st != CHURON_OK && st != CHURON_CORRUPT && st != CHURON_NO_MEMORY) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pack p;
    error err;
    if (pack_open(&p, data, size, &err) == CHURON_OK) {
        read_entries(&p);
        pack_close(&p);
        return 0;
    }
    /* The message of a wrong digest begins with the right one. */
    const char *expected = strstr(err.message, "digest: expected ");
    if (!expected || size < PACK_HEADER) return 0;
    uint8_t *right = malloc(size);
    if (!right) return 0;
    memcpy(right, data, size);
    digest_from_hex(expected + strlen("digest: expected "), right + 32);
    if (pack_open(&p, right, size, &err) == CHURON_OK) {
        read_entries(&p);
        pack_close(&p);
    }
    free(right);
    return 0;
}
