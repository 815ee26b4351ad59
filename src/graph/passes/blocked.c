/* blocked.c: images in blocks of 16 channels from one convolution to the next.
 *
 * Each value may get a blocked twin. Convolutions with constant weights make one; pools, functions of one
 * element, arithmetic between images and concatenations of whole blocks pass it on. A value that somebody
 * still reads as it was is made from its twin by FromBlocked, right behind the twin's maker.
 *
 * What fills up a last block that is not full begins as 0 and goes through every operator like a channel. The
 * pass bounds its magnitude and leaves alone what could make it large or NaN (a root of 0 - 1, an exponential
 * of 0 + 100, a division by 0): a convolution multiplies it by 0, and 0 * infinity would be NaN in every
 * channel. */
#include "graph/passes/blocked.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <string.h>

size_t layout_channels(const ir_value *v) {
    return (size_t)v->dims[1];
}

float layout_fill(const layout *l, const ir_value *v) {
    return v->slot < l->w->n_values ? l->fill[v->slot] : 0.0f;
}

/* An f32 image of one or two axes with a known number of channels. */
bool layout_is_image(const ir_value *v) {
    return value_is_f32(v) && v->has_rank && (v->rank == 3 || v->rank == 4) && dim_known(v->dims[1]) &&
           v->dims[1] > 0;
}

ir_value *layout_twin(const layout *l, const ir_value *v) {
    return v && v->slot < l->w->n_values ? l->twin[v->slot] : NULL;
}

status layout_new_twin(layout *l, ir_value *v, ir_value **out, error *err) {
    const dim dims[BLOCKED_RANK] = {v->dims[0], (dim)conv_blocks(layout_channels(v)),
                                    v->rank == 4 ? v->dims[2] : 1, v->dims[v->rank - 1], CONV_BLOCK};
    TRY(rewrite_value(l->w, v->name, ELEM_F32, BLOCKED_RANK, dims, out, err));
    l->twin[v->slot] = *out;
    return CHURON_OK;
}

static status layout_state(const ir_value *v, blocked_layout **out, error *err) {
    *out = mem_alloc(sizeof **out);
    if (!*out) return ir_no_memory(err);
    **out = (blocked_layout){.channels = layout_channels(v), .rank = v->rank};
    return CHURON_OK;
}

/* The twin of v, made by ToBlocked in front of `at` if there is none. */
status layout_need_twin(layout *l, op_node *at, ir_value *v, ir_value **out, error *err) {
    *out = layout_twin(l, v);
    if (*out) return CHURON_OK;
    blocked_layout *st;
    TRY(layout_state(v, &st, err));
    status made = layout_new_twin(l, v, out, err);
    if (made != CHURON_OK) {
        mem_free(st);
        return made;
    }
    return rewrite_insert(l->w, at, &op_to_blocked, v->name, &v, 1, out, 1, st, NULL, err);
}

/* ---- convolutions ----------------------------------------------------------------------------------- */

bool layout_two_ints(const op_node *n, const char *name, size_t axes, int64_t absent, int64_t alone,
                     size_t out[2]) {
    size_t count;
    const int64_t *v = node_ints(n, name, &count);
    int64_t pair[2] = {axes == 2 ? absent : alone, absent};
    if (v && count != axes) return false;
    if (v && axes == 2) pair[0] = v[0];
    if (v) pair[1] = v[axes - 1];
    for (size_t i = 0; i < 2; i++) {
        if (pair[i] < 0 || pair[i] > 1 << 20) return false;
        out[i] = (size_t)pair[i];
    }
    return true;
}

bool layout_read_padding(const op_node *n, size_t axes, const size_t reach[2], const size_t stride[2],
                         size_t pad[4]) {
    const ir_attr *automatic = ir_find_attr(n, "auto_pad");
    const char *how =
        automatic && automatic->attr->type == ONNX_ATTR_STRING ? automatic->attr->s.data : "NOTSET";
    size_t count;
    const int64_t *said = node_ints(n, "pads", &count);
    memset(pad, 0, 4 * sizeof *pad);
    if (strcmp(how, "VALID") == 0) return true;
    if (strcmp(how, "NOTSET") == 0 || how[0] == '\0') {
        if (said && count != 2 * axes) return false;
        for (size_t i = 0; said && i < axes; i++) {
            if (said[i] < 0 || said[axes + i] < 0 || said[i] > 1 << 20 || said[axes + i] > 1 << 20)
                return false;
            pad[2 - axes + i] = (size_t)said[i];
            pad[4 - axes + i] = (size_t)said[axes + i];
        }
        return true;
    }
    const bool upper = strcmp(how, "SAME_UPPER") == 0;
    if (!upper && strcmp(how, "SAME_LOWER") != 0) return false;
    const ir_value *x = n->inputs[0];
    for (size_t i = 2 - axes; i < 2; i++) {
        const dim d = x->dims[x->rank - 2 + i];
        if (!dim_known(d) && stride[i] != 1) return false;
        /* With a stride of 1 what is missing does not depend on the size. */
        const size_t in = dim_known(d) ? (size_t)d : 1, out = (in + stride[i] - 1) / stride[i];
        const size_t need = (out - 1) * stride[i] + reach[i];
        const size_t all = need > in ? need - in : 0;
        pad[i] = upper ? all / 2 : all - all / 2;
        pad[2 + i] = all - pad[i];
    }
    return true;
}

static bool read_conv(const op_node *n, blocked_conv *st) {
    const tensor *w = node_f32_constant(n, 1);
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!w || !layout_is_image(x) || !layout_is_image(y) || w->rank != x->rank || w->count == 0) return false;
    if (n->n_inputs > 2 && n->inputs[2] && !node_f32_constant(n, 2)) return false;
    if (n->n_inputs > 3 && n->inputs[3]) return false;
    const size_t axes = x->rank - 2;
    size_t stride[2], dilation[2], pad[4];
    const size_t kernel[2] = {axes == 2 ? (size_t)w->dims[2] : 1, (size_t)w->dims[x->rank - 1]};
    const int64_t groups = node_int(n, "group", 1);
    if (!layout_two_ints(n, "strides", axes, 1, 1, stride) ||
        !layout_two_ints(n, "dilations", axes, 1, 1, dilation))
        return false;
    if (groups < 1 || stride[0] == 0 || stride[1] == 0 || dilation[0] == 0 || dilation[1] == 0) return false;
    if (kernel[0] > 4096 || kernel[1] > 4096 || dilation[0] > 4096 || dilation[1] > 4096) return false;
    const size_t reach[2] = {(kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1};
    if (!layout_read_padding(n, axes, reach, stride, pad)) return false;
    *st = (blocked_conv){.c = {.in_channels = layout_channels(x),
                               .out_channels = (size_t)w->dims[0],
                               .groups = (size_t)groups,
                               .kernel_h = kernel[0],
                               .kernel_w = kernel[1],
                               .stride_h = stride[0],
                               .stride_w = stride[1],
                               .dilation_h = dilation[0],
                               .dilation_w = dilation[1],
                               .pad_top = pad[0],
                               .pad_left = pad[1],
                               .low = -INFINITY,
                               .high = INFINITY,
                               .out_h = 1,
                               .out_w = 1,
                               .in_h = 1,
                               .in_w = 1},
                         .end_h = pad[2],
                         .end_w = pad[3],
                         .planar_rank = x->rank};
    if ((size_t)w->dims[1] * st->c.groups != st->c.in_channels || st->c.out_channels % st->c.groups)
        return false;
    if (!conv_choose(&st->c, &st->c.kind)) return false;
    st->c.single = st->c.out_channels == 1 && st->c.kind != CONV_DEPTHWISE;
    return true;
}

/* Weights are packed when the graph is final. */
static status take_weights(const op_node *n, blocked_conv *st, error *err) {
    const tensor *w = node_f32_constant(n, 1), *bias = node_f32_constant(n, 2);
    st->source = tensor_borrow(w->type, w->rank, w->dims, w->data);
    st->factors = n->inputs[1]->factors;
    st->bias = bias ? mem_calloc(conv_bias_floats(&st->c), sizeof(float)) : NULL;
    if (bias && !st->bias) return ir_no_memory(err);
    if (bias) conv_pack_bias(&st->c, bias->data, st->bias);
    return CHURON_OK;
}

/* What a convolution writes: the twin, or of a single channel the value itself. */
static status result_of(layout *l, ir_value *v, bool single, ir_value **out, error *err) {
    *out = v;
    return single ? CHURON_OK : layout_new_twin(l, v, out, err);
}

static status lower_conv(layout *l, op_node *n, error *err) {
    blocked_conv read;
    if (!read_conv(n, &read)) return CHURON_OK;
    blocked_conv *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    if (layout_worth_winograd(l, n, &st->c)) st->c.kind = CONV_WINOGRAD;
    st->c.across = conv_across(&st->c);
    status made = take_weights(n, st, err);
    ir_value *x = n->inputs[0], *y;
    if (made == CHURON_OK && st->c.kind != CONV_PLANAR) made = layout_need_twin(l, n, n->inputs[0], &x, err);
    if (made == CHURON_OK) made = result_of(l, n->outputs[0], st->c.single, &y, err);
    if (made != CHURON_OK) {
        blocked_conv_free(st);
        return made;
    }
    TRY(rewrite_insert(l->w, n, &op_blocked_conv, n->name, &x, 1, &y, 1, st, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* ---- transposed convolutions ------------------------------------------------------------------------ */

static bool read_transpose(const op_node *n, blocked_transpose *st) {
    const tensor *w = node_f32_constant(n, 1);
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!w || !layout_is_image(x) || !layout_is_image(y) || w->rank != x->rank || w->count == 0) return false;
    if (n->n_inputs > 2 && n->inputs[2] && !node_f32_constant(n, 2)) return false;
    const size_t axes = x->rank - 2;
    const ir_attr *automatic = ir_find_attr(n, "auto_pad");
    size_t stride[2], dilation[2], more[2], pad[4], count;
    const size_t kernel[2] = {axes == 2 ? (size_t)w->dims[2] : 1, (size_t)w->dims[x->rank - 1]};
    if (node_int(n, "group", 1) != 1 || node_ints(n, "output_shape", &count)) return false;
    if (automatic && (automatic->attr->type != ONNX_ATTR_STRING || strcmp(automatic->attr->s.data, "NOTSET")))
        return false;
    if (!layout_two_ints(n, "strides", axes, 1, 1, stride) ||
        !layout_two_ints(n, "dilations", axes, 1, 1, dilation) ||
        !layout_two_ints(n, "output_padding", axes, 0, 0, more) || dilation[0] != 1 || dilation[1] != 1)
        return false;
    if (stride[0] == 0 || stride[1] == 0 || stride[0] > 64 || stride[1] > 64 || kernel[0] > 4096 ||
        kernel[1] > 4096 || !layout_read_padding(n, axes, kernel, stride, pad))
        return false;
    *st = (blocked_transpose){.c = {.in_channels = layout_channels(x),
                                    .out_channels = (size_t)w->dims[1],
                                    .groups = 1,
                                    .single = w->dims[1] == 1,
                                    .in_h = 1,
                                    .in_w = 1,
                                    .out_h = 1,
                                    .out_w = 1,
                                    .stride_h = 1,
                                    .stride_w = 1,
                                    .dilation_h = 1,
                                    .dilation_w = 1,
                                    .low = -INFINITY,
                                    .high = INFINITY},
                              .kernel_h = kernel[0],
                              .kernel_w = kernel[1],
                              .stride_h = stride[0],
                              .stride_w = stride[1],
                              .pad_top = pad[0],
                              .pad_left = pad[1],
                              .end_h = pad[2],
                              .end_w = pad[3],
                              .more_h = more[0],
                              .more_w = more[1],
                              .planar_rank = x->rank};
    return (size_t)w->dims[0] == st->c.in_channels && blocked_transpose_choose(st);
}

static status lower_transpose(layout *l, op_node *n, error *err) {
    blocked_transpose read;
    if (!read_transpose(n, &read)) return CHURON_OK;
    blocked_transpose *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    const tensor *w = node_f32_constant(n, 1), *bias = node_f32_constant(n, 2);
    st->source = tensor_borrow(w->type, w->rank, w->dims, w->data);
    st->factors = n->inputs[1]->factors;
    status made = blocked_transpose_cut(st, err);
    if (made == CHURON_OK && bias) {
        const conv *c = &st->phases[0].c;
        st->bias = mem_calloc(conv_bias_floats(c), sizeof(float));
        if (!st->bias) made = ir_no_memory(err);
        if (st->bias) conv_pack_bias(c, bias->data, st->bias);
    }
    ir_value *x, *y;
    if (made == CHURON_OK) made = layout_need_twin(l, n, n->inputs[0], &x, err);
    if (made == CHURON_OK) made = result_of(l, n->outputs[0], st->c.single, &y, err);
    if (made != CHURON_OK) {
        blocked_transpose_free(st);
        return made;
    }
    TRY(rewrite_insert(l->w, n, &op_blocked_transpose, n->name, &x, 1, &y, 1, st, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* ---- pools ------------------------------------------------------------------------------------------ */

static bool reads_mean(const op_node *n) {
    if (node_is(n, "GlobalAveragePool")) return true;
    if (!node_is(n, "ReduceMean") || node_int(n, "keepdims", 1) != 1 || n->inputs[0]->rank != 4) return false;
    size_t count;
    const int64_t *axes = node_ints(n, "axes", &count);
    if (!axes && n->n_inputs > 1 && n->inputs[1] && n->inputs[1]->is_constant &&
        n->inputs[1]->constant.type == ELEM_I64) {
        axes = n->inputs[1]->constant.data;
        count = n->inputs[1]->constant.count;
    }
    if (!axes || count != 2) return false;
    const int64_t a = axes[0] < 0 ? axes[0] + 4 : axes[0], b = axes[1] < 0 ? axes[1] + 4 : axes[1];
    return (a == 2 && b == 3) || (a == 3 && b == 2);
}

static bool read_pool(const op_node *n, blocked_pool *st) {
    *st = (blocked_pool){.kind = BLOCKED_MEAN};
    const ir_value *x = n->inputs[0];
    if (reads_mean(n)) return true;
    const bool max = node_is(n, "MaxPool");
    if (!max && !node_is(n, "AveragePool")) return false;
    if (n->n_outputs > 1 && n->outputs[1]) return false;
    const size_t axes = x->rank - 2;
    size_t kernel[2], stride[2], dilation[2], pad[4];
    if (!layout_two_ints(n, "kernel_shape", axes, 0, 1, kernel) ||
        !layout_two_ints(n, "strides", axes, 1, 1, stride) ||
        !layout_two_ints(n, "dilations", axes, 1, 1, dilation))
        return false;
    if (kernel[0] == 0 || kernel[1] == 0 || kernel[0] > 4096 || kernel[1] > 4096 || stride[0] == 0 ||
        stride[1] == 0 || dilation[0] != 1 || dilation[1] != 1 ||
        !layout_read_padding(n, axes, kernel, stride, pad))
        return false;
    if (kernel[0] * kernel[1] > BLOCKED_POOL_TAPS) return false;
    if (pad[0] >= kernel[0] || pad[1] >= kernel[1] || pad[2] >= kernel[0] || pad[3] >= kernel[1])
        return false;
    *st = (blocked_pool){.kind = max ? BLOCKED_MAX : BLOCKED_AVERAGE,
                         .kernel_h = kernel[0],
                         .kernel_w = kernel[1],
                         .stride_h = stride[0],
                         .stride_w = stride[1],
                         .pad_top = pad[0],
                         .pad_left = pad[1],
                         .end_h = pad[2],
                         .end_w = pad[3],
                         .ceil = node_int(n, "ceil_mode", 0) != 0,
                         .count_padding = node_int(n, "count_include_pad", 0) != 0};
    return true;
}

static status lower_pool(layout *l, op_node *n, error *err) {
    blocked_pool read;
    ir_value *x = layout_twin(l, n->inputs[0]), *y;
    if (!layout_is_image(n->inputs[0]) || !layout_is_image(n->outputs[0]) ||
        n->outputs[0]->rank != n->inputs[0]->rank || !read_pool(n, &read))
        return CHURON_OK;
    /* Windows of many channels are worth a change of layout. */
    const bool worth = read.kind != BLOCKED_MEAN && layout_channels(n->inputs[0]) >= CONV_BLOCK / 2;
    if (!x && !worth) return CHURON_OK;
    if (!x) TRY(layout_need_twin(l, n, n->inputs[0], &x, err));
    blocked_pool *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    status made = layout_new_twin(l, n->outputs[0], &y, err);
    if (made != CHURON_OK) {
        mem_free(st);
        return made;
    }
    l->fill[n->outputs[0]->slot] = layout_fill(l, n->inputs[0]);
    TRY(rewrite_insert(l->w, n, &op_blocked_pool, n->name, &x, 1, &y, 1, st, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* ---- operators of elements -------------------------------------------------------------------------- */

static bool is_one_of(const op_node *n, const char *const *list) {
    for (; *list; list++) {
        if (node_is(n, *list)) return true;
    }
    return false;
}

/* The node reads and writes twins from now on. */
static status move_over(layout *l, op_node *n, ir_value *const *twins, size_t n_twins, float fill,
                        error *err) {
    ir_value *y;
    l->fill[n->outputs[0]->slot] = fill;
    TRY(layout_new_twin(l, n->outputs[0], &y, err));
    for (size_t i = 0; i < n_twins; i++) n->inputs[i] = twins[i];
    n->outputs[0] = y;
    y->producer = n;
    l->w->changes++;
    return CHURON_OK;
}

/* Most that a function makes of magnitudes up to x; INFINITY: not bounded. */
static float function_fill(const op_node *n, float x) {
    static const char *const shrink[] = {"Relu", "Abs", "Neg", "ThresholdedRelu", NULL},
                             *const bounded[] = {"Sigmoid", "Tanh", "HardSigmoid", "Softsign", "Erf", NULL},
                             *const near[] = {"HardSwish", "Softplus", "Mish", "Gelu", "Swish", NULL};
    if (is_one_of(n, shrink)) return x;
    if (is_one_of(n, bounded)) return 1.0f;
    if (is_one_of(n, near) || node_is_of(n, "churon", "Unary")) return x + 1.0f;
    if (node_is(n, "Sqrt")) return x == 0.0f ? 0.0f : INFINITY;
    if (node_is(n, "Exp")) return expf(x);
    if (node_is(n, "LeakyRelu")) return x * fmaxf(1.0f, fabsf(node_float(n, "alpha", 0.01f)));
    if (node_is(n, "Elu") || node_is(n, "Celu")) return fmaxf(x, fabsf(node_float(n, "alpha", 1.0f)));
    if (node_is(n, "Selu"))
        return fabsf(node_float(n, "gamma", 1.0507f)) * fmaxf(x, fabsf(node_float(n, "alpha", 1.6733f)));
    node_function f;
    if (!node_is(n, "Clip") || !node_reads_function(n, &f)) return INFINITY;
    return fmaxf(x, fmaxf(isinf(f.low) ? 0.0f : fabsf(f.low), isinf(f.high) ? 0.0f : fabsf(f.high)));
}

static status lower_function(layout *l, op_node *n, error *err) {
    static const char *const known[] = {
        "Relu", "LeakyRelu", "Sigmoid",  "Tanh",     "HardSigmoid", "HardSwish", "Elu",
        "Selu", "Celu",      "Softplus", "Softsign", "Mish",        "Gelu",      "Swish",
        "Abs",  "Neg",       "Exp",      "Erf",      "Sqrt",        "Clip",      "ThresholdedRelu",
        NULL};
    ir_value *x = layout_twin(l, n->inputs[0]);
    const bool ours = node_is_of(n, "churon", "Unary");
    if (!x || (!ours && !is_one_of(n, known)) || !layout_is_image(n->outputs[0])) return CHURON_OK;
    const bool full = layout_channels(n->inputs[0]) % CONV_BLOCK == 0;
    const float fill = full ? 0.0f : function_fill(n, layout_fill(l, n->inputs[0]));
    return fill <= LAYOUT_MOST_FILL ? move_over(l, n, &x, 1, fill, err) : CHURON_OK;
}

/* A constant of one number a channel as [1, C/16, 1, 1, 16], or of one number as it is; NULL if it is
 * another. */
static status constant_twin(layout *l, ir_value *v, const ir_value *image, ir_value **out, error *err) {
    *out = NULL;
    if (!v->is_constant || v->constant.type != ELEM_F32) return CHURON_OK;
    if (v->constant.count == 1) {
        *out = v->constant.rank == 0 ? v : NULL;
        tensor t;
        if (*out) return CHURON_OK;
        TRY(tensor_alloc(&t, ELEM_F32, 0, NULL, err));
        memcpy(t.data, v->constant.data, sizeof(float));
        return rewrite_constant(l->w, v->name, t, out, err);
    }
    const size_t channels = layout_channels(image), axis = image->rank - 2;
    for (size_t k = 0; k < v->constant.rank; k++) {
        const int64_t want = v->constant.rank - 1 - k == axis ? (int64_t)channels : 1;
        if (v->constant.dims[k] != want) return CHURON_OK;
    }
    if (v->constant.count != channels) return CHURON_OK;
    const int64_t dims[BLOCKED_RANK] = {1, (int64_t)conv_blocks(channels), 1, 1, CONV_BLOCK};
    tensor t;
    TRY(tensor_alloc(&t, ELEM_F32, BLOCKED_RANK, dims, err));
    memset(t.data, 0, tensor_bytes(&t));
    memcpy(t.data, v->constant.data, channels * sizeof(float));
    return rewrite_constant(l->w, v->name, t, out, err);
}

/* Images of the same channels, whose other axes are equal or 1 (as numpy broadcasts them). */
static bool can_meet(const ir_value *a, const ir_value *b) {
    return layout_is_image(a) && layout_is_image(b) && a->rank == b->rank && a->dims[1] == b->dims[1];
}

/* Most that a meeting of two can make of what fills up a block; INFINITY: not bounded. */
static float arithmetic_fill(const layout *l, const op_node *n) {
    float most[2];
    for (size_t i = 0; i < 2; i++) { /* constants of one number a channel are filled up with 0 */
        float scalar;
        most[i] = value_scalar(n->inputs[i], &scalar) ? fabsf(scalar) : layout_fill(l, n->inputs[i]);
    }
    if (node_is(n, "Div")) {
        float by;
        return value_scalar(n->inputs[1], &by) && by != 0.0f ? most[0] / most[1] : INFINITY;
    }
    if (node_is(n, "Mul")) return most[0] * most[1];
    if (node_is(n, "PRelu")) return most[0] * fmaxf(1.0f, most[1]);
    return node_is(n, "Max") || node_is(n, "Min") ? fmaxf(most[0], most[1]) : most[0] + most[1];
}

static status lower_arithmetic(layout *l, op_node *n, error *err) {
    static const char *const pairs[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "PRelu", NULL};
    if (!is_one_of(n, pairs) || n->n_inputs != 2 || n->version < 7 || !layout_is_image(n->outputs[0]))
        return CHURON_OK;
    ir_value *a = n->inputs[0], *b = n->inputs[1];
    ir_value *twins[2] = {layout_twin(l, a), layout_twin(l, b)};
    if (!twins[0] && !twins[1]) return CHURON_OK;
    const ir_value *image = twins[0] ? a : b;
    if (image->rank != n->outputs[0]->rank || image->dims[1] != n->outputs[0]->dims[1]) return CHURON_OK;
    const float fill = layout_channels(image) % CONV_BLOCK ? arithmetic_fill(l, n) : 0.0f;
    if (!(fill <= LAYOUT_MOST_FILL)) return CHURON_OK;
    for (size_t i = 0; i < 2; i++) {
        ir_value *v = n->inputs[i];
        if (twins[i]) continue;
        TRY(constant_twin(l, v, image, &twins[i], err));
        if (twins[i]) continue;
        if (v->is_constant || !can_meet(v, image)) return CHURON_OK;
        TRY(layout_need_twin(l, n, v, &twins[i], err));
    }
    if (layout_twin(l, a) && layout_twin(l, b) && !can_meet(a, b)) return CHURON_OK;
    return move_over(l, n, twins, 2, fill, err);
}

/* Blocks stay whole if all but the last input have full ones: then it is the operator as it is. */
static status lower_concat(layout *l, op_node *n, error *err) {
    if (!node_is(n, "Concat") || node_int(n, "axis", 1) != 1 || !layout_is_image(n->outputs[0]) ||
        n->n_inputs > BLOCKED_MOST_INPUTS)
        return CHURON_OK;
    ir_value *twins[BLOCKED_MOST_INPUTS];
    for (size_t i = 0; i < n->n_inputs; i++) {
        ir_value *v = n->inputs[i];
        twins[i] = layout_twin(l, v);
        const bool whole =
            i + 1 == n->n_inputs || (layout_is_image(v) && layout_channels(v) % CONV_BLOCK == 0);
        if (!twins[i] || v->rank != n->outputs[0]->rank || !whole) return layout_join_channels(l, n, err);
    }
    const float fill = layout_fill(l, n->inputs[n->n_inputs - 1]); /* the others have full blocks */
    return move_over(l, n, twins, n->n_inputs, fill, err);
}

/* A batch normalization that stands alone becomes one multiplication and addition. */
static status lower_batch_norm(layout *l, op_node *n, error *err) {
    ir_value *x = layout_twin(l, n->inputs[0]), *y;
    if (!x || !node_is(n, "BatchNormalization") || !layout_is_image(n->outputs[0])) return CHURON_OK;
    for (size_t i = 1; i < n->n_outputs; i++) {
        if (n->outputs[i]) return CHURON_OK;
    }
    const size_t channels = layout_channels(n->inputs[0]), room = conv_blocks(channels) * CONV_BLOCK;
    const tensor *t[5] = {0};
    for (size_t i = 1; i < 5; i++) {
        t[i] = node_f32_constant(n, i);
        if (!t[i] || t[i]->count != channels) return CHURON_OK;
    }
    blocked_affine *st = mem_calloc(1, sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (blocked_affine){.scale = mem_calloc(room, sizeof(float)),
                           .shift = mem_calloc(room, sizeof(float)),
                           .blocks = conv_blocks(channels),
                           .low = -INFINITY,
                           .high = INFINITY};
    status made = st->scale && st->shift ? CHURON_OK : ir_no_memory(err);
    if (made == CHURON_OK) made = layout_new_twin(l, n->outputs[0], &y, err);
    if (made != CHURON_OK) {
        blocked_affine_free(st);
        return made;
    }
    const double epsilon = (double)node_float(n, "epsilon", 1e-5f);
    for (size_t c = 0; c < channels; c++) {
        const float *gain = t[1]->data, *bias = t[2]->data, *mean = t[3]->data, *var = t[4]->data;
        const double scale = (double)gain[c] / sqrt((double)var[c] + epsilon);
        st->scale[c] = (float)scale;
        st->shift[c] = (float)((double)bias[c] - (double)mean[c] * scale);
    }
    TRY(rewrite_insert(l->w, n, &op_blocked_affine, n->name, &x, 1, &y, 1, st, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* ---- the walk --------------------------------------------------------------------------------------- */

static status lower(layout *l, op_node *n, error *err) {
    if (rewrite_removed(n) || n->n_inputs == 0 || n->n_outputs == 0 || !n->inputs[0] || !n->outputs[0])
        return CHURON_OK;
    if (node_is(n, "Conv")) return lower_conv(l, n, err);
    if (node_is(n, "ConvTranspose")) return lower_transpose(l, n, err);
    const ir_value *y = n->outputs[0];
    if (layout_twin(l, y)) return CHURON_OK;
    TRY(lower_pool(l, n, err));
    if (!rewrite_removed(n)) TRY(lower_batch_norm(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(lower_function(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(lower_arithmetic(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(lower_concat(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(layout_move_channels(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(layout_repeat_pixels(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(layout_pad_pixels(l, n, err));
    if (!rewrite_removed(n) && n->outputs[0] == y) TRY(layout_normalize(l, n, err));
    return CHURON_OK;
}

/* Values whose maker writes the twin instead, and that somebody may still read: dead code goes later. */
static status make_planar(layout *l, error *err) {
    ir_graph *g = l->w->g;
    for (size_t i = 0; i < l->w->n_values; i++) {
        ir_value *v = g->values[i], *twin = l->twin[i];
        if (!twin || !twin->producer || twin->producer->def == &op_to_blocked) continue;
        blocked_layout *st;
        TRY(layout_state(v, &st, err));
        TRY(rewrite_insert_behind(l->w, twin->producer, &op_from_blocked, v->name, &twin, 1, &v, 1, st, NULL,
                                  err));
    }
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    layout l = {.w = w,
                .twin = mem_calloc(w->n_values + 1, sizeof *l.twin),
                .fill = mem_calloc(w->n_values + 1, sizeof *l.fill)};
    status st = l.twin && l.fill ? CHURON_OK : ir_no_memory(err);
    if (st == CHURON_OK) st = layout_learn_channels(w->g, err);
    for (size_t i = 0; i < w->g->n_nodes && st == CHURON_OK; i++) st = lower(&l, w->g->nodes[i], err);
    if (st == CHURON_OK) st = make_planar(&l, err);
    mem_free(l.twin);
    mem_free(l.fill);
    return st;
}

status pass_blocked_layout(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err); /* the planar forms that nobody reads */
}
