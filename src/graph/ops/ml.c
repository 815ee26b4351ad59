/* ml.c: see ml.h. */
#include "graph/ops/ml.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- look-up ---------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static uint64_t hash_bytes(const char *p, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c15u;
    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = mix(h ^ v);
        p += 8;
        n -= 8;
    }
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++) last |= (uint64_t)(uint8_t)p[i] << (8 * i);
    return mix(h ^ last);
}

static status make_slots(ml_map *m, size_t n, error *err) {
    *m = (ml_map){.n = n, .size = 8};
    if (n > UINT32_MAX / 4) return error_set(err, CHURON_LIMIT, "expected at most 2^30 keys, got %zu", n);
    while (m->size < 2 * n) m->size *= 2;
    m->slots = mem_calloc(m->size, sizeof *m->slots);
    return m->slots ? CHURON_OK : error_no_memory(err, "a table of keys", m->size * sizeof *m->slots);
}

static bool same_string(const onnx_bytes *key, const char *bytes, size_t n) {
    return key->len == n && (n == 0 || memcmp(key->data, bytes, n) == 0);
}

status ml_map_strings(ml_map *m, const onnx_bytes *keys, size_t n, error *err) {
    TRY(make_slots(m, n, err));
    m->strings = keys;
    for (size_t i = 0; i < n; i++) {
        size_t at = hash_bytes(keys[i].data, keys[i].len) & (m->size - 1);
        while (m->slots[at] && !same_string(&keys[m->slots[at] - 1], keys[i].data, keys[i].len)) {
            at = (at + 1) & (m->size - 1);
        }
        m->slots[at] = (uint32_t)i + 1;
    }
    return CHURON_OK;
}

status ml_map_numbers(ml_map *m, const uint64_t *keys, size_t n, error *err) {
    TRY(make_slots(m, n, err));
    m->numbers = mem_alloc(n * sizeof *keys);
    if (!m->numbers) return error_no_memory(err, "a table of keys", n * sizeof *keys);
    if (n) memcpy(m->numbers, keys, n * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        size_t at = mix(keys[i]) & (m->size - 1);
        while (m->slots[at] && keys[m->slots[at] - 1] != keys[i]) at = (at + 1) & (m->size - 1);
        m->slots[at] = (uint32_t)i + 1;
    }
    return CHURON_OK;
}

void ml_map_free(ml_map *m) {
    mem_free(m->slots);
    mem_free(m->numbers);
    *m = (ml_map){0};
}

size_t ml_map_string(const ml_map *m, const char *bytes, size_t n) {
    size_t at = hash_bytes(bytes, n) & (m->size - 1);
    for (; m->slots[at]; at = (at + 1) & (m->size - 1)) {
        if (same_string(&m->strings[m->slots[at] - 1], bytes, n)) return m->slots[at] - 1;
    }
    return SIZE_MAX;
}

size_t ml_map_number(const ml_map *m, uint64_t key) {
    size_t at = mix(key) & (m->size - 1);
    for (; m->slots[at]; at = (at + 1) & (m->size - 1)) {
        if (m->numbers[m->slots[at] - 1] == key) return m->slots[at] - 1;
    }
    return SIZE_MAX;
}

uint64_t ml_key_float(double v) {
    if (v != v) return 0x7ff8000000000000u;
    if (v == 0) return 0; /* the zeros are equal */
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

uint64_t ml_key_of(const tensor *t, size_t i) {
    if (t->type == ELEM_I64) return ml_key_int(((const int64_t *)t->data)[i]);
    double v = real_at(t, i);
    if (t->type == ELEM_F32 || t->type == ELEM_F64 || t->type == ELEM_F16 || t->type == ELEM_BF16) {
        return ml_key_float(v);
    }
    return ml_key_int((int64_t)v);
}

/* ---- labels of classes ------------------------------------------------------------------------------ */

status ml_labels_read(op_node *n, const char *ints, const char *strings, ml_labels *out, error *err) {
    size_t n_ints, n_strings;
    *out = (ml_labels){0};
    TRY(op_attr_ints(n, ints, &out->ints, &n_ints, err));
    TRY(op_attr_strings(n, strings, &out->strings, &n_strings, err));
    if (n_ints && n_strings) {
        return op_error(n, err, CHURON_INVALID, "expected one of the attributes '%s' and '%s', got both",
                        ints, strings);
    }
    if (!n_ints) out->ints = NULL;
    if (!n_strings) out->strings = NULL;
    out->n = n_ints + n_strings;
    return CHURON_OK;
}

elem ml_labels_type(const ml_labels *l) {
    return l->strings ? ELEM_STRING : ELEM_I64;
}

status ml_label_set(const ml_labels *l, tensor *t, size_t i, size_t c, error *err) {
    if (!l->strings) {
        ((int64_t *)t->data)[i] = l->ints && c < l->n ? l->ints[c] : (int64_t)c;
        return CHURON_OK;
    }
    if (c >= l->n) return tensor_string_set(t, i, "", 0, err);
    return tensor_string_set(t, i, l->strings[c].data, l->strings[c].len, err);
}

/* ---- scores ----------------------------------------------------------------------------------------- */

status ml_post_read(op_node *n, ml_post *out, error *err) {
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT", NULL};
    int i;
    TRY(op_attr_choice(n, "post_transform", names, 0, &i, err));
    *out = (ml_post)i;
    return CHURON_OK;
}

double ml_logistic(double x) {
    double v = 1 / (1 + exp(-fabs(x)));
    return x < 0 ? 1 - v : v;
}

/* The inverse of the normal distribution, by the approximation of erf's inverse that the standard's own
 * implementation uses (S. Winitzki, 2008): models were made to agree with it. */
static double probit(double p) {
    double x = 2 * p - 1, square = (1 - x) * (1 + x);
    if (square == 0) return 0;
    double l = log(square), v = 2 / (3.14159265358979323846 * 0.147) + 0.5 * l;
    return (x < 0 ? -1 : 1) * 1.41421356 * sqrt(-v + sqrt(v * v - l / 0.147));
}

static void softmax(double *s, size_t n, bool zeros_stay) {
    double max = s[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = s[i] > max ? s[i] : max;
    double shrink = exp(-max);
    for (size_t i = 0; i < n; i++) {
        bool zero = zeros_stay && fabs(s[i]) <= 1e-7;
        s[i] = zero ? s[i] * shrink : exp(s[i] - max);
        sum += s[i];
    }
    for (size_t i = 0; i < n; i++) s[i] = sum == 0 ? 0.5 : s[i] / sum;
}

void ml_post_apply(ml_post post, double *scores, size_t n) {
    if (n == 0) return;
    switch (post) {
    case ML_NONE: break;
    case ML_SOFTMAX: softmax(scores, n, false); break;
    case ML_SOFTMAX_ZERO: softmax(scores, n, true); break;
    case ML_LOGISTIC:
        for (size_t i = 0; i < n; i++) scores[i] = ml_logistic(scores[i]);
        break;
    case ML_PROBIT:
        for (size_t i = 0; i < n; i++) scores[i] = probit(scores[i]);
        break;
    }
}

size_t ml_argmax(const double *v, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (v[i] > v[best] || v[best] != v[best]) best = i;
    }
    return best;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

status ml_rows(op_shapes *s, bool *known, dim *n, dim *c, error *err) {
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 1, 2, "X", known, &rank, &x, err));
    if (*known) {
        *n = rank == 2 ? x[0] : 1;
        *c = x[rank - 1];
    }
    return CHURON_OK;
}

status ml_rows_out(op_shapes *s, size_t i, int64_t width, error *err) {
    bool known;
    dim n, c;
    if (i >= op_n_outputs(shapes_node(s)) || !op_has_output(shapes_node(s), i)) return CHURON_OK;
    TRY(ml_rows(s, &known, &n, &c, err));
    dim out[2] = {known ? n : dim_fresh(s), width};
    return shapes_out(s, i, width ? 2 : 1, out, err);
}
