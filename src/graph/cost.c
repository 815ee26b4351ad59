/* cost.c: see cost.h. */
#include "graph/cost.h"

#include "graph/ops/blocked.h"
#include "graph/ops/product.h"
#include "graph/ops/qimage.h"
#include "graph/ops/sdpa.h"
#include "graph/providers/provider.h"

#include <string.h>

static const tensor *tensor_at(const value *const *values, size_t n, size_t i) {
    return i < n && values[i] && values[i]->kind == VALUE_TENSOR ? &values[i]->t : NULL;
}

/* Each output element sums as many products as one output channel has weights. */
static double convolution(const tensor *w, const tensor *out) {
    return w->rank > 0 && w->dims[0] > 0 ? 2.0 * (double)out->count * (double)w->count / (double)w->dims[0]
                                         : 0;
}

/* The other way: each input element meets the weights of one input channel. */
static double transposed_convolution(const tensor *x, const tensor *w) {
    return w->rank > 0 && w->dims[0] > 0 ? 2.0 * (double)x->count * (double)w->count / (double)w->dims[0] : 0;
}

/* Each output element sums K products; K is the last dimension of a, or the one before where a is taken
 * transposed, which the output's rows tell. */
static double matrix_product(const tensor *a, const tensor *out) {
    if (a->rank == 0) return 0;
    int64_t k = a->dims[a->rank - 1];
    if (a->rank >= 2 && out->rank >= 2 && a->dims[a->rank - 2] != out->dims[out->rank - 2] &&
        k == out->dims[out->rank - 2]) {
        k = a->dims[a->rank - 2];
    }
    return 2.0 * (double)out->count * (double)k;
}

/* Gates of every step: weights [directions, gates * hidden, input] and [directions, gates * hidden, hidden].
 */
static double recurrent(const tensor *x, const tensor *w, const tensor *r) {
    return x->rank == 3
               ? 2.0 * (double)x->dims[0] * (double)x->dims[1] * ((double)w->count + (double)r->count)
               : 0;
}

static bool is_one_of(const char *op, const char *const *list) {
    for (; *list; list++) {
        if (strcmp(op, *list) == 0) return true;
    }
    return false;
}

static double blocked_convolution(const conv *c, const tensor *out) {
    const size_t floats = c->single ? 1 : conv_blocks(c->out_channels) * CONV_BLOCK;
    const double pixels = (double)(out->count / floats);
    const double taps = (double)(c->in_channels / c->groups) * (double)(c->kernel_h * c->kernel_w);
    return 2.0 * pixels * (double)c->out_channels * taps;
}

size_t cost_packed_bytes(const op_node *n) {
    if (n->def == &op_blocked_conv) {
        const blocked_conv *st = n->state;
        const size_t bias = st->bias ? conv_bias_floats(&st->c) : 0;
        return (conv_packed_floats(&st->c) + bias) * sizeof(float);
    }
    if (n->def == &op_product || n->def == &op_product_int) {
        const product *st = n->state;
        const size_t columns = gemm_panels(st->n) * GEMM_PANEL, bias = st->bias ? columns * sizeof(float) : 0;
        const size_t integers = st->k * columns + columns * (sizeof(int32_t) + sizeof(float));
        return bias + (n->def == &op_product ? gemm_packed_floats(st->k, st->n) * sizeof(float) : integers);
    }
    if (n->def == &op_blocked_transpose) {
        const blocked_transpose *st = n->state;
        size_t floats = st->bias ? conv_bias_floats(&st->phases[0].c) : 0;
        for (size_t i = 0; i < st->n_phases; i++) floats += conv_packed_floats(&st->phases[i].c);
        return floats * sizeof(float);
    }
    if (n->def == &op_qimage_conv) {
        const qconv *c = &((const qimage_conv *)n->state)->c;
        return qconv_packed_bytes(c) + qconv_columns(c) * 3 * sizeof(int32_t);
    }
    if (n->def == &op_qimage_table) return ((const qimage_table *)n->state)->n * 256;
    if (n->def == &op_blocked_affine) {
        return 2 * ((const blocked_affine *)n->state)->blocks * CONV_BLOCK * sizeof(float);
    }
    const provider *p = provider_of(n);
    return p->packed_bytes ? p->packed_bytes(n) : 0;
}

double cost_operations(const op_node *n, const graph_event *e) {
    static const char *const products[] = {"MatMul",    "Gemm",          "FusedMatMul",
                                           "FusedGemm", "MatMulInteger", NULL};
    static const char *const convolutions[] = {"Conv", "FusedConv", "ConvInteger", NULL};
    static const char *const recurrences[] = {"LSTM", "GRU", "RNN", NULL};
    const tensor *a = tensor_at(e->inputs, e->n_inputs, 0), *b = tensor_at(e->inputs, e->n_inputs, 1),
                 *c = tensor_at(e->inputs, e->n_inputs, 2), *out = tensor_at(e->outputs, e->n_outputs, 0);
    if (a && out && n->def == &op_blocked_conv)
        return blocked_convolution(&((const blocked_conv *)n->state)->c, out);
    if (a && n->def == &op_blocked_transpose) {
        const blocked_transpose *st = n->state;
        return 2.0 * (double)(a->count / (conv_blocks(st->c.in_channels) * CONV_BLOCK)) *
               (double)(st->c.in_channels * st->c.out_channels * st->kernel_h * st->kernel_w);
    }
    if (out && n->def == &op_qimage_conv) {
        const qconv *by = &((const qimage_conv *)n->state)->c;
        return 2.0 * (double)out->count * (double)(by->in_channels / by->groups) *
               (double)(by->kernel_h * by->kernel_w);
    }
    if (out && (n->def == &op_product || n->def == &op_product_int)) {
        return 2.0 * (double)out->count * (double)((const product *)n->state)->k;
    }
    const provider *p = provider_of(n);
    if (out && p->operations) return p->operations(n, out);
    if (!a || !b) return 0;
    if (out && n->def == &op_sdpa) {
        const sdpa *st = n->state;
        const double keys = (double)b->dims[st->k.axis[SDPA_TIME]];
        const double width = (double)b->dims[st->k.axis[SDPA_WIDTH]], wide = (double)out->dims[out->rank - 1];
        return wide > 0 ? 2.0 * (double)out->count * keys * (1.0 + width / wide) : 0;
    }
    if (out && is_one_of(e->op, products)) return matrix_product(a, out);
    if (out && is_one_of(e->op, convolutions)) return convolution(b, out);
    if (strcmp(e->op, "ConvTranspose") == 0) return transposed_convolution(a, b);
    if (c && is_one_of(e->op, recurrences)) return recurrent(a, b, c);
    return 0;
}
