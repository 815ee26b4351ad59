/* arena.h: memory that is taken piece by piece and given back all at once.
 *
 * Zero-initialise (`arena a = {.limit = …}`). Nothing taken from it is freed alone. arena_reset keeps the
 * memory, in one block, so that what runs again and again stops asking the heap. One owner at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/status.h"

typedef struct arena_block arena_block;

typedef struct arena {
    arena_block *blocks; /* newest first */
    uint64_t held;       /* bytes of all blocks */
    uint64_t limit;      /* most bytes that it may hold; 0: no limit */
} arena;

/* 16-byte aligned (`align` of the other: a power of two up to 64), not zeroed. NULL: no memory, or over the
 * limit. */
void *arena_alloc(arena *a, size_t bytes);
void *arena_aligned(arena *a, size_t bytes, size_t align);
void *arena_array(arena *a, size_t count, size_t size); /* zeroed; NULL also on overflow of count*size */
char *arena_strndup(arena *a, const char *s, size_t n); /* copies n bytes and adds a zero */
char *arena_printf(arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Doubles an array that is full: *items has room for at least n + 1 after it. False: no memory. */
bool arena_grow(arena *a, void **items, size_t n, size_t *cap, size_t size);
/* The error for a NULL of the above: CHURON_LIMIT with both numbers, or CHURON_NO_MEMORY. */
status arena_refused(const arena *a, const char *what, size_t bytes, error *err);
void arena_reset(arena *a);
void arena_free(arena *a);

#endif
