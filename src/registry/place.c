/* place.c: see place.h. */
#define _DEFAULT_SOURCE 1 /* flock */
#include "registry/place.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- partial/ --------------------------------------------------------------------------------------- */

static void clean_one(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) dir_remove(path);
    close(fd);
}

void place_clean_partial(const registry *r) {
    str dir = {0}, path = {0};
    str_fmt(&dir, "%s/partial", str_cstr(&r->home));
    DIR *d = dir.failed ? NULL : opendir(str_cstr(&dir));
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "add-", 4) != 0 && strncmp(e->d_name, "gone-", 5) != 0) continue;
        str_clear(&path);
        str_fmt(&path, "%s/%s", str_cstr(&dir), e->d_name);
        if (!path.failed) clean_one(str_cstr(&path));
    }
    if (d) closedir(d);
    str_free(&dir);
    str_free(&path);
}

/* ---- contents --------------------------------------------------------------------------------------- */

static status make_folder_of(const char *path, error *err) {
    str dir = {0};
    const char *slash = strrchr(path, '/');
    str_add(&dir, path, slash ? (size_t)(slash - path) : 0);
    status st = str_check(&dir, err);
    if (st == CHURON_OK && dir.len) st = dir_make(str_cstr(&dir), err);
    str_free(&dir);
    return st;
}

static status link_error(const char *path, int code, error *err) {
    bool full = code == ENOSPC || code == EDQUOT;
    return error_set(err, full ? CHURON_LIMIT : CHURON_IO, "%s: cannot place: %s%s", path, strerror(code),
                     full ? ". Make room or set CHURON_HOME" : "");
}

/* One file, two names. A blob of another size is damaged, and left to `registry check`. */
static status link_blob(const char *own, const char *blob, const char *to, error *err) {
    struct stat mine, there;
    bool made = link(own, blob) == 0;
    bool same = !made && errno == EEXIST && stat(own, &mine) == 0 && stat(blob, &there) == 0 &&
                mine.st_size == there.st_size;
    if (same && link(blob, to) == 0) return CHURON_OK;
    if (link(own, to) == 0 || rename(own, to) == 0) return CHURON_OK;
    return link_error(to, errno, err);
}

status place_blob(const registry *r, const char *own, const char *digest, const char *to, int64_t *mtime_ns,
                  error *err) {
    str blob = {0};
    struct stat info;
    str_fmt(&blob, "%s/blobs/%.2s/%s", str_cstr(&r->home), digest, digest);
    status st = str_check(&blob, err);
    if (st == CHURON_OK) st = make_folder_of(str_cstr(&blob), err);
    if (st == CHURON_OK) st = make_folder_of(to, err);
    if (st == CHURON_OK) st = link_blob(own, str_cstr(&blob), to, err);
    if (st == CHURON_OK && stat(to, &info) != 0) st = link_error(to, errno, err);
    if (st == CHURON_OK) *mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    str_free(&blob);
    return st;
}

static int by_name(const void *a, const void *b) {
    const origin_file *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Of several files: as files.h says of a folder. */
static status digest_list(const origin *record, char hex[DIGEST_HEX], error *err) {
    const origin_file **sorted = mem_alloc(record->n_files * sizeof *sorted);
    str text = {0};
    if (!sorted) return error_no_memory(err, "list of files", record->n_files * sizeof *sorted);
    for (size_t i = 0; i < record->n_files; i++) sorted[i] = &record->files[i];
    qsort(sorted, record->n_files, sizeof *sorted, by_name);
    for (size_t i = 0; i < record->n_files; i++)
        str_fmt(&text, "%s  %s\n", sorted[i]->digest, sorted[i]->name);
    status st = str_check(&text, err);
    if (st == CHURON_OK) st = digest_bytes(str_cstr(&text), text.len, hex, err);
    mem_free(sorted);
    str_free(&text);
    return st;
}

status place_digest(const files *placed, const origin *record, char hex[DIGEST_HEX], error *err) {
    if (files_kind_of(placed) == FILES_PACK && record->n_files == 1) return files_digest(placed, hex, err);
    if (files_kind_of(placed) == FILES_FOLDER || record->n_files > 1) return digest_list(record, hex, err);
    memcpy(hex, record->files[0].digest, DIGEST_HEX);
    return CHURON_OK;
}

static bool is_model(const char *path) {
    size_t n = strlen(path);
    return n > 5 && (strcasecmp(path + n - 5, ".onnx") == 0 || strcasecmp(path + n - 5, ".gguf") == 0);
}

static bool begins_with_gguf(const files *f, const char *path) {
    files_view v;
    if (files_map(f, path, &v, NULL) != CHURON_OK) return false;
    const bool begins = v.size >= 4 && memcmp(v.data, "GGUF", 4) == 0;
    files_unmap(&v);
    return begins;
}

status place_check_model(const files *f, error *err) {
    const files_kind kind = files_kind_of(f);
    bool known = kind == FILES_PACK || files_find(f, PLACE_MANIFEST) || files_find(f, "config.json");
    for (size_t i = 0; i < files_count(f) && !known; i++) known = is_model(files_at(f, i)->path);
    if (!known && kind == FILES_SINGLE) known = begins_with_gguf(f, files_at(f, 0)->path);
    if (known) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %s, got %s", files_path_of(f),
                     kind == FILES_FOLDER ? "a folder with bundle.yaml, config.json, an .onnx or a .gguf file"
                                          : "an .onnx, .gguf or .churon file",
                     kind == FILES_FOLDER ? "one without" : "another file");
}

const char *place_main(const files *folder) {
    const char *only = NULL;
    size_t n = 0;
    if (files_find(folder, PLACE_MANIFEST) || files_find(folder, "config.json")) return NULL;
    for (size_t i = 0; i < files_count(folder); i++) {
        const char *path = files_at(folder, i)->path;
        if (!is_model(path)) continue;
        if (strstr(path, "-00001-of-")) return path;
        only = path;
        n++;
    }
    return n == 1 ? only : NULL;
}

static status sync_below(str *path, int depth, error *err) {
    status st = dir_sync(str_cstr(path), err);
    size_t len = path->len;
    DIR *d = st == CHURON_OK && depth < FILES_DEPTH_MAX ? opendir(str_cstr(path)) : NULL;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        struct stat info;
        if (e->d_name[0] == '.') continue;
        str_fmt(path, "/%s", e->d_name);
        st = str_check(path, err);
        if (st == CHURON_OK && lstat(str_cstr(path), &info) == 0 && S_ISDIR(info.st_mode))
            st = sync_below(path, depth + 1, err);
        path->len = len;
        path->data[len] = '\0';
    }
    if (d) closedir(d);
    return st;
}

status place_sync_tree(const char *folder, error *err) {
    str path = {0};
    str_cat(&path, folder);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = sync_below(&path, 0, err);
    str_free(&path);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static status model_row(registry *r, const char *name, const char *owner, int64_t *id, error *err) {
    bool there;
    TRY(db_check_word(name, "NAME", err));
    if (owner) TRY(db_check_subject(owner, "owner", err));
    TRY(db_value(r, id, &there, err, "SELECT id FROM models WHERE name=?", "s", name));
    if (there) return CHURON_OK;
    TRY(db_run(r, err, "INSERT INTO models(name, owner, created) VALUES(?,?,?)", "ssi", name,
               owner ? owner : r->actor, clock_unix()));
    *id = sqlite3_last_insert_rowid(r->db);
    return CHURON_OK;
}

static void log_added(str *to, const char *digest, const origin *o) {
    json_out j = json_out_begin(to);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "digest", digest);
    json_out_cstr(&j, "source", str_cstr(&o->source));
    json_out_end_object(&j);
}

status place_alias(registry *r, int64_t model, const char *alias, int64_t version, const char *reason,
                   bool back, error *err) {
    TRY(db_run(
        r, err,
        "INSERT INTO aliases VALUES(?,?,?) ON CONFLICT(model, alias) DO UPDATE SET version=excluded.version",
        "isi", model, alias, version));
    return db_run(
        r, err,
        "INSERT INTO alias_history(model, alias, version, time, actor, reason, back) VALUES(?,?,?,?,?,?,?)",
        "isiissi", model, alias, version, clock_unix(), r->actor, reason, (int64_t)back);
}

status place_rows(registry *r, const char *name, const char *version, const char *kind, const origin *record,
                  const char *owner, const char *licence, error *err) {
    const char *digest = record->digest[0] ? record->digest : record->files[0].digest;
    const char *author = record->author.len ? str_cstr(&record->author) : r->actor;
    int64_t model, bytes = 0;
    char subject[2 * STORE_NAME_MAX + 2];
    str detail = {0};
    TRY(model_row(r, name, owner, &model, err));
    for (size_t i = 0; i < record->n_files; i++) bytes += (int64_t)record->files[i].bytes;
    TRY(db_run(
        r, err,
        "INSERT INTO versions(model, version, kind, digest, bytes, author, added, source, notes, licence)"
        " VALUES(?,?,?,?,?,?,?,?,?,?)",
        "isssisisss", model, version, kind, digest, bytes, author, record->added, str_cstr(&record->source),
        str_cstr(&record->notes), licence ? licence : ""));
    int64_t id = sqlite3_last_insert_rowid(r->db);
    for (size_t i = 0; i < record->n_files; i++) {
        const origin_file *f = &record->files[i];
        TRY(db_run(r, err, "INSERT INTO files VALUES(?,?,?,?)", "isis", id, f->name, (int64_t)f->bytes,
                   f->digest));
    }
    TRY(place_alias(r, model, "latest", id, "", false, err));
    snprintf(subject, sizeof subject, "%s:%s", name, version);
    log_added(&detail, digest, record);
    status st = db_log(r, r->adopting ? "adopt" : "add", subject, &detail, err);
    str_free(&detail);
    return st;
}

/* ---- folders ---------------------------------------------------------------------------------------- */

static status folder_of(const registry *r, const char *name, const char *version, str *dir, str *path,
                        error *err) {
    str_fmt(dir, "%s/models/%s", str_cstr(&r->home), name);
    str_fmt(path, "%s/%s", str_cstr(dir), version);
    TRY(str_check(dir, err));
    return str_check(path, err);
}

status place_folder(const registry *r, const char *done, const char *name, const char *version, error *err) {
    str dir = {0}, path = {0};
    status st = folder_of(r, name, version, &dir, &path, err);
    if (st == CHURON_OK) st = dir_make(str_cstr(&dir), err);
    if (st == CHURON_OK && rename(done, str_cstr(&path)) != 0) {
        int code = errno;
        st = code == ENOTEMPTY || code == EEXIST
                 ? error_set(err, CHURON_INVALID,
                             "VERSION: expected a new one, got %s:%s, whose folder exists", name, version)
                 : link_error(str_cstr(&path), code, err);
    }
    if (st == CHURON_OK) {
        st = dir_sync(str_cstr(&dir), err);
        if (st != CHURON_OK) (void)rename(str_cstr(&path), done);
    }
    str_free(&dir);
    str_free(&path);
    return st;
}

void place_folder_back(const registry *r, const char *done, const char *name, const char *version) {
    str dir = {0}, path = {0};
    if (folder_of(r, name, version, &dir, &path, NULL) == CHURON_OK) (void)rename(str_cstr(&path), done);
    str_free(&dir);
    str_free(&path);
}

void place_name_from(const char *path, bool is_folder, char name[STORE_NAME_MAX + 1]) {
    size_t end = strlen(path), n = 0;
    while (end > 1 && path[end - 1] == '/') end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/') from--;
    size_t dot = end;
    for (size_t i = from + 1; !is_folder && i < end; i++) {
        if (path[i] == '.') dot = i;
    }
    for (size_t i = from; i < dot && n < STORE_NAME_MAX; i++) {
        char c = path[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (alnum || (n && strchr("._-", c))) {
            name[n++] = c;
        } else if (n) {
            name[n++] = '-';
        }
    }
    if (n == 0) name[n++] = 'm';
    name[n] = '\0';
}
