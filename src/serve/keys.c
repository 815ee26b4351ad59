/* keys.c: see keys.h. */
#include "serve/keys.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY_FILE = 4 << 20, MAX_KEYS = 10000 };

bool tenant_name_is_valid(const char *name, size_t len) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (len == 0 || len > TENANT_NAME_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '\0' || !strchr(allowed, name[i])) return false;
    }
    return true;
}

/* ---- one line --------------------------------------------------------------------------------------- */

typedef struct word {
    const char *at;
    size_t len;
} word;

/* The next word of [*p, end), which is then passed; length 0 at the end. */
static word next_word(const char **p, const char *end) {
    while (*p < end && (**p == ' ' || **p == '\t')) (*p)++;
    word w = {*p, 0};
    while (*p < end && **p != ' ' && **p != '\t') (*p)++;
    w.len = (size_t)(*p - w.at);
    return w;
}

/* What follows `prefix` in the word; NULL if it does not begin with it. */
static const char *after(word w, const char *prefix, size_t *len) {
    const size_t n = strlen(prefix);
    if (w.len < n || memcmp(w.at, prefix, n) != 0) return NULL;
    *len = w.len - n;
    return w.at + n;
}

static status read_weight(const char *text, size_t len, double *out, const char *name, size_t line,
                          error *err) {
    char copy[32], *end = copy;
    double v = 0;
    if (len > 0 && len < sizeof copy && text[0] >= '0' && text[0] <= '9') {
        memcpy(copy, text, len);
        copy[len] = '\0';
        if (copy[strspn(copy, "0123456789.eE+-")] == '\0') v = strtod(copy, &end);
    }
    if (end == copy || *end || !(v > 0 && v <= KEYS_WEIGHT_MAX)) {
        return error_set(err, CHURON_INVALID, "keys: %s:%zu: weight: expected a number over 0 and up to %g",
                         name, line, KEYS_WEIGHT_MAX);
    }
    *out = v;
    return CHURON_OK;
}

static status said_twice(const char *what, const char *name, size_t line, error *err) {
    return error_set(err, CHURON_INVALID, "keys: %s:%zu: %s: expected once, got twice", name, line, what);
}

static status read_word(api_key *k, word w, bool *weighed, const char *name, size_t line, error *err) {
    size_t len;
    const char *value = after(w, "tenant=", &len);
    if (value && k->tenant[0] && k->tenant[0] != '#') return said_twice("tenant", name, line, err);
    if (value) {
        if (!tenant_name_is_valid(value, len)) {
            return error_set(err, CHURON_INVALID,
                             "keys: %s:%zu: tenant: expected 1 to %d letters, digits or . _ -", name, line,
                             TENANT_NAME_MAX);
        }
        memcpy(k->tenant, value, len);
        k->tenant[len] = '\0';
        return CHURON_OK;
    }
    value = after(w, "weight=", &len);
    if (value && *weighed) return said_twice("weight", name, line, err);
    if (value) {
        *weighed = true;
        return read_weight(value, len, &k->weight, name, line, err);
    }
    if (w.len == strlen("admin") && memcmp(w.at, "admin", w.len) == 0) {
        k->admin = true;
        return CHURON_OK;
    }
    return error_set(err, CHURON_INVALID,
                     "keys: %s:%zu: expected tenant=NAME, weight=W or admin after the key, got another word",
                     name, line);
}

/* A tenant has one weight, whichever of its lines says it. */
static status agree_on_weight(key_list *l, api_key *k, bool weighed, bool *heavy, const char *name,
                              size_t line, error *err) {
    for (size_t i = 0; i < l->n; i++) {
        api_key *o = &l->items[i];
        if (strcmp(o->tenant, k->tenant) != 0) continue;
        if (weighed && heavy[i] && o->weight != k->weight) {
            return error_set(err, CHURON_INVALID,
                             "keys: %s:%zu: weight: expected %g, which the tenant %s has already, got %g",
                             name, line, o->weight, k->tenant, k->weight);
        }
        if (!weighed && heavy[i]) {
            k->weight = o->weight;
            heavy[l->n] = true;
        } else if (weighed) {
            o->weight = k->weight;
            heavy[i] = true;
        }
    }
    return CHURON_OK;
}

static status read_line(key_list *l, bool *heavy, const char *p, const char *end, const char *name,
                        size_t line, error *err) {
    const word key = next_word(&p, end);
    if (key.len == 0 || key.at[0] == '#') return CHURON_OK;
    if (l->n == MAX_KEYS) {
        return error_set(err, CHURON_LIMIT, "keys: %s:%zu: expected at most %d keys", name, line, MAX_KEYS);
    }
    for (size_t i = 0; i < key.len; i++) {
        if ((unsigned char)key.at[i] > 0x20 && (unsigned char)key.at[i] < 0x7f) continue;
        return error_set(err, CHURON_INVALID,
                         "keys: %s:%zu: key: expected visible ASCII characters, got byte 0x%02x at %zu", name,
                         line, (unsigned char)key.at[i], i);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (strlen(l->items[i].key) == key.len && memcmp(l->items[i].key, key.at, key.len) == 0)
            return said_twice("key", name, line, err);
    }
    api_key *k = &l->items[l->n];
    bool weighed = false;
    *k = (api_key){.weight = 1};
    snprintf(k->tenant, sizeof k->tenant, "#%zu", line);
    for (word w = next_word(&p, end); w.len; w = next_word(&p, end)) {
        TRY(read_word(k, w, &weighed, name, line, err));
    }
    heavy[l->n] = weighed;
    TRY(agree_on_weight(l, k, weighed, heavy, name, line, err));
    k->key = mem_strndup(key.at, key.len);
    if (!k->key) return error_no_memory(err, "keys", key.len);
    l->n++;
    return CHURON_OK;
}

/* ---- the file --------------------------------------------------------------------------------------- */

status keys_parse(key_list *out, const char *text, size_t len, const char *name, error *err) {
    status st = CHURON_OK;
    key_list l = {0};
    *out = l;
    size_t lines = 1, number = 0;
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    bool *heavy = mem_calloc(lines, sizeof *heavy); /* [lines]: the key's line gives its tenant's weight */
    l.items = mem_calloc(lines, sizeof *l.items);
    if (!heavy || !l.items) {
        st = error_no_memory(err, "keys", lines * sizeof *l.items);
        goto cleanup;
    }
    for (const char *p = text, *end = text + len; p < end;) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end) line_end = end;
        const char *stop = line_end;
        while (stop > p && stop[-1] == '\r') stop--;
        TRY_GOTO(read_line(&l, heavy, p, stop, name, ++number, err));
        p = line_end + 1;
    }
    if (l.n == 0) {
        st = error_set(err, CHURON_INVALID, "keys: expected at least one key in %s, got none", name);
        goto cleanup;
    }
    *out = l;
    l = (key_list){0};
cleanup:
    mem_free(heavy);
    keys_free(&l);
    return st;
}

status keys_read(key_list *out, const char *path, error *err) {
    *out = (key_list){0};
    str text = {0};
    status st = file_read(&text, path, MAX_KEY_FILE, err);
    if (st != CHURON_OK) {
        error_prefix(err, "keys");
    } else {
        st = keys_parse(out, str_cstr(&text), text.len, path, err);
    }
    str_free(&text);
    return st;
}

void keys_free(key_list *l) {
    for (size_t i = 0; i < l->n; i++) mem_free(l->items[i].key);
    mem_free(l->items);
    *l = (key_list){0};
}

status keys_tenants(const key_list *l, engine_tenant **out, size_t *n, error *err) {
    *n = 0;
    *out = mem_calloc(l->n ? l->n : 1, sizeof **out);
    if (!*out) return error_no_memory(err, "tenants", l->n * sizeof **out);
    for (size_t i = 0; i < l->n; i++) {
        const api_key *k = &l->items[i];
        bool known = false;
        for (size_t t = 0; t < *n; t++) known = known || strcmp((*out)[t].name, k->tenant) == 0;
        if (k->weight != 1 && !known) (*out)[(*n)++] = (engine_tenant){k->tenant, k->weight};
    }
    return CHURON_OK;
}
