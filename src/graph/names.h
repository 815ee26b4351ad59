/* names.h: a map from byte strings to pointers, for names of values, functions and expressions.
 *
 * Keys are borrowed and stay as long as the map. Open addressing, at most half full. */
#ifndef GRAPH_NAMES_H
#define GRAPH_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct names_entry {
    const char *key;
    size_t len;
    uint64_t hash;
    void *value;
} names_entry;

typedef struct names { /* zero-initialise; free with names_free */
    names_entry *entries;
    size_t n, cap; /* cap: 0 or a power of two */
} names;

void names_free(names *m);
void *names_get(const names *m, const char *key, size_t len); /* NULL: absent */
/* Adds or replaces. value is not NULL. False: no memory. */
bool names_set(names *m, const char *key, size_t len, void *value);

#endif
