/* onnx_tensor.c: TensorProto and SparseTensorProto. Elements stay in the file where they can be used as they
 * lie there; what is packed, misaligned or written as numbers goes into the arena. */
#include "format/onnx_read.h"

#include <inttypes.h>
#include <string.h>

enum {
    DIMS = 1,
    DATA_TYPE = 2,
    SEGMENT = 3,
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    STRING_DATA = 6,
    INT64_DATA = 7,
    NAME = 8,
    RAW_DATA = 9,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11,
    EXTERNAL_DATA = 13,
    DATA_LOCATION = 14
};

enum {
    DROP_FROM = 1 << 20,    /* bytes: copies of this size give the file's pages back */
    LEFT_OUT_FROM = 4 << 20 /* bytes that a description does not need */
};

typedef struct list_field {
    uint32_t number;
    size_t fixed; /* bytes of an item, 0: varints */
    const char *name;
} list_field;

/* The list that holds elements of a type. */
static list_field list_of(elem e) {
    switch (e) {
    case ELEM_F32:
    case ELEM_C64: return (list_field){FLOAT_DATA, 4, "float_data"};
    case ELEM_F64:
    case ELEM_C128: return (list_field){DOUBLE_DATA, 8, "double_data"};
    case ELEM_I64: return (list_field){INT64_DATA, 0, "int64_data"};
    case ELEM_U32:
    case ELEM_U64: return (list_field){UINT64_DATA, 0, "uint64_data"};
    case ELEM_STRING: return (list_field){STRING_DATA, 1, "string_data"};
    default: return (list_field){INT32_DATA, 0, "int32_data"};
    }
}

typedef struct raw_parts {
    wire message;
    size_t counts[WIRE_COUNTED];
    wire raw;
    bool external;
} raw_parts;

/* ---- dimensions and other small fields -------------------------------------------------------------- */

static status read_dims(onnx_reader *r, wire m, size_t *rank, const int64_t **dims) {
    size_t n;
    TRY(wire_list_count(r, m, DIMS, 0, "dims", &n));
    if (n > TENSOR_MAX_RANK) {
        return onnx_fail(r, CHURON_UNSUPPORTED, "dims: expected at most %d dimensions, got %zu",
                         TENSOR_MAX_RANK, n);
    }
    int64_t *d = NULL;
    TRY(onnx_take(r, n, sizeof *d, &d));
    TRY(wire_list_varints(r, m, DIMS, "dims", ELEM_I64, d));
    for (size_t i = 0; i < n; i++) {
        if (d[i] < 0) {
            return onnx_fail(r, CHURON_CORRUPT, "dims[%zu]: expected 0 or more, got %" PRId64, i, d[i]);
        }
    }
    *rank = n;
    *dims = d;
    return CHURON_OK;
}

static status read_number(onnx_reader *r, const char *key, const char *text, uint64_t *out) {
    uint64_t v = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9' && i < 19; i++) v = 10 * v + (uint64_t)(text[i] - '0');
    if (i == 0 || text[i]) {
        return onnx_fail(r, CHURON_CORRUPT,
                         "external_data %s: expected a number of at most 19 digits, got '%.40s'", key, text);
    }
    *out = v;
    return CHURON_OK;
}

static status read_external_entry(onnx_reader *r, wire m, onnx_tensor *t) {
    onnx_property p = {0};
    TRY(onnx_read_property(r, m, &p));
    if (strcmp(p.key, "location") == 0) {
        t->location = p.value;
    } else if (strcmp(p.key, "offset") == 0) {
        TRY(read_number(r, "offset", p.value, &t->offset));
    } else if (strcmp(p.key, "length") == 0) {
        TRY(read_number(r, "length", p.value, &t->length));
    }
    return CHURON_OK;
}

static status read_type(onnx_reader *r, const wire_field *f, elem *out) {
    int64_t v = 0;
    TRY(wire_int(r, f, "data_type", &v));
    if (v <= ELEM_NONE || v >= ELEM_COUNT) {
        return onnx_fail(r, CHURON_UNSUPPORTED, "data_type: expected 1..%d, got %" PRId64, ELEM_COUNT - 1, v);
    }
    *out = (elem)v;
    return CHURON_OK;
}

static status read_field(onnx_reader *r, const wire_field *f, onnx_tensor *t, raw_parts *parts) {
    int64_t v = 0;
    switch (f->number) {
    case DATA_TYPE: return read_type(r, f, &t->type);
    case NAME: return wire_string(r, f, "name", &t->name);
    case RAW_DATA: return wire_message(r, f, "raw_data", &parts->raw);
    case EXTERNAL_DATA: ONNX_INSIDE(r, f, "external_data", SIZE_MAX, read_external_entry, t); break;
    case DATA_LOCATION:
        TRY(wire_int(r, f, "data_location", &v));
        if (v < 0 || v > 1) {
            return onnx_fail(r, CHURON_CORRUPT, "data_location: expected 0 or 1, got %" PRId64, v);
        }
        parts->external = v == 1;
        break;
    case SEGMENT:
        return onnx_fail(r, CHURON_UNSUPPORTED, "segment: expected a whole tensor, got a part of one");
    default: break;
    }
    return CHURON_OK;
}

/* ---- elements --------------------------------------------------------------------------------------- */

static void set_contents(onnx_tensor *t, const void *data) {
    t->contents = tensor_borrow(t->type, t->rank, t->dims, (void *)(uintptr_t)data);
}

static bool usable_in_place(const onnx_tensor *t, const uint8_t *bytes) {
    const elem_info *info = elem_describe(t->type);
    if (info->bits < 8) return false;
    if (t->type == ELEM_BOOL) {
        uint8_t all = 0;
        for (size_t i = 0; i < t->count; i++) all |= bytes[i];
        return all <= 1;
    }
    size_t alignment = info->bytes > 8 ? 8 : info->bytes;
    if (t->type == ELEM_C64) alignment = 4;
    return (uintptr_t)bytes % alignment == 0;
}

/* Elements in the file's form, in the file itself or in one beside it. */
static status read_flat(onnx_reader *r, onnx_tensor *t, const uint8_t *bytes, const file_map *map) {
    if (t->count == 0 || usable_in_place(t, bytes)) {
        static const _Alignas(64) uint8_t none[64];
        set_contents(t, t->count ? bytes : none);
        return CHURON_OK;
    }
    void *data = NULL;
    const size_t taken = t->count * elem_describe(t->type)->bytes, size = elem_file_bytes(t->type, t->count);
    TRY(onnx_take_data(r, taken, &data));
    if (r->describe && taken >= LEFT_OUT_FROM) { /* a block of its own, zeroed, whose pages nobody asks for */
        set_contents(t, data);
        return CHURON_OK;
    }
    elem_unpack(t->type, bytes, data, t->count);
    if (map && size >= DROP_FROM) file_map_drop(map, (size_t)(bytes - map->data), size);
    set_contents(t, data);
    return CHURON_OK;
}

static status read_external(onnx_reader *r, onnx_tensor *t) {
    t->external = true;
    size_t need = elem_file_bytes(t->type, t->count);
    if (!t->location) return onnx_fail(r, CHURON_CORRUPT, "external_data: expected a location, got none");
    if (t->length != UINT64_MAX && t->length != need) {
        return onnx_fail(r, CHURON_CORRUPT,
                         "external_data length: expected %zu bytes for %zu elements of %s, got %" PRIu64,
                         need, t->count, elem_name(t->type), t->length);
    }
    const file_map *map = NULL;
    TRY(onnx_external(r, t->location, &map));
    if (t->offset > map->size || need > map->size - t->offset) {
        return onnx_fail(
            r, CHURON_CORRUPT,
            "external_data offset: expected %zu bytes inside the %zu of '%s', got offset %" PRIu64, need,
            map->size, t->location, t->offset);
    }
    return read_flat(r, t, map->size ? map->data + t->offset : NULL, map);
}

static status read_strings(onnx_reader *r, onnx_tensor *t, const raw_parts *parts) {
    if (parts->counts[STRING_DATA] != t->count) {
        return onnx_fail(r, CHURON_CORRUPT, "string_data: expected %zu items, got %zu", t->count,
                         parts->counts[STRING_DATA]);
    }
    tensor_string *s = NULL;
    TRY(onnx_take(r, t->count, sizeof *s, &s));
    size_t i = 0;
    for (wire m = parts->message; m.at < m.end;) {
        wire_field f;
        wire bytes = {0};
        TRY(wire_next(r, &m, &f));
        if (f.number != STRING_DATA) continue;
        TRY(wire_message(r, &f, "string_data", &bytes));
        s[i++] = (tensor_string){(const char *)bytes.at, (size_t)(bytes.end - bytes.at)};
    }
    set_contents(t, s);
    return CHURON_OK;
}

/* Types of 4 and 2 bits lie in their list as they do in raw data: several to an item. */
static bool shares_bytes(elem e) {
    unsigned bits = elem_describe(e)->bits;
    return bits == 4 || bits == 2;
}

/* Items that the list must have: complex numbers take two. */
static size_t list_items(elem e, size_t count) {
    if (e == ELEM_C64 || e == ELEM_C128) return 2 * count;
    return shares_bytes(e) ? elem_file_bytes(e, count) : count;
}

static status read_list(onnx_reader *r, onnx_tensor *t, const raw_parts *parts) {
    list_field list = list_of(t->type);
    size_t n, items = list_items(t->type, t->count);
    TRY(wire_list_count(r, parts->message, list.number, list.fixed, list.name, &n));
    if (n != items) {
        return onnx_fail(r, CHURON_CORRUPT, "%s: expected %zu items for %zu elements of %s, got %zu",
                         list.name, items, t->count, elem_name(t->type), n);
    }
    void *data = NULL;
    TRY(onnx_take_data(r, t->count * elem_describe(t->type)->bytes, &data));
    set_contents(t, data);
    if (list.fixed) return wire_list_fixed(r, parts->message, list.number, list.fixed, data);
    if (!shares_bytes(t->type)) {
        TRY(wire_list_varints(r, parts->message, list.number, list.name, t->type, data));
        unsigned bits = elem_describe(t->type)->bits;
        for (size_t i = 0; bits < 8 && i < t->count; i++) {
            uint8_t code = ((uint8_t *)data)[i];
            if (code >> bits) {
                return onnx_fail(r, CHURON_CORRUPT, "%s[%zu]: expected a value of %s, got %u", list.name, i,
                                 elem_name(t->type), code);
            }
        }
        return CHURON_OK;
    }
    void *packed = NULL;
    TRY(onnx_take_data(r, items, &packed));
    TRY(wire_list_varints(r, parts->message, list.number, list.name, ELEM_U8, packed));
    elem_unpack(t->type, packed, data, t->count);
    return CHURON_OK;
}

static status read_contents(onnx_reader *r, onnx_tensor *t, const raw_parts *parts) {
    static const uint32_t lists[] = {FLOAT_DATA, INT32_DATA,  STRING_DATA,
                                     INT64_DATA, DOUBLE_DATA, UINT64_DATA};
    bool raw = parts->counts[RAW_DATA] > 0;
    uint32_t own = list_of(t->type).number;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (!parts->counts[lists[i]]) continue;
        if (raw || parts->external || lists[i] != own) {
            return onnx_fail(r, CHURON_CORRUPT, "expected elements of %s in %s, got field %" PRIu32 " too",
                             elem_name(t->type),
                             parts->external ? "a file"
                             : raw           ? "raw_data"
                                             : list_of(t->type).name,
                             lists[i]);
        }
    }
    if (t->type == ELEM_STRING) {
        if (!raw && !parts->external) return read_strings(r, t, parts);
        return onnx_fail(r, CHURON_CORRUPT, "expected strings in string_data, got %s",
                         raw ? "raw_data" : "external data");
    }
    if (parts->external) return read_external(r, t);
    if (!raw) return read_list(r, t, parts);
    size_t need = elem_file_bytes(t->type, t->count), got = (size_t)(parts->raw.end - parts->raw.at);
    if (got != need) {
        return onnx_fail(r, CHURON_CORRUPT, "raw_data: expected %zu bytes for %zu elements of %s, got %zu",
                         need, t->count, elem_name(t->type), got);
    }
    return read_flat(r, t, parts->raw.at, r->map);
}

status onnx_read_tensor(onnx_reader *r, wire m, onnx_tensor *out) {
    *out = (onnx_tensor){.name = "", .length = UINT64_MAX};
    raw_parts parts = {.message = m};
    TRY(wire_count(r, m, parts.counts));
    TRY(read_dims(r, m, &out->rank, &out->dims));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        TRY(read_field(r, &f, out, &parts));
    }
    if (out->type == ELEM_NONE) {
        return onnx_fail(r, CHURON_CORRUPT, "data_type: expected 1..%d, got none", ELEM_COUNT - 1);
    }
    error why;
    status st = tensor_count(out->type, out->rank, out->dims, &out->count, "dims", &why);
    if (st != CHURON_OK) return onnx_fail(r, st, "%s", why.message);
    return read_contents(r, out, &parts);
}

/* ---- sparse ----------------------------------------------------------------------------------------- */

/* Position of value i in row-major order, or -1 if it is outside. */
static int64_t sparse_position(const onnx_sparse *s, size_t i) {
    const int64_t *at = s->indices.contents.data;
    if (s->indices.rank == 1) return at[i];
    int64_t p = 0;
    for (size_t k = 0; k < s->rank; k++) {
        int64_t x = at[i * s->rank + k];
        if (x < 0 || x >= s->dims[k]) return -1;
        p = p * s->dims[k] + x;
    }
    return p;
}

static status check_sparse(onnx_reader *r, const onnx_sparse *s) {
    size_t count, n = s->values.count;
    error why;
    status st = tensor_count(s->values.type, s->rank, s->dims, &count, "dims", &why);
    if (st != CHURON_OK) return onnx_fail(r, st, "%s", why.message);
    if (s->values.rank != 1) {
        return onnx_fail(r, CHURON_CORRUPT, "values: expected 1 dimension, got %zu", s->values.rank);
    }
    bool flat = s->indices.rank == 1 && s->indices.count == n;
    bool full =
        s->indices.rank == 2 && (size_t)s->indices.dims[0] == n && (size_t)s->indices.dims[1] == s->rank;
    if (s->indices.type != ELEM_I64 || !(flat || full)) {
        return onnx_fail(r, CHURON_CORRUPT,
                         "indices: expected int64 of shape [%zu] or [%zu, %zu], got %s of %zu "
                         "dimensions and %zu elements",
                         n, n, s->rank, elem_name(s->indices.type), s->indices.rank, s->indices.count);
    }
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) {
        int64_t p = sparse_position(s, i);
        if (p <= last || (uint64_t)p >= count) {
            return onnx_fail(r, CHURON_CORRUPT,
                             "indices[%zu]: expected a position after %" PRId64
                             " and below %zu, got %" PRId64,
                             i, last, count, p);
        }
        last = p;
    }
    return CHURON_OK;
}

status onnx_read_sparse(onnx_reader *r, wire m, onnx_sparse *out) {
    enum { VALUES = 1, INDICES = 2, SPARSE_DIMS = 3 };
    *out = (onnx_sparse){0};
    size_t counts[WIRE_COUNTED];
    TRY(wire_count(r, m, counts));
    if (counts[VALUES] != 1 || counts[INDICES] != 1) {
        return onnx_fail(r, CHURON_CORRUPT, "expected values and indices once, got %zu and %zu",
                         counts[VALUES], counts[INDICES]);
    }
    size_t n;
    TRY(wire_list_count(r, m, SPARSE_DIMS, 0, "dims", &n));
    int64_t *dims = NULL;
    TRY(onnx_take(r, n, sizeof *dims, &dims));
    TRY(wire_list_varints(r, m, SPARSE_DIMS, "dims", ELEM_I64, dims));
    out->rank = n;
    out->dims = dims;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number == VALUES) {
            ONNX_INSIDE(r, &f, "values", SIZE_MAX, onnx_read_tensor, &out->values);
        } else if (f.number == INDICES) {
            ONNX_INSIDE(r, &f, "indices", SIZE_MAX, onnx_read_tensor, &out->indices);
        }
    }
    return check_sparse(r, out);
}
