/* versions.c: what is meant by a reference, and what there is: list, show. See registry.h and db.h. */
#include "registry/db.h"

#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- references ------------------------------------------------------------------------------------- */

status db_model(registry *r, const char *name, int64_t *id, error *err) {
    bool there;
    TRY(db_check_word(name, "NAME", err));
    TRY(db_value(r, id, &there, err, "SELECT id FROM models WHERE name=?", "s", name));
    if (there) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "NAME: expected a model of the registry, got \"%.100s\"", name);
}

static void take(char *out, size_t room, const char *text) {
    snprintf(out, room, "%s", text);
}

static status fill(registry *r, int64_t id, version_row *out, bool *there, error *err) {
    db_rows rows;
    *there = false;
    status st =
        db_query(r, &rows, err,
                 "SELECT v.id, v.model, v.bytes, v.added, m.name, v.version, v.author, v.digest, v.kind,"
                 " EXISTS(SELECT 1 FROM removed x WHERE x.version=v.id)"
                 " FROM versions v JOIN models m ON m.id=v.model WHERE v.id=?",
                 "i", id);
    if (st == CHURON_OK) st = db_next(&rows, there, err);
    if (st == CHURON_OK && *there) {
        *out = (version_row){.id = db_int(&rows, 0),
                             .model = db_int(&rows, 1),
                             .bytes = db_int(&rows, 2),
                             .added = db_int(&rows, 3),
                             .removed = db_int(&rows, 9) != 0};
        take(out->name, sizeof out->name, db_text(&rows, 4));
        take(out->version, sizeof out->version, db_text(&rows, 5));
        take(out->author, sizeof out->author, db_text(&rows, 6));
        take(out->digest, sizeof out->digest, db_text(&rows, 7));
        take(out->kind, sizeof out->kind, db_text(&rows, 8));
    }
    db_close_rows(&rows);
    return st;
}

status db_version(registry *r, const char *text, version_row *out, error *err) {
    static const char by_number[] = "SELECT id FROM versions WHERE model=? AND version=?";
    static const char by_alias[] = "SELECT version FROM aliases WHERE model=? AND alias=?";
    static const char newest[] =
        "SELECT id FROM versions WHERE model=? AND id NOT IN (SELECT version FROM removed)"
        " ORDER BY added DESC, id DESC LIMIT 1";
    store_ref ref;
    int64_t model, id = 0;
    bool there;
    TRY(store_ref_parse(&ref, text, err));
    TRY(db_model(r, ref.name, &model, err));
    if (ref.version[0]) {
        TRY(db_value(r, &id, &there, err, by_number, "is", model, ref.version));
    } else {
        TRY(db_value(r, &id, &there, err, by_alias, "is", model, ref.alias[0] ? ref.alias : "latest"));
        if (!there && !ref.alias[0]) TRY(db_value(r, &id, &there, err, newest, "i", model));
    }
    if (there) TRY(fill(r, id, out, &there, err));
    if (there) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "%s: expected a%s of %s, got \"%.100s\"",
                     ref.alias[0] ? "ALIAS" : "VERSION", ref.alias[0] ? "n alias" : " version", ref.name,
                     ref.alias[0]     ? ref.alias
                     : ref.version[0] ? ref.version
                                      : "none");
}

bool db_is_held(const registry *r, const char *name, const char *version) {
    str path = {0};
    str_fmt(&path, "%s/models/%s/%s/origin.json", str_cstr(&r->home), name, version);
    int fd = path.failed ? -1 : open(str_cstr(&path), O_RDONLY | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    if (fd >= 0) close(fd);
    str_free(&path);
    return held;
}

/* ---- list ------------------------------------------------------------------------------------------- */

/* What is put after each version: its present stage, verdict and aliases, as SQL. */
#define VERSION_COLUMNS                                                                                      \
    "v.id, v.version, v.kind, v.digest, v.bytes, v.author, v.added, v.source,"                               \
    " coalesce((SELECT stage FROM stages s WHERE s.version=v.id ORDER BY s.id DESC LIMIT 1), 'draft'),"      \
    " (SELECT verdict FROM verdicts d WHERE d.version=v.id ORDER BY d.id DESC LIMIT 1), v.notes, v.licence"

static status put_strings(registry *r, json_out *j, const char *key, error *err, const char *sql,
                          int64_t id) {
    db_rows rows;
    bool there = true;
    json_out_array(j, key);
    status st = db_query(r, &rows, err, sql, "i", id);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st == CHURON_OK && there) json_out_cstr(j, NULL, db_text(&rows, 0));
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    return st;
}

static status put_files(registry *r, json_out *j, int64_t id, error *err) {
    db_rows rows;
    bool there = true;
    json_out_array(j, "files");
    status st = db_query(r, &rows, err, "SELECT path, bytes, sha256 FROM files WHERE version=? ORDER BY path",
                         "i", id);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        json_out_object(j, NULL);
        json_out_cstr(j, "path", db_text(&rows, 0));
        json_out_int(j, "bytes", db_int(&rows, 1));
        json_out_cstr(j, "sha256", db_text(&rows, 2));
        json_out_end_object(j);
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    return st;
}

static status put_signatures(registry *r, json_out *j, int64_t id, error *err) {
    db_rows rows;
    bool there = true;
    json_out_array(j, "signatures");
    status st = db_query(r, &rows, err,
                         "SELECT key_id, signature FROM signatures WHERE version=? ORDER BY id", "i", id);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        json_out_object(j, NULL);
        json_out_cstr(j, "key", db_text(&rows, 0));
        json_out_cstr(j, "signature", db_text(&rows, 1));
        json_out_end_object(j);
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    return st;
}

/* The fields of the row at VERSION_COLUMNS; the object stays open. */
static status put_version(registry *r, json_out *j, const db_rows *v, bool with_files, error *err) {
    json_out_object(j, NULL);
    json_out_cstr(j, "version", db_text(v, 1));
    json_out_cstr(j, "kind", db_text(v, 2));
    json_out_cstr(j, "digest", db_text(v, 3));
    json_out_int(j, "bytes", db_int(v, 4));
    json_out_cstr(j, "author", db_text(v, 5));
    json_out_int(j, "added", db_int(v, 6));
    json_out_cstr(j, "source", db_text(v, 7));
    json_out_cstr(j, "stage", db_text(v, 8));
    json_out_cstr(j, "verdict", db_is_null(v, 9) ? NULL : db_text(v, 9));
    if (*db_text(v, 10)) json_out_cstr(j, "notes", db_text(v, 10));
    if (*db_text(v, 11)) json_out_cstr(j, "licence", db_text(v, 11));
    TRY(put_strings(r, j, "aliases", err, "SELECT alias FROM aliases WHERE version=? ORDER BY alias",
                    db_int(v, 0)));
    if (with_files) TRY(put_files(r, j, db_int(v, 0), err));
    return put_signatures(r, j, db_int(v, 0), err);
}

static status put_model(registry *r, json_out *j, const db_rows *m, bool with_files, error *err) {
    db_rows rows;
    bool there = true;
    json_out_object(j, NULL);
    json_out_cstr(j, "name", db_text(m, 1));
    json_out_cstr(j, "owner", db_text(m, 2));
    json_out_array(j, "versions");
    status st = db_query(r, &rows, err,
                         "SELECT " VERSION_COLUMNS " FROM versions v WHERE v.model=?"
                         " AND v.id NOT IN (SELECT version FROM removed) ORDER BY v.added DESC, v.id DESC",
                         "i", db_int(m, 0));
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        st = put_version(r, j, &rows, with_files, err);
        json_out_end_object(j);
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    json_out_end_object(j);
    return st;
}

status db_list(registry *r, const char *name, json_out *j, bool with_files, error *err) {
    db_rows rows;
    bool there = true, any = false;
    json_out_array(j, "models");
    status st =
        db_query(r, &rows, err,
                 "SELECT id, name, owner FROM models WHERE ?1 IS NULL OR name=?1 ORDER BY name", "s", name);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        any = true;
        st = put_model(r, j, &rows, with_files, err);
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    if (st == CHURON_OK && name && !any) {
        st = error_set(err, CHURON_NOT_FOUND, "NAME: expected a model of the registry, got \"%.100s\"", name);
    }
    return st;
}

/* Where there is no database and none may be made: what the folders say. */
static status list_folders(const char *name, json_out *j, error *err) {
    store_listing l;
    TRY(store_list(&l, err));
    json_out_array(j, "models");
    for (size_t i = 0; i < l.n; i++) {
        const store_entry *e = &l.entries[i];
        if (name && strcmp(name, e->name) != 0) continue;
        bool first = i == 0 || strcmp(l.entries[i - 1].name, e->name) != 0;
        bool last = i + 1 == l.n || strcmp(l.entries[i + 1].name, e->name) != 0;
        if (first) {
            json_out_object(j, NULL);
            json_out_cstr(j, "name", e->name);
            json_out_cstr(j, "owner", "");
            json_out_array(j, "versions");
        }
        json_out_object(j, NULL);
        json_out_cstr(j, "version", e->version);
        json_out_cstr(j, "kind", e->folder ? "folder" : "file");
        json_out_cstr(j, "digest", e->digest);
        json_out_uint(j, "bytes", e->bytes);
        json_out_int(j, "added", e->added);
        json_out_cstr(j, "source", str_cstr(&e->source));
        json_out_end_object(j);
        if (last) {
            json_out_end_array(j);
            json_out_end_object(j);
        }
    }
    json_out_end_array(j);
    store_listing_free(&l);
    return CHURON_OK;
}

status registry_list(registry *r, const char *name, str *json, error *err) {
    json_out j = json_out_begin(json);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "registry", str_cstr(&r->home));
    if (r->db) {
        TRY(db_list(r, name, &j, false, err));
    } else {
        TRY(list_folders(name, &j, err));
    }
    json_out_end_object(&j);
    return str_check(json, err);
}

/* ---- show ------------------------------------------------------------------------------------------- */

/* Rows as objects: keys[i] names column i; a key that begins with '#' is a number, with '?' true or false. */
static status put_rows(registry *r, json_out *j, const char *list, const char *const *keys, error *err,
                       const char *sql, int64_t id) {
    db_rows rows;
    bool there = true;
    json_out_array(j, list);
    status st = db_query(r, &rows, err, sql, "i", id);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        json_out_object(j, NULL);
        for (int i = 0; keys[i]; i++) {
            if (keys[i][0] == '#') {
                json_out_int(j, keys[i] + 1, db_int(&rows, i));
            } else if (keys[i][0] == '?') {
                json_out_bool(j, keys[i] + 1, db_int(&rows, i) != 0);
            } else {
                json_out_cstr(j, keys[i], db_is_null(&rows, i) ? NULL : db_text(&rows, i));
            }
        }
        json_out_end_object(j);
    }
    db_close_rows(&rows);
    json_out_end_array(j);
    return st;
}

static const char *const event_keys[] = {"what", "#time", "by", "reason", NULL};
static const char *const alias_keys[] = {"alias", "version", "#time", "by", "reason", NULL};
static const char *const verified_keys[] = {"?ok", "result", "machine", "#time", "by", NULL};
static const char *const edge_keys[] = {"relation", "target", "note", "#time", "by", NULL};
static const char *const grant_keys[] = {"subject", "right", NULL};

static status put_history(registry *r, json_out *j, const version_row *v, error *err) {
    TRY(put_rows(r, j, "stages", event_keys, err,
                 "SELECT stage, time, actor, reason FROM stages WHERE version=? ORDER BY id", v->id));
    TRY(put_rows(r, j, "verdicts", event_keys, err,
                 "SELECT verdict, time, actor, reason FROM verdicts WHERE version=? ORDER BY id", v->id));
    TRY(put_rows(r, j, "verified", verified_keys, err,
                 "SELECT ok, result, machine, time, actor FROM verified WHERE version=? ORDER BY id", v->id));
    TRY(put_rows(r, j, "lineage", edge_keys, err,
                 "SELECT relation, target, note, time, actor FROM lineage WHERE version=? ORDER BY id",
                 v->id));
    TRY(put_rows(r, j, "alias_history", alias_keys, err,
                 "SELECT h.alias, v.version, h.time, h.actor, h.reason FROM alias_history h"
                 " LEFT JOIN versions v ON v.id=h.version WHERE h.model=? ORDER BY h.id",
                 v->model));
    return put_rows(r, j, "grants", grant_keys, err,
                    "SELECT subject, access FROM grants WHERE model=? ORDER BY subject, access", v->model);
}

status registry_show(registry *r, const char *ref, str *json, error *err) {
    version_row v;
    db_rows rows;
    bool there;
    char owner[STORE_NAME_MAX + 1];
    json_out j = json_out_begin(json);
    TRY(db_version(r, ref, &v, err));
    TRY(db_word(r, owner, &there, err, "SELECT owner FROM models WHERE id=?", "i", v.model));
    status st = db_query(r, &rows, err, "SELECT " VERSION_COLUMNS " FROM versions v WHERE v.id=?", "i", v.id);
    if (st == CHURON_OK) st = db_next(&rows, &there, err);
    if (st == CHURON_OK) st = put_version(r, &j, &rows, true, err);
    db_close_rows(&rows);
    TRY(st);
    json_out_cstr(&j, "name", v.name);
    json_out_cstr(&j, "owner", owner);
    json_out_bool(&j, "removed", v.removed);
    json_out_bool(&j, "held", db_is_held(r, v.name, v.version));
    str path = {0};
    str_fmt(&path, "%s/models/%s/%s", str_cstr(&r->home), v.name, v.version);
    json_out_cstr(&j, "folder", str_cstr(&path));
    str_free(&path);
    TRY(put_history(r, &j, &v, err));
    json_out_end_object(&j);
    return str_check(json, err);
}

/* ---- lineage ---------------------------------------------------------------------------------------- */

/* Both ways, to any depth, each version once. */
status registry_lineage(registry *r, const char *ref, str *json, error *err) {
    static const char *const keys[] = {"version", "relation", "target", "note",
                                       "#time",   "by",       "#depth", NULL};
    static const char up[] =
        "WITH RECURSIVE above(id, depth) AS (SELECT ?1, 0 UNION SELECT l.target_version, a.depth+1 FROM "
        "lineage l"
        " JOIN above a ON l.version=a.id WHERE l.target_version IS NOT NULL AND a.depth < 100)"
        " SELECT m.name || ':' || v.version, l.relation, l.target, l.note, l.time, l.actor, min(a.depth) "
        "FROM above a"
        " JOIN lineage l ON l.version=a.id JOIN versions v ON v.id=l.version JOIN models m ON m.id=v.model"
        " GROUP BY l.id ORDER BY min(a.depth), l.id";
    static const char down[] =
        "WITH RECURSIVE below(id, depth) AS (SELECT ?1, 0 UNION SELECT l.version, b.depth+1 FROM lineage l"
        " JOIN below b ON l.target_version=b.id WHERE b.depth < 100)"
        " SELECT m.name || ':' || v.version, l.relation, l.target, l.note, l.time, l.actor, min(b.depth) "
        "FROM below b"
        " JOIN lineage l ON l.target_version=b.id JOIN versions v ON v.id=l.version JOIN models m ON "
        "m.id=v.model"
        " GROUP BY l.id ORDER BY min(b.depth), l.id";
    version_row v;
    json_out j = json_out_begin(json);
    TRY(db_version(r, ref, &v, err));
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", v.name);
    json_out_cstr(&j, "version", v.version);
    json_out_cstr(&j, "digest", v.digest);
    TRY(put_rows(r, &j, "from", keys, err, up, v.id));
    TRY(put_rows(r, &j, "into", keys, err, down, v.id));
    TRY(put_rows(r, &j, "verified", verified_keys, err,
                 "SELECT ok, result, machine, time, actor FROM verified WHERE version=? ORDER BY id", v.id));
    json_out_end_object(&j);
    return str_check(json, err);
}
