/* cost.c: see cost.h. */
#include "graph/cost.h"

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
static double product(const tensor *a, const tensor *out) {
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

double cost_operations(const graph_event *e) {
    static const char *const products[] = {"MatMul",    "Gemm",          "FusedMatMul",
                                           "FusedGemm", "MatMulInteger", NULL};
    static const char *const convolutions[] = {"Conv", "FusedConv", "ConvInteger", NULL};
    static const char *const recurrences[] = {"LSTM", "GRU", "RNN", NULL};
    const tensor *a = tensor_at(e->inputs, e->n_inputs, 0), *b = tensor_at(e->inputs, e->n_inputs, 1),
                 *c = tensor_at(e->inputs, e->n_inputs, 2), *out = tensor_at(e->outputs, e->n_outputs, 0);
    if (!a || !b) return 0;
    if (out && is_one_of(e->op, products)) return product(a, out);
    if (out && is_one_of(e->op, convolutions)) return convolution(b, out);
    if (strcmp(e->op, "ConvTranspose") == 0) return transposed_convolution(a, b);
    if (c && is_one_of(e->op, recurrences)) return recurrent(a, b, c);
    return 0;
}
