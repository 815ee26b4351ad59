/* cost.h: how much arithmetic a node did, for fractions of the machine's peak. */
#ifndef GRAPH_COST_H
#define GRAPH_COST_H

#include "graph/ir.h"

/* Multiplications and additions (two for each product that is summed up) of matrix products, convolutions and
 * recurrent layers, from the shapes of what the node read and made; 0 for other operators. */
double cost_operations(const op_node *n, const graph_event *e);
/* Bytes of weights that a pass packed into the node's state. */
size_t cost_packed_bytes(const op_node *n);

#endif
