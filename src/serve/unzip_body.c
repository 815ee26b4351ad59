/* unzip_body.c: see unzip_body.h. */
#include "serve/unzip_body.h"

#include "base/mem.h"

#include <limits.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum { FIRST_ROOM = 16 << 10 };

static const char *const NAMES[] = {"identity", "gzip", "deflate"};

bool body_coding_of(const char *header, body_coding *out) {
    *out = BODY_PLAIN;
    if (!header || !*header || strcasecmp(header, "identity") == 0) return true;
    if (strcasecmp(header, "gzip") == 0 || strcasecmp(header, "x-gzip") == 0) *out = BODY_GZIP;
    if (strcasecmp(header, "deflate") == 0) *out = BODY_DEFLATE;
    return *out != BODY_PLAIN;
}

typedef struct unzipping {
    z_stream z;
    char *to;
    size_t n, room, most; /* of `to` */
} unzipping;

static voidpf allocate(voidpf user, uInt items, uInt size) {
    (void)user;
    return mem_calloc(items, size);
}

static void release(voidpf user, voidpf p) {
    (void)user;
    mem_free(p);
}

static status grow(unzipping *u, error *err) {
    if (u->n < u->room) return CHURON_OK;
    if (u->room > u->most)
        return error_set(err, CHURON_LIMIT, "body: expected at most %zu bytes once it is unpacked, got more",
                         u->most);
    const size_t room = u->room > u->most / 2 ? u->most + 1 : u->room * 2;
    char *more = mem_realloc(u->to, room + 1);
    if (!more) return error_no_memory(err, "body", room);
    u->to = more;
    u->room = room;
    return CHURON_OK;
}

/* All of the input; gzip files may follow one another. */
static status inflate_all(unzipping *u, body_coding coding, const char *from, size_t n, error *err) {
    int rc = Z_OK;
    size_t at = 0;
    while (rc != Z_STREAM_END || at < n) {
        if (rc == Z_STREAM_END && (coding != BODY_GZIP || inflateReset(&u->z) != Z_OK)) break;
        TRY(grow(u, err));
        const size_t in = n - at < INT_MAX ? n - at : INT_MAX,
                     out = u->room - u->n < INT_MAX ? u->room - u->n : INT_MAX;
        u->z.next_in = (Bytef *)(uintptr_t)(from + at);
        u->z.avail_in = (uInt)in;
        u->z.next_out = (Bytef *)(u->to + u->n);
        u->z.avail_out = (uInt)out;
        rc = inflate(&u->z, Z_NO_FLUSH);
        at += in - u->z.avail_in;
        u->n += out - u->z.avail_out;
        if (rc == Z_MEM_ERROR) return error_no_memory(err, "body", 0);
        if (rc != Z_OK && rc != Z_STREAM_END && !(rc == Z_BUF_ERROR && u->z.avail_out == 0)) break;
    }
    if (rc == Z_STREAM_END && at == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "body: expected %s as Content-Encoding says, got %s at byte %zu",
                     NAMES[coding],
                     rc == Z_STREAM_END              ? "more behind its end"
                     : at == n && rc != Z_DATA_ERROR ? "its end too early"
                                                     : "other bytes",
                     at);
}

status unzip_body(body_coding coding, char **body, size_t *n, size_t most, error *err) {
    if (coding == BODY_PLAIN) return CHURON_OK;
    unzipping u = {.z = {.zalloc = allocate, .zfree = release}, .room = FIRST_ROOM, .most = most};
    if (u.room > most) u.room = most + 1;
    u.to = mem_alloc(u.room + 1);
    if (!u.to) return error_no_memory(err, "body", u.room);
    status st = inflateInit2(&u.z, coding == BODY_GZIP ? MAX_WBITS + 16 : MAX_WBITS) == Z_OK
                    ? inflate_all(&u, coding, *body, *n, err)
                    : error_no_memory(err, "body", 0);
    (void)inflateEnd(&u.z);
    if (st == CHURON_OK && u.n > most)
        st = error_set(err, CHURON_LIMIT, "body: expected at most %zu bytes once it is unpacked, got more",
                       most);
    if (st != CHURON_OK) {
        mem_free(u.to);
        return st;
    }
    u.to[u.n] = 0;
    mem_free(*body);
    *body = u.to;
    *n = u.n;
    return CHURON_OK;
}
