/* passes.h: changes of a loaded graph that leave its answers alone and make it faster.
 *
 * Passes run in the order of the list, after shapes were inferred and before steps are planned. Each is named
 * and can be left out (graph_options.no_pass), and none is needed for a right answer: `churon verify
 * --passes` runs a model with and without each. What a pass puts in its place computes the same function;
 * sums may be taken in another order, always a fixed one, so results differ by rounding only, and still
 * depend on no batch and no thread. */
#ifndef GRAPH_PASSES_PASSES_H
#define GRAPH_PASSES_PASSES_H

#include "graph/graph.h"
#include "graph/ir.h"
#include "graph/passes/rewrite.h"

typedef struct pass {
    const char *name, *what; /* what it does, for people */
    status (*run)(rewriter *w, error *err);
} pass;

/* All passes in order. */
const pass *pass_list(size_t *n);
/* May it give the neighbouring step of a quantized value, as passes/quantized.c says? */
bool pass_moves_steps(const pass *p);
/* Runs those that o does not leave out; an unknown name there is an error that lists the known ones. */
MUST_USE status passes_run(ir_program *p, const graph_options *o, error *err);

/* One file each. */
status pass_constant_folding(rewriter *w, error *err);
status pass_identity(rewriter *w, error *err);
status pass_common_subexpressions(rewriter *w, error *err);
status pass_dead_code(rewriter *w, error *err);
status pass_conv_scale(rewriter *w, error *err);
/* Multiplies the weights that conv-scale has left to who packs them, where a node still reads them. */
MUST_USE status conv_scale_settle(rewriter *w, error *err);
status pass_blocked_layout(rewriter *w, error *err);
status pass_conv_epilogue(rewriter *w, error *err);
MUST_USE status pass_recurrent_weights(rewriter *w, error *err);
MUST_USE status pass_winograd(rewriter *w, error *err);
status pass_dynamic_quantization(rewriter *w, error *err);
status pass_matmul_epilogue(rewriter *w, error *err);
status pass_activations(rewriter *w, error *err);
status pass_normalization(rewriter *w, error *err);
status pass_transposes(rewriter *w, error *err);
status pass_quantized(rewriter *w, error *err);
status pass_function_tables(rewriter *w, error *err);
status pass_quantized_layout(rewriter *w, error *err);
status pass_skip_normalization(rewriter *w, error *err);
status pass_softmax(rewriter *w, error *err);
MUST_USE status pass_fused_exports(rewriter *w, error *err);
MUST_USE status pass_one_hot(rewriter *w, error *err);
status pass_attention(rewriter *w, error *err);

#endif
