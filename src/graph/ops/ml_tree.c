/* ml_tree.c: TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble. */
#include "base/mem.h"
#include "graph/ops/forest.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct tree_op {
    forest forest;
    forest_aggregate how;
    ml_post post;
    ml_labels labels;
    double *base; /* [n_base] */
    size_t n_base;
    size_t width;      /* columns of the output */
    bool binary;       /* all weights are of one class of two: its score stands for both */
    bool all_positive; /* of the weights: a sum of probabilities, decided at 0.5 */
} tree_op;

static void tree_release(void *state) {
    tree_op *st = state;
    if (!st) return;
    forest_free(&st->forest);
    mem_free(st->base);
    mem_free(st);
}

/* What is read before the forest is built; freed after. */
typedef struct reading {
    op_node *n;
    forest_source source;
    forest_source_node *nodes;
    uint32_t *leaf_at, *leaf_of, *set_at;
    forest_weight *weights;
    int64_t *roots;
    bool *root_leaf;
    double *members;
    ml_map places; /* of nodes by tree and number */
    uint64_t *keys;
} reading;

static void reading_free(reading *rd) {
    mem_free(rd->nodes);
    mem_free(rd->leaf_at);
    mem_free(rd->leaf_of);
    mem_free(rd->set_at);
    mem_free(rd->weights);
    mem_free(rd->roots);
    mem_free(rd->root_leaf);
    mem_free(rd->members);
    ml_map_free(&rd->places);
    mem_free(rd->keys);
}

static status take(void *out_pointer, size_t n, size_t item, error *err) {
    void *p = mem_calloc(n, item);
    if (!p) return error_no_memory(err, "trees", n * item);
    memcpy(out_pointer, &p, sizeof p);
    return CHURON_OK;
}

/* ---- lists of attributes ---------------------------------------------------------------------------- */

/* Numbers from an attribute of floats or its "_as_tensor" form. */
typedef struct numbers {
    const float *floats;
    const tensor *t;
    size_t n;
} numbers;

static double number_at(const numbers *v, size_t i) {
    return v->floats ? (double)v->floats[i] : real_at(v->t, i);
}

static status read_tensor_numbers(op_node *n, const char *name, numbers *out, error *err) {
    TRY(op_attr_tensor(n, name, &out->t, err));
    if (!out->t) return CHURON_OK;
    out->n = out->t->count;
    elem_set real = ELEMS_FLOAT | ELEMS_INT;
    if (real & ELEM_BIT(out->t->type)) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "attribute '%s': expected numbers, got %s", name,
                    elem_name(out->t->type));
}

static status read_numbers(op_node *n, const char *floats, const char *as_tensor, numbers *out, error *err) {
    *out = (numbers){0};
    TRY(op_attr_floats(n, floats, &out->floats, &out->n, err));
    if (out->n == 0) out->floats = NULL;
    if (out->floats || !op_attr_present(n, as_tensor)) return CHURON_OK;
    return read_tensor_numbers(n, as_tensor, out, err);
}

static status read_ints(op_node *n, const char *name, const int64_t **out, size_t want, error *err) {
    size_t got;
    TRY(op_attr_ints(n, name, out, &got, err));
    if (got == want) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "attribute '%s': expected %zu values, got %zu", name, want, got);
}

static status read_base(op_node *n, tree_op *st, error *err) {
    numbers base;
    TRY(read_numbers(n, "base_values", "base_values_as_tensor", &base, err));
    st->n_base = base.n;
    TRY(take(&st->base, base.n, sizeof *st->base, err));
    for (size_t i = 0; i < base.n; i++) st->base[i] = number_at(&base, i);
    return CHURON_OK;
}

static status check_feature(const op_node *n, size_t i, int64_t feature, error *err) {
    if (feature >= 0 && feature <= INT32_MAX) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID,
                    "attribute 'nodes_featureids'[%zu]: expected 0 or more, got %" PRId64, i, feature);
}

/* ---- versions 1 and 3: nodes named by tree and number ----------------------------------------------- */

static uint64_t node_key(int64_t tree, int64_t node) {
    return (uint64_t)tree << 32 | (uint64_t)node;
}

static bool small_id(int64_t v) {
    return v >= 0 && v <= INT32_MAX;
}

enum { MODE_LEAF = FOREST_MEMBER + 1 };

static status read_mode(const op_node *n, const onnx_bytes *s, size_t i, uint8_t *out, error *err) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", NULL,         "LEAF"};
    for (uint8_t k = 0; k <= MODE_LEAF; k++) {
        if (!names[k] || strcmp(names[k], s->data) != 0) continue;
        *out = k;
        return CHURON_OK;
    }
    return op_error(
        n, err, CHURON_INVALID,
        "attribute 'nodes_modes'[%zu]: expected BRANCH_LEQ, _LT, _GTE, _GT, _EQ, _NEQ or LEAF, got "
        "'%.40s'",
        i, s->data);
}

typedef struct node_lists {
    const int64_t *tree, *node, *feature, *yes, *no, *missing;
    const onnx_bytes *modes;
    numbers values;
    size_t n;
} node_lists;

static status read_node_lists(op_node *n, node_lists *l, error *err) {
    size_t n_missing;
    TRY(op_attr_strings(n, "nodes_modes", &l->modes, &l->n, err));
    TRY(read_ints(n, "nodes_treeids", &l->tree, l->n, err));
    TRY(read_ints(n, "nodes_nodeids", &l->node, l->n, err));
    TRY(read_ints(n, "nodes_featureids", &l->feature, l->n, err));
    TRY(read_ints(n, "nodes_truenodeids", &l->yes, l->n, err));
    TRY(read_ints(n, "nodes_falsenodeids", &l->no, l->n, err));
    TRY(op_attr_ints(n, "nodes_missing_value_tracks_true", &l->missing, &n_missing, err));
    if (n_missing) TRY(read_ints(n, "nodes_missing_value_tracks_true", &l->missing, l->n, err));
    if (!n_missing) l->missing = NULL;
    TRY(read_numbers(n, "nodes_values", "nodes_values_as_tensor", &l->values, err));
    op_attr_ignore(n, "nodes_hitrates"); /* how often training came by */
    op_attr_ignore(n, "nodes_hitrates_as_tensor");
    if (l->n == 0 || l->values.n != l->n) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute 'nodes_values': expected %zu values as 'nodes_modes' has, "
                        "got %zu",
                        l->n, l->values.n);
    }
    return CHURON_OK;
}

static status index_nodes(reading *rd, const node_lists *l, error *err) {
    TRY(take(&rd->keys, l->n, sizeof *rd->keys, err));
    for (size_t i = 0; i < l->n; i++) {
        if (!small_id(l->tree[i]) || !small_id(l->node[i])) {
            return op_error(
                rd->n, err, CHURON_INVALID,
                "attributes 'nodes_treeids' and 'nodes_nodeids' [%zu]: expected 0 to %d, got %" PRId64
                " and %" PRId64,
                i, INT32_MAX, l->tree[i], l->node[i]);
        }
        rd->keys[i] = node_key(l->tree[i], l->node[i]);
    }
    TRY(ml_map_numbers(&rd->places, rd->keys, l->n, err));
    for (size_t i = 0; i < l->n; i++) {
        if (ml_map_number(&rd->places, rd->keys[i]) == i) continue;
        return op_error(rd->n, err, CHURON_INVALID,
                        "node %" PRId64 " of tree %" PRId64 ": expected it once, got it twice", l->node[i],
                        l->tree[i]);
    }
    return CHURON_OK;
}

static status find_child(const reading *rd, const node_lists *l, size_t i, int64_t id, const uint8_t *modes,
                         int64_t *at, bool *leaf, error *err) {
    size_t k = small_id(id) ? ml_map_number(&rd->places, node_key(l->tree[i], id)) : SIZE_MAX;
    if (k == SIZE_MAX) {
        return op_error(rd->n, err, CHURON_INVALID,
                        "node %" PRId64 " of tree %" PRId64 ": expected a child of that tree, got %" PRId64,
                        l->node[i], l->tree[i], id);
    }
    *leaf = modes[k] == MODE_LEAF;
    *at = *leaf ? (int64_t)rd->leaf_of[k] : (int64_t)k;
    return CHURON_OK;
}

/* Every tree's first node that is nobody's child. */
static status find_roots(reading *rd, const node_lists *l, const uint8_t *modes, uint8_t *is_child,
                         error *err) {
    for (size_t i = 0; i < l->n; i++) {
        if (modes[i] == MODE_LEAF) continue;
        is_child[ml_map_number(&rd->places, node_key(l->tree[i], l->yes[i]))] = 1;
        is_child[ml_map_number(&rd->places, node_key(l->tree[i], l->no[i]))] = 1;
    }
    ml_map trees;
    uint64_t *ids = NULL;
    TRY(take(&ids, l->n, sizeof *ids, err));
    size_t count = 0;
    status st = take(&rd->roots, l->n, sizeof *rd->roots, err);
    if (st == CHURON_OK) st = take(&rd->root_leaf, l->n, sizeof *rd->root_leaf, err);
    for (size_t i = 0; i < l->n; i++) ids[i] = (uint64_t)l->tree[i];
    if (st == CHURON_OK) st = ml_map_numbers(&trees, ids, l->n, err);
    if (st == CHURON_OK) {
        memset(ids, 0,
               l->n * sizeof *ids); /* from here: by the last position of a tree, whether it has a root */
        size_t n_trees = 0;
        for (size_t i = 0; i < l->n; i++) {
            size_t last = ml_map_number(&trees, (uint64_t)l->tree[i]);
            n_trees += last == i;
            if (is_child[i] || ids[last]) continue;
            ids[last] = 1;
            rd->root_leaf[count] = modes[i] == MODE_LEAF;
            rd->roots[count] = modes[i] == MODE_LEAF ? (int64_t)rd->leaf_of[i] : (int64_t)i;
            count++;
        }
        if (count != n_trees) {
            st = op_error(rd->n, err, CHURON_INVALID,
                          "expected a root in each of %zu trees, got %zu: the others are "
                          "circles",
                          n_trees, count);
        }
        ml_map_free(&trees);
    }
    mem_free(ids);
    rd->source.roots = rd->roots;
    rd->source.root_leaf = rd->root_leaf;
    rd->source.n_trees = count;
    return st;
}

static status read_nodes(reading *rd, const node_lists *l, uint8_t *modes, error *err) {
    TRY(index_nodes(rd, l, err));
    TRY(take(&rd->nodes, l->n, sizeof *rd->nodes, err));
    TRY(take(&rd->leaf_of, l->n, sizeof *rd->leaf_of, err));
    size_t leaves = 0;
    for (size_t i = 0; i < l->n; i++) {
        TRY(read_mode(rd->n, &l->modes[i], i, &modes[i], err));
        if (modes[i] == MODE_LEAF) rd->leaf_of[i] = (uint32_t)leaves++;
    }
    rd->source.n_leaves = leaves;
    for (size_t i = 0; i < l->n; i++) {
        if (modes[i] == MODE_LEAF) continue;
        forest_source_node *d = &rd->nodes[i];
        TRY(check_feature(rd->n, i, l->feature[i], err));
        d->feature = (uint32_t)l->feature[i];
        d->mode = modes[i];
        d->value = number_at(&l->values, i);
        d->missing_yes = l->missing && l->missing[i];
        TRY(find_child(rd, l, i, l->yes[i], modes, &d->yes, &d->yes_leaf, err));
        TRY(find_child(rd, l, i, l->no[i], modes, &d->no, &d->no_leaf, err));
    }
    rd->source.nodes = rd->nodes;
    rd->source.n_nodes = l->n;
    return CHURON_OK;
}

typedef struct weight_lists {
    const int64_t *tree, *node, *id;
    numbers weights;
} weight_lists;

static status read_weight_lists(op_node *n, const char *kind, weight_lists *l, error *err) {
    bool class = kind[0] == 'c';
    TRY(read_numbers(n, class ? "class_weights" : "target_weights",
                     class ? "class_weights_as_tensor" : "target_weights_as_tensor", &l->weights, err));
    TRY(read_ints(n, class ? "class_treeids" : "target_treeids", &l->tree, l->weights.n, err));
    TRY(read_ints(n, class ? "class_nodeids" : "target_nodeids", &l->node, l->weights.n, err));
    return read_ints(n, class ? "class_ids" : "target_ids", &l->id, l->weights.n, err);
}

/* Weights by leaf, in the order of the file; those of nodes that are no leaves have no meaning. */
static status read_weights(reading *rd, const weight_lists *l, const uint8_t *modes, bool one_target,
                           error *err) {
    size_t n = l->weights.n, leaves = rd->source.n_leaves;
    TRY(take(&rd->leaf_at, leaves + 2, sizeof *rd->leaf_at, err));
    TRY(take(&rd->weights, n, sizeof *rd->weights, err));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            bool known = small_id(l->tree[i]) && small_id(l->node[i]);
            size_t k = known ? ml_map_number(&rd->places, node_key(l->tree[i], l->node[i])) : SIZE_MAX;
            if (k == SIZE_MAX || !small_id(l->id[i])) {
                return op_error(rd->n, err, CHURON_INVALID,
                                "weight %zu: expected a leaf and a target, got node %" PRId64
                                " of tree %" PRId64 " and target %" PRId64,
                                i, l->node[i], l->tree[i], l->id[i]);
            }
            if (modes[k] != MODE_LEAF) continue;
            uint32_t leaf = rd->leaf_of[k];
            if (pass == 0) {
                rd->leaf_at[leaf + 2]++;
            } else {
                rd->weights[rd->leaf_at[leaf + 1]++] =
                    (forest_weight){one_target ? 0 : (uint32_t)l->id[i], number_at(&l->weights, i)};
            }
        }
        for (size_t i = 2; pass == 0 && i < leaves + 2; i++) rd->leaf_at[i] += rd->leaf_at[i - 1];
    }
    rd->source.leaf_at = rd->leaf_at;
    rd->source.weights = rd->weights;
    rd->source.n_weights = rd->leaf_at[leaves];
    return CHURON_OK;
}

static status read_trees(reading *rd, tree_op *st, const weight_lists *w, bool one_target, error *err) {
    node_lists l = {0};
    TRY(read_node_lists(rd->n, &l, err));
    uint8_t *modes = mem_calloc(2 * l.n, 1);
    if (!modes) return error_no_memory(err, "trees", 2 * l.n);
    status done = read_nodes(rd, &l, modes, err);
    if (done == CHURON_OK) done = find_roots(rd, &l, modes, modes + l.n, err);
    if (done == CHURON_OK) done = read_weights(rd, w, modes, one_target, err);
    mem_free(modes);
    return done == CHURON_OK ? forest_build(rd->n, &st->forest, &rd->source, err) : done;
}

static status check_base(const op_node *n, const tree_op *st, size_t targets, error *err) {
    if (st->n_base <= 1 || st->n_base == targets) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID,
                    "attribute 'base_values': expected none, 1 or %zu values, got %zu", targets, st->n_base);
}

static status classifier_prepare(op_node *n, error *err) {
    tree_op *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    weight_lists w = {0};
    TRY(ml_labels_read(n, "classlabels_int64s", "classlabels_strings", &st->labels, err));
    TRY(ml_post_read(n, &st->post, err));
    TRY(read_base(n, st, err));
    TRY(read_weight_lists(n, "class", &w, err));
    if (st->labels.n == 0) {
        return op_error(n, err, CHURON_INVALID,
                        "expected one of the attributes 'classlabels_int64s' and "
                        "'classlabels_strings', got none");
    }
    bool one_id = true;
    st->all_positive = true;
    for (size_t i = 0; i < w.weights.n; i++) {
        one_id = one_id && w.id[i] == w.id[0];
        st->all_positive = st->all_positive && number_at(&w.weights, i) >= 0;
    }
    st->how = FOREST_SUM;
    st->width = st->labels.n;
    st->binary = st->labels.n <= 2 && one_id;
    TRY(check_base(n, st, st->labels.n, err));
    reading rd = {.n = n};
    rd.source.n_targets = st->binary ? 1 : st->labels.n;
    status done = read_trees(&rd, st, &w, st->binary, err);
    reading_free(&rd);
    return done;
}

static status regressor_prepare(op_node *n, error *err) {
    static const char *const names[] = {"AVERAGE", "SUM", "MIN", "MAX", NULL};
    tree_op *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    weight_lists w = {0};
    int64_t targets;
    int how;
    TRY(op_attr_choice(n, "aggregate_function", names, FOREST_SUM, &how, err));
    TRY(op_attr_int(n, "n_targets", 1, 1, INT32_MAX, &targets, err));
    TRY(ml_post_read(n, &st->post, err));
    TRY(read_base(n, st, err));
    TRY(read_weight_lists(n, "target", &w, err));
    st->how = (forest_aggregate)how;
    st->width = (size_t)targets;
    TRY(check_base(n, st, st->width, err));
    reading rd = {.n = n};
    rd.source.n_targets = st->width;
    status done = read_trees(&rd, st, &w, false, err);
    reading_free(&rd);
    return done;
}

/* ---- version 5: leaves and nodes in lists of their own ---------------------------------------------- */

typedef struct v5_lists {
    const int64_t *roots, *yes, *no, *yes_leaf, *no_leaf, *feature, *missing, *target;
    const tensor *modes;
    numbers splits, weights, members;
    size_t n_roots, n, n_leaves;
} v5_lists;

static status read_v5_lists(op_node *n, v5_lists *l, error *err) {
    size_t n_missing;
    TRY(op_attr_tensor(n, "nodes_modes", &l->modes, err));
    TRY(read_tensor_numbers(n, "nodes_splits", &l->splits, err));
    TRY(read_tensor_numbers(n, "leaf_weights", &l->weights, err));
    TRY(read_tensor_numbers(n, "membership_values", &l->members, err));
    op_attr_ignore(n, "nodes_hitrates");
    l->n = l->splits.n;
    l->n_leaves = l->weights.n;
    if (!l->modes || l->modes->type != ELEM_U8 || l->modes->count != l->n) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute 'nodes_modes': expected %zu values of uint8 as "
                        "'nodes_splits' has, got %zu of %s",
                        l->n, l->modes ? l->modes->count : 0,
                        elem_name(l->modes ? l->modes->type : ELEM_NONE));
    }
    TRY(op_attr_ints(n, "tree_roots", &l->roots, &l->n_roots, err));
    TRY(read_ints(n, "nodes_featureids", &l->feature, l->n, err));
    TRY(read_ints(n, "nodes_truenodeids", &l->yes, l->n, err));
    TRY(read_ints(n, "nodes_falsenodeids", &l->no, l->n, err));
    TRY(read_ints(n, "nodes_trueleafs", &l->yes_leaf, l->n, err));
    TRY(read_ints(n, "nodes_falseleafs", &l->no_leaf, l->n, err));
    TRY(op_attr_ints(n, "nodes_missing_value_tracks_true", &l->missing, &n_missing, err));
    if (n_missing) TRY(read_ints(n, "nodes_missing_value_tracks_true", &l->missing, l->n, err));
    if (!n_missing) l->missing = NULL;
    return read_ints(n, "leaf_targetids", &l->target, l->n_leaves, err);
}

/* Sets lie behind each other, each closed by NaN. */
static status read_members(reading *rd, const v5_lists *l, error *err) {
    size_t n_sets = 0, count = 0;
    TRY(take(&rd->members, l->members.n, sizeof *rd->members, err));
    TRY(take(&rd->set_at, l->members.n + 1, sizeof *rd->set_at, err));
    for (size_t i = 0; i < l->members.n; i++) {
        double v = number_at(&l->members, i);
        if (v == v) {
            rd->members[count++] = v;
        } else {
            rd->set_at[++n_sets] = (uint32_t)count;
        }
    }
    rd->source.members = rd->members;
    rd->source.set_at = rd->set_at;
    rd->source.n_members = count;
    rd->source.n_sets = n_sets;
    return CHURON_OK;
}

static status read_v5_nodes(reading *rd, const v5_lists *l, error *err) {
    size_t sets = 0;
    TRY(take(&rd->nodes, l->n, sizeof *rd->nodes, err));
    for (size_t i = 0; i < l->n; i++) {
        forest_source_node *d = &rd->nodes[i];
        TRY(check_feature(rd->n, i, l->feature[i], err));
        d->feature = (uint32_t)l->feature[i];
        d->value = number_at(&l->splits, i);
        d->mode = ((const uint8_t *)l->modes->data)[i];
        d->missing_yes = l->missing && l->missing[i];
        d->yes = l->yes[i];
        d->no = l->no[i];
        d->yes_leaf = l->yes_leaf[i] != 0;
        d->no_leaf = l->no_leaf[i] != 0;
        if (d->mode > FOREST_MEMBER) {
            return op_error(rd->n, err, CHURON_INVALID,
                            "attribute 'nodes_modes'[%zu]: expected 0 to %d, got %u", i, FOREST_MEMBER,
                            d->mode);
        }
        if (d->mode == FOREST_MEMBER) d->set = (uint32_t)sets++;
    }
    if (sets != rd->source.n_sets) {
        return op_error(rd->n, err, CHURON_INVALID,
                        "attribute 'membership_values': expected %zu sets, each closed by NaN, got %zu", sets,
                        rd->source.n_sets);
    }
    rd->source.nodes = rd->nodes;
    rd->source.n_nodes = l->n;
    return CHURON_OK;
}

static status read_v5(reading *rd, const v5_lists *l, error *err) {
    TRY(read_members(rd, l, err));
    TRY(read_v5_nodes(rd, l, err));
    TRY(take(&rd->leaf_at, l->n_leaves + 1, sizeof *rd->leaf_at, err));
    TRY(take(&rd->weights, l->n_leaves, sizeof *rd->weights, err));
    for (size_t i = 0; i < l->n_leaves; i++) {
        if (!small_id(l->target[i])) {
            return op_error(rd->n, err, CHURON_INVALID,
                            "attribute 'leaf_targetids'[%zu]: expected 0 or more, got %" PRId64, i,
                            l->target[i]);
        }
        rd->leaf_at[i + 1] = (uint32_t)i + 1;
        rd->weights[i] = (forest_weight){(uint32_t)l->target[i], number_at(&l->weights, i)};
    }
    rd->source.leaf_at = rd->leaf_at;
    rd->source.weights = rd->weights;
    rd->source.n_leaves = rd->source.n_weights = l->n_leaves;
    rd->source.roots = l->roots;
    rd->source.n_trees = l->n_roots;
    return CHURON_OK;
}

static status ensemble_prepare(op_node *n, error *err) {
    tree_op *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    v5_lists l = {0};
    int64_t how, post, targets;
    TRY(op_attr_int(n, "aggregate_function", FOREST_SUM, FOREST_AVERAGE, FOREST_MAX, &how, err));
    TRY(op_attr_int(n, "post_transform", ML_NONE, ML_NONE, ML_PROBIT, &post, err));
    TRY(op_attr_int(n, "n_targets", 1, 1, INT32_MAX, &targets, err));
    TRY(read_v5_lists(n, &l, err));
    st->how = (forest_aggregate)how;
    st->post = (ml_post)post;
    st->width = (size_t)targets;
    reading rd = {.n = n};
    rd.source.n_targets = st->width;
    status done = read_v5(&rd, &l, err);
    if (done == CHURON_OK) done = forest_build(n, &st->forest, &rd.source, err);
    reading_free(&rd);
    return done;
}

/* ---- running ---------------------------------------------------------------------------------------- */

static status check_columns(op_shapes *s, error *err) {
    const tree_op *st = shapes_state(s);
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    if (!known || !dim_known(c) || (size_t)c >= st->forest.n_features) return CHURON_OK;
    return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected at least %zu columns, got %lld",
                    st->forest.n_features, (long long)c);
}

static status classifier_infer(op_shapes *s, error *err) {
    const tree_op *st = shapes_state(s);
    TRY(check_columns(s, err));
    if (op_has_output(shapes_node(s), 0)) shapes_out_type(s, 0, ml_labels_type(&st->labels));
    TRY(ml_rows_out(s, 0, 0, err));
    return ml_rows_out(s, 1, (int64_t)st->width, err);
}

static status regressor_infer(op_shapes *s, error *err) {
    const tree_op *st = shapes_state(s);
    TRY(check_columns(s, err));
    return ml_rows_out(s, 0, (int64_t)st->width, err);
}

static status all_scores(op_run *r, size_t *rows, double **scores, error *err) {
    const tree_op *st = run_state(r);
    const tensor *x = run_in(r, 0);
    size_t c;
    void *p;
    ml_rows_of(x, rows, &c);
    TRY(run_scratch(r, (*rows * st->forest.n_targets + 1) * sizeof(double), &p, err));
    *scores = p;
    return forest_scores(&st->forest, r, x, st->how, *scores, err);
}

/* Both probabilities, or scores, of two classes from the one sum. Returns whether it is the second. */
static bool two_classes(const tree_op *st, double s, double out[2]) {
    bool sums_to_one = st->all_positive && (st->post == ML_NONE || st->post == ML_PROBIT);
    out[0] = sums_to_one ? 1 - s : -s;
    out[1] = s;
    ml_post_apply(st->post, out, 2);
    return s > (sums_to_one ? 0.5 : 0);
}

static status classifier_run(op_run *r, error *err) {
    const tree_op *st = run_state(r);
    tensor *y, *z;
    size_t rows, width = st->width, targets = st->forest.n_targets;
    double *scores;
    TRY(run_out(r, 0, &y, err));
    TRY(run_out(r, 1, &z, err));
    TRY(all_scores(r, &rows, &scores, err));
    for (size_t row = 0; row < rows; row++) {
        double *s = scores + row * targets, pair[2];
        size_t class;
        if (st->binary) {
            double one = s[0] + (st->n_base ? st->base[st->n_base - 1] : 0);
            class = two_classes(st, one, pair);
            if (width == 1) pair[0] = pair[1];
            s = pair;
        } else {
            for (size_t t = 0; st->n_base && t < targets; t++) s[t] += st->base[st->n_base == 1 ? 0 : t];
            class = ml_argmax(s, targets);
            ml_post_apply(st->post, s, targets);
        }
        if (y) TRY(ml_label_set(&st->labels, y, row, width == 1 ? 0 : class, err));
        for (size_t t = 0; z && t < width; t++) ((float *)z->data)[row * width + t] = (float)s[t];
    }
    return CHURON_OK;
}

static status regressor_run(op_run *r, error *err) {
    const tree_op *st = run_state(r);
    tensor *y;
    size_t rows, width = st->width;
    double *scores;
    TRY(run_out(r, 0, &y, err));
    TRY(all_scores(r, &rows, &scores, err));
    for (size_t row = 0; row < rows; row++) {
        double *s = scores + row * width;
        for (size_t t = 0; st->n_base && t < width; t++) s[t] += st->base[st->n_base == 1 ? 0 : t];
        ml_post_apply(st->post, s, width);
    }
    elem_from_f64(y->type, scores, y->data, rows * width, false);
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "TreeEnsembleClassifier",
     .since = 1,
     .signature = "T>@f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = classifier_prepare,
     .release = tree_release,
     .infer = classifier_infer,
     .run = classifier_run},
    {.domain = ML_DOMAIN,
     .name = "TreeEnsembleRegressor",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = regressor_prepare,
     .release = tree_release,
     .infer = regressor_infer,
     .run = regressor_run},
    {.domain = ML_DOMAIN,
     .name = "TreeEnsemble",
     .since = 5,
     .signature = "T>T",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_F16)}},
     .prepare = ensemble_prepare,
     .release = tree_release,
     .infer = regressor_infer,
     .run = regressor_run},
};

NN_TABLE(ml_tree);
