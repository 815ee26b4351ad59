/* add.c: taking a version in. The order of events, each of which may be the last one before a crash:
 *   partial/add-XXXXXX/          own, marked by a lock (flock) that ends with the process
 *   partial/add-XXXXXX/0, 1…     contents, copied, hashed, synchronised
 *   blobs/ab/HEX                 a further name of each (a name that is there already is used)
 *   partial/add-XXXXXX/done/     further names under their paths, then origin.json
 *   in one transaction: the rows; done/ renamed to models/NAME/VERSION; commit.
 * A folder in place without its rows (the crash was between the last two) is a whole version, and is taken in
 * by registry_adopt with what origin.json says. */
#define _GNU_SOURCE 1 /* flock, mkdtemp */
#include "base/clock.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "bundle/sign.h"
#include "registry/db.h"
#include "registry/origin.h"
#include "registry/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_STEP = 1 << 20, SIGNATURES_MAX = 1 << 20, MANIFEST_MEMORY = 64 << 20 };

/* Owner: the thread in registry_add. */
typedef struct adding {
    registry *r;
    const registry_add_options *o;
    files *from;
    char name[STORE_NAME_MAX + 1], version[STORE_NAME_MAX + 1];
    str dir, done; /* partial/add-XXXXXX, …/done */
    int lock;
    origin record;
    str signatures; /* of the source: lines as sign.h has them */
    const char *kind;
    const char
        *main; /* of a folder: the file that is the model; NULL: the folder, or there is only one file */
} adding;

/* ---- own folder ------------------------------------------------------------------------------------- */

static status make_own_folder(adding *a, error *err) {
    str_fmt(&a->dir, "%s/partial", str_cstr(&a->r->home));
    TRY(str_check(&a->dir, err));
    TRY(dir_make(str_cstr(&a->dir), err));
    place_clean_partial(a->r);
    str_cat(&a->dir, "/add-XXXXXX");
    TRY(str_check(&a->dir, err));
    TRY(dir_make(str_cstr(&a->r->home), err));
    for (int tries = 0; a->lock < 0 && tries < 100; tries++) {
        struct stat mine, named;
        memcpy(a->dir.data + a->dir.len - 6, "XXXXXX", 6);
        if (!mkdtemp(a->dir.data)) {
            int code = errno;
            return error_set(err, code == ENOSPC || code == EDQUOT ? CHURON_LIMIT : CHURON_IO,
                             "%s: cannot make this folder: %s", str_cstr(&a->dir), strerror(code));
        }
        /* Somebody who cleans up may have taken it before it was locked. */
        int fd = open(a->dir.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool ok = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &mine) == 0 &&
                  stat(a->dir.data, &named) == 0 && mine.st_ino == named.st_ino;
        if (ok) a->lock = fd;
        if (!ok && fd >= 0) close(fd);
    }
    if (a->lock < 0)
        return error_set(err, CHURON_BUSY, "%s: cannot lock a folder of its own", str_cstr(&a->dir));
    str_fmt(&a->done, "%s/done", str_cstr(&a->dir));
    TRY(str_check(&a->done, err));
    return dir_make(str_cstr(&a->done), err);
}

/* ---- contents --------------------------------------------------------------------------------------- */

static status copy_content(const char *from_name, const files_view *v, const char *to, origin_file *f,
                           error *err) {
    digest_state d;
    sink s = {.fd = -1};
    struct stat info;
    TRY(digest_begin(&d, err));
    status st = sink_open(&s, to, false, err);
    for (size_t at = 0; st == CHURON_OK && at < v->size; at += COPY_STEP) {
        size_t n = v->size - at < COPY_STEP ? v->size - at : COPY_STEP;
        st = sink_write(&s, v->data + at, n, err);
        digest_add(&d, v->data + at, n);
    }
    if (st == CHURON_OK && (fchmod(s.fd, 0444) != 0 || fstat(s.fd, &info) != 0)) {
        st = error_set(err, CHURON_IO, "%s: %s", from_name, strerror(errno));
    }
    if (st == CHURON_OK) st = sink_close(&s, err);
    sink_drop(&s);
    if (st != CHURON_OK) {
        digest_drop(&d);
        return st;
    }
    f->bytes = v->size;
    f->mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return digest_end(&d, f->digest, err);
}

/* Takes in one content under `path`: copied to partial/…/i, named in blobs and in done/. */
static status take_content(adding *a, const char *path, const files_view *v, error *err) {
    origin_file f = {0};
    str own = {0}, to = {0};
    snprintf(f.name, sizeof f.name, "%s", path);
    str_fmt(&own, "%s/%zu", str_cstr(&a->dir), a->record.n_files);
    str_fmt(&to, "%s/%s", str_cstr(&a->done), path);
    status st = str_check(&own, err);
    if (st == CHURON_OK) st = str_check(&to, err);
    if (st == CHURON_OK) st = copy_content(path, v, str_cstr(&own), &f, err);
    if (st == CHURON_OK) st = place_blob(a->r, str_cstr(&own), f.digest, str_cstr(&to), &f.mtime_ns, err);
    if (st == CHURON_OK) st = origin_add(&a->record, &f, err);
    str_free(&own);
    str_free(&to);
    return st;
}

/* A pack is taken in as the file that it is. */
static status take_whole_file(adding *a, error *err) {
    const char *path = files_path_of(a->from), *slash = strrchr(path, '/');
    file_map map;
    TRY(files_verify(a->from, false, err));
    TRY(file_map_open(&map, path, err));
    files_view v = {.data = map.data ? map.data : (const uint8_t *)"", .size = map.size};
    status st = take_content(a, slash ? slash + 1 : path, &v, err);
    file_map_close(&map);
    return st;
}

static status take_one(adding *a, const char *path, error *err) {
    files_view v;
    TRY(files_map(a->from, path, &v, err));
    status st = take_content(a, path, &v, err);
    files_unmap(&v);
    return st;
}

static status choose_main(adding *a, error *err) {
    a->main = a->o->main ? a->o->main : place_main(a->from);
    if (!a->main || files_find(a->from, a->main)) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "%s: expected a file %s, got none", files_path_of(a->from),
                     a->main);
}

static status take_contents(adding *a, error *err) {
    if (files_kind_of(a->from) != FILES_FOLDER) return take_whole_file(a, err);
    TRY(choose_main(a, err));
    if (a->main) TRY(take_one(a, a->main, err)); /* the model's file is the first of the record */
    for (size_t i = 0; i < files_count(a->from); i++) {
        const char *path = files_at(a->from, i)->path;
        if (!a->main || strcmp(path, a->main) != 0) TRY(take_one(a, path, err));
    }
    return CHURON_OK;
}

/* The digest of what was copied, which need not be what the source holds by now. */
static status seal(adding *a, error *err) {
    files *placed;
    str path = {0};
    str_cat(&path, str_cstr(&a->done));
    if (a->main || files_kind_of(a->from) != FILES_FOLDER) str_fmt(&path, "/%s", a->record.files[0].name);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = files_open(&placed, str_cstr(&path), err);
    if (st == CHURON_OK) {
        a->record.folder = files_kind_of(placed) == FILES_FOLDER;
        a->kind = a->record.folder ? "folder" : files_kind_of(placed) == FILES_PACK ? "pack" : "file";
        st = place_digest(placed, &a->record, a->record.digest, err);
        files_close(placed);
    }
    bool whole = a->record.folder || a->record.n_files > 1;
    if (st == CHURON_OK && a->o->verify) {
        str result = {0};
        st = a->o->verify(a->o->user, whole ? str_cstr(&a->done) : str_cstr(&path), &result, err);
        if (st == CHURON_OK && result.len)
            str_fmt(&a->record.notes, "%sverified: %s", a->record.notes.len ? "\n" : "", result.data);
        str_free(&result);
    }
    str_free(&path);
    return st;
}

/* The source's signatures come along: they are over the content. */
static status take_signatures(adding *a, error *err) {
    str from = {0}, to = {0};
    sink s = {.fd = -1};
    bool folder = a->record.folder || a->record.n_files > 1;
    status st = sign_path(a->from, &from, err);
    if (st == CHURON_OK && file_exists(str_cstr(&from))) {
        st = file_read(&a->signatures, str_cstr(&from), SIGNATURES_MAX, err);
        str_cat(&to, str_cstr(&a->done));
        str_fmt(&to, folder ? "/.signatures" : "/%s.sig", a->record.files[0].name);
        if (st == CHURON_OK) st = str_check(&to, err);
        if (st == CHURON_OK) st = sink_open(&s, str_cstr(&to), false, err);
        if (st == CHURON_OK) st = sink_write(&s, str_cstr(&a->signatures), a->signatures.len, err);
        if (st == CHURON_OK) st = sink_close(&s, err);
        sink_drop(&s);
    }
    str_free(&from);
    str_free(&to);
    return st;
}

/* And into the database; a line that is no signature stays where it is. */
static status signature_rows(adding *a, const version_row *v, error *err) {
    status st = CHURON_OK;
    for (char *rest = a->signatures.data, *line;
         st == CHURON_OK && rest && (line = strtok_r(rest, "\n", &rest));) {
        char id[SIGN_ID], signature[SIGN_TEXT];
        if (sscanf(line, "ed25519 %16s %88s", id, signature) != 2 ||
            utf8_validate(line, strlen(line)) != strlen(line))
            continue;
        st = db_run(
            a->r, err,
            "INSERT OR IGNORE INTO signatures(version, key_id, signature, time, actor) VALUES(?,?,?,?,?)",
            "issis", v->id, id, signature, clock_unix(), a->r->actor);
    }
    return st;
}

static status write_record(adding *a, error *err) {
    str_cat(&a->record.source, a->o->source ? a->o->source : files_path_of(a->from));
    str_cat(&a->record.author, a->r->actor);
    if (a->o->notes) str_cat(&a->record.notes, a->o->notes);
    a->record.added = clock_unix();
    TRY(str_check(&a->record.source, err));
    TRY(str_check(&a->record.author, err));
    TRY(seal(a, err));
    TRY(take_signatures(a, err));
    TRY(str_check(&a->record.notes, err));
    TRY(origin_write(&a->record, str_cstr(&a->done), err));
    return place_sync_tree(str_cstr(&a->done), err);
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static status choose_version(adding *a, error *err) {
    int64_t taken;
    bool there;
    if (!a->o->version) return registry_next_version(a->r, a->name, a->version, err);
    TRY(db_check_word(a->o->version, "VERSION", err));
    snprintf(a->version, sizeof a->version, "%s", a->o->version);
    TRY(db_value(a->r, &taken, &there, err,
                 "SELECT v.id FROM versions v JOIN models m ON m.id=v.model WHERE m.name=? AND v.version=?",
                 "ss", a->name, a->version));
    if (!there) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "VERSION: expected a new one, got %s:%s, which is registered: versions are immutable",
                     a->name, a->version);
}

static status link_if(adding *a, const char *relation, const char *target, error *err) {
    char ref[2 * STORE_NAME_MAX + 2];
    if (!target) return CHURON_OK;
    snprintf(ref, sizeof ref, "%s:%s", a->name, a->version);
    return place_link(a->r, ref, relation, target, "", err);
}

static status register_it(adding *a, error *err) {
    version_row v;
    char ref[2 * STORE_NAME_MAX + 2];
    TRY(db_may(a->r, a->name, "write", err));
    TRY(choose_version(a, err));
    TRY(place_rows(a->r, a->name, a->version, a->kind, &a->record, a->o->owner, a->o->licence, err));
    snprintf(ref, sizeof ref, "%s:%s", a->name, a->version);
    TRY(db_version(a->r, ref, &v, err));
    TRY(signature_rows(a, &v, err));
    TRY(link_if(a, "derived_from", a->o->derived_from, err));
    TRY(link_if(a, "quantized_from", a->o->quantized_from, err));
    TRY(link_if(a, "trained_on", a->o->trained_on, err));
    return place_folder(a->r, str_cstr(&a->done), a->name, a->version, err);
}

/* The version that was asked for, else the newest, if it has this content. */
static status find_same(adding *a, registry_added *out, error *err) {
    version_row v;
    char ref[2 * STORE_NAME_MAX + 2];
    snprintf(ref, sizeof ref, "%s%s%s", a->name, a->o->version ? ":" : "",
             a->o->version ? a->o->version : "");
    error why;
    status st = db_version(a->r, ref, &v, &why);
    if (st == CHURON_NOT_FOUND || st == CHURON_INVALID) return CHURON_OK;
    if (st != CHURON_OK && err) *err = why;
    TRY(st);
    if (v.removed || strcmp(v.digest, a->record.digest) != 0) return CHURON_OK;
    out->already = true;
    return store_load(&out->entry, str_cstr(&a->r->home), v.name, v.version, err);
}

static status commit(adding *a, registry_added *out, error *err) {
    TRY(db_begin(a->r, err));
    status st = find_same(a, out, err);
    if (st == CHURON_OK && !out->already) st = register_it(a, err);
    bool placed = st == CHURON_OK && !out->already;
    st = db_end(a->r, st, err);
    if (st != CHURON_OK && placed) place_folder_back(a->r, str_cstr(&a->done), a->name, a->version);
    TRY(st);
    if (out->already) return CHURON_OK;
    TRY(db_project(a->r, err));
    return store_load(&out->entry, str_cstr(&a->r->home), a->name, a->version, err);
}

/* Appends the name that a bundle's manifest gives. Nothing where there is none that can be read: what is
 * wrong with a manifest is said by whoever opens the bundle. */
static status name_of_bundle(const files *f, str *name, error *err) {
    arena memory = {.limit = MANIFEST_MEMORY};
    yaml_node top;
    str text = {0};
    if (!files_find(f, PLACE_MANIFEST)) return CHURON_OK;
    status st = files_read(f, PLACE_MANIFEST, YAML_MAX_BYTES, &text, err);
    if (st == CHURON_OK &&
        yaml_parse(&top, &memory, PLACE_MANIFEST, str_cstr(&text), text.len, NULL) == CHURON_OK) {
        const yaml_node *node = top.kind == YAML_MAP ? yaml_get(&top, "name") : NULL;
        if (node && node->kind == YAML_SCALAR) str_add(name, node->text, node->len);
        st = str_check(name, err);
    }
    arena_free(&memory);
    str_free(&text);
    return st;
}

/* What was asked for, else the bundle's own, else the last step of the source's path without a model's
 * ending. */
static status choose_name(adding *a, error *err) {
    str own = {0};
    status st = CHURON_OK;
    if (a->o->name) {
        st = db_check_word(a->o->name, "NAME", err);
        if (st == CHURON_OK) snprintf(a->name, sizeof a->name, "%s", a->o->name);
        return st;
    }
    st = name_of_bundle(a->from, &own, err);
    if (st == CHURON_OK && own.len && db_check_word(str_cstr(&own), "name", NULL) == CHURON_OK) {
        snprintf(a->name, sizeof a->name, "%s", str_cstr(&own));
    } else {
        place_name_from(files_path_of(a->from), files_kind_of(a->from) == FILES_FOLDER, a->name);
    }
    str_free(&own);
    return st;
}

status registry_add(registry *r, const char *source, const registry_add_options *o, registry_added *out,
                    error *err) {
    static const registry_add_options none;
    adding a = {.r = r, .o = o ? o : &none, .lock = -1};
    *out = (registry_added){0};
    status st = files_open(&a.from, source, err);
    if (st == CHURON_OK && !files_count(a.from)) {
        st = error_set(err, CHURON_INVALID, "%s: expected files, got an empty folder", source);
    }
    if (st == CHURON_OK) st = place_check_model(a.from, err);
    if (st == CHURON_OK) st = choose_name(&a, err);
    if (st == CHURON_OK) st = make_own_folder(&a, err);
    if (st == CHURON_OK) st = take_contents(&a, err);
    if (st == CHURON_OK) st = write_record(&a, err);
    if (st == CHURON_OK) st = commit(&a, out, err);
    if (a.lock >= 0) {
        dir_remove(str_cstr(&a.dir));
        close(a.lock);
    }
    files_close(a.from);
    origin_free(&a.record);
    str_free(&a.signatures);
    str_free(&a.dir);
    str_free(&a.done);
    if (st != CHURON_OK) store_entry_free(&out->entry);
    return st;
}
