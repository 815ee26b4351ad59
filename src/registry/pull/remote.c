/* remote.c: see remote.h. */
#define _GNU_SOURCE 1 /* mkdtemp, flock */
#include "registry/pull/remote.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/json_out.h"
#include "bundle/sign.h"
#include "registry/pull/pull_part.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { INDEX_MAX = 64 << 20 };

bool remote_is_url(const char *home) {
    return strncmp(home, "https://", 8) == 0 || strncmp(home, "http://", 7) == 0;
}

/* ---- the index -------------------------------------------------------------------------------------- */

static void join(str *to, const char *url, const char *path) {
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    str_add(to, url, n);
    str_fmt(to, "/%s", path);
}

static const char *word(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static status read_index(const char *url, json_t **out, error *err) {
    str at = {0}, text = {0};
    meter m = {0};
    json_error_t why;
    *out = NULL;
    join(&at, url, "index.json");
    status st = str_check(&at, err);
    if (st == CHURON_OK)
        st = fetch_text(str_cstr(&at), NULL, source_loopback_url(url), INDEX_MAX, &m, &text, err);
    if (st == CHURON_OK) {
        *out = json_loadb(str_cstr(&text), text.len, JSON_REJECT_DUPLICATES, &why);
        if (!*out) {
            st = error_set(err, CHURON_CORRUPT, "%s: expected JSON, got: %s", str_cstr(&at), why.text);
        } else if (json_integer_value(json_object_get(*out, "churon_registry")) != 1 ||
                   !json_is_array(json_object_get(*out, "models"))) {
            st = error_set(err, CHURON_CORRUPT,
                           "%s: churon_registry: expected 1 and models, got another file", str_cstr(&at));
        }
    }
    str_free(&at);
    str_free(&text);
    return st;
}

static void put_json(json_out *j, const char *key, const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (text) {
        json_out_raw(j, key, text, strlen(text));
    } else {
        j->to->failed = true;
    }
    release(text);
}

status remote_list_models(const char *url, const char *name, str *json, error *err) {
    json_t *index;
    status st = read_index(url, &index, err);
    json_out j = json_out_begin(json);
    size_t found = 0;
    json_out_object(&j, NULL);
    json_out_cstr(&j, "registry", url);
    json_out_array(&j, "models");
    const json_t *models = st == CHURON_OK ? json_object_get(index, "models") : NULL;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i);
        if (name && strcmp(word(m, "name"), name) != 0) continue;
        put_json(&j, NULL, m);
        found++;
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    json_decref(index);
    if (st == CHURON_OK && name && !found) {
        st = error_set(err, CHURON_NOT_FOUND, "NAME: expected a model of %s, got \"%.100s\"", url, name);
    }
    return st == CHURON_OK ? str_check(json, err) : st;
}

static bool has_alias(const json_t *version, const char *alias) {
    const json_t *list = json_object_get(version, "aliases");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *a = json_string_value(json_array_get(list, i));
        if (a && strcmp(a, alias) == 0) return true;
    }
    return false;
}

/* The version that a reference means; borrowed from the index. */
static status find(const json_t *index, const char *url, const char *text, store_ref *ref, const json_t **out,
                   error *err) {
    const json_t *models = json_object_get(index, "models");
    *out = NULL;
    TRY(store_ref_parse(ref, text, err));
    for (size_t i = 0; i < json_array_size(models) && !*out; i++) {
        const json_t *m = json_array_get(models, i), *versions = json_object_get(m, "versions");
        if (strcmp(word(m, "name"), ref->name) != 0) continue;
        for (size_t k = 0; k < json_array_size(versions) && !*out; k++) {
            const json_t *v = json_array_get(versions, k);
            bool wanted = ref->version[0] ? strcmp(word(v, "version"), ref->version) == 0
                                          : has_alias(v, ref->alias[0] ? ref->alias : "latest");
            if (wanted) *out = v;
        }
    }
    if (*out) return CHURON_OK;
    return error_set(err, CHURON_NOT_FOUND, "REF: expected a version of %s, got \"%.200s\"", url, text);
}

status remote_show(const char *url, const char *text, str *json, error *err) {
    json_t *index;
    const json_t *v;
    store_ref ref;
    status st = read_index(url, &index, err);
    if (st == CHURON_OK) st = find(index, url, text, &ref, &v, err);
    if (st == CHURON_OK) {
        json_t *copy = json_copy((json_t *)(uintptr_t)v);
        json_object_set_new(copy, "name", json_string(ref.name));
        json_out j = json_out_begin(json);
        put_json(&j, NULL, copy);
        json_decref(copy);
        st = str_check(json, err);
    }
    json_decref(index);
    return st;
}

/* ---- bringing one ----------------------------------------------------------------------------------- */

/* One content to `to`, from blobs or from where the version has it. */
static status get_file(const char *url, const store_ref *ref, const char *version, const json_t *f,
                       const char *to, error *err) {
    const char *path = word(f, "path"), *expected;
    char hex[DIGEST_HEX], got[DIGEST_HEX], blob[DIGEST_HEX + 16];
    json_int_t bytes = json_integer_value(json_object_get(f, "bytes"));
    meter m = {0};
    uint64_t fetched, resumed;
    str at = {0};
    if (!files_path_ok(path, strlen(path), &expected)) {
        return error_set(err, CHURON_CORRUPT, "index.json: path: expected %s, got \"%.200s\"", expected,
                         path);
    }
    TRY(digest_parse(word(f, "sha256"), hex, err));
    if (bytes < 0)
        return error_set(err, CHURON_CORRUPT, "index.json: %s: bytes: expected a size, got %lld", path,
                         (long long)bytes);
    snprintf(blob, sizeof blob, "blobs/%.2s/%s", hex, hex);
    join(&at, url, blob);
    fetch_job job = {.url = str_cstr(&at),
                     .loopback = source_loopback_url(url),
                     .pinned = true,
                     .path = to,
                     .bytes = (uint64_t)bytes};
    status st = str_check(&at, err);
    if (st == CHURON_OK && bytes == 0) {
        sink empty;
        st = sink_open(&empty, to, false, err);
        if (st == CHURON_OK) st = sink_close(&empty, err);
    } else if (st == CHURON_OK) {
        st = fetch_file(&job, &m, &fetched, &resumed, err);
        if (st == CHURON_NOT_FOUND) {
            str_clear(&at);
            join(&at, url, "models");
            str_fmt(&at, "/%s/%s/%s", ref->name, version, path);
            job.url = str_cstr(&at);
            st = str_check(&at, err);
            if (st == CHURON_OK) st = fetch_file(&job, &m, &fetched, &resumed, err);
        }
    }
    if (st == CHURON_OK) {
        str_clear(&at);
        str_fmt(&at, "%s.tag", to); /* what a transfer that breaks goes on by */
        st = str_check(&at, err);
        if (st == CHURON_OK) (void)unlink(str_cstr(&at));
    }
    if (st == CHURON_OK) st = digest_file(to, got, err);
    if (st == CHURON_OK && strcmp(got, hex) != 0) {
        st = error_set(err, CHURON_CORRUPT, "%s: sha256: expected %s, got %s", path, hex, got);
    }
    str_free(&at);
    return st;
}

static status get_files(const char *url, const store_ref *ref, const json_t *v, const char *dir, error *err) {
    const json_t *list = json_object_get(v, "files");
    status st = json_array_size(list)
                    ? CHURON_OK
                    : error_set(err, CHURON_CORRUPT, "index.json: files: expected a list, got none");
    str to = {0};
    for (size_t i = 0; st == CHURON_OK && i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        const char *path = word(f, "path"), *expected;
        if (!files_path_ok(path, strlen(path), &expected)) {
            st = error_set(err, CHURON_CORRUPT, "index.json: path: expected %s, got \"%.200s\"", expected,
                           path);
            break;
        }
        str_clear(&to);
        str_fmt(&to, "%s/%s", dir, path);
        st = str_check(&to, err);
        if (st != CHURON_OK) break;
        char *slash = strrchr(to.data, '/');
        *slash = '\0';
        st = dir_make(to.data, err);
        *slash = '/';
        if (st == CHURON_OK) st = get_file(url, ref, word(v, "version"), f, str_cstr(&to), err);
    }
    str_free(&to);
    return st;
}

/* The signatures that the index states, beside the files; they prove themselves when they are asked for. */
static status put_signatures(const json_t *v, const store_entry *e, error *err) {
    const json_t *list = json_object_get(v, "signatures");
    files *f = NULL;
    str content = {0}, path = {0}, text = {0};
    sink s = {.fd = -1};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *key = word(one, "key"), *signature = word(one, "signature");
        if (strpbrk(key, "\r\n ") || strpbrk(signature, "\r\n ")) continue;
        str_fmt(&text, "ed25519 %.16s %.88s\n", key, signature);
    }
    if (!text.len) return str_check(&text, err);
    status st = store_content_path(e, &content, err);
    if (st == CHURON_OK) st = files_open(&f, str_cstr(&content), err);
    if (st == CHURON_OK) st = sign_path(f, &path, err);
    if (st == CHURON_OK) st = str_check(&text, err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&path), false, err);
    if (st == CHURON_OK) st = sink_write(&s, text.data, text.len, err);
    if (st == CHURON_OK) st = sink_close(&s, err);
    sink_drop(&s);
    files_close(f);
    str_free(&content);
    str_free(&path);
    str_free(&text);
    return st;
}

static status add_got(registry *r, const char *url, const store_ref *ref, const json_t *v, const char *dir,
                      const char *name, str *json, error *err) {
    const char *first = word(json_array_get(json_object_get(v, "files"), 0), "path");
    bool pack = strcmp(word(v, "kind"), "pack") == 0;
    registry_added got;
    str from = {0}, origin_text = {0};
    str_fmt(&from, pack ? "%s/%s" : "%s", dir, first);
    str_fmt(&origin_text, "%s %s:%s", url, ref->name, word(v, "version"));
    status st = str_check(&from, err);
    if (st == CHURON_OK) st = str_check(&origin_text, err);
    if (st == CHURON_OK) {
        /* A bare file is added as one, so that its digest stays its own. */
        bool bare = !pack && strcmp(word(v, "kind"), "file") == 0 &&
                    json_array_size(json_object_get(v, "files")) == 1;
        if (bare) str_fmt(&from, "/%s", first);
        const registry_add_options o = {.name = name ? name : ref->name, .source = str_cstr(&origin_text)};
        st = str_check(&from, err);
        if (st == CHURON_OK) st = registry_add(r, str_cstr(&from), &o, &got, err);
    }
    str_free(&from);
    str_free(&origin_text);
    TRY(st);
    if (strcmp(got.entry.digest, word(v, "digest")) != 0) {
        st = error_set(err, CHURON_CORRUPT,
                       "%s:%s: digest: expected %.64s (the index), got %s; it is registered as %s:%s",
                       ref->name, word(v, "version"), word(v, "digest"), got.entry.digest, got.entry.name,
                       got.entry.version);
    }
    if (st == CHURON_OK && !got.already) st = put_signatures(v, &got.entry, err);
    json_out j = json_out_begin(json);
    char line[2 * STORE_NAME_MAX + 120];
    snprintf(line, sizeof line, "%s:%s is %s (digest %s)", got.entry.name, got.entry.version,
             got.already ? "here already" : "registered", got.entry.digest);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", got.entry.name);
    json_out_cstr(&j, "version", got.entry.version);
    json_out_cstr(&j, "digest", got.entry.digest);
    json_out_bool(&j, "already", got.already);
    json_out_cstr(&j, "line", line);
    json_out_end_object(&j);
    store_entry_free(&got.entry);
    return st;
}

/* What the files together must be, before they are registered. */
static status check_whole(const json_t *v, const char *dir, error *err) {
    const json_t *list = json_object_get(v, "files");
    char hex[DIGEST_HEX];
    str path = {0};
    files *f = NULL;
    str_cat(&path, dir);
    if (json_array_size(list) == 1 && strcmp(word(v, "kind"), "folder") != 0) {
        str_fmt(&path, "/%s", word(json_array_get(list, 0), "path"));
    }
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = files_open(&f, str_cstr(&path), err);
    if (st == CHURON_OK) st = files_verify(f, false, err);
    if (st == CHURON_OK) st = files_digest(f, hex, err);
    if (st == CHURON_OK && strcmp(hex, word(v, "digest")) != 0) {
        st = error_set(err, CHURON_CORRUPT, "%s: digest: expected %.64s (the index), got %s",
                       word(v, "version"), word(v, "digest"), hex);
    }
    files_close(f);
    str_free(&path);
    return st;
}

status remote_get(registry *r, const char *url, const char *text, const char *name, str *json, error *err) {
    json_t *index;
    const json_t *v = NULL;
    store_ref ref;
    str dir = {0};
    int lock = -1;
    status st = read_index(url, &index, err);
    if (st == CHURON_OK) st = find(index, url, text, &ref, &v, err);
    if (st == CHURON_OK) {
        str_fmt(&dir, "%s/partial", registry_home(r));
        st = str_check(&dir, err);
    }
    if (st == CHURON_OK) st = dir_make(str_cstr(&dir), err);
    if (st == CHURON_OK) {
        str_cat(&dir,
                "/add-XXXXXX"); /* cleaned like those of registry_add: its lock ends with this process */
        st = str_check(&dir, err);
    }
    if (st == CHURON_OK && !mkdtemp(dir.data)) {
        st = error_set(err, CHURON_IO, "%s: cannot make this folder: %s", str_cstr(&dir), strerror(errno));
        str_clear(&dir);
    }
    if (st == CHURON_OK) {
        lock = open(str_cstr(&dir), O_RDONLY | O_CLOEXEC);
        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0)
            st = error_set(err, CHURON_BUSY, "%s: cannot lock", str_cstr(&dir));
    }
    if (st == CHURON_OK) st = get_files(url, &ref, v, str_cstr(&dir), err);
    if (st == CHURON_OK) st = check_whole(v, str_cstr(&dir), err);
    if (st == CHURON_OK) st = add_got(r, url, &ref, v, str_cstr(&dir), name, json, err);
    if (lock >= 0) {
        dir_remove(str_cstr(&dir));
        close(lock);
    }
    json_decref(index);
    str_free(&dir);
    return st;
}
