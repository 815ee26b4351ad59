/* gc.c: retention. A version's folder is renamed away within the transaction that marks it removed, while its
 * record is locked against holders; then deleted. Contents follow when no version has them. */
#define _DEFAULT_SOURCE 1 /* flock */
#include "registry/db.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/mem.h"
#include "registry/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DAY = 86400 };

status registry_retain(registry *r, const char *name, int64_t keep_last, int64_t keep_days, error *err) {
    int64_t model;
    str detail = {0};
    json_out j = json_out_begin(&detail);
    json_out_object(&j, NULL);
    json_out_int(&j, "keep_last", keep_last);
    json_out_int(&j, "keep_days", keep_days);
    json_out_end_object(&j);
    status st = db_begin(r, err);
    if (st == CHURON_OK) {
        st = db_model(r, name, &model, err);
        if (st == CHURON_OK) st = db_may(r, name, "admin", err);
        if (st == CHURON_OK) {
            st = db_run(r, err, "UPDATE models SET keep_last=?, keep_days=? WHERE id=?", "iii", keep_last,
                        keep_days, model);
        }
        if (st == CHURON_OK) st = db_log(r, "retain", name, &detail, err);
        st = db_end(r, st, err);
    }
    str_free(&detail);
    return st;
}

/* Versions beyond the rules that nothing in the database keeps: newest first within a model. ?1 keep_last, ?2
 * keep_days
 * (-1: the model's rule), ?3 now. */
static const char candidates[] =
    "WITH live AS (SELECT v.*, row_number() OVER (PARTITION BY v.model ORDER BY v.added DESC, v.id DESC) AS "
    "place,"
    "  CASE WHEN ?1 >= 0 THEN ?1 ELSE m.keep_last END AS last, CASE WHEN ?2 >= 0 THEN ?2 ELSE m.keep_days "
    "END AS days,"
    "  m.name AS name FROM versions v JOIN models m ON m.id=v.model WHERE v.id NOT IN (SELECT version FROM "
    "removed)),"
    " pinned(id) AS (SELECT version FROM aliases UNION SELECT v.id FROM live v WHERE"
    "  (SELECT stage FROM stages s WHERE s.version=v.id ORDER BY s.id DESC LIMIT 1) IN ('staging', "
    "'production')"
    "  UNION SELECT l.target_version FROM lineage l JOIN live v ON v.id=l.version WHERE l.target_version IS "
    "NOT NULL)"
    " SELECT name, version, bytes, digest, id FROM live WHERE (last >= 0 OR days >= 0) AND place > max(last, "
    "0)"
    " AND (days < 0 OR added < ?3 - days * 86400) AND id NOT IN (SELECT id FROM pinned) ORDER BY name, place "
    "DESC";

/* Owner: the thread in registry_gc. */
typedef struct collecting {
    registry *r;
    bool dry_run;
    json_out *j;
    int64_t versions, blobs, bytes;
} collecting;

/* Opens and locks the version's record. *lock -1: somebody holds it. */
static void lock_record(const registry *r, const char *name, const char *version, int *lock) {
    str path = {0};
    str_fmt(&path, "%s/models/%s/%s/origin.json", str_cstr(&r->home), name, version);
    *lock = path.failed ? -1 : open(str_cstr(&path), O_RDONLY | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        close(*lock);
        *lock = -1;
    }
    str_free(&path);
}

static status move_away(registry *r, const char *name, const char *version, str *gone, error *err) {
    str path = {0}, dir = {0};
    str_fmt(&dir, "%s/partial", str_cstr(&r->home));
    str_fmt(&path, "%s/models/%s/%s", str_cstr(&r->home), name, version);
    str_fmt(gone, "%s/gone-%s-%s-%ld", str_cstr(&dir), name, version, (long)getpid());
    status st = str_check(&dir, err);
    if (st == CHURON_OK) st = str_check(&path, err);
    if (st == CHURON_OK) st = str_check(gone, err);
    if (st == CHURON_OK) st = dir_make(str_cstr(&dir), err);
    if (st == CHURON_OK && rename(str_cstr(&path), str_cstr(gone)) != 0 && errno != ENOENT) {
        st = error_set(err, CHURON_IO, "%s: cannot be moved away: %s", str_cstr(&path), strerror(errno));
    }
    str_free(&path);
    str_free(&dir);
    return st;
}

static status mark_removed(registry *r, int64_t id, const char *ref, const char *digest, error *err) {
    str detail = {0};
    json_out j = json_out_begin(&detail);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "digest", digest);
    json_out_end_object(&j);
    status st = db_run(r, err, "INSERT INTO removed VALUES(?,?,?)", "iis", id, clock_unix(), r->actor);
    if (st == CHURON_OK) st = db_log(r, "remove", ref, &detail, err);
    str_free(&detail);
    return st;
}

/* One version, in a transaction of its own: the rules are asked again inside it. */
static status remove_version(collecting *c, const char *ref, error *err) {
    version_row v;
    int lock = -1;
    int64_t pinned;
    bool there;
    str gone = {0};
    TRY(db_begin(c->r, err));
    status st = db_version(c->r, ref, &v, err);
    if (st == CHURON_OK) st = db_may(c->r, v.name, "admin", err);
    if (st == CHURON_OK) {
        st = db_value(c->r, &pinned, &there, err,
                      "SELECT (SELECT count(*) FROM aliases WHERE version=?1) + (SELECT count(*) FROM "
                      "removed WHERE version=?1)"
                      " + coalesce((SELECT stage FROM stages WHERE version=?1 ORDER BY id DESC LIMIT 1)"
                      " IN ('staging', 'production'), 0)"
                      " + (SELECT count(*) FROM lineage l WHERE l.target_version=?1 AND l.version NOT IN"
                      " (SELECT version FROM removed))",
                      "i", v.id);
    }
    if (st == CHURON_OK && pinned == 0) lock_record(c->r, v.name, v.version, &lock);
    bool take = lock >= 0;
    if (take) st = mark_removed(c->r, v.id, ref, v.digest, err);
    if (take && st == CHURON_OK) st = move_away(c->r, v.name, v.version, &gone, err);
    bool moved = take && st == CHURON_OK;
    st = db_end(c->r, st, err);
    if (moved && st != CHURON_OK) place_folder_back(c->r, str_cstr(&gone), v.name, v.version);
    if (moved && st == CHURON_OK) {
        dir_remove(str_cstr(&gone));
        c->versions++;
    }
    if (lock >= 0) close(lock);
    str_free(&gone);
    return st;
}

typedef struct ref_list {
    char (*refs)[2 * STORE_NAME_MAX + 2];
    size_t n;
} ref_list;

static status add_ref(ref_list *l, const char *name, const char *version, error *err) {
    void *grown = mem_realloc(l->refs, (l->n + 1) * sizeof *l->refs);
    if (!grown) return error_no_memory(err, "list of versions", (l->n + 1) * sizeof *l->refs);
    l->refs = grown;
    snprintf(l->refs[l->n++], sizeof *l->refs, "%s:%s", name, version);
    return CHURON_OK;
}

static status find_candidates(collecting *c, const registry_gc_options *o, ref_list *l, error *err) {
    db_rows rows;
    bool there = true;
    status st = db_query(c->r, &rows, err, candidates, "iii", o->keep_last, o->keep_days, clock_unix());
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there) break;
        bool held = db_is_held(c->r, db_text(&rows, 0), db_text(&rows, 1));
        json_out_object(c->j, NULL);
        json_out_cstr(c->j, "name", db_text(&rows, 0));
        json_out_cstr(c->j, "version", db_text(&rows, 1));
        json_out_int(c->j, "bytes", db_int(&rows, 2));
        json_out_cstr(c->j, "digest", db_text(&rows, 3));
        json_out_bool(c->j, "held", held);
        json_out_end_object(c->j);
        if (!held) st = add_ref(l, db_text(&rows, 0), db_text(&rows, 1), err);
    }
    db_close_rows(&rows);
    return st;
}

/* ---- contents --------------------------------------------------------------------------------------- */

/* A content that no version has. One with further names is in use, also by an add that has not committed yet.
 */
static status sweep_blob(collecting *c, const char *path, const char *digest, error *err) {
    struct stat info;
    int64_t used;
    bool there;
    if (strlen(digest) != DIGEST_HEX - 1 || lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return CHURON_OK;
    if (info.st_nlink > 1) return CHURON_OK;
    TRY(db_value(
        c->r, &used, &there, err,
        "SELECT 1 FROM files WHERE sha256=? AND version NOT IN (SELECT version FROM removed) LIMIT 1", "s",
        digest));
    if (there) return CHURON_OK;
    c->blobs++;
    c->bytes += info.st_size;
    if (!c->dry_run) (void)unlink(path);
    return CHURON_OK;
}

static status sweep_folder(collecting *c, const char *dir, error *err) {
    status st = CHURON_OK;
    str path = {0};
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        str_clear(&path);
        str_fmt(&path, "%s/%s", dir, e->d_name);
        st = str_check(&path, err);
        if (st == CHURON_OK) st = sweep_blob(c, str_cstr(&path), e->d_name, err);
    }
    if (d) closedir(d);
    str_free(&path);
    return st;
}

static status sweep_blobs(collecting *c, error *err) {
    str dir = {0}, below = {0};
    str_fmt(&dir, "%s/blobs", str_cstr(&c->r->home));
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        str_clear(&below);
        str_fmt(&below, "%s/%s", str_cstr(&dir), e->d_name);
        st = str_check(&below, err);
        if (st == CHURON_OK) st = sweep_folder(c, str_cstr(&below), err);
    }
    if (d) closedir(d);
    str_free(&dir);
    str_free(&below);
    return st;
}

status registry_gc(registry *r, const registry_gc_options *o, str *json, error *err) {
    json_out j = json_out_begin(json);
    collecting c = {.r = r, .dry_run = o->dry_run, .j = &j};
    ref_list l = {0};
    json_out_object(&j, NULL);
    json_out_bool(&j, "dry_run", o->dry_run);
    json_out_array(&j, "beyond_the_rules");
    status st = find_candidates(&c, o, &l, err);
    json_out_end_array(&j);
    for (size_t i = 0; st == CHURON_OK && !o->dry_run && i < l.n; i++)
        st = remove_version(&c, l.refs[i], err);
    mem_free(l.refs);
    if (st == CHURON_OK && !o->dry_run) place_clean_partial(r);
    if (st == CHURON_OK) st = sweep_blobs(&c, err);
    if (st == CHURON_OK && !o->dry_run) st = db_project(r, err);
    json_out_int(&j, "removed", c.versions);
    json_out_int(&j, "contents", c.blobs);
    json_out_int(&j, "freed_bytes", c.bytes);
    json_out_end_object(&j);
    return st == CHURON_OK ? str_check(json, err) : st;
}
