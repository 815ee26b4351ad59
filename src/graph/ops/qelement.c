/* qelement.c: 8-bit operators of com.microsoft on elements: QLinearAdd, QLinearMul, QLinearWhere,
 * QLinearConcat, QLinearSigmoid, QLinearLeakyRelu. Values are scaled in f32, rounded half to even and
 * saturated. */
#include "base/mem.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"

#include <string.h>

/* ---- QLinearAdd, QLinearMul: A, A_scale, A_zero, B, B_scale, B_zero, C_scale, C_zero ------------------ */

static status binary_infer(op_shapes *s, error *err) {
    size_t ra, rb, n;
    const dim *a, *b;
    dim out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &ra, &a) || !shapes_in(s, 3, &rb, &b)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(nn_broadcast(s, a, ra, b, rb, out, &n, err));
    return shapes_out(s, 0, n, out, err);
}

/* The result as rows of `inner` values, along which each operand goes on or stays. */
typedef struct binary_job {
    const kernels *k;
    qpair pair;
    const uint8_t *a, *b;
    uint8_t *c;
    size_t rank, inner; /* axes in front of the rows */
    int64_t dims[TENSOR_MAX_RANK], step_a[TENSOR_MAX_RANK], step_b[TENSOR_MAX_RANK];
    bool a_stays, b_stays;
    size_t pieces; /* of a row */
} binary_job;

enum { PIECE = 1024 };

static void binary_pieces(void *ctx, size_t from, size_t to) {
    const binary_job *j = ctx;
    uint8_t same[PIECE];
    for (size_t i = from; i < to; i++) {
        const size_t row = i / j->pieces, at = i % j->pieces * PIECE,
                     n = j->inner - at < PIECE ? j->inner - at : PIECE;
        int64_t pa = 0, pb = 0;
        size_t rest = row;
        for (size_t d = j->rank; d-- > 0;) {
            const int64_t k = (int64_t)(rest % (size_t)j->dims[d]);
            rest /= (size_t)j->dims[d];
            pa += k * j->step_a[d], pb += k * j->step_b[d];
        }
        const uint8_t *a = j->a + pa, *b = j->b + pb;
        if (j->a_stays || j->b_stays) memset(same, j->a_stays ? *a : *b, n);
        j->k->qpair(&j->pair, j->a_stays ? same : a + at,
                    j->b_stays && !j->a_stays ? same : b + (j->b_stays ? 0 : at), j->c + row * j->inner + at,
                    n);
    }
}

/* Takes axes into the rows from the last one on, as long as each operand keeps its way. */
static void find_rows(binary_job *j, const tensor *a, const tensor *b, const tensor *c) {
    nn_broadcast_strides(a->dims, a->rank, c->rank, j->step_a);
    nn_broadcast_strides(b->dims, b->rank, c->rank, j->step_b);
    memcpy(j->dims, c->dims, c->rank * sizeof *j->dims);
    j->rank = c->rank;
    j->inner = 1;
    bool chosen = false;
    while (j->rank > 0) {
        const size_t d = j->rank - 1;
        const int64_t n = (int64_t)j->inner;
        if (j->dims[d] != 1) {
            const bool a_stays = j->step_a[d] == 0, b_stays = j->step_b[d] == 0;
            if (chosen && (a_stays != j->a_stays || b_stays != j->b_stays)) break;
            if (a_stays && b_stays) break;
            if ((!a_stays && j->step_a[d] != n) || (!b_stays && j->step_b[d] != n)) break;
            j->a_stays = a_stays;
            j->b_stays = b_stays;
            chosen = true;
            j->inner *= (size_t)j->dims[d];
        }
        j->rank--;
    }
}

static status binary_run(op_run *r, bool multiply, error *err) {
    const tensor *a = run_in(r, 0), *b = run_in(r, 3);
    tensor *c;
    float sa = 1, sb = 1, sc = 1;
    int32_t za = 0, zb = 0, zc = 0;
    TRY(run_out(r, 0, &c, err));
    TRY(quant_scalar(r, 1, 2, "A_scale, A_zero_point", &sa, &za, err));
    TRY(quant_scalar(r, 4, 5, "B_scale, B_zero_point", &sb, &zb, err));
    TRY(quant_scalar(r, 6, 7, "C_scale, C_zero_point", &sc, &zc, err));
    if (c->count == 0) return CHURON_OK;
    const uint8_t flip = c->type == ELEM_I8 ? 0x80 : 0;
    const int32_t move = flip;
    binary_job j = {.k = run_kernels(r),
                    .a = a->data,
                    .b = b->data,
                    .c = c->data,
                    .pair = {.multiply = multiply,
                             .a_flip = flip,
                             .b_flip = flip,
                             .y_flip = flip,
                             .a_zero = za + move,
                             .b_zero = zb + move,
                             .y_zero = zc + move,
                             .a_factor = multiply ? sa * sb / sc : sa / sc,
                             .b_factor = sb / sc}};
    if (!isfinite(j.pair.a_factor) || !isfinite(j.pair.b_factor) || fabsf(j.pair.a_factor) > 0x1p100f ||
        fabsf(j.pair.b_factor) > 0x1p100f)
        return run_error(r, err, CHURON_INVALID, "scales: quotients within 2^100 expected, got %g and %g",
                         (double)j.pair.a_factor, (double)j.pair.b_factor);
    find_rows(&j, a, b, c);
    j.pieces = (j.inner + PIECE - 1) / PIECE;
    const size_t rows = c->count / j.inner;
    run_parallel(r, rows * j.pieces, 0.15 * (double)c->count + 10.0 * (double)rows, binary_pieces, &j);
    return CHURON_OK;
}

static status add_run(op_run *r, error *err) {
    return binary_run(r, false, err);
}

static status mul_run(op_run *r, error *err) {
    return binary_run(r, true, err);
}

/* ---- QLinearWhere: condition, X, X_scale, X_zero, Y, Y_scale, Y_zero, Z_scale, Z_zero ----------------- */

static status where_infer(op_shapes *s, error *err) {
    size_t rc, rx, ry, n;
    const dim *c, *x, *y;
    dim both[TENSOR_MAX_RANK], out[TENSOR_MAX_RANK];
    if (!shapes_in(s, 0, &rc, &c) || !shapes_in(s, 1, &rx, &x) || !shapes_in(s, 4, &ry, &y)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(nn_broadcast(s, x, rx, y, ry, both, &n, err));
    TRY(nn_broadcast(s, c, rc, both, n, out, &n, err));
    return shapes_out(s, 0, n, out, err);
}

/* What each byte of x becomes under another scale and zero point. */
static void rescale_table(elem type, float sx, int32_t zx, float sz, int32_t zz, uint8_t table[256]) {
    for (int k = 0; k < 256; k++) {
        const int32_t code = type == ELEM_I8 ? (int8_t)(uint8_t)k : k;
        table[k] = (uint8_t)quant_clamp((double)(sx * (float)(code - zx) / sz), zz, type);
    }
}

static status where_run(op_run *r, error *err) {
    const tensor *from[3] = {run_in(r, 0), run_in(r, 1), run_in(r, 4)};
    int64_t steps[3][TENSOR_MAX_RANK];
    uint8_t tables[2][256];
    float sx = 1, sy = 1, sz = 1;
    int32_t zx = 0, zy = 0, zz = 0;
    tensor *z;
    TRY(run_out(r, 0, &z, err));
    TRY(quant_scalar(r, 2, 3, "X_scale, X_zero_point", &sx, &zx, err));
    TRY(quant_scalar(r, 5, 6, "Y_scale, Y_zero_point", &sy, &zy, err));
    TRY(quant_scalar(r, 7, 8, "Z_scale, Z_zero_point", &sz, &zz, err));
    rescale_table(z->type, sx, zx, sz, zz, tables[0]);
    rescale_table(z->type, sy, zy, sz, zz, tables[1]);
    for (size_t k = 0; k < 3; k++) nn_broadcast_strides(from[k]->dims, from[k]->rank, z->rank, steps[k]);
    for (size_t i = 0; i < z->count; i++) {
        size_t rest = i, at[3] = {0};
        for (size_t d = z->rank; d-- > 0;) {
            for (size_t k = 0; k < 3; k++) at[k] += rest % (size_t)z->dims[d] * (size_t)steps[k][d];
            rest /= (size_t)z->dims[d];
        }
        const size_t which = ((const uint8_t *)from[0]->data)[at[0]] ? 0 : 1;
        ((uint8_t *)z->data)[i] = tables[which][((const uint8_t *)from[1 + which]->data)[at[1 + which]]];
    }
    return CHURON_OK;
}

/* ---- functions of one byte -------------------------------------------------------------------------- */

typedef struct byte_state {
    float alpha;
    int64_t axis;
} byte_state;

static status leaky_prepare(op_node *n, error *err) {
    byte_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_float(n, "alpha", 0.01F, &st->alpha, err);
}

/* A table of all 256 bytes, then a look-up for each. */
static status byte_run(op_run *r, bool sigmoid, error *err) {
    const byte_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    float sx = 1, sy = 1;
    int32_t zx = 0, zy = 0;
    uint8_t table[256];
    TRY(run_out(r, 0, &y, err));
    TRY(quant_scalar(r, 1, 2, "X_scale, X_zero_point", &sx, &zx, err));
    TRY(quant_scalar(r, 3, 4, "Y_scale, Y_zero_point", &sy, &zy, err));
    for (int i = 0; i < 256; i++) {
        int32_t code = x->type == ELEM_I8 ? (int8_t)(uint8_t)i : i;
        float v = sx * (float)(code - zx);
        v = sigmoid ? 1 / (1 + expf(-v)) : v < 0 ? st->alpha * v : v;
        table[i] = (uint8_t)quant_clamp((double)(v / sy), zy, y->type);
    }
    for (size_t i = 0; i < x->count; i++) ((uint8_t *)y->data)[i] = table[((const uint8_t *)x->data)[i]];
    return CHURON_OK;
}

static status sigmoid_run(op_run *r, error *err) {
    return byte_run(r, true, err);
}

static status leaky_run(op_run *r, error *err) {
    return byte_run(r, false, err);
}

/* ---- QLinearConcat: Y_scale, Y_zero, then (x, scale, zero) of each input ----------------------------- */

static status concat_prepare(op_node *n, error *err) {
    byte_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    size_t inputs = op_n_inputs(n);
    if (!op_attr_present(n, "axis")) return op_error(n, err, CHURON_INVALID, "axis is required");
    TRY(op_attr_int(n, "axis", 0, INT32_MIN, INT32_MAX, &st->axis, err));
    if (inputs < 5 || (inputs - 2) % 3)
        return op_error(n, err, CHURON_INVALID, "inputs: 2 and a multiple of 3 expected, got %zu", inputs);
    for (size_t i = 0; i < inputs; i++)
        if (!op_has_input(n, i))
            return op_error(n, err, CHURON_INVALID, "input %zu: a value expected, got none", i);
    for (size_t i = 2; i < inputs; i += 3)
        if (!(ELEM_BIT(op_input_type(n, i)) & NN_I8) || op_input_type(n, i + 1) != ELEM_F32 ||
            op_input_type(n, i + 2) != op_input_type(n, i))
            return op_error(
                n, err, CHURON_INVALID,
                "inputs %zu to %zu: bytes, a float32 scale and a zero point of the bytes' type expected", i,
                i + 2);
    return CHURON_OK;
}

static status concat_infer(op_shapes *s, error *err) {
    const byte_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    size_t rank = 0, axis = 0;
    dim out[TENSOR_MAX_RANK];
    for (size_t i = 2; i < op_n_inputs(n); i += 3) {
        size_t ri;
        const dim *d;
        if (!shapes_in(s, i, &ri, &d)) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        if (i == 2) {
            rank = ri;
            TRY(op_axis(n, st->axis, rank, "axis", &axis, err));
            memcpy(out, d, rank * sizeof *d);
            continue;
        }
        if (ri != rank)
            return op_error(n, err, CHURON_INVALID, "input %zu: rank %zu expected, got %zu", i, rank, ri);
        for (size_t k = 0; k < rank; k++) {
            if (k == axis)
                out[k] = dim_add(s, out[k], d[k]);
            else
                TRY(shapes_same(s, out[k], d[k], "inputs outside the axis", &out[k], err));
        }
    }
    return shapes_out(s, 0, rank, out, err);
}

static status concat_run(op_run *r, error *err) {
    const byte_state *st = run_state(r);
    tensor *y;
    size_t axis, at = 0;
    float sy = 1, sx = 1;
    int32_t zy = 0, zx = 0;
    TRY(run_out(r, 0, &y, err));
    TRY(op_axis(run_node(r), st->axis, y->rank, "axis", &axis, err));
    TRY(quant_scalar(r, 0, 1, "Y_scale, Y_zero_point", &sy, &zy, err));
    size_t outer = (size_t)nn_product(y->dims, axis),
           inner = (size_t)nn_product(y->dims + axis, y->rank - axis);
    for (size_t i = 2; i < op_n_inputs(run_node(r)); i += 3) {
        const tensor *x = run_in(r, i);
        uint8_t table[256];
        TRY(quant_scalar(r, i + 1, i + 2, "scale and zero point of an input", &sx, &zx, err));
        rescale_table(x->type, sx, zx, sy, zy, table);
        size_t length = (size_t)nn_product(x->dims + axis, x->rank - axis);
        for (size_t o = 0; o < outer; o++)
            for (size_t k = 0; k < length; k++)
                ((uint8_t *)y->data)[o * inner + at + k] = table[((const uint8_t *)x->data)[o * length + k]];
        at += length;
    }
    return CHURON_OK;
}

#define ROW(op, sign, ...)                                                                                   \
    .domain = "com.microsoft", .name = op, .since = 1, .signature = sign, .vars = {__VA_ARGS__}

static const op_def rows[] = {
    {ROW("QLinearAdd", "Tf=TTfTfT>T", {'T', NN_I8}), .infer = binary_infer, .run = add_run},
    {ROW("QLinearMul", "Tf=TTfTfT>T", {'T', NN_I8}), .infer = binary_infer, .run = mul_run},
    {ROW("QLinearWhere", "bTfTTfTfT>T", {'T', NN_I8}), .infer = where_infer, .run = where_run},
    {ROW("QLinearSigmoid", "Tf=TfT>T", {'T', NN_I8}), .infer = infer_same, .run = sigmoid_run},
    {ROW("QLinearLeakyRelu", "Tf=TfT>T", {'T', NN_I8}), .prepare = leaky_prepare, .release = mem_free,
     .infer = infer_same, .run = leaky_run},
    {ROW("QLinearConcat", "fTV+>T", {'T', NN_I8}, {'V', NN_I8 | ELEM_BIT(ELEM_F32)}),
     .prepare = concat_prepare, .release = mem_free, .infer = concat_infer, .run = concat_run},
};
NN_TABLE(qelement);
