/* arena.c: see arena.h. */
#include "graph/arena.h"

#include "base/mem.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 64 * 1024, ALIGN = 16 };

struct arena_chunk {
    alignas(ALIGN) arena_chunk *next;
};

void arena_free(arena *a) {
    for (arena_chunk *c = a->chunks; c;) {
        arena_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
    *a = (arena){.limit = a->limit};
}

void *arena_alloc(arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 4) return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!bytes) bytes = ALIGN;
    if (a->chunks && a->cap - a->used >= bytes) {
        char *p = (char *)a->chunks + a->used;
        a->used += bytes;
        return p;
    }
    size_t cap = sizeof(arena_chunk) + (bytes > CHUNK / 4 ? bytes : CHUNK);
    if (a->limit && cap > a->limit - a->total) return NULL;
    arena_chunk *c = mem_calloc(1, cap);
    if (!c) return NULL;
    a->total += cap;
    if (bytes > CHUNK / 4 && a->chunks) { /* a block of its own: the chunk in use stays in use */
        c->next = a->chunks->next;
        a->chunks->next = c;
        return c + 1;
    }
    c->next = a->chunks;
    a->chunks = c;
    a->cap = cap;
    a->used = sizeof(arena_chunk) + bytes;
    return c + 1;
}

void *arena_array(arena *a, size_t count, size_t size) {
    size_t bytes;
    return size_mul(count, size, &bytes) ? arena_alloc(a, bytes) : NULL;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
    char *p = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;
    if (p && n) memcpy(p, s, n);
    return p;
}

char *arena_printf(arena *a, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p) (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

bool arena_grow(arena *a, void **items, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t more = *cap ? *cap * 2 : 8;
    void *p = arena_array(a, more, size);
    if (!p) return false;
    if (n) memcpy(p, *items, n * size);
    *items = p;
    *cap = more;
    return true;
}
