/* origin.c: see origin.h. */
#include "registry/origin.h"

#include "base/file.h"
#include "base/json_out.h"
#include "base/mem.h"
#include "bundle/files.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

enum { ORIGIN_MAX_BYTES = 64 << 20 };

void origin_free(origin *o) {
    str_free(&o->source);
    str_free(&o->author);
    str_free(&o->notes);
    mem_free(o->files);
    *o = (origin){0};
}

bool origin_name_ok(const char *name, size_t n) {
    if (n == 0 || n > FILES_STEP_MAX || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f || c == '/') return false;
    }
    return !(n == strlen("origin.json") && memcmp(name, "origin.json", n) == 0);
}

status origin_add(origin *o, const origin_file *file, error *err) {
    if (o->n_files >= ORIGIN_MAX_FILES) {
        return error_set(err, CHURON_LIMIT, "files: expected at most %d, got more", ORIGIN_MAX_FILES);
    }
    if ((o->n_files & (o->n_files - 1)) == 0) { /* full at every power of two */
        size_t cap = o->n_files ? o->n_files * 2 : 1;
        origin_file *grown = mem_realloc(o->files, cap * sizeof *grown);
        if (!grown) return error_no_memory(err, "model record", cap * sizeof *grown);
        o->files = grown;
    }
    o->files[o->n_files++] = *file;
    return CHURON_OK;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static status bad(error *err, const char *field, const char *expected) {
    return error_set(err, CHURON_CORRUPT, "origin.json: %s: expected %s", field, expected);
}

static status read_file_record(origin_file *out, const json_t *j, error *err) {
    const json_t *name = json_object_get(j, "name"), *bytes = json_object_get(j, "bytes");
    const json_t *mtime = json_object_get(j, "mtime_ns"), *sha = json_object_get(j, "sha256");
    const char *expected;
    if (!json_is_string(name) ||
        !files_path_ok(json_string_value(name), json_string_length(name), &expected)) {
        return bad(err, "files.name", "a path inside the folder");
    }
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0) return bad(err, "files.bytes", "a size");
    if (!json_is_integer(mtime)) return bad(err, "files.mtime_ns", "an integer");
    if (!json_is_string(sha)) return bad(err, "files.sha256", "a string");
    memcpy(out->name, json_string_value(name), json_string_length(name) + 1);
    out->bytes = (uint64_t)json_integer_value(bytes);
    out->mtime_ns = json_integer_value(mtime);
    return digest_parse(json_string_value(sha), out->digest, err);
}

static status read_optional(origin *out, const json_t *j, error *err) {
    const json_t *kind = json_object_get(j, "kind"), *digest = json_object_get(j, "digest");
    const json_t *author = json_object_get(j, "author"), *notes = json_object_get(j, "notes");
    if (kind && !json_is_string(kind)) return bad(err, "kind", "file or folder");
    if (digest && !json_is_string(digest)) return bad(err, "digest", "a string");
    if (author && !json_is_string(author)) return bad(err, "author", "a string");
    if (notes && !json_is_string(notes)) return bad(err, "notes", "a string");
    out->folder = kind && strcmp(json_string_value(kind), "folder") == 0;
    if (digest) TRY(digest_parse(json_string_value(digest), out->digest, err));
    if (author) str_cat(&out->author, json_string_value(author));
    if (notes) str_cat(&out->notes, json_string_value(notes));
    TRY(str_check(&out->author, err));
    return str_check(&out->notes, err);
}

static status read_record(origin *out, const json_t *j, error *err) {
    const json_t *source = json_object_get(j, "source"), *added = json_object_get(j, "added");
    const json_t *list = json_object_get(j, "files");
    if (!json_is_string(source)) return bad(err, "source", "a string");
    if (!json_is_integer(added)) return bad(err, "added", "an integer");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return bad(err, "files", "a list that is not empty");
    str_add(&out->source, json_string_value(source), json_string_length(source));
    out->added = json_integer_value(added);
    TRY(read_optional(out, j, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        origin_file file;
        TRY(read_file_record(&file, json_array_get(list, i), err));
        TRY(origin_add(out, &file, err));
    }
    return str_check(&out->source, err);
}

status origin_read(origin *out, const char *dir, error *err) {
    *out = (origin){0};
    str path = {0}, text = {0};
    json_t *j = NULL;
    str_fmt(&path, "%s/origin.json", dir);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = file_read(&text, str_cstr(&path), ORIGIN_MAX_BYTES, err);
    if (st == CHURON_OK) {
        json_error_t why;
        j = json_loadb(str_cstr(&text), text.len, JSON_REJECT_DUPLICATES, &why);
        st = j ? read_record(out, j, err)
               : error_set(err, CHURON_CORRUPT, "origin.json: expected JSON, got: %s", why.text);
        if (st != CHURON_OK) error_prefix(err, "%s", dir);
    }
    json_decref(j);
    str_free(&path);
    str_free(&text);
    if (st != CHURON_OK) origin_free(out);
    return st;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void record_text(const origin *o, str *text) {
    json_out j = json_out_begin(text);
    json_out_object(&j, NULL);
    json_out_string(&j, "source", str_cstr(&o->source), o->source.len);
    json_out_int(&j, "added", o->added);
    if (o->folder) json_out_cstr(&j, "kind", "folder");
    if (o->digest[0]) json_out_cstr(&j, "digest", o->digest);
    if (o->author.len) json_out_cstr(&j, "author", str_cstr(&o->author));
    if (o->notes.len) json_out_cstr(&j, "notes", str_cstr(&o->notes));
    json_out_array(&j, "files");
    for (size_t i = 0; i < o->n_files; i++) {
        const origin_file *f = &o->files[i];
        json_out_object(&j, NULL);
        json_out_cstr(&j, "name", f->name);
        json_out_uint(&j, "bytes", f->bytes);
        json_out_int(&j, "mtime_ns", f->mtime_ns);
        json_out_cstr(&j, "sha256", f->digest);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    str_put(text, '\n');
}

static status write_all(const char *path, const str *text, error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0;
    for (size_t at = 0; ok && at < text->len;) {
        ssize_t n = write(fd, text->data + at, text->len - at);
        if (n < 0 && errno == EINTR) continue;
        ok = n > 0;
        if (ok) at += (size_t)n;
    }
    ok = ok && fsync(fd) == 0;
    int code = errno;
    if (fd >= 0 && close(fd) != 0) ok = false;
    return ok ? CHURON_OK : error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(code));
}

status origin_write(const origin *o, const char *dir, error *err) {
    str path = {0}, text = {0};
    str_fmt(&path, "%s/origin.json", dir);
    record_text(o, &text);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = str_check(&text, err);
    if (st == CHURON_OK) st = write_all(str_cstr(&path), &text, err);
    str_free(&path);
    str_free(&text);
    return st;
}
