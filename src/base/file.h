/* file.h: files as read-only memory maps and whole reads. Nothing here interprets a byte. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/status.h"
#include "base/str.h"

/* A read-only mapping. Immutable after open; any thread may read. The pages belong to the kernel's page
 * cache. A file that shrinks while it is mapped raises SIGBUS in its reader, as with any mapping. */
typedef struct file_map {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
} file_map;

/* Refuses what is not a regular file; the error names the path and the system's reason. */
MUST_USE status file_map_open(file_map *out, const char *path, error *err);
/* The same of `size` bytes from `offset` on, a multiple of the page size (4096), which must lie in the file.
 */
MUST_USE status file_map_open_part(file_map *out, const char *path, uint64_t offset, uint64_t size,
                                   error *err);
void file_map_close(file_map *map);
/* Tells the kernel that bytes [offset, offset+len) will not be read again soon (resident memory goes down,
 * the page cache keeps them). */
void file_map_drop(const file_map *map, size_t offset, size_t len);
/* The same of `len` bytes from an address on; outside the mapping nothing happens. */
void file_map_drop_at(const file_map *map, const void *at, size_t len);

/* Appends the whole file to *out; over `max_bytes` the status is CHURON_LIMIT. Path "-" reads stdin. */
MUST_USE status file_read(str *out, const char *path, size_t max_bytes, error *err);
bool file_exists(const char *path);
bool file_is_dir(const char *path);

#endif
