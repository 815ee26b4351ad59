/* place.h: the parts of taking a version in that adding, adopting and importing share. Only the registry
 * includes this. */
#ifndef REGISTRY_PLACE_H
#define REGISTRY_PLACE_H

#include "bundle/files.h"
#include "registry/db.h"
#include "registry/origin.h"

/* Removes what ended processes left in partial/ (their locks are free). */
void place_clean_partial(const registry *r);

/* Gives the content at `own` (with this digest) the name blobs/ab/HEX and the name `to`, whose folders are
 * made. A blob that is there already is used; where the file system knows no further names, `own` is renamed.
 * *mtime_ns becomes that of `to`. */
MUST_USE status place_blob(const registry *r, const char *own, const char *digest, const char *to,
                           int64_t *mtime_ns, error *err);
/* The digest of what the record lists: no byte is read but a pack's table. `placed`: what the model is. */
MUST_USE status place_digest(const files *placed, const origin *record, char hex[DIGEST_HEX], error *err);
#define PLACE_MANIFEST "bundle.yaml"

/* CHURON_INVALID unless a model could be in it: a pack, an .onnx or .gguf file (or one that begins with
 * GGUF), a folder with one of those, bundle.yaml or config.json. */
MUST_USE status place_check_model(const files *f, error *err);
/* The file of a folder that is the model by itself (registry_add_options.main), or NULL. */
const char *place_main(const files *folder);
MUST_USE status place_sync_tree(const char *folder, error *err);

/* Within a transaction: the rows of a new version, @latest, the log. `owner`, `licence` may be NULL. */
MUST_USE status place_rows(registry *r, const char *name, const char *version, const char *kind,
                           const origin *record, const char *owner, const char *licence, error *err);
/* Renames a finished folder to models/NAME/VERSION. */
MUST_USE status place_folder(const registry *r, const char *done, const char *name, const char *version,
                             error *err);
/* And back, when the transaction failed after it. */
void place_folder_back(const registry *r, const char *done, const char *name, const char *version);
/* Within a transaction. */
MUST_USE status place_link(registry *r, const char *ref, const char *relation, const char *target,
                           const char *note, error *err);
MUST_USE status place_alias(registry *r, int64_t model, const char *alias, int64_t version,
                            const char *reason, bool back, error *err);

/* A name made of a path's last step, in the characters of names. */
void place_name_from(const char *path, bool is_folder, char name[STORE_NAME_MAX + 1]);

#endif
