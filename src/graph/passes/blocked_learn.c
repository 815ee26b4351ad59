/* blocked_learn.c: channels that shape inference could not tell (behind a Pad, say, whose amounts are
 * computed) but that a convolution's weights demand. A model for which they are others fails at that
 * convolution anyway, as it stands in the same graph and is always reached. See blocked.c. */
#include "graph/passes/blocked.h"

#include <string.h>

/* Axis `axis` of v is `size`, unless more is known. */
static status learn(ir_value *v, size_t axis, dim size, error *err) {
    if (!v->has_rank || axis >= v->rank || v->rank > TENSOR_MAX_RANK || dim_known(v->dims[axis]) ||
        v->is_constant)
        return CHURON_OK;
    dim dims[TENSOR_MAX_RANK];
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    dims[axis] = size;
    return ir_value_set_shape(v, v->rank, dims, err);
}

/* What is known of the output's channels holds for the input. */
static bool keeps_channels(const op_node *n) {
    static const char *const list[] = {"MaxPool",       "AveragePool", "GlobalAveragePool",
                                       "GlobalMaxPool", "Relu",        "Sigmoid",
                                       "Tanh",          "LeakyRelu",   "HardSwish",
                                       "HardSigmoid",   "Clip",        "BatchNormalization",
                                       "LRN",           "Identity",    NULL};
    for (size_t i = 0; list[i]; i++) {
        if (node_is(n, list[i])) return true;
    }
    return false;
}

status layout_learn_channels(ir_graph *g, error *err) {
    for (size_t i = g->n_nodes; i-- > 0;) {
        const op_node *n = g->nodes[i];
        if (rewrite_removed(n) || n->n_inputs == 0 || n->n_outputs == 0 || !n->inputs[0] || !n->outputs[0])
            continue;
        ir_value *x = n->inputs[0];
        const ir_value *y = n->outputs[0];
        const tensor *w = node_is(n, "Conv") ? node_f32_constant(n, 1) : NULL;
        const int64_t groups = node_int(n, "group", 1);
        if (x->producer && w && w->rank >= 3 && groups > 0 && w->dims[1] <= INT32_MAX / groups) {
            TRY(learn(x, 1, w->dims[1] * groups, err));
        } else if (x->producer && keeps_channels(n) && y->has_rank && y->rank >= 3 && dim_known(y->dims[1])) {
            TRY(learn(x, 1, y->dims[1], err));
        } else if (x->producer && node_is(n, "Transpose") && y->has_rank) {
            size_t count;
            const int64_t *perm = node_ints(n, "perm", &count);
            for (size_t k = 0; perm && k < count && k < y->rank && count == y->rank; k++) {
                if (dim_known(y->dims[k])) TRY(learn(x, (size_t)perm[k], y->dims[k], err));
            }
        }
    }
    return CHURON_OK;
}
