/* blocked_move.c: operators of blocked images that move values: joined, split and shuffled channels, repeated
 * pixels, padding; and local response normalization. See blocked.c. */
#include "graph/passes/blocked.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- channels --------------------------------------------------------------------------------------- */

static status new_channels(size_t n_inputs, size_t channels, blocked_channels **out, error *err) {
    blocked_channels *st = mem_calloc(1, sizeof *st);
    *out = NULL;
    if (!st) return ir_no_memory(err);
    *st = (blocked_channels){
        .n_inputs = n_inputs, .channels = channels, .from = mem_calloc(channels, sizeof *st->from)};
    if (!st->from) {
        mem_free(st);
        return ir_no_memory(err);
    }
    *out = st;
    return CHURON_OK;
}

/* Inserts the operator in front of `at`; image gets a twin. st is taken over. */
static status put_channels(layout *l, op_node *at, blocked_channels *st, ir_value *const *inputs,
                           ir_value *image, error *err) {
    ir_value *y;
    status made = layout_new_twin(l, image, &y, err);
    if (made != CHURON_OK) {
        blocked_channels_free(st);
        return made;
    }
    l->fill[image->slot] = 0.0f;
    return rewrite_insert(l->w, at, &op_blocked_channels, at->name, inputs, st->n_inputs, &y, 1, st, NULL,
                          err);
}

status layout_join_channels(layout *l, op_node *n, error *err) {
    size_t channels = 0, blocked = 0;
    const ir_value *y = n->outputs[0];
    for (size_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        if (!layout_is_image(v) || v->rank != y->rank) return CHURON_OK;
        channels += layout_channels(v);
        if (layout_twin(l, v)) blocked += layout_channels(v);
    }
    if (channels != layout_channels(y) || 2 * blocked < channels) return CHURON_OK;
    blocked_channels *st;
    TRY(new_channels(n->n_inputs, channels, &st, err));
    ir_value *twins[BLOCKED_MOST_INPUTS];
    size_t at = 0;
    for (size_t i = 0; i < n->n_inputs; i++) {
        status made = layout_need_twin(l, n, n->inputs[i], &twins[i], err);
        if (made != CHURON_OK) {
            blocked_channels_free(st);
            return made;
        }
        for (size_t c = 0; c < layout_channels(n->inputs[i]); c++)
            st->from[at++] = (blocked_channel){(uint32_t)i, (uint32_t)c};
    }
    TRY(put_channels(l, n, st, twins, n->outputs[0], err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* The image's channels [first, first + those of `part`). */
static status take_channels(layout *l, op_node *at, ir_value *twin, size_t first, ir_value *part,
                            error *err) {
    blocked_channels *st;
    TRY(new_channels(1, layout_channels(part), &st, err));
    for (size_t c = 0; c < st->channels; c++) st->from[c].channel = (uint32_t)(first + c);
    return put_channels(l, at, st, &twin, part, err);
}

static status lower_split(layout *l, op_node *n, error *err) {
    const ir_value *x = n->inputs[0];
    const int64_t axis = node_int(n, "axis", 0);
    if (axis != 1 && axis + x->rank != 1) return CHURON_OK;
    size_t all = 0;
    for (size_t i = 0; i < n->n_outputs; i++) {
        const ir_value *y = n->outputs[i];
        if (!y || !layout_is_image(y) || y->rank != x->rank || layout_twin(l, y)) return CHURON_OK;
        all += layout_channels(y);
    }
    if (all != layout_channels(x)) return CHURON_OK;
    size_t first = 0;
    for (size_t i = 0; i < n->n_outputs; i++) {
        TRY(take_channels(l, n, layout_twin(l, x), first, n->outputs[i], err));
        first += layout_channels(n->outputs[i]);
    }
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* The one integer of input i; false: it is not one constant. */
static bool one_int(const op_node *n, size_t i, int64_t *out) {
    const tensor *t = i < n->n_inputs && n->inputs[i] ? op_constant(n, i) : NULL;
    if (!t || t->count != 1 || (t->type != ELEM_I64 && t->type != ELEM_I32)) return false;
    *out = t->type == ELEM_I64 ? *(const int64_t *)t->data : *(const int32_t *)t->data;
    return true;
}

static status lower_slice(layout *l, op_node *n, error *err) {
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    int64_t first, axis, step = 1;
    if (n->version < 10 || !one_int(n, 1, &first) || !one_int(n, 3, &axis)) return CHURON_OK;
    if (n->n_inputs > 4 && n->inputs[4] && (!one_int(n, 4, &step) || step != 1)) return CHURON_OK;
    const int64_t channels = (int64_t)layout_channels(x);
    if ((axis != 1 && axis + x->rank != 1) || !layout_is_image(y) || y->rank != x->rank) return CHURON_OK;
    if (first < 0) first = first + channels > 0 ? first + channels : 0;
    if (first + (int64_t)layout_channels(y) > channels) return CHURON_OK;
    TRY(take_channels(l, n, layout_twin(l, x), (size_t)first, n->outputs[0], err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

/* Reshape to [N, groups, channels of a group, ...], groups and channels changed over, Reshape back. */
static status lower_shuffle(layout *l, op_node *n, error *err) {
    const ir_value *x = n->inputs[0], *apart = n->outputs[0];
    op_node *turn = rewrite_only_reader(l->w, apart);
    op_node *back = turn && node_is(turn, "Transpose") ? rewrite_only_reader(l->w, turn->outputs[0]) : NULL;
    if (!back || !node_is(back, "Reshape") || back->inputs[0] != turn->outputs[0]) return CHURON_OK;
    ir_value *y = back->outputs[0];
    if (!layout_is_image(y) || !value_same_shape(x, y) || x->rank != 4 || !apart->has_rank ||
        apart->rank < 4 || apart->rank > 5 || apart->dims[0] != x->dims[0] || !dim_known(apart->dims[1]) ||
        !dim_known(apart->dims[2]))
        return CHURON_OK;
    static const int64_t want[] = {0, 2, 1, 3, 4};
    size_t count;
    const int64_t *perm = node_ints(turn, "perm", &count);
    if (!perm || count != apart->rank || memcmp(perm, want, count * sizeof *perm) != 0) return CHURON_OK;
    const size_t groups = (size_t)apart->dims[1], each = (size_t)apart->dims[2];
    if (groups * each != layout_channels(x)) return CHURON_OK;
    blocked_channels *st;
    TRY(new_channels(1, groups * each, &st, err));
    for (size_t c = 0; c < st->channels; c++)
        st->from[c].channel = (uint32_t)(c % groups * each + c / groups);
    ir_value *twin = layout_twin(l, x);
    TRY(put_channels(l, n, st, &twin, y, err));
    rewrite_remove(l->w, n);
    rewrite_remove(l->w, turn);
    rewrite_remove(l->w, back);
    return CHURON_OK;
}

status layout_move_channels(layout *l, op_node *n, error *err) {
    if (!layout_twin(l, n->inputs[0]) || !layout_is_image(n->inputs[0])) return CHURON_OK;
    if (node_is(n, "Split")) return lower_split(l, n, err);
    if (node_is(n, "Slice")) return lower_slice(l, n, err);
    return node_is(n, "Reshape") ? lower_shuffle(l, n, err) : CHURON_OK;
}

/* ---- pixels ----------------------------------------------------------------------------------------- */

static bool text_is(const op_node *n, const char *name, const char *absent, const char *want) {
    const ir_attr *a = ir_find_attr(n, name);
    return strcmp(a && a->attr->type == ONNX_ATTR_STRING ? a->attr->s.data : absent, want) == 0;
}

/* Where output o reads input floor(o / scale), for a scale that is a power of two (so that no rounding of the
 * place matters). */
static bool takes_floor(const op_node *n) {
    if (!text_is(n, "mode", "nearest", "nearest")) return false;
    if (node_is(n, "Upsample") || n->version < 11) return true;
    const bool asymmetric = text_is(n, "coordinate_transformation_mode", "half_pixel", "asymmetric");
    const bool half = text_is(n, "coordinate_transformation_mode", "half_pixel", "half_pixel");
    return (asymmetric && text_is(n, "nearest_mode", "round_prefer_floor", "floor")) ||
           (half && text_is(n, "nearest_mode", "round_prefer_floor", "round_prefer_floor"));
}

static bool read_scales(const op_node *n, size_t at, size_t rank, blocked_repeat *st) {
    const tensor *t = node_f32_constant(n, at);
    if (!t || t->count != rank) return false;
    const float *scale = t->data;
    size_t out[2] = {1, 1};
    for (size_t i = 0; i < rank; i++) {
        const bool power = scale[i] == 1.0f || scale[i] == 2.0f || scale[i] == 4.0f || scale[i] == 8.0f;
        if (!power || (i < 2 && scale[i] != 1.0f)) return false;
        if (i >= 2) out[i + 2 - rank] = (size_t)scale[i];
    }
    *st = (blocked_repeat){.high = out[0], .wide = out[1]};
    return true;
}

/* One node in the place of n, from the twin of its first input to that of its output; st is taken over. */
static status put_alone(layout *l, op_node *n, const op_def *def, void *st, float fill, error *err) {
    ir_value *x = layout_twin(l, n->inputs[0]), *y;
    status made = layout_new_twin(l, n->outputs[0], &y, err);
    if (made != CHURON_OK) {
        mem_free(st);
        return made;
    }
    l->fill[n->outputs[0]->slot] = fill;
    TRY(rewrite_insert(l->w, n, def, n->name, &x, 1, &y, 1, st, NULL, err));
    rewrite_remove(l->w, n);
    return CHURON_OK;
}

static bool is_twin_node(const layout *l, const op_node *n) {
    return layout_twin(l, n->inputs[0]) && layout_is_image(n->outputs[0]) &&
           n->outputs[0]->rank == n->inputs[0]->rank;
}

static bool read_repeat(const op_node *n, blocked_repeat *out) {
    if (!node_is(n, "Resize") && !node_is(n, "Upsample")) return false;
    size_t count;
    const bool old = node_is(n, "Upsample") || n->version<11, sizes = n->n_inputs> 3 && n->inputs[3];
    return n->outputs[0]->rank == n->inputs[0]->rank && !sizes && !node_ints(n, "axes", &count) &&
           takes_floor(n) && read_scales(n, old ? 1 : 2, n->inputs[0]->rank, out);
}

bool layout_reads_repeat(const op_node *n, size_t *high, size_t *wide) {
    blocked_repeat read;
    if (!read_repeat(n, &read)) return false;
    *high = read.high;
    *wide = read.wide;
    return true;
}

status layout_repeat_pixels(layout *l, op_node *n, error *err) {
    blocked_repeat read;
    if (!is_twin_node(l, n) || !read_repeat(n, &read)) return CHURON_OK;
    blocked_repeat *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    return put_alone(l, n, &op_blocked_repeat, st, layout_fill(l, n->inputs[0]), err);
}

/* ---- padding ---------------------------------------------------------------------------------------- */

/* Amounts of all axes, begins and then ends: an attribute or a constant input. */
static const int64_t *pad_amounts(const op_node *n, size_t rank) {
    size_t count;
    if (n->version < 11) {
        const int64_t *said = node_ints(n, "pads", &count);
        return said && count == 2 * rank ? said : NULL;
    }
    const tensor *t = n->n_inputs > 1 && n->inputs[1] ? op_constant(n, 1) : NULL;
    return t && t->type == ELEM_I64 && t->count == 2 * rank ? t->data : NULL;
}

static bool read_pad(const op_node *n, blocked_pad *st) {
    const size_t rank = n->inputs[0]->rank;
    const int64_t *amount = pad_amounts(n, rank);
    *st = (blocked_pad){.value = n->version < 11 ? node_float(n, "value", 0.0f) : 0.0f};
    if (!amount || !text_is(n, "mode", "constant", "constant")) return false;
    if (n->n_inputs > 2 && n->inputs[2] && !value_scalar(n->inputs[2], &st->value)) return false;
    if (n->n_inputs > 3 && n->inputs[3]) return false;
    for (size_t i = 0; i < 2 * rank; i++) {
        if (amount[i] < 0 || amount[i] > 1 << 20 || (i % rank < 2 && amount[i] != 0)) return false;
    }
    st->left = (size_t)amount[rank - 1];
    st->right = (size_t)amount[2 * rank - 1];
    if (rank == 4) st->top = (size_t)amount[2];
    if (rank == 4) st->bottom = (size_t)amount[6];
    return true;
}

status layout_pad_pixels(layout *l, op_node *n, error *err) {
    blocked_pad read;
    if (!node_is(n, "Pad") || !is_twin_node(l, n) || !read_pad(n, &read)) return CHURON_OK;
    const bool full = layout_channels(n->inputs[0]) % CONV_BLOCK == 0;
    const float fill = full ? 0.0f : fmaxf(layout_fill(l, n->inputs[0]), fabsf(read.value));
    if (!(fill <= LAYOUT_MOST_FILL)) return CHURON_OK;
    blocked_pad *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = read;
    return put_alone(l, n, &op_blocked_pad, st, fill, err);
}

/* ---- local response normalization ------------------------------------------------------------------- */

status layout_normalize(layout *l, op_node *n, error *err) {
    if (!node_is(n, "LRN") || !is_twin_node(l, n)) return CHURON_OK;
    const int64_t size = node_int(n, "size", 0);
    const float alpha = node_float(n, "alpha", 0.0001f), bias = node_float(n, "bias", 1.0f);
    const size_t channels = layout_channels(n->inputs[0]);
    if (size < 1 || size > BLOCKED_LRN_SIZE || !(bias > 0.0f) || !(alpha >= 0.0f) ||
        node_float(n, "beta", 0.75f) != 0.75f || channels % CONV_BLOCK || channels > BLOCKED_LRN_CHANNELS)
        return CHURON_OK;
    blocked_lrn *st = mem_alloc(sizeof *st);
    if (!st) return ir_no_memory(err);
    *st = (blocked_lrn){.size = (size_t)size, .alpha = alpha / (float)size, .bias = bias};
    return put_alone(l, n, &op_blocked_lrn, st, 0.0f, err);
}
