/* qlinear.c: products and convolutions of 8-bit integers: MatMulInteger, QLinearMatMul, ConvInteger,
 * QLinearConv, and of com.microsoft DynamicQuantizeMatMul, MatMulIntegerToFloat, QGemm, QLinearConv with
 * channels last.
 *
 * Sums are exact modulo 2^32. A result is scaled in f32 by (a_scale * b_scale / y_scale), rounded half to
 * even, moved by the zero point and saturated. float8 operands of QLinearMatMul are multiplied in f32. */
#include "base/mem.h"
#include "graph/ops/conv_int.h"
#include "graph/ops/matmul.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"

#include <string.h>

/* ---- integer products ------------------------------------------------------------------------------- */

typedef struct int_product {
    const tensor *a, *b;
    const int_packed *packed; /* b, or NULL */
    matmul_operand oa, ob;
    matmul_walk walk;
    int32_t *a_zero, *b_zero; /* of the rows, of the columns: [m], [n] (the same for every batch) */
    int32_t *sums;            /* or, with y: */
    float *y;
    float *a_scale, *b_scale;
    const float *bias;
    size_t m, n, k;
} int_product;

/* Packs a constant matrix among the inputs; the state is an int_packed. */
static status pack_input(op_node *n, size_t input, error *err) {
    const tensor *b = op_constant(n, input);
    if (!b || b->rank != 2 || !(ELEM_BIT(b->type) & NN_I8)) return CHURON_OK;
    int_packed *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const size_t cols = (size_t)b->dims[1];
    return int_pack_create(st, b->data, b->type, (size_t)b->dims[0], cols, cols, 1, err);
}

static status pack_second(op_node *n, error *err) {
    return pack_input(n, 1, err);
}

static status pack_fourth(op_node *n, error *err) {
    return pack_input(n, 3, err);
}

static void release_packed(void *state) {
    int_packed *st = state;
    if (st) int_pack_free(st);
    mem_free(st);
}

/* Everything but the product. sums and y NULL: sums are taken from scratch. a_zero, b_zero: numbers of the
 * inputs. */
static status product_setup(op_run *r, int_product *p, size_t a_zero, size_t b_zero, error *err) {
    p->oa = matmul_operand_of(p->a->dims, p->a->rank, true, false, false);
    p->ob = matmul_operand_of(p->b->dims, p->b->rank, false, false, false);
    p->walk = matmul_walk_of(&p->oa, &p->ob);
    p->m = (size_t)p->oa.rows, p->n = (size_t)p->ob.cols, p->k = (size_t)p->oa.cols;
    TRY(quant_zeros(r, a_zero, p->m, "a_zero_point", &p->a_zero, err));
    TRY(quant_zeros(r, b_zero, p->n, "b_zero_point", &p->b_zero, err));
    if (p->sums || p->y) return CHURON_OK;
    void *memory;
    TRY(run_scratch(r, (p->walk.count * p->m * p->n + 1) * sizeof(int32_t), &memory, err));
    p->sums = memory;
    return CHURON_OK;
}

/* [m] numbers for every batch: rows of all batches are rows of one product. */
static status repeat_rows(op_run *r, const int_product *p, const void *from, const void **out, error *err) {
    void *memory;
    *out = from;
    if (!from || p->walk.count == 1) return CHURON_OK;
    const size_t bytes = p->m * sizeof(int32_t);
    TRY(run_scratch(r, p->walk.count * bytes + 1, &memory, err));
    for (size_t i = 0; i < p->walk.count; i++) memcpy((char *)memory + i * bytes, from, bytes);
    *out = memory;
    return CHURON_OK;
}

static status product_run(op_run *r, const int_product *p, error *err) {
    int_call one = {.m = p->m,
                    .n = p->n,
                    .k = p->k,
                    .a_type = p->a->type,
                    .b_type = p->b->type,
                    .a = p->a->data,
                    .a_row = (size_t)p->oa.row_stride,
                    .b = p->b->data,
                    .b_row = (size_t)p->ob.row_stride,
                    .packed = p->packed,
                    .a_zero = p->a_zero,
                    .b_zero = p->b_zero,
                    .sums = p->y ? NULL : p->sums,
                    .y = p->y,
                    .a_scale = p->a_scale,
                    .b_scale = p->b_scale,
                    .bias = p->bias};
    const void *zeros, *scales;
    void *memory;
    if (p->ob.rank == 0) {
        one.m *= p->walk.count;
        TRY(repeat_rows(r, p, p->a_zero, &zeros, err));
        TRY(repeat_rows(r, p, p->a_scale, &scales, err));
        one.a_zero = zeros;
        one.a_scale = scales;
        return gemm_int(r, &one, 1, err);
    }
    TRY(run_scratch(r, (p->walk.count + 1) * sizeof(int_call), &memory, err));
    int_call *calls = memory;
    for (size_t i = 0; i < p->walk.count; i++) {
        size_t a, b, at = i * p->m * p->n;
        matmul_walk_at(&p->walk, i, &a, &b);
        calls[i] = one;
        calls[i].a = (const char *)p->a->data + a;
        calls[i].b = (const char *)p->b->data + b;
        if (p->y)
            calls[i].y = p->y + at;
        else
            calls[i].sums = p->sums + at;
    }
    return gemm_int(r, calls, p->walk.count, err);
}

static status int_product_run(op_run *r, int_product *p, size_t a_zero, size_t b_zero, error *err) {
    TRY(product_setup(r, p, a_zero, b_zero, err));
    return product_run(r, p, err);
}

static status matmul_integer_infer(op_shapes *s, error *err) {
    shapes_out_type(s, 0, ELEM_I32);
    return matmul_infer_at(s, 0, 1, err);
}

static status matmul_integer_run(op_run *r, error *err) {
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    int_product p = {.a = run_in(r, 0), .b = run_in(r, 1), .packed = run_state(r), .sums = y->data};
    return int_product_run(r, &p, 2, 3, err);
}

/* ---- QLinearMatMul ---------------------------------------------------------------------------------- */

static status qlinear_matmul_infer(op_shapes *s, error *err) {
    return matmul_infer_at(s, 0, 3, err);
}

/* With a float8 type among them: (a - za)(b - zb) in f32. */
static status qlinear_matmul_float(op_run *r, tensor *y, error *err) {
    const tensor *a = run_in(r, 0), *b = run_in(r, 3);
    matmul_operand oa = matmul_operand_of(a->dims, a->rank, true, false, false);
    matmul_operand ob = matmul_operand_of(b->dims, b->rank, false, false, false);
    matmul_walk w = matmul_walk_of(&oa, &ob);
    const tensor *scales[3] = {run_in(r, 1), run_in(r, 4), run_in(r, 6)};
    const tensor *zeros[3] = {run_in(r, 2), run_in(r, 5), run_in(r, 7)};
    for (size_t i = 0; i < 3; i++)
        if (scales[i]->count != 1 || zeros[i]->count != 1)
            return run_error(r, err, CHURON_UNSUPPORTED,
                             "scales and zero points of float8: one element expected, got %zu",
                             scales[i]->count);
    const void *pa, *pb;
    TRY(real_of(r, a, ELEM_F64, &pa, err));
    TRY(real_of(r, b, ELEM_F64, &pb, err));
    size_t m = (size_t)oa.rows, n = (size_t)ob.cols, k = (size_t)oa.cols, at = 0;
    double za = real_at(zeros[0], 0), zb = real_at(zeros[1], 0), zy = real_at(zeros[2], 0);
    float scale = (float)real_at(scales[0], 0) * (float)real_at(scales[1], 0) / (float)real_at(scales[2], 0);
    size_t bytes = elem_describe(y->type)->bytes;
    for (size_t batch = 0; batch < w.count; batch++) {
        size_t o1, o2;
        matmul_walk_at(&w, batch, &o1, &o2);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++, at++) {
                float sum = 0;
                for (size_t p = 0; p < k; p++) {
                    double va =
                        ((const double *)pa)[o1 + i * (size_t)oa.row_stride + p * (size_t)oa.col_stride];
                    double vb =
                        ((const double *)pb)[o2 + p * (size_t)ob.row_stride + j * (size_t)ob.col_stride];
                    sum += (float)(va - za) * (float)(vb - zb);
                }
                double v = (double)(sum * scale);
                if (ELEM_BIT(y->type) & NN_I8)
                    byte_set(y, at, quant_clamp(v, (int32_t)zy, y->type));
                else
                    v += zy, elem_from_f64(y->type, &v, (char *)y->data + at * bytes, 1, true);
            }
    }
    return CHURON_OK;
}

typedef struct requantize_job {
    const kernels *k;
    const int_product *p;
    uint8_t *y;
    int32_t zero;
    bool is_signed;
} requantize_job;

static void requantize_row(const requantize_job *j, const float *scale, size_t row) {
    const size_t n = j->p->n;
    j->k->requantize(j->p->sums + row * n, scale, n, j->zero, j->is_signed ? -128 : 0,
                     j->is_signed ? 127 : 255, j->y + row * n);
}

static void flip_part(void *ctx, size_t m0, size_t m1, size_t j0, size_t j1) {
    const qgemm *g = ctx;
    for (size_t i = m0; i < m1; i++) {
        uint8_t *row = g->bytes + i * g->c_row;
        for (size_t j = j0; j < j1; j++) row[j] ^= 0x80;
    }
}

/* B packed and the same for every batch, one scale and zero point of A: sums go to 8 bits where they are
 * made. */
static bool goes_to_bytes(const int_product *p, const float *sa, const float *scale) {
    if (p->ob.rank != 0 || !p->packed || !p->packed->memory || p->m == 0 || p->n == 0 || p->k == 0)
        return false;
    for (size_t i = 1; i < p->m; i++) {
        if (sa[i] != sa[0] || p->a_zero[i] != p->a_zero[0]) return false;
    }
    for (size_t j = 0; j < p->n; j++) {
        if (!(fabsf(scale[j]) <= 0x1p80f)) return false;
    }
    return true;
}

static status product_to_bytes(op_run *r, const int_product *p, const float *scale, int32_t zy, tensor *y,
                               error *err) {
    const bool a_signed = p->a->type == ELEM_I8, y_signed = y->type == ELEM_I8;
    const size_t m = p->m * p->walk.count, columns = qgemm_panels(p->n) * QGEMM_PANEL;
    const int32_t a_zero = p->a_zero[0] + (a_signed ? 128 : 0), move = p->packed->is_signed ? 0 : 128;
    void *memory;
    TRY(run_scratch(r, (2 * m + 3 * columns) * sizeof(int32_t), &memory, err));
    int32_t *zeros = memory, *rest = zeros + m, *offset = rest + m, *b_zero = offset + columns, any = 0;
    float *scales = (float *)(void *)(b_zero + columns);
    for (size_t i = 0; i < m; i++) zeros[i] = a_zero;
    for (size_t j = 0; j < columns; j++) {
        const bool there = j < p->n;
        offset[j] = there ? (int32_t)(0u - (uint32_t)a_zero * (uint32_t)p->packed->sums[j]) : 0;
        any |= b_zero[j] = there ? p->b_zero[j] - move : 0;
        scales[j] = there ? scale[j] : 0.0f;
    }
    qgemm g = {.n = p->n,
               .k = p->k,
               .a = p->a->data,
               .a_row = (size_t)p->oa.row_stride,
               .b = p->packed->b,
               .b_zero = any ? b_zero : NULL,
               .a_rest = rest,
               .bytes = y->data,
               .offset = offset,
               .y_zero = (uint8_t)(zy + (y_signed ? 128 : 0)),
               .y_high = 255,
               .c_row = p->n,
               .b_scale = scales};
    if (a_signed || p->k % QGEMM_QUAD != 0) {
        TRY(run_scratch(r, m * qgemm_padded(p->k), &memory, err));
        qgemm_rows(p->a->data, a_signed, g.a_row, m, p->k, memory);
        g.a = memory;
        g.a_row = qgemm_padded(p->k);
    }
    if (any) qgemm_rest(g.a, g.a_row, m, p->k, zeros, rest);
    gemm_int_share(r, &g, m, y_signed ? flip_part : NULL, &g);
    return CHURON_OK;
}

static status qlinear_matmul_run(op_run *r, error *err) {
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    int_product p = {.a = run_in(r, 0), .b = run_in(r, 3), .packed = run_state(r)};
    if (!((ELEM_BIT(p.a->type) & NN_I8) && (ELEM_BIT(p.b->type) & NN_I8) && (ELEM_BIT(y->type) & NN_I8)))
        return qlinear_matmul_float(r, y, err);
    int32_t unread; /* sums get their memory below */
    p.sums = &unread;
    TRY(product_setup(r, &p, 2, 5, err));
    float *sa, *sb, sy = 1;
    int32_t zy = 0;
    TRY(quant_scales(r, 1, p.m, "a_scale", &sa, err));
    TRY(quant_scales(r, 4, p.n, "b_scale", &sb, err));
    TRY(quant_scalar(r, 6, 7, "y_scale, y_zero_point", &sy, &zy, err));
    void *memory;
    TRY(run_scratch(r, (p.n + 1) * sizeof(float), &memory, err));
    float *of_columns = memory;
    for (size_t c = 0; p.m && c < p.n; c++) of_columns[c] = sa[0] * sb[c] / sy;
    if (goes_to_bytes(&p, sa, of_columns)) return product_to_bytes(r, &p, of_columns, zy, y, err);
    TRY(run_scratch(r, (p.walk.count * p.m * p.n + 1) * sizeof(int32_t), &memory, err));
    p.sums = memory;
    TRY(product_run(r, &p, err));
    requantize_job j = {
        .k = run_kernels(r), .p = &p, .y = y->data, .zero = zy, .is_signed = y->type == ELEM_I8};
    float *scale = of_columns;
    for (size_t i = 0; i < p.m && p.n; i++) { /* row i of every batch has one scale of A */
        if (i > 0 && sa[i] != sa[i - 1])
            for (size_t c = 0; c < p.n; c++) scale[c] = sa[i] * sb[c] / sy;
        for (size_t batch = 0; batch < p.walk.count; batch++) requantize_row(&j, scale, batch * p.m + i);
    }
    return CHURON_OK;
}

/* ---- convolutions ----------------------------------------------------------------------------------- */

typedef struct int_conv_state {
    conv_state conv; /* first: the shape rule reads it */
    conv_int_weights packed;
} int_conv_state;

static void int_conv_release(void *state) {
    int_conv_state *st = state;
    if (st) conv_int_free(&st->packed);
    mem_free(st);
}

static status int_conv_read(op_node *n, int_conv_state **out, error *err) {
    int_conv_state *st = *out = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(conv_prepare_common(n, &st->conv, err));
    if (op_version(n) < 10) TRY(op_attr_bool(n, "channels_last", false, &st->conv.channels_last, err));
    return CHURON_OK;
}

static status int_conv_pack(const op_node *n, int_conv_state *st, size_t weights, error *err) {
    if (st->packed.groups) return CHURON_OK;
    const tensor *w = op_constant(n, weights);
    const int64_t group = st->conv.group;
    if (!w || !(ELEM_BIT(w->type) & NN_I8) || w->rank < 3 || w->count == 0 || w->dims[0] % group != 0 ||
        !conv_int_suits((size_t)(w->dims[0] / group)))
        return CHURON_OK;
    return conv_int_pack(&st->packed, w, (size_t)group, err);
}

static status conv_integer_prepare(op_node *n, error *err) {
    int_conv_state *st = NULL;
    TRY(int_conv_read(n, &st, err));
    return int_conv_pack(n, st, 1, err);
}

static status qlinear_conv_prepare(op_node *n, error *err) {
    int_conv_state *st = NULL;
    return int_conv_read(n, &st, err);
}

status qlinear_conv_pack(op_node *n, void *state, error *err) {
    return int_conv_pack(n, state, 3, err);
}

/* Is it worth a product? Else the planes are summed one by one. */
static bool goes_packed(const conv_call *j, const tensor *x, const tensor *w) {
    return conv_int_suits(j->group_out) && x->count > 0 && w->count > 0;
}

static status run_packed(op_run *r, conv_int *c, const tensor *w, error *err) {
    const int_conv_state *st = run_state(r);
    conv_int_weights own = {0};
    c->w = &st->packed;
    if (!c->w->groups) {
        TRY(conv_int_pack(&own, w, (size_t)st->conv.group, err));
        c->w = &own;
    }
    const status result = conv_int_run(r, c, err);
    conv_int_free(&own);
    return result;
}

static status conv_integer_infer(op_shapes *s, error *err) {
    shapes_out_type(s, 0, ELEM_I32);
    return conv_infer_at(s, 0, 1, SIZE_MAX, err);
}

static status qlinear_conv_infer(op_shapes *s, error *err) {
    return conv_infer_at(s, 0, 3, 8, err);
}

/* x - zero as [N, C, …] of 32 bits, whatever the layout of x. */
static status lower_zero(op_run *r, const tensor *x, int32_t zero, bool channels_last, const void **out,
                         error *err) {
    void *memory;
    TRY(run_scratch(r, (x->count + 1) * sizeof(uint32_t), &memory, err));
    uint32_t *to = memory;
    size_t c = channels_last ? (size_t)x->dims[x->rank - 1] : 1;
    size_t pixels = channels_last ? (size_t)nn_product(x->dims + 1, x->rank - 2) : 0;
    for (size_t i = 0; i < x->count; i++) {
        size_t at = channels_last ? (i / (pixels * c) * c + i % c) * pixels + i / c % pixels : i;
        to[at] = (uint32_t)(byte_of(x, i) - zero);
    }
    *out = to;
    return CHURON_OK;
}

static status lower_weights(op_run *r, const tensor *w, size_t zero_input, const void **out, error *err) {
    size_t m = (size_t)w->dims[0], each = m ? w->count / m : 0;
    int32_t *zeros;
    void *memory;
    TRY(quant_zeros(r, zero_input, m, "w_zero_point", &zeros, err));
    TRY(run_scratch(r, (w->count + 1) * sizeof(uint32_t), &memory, err));
    uint32_t *to = memory;
    for (size_t i = 0; i < w->count; i++) to[i] = (uint32_t)(byte_of(w, i) - zeros[i / each]);
    *out = to;
    return CHURON_OK;
}

/* ConvInteger allows a zero point a channel of w only where the version says so; x has one. */
static status conv_integer_run(op_run *r, error *err) {
    const int_conv_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 1);
    tensor *y;
    float unused;
    int32_t zero = 0;
    conv_call j;
    TRY(run_out(r, 0, &y, err));
    conv_job_init(&j, &st->conv, x, w, y);
    TRY(quant_scalar(r, SIZE_MAX, 2, "x_zero_point", &unused, &zero, err));
    if (goes_packed(&j, x, w)) {
        conv_int c = {.j = j, .x = x, .x_zero = zero, .sums = y->data};
        int32_t *zeros;
        TRY(quant_zeros(r, 3, j.out_channels, "w_zero_point", &zeros, err));
        c.w_zero = zeros;
        return run_packed(r, &c, w, err);
    }
    TRY(lower_zero(r, x, zero, false, &j.x, err));
    TRY(lower_weights(r, w, 3, &j.w, err));
    j.y = y->data;
    conv_u32(r, &j);
    return CHURON_OK;
}

static status qlinear_conv_run(op_run *r, error *err) {
    const int_conv_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *w = run_in(r, 3), *bias = run_in(r, 8);
    tensor *y;
    float sx = 1, sy = 1, *sw;
    int32_t zx = 0, zy = 0;
    conv_call j;
    TRY(run_out(r, 0, &y, err));
    conv_job_init(&j, &st->conv, x, w, y);
    TRY(quant_scalar(r, 1, 2, "x_scale, x_zero_point", &sx, &zx, err));
    TRY(quant_scalar(r, 6, 7, "y_scale, y_zero_point", &sy, &zy, err));
    TRY(quant_scales(r, 4, j.out_channels, "w_scale", &sw, err));
    void *memory;
    if (goes_packed(&j, x, w)) {
        int32_t *zeros;
        TRY(quant_zeros(r, 5, j.out_channels, "w_zero_point", &zeros, err));
        for (size_t i = 0; i < j.out_channels; i++) sw[i] = sx * sw[i] / sy;
        conv_int c = {.j = j,
                      .x = x,
                      .channels_last = st->conv.channels_last,
                      .x_zero = zx,
                      .w_zero = zeros,
                      .bias = bias ? bias->data : NULL,
                      .scale = sw,
                      .y_zero = zy,
                      .y = y};
        return run_packed(r, &c, w, err);
    }
    TRY(lower_zero(r, x, zx, st->conv.channels_last, &j.x, err));
    TRY(lower_weights(r, w, 5, &j.w, err));
    TRY(run_scratch(r, (y->count + 1) * sizeof(uint32_t), &memory, err));
    j.y = memory;
    j.bias = bias ? bias->data : NULL;
    conv_u32(r, &j);
    const int32_t *sums = memory;
    size_t pixels = (size_t)j.g.out_size, channels = j.out_channels;
    for (size_t i = 0; i < y->count; i++) {
        size_t c = i / pixels % channels, n = i / (pixels * channels);
        size_t at = st->conv.channels_last ? (n * pixels + i % pixels) * channels + c : i;
        float scale = sx * sw[c] / sy;
        byte_set(y, at, quant_clamp((double)((float)sums[i] * scale), zy, y->type));
    }
    return CHURON_OK;
}

/* ---- com.microsoft ---------------------------------------------------------------------------------- */

static status to_float_infer(op_shapes *s, error *err) {
    return matmul_infer_at(s, 0, 1, err);
}

static status check_bias(op_run *r, size_t i, size_t n, const void **bias, error *err) {
    const tensor *t = run_in(r, i);
    if (t && t->count != n)
        return run_error(r, err, CHURON_INVALID, "bias: %zu elements expected, got %zu", n, t->count);
    return real_of(r, t, ELEM_F32, bias, err);
}

static status matmul_to_float_run(op_run *r, error *err) { /* A, B, a_scale, b_scale, a_zero, b_zero, bias */
    int_product p = {.a = run_in(r, 0), .b = run_in(r, 1), .packed = run_state(r)};
    tensor *y;
    void *to;
    const void *bias;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    p.y = to;
    TRY(product_setup(r, &p, 4, 5, err));
    TRY(quant_scales(r, 2, p.m, "a_scale", &p.a_scale, err));
    TRY(quant_scales(r, 3, p.n, "b_scale", &p.b_scale, err));
    TRY(check_bias(r, 6, p.n, &bias, err));
    p.bias = bias;
    TRY(product_run(r, &p, err));
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* A is quantized as DynamicQuantizeLinear does it: uint8, one scale for all of it. */
static status dynamic_matmul_run(op_run *r, error *err) { /* A, B, b_scale, b_zero, bias */
    const tensor *a = run_in(r, 0);
    tensor *y;
    void *memory;
    const void *bias;
    TRY(run_out(r, 0, &y, err));
    TRY(run_scratch(r, a->count + 1, &memory, err));
    tensor q = tensor_borrow(ELEM_U8, a->rank, a->dims, memory);
    float scale;
    int32_t zero;
    TRY(quant_dynamic(r, a, memory, &scale, &zero, err));
    int_product p = {.a = &q, .b = run_in(r, 1), .packed = run_state(r), .y = y->data};
    TRY(product_setup(r, &p, SIZE_MAX, 3, err));
    for (size_t i = 0; i < p.m; i++) p.a_zero[i] = zero;
    TRY(quant_scales(r, 2, p.n, "b_scale", &p.b_scale, err));
    TRY(run_scratch(r, (p.m + 1) * sizeof(float), &memory, err));
    p.a_scale = memory;
    for (size_t i = 0; i < p.m; i++) p.a_scale[i] = scale;
    TRY(check_bias(r, 4, p.n, &bias, err));
    p.bias = bias;
    return product_run(r, &p, err);
}

typedef struct qgemm_state {
    int_packed packed; /* a constant B; the first member, as its release wants it */
    float alpha;
    bool trans_a, trans_b;
} qgemm_state;

static status qgemm_prepare(op_node *n, error *err) {
    qgemm_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_float(n, "alpha", 1, &st->alpha, err));
    TRY(op_attr_bool(n, "transA", false, &st->trans_a, err));
    TRY(op_attr_bool(n, "transB", false, &st->trans_b, err));
    const tensor *b = op_constant(n, 3);
    if (!b || b->rank != 2 || !(ELEM_BIT(b->type) & NN_I8)) return CHURON_OK;
    const size_t rows = (size_t)b->dims[0], cols = (size_t)b->dims[1];
    return st->trans_b ? int_pack_create(&st->packed, b->data, b->type, cols, rows, 1, cols, err)
                       : int_pack_create(&st->packed, b->data, b->type, rows, cols, cols, 1, err);
}

static status qgemm_infer(op_shapes *s,
                          error *err) { /* a, a_scale, a_zero, b, b_scale, b_zero, C, y_scale, y_zero */
    const qgemm_state *st = shapes_state(s);
    bool known_a, known_b;
    size_t ra, rb;
    const dim *a, *b;
    shapes_out_type(s, 0, op_has_input(shapes_node(s), 8) ? shapes_in_type(s, 8) : ELEM_F32);
    TRY(nn_rank(s, 0, 2, 2, "A", &known_a, &ra, &a, err));
    TRY(nn_rank(s, 3, 2, 2, "B", &known_b, &rb, &b, err));
    dim m = known_a ? a[st->trans_a] : dim_fresh(s), n = known_b ? b[!st->trans_b] : dim_fresh(s);
    if (known_a && known_b)
        TRY(shapes_same(s, a[!st->trans_a], b[st->trans_b], "columns of A and rows of B", NULL, err));
    return shapes_out(s, 0, 2, (dim[]){m, n}, err);
}

static status transposed(op_run *r, const tensor *t, bool trans, tensor *out, error *err) {
    *out = *t;
    if (!trans) return CHURON_OK;
    void *memory;
    size_t rows = (size_t)t->dims[0], cols = (size_t)t->dims[1];
    TRY(run_scratch(r, t->count + 1, &memory, err));
    *out = tensor_borrow(t->type, 2, (int64_t[]){t->dims[1], t->dims[0]}, memory);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            ((uint8_t *)memory)[j * rows + i] = ((const uint8_t *)t->data)[i * cols + j];
    return CHURON_OK;
}

static status qgemm_compute(op_run *r, error *err) {
    const qgemm_state *st = run_state(r);
    tensor a, b, *y;
    TRY(run_out(r, 0, &y, err));
    TRY(transposed(r, run_in(r, 0), st->trans_a, &a, err));
    const bool ready = st->packed.memory != NULL;
    if (ready && st->trans_b) /* its shape is read, its elements are not */
        b = tensor_borrow(run_in(r, 3)->type, 2, (int64_t[]){run_in(r, 3)->dims[1], run_in(r, 3)->dims[0]},
                          NULL);
    else
        TRY(transposed(r, run_in(r, 3), st->trans_b, &b, err));
    int_product p = {.a = &a, .b = &b, .packed = &st->packed};
    TRY(int_product_run(r, &p, 2, 5, err));
    float sa = 1, sy = 1, *sb;
    int32_t unused, zy = 0;
    TRY(quant_scalar(r, 1, 2, "a_scale, a_zero_point", &sa, &unused, err));
    TRY(quant_scales(r, 4, p.n, "b_scale", &sb, err));
    const tensor *c = run_in(r, 6);
    int64_t strides[2] = {0, 0};
    if (c) {
        for (size_t i = 0; i < c->rank; i++) {
            size_t want = i + 1 == c->rank ? p.n : p.m;
            if (c->rank > 2 || (c->dims[i] != 1 && (size_t)c->dims[i] != want))
                return run_error(r, err, CHURON_INVALID, "C: dimension %zu of 1 or %zu expected, got %lld", i,
                                 want, (long long)c->dims[i]);
        }
        nn_broadcast_strides(c->dims, c->rank, 2, strides);
    }
    if (y->type != ELEM_F32) TRY(quant_scalar(r, 7, 8, "y_scale, y_zero_point", &sy, &zy, err));
    for (size_t i = 0; i < y->count; i++) {
        size_t row = i / p.n, col = i % p.n;
        int32_t add = c ? ((const int32_t *)c->data)[row * (size_t)strides[0] + col * (size_t)strides[1]] : 0;
        float v = st->alpha * sa * sb[col] * (float)(int32_t)((uint32_t)p.sums[i] + (uint32_t)add);
        if (y->type == ELEM_F32)
            ((float *)y->data)[i] = v;
        else
            byte_set(y, i, quant_clamp((double)(v / sy), zy, y->type));
    }
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define F8I8 (NN_I8 | ELEMS_F8)
#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))
#define ROW(dom, op, first, last, sign, ...)                                                                 \
    .domain = dom, .name = op, .since = first, .until = last, .signature = sign, .vars = {__VA_ARGS__}

static const op_def rows[] = {
    {ROW("", "MatMulInteger", 10, 0, "TU=TU>@", {'T', NN_I8}, {'U', NN_I8}), .prepare = pack_second,
     .release = release_packed, .infer = matmul_integer_infer, .run = matmul_integer_run},
    {ROW("", "QLinearMatMul", 10, 20, "TfTUfUfV>V", {'T', NN_I8}, {'U', NN_I8}, {'V', NN_I8}),
     .prepare = pack_fourth, .release = release_packed, .infer = qlinear_matmul_infer,
     .run = qlinear_matmul_run},
    {ROW("", "QLinearMatMul", 21, 0, "TSTUSUSV>V", {'T', F8I8}, {'U', F8I8}, {'V', F8I8}, {'S', HALF}),
     .prepare = pack_fourth, .release = release_packed, .infer = qlinear_matmul_infer,
     .run = qlinear_matmul_run},
    {ROW("", "ConvInteger", 10, 0, "TU=TU>@", {'T', NN_I8}, {'U', NN_I8}), .prepare = conv_integer_prepare,
     .release = int_conv_release, .infer = conv_integer_infer, .run = conv_integer_run},
    {ROW("", "QLinearConv", 10, 0, "TfTUfUfV=I>V", {'T', NN_I8}, {'U', NN_I8}, {'V', NN_I8},
         {'I', ELEM_BIT(ELEM_I32)}),
     .prepare = qlinear_conv_prepare, .release = int_conv_release, .infer = qlinear_conv_infer,
     .run = qlinear_conv_run},
    {ROW("com.microsoft", "QLinearConv", 1, 0, "TfTUfUfV=I>V", {'T', NN_I8}, {'U', NN_I8}, {'V', NN_I8},
         {'I', ELEM_BIT(ELEM_I32)}),
     .prepare = qlinear_conv_prepare, .release = int_conv_release, .infer = qlinear_conv_infer,
     .run = qlinear_conv_run},
    {ROW("com.microsoft", "MatMulIntegerToFloat", 1, 0, "TUSS=TUS>S", {'T', NN_I8}, {'U', NN_I8},
         {'S', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16)}),
     .prepare = pack_second, .release = release_packed, .infer = to_float_infer, .run = matmul_to_float_run},
    {ROW("com.microsoft", "DynamicQuantizeMatMul", 1, 0, "fUf=Uf>f", {'U', NN_I8}), .prepare = pack_second,
     .release = release_packed, .infer = to_float_infer, .run = dynamic_matmul_run},
    {ROW("com.microsoft", "QGemm", 1, 0, "TfTUfU=IfV>@", {'T', NN_I8}, {'U', NN_I8}, {'V', NN_I8},
         {'I', ELEM_BIT(ELEM_I32)}),
     .prepare = qgemm_prepare, .release = release_packed, .infer = qgemm_infer, .run = qgemm_compute},
};
NN_TABLE(qlinear);
