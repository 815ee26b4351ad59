/* registry.h: which versions of a model there are, who approved them, and which one answers.
 *
 * A registry is a store's folder (store.h) with a database beside the models:
 *   registry.db      SQLite: models, versions, aliases with history, stages, approvals, lineage, rights,
 * audit log blobs/ab/HEX     each content once, read-only; the files of models/NAME/VERSION are further names
 * of them index.json       what `--home http://…` reads; written after every change Versions are immutable:
 * of the database too, by triggers. Stages, approvals, aliases and the log only grow. The database is what
 * holds; the alias files of the store follow it, and a version's folder is renamed into place within the
 * transaction that names it. Whatever ends a process, at the next opening for writing the folders that the
 * database does not know yet (of `pull`, of an older store) are taken in and the alias files set right.
 *
 * Two processes at once are safe: one writes, others wait up to 10 s (then CHURON_BUSY). Readers never wait.
 * A registry object belongs to one thread at a time.
 *
 * Errors: CHURON_INVALID (a name, a rule that forbids it; the message says which), CHURON_NOT_FOUND,
 * CHURON_LIMIT (the disk is full), CHURON_IO (a read-only folder and the like), CHURON_BUSY, CHURON_CORRUPT.
 * After an error nothing of the call has happened. */
#ifndef REGISTRY_REGISTRY_H
#define REGISTRY_REGISTRY_H

#include "registry/store.h"

typedef struct registry registry;

typedef struct registry_options {
    const char *home;  /* NULL: as store_home says */
    const char *actor; /* who does it; NULL: CHURON_USER, else the name of the user of this process */
    bool write;        /* false: nothing is created or changed */
} registry_options;

/* Without a database and without the right to make one, a reader gets what the folders say. */
MUST_USE status registry_open(registry **out, const registry_options *o, error *err);
void registry_close(registry *r);
const char *registry_home(const registry *r);
const char *registry_actor(const registry *r);

/* ---- versions --------------------------------------------------------------------------------------- */

/* What whoever registers a version may find out about it first. `path` is the folder or file that will be
 * placed. Anything but CHURON_OK refuses the version. *result: a short text for the record (may stay empty).
 */
typedef status (*registry_verify_fn)(void *user, const char *path, str *result, error *err);

typedef struct registry_add_options {
    const char *name;    /* NULL: a bundle's own, else from the source's name */
    const char *version; /* NULL: one more than the highest number */
    const char *source;  /* where it came from; NULL: the path */
    const char *notes;   /* NULL: none */
    const char *licence; /* NULL: not said */
    const char *owner;   /* of a new model; NULL: the actor */
    /* Of a folder: the file that is the model, the others are its company. NULL: the only .onnx or .gguf (or
     * the first part of one) of a folder without bundle.yaml and config.json; else the folder as a whole is
     * the model. */
    const char *main;
    const char *derived_from, *quantized_from, *trained_on; /* lineage: NAME:VERSION or any text; NULL */
    registry_verify_fn verify;
    void *user;
} registry_add_options;

typedef struct registry_added {
    store_entry entry; /* free with store_entry_free */
    bool already;      /* the version asked for, else the newest, has this content: nothing was added */
} registry_added;

/* A bundle's folder, a .churon pack, a model file or a Hugging Face folder. Contents are copied: what happens
 * to the source afterwards does not matter. `o` may be NULL. */
MUST_USE status registry_add(registry *r, const char *source, const registry_add_options *o,
                             registry_added *out, error *err);

/* Takes in what lies in the store and is not known yet; registry_open with `write` does so too. */
MUST_USE status registry_adopt(registry *r, error *err);
/* The number that the next version of this name gets. */
MUST_USE status registry_next_version(registry *r, const char *name, char version[STORE_NAME_MAX + 1],
                                      error *err);

/* Answers as one JSON object each, appended to *json. */
MUST_USE status registry_list(registry *r, const char *name, str *json, error *err); /* name NULL: all */
MUST_USE status registry_show(registry *r, const char *ref, str *json, error *err);
MUST_USE status registry_lineage(registry *r, const char *ref, str *json, error *err);

/* Is each version's content still what was registered? Reads every byte. CHURON_CORRUPT if one is not; *json
 * lists all faults. ref NULL: all versions. */
MUST_USE status registry_check(registry *r, const char *ref, str *json, error *err);

/* ---- aliases, stages, approval ---------------------------------------------------------------------- */

/* NAME@ALIAS points to `version` from now on ("": the alias is removed). Refused: a version that was rejected
 * or is archived; for `champion` one that was not approved. */
MUST_USE status registry_alias(registry *r, const char *name, const char *alias, const char *version,
                               const char *reason, error *err);
/* The alias (NULL: champion if the model has it, else latest) goes back to the version that it had before its
 * present one and that is still there. Rolling back again goes further back. */
MUST_USE status registry_rollback(registry *r, const char *name, const char *alias, const char *reason,
                                  char version[STORE_NAME_MAX + 1], error *err);
/* draft, staging, production or archived. production needs an approval; archived is refused while an alias
 * (other than latest) points to it. */
MUST_USE status registry_stage(registry *r, const char *ref, const char *stage, const char *reason,
                               error *err);
/* By somebody other than the author of the version. A later verdict replaces an earlier one. A version to
 * which an alias (other than latest) points is not rejected: rolling back comes first. */
MUST_USE status registry_approve(registry *r, const char *ref, bool approve, const char *reason, error *err);
MUST_USE status registry_set_owner(registry *r, const char *name, const char *owner, error *err);

/* ---- lineage ---------------------------------------------------------------------------------------- */

/* relation: derived_from, quantized_from or trained_on. A target that is a version of this registry is
 * pinned: gc keeps it. */
MUST_USE status registry_link(registry *r, const char *ref, const char *relation, const char *target,
                              const char *note, error *err);
/* "This version was verified, here, with that result." */
MUST_USE status registry_verified(registry *r, const char *ref, bool ok, const char *result, error *err);

/* ---- rights ----------------------------------------------------------------------------------------- */

/* call: be answered; read: have the files; write: add versions; promote: approvals, stages, aliases; admin:
 * owner, grants, retention, removal. None contains another. A model without any grant is open to all; its
 * owner has every right. Subject "*" is everybody. The folder's own permissions are what keeps others out;
 * these rights are what the program and its servers keep. */
MUST_USE status registry_grant(registry *r, const char *name, const char *subject, const char *right,
                               bool grant, error *err);
MUST_USE status registry_allowed(registry *r, const char *name, const char *subject, const char *right,
                                 bool *allowed, error *err);

/* ---- retention -------------------------------------------------------------------------------------- */

typedef struct registry_gc_options {
    bool dry_run;
    int64_t keep_last; /* -1: as the model's rule says */
    int64_t keep_days; /* -1: as the model's rule says */
} registry_gc_options;

/* A rule for one model; -1 takes it away. With keep_last and keep_days both stay. */
MUST_USE status registry_retain(registry *r, const char *name, int64_t keep_last, int64_t keep_days,
                                error *err);
/* Removes versions beyond the rules, then contents that no version has and what broken runs left. Never what
 * an alias, a stage of staging or production, or the lineage of a version that stays points to, nor what is
 * held (store_hold). A removed version's record stays, and its number is not used again. */
MUST_USE status registry_gc(registry *r, const registry_gc_options *o, str *json, error *err);

/* ---- audit ------------------------------------------------------------------------------------------ */

/* The log, newest last. Each entry holds the SHA-256 of itself and the one before. With `check`:
 * CHURON_CORRUPT if an entry was changed or taken out. Its head is printed, so that it can be kept elsewhere.
 */
MUST_USE status registry_audit(registry *r, bool check, const char *name, str *json, error *err);

/* ---- signatures ------------------------------------------------------------------------------------- */

MUST_USE status registry_sign(registry *r, const char *ref, const char *key_path, char key_id[17],
                              error *err);

#endif
