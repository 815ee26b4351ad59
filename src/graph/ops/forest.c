/* forest.c: building, checking and walking; see forest.h. */
#include "graph/ops/forest.h"

#include "base/mem.h"
#include "graph/ops/forest_bits.h"

#include <math.h>
#include <string.h>

enum { MAX_NODES = 1 << 30 };

/* ---- building --------------------------------------------------------------------------------------- */

typedef struct builder {
    op_node *n;
    forest *f;
    const forest_source *from;
    uint8_t *seen;   /* [from->n_nodes] */
    int64_t *stack;  /* [from->n_nodes] positions whose node has been placed but not its children */
    uint32_t *place; /* [from->n_nodes] index in f->nodes */
} builder;

static status check_child(const builder *b, int64_t at, bool leaf, error *err) {
    size_t n = leaf ? b->from->n_leaves : b->from->n_nodes;
    if (at >= 0 && (uint64_t)at < n) return CHURON_OK;
    return op_error(b->n, err, CHURON_INVALID, "a tree: expected a child of 0 to %lld, got %lld",
                    (long long)n - 1, (long long)at);
}

/* Puts a child that is a node in line and gives its code. */
static status place_child(builder *b, int64_t at, bool leaf, size_t *depth, uint32_t *out, error *err) {
    TRY(check_child(b, at, leaf, err));
    if (leaf) {
        *out = (uint32_t)at | FOREST_IS_LEAF;
        return CHURON_OK;
    }
    if (b->seen[at]) {
        return op_error(
            b->n, err, CHURON_INVALID,
            "a tree: expected every node under one parent, got node %lld under two or in a circle",
            (long long)at);
    }
    b->seen[at] = 1;
    b->place[at] = (uint32_t)b->f->n_nodes;
    *out = b->place[at];
    b->f->n_nodes++;
    b->stack[(*depth)++] = at;
    return CHURON_OK;
}

static status place_tree(builder *b, size_t tree, error *err) {
    const forest_source *from = b->from;
    forest *f = b->f;
    size_t depth = 0;
    bool leaf = from->root_leaf && from->root_leaf[tree];
    TRY(place_child(b, from->roots[tree], leaf, &depth, &f->roots[tree], err));
    while (depth) {
        int64_t at = b->stack[--depth];
        const forest_source_node *s = &from->nodes[at];
        forest_node *d = &f->nodes[b->place[at]];
        *d = (forest_node){.value = s->value,
                           .feature = s->feature,
                           .set = s->set,
                           .mode = s->mode,
                           .missing_yes = s->missing_yes};
        TRY(place_child(b, s->no, s->no_leaf, &depth, &d->no, err));
        TRY(place_child(b, s->yes, s->yes_leaf, &depth, &d->yes, err));
        if ((size_t)s->feature >= f->n_features) f->n_features = (size_t)s->feature + 1;
    }
    return CHURON_OK;
}

static void sort_members(double *v, size_t n) {
    for (size_t gap = n / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < n; i++) {
            double x = v[i];
            size_t j = i;
            for (; j >= gap && v[j - gap] > x; j -= gap) v[j] = v[j - gap];
            v[j] = x;
        }
    }
}

static void *copy_of(const void *from, size_t n, size_t item) {
    void *p = n < SIZE_MAX / item ? mem_alloc(n * item) : NULL;
    if (p && n) memcpy(p, from, n * item);
    return p;
}

static status copy_lists(forest *f, const forest_source *from, error *err) {
    static const uint32_t none[1] = {0};
    f->nodes = mem_alloc(from->n_nodes * sizeof *f->nodes);
    f->roots = mem_alloc(from->n_trees * sizeof *f->roots);
    f->leaf_at = copy_of(from->leaf_at, from->n_leaves + 1, sizeof *f->leaf_at);
    f->weights = copy_of(from->weights, from->n_weights, sizeof *f->weights);
    f->members = copy_of(from->members, from->n_members, sizeof *f->members);
    f->set_at = copy_of(from->set_at ? from->set_at : none, from->n_sets + 1, sizeof *f->set_at);
    if (!f->nodes || !f->roots || !f->leaf_at || !f->weights || !f->members || !f->set_at) {
        return error_no_memory(err, "trees", from->n_nodes * sizeof *f->nodes);
    }
    f->n_trees = from->n_trees;
    f->n_leaves = from->n_leaves;
    f->n_weights = from->n_weights;
    f->n_sets = from->n_sets;
    f->n_targets = from->n_targets;
    for (size_t i = 0; i < f->n_sets; i++) {
        sort_members(f->members + f->set_at[i], f->set_at[i + 1] - f->set_at[i]);
    }
    return CHURON_OK;
}

static status build(builder *b, error *err) {
    const forest_source *from = b->from;
    TRY(copy_lists(b->f, from, err));
    b->seen = mem_calloc(from->n_nodes, 1);
    b->stack = mem_alloc(from->n_nodes * sizeof *b->stack);
    b->place = mem_alloc(from->n_nodes * sizeof *b->place);
    if (!b->seen || !b->stack || !b->place) return error_no_memory(err, "trees", from->n_nodes * 13);
    for (size_t t = 0; t < from->n_trees; t++) TRY(place_tree(b, t, err));
    for (size_t i = 0; i < from->n_weights; i++) {
        if (from->weights[i].target >= from->n_targets) {
            return op_error(b->n, err, CHURON_INVALID, "a leaf: expected a target of 0 to %lld, got %u",
                            (long long)from->n_targets - 1, from->weights[i].target);
        }
    }
    return CHURON_OK;
}

status forest_build(op_node *n, forest *out, const forest_source *from, error *err) {
    *out = (forest){0};
    if (from->n_nodes > MAX_NODES || from->n_leaves > MAX_NODES || from->n_weights > MAX_NODES) {
        return op_error(n, err, CHURON_LIMIT, "expected at most %d nodes, got more", MAX_NODES);
    }
    builder b = {.n = n, .f = out, .from = from};
    status st = build(&b, err);
    mem_free(b.seen);
    mem_free(b.stack);
    mem_free(b.place);
    if (st == CHURON_OK) st = forest_bits_build(&out->bits, out, err);
    return st;
}

void forest_free(forest *f) {
    forest_bits_free(f->bits);
    mem_free(f->nodes);
    mem_free(f->roots);
    mem_free(f->leaf_at);
    mem_free(f->weights);
    mem_free(f->members);
    mem_free(f->set_at);
    *f = (forest){0};
}

/* ---- the walk that defines -------------------------------------------------------------------------- */

static bool is_member(const forest *f, uint32_t set, double x) {
    size_t from = f->set_at[set], to = f->set_at[set + 1];
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (f->members[mid] == x) return true;
        if (f->members[mid] < x) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return false;
}

static bool decide(const forest *f, const forest_node *n, double x) {
    if (x != x && n->missing_yes) return true;
    switch (n->mode) {
    case FOREST_LEQ: return x <= n->value;
    case FOREST_LT: return x < n->value;
    case FOREST_GTE: return x >= n->value;
    case FOREST_GT: return x > n->value;
    case FOREST_EQ: return x == n->value;
    case FOREST_NEQ: return x != n->value;
    default: return is_member(f, n->set, x);
    }
}

uint32_t forest_leaf(const forest *f, size_t tree, const double *x) {
    uint32_t at = f->roots[tree];
    while (!(at & FOREST_IS_LEAF)) {
        const forest_node *n = &f->nodes[at];
        at = decide(f, n, x[n->feature]) ? n->yes : n->no;
    }
    return at & ~FOREST_IS_LEAF;
}

/* ---- scores ----------------------------------------------------------------------------------------- */

typedef struct job {
    const forest *f;
    const tensor *x;
    forest_aggregate how;
    double *scores;
    size_t columns;
    double *rows_f64; /* [threads' rows][columns] scratch: one row a position in the split */
    uint8_t *has;
} job;

static void add_leaf(const forest *f, uint32_t leaf, forest_aggregate how, double *scores, uint8_t *has) {
    for (uint32_t w = f->leaf_at[leaf]; w < f->leaf_at[leaf + 1]; w++) {
        double v = f->weights[w].weight;
        uint32_t t = f->weights[w].target;
        bool first = !has[t];
        has[t] = 1;
        if (how == FOREST_MIN) {
            scores[t] = first || v < scores[t] ? v : scores[t];
        } else if (how == FOREST_MAX) {
            scores[t] = first || v > scores[t] ? v : scores[t];
        } else {
            scores[t] += v;
        }
    }
}

static void walk_rows(void *ctx, size_t from, size_t to) {
    const job *j = ctx;
    const forest *f = j->f;
    size_t bytes = elem_describe(j->x->type)->bytes;
    for (size_t row = from; row < to; row++) {
        double *x = j->rows_f64 + row * j->columns;
        elem_to_f64(j->x->type, (const char *)j->x->data + row * j->columns * bytes, x, j->columns);
        /* As the trainers read them: f32 is what trees are grown on; whole numbers become it. */
        if (j->x->type == ELEM_I64 || j->x->type == ELEM_I32) {
            for (size_t i = 0; i < j->columns; i++) x[i] = (double)(float)x[i];
        }
        double *scores = j->scores + row * f->n_targets;
        uint8_t *has = j->has + row * f->n_targets;
        for (size_t t = 0; t < f->n_trees; t++) add_leaf(f, forest_leaf(f, t, x), j->how, scores, has);
    }
}

status forest_scores(const forest *f, op_run *r, const tensor *x, forest_aggregate how, double *scores,
                     error *err) {
    enum { CHUNK = 256 };
    size_t rows = x->rank == 2 ? (size_t)x->dims[0] : 1, columns = x->rank ? (size_t)x->dims[x->rank - 1] : 1;
    if (rows > 0 && f->n_targets > 0) memset(scores, 0, rows * f->n_targets * sizeof *scores);
    bool plain = how == FOREST_SUM || how == FOREST_AVERAGE;
    if (f->bits && plain && x->type == ELEM_F32) {
        TRY(forest_bits_scores(f, r, x->data, rows, columns, scores, err));
    } else {
        void *row_memory, *has;
        size_t chunk = rows < CHUNK ? rows : CHUNK;
        TRY(run_scratch(r, chunk * columns * sizeof(double), &row_memory, err));
        TRY(run_scratch(r, chunk * f->n_targets, &has, err));
        for (size_t from = 0; from < rows; from += chunk) {
            size_t n = rows - from < chunk ? rows - from : chunk;
            TRY(run_check(r, err));
            tensor part = *x;
            part.data = (char *)x->data + from * columns * elem_describe(x->type)->bytes;
            job j = {f, &part, how, scores + from * f->n_targets, columns, row_memory, has};
            memset(has, 0, n * f->n_targets);
            run_parallel(r, n, (double)(n * f->n_trees) * 60, walk_rows, &j);
        }
    }
    for (size_t i = 0; how == FOREST_AVERAGE && f->n_trees && i < rows * f->n_targets; i++) {
        scores[i] /= (double)f->n_trees;
    }
    return CHURON_OK;
}
