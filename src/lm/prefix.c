/* prefix.c: see prefix.h. Entries are numbered as the pages are; lists are indices. */
#include "lm/prefix.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { SPACE_BUCKETS = 256, CHILDREN_SEEN = 64 };

struct prefix_space {
    prefix_space *next; /* in its bucket */
    uint64_t serial;
    size_t refs;    /* openers and entries */
    uint32_t child; /* first pages */
    bool alone;
    uint32_t hash;
    size_t key_len;
    char key[];
};

typedef struct entry {
    prefix_space *space; /* NULL: no entry */
    uint32_t parent;
    uint32_t n;         /* tokens */
    uint32_t hash_next; /* full ones */
    uint32_t child, next, before;
    uint32_t newer, older; /* while idle */
    bool idle;
} entry;

struct prefix_cache {
    size_t n_pages, page_tokens, n_idle;
    entry *entries;    /* [n_pages] */
    int32_t *tokens;   /* [n_pages, page_tokens] */
    uint32_t *buckets; /* [n_buckets] of full entries */
    size_t n_buckets;  /* a power of two */
    uint32_t newest, oldest;
    uint64_t serial;
    prefix_space *spaces[SPACE_BUCKETS];
};

/* ---- creation --------------------------------------------------------------------------------------- */

status prefix_cache_create(prefix_cache **out, size_t n_pages, size_t page_tokens, error *err) {
    *out = NULL;
    prefix_cache *c = mem_calloc(1, sizeof *c);
    if (!c) return error_no_memory(err, "prefix cache", sizeof *c);
    c->n_pages = n_pages;
    c->page_tokens = page_tokens;
    c->newest = c->oldest = NO_PAGE;
    c->n_buckets = 16;
    while (c->n_buckets < n_pages) c->n_buckets *= 2;
    c->entries = mem_calloc(n_pages, sizeof *c->entries);
    c->tokens = mem_calloc(n_pages, page_tokens * sizeof *c->tokens);
    c->buckets = mem_alloc(c->n_buckets * sizeof *c->buckets);
    if (!c->entries || !c->tokens || !c->buckets) {
        prefix_cache_free(c);
        return error_no_memory(err, "prefix cache", n_pages * page_tokens * sizeof(int32_t));
    }
    for (size_t i = 0; i < c->n_buckets; i++) c->buckets[i] = NO_PAGE;
    *out = c;
    return CHURON_OK;
}

void prefix_cache_free(prefix_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < SPACE_BUCKETS; i++) {
        while (c->spaces[i]) {
            prefix_space *next = c->spaces[i]->next;
            mem_free(c->spaces[i]);
            c->spaces[i] = next;
        }
    }
    mem_free(c->entries);
    mem_free(c->tokens);
    mem_free(c->buckets);
    mem_free(c);
}

size_t prefix_cache_n_idle(const prefix_cache *c) {
    return c->n_idle;
}

/* ---- spaces ----------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint32_t hash_key(const char *key, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = mix(h, (unsigned char)key[i]);
    return (uint32_t)h;
}

static size_t put_part(char *to, const char *part) {
    const size_t n = strlen(part);
    memcpy(to, &n, sizeof n);
    memcpy(to + sizeof n, part, n);
    return sizeof n + n;
}

static status space_add(prefix_space **out, prefix_cache *c, const char *tenant, const char *salt, bool alone,
                        error *err) {
    *out = NULL;
    const size_t size = 1 + 2 * sizeof(size_t) + (tenant ? strlen(tenant) : 0) + strlen(salt);
    prefix_space *s = mem_calloc(1, sizeof *s + size);
    if (!s) return error_no_memory(err, "prefix space", sizeof *s + size);
    s->key[s->key_len++] = alone ? 'a' : tenant ? 't' : 's';
    if (tenant) s->key_len += put_part(s->key + s->key_len, tenant);
    s->key_len += put_part(s->key + s->key_len, salt);
    s->hash = hash_key(s->key, s->key_len);
    s->child = NO_PAGE;
    s->alone = alone;
    s->refs = 1;
    prefix_space **bucket = &c->spaces[s->hash % SPACE_BUCKETS];
    for (prefix_space *old = *bucket; old && !alone; old = old->next) {
        if (old->alone || old->key_len != s->key_len || memcmp(old->key, s->key, s->key_len) != 0) continue;
        mem_free(s);
        *out = prefix_space_ref(old);
        return CHURON_OK;
    }
    s->serial = ++c->serial;
    s->next = *bucket;
    *bucket = s;
    *out = s;
    return CHURON_OK;
}

status prefix_space_open(prefix_space **out, prefix_cache *c, const char *tenant, const char *salt,
                         error *err) {
    return space_add(out, c, tenant, salt, false, err);
}

status prefix_space_open_alone(prefix_space **out, prefix_cache *c, error *err) {
    return space_add(out, c, NULL, "", true, err);
}

prefix_space *prefix_space_ref(prefix_space *s) {
    s->refs++;
    return s;
}

void prefix_space_close(prefix_cache *c, prefix_space *s) {
    if (!s || --s->refs > 0) return;
    prefix_space **at = &c->spaces[s->hash % SPACE_BUCKETS];
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    mem_free(s);
}

/* ---- finding ---------------------------------------------------------------------------------------- */

static int32_t *tokens_of(const prefix_cache *c, uint32_t page) {
    return c->tokens + (size_t)page * c->page_tokens;
}

static uint32_t *bucket_of(const prefix_cache *c, const prefix_space *s, uint32_t parent,
                           const int32_t *tokens) {
    uint64_t h = mix(s->serial, parent);
    for (size_t i = 0; i < c->page_tokens; i++) h = mix(h, (uint32_t)tokens[i]);
    return &c->buckets[(h ^ h >> 17) & (c->n_buckets - 1)];
}

uint32_t prefix_find(const prefix_cache *c, const prefix_space *s, uint32_t parent, const int32_t *tokens) {
    for (uint32_t i = *bucket_of(c, s, parent, tokens); i != NO_PAGE; i = c->entries[i].hash_next) {
        const entry *e = &c->entries[i];
        if (e->space == s && e->parent == parent &&
            memcmp(tokens_of(c, i), tokens, c->page_tokens * sizeof *tokens) == 0)
            return i;
    }
    return NO_PAGE;
}

static uint32_t first_child(const prefix_cache *c, const prefix_space *s, uint32_t parent) {
    return parent == NO_PAGE ? s->child : c->entries[parent].child;
}

uint32_t prefix_find_part(const prefix_cache *c, const prefix_space *s, uint32_t parent,
                          const int32_t *tokens, size_t n, size_t *common) {
    uint32_t best = NO_PAGE, i = first_child(c, s, parent);
    *common = 0;
    for (size_t seen = 0; i != NO_PAGE && seen < CHILDREN_SEEN; i = c->entries[i].next, seen++) {
        const size_t most = c->entries[i].n < n ? c->entries[i].n : n;
        size_t same = 0;
        while (same < most && tokens_of(c, i)[same] == tokens[same]) same++;
        if (same > *common) {
            *common = same;
            best = i;
        }
    }
    return best;
}

/* ---- entries ---------------------------------------------------------------------------------------- */

static uint32_t *child_slot(prefix_cache *c, entry *e) {
    return e->parent == NO_PAGE ? &e->space->child : &c->entries[e->parent].child;
}

static void enter(prefix_cache *c, prefix_space *s, uint32_t parent, uint32_t page) {
    entry *e = &c->entries[page];
    *e = (entry){.space = prefix_space_ref(s), .parent = parent, .child = NO_PAGE, .before = NO_PAGE};
    uint32_t *first = child_slot(c, e);
    e->next = *first;
    if (e->next != NO_PAGE) c->entries[e->next].before = page;
    *first = page;
}

uint32_t prefix_insert(prefix_cache *c, prefix_space *s, uint32_t parent, uint32_t page,
                       const int32_t *tokens) {
    entry *e = &c->entries[page];
    const uint32_t same = prefix_find(c, s, parent, tokens);
    if (same != NO_PAGE) {
        if (same != page && e->space) prefix_remove(c, page);
        return same;
    }
    if (!e->space) enter(c, s, parent, page);
    assert(e->space == s && e->parent == parent && e->n < c->page_tokens);
    memcpy(tokens_of(c, page), tokens, c->page_tokens * sizeof *tokens);
    e->n = (uint32_t)c->page_tokens;
    uint32_t *bucket = bucket_of(c, s, parent, tokens);
    e->hash_next = *bucket;
    *bucket = page;
    return page;
}

void prefix_insert_part(prefix_cache *c, prefix_space *s, uint32_t parent, uint32_t page,
                        const int32_t *tokens, size_t n) {
    entry *e = &c->entries[page];
    if (e->space && e->n >= n) return;
    size_t common;
    if (!e->space) {
        (void)prefix_find_part(c, s, parent, tokens, n, &common);
        if (common == n) return;
        enter(c, s, parent, page);
    }
    memcpy(tokens_of(c, page), tokens, n * sizeof *tokens);
    e->n = (uint32_t)n;
}

size_t prefix_tokens(const prefix_cache *c, uint32_t page) {
    return c->entries[page].space ? c->entries[page].n : 0;
}

bool prefix_has_children(const prefix_cache *c, uint32_t page) {
    return c->entries[page].space && c->entries[page].child != NO_PAGE;
}

void prefix_remove(prefix_cache *c, uint32_t page) {
    entry *e = &c->entries[page];
    assert(e->space && e->child == NO_PAGE);
    if (e->idle) prefix_use(c, page);
    if (e->n == c->page_tokens) {
        uint32_t *at = bucket_of(c, e->space, e->parent, tokens_of(c, page));
        while (*at != page) at = &c->entries[*at].hash_next;
        *at = e->hash_next;
    }
    if (e->next != NO_PAGE) c->entries[e->next].before = e->before;
    *(e->before != NO_PAGE ? &c->entries[e->before].next : child_slot(c, e)) = e->next;
    prefix_space_close(c, e->space);
    *e = (entry){0};
}

/* ---- order of use ----------------------------------------------------------------------------------- */

void prefix_idle(prefix_cache *c, uint32_t page) {
    entry *e = &c->entries[page];
    assert(e->space && !e->idle);
    e->idle = true;
    e->newer = NO_PAGE;
    e->older = c->newest;
    *(c->newest != NO_PAGE ? &c->entries[c->newest].newer : &c->oldest) = page;
    c->newest = page;
    c->n_idle++;
}

void prefix_use(prefix_cache *c, uint32_t page) {
    entry *e = &c->entries[page];
    assert(e->idle);
    *(e->newer != NO_PAGE ? &c->entries[e->newer].older : &c->newest) = e->older;
    *(e->older != NO_PAGE ? &c->entries[e->older].newer : &c->oldest) = e->newer;
    e->idle = false;
    c->n_idle--;
}

/* Who holds a page holds its parent too and lets go of the page first: the oldest has no children, or those
 * are older still. */
uint32_t prefix_oldest(const prefix_cache *c) {
    uint32_t page = c->oldest;
    while (page != NO_PAGE && c->entries[page].child != NO_PAGE) page = c->entries[page].newer;
    return page;
}
