/* forest_bits.h: the fast way through a forest: no branch and no gather.
 *
 * Of each feature only its rank among the thresholds that the forest has for it matters: x <= t[k] exactly if
 * no more than k thresholds are below x. Ranks fit a byte for histogram trainers (at most 255 thresholds a
 * feature) and 16 bits for others. A row's ranks lie in one or two vector registers, so that the decisions of
 * 64 nodes are one permutation and one comparison (kernels: forest_u8, forest_u16). Trees are complete in
 * memory, depth at most 8: node n's children are 2n and 2n + 1, and a walk is n = 2n + bit n. Decisions of
 * f32 against thresholds of f64 are exact: x <= t equals x <= the largest f32 that is not above t.
 *
 * Used for f32 rows and forests whose comparisons are <, <=, >, >=; others take forest_leaf. Both find the
 * same leaves and add weights in the same order: the same bits. */
#ifndef GRAPH_OPS_FOREST_BITS_H
#define GRAPH_OPS_FOREST_BITS_H

#include "graph/ops/forest.h"

/* *out stays NULL if the forest has another form. */
MUST_USE status forest_bits_build(forest_bits **out, const forest *f, error *err);
void forest_bits_free(forest_bits *b);
/* Adds the weights of each row's leaves to scores [rows, n_targets]. x: [rows, columns]. */
MUST_USE status forest_bits_scores(const forest *f, op_run *r, const float *x, size_t rows, size_t columns,
                                   double *scores, error *err);

#endif
