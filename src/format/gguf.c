/* gguf.c: joins the parts of a model and answers look-ups; see gguf.h. */
#include "format/gguf.h"

#include "base/mem.h"
#include "format/gguf_part.h"

#include <inttypes.h>
#include <stdio.h>

struct gguf {
    gguf_part *parts; /* [n_parts]; metadata is that of the first */
    size_t n_parts;
    gguf_tensor *tensors; /* [n_tensors] of all parts, in order */
    size_t n_tensors;
    size_t *by_name; /* [n_tensors] indices, ascending by name */
};

/* ---- parts ------------------------------------------------------------------------------------------ */

static status split_key(const gguf_part *p, const char *key, int64_t max, int64_t fallback, int64_t *out,
                        error *err) {
    const gguf_entry *e = gguf_part_find(p, key, strlen(key));
    *out = fallback;
    return e ? gguf_value_int(&e->value, 0, max, out, err) : CHURON_OK;
}

enum { SUFFIX = 20 }; /* "-00001-of-00002.gguf" */

static bool is_number(const char *digits) {
    for (int i = 0; i < 5; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
    }
    return true;
}

/* Length of NAME in NAME-00001-of-00002.gguf, or -1 when the path has another form. */
static ptrdiff_t split_stem(const char *path) {
    size_t n = strlen(path);
    if (n <= SUFFIX) return -1;
    const char *s = path + n - SUFFIX;
    bool fits = s[0] == '-' && is_number(s + 1) && memcmp(s + 6, "-of-", 4) == 0 && is_number(s + 10) &&
                strcmp(s + 15, ".gguf") == 0;
    return fits ? (ptrdiff_t)(n - SUFFIX) : -1;
}

static status check_part(const gguf_part *p, int64_t no, int64_t count, error *err) {
    int64_t got_no, got_count;
    TRY(split_key(p, "split.no", UINT16_MAX, -1, &got_no, err));
    TRY(split_key(p, "split.count", UINT16_MAX, -1, &got_count, err));
    if (got_no == no && got_count == count) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT,
                     "split.no and split.count: expected %" PRId64 " of %" PRId64 ", got %" PRId64
                     " of %" PRId64,
                     no, count, got_no, got_count);
}

static status open_other_part(gguf_part *out, const char *path, size_t stem, int64_t no, int64_t count,
                              error *err) {
    size_t size = stem + SUFFIX + 1;
    char *other = mem_alloc(size);
    if (!other) return error_no_memory(err, "path of a part", size);
    memcpy(other, path, stem);
    (void)snprintf(other + stem, SUFFIX + 1, "-%05d-of-%05d.gguf", (int)(no + 1), (int)count);
    status st = gguf_part_open(out, other, 0, UINT64_MAX, err);
    if (st == CHURON_OK) {
        st = check_part(out, no, count, err);
        if (st != CHURON_OK) error_prefix(err, "%s", other);
    }
    mem_free(other);
    return st;
}

/* Opens the parts beside `first` (the one at `path`), which moves into its place. */
static status open_split(gguf *g, gguf_part *first, const char *path, int64_t count, error *err) {
    int64_t no;
    TRY(split_key(first, "split.no", UINT16_MAX, 0, &no, err));
    if (no >= count) {
        return error_set(err, CHURON_CORRUPT,
                         "%s: split.no: expected less than split.count %" PRId64 ", got %" PRId64, path,
                         count, no);
    }
    ptrdiff_t stem = split_stem(path);
    char expected[SUFFIX + 1];
    (void)snprintf(expected, sizeof expected, "-%05d-of-%05d.gguf", (int)(no + 1), (int)count);
    if (stem < 0 || strcmp(path + stem, expected) != 0) {
        return error_set(err, CHURON_INVALID,
                         "%s: name of a part: expected NAME%s (split.no %" PRId64 ", split.count %" PRId64
                         ")",
                         path, expected, no, count);
    }
    g->parts = mem_calloc((size_t)count, sizeof *g->parts);
    if (!g->parts) return error_no_memory(err, "parts", (size_t)count * sizeof *g->parts);
    g->n_parts = (size_t)count;
    g->parts[no] = *first;
    *first = (gguf_part){0};
    for (int64_t i = 0; i < count; i++) {
        if (i != no) TRY(open_other_part(&g->parts[i], path, (size_t)stem, i, count, err));
    }
    return CHURON_OK;
}

static status open_parts(gguf *g, gguf_part *first, const char *path, bool inside, error *err) {
    int64_t count;
    status st = split_key(first, "split.count", UINT16_MAX, 1, &count, err);
    if (st != CHURON_OK) {
        error_prefix(err, "%s", path);
        return st;
    }
    if (count > 1 && inside)
        return error_set(err, CHURON_UNSUPPORTED,
                         "%s: split.count: expected 1 inside another file, got %" PRId64, path, count);
    if (count > 1) return open_split(g, first, path, count, err);
    g->parts = mem_calloc(1, sizeof *g->parts);
    if (!g->parts) return error_no_memory(err, "parts", sizeof *g->parts);
    g->n_parts = 1;
    g->parts[0] = *first;
    *first = (gguf_part){0};
    return CHURON_OK;
}

/* ---- tensors of all parts --------------------------------------------------------------------------- */

static bool name_before(const void *ctx, size_t a, size_t b) {
    const gguf_tensor *t = ctx;
    int order = gguf_string_compare(t[a].name, t[b].name);
    return order != 0 ? order < 0 : a < b;
}

static status join_tensors(gguf *g, error *err) {
    size_t total = 0;
    for (size_t i = 0; i < g->n_parts; i++) total += g->parts[i].n_tensors;
    g->tensors = mem_calloc(total, sizeof *g->tensors);
    g->by_name = g->tensors ? mem_calloc(total, sizeof *g->by_name) : NULL;
    if (!g->by_name) return error_no_memory(err, "tensor list", total * sizeof *g->tensors);
    for (size_t i = 0; i < g->n_parts; i++) {
        gguf_part *p = &g->parts[i];
        for (size_t j = 0; j < p->n_tensors; j++) {
            g->by_name[g->n_tensors] = g->n_tensors;
            g->tensors[g->n_tensors] = p->tensors[j];
            g->tensors[g->n_tensors++].map = &p->map;
        }
        mem_free(p->tensors);
        p->tensors = NULL;
        p->n_tensors = 0;
    }
    gguf_sort(g->by_name, g->n_tensors, name_before, g->tensors);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const gguf_tensor *a = &g->tensors[g->by_name[i - 1]], *b = &g->tensors[g->by_name[i]];
        if (gguf_string_compare(a->name, b->name) == 0) {
            return error_set(err, CHURON_CORRUPT,
                             "tensor '%.*s': expected once, got it twice (data at offsets %zu and %zu)",
                             GGUF_NAME(a->name), a->offset, b->offset);
        }
    }
    return CHURON_OK;
}

/* A part that was cut off and closed properly would go unnoticed without this. */
static status check_total(const gguf *g, error *err) {
    int64_t total;
    TRY(split_key(&g->parts[0], "split.tensors.count", INT32_MAX, -1, &total, err));
    if (g->n_parts > 1 && total < 0) {
        return error_set(err, CHURON_CORRUPT, "split.tensors.count: expected in the first part, got none");
    }
    if (total >= 0 && (uint64_t)total != g->n_tensors) {
        return error_set(err, CHURON_CORRUPT,
                         "split.tensors.count: expected the %zu tensors of %zu parts, got %" PRId64,
                         g->n_tensors, g->n_parts, total);
    }
    return CHURON_OK;
}

status gguf_open(gguf **out, const char *path, error *err) {
    return gguf_open_in(out, path, 0, UINT64_MAX, err);
}

status gguf_open_in(gguf **out, const char *path, uint64_t offset, uint64_t size, error *err) {
    *out = NULL;
    gguf_part first;
    TRY(gguf_part_open(&first, path, offset, size, err));
    status st;
    gguf *g = mem_calloc(1, sizeof *g);
    if (!g) {
        st = error_no_memory(err, "gguf", sizeof *g);
        goto cleanup;
    }
    TRY_GOTO(open_parts(g, &first, path, size != UINT64_MAX, err));
    st = join_tensors(g, err);
    if (st == CHURON_OK) st = check_total(g, err);
    if (st != CHURON_OK) {
        error_prefix(err, "%s", path);
        goto cleanup;
    }
    *out = g;
    g = NULL;
cleanup:
    gguf_part_close(&first);
    gguf_free(g);
    return st;
}

void gguf_free(gguf *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_parts; i++) gguf_part_close(&g->parts[i]);
    mem_free(g->parts);
    mem_free(g->tensors);
    mem_free(g->by_name);
    mem_free(g);
}

/* ---- look-ups --------------------------------------------------------------------------------------- */

uint32_t gguf_version(const gguf *g) {
    return g->parts[0].version;
}

size_t gguf_file_bytes(const gguf *g) {
    size_t total = 0;
    for (size_t i = 0; i < g->n_parts; i++) total += g->parts[i].map.size;
    return total;
}

size_t gguf_n_values(const gguf *g) {
    return g->parts[0].n_entries;
}

const gguf_value *gguf_value_at(const gguf *g, size_t i) {
    return i < g->parts[0].n_entries ? &g->parts[0].entries[i].value : NULL;
}

size_t gguf_n_tensors(const gguf *g) {
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name) {
    gguf_string wanted = {name, strlen(name)};
    size_t from = 0, to = g->n_tensors;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const gguf_tensor *t = &g->tensors[g->by_name[middle]];
        int order = gguf_string_compare(t->name, wanted);
        if (order == 0) return t;
        if (order < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return NULL;
}

const gguf_value *gguf_find(const gguf *g, const char *key) {
    const gguf_entry *e = gguf_part_find(&g->parts[0], key, strlen(key));
    return e ? &e->value : NULL;
}
