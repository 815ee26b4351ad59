/* ml_maps.c: operators on maps: ZipMap, DictVectorizer, CastMap. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ZipMap: rows of scores to maps from labels to scores ------------------------------------------- */

typedef struct zipmap {
    tensor keys; /* shared by every map */
} zipmap;

static void zipmap_release(void *state) {
    zipmap *st = state;
    if (st) tensor_free(&st->keys);
    mem_free(st);
}

static status zipmap_prepare(op_node *n, error *err) {
    zipmap *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    ml_labels l;
    TRY(ml_labels_read(n, "classlabels_int64s", "classlabels_strings", &l, err));
    if (l.n == 0) {
        return op_error(
            n, err, CHURON_INVALID,
            "expected one of the attributes 'classlabels_int64s' and 'classlabels_strings', got none");
    }
    TRY(tensor_alloc(&st->keys, ml_labels_type(&l), 1, &(int64_t){(int64_t)l.n}, err));
    for (size_t i = 0; i < l.n; i++) TRY(ml_label_set(&l, &st->keys, i, i, err));
    return CHURON_OK;
}

static status zipmap_infer(op_shapes *s, error *err) {
    const zipmap *st = shapes_state(s);
    static const onnx_type scores = {.kind = ONNX_TENSOR, .type = ELEM_F32, .has_shape = true};
    onnx_type map = {.kind = ONNX_MAP, .type = st->keys.type, .of = &scores};
    onnx_type list = {.kind = ONNX_SEQUENCE, .of = &map};
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    if (known && dim_known(c) && (size_t)c != st->keys.count) {
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "X: expected %zu columns for as many labels, got %lld", st->keys.count, (long long)c);
    }
    return shapes_out_value_type(s, 0, &list, err);
}

/* A map of one row, whose scores are a part of the block `scores`. */
static status zip_row(const zipmap *st, const tensor *scores, size_t row, value *out, error *err) {
    size_t c = st->keys.count;
    TRY(value_list_create(out, VALUE_MAP, 1, err));
    out->t = tensor_share(&st->keys);
    tensor part = tensor_share(scores);
    part.rank = 1;
    part.dims[0] = (int64_t)c;
    part.count = c;
    part.data = (float *)scores->data + row * c;
    *value_item(out, 0) = value_of_tensor(part);
    return CHURON_OK;
}

static status zipmap_run(op_run *r, error *err) {
    const zipmap *st = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t n, c;
    tensor scores;
    value list;
    ml_rows_of(x, &n, &c);
    TRY(tensor_alloc(&scores, ELEM_F32, 2, (int64_t[]){(int64_t)n, (int64_t)c}, err));
    if (x->count) memcpy(scores.data, x->data, tensor_bytes(x));
    status done = value_list_create(&list, VALUE_SEQUENCE, n, err);
    for (size_t row = 0; row < n && done == CHURON_OK; row++) {
        done = zip_row(st, &scores, row, value_item(&list, row), err);
    }
    tensor_free(&scores);
    if (done != CHURON_OK) {
        value_free(&list);
        return done;
    }
    run_out_value(r, 0, list);
    return CHURON_OK;
}

/* ---- inputs that are maps --------------------------------------------------------------------------- */

/* Types of keys and values of input 0, which must be a map to tensors. */
static status map_type(op_shapes *s, elem *key, elem *of, error *err) {
    const onnx_type *t;
    TRY(shapes_in_value_type(s, 0, &t, err));
    if (t->kind != ONNX_MAP || !t->of || t->of->kind != ONNX_TENSOR) {
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected a map to numbers or strings");
    }
    *key = t->type;
    *of = t->of->type;
    return CHURON_OK;
}

/* Keys and values of a map at run time, checked against the types that were inferred. */
static status map_parts(op_run *r, const tensor **keys, const tensor **values, error *err) {
    const value *v = run_in_value(r, 0);
    const value *item = v && v->kind == VALUE_MAP ? value_item(v, 0) : NULL;
    if (!item || item->kind != VALUE_TENSOR || item->t.count != v->t.count) {
        return run_error(r, err, CHURON_INVALID, "X: expected a map to numbers or strings");
    }
    *keys = &v->t;
    *values = &item->t;
    return CHURON_OK;
}

/* ---- DictVectorizer --------------------------------------------------------------------------------- */

typedef struct dict_vectorizer {
    ml_map map;
    ml_labels vocabulary;
} dict_vectorizer;

static void dict_release(void *state) {
    dict_vectorizer *st = state;
    if (st) ml_map_free(&st->map);
    mem_free(st);
}

static status dict_prepare(op_node *n, error *err) {
    dict_vectorizer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    ml_labels *l = &st->vocabulary;
    TRY(ml_labels_read(n, "int64_vocabulary", "string_vocabulary", l, err));
    if (l->n == 0) {
        return op_error(
            n, err, CHURON_INVALID,
            "expected one of the attributes 'int64_vocabulary' and 'string_vocabulary', got none");
    }
    if (l->strings) return ml_map_strings(&st->map, l->strings, l->n, err);
    uint64_t *keys = mem_alloc(l->n * sizeof *keys);
    if (!keys) return error_no_memory(err, "keys", l->n * sizeof *keys);
    for (size_t i = 0; i < l->n; i++) keys[i] = ml_key_int(l->ints[i]);
    status done = ml_map_numbers(&st->map, keys, l->n, err);
    mem_free(keys);
    return done;
}

static status dict_infer(op_shapes *s, error *err) {
    const dict_vectorizer *st = shapes_state(s);
    elem key = ELEM_NONE, of = ELEM_NONE;
    TRY(map_type(s, &key, &of, err));
    if (key != ml_labels_type(&st->vocabulary)) {
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "X: expected keys of %s as the vocabulary, got %s",
                        elem_name(ml_labels_type(&st->vocabulary)), elem_name(key));
    }
    shapes_out_type(s, 0, of);
    return shapes_out(s, 0, 2, (dim[]){1, (dim)st->vocabulary.n}, err);
}

static status dict_run(op_run *r, error *err) {
    const dict_vectorizer *st = run_state(r);
    const tensor *keys = NULL, *values = NULL;
    tensor *y;
    TRY(map_parts(r, &keys, &values, err));
    TRY(run_out(r, 0, &y, err));
    if (values->type != y->type || keys->type != ml_labels_type(&st->vocabulary)) {
        return run_error(r, err, CHURON_INVALID, "X: expected values of %s, got %s", elem_name(y->type),
                         elem_name(values->type));
    }
    size_t bytes = elem_describe(y->type)->bytes;
    if (y->type != ELEM_STRING) memset(y->data, 0, tensor_bytes(y));
    for (size_t i = 0; i < keys->count; i++) {
        const tensor_string *k = keys->data;
        size_t at = keys->type == ELEM_STRING ? ml_map_string(&st->map, k[i].data, k[i].len)
                                              : ml_map_number(&st->map, ml_key_of(keys, i));
        if (at == SIZE_MAX) continue; /* not in the vocabulary: dropped */
        if (y->type == ELEM_STRING) {
            const tensor_string *v = (const tensor_string *)values->data + i;
            TRY(tensor_string_set(y, at, v->data, v->len, err));
        } else {
            memcpy((char *)y->data + at * bytes, (const char *)values->data + i * bytes, bytes);
        }
    }
    return CHURON_OK;
}

/* ---- CastMap: values of a map from int64, in the order of keys -------------------------------------- */

typedef struct cast_map {
    elem to;
    bool sparse; /* a value stands at the position that its key says */
    int64_t width;
} cast_map;

static status cast_prepare(op_node *n, error *err) {
    static const char *const casts[] = {"TO_FLOAT", "TO_STRING", "TO_INT64", NULL};
    static const char *const forms[] = {"DENSE", "SPARSE", NULL};
    static const elem types[] = {ELEM_F32, ELEM_STRING, ELEM_I64};
    cast_map *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int cast, form;
    TRY(op_attr_choice(n, "cast_to", casts, 0, &cast, err));
    TRY(op_attr_choice(n, "map_form", forms, 0, &form, err));
    TRY(op_attr_int(n, "max_map", 1, 1, (int64_t)1 << 31, &st->width, err));
    st->to = types[cast];
    st->sparse = form == 1;
    return CHURON_OK;
}

static status cast_infer(op_shapes *s, error *err) {
    const cast_map *st = shapes_state(s);
    elem key = ELEM_NONE, of = ELEM_NONE;
    TRY(map_type(s, &key, &of, err));
    if (key != ELEM_I64 || (of != ELEM_F32 && of != ELEM_STRING)) {
        return op_error(shapes_node(s), err, CHURON_INVALID,
                        "X: expected a map from int64 to float32 or string, got one from %s to %s",
                        elem_name(key), elem_name(of));
    }
    shapes_out_type(s, 0, st->to);
    return shapes_out(s, 0, 2, (dim[]){1, st->sparse ? st->width : dim_fresh(s)}, err);
}

static status parse_number(op_run *r, const tensor_string *s, elem to, void *out, error *err) {
    char text[64], *end = text;
    if (s->len > 0 && s->len < sizeof text) {
        memcpy(text, s->data, s->len);
        text[s->len] = '\0';
        if (to == ELEM_F32) *(float *)out = strtof(text, &end);
        if (to == ELEM_I64) *(int64_t *)out = strtoll(text, &end, 10);
    }
    if (end != text && end == text + s->len) return CHURON_OK;
    return run_error(r, err, CHURON_INVALID, "X: expected a number, got '%.*s'",
                     (int)(s->len < 40 ? s->len : 40), s->data);
}

static status cast_item(op_run *r, const tensor *values, size_t i, tensor *y, size_t at, error *err) {
    char text[64];
    if (values->type == ELEM_STRING) {
        const tensor_string *s = (const tensor_string *)values->data + i;
        if (y->type == ELEM_STRING) return tensor_string_set(y, at, s->data, s->len, err);
        return parse_number(r, s, y->type, (char *)y->data + at * elem_describe(y->type)->bytes, err);
    }
    float f = ((const float *)values->data)[i];
    double d = (double)f;
    if (y->type == ELEM_STRING) {
        int n = snprintf(text, sizeof text, "%f", d);
        return tensor_string_set(y, at, text, n > 0 && n < (int)sizeof text ? (size_t)n : 0, err);
    }
    elem_from_f64(y->type, &d, (char *)y->data + at * elem_describe(y->type)->bytes, 1, false);
    return CHURON_OK;
}

static int64_t key_at(const tensor *keys, size_t i) {
    return ((const int64_t *)keys->data)[i];
}

/* Positions of keys, ascending: a merge sort, `next` is as long as `order`. */
static void sort_keys(const tensor *keys, size_t *order, size_t *next, size_t n) {
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t mid = from + width < n ? from + width : n,
                   to = from + 2 * width < n ? from + 2 * width : n;
            size_t a = from, b = mid;
            for (size_t k = from; k < to; k++) {
                bool left = b == to || (a < mid && key_at(keys, order[a]) <= key_at(keys, order[b]));
                next[k] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, next, n * sizeof *order);
    }
}

static status cast_run(op_run *r, error *err) {
    const cast_map *st = run_state(r);
    const tensor *keys = NULL, *values = NULL;
    tensor *y;
    TRY(map_parts(r, &keys, &values, err));
    if (keys->type != ELEM_I64 || (values->type != ELEM_F32 && values->type != ELEM_STRING)) {
        return run_error(r, err, CHURON_INVALID, "X: expected a map from int64 to float32 or string");
    }
    if (!st->sparse) {
        void *order;
        size_t n = keys->count;
        TRY(run_scratch(r, 2 * n * sizeof(size_t), &order, err));
        size_t *sorted = order;
        sort_keys(keys, sorted, sorted + n, n);
        TRY(run_out_shaped(r, 0, st->to, 2, (int64_t[]){1, (int64_t)n}, &y, err));
        for (size_t i = 0; i < n; i++) TRY(cast_item(r, values, sorted[i], y, i, err));
        return CHURON_OK;
    }
    TRY(run_out(r, 0, &y, err));
    if (y->type != ELEM_STRING) memset(y->data, 0, tensor_bytes(y));
    for (size_t i = 0; i < keys->count; i++) {
        int64_t k = key_at(keys, i);
        if (k < 0 || k >= st->width) {
            return run_error(r, err, CHURON_INVALID, "X: expected keys of 0 to %" PRId64 ", got %" PRId64,
                             st->width - 1, k);
        }
        TRY(cast_item(r, values, i, y, (size_t)k, err));
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "ZipMap",
     .since = 1,
     .flags = OP_OWN_INFERENCE,
     .signature = "f>?",
     .prepare = zipmap_prepare,
     .release = zipmap_release,
     .infer = zipmap_infer,
     .run = zipmap_run},
    {.domain = ML_DOMAIN,
     .name = "DictVectorizer",
     .since = 1,
     .flags = OP_OWN_INFERENCE,
     .signature = "?>@",
     .prepare = dict_prepare,
     .release = dict_release,
     .infer = dict_infer,
     .run = dict_run},
    {.domain = ML_DOMAIN,
     .name = "CastMap",
     .since = 1,
     .flags = OP_OWN_INFERENCE,
     .signature = "?>@",
     .prepare = cast_prepare,
     .release = mem_free,
     .infer = cast_infer,
     .run = cast_run},
};

NN_TABLE(ml_maps);
