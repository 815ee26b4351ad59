/* store.h: models on this machine under names.
 *
 * The store is a folder (CHURON_HOME, else $XDG_DATA_HOME/churon, else ~/.local/share/churon):
 *   models/NAME/VERSION/FILE...       the model's files
 *   models/NAME/VERSION/origin.json   where they came from, their sizes and digests
 *   models/NAME/@ALIAS                a version's name in one line; pull and add set @latest
 *   partial/                          downloads that are not complete
 * A version's folder appears whole, by one rename, and is never changed afterwards. Names, versions and
 * aliases are 1 to 100 of [A-Za-z0-9._-] and begin with a letter or digit, so none leaves the folder.
 *
 * Errors name the field MODEL, NAME, VERSION or ALIAS. Any thread; no state is kept. */
#ifndef REGISTRY_STORE_H
#define REGISTRY_STORE_H

#include "base/digest.h"
#include "base/str.h"

enum { STORE_NAME_MAX = 100 };

/* NAME, NAME:VERSION or NAME@ALIAS; version and alias are "" where not given. */
typedef struct store_ref {
    char name[STORE_NAME_MAX + 1], version[STORE_NAME_MAX + 1], alias[STORE_NAME_MAX + 1];
} store_ref;

/* One stored version. Zero-initialise, free with store_entry_free. */
typedef struct store_entry {
    char name[STORE_NAME_MAX + 1], version[STORE_NAME_MAX + 1];
    char digest[DIGEST_HEX];      /* of the whole: a file's own, a bundle's as files.h says */
    char file_digest[DIGEST_HEX]; /* of the first file */
    bool folder;                  /* the model is the folder */
    bool several;                 /* digest is that of several files, of which path is the model's */
    uint64_t bytes;               /* of all its files */
    int64_t added;                /* seconds since 1970 */
    str path;                     /* of its (first) file, or of its folder */
    size_t folder_bytes;          /* of path: its version's folder */
    str source;                   /* as it was given to pull or add */
} store_entry;

void store_entry_free(store_entry *e);

typedef struct store_listing {
    store_entry *entries; /* by name, then by age, newest first */
    size_t n;
} store_listing;

/* Appends the store's folder to *out. Creates nothing. */
MUST_USE status store_home(str *out, error *err);

MUST_USE status store_ref_parse(store_ref *out, const char *text, error *err);

/* What MODEL means, for every command that takes one: appends a path to *path. In this order: an existing
 * file; a folder, if it was written with a slash or holds bundle.yaml or config.json; a name of the store.
 * CHURON_NOT_FOUND lists near matches and what there is. */
MUST_USE status store_resolve(const char *model, str *path, error *err);

/* The stored version that a reference means: the version, the alias, else @latest, else the newest. */
MUST_USE status store_find(const char *ref, store_entry *out, error *err);
MUST_USE status store_list(store_listing *out, error *err);
void store_listing_free(store_listing *l);

/* One version by its folder's name. */
MUST_USE status store_load(store_entry *out, const char *home, const char *name, const char *version,
                           error *err);

/* Appends the path of what `digest` is of: the folder of several files, or the one file. */
MUST_USE status store_content_path(const store_entry *e, str *path, error *err);

/* What identifies the model at `path`: of a file its SHA-256, of a folder or a pack the bundle's digest
 * (files.h). As recorded if it is a file of the store whose size and time are those recorded (no byte is
 * read), computed otherwise. */
MUST_USE status store_digest(const char *path, char hex[DIGEST_HEX], error *err);

/* CHURON_CORRUPT if `path` lies in a version of the store and `digest`, that of what lies there now, is not the
 * one that was registered. */
MUST_USE status store_check(const char *path, const char *digest, error *err);

/* Keeps gc from removing the version that the file or folder `path` belongs to, for as long as *lock is open;
 * any number of processes may hold one. *lock -1: `path` is not of the store, there is nothing to hold.
 * CHURON_NOT_FOUND: it was removed meanwhile; resolve again. Let go with store_release, or by ending. */
MUST_USE status store_hold(const char *path, int *lock, error *err);
void store_release(int lock);

#endif
