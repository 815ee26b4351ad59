/* ml_feature.c: operators that change columns: ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer,
 * Normalizer, Scaler. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

static size_t last_dim(const tensor *t) {
    return t->rank ? (size_t)t->dims[t->rank - 1] : 1;
}

/* ---- ArrayFeatureExtractor -------------------------------------------------------------------------- */

static status extract_infer(op_shapes *s, error *err) {
    size_t rank, rank_y;
    const dim *x, *y;
    if (!shapes_in(s, 0, &rank, &x) || !shapes_in(s, 1, &rank_y, &y)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank == 0) return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected 1 dimension or more");
    dim out[TENSOR_MAX_RANK + 1], n = 1;
    for (size_t i = 0; i < rank_y; i++) n = dim_mul(s, n, y[i]);
    size_t k = 0;
    if (rank == 1) out[k++] = 1;
    for (size_t i = 0; i + 1 < rank; i++) out[k++] = x[i];
    out[k++] = n;
    return shapes_out(s, 0, k, out, err);
}

static status extract_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *y = run_in(r, 1);
    tensor *z;
    TRY(run_out(r, 0, &z, err));
    size_t width = last_dim(x), n = y->count, bytes = elem_describe(x->type)->bytes;
    const int64_t *at = y->data;
    for (size_t i = 0; i < n; i++) {
        if (at[i] < 0 || (uint64_t)at[i] >= width) {
            return run_error(r, err, CHURON_INVALID, "Y[%zu]: expected a column of 0 to %lld, got %lld", i,
                             (long long)width - 1, (long long)at[i]);
        }
    }
    for (size_t row = 0; n && row < z->count / n; row++) {
        for (size_t i = 0; i < n; i++) {
            size_t from = row * width + (size_t)at[i], to = row * n + i;
            if (x->type == ELEM_STRING) {
                const tensor_string *v = (const tensor_string *)x->data + from;
                TRY(tensor_string_set(z, to, v->data, v->len, err));
            } else {
                memcpy((char *)z->data + to * bytes, (const char *)x->data + from * bytes, bytes);
            }
        }
    }
    return CHURON_OK;
}

/* ---- Binarizer -------------------------------------------------------------------------------------- */

typedef struct binarizer {
    float threshold;
} binarizer;

static status binarizer_prepare(op_node *n, error *err) {
    binarizer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_float(n, "threshold", 0, &st->threshold, err);
}

static status binarizer_run(op_run *r, error *err) {
    const binarizer *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    size_t bytes = elem_describe(x->type)->bytes;
    for (size_t i = 0; i < x->count; i++) {
        double v = real_at(x, i) > (double)st->threshold ? 1 : 0;
        elem_from_f64(y->type, &v, (char *)y->data + i * bytes, 1, false);
    }
    return CHURON_OK;
}

/* ---- FeatureVectorizer: X1, X2, … side by side, each cut or padded to its width ---------------------- */

typedef struct vectorizer {
    const int64_t *widths;
    size_t n;
} vectorizer;

static status vectorizer_prepare(op_node *n, error *err) {
    vectorizer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_ints(n, "inputdimensions", &st->widths, &st->n, err));
    if (st->n && st->n != op_n_inputs(n)) {
        return op_error(n, err, CHURON_INVALID, "attribute 'inputdimensions': expected %zu values, got %zu",
                        op_n_inputs(n), st->n);
    }
    for (size_t i = 0; i < st->n; i++) {
        if (st->widths[i] < 0 || st->widths[i] > INT32_MAX) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'inputdimensions'[%zu]: expected 0 or more, got %lld", i,
                            (long long)st->widths[i]);
        }
    }
    return CHURON_OK;
}

static status vectorizer_infer(op_shapes *s, error *err) {
    const vectorizer *st = shapes_state(s);
    dim out[2] = {0, 0};
    bool any = false, all = true;
    for (size_t i = 0; i < op_n_inputs(shapes_node(s)); i++) {
        size_t rank;
        const dim *x;
        bool known;
        TRY(nn_rank(s, i, 1, 2, "an input", &known, &rank, &x, err));
        if (!known && !st->n) all = false;
        if (st->n || known) out[1] = dim_add(s, out[1], st->n ? st->widths[i] : x[rank - 1]);
        if (!known) continue;
        dim rows = rank == 2 ? x[0] : 1;
        if (any) TRY(shapes_same(s, out[0], rows, "rows of the inputs", &out[0], err));
        if (!any) out[0] = rows;
        any = true;
    }
    if (!any) out[0] = dim_fresh(s);
    if (!all) out[1] = dim_fresh(s);
    return shapes_out(s, 0, 2, out, err);
}

static status vectorizer_run(op_run *r, error *err) {
    const vectorizer *st = run_state(r);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    size_t total = (size_t)y->dims[1], at = 0;
    float *out = y->data;
    for (size_t i = 0; i < op_n_inputs(run_node(r)); i++) {
        const tensor *x = run_in(r, i);
        size_t n, c, width;
        ml_rows_of(x, &n, &c);
        width = st->n ? (size_t)st->widths[i] : c;
        for (size_t row = 0; row < n; row++) {
            for (size_t k = 0; k < width; k++) {
                out[row * total + at + k] = k < c ? (float)real_at(x, row * c + k) : 0;
            }
        }
        at += width;
    }
    return CHURON_OK;
}

/* ---- Imputer ---------------------------------------------------------------------------------------- */

typedef struct imputer {
    const float *floats;
    const int64_t *ints;
    size_t n;
    float missing_float;
    int64_t missing_int;
} imputer;

static status imputer_prepare(op_node *n, error *err) {
    imputer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    size_t n_floats, n_ints;
    TRY(op_attr_floats(n, "imputed_value_floats", &st->floats, &n_floats, err));
    TRY(op_attr_ints(n, "imputed_value_int64s", &st->ints, &n_ints, err));
    TRY(op_attr_float(n, "replaced_value_float", 0, &st->missing_float, err));
    TRY(op_attr_int(n, "replaced_value_int64", 0, INT64_MIN, INT64_MAX, &st->missing_int, err));
    elem e = op_input_type(n, 0);
    bool whole = e == ELEM_I64 || e == ELEM_I32;
    st->n = whole ? n_ints : n_floats;
    if (st->n) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "attribute '%s': expected values for an input of %s, got none",
                    whole ? "imputed_value_int64s" : "imputed_value_floats", elem_name(e));
}

static status imputer_infer(op_shapes *s, error *err) {
    const imputer *st = shapes_state(s);
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    if (known && st->n != 1 && dim_known(c) && (size_t)c != st->n) {
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected %zu columns, got %lld", st->n,
                        (long long)c);
    }
    return infer_same(s, err);
}

static status imputer_run(op_run *r, error *err) {
    const imputer *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (x->type == ELEM_I64 || x->type == ELEM_I32) {
        for (size_t i = 0; i < x->count; i++) {
            int64_t v = int_at(x, i), put = v == st->missing_int ? st->ints[i % st->n] : v;
            if (y->type == ELEM_I64) ((int64_t *)y->data)[i] = put;
            if (y->type == ELEM_I32) ((int32_t *)y->data)[i] = (int32_t)put;
        }
        return CHURON_OK;
    }
    bool nan = st->missing_float != st->missing_float;
    for (size_t i = 0; i < x->count; i++) {
        double v = real_at(x, i);
        bool missing = nan ? v != v : v == (double)st->missing_float;
        double put = missing ? (double)st->floats[i % st->n] : v;
        if (y->type == ELEM_F64) ((double *)y->data)[i] = put;
        if (y->type == ELEM_F32) ((float *)y->data)[i] = (float)put;
    }
    return CHURON_OK;
}

/* ---- Normalizer ------------------------------------------------------------------------------------- */

typedef struct normalizer {
    int norm;
} normalizer;

enum { NORM_MAX, NORM_L1, NORM_L2 };

static status normalizer_prepare(op_node *n, error *err) {
    static const char *const names[] = {"MAX", "L1", "L2", NULL};
    normalizer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_choice(n, "norm", names, NORM_MAX, &st->norm, err);
}

static status normalizer_infer(op_shapes *s, error *err) {
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    return infer_same(s, err);
}

static status normalizer_run(op_run *r, error *err) {
    const normalizer *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    size_t n, c;
    TRY(run_out(r, 0, &y, err));
    ml_rows_of(x, &n, &c);
    for (size_t row = 0; row < n; row++) {
        double norm = 0;
        for (size_t i = 0; i < c; i++) {
            double v = fabs(real_at(x, row * c + i));
            if (st->norm == NORM_MAX) {
                norm = v > norm || v != v ? v : norm;
            } else {
                norm += st->norm == NORM_L1 ? v : v * v;
            }
        }
        if (st->norm == NORM_L2) norm = sqrt(norm);
        if (norm == 0) norm = 1;
        for (size_t i = 0; i < c; i++) {
            ((float *)y->data)[row * c + i] = (float)(real_at(x, row * c + i) / norm);
        }
    }
    return CHURON_OK;
}

/* ---- Scaler: (x - offset) * scale ------------------------------------------------------------------- */

typedef struct scaler {
    const float *offset, *scale;
    size_t n_offset, n_scale;
} scaler;

static status scaler_prepare(op_node *n, error *err) {
    scaler *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_floats(n, "offset", &st->offset, &st->n_offset, err));
    return op_attr_floats(n, "scale", &st->scale, &st->n_scale, err);
}

static status check_columns(const op_node *n, const char *name, size_t count, dim columns, error *err) {
    if (count <= 1 || !dim_known(columns) || (size_t)columns == count) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "attribute '%s': expected 1 or %lld values, got %zu", name,
                    (long long)columns, count);
}

static status scaler_infer(op_shapes *s, error *err) {
    const scaler *st = shapes_state(s);
    size_t rank;
    const dim *x;
    if (shapes_in(s, 0, &rank, &x)) {
        dim c = rank ? x[rank - 1] : 1;
        TRY(check_columns(shapes_node(s), "offset", st->n_offset, c, err));
        TRY(check_columns(shapes_node(s), "scale", st->n_scale, c, err));
    }
    return infer_same(s, err);
}

static status scaler_run(op_run *r, error *err) {
    const scaler *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    float *out = y->data;
    size_t c = last_dim(x);
    for (size_t i = 0; i < x->count;) {
        for (size_t k = 0; k < c; k++, i++) {
            double v = x->type == ELEM_F32 ? (double)((const float *)x->data)[i] : real_at(x, i);
            if (st->n_offset) v -= (double)st->offset[st->n_offset == 1 ? 0 : k];
            if (st->n_scale) v *= (double)st->scale[st->n_scale == 1 ? 0 : k];
            out[i] = (float)v;
        }
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "ArrayFeatureExtractor",
     .since = 1,
     .signature = "Ti>T",
     .vars = {{'T', ML_NUMBERS | ELEM_BIT(ELEM_STRING)}},
     .infer = extract_infer,
     .run = extract_run},
    {.domain = ML_DOMAIN,
     .name = "Binarizer",
     .since = 1,
     .flags = OP_INPLACE,
     .signature = "T>T",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = binarizer_prepare,
     .release = mem_free,
     .infer = infer_same,
     .run = binarizer_run},
    {.domain = ML_DOMAIN,
     .name = "FeatureVectorizer",
     .since = 1,
     .signature = "T+>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = vectorizer_prepare,
     .release = mem_free,
     .infer = vectorizer_infer,
     .run = vectorizer_run},
    {.domain = ML_DOMAIN,
     .name = "Imputer",
     .since = 1,
     .flags = OP_INPLACE,
     .signature = "T>T",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = imputer_prepare,
     .release = mem_free,
     .infer = imputer_infer,
     .run = imputer_run},
    {.domain = ML_DOMAIN,
     .name = "Normalizer",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = normalizer_prepare,
     .release = mem_free,
     .infer = normalizer_infer,
     .run = normalizer_run},
    {.domain = ML_DOMAIN,
     .name = "Scaler",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = scaler_prepare,
     .release = mem_free,
     .infer = scaler_infer,
     .run = scaler_run},
};

NN_TABLE(ml_feature);
