/* activations.c: functions of one element that exporters wrote as several nodes:
 *   SiLU       x * Sigmoid(x)
 *   HardSwish  x * HardSigmoid(x; 1/6, 1/2);  x * Clip(x + 3, 0, 6) / 6, the division before or after
 *   GELU       x/2 * (1 + Erf(x / sqrt(2))), in any order of the products
 *              x/2 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 x^3))), the cube in any way
 *   quick GELU x * Sigmoid(1.702 x), or any other factor
 *   Mish       x * Tanh(Softplus(x))
 * The nodes between must have no other reader. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/blocked.h"

#include <math.h>
#include <string.h>

static bool near(float a, double b) {
    return fabs((double)a - b) <= 1e-4 * fabs(b);
}

/* v divided by d, as Div by d or Mul by 1/d; gives what was divided, or NULL. */
static ir_value *divided(const op_node *n, double d) {
    float s;
    ir_value *x = n ? node_with_scalar(n, "Div", &s) : NULL;
    if (x && near(s, d)) return x;
    x = n ? node_with_scalar(n, "Mul", &s) : NULL;
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
    return low == 0.0f && high == 6.0f && add && node_with_scalar(add, "Add", &three) == x && three == 3.0f;
}

static bool is_gate(const rewriter *w, const ir_value *v, const op_node *mul, const ir_value *x,
                    kernel_unary *f, float *factor) {
    const op_node *n = private_maker(w, v, mul);
    if (!n) return false;
    *factor = 1.0f;
    if (node_is(n, "Sigmoid")) {
        const op_node *scaled = private_maker(w, n->inputs[0], n);
        *f = UNARY_F32_SWISH;
        return n->inputs[0] == x || (scaled && node_with_scalar(scaled, "Mul", factor) == x);
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
        float factor;
        if (!x || !same_function_shape(x, mul) || !is_gate(w, mul->inputs[1 - i], mul, x, &f, &factor))
            continue;
        return put(w, mul, x, f, factor, err);
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

/* ---- GELU ------------------------------------------------------------------------------------------- */

enum { CUBIC = 4, CANDIDATES = 8 };

/* v as a polynomial in x of at most the third degree; false: it is none. */
static bool polynomial(pattern *p, const ir_value *v, const ir_value *x, int depth, double c[CUBIC]) {
    float s;
    memset(c, 0, CUBIC * sizeof *c);
    if (v == x || value_scalar(v, &s)) {
        c[v == x] = v == x ? 1.0 : (double)s;
        return true;
    }
    double a[CUBIC], b[CUBIC];
    op_node *n;
    if (depth == 0) return false;
    if ((n = pattern_maker(p, v, "Pow"))) {
        if (!value_scalar(n->inputs[1], &s) || (s != 2.0f && s != 3.0f) || n->inputs[0] != x) return false;
        c[(int)s] = 1.0;
        return true;
    }
    const bool is_sum = (n = pattern_maker(p, v, "Add")) != NULL;
    if (!n) n = pattern_maker(p, v, "Mul");
    if (!n || n->n_inputs != 2 || !polynomial(p, n->inputs[0], x, depth - 1, a) ||
        !polynomial(p, n->inputs[1], x, depth - 1, b))
        return false;
    for (size_t i = 0; i < CUBIC; i++) {
        if (is_sum) c[i] = a[i] + b[i];
        for (size_t k = 0; !is_sum && k < CUBIC; k++) {
            if (a[i] * b[k] == 0.0) continue;
            if (i + k >= CUBIC) return false;
            c[i + k] += a[i] * b[k];
        }
    }
    return true;
}

/* A product of x, scalars and one more factor, the core. */
typedef struct factors {
    const ir_value *x, *core;
    double scale;
    int n_x;
} factors;

static bool split(pattern *p, const ir_value *v, int depth, factors *f) {
    float s;
    op_node *n;
    if (v == f->x) {
        f->n_x++;
        return true;
    }
    if (value_scalar(v, &s)) {
        f->scale *= (double)s;
        return true;
    }
    if (depth > 0 && (n = pattern_maker(p, v, "Mul")))
        return split(p, n->inputs[0], depth - 1, f) && split(p, n->inputs[1], depth - 1, f);
    if (f->core) return false;
    f->core = v;
    return true;
}

/* Values that a product is made of, down to `depth` products. */
static void list_factors(const ir_value *v, int depth, ir_value *list[CANDIDATES], size_t *n) {
    const op_node *mul = v->producer;
    for (size_t i = 0; depth > 0 && node_is(mul, "Mul") && i < 2; i++) {
        ir_value *in = mul->inputs[i];
        if (!in || in->is_constant || *n == CANDIDATES) continue;
        list[(*n)++] = in;
        list_factors(in, depth - 1, list, n);
    }
}

/* The core: 1 + Erf or Tanh of a polynomial in x. */
static bool is_gelu_core(pattern *p, const ir_value *core, const ir_value *x, kernel_unary *f) {
    float one;
    double c[CUBIC];
    const op_node *add = pattern_maker(p, core, "Add");
    const ir_value *g = add ? node_with_scalar(add, "Add", &one) : NULL;
    if (!g || one != 1.0f) return false;
    op_node *n = pattern_maker(p, g, "Erf");
    *f = n ? UNARY_F32_GELU : UNARY_F32_GELU_TANH;
    if (!n) n = pattern_maker(p, g, "Tanh");
    if (!n) return false;
    const ir_value *u = n->inputs[0];
    float divisor = 1.0f;
    op_node *div = pattern_maker(p, u, "Div");
    if (div && !(u = node_with_scalar(div, "Div", &divisor))) return false;
    if (!polynomial(p, u, x, 6, c) || c[0] != 0.0 || c[2] != 0.0) return false;
    const double first = c[1] / (double)divisor, third = c[3] / (double)divisor;
    if (*f == UNARY_F32_GELU) return third == 0.0 && near((float)first, sqrt(0.5));
    return near((float)first, 0.79788456080286536) && near((float)third, 0.044715 * 0.79788456080286536);
}

static status match_gelu(rewriter *w, op_node *last, error *err) {
    ir_value *list[CANDIDATES];
    size_t n = 0;
    list_factors(last->outputs[0], 3, list, &n);
    for (size_t i = 0; i < n; i++) {
        pattern p = {.w = w, .nodes = {last}, .n = 1};
        factors f = {.x = list[i], .scale = 1.0};
        kernel_unary function;
        if (!same_function_shape(list[i], last) || !split(&p, last->outputs[0], 3, &f) || f.n_x != 1 ||
            f.scale != 0.5 || !f.core || !is_gelu_core(&p, f.core, f.x, &function) ||
            !pattern_is_closed(&p, last))
            continue;
        TRY(put(w, last, list[i], function, 0.0f, err));
        pattern_remove(w, &p);
        return CHURON_OK;
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
