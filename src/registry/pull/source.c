/* source.c: reading SOURCE; see pull.h for its grammar. */
#include "registry/pull/pull_part.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void source_free(source *s) {
    str_free(&s->package);
    str_free(&s->version);
    str_free(&s->file);
    *s = (source){0};
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcasecmp(name + n - k, end) == 0;
}

bool source_is_model_file(const char *name) {
    return ends_with(name, ".gguf") || ends_with(name, ".onnx") || ends_with(name, ".churon");
}

/* Where "-00001-of-00003.gguf" begins, or NULL. */
static const char *split_tail(const char *name) {
    enum { TAIL = 20 };
    size_t n = strlen(name);
    if (n <= TAIL) return NULL;
    const char *t = name + n - TAIL;
    for (size_t i = 0; i < TAIL; i++) {
        char want = "-ddddd-of-ddddd.gguf"[i];
        if (want == 'd' ? !isdigit((unsigned char)t[i]) : t[i] != want) return NULL;
    }
    return t;
}

size_t source_split_parts(const char *name) {
    const char *t = split_tail(name);
    if (!t || strncmp(t, "-00001-", 7) != 0) return 0;
    return strtoul(t + 10, NULL, 10);
}

void source_split_name(const char *name, size_t i, str *out) {
    const char *t = split_tail(name);
    if (!t) return;
    str_add(out, name, (size_t)(t - name));
    str_fmt(out, "-%05zu%s", i, t + 6);
}

/* Letters, digits and the characters of `more`, not beginning with what an option or a hidden file would. */
static bool plain(const char *p, size_t n, const char *more) {
    if (n == 0 || n > 200 || !isalnum((unsigned char)p[0])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)p[i]) && !(p[i] && strchr(more, p[i]))) return false;
    }
    return true;
}

/* A path inside a package or repository: no empty, "." or ".." step, no control characters. */
static bool inner_path(const char *p) {
    for (;;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.')))) return false;
        for (size_t i = 0; i < n; i++) {
            if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\') return false;
        }
        if (!p[n]) return true;
        p += n + 1;
    }
}

static status wrong(error *err, const char *form, const char *text) {
    return error_set(err, CHURON_INVALID, "SOURCE: expected %s, got \"%.200s\"", form, text);
}

static status set_file(source *s, const char *path, const char *text, error *err) {
    if (!inner_path(path))
        return wrong(err, "a path inside, without empty or .. steps, after the name", text);
    str_cat(&s->file, path);
    return CHURON_OK;
}

static status parse_hf(source *s, const char *text, error *err) {
    const char *form = "hf:OWNER/REPO[@REVISION][/FILE]", *p = text + strlen("hf:");
    size_t owner = strcspn(p, "/");
    if (!p[owner] || !plain(p, owner, "-._")) return wrong(err, form, text);
    size_t repo = strcspn(p + owner + 1, "/@");
    if (!plain(p + owner + 1, repo, "-._")) return wrong(err, form, text);
    str_add(&s->package, p, owner + 1 + repo);
    p += owner + 1 + repo;
    if (*p == '@') {
        size_t n = strcspn(p + 1, "/");
        if (!plain(p + 1, n, "-._")) return wrong(err, form, text);
        str_add(&s->version, p + 1, n);
        p += 1 + n;
    }
    return *p ? set_file(s, p + 1, text, err) : CHURON_OK;
}

static status parse_pypi(source *s, const char *text, error *err) {
    const char *form = "pypi:PACKAGE[==VERSION][/PATH-IN-WHEEL]", *p = text + strlen("pypi:");
    size_t n = strcspn(p, "=/");
    if (!plain(p, n, "-._")) return wrong(err, form, text);
    str_add(&s->package, p, n);
    p += n;
    if (*p == '=') {
        if (p[1] != '=') return wrong(err, form, text);
        n = strcspn(p + 2, "/");
        if (!plain(p + 2, n, "-._+!")) return wrong(err, form, text);
        str_add(&s->version, p + 2, n);
        p += 2 + n;
    }
    return *p ? set_file(s, p + 1, text, err) : CHURON_OK;
}

static status parse_npm(source *s, const char *text, error *err) {
    const char *form = "npm:PACKAGE[@VERSION][/PATH]", *p = text + strlen("npm:");
    if (*p == '@') {
        size_t scope = strcspn(p, "/");
        if (!p[scope] || !plain(p + 1, scope - 1, "-._")) return wrong(err, form, text);
        str_add(&s->package, p, scope + 1);
        p += scope + 1;
    }
    size_t n = strcspn(p, "@/");
    if (!plain(p, n, "-._")) return wrong(err, form, text);
    str_add(&s->package, p, n);
    p += n;
    if (*p == '@') {
        n = strcspn(p + 1, "/");
        if (!plain(p + 1, n, "-._+")) return wrong(err, form, text);
        str_add(&s->version, p + 1, n);
        p += 1 + n;
    }
    return *p ? set_file(s, p + 1, text, err) : CHURON_OK;
}

bool source_loopback_url(const char *text) {
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t n = strlen(hosts[i]);
        if (strncasecmp(text, hosts[i], n) != 0) continue;
        const char *p = text + n;
        if (*p == ':') p += 1 + strspn(p + 1, "0123456789");
        if (*p == '/' || *p == '?' || *p == '\0') return true;
    }
    return false;
}

static status parse_url(source *s, const char *text, error *err) {
    s->loopback = strncasecmp(text, "http://", 7) == 0;
    if (s->loopback && !source_loopback_url(text)) {
        return wrong(err, "https (http would let anyone on the way change the file)", text);
    }
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p <= 0x20 || *p == 0x7f) return wrong(err, "a URL without spaces", text);
    }
    str_cat(&s->package, text);
    return CHURON_OK;
}

status source_parse(source *out, const char *text, error *err) {
    static const struct {
        const char *prefix;
        source_kind kind;
        status (*parse)(source *s, const char *text, error *err);
    } kinds[] = {
        {"hf:", SOURCE_HF, parse_hf},       {"pypi:", SOURCE_PYPI, parse_pypi},
        {"npm:", SOURCE_NPM, parse_npm},    {"https://", SOURCE_URL, parse_url},
        {"http://", SOURCE_URL, parse_url},
    };
    *out = (source){.kind = SOURCE_PATH};
    status st = CHURON_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strncasecmp(text, kinds[i].prefix, strlen(kinds[i].prefix)) != 0) continue;
        out->kind = kinds[i].kind;
        st = kinds[i].parse(out, text, err);
        break;
    }
    if (out->kind == SOURCE_PATH) {
        if (!*text) st = wrong(err, "hf:, pypi:, npm:, https:// or a path", text);
        str_cat(&out->package, text);
    }
    if (st == CHURON_OK) st = str_check(&out->package, err);
    if (st == CHURON_OK) st = str_check(&out->version, err);
    if (st == CHURON_OK) st = str_check(&out->file, err);
    if (st != CHURON_OK) source_free(out);
    return st;
}
