/* ops.h: the tables of operators, one a file. op_find looks through them; generated lists (documentation,
 * `inspect
 * --passes`, the random-graph generator) read them too. */
#ifndef GRAPH_OPS_OPS_H
#define GRAPH_OPS_OPS_H

#include "graph/op.h"

#define OP_TABLES(X)                                                                                         \
    X(constant) /* Constant, ConstantOfShape, Identity, Shape, Size */                                       \
    X(control)  /* If, Loop, Scan */

#define X(name) extern const op_table ops_##name;
OP_TABLES(X)
#undef X

#endif
