/* layernorm.c: LayerNormalization, RMSNormalization, and of com.microsoft (or ai.onnx before version 17,
 * where exports put them) SimplifiedLayerNormalization, SkipLayerNormalization,
 * SkipSimplifiedLayerNormalization and EmbedLayerNormalization. Statistics of a row are taken in double. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"
#include "graph/ops/quant.h"
#include "graph/ops/rows.h"

#include <math.h>
#include <string.h>

typedef struct ln_state {
    int64_t axis;
    float epsilon;
    elem stash; /* type of the statistics' outputs */
    bool rms;
} ln_state;

/* Where element i of an array of shape dims is in an operand that is broadcast to it. */
typedef struct broadcast_map {
    size_t rank;
    int64_t dims[TENSOR_MAX_RANK], strides[TENSOR_MAX_RANK];
} broadcast_map;

typedef struct row_job {
    const void *x, *scale, *bias;
    void *y;
    double *mean, *inverse; /* NULL: not wanted */
    size_t n;
    float epsilon;
    bool rms, dense; /* dense: scale and bias are rows of n */
    broadcast_map scale_map, bias_map;
    const kernels *kernels;
} row_job;

static size_t broadcast_at(const broadcast_map *m, size_t i) {
    size_t at = 0;
    for (size_t d = m->rank; d-- > 0;) {
        at += i % (size_t)m->dims[d] * (size_t)m->strides[d];
        i /= (size_t)m->dims[d];
    }
    return at;
}

/* The usual case as one kernel. Its sums are in f32, so long rows are left to the sums in double. */
static bool norm_by_kernel(const row_job *j, const float *x, float *y, size_t n) {
    if (j->rms || !j->dense || j->mean || j->inverse || n > 16384) return false;
    j->kernels->layer_norm(x, j->scale, j->bias, n, j->epsilon, y);
    return true;
}

#define REAL             float
#define FN(name)         name##_f32
#define NORM_KERNEL(...) norm_by_kernel(__VA_ARGS__)
#include "graph/ops/layernorm.inc"
#undef REAL
#undef FN
#undef NORM_KERNEL
#define REAL     double
#define FN(name) name##_f64
#include "graph/ops/layernorm.inc"
#undef REAL
#undef FN

static void run_norm(op_run *r, row_job *j, size_t n_rows, elem work) {
    j->kernels = run_kernels(r);
    run_parallel(r, n_rows, 1.5 * (double)(n_rows * j->n), work == ELEM_F64 ? norm_rows_f64 : norm_rows_f32,
                 j);
}

/* ---- LayerNormalization, RMSNormalization ----------------------------------------------------------- */

static status ln_read(op_node *n, bool rms, error *err) {
    ln_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t stash;
    st->rms = rms;
    TRY(op_attr_int(n, "axis", -1, INT32_MIN, INT32_MAX, &st->axis, err));
    TRY(op_attr_float(n, "epsilon", 1e-5F, &st->epsilon, err));
    TRY(op_attr_int(n, "stash_type", ELEM_F32, 0, ELEM_COUNT - 1, &stash, err));
    st->stash = (elem)stash;
    if (!(ELEM_BIT(stash) & ELEMS_FLOAT))
        return op_error(n, err, CHURON_INVALID, "stash_type: a float type expected, got %s",
                        elem_name(st->stash));
    return CHURON_OK;
}

static status ln_prepare(op_node *n, error *err) {
    return ln_read(n, false, err);
}

static status rms_prepare(op_node *n, error *err) {
    return ln_read(n, true, err);
}

/* Scale and bias broadcast to X, never X to them. */
static status check_operand(op_shapes *s, size_t i, size_t rank, const dim *x, const char *what, error *err) {
    size_t ri;
    const dim *d;
    if (!op_has_input(shapes_node(s), i) || !shapes_in(s, i, &ri, &d)) return CHURON_OK;
    if (ri > rank)
        return op_error(shapes_node(s), err, CHURON_INVALID, "%s: rank up to %zu expected, got %zu", what,
                        rank, ri);
    for (size_t k = 0; k < ri; k++)
        if (d[k] != 1) TRY(shapes_same(s, d[k], x[rank - ri + k], what, NULL, err));
    return CHURON_OK;
}

static status ln_infer(op_shapes *s, error *err) {
    const ln_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    size_t rank, axis;
    const dim *x;
    for (size_t i = 1; i < op_n_outputs(n) && i < 3; i++)
        if (op_has_output(n, i)) shapes_out_type(s, i, st->stash);
    if (!shapes_in(s, 0, &rank, &x)) {
        for (size_t i = 0; i < op_n_outputs(n) && i < 3; i++)
            if (op_has_output(n, i)) shapes_out_unknown(s, i);
        return CHURON_OK;
    }
    dim stats[TENSOR_MAX_RANK];
    TRY(op_axis(n, st->axis, rank, "axis", &axis, err));
    TRY(check_operand(s, 1, rank, x, "scale", err));
    TRY(check_operand(s, 2, rank, x, "bias", err));
    for (size_t i = 0; i < rank; i++) stats[i] = i < axis ? x[i] : 1;
    for (size_t i = 1; i < op_n_outputs(n) && i < 3; i++)
        if (op_has_output(n, i)) TRY(shapes_out(s, i, rank, stats, err));
    return infer_same(s, err);
}

static broadcast_map map_of(const tensor *t, const tensor *x) {
    broadcast_map m = {.rank = x->rank};
    memcpy(m.dims, x->dims, sizeof m.dims);
    if (t) nn_broadcast_strides(t->dims, t->rank, x->rank, m.strides);
    return m;
}

/* A row of n values that is the same for all rows. */
static bool is_row(const tensor *t, const tensor *x, size_t axis) {
    if (!t) return true;
    if (t->rank > x->rank - axis && t->count != 1) {
        for (size_t i = 0; i < t->rank - (x->rank - axis); i++)
            if (t->dims[i] != 1) return false;
    }
    return t->count == (size_t)nn_product(x->dims + axis, x->rank - axis);
}

static status stats_out(op_run *r, size_t i, size_t n_rows, tensor **t, double **to, error *err) {
    *t = NULL, *to = NULL;
    if (!op_has_output(run_node(r), i)) return CHURON_OK;
    void *memory;
    TRY(run_out(r, i, t, err));
    TRY(run_scratch(r, (n_rows + 1) * sizeof(double), &memory, err));
    *to = memory;
    return CHURON_OK;
}

static void stats_done(const tensor *t, const double *from) {
    if (t) elem_from_f64(t->type, from, t->data, t->count, false);
}

static status ln_run(op_run *r, error *err) {
    const ln_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *scale = run_in(r, 1), *bias = run_in(r, 2);
    elem work = real_work(x->type);
    size_t axis;
    TRY(op_axis(run_node(r), st->axis, x->rank, "axis", &axis, err));
    row_job j = {
        .n = (size_t)nn_product(x->dims + axis, x->rank - axis), .epsilon = st->epsilon, .rms = st->rms};
    size_t n_rows = (size_t)nn_product(x->dims, axis);
    tensor *y, *mean = NULL, *inverse = NULL;
    void *to;
    TRY(real_in(r, 0, work, &j.x, err));
    TRY(real_in(r, 1, work, &j.scale, err));
    TRY(real_in(r, 2, work, &j.bias, err));
    TRY(real_out(r, 0, work, &y, &to, err));
    j.y = to;
    /* The simplified form has one statistics output: the inverse deviation. */
    if (st->rms) {
        TRY(stats_out(r, 1, n_rows, &inverse, &j.inverse, err));
    } else {
        TRY(stats_out(r, 1, n_rows, &mean, &j.mean, err));
        TRY(stats_out(r, 2, n_rows, &inverse, &j.inverse, err));
    }
    j.dense = scale && is_row(scale, x, axis) && is_row(bias, x, axis);
    j.scale_map = map_of(scale, x), j.bias_map = map_of(bias, x);
    run_norm(r, &j, n_rows, work);
    stats_done(mean, j.mean);
    stats_done(inverse, j.inverse);
    real_out_done(r, y, work, to);
    return CHURON_OK;
}

/* ---- SkipLayerNormalization ------------------------------------------------------------------------- */

static status skip_read(op_node *n, bool rms, error *err) {
    ln_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    st->rms = rms;
    return op_attr_float(n, "epsilon", 1e-12F, &st->epsilon, err);
}

static status skip_prepare(op_node *n, error *err) {
    return skip_read(n, false, err);
}

static status skip_rms_prepare(op_node *n, error *err) {
    return skip_read(n, true, err);
}

static status skip_infer(op_shapes *s, error *err) {
    const op_node *n = shapes_node(s);
    const ln_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *x;
    TRY(nn_rank(s, 0, 2, 3, "input", &known, &rank, &x, err));
    for (size_t i = 0; i < op_n_outputs(n); i++) {
        if (!op_has_output(n, i)) continue;
        bool statistics = i == 1 || i == 2;
        if (i == 0 || i == 3) shapes_out_type(s, i, shapes_in_type(s, 0));
        if (statistics) shapes_out_type(s, i, ELEM_F32);
        if (!known) {
            shapes_out_unknown(s, i);
            continue;
        }
        dim out[3];
        for (size_t k = 0; k < rank; k++) out[k] = statistics && k + 1 == rank ? 1 : x[k];
        TRY(shapes_out(s, i, rank, out, err));
    }
    if (!known) return CHURON_OK;
    TRY(check_operand(s, 1, rank, x, "skip", err));
    size_t vectors = st->rms ? 4 : 5;
    for (size_t i = 2; i < vectors; i++) {
        size_t ri;
        const dim *d;
        if (!op_has_input(n, i) || !shapes_in(s, i, &ri, &d)) continue;
        if (ri != 1) return op_error(n, err, CHURON_INVALID, "input %zu: rank 1 expected, got %zu", i, ri);
        TRY(shapes_same(s, d[0], x[rank - 1], "gamma, beta, bias and hidden size", NULL, err));
    }
    return CHURON_OK;
}

/* input, skip, gamma, beta, bias; the simplified one has no beta. */
static status skip_run(op_run *r, error *err) {
    const ln_state *st = run_state(r);
    const tensor *x = run_in(r, 0), *skip = run_in(r, 1);
    size_t n = (size_t)x->dims[x->rank - 1], n_rows = n ? x->count / n : 0;
    const void *px, *ps, *bias;
    void *to, *sum_to;
    tensor *y, *mean, *inverse, *sum = NULL;
    row_job j = {.n = n, .epsilon = st->epsilon, .rms = st->rms, .dense = true};
    TRY(real_in(r, 0, ELEM_F32, &px, err));
    TRY(real_in(r, 1, ELEM_F32, &ps, err));
    TRY(real_in(r, 2, ELEM_F32, &j.scale, err));
    if (!st->rms) TRY(real_in(r, 3, ELEM_F32, &j.bias, err));
    TRY(real_in(r, st->rms ? 3 : 4, ELEM_F32, &bias, err));
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    if (op_has_output(run_node(r), 3))
        TRY(real_out(r, 3, ELEM_F32, &sum, &sum_to, err));
    else
        TRY(run_scratch(r, (x->count + 1) * sizeof(float), &sum_to, err));
    float *v = sum_to;
    broadcast_map map = map_of(skip, x);
    bool same = skip->count == x->count;
    for (size_t i = 0; i < x->count; i++)
        v[i] = ((const float *)px)[i] + ((const float *)ps)[same ? i : broadcast_at(&map, i)] +
               (bias ? ((const float *)bias)[i % n] : 0);
    j.x = v, j.y = to;
    TRY(stats_out(r, 1, n_rows, &mean, &j.mean, err));
    TRY(stats_out(r, 2, n_rows, &inverse, &j.inverse, err));
    run_norm(r, &j, n_rows, ELEM_F32);
    stats_done(mean, j.mean);
    stats_done(inverse, j.inverse);
    real_out_done(r, sum, ELEM_F32, sum_to);
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- EmbedLayerNormalization ------------------------------------------------------------------------ */

enum { IDS, SEGMENTS, WORDS, POSITIONS, SEGMENT_ROWS, GAMMA, BETA, MASK, POSITION_IDS };

static status embed_prepare(op_node *n, error *err) {
    ln_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    op_attr_ignore(n, "mask_index_type");
    static const size_t required[] = {WORDS, POSITIONS, GAMMA, BETA};
    for (size_t i = 0; i < 4; i++)
        if (!op_has_input(n, required[i]))
            return op_error(n, err, CHURON_INVALID, "input %zu is required", required[i]);
    return op_attr_float(n, "epsilon", 1e-12F, &st->epsilon, err);
}

static status embed_infer(op_shapes *s, error *err) {
    const op_node *n = shapes_node(s);
    bool ki, kw;
    size_t rank;
    const dim *ids, *words;
    TRY(nn_rank(s, IDS, 2, 2, "input_ids", &ki, &rank, &ids, err));
    TRY(nn_rank(s, WORDS, 2, 2, "word_embedding", &kw, &rank, &words, err));
    dim out[3] = {ki ? ids[0] : dim_fresh(s), ki ? ids[1] : dim_fresh(s), kw ? words[1] : dim_fresh(s)};
    for (size_t i = POSITIONS; i <= BETA; i++) {
        size_t ri;
        const dim *d;
        if (!op_has_input(n, i) || !shapes_in(s, i, &ri, &d)) continue;
        size_t want = i <= SEGMENT_ROWS ? 2 : 1;
        if (ri != want)
            return op_error(n, err, CHURON_INVALID, "input %zu: rank %zu expected, got %zu", i, want, ri);
        TRY(shapes_same(s, d[ri - 1], out[2], "hidden size", NULL, err));
    }
    const size_t maps[] = {SEGMENTS, MASK};
    for (size_t k = 0; k < 2; k++) {
        size_t ri;
        const dim *d;
        if (!op_has_input(n, maps[k]) || !shapes_in(s, maps[k], &ri, &d)) continue;
        if (ri != 2)
            return op_error(n, err, CHURON_INVALID, "input %zu: rank 2 expected, got %zu", maps[k], ri);
        for (size_t i = 0; i < 2; i++) TRY(shapes_same(s, d[i], out[i], "input_ids and its maps", NULL, err));
    }
    TRY(shapes_out(s, 0, 3, out, err));
    if (op_has_output(n, 1)) TRY(shapes_out(s, 1, 1, out, err));
    return op_has_output(n, 2) ? shapes_out(s, 2, 3, out, err) : CHURON_OK;
}

static status row_index(op_run *r, const tensor *ids, size_t at, const tensor *table, const char *what,
                        size_t *row, error *err) {
    int64_t id = int_at(ids, at);
    if (id < 0 || id >= table->dims[0])
        return run_error(r, err, CHURON_INVALID, "%s[%zu]: 0 to %lld expected, got %lld", what, at,
                         (long long)(table->dims[0] - 1), (long long)id);
    *row = (size_t)id;
    return CHURON_OK;
}

static status embed_sum(op_run *r, size_t rows_n, size_t length, size_t n, float *v, error *err) {
    const tensor *ids = run_in(r, IDS), *segments = run_in(r, SEGMENTS), *at = run_in(r, POSITION_IDS);
    const tensor *tables[3] = {run_in(r, WORDS), run_in(r, POSITIONS), run_in(r, SEGMENT_ROWS)};
    const void *p[3];
    for (size_t i = 0; i < 3; i++) TRY(real_of(r, tables[i], ELEM_F32, &p[i], err));
    if (!at && (size_t)tables[1]->dims[0] < length)
        return run_error(r, err, CHURON_INVALID, "input_ids: at most %lld positions expected, got %zu",
                         (long long)tables[1]->dims[0], length);
    if (at && at->count != rows_n && at->count != length)
        return run_error(r, err, CHURON_INVALID, "position_ids: %zu elements expected, got %zu", rows_n,
                         at->count);
    for (size_t i = 0; i < rows_n; i++) {
        size_t word = 0, position = i % length, segment = 0;
        TRY(row_index(r, ids, i, tables[0], "input_ids", &word, err));
        if (at) TRY(row_index(r, at, i % at->count, tables[1], "position_ids", &position, err));
        if (segments && tables[2]) TRY(row_index(r, segments, i, tables[2], "segment_ids", &segment, err));
        const float *a = (const float *)p[0] + word * n, *b = (const float *)p[1] + position * n;
        const float *c = segments && p[2] ? (const float *)p[2] + segment * n : NULL;
        for (size_t k = 0; k < n; k++) v[i * n + k] = a[k] + b[k] + (c ? c[k] : 0);
    }
    return CHURON_OK;
}

/* Output 1, length of each sequence: the ones of its mask. */
static status mask_lengths(op_run *r, const tensor *ids, const tensor *mask, error *err) {
    const size_t length = (size_t)ids->dims[1];
    tensor *index;
    if (!op_has_output(run_node(r), 1)) return CHURON_OK;
    TRY(run_out(r, 1, &index, err));
    for (size_t b = 0; b < (size_t)ids->dims[0]; b++) {
        int32_t ones = 0;
        for (size_t i = 0; mask && i < length; i++)
            ones += ((const int32_t *)mask->data)[b * length + i] == 1;
        ((int32_t *)index->data)[b] = ones;
    }
    return CHURON_OK;
}

static status embed_run(op_run *r, error *err) {
    const ln_state *st = run_state(r);
    const tensor *ids = run_in(r, IDS), *mask = run_in(r, MASK);
    size_t n = (size_t)run_in(r, WORDS)->dims[1], length = (size_t)ids->dims[1];
    row_job j = {.n = n, .epsilon = st->epsilon, .dense = true};
    tensor *y, *sum = NULL;
    void *to, *sum_to;
    TRY(real_in(r, GAMMA, ELEM_F32, &j.scale, err));
    TRY(real_in(r, BETA, ELEM_F32, &j.bias, err));
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    if (op_has_output(run_node(r), 2))
        TRY(real_out(r, 2, ELEM_F32, &sum, &sum_to, err));
    else
        TRY(run_scratch(r, (ids->count * n + 1) * sizeof(float), &sum_to, err));
    TRY(embed_sum(r, ids->count, length, n, sum_to, err));
    j.x = sum_to, j.y = to;
    run_norm(r, &j, ids->count, ELEM_F32);
    TRY(mask_lengths(r, ids, mask, err));
    real_out_done(r, sum, ELEM_F32, sum_to);
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- QEmbedLayerNormalization: tables, gamma and beta of bytes ---------------------------------------- */

enum { Q_SCALES = 8, Q_ZEROS = 13 }; /* of words, positions, segments, gamma, beta */

static status qembed_prepare(op_node *n, error *err) {
    ln_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const bool segments = op_has_input(n, SEGMENTS);
    for (size_t k = 0; k < 5; k++) {
        const size_t parts[3] = {WORDS + k, Q_SCALES + k, Q_ZEROS + k};
        for (size_t i = 0; i < 3; i++)
            if (op_has_input(n, parts[i]) != (k == 2 ? segments : true))
                return op_error(n, err, CHURON_INVALID, "input %zu: expected to be %s", parts[i],
                                k == 2 && !segments ? "absent without segment_ids" : "there");
    }
    return op_attr_float(n, "epsilon", 1e-12F, &st->epsilon, err);
}

/* Adds row `row` of table k to v [n]. */
static status add_row(op_run *r, size_t k, size_t row, size_t n, float *v, error *err) {
    const tensor *t = run_in(r, WORDS + k);
    float scale = 1;
    int32_t zero = 0;
    TRY(quant_scalar(r, Q_SCALES + k, Q_ZEROS + k, "scale and zero point of an embedding", &scale, &zero,
                     err));
    for (size_t i = 0; i < n; i++) v[i] += scale * (float)(byte_of(t, row * n + i) - zero);
    return CHURON_OK;
}

static status qembed_run(op_run *r, error *err) {
    const ln_state *st = run_state(r);
    const tensor *ids = run_in(r, IDS), *segments = run_in(r, SEGMENTS), *mask = run_in(r, MASK);
    const size_t n = (size_t)run_in(r, WORDS)->dims[1], length = (size_t)ids->dims[1];
    row_job j = {.n = n, .epsilon = st->epsilon, .dense = true};
    tensor *y;
    void *to, *memory;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(run_scratch(r, ((ids->count + 2) * n + 1) * sizeof(float), &memory, err));
    memset(memory, 0, (ids->count + 2) * n * sizeof(float));
    float *sums = memory, *gamma = sums + ids->count * n, *beta = gamma + n;
    TRY(add_row(r, 3, 0, n, gamma, err));
    TRY(add_row(r, 4, 0, n, beta, err));
    if ((size_t)run_in(r, POSITIONS)->dims[0] < length)
        return run_error(r, err, CHURON_INVALID, "input_ids: at most %lld positions expected, got %zu",
                         (long long)run_in(r, POSITIONS)->dims[0], length);
    for (size_t i = 0; i < ids->count; i++) {
        size_t word = 0, segment = 0;
        TRY(row_index(r, ids, i, run_in(r, WORDS), "input_ids", &word, err));
        TRY(add_row(r, 0, word, n, sums + i * n, err));
        TRY(add_row(r, 1, i % length, n, sums + i * n, err));
        if (!segments) continue;
        TRY(row_index(r, segments, i, run_in(r, SEGMENT_ROWS), "segment_ids", &segment, err));
        TRY(add_row(r, 2, segment, n, sums + i * n, err));
    }
    j.x = sums, j.y = to, j.scale = gamma, j.bias = beta;
    run_norm(r, &j, ids->count, ELEM_F32);
    TRY(mask_lengths(r, ids, mask, err));
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))
#define I32  ELEM_BIT(ELEM_I32)
#define ROW_WITH(how, dom, op, first, last, sign, prep, inf, fn, ...)                                        \
    {                                                                                                        \
        .domain = dom, .name = op, .since = first, .until = last, .flags = how, .signature = sign,           \
        .vars = {__VA_ARGS__}, .prepare = prep, .release = mem_free, .infer = inf, .run = fn                 \
    }

#define ROW(...)      ROW_WITH(0, __VA_ARGS__)
#define ROW_OVER(...) ROW_WITH(OP_INPLACE, __VA_ARGS__) /* a row is read before it is written */

static const op_def rows[] = {
    ROW_OVER("", "LayerNormalization", 17, 0, "TT=T>T@@", ln_prepare, ln_infer, ln_run, {'T', ELEMS_FLOAT}),
    ROW_OVER("", "LayerNormalization", 1, 16, "TS=S>S@@", ln_prepare, ln_infer, ln_run, {'T', ELEMS_FLOAT},
             {'S', ELEMS_FLOAT}),
    ROW_OVER("com.microsoft", "LayerNormalization", 1, 0, "TS=S>S@@", ln_prepare, ln_infer, ln_run,
             {'T', ELEMS_FLOAT}, {'S', ELEMS_FLOAT}),
    ROW_OVER("", "SimplifiedLayerNormalization", 1, 0, "TS>S@", rms_prepare, ln_infer, ln_run,
             {'T', ELEMS_FLOAT}, {'S', ELEMS_FLOAT}),
    ROW_OVER("com.microsoft", "SimplifiedLayerNormalization", 1, 0, "TS>S@", rms_prepare, ln_infer, ln_run,
             {'T', ELEMS_FLOAT}, {'S', ELEMS_FLOAT}),
    ROW_OVER("", "RMSNormalization", 23, 0, "TV>V", rms_prepare, ln_infer, ln_run, {'T', ELEMS_FLOAT},
             {'V', ELEMS_FLOAT}),
    ROW("com.microsoft", "SkipLayerNormalization", 1, 0, "TTT=TT>@@@@", skip_prepare, skip_infer, skip_run,
        {'T', HALF}),
    ROW("com.microsoft", "SkipSimplifiedLayerNormalization", 1, 0, "TTT=T>@@@@", skip_rms_prepare, skip_infer,
        skip_run, {'T', HALF}),
    ROW("com.microsoft", "EmbedLayerNormalization", 1, 0, "I=ITTTTTII>TIT", embed_prepare, embed_infer,
        embed_run, {'I', I32}, {'T', HALF}),
    ROW("com.microsoft", "QEmbedLayerNormalization", 1, 0, "I=IBBBBBIfffffBBBBB>fI", qembed_prepare,
        embed_infer, qembed_run, {'I', I32}, {'B', NN_I8}),
};
NN_TABLE(layernorm);
