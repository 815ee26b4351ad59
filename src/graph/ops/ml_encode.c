/* ml_encode.c: keys to values: LabelEncoder of all versions, CategoryMapper, OneHotEncoder. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

typedef struct encoder {
    ml_map map;
    elem key_type, type; /* of values */
    const void *values;  /* numbers of `type`, or onnx_bytes, or tensor_string */
    bool tensor_strings; /* which of the two */
    size_t n;
    uint64_t number; /* the default: bytes of `type` */
    tensor_string text;
} encoder;

static void encoder_release(void *state) {
    encoder *st = state;
    if (st) ml_map_free(&st->map);
    mem_free(st);
}

/* ---- keys and values of LabelEncoder ---------------------------------------------------------------- */

/* A list that came as one of several attributes. */
typedef struct list {
    const char *name; /* NULL: none came */
    elem type;
    const void *data; /* of strings: onnx_bytes, or tensor_string if it came as a tensor */
    bool is_tensor;
    size_t n;
} list;

static status take_list(const op_node *n, list *l, const char *name, elem type, const void *data,
                        size_t count, bool is_tensor, error *err) {
    if (!data || (count == 0 && !is_tensor)) return CHURON_OK;
    if (l->name) {
        return op_error(n, err, CHURON_INVALID, "expected one of the attributes '%s' and '%s', got both",
                        l->name, name);
    }
    *l = (list){name, type, data, is_tensor, count};
    return CHURON_OK;
}

static status read_list(op_node *n, const char *floats, const char *ints, const char *strings,
                        const char *tensors, list *out, error *err) {
    const float *f;
    const int64_t *i;
    const onnx_bytes *s;
    const tensor *t = NULL;
    size_t count;
    *out = (list){0};
    TRY(op_attr_floats(n, floats, &f, &count, err));
    TRY(take_list(n, out, floats, ELEM_F32, f, count, false, err));
    TRY(op_attr_ints(n, ints, &i, &count, err));
    TRY(take_list(n, out, ints, ELEM_I64, i, count, false, err));
    TRY(op_attr_strings(n, strings, &s, &count, err));
    TRY(take_list(n, out, strings, ELEM_STRING, s, count, false, err));
    if (tensors) TRY(op_attr_tensor(n, tensors, &t, err));
    if (t) TRY(take_list(n, out, tensors, t->type, t->data, t->count, true, err));
    if (out->name) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "expected one of the attributes '%s', '%s', '%s'%s%s%s, got none",
                    floats, ints, strings, tensors ? ", '" : "", tensors ? tensors : "", tensors ? "'" : "");
}

static status strings_of_tensor(const list *l, onnx_bytes **out, error *err) {
    const tensor_string *s = l->data;
    *out = mem_alloc(l->n * sizeof **out);
    if (!*out) return error_no_memory(err, "keys", l->n * sizeof **out);
    for (size_t i = 0; i < l->n; i++) (*out)[i] = (onnx_bytes){s[i].data, s[i].len};
    return CHURON_OK;
}

static status fill_map(ml_map *map, const list *keys, error *err) {
    if (keys->type == ELEM_STRING && !keys->is_tensor) return ml_map_strings(map, keys->data, keys->n, err);
    if (keys->type == ELEM_STRING) {
        onnx_bytes *copy;
        TRY(strings_of_tensor(keys, &copy, err));
        status st = ml_map_strings(map, copy, keys->n, err);
        map->numbers = (uint64_t *)(void *)copy; /* freed with the map, which reads it as strings */
        return st;
    }
    uint64_t *numbers = mem_alloc(keys->n * sizeof *numbers);
    if (!numbers) return error_no_memory(err, "keys", keys->n * sizeof *numbers);
    tensor t = tensor_borrow(keys->type, 1, &(int64_t){(int64_t)keys->n}, (void *)(uintptr_t)keys->data);
    for (size_t i = 0; i < keys->n; i++) numbers[i] = ml_key_of(&t, i);
    status st = ml_map_numbers(map, numbers, keys->n, err);
    mem_free(numbers);
    return st;
}

static void set_number(encoder *st, const void *bytes, size_t n) {
    memcpy(&st->number, bytes, n);
}

static status read_default(op_node *n, encoder *st, error *err) {
    const char *text;
    float f;
    int64_t i;
    const tensor *t = NULL;
    TRY(op_attr_string(n, "default_string", "_Unused", &text, err));
    TRY(op_attr_float(n, "default_float", -0.0f, &f, err));
    TRY(op_attr_int(n, "default_int64", -1, INT64_MIN, INT64_MAX, &i, err));
    if (op_version(n) >= 4) TRY(op_attr_tensor(n, "default_tensor", &t, err));
    st->text = (tensor_string){text, strlen(text)};
    if (t) {
        if (t->type != st->type || t->count != 1) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'default_tensor': expected one value of %s, got %zu of %s",
                            elem_name(st->type), t->count, elem_name(t->type));
        }
        if (t->type == ELEM_STRING) {
            st->text = *(const tensor_string *)t->data;
        } else {
            set_number(st, t->data, elem_describe(t->type)->bytes);
        }
        return CHURON_OK;
    }
    double d = (double)f;
    int32_t i32 = (int32_t)i;
    int16_t i16 = (int16_t)i;
    switch (st->type) {
    case ELEM_F32: set_number(st, &f, sizeof f); break;
    case ELEM_F64: set_number(st, &d, sizeof d); break;
    case ELEM_I32: set_number(st, &i32, sizeof i32); break;
    case ELEM_I16: set_number(st, &i16, sizeof i16); break;
    case ELEM_I64: set_number(st, &i, sizeof i); break;
    default: break;
    }
    return CHURON_OK;
}

static status check_key_type(const op_node *n, elem keys, error *err) {
    elem x = op_input_type(n, 0);
    if (x == keys) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "X: expected %s as the keys are, got %s", elem_name(keys),
                    elem_name(x));
}

static status encoder_prepare(op_node *n, error *err) {
    encoder *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    bool tensors = op_version(n) >= 4;
    list keys, values;
    TRY(read_list(n, "keys_floats", "keys_int64s", "keys_strings", tensors ? "keys_tensor" : NULL, &keys,
                  err));
    TRY(read_list(n, "values_floats", "values_int64s", "values_strings", tensors ? "values_tensor" : NULL,
                  &values, err));
    TRY(check_key_type(n, keys.type, err));
    if (keys.n != values.n) {
        return op_error(n, err, CHURON_INVALID, "attribute '%s': expected %zu values as '%s' has, got %zu",
                        values.name, keys.n, keys.name, values.n);
    }
    switch (values.type) {
    case ELEM_F32:
    case ELEM_F64:
    case ELEM_I16:
    case ELEM_I32:
    case ELEM_I64:
    case ELEM_STRING: break;
    default:
        return op_error(n, err, CHURON_INVALID, "attribute '%s': expected numbers or strings, got %s",
                        values.name, elem_name(values.type));
    }
    st->key_type = keys.type;
    st->type = values.type;
    st->values = values.data;
    st->tensor_strings = values.is_tensor;
    st->n = values.n;
    TRY(read_default(n, st, err));
    return fill_map(&st->map, &keys, err);
}

/* Strings to numbers or back, by an input's type: LabelEncoder 1 and CategoryMapper. */
static status two_way(op_node *n, const onnx_bytes *strings, const int64_t *ints, size_t count, error *err) {
    encoder *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->key_type = op_input_type(n, 0);
    st->type = st->key_type == ELEM_STRING ? ELEM_I64 : ELEM_STRING;
    st->n = count;
    st->values = st->key_type == ELEM_STRING ? (const void *)ints : (const void *)strings;
    TRY(read_default(n, st, err));
    if (st->key_type == ELEM_STRING) return ml_map_strings(&st->map, strings, count, err);
    uint64_t *keys = mem_alloc(count * sizeof *keys);
    if (!keys) return error_no_memory(err, "keys", count * sizeof *keys);
    for (size_t i = 0; i < count; i++) keys[i] = ints ? ml_key_int(ints[i]) : i;
    status done = ml_map_numbers(&st->map, keys, count, err);
    mem_free(keys);
    return done;
}

static status encoder_1_prepare(op_node *n, error *err) {
    const onnx_bytes *classes;
    size_t count;
    TRY(op_attr_strings(n, "classes_strings", &classes, &count, err));
    return two_way(n, classes, NULL, count, err);
}

static status mapper_prepare(op_node *n, error *err) {
    const onnx_bytes *strings;
    const int64_t *ints;
    size_t n_strings, n_ints;
    TRY(op_attr_strings(n, "cats_strings", &strings, &n_strings, err));
    TRY(op_attr_ints(n, "cats_int64s", &ints, &n_ints, err));
    if (n_strings != n_ints) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute 'cats_strings': expected %zu values as 'cats_int64s' has, got %zu", n_ints,
                        n_strings);
    }
    return two_way(n, strings, ints, n_strings, err);
}

static status encoder_infer(op_shapes *s, error *err) {
    const encoder *st = shapes_state(s);
    shapes_out_type(s, 0, st->type);
    return infer_same(s, err);
}

static size_t find(const ml_map *map, const tensor *x, size_t i) {
    if (x->type != ELEM_STRING) return ml_map_number(map, ml_key_of(x, i));
    const tensor_string *s = (const tensor_string *)x->data + i;
    return ml_map_string(map, s->data, s->len);
}

static status put(const encoder *st, tensor *y, size_t i, size_t found, error *err) {
    if (st->type == ELEM_STRING) {
        tensor_string s = st->text;
        if (found != SIZE_MAX && st->tensor_strings) s = ((const tensor_string *)st->values)[found];
        if (found != SIZE_MAX && !st->tensor_strings) {
            const onnx_bytes *b = (const onnx_bytes *)st->values + found;
            s = (tensor_string){b->data, b->len};
        }
        return tensor_string_set(y, i, s.data, s.len, err);
    }
    size_t bytes = elem_describe(st->type)->bytes;
    const void *from = &st->number;
    int64_t position = (int64_t)found;
    if (found != SIZE_MAX) {
        from =
            st->values ? (const void *)((const char *)st->values + found * bytes) : (const void *)&position;
    }
    memcpy((char *)y->data + i * bytes, from, bytes);
    return CHURON_OK;
}

static status encoder_run(op_run *r, error *err) {
    const encoder *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    for (size_t i = 0; i < x->count; i++) TRY(put(st, y, i, find(&st->map, x, i), err));
    return CHURON_OK;
}

/* ---- OneHotEncoder ---------------------------------------------------------------------------------- */

typedef struct one_hot {
    ml_map map;
    bool zeros; /* an unknown category is a row of zeros, else an error */
} one_hot;

static void one_hot_release(void *state) {
    one_hot *st = state;
    if (st) ml_map_free(&st->map);
    mem_free(st);
}

static status one_hot_prepare(op_node *n, error *err) {
    one_hot *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const onnx_bytes *strings;
    const int64_t *ints;
    size_t n_strings, n_ints;
    TRY(op_attr_bool(n, "zeros", true, &st->zeros, err));
    TRY(op_attr_strings(n, "cats_strings", &strings, &n_strings, err));
    TRY(op_attr_ints(n, "cats_int64s", &ints, &n_ints, err));
    bool text = op_input_type(n, 0) == ELEM_STRING;
    if ((text ? n_strings : n_ints) == 0) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute '%s': expected categories for an input of %s, got none",
                        text ? "cats_strings" : "cats_int64s", elem_name(op_input_type(n, 0)));
    }
    if (text) return ml_map_strings(&st->map, strings, n_strings, err);
    uint64_t *keys = mem_alloc(n_ints * sizeof *keys);
    if (!keys) return error_no_memory(err, "keys", n_ints * sizeof *keys);
    for (size_t i = 0; i < n_ints; i++) keys[i] = ml_key_int(ints[i]);
    status done = ml_map_numbers(&st->map, keys, n_ints, err);
    mem_free(keys);
    return done;
}

static status one_hot_infer(op_shapes *s, error *err) {
    const one_hot *st = shapes_state(s);
    size_t rank;
    const dim *x;
    dim out[TENSOR_MAX_RANK + 1];
    if (!shapes_in(s, 0, &rank, &x)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    memcpy(out, x, rank * sizeof *x);
    out[rank] = (dim)st->map.n;
    return shapes_out(s, 0, rank + 1, out, err);
}

/* Position of the category, SIZE_MAX if there is none. A number that is not whole is no category. */
static size_t category(const one_hot *st, const tensor *x, size_t i) {
    if (x->type == ELEM_STRING || x->type == ELEM_I64) return find(&st->map, x, i);
    double v = real_at(x, i);
    if (!(v >= -0x1p63 && v < 0x1p63) || v != floor(v)) return SIZE_MAX;
    return ml_map_number(&st->map, ml_key_int((int64_t)v));
}

static status one_hot_run(op_run *r, error *err) {
    const one_hot *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    float *out = y->data;
    size_t n = st->map.n;
    memset(out, 0, y->count * sizeof *out);
    for (size_t i = 0; i < x->count; i++) {
        size_t c = category(st, x, i);
        if (c != SIZE_MAX) {
            out[i * n + c] = 1;
        } else if (!st->zeros) {
            return run_error(r, err, CHURON_INVALID,
                             "X[%zu]: expected one of %zu categories (attribute 'zeros' is 0), got another",
                             i, n);
        }
    }
    return CHURON_OK;
}

#define LABEL_TYPES (ELEM_BIT(ELEM_STRING) | ELEM_BIT(ELEM_I64))

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "LabelEncoder",
     .since = 1,
     .until = 1,
     .signature = "T>@",
     .vars = {{'T', LABEL_TYPES}},
     .prepare = encoder_1_prepare,
     .release = encoder_release,
     .infer = encoder_infer,
     .run = encoder_run},
    {.domain = ML_DOMAIN,
     .name = "LabelEncoder",
     .since = 2,
     .until = 3,
     .signature = "T>@",
     .vars = {{'T', LABEL_TYPES | ELEM_BIT(ELEM_F32)}},
     .prepare = encoder_prepare,
     .release = encoder_release,
     .infer = encoder_infer,
     .run = encoder_run},
    {.domain = ML_DOMAIN,
     .name = "LabelEncoder",
     .since = 4,
     .signature = "T>@",
     .vars = {{'T', ML_NUMBERS | ELEM_BIT(ELEM_STRING) | ELEM_BIT(ELEM_I16)}},
     .prepare = encoder_prepare,
     .release = encoder_release,
     .infer = encoder_infer,
     .run = encoder_run},
    {.domain = ML_DOMAIN,
     .name = "CategoryMapper",
     .since = 1,
     .signature = "T>@",
     .vars = {{'T', LABEL_TYPES}},
     .prepare = mapper_prepare,
     .release = encoder_release,
     .infer = encoder_infer,
     .run = encoder_run},
    {.domain = ML_DOMAIN,
     .name = "OneHotEncoder",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS | ELEM_BIT(ELEM_STRING)}},
     .prepare = one_hot_prepare,
     .release = one_hot_release,
     .infer = one_hot_infer,
     .run = one_hot_run},
};

NN_TABLE(ml_encode);
