/* zip.c: see archive.h. Reads by the central directory (APPNOTE.TXT 6.3), Zip64 included; methods stored and
 * deflated. */
#define ZLIB_CONST
#include "registry/pull/archive.h"

#include "base/mem.h"

#include <string.h>
#include <zlib.h>

enum {
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    CENTRAL_SIZE = 46,
    LOCAL_SIZE = 30,
    NAME_MAX_BYTES = 4096,
    CHUNK = 1 << 16,
    DEFLATED = 8
};

typedef struct zip_file {
    const uint8_t *data;
    size_t size;
    uint64_t entries, directory, directory_size;
} zip_file;

typedef struct zip_entry {
    char name[NAME_MAX_BYTES + 1];
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, bytes, local;
} zip_entry;

static unsigned u16(const uint8_t *p) {
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

static uint32_t u32(const uint8_t *p) {
    return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p) {
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

static bool inside(const zip_file *z, uint64_t offset, uint64_t n) {
    return offset <= z->size && n <= z->size - offset;
}

/* ---- directory -------------------------------------------------------------------------------------- */

static status read_end64(zip_file *z, size_t end, error *err) {
    if (end < LOCATOR_SIZE || memcmp(z->data + end - LOCATOR_SIZE, "PK\6\7", 4) != 0) return CHURON_OK;
    uint64_t at = u64(z->data + end - LOCATOR_SIZE + 8);
    if (!inside(z, at, END64_SIZE) || memcmp(z->data + at, "PK\6\6", 4) != 0) {
        return error_set(err, CHURON_CORRUPT, "zip: Zip64 end record: expected one at offset %llu, got none",
                         (unsigned long long)at);
    }
    z->entries = u64(z->data + at + 32);
    z->directory_size = u64(z->data + at + 40);
    z->directory = u64(z->data + at + 48);
    return CHURON_OK;
}

/* The end record is the last thing in the file but for a comment of up to 65,535 bytes. */
static status read_end(zip_file *z, error *err) {
    size_t lowest = z->size > END_SIZE + 65535 ? z->size - END_SIZE - 65535 : 0;
    for (size_t at = z->size >= END_SIZE ? z->size - END_SIZE + 1 : 0; at-- > lowest;) {
        const uint8_t *p = z->data + at;
        if (memcmp(p, "PK\5\6", 4) != 0 || u16(p + 20) != z->size - at - END_SIZE) continue;
        z->entries = u16(p + 10);
        z->directory_size = u32(p + 12);
        z->directory = u32(p + 16);
        TRY(read_end64(z, at, err));
        if (!inside(z, z->directory, z->directory_size)) {
            return error_set(err, CHURON_CORRUPT,
                             "zip: directory: expected it inside %zu bytes, got offset %llu", z->size,
                             (unsigned long long)z->directory);
        }
        return CHURON_OK;
    }
    return error_set(err, CHURON_CORRUPT, "zip: end record: expected one in the last 65,557 bytes, got none");
}

/* Sizes that do not fit 32 bits are in extra field 1, in this order, each only if its field is all ones. */
static bool read_extra64(zip_entry *e, const uint8_t *p, size_t n) {
    bool want[3] = {e->bytes == UINT32_MAX, e->packed == UINT32_MAX, e->local == UINT32_MAX};
    uint64_t *into[3] = {&e->bytes, &e->packed, &e->local};
    if (!want[0] && !want[1] && !want[2]) return true;
    while (n >= 4) {
        unsigned id = u16(p), len = u16(p + 2);
        if (len > n - 4) return false;
        if (id == 1) {
            const uint8_t *q = p + 4, *end = q + len;
            for (int i = 0; i < 3; i++) {
                if (!want[i]) continue;
                if (end - q < 8) return false;
                *into[i] = u64(q);
                q += 8;
            }
            return true;
        }
        p += 4 + len;
        n -= 4 + (size_t)len;
    }
    return true; /* a file of exactly that size */
}

/* The entry at *at of the directory; moves *at behind it. */
static status read_entry(const zip_file *z, uint64_t *at, zip_entry *e, error *err) {
    uint64_t end = z->directory + z->directory_size, left = end - *at;
    const uint8_t *p = z->data + *at;
    if (left < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0) {
        return error_set(err, CHURON_CORRUPT, "zip: directory: expected an entry at offset %llu, got none",
                         (unsigned long long)*at);
    }
    size_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    if (left - CENTRAL_SIZE < name + extra + comment || name > NAME_MAX_BYTES) {
        return error_set(err, CHURON_CORRUPT,
                         "zip: directory: name at offset %llu: expected at most %d bytes, got %zu",
                         (unsigned long long)*at, NAME_MAX_BYTES, name);
    }
    memcpy(e->name, p + CENTRAL_SIZE, name);
    e->name[name] = '\0';
    e->flags = u16(p + 8);
    e->method = u16(p + 10);
    e->crc = u32(p + 16);
    e->packed = u32(p + 20);
    e->bytes = u32(p + 24);
    e->local = u32(p + 42);
    if (!read_extra64(e, p + CENTRAL_SIZE + name, extra)) {
        return error_set(err, CHURON_CORRUPT, "zip: %s: Zip64 sizes: expected 8 bytes each, got less",
                         e->name);
    }
    *at += CENTRAL_SIZE + name + extra + comment;
    return CHURON_OK;
}

/* ---- contents --------------------------------------------------------------------------------------- */

static status inflate_entry(const zip_entry *e, const uint8_t *packed, const archive_reader *r, uint8_t *buf,
                            uint32_t *crc, error *err) {
    z_stream s = {0};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK) return error_no_memory(err, "inflate", CHUNK);
    uint64_t in_left = e->packed, out_total = 0;
    status st = CHURON_OK;
    int code = Z_OK;
    s.next_in = packed;
    while (st == CHURON_OK && code != Z_STREAM_END) {
        if (s.avail_in == 0) {
            s.avail_in = (uInt)(in_left < (1u << 30) ? in_left : 1u << 30);
            in_left -= s.avail_in;
        }
        s.next_out = buf;
        s.avail_out = CHUNK;
        code = inflate(&s, Z_NO_FLUSH);
        size_t n = CHUNK - s.avail_out;
        out_total += n;
        if ((code != Z_OK && code != Z_STREAM_END) || out_total > e->bytes) {
            st = error_set(err, CHURON_CORRUPT, "zip: %s: expected %llu deflated bytes, got a broken stream",
                           e->name, (unsigned long long)e->bytes);
            break;
        }
        *crc = (uint32_t)crc32(*crc, buf, (uInt)n);
        if (n) st = r->on_bytes(r->user, buf, n, err);
    }
    inflateEnd(&s);
    if (st == CHURON_OK && out_total != e->bytes) {
        st = error_set(err, CHURON_CORRUPT, "zip: %s: expected %llu bytes, got %llu", e->name,
                       (unsigned long long)e->bytes, (unsigned long long)out_total);
    }
    return st;
}

static status copy_stored(const zip_entry *e, const uint8_t *packed, const archive_reader *r, uint32_t *crc,
                          error *err) {
    if (e->packed != e->bytes) {
        return error_set(err, CHURON_CORRUPT, "zip: %s: expected %llu stored bytes, got %llu", e->name,
                         (unsigned long long)e->bytes, (unsigned long long)e->packed);
    }
    for (uint64_t at = 0; at < e->bytes;) {
        size_t n = e->bytes - at < CHUNK ? (size_t)(e->bytes - at) : CHUNK;
        *crc = (uint32_t)crc32(*crc, packed + at, (uInt)n);
        TRY(r->on_bytes(r->user, packed + at, n, err));
        at += n;
    }
    return CHURON_OK;
}

static status take(const zip_file *z, const zip_entry *e, const archive_reader *r, error *err) {
    if (e->flags & 1)
        return error_set(err, CHURON_UNSUPPORTED, "zip: %s: expected a plain file, got an encrypted one",
                         e->name);
    if (e->method != 0 && e->method != DEFLATED) {
        return error_set(err, CHURON_UNSUPPORTED, "zip: %s: expected method 0 or 8, got %u", e->name,
                         e->method);
    }
    if (!inside(z, e->local, LOCAL_SIZE) || memcmp(z->data + e->local, "PK\3\4", 4) != 0) {
        return error_set(err, CHURON_CORRUPT, "zip: %s: expected its header at offset %llu, got none",
                         e->name, (unsigned long long)e->local);
    }
    const uint8_t *local = z->data + e->local;
    uint64_t start = e->local + LOCAL_SIZE + u16(local + 26) + u16(local + 28);
    if (!inside(z, start, e->packed)) {
        return error_set(err, CHURON_CORRUPT,
                         "zip: %s: expected %llu bytes at offset %llu, got a file of %zu bytes", e->name,
                         (unsigned long long)e->packed, (unsigned long long)start, z->size);
    }
    uint32_t crc = (uint32_t)crc32(0, NULL, 0);
    if (e->method == 0) {
        TRY(copy_stored(e, z->data + start, r, &crc, err));
    } else {
        uint8_t *buf = mem_alloc(CHUNK);
        if (!buf) return error_no_memory(err, "inflate", CHUNK);
        status st = inflate_entry(e, z->data + start, r, buf, &crc, err);
        mem_free(buf);
        TRY(st);
    }
    if (crc != e->crc) {
        return error_set(err, CHURON_CORRUPT, "zip: %s: checksum: expected %08x, got %08x", e->name, e->crc,
                         crc);
    }
    return CHURON_OK;
}

status zip_read(const uint8_t *data, size_t size, const archive_reader *r, error *err) {
    zip_file z = {.data = data, .size = size};
    TRY(read_end(&z, err));
    zip_entry *e = mem_alloc(sizeof *e);
    if (!e) return error_no_memory(err, "zip", sizeof *e);
    status st = CHURON_OK;
    uint64_t at = z.directory;
    for (uint64_t i = 0; st == CHURON_OK && i < z.entries; i++) {
        st = read_entry(&z, &at, e, err);
        if (st != CHURON_OK) break;
        size_t n = strlen(e->name);
        if (n == 0 || e->name[n - 1] == '/') continue;
        archive_action action = r->on_member(r->user, &(archive_member){.name = e->name, .bytes = e->bytes});
        if (action == ARCHIVE_END) break;
        if (action == ARCHIVE_TAKE) st = take(&z, e, r, err);
    }
    mem_free(e);
    return st;
}
