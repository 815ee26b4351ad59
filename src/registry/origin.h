/* origin.h: origin.json, the record of where a stored version came from. Only the registry reads and writes
 * it: {"source", "added", "kind", "digest", "author", "notes", "files": [{"name", "bytes", "mtime_ns",
 * "sha256"}]}, the model's first file first. kind, digest, author and notes may be absent (`pull` writes
 * none). */
#ifndef REGISTRY_ORIGIN_H
#define REGISTRY_ORIGIN_H

#include "base/digest.h"
#include "base/str.h"

enum { ORIGIN_MAX_FILES = 65536, ORIGIN_MAX_NAME = 1024 };

typedef struct origin_file {
    char name[ORIGIN_MAX_NAME + 1]; /* a path in the version's folder, as files_path_ok allows */
    uint64_t bytes;
    int64_t mtime_ns;
    char digest[DIGEST_HEX];
} origin_file;

/* Zero-initialise, free with origin_free. */
typedef struct origin {
    str source;
    int64_t added;           /* seconds since 1970 */
    bool folder;             /* kind "folder": the model is all files together */
    char digest[DIGEST_HEX]; /* of the whole; "": that of the first file */
    str author, notes;
    origin_file *files;
    size_t n_files;
} origin;

void origin_free(origin *o);

/* Adds a file after those that are there. */
MUST_USE status origin_add(origin *o, const origin_file *file, error *err);

/* Folder `dir` holds origin.json. Reading checks every field; writing is synchronous (fsync). */
MUST_USE status origin_read(origin *out, const char *dir, error *err);
MUST_USE status origin_write(const origin *o, const char *dir, error *err);

/* May this be the name of a file that is pulled? No slash, no control character, no leading dot, not
 * origin.json, at most 255 bytes. */
bool origin_name_ok(const char *name, size_t n);

#endif
