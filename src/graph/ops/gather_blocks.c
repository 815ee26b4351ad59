/* gather_blocks.c: GatherBlockQuantized of com.microsoft: rows of a table of codes, which become numbers on
 * the way: (code - zero) * scale, one scale and zero for each block along quantize_axis. Codes are int4 or
 * uint4, or uint8 that holds 2, 4 or 8 bits a code along the last axis, lowest bits first. An index may be
 * negative. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <string.h>

enum { DATA, INDICES, SCALES, ZEROS };

typedef struct blocks_state {
    int64_t gather_axis, quantize_axis, block, bits;
} blocks_state;

static status blocks_prepare(op_node *n, error *err) {
    blocks_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "gather_axis", 0, INT32_MIN, INT32_MAX, &st->gather_axis, err));
    TRY(op_attr_int(n, "quantize_axis", 1, INT32_MIN, INT32_MAX, &st->quantize_axis, err));
    TRY(op_attr_int(n, "block_size", 128, 16, 1 << 30, &st->block, err));
    TRY(op_attr_int(n, "bits", 4, 2, 8, &st->bits, err));
    if (op_input_type(n, DATA) != ELEM_U8) st->bits = 4;
    if ((st->block & (st->block - 1)) || (st->bits & (st->bits - 1)))
        return op_error(n, err, CHURON_INVALID,
                        "block_size: a power of two and bits: 2, 4 or 8 expected, got %lld and %lld",
                        (long long)st->block, (long long)st->bits);
    return CHURON_OK;
}

/* Codes in an element of the data. */
static int64_t per_element(const blocks_state *st, elem type) {
    return type == ELEM_U8 ? 8 / st->bits : 1;
}

static status axes_of(const op_node *n, const blocks_state *st, size_t rank, elem type, size_t *gather,
                      size_t *quantize, error *err) {
    TRY(op_axis(n, st->gather_axis, rank, "gather_axis", gather, err));
    TRY(op_axis(n, st->quantize_axis, rank, "quantize_axis", quantize, err));
    if (type == ELEM_U8 && (*gather != 0 || (st->bits < 8 && *quantize == 0)))
        return op_error(n, err, CHURON_INVALID,
                        "gather_axis: 0 and another quantize_axis expected for uint8, got %zu and %zu",
                        *gather, *quantize);
    return CHURON_OK;
}

static status blocks_infer(op_shapes *s, error *err) {
    const blocks_state *st = shapes_state(s);
    const elem type = shapes_in_type(s, DATA);
    bool kd, ki, ks;
    size_t rank, ri, rs, gather, quantize;
    const dim *d, *idx, *sc;
    TRY(nn_rank(s, DATA, 1, TENSOR_MAX_RANK, "data", &kd, &rank, &d, err));
    TRY(nn_rank(s, INDICES, 0, TENSOR_MAX_RANK, "indices", &ki, &ri, &idx, err));
    TRY(nn_rank(s, SCALES, 1, TENSOR_MAX_RANK, "scales", &ks, &rs, &sc, err));
    if (!kd || !ki) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(axes_of(shapes_node(s), st, rank, type, &gather, &quantize, err));
    dim wide[TENSOR_MAX_RANK], out[2 * TENSOR_MAX_RANK];
    memcpy(wide, d, rank * sizeof *d);
    wide[rank - 1] = dim_mul(s, d[rank - 1], per_element(st, type));
    if (ks && rs != rank)
        return op_error(shapes_node(s), err, CHURON_INVALID, "scales: rank %zu expected, got %zu", rank, rs);
    for (size_t i = 0; ks && i < rank; i++)
        TRY(shapes_same(s, sc[i], i == quantize ? dim_div_ceil(s, wide[i], st->block) : wide[i],
                        "data in blocks and scales", NULL, err));
    if (rank - 1 + ri > TENSOR_MAX_RANK)
        return op_error(shapes_node(s), err, CHURON_LIMIT,
                        "indices: a result of rank %d at most expected, got %zu", TENSOR_MAX_RANK,
                        rank - 1 + ri);
    size_t n = 0;
    for (size_t i = 0; i < gather; i++) out[n++] = wide[i];
    for (size_t i = 0; i < ri; i++) out[n++] = idx[i];
    for (size_t i = gather + 1; i < rank; i++) out[n++] = wide[i];
    return shapes_out(s, 0, n, out, err);
}

typedef struct blocks_job {
    const tensor *data, *zeros;
    const float *scales;
    float *y;
    const size_t *rows;                              /* [n_indices] */
    size_t n_indices, inner, axis_size;              /* of the gather axis */
    size_t last;                                     /* codes along the last axis */
    size_t q_size, q_inner, q_blocks, q_last, block; /* q_last: scales along the last axis */
    size_t bits;
} blocks_job;

/* Code i of rows of `last` codes that each begin with a byte of their own. */
static int code_at(const tensor *t, size_t i, size_t last, size_t bits) {
    if (t->type != ELEM_U8)
        return t->type == ELEM_I4 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
    const size_t bit = i % last * bits, row = (last * bits + 7) / 8;
    return ((const uint8_t *)t->data)[i / last * row + bit / 8] >> bit % 8 & ((1 << bits) - 1);
}

static void gather_rows(void *ctx, size_t from, size_t to) {
    const blocks_job *j = ctx;
    const int usual = j->data->type == ELEM_U8 ? 1 << (j->bits - 1) : 0;
    for (size_t row = from; row < to; row++) {
        const size_t at = (row / j->n_indices * j->axis_size + j->rows[row % j->n_indices]) * j->inner;
        for (size_t k = 0; k < j->inner; k++) {
            const size_t i = at + k, o = i / j->q_inner;
            const size_t scale =
                (o / j->q_size * j->q_blocks + o % j->q_size / j->block) * j->q_inner + i % j->q_inner;
            const int zero = j->zeros ? code_at(j->zeros, scale, j->q_last, j->bits) : usual;
            j->y[row * j->inner + k] =
                (float)(code_at(j->data, i, j->last, j->bits) - zero) * j->scales[scale];
        }
    }
}

static status take_indices(op_run *r, blocks_job *j, error *err) {
    const tensor *indices = run_in(r, INDICES);
    void *memory;
    TRY(run_scratch(r, (indices->count + 1) * sizeof(size_t), &memory, err));
    for (size_t i = 0; i < indices->count; i++) {
        int64_t v = int_at(indices, i), size = (int64_t)j->axis_size;
        if (v < -size || v >= size)
            return run_error(r, err, CHURON_INVALID, "indices[%zu]: %lld to %lld expected, got %lld", i,
                             (long long)-size, (long long)(size - 1), (long long)v);
        ((size_t *)memory)[i] = (size_t)(v < 0 ? v + size : v);
    }
    j->rows = memory, j->n_indices = indices->count;
    return CHURON_OK;
}

static status blocks_run(op_run *r, error *err) {
    const blocks_state *st = run_state(r);
    const tensor *data = run_in(r, DATA), *zeros = run_in(r, ZEROS);
    tensor *y;
    void *to;
    const void *scales;
    size_t gather, quantize;
    int64_t wide[TENSOR_MAX_RANK];
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_in(r, SCALES, ELEM_F32, &scales, err));
    TRY(axes_of(run_node(r), st, data->rank, data->type, &gather, &quantize, err));
    memcpy(wide, data->dims, sizeof wide);
    wide[data->rank - 1] *= per_element(st, data->type);
    blocks_job j = {.data = data, .zeros = zeros, .scales = scales, .y = to, .bits = (size_t)st->bits};
    j.inner = (size_t)nn_product(wide + gather + 1, data->rank - gather - 1),
    j.axis_size = (size_t)wide[gather];
    j.last = (size_t)wide[data->rank - 1], j.block = (size_t)st->block;
    j.q_size = (size_t)wide[quantize], j.q_blocks = (j.q_size + j.block - 1) / j.block;
    j.q_inner = (size_t)nn_product(wide + quantize + 1, data->rank - quantize - 1);
    j.q_last = quantize == data->rank - 1 ? j.q_blocks : j.last;
    const tensor *shape = run_in(r, SCALES);
    const size_t row = data->type == ELEM_U8 ? (j.q_last * j.bits + 7) / 8 : j.q_last;
    const size_t want = j.q_last ? shape->count / j.q_last * row : 0;
    if (zeros && zeros->count != want)
        return run_error(r, err, CHURON_INVALID, "zero_points: %zu elements expected, got %zu", want,
                         zeros->count);
    TRY(take_indices(r, &j, err));
    if (y->count) {
        const size_t n = y->count / j.inner;
        run_parallel(r, n, 4.0 * (double)y->count, gather_rows, &j);
    }
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "GatherBlockQuantized",
     .since = 1,
     .signature = "DIS=D>S",
     .vars = {{'D', ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_U4) | ELEM_BIT(ELEM_I4)},
              {'I', ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64)},
              {'S', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16)}},
     .prepare = blocks_prepare,
     .release = mem_free,
     .infer = blocks_infer,
     .run = blocks_run},
};
NN_TABLE(gather_blocks);
