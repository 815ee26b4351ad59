/* onnx_external.c: files beside a model that hold elements of its tensors. Whatever a model says, nothing
 * outside its folder is opened. */
#define _GNU_SOURCE
#include "format/onnx_read.h"

#include "base/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 100000 };

typedef struct external_file {
    struct external_file *next;
    const char *location; /* in the reader's arena */
    file_map map;
} external_file;

struct onnx_files {
    external_file *first; /* the one used last is in front */
    size_t n;
    char folder[PATH_MAX]; /* without symbolic links */
};

void onnx_files_close(onnx_files *files) {
    if (!files) return;
    for (external_file *f = files->first; f;) {
        external_file *next = f->next;
        file_map_close(&f->map);
        mem_free(f);
        f = next;
    }
    mem_free(files);
}

void onnx_files_drop(const onnx_files *files, const void *at, size_t bytes) {
    for (const external_file *f = files ? files->first : NULL; f; f = f->next) {
        if (at) {
            file_map_drop_at(&f->map, at, bytes);
        } else {
            file_map_drop(&f->map, 0, f->map.size);
        }
    }
}

static bool leaves_folder(const char *location) {
    if (location[0] == '/') return true;
    for (const char *p = location; *p;) {
        size_t n = strcspn(p, "/\\");
        if (n == 2 && p[0] == '.' && p[1] == '.') return true;
        p += n + (p[n] != '\0');
    }
    return false;
}

static status confine(onnx_reader *r, const char *location, char path[PATH_MAX]) {
    const char *folder = r->files->folder;
    size_t n = strlen(folder), m = strlen(location);
    if (location[0] == '\0' || leaves_folder(location)) {
        return onnx_fail(r, CHURON_INVALID,
                         "external_data.location: expected a path inside the model's folder, got '%s'",
                         location);
    }
    if (n + m + 2 > PATH_MAX) {
        return onnx_fail(r, CHURON_INVALID,
                         "external_data.location: expected a path of at most %d bytes, got %zu", PATH_MAX,
                         n + m + 1);
    }
    char joined[PATH_MAX];
    memcpy(joined, folder, n);
    joined[n] = '/';
    memcpy(joined + n + 1, location, m + 1);
    if (!realpath(joined, path)) {
        return onnx_fail(r, errno == ENOENT ? CHURON_NOT_FOUND : CHURON_IO,
                         "external_data.location: expected a file, got '%s': %s", location, strerror(errno));
    }
    size_t root = strcmp(folder, "/") == 0 ? 0 : n;
    if (strncmp(path, folder, root) == 0 && path[root] == '/') return CHURON_OK;
    return onnx_fail(
        r, CHURON_INVALID,
        "external_data.location: expected a path inside the model's folder, got '%s', a link out of "
        "it",
        location);
}

static status start(onnx_reader *r) {
    if (!r->folder) {
        return onnx_fail(r, CHURON_UNSUPPORTED,
                         "data_location: expected elements in the model, got EXTERNAL without a folder");
    }
    r->files = mem_calloc(1, sizeof *r->files);
    if (!r->files) return error_no_memory(r->err, "external files", sizeof *r->files);
    if (!realpath(r->folder, r->files->folder)) {
        return onnx_fail(r, CHURON_IO, "folder '%s': %s", r->folder, strerror(errno));
    }
    return CHURON_OK;
}

static status open_file(onnx_reader *r, const char *location, external_file **out) {
    char path[PATH_MAX];
    TRY(confine(r, location, path));
    if (r->files->n == MAX_FILES) {
        return onnx_fail(r, CHURON_LIMIT, "expected at most %d external files, got more", MAX_FILES);
    }
    external_file *f = mem_calloc(1, sizeof *f);
    if (!f) return error_no_memory(r->err, "external file", sizeof *f);
    error why;
    status st = file_map_open(&f->map, path, &why);
    if (st != CHURON_OK) {
        mem_free(f);
        return onnx_fail(r, st, "external_data: %s", why.message);
    }
    f->location = location;
    r->files->n++;
    *out = f;
    return CHURON_OK;
}

status onnx_external(onnx_reader *r, const char *location, const file_map **out) {
    if (!r->files) TRY(start(r));
    external_file **at = &r->files->first, *f;
    while (*at && strcmp((*at)->location, location) != 0) at = &(*at)->next;
    if (*at) {
        f = *at;
        *at = f->next;
    } else {
        TRY(open_file(r, location, &f));
    }
    f->next = r->files->first;
    r->files->first = f;
    *out = &f->map;
    return CHURON_OK;
}
