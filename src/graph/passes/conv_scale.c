/* conv_scale.c: what stands behind a convolution, transposed or not, and works on each channel alone goes
 * into its weights and bias: BatchNormalization, and Mul, Add, Sub, Div by a constant of one number a
 * channel. */
#include "graph/passes/passes.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* y = scale * x + shift, by output channel; f64 so that the new weights are rounded once. */
typedef struct affine {
    double *scale, *shift; /* [channels] */
    size_t channels;
} affine;

static bool read_batch_norm(const op_node *n, affine *a) {
    if (n->n_outputs > 1) {
        for (size_t i = 1; i < n->n_outputs; i++) {
            if (n->outputs[i]) return false;
        }
    }
    const tensor *t[5] = {0};
    for (size_t i = 1; i < 5; i++) {
        t[i] = node_f32_constant(n, i);
        if (!t[i] || t[i]->count != a->channels) return false;
    }
    const float epsilon = node_float(n, "epsilon", 1e-5f);
    for (size_t c = 0; c < a->channels; c++) {
        const float *g = t[1]->data, *b = t[2]->data, *mean = t[3]->data, *var = t[4]->data;
        a->scale[c] = (double)g[c] / sqrt((double)var[c] + (double)epsilon);
        a->shift[c] = (double)b[c] - (double)mean[c] * a->scale[c];
    }
    return true;
}

/* A constant of one number in all, or one a channel: [C, 1, 1] or [1, C, 1, 1]. */
static const tensor *channel_constant(const op_node *n, size_t i, size_t rank, size_t channels) {
    const tensor *t = node_f32_constant(n, i);
    if (!t || t->rank > rank) return NULL;
    if (t->count == 1) return t;
    const size_t axis = rank - 2; /* from the right: behind it stand the spatial axes */
    for (size_t k = 0; k < t->rank; k++) {
        const int64_t want = t->rank - 1 - k == axis ? (int64_t)channels : 1;
        if (t->dims[k] != want) return NULL;
    }
    return t->count == channels ? t : NULL;
}

static bool read_arithmetic(const op_node *n, const ir_value *x, affine *a) {
    const bool add = node_is(n, "Add"), mul = node_is(n, "Mul"), sub = node_is(n, "Sub"),
               div = node_is(n, "Div");
    if ((!add && !mul && !sub && !div) || n->n_inputs != 2 || n->version < 7) return false;
    const size_t other = n->inputs[0] == x ? 1 : 0;
    if (n->inputs[0] == n->inputs[1] || ((sub || div) && other == 0)) return false;
    const tensor *t = channel_constant(n, other, x->rank, a->channels);
    if (!t || !value_same_shape(x, n->outputs[0])) return false;
    for (size_t c = 0; c < a->channels; c++) {
        const double v = (double)((const float *)t->data)[t->count == 1 ? 0 : c];
        if (div && v == 0.0) return false;
        a->scale[c] = mul ? v : div ? 1.0 / v : 1.0;
        a->shift[c] = add ? v : sub ? -v : 0.0;
    }
    return true;
}

static bool only_shifts(const affine *a) {
    for (size_t c = 0; c < a->channels; c++) {
        if (a->scale[c] != 1.0) return false;
    }
    return true;
}

/* The convolution's weights times the scale, as factors: packing multiplies. Output channels are the first
 * axis of weights, of a transposed convolution the second. */
static status scale_weights(rewriter *w, const op_node *conv, const affine *a, ir_value **out, error *err) {
    const ir_value *weights = conv->inputs[1];
    const size_t channels = a->channels,
                 rows = node_is(conv, "ConvTranspose") ? (size_t)weights->dims[0] * channels : channels;
    arena *memory = &w->program->memory;
    op_factors *f = arena_array(memory, 1, sizeof *f);
    double *by = arena_array(memory, channels, sizeof *by);
    *out = f && by ? ir_value_new(w->g, weights->name) : NULL;
    if (!*out) return ir_no_memory(err);
    memcpy(by, a->scale, channels * sizeof *by);
    *f = (op_factors){.before = weights->factors,
                      .by = by,
                      .n = channels,
                      .rows = rows,
                      .each = weights->constant.count / rows};
    (*out)->factors = f;
    return ir_value_set_constant(*out, weights->constant, err);
}

static status new_weights(rewriter *w, op_node *conv, const affine *a, error *err) {
    const tensor *bias = node_f32_constant(conv, 2);
    tensor shifted;
    ir_value *inputs[3] = {conv->inputs[0], conv->inputs[1]};
    if (!only_shifts(a)) TRY(scale_weights(w, conv, a, &inputs[1], err));
    const int64_t channels = (int64_t)a->channels;
    TRY(tensor_alloc(&shifted, ELEM_F32, 1, &channels, err));
    for (size_t c = 0; c < a->channels; c++) {
        const double b = bias ? (double)((const float *)bias->data)[c] : 0.0;
        ((float *)shifted.data)[c] = (float)(b * a->scale[c] + a->shift[c]);
    }
    TRY(rewrite_constant(w, conv->name, shifted, &inputs[2], err));
    return rewrite_inputs(conv, inputs, 3, err);
}

/* The same for a batch normalization. */
static status new_scales(rewriter *w, op_node *norm, const affine *a, error *err) {
    const float *gain = node_f32_constant(norm, 1)->data, *bias = node_f32_constant(norm, 2)->data;
    const int64_t channels = (int64_t)a->channels;
    tensor scaled, shifted;
    ir_value *inputs[5];
    for (size_t i = 0; i < 5; i++) inputs[i] = norm->inputs[i];
    TRY(tensor_alloc(&scaled, ELEM_F32, 1, &channels, err));
    for (size_t c = 0; c < a->channels; c++)
        ((float *)scaled.data)[c] = (float)((double)gain[c] * a->scale[c]);
    TRY(rewrite_constant(w, norm->inputs[1]->name, scaled, &inputs[1], err));
    TRY(tensor_alloc(&shifted, ELEM_F32, 1, &channels, err));
    for (size_t c = 0; c < a->channels; c++) {
        ((float *)shifted.data)[c] = (float)((double)bias[c] * a->scale[c] + a->shift[c]);
    }
    TRY(rewrite_constant(w, norm->inputs[2]->name, shifted, &inputs[2], err));
    return rewrite_inputs(norm, inputs, 5, err);
}

static bool can_scale_norm(const op_node *n) {
    if (!node_is(n, "BatchNormalization") || n->n_inputs != 5 || !n->outputs[0] || !n->outputs[0]->has_rank ||
        n->outputs[0]->rank < 3)
        return false;
    for (size_t i = 1; i < n->n_outputs; i++) {
        if (n->outputs[i]) return false;
    }
    const tensor *gain = node_f32_constant(n, 1), *bias = node_f32_constant(n, 2);
    return gain && bias && gain->count > 0 && gain->count == bias->count;
}

static bool can_scale(const op_node *conv) {
    if (can_scale_norm(conv)) return true;
    const bool transposed = node_is(conv, "ConvTranspose") && node_int(conv, "group", 1) == 1;
    const tensor *weights = node_is(conv, "Conv") || transposed ? node_f32_constant(conv, 1) : NULL;
    if (!weights || weights->rank < 3 || weights->count == 0 || !conv->outputs[0]->has_rank) return false;
    return conv->n_inputs < 3 || !conv->inputs[2] || node_f32_constant(conv, 2);
}

/* Takes one node behind the convolution in. */
static status take(rewriter *w, op_node *conv, bool *took, error *err) {
    ir_value *x = conv->outputs[0];
    op_node *next = rewrite_only_reader(w, x);
    *took = false;
    if (!next || next->inputs[0] == NULL || (size_t)next->n_outputs < 1) return CHURON_OK;
    const bool norm = node_is(conv, "BatchNormalization");
    affine a = {.channels = (size_t)node_f32_constant(conv, 1)->dims[node_is(conv, "ConvTranspose") ? 1 : 0]};
    a.scale = mem_alloc(2 * a.channels * sizeof *a.scale);
    if (!a.scale) return ir_no_memory(err);
    a.shift = a.scale + a.channels;
    const bool good = node_is(next, "BatchNormalization") ? next->inputs[0] == x && read_batch_norm(next, &a)
                                                          : read_arithmetic(next, x, &a);
    status st = !good ? CHURON_OK : norm ? new_scales(w, conv, &a, err) : new_weights(w, conv, &a, err);
    mem_free(a.scale);
    if (!good || st != CHURON_OK) return st;
    conv->outputs[0] = next->outputs[0];
    conv->outputs[0]->producer = conv;
    rewrite_remove(w, next);
    *took = true;
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        bool took = true;
        while (took && can_scale(n)) TRY(take(w, n, &took, err));
    }
    return CHURON_OK;
}

static status multiply(rewriter *w, ir_value *v, error *err) {
    const tensor *from = &v->constant;
    tensor t;
    TRY(tensor_alloc(&t, ELEM_F32, from->rank, from->dims, err));
    factors_multiply(v->factors, from->data, 0, v->factors->rows, t.data);
    if (w->program->model) onnx_let_go(w->program->model, from->data, tensor_bytes(from), false);
    v->factors = NULL;
    return ir_keep_constant(w->program, t, &v->constant, err);
}

static status multiply_sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        const op_node *n = w->g->nodes[i];
        for (size_t k = 0; k < n->n_inputs; k++) {
            if (n->inputs[k] && n->inputs[k]->factors) TRY(multiply(w, n->inputs[k], err));
        }
    }
    return CHURON_OK;
}

status conv_scale_settle(rewriter *w, error *err) {
    return rewrite_each(w, multiply_sweep, err);
}

status pass_conv_scale(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
