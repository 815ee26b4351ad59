/* rnn.h: weights of recurrent layers. */
#ifndef GRAPH_OPS_RNN_H
#define GRAPH_OPS_RNN_H

#include "graph/op.h"

/* Packs weights of an RNN, GRU or LSTM that have become constant since it was prepared. state: the node's. */
MUST_USE status rnn_pack_constants(op_node *n, void *state, error *err);

#endif
