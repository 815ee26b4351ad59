/* text_tfidf.c: TfIdfVectorizer. The n-grams of the pool are a tree whose edges are items; a row is searched
 * for all of them, for every distance between items that the operator allows. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <string.h>

enum { TF, IDF, TFIDF };

typedef struct gram_node {
    uint32_t gram; /* number of the n-gram that ends here + 1, 0: none */
    bool has_children;
} gram_node;

typedef struct tfidf {
    int mode;
    int64_t least, most, skip;
    const int64_t *columns; /* [n_columns] output column of each n-gram */
    size_t n_columns, width;
    const float *weights; /* [width] or NULL */
    ml_map items;         /* of the pool: to numbers; equal items have one number */
    uint64_t *edges;      /* [n_edges] parent << 32 | item, +1: 0 is free */
    uint32_t *children;   /* [n_edges] */
    size_t n_edges;       /* a power of two */
    gram_node *nodes;     /* [n_nodes], 0: the root */
    size_t n_nodes;
} tfidf;

static void tfidf_release(void *state) {
    tfidf *st = state;
    if (!st) return;
    ml_map_free(&st->items);
    mem_free(st->edges);
    mem_free(st->children);
    mem_free(st->nodes);
    mem_free(st);
}

/* ---- the tree --------------------------------------------------------------------------------------- */

static size_t edge_slot(const tfidf *st, uint64_t edge) {
    uint64_t h = edge * 0x9e3779b97f4a7c15u;
    size_t at = (h ^ h >> 29) & (st->n_edges - 1);
    while (st->edges[at] && st->edges[at] != edge) at = (at + 1) & (st->n_edges - 1);
    return at;
}

static uint64_t edge_of(uint32_t parent, size_t item) {
    return ((uint64_t)parent << 32 | (uint32_t)item) + 1;
}

static uint32_t child_of(const tfidf *st, uint32_t parent, size_t item) {
    size_t at = edge_slot(st, edge_of(parent, item));
    return st->edges[at] ? st->children[at] : 0;
}

static uint32_t add_child(tfidf *st, uint32_t parent, size_t item) {
    size_t at = edge_slot(st, edge_of(parent, item));
    if (!st->edges[at]) {
        st->edges[at] = edge_of(parent, item);
        st->children[at] = (uint32_t)st->n_nodes++;
        st->nodes[parent].has_children = true;
    }
    return st->children[at];
}

static size_t pool_item(const tfidf *st, const int64_t *ints, const onnx_bytes *strings, size_t i) {
    return strings ? ml_map_string(&st->items, strings[i].data, strings[i].len)
                   : ml_map_number(&st->items, ml_key_int(ints[i]));
}

static status take_tree(tfidf *st, size_t n_pool, error *err) {
    st->n_edges = 8;
    while (st->n_edges < 2 * n_pool) st->n_edges *= 2;
    st->edges = mem_calloc(st->n_edges, sizeof *st->edges);
    st->children = mem_calloc(st->n_edges, sizeof *st->children);
    st->nodes = mem_calloc(n_pool + 1, sizeof *st->nodes);
    st->n_nodes = 1;
    if (st->edges && st->children && st->nodes) return CHURON_OK;
    return error_no_memory(err, "n-grams", st->n_edges * 12 + n_pool * sizeof *st->nodes);
}

/* Grams of every length in the pool: those of length k + 1 begin at starts[k]. */
static status build_tree(op_node *n, tfidf *st, const int64_t *starts, size_t n_starts, const int64_t *ints,
                         const onnx_bytes *strings, size_t n_pool, error *err) {
    TRY(take_tree(st, n_pool, err));
    size_t gram = 0;
    for (size_t k = 0; k < n_starts; k++) {
        int64_t from = starts[k], to = k + 1 < n_starts ? starts[k + 1] : (int64_t)n_pool;
        if (from < 0 || to < from || to > (int64_t)n_pool) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'ngram_counts'[%zu]: expected a position up to %lld, got %lld", k,
                            (long long)(to < (int64_t)n_pool ? to : (int64_t)n_pool), (long long)from);
        }
        size_t size = k + 1, grams = (size_t)(to - from) / size;
        bool wanted = (int64_t)size >= st->least && (int64_t)size <= st->most;
        for (size_t g = 0; g < grams; g++, gram++) {
            if (gram >= st->n_columns) {
                return op_error(n, err, CHURON_INVALID,
                                "attribute 'ngram_indexes': expected a column for every n-gram, got %zu",
                                st->n_columns);
            }
            uint32_t node = 0;
            for (size_t i = 0; wanted && i < size; i++) {
                node = add_child(st, node, pool_item(st, ints, strings, (size_t)from + g * size + i));
            }
            if (wanted) st->nodes[node].gram = (uint32_t)gram + 1;
        }
    }
    return CHURON_OK;
}

static status read_pool(op_node *n, tfidf *st, const int64_t **ints, const onnx_bytes **strings,
                        size_t *count, error *err) {
    size_t n_ints, n_strings;
    TRY(op_attr_ints(n, "pool_int64s", ints, &n_ints, err));
    TRY(op_attr_strings(n, "pool_strings", strings, &n_strings, err));
    bool text = op_input_type(n, 0) == ELEM_STRING;
    *count = text ? n_strings : n_ints;
    if (*count == 0 || (text ? n_ints : n_strings)) {
        return op_error(n, err, CHURON_INVALID, "attribute '%s': expected items for an input of %s, got none",
                        text ? "pool_strings" : "pool_int64s", elem_name(op_input_type(n, 0)));
    }
    if (text) return ml_map_strings(&st->items, *strings, n_strings, err);
    *strings = NULL;
    uint64_t *keys = mem_alloc(n_ints * sizeof *keys);
    if (!keys) return error_no_memory(err, "items", n_ints * sizeof *keys);
    for (size_t i = 0; i < n_ints; i++) keys[i] = ml_key_int((*ints)[i]);
    status done = ml_map_numbers(&st->items, keys, n_ints, err);
    mem_free(keys);
    return done;
}

static status read_columns(op_node *n, tfidf *st, error *err) {
    size_t n_weights;
    TRY(op_attr_ints(n, "ngram_indexes", &st->columns, &st->n_columns, err));
    TRY(op_attr_floats(n, "weights", &st->weights, &n_weights, err));
    for (size_t i = 0; i < st->n_columns; i++) {
        if (st->columns[i] < 0 || st->columns[i] > INT32_MAX) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'ngram_indexes'[%zu]: expected 0 or more, got %lld", i,
                            (long long)st->columns[i]);
        }
        if ((size_t)st->columns[i] >= st->width) st->width = (size_t)st->columns[i] + 1;
    }
    if (n_weights == 0) st->weights = NULL;
    if (st->n_columns == 0 || (n_weights && n_weights < st->width)) {
        return op_error(n, err, CHURON_INVALID,
                        "attribute 'weights': expected a value for each of %zu columns, got %zu", st->width,
                        n_weights);
    }
    return CHURON_OK;
}

static status tfidf_prepare(op_node *n, error *err) {
    static const char *const modes[] = {"TF", "IDF", "TFIDF", NULL};
    tfidf *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const int64_t *starts, *ints;
    const onnx_bytes *strings;
    size_t n_starts, n_pool;
    TRY(op_attr_choice(n, "mode", modes, TF, &st->mode, err));
    TRY(op_attr_int(n, "min_gram_length", 1, 1, 1 << 20, &st->least, err));
    TRY(op_attr_int(n, "max_gram_length", 1, st->least, 1 << 20, &st->most, err));
    TRY(op_attr_int(n, "max_skip_count", 0, 0, 1 << 20, &st->skip, err));
    TRY(op_attr_ints(n, "ngram_counts", &starts, &n_starts, err));
    TRY(read_columns(n, st, err));
    TRY(read_pool(n, st, &ints, &strings, &n_pool, err));
    return build_tree(n, st, starts, n_starts, ints, strings, n_pool, err);
}

/* ---- running ---------------------------------------------------------------------------------------- */

static status tfidf_infer(op_shapes *s, error *err) {
    const tfidf *st = shapes_state(s);
    size_t rank;
    const dim *x;
    bool known;
    TRY(nn_rank(s, 0, 0, 2, "X", &known, &rank, &x, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim width = (dim)st->width;
    return shapes_out(s, 0, rank == 2 ? 2 : 1, rank == 2 ? (dim[]){x[0], width} : (dim[]){width}, err);
}

static void count_grams(const tfidf *st, const size_t *items, size_t n, uint32_t *counts) {
    int64_t least = st->least;
    for (int64_t step = 1; step <= st->skip + 1; step++) {
        for (size_t from = 0; from < n; from++) {
            if (from + (size_t)(step * (least - 1)) >= n) break;
            uint32_t node = 0;
            size_t at = from;
            for (int64_t size = 1; size <= st->most && at < n && st->nodes[node].has_children; size++) {
                node = items[at] == SIZE_MAX ? 0 : child_of(st, node, items[at]);
                if (node == 0) break;
                uint32_t gram = st->nodes[node].gram;
                if (size >= least && gram) counts[st->columns[gram - 1]]++;
                at += (size_t)step;
            }
        }
        /* Single items are the same at every distance: counted once. */
        if (least == 1 && ++least > st->most) break;
    }
}

static float weigh(const tfidf *st, uint32_t count, size_t column) {
    float w = st->weights ? st->weights[column] : 1;
    switch (st->mode) {
    case TF: return (float)count;
    case IDF: return count ? w : 0;
    default: return (float)count * w;
    }
}

static status tfidf_run(op_run *r, error *err) {
    const tfidf *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    size_t n, c;
    ml_rows_of(x, &n, &c);
    TRY(run_out(r, 0, &y, err));
    void *items_at, *counts_at;
    TRY(run_scratch(r, c * sizeof(size_t), &items_at, err));
    TRY(run_scratch(r, st->width * sizeof(uint32_t), &counts_at, err));
    size_t *items = items_at;
    uint32_t *counts = counts_at;
    for (size_t row = 0; row < n; row++) {
        TRY(run_check(r, err));
        for (size_t i = 0; i < c; i++) {
            const tensor_string *s = (const tensor_string *)x->data + row * c + i;
            items[i] = x->type == ELEM_STRING ? ml_map_string(&st->items, s->data, s->len)
                                              : ml_map_number(&st->items, ml_key_int(int_at(x, row * c + i)));
        }
        memset(counts, 0, st->width * sizeof *counts);
        count_grams(st, items, c, counts);
        for (size_t i = 0; i < st->width; i++) {
            ((float *)y->data)[row * st->width + i] = weigh(st, counts[i], i);
        }
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "TfIdfVectorizer",
     .since = 9,
     .signature = "T>f",
     .vars = {{'T', ELEM_BIT(ELEM_STRING) | ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64)}},
     .prepare = tfidf_prepare,
     .release = tfidf_release,
     .infer = tfidf_infer,
     .run = tfidf_run},
};

NN_TABLE(text_tfidf);
