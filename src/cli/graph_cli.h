/* graph_cli.h: the commands of models that are graphs (ONNX). What MODEL is, its content tells. */
#ifndef CLI_GRAPH_CLI_H
#define CLI_GRAPH_CLI_H

#include "cli/cli.h"
#include "graph/graph.h"

/* "float32 [N, 3, 224, 224]" */
void graph_type_text(const onnx_type *t, str *out);
/* Says on stderr, unless quiet, where output i has other dimensions than the file declares. False: as
 * declared. */
bool graph_note_declared(const char *command, const graph *g, size_t i, const onnx_type *got, bool quiet);
/* Members dtype and shape (or what else describes it) of an object that is open. */
void graph_type_json(json_out *j, const onnx_type *t);

#endif
