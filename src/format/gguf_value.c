/* gguf_value.c: typed reads of metadata, and the ordering and sorting that look-ups rest on. */
#include "format/gguf_part.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- types ------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(gguf_type type) {
    return (unsigned)type <= GGUF_F64 ? types[type].name : "unknown";
}

size_t gguf_type_bytes(gguf_type type) {
    return types[type].bytes;
}

static bool is_int(gguf_type t) {
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

/* ---- order ------------------------------------------------------------------------------------------ */

int gguf_string_compare(gguf_string a, gguf_string b) {
    int order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static void sift_down(size_t *index, size_t root, size_t n, bool (*before)(const void *, size_t, size_t),
                      const void *ctx) {
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && before(ctx, index[child], index[child + 1])) child++;
        if (!before(ctx, index[root], index[child])) return;
        size_t t = index[root];
        index[root] = index[child];
        index[child] = t;
    }
}

void gguf_sort(size_t *index, size_t n, bool (*before)(const void *ctx, size_t a, size_t b),
               const void *ctx) {
    for (size_t i = n / 2; i-- > 0;) sift_down(index, i, n, before, ctx);
    for (size_t end = n; end > 1;) {
        end--;
        size_t t = index[0];
        index[0] = index[end];
        index[end] = t;
        sift_down(index, 0, end, before, ctx);
    }
}

const gguf_entry *gguf_part_find(const gguf_part *p, const char *key, size_t len) {
    gguf_string wanted = {key, len};
    size_t from = 0, to = p->n_entries;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const gguf_entry *e = &p->entries[p->by_key[middle]];
        int order = gguf_string_compare(e->value.key, wanted);
        if (order == 0) return e;
        if (order < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return NULL;
}

/* ---- items ------------------------------------------------------------------------------------------ */

int64_t gguf_item_int(const gguf_value *v, uint64_t i) {
    assert(i < v->count);
    size_t bytes = gguf_type_bytes(v->item);
    uint64_t raw = gguf_read_le((const uint8_t *)v->data + i * bytes, bytes);
    switch (v->item) {
    case GGUF_I8: return (int8_t)raw;
    case GGUF_I16: return (int16_t)raw;
    case GGUF_I32: return (int32_t)raw;
    case GGUF_U64: return raw > INT64_MAX ? INT64_MAX : (int64_t)raw;
    default: return (int64_t)raw;
    }
}

double gguf_item_float(const gguf_value *v, uint64_t i) {
    assert(i < v->count);
    if (v->item == GGUF_F64) {
        double d;
        uint64_t raw = gguf_read_le((const uint8_t *)v->data + i * 8, 8);
        memcpy(&d, &raw, sizeof d);
        return d;
    }
    float f;
    uint32_t raw = (uint32_t)gguf_read_le((const uint8_t *)v->data + i * 4, 4);
    memcpy(&f, &raw, sizeof f);
    return f;
}

static gguf_string string_at(const gguf_value *v, size_t offset) {
    const uint8_t *p = (const uint8_t *)v->data + offset;
    return (gguf_string){(const char *)p + 8, (size_t)gguf_read_le(p, 8)};
}

gguf_string gguf_item_string(const gguf *g, const gguf_value *v, uint64_t i) {
    (void)g;
    assert(i < v->count && v->item == GGUF_STRING);
    const gguf_entry *e = (const gguf_entry *)(const void *)v;
    return string_at(v, e->item_at ? e->item_at[i] : 0);
}

/* ---- typed reads ------------------------------------------------------------------------------------ */

/* "u32", or "array of string". */
static status wrong_type(const gguf_value *v, const char *expected, error *err) {
    bool is_array = v->type == GGUF_ARRAY;
    return error_set(err, CHURON_CORRUPT, "key '%.*s': expected %s, got %s%s", GGUF_NAME(v->key), expected,
                     is_array ? "an array of " : "type ", gguf_type_name(is_array ? v->item : v->type));
}

status gguf_value_int(const gguf_value *v, int64_t min, int64_t max, int64_t *out, error *err) {
    if (!is_int(v->type)) return wrong_type(v, "an integer", err);
    int64_t got = gguf_item_int(v, 0);
    if (v->type == GGUF_U64 && gguf_read_le(v->data, 8) > INT64_MAX) {
        return error_set(err, CHURON_CORRUPT, "key '%.*s': expected at most %" PRId64 ", got %" PRIu64,
                         GGUF_NAME(v->key), max, gguf_read_le(v->data, 8));
    }
    if (got < min || got > max) {
        return error_set(err, CHURON_CORRUPT, "key '%.*s': expected %" PRId64 " to %" PRId64 ", got %" PRId64,
                         GGUF_NAME(v->key), min, max, got);
    }
    *out = got;
    return CHURON_OK;
}

static status missing(const char *key, error *err) {
    return error_set(err, CHURON_CORRUPT, "key '%s': expected in the file's metadata, got none", key);
}

status gguf_get_u32(const gguf *g, const char *key, uint32_t *out, error *err) {
    const gguf_value *v = gguf_find(g, key);
    if (!v) return missing(key, err);
    int64_t n;
    TRY(gguf_value_int(v, 0, UINT32_MAX, &n, err));
    *out = (uint32_t)n;
    return CHURON_OK;
}

status gguf_get_u32_or(const gguf *g, const char *key, uint32_t fallback, uint32_t *out, error *err) {
    if (gguf_find(g, key)) return gguf_get_u32(g, key, out, err);
    *out = fallback;
    return CHURON_OK;
}

status gguf_get_f32_or(const gguf *g, const char *key, float fallback, float *out, error *err) {
    const gguf_value *v = gguf_find(g, key);
    if (!v) {
        *out = fallback;
        return CHURON_OK;
    }
    if (v->type != GGUF_F32 && v->type != GGUF_F64) return wrong_type(v, "a float", err);
    double d = gguf_item_float(v, 0);
    float f = (float)d;
    if (isinf(f) && !isinf(d)) {
        return error_set(err, CHURON_CORRUPT, "key '%.*s': expected a number that fits f32, got %g",
                         GGUF_NAME(v->key), d);
    }
    *out = f;
    return CHURON_OK;
}

status gguf_get_bool_or(const gguf *g, const char *key, bool fallback, bool *out, error *err) {
    const gguf_value *v = gguf_find(g, key);
    *out = fallback;
    if (!v) return CHURON_OK;
    if (v->type != GGUF_BOOL) return wrong_type(v, "a bool", err);
    *out = gguf_item_int(v, 0) != 0;
    return CHURON_OK;
}

status gguf_get_string_or_null(const gguf *g, const char *key, gguf_string *out, error *err) {
    const gguf_value *v = gguf_find(g, key);
    *out = (gguf_string){NULL, 0};
    if (!v) return CHURON_OK;
    if (v->type != GGUF_STRING) return wrong_type(v, "a string", err);
    *out = string_at(v, 0);
    return CHURON_OK;
}

status gguf_get_array(const gguf *g, const char *key, gguf_type item, const gguf_value **out, error *err) {
    *out = NULL;
    const gguf_value *v = gguf_find(g, key);
    if (!v) return missing(key, err);
    if (v->type != GGUF_ARRAY || v->item != item) {
        char expected[32];
        (void)snprintf(expected, sizeof expected, "an array of %s", gguf_type_name(item));
        return wrong_type(v, expected, err);
    }
    *out = v;
    return CHURON_OK;
}
