/* archive.h: one member out of a zip file or a gzip-compressed tar, from bytes in memory. Hostile input:
 * every offset and size is checked before it is used, and a member gives exactly the bytes that its header
 * declares (zip: with that checksum) or an error. Nothing is written to any path here. */
#ifndef REGISTRY_ARCHIVE_H
#define REGISTRY_ARCHIVE_H

#include "base/status.h"

typedef struct archive_member {
    const char *name; /* borrowed during the call; zero-terminated */
    uint64_t bytes;   /* as declared */
} archive_member;

/* What to do with a member. */
typedef enum archive_action { ARCHIVE_SKIP, ARCHIVE_TAKE, ARCHIVE_END } archive_action;

typedef struct archive_reader {
    void *user;
    /* Called for each regular file in the archive's order. ARCHIVE_END: look no further. */
    archive_action (*on_member)(void *user, const archive_member *m);
    /* Bytes of a taken member, in order. Not CHURON_OK ends the reading with that status. */
    status (*on_bytes)(void *user, const void *bytes, size_t n, error *err);
} archive_reader;

MUST_USE status zip_read(const uint8_t *data, size_t size, const archive_reader *r, error *err);
MUST_USE status tgz_read(const uint8_t *data, size_t size, const archive_reader *r, error *err);

#endif
