/* pack_write.c: writing a pack, and taking one apart; see pack.h. */
#define _GNU_SOURCE 1 /* O_DIRECTORY */
#include "base/disk.h"
#include "base/mem.h"
#include "bundle/files_part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zstd.h>

enum { ZSTD_LEVEL = 12, WRITE_STEP = 1 << 22 };

/* Owner: the thread in pack_write. */
typedef struct writer {
    const files *from;
    bool zstd;
    pack_entry *entries;
    size_t n, names, table;
    sink out;
    uint64_t at; /* where the next byte goes */
} writer;

static void put(uint8_t *p, uint64_t v, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static status pad(writer *w, error *err) {
    static const uint8_t zeros[PACK_ALIGN];
    size_t n = (size_t)(-w->at & (PACK_ALIGN - 1));
    w->at += n;
    return sink_write(&w->out, zeros, n, err);
}

/* ---- entries ---------------------------------------------------------------------------------------- */

/* Is it mapped in place? Then it is never compressed. */
static bool is_model(const char *path) {
    static const char *const ends[] = {".onnx", ".gguf", ".safetensors", ".bin", ".data"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(path + n - k, ends[i]) == 0) return true;
    }
    return false;
}

/* The bytes to store: compressed (*heap), or as they are if that gains less than an eighth. */
static status squeeze(const files_view *v, pack_entry *e, uint8_t **heap, error *err) {
    size_t room = ZSTD_compressBound(v->size);
    *heap = NULL;
    uint8_t *to = mem_alloc(room);
    if (!to) return error_no_memory(err, "zstd", room);
    size_t n = ZSTD_compress(to, room, v->data, v->size, ZSTD_LEVEL);
    if (ZSTD_isError(n) || n > v->size - v->size / 8) {
        mem_free(to);
        return CHURON_OK;
    }
    e->method = PACK_ZSTD;
    e->stored = n;
    *heap = to;
    return CHURON_OK;
}

static status write_entry(writer *w, size_t i, error *err) {
    pack_entry *e = &w->entries[i];
    files_view v;
    uint8_t *heap = NULL;
    TRY(files_map(w->from, files_at(w->from, i)->path, &v, err));
    status st = pad(w, err);
    e->offset = w->at;
    e->stored = e->file.size = v.size;
    if (st == CHURON_OK) st = digest_bytes(v.data, v.size, e->file.digest, err);
    if (st == CHURON_OK && w->zstd && v.size && !is_model(e->file.path)) st = squeeze(&v, e, &heap, err);
    const uint8_t *data = heap ? heap : v.data;
    for (uint64_t at = 0; st == CHURON_OK && at < e->stored; at += WRITE_STEP) {
        uint64_t left = e->stored - at;
        st = sink_write(&w->out, data + at, (size_t)(left < WRITE_STEP ? left : WRITE_STEP), err);
    }
    w->at += e->stored;
    mem_free(heap);
    files_unmap(&v);
    return st;
}

/* ---- header and table ------------------------------------------------------------------------------- */

static status plan(writer *w, error *err) {
    const char **paths = mem_alloc(w->n * sizeof *paths);
    w->entries = mem_calloc(w->n, sizeof *w->entries);
    status st =
        paths && w->entries ? CHURON_OK : error_no_memory(err, "pack's table", w->n * sizeof *w->entries);
    for (size_t i = 0; st == CHURON_OK && i < w->n; i++) {
        w->entries[i].file = *files_at(w->from, i);
        paths[i] = w->entries[i].file.path;
        w->names += strlen(paths[i]) + 1;
    }
    if (st == CHURON_OK) st = files_check_names(paths, w->n, err);
    w->table = w->n * PACK_RECORD + w->names;
    mem_free(paths);
    return st;
}

static void fill_table(const writer *w, uint8_t *to) {
    size_t name = 0;
    uint8_t *names = to + w->n * PACK_RECORD;
    for (size_t i = 0; i < w->n; i++, to += PACK_RECORD) {
        const pack_entry *e = &w->entries[i];
        size_t n = strlen(e->file.path);
        put(to, e->offset, 8);
        put(to + 8, e->stored, 8);
        put(to + 16, e->file.size, 8);
        digest_from_hex(e->file.digest, to + 24);
        put(to + 56, name, 4);
        put(to + 60, n, 2);
        to[62] = (uint8_t)e->method;
        to[63] = 0;
        memcpy(names + name, e->file.path, n + 1);
        name += n + 1;
    }
}

static const files_entry *entry_at(const void *user, size_t i) {
    return &((const pack_entry *)user)[i].file;
}

/* Over the zeros that kept the place. */
static status write_head(writer *w, pack_result *out, error *err) {
    size_t n = PACK_HEADER + w->table;
    uint8_t *head = mem_calloc(1, n);
    if (!head) return error_no_memory(err, "pack's table", n);
    status st = files_digest_of(entry_at, w->entries, w->n, out->digest, err);
    if (st == CHURON_OK) {
        memcpy(head, "CHURONPK", 8);
        put(head + 8, PACK_VERSION, 4);
        put(head + 12, w->n, 4);
        put(head + 16, w->table, 8);
        put(head + 24, w->at, 8);
        digest_from_hex(out->digest, head + 32);
        fill_table(w, head + PACK_HEADER);
    }
    for (size_t at = 0; st == CHURON_OK && at < n;) {
        ssize_t k = pwrite(w->out.fd, head + at, n - at, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) st = error_set(err, CHURON_IO, "%s: cannot write: %s", w->out.path, strerror(errno));
        if (k > 0) at += (size_t)k;
    }
    mem_free(head);
    return st;
}

static status keep_place(writer *w, error *err) {
    size_t n = PACK_HEADER + w->table;
    uint8_t *zeros = mem_calloc(1, n);
    if (!zeros) return error_no_memory(err, "pack's table", n);
    status st = sink_write(&w->out, zeros, n, err);
    w->at = n;
    mem_free(zeros);
    return st;
}

static status write_all(writer *w, pack_result *out, error *err) {
    TRY(keep_place(w, err));
    for (size_t i = 0; i < w->n; i++) TRY(write_entry(w, i, err));
    TRY(write_head(w, out, err));
    out->bytes = w->at;
    out->entries = w->n;
    return sink_close(&w->out, err);
}

status pack_write(const files *from, const char *path, const pack_options *o, pack_result *out, error *err) {
    writer w = {.from = from, .zstd = o && o->zstd, .n = files_count(from), .out.fd = -1};
    str part = {0};
    *out = (pack_result){0};
    if (!w.n) return error_set(err, CHURON_INVALID, "%s: expected a file, got none", files_path_of(from));
    str_fmt(&part, "%s.%ld.part", path, (long)getpid());
    status st = str_check(&part, err);
    if (st == CHURON_OK) st = plan(&w, err);
    if (st == CHURON_OK) st = sink_open(&w.out, str_cstr(&part), false, err);
    if (st == CHURON_OK) {
        st = write_all(&w, out, err);
        sink_drop(&w.out);
        if (st == CHURON_OK && rename(str_cstr(&part), path) != 0) {
            st = error_set(err, CHURON_IO, "%s: cannot rename to it: %s", path, strerror(errno));
        }
        if (st != CHURON_OK) (void)unlink(str_cstr(&part));
    }
    mem_free(w.entries);
    str_free(&part);
    return st;
}

/* ---- taking apart ----------------------------------------------------------------------------------- */

static bool is_empty(const char *folder) {
    DIR *d = opendir(folder);
    size_t n = 0;
    if (!d) return false;
    while (readdir(d)) n++;
    closedir(d);
    return n <= 2; /* . and .. */
}

static status extract_entry(const files *from, size_t i, const char *folder, error *err) {
    const files_entry *e = files_at(from, i);
    str path = {0}, above = {0};
    files_view v = {0};
    sink s = {.fd = -1};
    str_fmt(&path, "%s/%s", folder, e->path);
    str_add(&above, str_cstr(&path), path.failed ? 0 : (size_t)(strrchr(path.data, '/') - path.data));
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = str_check(&above, err);
    if (st == CHURON_OK) st = dir_make(str_cstr(&above), err);
    if (st == CHURON_OK) st = files_map(from, e->path, &v, err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&path), false, err);
    if (st == CHURON_OK) st = sink_write(&s, v.data, v.size, err);
    if (st == CHURON_OK) st = sink_close(&s, err);
    sink_drop(&s);
    files_unmap(&v);
    str_free(&path);
    str_free(&above);
    return st;
}

status pack_extract(const files *from, const char *folder, error *err) {
    TRY(files_verify(from, false, err));
    TRY(dir_make(folder, err));
    if (!is_empty(folder)) {
        return error_set(err, CHURON_INVALID, "%s: expected an empty folder, got one with files", folder);
    }
    for (size_t i = 0; i < files_count(from); i++) TRY(extract_entry(from, i, folder, err));
    return CHURON_OK;
}
