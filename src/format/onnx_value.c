/* onnx_value.c: values in files of their own: TensorProto, SequenceProto, MapProto, OptionalProto. */
#include "base/mem.h"
#include "format/onnx_read.h"

#include <inttypes.h>
#include <string.h>

static status read_value(onnx_reader *r, wire m, const onnx_type *type, value *out);

static status read_tensor(onnx_reader *r, wire m, const onnx_type *type, value *out) {
    onnx_tensor t;
    TRY(onnx_read_tensor(r, m, &t));
    if (type->type && type->type != t.type) {
        return onnx_fail(r, CHURON_INVALID, "data_type: expected %s, got %s", elem_name(type->type),
                         elem_name(t.type));
    }
    tensor copy;
    TRY(tensor_copy(&copy, &t.contents, r->err));
    *out = value_of_tensor(copy);
    return CHURON_OK;
}

/* ---- sequences -------------------------------------------------------------------------------------- */

/* Field numbers of lists in SequenceProto by what their items are. */
static uint32_t sequence_field(onnx_kind kind) {
    switch (kind) {
    case ONNX_SEQUENCE: return 5;
    case ONNX_MAP: return 6;
    case ONNX_OPTIONAL: return 7;
    default: return 3;
    }
}

static status read_sequence(onnx_reader *r, wire m, const onnx_type *of, value *out) {
    enum { SPARSE_VALUES = 4 };
    size_t counts[WIRE_COUNTED], i = 0;
    uint32_t number = sequence_field(of->kind);
    TRY(wire_count(r, m, counts));
    for (uint32_t n = 3; n <= 7; n++) {
        if (counts[n] && (n != number || n == SPARSE_VALUES)) {
            return onnx_fail(r, CHURON_UNSUPPORTED,
                             "expected items in field %" PRIu32 ", got some in %" PRIu32, number, n);
        }
    }
    TRY(value_list_create(out, VALUE_SEQUENCE, counts[number], r->err));
    while (m.at < m.end) {
        wire_field f;
        wire inside = {0};
        TRY(wire_next(r, &m, &f));
        if (f.number != number) continue;
        TRY(onnx_enter(r, "values", i));
        TRY(wire_message(r, &f, "message", &inside));
        TRY(read_value(r, inside, of, value_item(out, i)));
        onnx_leave(r);
        i++;
    }
    return CHURON_OK;
}

/* ---- maps ------------------------------------------------------------------------------------------- */

static status read_keys(onnx_reader *r, wire m, tensor *out) {
    enum { KEY_TYPE = 2, KEYS = 3, STRING_KEYS = 4 };
    size_t counts[WIRE_COUNTED], n, i = 0;
    TRY(wire_count(r, m, counts));
    if (!counts[STRING_KEYS]) {
        TRY(wire_list_count(r, m, KEYS, 0, "keys", &n));
        TRY(tensor_alloc(out, ELEM_I64, 1, &(int64_t){(int64_t)n}, r->err));
        return wire_list_varints(r, m, KEYS, "keys", ELEM_I64, out->data);
    }
    TRY(tensor_alloc(out, ELEM_STRING, 1, &(int64_t){(int64_t)counts[STRING_KEYS]}, r->err));
    while (m.at < m.end) {
        wire_field f;
        wire b = {0};
        TRY(wire_next(r, &m, &f));
        if (f.number != STRING_KEYS) continue;
        TRY(wire_message(r, &f, "string_keys", &b));
        TRY(tensor_string_set(out, i++, (const char *)b.at, (size_t)(b.end - b.at), r->err));
    }
    return CHURON_OK;
}

/* Values of a map that are scalars become one tensor. */
static status join_scalars(onnx_reader *r, value *list) {
    size_t n = value_count(list);
    if (n == 0) return CHURON_OK;
    elem e = value_item(list, 0)->t.type;
    for (size_t i = 0; i < n; i++) {
        const value *v = value_item(list, i);
        if (v->kind != VALUE_TENSOR || v->t.type != e || v->t.count != 1) return CHURON_OK;
    }
    tensor t;
    TRY(tensor_alloc(&t, e, 1, &(int64_t){(int64_t)n}, r->err));
    size_t bytes = elem_describe(e)->bytes;
    for (size_t i = 0; i < n; i++) {
        const void *from = value_item(list, i)->t.data;
        if (e != ELEM_STRING) {
            memcpy((char *)t.data + i * bytes, from, bytes);
            continue;
        }
        const tensor_string *s = from;
        status st = tensor_string_set(&t, i, s->data, s->len, r->err);
        if (st != CHURON_OK) {
            tensor_free(&t);
            return st;
        }
    }
    value_free(list);
    *list = value_of_tensor(t);
    return CHURON_OK;
}

static status read_map_values(onnx_reader *r, wire m, const onnx_type *of, value *out) {
    enum { VALUES = 5 };
    while (m.at < m.end) {
        wire_field f;
        wire inside = {0};
        TRY(wire_next(r, &m, &f));
        if (f.number != VALUES) continue;
        TRY(onnx_enter(r, "values", SIZE_MAX));
        TRY(wire_message(r, &f, "message", &inside));
        value_free(out);
        TRY(read_sequence(r, inside, of, out));
        onnx_leave(r);
    }
    if (out->kind == VALUE_NONE) TRY(value_list_create(out, VALUE_SEQUENCE, 0, r->err));
    return join_scalars(r, out);
}

static status read_map(onnx_reader *r, wire m, const onnx_type *type, value *out) {
    TRY(value_list_create(out, VALUE_MAP, 1, r->err));
    value *values = value_item(out, 0);
    TRY(read_keys(r, m, &out->t));
    TRY(read_map_values(r, m, type->of, values));
    size_t n = values->kind == VALUE_TENSOR ? values->t.count : value_count(values);
    if (n == out->t.count) return CHURON_OK;
    return onnx_fail(r, CHURON_CORRUPT, "values: expected as many as the %zu keys, got %zu", out->t.count, n);
}

/* ---- optionals -------------------------------------------------------------------------------------- */

static status read_optional(onnx_reader *r, wire m, const onnx_type *type, value *out) {
    uint32_t number = sequence_field(type->of->kind);
    while (m.at < m.end) {
        wire_field f;
        wire inside = {0};
        TRY(wire_next(r, &m, &f));
        if (f.number < 3 || f.number > 7) continue;
        if (f.number != number) {
            return onnx_fail(r, CHURON_UNSUPPORTED,
                             "expected a value in field %" PRIu32 ", got one in %" PRIu32, number, f.number);
        }
        TRY(onnx_enter(r, "value", SIZE_MAX));
        TRY(wire_message(r, &f, "message", &inside));
        value_free(out);
        TRY(read_value(r, inside, type->of, out));
        onnx_leave(r);
    }
    return CHURON_OK;
}

static status read_value(onnx_reader *r, wire m, const onnx_type *type, value *out) {
    switch (type->kind) {
    case ONNX_SEQUENCE: return read_sequence(r, m, type->of, out);
    case ONNX_MAP: return read_map(r, m, type, out);
    case ONNX_OPTIONAL: return read_optional(r, m, type, out);
    case ONNX_SPARSE:
    case ONNX_OPAQUE:
        return onnx_fail(r, CHURON_UNSUPPORTED,
                         "expected a tensor, sequence, map or optional, got a %s value",
                         type->kind == ONNX_SPARSE ? "sparse" : "opaque");
    default: return read_tensor(r, m, type, out);
    }
}

status onnx_value_read(value *out, const char *path, const onnx_type *type, error *err) {
    static const uint8_t nothing[1];
    *out = (value){0};
    file_map map;
    TRY(file_map_open(&map, path, err));
    const uint8_t *p = map.data ? map.data : nothing;
    onnx_reader r = {.err = err, .limit = ((uint64_t)64 << 20) + (uint64_t)map.size * 16};
    status st = read_value(&r, (wire){p, p + map.size}, type, out);
    if (st != CHURON_OK) {
        error_prefix(err, "%s", path);
        value_free(out);
    }
    onnx_free_chunks(r.chunks);
    onnx_files_close(r.files);
    file_map_close(&map);
    return st;
}
