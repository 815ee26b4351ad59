/* files.c: see files.h. */
#define _GNU_SOURCE 1 /* O_DIRECTORY, O_NOFOLLOW, fdopendir */
#include "bundle/files.h"

#include "base/mem.h"
#include "bundle/files_part.h"
#include "bundle/verified.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- opening a folder ------------------------------------------------------------------------------- */

static bool is_left_out(const char *path, const char *step) {
    return step[0] == '.' || strcmp(path, "origin.json") == 0;
}

static status add_entry(files *f, const char *path, uint64_t size, error *err) {
    if (f->n >= FILES_MAX) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %d files, got more", files_path_of(f),
                         FILES_MAX);
    }
    if ((f->n & (f->n - 1)) == 0) { /* full at every power of two */
        size_t cap = f->n ? f->n * 2 : 1;
        files_entry *grown = mem_realloc(f->entries, cap * sizeof *grown);
        if (!grown) return error_no_memory(err, "list of files", cap * sizeof *grown);
        f->entries = grown;
    }
    char *copy = mem_strdup(path);
    if (!copy) return error_no_memory(err, "path", strlen(path) + 1);
    f->entries[f->n++] = (files_entry){.path = copy, .size = size};
    return CHURON_OK;
}

static status walk(files *f, int dir, str *path, error *err);

static status walk_step(files *f, int dir, str *path, const char *step, error *err) {
    struct stat info;
    const char *expected;
    const char *shown = str_cstr(path);
    if (!files_path_ok(shown, path->len, &expected)) {
        return error_set(err, CHURON_INVALID, "%s: path: expected %s, got \"%.300s\"", files_path_of(f),
                         expected, shown);
    }
    if (fstatat(dir, step, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return error_set(err, CHURON_IO, "%s/%s: %s", files_path_of(f), shown, strerror(errno));
    }
    if (S_ISREG(info.st_mode)) return add_entry(f, shown, (uint64_t)info.st_size, err);
    if (!S_ISDIR(info.st_mode)) {
        return error_set(err, CHURON_INVALID, "%s/%s: expected a regular file or a folder, got a %s",
                         files_path_of(f), shown, S_ISLNK(info.st_mode) ? "symbolic link" : "device or pipe");
    }
    int below = openat(dir, step, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) return error_set(err, CHURON_IO, "%s/%s: %s", files_path_of(f), shown, strerror(errno));
    return walk(f, below, path, err);
}

/* Adds what is in the folder `dir`, which is closed; *path is its path in the bundle. */
static status walk(files *f, int dir, str *path, error *err) {
    status st = CHURON_OK;
    size_t len = path->len;
    DIR *d = fdopendir(dir);
    if (!d) {
        st = error_set(err, CHURON_IO, "%s: cannot list: %s", files_path_of(f), strerror(errno));
        close(dir);
        return st;
    }
    for (const struct dirent *e; st == CHURON_OK && (e = readdir(d));) {
        if (len) str_put(path, '/');
        str_cat(path, e->d_name);
        st = str_check(path, err);
        if (st == CHURON_OK && !is_left_out(str_cstr(path), e->d_name)) {
            st = walk_step(f, dirfd(d), path, e->d_name, err);
        }
        path->len = len;
        if (path->data) path->data[len] = '\0';
    }
    closedir(d);
    return st;
}

static int by_path(const void *a, const void *b) {
    const files_entry *x = a, *y = b;
    return strcmp(x->path, y->path); /* of unsigned char: byte order */
}

static status open_folder(files *f, error *err) {
    str path = {0};
    f->dir = open(files_path_of(f), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int again = f->dir >= 0 ? fcntl(f->dir, F_DUPFD_CLOEXEC, 3) : -1;
    if (again < 0) {
        return error_set(err, CHURON_IO, "%s: cannot open: %s", files_path_of(f), strerror(errno));
    }
    status st = walk(f, again, &path, err);
    str_free(&path);
    if (st == CHURON_OK && f->n) qsort(f->entries, f->n, sizeof *f->entries, by_path);
    return st;
}

/* ---- opening a file --------------------------------------------------------------------------------- */

static status open_file(files *f, error *err) {
    const char *path = files_path_of(f), *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *expected;
    /* Opened twice and compared, since the map has no descriptor to ask. */
    TRY(file_map_open(&f->map, path, err));
    if (stat(path, &f->info) != 0 || (uint64_t)f->info.st_size != f->map.size) {
        return error_set(err, CHURON_IO, "%s: changed while it was opened", path);
    }
    if (f->map.data && pack_has_magic(f->map.data, f->map.size)) {
        f->kind = FILES_PACK;
        status st = pack_open(&f->pack, f->map.data, f->map.size, err);
        if (st != CHURON_OK) error_prefix(err, "%s", path);
        return st;
    }
    size_t n = strlen(path);
    if (n > 7 && strcmp(path + n - 7, ".churon") == 0) {
        return error_set(err, CHURON_CORRUPT, "%s: magic: expected CHURONPK, got another file", path);
    }
    f->kind = FILES_SINGLE;
    if (!files_path_ok(name, strlen(name), &expected)) {
        return error_set(err, CHURON_INVALID, "%s: file name: expected %s", path, expected);
    }
    return add_entry(f, name, f->map.size, err);
}

status files_open(files **out, const char *path, error *err) {
    *out = NULL;
    files *f = mem_calloc(1, sizeof *f);
    if (!f) return error_no_memory(err, "bundle", sizeof *f);
    f->dir = -1;
    str_cat(&f->path, path);
    status st = str_check(&f->path, err);
    if (st == CHURON_OK && !file_exists(path)) {
        st = error_set(err, CHURON_NOT_FOUND, "%s: expected a folder or a file, got nothing", path);
    }
    if (st == CHURON_OK) st = file_is_dir(path) ? open_folder(f, err) : open_file(f, err);
    if (st != CHURON_OK) {
        files_close(f);
        return st;
    }
    *out = f;
    return CHURON_OK;
}

void files_close(files *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n; i++) mem_free((void *)(uintptr_t)f->entries[i].path);
    mem_free(f->entries);
    pack_close(&f->pack);
    file_map_close(&f->map);
    if (f->dir >= 0) close(f->dir);
    str_free(&f->path);
    mem_free(f);
}

/* ---- looking ---------------------------------------------------------------------------------------- */

files_kind files_kind_of(const files *f) {
    return f->kind;
}

const char *files_path_of(const files *f) {
    return str_cstr(&f->path);
}

size_t files_count(const files *f) {
    return f->kind == FILES_PACK ? f->pack.n : f->n;
}

const files_entry *files_at(const files *f, size_t i) {
    return f->kind == FILES_PACK ? &f->pack.entries[i].file : &f->entries[i];
}

const files_entry *files_find(const files *f, const char *path) {
    if (f->kind == FILES_PACK) {
        const pack_entry *e = pack_find(&f->pack, path);
        return e ? &e->file : NULL;
    }
    files_entry key = {.path = path};
    return f->n ? bsearch(&key, f->entries, f->n, sizeof *f->entries, by_path) : NULL;
}

static status find(const files *f, const char *path, const files_entry **out, error *err) {
    *out = files_find(f, path);
    if (*out) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "%.300s: expected a file of %.300s, got no such file", path,
                     files_path_of(f));
}

/* ---- bytes ------------------------------------------------------------------------------------------ */

/* Opens a folder's file step by step; no step may be a symbolic link. */
static status open_below(const files *f, const char *path, int *out, struct stat *info, error *err) {
    char step[FILES_STEP_MAX + 1];
    int dir = f->dir;
    for (;;) {
        size_t n = strcspn(path, "/");
        bool last = path[n] == '\0';
        memcpy(step, path, n); /* at most FILES_STEP_MAX: the path is one of the list */
        step[n] = '\0';
        int fd = openat(dir, step, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (last ? O_NONBLOCK : O_DIRECTORY));
        int code = errno;
        if (dir != f->dir) close(dir);
        if (fd < 0) {
            return error_set(err, code == ENOENT ? CHURON_NOT_FOUND : CHURON_IO, "%s/%s: cannot open: %s",
                             files_path_of(f), path, strerror(code));
        }
        dir = fd;
        if (last) break;
        path += n + 1;
    }
    if (fstat(dir, info) != 0 || !S_ISREG(info->st_mode)) {
        close(dir);
        return error_set(err, CHURON_INVALID, "%s/%s: expected a regular file, got another thing",
                         files_path_of(f), path);
    }
    *out = dir;
    return CHURON_OK;
}

static status map_below(const files *f, const char *path, files_view *out, struct stat *info, error *err) {
    int fd = -1;
    TRY(open_below(f, path, &fd, info, err));
    status st = CHURON_OK;
    out->size = (size_t)info->st_size;
    out->data = (const uint8_t *)"";
    if (out->size) {
        void *p = mmap(NULL, out->size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            st = error_set(err, CHURON_IO, "%s/%s: cannot map: %s", files_path_of(f), path, strerror(errno));
        } else {
            out->data = p;
            out->map = (file_map){.data = p, .size = out->size};
        }
    }
    close(fd);
    return st;
}

status files_map(const files *f, const char *path, files_view *out, error *err) {
    const files_entry *e;
    struct stat info;
    *out = (files_view){0};
    TRY(find(f, path, &e, err));
    if (f->kind == FILES_FOLDER) return map_below(f, path, out, &info, err);
    out->size = (size_t)e->size;
    if (f->kind == FILES_SINGLE) {
        out->data = f->map.data ? f->map.data : (const uint8_t *)"";
        return CHURON_OK;
    }
    return pack_content(&f->pack, pack_find(&f->pack, path), &out->data, &out->heap, err);
}

void files_unmap(files_view *v) {
    file_map_close(&v->map);
    mem_free(v->heap);
    *v = (files_view){0};
}

status files_read(const files *f, const char *path, size_t max_bytes, str *out, error *err) {
    const files_entry *e;
    files_view v;
    TRY(find(f, path, &e, err));
    if (e->size > max_bytes) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %zu bytes, got %llu", path, max_bytes,
                         (unsigned long long)e->size);
    }
    TRY(files_map(f, path, &v, err));
    status st = CHURON_OK;
    if (v.size > max_bytes) {
        st = error_set(err, CHURON_LIMIT, "%s: expected at most %zu bytes, got %zu", path, max_bytes, v.size);
    } else {
        str_add(out, (const char *)v.data, v.size);
        st = str_check(out, err);
    }
    files_unmap(&v);
    return st;
}

status files_locate(const files *f, const char *path, str *file, uint64_t *offset, error *err) {
    const files_entry *e;
    *offset = 0;
    TRY(find(f, path, &e, err));
    str_cat(file, files_path_of(f));
    if (f->kind == FILES_FOLDER) {
        str_fmt(file, "/%s", path);
    } else if (f->kind == FILES_PACK) {
        const pack_entry *p = pack_find(&f->pack, path);
        *offset = p->offset;
        if (p->method != PACK_RAW) {
            return error_set(err, CHURON_UNSUPPORTED, "%s: expected an entry that is not compressed", path);
        }
    }
    return str_check(file, err);
}

/* ---- digests ---------------------------------------------------------------------------------------- */

status files_digest_of(const files_entry *(*at)(const void *user, size_t i), const void *user, size_t n,
                       char hex[DIGEST_HEX], error *err) {
    digest_state d;
    TRY(digest_begin(&d, err));
    for (size_t i = 0; i < n; i++) {
        const files_entry *e = at(user, i);
        digest_add(&d, e->digest, DIGEST_HEX - 1);
        digest_add(&d, "  ", 2);
        digest_add(&d, e->path, strlen(e->path));
        digest_add(&d, "\n", 1);
    }
    return digest_end(&d, hex, err);
}

/* Reads a folder whole. */
static status digest_folder(const files *f, char hex[DIGEST_HEX], error *err) {
    digest_state d;
    TRY(digest_begin(&d, err));
    status st = CHURON_OK;
    for (size_t i = 0; st == CHURON_OK && i < f->n; i++) {
        char one[DIGEST_HEX];
        files_view v;
        st = files_map(f, f->entries[i].path, &v, err);
        if (st != CHURON_OK) break;
        st = digest_bytes(v.data, v.size, one, err);
        files_unmap(&v);
        digest_add(&d, one, st == CHURON_OK ? DIGEST_HEX - 1 : 0);
        digest_add(&d, "  ", 2);
        digest_add(&d, f->entries[i].path, strlen(f->entries[i].path));
        digest_add(&d, "\n", 1);
    }
    if (st == CHURON_OK) return digest_end(&d, hex, err);
    digest_drop(&d);
    return st;
}

/* What stands for the files as they are now. */
static status key_of(const files *f, verified_key *k, error *err) {
    if (f->kind != FILES_FOLDER) {
        verified_key_add(k, f->kind == FILES_PACK ? "pack" : "file", &f->info);
        return CHURON_OK;
    }
    for (size_t i = 0; i < f->n; i++) {
        struct stat info;
        int fd;
        TRY(open_below(f, f->entries[i].path, &fd, &info, err));
        close(fd);
        verified_key_add(k, f->entries[i].path, &info);
    }
    return str_check(&k->text, err);
}

static status digest_now(const files *f, char hex[DIGEST_HEX], error *err) {
    if (f->kind == FILES_FOLDER) return digest_folder(f, hex, err);
    return digest_bytes(f->map.data ? f->map.data : (const uint8_t *)"", f->map.size, hex, err);
}

status files_digest(const files *f, char hex[DIGEST_HEX], error *err) {
    if (f->kind == FILES_PACK) {
        memcpy(hex, f->pack.digest, DIGEST_HEX);
        return CHURON_OK;
    }
    verified_key k = {0};
    status st = key_of(f, &k, err);
    if (st == CHURON_OK && !verified_find(&k, hex)) {
        st = digest_now(f, hex, err);
        if (st == CHURON_OK) verified_remember(&k, hex);
    }
    verified_key_free(&k);
    return st;
}

status files_verify(const files *f, bool fresh, error *err) {
    if (f->kind != FILES_PACK) return CHURON_OK;
    verified_key k = {0};
    char known[DIGEST_HEX];
    status st = key_of(f, &k, err);
    bool done = st == CHURON_OK && !fresh && verified_find(&k, known) && strcmp(known, f->pack.digest) == 0;
    if (st == CHURON_OK && !done) {
        st = pack_verify(&f->pack, err);
        if (st == CHURON_OK) verified_remember(&k, f->pack.digest);
        if (st != CHURON_OK) error_prefix(err, "%s", files_path_of(f));
    }
    verified_key_free(&k);
    return st;
}
