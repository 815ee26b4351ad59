/* pack.c: reading a pack; see pack.h for the layout. */
#include "bundle/pack.h"

#include "base/mem.h"
#include "bundle/files_part.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* What zstd may take for its window (128 MiB): a frame that wants more is refused, not obeyed. */
enum { WINDOW_LOG_MAX = 27 };

static const char magic[8] = {'C', 'H', 'U', 'R', 'O', 'N', 'P', 'K'};

static uint64_t get(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

bool pack_has_magic(const void *data, size_t n) {
    return n >= sizeof magic && memcmp(data, magic, sizeof magic) == 0;
}

static status lie(error *err, const char *field, uint64_t expected, uint64_t got) {
    return error_set(err, CHURON_CORRUPT, "pack: %s: expected %" PRIu64 ", got %" PRIu64, field, expected,
                     got);
}

static status lie_of(error *err, const char *path, const char *field, uint64_t expected, uint64_t got) {
    return error_set(err, CHURON_CORRUPT, "pack: \"%.300s\": %s: expected %" PRIu64 ", got %" PRIu64, path,
                     field, expected, got);
}

/* ---- header ----------------------------------------------------------------------------------------- */

typedef struct header {
    uint64_t entries, table, file;
    size_t names; /* bytes of the paths */
} header;

static status read_header(const uint8_t *data, size_t size, header *h, error *err) {
    if (size < PACK_HEADER) {
        return error_set(err, CHURON_CORRUPT, "pack: header: expected %d bytes, got %zu", PACK_HEADER, size);
    }
    if (!pack_has_magic(data, size)) {
        return error_set(err, CHURON_CORRUPT, "pack: magic: expected CHURONPK, got other bytes");
    }
    uint64_t version = get(data + 8, 4);
    if (version != PACK_VERSION) {
        return error_set(err, version ? CHURON_UNSUPPORTED : CHURON_CORRUPT,
                         "pack: version: expected %d, got %" PRIu64, PACK_VERSION, version);
    }
    *h = (header){.entries = get(data + 12, 4), .table = get(data + 16, 8), .file = get(data + 24, 8)};
    if (h->entries > FILES_MAX) return lie(err, "entries: at most", FILES_MAX, h->entries);
    if (h->file != size) return lie(err, "bytes of the file", h->file, size);
    if (h->table > size - PACK_HEADER || h->table < h->entries * PACK_RECORD) {
        return error_set(err, CHURON_CORRUPT,
                         "pack: bytes of the table: expected %" PRIu64 " to %zu, got %" PRIu64,
                         h->entries * PACK_RECORD, size - PACK_HEADER, h->table);
    }
    h->names = (size_t)(h->table - h->entries * PACK_RECORD);
    return CHURON_OK;
}

/* ---- table ------------------------------------------------------------------------------------------ */

static uint64_t aligned(uint64_t at) {
    return (at + PACK_ALIGN - 1) & ~(uint64_t)(PACK_ALIGN - 1);
}

/* The path of record i, which must begin at *name behind the records; moves *name past it. */
static status read_path(const pack *p, const header *h, size_t i, const uint8_t *record, size_t *name,
                        pack_entry *e, error *err) {
    const char *names = (const char *)p->data + PACK_HEADER + h->entries * PACK_RECORD, *expected;
    uint64_t at = get(record + 56, 4), n = get(record + 60, 2);
    if (at != *name || n >= h->names - *name || names[at + n] != '\0') {
        return error_set(err, CHURON_CORRUPT,
                         "pack: path of entry %zu: expected it at %zu and inside %zu bytes, got %" PRIu64
                         " and %" PRIu64 " bytes",
                         i, *name, h->names, at, n);
    }
    e->file.path = names + at;
    if (!files_path_ok(e->file.path, (size_t)n, &expected)) {
        return error_set(err, CHURON_CORRUPT, "pack: path of entry %zu: expected %s, got \"%.300s\"", i,
                         expected, e->file.path);
    }
    if (i && strcmp(p->entries[i - 1].file.path, e->file.path) >= 0) {
        return error_set(err, CHURON_CORRUPT,
                         "pack: path of entry %zu: expected one after \"%.200s\", got \"%.200s\"", i,
                         p->entries[i - 1].file.path, e->file.path);
    }
    *name += (size_t)n + 1;
    return CHURON_OK;
}

/* Record i, whose data must begin at *at; moves *at past them. */
static status read_record(const pack *p, const uint8_t *record, uint64_t *at, pack_entry *e, error *err) {
    const char *path = e->file.path;
    e->offset = get(record, 8);
    e->stored = get(record + 8, 8);
    e->file.size = get(record + 16, 8);
    digest_to_hex(record + 24, e->file.digest);
    e->method = record[62] == PACK_ZSTD ? PACK_ZSTD : PACK_RAW;
    if (record[62] > PACK_ZSTD) return lie_of(err, path, "method: at most", PACK_ZSTD, record[62]);
    if (record[63] != 0) return lie_of(err, path, "last byte of its record", 0, record[63]);
    if (e->offset != aligned(*at)) return lie_of(err, path, "offset", aligned(*at), e->offset);
    if (e->offset > p->size || e->stored > p->size - e->offset) {
        return lie_of(err, path, "stored bytes: at most", e->offset > p->size ? 0 : p->size - e->offset,
                      e->stored);
    }
    if (e->method == PACK_RAW && e->file.size != e->stored) {
        return lie_of(err, path, "bytes", e->stored, e->file.size);
    }
    if (e->file.size > PTRDIFF_MAX) return lie_of(err, path, "bytes: at most", PTRDIFF_MAX, e->file.size);
    *at = e->offset + e->stored;
    return CHURON_OK;
}

static status check_names(const pack *p, error *err) {
    const char **paths = mem_alloc(p->n * sizeof *paths);
    if (!paths) return error_no_memory(err, "names", p->n * sizeof *paths);
    for (size_t i = 0; i < p->n; i++) paths[i] = p->entries[i].file.path;
    status st = files_check_names(paths, p->n, err);
    if (st == CHURON_INVALID) {
        error_prefix(err, "pack");
        st = CHURON_CORRUPT;
        if (err) err->code = st;
    }
    mem_free(paths);
    return st;
}

static const files_entry *entry_at(const void *user, size_t i) {
    return &((const pack *)user)->entries[i].file;
}

static status check_digest(pack *p, error *err) {
    char stated[DIGEST_HEX];
    digest_to_hex(p->data + 32, stated);
    TRY(files_digest_of(entry_at, p, p->n, p->digest, err));
    if (strcmp(stated, p->digest) == 0) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT, "pack: digest: expected %s (of the table), got %s", p->digest,
                     stated);
}

static status read_table(pack *p, const header *h, error *err) {
    const uint8_t *record = p->data + PACK_HEADER;
    uint64_t at = PACK_HEADER + h->table;
    size_t name = 0;
    for (size_t i = 0; i < p->n; i++, record += PACK_RECORD) {
        TRY(read_path(p, h, i, record, &name, &p->entries[i], err));
        TRY(read_record(p, record, &at, &p->entries[i], err));
    }
    if (name != h->names) return lie(err, "bytes of the paths", name, h->names);
    if (at != p->size) return lie(err, "bytes of the file", at, p->size);
    return CHURON_OK;
}

status pack_open(pack *out, const void *data, size_t size, error *err) {
    header h = {0};
    *out = (pack){0};
    TRY(read_header(data, size, &h, err));
    pack p = {.data = data, .size = size, .n = (size_t)h.entries};
    p.entries = mem_calloc(p.n, sizeof *p.entries);
    if (!p.entries) return error_no_memory(err, "pack's table", p.n * sizeof *p.entries);
    status st = read_table(&p, &h, err);
    if (st == CHURON_OK) st = check_names(&p, err);
    if (st == CHURON_OK) st = check_digest(&p, err);
    if (st != CHURON_OK) {
        pack_close(&p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

void pack_close(pack *p) {
    mem_free(p->entries);
    *p = (pack){0};
}

static int by_path(const void *a, const void *b) {
    const pack_entry *x = a, *y = b;
    return strcmp(x->file.path, y->file.path);
}

const pack_entry *pack_find(const pack *p, const char *path) {
    pack_entry key = {.file.path = path};
    return p->n ? bsearch(&key, p->entries, p->n, sizeof *p->entries, by_path) : NULL;
}

/* ---- contents --------------------------------------------------------------------------------------- */

static status zstd_fault(const pack_entry *e, const char *why, error *err) {
    return error_set(err, CHURON_CORRUPT,
                     "pack: \"%.300s\": expected a zstd frame of %" PRIu64 " bytes, got: %s", e->file.path,
                     e->file.size, why);
}

static status unpack(const pack *p, const pack_entry *e, uint8_t *to, error *err) {
    ZSTD_DCtx *ctx = ZSTD_createDCtx();
    if (!ctx) return error_no_memory(err, "zstd", 1 << 17);
    (void)ZSTD_DCtx_setParameter(ctx, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    const uint8_t *from = p->data + e->offset;
    size_t n = ZSTD_decompressDCtx(ctx, to, (size_t)e->file.size, from, (size_t)e->stored);
    ZSTD_freeDCtx(ctx);
    if (ZSTD_isError(n)) return zstd_fault(e, ZSTD_getErrorName(n), err);
    return n == e->file.size ? CHURON_OK : zstd_fault(e, "fewer bytes", err);
}

status pack_content(const pack *p, const pack_entry *e, const uint8_t **data, void **heap, error *err) {
    *heap = NULL;
    *data = p->data + e->offset;
    if (e->method == PACK_RAW) {
        if (e->file.size == 0) *data = (const uint8_t *)""; /* the place may be the end of the map */
        return CHURON_OK;
    }
    /* Before memory is taken: what the frame itself says, and one frame only. */
    unsigned long long said = ZSTD_getFrameContentSize(*data, (size_t)e->stored);
    if (said != e->file.size) return zstd_fault(e, "a frame of another size", err);
    if (ZSTD_findFrameCompressedSize(*data, (size_t)e->stored) != e->stored) {
        return zstd_fault(e, "more than one frame, or a part of one", err);
    }
    uint8_t *room = mem_alloc((size_t)e->file.size);
    if (!room) return error_no_memory(err, e->file.path, (size_t)e->file.size);
    status st = unpack(p, e, room, err);
    if (st != CHURON_OK) {
        mem_free(room);
        return st;
    }
    *data = room;
    *heap = room;
    return CHURON_OK;
}

static status verify_entry(const pack *p, const pack_entry *e, error *err) {
    char hex[DIGEST_HEX];
    const uint8_t *data;
    void *heap;
    TRY(pack_content(p, e, &data, &heap, err));
    status st = digest_bytes(data, (size_t)e->file.size, hex, err);
    mem_free(heap);
    TRY(st);
    if (strcmp(hex, e->file.digest) == 0) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT, "pack: \"%.300s\": sha256: expected %s, got %s", e->file.path,
                     e->file.digest, hex);
}

status pack_verify(const pack *p, error *err) {
    if (!p->n) return CHURON_OK;
    uint64_t at = (uint64_t)((const uint8_t *)p->entries[p->n - 1].file.path - p->data) +
                  strlen(p->entries[p->n - 1].file.path) + 1; /* the table ends with the last path */
    for (size_t i = 0; i < p->n; i++) {
        const pack_entry *e = &p->entries[i];
        for (; at < e->offset; at++) {
            if (p->data[at]) return lie_of(err, e->file.path, "zeros before its data: byte", 0, p->data[at]);
        }
        TRY(verify_entry(p, e, err));
        at = e->offset + e->stored;
    }
    return CHURON_OK;
}
