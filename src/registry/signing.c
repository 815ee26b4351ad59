/* signing.c: a registered version's signature, in the database and beside its files. */
#include "base/clock.h"
#include "bundle/sign.h"
#include "registry/db.h"

#include <stdio.h>
#include <string.h>

/* The files of the version must be what was registered: nobody signs something else by accident. */
static status sign_stored(registry *r, const version_row *v, const char *key_path, char key_id[SIGN_ID],
                          char signature[SIGN_TEXT], error *err) {
    store_entry e;
    files *f = NULL;
    char digest[DIGEST_HEX];
    TRY(store_load(&e, str_cstr(&r->home), v->name, v->version, err));
    str path = {0};
    status st = store_content_path(&e, &path, err);
    if (st == CHURON_OK) st = files_open(&f, str_cstr(&path), err);
    if (st == CHURON_OK) st = files_verify(f, false, err);
    if (st == CHURON_OK) st = files_digest(f, digest, err);
    if (st == CHURON_OK && strcmp(digest, v->digest) != 0) {
        st = error_set(err, CHURON_CORRUPT, "%s:%s: digest: expected %s (registered), got %s", v->name,
                       v->version, v->digest, digest);
    }
    if (st == CHURON_OK) st = sign_digest(key_path, digest, key_id, signature, err);
    if (st == CHURON_OK) st = sign_files(f, key_path, key_id, err);
    files_close(f);
    str_free(&path);
    store_entry_free(&e);
    return st;
}

static status write_signature(registry *r, const char *ref, const char *key_path, char key_id[SIGN_ID],
                              error *err) {
    version_row v;
    char signature[SIGN_TEXT], subject[2 * STORE_NAME_MAX + 2];
    str detail = {0};
    TRY(db_version(r, ref, &v, err));
    if (v.removed)
        return error_set(err, CHURON_INVALID,
                         "VERSION: expected one that is there, got %s, which was removed", ref);
    TRY(sign_stored(r, &v, key_path, key_id, signature, err));
    TRY(db_run(r, err,
               "INSERT OR IGNORE INTO signatures(version, key_id, signature, time, actor) VALUES(?,?,?,?,?)",
               "issis", v.id, key_id, signature, clock_unix(), r->actor));
    snprintf(subject, sizeof subject, "%s:%s", v.name, v.version);
    json_out j = json_out_begin(&detail);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "key", key_id);
    json_out_cstr(&j, "digest", v.digest);
    json_out_end_object(&j);
    status st = db_log(r, "sign", subject, &detail, err);
    str_free(&detail);
    return st;
}

status registry_sign(registry *r, const char *ref, const char *key_path, char key_id[17], error *err) {
    TRY(db_begin(r, err));
    TRY(db_end(r, write_signature(r, ref, key_path, key_id, err), err));
    return db_project(r, err);
}
