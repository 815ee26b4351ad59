/* audit.c: reading the log and checking its chain; checking contents. */
#include "registry/db.h"

#include "bundle/files.h"
#include "registry/origin.h"

#include <stdio.h>
#include <string.h>

/* ---- the log ---------------------------------------------------------------------------------------- */

/* What db_log hashed for this row; `before`: the hash of the entry before it. */
static status hash_of(const db_rows *row, const char *before, char hash[DIGEST_HEX], error *err) {
    str text = {0};
    str_fmt(&text, "%s\n%lld\n%lld\n%s\n%s\n%s\n%s", before, (long long)db_int(row, 0),
            (long long)db_int(row, 1), db_text(row, 2), db_text(row, 3), db_text(row, 4), db_text(row, 5));
    status st = str_check(&text, err);
    if (st == CHURON_OK) st = digest_bytes(text.data, text.len, hash, err);
    str_free(&text);
    return st;
}

static void put_entry(json_out *j, const db_rows *row) {
    json_out_object(j, NULL);
    json_out_int(j, "id", db_int(row, 0));
    json_out_int(j, "time", db_int(row, 1));
    json_out_cstr(j, "by", db_text(row, 2));
    json_out_cstr(j, "action", db_text(row, 3));
    json_out_cstr(j, "subject", db_text(row, 4));
    json_out_raw(j, "detail", db_text(row, 5), strlen(db_text(row, 5)));
    json_out_cstr(j, "hash", db_text(row, 6));
    json_out_end_object(j);
}

static bool is_about(const db_rows *row, const char *name) {
    size_t n = strlen(name);
    const char *subject = db_text(row, 4);
    return strncmp(subject, name, n) == 0 && (subject[n] == '\0' || subject[n] == ':');
}

status registry_audit(registry *r, bool check, const char *name, str *json, error *err) {
    db_rows rows;
    bool there = true;
    char head[DIGEST_HEX] = "", hash[DIGEST_HEX];
    int64_t next = 1;
    json_out j = json_out_begin(json);
    json_out_object(&j, NULL);
    json_out_array(&j, "entries");
    status st = db_query(r, &rows, err,
                         "SELECT id, time, actor, action, subject, detail, hash FROM audit ORDER BY id", "");
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        if (check) st = hash_of(&rows, head, hash, err);
        if (check && st == CHURON_OK && (db_int(&rows, 0) != next || strcmp(hash, db_text(&rows, 6)) != 0)) {
            st = error_set(err, CHURON_CORRUPT,
                           "audit: entry %lld: expected hash %s, got %.64s: the log was changed",
                           (long long)next, db_int(&rows, 0) == next ? hash : "of an entry that is gone",
                           db_text(&rows, 6));
        }
        snprintf(head, sizeof head, "%s", db_text(&rows, 6));
        next++;
        if (!name || is_about(&rows, name)) put_entry(&j, &rows);
    }
    db_close_rows(&rows);
    json_out_end_array(&j);
    json_out_int(&j, "count", next - 1);
    json_out_cstr(&j, "head", head);
    json_out_end_object(&j);
    return st == CHURON_OK ? str_check(json, err) : st;
}

/* ---- contents --------------------------------------------------------------------------------------- */

/* Compares one version with its rows; *fault says what differs ("" if nothing). */
static status check_version(registry *r, const version_row *v, str *fault, error *err) {
    str dir = {0};
    db_rows rows;
    bool there = true;
    char hex[DIGEST_HEX];
    status st =
        db_query(r, &rows, err, "SELECT path, sha256 FROM files WHERE version=? ORDER BY path", "i", v->id);
    while (st == CHURON_OK && there && !fault->len) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        str_clear(&dir);
        str_fmt(&dir, "%s/models/%s/%s/%s", str_cstr(&r->home), v->name, v->version, db_text(&rows, 0));
        st = str_check(&dir, err);
        error why;
        if (st != CHURON_OK) break;
        if (digest_file(str_cstr(&dir), hex, &why) != CHURON_OK) {
            str_cat(fault, why.message);
        } else if (strcmp(hex, db_text(&rows, 1)) != 0) {
            str_fmt(fault, "%s: sha256: expected %s, got %s", db_text(&rows, 0), db_text(&rows, 1), hex);
        }
    }
    db_close_rows(&rows);
    str_free(&dir);
    return st == CHURON_OK ? str_check(fault, err) : st;
}

static status check_one(registry *r, const char *ref, json_out *j, size_t *faults, error *err) {
    version_row v;
    str fault = {0};
    TRY(db_version(r, ref, &v, err));
    if (v.removed) return CHURON_OK;
    status st = check_version(r, &v, &fault, err);
    json_out_object(j, NULL);
    json_out_cstr(j, "name", v.name);
    json_out_cstr(j, "version", v.version);
    json_out_cstr(j, "digest", v.digest);
    json_out_bool(j, "ok", !fault.len);
    if (fault.len) json_out_cstr(j, "fault", str_cstr(&fault));
    json_out_end_object(j);
    if (st == CHURON_OK && fault.len && (*faults)++ == 0) {
        (void)error_set(err, CHURON_CORRUPT, "%s:%s: %s", v.name, v.version, str_cstr(&fault));
    }
    str_free(&fault);
    return st;
}

status registry_check(registry *r, const char *ref, str *json, error *err) {
    db_rows rows;
    bool there = true;
    size_t faults = 0;
    error first = {0};
    json_out j = json_out_begin(json);
    json_out_object(&j, NULL);
    json_out_array(&j, "versions");
    status st = CHURON_OK;
    if (ref) {
        st = check_one(r, ref, &j, &faults, &first);
    } else {
        st = db_query(r, &rows, &first,
                      "SELECT m.name || ':' || v.version FROM versions v JOIN models m ON m.id=v.model ORDER "
                      "BY m.name, v.id",
                      "");
        while (st == CHURON_OK && there) {
            st = db_next(&rows, &there, &first);
            if (st == CHURON_OK && there) st = check_one(r, db_text(&rows, 0), &j, &faults, &first);
        }
        db_close_rows(&rows);
    }
    json_out_end_array(&j);
    json_out_uint(&j, "faults", faults);
    json_out_end_object(&j);
    if (err) *err = first;
    if (st != CHURON_OK) return st;
    return faults ? CHURON_CORRUPT : str_check(json, err);
}
