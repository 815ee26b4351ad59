/* tgz.c: see archive.h. POSIX ustar and pax, with GNU's long names and base-256 sizes, inside gzip. */
#define ZLIB_CONST
#include "registry/pull/archive.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>
#include <zlib.h>

enum { BLOCK = 512, CHUNK = 1 << 16, LONG_NAME_MAX = 1 << 16 };

/* A gzip stream (of one or more members) as a stream of plain bytes. */
typedef struct unzipper {
    z_stream s;
    const uint8_t *in;
    size_t in_left;
    bool ended;
    uint8_t buf[CHUNK];
    size_t from, to; /* unread part of buf */
} unzipper;

static status refill(unzipper *u, error *err) {
    u->from = u->to = 0;
    while (u->to == 0 && !u->ended) {
        if (u->s.avail_in == 0) {
            u->s.next_in = u->in;
            u->s.avail_in = (uInt)(u->in_left < (1u << 30) ? u->in_left : 1u << 30);
            u->in += u->s.avail_in;
            u->in_left -= u->s.avail_in;
        }
        u->s.next_out = u->buf;
        u->s.avail_out = CHUNK;
        int code = inflate(&u->s, Z_NO_FLUSH);
        u->to = CHUNK - u->s.avail_out;
        if (code == Z_STREAM_END) {
            u->ended = (u->s.avail_in == 0 && u->in_left == 0) || inflateReset(&u->s) != Z_OK;
        } else if (code != Z_OK) {
            return error_set(err, CHURON_CORRUPT, "tar.gz: expected a gzip stream, got %s",
                             u->s.msg ? u->s.msg : "its end too early");
        }
    }
    return CHURON_OK;
}

/* Takes up to n bytes that lie together; *got 0 means the end. */
static status take(unzipper *u, size_t n, const uint8_t **p, size_t *got, error *err) {
    if (u->from == u->to) TRY(refill(u, err));
    *got = u->to - u->from < n ? u->to - u->from : n;
    *p = u->buf + u->from;
    u->from += *got;
    return CHURON_OK;
}

/* Exactly n bytes, through on_bytes (NULL: dropped). */
static status pass(unzipper *u, uint64_t n, const archive_reader *r, error *err) {
    while (n > 0) {
        const uint8_t *p;
        size_t got;
        TRY(take(u, n < CHUNK ? (size_t)n : CHUNK, &p, &got, err));
        if (got == 0)
            return error_set(err, CHURON_CORRUPT, "tar.gz: expected %llu more bytes, got the end",
                             (unsigned long long)n);
        if (r) TRY(r->on_bytes(r->user, p, got, err));
        n -= got;
    }
    return CHURON_OK;
}

static status append_bytes(void *user, const void *bytes, size_t n, error *err) {
    str_add(user, bytes, n);
    return str_check(user, err);
}

/* A header's number: octal text, or big-endian binary if the first bit is set. */
static bool number(const uint8_t *p, size_t n, uint64_t *out) {
    uint64_t v = 0;
    if (p[0] & 0x80) {
        v = p[0] & 0x7f;
        for (size_t i = 1; i < n; i++) {
            if (v >> 54) return false;
            v = v << 8 | p[i];
        }
    } else {
        size_t i = 0;
        while (i < n && p[i] == ' ') i++;
        for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) v = v << 3 | (uint64_t)(p[i] - '0');
        if (i < n && p[i] != ' ' && p[i] != '\0') return false;
    }
    *out = v;
    return v < (uint64_t)1 << 60;
}

static bool checksum_ok(const uint8_t *h) {
    uint64_t want, sum = 0;
    for (size_t i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : h[i];
    return number(h + 148, 8, &want) && want == sum;
}

/* The records of a pax header, "LENGTH KEY=VALUE\n" each: path and size replace what the next header says. */
static bool pax_records(const str *text, str *name, uint64_t *size, bool *has_size) {
    const char *p = str_cstr(text), *end = p + text->len;
    while (p < end) {
        size_t len = 0;
        const char *q = p;
        while (q < end && *q >= '0' && *q <= '9' && len < LONG_NAME_MAX)
            len = len * 10 + (size_t)(*q++ - '0');
        if (q >= end || *q != ' ' || len > (size_t)(end - p) || len < (size_t)(q - p) + 4 ||
            p[len - 1] != '\n')
            return false;
        const char *key = q + 1, *last = p + len - 1, *value = memchr(key, '=', (size_t)(last - key));
        if (!value) return false;
        size_t key_len = (size_t)(value++ - key);
        if (key_len == 4 && memcmp(key, "path", 4) == 0) {
            str_clear(name);
            str_add(name, value, (size_t)(last - value));
        } else if (key_len == 4 && memcmp(key, "size", 4) == 0) {
            *size = 0;
            for (; value < last; value++) {
                if (*value < '0' || *value > '9' || *size >> 55) return false;
                *size = *size * 10 + (uint64_t)(*value - '0');
            }
            *has_size = true;
        }
        p += len;
    }
    return true;
}

typedef struct tar_state {
    str name; /* from a pax or GNU header before this one; empty: none */
    uint64_t size;
    bool has_size;
} tar_state;

/* A header that describes the next one. */
static status read_extended(unzipper *u, char type, uint64_t size, tar_state *t, error *err) {
    str text = {0};
    if (size > LONG_NAME_MAX) {
        return error_set(err, CHURON_CORRUPT, "tar: extended header: expected at most %d bytes, got %llu",
                         LONG_NAME_MAX, (unsigned long long)size);
    }
    status st = pass(u, size, &(archive_reader){.user = &text, .on_bytes = append_bytes}, err);
    if (st == CHURON_OK && type == 'L') {
        str_clear(&t->name);
        str_cat(&t->name, str_cstr(&text));
    } else if (st == CHURON_OK && !pax_records(&text, &t->name, &t->size, &t->has_size)) {
        st = error_set(err, CHURON_CORRUPT,
                       "tar: pax header: expected LENGTH KEY=VALUE records, got something else");
    }
    if (st == CHURON_OK) st = str_check(&t->name, err);
    str_free(&text);
    return st;
}

static void header_name(const uint8_t *h, str *name) {
    if (name->len) return;
    const char *prefix = (const char *)h + 345, *own = (const char *)h;
    if (memcmp(h + 257, "ustar\0", 6) == 0 && *prefix) {
        str_add(name, prefix, strnlen(prefix, 155));
        str_put(name, '/');
    }
    str_add(name, own, strnlen(own, 100));
}

/* One header and its contents; *end at the end of the archive. */
static status read_member(unzipper *u, tar_state *t, const archive_reader *r, bool *end, error *err) {
    str header = {0};
    status st = pass(u, BLOCK, &(archive_reader){.user = &header, .on_bytes = append_bytes}, err);
    uint8_t h[BLOCK] = {0};
    if (st == CHURON_OK) memcpy(h, header.data, BLOCK);
    str_free(&header);
    TRY(st);
    static const uint8_t zero[BLOCK];
    if (memcmp(h, zero, BLOCK) == 0) {
        *end = true;
        return CHURON_OK;
    }
    uint64_t size;
    if (!checksum_ok(h) || !number(h + 124, 12, &size)) {
        return error_set(err, CHURON_CORRUPT, "tar: header: expected a valid checksum and size, got others");
    }
    char type = (char)h[156];
    bool extended = type == 'x' || type == 'L';
    if (!extended && t->has_size) size = t->size;
    uint64_t padding = (BLOCK - size % BLOCK) % BLOCK;
    if (extended) {
        TRY(read_extended(u, type, size, t, err));
        return pass(u, padding, NULL, err);
    }
    archive_action action = ARCHIVE_SKIP;
    if (type == '0' || type == '\0') {
        header_name(h, &t->name);
        TRY(str_check(&t->name, err));
        action = r->on_member(r->user, &(archive_member){.name = str_cstr(&t->name), .bytes = size});
        *end = action == ARCHIVE_END;
    }
    str_clear(&t->name);
    t->has_size = false;
    if (*end) return CHURON_OK;
    TRY(pass(u, size, action == ARCHIVE_TAKE ? r : NULL, err));
    return pass(u, padding, NULL, err);
}

status tgz_read(const uint8_t *data, size_t size, const archive_reader *r, error *err) {
    unzipper *u = mem_calloc(1, sizeof *u);
    if (!u) return error_no_memory(err, "tar.gz", sizeof *u);
    u->in = data;
    u->in_left = size;
    tar_state t = {0};
    status st = CHURON_OK;
    if (inflateInit2(&u->s, MAX_WBITS + 16) != Z_OK) {
        mem_free(u);
        return error_no_memory(err, "tar.gz", CHUNK);
    }
    bool end = false;
    while (st == CHURON_OK && !end) st = read_member(u, &t, r, &end, err);
    inflateEnd(&u->s);
    str_free(&t.name);
    mem_free(u);
    return st;
}
