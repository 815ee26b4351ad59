/* forest.h: ensembles of decision trees as arrays, whatever operator they came from, and how rows walk them.
 *
 * Built once, checked whole (every child exists, no node is reached twice, features and targets in range),
 * then immutable: any number of threads. The walk that defines the answer is forest_leaf; forest_bits.h has a
 * faster one for the forms that trainers make, which finds the same leaves. Weights are added in the order of
 * trees, in double, so a row's scores do not depend on its company, on threads or on the way that was taken.
 */
#ifndef GRAPH_OPS_FOREST_H
#define GRAPH_OPS_FOREST_H

#include "graph/ops/nn.h"

typedef enum forest_mode {
    FOREST_LEQ, /* in the numbering of TreeEnsemble 5 */
    FOREST_LT,
    FOREST_GTE,
    FOREST_GT,
    FOREST_EQ,
    FOREST_NEQ,
    FOREST_MEMBER
} forest_mode;

#define FOREST_IS_LEAF ((uint32_t)1 << 31) /* in a child: the rest is the number of a leaf */

typedef struct forest_node {
    double value; /* of a MEMBER: unused */
    uint32_t feature, yes, no;
    uint32_t set;     /* MEMBER: index of its set */
    uint8_t mode;     /* forest_mode */
    bool missing_yes; /* NaN goes to yes, whatever the comparison says */
} forest_node;

typedef struct forest_weight {
    uint32_t target;
    double weight;
} forest_weight;

typedef struct forest_bits forest_bits; /* see forest_bits.h */

typedef struct forest {
    forest_node *nodes;     /* [n_nodes] each tree's in one run, parents before children */
    uint32_t *roots;        /* [n_trees] as a child */
    uint32_t *leaf_at;      /* [n_leaves + 1] into weights */
    forest_weight *weights; /* of leaves, in order */
    double *members;        /* of sets, each ascending */
    uint32_t *set_at;       /* [n_sets + 1] into members */
    size_t n_nodes, n_trees, n_leaves, n_weights, n_sets, n_features, n_targets;
    forest_bits *bits; /* NULL: not of that form */
} forest;

/* What a file says of one node; children are named by position in the same list, or are leaves. */
typedef struct forest_source_node {
    double value;
    uint32_t feature, set;
    int64_t yes, no;        /* position of the child in the list */
    bool yes_leaf, no_leaf; /* the child is leaf number yes, no */
    uint8_t mode;
    bool missing_yes;
} forest_source_node;

/* A whole file's trees. Leaves: weights of leaf i are [leaf_at[i], leaf_at[i + 1]). */
typedef struct forest_source {
    const forest_source_node *nodes;
    const uint32_t *leaf_at;
    const forest_weight *weights;
    const int64_t *roots;  /* [n_trees] positions of nodes; or of leaves where root_leaf says so */
    const bool *root_leaf; /* NULL: none is */
    const double *members;
    const uint32_t *set_at;
    size_t n_nodes, n_leaves, n_weights, n_trees, n_members, n_sets, n_targets;
} forest_source;

MUST_USE status forest_build(op_node *n, forest *out, const forest_source *from, error *err);
void forest_free(forest *f);

/* Leaf of one tree for a row. x has n_features values. */
uint32_t forest_leaf(const forest *f, size_t tree, const double *x);

typedef enum forest_aggregate { FOREST_AVERAGE, FOREST_SUM, FOREST_MIN, FOREST_MAX } forest_aggregate;

/* Scores of all rows of x, [rows, n_targets], base not included. x: [rows, columns] of any real type, at
 * least n_features columns. Targets that no leaf of a row's has are 0. */
MUST_USE status forest_scores(const forest *f, op_run *r, const tensor *x, forest_aggregate how,
                              double *scores, error *err);

#endif
