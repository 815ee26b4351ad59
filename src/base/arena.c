/* arena.c: see arena.h. Blocks double up to a size, so that small users take little and large ones ask
 * seldom. */
#include "base/arena.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20, KEPT = 64 << 20 };

struct arena_block {
    arena_block *next;
    size_t used, size; /* of data */
    max_align_t data[];
};

static void *take(arena_block *b, size_t bytes, size_t align) {
    const uintptr_t base = (uintptr_t)b->data;
    const uintptr_t at = (base + b->used + align - 1) & ~(uintptr_t)(align - 1);
    const size_t end = (size_t)(at - base);
    if (end > b->size || b->size - end < bytes) return NULL;
    b->used = end + bytes;
    return (char *)b->data + end;
}

static arena_block *add_block(arena *a, size_t least) {
    size_t size = a->blocks && a->blocks->size < LARGEST_BLOCK ? a->blocks->size * 2 : FIRST_BLOCK;
    if (a->blocks && a->blocks->size >= LARGEST_BLOCK) size = LARGEST_BLOCK;
    if (size < least) size = least;
    if (a->limit && (a->held > a->limit || size > a->limit - a->held)) size = least;
    if (a->limit && (a->held > a->limit || size > a->limit - a->held)) return NULL;
    size_t bytes;
    if (!size_add(size, sizeof(arena_block), &bytes)) return NULL;
    arena_block *b = mem_alloc(bytes);
    if (!b) return NULL;
    *b = (arena_block){.size = size};
    a->held += size;
    if (a->blocks && least > LARGEST_BLOCK / 4) { /* a block of its own: the one in use stays in use */
        b->next = a->blocks->next;
        a->blocks->next = b;
    } else {
        b->next = a->blocks;
        a->blocks = b;
    }
    return b;
}

void *arena_aligned(arena *a, size_t bytes, size_t align) {
    if (align < 16) align = 16;
    void *p = a->blocks ? take(a->blocks, bytes, align) : NULL;
    size_t room;
    if (p || !size_add(bytes, align, &room)) return p;
    arena_block *b = add_block(a, room);
    return b ? take(b, bytes, align) : NULL;
}

void *arena_alloc(arena *a, size_t bytes) {
    return arena_aligned(a, bytes, 16);
}

void *arena_array(arena *a, size_t count, size_t size) {
    size_t bytes;
    if (!size_mul(count, size, &bytes)) return NULL;
    void *p = arena_alloc(a, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
    size_t bytes;
    char *p = size_add(n, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *arena_printf(arena *a, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p) (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

bool arena_grow(arena *a, void **items, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    const size_t more = *cap ? *cap * 2 : 8;
    void *p = arena_array(a, more, size);
    if (!p) return false;
    if (n) memcpy(p, *items, n * size);
    *items = p;
    *cap = more;
    return true;
}

status arena_refused(const arena *a, const char *what, size_t bytes, error *err) {
    if (a->limit && (a->held > a->limit || bytes > a->limit - a->held)) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %llu bytes of memory in all, got %llu",
                         what, (unsigned long long)a->limit, (unsigned long long)(a->held + bytes));
    }
    return error_no_memory(err, what, bytes);
}

void arena_reset(arena *a) {
    if (!a->blocks) return;
    if (a->held > KEPT) { /* a rare large use does not stay */
        arena_free(a);
        return;
    }
    if (a->blocks->next) { /* one block of their sum replaces them */
        const size_t size = (size_t)a->held;
        arena_free(a);
        arena_block *whole = mem_alloc(sizeof *whole + size);
        if (!whole) return;
        *whole = (arena_block){.size = size};
        a->blocks = whole;
        a->held = size;
    }
    a->blocks->used = 0;
}

void arena_free(arena *a) {
    for (arena_block *b = a->blocks; b;) {
        arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
    *a = (arena){.limit = a->limit};
}
