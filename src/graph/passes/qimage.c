/* qimage.c: images of 8-bit integers with their channels together, [N, H, W, C], from one convolution to the
 * next.
 *
 * Each value may get a twin in this layout. Quantized convolutions with constant weights make one; pools,
 * tables, sums, joined, picked and repeated channels and pixels pass it on, and so do operators of elements
 * between dequantization and quantization. A value that somebody still reads as it was is made from its twin
 * by FromLast, right behind the twin's maker. A sum whose one operand is a convolution that nobody else reads
 * joins it. */
#include "graph/passes/passes.h"

#include "base/mem.h"
#include "graph/ops/conv_int.h"
#include "graph/ops/qimage.h"
#include "graph/passes/blocked.h"

#include <math.h>
#include <string.h>

typedef struct last {
    rewriter *w;
    ir_value **twin; /* [n_values]: by slot of the planar value */
} last;

static bool is_8_bit(const ir_value *v) {
    return v && v->type.kind == ONNX_TENSOR && (v->type.type == ELEM_U8 || v->type.type == ELEM_I8);
}

static bool is_image(const ir_value *v) {
    return v && (is_8_bit(v) || value_is_f32(v)) && v->has_rank && (v->rank == 3 || v->rank == 4) &&
           dim_known(v->dims[1]) && v->dims[1] > 0;
}

static size_t channels_of(const ir_value *v) {
    return (size_t)v->dims[1];
}

static ir_value *twin_of(const last *l, const ir_value *v) {
    return v && v->slot < l->w->n_values ? l->twin[v->slot] : NULL;
}

static status new_twin(last *l, ir_value *v, ir_value **out, error *err) {
    const dim dims[QIMAGE_RANK] = {v->dims[0], v->rank == 4 ? v->dims[2] : 1, v->dims[v->rank - 1],
                                   v->dims[1]};
    TRY(rewrite_value(l->w, v->name, v->type.type, QIMAGE_RANK, dims, out, err));
    l->twin[v->slot] = *out;
    return CHURON_OK;
}

static status layout_state(const ir_value *v, qimage_layout **out, error *err) {
    *out = mem_alloc(sizeof **out);
    if (!*out) return ir_no_memory(err);
    **out = (qimage_layout){.channels = channels_of(v), .rank = v->rank};
    return CHURON_OK;
}

/* The twin of v, made by ToLast in front of `at` if there is none. */
static status need_twin(last *l, op_node *at, ir_value *v, ir_value **out, error *err) {
    *out = twin_of(l, v);
    if (*out) return CHURON_OK;
    qimage_layout *st;
    TRY(layout_state(v, &st, err));
    const status made = new_twin(l, v, out, err);
    if (made != CHURON_OK) {
        mem_free(st);
        return made;
    }
    return rewrite_insert(l->w, at, &op_to_last, v->name, &v, 1, out, 1, st, NULL, err);
}

/* A node of ours in place of n: reads x, writes n's output's twin. Takes over the state, also on failure. */
static status put(last *l, op_node *n, const op_def *def, ir_value *const *x, size_t n_x, void *state,
                  error *err) {
    ir_value *y;
    const status made = new_twin(l, n->outputs[0], &y, err);
    if (made != CHURON_OK) {
        def->release(state);
        return made;
    }
    TRY(rewrite_insert(l->w, n, def, n->name, x, n_x, &y, 1, state, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* ---- scales ----------------------------------------------------------------------------------------- */

/* Scales that no product of two and a sum of 32 bits leave the range of f32 with. */
static bool is_sane(float scale) {
    return scale >= 0x1p-40f && scale <= 0x1p40f;
}

static int32_t zero_at(const tensor *t, size_t i) {
    return t->type == ELEM_I8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
}

/* One f32 scale and one 8-bit zero point, both constant, at inputs i and i + 1 (which may be absent: 0). */
static bool read_scale(const op_node *n, size_t i, float *scale, int32_t *zero) {
    if (i >= n->n_inputs || !value_scalar(n->inputs[i], scale) || !is_sane(*scale)) return false;
    const ir_value *z = i + 1 < n->n_inputs ? n->inputs[i + 1] : NULL;
    *zero = 0;
    if (!z) return true;
    if (!z->is_constant || z->constant.count != 1 || !is_8_bit(z)) return false;
    *zero = zero_at(&z->constant, 0);
    return true;
}

/* ---- convolutions ----------------------------------------------------------------------------------- */

static bool read_geometry(const op_node *n, const tensor *w, qimage_conv *st) {
    const size_t axes = n->inputs[0]->rank - 2;
    qconv *c = &st->c;
    size_t stride[2], dilation[2], pad[4];
    if (!layout_two_ints(n, "strides", axes, 1, 1, stride) ||
        !layout_two_ints(n, "dilations", axes, 1, 1, dilation) || stride[0] == 0 || stride[1] == 0 ||
        dilation[0] == 0 || dilation[1] == 0)
        return false;
    const size_t kernel[2] = {axes == 2 ? (size_t)w->dims[2] : 1, (size_t)w->dims[w->rank - 1]};
    const size_t reach[2] = {(kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1};
    if (!layout_read_padding(n, axes, reach, stride, pad)) return false;
    c->kernel_h = kernel[0];
    c->kernel_w = kernel[1];
    c->stride_h = stride[0];
    c->stride_w = stride[1];
    c->dilation_h = dilation[0];
    c->dilation_w = dilation[1];
    c->pad_top = pad[0];
    c->pad_left = pad[1];
    st->end_h = pad[2];
    st->end_w = pad[3];
    return true;
}

/* Scales and zero points of the weights: one or one a channel. */
static bool has_weight_scales(const op_node *n, size_t m) {
    const tensor *scale = node_f32_constant(n, 4);
    const ir_value *zero = n->inputs[5];
    if (!scale || (scale->count != 1 && scale->count != m) || !zero || !zero->is_constant ||
        !is_8_bit(zero) || (zero->constant.count != 1 && zero->constant.count != m))
        return false;
    for (size_t i = 0; i < scale->count; i++) {
        const float s =
            ((const float *)scale->data)[i]; /* of weights that are all 0 it may be anything small */
        if (!(s >= 0.0f && s <= 0x1p40f)) return false;
    }
    return true;
}

static bool read_conv(const op_node *n, qimage_conv *st) {
    const ir_value *x = n->inputs[0], *w = n->inputs[3], *bias = n->n_inputs > 8 ? n->inputs[8] : NULL;
    float scale;
    qconv *c = &st->c;
    if (n->n_inputs < 8 || node_int(n, "channels_last", 0) != 0 || !is_image(x) || !is_8_bit(x) ||
        !is_image(n->outputs[0]) || !w->is_constant || w->constant.rank != x->rank ||
        w->constant.count == 0 || !read_scale(n, 1, &scale, &c->x_zero) ||
        !read_scale(n, 6, &scale, &c->y_zero) || (bias && !bias->is_constant))
        return false;
    const tensor *t = &w->constant;
    const size_t m = (size_t)t->dims[0];
    const int64_t groups = node_int(n, "group", 1);
    if (groups < 1 || (int64_t)m % groups != 0 || channels_of(x) != (size_t)(t->dims[1] * groups) ||
        channels_of(n->outputs[0]) != m || !has_weight_scales(n, m) || (bias && bias->constant.count != m) ||
        !read_geometry(n, t, st))
        return false;
    c->in_channels = channels_of(x);
    c->out_channels = m;
    c->groups = (size_t)groups;
    c->x_signed = x->type.type == ELEM_I8;
    c->w_signed = w->type.type == ELEM_I8;
    c->y_signed = n->outputs[0]->type.type == ELEM_I8;
    c->y_low = c->y_signed ? -128 : 0;
    c->y_high = c->y_signed ? 127 : 255;
    const tensor *zero = &n->inputs[5]->constant;
    for (size_t i = 0; i < zero->count; i++)
        c->w_zeros = c->w_zeros || zero_at(zero, i) != (c->w_signed ? 0 : 128);
    return qconv_suits(c);
}

static status pack(const op_node *n, qimage_conv *st, error *err) {
    const size_t m = st->c.out_channels;
    const tensor *scale = node_f32_constant(n, 4), *zero = &n->inputs[5]->constant;
    const ir_value *bias = n->n_inputs > 8 ? n->inputs[8] : NULL;
    float x_scale = 1.0f, y_scale = 1.0f;
    (void)value_scalar(n->inputs[1], &x_scale);
    (void)value_scalar(n->inputs[6], &y_scale);
    TRY(qimage_conv_room(st, err));
    float *scales = mem_alloc(2 * m * sizeof(float));
    if (!scales) return ir_no_memory(err);
    int32_t *zeros = (int32_t *)(void *)(scales + m);
    for (size_t i = 0; i < m; i++) {
        scales[i] = x_scale * ((const float *)scale->data)[scale->count > 1 ? i : 0] / y_scale;
        zeros[i] = zero_at(zero, zero->count > 1 ? i : 0);
    }
    qconv_pack(&st->c, n->inputs[3]->constant.data, zeros, bias ? bias->constant.data : NULL, scales,
               &st->packed);
    mem_free(scales);
    return CHURON_OK;
}

static status lower_conv(last *l, op_node *n, error *err) {
    qimage_conv read = {0};
    if (!read_conv(n, &read)) return qlinear_conv_pack(n, n->state, err);
    ir_value *x;
    TRY(need_twin(l, n, n->inputs[0], &x, err));
    qimage_conv *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    const status done = pack(n, st, err);
    if (done != CHURON_OK) {
        qimage_conv_free(st);
        return done;
    }
    return put(l, n, &op_qimage_conv, &x, 1, st, err);
}

/* ---- pools ------------------------------------------------------------------------------------------ */

static bool read_windows(const op_node *n, qimage_pool *st) {
    const size_t axes = n->inputs[0]->rank - 2;
    size_t kernel[2], stride[2], dilation[2], pad[4];
    if (!layout_two_ints(n, "kernel_shape", axes, 0, 1, kernel) ||
        !layout_two_ints(n, "strides", axes, 1, 1, stride) ||
        !layout_two_ints(n, "dilations", axes, 1, 1, dilation))
        return false;
    if (kernel[0] == 0 || kernel[1] == 0 || kernel[0] > 4096 || kernel[1] > 4096 || stride[0] == 0 ||
        stride[1] == 0 || dilation[0] != 1 || dilation[1] != 1 ||
        !layout_read_padding(n, axes, kernel, stride, pad) || kernel[0] * kernel[1] > QIMAGE_POOL_TAPS ||
        pad[0] >= kernel[0] || pad[1] >= kernel[1] || pad[2] >= kernel[0] || pad[3] >= kernel[1])
        return false;
    st->kernel_h = kernel[0];
    st->kernel_w = kernel[1];
    st->stride_h = stride[0];
    st->stride_w = stride[1];
    st->pad_top = pad[0];
    st->pad_left = pad[1];
    st->end_h = pad[2];
    st->end_w = pad[3];
    st->ceil = node_int(n, "ceil_mode", 0) != 0;
    st->count_padding = node_int(n, "count_include_pad", 0) != 0;
    return true;
}

static bool read_pool(const op_node *n, qimage_pool *st) {
    *st = (qimage_pool){.factor = 1.0f};
    if (node_is(n, "MaxPool"))
        return (n->n_outputs < 2 || !n->outputs[1]) && is_8_bit(n->inputs[0]) && read_windows(n, st);
    st->global = node_is_of(n, "com.microsoft", "QLinearGlobalAveragePool");
    st->average = st->global || node_is_of(n, "com.microsoft", "QLinearAveragePool");
    float x_scale, y_scale;
    if (!st->average || node_int(n, "channels_last", 0) != 0 || !read_scale(n, 1, &x_scale, &st->x_zero) ||
        !read_scale(n, 3, &y_scale, &st->y_zero))
        return false;
    st->factor = x_scale / y_scale;
    return st->global || read_windows(n, st);
}

static status lower_pool(last *l, op_node *n, error *err) {
    qimage_pool read;
    ir_value *x = twin_of(l, n->inputs[0]);
    if (!is_image(n->inputs[0]) || !is_image(n->outputs[0]) || n->outputs[0]->rank != n->inputs[0]->rank ||
        !read_pool(n, &read))
        return CHURON_OK;
    /* Windows of many channels are worth a change of layout. */
    if (!x && (read.global || channels_of(n->inputs[0]) < 8)) return CHURON_OK;
    if (!x) TRY(need_twin(l, n, n->inputs[0], &x, err));
    qimage_pool *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    return put(l, n, &op_qimage_pool, &x, 1, st, err);
}

/* ---- operators of elements -------------------------------------------------------------------------- */

/* The node reads and writes twins from now on. */
static status move_over(last *l, op_node *n, ir_value *const *inputs, size_t n_inputs, error *err) {
    ir_value *y;
    TRY(new_twin(l, n->outputs[0], &y, err));
    TRY(rewrite_inputs(n, inputs, n_inputs, err));
    n->outputs[0] = y;
    y->producer = n;
    l->w->changes++;
    return CHURON_OK;
}

static bool is_one_of(const op_node *n, const char *const *list) {
    for (; *list; list++) {
        if (node_is(n, *list)) return true;
    }
    return false;
}

/* An operator of f32 elements without constants of its own. */
static bool is_plain(const op_node *n) {
    static const char *const plain[] = {"Relu", "Add", "Sum", "Mul", "Sub", "Sigmoid", "HardSwish", NULL};
    return is_one_of(n, plain) && n->version >= 7 && n->n_outputs == 1;
}

static bool quantizes(const op_node *n) {
    float scale;
    int32_t zero;
    return node_is(n, "QuantizeLinear") && n->n_inputs > 2 && read_scale(n, 1, &scale, &zero);
}

/* Are all who read v such that they go on in this layout? */
static bool readers_go_on(const last *l, const ir_value *v) {
    if (v->is_output || rewrite_n_uses(l->w, v) == 0) return false;
    for (uint32_t i = l->w->first[v->slot]; i < l->w->first[v->slot + 1]; i++) {
        const op_node *n = l->w->readers[i];
        if (rewrite_removed(n) || (!is_plain(n) && !quantizes(n))) return false;
    }
    return true;
}

static status lower_plain(last *l, op_node *n, error *err) {
    ir_value *inputs[8] = {0};
    float scale;
    int32_t zero;
    if (n->n_inputs > 8 || !is_image(n->outputs[0]) || !twin_of(l, n->inputs[0])) return CHURON_OK;
    const bool dequantizes = node_is(n, "DequantizeLinear");
    const size_t images = dequantizes || quantizes(n) ? 1 : n->n_inputs;
    if (!is_plain(n) && !quantizes(n) &&
        !(dequantizes && read_scale(n, 1, &scale, &zero) && readers_go_on(l, n->outputs[0])))
        return CHURON_OK;
    for (size_t i = 0; i < n->n_inputs; i++) {
        inputs[i] = i < images ? twin_of(l, n->inputs[i]) : n->inputs[i];
        if (i < images && (!inputs[i] || !value_same_shape(n->inputs[i], n->outputs[0]))) return CHURON_OK;
    }
    return move_over(l, n, inputs, n->n_inputs, err);
}

/* Tables of channels follow them. */
static status lower_table(last *l, op_node *n, error *err) {
    ir_value *x = twin_of(l, n->inputs[0]);
    if (n->def != &op_qimage_table || !x || !is_image(n->outputs[0])) return CHURON_OK;
    qimage_table *st = n->state;
    if (st->axis != SIZE_MAX && st->axis != 1) return CHURON_OK;
    if (st->axis == 1) st->axis = QIMAGE_RANK - 1;
    return move_over(l, n, &x, 1, err);
}

/* ---- pairs ------------------------------------------------------------------------------------------ */

static bool read_pair(const op_node *n, size_t a, size_t b, qpair *out) {
    const size_t places[2] = {3 * a, 3 * b};
    float sa, sb, sy;
    const bool is_signed = is_8_bit(n->outputs[0]) && n->outputs[0]->type.type == ELEM_I8;
    const int32_t move = is_signed ? 128 : 0;
    *out = (qpair){.multiply = node_is_of(n, "com.microsoft", "QLinearMul")};
    if (n->n_inputs < 7 || !read_scale(n, places[0] + 1, &sa, &out->a_zero) ||
        !read_scale(n, places[1] + 1, &sb, &out->b_zero) || !read_scale(n, 6, &sy, &out->y_zero))
        return false;
    out->a_factor = out->multiply ? sa * sb / sy : sa / sy;
    out->b_factor = sb / sy;
    out->a_flip = out->b_flip = out->y_flip = is_signed ? 0x80 : 0;
    out->a_zero += move;
    out->b_zero += move;
    out->y_zero += move;
    return true;
}

/* The convolution that makes v for nobody else, with room for an addend. */
static op_node *only_conv(const last *l, const ir_value *v) {
    const ir_value *twin = twin_of(l, v);
    op_node *n = twin ? twin->producer : NULL;
    if (!n || n->def != &op_qimage_conv || rewrite_removed(n) || v->is_output || rewrite_n_uses(l->w, v) != 1)
        return NULL;
    return ((const qimage_conv *)n->state)->adds ? NULL : n;
}

/* The convolution moves to where the sum stands: by then its addend is there. */
static status join_conv(last *l, op_node *n, size_t a, error *err) {
    qpair pair;
    op_node *maker = only_conv(l, n->inputs[3 * a]);
    if (!maker || !read_pair(n, a, 1 - a, &pair)) return CHURON_OK;
    qimage_conv *st = maker->state;
    ir_value *inputs[2] = {maker->inputs[0], twin_of(l, n->inputs[3 * (1 - a)])};
    st->adds = true;
    st->pair = pair;
    maker->state = NULL;
    rewrite_remove(l->w, maker);
    l->twin[n->inputs[3 * a]->slot] = NULL;
    return put(l, n, &op_qimage_conv, inputs, 2, st, err);
}

static status lower_pair(last *l, op_node *n, error *err) {
    if ((!node_is_of(n, "com.microsoft", "QLinearAdd") && !node_is_of(n, "com.microsoft", "QLinearMul")) ||
        n->n_inputs < 7 || !is_image(n->outputs[0]))
        return CHURON_OK;
    ir_value *a = n->inputs[0], *b = n->inputs[3], *inputs[8] = {0};
    if (!is_image(a) || !is_image(b) || a->rank != b->rank || a->rank != n->outputs[0]->rank ||
        (!twin_of(l, a) && !twin_of(l, b)) || a->dims[1] != b->dims[1])
        return CHURON_OK;
    TRY(need_twin(l, n, a, &inputs[0], err));
    TRY(need_twin(l, n, b, &inputs[3], err));
    const bool same = value_same_shape(a, b);
    if (same && a != b) TRY(join_conv(l, n, 1, err));
    if (same && a != b && !rewrite_removed(n)) TRY(join_conv(l, n, 0, err));
    if (rewrite_removed(n)) return CHURON_OK;
    for (size_t i = 1; i < n->n_inputs && i < 8; i++) {
        if (i != 3) inputs[i] = n->inputs[i];
    }
    return move_over(l, n, inputs, n->n_inputs, err);
}

/* ---- channels --------------------------------------------------------------------------------------- */

/* Table of y = quantized(dequantized x), and whether it changes anything. */
static bool fill_table(float sx, int32_t zx, float sy, int32_t zy, bool is_signed, uint8_t table[256]) {
    bool moves = false;
    for (int i = 0; i < 256; i++) {
        const int32_t code = is_signed ? (int8_t)(uint8_t)i : i, least = is_signed ? -128 : 0;
        const float v = rintf(sx * (float)(code - zx) / sy) + (float)zy;
        const float y = v < (float)least ? (float)least : v > (float)(least + 255) ? (float)(least + 255) : v;
        table[i] = (uint8_t)(int32_t)y;
        moves = moves || table[i] != i;
    }
    return moves;
}

static status new_join(size_t n, qimage_join **out, error *err) {
    qimage_join *st = mem_calloc(1, sizeof *st);
    if (!st) return ir_no_memory(err);
    st->n_inputs = n;
    st->tables = mem_calloc(n, sizeof *st->tables);
    st->moves = mem_calloc(n, sizeof *st->moves);
    if (!st->tables || !st->moves) {
        qimage_join_free(st);
        return ir_no_memory(err);
    }
    *out = st;
    return CHURON_OK;
}

static bool can_join(const last *l, const op_node *n) {
    const ir_value *y = n->outputs[0];
    const size_t count = n->n_inputs < 5 ? 0 : (n->n_inputs - 2) / 3;
    int64_t axis = node_int(n, "axis", 0);
    if (!is_image(y) || count == 0 || count > QIMAGE_MOST_INPUTS) return false;
    if (axis < 0) axis += y->rank;
    size_t channels = 0, twins = 0;
    float scale;
    int32_t zero;
    for (size_t i = 0; i < count; i++) {
        const ir_value *v = n->inputs[2 + 3 * i];
        if (!is_image(v) || v->rank != y->rank || v->type.type != y->type.type ||
            !read_scale(n, 3 + 3 * i, &scale, &zero))
            return false;
        channels += channels_of(v);
        if (twin_of(l, v)) twins++;
    }
    return axis == 1 && twins > 0 && channels == channels_of(y) && read_scale(n, 0, &scale, &zero);
}

static status lower_join(last *l, op_node *n, error *err) {
    if (!node_is_of(n, "com.microsoft", "QLinearConcat") || !can_join(l, n)) return CHURON_OK;
    const size_t count = (n->n_inputs - 2) / 3;
    ir_value *inputs[QIMAGE_MOST_INPUTS];
    for (size_t i = 0; i < count; i++) TRY(need_twin(l, n, n->inputs[2 + 3 * i], &inputs[i], err));
    qimage_join *st = NULL;
    TRY(new_join(count, &st, err));
    float sx, sy;
    int32_t zx, zy;
    for (size_t i = 0; i < count; i++) {
        if (!read_scale(n, 0, &sy, &zy) || !read_scale(n, 3 + 3 * i, &sx, &zx)) continue; /* can_join */
        st->moves[i] = fill_table(sx, zx, sy, zy, n->outputs[0]->type.type == ELEM_I8, st->tables[i]);
    }
    return put(l, n, &op_qimage_join, inputs, count, st, err);
}

static status new_pick(size_t in_channels, size_t channels, qimage_pick **out, error *err) {
    qimage_pick *st = mem_alloc(sizeof *st);
    uint32_t *from = st ? mem_calloc(channels, sizeof *from) : NULL;
    if (!from) {
        mem_free(st);
        return ir_no_memory(err);
    }
    *st = (qimage_pick){.in_channels = in_channels, .channels = channels, .from = from};
    *out = st;
    return CHURON_OK;
}

/* Reshape to [N, groups, channels of a group, ...], groups and channels changed over, Reshape back. */
static status lower_shuffle(last *l, op_node *n, error *err) {
    ir_value *x = n->inputs[0], *twin = twin_of(l, x);
    if (!node_is(n, "Reshape") || !twin || !is_image(x) || !is_8_bit(x)) return CHURON_OK;
    const ir_value *apart = n->outputs[0];
    op_node *turn = rewrite_only_reader(l->w, apart);
    op_node *back = turn && node_is(turn, "Transpose") ? rewrite_only_reader(l->w, turn->outputs[0]) : NULL;
    if (!back || !node_is(back, "Reshape") || back->inputs[0] != turn->outputs[0]) return CHURON_OK;
    ir_value *y = back->outputs[0];
    if (!is_image(y) || !value_same_shape(x, y) || x->rank != 4 || !apart->has_rank || apart->rank < 4 ||
        apart->rank > 5 || apart->dims[0] != x->dims[0] || !dim_known(apart->dims[1]) ||
        !dim_known(apart->dims[2]))
        return CHURON_OK;
    static const int64_t want[] = {0, 2, 1, 3, 4};
    size_t count;
    const int64_t *perm = node_ints(turn, "perm", &count);
    if (!perm || count != apart->rank || memcmp(perm, want, count * sizeof *perm) != 0) return CHURON_OK;
    const size_t groups = (size_t)apart->dims[1], each = (size_t)apart->dims[2];
    if (groups * each != channels_of(x)) return CHURON_OK;
    qimage_pick *st = NULL;
    TRY(new_pick(channels_of(x), groups * each, &st, err));
    for (size_t c = 0; c < st->channels; c++) st->from[c] = (uint32_t)(c % groups * each + c / groups);
    TRY(put(l, back, &op_qimage_pick, &twin, 1, st, err));
    rewrite_remove(l->w, n);
    rewrite_remove(l->w, turn);
    return CHURON_OK;
}

/* ---- pixels ----------------------------------------------------------------------------------------- */

static status lower_repeat(last *l, op_node *n, error *err) {
    ir_value *x = twin_of(l, n->inputs[0]);
    size_t high, wide;
    if (!x || !is_image(n->outputs[0]) || !layout_reads_repeat(n, &high, &wide)) return CHURON_OK;
    qimage_repeat *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (qimage_repeat){.high = high, .wide = wide};
    return put(l, n, &op_qimage_repeat, &x, 1, st, err);
}

/* ---- the walk --------------------------------------------------------------------------------------- */

static status lower(last *l, op_node *n, error *err) {
    typedef status (*lowering)(last *, op_node *, error *);
    static const lowering all[] = {lower_pool, lower_table,   lower_plain, lower_pair,
                                   lower_join, lower_shuffle, lower_repeat};
    if (rewrite_removed(n) || n->n_inputs == 0 || n->n_outputs == 0 || !n->inputs[0] || !n->outputs[0])
        return CHURON_OK;
    if (node_is(n, "QLinearConv") || node_is_of(n, "com.microsoft", "QLinearConv"))
        return lower_conv(l, n, err);
    const ir_value *y = n->outputs[0];
    if (twin_of(l, y)) return CHURON_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!rewrite_removed(n) && n->outputs[0] == y) TRY(all[i](l, n, err));
    }
    return CHURON_OK;
}

/* Values whose maker writes the twin instead, and that somebody may still read: dead code goes later. */
static status make_planar(last *l, error *err) {
    for (size_t i = 0; i < l->w->n_values; i++) {
        ir_value *v = l->w->g->values[i], *twin = l->twin[i];
        if (!twin || !twin->producer || twin->producer->def == &op_to_last) continue;
        qimage_layout *st;
        TRY(layout_state(v, &st, err));
        TRY(rewrite_insert_behind(l->w, twin->producer, &op_from_last, v->name, &twin, 1, &v, 1, st, NULL,
                                  err));
    }
    return CHURON_OK;
}

static status sweep(rewriter *w, error *err) {
    last l = {.w = w, .twin = mem_calloc(w->n_values + 1, sizeof *l.twin)};
    status st = l.twin ? CHURON_OK : ir_no_memory(err);
    for (size_t i = 0; i < w->g->n_nodes && st == CHURON_OK; i++) st = lower(&l, w->g->nodes[i], err);
    if (st == CHURON_OK) st = make_planar(&l, err);
    mem_free(l.twin);
    return st;
}

status pass_quantized_layout(rewriter *w, error *err) {
    TRY(rewrite_each(w, sweep, err));
    return pass_dead_code(w, err); /* the planar forms that nobody reads */
}
