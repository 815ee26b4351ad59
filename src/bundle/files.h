/* files.h: what a bundle consists of, whatever form it has: a folder, a .churon pack, or one bare model file
 * (which is then the only entry, under its own name).
 *
 * Paths are relative, with '/' between steps, UTF-8, and never leave the bundle: files_path_ok says which are
 * names at all; in a folder every step is opened by itself without following symbolic links, and what is
 * neither a folder nor a regular file is refused when the folder is opened. Left out, at every level: names
 * that begin with a dot; at the top: origin.json (the store's record).
 *
 * The digest of a bundle is the SHA-256 of what `sha256sum` prints for its files in byte order of their paths
 * ("HEX  PATH\n" each), so a folder and its pack have the same one; of a bare file it is the file's own
 * SHA-256. `files` is immutable after opening; any thread may use it; views and entries live until
 * files_close.
 *
 * Errors: CHURON_NOT_FOUND (no such file), CHURON_INVALID (a path or kind of file that is refused),
 * CHURON_CORRUPT (a pack whose table or bytes lie), CHURON_LIMIT, CHURON_IO, CHURON_NO_MEMORY. */
#ifndef BUNDLE_FILES_H
#define BUNDLE_FILES_H

#include "base/digest.h"
#include "base/file.h"

enum {
    FILES_MAX = 65536,     /* entries */
    FILES_PATH_MAX = 1024, /* bytes of a path */
    FILES_STEP_MAX = 255,  /* bytes of one of its steps */
    FILES_DEPTH_MAX = 32,  /* steps */
};

typedef enum files_kind { FILES_FOLDER, FILES_PACK, FILES_SINGLE } files_kind;

typedef struct files files;

typedef struct files_entry {
    const char *path;        /* zero-terminated */
    uint64_t size;           /* of the content */
    char digest[DIGEST_HEX]; /* of a pack's entry; "" where nothing was read yet */
} files_entry;

/* The bytes of one entry. Release with files_unmap; `data` is not NULL, also when size is 0. */
typedef struct files_view {
    const uint8_t *data;
    size_t size;
    file_map map; /* own mapping of a folder's file */
    void *heap;   /* own memory of a compressed entry */
} files_view;

MUST_USE status files_open(files **out, const char *path, error *err);
void files_close(files *f); /* NULL is allowed */

files_kind files_kind_of(const files *f);
const char *files_path_of(const files *f); /* as it was given */
size_t files_count(const files *f);
const files_entry *files_at(const files *f, size_t i);           /* in byte order of paths */
const files_entry *files_find(const files *f, const char *path); /* NULL: there is none */

/* Maps an entry: of a folder the file itself, of a pack a slice of it that begins on a multiple of 4096
 * bytes; a compressed entry is unpacked into memory. Nothing is compared with a digest here (files_verify
 * does), but a compressed entry gives exactly its declared bytes or an error. */
MUST_USE status files_map(const files *f, const char *path, files_view *out, error *err);
void files_unmap(files_view *v);
/* Appends a small entry to *out; CHURON_LIMIT if it has more than max_bytes. */
MUST_USE status files_read(const files *f, const char *path, size_t max_bytes, str *out, error *err);
/* Where the bytes lie: appends the path of a file of the system and says at which offset of it. For what
 * opens files by itself; CHURON_UNSUPPORTED for a compressed entry. */
MUST_USE status files_locate(const files *f, const char *path, str *file, uint64_t *offset, error *err);

/* The digest of the whole; of a pack as its table says (see files_verify). For a folder and a bare file every
 * byte is read once and the result remembered as in files_verify. */
MUST_USE status files_digest(const files *f, char hex[DIGEST_HEX], error *err);

/* Reads every byte and compares it with the table of the pack; CHURON_CORRUPT names the first entry that
 * differs. Done once: what was good is remembered in the folder verified/ of the store under device, inode,
 * size and both times of the file, and then not read again (`fresh`: read it all the same). For a folder or a
 * bare file there is nothing to compare with. Where the store cannot be written nothing is remembered. */
MUST_USE status files_verify(const files *f, bool fresh, error *err);

/* May this be the path of an entry? Otherwise *expected says in a few words what would be. */
bool files_path_ok(const char *path, size_t n, const char **expected);

#endif
