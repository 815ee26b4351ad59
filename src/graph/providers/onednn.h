/* onednn.h: the provider "onednn": f32 Conv of 1 to 3 axes, and MatMul and Gemm, with constant weights.
 *
 * oneDNN compiles a primitive for one shape: it is made at load where the shape is known, else by the first
 * run of that shape, and kept (ONEDNN_PLANS of them). Weights are copied into the primitive's order once;
 * plans whose order is the same share the copy. Values come and go dense: where a primitive wants another
 * layout they are reordered in scratch before and after.
 *
 * Threads: oneDNN's are OpenMP's; each call sets their number to that of the session and sets the caller's
 * back. What a sum's order is, oneDNN chooses by shape and threads: the same call gives the same bits, a row
 * in another batch, or another number of threads, may not. */
#ifndef GRAPH_PROVIDERS_ONEDNN_H
#define GRAPH_PROVIDERS_ONEDNN_H

#include "graph/providers/provider.h"

MUST_USE status onednn_claim(rewriter *w, op_node *n, size_t threads, error *err);
size_t onednn_packed_bytes(const op_node *n);
double onednn_operations(const op_node *n, const tensor *y);

#endif
