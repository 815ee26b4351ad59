/* norms.c: normalizations over the last axes and softmax that were exported in pieces.
 *
 *   layer norm  d = x - ReduceMean(x);  d / Sqrt(ReduceMean(d^2) + e) [* scale] [+ bias]
 *   the same    x * g + (bias - ReduceMean(x) * g), g = scale / Sqrt(ReduceMean(d^2) + e)   (tf2onnx)
 *   RMS norm    x / Sqrt(ReduceMean(x^2) + e) [* scale]
 *   softmax     p = Exp(x - ReduceMax(x));  p / ReduceSum(p)
 *   log softmax s - Log(ReduceSum(Exp(s))), s = x - ReduceMax(x)
 *
 * d^2 is Pow or Mul; division is Div, or Mul by Reciprocal, 1 / Sqrt or Pow of -1/2. Scale and bias are taken
 * in where their known shapes cannot change the result's. Nobody else may read what lies between. */
#include "graph/passes/passes.h"

#include <math.h>
#include <string.h>

/* ---- pieces ----------------------------------------------------------------------------------------- */

/* v^2 as Pow(v, 2) or Mul(v, v); gives v. */
static ir_value *square_of(pattern *p, const ir_value *v) {
    float two;
    op_node *n = pattern_maker(p, v, "Pow");
    if (n) return n->n_inputs == 2 && value_scalar(n->inputs[1], &two) && two == 2.0f ? n->inputs[0] : NULL;
    n = pattern_maker(p, v, "Mul");
    return n && n->inputs[0] == n->inputs[1] ? n->inputs[0] : NULL;
}

/* What the root is taken of, if v is 1 / Sqrt of it. */
static ir_value *inverse_root(pattern *p, const ir_value *v) {
    float s;
    op_node *n = pattern_maker(p, v, "Reciprocal");
    const ir_value *root = n ? n->inputs[0] : NULL;
    if (!n && (n = pattern_maker(p, v, "Div"))) {
        if (!value_scalar(n->inputs[0], &s) || s != 1.0f) return NULL;
        root = n->inputs[1];
    }
    if (!n && (n = pattern_maker(p, v, "Pow")))
        return value_scalar(n->inputs[1], &s) && s == -0.5f ? n->inputs[0] : NULL;
    n = root ? pattern_maker(p, root, "Sqrt") : NULL;
    return n ? n->inputs[0] : NULL;
}

typedef struct norm {
    ir_value *x;
    size_t axis;
    float epsilon;
    bool rms;
} norm;

/* v is the mean over the last axes of something; gives it. */
static ir_value *mean_of(pattern *p, const ir_value *v, size_t *axis) {
    size_t count;
    op_node *n = pattern_maker(p, v, "ReduceMean");
    if (!n || !node_reduced_axes(n, axis, &count) || *axis + count != n->inputs[0]->rank) return NULL;
    return n->inputs[0];
}

/* d is x - mean(x) over axes from `axis` on; gives x. */
static ir_value *centered(pattern *p, const ir_value *d, size_t axis, const ir_value **mean) {
    size_t own;
    const op_node *sub = pattern_maker(p, d, "Sub");
    if (!sub || sub->n_inputs != 2) return NULL;
    ir_value *x = sub->inputs[0];
    *mean = sub->inputs[1];
    return mean_of(p, *mean, &own) == x && own == axis ? x : NULL;
}

/* e is mean(d^2) + epsilon; gives d. */
static ir_value *spread(pattern *p, const ir_value *e, norm *out) {
    const op_node *add = pattern_maker(p, e, "Add");
    const ir_value *v = add ? node_with_scalar(add, "Add", &out->epsilon) : NULL;
    const ir_value *square = v ? mean_of(p, v, &out->axis) : NULL;
    return square ? square_of(p, square) : NULL;
}

/* ---- layer norm and RMS norm ------------------------------------------------------------------------ */

/* n divides d by the root of e; gives e. */
static ir_value *root_under(pattern *p, const op_node *n, size_t which) {
    if (node_is(n, "Mul")) return inverse_root(p, n->inputs[1 - which]);
    if (which != 0) return NULL;
    const op_node *root = pattern_maker(p, n->inputs[1], "Sqrt");
    return root ? root->inputs[0] : NULL;
}

/* n is the division; which: the input that is divided. */
static bool match_core(pattern *p, op_node *n, size_t which, norm *out) {
    p->n = 0;
    p->nodes[p->n++] = n;
    const ir_value *e = root_under(p, n, which), *mean;
    ir_value *d = e ? spread(p, e, out) : NULL, *divided = n->inputs[which];
    if (!d) return false;
    const size_t so_far = p->n;
    ir_value *x = centered(p, d, out->axis, &mean);
    if (x && (divided == d || centered(p, divided, out->axis, &mean) == x) && pattern_is_closed(p, n)) {
        out->x = x;
        return true;
    }
    p->n = so_far;
    out->rms = true;
    out->x = d;
    return divided == d && pattern_is_closed(p, n);
}

/* An operand of known shape that broadcasts to x over axes from `axis` on and never the other way. */
static bool fits(const ir_value *v, const norm *m) {
    if (!value_is_f32(v) || !value_known_shape(v) || v->rank > m->x->rank - m->axis) return false;
    for (size_t i = 0; i < v->rank; i++) {
        if (v->dims[i] != m->x->dims[m->x->rank - v->rank + i] || v->dims[i] == 0) return false;
    }
    return v->rank > 0;
}

/* The last of the pattern becomes `next`, if that is `op` of its result and of a fitting operand. */
static bool extend(pattern *p, op_node **last, const char *op, const norm *m, ir_value **operand) {
    op_node *next = rewrite_only_reader(p->w, (*last)->outputs[0]);
    if (!node_is(next, op) || next->n_inputs != 2 || next->version < 7 || p->n == PATTERN_MOST) return false;
    ir_value *other = node_other_input(next, (*last)->outputs[0]);
    if (!other || other == (*last)->outputs[0] || !fits(other, m)) return false;
    p->nodes[p->n++] = next;
    *operand = other;
    *last = next;
    return true;
}

/* Ones of the shape of the normalized axes: where there is no scale. */
static status make_ones(rewriter *w, const norm *m, const char *name, ir_value **out, error *err) {
    tensor t;
    TRY(tensor_alloc(&t, ELEM_F32, m->x->rank - m->axis, m->x->dims + m->axis, err));
    for (size_t i = 0; i < t.count; i++) ((float *)t.data)[i] = 1.0f;
    return rewrite_constant(w, name, t, out, err);
}

static status put_norm(rewriter *w, const pattern *p, op_node *last, const norm *m, ir_value *scale,
                       ir_value *bias, error *err) {
    const node_attr attrs[] = {{.name = "axis", .i = (int64_t)m->axis},
                               {.name = "epsilon", .is_float = true, .f = m->epsilon}};
    if (!scale) TRY(make_ones(w, m, last->name, &scale, err));
    ir_value *inputs[3] = {m->x, scale, bias};
    TRY(rewrite_operator(w, last, "", m->rms ? "RMSNormalization" : "LayerNormalization", m->rms ? 23 : 17,
                         attrs, 2, inputs, bias ? 3 : 2, last->outputs, 1, err));
    pattern_remove(w, p);
    return CHURON_OK;
}

static bool worth(const norm *m) {
    if (!value_is_f32(m->x) || !m->x->has_rank) return false;
    for (size_t i = m->axis; i < m->x->rank; i++) {
        if (!dim_known(m->x->dims[i]) || m->x->dims[i] < 1) return false;
    }
    return true;
}

static status lower_norm(rewriter *w, op_node *n, error *err) {
    for (size_t which = 0; which < 2; which++) {
        pattern p = {.w = w};
        norm m = {0};
        ir_value *scale = NULL, *bias = NULL;
        op_node *last = n;
        if (!match_core(&p, n, which, &m) || !worth(&m)) continue;
        (void)extend(&p, &last, "Mul", &m, &scale);
        if (!m.rms) (void)extend(&p, &last, "Add", &m, &bias);
        return put_norm(w, &p, last, &m, scale, bias, err);
    }
    return CHURON_OK;
}

/* v is `other` times g; or NULL. */
static op_node *times(pattern *p, const ir_value *v, const ir_value *g) {
    op_node *n = pattern_maker(p, v, "Mul");
    return n && node_other_input(n, g) ? n : NULL;
}

/* x * g + (bias - mean * g) at n; a: the input that is x * g. */
static bool match_folded(pattern *p, op_node *n, size_t a, norm *m, ir_value **scale, ir_value **bias) {
    const ir_value *mean;
    p->n = 0;
    p->nodes[p->n++] = n;
    const op_node *sub = pattern_maker(p, n->inputs[1 - a], "Sub"),
                  *product = pattern_maker(p, n->inputs[a], "Mul");
    if (!sub || !product) return false;
    for (size_t i = 0; i < 2; i++) {
        const ir_value *g = product->inputs[i];
        const op_node *shift = times(p, sub->inputs[1], g), *scaled = pattern_maker(p, g, "Mul");
        if (!shift || !scaled) continue;
        for (size_t k = 0; k < 2; k++) {
            const ir_value *e = inverse_root(p, scaled->inputs[k]), *d = e ? spread(p, e, m) : NULL;
            m->x = d ? centered(p, d, m->axis, &mean) : NULL;
            if (!m->x || m->x != product->inputs[1 - i] || node_other_input(shift, g) != mean) continue;
            *scale = scaled->inputs[1 - k];
            *bias = sub->inputs[0];
            return worth(m) && fits(*scale, m) && fits(*bias, m) && pattern_is_closed(p, n);
        }
    }
    return false;
}

static status lower_folded(rewriter *w, op_node *n, error *err) {
    for (size_t a = 0; a < 2; a++) {
        pattern p = {.w = w};
        norm m = {0};
        ir_value *scale, *bias;
        if (match_folded(&p, n, a, &m, &scale, &bias)) return put_norm(w, &p, n, &m, scale, bias, err);
    }
    return CHURON_OK;
}

static status norm_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->n_inputs != 2 || !n->inputs[0] || !n->inputs[1] || n->version < 7)
            continue;
        if (node_is(n, "Div") || node_is(n, "Mul")) TRY(lower_norm(w, n, err));
        if (node_is(n, "Add")) TRY(lower_folded(w, n, err));
    }
    return CHURON_OK;
}

status pass_normalization(rewriter *w, error *err) {
    return rewrite_each(w, norm_sweep, err);
}

/* ---- softmax ---------------------------------------------------------------------------------------- */

/* s is x - ReduceMax(x) over one axis; gives x. */
static ir_value *shifted(pattern *p, const ir_value *s, size_t *axis) {
    size_t count;
    const op_node *sub = pattern_maker(p, s, "Sub");
    const op_node *most = sub ? pattern_maker(p, sub->inputs[1], "ReduceMax") : NULL;
    if (!most || !node_reduced_axes(most, axis, &count) || count != 1) return NULL;
    return most->inputs[0] == sub->inputs[0] ? sub->inputs[0] : NULL;
}

/* v is ReduceSum of something over the axis; gives it. */
static ir_value *sum_of(pattern *p, const ir_value *v, size_t *axis) {
    size_t count;
    const op_node *sum = pattern_maker(p, v, "ReduceSum");
    return sum && node_reduced_axes(sum, axis, &count) && count == 1 ? sum->inputs[0] : NULL;
}

static status lower_softmax(rewriter *w, op_node *n, error *err) {
    pattern p = {.w = w, .nodes = {n}, .n = 1};
    size_t axis = 0, sum_axis = 0;
    const bool log_of = node_is(n, "Sub");
    const ir_value *total = n->inputs[1], *s = n->inputs[0];
    if (log_of) {
        const op_node *logarithm = pattern_maker(&p, total, "Log");
        if (!logarithm) return CHURON_OK;
        total = logarithm->inputs[0];
    }
    const ir_value *e = sum_of(&p, total, &sum_axis);
    const op_node *power = e ? pattern_maker(&p, e, "Exp") : NULL;
    if (!power || (log_of ? power->inputs[0] : power->outputs[0]) != s) return CHURON_OK;
    ir_value *x = shifted(&p, power->inputs[0], &axis);
    if (!x || axis != sum_axis || !value_is_f32(x) || !pattern_is_closed(&p, n)) return CHURON_OK;
    const node_attr attr = {.name = "axis", .i = (int64_t)axis};
    TRY(rewrite_operator(w, n, "", log_of ? "LogSoftmax" : "Softmax", 13, &attr, 1, &x, 1, n->outputs, 1,
                         err));
    pattern_remove(w, &p);
    return CHURON_OK;
}

static status softmax_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || n->n_inputs != 2 || !n->inputs[0] || !n->inputs[1] || n->version < 7)
            continue;
        if (node_is(n, "Div") || node_is(n, "Sub")) TRY(lower_softmax(w, n, err));
    }
    return CHURON_OK;
}

status pass_softmax(rewriter *w, error *err) {
    return rewrite_each(w, softmax_sweep, err);
}
