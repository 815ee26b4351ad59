/* recurrent.c: recurrent layers whose weights are computed from constants (gates in another order, joined
 * from pieces, as exporters write them) pack them once, not in every run. */
#include "graph/passes/passes.h"

#include "graph/ops/rnn.h"

static status sweep(rewriter *w, error *err) {
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        op_node *n = w->g->nodes[i];
        if (rewrite_removed(n) || (!node_is(n, "LSTM") && !node_is(n, "GRU") && !node_is(n, "RNN"))) continue;
        TRY(rnn_pack_constants(n, n->state, err));
    }
    return CHURON_OK;
}

status pass_recurrent_weights(rewriter *w, error *err) {
    return rewrite_each(w, sweep, err);
}
