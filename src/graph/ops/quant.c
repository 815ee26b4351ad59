/* quant.c: QuantizeLinear and DequantizeLinear of all versions and types, DynamicQuantizeLinear.
 *
 * Scales: one, one an index of an axis, or one a block of consecutive indices of the axis. Quantization
 * divides in the precision of version 23's `precision` (default: of x's and the scale's type, f32 for half
 * types as well) and rounds half to even. */
#include "graph/ops/quant.h"

#include "base/mem.h"
#include "graph/ops/ops.h"

#include <float.h>
#include <string.h>

/* ---- shared ----------------------------------------------------------------------------------------- */

status quant_zeros(op_run *r, size_t i, size_t n, const char *what, int32_t **out, error *err) {
    const tensor *t = i == SIZE_MAX ? NULL : run_in(r, i);
    void *memory;
    if (t && t->count != 1 && t->count != n)
        return run_error(r, err, CHURON_INVALID, "%s: 1 or %zu elements expected, got %zu", what, n,
                         t->count);
    TRY(run_scratch(r, (n ? n : 1) * sizeof(int32_t), &memory, err));
    int32_t *z = memory;
    for (size_t k = 0; k < n; k++) z[k] = t ? byte_of(t, t->count == 1 ? 0 : k) : 0;
    *out = z;
    return CHURON_OK;
}

status quant_scales(op_run *r, size_t i, size_t n, const char *what, float **out, error *err) {
    const tensor *t = run_in(r, i);
    void *memory;
    if (!t || (t->count != 1 && t->count != n))
        return run_error(r, err, CHURON_INVALID, "%s: 1 or %zu elements expected, got %zu", what, n,
                         t ? t->count : 0);
    TRY(run_scratch(r, (n ? n : 1) * sizeof(float), &memory, err));
    float *s = memory;
    for (size_t k = 0; k < n; k++) s[k] = (float)real_at(t, t->count == 1 ? 0 : k);
    *out = s;
    return CHURON_OK;
}

status quant_scalar(op_run *r, size_t scale, size_t zero, const char *what, float *s, int32_t *z,
                    error *err) {
    int32_t *zeros = NULL;
    float *scales = NULL;
    TRY(quant_zeros(r, zero, 1, what, &zeros, err));
    *z = zeros[0];
    if (scale == SIZE_MAX) return CHURON_OK;
    TRY(quant_scales(r, scale, 1, what, &scales, err));
    *s = scales[0];
    return CHURON_OK;
}

/* ---- attributes and shapes -------------------------------------------------------------------------- */

typedef struct ql_state {
    int64_t axis, block;
    bool saturate, has_axis;
    elem output, precision; /* ELEM_NONE: not said */
} ql_state;

static status read_type(op_node *n, const char *name, elem_set allowed, elem *out, error *err) {
    int64_t v;
    TRY(op_attr_int(n, name, 0, 0, ELEM_COUNT - 1, &v, err));
    *out = (elem)v;
    if (v && !(allowed & ELEM_BIT(v)))
        return op_error(n, err, CHURON_INVALID, "%s: %s is no type for it", name, elem_name(*out));
    return CHURON_OK;
}

static status ql_prepare(op_node *n, bool quantize, error *err) {
    ql_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t v = op_version(n);
    bool microsoft = v < 10; /* the row of com.microsoft */
    st->saturate = true;
    st->has_axis = v >= 13 || microsoft;
    if (st->has_axis) TRY(op_attr_int(n, "axis", 1, INT32_MIN, INT32_MAX, &st->axis, err));
    if (v >= 21 || microsoft) TRY(op_attr_int(n, "block_size", 0, 0, INT32_MAX, &st->block, err));
    if (quantize && (v >= 19 || microsoft)) TRY(op_attr_bool(n, "saturate", true, &st->saturate, err));
    const elem_set halves = ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16);
    const elem_set codes = ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_I8) | ELEM_BIT(ELEM_U16) | ELEM_BIT(ELEM_I16) |
                           ELEMS_F8 | (ELEMS_LOWBIT & ~ELEM_BIT(ELEM_F8E8M0));
    if (v >= (quantize ? 21 : 23))
        TRY(read_type(n, "output_dtype", quantize ? codes : halves, &st->output, err));
    if (quantize && v >= 23) TRY(read_type(n, "precision", halves, &st->precision, err));
    return CHURON_OK;
}

static status quantize_prepare(op_node *n, error *err) {
    return ql_prepare(n, true, err);
}

static status dequantize_prepare(op_node *n, error *err) {
    return ql_prepare(n, false, err);
}

/* The scale's shape against x: checked again with numbers when it runs, there in full. */
static status ql_infer(op_shapes *s, elem type, error *err) {
    const op_node *n = shapes_node(s);
    shapes_out_type(s, 0, type);
    if (op_has_input(n, 2)) {
        size_t rs, rz;
        const dim *ds, *dz;
        if (shapes_in(s, 1, &rs, &ds) && shapes_in(s, 2, &rz, &dz)) {
            bool single = rs <= 1 && rz <= 1; /* a scalar and a vector of one are one here */
            if (rs != rz && !single)
                return op_error(n, err, CHURON_INVALID, "zero_point: rank %zu as the scale expected, got %zu",
                                rs, rz);
            for (size_t i = 0; rs == rz && i < rs; i++)
                TRY(shapes_same(s, ds[i], dz[i], "scale and zero_point", NULL, err));
        }
    }
    return infer_same(s, err);
}

static status quantize_infer(op_shapes *s, error *err) {
    const ql_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    elem type = op_has_input(n, 2) ? shapes_in_type(s, 2) : st->output ? st->output : ELEM_U8;
    if (st->output && type != st->output)
        return op_error(n, err, CHURON_INVALID, "output_dtype: %s as the zero point expected, got %s",
                        elem_name(type), elem_name(st->output));
    return ql_infer(s, type, err);
}

static status dequantize_infer(op_shapes *s, error *err) {
    const ql_state *st = shapes_state(s);
    elem scale = shapes_in_type(s, 1);
    if (st->output) return ql_infer(s, st->output, err);
    return ql_infer(s, scale == ELEM_F8E8M0 ? ELEM_F32 : scale, err);
}

/* Which scale belongs to an element: x is [outer, size, inner] around the axis. */
typedef struct scale_map {
    size_t outer, size, inner, block, scale_size;
    bool one;
} scale_map;

static status map_scales(op_run *r, const ql_state *st, const tensor *x, const tensor *scale, scale_map *m,
                         error *err) {
    *m = (scale_map){
        .outer = 1, .size = 1, .inner = x->count, .block = 1, .one = scale->count == 1 && !st->block};
    if (m->one) return CHURON_OK;
    size_t axis;
    if (!st->has_axis)
        return run_error(r, err, CHURON_INVALID, "scale: one element expected, got %zu", scale->count);
    TRY(op_axis(run_node(r), st->axis, x->rank, "axis", &axis, err));
    m->outer = (size_t)nn_product(x->dims, axis);
    m->size = (size_t)x->dims[axis];
    m->inner = (size_t)nn_product(x->dims + axis + 1, x->rank - axis - 1);
    if (!st->block) {
        if (scale->rank != 1 || scale->count != m->size)
            return run_error(r, err, CHURON_INVALID,
                             "scale: %zu elements (axis %zu) expected, got %zu of rank %u", m->size, axis,
                             scale->count, scale->rank);
        m->scale_size = m->size;
        return CHURON_OK;
    }
    m->block = (size_t)st->block;
    m->scale_size = (m->size + m->block - 1) / m->block;
    for (size_t i = 0; i < x->rank; i++) {
        int64_t want = i == axis ? (int64_t)m->scale_size : x->dims[i];
        if (scale->rank != x->rank || scale->dims[i] != want)
            return run_error(r, err, CHURON_INVALID,
                             "scale: dimension %zu of %lld (blocks of %lld) expected, got %lld of rank %u", i,
                             (long long)want, (long long)st->block,
                             (long long)(i < scale->rank ? scale->dims[i] : 0), scale->rank);
    }
    return CHURON_OK;
}

static size_t scale_index(const scale_map *m, size_t outer, size_t at, size_t inner, bool blocked) {
    if (m->one) return 0;
    return blocked ? (outer * m->scale_size + at / m->block) * m->inner + inner : at;
}

/* ---- quantize --------------------------------------------------------------------------------------- */

static bool range_of(elem t, double *least, double *most) {
    switch (t) {
    case ELEM_U8: *least = 0, *most = 255; return true;
    case ELEM_I8: *least = -128, *most = 127; return true;
    case ELEM_U16: *least = 0, *most = 65535; return true;
    case ELEM_I16: *least = -32768, *most = 32767; return true;
    case ELEM_U4: *least = 0, *most = 15; return true;
    case ELEM_I4: *least = -8, *most = 7; return true;
    case ELEM_U2: *least = 0, *most = 3; return true;
    case ELEM_I2: *least = -2, *most = 1; return true;
    default: return false;
    }
}

static float round_to(elem t, float v) {
    if (t != ELEM_F16 && t != ELEM_BF16) return v;
    uint16_t h;
    elem_from_f32(t, &v, &h, 1, false);
    elem_to_f32(t, &h, &v, 1);
    return v;
}

typedef struct quantize_job {
    const ql_state *st;
    scale_map map;
    elem type, precision;
    const float *x, *scale;
    const double *zero; /* as many as scales; NULL: 0 */
    double *y;
} quantize_job;

static void quantize_outer(void *ctx, size_t from, size_t to) {
    const quantize_job *j = ctx;
    const scale_map *m = &j->map;
    double least = 0, most = 0;
    bool integer = range_of(j->type, &least, &most);
    for (size_t o = from; o < to; o++)
        for (size_t a = 0; a < m->size; a++)
            for (size_t i = 0; i < m->inner; i++) {
                size_t at = (o * m->size + a) * m->inner + i;
                size_t si = scale_index(m, o, a, i, j->st->block > 0);
                double v = (double)round_to(j->precision, j->x[at] / j->scale[si]);
                double zero = j->zero ? j->zero[si] : 0;
                if (integer) {
                    v = nearbyint(v) + zero;
                    v = v < least ? least : v > most ? most : v == v ? v : zero;
                } else {
                    v = (double)round_to(j->precision, (float)(v + zero));
                }
                j->y[at] = v;
            }
}

/* f32 to 8 bits, the usual case, without a double between. Rounding after the limits is the same as before
 * them, since zero point and limits are whole; adding 1.5 * 2^23 rounds to nearest, ties to even. */
typedef struct bytes_job {
    scale_map map;
    const kernels *kernels;
    const float *x, *scale;
    const int32_t *zero; /* as many as scales */
    uint8_t *y;
    bool is_signed;
} bytes_job;

static void quantize_row(const float *x, const float *scale, const int32_t *zero, size_t n, bool is_signed,
                         uint8_t *y) {
    const float magic = 0x1.8p23f;
    for (size_t i = 0; i < n; i++) {
        const float z = (float)zero[i], low = (is_signed ? -128.0f : 0.0f) - z, high = low + 255.0f;
        float v = x[i] / scale[i];
        v = v == v ? v : 0.0f;
        v = v < low ? low : v;
        v = v > high ? high : v;
        y[i] = (uint8_t)((int32_t)((v + magic) - magic) + zero[i]);
    }
}

static void quantize_bytes(void *ctx, size_t from, size_t to) {
    const bytes_job *j = ctx;
    const scale_map *m = &j->map;
    for (size_t o = from; o < to; o++) {
        const size_t first = o * m->size * m->inner;
        if (!m->one && m->inner == 1) {
            quantize_row(j->x + first, j->scale, j->zero, m->size, j->is_signed, j->y + first);
            continue;
        }
        for (size_t a = 0; a < m->size; a++) {
            const size_t at = first + a * m->inner, s = m->one ? 0 : a;
            j->kernels->quantize_u8(j->x + at, m->inner, j->scale[s], j->zero[s] + (j->is_signed ? 128 : 0),
                                    j->y + at);
            for (size_t i = 0; j->is_signed && i < m->inner; i++) j->y[at + i] ^= 0x80;
        }
    }
}

/* One scale for all: rows of a size that threads can share out. */
static void flatten(scale_map *m, size_t count) {
    enum { ROW = 4096 };
    if (!m->one) return;
    m->size = 1;
    m->inner = count % ROW == 0 && count ? ROW : count;
    m->outer = m->inner ? count / m->inner : 0;
}

static status zero_values(op_run *r, const tensor *t, size_t n, const double **out, error *err) {
    *out = NULL;
    if (!t) return CHURON_OK;
    if (t->count != n)
        return run_error(r, err, CHURON_INVALID, "zero_point: %zu elements as the scale expected, got %zu", n,
                         t->count);
    const void *v;
    TRY(real_of(r, t, ELEM_F64, &v, err));
    *out = v;
    return CHURON_OK;
}

static status quantize_run(op_run *r, error *err) {
    const ql_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *scale = run_in(r, 1), *zero = run_in(r, 2);
    quantize_job j = {.st = st};
    TRY(map_scales(r, st, x, scale, &j.map, err));
    TRY(zero_values(r, zero, scale->count, &j.zero, err));
    const void *px, *ps;
    TRY(real_of(r, x, ELEM_F32, &px, err));
    TRY(real_of(r, scale, ELEM_F32, &ps, err));
    tensor *y;
    void *memory;
    TRY(run_out(r, 0, &y, err));
    if (x->type == ELEM_F32 && scale->type == ELEM_F32 && !st->block &&
        (y->type == ELEM_U8 || y->type == ELEM_I8) && (!st->precision || st->precision == ELEM_F32)) {
        bytes_job b = {.map = j.map,
                       .kernels = run_kernels(r),
                       .x = px,
                       .scale = ps,
                       .y = y->data,
                       .is_signed = y->type == ELEM_I8};
        TRY(run_scratch(r, scale->count * sizeof(int32_t), &memory, err));
        int32_t *zeros = memory;
        for (size_t i = 0; i < scale->count; i++) zeros[i] = zero ? byte_of(zero, i) : 0;
        b.zero = zeros;
        flatten(&b.map, x->count);
        run_parallel(r, b.map.outer, 0.3 * (double)x->count, quantize_bytes, &b);
        return CHURON_OK;
    }
    TRY(run_scratch(r, (y->count + 1) * sizeof(double), &memory, err));
    j.x = px, j.scale = ps, j.y = memory, j.type = y->type;
    j.precision = st->precision ? st->precision : scale->type;
    run_parallel(r, j.map.outer, 4.0 * (double)x->count, quantize_outer, &j);
    elem_from_f64(y->type, j.y, y->data, y->count, st->saturate);
    return CHURON_OK;
}

/* ---- dequantize ------------------------------------------------------------------------------------- */

typedef struct dequantize_job {
    const ql_state *st;
    scale_map map;
    const double *x, *zero;
    const float *scale;
    float *y;
} dequantize_job;

static void dequantize_outer(void *ctx, size_t from, size_t to) {
    const dequantize_job *j = ctx;
    const scale_map *m = &j->map;
    for (size_t o = from; o < to; o++)
        for (size_t a = 0; a < m->size; a++)
            for (size_t i = 0; i < m->inner; i++) {
                size_t at = (o * m->size + a) * m->inner + i;
                size_t si = scale_index(m, o, a, i, j->st->block > 0);
                j->y[at] = (float)(j->x[at] - (j->zero ? j->zero[si] : 0)) * j->scale[si];
            }
}

/* 8 bits to f32, the usual case. */
static void widen_row(const void *x, bool is_signed, const float *scale, const int32_t *zero, size_t n,
                      float *y) {
    if (is_signed) {
        for (size_t i = 0; i < n; i++) y[i] = (float)(((const int8_t *)x)[i] - zero[i]) * scale[i];
    } else {
        for (size_t i = 0; i < n; i++) y[i] = (float)(((const uint8_t *)x)[i] - zero[i]) * scale[i];
    }
}

static void widen_evenly(const void *x, bool is_signed, float scale, int32_t zero, size_t n, float *y) {
    if (is_signed) {
        for (size_t i = 0; i < n; i++) y[i] = (float)(((const int8_t *)x)[i] - zero) * scale;
    } else {
        for (size_t i = 0; i < n; i++) y[i] = (float)(((const uint8_t *)x)[i] - zero) * scale;
    }
}

typedef struct widen_job {
    scale_map map;
    const uint8_t *x;
    const float *scale;
    const int32_t *zero;
    float *y;
    bool is_signed;
    stop_flag *stop;
} widen_job;

enum { PART = 1 << 16 }; /* values between looks at the stop */

static void dequantize_bytes(void *ctx, size_t from, size_t to) {
    const widen_job *j = ctx;
    const scale_map *m = &j->map;
    for (size_t o = from; o < to; o++) {
        const size_t first = o * m->size * m->inner;
        if (!m->one && m->inner == 1) {
            widen_row(j->x + first, j->is_signed, j->scale, j->zero, m->size, j->y + first);
            continue;
        }
        for (size_t a = 0; a < m->size; a++) {
            const size_t at = first + a * m->inner, s = m->one ? 0 : a;
            for (size_t i = 0, n; i < m->inner && !stop_at(j->stop, i / PART, 8); i += n) {
                n = m->inner - i < PART ? m->inner - i : PART;
                widen_evenly(j->x + at + i, j->is_signed, j->scale[s], j->zero[s], n, j->y + at + i);
            }
        }
    }
}

static status dequantize_run(op_run *r, error *err) {
    const ql_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *scale = run_in(r, 1), *zero = run_in(r, 2);
    dequantize_job j = {.st = st};
    TRY(map_scales(r, st, x, scale, &j.map, err));
    TRY(zero_values(r, zero, scale->count, &j.zero, err));
    const void *px, *ps;
    void *py;
    tensor *y;
    TRY(real_of(r, scale, ELEM_F32, &ps, err));
    TRY(real_out(r, 0, ELEM_F32, &y, &py, err));
    if (y->type == ELEM_F32 && !st->block && (x->type == ELEM_U8 || x->type == ELEM_I8)) {
        widen_job w = {.map = j.map,
                       .x = x->data,
                       .scale = ps,
                       .y = py,
                       .is_signed = x->type == ELEM_I8,
                       .stop = run_stop(r)};
        void *memory;
        TRY(run_scratch(r, scale->count * sizeof(int32_t), &memory, err));
        int32_t *zeros = memory;
        for (size_t i = 0; i < scale->count; i++) zeros[i] = zero ? byte_of(zero, i) : 0;
        w.zero = zeros;
        flatten(&w.map, x->count);
        run_parallel(r, w.map.outer, 0.3 * (double)x->count, dequantize_bytes, &w);
        return CHURON_OK;
    }
    TRY(real_of(r, x, ELEM_F64, &px, err));
    j.x = px, j.scale = ps, j.y = py;
    run_parallel(r, j.map.outer, 2.0 * (double)x->count, dequantize_outer, &j);
    real_out_done(r, y, ELEM_F32, py);
    return CHURON_OK;
}

/* ---- DynamicQuantizeLinear -------------------------------------------------------------------------- */

static status dynamic_infer(op_shapes *s, error *err) {
    shapes_out_type(s, 0, ELEM_U8);
    shapes_out_type(s, 1, ELEM_F32);
    shapes_out_type(s, 2, ELEM_U8);
    TRY(infer_same(s, err));
    TRY(shapes_out(s, 1, 0, NULL, err));
    return shapes_out(s, 2, 0, NULL, err);
}

typedef struct dynamic_job {
    const kernels *k;
    const float *x;
    size_t n;
    float *least, *most; /* of every block */
    float scale;
    int32_t zero;
    uint8_t *y;
} dynamic_job;

enum { BLOCK = 8192 }; /* values, of which a thread takes whole blocks */

static size_t block_end(size_t block, size_t n) {
    return n - block * BLOCK < BLOCK ? n : (block + 1) * BLOCK;
}

static void range_blocks(void *ctx, size_t from, size_t to) {
    dynamic_job *j = ctx;
    for (size_t b = from; b < to; b++) {
        j->least[b] = j->most[b] = 0;
        j->k->range(j->x + b * BLOCK, block_end(b, j->n) - b * BLOCK, &j->least[b], &j->most[b]);
    }
}

static void quantize_blocks(void *ctx, size_t from, size_t to) {
    dynamic_job *j = ctx;
    for (size_t b = from; b < to; b++)
        j->k->quantize_u8(j->x + b * BLOCK, block_end(b, j->n) - b * BLOCK, j->scale, j->zero,
                          j->y + b * BLOCK);
}

status quant_dynamic(op_run *r, const tensor *x, uint8_t *y, float *scale, int32_t *zero, error *err) {
    const size_t blocks = x->count / BLOCK + 1; /* the last may be empty */
    void *memory;
    TRY(run_scratch(r, 2 * blocks * sizeof(float), &memory, err));
    dynamic_job j = {.k = run_kernels(r), .x = x->data, .n = x->count, .least = memory, .y = y};
    j.most = j.least + blocks;
    run_parallel(r, blocks, 0.05 * (double)x->count, range_blocks, &j);
    float least = 0, most = 0;
    for (size_t b = 0; b < blocks; b++) {
        if (j.least[b] < least) least = j.least[b];
        if (j.most[b] > most) most = j.most[b];
    }
    j.scale = (most - least) / 255;
    if (j.scale == 0) j.scale = 1;
    j.zero = quant_clamp((double)(-least / j.scale), 0, ELEM_U8);
    run_parallel(r, blocks, 0.1 * (double)x->count, quantize_blocks, &j);
    *scale = j.scale;
    *zero = j.zero;
    return CHURON_OK;
}

static status dynamic_run(op_run *r, error *err) {
    tensor *y, *scale, *zero;
    TRY(nn_need_first(r, err));
    TRY(run_out(r, 0, &y, err));
    TRY(run_out(r, 1, &scale, err));
    TRY(run_out(r, 2, &zero, err));
    float s;
    int32_t z;
    TRY(quant_dynamic(r, run_in(r, 0), y->data, &s, &z, err));
    if (scale) *(float *)scale->data = s;
    if (zero) *(uint8_t *)zero->data = (uint8_t)z;
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define I32     ELEM_BIT(ELEM_I32)
#define HALF    (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))
#define I16     (ELEM_BIT(ELEM_I16) | ELEM_BIT(ELEM_U16))
#define I4      (ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_U4))
#define I2      (ELEM_BIT(ELEM_I2) | ELEM_BIT(ELEM_U2))
#define F4      ELEM_BIT(ELEM_F4E2M1)
#define F6      (ELEM_BIT(ELEM_F6E2M3) | ELEM_BIT(ELEM_F6E3M2))
#define E8      ELEM_BIT(ELEM_F8E8M0)
#define CODES21 (NN_I8 | ELEMS_F8 | I16 | I4)

#define Q(dom, first, last, sign, xs, ss, zs)                                                                \
    {                                                                                                        \
        .domain = dom, .name = "QuantizeLinear", .since = first, .until = last, .signature = sign,           \
        .vars = {{'T', xs}, {'S', ss}, {'Z', zs}}, .prepare = quantize_prepare, .release = mem_free,         \
        .infer = quantize_infer, .run = quantize_run                                                         \
    }
#define DQ(dom, first, last, xs, ss)                                                                         \
    {                                                                                                        \
        .domain = dom, .name = "DequantizeLinear", .since = first, .until = last, .signature = "TS=T>@",     \
        .vars = {{'T', xs}, {'S', ss}}, .prepare = dequantize_prepare, .release = mem_free,                  \
        .infer = dequantize_infer, .run = dequantize_run                                                     \
    }

static const op_def rows[] = {
    Q("", 10, 12, "TS=Z>@", ELEM_BIT(ELEM_F32) | I32, ELEM_BIT(ELEM_F32), NN_I8),
    Q("", 13, 18, "TS=Z>@", ELEM_BIT(ELEM_F32) | I32, ELEM_BIT(ELEM_F32), NN_I8),
    Q("", 19, 20, "TS=Z>@", HALF | I32, HALF | I32, NN_I8 | ELEMS_F8),
    Q("", 21, 22, "TS=Z>@", HALF | I32, HALF | I32, CODES21),
    Q("", 23, 23, "TS=Z>@", HALF | I32, HALF | I32, CODES21 | F4),
    Q("", 24, 24, "TS=Z>@", HALF | I32, HALF | I32 | E8, CODES21 | F4),
    Q("", 25, 27, "TS=Z>@", HALF | I32, HALF | I32 | E8, CODES21 | F4 | I2),
    Q("", 28, 0, "TS=Z>@", HALF | I32, HALF | I32 | E8, CODES21 | F4 | I2 | F6),
    DQ("", 10, 12, NN_I8 | I32, ELEM_BIT(ELEM_F32)),
    DQ("", 13, 18, NN_I8 | I32, ELEM_BIT(ELEM_F32)),
    DQ("", 19, 20, NN_I8 | I32 | ELEMS_F8, HALF),
    DQ("", 21, 22, CODES21 | I32, HALF),
    DQ("", 23, 23, CODES21 | I32 | F4, HALF),
    DQ("", 24, 24, CODES21 | I32 | F4, HALF | E8),
    DQ("", 25, 27, CODES21 | I32 | F4 | I2, HALF | E8),
    DQ("", 28, 0, CODES21 | I32 | F4 | I2 | F6, HALF | E8),
    Q("com.microsoft", 1, 0, "TS=Z>@", ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16),
      ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16), CODES21),
    DQ("com.microsoft", 1, 0, CODES21 | I32, ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16)),
    {.domain = "",
     .name = "DynamicQuantizeLinear",
     .since = 11,
     .signature = "T>@@@",
     .vars = {{'T', ELEM_BIT(ELEM_F32)}},
     .infer = dynamic_infer,
     .run = dynamic_run},
};
NN_TABLE(quant);
