/* rows.h: which outputs of a graph have a row for each record, computed from that record's rows alone.
 *
 * Records lie along the open first dimension of the inputs. An output is said to keep them apart only where
 * that follows from every operator on the way: row i of the output is a function of row i of the inputs, of
 * constants and of the other dimensions, never of other rows, of their number or of the row's place. What is
 * not known is not said. */
#ifndef GRAPH_ROWS_H
#define GRAPH_ROWS_H

#include "graph/ir.h"

/* out [main->n_outputs]. After ir_infer and before the passes: operators are those of the file. */
MUST_USE status rows_find(const ir_program *p, graph_rows *out, error *err);

#endif
