/* template_value.c: arenas, lists, dicts, and the building of values from outside (template.h). */
#include "text/template_internal.h"

#include <string.h>

/* ---- arenas ----------------------------------------------------------------------------------------- */

struct tpl_chunk {
    tpl_chunk *below;
    size_t size, used;
    max_align_t data[];
};

enum { FIRST_CHUNK = 8 << 10, LARGEST_STEP = 1 << 20 };

tarena *tpl_arena_new(size_t cap) {
    tarena *a = mem_calloc(1, sizeof *a);
    if (a) a->cap = cap;
    return a;
}

status tarena_create(tarena **out, error *err) {
    *out = tpl_arena_new(SIZE_MAX);
    return *out ? CHURON_OK : error_no_memory(err, "template values", sizeof **out);
}

static void free_chunks(tpl_chunk *c) {
    while (c) {
        tpl_chunk *below = c->below;
        mem_free(c);
        c = below;
    }
}

void tarena_free(tarena *a) {
    if (!a) return;
    free_chunks(a->nodes);
    free_chunks(a->text);
    mem_free(a);
}

static char *chunk_data(tpl_chunk *c) {
    return (char *)c->data;
}

/* Room for `bytes` more on top of the stack of chunks; NULL when there is none. */
static char *take(tarena *a, tpl_chunk **top, size_t bytes) {
    tpl_chunk *c = *top;
    if (!c || c->size - c->used < bytes) {
        size_t size = c ? c->size * 2 : FIRST_CHUNK;
        if (size > LARGEST_STEP) size = LARGEST_STEP;
        if (size < bytes) size = bytes;
        size_t total;
        if (!size_add(sizeof *c, size, &total) || total > a->cap - a->used) {
            a->over = true;
            return NULL;
        }
        tpl_chunk *more = mem_alloc(total);
        if (!more) return NULL;
        *more = (tpl_chunk){.below = c, .size = size};
        a->used += total;
        *top = c = more;
    }
    char *p = chunk_data(c) + c->used;
    c->used += bytes;
    return p;
}

void *tpl_alloc(tarena *a, size_t bytes) {
    size_t rounded;
    if (!size_add(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    char *p = take(a, &a->nodes, rounded);
    if (p) memset(p, 0, rounded);
    return p;
}

char *tpl_text(tarena *a, size_t bytes) {
    return take(a, &a->text, bytes);
}

static bool is_newest(const tarena *a, const char *end) {
    return a->text && end == chunk_data(a->text) + a->text->used;
}

bool tpl_text_extend(tarena *a, const char *p, size_t n, size_t more) {
    if (!p || !is_newest(a, p + n) || a->text->size - a->text->used < more) return false;
    a->text->used += more;
    return true;
}

void tpl_text_shrink(tarena *a, const char *p, size_t cap, size_t n) {
    if (p && is_newest(a, p + cap)) a->text->used -= cap - n;
}

/* ---- strings ---------------------------------------------------------------------------------------- */

bool tpl_is_ascii(const char *p, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        if (word & 0x8080808080808080u) return false;
    }
    for (; i < n; i++) {
        if ((unsigned char)p[i] & 0x80) return false;
    }
    return true;
}

tvalue tpl_view(const char *p, size_t n, uint8_t flags) {
    if (!(flags & TPL_ASCII) && tpl_is_ascii(p, n)) flags |= TPL_ASCII;
    return (tvalue){.kind = TPL_STRING, .flags = flags, .len = (uint32_t)n, .s = p};
}

tvalue tpl_static(const char *z) {
    return (tvalue){.kind = TPL_STRING, .flags = TPL_ASCII, .len = (uint32_t)strlen(z), .s = z};
}

bool tpl_str_is(tvalue v, const char *z) {
    size_t n = strlen(z);
    return v.kind == TPL_STRING && v.len == n && memcmp(v.s, z, n) == 0;
}

/* ---- lists ------------------------------------------------------------------------------------------ */

tpl_list *tpl_list_new(tarena *a, size_t cap) {
    tpl_list *list = tpl_alloc(a, sizeof *list);
    if (!list) return NULL;
    list->arena = a;
    size_t bytes;
    if (!size_mul(cap, sizeof(tvalue), &bytes)) return NULL;
    if (cap && !(list->v = tpl_alloc(a, bytes))) return NULL;
    list->cap = cap;
    return list;
}

bool tpl_list_push(tpl_list *list, tvalue v) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4, bytes;
        if (!size_mul(cap, sizeof(tvalue), &bytes)) return false;
        tvalue *grown = tpl_alloc(list->arena, bytes);
        if (!grown) return false;
        if (list->n) memcpy(grown, list->v, list->n * sizeof *grown);
        list->v = grown;
        list->cap = cap;
    }
    list->v[list->n++] = v;
    return true;
}

/* ---- dicts ------------------------------------------------------------------------------------------ */

enum { UNINDEXED = 8 }; /* entries that are searched one by one */

/* Differs from run to run where addresses do, so that a file cannot be made to collide. */
static uint64_t hash_seed(void) {
    static const char here;
    return (uint64_t)(uintptr_t)&here * 0x9e3779b97f4a7c15u;
}

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

uint32_t tpl_hash_bytes(const char *p, size_t n) {
    uint64_t h = hash_seed() ^ n;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = mix(h ^ word);
    }
    uint64_t tail = 0;
    if (n > i) memcpy(&tail, p + i, n - i);
    return (uint32_t)mix(h ^ tail ^ 0xa5);
}

static uint32_t hash_number(tvalue v) {
    int64_t i;
    if (tpl_as_int(v, &i)) return (uint32_t)mix(hash_seed() + (uint64_t)i);
    double f = v.f;
    if (f >= -9.2e18 && f <= 9.2e18 && (double)(int64_t)f == f) return hash_number(tpl_int((int64_t)f));
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint32_t)mix(bits);
}

enum { HASHED_VALUES = 10000 }; /* of a tuple: one that contains another twice, again and again, has no end */

static bool hash_nested(tvalue v, int depth, int *budget, uint32_t *hash) {
    if (--*budget < 0) return false;
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: *hash = tpl_hash_bytes(v.s, v.len); return true;
    case TPL_BOOL:
    case TPL_INT:
    case TPL_FLOAT: *hash = hash_number(v); return true;
    case TPL_LIST:
    case TPL_DICT:
    case TPL_VIEW: return false;
    case TPL_TUPLE: {
        uint64_t h = 77;
        for (size_t i = 0; i < v.list->n; i++) {
            uint32_t one;
            if (depth >= TPL_MAX_NESTING || !hash_nested(v.list->v[i], depth + 1, budget, &one)) return false;
            h = mix(h ^ one);
        }
        *hash = (uint32_t)h;
        return true;
    }
    default: *hash = v.kind; return true;
    }
}

bool tpl_hash(tvalue v, uint32_t *hash) {
    int budget = HASHED_VALUES;
    return hash_nested(v, 0, &budget, hash);
}

/* Equality of hashable values: as Python's ==, which for objects is identity. */
static bool same_key(tvalue a, tvalue b) {
    if (a.kind == TPL_STRING) return b.kind == TPL_STRING && a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
    if (a.kind == TPL_BOOL || a.kind == TPL_INT || a.kind == TPL_FLOAT) return tpl_same_number(a, b);
    if (a.kind != b.kind) return false;
    switch ((tpl_kind)a.kind) {
    case TPL_NONE:
    case TPL_UNDEFINED: return true;
    case TPL_TUPLE:
        if (a.list->n != b.list->n) return false;
        for (size_t i = 0; i < a.list->n; i++) {
            if (!same_key(a.list->v[i], b.list->v[i])) return false;
        }
        return true;
    case TPL_RANGE:
        if (a.range->n != b.range->n) return false;
        if (a.range->n == 0) return true;
        return a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step);
    case TPL_FUNCTION: return a.sub == b.sub;
    default: return a.macro == b.macro;
    }
}

bool tpl_same_number(tvalue a, tvalue b) {
    double da, db;
    if (a.kind != TPL_FLOAT && b.kind != TPL_FLOAT) {
        int64_t x, y;
        return tpl_as_int(a, &x) && tpl_as_int(b, &y) && x == y;
    }
    return tpl_as_double(a, &da) && tpl_as_double(b, &db) && tpl_compare_numbers(a, b) == 0;
}

tpl_dict *tpl_dict_new(tarena *a) {
    tpl_dict *d = tpl_alloc(a, sizeof *d);
    if (d) d->arena = a;
    return d;
}

const tvalue *tpl_dict_find(const tpl_dict *d, tvalue key, uint32_t hash) {
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->entries[i].hash == hash && same_key(d->entries[i].key, key)) return &d->entries[i].value;
        }
        return NULL;
    }
    for (size_t at = hash & (d->index_cap - 1); d->index[at]; at = (at + 1) & (d->index_cap - 1)) {
        const tpl_entry *e = &d->entries[d->index[at] - 1];
        if (e->hash == hash && same_key(e->key, key)) return &e->value;
    }
    return NULL;
}

const tvalue *tpl_dict_get(const tpl_dict *d, const char *key, size_t n) {
    tvalue k = {.kind = TPL_STRING, .len = (uint32_t)n, .s = key};
    return tpl_dict_find(d, k, tpl_hash_bytes(key, n));
}

static void index_put(tpl_dict *d, size_t entry) {
    size_t at = d->entries[entry].hash & (d->index_cap - 1);
    while (d->index[at]) at = (at + 1) & (d->index_cap - 1);
    d->index[at] = (uint32_t)entry + 1;
}

static bool dict_grow(tpl_dict *d) {
    size_t cap = d->cap ? d->cap * 2 : 4, bytes;
    if (cap > UINT32_MAX / 4 || !size_mul(cap, sizeof(tpl_entry), &bytes)) return false;
    tpl_entry *grown = tpl_alloc(d->arena, bytes);
    if (!grown) return false;
    uint32_t *index = NULL;
    if (cap > UNINDEXED && !(index = tpl_alloc(d->arena, cap * 2 * sizeof *index))) return false;
    if (d->n) memcpy(grown, d->entries, d->n * sizeof *grown);
    d->entries = grown;
    d->cap = cap;
    d->index = index;
    d->index_cap = cap * 2;
    for (size_t i = 0; index && i < d->n; i++) index_put(d, i);
    return true;
}

bool tpl_dict_put(tpl_dict *d, tvalue key, uint32_t hash, tvalue v) {
    tvalue *old = (tvalue *)tpl_dict_find(d, key, hash);
    if (old) {
        *old = v;
        return true;
    }
    if (d->n == d->cap && !dict_grow(d)) return false;
    d->entries[d->n++] = (tpl_entry){.key = key, .value = v, .hash = hash};
    if (d->index) index_put(d, d->n - 1);
    return true;
}

tpl_dict *tpl_dict_copy(tarena *a, const tpl_dict *d) {
    tpl_dict *copy = tpl_dict_new(a);
    for (size_t i = 0; copy && i < d->n; i++) {
        if (!tpl_dict_put(copy, d->entries[i].key, d->entries[i].hash, d->entries[i].value)) return NULL;
    }
    return copy;
}

/* ---- values from outside ---------------------------------------------------------------------------- */

static tvalue *boxed(tarena *a, tvalue v) {
    tvalue *box = a ? tpl_alloc(a, sizeof *box) : NULL;
    if (box) *box = v;
    return box;
}

tvalue *tvalue_none(tarena *a) {
    return boxed(a, tpl_none());
}

tvalue *tvalue_bool(tarena *a, bool v) {
    return boxed(a, tpl_bool(v));
}

tvalue *tvalue_int(tarena *a, int64_t v) {
    return boxed(a, tpl_int(v));
}

tvalue *tvalue_float(tarena *a, double v) {
    return boxed(a, tpl_float(v));
}

/* A copy of the text in the arena. Text that is not UTF-8 marks the arena, so that rendering refuses it. */
static bool copied(tarena *a, const char *bytes, size_t n, tvalue *out) {
    size_t good = n >= UINT32_MAX ? 0 : utf8_validate(bytes, n);
    if (good != n && !a->bad_text) {
        a->bad_text = true;
        a->bad_offset = good;
    }
    if (good != n) n = 0;
    char *p = tpl_text(a, n ? n : 1);
    if (!p) return false;
    if (n) memcpy(p, bytes, n);
    *out = tpl_view(p, n, 0);
    return true;
}

tvalue *tvalue_string(tarena *a, const char *bytes, size_t n) {
    tvalue v;
    return a && copied(a, bytes, n, &v) ? boxed(a, v) : NULL;
}

tvalue *tvalue_list(tarena *a) {
    tpl_list *list = a ? tpl_list_new(a, 0) : NULL;
    return list ? boxed(a, (tvalue){.kind = TPL_LIST, .list = list}) : NULL;
}

tvalue *tvalue_list_add(tarena *a, tvalue *list, tvalue *item) {
    if (!a || !list || !item || list->kind != TPL_LIST) return NULL;
    return tpl_list_push(list->list, *item) ? list : NULL;
}

tvalue *tvalue_dict(tarena *a) {
    tpl_dict *dict = a ? tpl_dict_new(a) : NULL;
    return dict ? boxed(a, (tvalue){.kind = TPL_DICT, .dict = dict}) : NULL;
}

tvalue *tvalue_dict_set(tarena *a, tvalue *dict, const char *key, tvalue *item) {
    if (!a || !dict || !item || dict->kind != TPL_DICT) return NULL;
    tvalue k;
    if (!copied(a, key, strlen(key), &k)) return NULL;
    return tpl_dict_put(dict->dict, k, tpl_hash_bytes(k.s, k.len), *item) ? dict : NULL;
}
