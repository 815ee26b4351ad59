/* names.c: which paths a bundle may have; see files.h and files_part.h. */
#include "base/mem.h"
#include "bundle/files_part.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* One step of a path: [p, p + n). */
static const char *step_fault(const char *p, size_t n) {
    if (n == 0) return "steps that are not empty, no / at either end";
    if (n > FILES_STEP_MAX) return "steps of at most 255 bytes";
    if (p[0] == '.') return "steps that do not begin with a dot";
    return NULL;
}

bool files_path_ok(const char *path, size_t n, const char **expected) {
    const char *fault = NULL;
    size_t depth = 0;
    if (n == 0 || n > FILES_PATH_MAX) fault = "1 to 1024 bytes";
    if (!fault && utf8_validate(path, n) != n) fault = "UTF-8";
    for (size_t i = 0; !fault && i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        if (c < 0x20 || c == 0x7f || c == '\\') fault = "no control character and no backslash";
    }
    for (size_t at = 0; !fault && at <= n;) {
        size_t end = at;
        while (end < n && path[end] != '/') end++;
        fault = step_fault(path + at, end - at);
        at = end + 1;
        if (!fault && ++depth > FILES_DEPTH_MAX) fault = "at most 32 steps";
    }
    if (!fault && n == strlen("origin.json") && memcmp(path, "origin.json", n) == 0) {
        fault = "a name other than origin.json, which is the store's";
    }
    *expected = fault;
    return !fault;
}

/* ---- names that another file system would not keep apart -------------------------------------------- */

typedef struct folded {
    char *key;
    const char *path;
} folded;

static int by_key(const void *a, const void *b) {
    const folded *x = a, *y = b;
    return strcmp(x->key, y->key);
}

/* The path without case and composition. */
static status fold(const char *path, folded *out, error *err) {
    enum { ROOM = FILES_PATH_MAX * 4 };
    utf8proc_int32_t points[ROOM];
    utf8proc_ssize_t n =
        utf8proc_decompose((const utf8proc_uint8_t *)path, (utf8proc_ssize_t)strlen(path), points, ROOM,
                           UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_CASEFOLD);
    if (n < 0 || n > ROOM) {
        return error_set(err, CHURON_INVALID, "path: expected text that can be compared, got \"%.200s\"",
                         path);
    }
    str s = {0};
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        str_add(&s, bytes, utf8_encode((uint32_t)points[i], bytes));
    }
    status st = str_check(&s, err);
    if (st != CHURON_OK) {
        str_free(&s);
        return st;
    }
    *out = (folded){.key = s.data, .path = path};
    return CHURON_OK;
}

/* No folder of path i may be a file. `folder` is scratch. */
static status check_folders_of(const folded *f, size_t n, size_t i, str *folder, error *err) {
    for (const char *slash = strchr(f[i].key, '/'); slash; slash = strchr(slash + 1, '/')) {
        str_clear(folder);
        str_add(folder, f[i].key, (size_t)(slash - f[i].key));
        TRY(str_check(folder, err));
        const folded key = {.key = folder->data};
        const folded *file = bsearch(&key, f, n, sizeof *f, by_key);
        if (file) {
            return error_set(err, CHURON_INVALID,
                             "path: expected a file or a folder, got both: \"%.200s\" and \"%.200s\"",
                             file->path, f[i].path);
        }
    }
    return CHURON_OK;
}

static status check_folded(folded *f, size_t n, error *err) {
    qsort(f, n, sizeof *f, by_key);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(f[i - 1].key, f[i].key) == 0) {
            return error_set(
                err, CHURON_INVALID,
                "path: expected names that differ in more than case, got \"%.200s\" and \"%.200s\"",
                f[i - 1].path, f[i].path);
        }
    }
    str folder = {0};
    status st = CHURON_OK;
    for (size_t i = 0; st == CHURON_OK && i < n; i++) st = check_folders_of(f, n, i, &folder, err);
    str_free(&folder);
    return st;
}

status files_check_names(const char *const *paths, size_t n, error *err) {
    if (n < 2) return CHURON_OK;
    folded *f = mem_calloc(n, sizeof *f);
    if (!f) return error_no_memory(err, "names", n * sizeof *f);
    status st = CHURON_OK;
    for (size_t i = 0; st == CHURON_OK && i < n; i++) st = fold(paths[i], &f[i], err);
    if (st == CHURON_OK) st = check_folded(f, n, err);
    for (size_t i = 0; i < n; i++) mem_free(f[i].key);
    mem_free(f);
    return st;
}
