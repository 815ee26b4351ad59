/* record.c: see record.h. */
#include "cli/record.h"

#include "base/file.h"
#include "base/mem.h"
#include "pipeline/element.h"
#include "pipeline/encode.h"
#include "tensor/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements of JSON ------------------------------------------------------------------------------- */

typedef struct filling {
    const char *name;
    tensor *t;
    size_t at;
    error *err;
} filling;

static status put_element(filling *f, const json_t *j) {
    const elem e = f->t->type;
    element_fault fault = {.expected = "a string (string)"};
    bool good;
    if (e == ELEM_STRING) {
        if (json_is_string(j)) {
            TRY(tensor_string_set(f->t, f->at++, json_string_value(j), json_string_length(j), f->err));
            return CHURON_OK;
        }
        element_json_text(j, fault.got, sizeof fault.got);
        good = false;
    } else {
        good = element_from_json(e, j, (char *)f->t->data + f->at * elem_describe(e)->bytes, &fault);
    }
    if (!good)
        return error_set(f->err, CHURON_INVALID, "input '%s': element %zu: expected %s, got %s", f->name,
                         f->at, fault.expected, fault.got);
    f->at++;
    return CHURON_OK;
}

static status put_nested(filling *f, const json_t *j, size_t level) {
    if (level == f->t->rank) return put_element(f, j);
    if (!json_is_array(j)) {
        char got[100];
        element_json_text(j, got, sizeof got);
        return error_set(f->err, CHURON_INVALID,
                         "input '%s': expected lists of the same depth, got %s beside a list", f->name, got);
    }
    if (json_array_size(j) != (size_t)f->t->dims[level]) {
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

static status tensor_from_b64(const json_t *j, const char *name, elem type, tensor *out, error *err) {
    const json_t *text = json_object_get(j, "b64"), *shape = json_object_get(j, "shape");
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = json_array_size(shape), count;
    if (!json_is_string(text) || !json_is_array(shape) || rank > TENSOR_MAX_RANK || type == ELEM_STRING ||
        json_object_size(j) != 2) {
        return error_set(
            err, CHURON_INVALID,
            "input '%s': expected {\"b64\": text, \"shape\": [...]} of numbers, got another object", name);
    }
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(shape, i);
        dims[i] = json_is_integer(d) ? json_integer_value(d) : -1; /* refused with the negative ones */
    }
    TRY(tensor_count(type, rank, dims, &count, name, err));
    str bytes = {0};
    bool good = base64_decode(json_string_value(text), json_string_length(text), &bytes);
    status st = str_check(&bytes, err);
    if (st == CHURON_OK && !good)
        st = error_set(err, CHURON_INVALID,
                       "input '%s': expected base64, got a character or padding that is none", name);
    if (st == CHURON_OK && bytes.len != elem_file_bytes(type, count)) {
        st = error_set(err, CHURON_INVALID, "input '%s': expected %zu bytes in base64, got %zu", name,
                       elem_file_bytes(type, count), bytes.len);
    }
    for (size_t i = 0; st == CHURON_OK && type == ELEM_BOOL && i < count; i++) {
        if ((unsigned char)bytes.data[i] > 1)
            st = error_set(err, CHURON_INVALID, "input '%s': element %zu: expected 0 or 1 (bool), got %u",
                           name, i, (unsigned char)bytes.data[i]);
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
    char what[200];
    snprintf(what, sizeof what, "input '%.180s'", name);
    status st = element_convert(t, type->type, out.data, what, err);
    if (st != CHURON_OK) {
        tensor_free(&out);
        return st;
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
                         element_json_kind(json));
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
                         element_json_kind(json));
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
    const char *file = json_object_size(json) == 1 ? json_string_value(json_object_get(json, "file")) : NULL;
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
    TRY(json_is_object(json) ? tensor_from_b64(json, name, type->type, &t, err)
                             : tensor_from_lists(json, name, type->type, &t, err));
    *out = value_of_tensor(t);
    return CHURON_OK;
}

status record_inputs(const json_t *json, const graph *g, const char *folder, value *inputs, error *err) {
    if (!json_is_object(json))
        return error_set(err, CHURON_INVALID, "record: expected an object of inputs, got %s",
                         element_json_kind(json));
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
        if (inputs[i].kind != VALUE_NONE) { /* from a file */
            if (!given) continue;
            return error_set(err, CHURON_INVALID, "input '%s': expected it once, got --input and the record",
                             p.name);
        }
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
