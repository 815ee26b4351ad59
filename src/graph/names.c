/* names.c: see names.h. */
#include "graph/names.h"

#include "base/mem.h"

#include <string.h>

static uint64_t hash_bytes(const char *key, size_t len) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    for (; len >= 8; key += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, key, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t w = 0;
    if (len) memcpy(&w, key, len);
    h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 29);
}

void names_free(names *m) {
    mem_free(m->entries);
    *m = (names){0};
}

static names_entry *find(const names *m, const char *key, size_t len, uint64_t hash) {
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        names_entry *e = &m->entries[i];
        if (!e->value) return e;
        if (e->hash == hash && e->len == len && (len == 0 || memcmp(e->key, key, len) == 0)) return e;
    }
}

void *names_get(const names *m, const char *key, size_t len) {
    return m->cap ? find(m, key, len, hash_bytes(key, len))->value : NULL;
}

static bool grow(names *m) {
    size_t cap = m->cap ? m->cap * 2 : 16;
    names bigger = {.entries = mem_calloc(cap, sizeof *bigger.entries), .n = m->n, .cap = cap};
    if (!bigger.entries) return false;
    for (size_t i = 0; i < m->cap; i++) {
        const names_entry *e = &m->entries[i];
        if (e->value) *find(&bigger, e->key, e->len, e->hash) = *e;
    }
    mem_free(m->entries);
    *m = bigger;
    return true;
}

bool names_set(names *m, const char *key, size_t len, void *value) {
    if ((m->n + 1) * 2 > m->cap && !grow(m)) return false;
    uint64_t hash = hash_bytes(key, len);
    names_entry *e = find(m, key, len, hash);
    if (!e->value) m->n++;
    *e = (names_entry){.key = key, .len = len, .hash = hash, .value = value};
    return true;
}
