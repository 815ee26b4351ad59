/* quantized.c: operators between DequantizeLinear and QuantizeLinear (the QDQ form) on the integers:
 *
 *   Conv, MatMul, Gemm   constant weights, one scale for all or one a column (output channel), bias of int32
 *   Add, Mul             of two quantized values
 *   AveragePool, GlobalAveragePool, ReduceMean of images, Concat
 *   MaxPool, nearest Resize, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, whose scales on both sides may
 * differ
 *
 * Sums of the integers are exact and are rounded once, where the QDQ form rounds products and sums in f32:
 * the result is the same, but where that rounding crosses the middle between two steps of the output; then it
 * is the neighbouring step. What only moves or picks elements gives the same bits. Relu, or Clip, before
 * QuantizeLinear goes where saturation does the same. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/qimage.h"
#include "graph/passes/blocked.h"

#include <math.h>
#include <string.h>

/* A value with its scale and zero point, which are constants. */
typedef struct quantized {
    ir_value *v, *scale, *zero; /* zero: NULL where absent */
} quantized;

static const tensor *f32_scale(const ir_value *v) {
    return v && v->is_constant && v->constant.type == ELEM_F32 ? &v->constant : NULL;
}

static bool is_8_bit(const ir_value *v) {
    return v && v->type.kind == ONNX_TENSOR && (v->type.type == ELEM_U8 || v->type.type == ELEM_I8);
}

/* v comes from DequantizeLinear without blocks. */
static bool dequantized(const ir_value *v, quantized *q) {
    const op_node *n = v && !v->is_constant ? v->producer : NULL;
    if (!node_is(n, "DequantizeLinear") || node_int(n, "block_size", 0) != 0 || !value_is_f32(v) ||
        !f32_scale(n->inputs[1]))
        return false;
    *q = (quantized){n->inputs[0], n->inputs[1], n->n_inputs > 2 ? n->inputs[2] : NULL};
    return !q->zero || q->zero->is_constant;
}

static bool is_even(const quantized *q) { /* one scale, 8 bits */
    return is_8_bit(q->v) && f32_scale(q->scale)->count == 1;
}

static int32_t zero_of(const quantized *q) {
    if (!q->zero) return 0;
    return q->v->type.type == ELEM_I8 ? ((const int8_t *)q->zero->constant.data)[0]
                                      : ((const uint8_t *)q->zero->constant.data)[0];
}

static float scale_at(const quantized *q, size_t i) {
    const tensor *t = f32_scale(q->scale);
    return ((const float *)t->data)[t->count > 1 ? i : 0];
}

/* ---- the end: QuantizeLinear ------------------------------------------------------------------------ */

typedef struct result {
    op_node *between, *quantize; /* between: Relu or Clip, or NULL */
    quantized q;
} result;

/* Everything that the limits cut off is saturated by the quantization. */
static bool saturates(const quantized *q, float low, float high) {
    const bool is_signed = q->v->type.type == ELEM_I8;
    const int32_t zero = zero_of(q), least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    const float scale = scale_at(q, 0);
    return low <= (float)(least - zero) * scale && high >= (float)(most - zero) * scale;
}

static bool quantizes(const rewriter *w, const op_node *n, result *out) {
    op_node *next = rewrite_only_reader(w, n->outputs[0]);
    node_function f;
    float low = -INFINITY, high = INFINITY;
    *out = (result){0};
    if (next && node_reads_function(next, &f)) {
        if (!f.limits) return false;
        low = f.low;
        high = f.high;
        out->between = next;
        next = rewrite_only_reader(w, next->outputs[0]);
    }
    if (!node_is(next, "QuantizeLinear") || node_int(next, "block_size", 0) != 0 ||
        !f32_scale(next->inputs[1]) || node_int(next, "precision", 0) != 0)
        return false;
    out->quantize = next;
    out->q = (quantized){next->outputs[0], next->inputs[1], next->n_inputs > 2 ? next->inputs[2] : NULL};
    return (!out->q.zero || out->q.zero->is_constant) && is_even(&out->q) && saturates(&out->q, low, high);
}

static void remove_result(rewriter *w, op_node *n, const result *r) {
    rewrite_remove(w, n);
    if (r->between) rewrite_remove(w, r->between);
    rewrite_remove(w, r->quantize);
}

/* ---- inputs of the new node ------------------------------------------------------------------------- */

static status zero_point(rewriter *w, const quantized *q, ir_value **out, error *err) {
    *out = q->zero;
    if (q->zero) return CHURON_OK;
    tensor t;
    TRY(tensor_alloc(&t, q->v->type.type, 0, NULL, err));
    memset(t.data, 0, 1);
    return rewrite_constant(w, q->v->name, t, out, err);
}

static status put_three(rewriter *w, const quantized *q, ir_value **inputs, error *err) {
    inputs[0] = q->v;
    inputs[1] = q->scale;
    return zero_point(w, q, &inputs[2], err);
}

/* ---- convolutions and products ---------------------------------------------------------------------- */

/* Constant 8-bit weights of one scale, or one for each of n along `axis`. */
static bool are_weights(const quantized *q, size_t axis, size_t *n) {
    if (!is_8_bit(q->v) || !q->v->is_constant || q->v->constant.rank <= axis) return false;
    *n = (size_t)q->v->constant.dims[axis];
    const size_t count = f32_scale(q->scale)->count;
    return (count == 1 || count == *n) && (!q->zero || q->zero->constant.count == count);
}

static bool is_along(const op_node *dequantize, const quantized *q, size_t axis) {
    int64_t said = node_int(dequantize, "axis", 1);
    if (said < 0) said += q->v->constant.rank;
    return f32_scale(q->scale)->count == 1 || said == (int64_t)axis;
}

/* Bias as int32 in steps of scale(x) * scale(w), or none. */
static bool is_bias(const ir_value *v, const quantized *x, const quantized *w, size_t n, ir_value **out) {
    quantized b;
    *out = NULL;
    if (!v) return true;
    if (!dequantized(v, &b) || !b.v->is_constant || b.v->constant.type != ELEM_I32 ||
        b.v->constant.rank != 1 || b.v->constant.count != n)
        return false;
    const size_t count = f32_scale(b.scale)->count;
    if (count != 1 && count != n) return false;
    for (size_t i = 0; b.zero && i < b.zero->constant.count; i++) {
        if (b.zero->constant.type != ELEM_I32 || ((const int32_t *)b.zero->constant.data)[i] != 0)
            return false;
    }
    for (size_t i = 0; i < n; i++) {
        const float want = scale_at(x, 0) * scale_at(w, i);
        if (!(fabsf(scale_at(&b, i) - want) <= 1e-6f * want)) return false;
    }
    *out = b.v;
    return true;
}

static status lower_conv(rewriter *w, op_node *n, error *err) {
    quantized x, k;
    result y;
    ir_value *bias, *inputs[9];
    size_t channels;
    if (!dequantized(n->inputs[0], &x) || !is_even(&x) || !dequantized(n->inputs[1], &k) ||
        !are_weights(&k, 0, &channels) || !is_along(n->inputs[1]->producer, &k, 0) ||
        !is_bias(n->n_inputs > 2 ? n->inputs[2] : NULL, &x, &k, channels, &bias) || !quantizes(w, n, &y))
        return CHURON_OK;
    TRY(put_three(w, &x, inputs, err));
    TRY(put_three(w, &k, inputs + 3, err));
    inputs[6] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[7], err));
    inputs[8] = bias;
    TRY(rewrite_operator_like(w, y.quantize, n, "", "QLinearConv", 10, inputs, bias ? 9 : 8,
                              y.quantize->outputs, 1, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

static status lower_matmul(rewriter *w, op_node *n, error *err) {
    quantized a, b;
    result y;
    ir_value *inputs[8];
    size_t columns;
    if (!dequantized(n->inputs[0], &a) || !is_even(&a) || !dequantized(n->inputs[1], &b) ||
        !are_weights(&b, 1, &columns) || b.v->constant.rank != 2 ||
        !is_along(n->inputs[1]->producer, &b, 1) || !quantizes(w, n, &y))
        return CHURON_OK;
    TRY(put_three(w, &a, inputs, err));
    TRY(put_three(w, &b, inputs + 3, err));
    inputs[6] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[7], err));
    TRY(rewrite_operator(w, y.quantize, "", "QLinearMatMul", 10, NULL, 0, inputs, 8, y.quantize->outputs, 1,
                         err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

static status lower_gemm(rewriter *w, op_node *n, error *err) {
    quantized a, b;
    result y;
    ir_value *bias, *inputs[9];
    size_t columns;
    const size_t axis = node_int(n, "transB", 0) ? 0 : 1;
    if (!dequantized(n->inputs[0], &a) || !is_even(&a) || !dequantized(n->inputs[1], &b) ||
        !are_weights(&b, axis, &columns) || b.v->constant.rank != 2 ||
        !is_along(n->inputs[1]->producer, &b, axis) || node_float(n, "alpha", 1.0f) != 1.0f ||
        node_float(n, "beta", 1.0f) != 1.0f ||
        !is_bias(n->n_inputs > 2 ? n->inputs[2] : NULL, &a, &b, columns, &bias) || !quantizes(w, n, &y))
        return CHURON_OK;
    TRY(put_three(w, &a, inputs, err));
    TRY(put_three(w, &b, inputs + 3, err));
    inputs[6] = bias;
    inputs[7] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[8], err));
    const node_attr attrs[] = {{.name = "transA", .i = node_int(n, "transA", 0)},
                               {.name = "transB", .i = node_int(n, "transB", 0)}};
    TRY(rewrite_operator(w, y.quantize, "com.microsoft", "QGemm", 1, attrs, 2, inputs, 9, y.quantize->outputs,
                         1, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

static status lower_pair(rewriter *w, op_node *n, error *err) {
    quantized a, b;
    result y;
    ir_value *inputs[8];
    if (n->n_inputs != 2 || n->version < 7 || !dequantized(n->inputs[0], &a) || !is_even(&a) ||
        !dequantized(n->inputs[1], &b) || !is_even(&b) || !quantizes(w, n, &y) ||
        a.v->type.type != b.v->type.type || a.v->type.type != y.q.v->type.type)
        return CHURON_OK;
    TRY(put_three(w, &a, inputs, err));
    TRY(put_three(w, &b, inputs + 3, err));
    inputs[6] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[7], err));
    TRY(rewrite_operator(w, y.quantize, "com.microsoft", node_is(n, "Mul") ? "QLinearMul" : "QLinearAdd", 1,
                         NULL, 0, inputs, 8, y.quantize->outputs, 1, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

/* ---- pools and concatenations ----------------------------------------------------------------------- */

static bool is_mean_of_images(const op_node *n) {
    size_t first, count;
    return node_is(n, "ReduceMean") && n->inputs[0]->has_rank && n->inputs[0]->rank == 4 &&
           node_reduced_axes(n, &first, &count) && first == 2 && count == 2 && n->outputs[0]->has_rank &&
           n->outputs[0]->rank == 4;
}

static status lower_average(rewriter *w, op_node *n, error *err) {
    quantized x;
    result y;
    ir_value *inputs[5];
    size_t count;
    const bool global = node_is(n, "GlobalAveragePool") || is_mean_of_images(n);
    if ((!global && (!node_is(n, "AveragePool") || node_ints(n, "dilations", &count))) ||
        !dequantized(n->inputs[0], &x) || !is_even(&x) || !quantizes(w, n, &y) ||
        x.v->type.type != y.q.v->type.type)
        return CHURON_OK;
    TRY(put_three(w, &x, inputs, err));
    inputs[3] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[4], err));
    if (global)
        TRY(rewrite_operator(w, y.quantize, "com.microsoft", "QLinearGlobalAveragePool", 1, NULL, 0, inputs,
                             5, y.quantize->outputs, 1, err));
    else
        TRY(rewrite_operator_like(w, y.quantize, n, "com.microsoft", "QLinearAveragePool", 1, inputs, 5,
                                  y.quantize->outputs, 1, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

static status lower_concat(rewriter *w, op_node *n, error *err) {
    enum { MOST = 64 };
    quantized x;
    result y;
    ir_value *inputs[2 + 3 * MOST];
    if (n->n_inputs > MOST || !quantizes(w, n, &y)) return CHURON_OK;
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (!dequantized(n->inputs[i], &x) || !is_even(&x) || x.v->type.type != y.q.v->type.type)
            return CHURON_OK;
    }
    inputs[0] = y.q.scale;
    TRY(zero_point(w, &y.q, &inputs[1], err));
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (dequantized(n->inputs[i], &x)) TRY(put_three(w, &x, inputs + 2 + 3 * i, err));
    }
    TRY(rewrite_operator_like(w, y.quantize, n, "com.microsoft", "QLinearConcat", 1, inputs,
                              2 + 3 * n->n_inputs, y.quantize->outputs, 1, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

/* ---- what moves elements ---------------------------------------------------------------------------- */

static bool is_mover(const op_node *n) {
    static const char *const movers[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", NULL};
    for (size_t i = 0; movers[i]; i++) {
        if (node_is(n, movers[i])) return true;
    }
    size_t high, wide;
    if (node_is(n, "MaxPool")) return n->version >= 12 && (n->n_outputs < 2 || !n->outputs[1]);
    return layout_reads_repeat(n, &high, &wide);
}

/* y = quantized(dequantized x) of every code; NULL: nothing changes. */
static status make_table(const quantized *x, const quantized *y, qimage_table **out, error *err) {
    *out = NULL;
    const bool is_signed = x->v->type.type == ELEM_I8;
    const float low = is_signed ? -128.0f : 0.0f, zero = (float)zero_of(y);
    uint8_t table[256];
    bool moves = false;
    for (int i = 0; i < 256; i++) {
        const int32_t code = is_signed ? (int8_t)(uint8_t)i : i;
        float v = rintf((float)(code - zero_of(x)) * scale_at(x, 0) / scale_at(y, 0)) + zero;
        v = v > low ? v : low;
        table[i] = (uint8_t)(int32_t)(v < low + 255.0f ? v : low + 255.0f);
        moves = moves || table[i] != i;
    }
    if (!moves) return CHURON_OK;
    qimage_table *st = mem_alloc(sizeof *st);
    uint8_t *bytes = st ? mem_alloc(sizeof table) : NULL;
    if (!bytes) {
        mem_free(st);
        return ir_no_memory(err);
    }
    memcpy(bytes, table, sizeof table);
    *st = (qimage_table){.axis = SIZE_MAX, .n = 1, .type = y->v->type.type, .bytes = bytes};
    *out = st;
    return CHURON_OK;
}

/* A maximum of quantized values is the quantized maximum: rounding keeps the order. */
static status lower_mover(rewriter *w, op_node *n, error *err) {
    quantized x;
    result y;
    if (!dequantized(n->inputs[0], &x) || !is_even(&x) || n->n_inputs > 4 || !quantizes(w, n, &y) ||
        y.between || x.v->type.type != y.q.v->type.type ||
        !(scale_at(&x, 0) >= 0x1p-40f && scale_at(&x, 0) <= 0x1p40f) ||
        !(scale_at(&y.q, 0) >= 0x1p-40f && scale_at(&y.q, 0) <= 0x1p40f))
        return CHURON_OK;
    ir_value *inputs[4] = {x.v}, *moved = y.quantize->outputs[0];
    for (size_t i = 1; i < n->n_inputs; i++) inputs[i] = n->inputs[i];
    qimage_table *st;
    TRY(make_table(&x, &y.q, &st, err));
    if (st) {
        const ir_value *from = n->outputs[0];
        status made = from->has_rank
                          ? rewrite_value(w, n->name, x.v->type.type, from->rank, from->dims, &moved, err)
                          : CHURON_OK;
        if (made != CHURON_OK || !from->has_rank) {
            qimage_table_free(st);
            return made;
        }
    }
    TRY(rewrite_operator_like(w, y.quantize, n, "", n->op, n->version, inputs, n->n_inputs, &moved, 1, err));
    if (st)
        TRY(rewrite_insert(w, y.quantize, &op_qimage_table, n->name, &moved, 1, y.quantize->outputs, 1, st,
                           NULL, err));
    remove_result(w, n, &y);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->n_outputs == 0 || !n->outputs[0] || n->n_inputs == 0) continue;
        if (node_is(n, "Conv")) TRY(lower_conv(w, n, err));
        if (node_is(n, "MatMul")) TRY(lower_matmul(w, n, err));
        if (node_is(n, "Gemm")) TRY(lower_gemm(w, n, err));
        if (node_is(n, "Add") || node_is(n, "Sum") || node_is(n, "Mul")) TRY(lower_pair(w, n, err));
        if (node_is(n, "Concat")) TRY(lower_concat(w, n, err));
        if (node_is(n, "AveragePool") || node_is(n, "GlobalAveragePool") || node_is(n, "ReduceMean"))
            TRY(lower_average(w, n, err));
        if (!rewrite_removed(n) && is_mover(n)) TRY(lower_mover(w, n, err));
    }
    return CHURON_OK;
}

status pass_quantized(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err);
}
