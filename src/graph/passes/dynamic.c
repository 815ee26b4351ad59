/* dynamic.c: products whose activations are quantized as they come: DynamicQuantizeLinear, MatMulInteger with
 * constant weights, Cast, and a Mul with the product of both scales, as quantizers export it. Everything
 * behind the quantization becomes one operator; the quantized activations stay a value of their own, since
 * several products (query, key and value) read them. Rounding is that of the pieces, to the bit. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/product.h"

#include <math.h>
#include <string.h>

/* Weights' scale: the constant that multiplies the scale of the activations. */
static const tensor *weight_scale(const op_node *scales, const ir_value *a_scale, size_t n) {
    if (!node_is(scales, "Mul") || scales->n_inputs != 2) return NULL;
    const size_t other = scales->inputs[0] == a_scale ? 1 : 0;
    const tensor *t = scales->inputs[1 - other] == a_scale ? node_f32_constant(scales, other) : NULL;
    return t && t->rank <= 1 && (t->count == 1 || t->count == n) ? t : NULL;
}

/* Weights' zero points, moved to int8: one a column; NULL where all are 0. */
static status weight_zero(const op_node *n, const int_packed *q, int32_t **out, error *err) {
    const tensor *t = n->n_inputs > 3 && n->inputs[3] ? op_constant(n, 3) : NULL;
    const int32_t move = q->is_signed ? 0 : -128;
    int32_t any = move;
    *out = NULL;
    for (size_t j = 0; t && j < t->count; j++)
        any |= (q->is_signed ? ((const int8_t *)t->data)[j] : ((const uint8_t *)t->data)[j]) + move;
    if (any == 0) return CHURON_OK;
    int32_t *zero = mem_calloc(qgemm_panels(q->n) * QGEMM_PANEL, sizeof *zero);
    if (!zero) return ir_no_memory(err);
    for (size_t j = 0; j < q->n; j++) {
        const size_t at = t && t->count > 1 ? j : 0;
        const int32_t v = !t             ? 0
                          : q->is_signed ? ((const int8_t *)t->data)[at]
                                         : ((const uint8_t *)t->data)[at];
        zero[j] = v + move;
    }
    *out = zero;
    return CHURON_OK;
}

/* Takes the packed weights out of the state of n. */
static status make_state(op_node *n, const tensor *scale, product **out, error *err) {
    int_packed *taken = n->state;
    product *st = mem_calloc(1, sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (product){.k = taken->k, .n = taken->n, .low = -INFINITY, .high = INFINITY, .q8 = *taken};
    *taken = (int_packed){0};
    st->b_scale = mem_calloc(qgemm_panels(st->n) * QGEMM_PANEL, sizeof(float));
    if (!st->b_scale || weight_zero(n, &st->q8, &st->b_zero, err) != CHURON_OK) {
        product_free(st);
        return ir_no_memory(err);
    }
    for (size_t j = 0; j < st->n; j++)
        st->b_scale[j] = ((const float *)scale->data)[scale->count > 1 ? j : 0];
    *out = st;
    return CHURON_OK;
}

static bool has_constant_weights(const op_node *n) {
    const int_packed *q = n->state;
    if (!node_is(n, "MatMulInteger") || n->n_inputs < 3 || !q || !q->memory || q->k == 0 || q->n == 0)
        return false;
    const ir_value *zero = n->n_inputs > 3 ? n->inputs[3] : NULL;
    const tensor *t = zero ? op_constant(n, 3) : NULL;
    return !zero || (t && (t->count == 1 || t->count == q->n));
}

static status lower(rewriter *w, op_node *n, error *err) {
    const ir_value *x = n->inputs[0];
    op_node *quantize = x->producer;
    if (!has_constant_weights(n) || !x->has_rank || x->rank < 2 ||
        !node_is(quantize, "DynamicQuantizeLinear") || quantize->n_outputs < 3 || quantize->outputs[0] != x ||
        !quantize->outputs[1] || quantize->outputs[2] != n->inputs[2])
        return CHURON_OK;
    op_node *cast = rewrite_only_reader(w, n->outputs[0]);
    if (!node_is(cast, "Cast") || !value_is_f32(cast->outputs[0])) return CHURON_OK;
    op_node *mul = rewrite_only_reader(w, cast->outputs[0]);
    if (!node_is(mul, "Mul") || mul->n_inputs != 2) return CHURON_OK;
    const ir_value *factor = mul->inputs[mul->inputs[0] == cast->outputs[0] ? 1 : 0];
    const int_packed *q = n->state;
    const tensor *scale = weight_scale(factor->producer, quantize->outputs[1], q->n);
    if (!scale) return CHURON_OK;
    product *st = NULL;
    TRY(make_state(n, scale, &st, err));
    TRY(rewrite_insert(w, mul, &op_product_int, n->name, quantize->outputs, 3, mul->outputs, 1, st, NULL,
                       err));
    rewrite_remove(w, n);
    rewrite_remove(w, cast);
    rewrite_remove(w, mul);
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (node_is(n, "MatMulInteger") && n->inputs[0]) TRY(lower(w, n, err));
    }
    return CHURON_OK;
}

status pass_dynamic_quantization(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
