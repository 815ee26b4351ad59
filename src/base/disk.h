/* disk.h: files that grow and folders. Errors name the path and, without space, what is free; status
 * CHURON_LIMIT means that the disk (or a quota, or a file size limit) is full. */
#ifndef BASE_DISK_H
#define BASE_DISK_H

#include "base/status.h"

/* An open file that grows; errors name the path and, without space, what is free. */
typedef struct sink {
    int fd; /* -1: closed */
    const char *path;
    uint64_t bytes;
} sink;

MUST_USE status sink_open(sink *s, const char *path, bool append, error *err);
MUST_USE status sink_write(sink *s, const void *bytes, size_t n, error *err);
MUST_USE status sink_close(sink *s, error *err); /* after fsync */
void sink_drop(sink *s);                         /* closes without a promise; a closed one is left alone */
/* CHURON_LIMIT unless `bytes` more fit on the disk of folder `dir`. */
MUST_USE status disk_has_room(const char *dir, uint64_t bytes, error *err);

MUST_USE status dir_make(const char *path, error *err); /* with those above it */
void dir_remove(const char *path);                      /* with everything in it */
uint64_t dir_bytes(const char *path);                   /* of the files below it */
/* Makes what was created or renamed in the folder last through a power cut. */
MUST_USE status dir_sync(const char *path, error *err);

#endif
