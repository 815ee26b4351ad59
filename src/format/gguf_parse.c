/* gguf_parse.c: one GGUF file from bytes to a checked gguf_part.
 *
 * The header is read front to back with a cursor that knows where the file ends; nothing is believed before
 * it was compared with the bytes that are there, and no memory is taken for more than has been read. */
#include "format/gguf_part.h"

#include "base/mem.h"
#include "format/guess.h"

#include <inttypes.h>

enum {
    HEADER_BYTES = 24,
    MIN_ENTRY_BYTES = 8 + 1 + 4 + 1,          /* key length, one letter, type, the smallest value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name, dimensions, one of them, type, offset */
    MAX_NAME = 65535,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 20,
    DEFAULT_ALIGNMENT = 32
};

typedef struct cursor {
    const uint8_t *data;
    size_t size, at;
} cursor;

/* ---- small reads ------------------------------------------------------------------------------------ */

static status take(cursor *c, size_t n, const char *what, const uint8_t **out, error *err) {
    if (n > c->size - c->at) {
        return error_set(err, CHURON_CORRUPT,
                         "%s at offset %zu: expected %zu bytes, got %zu before the end of the file", what,
                         c->at, n, c->size - c->at);
    }
    *out = c->data + c->at;
    c->at += n;
    return CHURON_OK;
}

static status take_u32(cursor *c, const char *what, uint32_t *out, error *err) {
    const uint8_t *p = NULL;
    TRY(take(c, 4, what, &p, err));
    *out = (uint32_t)gguf_read_le(p, 4);
    return CHURON_OK;
}

static status take_u64(cursor *c, const char *what, uint64_t *out, error *err) {
    const uint8_t *p = NULL;
    TRY(take(c, 8, what, &p, err));
    *out = gguf_read_le(p, 8);
    return CHURON_OK;
}

static status take_string(cursor *c, const char *what, gguf_string *out, error *err) {
    size_t at = c->at;
    uint64_t len;
    TRY(take_u64(c, what, &len, err));
    if (len > c->size - c->at) {
        return error_set(
            err, CHURON_CORRUPT,
            "%s at offset %zu: expected a string within the %zu bytes that follow, got length %" PRIu64, what,
            at, c->size - c->at, len);
    }
    *out = (gguf_string){(const char *)c->data + c->at, (size_t)len};
    c->at += (size_t)len;
    return CHURON_OK;
}

static status take_name(cursor *c, const char *what, gguf_string *out, error *err) {
    size_t at = c->at;
    TRY(take_string(c, what, out, err));
    if (out->len == 0 || out->len > MAX_NAME) {
        return error_set(err, CHURON_CORRUPT, "%s at offset %zu: expected 1 to %d bytes, got %zu", what, at,
                         MAX_NAME, out->len);
    }
    return CHURON_OK;
}

/* Grows a list of `have` items by doubling, towards `want` (the file's own count). */
static status grow(void **list, size_t *cap, size_t have, size_t want, size_t item, const char *what,
                   error *err) {
    if (have < *cap) return CHURON_OK;
    size_t next = *cap ? *cap * 2 : 256;
    if (next > want) next = want;
    size_t bytes;
    if (!size_mul(next, item, &bytes)) return error_no_memory(err, what, SIZE_MAX);
    void *grown = mem_realloc(*list, bytes);
    if (!grown) return error_no_memory(err, what, bytes);
    *list = grown;
    *cap = next;
    return CHURON_OK;
}

/* ---- metadata --------------------------------------------------------------------------------------- */

static status check_bools(const uint8_t *data, uint64_t n, size_t offset, error *err) {
    for (uint64_t i = 0; i < n; i++) {
        if (data[i] > 1) {
            return error_set(err, CHURON_CORRUPT, "bool at offset %zu: expected 0 or 1, got %u",
                             offset + (size_t)i, data[i]);
        }
    }
    return CHURON_OK;
}

static status take_numbers(cursor *c, gguf_value *v, gguf_type type, error *err) {
    size_t size = gguf_type_bytes(type);
    if (v->count > (c->size - c->at) / size) {
        return error_set(err, CHURON_CORRUPT,
                         "at offset %zu: expected at most %zu values of type %s, got %" PRIu64, c->at,
                         (c->size - c->at) / size, gguf_type_name(type), v->count);
    }
    v->data = c->data + c->at;
    if (type == GGUF_BOOL) TRY(check_bools(v->data, v->count, c->at, err));
    c->at += (size_t)v->count * size;
    return CHURON_OK;
}

static status take_strings(cursor *c, gguf_entry *e, error *err) {
    gguf_value *v = &e->value;
    size_t start = c->at;
    if (v->count > (c->size - start) / 8) {
        return error_set(err, CHURON_CORRUPT, "at offset %zu: expected at most %zu strings, got %" PRIu64,
                         start, (c->size - start) / 8, v->count);
    }
    v->data = c->data + start;
    e->item_at = mem_alloc((size_t)v->count * sizeof *e->item_at);
    if (!e->item_at) return error_no_memory(err, "string index", (size_t)v->count * sizeof *e->item_at);
    for (uint64_t i = 0; i < v->count; i++) {
        gguf_string s;
        e->item_at[i] = c->at - start;
        status st = take_string(c, "string", &s, err);
        if (st != CHURON_OK) {
            error_prefix(err, "item %" PRIu64, i);
            return st;
        }
    }
    return CHURON_OK;
}

static status take_type(cursor *c, const char *what, gguf_type *out, error *err) {
    size_t at = c->at;
    uint32_t type;
    TRY(take_u32(c, what, &type, err));
    if (type > GGUF_F64) {
        return error_set(err, CHURON_CORRUPT, "%s at offset %zu: expected 0 to %d, got %" PRIu32, what, at,
                         GGUF_F64, type);
    }
    *out = (gguf_type)type;
    return CHURON_OK;
}

static status take_value(cursor *c, gguf_entry *e, error *err) {
    gguf_value *v = &e->value;
    TRY(take_type(c, "type", &v->type, err));
    v->count = 1;
    v->item = v->type;
    if (v->type == GGUF_STRING) {
        gguf_string s;
        v->data = c->data + c->at;
        return take_string(c, "string", &s, err);
    }
    if (v->type != GGUF_ARRAY) return take_numbers(c, v, v->type, err);
    size_t at = c->at;
    TRY(take_type(c, "item type", &v->item, err));
    if (v->item == GGUF_ARRAY) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "at offset %zu: expected an array of numbers or strings, got an array of arrays",
                         at);
    }
    TRY(take_u64(c, "array length", &v->count, err));
    return v->item == GGUF_STRING ? take_strings(c, e, err) : take_numbers(c, v, v->item, err);
}

static bool key_before(const void *ctx, size_t a, size_t b) {
    const gguf_entry *entries = ctx;
    int order = gguf_string_compare(entries[a].value.key, entries[b].value.key);
    return order != 0 ? order < 0 : a < b;
}

static status index_keys(gguf_part *p, error *err) {
    p->by_key = mem_calloc(p->n_entries, sizeof *p->by_key);
    if (!p->by_key) return error_no_memory(err, "key index", p->n_entries * sizeof *p->by_key);
    for (size_t i = 0; i < p->n_entries; i++) p->by_key[i] = i;
    gguf_sort(p->by_key, p->n_entries, key_before, p->entries);
    for (size_t i = 1; i < p->n_entries; i++) {
        const gguf_value *a = &p->entries[p->by_key[i - 1]].value, *b = &p->entries[p->by_key[i]].value;
        if (gguf_string_compare(a->key, b->key) == 0) {
            return error_set(err, CHURON_CORRUPT,
                             "key '%.*s' at offset %zu: expected once, got it again at offset %zu",
                             GGUF_NAME(a->key), (size_t)((const uint8_t *)a->key.data - p->map.data),
                             (size_t)((const uint8_t *)b->key.data - p->map.data));
        }
    }
    return CHURON_OK;
}

static status take_entries(cursor *c, gguf_part *p, size_t count, error *err) {
    size_t cap = 0;
    while (p->n_entries < count) {
        void *list = p->entries;
        TRY(grow(&list, &cap, p->n_entries, count, sizeof *p->entries, "metadata", err));
        p->entries = list;
        gguf_entry *e = &p->entries[p->n_entries];
        *e = (gguf_entry){0};
        status st = take_name(c, "key", &e->value.key, err);
        if (st != CHURON_OK) {
            error_prefix(err, "metadata %zu of %zu", p->n_entries + 1, count);
            return st;
        }
        p->n_entries++; /* from here on its item_at is freed with the part */
        st = take_value(c, e, err);
        if (st != CHURON_OK) {
            error_prefix(err, "key '%.*s'", GGUF_NAME(e->value.key));
            return st;
        }
    }
    return index_keys(p, err);
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

/* Numbers of the element types in files. Those without a place in `dtype` are known by name only. */
static const struct {
    const char *name;
    int type; /* dtype, or -1 */
} file_types[] = {
    [0] = {"F32", DTYPE_F32},    [1] = {"F16", DTYPE_F16},    [2] = {"Q4_0", DTYPE_Q4_0},
    [3] = {"Q4_1", DTYPE_Q4_1},  [4] = {"Q4_2", -1},          [5] = {"Q4_3", -1},
    [6] = {"Q5_0", DTYPE_Q5_0},  [7] = {"Q5_1", DTYPE_Q5_1},  [8] = {"Q8_0", DTYPE_Q8_0},
    [9] = {"Q8_1", -1},          [10] = {"Q2_K", DTYPE_Q2_K}, [11] = {"Q3_K", DTYPE_Q3_K},
    [12] = {"Q4_K", DTYPE_Q4_K}, [13] = {"Q5_K", DTYPE_Q5_K}, [14] = {"Q6_K", DTYPE_Q6_K},
    [15] = {"Q8_K", -1},         [16] = {"IQ2_XXS", -1},      [17] = {"IQ2_XS", -1},
    [18] = {"IQ3_XXS", -1},      [19] = {"IQ1_S", -1},        [20] = {"IQ4_NL", DTYPE_IQ4_NL},
    [21] = {"IQ3_S", -1},        [22] = {"IQ2_S", -1},        [23] = {"IQ4_XS", -1},
    [24] = {"I8", -1},           [25] = {"I16", -1},          [26] = {"I32", -1},
    [27] = {"I64", -1},          [28] = {"F64", -1},          [29] = {"IQ1_M", -1},
    [30] = {"BF16", DTYPE_BF16}, [31] = {"Q4_0_4_4", -1},     [32] = {"Q4_0_4_8", -1},
    [33] = {"Q4_0_8_8", -1},     [34] = {"TQ1_0", -1},        [35] = {"TQ2_0", -1},
    [36] = {"IQ4_NL_4_4", -1},   [37] = {"IQ4_NL_4_8", -1},   [38] = {"IQ4_NL_8_8", -1},
    [39] = {"MXFP4", -1},        [40] = {"NVFP4", -1},        [41] = {"Q1_0", -1},
    [42] = {"Q2_0", -1},
};

static status take_tensor_type(cursor *c, dtype *out, error *err) {
    size_t at = c->at;
    uint32_t number;
    TRY(take_u32(c, "type", &number, err));
    if (number >= sizeof file_types / sizeof *file_types) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "type at offset %zu: expected a known type, got number %" PRIu32, at, number);
    }
    if (file_types[number].type < 0) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "type at offset %zu: expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to "
                         "Q6_K or IQ4_NL, got %s",
                         at, file_types[number].name);
    }
    *out = (dtype)file_types[number].type;
    return CHURON_OK;
}

static status take_dims(cursor *c, gguf_tensor *t, error *err) {
    size_t at = c->at;
    TRY(take_u32(c, "number of dimensions", &t->n_dims, err));
    if (t->n_dims == 0 || t->n_dims > GGUF_MAX_DIMS) {
        return error_set(err, CHURON_CORRUPT,
                         "number of dimensions at offset %zu: expected 1 to %d, got %" PRIu32, at,
                         GGUF_MAX_DIMS, t->n_dims);
    }
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i >= t->n_dims) continue;
        at = c->at;
        TRY(take_u64(c, "dimension", &t->dims[i], err));
        if (t->dims[i] == 0 || t->dims[i] > INT64_MAX) {
            return error_set(err, CHURON_CORRUPT,
                             "dimension %" PRIu32 " at offset %zu: expected 1 to 2^63-1, got %" PRIu64, i, at,
                             t->dims[i]);
        }
    }
    return CHURON_OK;
}

/* Size from shape and type, without trusting any product. */
static status size_tensor(gguf_tensor *t, error *err) {
    const dtype_info *info = dtype_describe(t->type);
    if (t->dims[0] % info->block != 0) {
        return error_set(err, CHURON_CORRUPT,
                         "row length: expected a multiple of %zu for type %s, got %" PRIu64, info->block,
                         dtype_name(t->type), t->dims[0]);
    }
    size_t values = 1, bytes = info->bytes;
    bool fits = size_mul(bytes, (size_t)(t->dims[0] / info->block), &bytes);
    for (int i = 0; i < GGUF_MAX_DIMS && fits; i++) {
        fits = size_mul(values, (size_t)t->dims[i], &values) &&
               (i == 0 || size_mul(bytes, (size_t)t->dims[i], &bytes));
    }
    if (!fits || values > INT64_MAX) {
        return error_set(err, CHURON_CORRUPT,
                         "shape: expected fewer than 2^63 values, got %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         " x %" PRIu64,
                         t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    t->bytes = bytes;
    return CHURON_OK;
}

/* One description. `offset` stays relative to the data section until place_tensors. */
static status take_tensor(cursor *c, gguf_tensor *t, error *err) {
    TRY(take_dims(c, t, err));
    TRY(take_tensor_type(c, &t->type, err));
    uint64_t offset;
    TRY(take_u64(c, "data offset", &offset, err));
    if (offset > SIZE_MAX) return error_set(err, CHURON_CORRUPT, "data offset: got %" PRIu64, offset);
    t->offset = (size_t)offset;
    return size_tensor(t, err);
}

static status take_tensors(cursor *c, gguf_part *p, size_t count, error *err) {
    size_t cap = 0;
    while (p->n_tensors < count) {
        void *list = p->tensors;
        TRY(grow(&list, &cap, p->n_tensors, count, sizeof *p->tensors, "tensor descriptions", err));
        p->tensors = list;
        gguf_tensor *t = &p->tensors[p->n_tensors];
        *t = (gguf_tensor){0};
        status st = take_name(c, "tensor name", &t->name, err);
        if (st != CHURON_OK) {
            error_prefix(err, "tensor %zu of %zu", p->n_tensors + 1, count);
            return st;
        }
        st = take_tensor(c, t, err);
        if (st != CHURON_OK) {
            error_prefix(err, "tensor '%.*s'", GGUF_NAME(t->name));
            return st;
        }
        p->n_tensors++;
    }
    return CHURON_OK;
}

static status read_alignment(const gguf_part *p, size_t *out, error *err) {
    static const char key[] = "general.alignment";
    const gguf_entry *e = gguf_part_find(p, key, sizeof key - 1);
    *out = DEFAULT_ALIGNMENT;
    if (!e) return CHURON_OK;
    int64_t v;
    TRY(gguf_value_int(&e->value, INT64_MIN, INT64_MAX, &v, err));
    if (v < MIN_ALIGNMENT || v > MAX_ALIGNMENT || (v & (v - 1)) != 0) {
        return error_set(err, CHURON_CORRUPT, "key '%s': expected a power of two from %d to %d, got %" PRId64,
                         key, MIN_ALIGNMENT, MAX_ALIGNMENT, v);
    }
    *out = (size_t)v;
    return CHURON_OK;
}

static bool offset_before(const void *ctx, size_t a, size_t b) {
    const gguf_tensor *t = ctx;
    return t[a].offset != t[b].offset ? t[a].offset < t[b].offset : a < b;
}

static status check_overlap(const gguf_part *p, error *err) {
    size_t *order = mem_calloc(p->n_tensors, sizeof *order);
    if (!order) return error_no_memory(err, "tensor order", p->n_tensors * sizeof *order);
    for (size_t i = 0; i < p->n_tensors; i++) order[i] = i;
    gguf_sort(order, p->n_tensors, offset_before, p->tensors);
    status st = CHURON_OK;
    for (size_t i = 1; i < p->n_tensors && st == CHURON_OK; i++) {
        const gguf_tensor *a = &p->tensors[order[i - 1]], *b = &p->tensors[order[i]];
        if (b->offset - a->offset < a->bytes) {
            st = error_set(
                err, CHURON_CORRUPT,
                "tensor '%.*s': expected its data to begin after '%.*s' ends at offset %zu, got offset %zu",
                GGUF_NAME(b->name), GGUF_NAME(a->name), a->offset + a->bytes, b->offset);
        }
    }
    mem_free(order);
    return st;
}

/* Turns offsets into places in the mapping; `header_end` is where the last description ends. */
static status place_tensors(gguf_part *p, size_t header_end, error *err) {
    size_t alignment;
    TRY(read_alignment(p, &alignment, err));
    size_t start = header_end + (alignment - header_end % alignment) % alignment;
    for (size_t i = 0; i < p->n_tensors; i++) {
        gguf_tensor *t = &p->tensors[i];
        if (t->offset % alignment != 0) {
            return error_set(err, CHURON_CORRUPT,
                             "tensor '%.*s': data offset: expected a multiple of %zu, got %zu",
                             GGUF_NAME(t->name), alignment, t->offset);
        }
        size_t room = start < p->map.size ? p->map.size - start : 0;
        if (t->offset > room || t->bytes > room - t->offset) {
            return error_set(err, CHURON_CORRUPT,
                             "tensor '%.*s': expected its %zu bytes at %zu within the %zu data bytes of the "
                             "file, got a file that ends before (data begins at offset %zu)",
                             GGUF_NAME(t->name), t->bytes, t->offset, room, start);
        }
        t->offset += start;
        t->data = p->map.data + t->offset;
    }
    return check_overlap(p, err);
}

/* ---- the file --------------------------------------------------------------------------------------- */

static status take_version(cursor *c, gguf_part *p, error *err) {
    const uint8_t *magic = NULL;
    const char *seems = c->size ? format_guess(c->data, c->size) : NULL, *to_be = ": it seems to be ";
    if (c->size >= 4 && memcmp(c->data, "GGUF", 4) == 0) seems = NULL;
    if (!seems) seems = to_be = "";
    if (c->size < HEADER_BYTES) {
        return error_set(err, CHURON_CORRUPT, "header: expected at least %d bytes, got a file of %zu%s%s",
                         HEADER_BYTES, c->size, to_be, seems);
    }
    TRY(take(c, 4, "magic", &magic, err));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return error_set(err, CHURON_CORRUPT,
                         "magic at offset 0: expected 47475546 (GGUF), got %02x%02x%02x%02x%s%s", magic[0],
                         magic[1], magic[2], magic[3], to_be, seems);
    }
    TRY(take_u32(c, "version", &p->version, err));
    if (p->version == 0x02000000u || p->version == 0x03000000u) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "version at offset 4: expected a little-endian file, got a big-endian one");
    }
    if (p->version != 2 && p->version != 3) {
        return error_set(err, CHURON_UNSUPPORTED, "version at offset 4: expected 2 or 3, got %" PRIu32,
                         p->version);
    }
    return CHURON_OK;
}

static status check_count(const cursor *c, const char *what, uint64_t count, size_t min_bytes, size_t at,
                          error *err) {
    size_t most = (c->size - HEADER_BYTES) / min_bytes;
    if (count <= most) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT,
                     "%s at offset %zu: expected at most %zu in a file of %zu bytes, got %" PRIu64, what, at,
                     most, c->size, count);
}

status gguf_part_parse(gguf_part *p, error *err) {
    cursor c = {p->map.data, p->map.size, 0};
    uint64_t n_tensors, n_entries;
    TRY(take_version(&c, p, err));
    TRY(take_u64(&c, "tensor count", &n_tensors, err));
    TRY(take_u64(&c, "metadata count", &n_entries, err));
    TRY(check_count(&c, "tensor count", n_tensors, MIN_TENSOR_BYTES, 8, err));
    TRY(check_count(&c, "metadata count", n_entries, MIN_ENTRY_BYTES, 16, err));
    TRY(take_entries(&c, p, (size_t)n_entries, err));
    TRY(take_tensors(&c, p, (size_t)n_tensors, err));
    return place_tensors(p, c.at, err);
}

status gguf_part_open(gguf_part *out, const char *path, uint64_t offset, uint64_t size, error *err) {
    *out = (gguf_part){0};
    if (size == UINT64_MAX) {
        TRY(file_map_open(&out->map, path, err));
    } else {
        TRY(file_map_open_part(&out->map, path, offset, size, err));
    }
    status st = gguf_part_parse(out, err);
    if (st != CHURON_OK) {
        error_prefix(err, "%s", path);
        gguf_part_close(out);
    }
    return st;
}

void gguf_part_close(gguf_part *p) {
    for (size_t i = 0; i < p->n_entries; i++) mem_free(p->entries[i].item_at);
    mem_free(p->entries);
    mem_free(p->by_key);
    mem_free(p->tensors);
    file_map_close(&p->map);
    *p = (gguf_part){0};
}
