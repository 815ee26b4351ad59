/* onednn_conv.c: Conv of f32 with constant weights: 1 to 3 axes, any groups, strides, dilations and padding.
 */
#include "base/mem.h"
#include "graph/ops/conv.h"
#include "graph/providers/onednn_call.h"

#include <string.h>

typedef struct state {
    onednn_product product; /* first: onednn.c takes a state for one */
    window w;
    int64_t groups, in_channels, out_channels;
    size_t axes;
    int64_t kernel[WINDOW_MAX];
} state;

static void state_free(void *s) {
    if (!s) return;
    onednn_product_end(&((state *)s)->product);
    mem_free(s);
}

static status infer(op_shapes *s, error *err) {
    const state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *in;
    dim out[2 + WINDOW_MAX];
    TRY(nn_rank(s, 0, 2 + st->axes, 2 + st->axes, "X", &known, &rank, &in, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(shapes_same(s, in[1], st->in_channels, "channels of X and of W", NULL, err));
    TRY(window_shape(s, &st->w, st->axes, in + 2, st->kernel, out + 2, err));
    out[0] = in[0];
    out[1] = st->out_channels;
    return shapes_out(s, 0, rank, out, err);
}

/* The operation on an image of these dimensions. */
static status describe(const state *st, const int64_t *in, const int64_t *out, size_t threads, onednn_call *c,
                       error *err) {
    const size_t rank = 2 + st->axes, lead = WINDOW_MAX - st->axes;
    const dnnl_memory_desc_t *dense = &st->product.weights_dense;
    geometry g;
    dnnl_dims_t stride = {0}, gaps = {0}, before = {0}, behind = {0};
    dnnl_memory_desc_t x, y, weights;
    *c = (onednn_call){.threads = threads, .key = {in[0]}};
    memcpy(c->key + 1, in + 2, st->axes * sizeof *in);
    window_geometry(&st->w, st->axes, in + 2, out + 2, st->kernel, &g);
    for (size_t i = 0; i < st->axes; i++) {
        stride[i] = g.stride[lead + i];
        gaps[i] = g.dilation[lead + i] - 1; /* those between taps */
        before[i] = g.pad[lead + i];
        behind[i] = g.pad_end[lead + i];
    }
    TRY(onednn_dense(&c->x, rank, in, NULL, err));
    TRY(onednn_dense(&c->y, rank, out, NULL, err));
    TRY(onednn_any(&x, rank, in, err));
    TRY(onednn_any(&y, rank, out, err));
    TRY(onednn_any(&weights, (size_t)dense->ndims, dense->dims, err));
    const dnnl_status_t got = dnnl_dilated_convolution_forward_desc_init(
        &c->operation.conv, dnnl_forward_inference, dnnl_convolution_direct, &x, &weights,
        st->product.bias ? &st->product.bias_form : NULL, &y, stride, gaps, before, behind);
    return onednn_check(got, "convolution", err);
}

static status run(op_run *r, error *err) {
    state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    onednn_call c;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    status done = describe(st, x->dims, y->dims, run_pool(r) ? pool_threads(run_pool(r)) : 1, &c, err);
    if (done == CHURON_OK) done = onednn_execute(r, &st->product, &c, x->data, y->data, err);
    if (done != CHURON_OK) error_prefix(err, "node '%s'", op_name_of(run_node(r)));
    return done;
}

static const op_def op_onednn_conv = {.domain = "churon.onednn",
                                      .name = "onednn.Conv",
                                      .since = 1,
                                      .signature = "T>T",
                                      .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                                      .release = state_free,
                                      .infer = infer,
                                      .run = run};

static bool can_claim(const op_node *n) {
    const tensor *w = node_f32_constant(n, 1);
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!w || w->count == 0 || !value_is_f32(x) || !x->has_rank || !y || !value_is_f32(y)) return false;
    if (x->rank != w->rank || x->rank < 3 || x->rank > 2 + WINDOW_MAX) return false;
    return n->n_inputs < 3 || !n->inputs[2] || node_f32_constant(n, 2);
}

static status fill(state *st, const op_node *n, error *err) {
    const tensor *w = node_f32_constant(n, 1), *bias = node_f32_constant(n, 2);
    const conv_state *read = n->state;
    int64_t dims[3 + WINDOW_MAX];
    st->w = read->w;
    st->groups = read->group;
    st->axes = w->rank - 2;
    st->out_channels = w->dims[0];
    st->in_channels = w->dims[1] * st->groups;
    memcpy(st->kernel, w->dims + 2, st->axes * sizeof *st->kernel);
    TRY(onednn_product_begin(&st->product, bias ? bias->data : NULL, (size_t)w->dims[0], false, err));
    st->product.weights = w->data;
    st->product.operations = 2.0 * (double)(w->count / (size_t)w->dims[0]);
    /* Of groups the weights have an axis of their own. */
    dims[0] = st->groups;
    dims[1] = st->out_channels / st->groups;
    memcpy(dims + 2, w->dims + 1, (w->rank - 1) * sizeof *dims);
    const bool grouped = st->groups > 1;
    return onednn_dense(&st->product.weights_dense, w->rank + grouped, grouped ? dims : w->dims, NULL, err);
}

status onednn_claim_conv(rewriter *w, op_node *n, size_t threads, error *err) {
    if (!can_claim(n)) return CHURON_OK;
    state *st = mem_calloc(1, sizeof *st);
    if (!st) return ir_no_memory(err);
    status made = fill(st, n, err);
    ir_value *out = made == CHURON_OK ? onednn_take_limits(w, n, &st->product) : NULL;
    const ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (made == CHURON_OK && value_known_shape(x) && value_known_shape(y) && x->dims[0] > 0) {
        onednn_call c;
        made = describe(st, x->dims, y->dims, threads, &c, err);
        if (made == CHURON_OK) made = onednn_prepare(&st->product, &c, err);
    }
    if (made != CHURON_OK) {
        state_free(st);
        return made;
    }
    op_node *put;
    TRY(rewrite_insert(w, n, &op_onednn_conv, n->name, n->inputs, 1, &out, 1, st, &put, err));
    put->borrowed = n->inputs[1]; /* plans of other shapes read it */
    rewrite_remove(w, n);
    return CHURON_OK;
}
