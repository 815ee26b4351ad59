/* adopt.c: the database and the store's folders brought to agree. Folders that it does not know are taken in;
 * alias files and index.json are written as it says. */
#define _GNU_SOURCE 1 /* flock, O_DIRECTORY */
#include "registry/db.h"

#include "base/disk.h"
#include "base/file.h"
#include "bundle/pack.h"
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

/* ---- folders that are not known ---------------------------------------------------------------------- */

typedef status (*folder_fn)(registry *r, const char *name, const char *version, void *user, error *err);

static status each_version(registry *r, const char *name, folder_fn fn, void *user, error *err) {
    str dir = {0};
    str_fmt(&dir, "%s/models/%s", str_cstr(&r->home), name);
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (db_check_word(e->d_name, "VERSION", NULL) == CHURON_OK) st = fn(r, name, e->d_name, user, err);
    }
    if (d) closedir(d);
    str_free(&dir);
    return st;
}

typedef status (*model_fn)(registry *r, const char *name, void *user, error *err);

static status each_model(registry *r, model_fn fn, void *user, error *err) {
    str dir = {0};
    str_fmt(&dir, "%s/models", str_cstr(&r->home));
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (db_check_word(e->d_name, "NAME", NULL) == CHURON_OK) st = fn(r, e->d_name, user, err);
    }
    if (d) closedir(d);
    str_free(&dir);
    return st;
}

static status is_known(registry *r, const char *name, const char *version, bool *known, error *err) {
    int64_t id;
    return db_value(
        r, &id, known, err,
        "SELECT v.id FROM versions v JOIN models m ON m.id=v.model WHERE m.name=? AND v.version=?", "ss",
        name, version);
}

/* A further name under blobs/ for a file that only the store has; one that is shared with the outside can
 * change. */
static void name_content(registry *r, const char *folder, const origin_file *f) {
    str path = {0}, blob = {0};
    struct stat info;
    str_fmt(&path, "%s/%s", folder, f->name);
    str_fmt(&blob, "%s/blobs/%.2s", str_cstr(&r->home), f->digest);
    if (!path.failed && !blob.failed && stat(str_cstr(&path), &info) == 0 && info.st_nlink == 1 &&
        (uint64_t)info.st_size == f->bytes && dir_make(str_cstr(&blob), NULL) == CHURON_OK) {
        str_fmt(&blob, "/%s", f->digest);
        if (!blob.failed && link(str_cstr(&path), str_cstr(&blob)) == 0) (void)chmod(str_cstr(&blob), 0444);
    }
    str_free(&path);
    str_free(&blob);
}

/* What cannot be read is left out, but not for want of memory: the next time would find it. */
static status unless_memory(status st, bool *good) {
    *good = st == CHURON_OK;
    return st == CHURON_NO_MEMORY || st == CHURON_BUSY ? st : CHURON_OK;
}

static status adopt_one(registry *r, const char *name, const char *version, void *user, error *err) {
    bool known, *any = user;
    str folder = {0};
    origin o = {0};
    store_entry e = {0};
    TRY(is_known(r, name, version, &known, err));
    if (known) return CHURON_OK;
    str_fmt(&folder, "%s/models/%s/%s", str_cstr(&r->home), name, version);
    status st = str_check(&folder, err);
    bool good = false; /* without a good record: no version */
    if (st == CHURON_OK) st = unless_memory(store_load(&e, str_cstr(&r->home), name, version, err), &good);
    if (good) st = unless_memory(origin_read(&o, str_cstr(&folder), err), &good);
    if (st == CHURON_OK && good) {
        files *f = NULL;
        const char *kind = o.folder ? "folder" : "file";
        if (!o.folder && files_open(&f, str_cstr(&e.path), NULL) == CHURON_OK &&
            files_kind_of(f) == FILES_PACK) {
            kind = "pack";
            st = files_digest(f, o.digest, err);
        }
        files_close(f);
        if (st == CHURON_OK) st = place_rows(r, name, version, kind, &o, NULL, NULL, err);
        *any = true;
        for (size_t i = 0; st == CHURON_OK && i < o.n_files; i++)
            name_content(r, str_cstr(&folder), &o.files[i]);
    }
    origin_free(&o);
    store_entry_free(&e);
    str_free(&folder);
    return st;
}

static status find_unknown(registry *r, const char *name, const char *version, void *user, error *err) {
    bool known, *any = user;
    TRY(is_known(r, name, version, &known, err));
    if (!known) *any = true;
    return CHURON_OK;
}

/* ---- what follows the database ----------------------------------------------------------------------- */

static status write_whole(const char *path, const char *text, size_t n, error *err) {
    str fresh = {0};
    sink s = {.fd = -1};
    const char *slash = strrchr(path, '/');
    str_add(&fresh, path, (size_t)(slash - path));
    str_cat(&fresh, "/.write"); /* only whoever holds the folder's lock writes: see db_project */
    status st = str_check(&fresh, err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&fresh), false, err);
    if (st == CHURON_OK) {
        st = sink_write(&s, text, n, err);
        if (st == CHURON_OK) st = sink_close(&s, err);
        sink_drop(&s);
        if (st == CHURON_OK && rename(str_cstr(&fresh), path) != 0) {
            st = error_set(err, CHURON_IO, "%s: cannot be replaced", path);
        }
        if (st != CHURON_OK) (void)unlink(str_cstr(&fresh));
    }
    str_free(&fresh);
    return st;
}

/* Does the file hold exactly this? */
static bool holds(const char *path, const char *text, size_t n) {
    str now = {0};
    bool same = file_exists(path) && file_read(&now, path, n, NULL) == CHURON_OK && now.len == n &&
                (n == 0 || memcmp(now.data, text, n) == 0);
    str_free(&now);
    return same;
}

static status write_alias(registry *r, const char *name, const char *alias, const char *version, error *err) {
    str path = {0}, line = {0};
    str_fmt(&path, "%s/models/%s/@%s", str_cstr(&r->home), name, alias);
    str_fmt(&line, "%s\n", version);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = str_check(&line, err);
    if (st == CHURON_OK && !holds(str_cstr(&path), line.data, line.len)) {
        st = write_whole(str_cstr(&path), line.data, line.len, err);
    }
    str_free(&path);
    str_free(&line);
    return st;
}

/* Files of aliases that the database does not have. */
static status drop_aliases(registry *r, const char *name, error *err) {
    str dir = {0}, path = {0};
    str_fmt(&dir, "%s/models/%s", str_cstr(&r->home), name);
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        int64_t id;
        bool there;
        str_clear(&path);
        str_fmt(&path, "%s/%s", str_cstr(&dir), e->d_name);
        if (e->d_name[0] != '@') continue;
        st = db_value(
            r, &id, &there, err,
            "SELECT a.version FROM aliases a JOIN models m ON m.id=a.model WHERE m.name=? AND a.alias=?",
            "ss", name, e->d_name + 1);
        if (st == CHURON_OK && !there && !path.failed) (void)unlink(str_cstr(&path));
    }
    if (d) closedir(d);
    str_free(&dir);
    str_free(&path);
    return st;
}

static status write_index(registry *r, error *err) {
    str path = {0}, text = {0};
    json_out j = json_out_begin(&text);
    json_out_object(&j, NULL);
    json_out_int(&j, "churon_registry", 1);
    status st = db_list(r, NULL, &j, true, err);
    json_out_end_object(&j);
    str_put(&text, '\n');
    str_fmt(&path, "%s/index.json", str_cstr(&r->home));
    if (st == CHURON_OK) st = str_check(&text, err);
    if (st == CHURON_OK) st = str_check(&path, err);
    if (st == CHURON_OK && !holds(str_cstr(&path), text.data, text.len)) {
        st = write_whole(str_cstr(&path), text.data, text.len, err);
    }
    str_free(&path);
    str_free(&text);
    return st;
}

static status project(registry *r, error *err) {
    db_rows rows;
    bool there = true;
    status st = db_query(r, &rows, err,
                         "SELECT m.name, a.alias, v.version FROM aliases a JOIN models m ON m.id=a.model"
                         " JOIN versions v ON v.id=a.version",
                         "");
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st == CHURON_OK && there)
            st = write_alias(r, db_text(&rows, 0), db_text(&rows, 1), db_text(&rows, 2), err);
    }
    db_close_rows(&rows);
    if (st == CHURON_OK) st = db_query(r, &rows, err, "SELECT name FROM models", "");
    for (there = true; st == CHURON_OK && there;) {
        st = db_next(&rows, &there, err);
        if (st == CHURON_OK && there) st = drop_aliases(r, db_text(&rows, 0), err);
    }
    db_close_rows(&rows);
    return st == CHURON_OK ? write_index(r, err) : st;
}

/* One process at a time, and each reads the database anew: the last one to write has seen the last change. */
static status project_locked(registry *r, error *err) {
    int lock = open(str_cstr(&r->home), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR) {}
    status st = project(r, err);
    if (lock >= 0) close(lock);
    return st;
}

status db_project(registry *r, error *err) {
    status st = project_locked(r, err);
    if (st != CHURON_OK) {
        error_prefix(
            err,
            "the change is registered, but the store's files could not follow (they will with the next one)");
    }
    return st;
}

/* One alias of an older store, which had them in files only. A file that names no version is left out. */
static status take_alias(registry *r, const char *name, const char *alias, const char *path, error *err) {
    char ref[2 * STORE_NAME_MAX + 2];
    version_row v = {0};
    int64_t id;
    bool there, good;
    str text = {0};
    status st = unless_memory(file_read(&text, path, 200, err), &good);
    snprintf(ref, sizeof ref, "%s:%.*s", name, (int)strcspn(str_cstr(&text), "\n"), str_cstr(&text));
    good = good && text.len;
    str_free(&text);
    TRY(st);
    if (!good) return CHURON_OK;
    TRY(unless_memory(db_version(r, ref, &v, err), &good));
    if (!good || v.removed) return CHURON_OK;
    TRY(db_value(r, &id, &there, err, "SELECT version FROM aliases WHERE model=? AND alias=?", "is", v.model,
                 alias));
    if (there && (id == v.id || strcmp(alias, "latest") != 0)) return CHURON_OK;
    return place_alias(r, v.model, alias, v.id, "as the store had it", false, err);
}

static status take_alias_files(registry *r, const char *name, error *err) {
    str dir = {0}, path = {0};
    str_fmt(&dir, "%s/models/%s", str_cstr(&r->home), name);
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (e->d_name[0] != '@' || db_check_word(e->d_name + 1, "ALIAS", NULL) != CHURON_OK) continue;
        str_clear(&path);
        str_fmt(&path, "%s/%s", str_cstr(&dir), e->d_name);
        st = str_check(&path, err);
        if (st == CHURON_OK) st = take_alias(r, name, e->d_name + 1, str_cstr(&path), err);
    }
    if (d) closedir(d);
    str_free(&dir);
    str_free(&path);
    return st;
}

static status adopt_model(registry *r, const char *name, void *user, error *err) {
    static const char newest[] =
        "UPDATE aliases SET version=(SELECT v.id FROM versions v WHERE v.model=aliases.model AND v.id NOT IN"
        " (SELECT version FROM removed) ORDER BY v.added DESC, v.id DESC LIMIT 1)"
        " WHERE alias='latest' AND model=(SELECT id FROM models WHERE name=?)";
    bool any = false;
    (void)user;
    TRY(each_version(r, name, adopt_one, &any, err));
    if (!any) return CHURON_OK;
    TRY(db_run(r, err, newest, "s", name));
    return take_alias_files(r, name, err);
}

static status find_in_model(registry *r, const char *name, void *user, error *err) {
    return each_version(r, name, find_unknown, user, err);
}

status registry_adopt(registry *r, error *err) {
    bool any = false;
    TRY(each_model(r, find_in_model, &any, err));
    if (any) {
        TRY(db_begin(r, err));
        r->adopting = true;
        status st = each_model(r, adopt_model, NULL, err);
        r->adopting = false;
        TRY(db_end(r, st, err));
    }
    return project_locked(r, err);
}

status registry_next_version(registry *r, const char *name, char version[STORE_NAME_MAX + 1], error *err) {
    int64_t highest;
    bool there;
    TRY(db_check_word(name, "NAME", err));
    TRY(db_value(
        r, &highest, &there, err,
        "SELECT max(CAST(v.version AS INTEGER)) FROM versions v JOIN models m ON m.id=v.model WHERE m.name=?"
        " AND v.version NOT GLOB '*[^0-9]*' AND length(v.version) < 10",
        "s", name));
    snprintf(version, STORE_NAME_MAX + 1, "%lld", (long long)(highest + 1));
    return CHURON_OK;
}
