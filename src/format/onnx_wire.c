/* onnx_wire.c: see onnx_wire.h. */
#include "format/onnx_wire.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_HEAD = 64, FIRST_CHUNK = 1 << 14, LAST_CHUNK = 1 << 20, PAGES_FROM = 1 << 21, MAX_GROUPS = 32 };

/* ---- errors and path -------------------------------------------------------------------------------- */

static void path_text(const onnx_reader *r, str *to) {
    for (size_t i = 0; i < r->depth; i++) {
        /* The deepest path has a hundred parts: what is cut out of the middle says the least. */
        if (r->depth > 12 && i == 6) {
            str_cat(to, "...");
            i = r->depth - 6;
        }
        str_fmt(to, "%s%s", to->len ? "." : "", r->path[i].name);
        if (r->path[i].index != SIZE_MAX) str_fmt(to, "[%zu]", r->path[i].index);
    }
    if (to->len) str_cat(to, ": ");
}

status onnx_fail(onnx_reader *r, status code, const char *fmt, ...) {
    char message[sizeof((error *)0)->message];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    str path = {0};
    path_text(r, &path);
    error_set(r->err, code, "%s%s", str_cstr(&path), message);
    str_free(&path);
    return code;
}

status onnx_enter(onnx_reader *r, const char *name, size_t index) {
    if (r->depth == ONNX_MAX_DEPTH) {
        return onnx_fail(r, CHURON_LIMIT, "%s: expected at most %d nested messages, got more", name,
                         ONNX_MAX_DEPTH);
    }
    r->path[r->depth].name = name;
    r->path[r->depth++].index = index;
    return CHURON_OK;
}

void onnx_leave(onnx_reader *r) {
    r->depth--;
}

/* ---- arena ------------------------------------------------------------------------------------------ */

struct arena_chunk {
    arena_chunk *next;
    size_t used, size; /* behind the head of CHUNK_HEAD bytes */
    bool pages;
};

_Static_assert(sizeof(arena_chunk) <= CHUNK_HEAD, "the head of a chunk");

static arena_chunk *chunk_create(onnx_reader *r, size_t size) {
    size_t bytes;
    if (!size_add(size, CHUNK_HEAD, &bytes)) return NULL;
    bool pages = bytes >= PAGES_FROM;
    arena_chunk *c = pages ? mem_pages(bytes) : mem_aligned(CHUNK_HEAD, bytes);
    if (!c) return NULL;
    *c = (arena_chunk){.size = size, .pages = pages};
    c->next = r->chunks;
    r->chunks = c;
    return c;
}

void onnx_free_chunks(arena_chunk *c) {
    while (c) {
        arena_chunk *next = c->next;
        if (c->pages) {
            mem_pages_free(c, c->size + CHUNK_HEAD);
        } else {
            mem_free(c);
        }
        c = next;
    }
}

void onnx_forget(const arena_chunk *c, const void *at, size_t bytes) {
    const uintptr_t from = (uintptr_t)at;
    for (; c; c = c->next) {
        const uintptr_t begin = (uintptr_t)c + CHUNK_HEAD;
        if (from >= begin && from - begin < c->used && bytes <= c->used - (from - begin)) {
            mem_forget((void *)from, bytes);
            return;
        }
    }
}

static void *chunk_take(arena_chunk *c, size_t bytes, size_t alignment) {
    size_t at = (c->used + alignment - 1) & ~(alignment - 1);
    if (at > c->size || bytes > c->size - at) return NULL;
    c->used = at + bytes;
    return (char *)c + CHUNK_HEAD + at;
}

static void *arena_take(onnx_reader *r, size_t bytes, size_t alignment) {
    void *p = r->chunks ? chunk_take(r->chunks, bytes, alignment) : NULL;
    if (p) return p;
    size_t size = r->chunks ? 2 * r->chunks->size : FIRST_CHUNK;
    if (size > LAST_CHUNK) size = LAST_CHUNK;
    if (bytes <= size / 4) {
        arena_chunk *c = chunk_create(r, size);
        return c ? chunk_take(c, bytes, alignment) : NULL;
    }
    /* A block of its own goes behind the newest, whose rest is still of use. */
    arena_chunk *newest = r->chunks, *c = chunk_create(r, bytes);
    if (!c) return NULL;
    if (newest) {
        r->chunks = newest;
        c->next = newest->next;
        newest->next = c;
    }
    return chunk_take(c, bytes, alignment);
}

status onnx_take(onnx_reader *r, size_t n, size_t item, void *out_pointer) {
    size_t bytes;
    if (!size_mul(n, item, &bytes) || bytes > r->limit - r->taken) {
        return onnx_fail(r, CHURON_LIMIT,
                         "expected descriptions of at most %" PRIu64 " bytes in memory, got more", r->limit);
    }
    void *p = arena_take(r, bytes ? bytes : 1, 16);
    if (!p) return error_no_memory(r->err, "description of the model", bytes);
    r->taken += bytes;
    memset(p, 0, bytes);
    memcpy(out_pointer, &p, sizeof p);
    return CHURON_OK;
}

status onnx_take_data(onnx_reader *r, size_t bytes, void **out) {
    *out = arena_take(r, bytes ? bytes : 1, 64);
    return *out ? CHURON_OK : error_no_memory(r->err, "elements of a tensor", bytes);
}

/* ---- fields ----------------------------------------------------------------------------------------- */

/* False: cut off or longer than ten bytes. */
static inline bool take_varint(wire *w, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70 && w->at < w->end; shift += 7) {
        uint8_t b = *w->at++;
        v |= (uint64_t)(b & 0x7f) << (shift < 64 ? shift : 63);
        if (b < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static uint64_t read_le(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static status take_key(onnx_reader *r, wire *w, wire_field *f) {
    uint64_t key;
    if (!take_varint(w, &key)) {
        return onnx_fail(r, CHURON_CORRUPT, "expected a field, got the end of the message within its key");
    }
    f->number = (uint32_t)(key >> 3);
    f->type = (wire_type)(key & 7);
    if (key >> 32 || f->number == 0 || f->type > WIRE_FIXED32) {
        return onnx_fail(r, CHURON_CORRUPT, "expected a field's key, got field %" PRIu64 " of wire type %d",
                         key >> 3, (int)f->type);
    }
    return CHURON_OK;
}

static status take_value(onnx_reader *r, wire *w, wire_field *f) {
    size_t left = (size_t)(w->end - w->at), need = f->type == WIRE_FIXED64 ? 8 : 4;
    switch (f->type) {
    case WIRE_VARINT:
        if (take_varint(w, &f->value)) return CHURON_OK;
        return onnx_fail(r, CHURON_CORRUPT,
                         "field %" PRIu32 ": expected a varint of at most 10 bytes, got %s", f->number,
                         w->at < w->end ? "a longer one" : "the end of the message");
    case WIRE_BYTES: {
        uint64_t n;
        if (!take_varint(w, &n) || n > (uint64_t)(w->end - w->at)) {
            return onnx_fail(r, CHURON_CORRUPT,
                             "field %" PRIu32
                             ": expected a length within the %zu bytes that are left, got %s",
                             f->number, left, "a longer one");
        }
        f->bytes = (wire){w->at, w->at + n};
        w->at += n;
        return CHURON_OK;
    }
    default:
        if (left < need) {
            return onnx_fail(r, CHURON_CORRUPT, "field %" PRIu32 ": expected %zu bytes, got %zu", f->number,
                             need, left);
        }
        f->value = read_le(w->at, need);
        w->at += need;
        return CHURON_OK;
    }
}

/* Unknown groups, which no version of the schema had, are passed over with what they contain. */
static status skip_group(onnx_reader *r, wire *w, uint32_t number) {
    uint32_t open[MAX_GROUPS] = {number};
    size_t depth = 1;
    while (depth) {
        wire_field f = {0};
        if (w->at == w->end) {
            return onnx_fail(r, CHURON_CORRUPT, "group %" PRIu32 ": expected its end, got the message's",
                             open[depth - 1]);
        }
        TRY(take_key(r, w, &f));
        if (f.type == WIRE_GROUP_END) {
            if (f.number != open[depth - 1]) {
                return onnx_fail(r, CHURON_CORRUPT,
                                 "group %" PRIu32 ": expected its end, got that of %" PRIu32, open[depth - 1],
                                 f.number);
            }
            depth--;
        } else if (f.type == WIRE_GROUP) {
            if (depth == MAX_GROUPS) {
                return onnx_fail(r, CHURON_LIMIT, "expected at most %d nested groups, got more", MAX_GROUPS);
            }
            open[depth++] = f.number;
        } else {
            TRY(take_value(r, w, &f));
        }
    }
    return CHURON_OK;
}

status wire_next(onnx_reader *r, wire *w, wire_field *f) {
    *f = (wire_field){0};
    while (w->at < w->end) {
        TRY(take_key(r, w, f));
        if (f->type == WIRE_GROUP_END) {
            return onnx_fail(r, CHURON_CORRUPT, "expected a field, got the end of group %" PRIu32, f->number);
        }
        if (f->type != WIRE_GROUP) return take_value(r, w, f);
        TRY(skip_group(r, w, f->number));
        f->number = 0;
    }
    return CHURON_OK;
}

status wire_count(onnx_reader *r, wire m, size_t counts[WIRE_COUNTED]) {
    memset(counts, 0, WIRE_COUNTED * sizeof counts[0]);
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number < WIRE_COUNTED) counts[f.number]++;
    }
    return CHURON_OK;
}

static const char *type_name(wire_type t) {
    static const char *const names[] = {"a varint", "8 bytes",       "a length and bytes",
                                        "a group",  "a group's end", "4 bytes"};
    return names[t];
}

static status expect(onnx_reader *r, const wire_field *f, const char *name, wire_type type) {
    if (f->type == type) return CHURON_OK;
    return onnx_fail(r, CHURON_CORRUPT, "%s: expected %s, got %s", name, type_name(type), type_name(f->type));
}

status wire_message(onnx_reader *r, const wire_field *f, const char *name, wire *out) {
    TRY(expect(r, f, name, WIRE_BYTES));
    *out = f->bytes;
    return CHURON_OK;
}

status wire_int(onnx_reader *r, const wire_field *f, const char *name, int64_t *out) {
    TRY(expect(r, f, name, WIRE_VARINT));
    *out = (int64_t)f->value;
    return CHURON_OK;
}

status wire_float(onnx_reader *r, const wire_field *f, const char *name, float *out) {
    TRY(expect(r, f, name, WIRE_FIXED32));
    uint32_t bits = (uint32_t)f->value;
    memcpy(out, &bits, sizeof bits);
    return CHURON_OK;
}

status wire_string(onnx_reader *r, const wire_field *f, const char *name, const char **out) {
    TRY(expect(r, f, name, WIRE_BYTES));
    const char *bytes = (const char *)f->bytes.at;
    size_t n = (size_t)(f->bytes.end - f->bytes.at);
    *out = "";
    if (n == 0) return CHURON_OK;
    size_t bad = utf8_validate(bytes, n);
    if (bad < n) {
        return onnx_fail(r, CHURON_CORRUPT, "%s: expected UTF-8, got byte 0x%02x at %zu", name,
                         (unsigned)(uint8_t)bytes[bad], bad);
    }
    if (memchr(bytes, 0, n)) {
        return onnx_fail(r, CHURON_CORRUPT, "%s: expected a string without zero bytes, got one in '%.40s...'",
                         name, bytes);
    }
    char *copy = NULL;
    if (n > r->limit - r->taken) {
        return onnx_fail(r, CHURON_LIMIT, "%s: expected descriptions of at most %" PRIu64 " bytes, got more",
                         name, r->limit);
    }
    copy = arena_take(r, n + 1, 1);
    if (!copy) return error_no_memory(r->err, name, n + 1);
    r->taken += n;
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    *out = copy;
    return CHURON_OK;
}

/* ---- lists of numbers ------------------------------------------------------------------------------- */

static status count_packed(onnx_reader *r, wire b, size_t fixed, const char *name, size_t *n) {
    size_t bytes = (size_t)(b.end - b.at);
    if (fixed) {
        if (bytes % fixed) {
            return onnx_fail(r, CHURON_CORRUPT, "%s: expected a multiple of %zu bytes, got %zu", name, fixed,
                             bytes);
        }
        *n += bytes / fixed;
        return CHURON_OK;
    }
    size_t last = 0;
    for (size_t i = 0; i < bytes; i++) last += b.at[i] < 0x80;
    if (bytes && b.end[-1] >= 0x80) {
        return onnx_fail(r, CHURON_CORRUPT, "%s: expected whole varints, got one that is cut off", name);
    }
    *n += last;
    return CHURON_OK;
}

status wire_list_count(onnx_reader *r, wire m, uint32_t number, size_t fixed, const char *name, size_t *n) {
    wire_type single = fixed == 4 ? WIRE_FIXED32 : fixed == 8 ? WIRE_FIXED64 : WIRE_VARINT;
    *n = 0;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != number) continue;
        if (f.type == WIRE_BYTES) {
            TRY(count_packed(r, f.bytes, fixed, name, n));
        } else {
            TRY(expect(r, &f, name, single));
            ++*n;
        }
    }
    return CHURON_OK;
}

status wire_list_fixed(onnx_reader *r, wire m, uint32_t number, size_t fixed, void *to) {
    uint8_t *out = to;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != number) continue;
        if (f.type == WIRE_BYTES) {
            size_t bytes = (size_t)(f.bytes.end - f.bytes.at);
            if (bytes) memcpy(out, f.bytes.at, bytes);
            out += bytes;
        } else {
            for (size_t i = 0; i < fixed; i++) *out++ = (uint8_t)(f.value >> (8 * i));
        }
    }
    return CHURON_OK;
}

/* What the list of a type may hold: codes of small floats are unsigned, but writers sign-extend some. */
typedef struct list_range {
    int64_t least, most;
    bool is_int32; /* int32 in the schema: the upper half of a varint is not read */
} list_range;

static list_range range_of(elem e) {
    switch (elem_describe(e)->bytes) {
    case 1: return (list_range){INT8_MIN, UINT8_MAX, true};
    case 2: return (list_range){INT16_MIN, UINT16_MAX, true};
    case 4:
        return e == ELEM_U32 ? (list_range){0, UINT32_MAX, false} : (list_range){INT32_MIN, INT32_MAX, true};
    default: return (list_range){INT64_MIN, INT64_MAX, false};
    }
}

static status put_varint(onnx_reader *r, uint64_t v, list_range range, const char *name, elem e, uint8_t *to,
                         size_t i) {
    int64_t x = range.is_int32 ? (int64_t)(int32_t)(uint32_t)v : (int64_t)v;
    if (x < range.least || x > range.most) {
        return onnx_fail(r, CHURON_CORRUPT, "%s[%zu]: expected a value of %s, got %" PRId64, name, i,
                         elem_name(e), x);
    }
    uint16_t x16 = (uint16_t)x;
    uint32_t x32 = (uint32_t)x;
    switch (elem_describe(e)->bytes) {
    case 1: to[i] = e == ELEM_BOOL ? x != 0 : (uint8_t)x; break;
    case 2: memcpy(to + 2 * i, &x16, 2); break;
    case 4: memcpy(to + 4 * i, &x32, 4); break;
    default: memcpy(to + 8 * i, &x, 8); break;
    }
    return CHURON_OK;
}

status wire_list_varints(onnx_reader *r, wire m, uint32_t number, const char *name, elem e, void *to) {
    list_range range = range_of(e);
    size_t i = 0;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != number) continue;
        if (f.type != WIRE_BYTES) {
            TRY(put_varint(r, f.value, range, name, e, to, i++));
            continue;
        }
        while (f.bytes.at < f.bytes.end) {
            uint64_t v;
            if (!take_varint(&f.bytes, &v)) {
                return onnx_fail(r, CHURON_CORRUPT,
                                 "%s[%zu]: expected a varint of at most 10 bytes, got a "
                                 "longer one",
                                 name, i);
            }
            TRY(put_varint(r, v, range, name, e, to, i++));
        }
    }
    return CHURON_OK;
}
