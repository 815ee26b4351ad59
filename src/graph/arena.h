/* arena.h: memory of a loaded graph's description: many small blocks that live and go together.
 *
 * Blocks are zeroed and aligned for any type. Nothing is freed alone. Owner: whoever builds the graph; read
 * by anybody afterwards. */
#ifndef GRAPH_ARENA_H
#define GRAPH_ARENA_H

#include "base/status.h"

typedef struct arena_chunk arena_chunk;

typedef struct arena { /* zero-initialise */
    arena_chunk *chunks;
    size_t used, cap; /* of the newest chunk */
    size_t total;     /* bytes of all chunks */
    size_t limit;     /* no more than this; 0: no limit */
} arena;

void arena_free(arena *a);
void *arena_alloc(arena *a, size_t bytes); /* NULL: no memory, or over the limit */
void *arena_array(arena *a, size_t count, size_t size);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Doubles an array that is full: *items has room for at least n + 1 after it. False: no memory. */
bool arena_grow(arena *a, void **items, size_t n, size_t *cap, size_t size);

#endif
