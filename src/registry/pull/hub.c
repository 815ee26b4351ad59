/* hub.c: what a Hugging Face repository holds, by its public HTTP interface; see pull_part.h. */
#include "base/mem.h"
#include "registry/pull/pull_part.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LISTING_MAX = 64 << 20, REMOTE_MAX = 1000 };

void remote_list_free(remote_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        str_free(&l->files[i].url);
        str_free(&l->files[i].name);
    }
    mem_free(l->files);
    *l = (remote_list){0};
}

status remote_add(remote_list *l, const char *url, const char *name, uint64_t bytes, const char *digest,
                  error *err) {
    if (l->n >= REMOTE_MAX)
        return error_set(err, CHURON_LIMIT, "SOURCE: expected at most %d files, got more", REMOTE_MAX);
    remote_file *grown = mem_realloc(l->files, (l->n + 1) * sizeof *grown);
    if (!grown) return error_no_memory(err, "file list", sizeof *grown);
    l->files = grown;
    remote_file *f = &l->files[l->n++];
    *f = (remote_file){.bytes = bytes};
    str_cat(&f->url, url);
    str_cat(&f->name, name);
    TRY(str_check(&f->url, err));
    TRY(str_check(&f->name, err));
    return digest && *digest ? digest_parse(digest, f->digest, err) : CHURON_OK;
}

/* Bytes that may stand in a URL's path as they are; the rest becomes %XX. */
static void add_path(str *url, const char *path) {
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (alnum || strchr("-._~/+@=,", c)) {
            str_put(url, *p);
        } else {
            str_fmt(url, "%%%02X", c);
        }
    }
}

typedef struct hub {
    const source *s;
    const char *endpoint, *token, *revision;
    bool loopback;
} hub;

static status hub_open(hub *h, const source *s, error *err) {
    const char *endpoint = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN");
    *h = (hub){.s = s, .endpoint = endpoint && *endpoint ? endpoint : "https://huggingface.co"};
    h->token = token && *token ? token : NULL;
    h->revision = s->version.len ? str_cstr(&s->version) : "main";
    h->loopback = source_loopback_url(h->endpoint);
    if (!h->loopback && strncmp(h->endpoint, "https://", 8) != 0) {
        return error_set(err, CHURON_INVALID, "HF_ENDPOINT: expected an https:// address, got \"%.200s\"",
                         h->endpoint);
    }
    for (const char *p = h->token; p && *p; p++) {
        if ((unsigned char)*p <= 0x20 || *p == 0x7f) {
            return error_set(err, CHURON_INVALID,
                             "HF_TOKEN: expected a token without spaces, got one with them");
        }
    }
    return CHURON_OK;
}

/* The listing: an array of {"type", "path", "size", "lfs": {"oid", "size"}}. */
static status hub_listing(const hub *h, meter *m, json_t **out, error *err) {
    str url = {0}, text = {0};
    json_error_t why;
    str_fmt(&url, "%s/api/models/%s/tree/%s?recursive=true", h->endpoint, str_cstr(&h->s->package),
            h->revision);
    status st = str_check(&url, err);
    if (st == CHURON_OK) st = fetch_text(str_cstr(&url), h->token, h->loopback, LISTING_MAX, m, &text, err);
    if (st == CHURON_OK) {
        *out = json_loadb(str_cstr(&text), text.len, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_array(*out)) {
            st = error_set(err, CHURON_CORRUPT, "%s: expected a JSON list of files, got: %.100s",
                           str_cstr(&url), *out ? "another value" : why.text);
        }
    }
    str_free(&url);
    str_free(&text);
    return st;
}

static const char *listed_path(const json_t *item) {
    const char *type = json_string_value(json_object_get(item, "type"));
    const char *path = json_string_value(json_object_get(item, "path"));
    return type && path && strcmp(type, "file") == 0 ? path : NULL;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The one file that is meant when none was named: a split model counts once, by its first part. */
static status hub_choose(const hub *h, const json_t *listing, str *path, error *err) {
    str names = {0};
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(listing); i++) {
        const char *p = listed_path(json_array_get(listing, i));
        if (!p || !source_is_model_file(p)) continue;
        size_t n = strlen(p);
        bool later_part = n > 20 && p[n - 20] == '-' && strncmp(p + n - 14, "-of-", 4) == 0 &&
                          !source_split_parts(base_name(p));
        if (later_part) continue;
        if (found++ < 12) str_fmt(&names, "%s%s", found > 1 ? ", " : "", p);
        str_clear(path);
        str_cat(path, p);
    }
    status st = str_check(path, err);
    const char *repo = str_cstr(&h->s->package);
    if (st == CHURON_OK && found == 0) {
        st = error_set(err, CHURON_NOT_FOUND,
                       "SOURCE: expected a model file (.gguf, .onnx, .churon) in hf:%s, got none", repo);
    } else if (st == CHURON_OK && found > 1) {
        st = error_set(err, CHURON_INVALID, "SOURCE: expected hf:%s/FILE, got no FILE. There are: %.300s",
                       repo, str_cstr(&names));
    }
    str_free(&names);
    return st;
}

static status hub_add(const hub *h, const json_t *listing, const char *path, remote_list *out, error *err) {
    for (size_t i = 0; i < json_array_size(listing); i++) {
        const json_t *item = json_array_get(listing, i), *lfs = json_object_get(item, "lfs");
        const char *p = listed_path(item);
        if (!p || strcmp(p, path) != 0) continue;
        json_int_t size = json_integer_value(json_object_get(lfs ? lfs : item, "size"));
        const char *oid = json_string_value(json_object_get(lfs, "oid"));
        str url = {0};
        str_fmt(&url, "%s/%s/resolve/%s/", h->endpoint, str_cstr(&h->s->package), h->revision);
        add_path(&url, path);
        status st = str_check(&url, err);
        if (st == CHURON_OK) {
            st = remote_add(out, str_cstr(&url), base_name(path), size > 0 ? (uint64_t)size : 0,
                            oid ? oid : "", err);
        }
        str_free(&url);
        return st;
    }
    return error_set(err, CHURON_NOT_FOUND,
                     "SOURCE: expected a file of hf:%s, got %.200s, which is not there",
                     str_cstr(&h->s->package), path);
}

static status hub_add_all(const hub *h, const json_t *listing, const char *path, remote_list *out,
                          error *err) {
    size_t parts = source_split_parts(base_name(path));
    if (parts > ORIGIN_MAX_FILES)
        return error_set(err, CHURON_LIMIT, "SOURCE: expected at most %d parts, got %zu", ORIGIN_MAX_FILES,
                         parts);
    if (parts == 0) return hub_add(h, listing, path, out, err);
    for (size_t i = 1; i <= parts; i++) {
        str part = {0};
        source_split_name(path, i, &part);
        status st = str_check(&part, err);
        if (st == CHURON_OK) st = hub_add(h, listing, str_cstr(&part), out, err);
        str_free(&part);
        TRY(st);
    }
    return CHURON_OK;
}

status hub_look_up(const source *s, meter *m, remote_list *out, error *err) {
    hub h;
    json_t *listing = NULL;
    str path = {0};
    TRY(hub_open(&h, s, err));
    out->bearer = h.token;
    status st = hub_listing(&h, m, &listing, err);
    if (st == CHURON_OK && s->file.len) {
        str_cat(&path, str_cstr(&s->file));
        st = str_check(&path, err);
    } else if (st == CHURON_OK) {
        st = hub_choose(&h, listing, &path, err);
    }
    if (st == CHURON_OK) st = hub_add_all(&h, listing, str_cstr(&path), out, err);
    json_decref(listing);
    str_free(&path);
    if (st != CHURON_OK) remote_list_free(out);
    return st;
}
