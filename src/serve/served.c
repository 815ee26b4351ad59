/* served.c: see served.h. */
#include "serve/served.h"

#include "base/mem.h"
#include "pipeline/golden.h"
#include "registry/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- names and versions ----------------------------------------------------------------------------- */

static const char *skip_zeros(const char *p) {
    while (p[0] == '0' && p[1] >= '0' && p[1] <= '9') p++;
    return p;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int served_compare_versions(const char *a, const char *b) {
    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            a = skip_zeros(a);
            b = skip_zeros(b);
            const size_t n = strspn(a, "0123456789"), k = strspn(b, "0123456789");
            if (n != k) return n < k ? -1 : 1;
            const int order = memcmp(a, b, n);
            if (order) return order;
            a += n;
            b += k;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *a ? 1 : *b ? -1 : 0;
}

/* Does `a` stand before `b` in the list? */
static bool before(const served *a, const served *b) {
    const int names = strcmp(a->name, b->name);
    return names < 0 || (names == 0 && served_compare_versions(a->version, b->version) < 0);
}

/* The file's name without folder and ending. */
static char *file_name(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = strlen(base), ending = strlen(".onnx");
    const bool cut = n > ending && strcmp(base + n - ending, ".onnx") == 0;
    return mem_strndup(base, cut ? n - ending : n);
}

/* ---- golden cases ----------------------------------------------------------------------------------- */

static void on_case(void *user, const golden_result *r) {
    served *v = user;
    if (r->ok || v->fault.len) return;
    str_fmt(&v->fault, "golden case '%.100s': %s", r->name, str_cstr(&r->why));
}

static status verify(served *v, error *err) {
    golden_summary sum;
    error e = {0};
    v->available = true;
    if (!v->p) return CHURON_OK;
    const status st = golden_verify(v->p, 0, on_case, v, &sum, &e);
    if (st == CHURON_NOT_FOUND) return CHURON_OK; /* it has no cases */
    if (st == CHURON_NO_MEMORY) {
        if (err) *err = e;
        return st;
    }
    v->golden = sum.passed;
    v->available = st == CHURON_OK && sum.failed == 0;
    if (st != CHURON_OK) str_fmt(&v->fault, "golden cases: %s", e.message);
    return str_check(&v->fault, err);
}

/* ---- opening ---------------------------------------------------------------------------------------- */

/* A bare graph goes on as one where no bundle can be made of it. */
static status open_files(served *v, const char *path, const served_options *o, error *err) {
    const pipeline_options po = {
        .threads = o->threads, .providers = o->providers, .n_providers = o->n_providers};
    const status st = pipeline_open(&v->p, path, &po, err);
    if (st == CHURON_OK) {
        TRY(store_check(path, pipeline_digest(v->p), err));
        if (pipeline_is_derived(v->p) && pipeline_graph(v->p, 0)) v->g = graph_ref(pipeline_graph(v->p, 0));
        return CHURON_OK;
    }
    const graph_options go = {
        .threads = o->threads, .providers = o->providers, .n_providers = o->n_providers};
    const size_t n = strlen(path);
    if (st == CHURON_NO_MEMORY || n < 5 || strcmp(path + n - 5, ".onnx") != 0) return st;
    if (err) v->no_pipeline = *err;
    return graph_open(&v->g, path, &go, err);
}

void served_providers(const served *v, str *out) {
    if (v->p) {
        pipeline_provider_names(v->p, out);
    } else {
        graph_provider_names(graph_providers(v->g), out);
    }
}

static status describe(served *v, const char *path, const served_options *o, error *err) {
    const manifest *m = v->p ? pipeline_manifest(v->p) : NULL;
    v->name = o->name ? mem_strdup(o->name) : m && !v->g ? mem_strdup(m->name) : file_name(path);
    v->version = mem_strdup(o->version ? o->version : m && m->version ? m->version : "1");
    v->label = o->label ? mem_strdup(o->label) : NULL;
    v->stored = o->stored ? mem_strdup(o->stored) : NULL;
    if (!v->name || !v->version || (o->label && !v->label) || (o->stored && !v->stored))
        return error_no_memory(err, "names", 64);
    if (v->p) {
        snprintf(v->digest, sizeof v->digest, "%s", pipeline_digest(v->p));
    } else {
        TRY(digest_file(path, v->digest, err));
    }
    error e = {0};
    const status st = v->g ? oip_model_create(&v->oip, v->g, v->name, &e)
                           : oip_fields_create(&v->oip, v->p, v->name, &v->memory, &e);
    if (st == CHURON_NO_MEMORY) {
        if (err) *err = e;
        return st;
    }
    if (st != CHURON_OK) v->no_oip = e;
    v->oip.version = v->version;
    return CHURON_OK;
}

static status whole_path(const char *path, char **out, error *err) {
    char folder[4096];
    if (*path == '/' || !getcwd(folder, sizeof folder)) *folder = 0;
    str s = {0};
    str_fmt(&s, "%s%s%s", folder, *folder ? "/" : "", path);
    *out = s.failed ? NULL : mem_strdup(str_cstr(&s));
    str_free(&s);
    return *out ? CHURON_OK : error_no_memory(err, "path", strlen(path));
}

static void free_one(served *v) {
    if (!v) return;
    oip_model_free(&v->oip);
    arena_free(&v->memory);
    graph_close(v->g);
    pipeline_close(v->p);
    str_free(&v->fault);
    if (v->lock >= 0) store_release(v->lock);
    mem_free(v->path);
    mem_free(v->name);
    mem_free(v->version);
    mem_free(v->label);
    mem_free(v->stored);
    mem_free(v);
}

static status insert(served_list *l, served *v, error *err) {
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i]->name, v->name) == 0 && strcmp(l->items[i]->version, v->version) == 0)
            return error_set(err, CHURON_INVALID,
                             "MODEL: expected each version once, got version %.60s of '%.100s' twice",
                             v->version, v->name);
        if (before(l->items[i], v)) at = i + 1;
    }
    served **items = mem_realloc(l->items, (l->n + 1) * sizeof *items);
    if (!items) return error_no_memory(err, "models", (l->n + 1) * sizeof *items);
    memmove(items + at + 1, items + at, (l->n - at) * sizeof *items);
    items[at] = v;
    l->items = items;
    l->n++;
    for (size_t i = 0; i < l->n; i++) items[i]->index = i;
    return CHURON_OK;
}

/* Before anything of it is read. */
static status check_signature(const char *path, const sign_keys *trusted, error *err) {
    files *f;
    char id[SIGN_ID];
    TRY(files_open(&f, path, err));
    const status st = sign_require(f, trusted, id, err);
    files_close(f);
    return st;
}

status served_add(served_list *l, const char *path, const served_options *o, const served **out, error *err) {
    status st = CHURON_OK;
    error own;
    if (!err) err = &own;
    served *v = mem_calloc(1, sizeof *v);
    if (!v) return error_no_memory(err, "model", sizeof *v);
    v->lock = -1;
    TRY_GOTO(store_hold(path, &v->lock, err));
    if (o->trusted) TRY_GOTO(check_signature(path, o->trusted, err));
    TRY_GOTO(open_files(v, path, o, err));
    TRY_GOTO(whole_path(path, &v->path, err));
    TRY_GOTO(describe(v, path, o, err));
    TRY_GOTO(verify(v, err));
    if (v->no_oip.code != CHURON_OK && v->g && !v->p) { /* then nothing could be asked of it */
        *err = v->no_oip;
        st = err->code;
        goto cleanup;
    }
    TRY_GOTO(insert(l, v, err));
    if (out) *out = v;
    v = NULL;
cleanup:
    free_one(v);
    return st;
}

void served_free(served_list *l) {
    for (size_t i = 0; i < l->n; i++) free_one(l->items[i]);
    mem_free(l->items);
    *l = (served_list){0};
}

/* ---- finding ---------------------------------------------------------------------------------------- */

static bool is_same(const char *text, const char *wanted, size_t n) {
    return text && strlen(text) == n && memcmp(text, wanted, n) == 0;
}

static int shown(size_t n) {
    return n < 100 ? (int)n : 100;
}

static status unknown_name(const served_list *l, const served_wanted *w, error *err) {
    str names = {0};
    for (size_t i = 0; i < l->n && names.len < 200; i++) {
        if (i && strcmp(l->items[i]->name, l->items[i - 1]->name) == 0) continue;
        str_fmt(&names, "%s%.100s", names.len ? ", " : "", l->items[i]->name);
    }
    const status st = error_set(err, CHURON_NOT_FOUND, "model: expected %s, got '%.*s'", str_cstr(&names),
                                shown(w->name_len), w->name);
    str_free(&names);
    return st;
}

bool served_is(const served *v, const served_wanted *w) {
    return is_same(v->name, w->name, w->name_len) &&
           (!w->version || is_same(v->version, w->version, w->version_len)) &&
           (!w->label || is_same(v->label, w->label, w->label_len));
}

const served *served_find(const served_list *l, const served_wanted *w, error *err) {
    const served *found = NULL, *newest = NULL;
    str known = {0};
    bool any = false;
    for (size_t i = 0; i < l->n; i++) {
        const served *v = l->items[i];
        if (!is_same(v->name, w->name, w->name_len)) continue;
        any = true;
        if (served_is(v, w) && (w->version || w->label || v->available)) found = v;
        newest = v;
        const char *shown_name = w->label ? v->label : v->version;
        if (shown_name && known.len < 200) str_fmt(&known, "%s%.60s", known.len ? ", " : "", shown_name);
    }
    if (!any) {
        (void)unknown_name(l, w, err);
    } else if (!found && (w->version || w->label)) {
        (void)error_set(
            err, CHURON_NOT_FOUND, "%s: expected %s, got '%.*s'", w->version ? "version" : "label",
            known.len ? str_cstr(&known) : "none, as this model has none",
            shown(w->version ? w->version_len : w->label_len), w->version ? w->version : w->label);
    } else if (!found || !found->available) {
        const served *v = found ? found : newest;
        (void)error_set(err, CHURON_BUSY, "model '%.100s': version %.60s is not served: %.300s", v->name,
                        v->version, str_cstr(&v->fault));
        found = NULL;
    }
    str_free(&known);
    return found;
}
