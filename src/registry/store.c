/* store.c: see store.h. */
#define _DEFAULT_SOURCE 1   /* flock */
#define _XOPEN_SOURCE   700 /* realpath */
#include "registry/store.h"

#include "base/file.h"
#include "base/home.h"
#include "base/mem.h"
#include "bundle/pack.h"
#include "registry/origin.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void store_entry_free(store_entry *e) {
    str_free(&e->path);
    str_free(&e->source);
    *e = (store_entry){0};
}

void store_listing_free(store_listing *l) {
    for (size_t i = 0; i < l->n; i++) store_entry_free(&l->entries[i]);
    mem_free(l->entries);
    *l = (store_listing){0};
}

/* ---- where ------------------------------------------------------------------------------------------ */

status store_home(str *out, error *err) {
    return home_path(out, err);
}

/* ---- references ------------------------------------------------------------------------------------- */

static bool word_char(char c, bool first) {
    bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return alnum || (!first && (c == '.' || c == '_' || c == '-'));
}

static status take_word(char out[STORE_NAME_MAX + 1], const char *p, size_t n, const char *field,
                        error *err) {
    bool ok = n >= 1 && n <= STORE_NAME_MAX;
    for (size_t i = 0; ok && i < n; i++) ok = word_char(p[i], i == 0);
    if (!ok) {
        return error_set(
            err, CHURON_INVALID,
            "%s: expected 1 to %d of A-Z a-z 0-9 . _ - beginning with a letter or digit, got \"%.*s\"", field,
            STORE_NAME_MAX, (int)(n < 120 ? n : 120), p);
    }
    memcpy(out, p, n);
    out[n] = '\0';
    return CHURON_OK;
}

status store_ref_parse(store_ref *out, const char *text, error *err) {
    *out = (store_ref){0};
    size_t n = strcspn(text, ":@");
    TRY(take_word(out->name, text, n, "NAME", err));
    if (text[n] == ':') return take_word(out->version, text + n + 1, strlen(text + n + 1), "VERSION", err);
    if (text[n] == '@') return take_word(out->alias, text + n + 1, strlen(text + n + 1), "ALIAS", err);
    return CHURON_OK;
}

/* ---- entries ---------------------------------------------------------------------------------------- */

status store_load(store_entry *out, const char *home, const char *name, const char *version, error *err) {
    *out = (store_entry){0};
    str dir = {0};
    origin o = {0};
    str_fmt(&dir, "%s/models/%s/%s", home, name, version);
    status st = str_check(&dir, err);
    if (st == CHURON_OK) st = origin_read(&o, str_cstr(&dir), err);
    if (st == CHURON_OK) {
        memcpy(out->name, name, strlen(name) + 1);
        memcpy(out->version, version, strlen(version) + 1);
        memcpy(out->file_digest, o.files[0].digest, DIGEST_HEX);
        memcpy(out->digest, o.digest[0] ? o.digest : o.files[0].digest, DIGEST_HEX);
        out->folder = o.folder;
        out->several = !o.folder && o.digest[0] && o.n_files > 1;
        for (size_t i = 0; i < o.n_files; i++) out->bytes += o.files[i].bytes;
        out->added = o.added;
        str_cat(&out->path, str_cstr(&dir));
        out->folder_bytes = out->path.len;
        if (!o.folder) str_fmt(&out->path, "/%s", o.files[0].name);
        str_add(&out->source, str_cstr(&o.source), o.source.len);
        st = str_check(&out->path, err);
        if (st == CHURON_OK) st = str_check(&out->source, err);
    }
    str_free(&dir);
    origin_free(&o);
    if (st != CHURON_OK) store_entry_free(out);
    return st;
}

status store_content_path(const store_entry *e, str *path, error *err) {
    str_add(path, str_cstr(&e->path), e->several ? e->folder_bytes : e->path.len);
    return str_check(path, err);
}

static status listing_add(store_listing *l, store_entry *e, error *err) {
    store_entry *grown = mem_realloc(l->entries, (l->n + 1) * sizeof *grown);
    if (!grown) return error_no_memory(err, "store listing", (l->n + 1) * sizeof *grown);
    l->entries = grown;
    l->entries[l->n++] = *e;
    *e = (store_entry){0};
    return CHURON_OK;
}

/* Adds what is stored under one name. A folder without a good record is no version: it is left out. */
static status list_name(store_listing *l, const char *home, const char *name, error *err) {
    str dir = {0};
    str_fmt(&dir, "%s/models/%s", home, name);
    status st = str_check(&dir, err);
    DIR *d = st == CHURON_OK ? opendir(str_cstr(&dir)) : NULL;
    str_free(&dir);
    if (!d) return st;
    for (const struct dirent *e; st == CHURON_OK && (e = readdir(d));) {
        char version[STORE_NAME_MAX + 1];
        store_entry entry;
        if (take_word(version, e->d_name, strlen(e->d_name), "VERSION", NULL) != CHURON_OK) continue;
        status loaded = store_load(&entry, home, name, version, err);
        if (loaded == CHURON_NO_MEMORY) st = loaded;
        if (loaded != CHURON_OK) continue;
        st = listing_add(l, &entry, err);
        store_entry_free(&entry);
    }
    closedir(d);
    return st;
}

static int by_name_then_age(const void *a, const void *b) {
    const store_entry *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names) return names;
    if (x->added != y->added) return x->added > y->added ? -1 : 1;
    return -strcmp(x->version, y->version);
}

status store_list(store_listing *out, error *err) {
    *out = (store_listing){0};
    str home = {0}, dir = {0};
    DIR *d = NULL;
    status st = store_home(&home, err);
    if (st == CHURON_OK) {
        str_fmt(&dir, "%s/models", str_cstr(&home));
        st = str_check(&dir, err);
    }
    if (st == CHURON_OK) d = opendir(str_cstr(&dir)); /* none: nothing is stored */
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        char name[STORE_NAME_MAX + 1];
        if (take_word(name, e->d_name, strlen(e->d_name), "NAME", NULL) != CHURON_OK) continue;
        st = list_name(out, str_cstr(&home), name, err);
    }
    if (d) closedir(d);
    str_free(&home);
    str_free(&dir);
    if (st != CHURON_OK) store_listing_free(out);
    if (out->n) qsort(out->entries, out->n, sizeof *out->entries, by_name_then_age);
    return st;
}

/* ---- finding ---------------------------------------------------------------------------------------- */

/* Edit distance of short words, without regard to case; more than `most` is told as most + 1. */
static size_t distance(const char *a, const char *b, size_t most) {
    size_t n = strlen(a), m = strlen(b), row[STORE_NAME_MAX + 2];
    if (n > STORE_NAME_MAX || m > STORE_NAME_MAX || (n > m ? n - m : m - n) > most) return most + 1;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = diagonal + (strncasecmp(&a[i - 1], &b[j - 1], 1) != 0);
            diagonal = row[j];
            size_t gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < gap ? change : gap;
        }
    }
    return row[m] > most ? most + 1 : row[m];
}

static bool near_match(const char *asked, const char *name) {
    size_t n = strlen(asked), m = strlen(name), shorter = n < m ? n : m;
    return distance(asked, name, 2) <= (m < 4 ? 1 : 2) ||
           (shorter >= 3 && strncasecmp(asked, name, shorter) == 0);
}

/* Names of the listing, each once, comma-separated; with `asked` only those that are near it. */
static void names_text(const store_listing *l, const char *asked, str *out) {
    size_t shown = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *name = l->entries[i].name;
        if ((i && strcmp(l->entries[i - 1].name, name) == 0) || (asked && !near_match(asked, name))) continue;
        if (shown == 12) {
            str_cat(out, ", ...");
            return;
        }
        str_fmt(out, "%s%s", shown++ ? ", " : "", name);
    }
}

static void versions_text(const store_listing *l, const char *name, str *out) {
    for (size_t i = 0, shown = 0; i < l->n && shown < 12; i++) {
        if (strcmp(l->entries[i].name, name) == 0)
            str_fmt(out, "%s%s", shown++ ? ", " : "", l->entries[i].version);
    }
}

/* The error for a reference that means nothing here. */
static status not_found(const char *asked, const store_ref *ref, error *err) {
    store_listing all;
    str versions = {0}, near = {0}, names = {0}, home = {0};
    status st = store_home(&home, err);
    if (st == CHURON_OK) st = store_list(&all, err);
    if (st != CHURON_OK) {
        str_free(&home);
        return st;
    }
    if (ref) versions_text(&all, ref->name, &versions);
    names_text(&all, ref ? ref->name : asked, &near);
    names_text(&all, NULL, &names);
    if (versions.len) {
        st = error_set(err, CHURON_NOT_FOUND,
                       "MODEL: expected a version of %s that is in the store (%s), got \"%.120s\"", ref->name,
                       str_cstr(&versions), asked);
    } else if (!names.len) {
        st = error_set(
            err, CHURON_NOT_FOUND,
            "MODEL: expected a file or a name in the store, got \"%.120s\". The store (%.160s) is empty: "
            "\"churon pull SOURCE --as NAME\" puts a model in",
            asked, str_cstr(&home));
    } else {
        st = error_set(
            err, CHURON_NOT_FOUND,
            "MODEL: expected a file or a name in the store, got \"%.120s\".%s%.100s%s The store has: %.200s",
            asked, near.len ? " Did you mean " : "", str_cstr(&near), near.len ? "?" : "", str_cstr(&names));
    }
    store_listing_free(&all);
    str_free(&versions);
    str_free(&near);
    str_free(&names);
    str_free(&home);
    return st;
}

/* The version that an alias file names; "" if there is none. */
static status read_alias(const char *home, const char *name, const char *alias,
                         char version[STORE_NAME_MAX + 1], error *err) {
    str path = {0}, text = {0};
    version[0] = '\0';
    str_fmt(&path, "%s/models/%s/@%s", home, name, alias);
    status st = str_check(&path, err);
    if (st == CHURON_OK && file_exists(str_cstr(&path))) {
        st = file_read(&text, str_cstr(&path), 4096, err);
        if (st == CHURON_OK)
            st = take_word(version, str_cstr(&text), strcspn(str_cstr(&text), "\n"), "ALIAS", err);
    }
    str_free(&path);
    str_free(&text);
    return st;
}

static status find_newest(const char *home, const store_ref *ref, store_entry *out, error *err) {
    store_listing l = {0};
    status st = list_name(&l, home, ref->name, err);
    if (st == CHURON_OK && l.n) {
        qsort(l.entries, l.n, sizeof *l.entries, by_name_then_age);
        *out = l.entries[0];
        l.entries[0] = (store_entry){0};
    } else if (st == CHURON_OK) {
        st = CHURON_NOT_FOUND;
    }
    store_listing_free(&l);
    return st;
}

static status find_ref(const char *home, const store_ref *ref, store_entry *out, error *err) {
    char version[STORE_NAME_MAX + 1];
    if (ref->version[0]) return store_load(out, home, ref->name, ref->version, err);
    TRY(read_alias(home, ref->name, ref->alias[0] ? ref->alias : "latest", version, err));
    if (version[0] && store_load(out, home, ref->name, version, err) == CHURON_OK) return CHURON_OK;
    return ref->alias[0] ? CHURON_NOT_FOUND : find_newest(home, ref, out, err);
}

status store_find(const char *text, store_entry *out, error *err) {
    *out = (store_entry){0};
    store_ref ref;
    str home = {0};
    TRY(store_ref_parse(&ref, text, err));
    status st = store_home(&home, err);
    if (st == CHURON_OK) {
        st = find_ref(str_cstr(&home), &ref, out, err);
        if (st == CHURON_NOT_FOUND) st = not_found(text, &ref, err);
    }
    str_free(&home);
    return st;
}

/* ---- resolving -------------------------------------------------------------------------------------- */

static bool has_model_folder_mark(const char *dir) {
    static const char *const marks[] = {"bundle.yaml", "config.json"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        str path = {0};
        str_fmt(&path, "%s/%s", dir, marks[i]);
        bool there = !path.failed && file_exists(str_cstr(&path));
        str_free(&path);
        if (there) return true;
    }
    return false;
}

/* Was this meant as a path rather than as a name of the store? */
static bool looks_like_path(const char *model) {
    static const char *const ends[] = {".gguf", ".onnx", ".churon", ".safetensors"};
    if (strchr(model, '/')) return true;
    size_t n = strlen(model);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(model + n - k, ends[i]) == 0) return true;
    }
    return false;
}

status store_resolve(const char *model, str *path, error *err) {
    if (!*model)
        return error_set(err, CHURON_INVALID, "MODEL: expected a file or a name in the store, got \"\"");
    if (file_exists(model)) {
        if (!file_is_dir(model) || strchr(model, '/') || has_model_folder_mark(model)) {
            str_cat(path, model);
            return str_check(path, err);
        }
    } else if (strchr(model, '/')) {
        return error_set(err, CHURON_NOT_FOUND,
                         "MODEL: expected a file or a name in the store, got \"%.300s\": no such file",
                         model);
    }
    store_entry entry;
    store_ref ref;
    if (store_ref_parse(&ref, model, NULL) != CHURON_OK) return not_found(model, NULL, err);
    status st = store_find(model, &entry, err);
    if (st == CHURON_NOT_FOUND && looks_like_path(model)) {
        return error_set(
            err, st, "MODEL: expected a file or a name in the store, got \"%.300s\": no such file", model);
    }
    if (st == CHURON_OK) {
        str_cat(path, str_cstr(&entry.path));
        st = str_check(path, err);
    }
    store_entry_free(&entry);
    return st;
}

/* ---- digests ---------------------------------------------------------------------------------------- */

/* Is the file inside the store's folder? Elsewhere a record beside a file proves nothing. */
static bool in_store(const char *path) {
    str home = {0};
    bool inside = false;
    if (store_home(&home, NULL) == CHURON_OK) {
        char *real_home = realpath(str_cstr(&home), NULL), *real_path = realpath(path, NULL);
        size_t n = real_home ? strlen(real_home) : 0;
        inside = n && real_path && strncmp(real_path, real_home, n) == 0 && real_path[n] == '/';
        free(real_home); /* realpath's own allocation */
        free(real_path);
    }
    str_free(&home);
    return inside;
}

/* The recorded digest of the file, if it has one and has not changed since. */
static bool recorded_digest(const char *path, char hex[DIGEST_HEX]) {
    struct stat info;
    str dir = {0};
    origin o = {0};
    bool found = false;
    const char *slash = strrchr(path, '/');
    if (!slash || stat(path, &info) != 0 || !in_store(path)) return false;
    str_add(&dir, path, (size_t)(slash - path));
    if (!dir.failed && origin_read(&o, str_cstr(&dir), NULL) == CHURON_OK) {
        int64_t mtime = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
        for (size_t i = 0; i < o.n_files && !found; i++) {
            const origin_file *f = &o.files[i];
            found =
                strcmp(f->name, slash + 1) == 0 && f->bytes == (uint64_t)info.st_size && f->mtime_ns == mtime;
            if (found) memcpy(hex, f->digest, DIGEST_HEX);
        }
    }
    str_free(&dir);
    origin_free(&o);
    return found;
}

/* A folder or a pack: the digest of a bundle. */
static status bundle_digest(const char *path, char hex[DIGEST_HEX], error *err) {
    files *f;
    TRY(files_open(&f, path, err));
    status st = files_digest(f, hex, err);
    files_close(f);
    return st;
}

static bool is_pack(const char *path) {
    unsigned char magic[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool yes = fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
               pack_has_magic(magic, sizeof magic);
    if (fd >= 0) close(fd);
    return yes;
}

status store_digest(const char *path, char hex[DIGEST_HEX], error *err) {
    if (file_is_dir(path) || is_pack(path)) return bundle_digest(path, hex, err);
    return recorded_digest(path, hex) ? CHURON_OK : digest_file(path, hex, err);
}

/* ---- holding ---------------------------------------------------------------------------------------- */

/* Appends the folder of the version that `path` lies in: HOME/models/NAME/VERSION. False: it is not of the
 * store. */
static bool version_folder(const char *path, str *out) {
    str home = {0}, models = {0};
    char *real = realpath(path, NULL), *real_home = NULL;
    bool found = false;
    if (real && store_home(&home, NULL) == CHURON_OK) real_home = realpath(str_cstr(&home), NULL);
    if (real_home) str_fmt(&models, "%s/models/", real_home);
    if (models.len && !models.failed && strncmp(real, models.data, models.len) == 0) {
        const char *name_end = strchr(real + models.len, '/');
        size_t n = name_end ? strcspn(name_end + 1, "/") : 0;
        if (n) str_add(out, real, (size_t)(name_end + 1 - real) + n);
        found = n && !out->failed;
    }
    free(real); /* realpath's own allocations */
    free(real_home);
    str_free(&home);
    str_free(&models);
    return found;
}

status store_check(const char *path, const char *digest, error *err) {
    str folder = {0};
    origin o = {0};
    status st = CHURON_OK;
    if (version_folder(path, &folder)) {
        st = origin_read(&o, str_cstr(&folder), err);
        const char *recorded = *o.digest ? o.digest : o.n_files == 1 ? o.files[0].digest : digest;
        if (st == CHURON_OK && strcmp(recorded, digest) != 0) {
            st = error_set(err, CHURON_CORRUPT,
                           "%s: expected what was registered (digest %.16s…), got files that were changed "
                           "since (%.16s…). "
                           "'churon registry check' names them",
                           str_cstr(&folder), recorded, digest);
        }
    }
    origin_free(&o);
    str_free(&folder);
    return st;
}

status store_hold(const char *path, int *lock, error *err) {
    str record = {0};
    *lock = -1;
    if (!version_folder(path, &record)) {
        str_free(&record);
        if (file_exists(path)) return CHURON_OK;
        return error_set(err, CHURON_NOT_FOUND, "%s: expected a file, got nothing", path);
    }
    str_cat(&record, "/origin.json");
    status st = str_check(&record, err);
    int fd = st == CHURON_OK ? open(str_cstr(&record), O_RDONLY | O_CLOEXEC) : -1;
    if (st == CHURON_OK && (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) != 0 || !file_exists(str_cstr(&record)))) {
        st = error_set(err, CHURON_NOT_FOUND,
                       "%s: expected a version of the store, got one that is being removed", path);
        if (fd >= 0) close(fd);
        fd = -1;
    }
    str_free(&record);
    *lock = fd;
    return st;
}

void store_release(int lock) {
    if (lock >= 0) close(lock);
}
