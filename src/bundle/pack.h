/* pack.h: one .churon file: a bundle's files behind one table, placed so that models are mapped where they
 * lie.
 *
 * Layout, little-endian, version 1. No times, owners or modes: the same content gives the same bytes.
 *    0  "CHURONPK"
 *    8  u32 version, u32 entries
 *   16  u64 bytes of the table, u64 bytes of the whole file
 *   32  the bundle's digest, 32 bytes (files.h says of what)
 *   64  table: one record of 64 bytes an entry, in byte order of paths, then the paths, each with a zero
 *        0  u64 offset, u64 stored bytes, u64 bytes of the content
 *       24  SHA-256 of the content, 32 bytes
 *       56  u32 where its path begins behind the records, u16 bytes of the path, u8 method, u8 zero
 *   the entries' data in the same order, each on the next multiple of 4096, zeros between; the file ends with
 *   the last one.
 * Method 0: as it is; 1: one zstd frame. A reader takes nothing that another writer would have laid out
 * differently: so no two entries can overlap, and nothing can hide between or behind them.
 *
 * Use files.h to read a pack; this is what it is made of. */
#ifndef BUNDLE_PACK_H
#define BUNDLE_PACK_H

#include "bundle/files.h"

enum { PACK_HEADER = 64, PACK_RECORD = 64, PACK_ALIGN = 4096, PACK_VERSION = 1 };

typedef enum pack_method { PACK_RAW = 0, PACK_ZSTD = 1 } pack_method;

typedef struct pack_entry {
    files_entry file;
    uint64_t offset, stored;
    pack_method method;
} pack_entry;

/* Borrows the bytes that it was opened on. Immutable; any thread. */
typedef struct pack {
    const uint8_t *data;
    size_t size;
    pack_entry *entries; /* [n], in byte order of paths */
    size_t n;
    char digest[DIGEST_HEX];
} pack;

/* Does the file begin like a pack? */
bool pack_has_magic(const void *data, size_t n);

/* Checks header and table completely (not the entries' bytes): CHURON_CORRUPT names the field, what was
 * expected and what came; CHURON_UNSUPPORTED: a later version. */
MUST_USE status pack_open(pack *out, const void *data, size_t size, error *err);
void pack_close(pack *p);
/* NULL: there is none. */
const pack_entry *pack_find(const pack *p, const char *path);
/* The content of one entry: a slice of the pack (*heap NULL), or new memory (*heap, freed with mem_free). */
MUST_USE status pack_content(const pack *p, const pack_entry *e, const uint8_t **data, void **heap,
                             error *err);
/* Every byte: contents against their digests, zeros between. */
MUST_USE status pack_verify(const pack *p, error *err);

typedef struct pack_options {
    bool zstd; /* compress what is no model and becomes at least an eighth smaller */
} pack_options;

typedef struct pack_result {
    char digest[DIGEST_HEX];
    uint64_t bytes; /* of the file */
    size_t entries;
} pack_result;

/* Writes a pack of these files to `path`: whole, by rename, synchronised; without space or after any other
 * error nothing is left and a file that was there is untouched. `o` may be NULL. */
MUST_USE status pack_write(const files *from, const char *path, const pack_options *o, pack_result *out,
                           error *err);

/* Writes every entry below the folder, which is made and must be empty or absent. Each is compared with its
 * digest first. */
MUST_USE status pack_extract(const files *from, const char *folder, error *err);

#endif
