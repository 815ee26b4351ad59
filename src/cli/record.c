/* record.c: see record.h. */
#include "cli/record.h"

#include "base/file.h"
#include "base/mem.h"
#include "tensor/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements of JSON ------------------------------------------------------------------------------- */

typedef struct filling {
    const char *name;
    tensor *t;
    size_t at;
    error *err;
} filling;

static const char *json_kind(const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_NULL: return "null";
    default: return "a boolean";
    }
}

static status wrong(const filling *f, const char *expected, const json_t *got) {
    return error_set(f->err, CHURON_INVALID, "input '%s': element %zu: expected %s (%s), got %s", f->name,
                     f->at, expected, elem_name(f->t->type), json_kind(got));
}

static bool json_to_double(const json_t *j, double *out) {
    if (json_is_number(j)) {
        *out = json_number_value(j);
        return true;
    }
    const char *s = json_string_value(j);
    if (!s) return false;
    bool known = true;
    if (strcmp(s, "NaN") == 0) {
        *out = (double)NAN;
    } else if (strcmp(s, "Infinity") == 0) {
        *out = (double)INFINITY;
    } else if (strcmp(s, "-Infinity") == 0) {
        *out = -(double)INFINITY;
    } else {
        known = false;
    }
    return known;
}

/* Least and greatest number of an integer type. */
static void int_range(elem e, int64_t *least, int64_t *most) {
    unsigned bits = elem_describe(e)->bits;
    bool is_signed = (ELEM_BIT(e) & (ELEMS_SIGNED | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_I2))) != 0;
    *least = is_signed ? (bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1))) : 0;
    *most = is_signed    ? (bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1)
            : bits >= 63 ? INT64_MAX
                         : ((int64_t)1 << bits) - 1;
}

static status put_integer(filling *f, const json_t *j, char *to) {
    if (!json_is_integer(j)) return wrong(f, "an integer", j);
    int64_t v = json_integer_value(j), least, most;
    int_range(f->t->type, &least, &most);
    if (v < least || v > most) {
        return error_set(f->err, CHURON_INVALID,
                         "input '%s': element %zu: expected %" PRId64 " to %" PRId64 ", got %" PRId64,
                         f->name, f->at, least, most, v);
    }
    memcpy(to, &v, elem_describe(f->t->type)->bytes); /* little-endian: the low bytes come first */
    return CHURON_OK;
}

static status put_complex(filling *f, const json_t *j, char *to) {
    double part[2];
    if (!json_is_array(j) || json_array_size(j) != 2 || !json_to_double(json_array_get(j, 0), &part[0]) ||
        !json_to_double(json_array_get(j, 1), &part[1])) {
        return wrong(f, "[real, imaginary]", j);
    }
    if (f->t->type == ELEM_C64) {
        const float narrow[2] = {(float)part[0], (float)part[1]};
        memcpy(to, narrow, sizeof narrow);
    } else {
        memcpy(to, part, sizeof part);
    }
    return CHURON_OK;
}

static status put_element(filling *f, const json_t *j) {
    elem e = f->t->type;
    char *to = (char *)f->t->data + f->at * elem_describe(e)->bytes;
    status st = CHURON_OK;
    if (e == ELEM_STRING) {
        if (!json_is_string(j)) return wrong(f, "a string", j);
        st = tensor_string_set(f->t, f->at, json_string_value(j), json_string_length(j), f->err);
    } else if (e == ELEM_BOOL) {
        if (!json_is_boolean(j)) return wrong(f, "true or false", j);
        *(uint8_t *)to = json_is_true(j);
    } else if (ELEM_BIT(e) & ELEMS_COMPLEX) {
        st = put_complex(f, j, to);
    } else if (ELEM_BIT(e) &
               (ELEMS_INT | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_U4) | ELEM_BIT(ELEM_I2) | ELEM_BIT(ELEM_U2))) {
        st = put_integer(f, j, to);
    } else {
        double v;
        if (!json_to_double(j, &v)) return wrong(f, "a number", j);
        elem_from_f64(e, &v, to, 1, true);
    }
    f->at++;
    return st;
}

static status put_nested(filling *f, const json_t *j, size_t level) {
    if (level == f->t->rank) return put_element(f, j);
    if (!json_is_array(j) || json_array_size(j) != (size_t)f->t->dims[level]) {
        return error_set(f->err, CHURON_INVALID,
                         "input '%s': expected lists of the same length, got %zu beside %" PRId64, f->name,
                         json_array_size(j), f->t->dims[level]);
    }
    for (size_t i = 0; i < json_array_size(j); i++) TRY(put_nested(f, json_array_get(j, i), level + 1));
    return CHURON_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

static status tensor_from_lists(const json_t *j, const char *name, elem type, tensor *out, error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = 0;
    bool pairs = (ELEM_BIT(type) & ELEMS_COMPLEX) != 0;
    for (const json_t *at = j; json_is_array(at); at = json_array_get(at, 0)) {
        if (pairs && !json_is_array(json_array_get(at, 0))) break;
        if (rank == TENSOR_MAX_RANK) {
            return error_set(err, CHURON_INVALID, "input '%s': expected at most %d dimensions, got more",
                             name, TENSOR_MAX_RANK);
        }
        dims[rank++] = (int64_t)json_array_size(at);
        if (json_array_size(at) == 0) break;
    }
    TRY(tensor_alloc(out, type, rank, dims, err));
    filling f = {.name = name, .t = out, .err = err};
    status st = out->count ? put_nested(&f, j, 0) : CHURON_OK;
    if (st != CHURON_OK) tensor_free(out);
    return st;
}

static int b64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool b64_decode(const char *text, size_t n, str *out) {
    uint32_t bits = 0;
    unsigned have = 0;
    while (n > 0 && text[n - 1] == '=') n--;
    for (size_t i = 0; i < n; i++) {
        int d = b64_digit(text[i]);
        if (d < 0) return false;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        str_put(out, (char)(bits >> have & 0xff));
    }
    return have < 6;
}

static status tensor_from_b64(const json_t *j, const char *name, elem type, tensor *out, error *err) {
    const json_t *text = json_object_get(j, "b64"), *shape = json_object_get(j, "shape");
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = json_array_size(shape), count;
    if (!json_is_string(text) || !json_is_array(shape) || rank > TENSOR_MAX_RANK || type == ELEM_STRING) {
        return error_set(err, CHURON_INVALID,
                         "input '%s': expected {\"b64\": text, \"shape\": [...]} of numbers", name);
    }
    for (size_t i = 0; i < rank; i++) dims[i] = json_integer_value(json_array_get(shape, i));
    TRY(tensor_count(type, rank, dims, &count, name, err));
    str bytes = {0};
    bool good = b64_decode(json_string_value(text), json_string_length(text), &bytes);
    status st = str_check(&bytes, err);
    if (st == CHURON_OK && (!good || bytes.len != elem_file_bytes(type, count))) {
        st = error_set(err, CHURON_INVALID, "input '%s': expected %zu bytes in base64, got %zu", name,
                       elem_file_bytes(type, count), bytes.len);
    }
    if (st == CHURON_OK) st = tensor_alloc(out, type, rank, dims, err);
    if (st == CHURON_OK && count) elem_unpack(type, bytes.data, out->data, count);
    str_free(&bytes);
    return st;
}

/* Types that NumPy has not come as float32 or int8 and become what the graph wants. */
static status adapt(tensor *t, const char *name, const onnx_type *type, error *err) {
    if (t->type == type->type) return CHURON_OK;
    bool numpy_has_not = (ELEM_BIT(type->type) & (ELEMS_F8 | ELEMS_LOWBIT | ELEM_BIT(ELEM_BF16))) != 0;
    if (!numpy_has_not || t->type == ELEM_STRING || (ELEM_BIT(t->type) & ELEMS_COMPLEX)) {
        return error_set(err, CHURON_INVALID, "input '%s': expected elements of %s, got %s", name,
                         elem_name(type->type), elem_name(t->type));
    }
    tensor out;
    TRY(tensor_alloc(&out, type->type, t->rank, t->dims, err));
    size_t from = elem_describe(t->type)->bytes, to = elem_describe(type->type)->bytes;
    for (size_t i = 0; i < t->count; i++) {
        double v;
        elem_to_f64(t->type, (const char *)t->data + i * from, &v, 1);
        elem_from_f64(type->type, &v, (char *)out.data + i * to, 1, true);
    }
    tensor_free(t);
    *t = out;
    return CHURON_OK;
}

status record_npy(const char *path, const char *name, const onnx_type *type, value *out, error *err) {
    tensor t;
    *out = (value){.kind = VALUE_NONE};
    if (type->kind == ONNX_OPTIONAL && type->of) type = type->of;
    if (type->kind != ONNX_TENSOR) {
        return error_set(err, CHURON_INVALID, "input '%s': expected a sequence or a map, got a .npy file",
                         name);
    }
    TRY(npy_read(&t, path, err));
    status st = adapt(&t, name, type, err);
    if (st != CHURON_OK) {
        tensor_free(&t);
        return st;
    }
    *out = value_of_tensor(t);
    return CHURON_OK;
}

static status from_file(const char *file, const char *name, const onnx_type *type, const char *folder,
                        value *out, error *err) {
    str path = {0};
    if (folder && file[0] != '/') str_fmt(&path, "%s/", folder);
    str_cat(&path, file);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = record_npy(path.data, name, type, out, err);
    str_free(&path);
    return st;
}

/* ---- values ----------------------------------------------------------------------------------------- */

static status sequence_from(const json_t *json, const char *name, const onnx_type *type, const char *folder,
                            value *out, error *err) {
    if (!json_is_array(json)) {
        return error_set(err, CHURON_INVALID, "input '%s': expected a list (a sequence), got %s", name,
                         json_kind(json));
    }
    TRY(value_list_create(out, VALUE_SEQUENCE, json_array_size(json), err));
    for (size_t i = 0; i < json_array_size(json); i++) {
        status st = record_value(json_array_get(json, i), name, type->of, folder, value_item(out, i), err);
        if (st == CHURON_OK) continue;
        value_free(out);
        return st;
    }
    return CHURON_OK;
}

/* An object to keys and a tensor of values. */
static status map_from(const json_t *json, const char *name, const onnx_type *type, value *out, error *err) {
    if (!json_is_object(json) || !type->of || type->of->kind != ONNX_TENSOR) {
        return error_set(err, CHURON_INVALID, "input '%s': expected an object (a map), got %s", name,
                         json_kind(json));
    }
    const int64_t n = (int64_t)json_object_size(json);
    TRY(value_list_create(out, VALUE_MAP, 1, err));
    value *values = value_item(out, 0);
    status st = tensor_alloc(&out->t, type->type, 1, &n, err);
    tensor t = {0};
    if (st == CHURON_OK) st = tensor_alloc(&t, type->of->type, 1, &n, err);
    if (st == CHURON_OK) *values = value_of_tensor(t);
    size_t i = 0;
    for (void *at = json_object_iter((json_t *)(uintptr_t)json); at && st == CHURON_OK;
         at = json_object_iter_next((json_t *)(uintptr_t)json, at), i++) {
        const char *key = json_object_iter_key(at);
        filling f = {.name = name, .t = &values->t, .at = i, .err = err};
        st = put_element(&f, json_object_iter_value(at));
        if (st != CHURON_OK) break;
        if (type->type == ELEM_STRING) {
            st = tensor_string_set(&out->t, i, key, strlen(key), err);
        } else {
            char *end;
            ((int64_t *)out->t.data)[i] = strtoll(key, &end, 10);
            if (*end || !*key)
                st = error_set(err, CHURON_INVALID, "input '%s': expected integer keys, got '%.40s'", name,
                               key);
        }
    }
    if (st != CHURON_OK) value_free(out);
    return st;
}

status record_value(const json_t *json, const char *name, const onnx_type *type, const char *folder,
                    value *out, error *err) {
    *out = (value){.kind = VALUE_NONE};
    if (!type) return error_set(err, CHURON_UNSUPPORTED, "input '%s': its type is not known", name);
    if (type->kind == ONNX_OPTIONAL) {
        return json_is_null(json) ? CHURON_OK : record_value(json, name, type->of, folder, out, err);
    }
    const char *file = json_string_value(json_object_get(json, "file"));
    if (file) return from_file(file, name, type, folder, out, err);
    if (type->kind == ONNX_SEQUENCE) return sequence_from(json, name, type, folder, out, err);
    if (type->kind == ONNX_MAP) {
        if (type->type != ELEM_STRING && type->type != ELEM_I64) {
            return error_set(err, CHURON_UNSUPPORTED, "input '%s': expected keys of string or int64", name);
        }
        return map_from(json, name, type, out, err);
    }
    if (type->kind != ONNX_TENSOR)
        return error_set(err, CHURON_UNSUPPORTED, "input '%s': expected a tensor", name);
    tensor t;
    TRY(json_object_get(json, "b64") ? tensor_from_b64(json, name, type->type, &t, err)
                                     : tensor_from_lists(json, name, type->type, &t, err));
    *out = value_of_tensor(t);
    return CHURON_OK;
}

status record_inputs(const json_t *json, const graph *g, const char *folder, value *inputs, error *err) {
    if (!json_is_object(json))
        return error_set(err, CHURON_INVALID, "record: expected an object of inputs, got %s",
                         json_kind(json));
    size_t n = graph_n_inputs(g);
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)json, key, item) {
        size_t i = 0;
        while (i < n && strcmp(graph_input(g, i).name, key) != 0) i++;
        if (i < n) continue;
        str list = {0};
        for (size_t k = 0; k < n; k++) str_fmt(&list, "%s%s", k ? ", " : "", graph_input(g, k).name);
        status st =
            error_set(err, CHURON_INVALID, "record: expected inputs %s, got '%.80s'", str_cstr(&list), key);
        str_free(&list);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        graph_port p = graph_input(g, i);
        const json_t *given = json_object_get(json, p.name);
        if (inputs[i].kind != VALUE_NONE) continue; /* already there, from a file */
        if (!given && p.type->kind == ONNX_OPTIONAL) continue;
        if (!given) return error_set(err, CHURON_INVALID, "record: expected input '%s', got none", p.name);
        TRY(record_value(given, p.name, p.type, folder, &inputs[i], err));
    }
    return CHURON_OK;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void write_float(json_out *j, double v, bool narrow) {
    if (isnan(v)) {
        json_out_cstr(j, NULL, "NaN");
    } else if (isinf(v)) {
        json_out_cstr(j, NULL, v < 0 ? "-Infinity" : "Infinity");
    } else if (narrow) {
        json_out_float(j, NULL, (float)v);
    } else {
        json_out_double(j, NULL, v);
    }
}

static void write_element(json_out *j, const tensor *t, size_t i) {
    const char *p = (const char *)t->data + i * elem_describe(t->type)->bytes;
    double v;
    switch (t->type) {
    case ELEM_STRING:
        json_out_string(j, NULL, ((const tensor_string *)(const void *)p)->data,
                        ((const tensor_string *)(const void *)p)->len);
        break;
    case ELEM_BOOL: json_out_bool(j, NULL, *(const uint8_t *)p != 0); break;
    case ELEM_I64: json_out_int(j, NULL, *(const int64_t *)(const void *)p); break;
    case ELEM_U64: json_out_uint(j, NULL, *(const uint64_t *)(const void *)p); break;
    case ELEM_C64:
    case ELEM_C128:
        json_out_array(j, NULL);
        for (size_t k = 0; k < 2; k++) {
            v = t->type == ELEM_C64 ? (double)((const float *)(const void *)p)[k]
                                    : ((const double *)(const void *)p)[k];
            write_float(j, v, t->type == ELEM_C64);
        }
        json_out_end_array(j);
        break;
    default:
        elem_to_f64(t->type, p, &v, 1);
        if (ELEM_BIT(t->type) &
            (ELEMS_INT | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_U4) | ELEM_BIT(ELEM_I2) | ELEM_BIT(ELEM_U2))) {
            json_out_int(j, NULL, (int64_t)v);
        } else {
            write_float(j, v, t->type != ELEM_F64);
        }
    }
}

static void write_nested(json_out *j, const char *key, const tensor *t, size_t level, size_t *at) {
    json_out_array(j, key);
    for (int64_t i = 0; i < t->dims[level]; i++) {
        if (level + 1 == t->rank) {
            write_element(j, t, (*at)++);
        } else {
            write_nested(j, NULL, t, level + 1, at);
        }
    }
    json_out_end_array(j);
}

static void write_key(const tensor *keys, size_t i, str *out) {
    if (keys->type == ELEM_STRING) {
        const tensor_string *s = (const tensor_string *)keys->data + i;
        str_add(out, s->data, s->len);
    } else {
        double v;
        elem_to_f64(keys->type, (const char *)keys->data + i * elem_describe(keys->type)->bytes, &v, 1);
        str_fmt(out, "%.0f", v);
    }
}

/* A scalar has no key of its own in json_out's element writers: it is written as text. */
static void write_scalar(json_out *j, const char *key, const tensor *t, size_t i) {
    str text = {0};
    json_out inner = json_out_begin(&text);
    json_out_array(&inner, NULL);
    write_element(&inner, t, i);
    json_out_end_array(&inner);
    if (text.len > 2) json_out_raw(j, key, text.data + 1, text.len - 2);
    str_free(&text);
}

void record_write(json_out *j, const char *key, const value *v) {
    size_t at = 0;
    if (v->kind == VALUE_NONE) {
        json_out_null(j, key);
    } else if (v->kind == VALUE_TENSOR) {
        if (v->t.rank == 0) {
            write_scalar(j, key, &v->t, 0);
        } else {
            write_nested(j, key, &v->t, 0, &at);
        }
    } else if (v->kind == VALUE_SEQUENCE) {
        json_out_array(j, key);
        for (size_t i = 0; i < value_count(v); i++) record_write(j, NULL, value_item(v, i));
        json_out_end_array(j);
    } else {
        const value *values = value_item(v, 0);
        json_out_object(j, key);
        for (size_t i = 0; i < v->t.count; i++) {
            str name = {0};
            write_key(&v->t, i, &name);
            if (values->kind == VALUE_TENSOR) {
                write_scalar(j, str_cstr(&name), &values->t, i);
            } else {
                record_write(j, str_cstr(&name), value_item(values, i));
            }
            str_free(&name);
        }
        json_out_end_object(j);
    }
}
