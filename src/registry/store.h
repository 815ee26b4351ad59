/* store.h: models on this machine under names.
 *
 * The store is a folder (CHURON_HOME, else $XDG_DATA_HOME/churon, else ~/.local/share/churon):
 *   models/NAME/VERSION/FILE...       the model's files
 *   models/NAME/VERSION/origin.json   where they came from, their sizes and digests
 *   models/NAME/@ALIAS                a version's name in one line; pull sets @latest
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
    char digest[DIGEST_HEX]; /* of the model's (first) file */
    uint64_t bytes;          /* of all its files */
    int64_t added;           /* seconds since 1970 */
    str path;                /* of its (first) file */
    str source;              /* as it was given to pull */
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

/* SHA-256 of the model file at `path`: as recorded if it is a file of the store whose size and time are those
 * recorded (no byte is read), computed otherwise. */
MUST_USE status store_digest(const char *path, char hex[DIGEST_HEX], error *err);

#endif
