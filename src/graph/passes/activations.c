/* activations.c: functions of one element that exporters wrote as several nodes:
 *   SiLU       x * Sigmoid(x)
 *   HardSwish  x * HardSigmoid(x; 1/6, 1/2);  x * Clip(x + 3, 0, 6) / 6, the division before or after
 *   GELU       x/2 * (1 + Erf(x / sqrt(2))), in any order of the products
 *   Mish       x * Tanh(Softplus(x))
 * The nodes between must have no other reader. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/blocked.h"

#include <math.h>
#include <string.h>

/* A node of two inputs, one of them v, or of which one is a scalar constant. */
static ir_value *other_input(const op_node *n, const ir_value *v) {
    return n->inputs[0] == v ? n->inputs[1] : n->inputs[1] == v ? n->inputs[0] : NULL;
}

/* n is `op` of x and a scalar constant (in any order for Add and Mul); gives x. */
static ir_value *with_scalar(const op_node *n, const char *op, float *scalar) {
    if (!node_is(n, op) || n->n_inputs != 2 || n->version < 7) return NULL;
    if (value_scalar(n->inputs[1], scalar)) return n->inputs[0];
    const bool commutes = strcmp(op, "Add") == 0 || strcmp(op, "Mul") == 0;
    return commutes && value_scalar(n->inputs[0], scalar) ? n->inputs[1] : NULL;
}

static bool near(float a, double b) {
    return fabs((double)a - b) <= 1e-4 * fabs(b);
}

/* v divided by d, as Div by d or Mul by 1/d; gives what was divided, or NULL. */
static ir_value *divided(const op_node *n, double d) {
    float s;
    ir_value *x = n ? with_scalar(n, "Div", &s) : NULL;
    if (x && near(s, d)) return x;
    x = n ? with_scalar(n, "Mul", &s) : NULL;
    return x && near(s, 1.0 / d) ? x : NULL;
}

/* The maker of v, if only `reader` reads it. */
static op_node *private_maker(const rewriter *w, const ir_value *v, const op_node *reader) {
    return v && v->producer && !rewrite_removed(v->producer) && rewrite_only_reader(w, v) == reader
               ? v->producer
               : NULL;
}

/* Writes Unary in front of `last`, whose value it makes. The nodes between die of having no reader. */
static status put(rewriter *w, op_node *last, ir_value *x, kernel_unary f, float p, error *err) {
    unary_state *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (unary_state){.function = f, .p = p};
    TRY(rewrite_insert(w, last, &op_unary, last->name, &x, 1, last->outputs, 1, st, NULL, err));
    rewrite_remove(w, last);
    return CHURON_OK;
}

static bool same_function_shape(const ir_value *x, const op_node *last) {
    return value_is_f32(x) && value_same_shape(x, last->outputs[0]);
}

/* min(max(x + 3, 0), 6), made for `reader`. */
static bool is_clipped(const rewriter *w, const ir_value *v, const op_node *reader, const ir_value *x) {
    const op_node *clip = private_maker(w, v, reader);
    if (!node_is(clip, "Clip")) return false;
    float low = node_float(clip, "min", -1), high = node_float(clip, "max", -1), three;
    if (clip->version >= 11 &&
        (clip->n_inputs < 3 || !value_scalar(clip->inputs[1], &low) || !value_scalar(clip->inputs[2], &high)))
        return false;
    const op_node *add = private_maker(w, clip->inputs[0], clip);
    return low == 0.0f && high == 6.0f && add && with_scalar(add, "Add", &three) == x && three == 3.0f;
}

static bool is_gate(const rewriter *w, const ir_value *v, const op_node *mul, const ir_value *x,
                    kernel_unary *f) {
    const op_node *n = private_maker(w, v, mul);
    if (!n) return false;
    if (node_is(n, "Sigmoid") && n->inputs[0] == x) {
        *f = UNARY_F32_SWISH;
        return true;
    }
    if (node_is(n, "HardSigmoid") && n->inputs[0] == x) {
        *f = UNARY_F32_HARD_SWISH;
        return near(node_float(n, "alpha", 0.2f), 1.0 / 6) && node_float(n, "beta", 0.5f) == 0.5f;
    }
    if (node_is(n, "Tanh")) {
        const op_node *soft = private_maker(w, n->inputs[0], n);
        *f = UNARY_F32_MISH;
        return node_is(soft, "Softplus") && soft->inputs[0] == x;
    }
    *f = UNARY_F32_HARD_SWISH;
    const ir_value *clipped = divided(n, 6.0);
    return clipped && is_clipped(w, clipped, n, x);
}

static status match_gate(rewriter *w, op_node *mul, error *err) {
    for (size_t i = 0; i < 2; i++) {
        ir_value *x = mul->inputs[i];
        kernel_unary f;
        if (!x || !same_function_shape(x, mul) || !is_gate(w, mul->inputs[1 - i], mul, x, &f)) continue;
        return put(w, mul, x, f, 1.0f, err);
    }
    return CHURON_OK;
}

/* (x * clip(x + 3, 0, 6)) / 6 */
static status match_late_division(rewriter *w, op_node *n, error *err) {
    const ir_value *product = divided(n, 6.0);
    const op_node *mul = product ? private_maker(w, product, n) : NULL;
    if (!node_is(mul, "Mul")) return CHURON_OK;
    for (size_t i = 0; i < 2; i++) {
        ir_value *x = mul->inputs[i];
        if (!x || !same_function_shape(x, n) || !is_clipped(w, mul->inputs[1 - i], mul, x)) continue;
        return put(w, n, x, UNARY_F32_HARD_SWISH, 0.0f, err);
    }
    return CHURON_OK;
}

/* 1 + Erf(x / sqrt(2)) made for `reader`; gives x. */
static ir_value *gelu_core(const rewriter *w, const ir_value *v, const op_node *reader) {
    const op_node *add = private_maker(w, v, reader);
    float one;
    const ir_value *e = add ? with_scalar(add, "Add", &one) : NULL;
    const op_node *erf_node = e && one == 1.0f ? private_maker(w, e, add) : NULL;
    if (!node_is(erf_node, "Erf")) return NULL;
    const op_node *scaled = private_maker(w, erf_node->inputs[0], erf_node);
    return scaled ? divided(scaled, sqrt(2.0)) : NULL;
}

/* (x * core) * 0.5, x * (core * 0.5), (x * 0.5) * core */
static status match_gelu(rewriter *w, op_node *last, error *err) {
    float half;
    const ir_value *product = with_scalar(last, "Mul", &half);
    const op_node *mul = product && half == 0.5f ? private_maker(w, product, last) : NULL;
    for (size_t i = 0; node_is(mul, "Mul") && i < 2; i++) {
        ir_value *x = gelu_core(w, mul->inputs[i], mul);
        if (x && other_input(mul, mul->inputs[i]) == x && same_function_shape(x, last)) {
            return put(w, last, x, UNARY_F32_GELU, 0.0f, err);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        ir_value *a = last->inputs[i], *b = last->inputs[1 - i], *x = gelu_core(w, a, last);
        const op_node *halved = x ? private_maker(w, b, last) : NULL;
        if (halved && with_scalar(halved, "Mul", &half) == x && half == 0.5f &&
            same_function_shape(x, last)) {
            return put(w, last, x, UNARY_F32_GELU, 0.0f, err);
        }
        const op_node *outer = private_maker(w, a, last); /* core * 0.5 */
        const ir_value *core = outer ? with_scalar(outer, "Mul", &half) : NULL;
        x = core && half == 0.5f ? gelu_core(w, core, outer) : NULL;
        if (x && x == b && same_function_shape(x, last)) return put(w, last, x, UNARY_F32_GELU, 0.0f, err);
    }
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->n_inputs != 2 || !n->inputs[0] || !n->inputs[1] || n->version < 7)
            continue;
        if (node_is(n, "Mul")) TRY(match_gate(w, n, err));
        if (node_is(n, "Mul")) TRY(match_gelu(w, n, err));
        if (node_is(n, "Mul") || node_is(n, "Div")) TRY(match_late_division(w, n, err));
    }
    return CHURON_OK;
}

status pass_activations(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err);
}
