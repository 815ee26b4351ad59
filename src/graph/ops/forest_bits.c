/* forest_bits.c: see forest_bits.h. */
#include "graph/ops/forest_bits.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    MAX_DEPTH = 8,
    BYTE_RANKS = 255,  /* thresholds of a feature that bytes can rank */
    ROWS = 16,         /* that go through the same nodes while those are near */
    BLOCKS = 64,       /* of 64 decisions each, between two looks at the next rows */
    DENSE_TARGETS = 4, /* up to which every leaf has a value for each target */
    MAX_PADDED = 4     /* times the real nodes that complete trees may take */
};

struct forest_bits {
    unsigned depth;       /* of every tree; 1..MAX_DEPTH */
    bool wide;            /* ranks of 16 bits */
    bool any_missing;     /* some node sends NaN where its comparison would not */
    size_t n_used, steps; /* features that are asked for; keys of each: 2^steps - 1 at most */
    size_t blocks;        /* of 64 nodes */
    uint32_t *used;       /* [n_used] columns */
    int32_t *keys;        /* [n_used, 2^steps] thresholds ascending, then INT32_MAX */
    uint8_t *feature;     /* [blocks * 64] index into used */
    void *split;          /* [blocks * 64] u8 or u16: goes on to 2n + 1 if the rank is above */
    uint64_t *missing;    /* [blocks] bit set: NaN goes to 2n */
    uint32_t *leaf;       /* [n_trees << depth] */
    float *value_f32;  /* [n_trees << depth, n_targets] weights, 0 where a leaf has none: if they are few and
                          f32 */
    double *value_f64; /* the same, if they are not exact */
};

void forest_bits_free(forest_bits *b) {
    if (!b) return;
    mem_free(b->used);
    mem_free(b->keys);
    mem_free(b->feature);
    mem_free(b->split);
    mem_free(b->missing);
    mem_free(b->leaf);
    mem_free(b->value_f32);
    mem_free(b->value_f64);
    mem_free(b);
}

/* ---- keys: f32 in the order of integers, whatever the processor does to denormals ------------------- */

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline int32_t key_of(uint32_t bits) {
    if (bits == 0x80000000u) bits = 0; /* the zeros are equal */
    return (int32_t)(bits ^ ((uint32_t) - (int32_t)(bits >> 31) & 0x7fffffffu));
}

static inline bool is_nan(uint32_t bits) {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* Key of the largest f32 for which `x <= t` (or `x < t`) holds. */
static int32_t threshold_key(double t, bool strict) {
    float f = (float)t; /* beyond f32: an infinity, or the largest after stepping down */
    if ((double)f > t) f = nextafterf(f, -INFINITY);
    int32_t k = key_of(bits_of(f));
    return strict && (double)f == t ? k - 1 : k;
}

/* ---- what a forest looks like ----------------------------------------------------------------------- */

/* A node as `x <= t`, which goes left. */
typedef struct canonical {
    int32_t key;
    uint32_t left, right;
    bool missing_left;
} canonical;

static canonical canonical_of(const forest_node *n) {
    bool swap = n->mode == FOREST_GTE || n->mode == FOREST_GT; /* x >= t is not x < t */
    bool strict = n->mode == FOREST_LT || n->mode == FOREST_GTE;
    return (canonical){threshold_key(n->value, strict), swap ? n->no : n->yes, swap ? n->yes : n->no,
                       n->missing_yes != swap};
}

static bool fits(const forest *f) {
    if (f->n_nodes == 0) return false;
    for (size_t i = 0; i < f->n_nodes; i++) {
        if (f->nodes[i].mode > FOREST_GT || f->nodes[i].value != f->nodes[i].value) return false;
    }
    return true;
}

/* Depth of the deepest tree; MAX_DEPTH + 1 for anything deeper. Parents come before children. */
static unsigned depth_of(const forest *f, uint8_t *level) {
    unsigned most = 1;
    memset(level, 0, f->n_nodes);
    for (size_t i = 0; i < f->n_nodes; i++) {
        unsigned d = level[i] + 1u;
        if (d > most) most = d;
        if (most > MAX_DEPTH) return most;
        const uint32_t child[2] = {f->nodes[i].yes, f->nodes[i].no};
        for (int c = 0; c < 2; c++) {
            if (!(child[c] & FOREST_IS_LEAF)) level[child[c]] = (uint8_t)d;
        }
    }
    return most;
}

/* ---- ranks ------------------------------------------------------------------------------------------ */

typedef struct pair {
    uint32_t feature;
    int32_t key;
} pair;

static bool before(const pair *a, const pair *b) {
    return a->feature != b->feature ? a->feature < b->feature : a->key < b->key;
}

static void sort_pairs(pair *v, pair *spare, size_t n) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t mid = from + width < n ? from + width : n,
                   to = from + 2 * width < n ? from + 2 * width : n;
            size_t a = from, b = mid;
            for (size_t k = from; k < to; k++) {
                spare[k] = b == to || (a < mid && !before(&v[b], &v[a])) ? v[a++] : v[b++];
            }
        }
        memcpy(v, spare, n * sizeof *v);
    }
}

/* Drops repetitions. Returns how many are left; the most keys of one feature and the number of features. */
static size_t unique_pairs(pair *v, size_t n, size_t *features, size_t *most) {
    size_t kept = 0, run = 0;
    *features = *most = 0;
    for (size_t i = 0; i < n; i++) {
        bool new_feature = kept == 0 || v[i].feature != v[kept - 1].feature;
        if (!new_feature && v[i].key == v[kept - 1].key) continue;
        run = new_feature ? 1 : run + 1;
        *features += new_feature;
        if (run > *most) *most = run;
        v[kept++] = v[i];
    }
    return kept;
}

static status take_keys(forest_bits *b, const pair *v, size_t n, size_t most, error *err) {
    while (((size_t)1 << b->steps) <= most) b->steps++;
    size_t width = (size_t)1 << b->steps, u = 0, k = 0;
    b->used = mem_alloc(b->n_used * sizeof *b->used);
    b->keys = mem_alloc(b->n_used * width * sizeof *b->keys);
    if (!b->used || !b->keys) return error_no_memory(err, "thresholds", b->n_used * width * sizeof *b->keys);
    for (size_t i = 0; i < b->n_used * width; i++) b->keys[i] = INT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && v[i].feature != v[i - 1].feature) {
            u++;
            k = 0;
        }
        b->used[u] = v[i].feature;
        b->keys[u * width + k++] = v[i].key;
    }
    return CHURON_OK;
}

/* How many keys of feature u are below k. */
static inline size_t rank_of(const forest_bits *b, size_t u, int32_t k) {
    const int32_t *keys = b->keys + (u << b->steps);
    size_t at = 0;
    for (size_t step = (size_t)1 << b->steps >> 1; step; step >>= 1) at += keys[at + step - 1] < k ? step : 0;
    return at;
}

static size_t used_index(const forest_bits *b, uint32_t feature) {
    size_t from = 0, to = b->n_used;
    while (from + 1 < to) {
        size_t mid = from + (to - from) / 2;
        if (b->used[mid] <= feature) {
            from = mid;
        } else {
            to = mid;
        }
    }
    return from;
}

/* ---- building --------------------------------------------------------------------------------------- */

static void set_node(forest_bits *b, size_t at, const forest_node *n, const canonical *c) {
    size_t u = used_index(b, n->feature), split = rank_of(b, u, c->key);
    b->feature[at] = (uint8_t)u;
    if (b->wide) {
        ((uint16_t *)b->split)[at] = (uint16_t)split;
    } else {
        ((uint8_t *)b->split)[at] = (uint8_t)split;
    }
    if (c->missing_left) {
        b->missing[at / 64] |= (uint64_t)1 << at % 64;
        b->any_missing = true;
    }
}

/* The nodes of a subtree at place n of tree t. Depth is bounded, so is the recursion. */
static void fill(forest_bits *b, const forest *f, size_t t, size_t n, unsigned level, uint32_t at) {
    size_t base = t << b->depth;
    if (level == b->depth) {
        b->leaf[base + n - ((size_t)1 << b->depth)] = at & ~FOREST_IS_LEAF;
        return;
    }
    if (at &
        FOREST_IS_LEAF) { /* nodes that are not there always go left, but the right side is never asked */
        fill(b, f, t, 2 * n, level + 1, at);
        return;
    }
    canonical c = canonical_of(&f->nodes[at]);
    set_node(b, base + n, &f->nodes[at], &c);
    fill(b, f, t, 2 * n, level + 1, c.left);
    fill(b, f, t, 2 * n + 1, level + 1, c.right);
}

/* Whether each leaf has at most one weight a target; *exact: and all of them are f32. */
static bool is_dense(const forest *f, bool *exact) {
    *exact = true;
    if (f->n_targets == 0 || f->n_targets > DENSE_TARGETS) return false;
    for (size_t i = 0; i < f->n_leaves; i++) {
        uint32_t seen = 0;
        for (uint32_t w = f->leaf_at[i]; w < f->leaf_at[i + 1]; w++) {
            uint32_t bit = 1u << f->weights[w].target;
            double v = f->weights[w].weight;
            if (seen & bit) return false;
            seen |= bit;
            if ((double)(float)v != v) *exact = false;
        }
    }
    return true;
}

static status take_values(forest_bits *b, const forest *f, error *err) {
    bool exact;
    if (!is_dense(f, &exact)) return CHURON_OK;
    size_t places = f->n_trees << b->depth, k = f->n_targets;
    if (exact) {
        b->value_f32 = mem_calloc(places, k * sizeof *b->value_f32);
    } else {
        b->value_f64 = mem_calloc(places, k * sizeof *b->value_f64);
    }
    if (!b->value_f32 && !b->value_f64) return error_no_memory(err, "leaves", places * k * sizeof(double));
    for (size_t i = 0; i < places; i++) {
        for (uint32_t w = f->leaf_at[b->leaf[i]]; w < f->leaf_at[b->leaf[i] + 1]; w++) {
            size_t at = i * k + f->weights[w].target;
            if (exact) {
                b->value_f32[at] = (float)f->weights[w].weight;
            } else {
                b->value_f64[at] = f->weights[w].weight;
            }
        }
    }
    return CHURON_OK;
}

static status take_nodes(forest_bits *b, const forest *f, error *err) {
    size_t places = b->blocks * 64;
    b->feature = mem_aligned(64, places);
    b->split = mem_aligned(64, places * 2);
    b->missing = mem_calloc(b->blocks, sizeof *b->missing);
    b->leaf = mem_calloc(f->n_trees << b->depth, sizeof *b->leaf);
    if (!b->feature || !b->split || !b->missing || !b->leaf) {
        return error_no_memory(err, "trees", places * 3 + (f->n_trees << b->depth) * sizeof *b->leaf);
    }
    memset(b->feature, 0, places);
    memset(b->split, 0xff, places * 2);
    for (size_t t = 0; t < f->n_trees; t++) fill(b, f, t, 1, 0, f->roots[t]);
    return take_values(b, f, err);
}

static status build(forest_bits **out, const forest *f, unsigned depth, pair *pairs, error *err) {
    size_t features, most, n = f->n_nodes;
    for (size_t i = 0; i < n; i++) {
        pairs[i] = (pair){f->nodes[i].feature, canonical_of(&f->nodes[i]).key};
    }
    sort_pairs(pairs, pairs + n, n);
    n = unique_pairs(pairs, n, &features, &most);
    bool wide = most > BYTE_RANKS;
    if (most > UINT16_MAX || features > (wide ? FOREST_RANKS_U16 : FOREST_RANKS_U8)) return CHURON_OK;
    size_t places = (f->n_trees << depth);
    if (places > MAX_PADDED * (f->n_nodes + f->n_trees) + 4096) return CHURON_OK;
    forest_bits *b = mem_calloc(1, sizeof *b);
    if (!b) return error_no_memory(err, "trees", sizeof *b);
    *out = b;
    b->depth = depth;
    b->wide = wide;
    b->n_used = features;
    b->blocks = (places + 63) / 64;
    TRY(take_keys(b, pairs, n, most, err));
    return take_nodes(b, f, err);
}

status forest_bits_build(forest_bits **out, const forest *f, error *err) {
    *out = NULL;
    if (!fits(f)) return CHURON_OK;
    pair *pairs = mem_alloc(2 * f->n_nodes * sizeof *pairs);
    uint8_t *level = mem_alloc(f->n_nodes);
    status st = CHURON_OK;
    if (!pairs || !level) {
        st = error_no_memory(err, "trees", 2 * f->n_nodes * sizeof *pairs);
    } else {
        unsigned depth = depth_of(f, level);
        if (depth <= MAX_DEPTH) st = build(out, f, depth, pairs, err);
    }
    mem_free(pairs);
    mem_free(level);
    return st; /* what was built stays in *out, to be freed with the forest */
}

/* ---- running ---------------------------------------------------------------------------------------- */

typedef struct job {
    const forest *f;
    const forest_bits *b;
    const kernels *k;
    const float *x;
    size_t columns;
    double *scores;
} job;

typedef struct work {
    _Alignas(64) uint16_t ranks[ROWS * FOREST_RANKS_U16];
    _Alignas(64) uint16_t nan_ranks[ROWS * FOREST_RANKS_U16]; /* the largest rank for NaN, else 0 */
    uint64_t masks[ROWS * BLOCKS], nan_masks[ROWS * BLOCKS];
} work;

/* NaN is above every threshold; where it has to go left is corrected by nan_ranks. True: there is NaN. */
static bool rank_row_u8(const forest_bits *b, const float *x, uint8_t *ranks, uint8_t *nan_ranks) {
    bool any = false;
    for (size_t u = 0; u < b->n_used; u++) {
        uint32_t bits = bits_of(x[b->used[u]]);
        bool nan = is_nan(bits);
        any = any || nan;
        nan_ranks[u] = nan ? UINT8_MAX : 0;
        ranks[u] = nan ? UINT8_MAX : (uint8_t)rank_of(b, u, key_of(bits));
    }
    return any;
}

static bool rank_row_u16(const forest_bits *b, const float *x, uint16_t *ranks, uint16_t *nan_ranks) {
    bool any = false;
    for (size_t u = 0; u < b->n_used; u++) {
        uint32_t bits = bits_of(x[b->used[u]]);
        bool nan = is_nan(bits);
        any = any || nan;
        nan_ranks[u] = nan ? UINT16_MAX : 0;
        ranks[u] = nan ? UINT16_MAX : (uint16_t)rank_of(b, u, key_of(bits));
    }
    return any;
}

static bool rank_rows(const job *j, size_t from, size_t n, work *w) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const float *x = j->x + (from + i) * j->columns;
        bool nan = j->b->wide ? rank_row_u16(j->b, x, w->ranks + i * FOREST_RANKS_U16,
                                             w->nan_ranks + i * FOREST_RANKS_U16)
                              : rank_row_u8(j->b, x, (uint8_t *)w->ranks + i * FOREST_RANKS_U8,
                                            (uint8_t *)w->nan_ranks + i * FOREST_RANKS_U8);
        any = any || nan;
    }
    return any && j->b->any_missing;
}

static void masks_of(const job *j, const uint16_t *ranks, size_t rows, size_t block, size_t blocks,
                     uint64_t *masks) {
    const forest_bits *b = j->b;
    if (b->wide) {
        j->k->forest_u16(ranks, rows, b->n_used, b->feature + block * 64,
                         (const uint16_t *)b->split + block * 64, blocks, masks, BLOCKS);
    } else {
        j->k->forest_u8((const uint8_t *)ranks, rows, b->n_used, b->feature + block * 64,
                        (const uint8_t *)b->split + block * 64, blocks, masks, BLOCKS);
    }
}

/* Leaf's place of one tree; m: its decisions begin at bit `at` of m[0]. */
static inline size_t walk(const uint64_t *m, unsigned at, unsigned depth) {
    size_t n = 1;
    uint64_t first = m[0] >> at;
    unsigned near = depth < 6 ? depth : 6;
    for (unsigned d = 0; d < near; d++) n = 2 * n + (first >> n & 1);
    for (unsigned d = near; d < depth; d++) n = 2 * n + (m[n >> 6] >> (n & 63) & 1);
    return n - ((size_t)1 << depth);
}

/* Place of tree t of those that m begins with tree `from` of. */
static inline size_t place_of(const uint64_t *m, unsigned depth, size_t from, size_t t) {
    size_t bit = (t - from) << depth;
    return (t << depth) + walk(m + bit / 64, (unsigned)(bit % 64), depth);
}

static inline void add_one(const forest_bits *b, unsigned depth, const uint64_t *m, size_t from, size_t to,
                           double *scores) {
    double sum = *scores;
    for (size_t t = from; t < to; t++) {
        size_t at = place_of(m, depth, from, t);
        sum += b->value_f32 ? (double)b->value_f32[at] : b->value_f64[at];
    }
    *scores = sum;
}

static inline void add_few(const forest_bits *b, unsigned depth, const uint64_t *m, size_t from, size_t to,
                           size_t n_targets, double *scores) {
    for (size_t t = from; t < to; t++) {
        size_t at = place_of(m, depth, from, t) * n_targets;
        for (size_t k = 0; k < n_targets; k++) {
            scores[k] += b->value_f32 ? (double)b->value_f32[at + k] : b->value_f64[at + k];
        }
    }
}

/* Trees [from, to) of one row; m: decisions from the block that tree `from` begins in. */
static inline void add_trees(const job *j, unsigned depth, const uint64_t *m, size_t from, size_t to,
                             double *scores) {
    const forest_bits *b = j->b;
    const forest *f = j->f;
    if (b->value_f32 || b->value_f64) {
        if (f->n_targets == 1) {
            add_one(b, depth, m, from, to, scores);
        } else if (f->n_targets == 2) {
            add_few(b, depth, m, from, to, 2, scores);
        } else {
            add_few(b, depth, m, from, to, f->n_targets, scores);
        }
        return;
    }
    for (size_t t = from; t < to; t++) {
        uint32_t leaf = b->leaf[place_of(m, depth, from, t)];
        for (uint32_t w = f->leaf_at[leaf]; w < f->leaf_at[leaf + 1]; w++) {
            scores[f->weights[w].target] += f->weights[w].weight;
        }
    }
}

/* One copy for each depth, so that walks are unrolled. */
static void add_trees_of_depth(const job *j, const uint64_t *m, size_t from, size_t to, double *scores) {
    switch (j->b->depth) {
    case 1: add_trees(j, 1, m, from, to, scores); break;
    case 2: add_trees(j, 2, m, from, to, scores); break;
    case 3: add_trees(j, 3, m, from, to, scores); break;
    case 4: add_trees(j, 4, m, from, to, scores); break;
    case 5: add_trees(j, 5, m, from, to, scores); break;
    case 6: add_trees(j, 6, m, from, to, scores); break;
    case 7: add_trees(j, 7, m, from, to, scores); break;
    default: add_trees(j, 8, m, from, to, scores); break;
    }
}

static void score_rows(const job *j, size_t from, size_t n, work *w) {
    const forest_bits *b = j->b;
    bool nan = rank_rows(j, from, n, w);
    size_t trees = ((size_t)BLOCKS * 64) >> b->depth; /* in BLOCKS blocks: a whole number */
    for (size_t t = 0; t < j->f->n_trees; t += trees) {
        size_t to = t + trees < j->f->n_trees ? t + trees : j->f->n_trees;
        size_t block = (t << b->depth) / 64, end = ((to << b->depth) + 63) / 64;
        masks_of(j, w->ranks, n, block, end - block, w->masks);
        if (nan) masks_of(j, w->nan_ranks, n, block, end - block, w->nan_masks);
        for (size_t i = 0; i < n; i++) {
            uint64_t *m = w->masks + i * BLOCKS;
            for (size_t k = 0; nan && k < end - block; k++) {
                m[k] &= ~(w->nan_masks[i * BLOCKS + k] & b->missing[block + k]);
            }
            add_trees_of_depth(j, m, t, to, j->scores + (from + i) * j->f->n_targets);
        }
    }
}

static void score_part(void *ctx, size_t from, size_t to) {
    const job *j = ctx;
    work w;
    if (j->b->n_used < FOREST_RANKS_U16) { /* what is beyond is permuted too, never asked for */
        memset(w.ranks, 0, sizeof w.ranks);
        memset(w.nan_ranks, 0, sizeof w.nan_ranks);
    }
    for (size_t row = from; row < to; row += ROWS) score_rows(j, row, to - row < ROWS ? to - row : ROWS, &w);
}

status forest_bits_scores(const forest *f, op_run *r, const float *x, size_t rows, size_t columns,
                          double *scores, error *err) {
    enum { CHUNK = 4096 };
    job j = {f, f->bits, run_kernels(r), x, columns, scores};
    for (size_t from = 0; from < rows; from += CHUNK) {
        size_t n = rows - from < CHUNK ? rows - from : CHUNK;
        TRY(run_check(r, err));
        j.x = x + from * columns;
        j.scores = scores + from * f->n_targets;
        double work_ns = (double)n * (double)f->n_trees * 5;
        run_parallel(r, n, work_ns, score_part, &j);
    }
    return CHURON_OK;
}
