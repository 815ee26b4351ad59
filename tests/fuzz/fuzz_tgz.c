/* fuzz_tgz.c: any bytes as a gzip-compressed tar: an error or exactly the declared bytes of every member. */
#include "registry/pull/archive.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct totals {
    uint64_t declared, got;
} totals;

static archive_action on_member(void *user, const archive_member *m) {
    totals *t = user;
    if (m->bytes > 1 << 20) return ARCHIVE_SKIP;
    t->declared += m->bytes;
    return ARCHIVE_TAKE;
}

static status on_bytes(void *user, const void *bytes, size_t n, error *err) {
    totals *t = user;
    (void)err;
    t->got += n + (n > 0 && ((const uint8_t *)bytes)[n - 1] == 0 ? 0 : 0); /* touches the last byte */
    return CHURON_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    totals t = {0};
    error err;
    status st = tgz_read(data, size,
                         &(archive_reader){.user = &t, .on_member = on_member, .on_bytes = on_bytes}, &err);
    if (st == CHURON_OK && t.declared != t.got) abort();
    return 0;
}
