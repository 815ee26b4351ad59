/* files_part.h: what files.c and the pack's reader and writer share. */
#ifndef BUNDLE_FILES_PART_H
#define BUNDLE_FILES_PART_H

#include "bundle/pack.h"

#include <sys/stat.h>

struct files {
    files_kind kind;
    str path;             /* as given */
    int dir;              /* FILES_FOLDER: the folder; else -1 */
    struct stat info;     /* FILES_PACK, FILES_SINGLE: the file when it was opened */
    file_map map;         /* FILES_PACK, FILES_SINGLE */
    pack pack;            /* FILES_PACK */
    files_entry *entries; /* [n] of the others; their paths are owned */
    size_t n;
};

/* Checks a sorted list of paths: no two that differ only in case or composition (one of them would disappear
 * on some file systems), none that is the folder of another. */
MUST_USE status files_check_names(const char *const *paths, size_t n, error *err);

/* The bundle's digest from its entries, each with a digest. at(user, i) gives them in order. */
MUST_USE status files_digest_of(const files_entry *(*at)(const void *user, size_t i), const void *user,
                                size_t n, char hex[DIGEST_HEX], error *err);

#endif
