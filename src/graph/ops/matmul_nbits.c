/* matmul_nbits.c: MatMulNBits of com.microsoft: y = A dequantize(B)^T (+ bias), weights of 2, 4 or 8 bits in
 * blocks along K. B is [N, blocks, block * bits / 8], lowest bits first; scales [N, blocks]; zero points
 * packed like B a row (rounded up to bytes), or of A's type, or absent: half of the range. Constant weights
 * become f32 and are packed once. MatMulBnb4: bitsandbytes' 4-bit floats FP4 and NF4, two a byte with the
 * first in the upper half, scaled by the largest magnitude of each block of the flat [N, K] matrix. */
#include "base/mem.h"
#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <string.h>

enum { A, B, SCALES, ZEROS, G_IDX, BIAS };

typedef struct nbits_state {
    int64_t n, k, bits, block, quant_type; /* quant_type: of MatMulBnb4 */
    size_t blocks;
    gemm_packed ready;
} nbits_state;

static unsigned code_at(const uint8_t *row, size_t i, size_t bits) {
    size_t at = i * bits;
    return (unsigned)(row[at / 8] >> at % 8) & ((1U << bits) - 1);
}

/* Sizes of the weights' inputs against the attributes. */
static bool fits(const nbits_state *st, const tensor *b, const tensor *scales, const tensor *zeros,
                 const tensor *groups, const char **what) {
    size_t n = (size_t)st->n, row = st->blocks * (size_t)st->block * (size_t)st->bits / 8;
    size_t zero_row = (st->blocks * (size_t)st->bits + 7) / 8;
    *what = "B";
    if (b->count != n * row) return false;
    *what = "scales";
    if (scales->count != n * st->blocks) return false;
    *what = "zero_points";
    if (zeros && zeros->count != n * (zeros->type == ELEM_U8 ? zero_row : st->blocks)) return false;
    *what = "g_idx";
    return !groups || groups->count == (size_t)st->k || groups->count == st->blocks * (size_t)st->block;
}

/* w [n, k] f32. false: a group index is out of range. */
static bool dequantize(const nbits_state *st, const tensor *b, const tensor *scales, const tensor *zeros,
                       const tensor *groups, float *w) {
    size_t k = (size_t)st->k, bits = (size_t)st->bits, block = (size_t)st->block;
    size_t row = st->blocks * block * bits / 8, zero_row = (st->blocks * bits + 7) / 8;
    for (size_t n = 0; n < (size_t)st->n; n++) {
        const uint8_t *codes = (const uint8_t *)b->data + n * row;
        float scale = 0, zero = 0;
        size_t last = SIZE_MAX;
        for (size_t i = 0; i < k; i++) {
            int64_t given = groups ? ((const int32_t *)groups->data)[i] : 0;
            if (given < 0 || (uint64_t)given >= st->blocks) return false;
            size_t g = groups ? (size_t)given : i / block;
            if (g != last) {
                last = g;
                scale = (float)real_at(scales, n * st->blocks + g);
                zero = (float)(1U << (bits - 1));
                if (zeros && zeros->type == ELEM_U8)
                    zero = (float)code_at((const uint8_t *)zeros->data + n * zero_row, g, bits);
                else if (zeros)
                    zero = (float)real_at(zeros, n * st->blocks + g);
            }
            w[n * k + i] = ((float)code_at(codes, i, bits) - zero) * scale;
        }
    }
    return true;
}

static status pack_constant(op_node *node, nbits_state *st, error *err) {
    const tensor *b = op_constant(node, B), *scales = op_constant(node, SCALES);
    const tensor *zeros = op_has_input(node, ZEROS) ? op_constant(node, ZEROS) : NULL;
    const tensor *groups = op_has_input(node, G_IDX) ? op_constant(node, G_IDX) : NULL;
    const char *what;
    if (!b || !scales || (op_has_input(node, ZEROS) && !zeros) || (op_has_input(node, G_IDX) && !groups))
        return CHURON_OK;
    if (!fits(st, b, scales, zeros, groups, &what)) return CHURON_OK; /* the run says it */
    size_t bytes = (size_t)st->n * (size_t)st->k * sizeof(float);
    float *w = mem_alloc(bytes ? bytes : 1);
    if (!w) return error_no_memory(err, "weights", bytes);
    status result = CHURON_OK;
    if (dequantize(st, b, scales, zeros, groups, w))
        result = gemm_pack_create(&st->ready, w, (size_t)st->k, (size_t)st->n, 1, (size_t)st->k, err);
    mem_free(w);
    return result;
}

static status nbits_prepare(op_node *n, error *err) {
    nbits_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t prepacked;
    TRY(op_attr_int(n, "K", 0, 1, INT32_MAX, &st->k, err));
    TRY(op_attr_int(n, "N", 0, 1, INT32_MAX, &st->n, err));
    TRY(op_attr_int(n, "bits", 4, 2, 8, &st->bits, err));
    TRY(op_attr_int(n, "block_size", 0, 16, 1 << 20, &st->block, err));
    TRY(op_attr_int(n, "weight_prepacked", 0, 0, 0, &prepacked, err));
    op_attr_ignore(n, "accuracy_level");
    if (!st->k || !st->n || !st->block)
        return op_error(n, err, CHURON_INVALID, "K, N, block_size are required");
    if ((st->bits & (st->bits - 1)) || (st->block & (st->block - 1)))
        return op_error(n, err, CHURON_INVALID,
                        "bits: 2, 4 or 8 and block_size: a power of two expected, got %lld and %lld",
                        (long long)st->bits, (long long)st->block);
    st->blocks = (size_t)((st->k + st->block - 1) / st->block);
    if (st->n > (int64_t)(TENSOR_MAX_BYTES / 4) / st->k)
        return op_error(n, err, CHURON_LIMIT, "K, N: a matrix of up to %llu bytes expected, got %lld x %lld",
                        (unsigned long long)TENSOR_MAX_BYTES, (long long)st->k, (long long)st->n);
    return pack_constant(n, st, err);
}

static void nbits_release(void *state) {
    nbits_state *st = state;
    if (st) gemm_pack_free(&st->ready);
    mem_free(st);
}

static status nbits_infer(op_shapes *s, error *err) {
    const nbits_state *st = shapes_state(s);
    bool known;
    size_t rank;
    const dim *a;
    dim out[TENSOR_MAX_RANK];
    TRY(nn_rank(s, A, 1, TENSOR_MAX_RANK, "A", &known, &rank, &a, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    TRY(shapes_same(s, a[rank - 1], st->k, "columns of A and K", NULL, err));
    for (size_t i = 0; i + 1 < rank; i++) out[i] = a[i];
    out[rank - 1] = st->n;
    return shapes_out(s, 0, rank, out, err);
}

static status nbits_run(op_run *r, error *err) {
    const nbits_state *st = run_state(r);
    const tensor *a = run_in(r, A), *bias = run_in(r, BIAS);
    tensor *y;
    void *to, *memory;
    const void *pa, *pb;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, a, ELEM_F32, &pa, err));
    TRY(real_of(r, bias, ELEM_F32, &pb, err));
    if (bias && bias->count != (size_t)st->n)
        return run_error(r, err, CHURON_INVALID, "bias: %lld elements expected, got %zu", (long long)st->n,
                         bias->count);
    size_t k = (size_t)st->k, n = (size_t)st->n;
    gemm_call call = {.m = a->count / k,
                      .n = n,
                      .k = k,
                      .a = pa,
                      .a_row = k,
                      .a_col = 1,
                      .b_row = 1,
                      .b_col = k,
                      .c = to,
                      .ldc = n};
    gemm_epilogue e = {.alpha = 1, .beta = 1, .bias = pb, .bias_col = 1};
    if (st->ready.memory) {
        call.packed = &st->ready;
    } else {
        const char *what;
        if (!fits(st, run_in(r, B), run_in(r, SCALES), run_in(r, ZEROS), run_in(r, G_IDX), &what))
            return run_error(r, err, CHURON_INVALID,
                             "%s: a size that fits K %lld, N %lld, bits %lld, block_size %lld expected", what,
                             (long long)st->k, (long long)st->n, (long long)st->bits, (long long)st->block);
        TRY(run_scratch(r, n * k * sizeof(float), &memory, err));
        if (!dequantize(st, run_in(r, B), run_in(r, SCALES), run_in(r, ZEROS), run_in(r, G_IDX), memory))
            return run_error(r, err, CHURON_INVALID, "g_idx: blocks 0 to %zu expected", st->blocks - 1);
        call.b = memory;
    }
    TRY(gemm_f32(r, &call, 1, bias ? &e : NULL, err));
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

/* ---- MatMulBnb4: A, B [ceil(N * K / 2)], absmax [ceil(N * K / block)] --------------------------------- */

static const float bnb_values[2][16] = {
    /* FP4: sign, two bits of exponent, one of mantissa; the largest is 1 */
    {0.0F, 0.00520833F, 0.66666667F, 1.0F, 0.33333333F, 0.5F, 0.16666667F, 0.25F, -0.0F, -0.00520833F,
     -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F},
    /* NF4: quantiles of the normal distribution, as the QLoRA paper (arXiv 2305.14314) lists them */
    {-1.0F, -0.6961928F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
     0.0795803F, 0.1609302F, 0.24611229F, 0.33791524F, 0.44070983F, 0.56261700F, 0.72295684F, 1.0F},
};

static bool bnb_fits(const nbits_state *st, const tensor *b, const tensor *scales) {
    const size_t n = (size_t)st->n * (size_t)st->k;
    return b->count == (n + 1) / 2 && scales->count == (n + (size_t)st->block - 1) / (size_t)st->block;
}

static void bnb_dequantize(const nbits_state *st, const tensor *b, const tensor *scales, float *w) {
    const size_t n = (size_t)st->n * (size_t)st->k, block = (size_t)st->block;
    float scale = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % block == 0) scale = (float)real_at(scales, i / block);
        const uint8_t both = ((const uint8_t *)b->data)[i / 2];
        w[i] = bnb_values[st->quant_type][i % 2 ? both & 15 : both >> 4] * scale;
    }
}

static status bnb_prepare(op_node *n, error *err) {
    nbits_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t transposed, training;
    TRY(op_attr_int(n, "K", 0, 1, INT32_MAX, &st->k, err));
    TRY(op_attr_int(n, "N", 0, 1, INT32_MAX, &st->n, err));
    TRY(op_attr_int(n, "block_size", 0, 16, 1 << 30, &st->block, err));
    TRY(op_attr_int(n, "quant_type", 1, 0, 1, &st->quant_type, err));
    TRY(op_attr_int(n, "transB", 1, 1, 1, &transposed, err)); /* 0 is for training */
    TRY(op_attr_int(n, "training_mode", 0, 0, 0, &training, err));
    if (!st->k || !st->n || !st->block || !op_attr_present(n, "quant_type"))
        return op_error(n, err, CHURON_INVALID, "K, N, block_size, quant_type are required");
    if (st->n > (int64_t)(TENSOR_MAX_BYTES / 4) / st->k)
        return op_error(n, err, CHURON_LIMIT, "K, N: a matrix of up to %llu bytes expected, got %lld x %lld",
                        (unsigned long long)TENSOR_MAX_BYTES, (long long)st->k, (long long)st->n);
    const tensor *b = op_constant(n, 1), *scales = op_constant(n, 2);
    if (!b || !scales || !bnb_fits(st, b, scales)) return CHURON_OK;
    const size_t bytes = (size_t)st->n * (size_t)st->k * sizeof(float);
    float *w = mem_alloc(bytes);
    if (!w) return error_no_memory(err, "weights", bytes);
    bnb_dequantize(st, b, scales, w);
    status result = gemm_pack_create(&st->ready, w, (size_t)st->k, (size_t)st->n, 1, (size_t)st->k, err);
    mem_free(w);
    return result;
}

static status bnb_run(op_run *r, error *err) {
    const nbits_state *st = run_state(r);
    const tensor *a = run_in(r, 0);
    const size_t k = (size_t)st->k, n = (size_t)st->n;
    tensor *y;
    void *to, *memory;
    const void *pa;
    TRY(real_out(r, 0, ELEM_F32, &y, &to, err));
    TRY(real_of(r, a, ELEM_F32, &pa, err));
    gemm_call call = {.m = a->count / k,
                      .n = n,
                      .k = k,
                      .a = pa,
                      .a_row = k,
                      .a_col = 1,
                      .b_row = 1,
                      .b_col = k,
                      .c = to,
                      .ldc = n};
    if (st->ready.memory) {
        call.packed = &st->ready;
    } else {
        if (!bnb_fits(st, run_in(r, 1), run_in(r, 2)))
            return run_error(
                r, err, CHURON_INVALID,
                "B, absmax: sizes that fit K %lld, N %lld, block_size %lld expected, got %zu and %zu",
                (long long)st->k, (long long)st->n, (long long)st->block, run_in(r, 1)->count,
                run_in(r, 2)->count);
        TRY(run_scratch(r, n * k * sizeof(float), &memory, err));
        bnb_dequantize(st, run_in(r, 1), run_in(r, 2), memory);
        call.b = memory;
    }
    TRY(gemm_f32(r, &call, 1, NULL, err));
    real_out_done(r, y, ELEM_F32, to);
    return CHURON_OK;
}

#define HALF (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16) | ELEM_BIT(ELEM_BF16))

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "MatMulNBits",
     .since = 1,
     .signature = "TUS=ZIB>T",
     .vars = {{'T', HALF},
              {'U', ELEM_BIT(ELEM_U8)},
              {'S', HALF},
              {'Z', HALF | ELEM_BIT(ELEM_U8)},
              {'I', ELEM_BIT(ELEM_I32)},
              {'B', HALF}},
     .prepare = nbits_prepare,
     .release = nbits_release,
     .infer = nbits_infer,
     .run = nbits_run},
    {.domain = "com.microsoft",
     .name = "MatMulBnb4",
     .since = 1,
     .signature = "TBT>T",
     .vars = {{'T', HALF}, {'B', ELEM_BIT(ELEM_U8)}},
     .prepare = bnb_prepare,
     .release = nbits_release,
     .infer = nbits_infer,
     .run = bnb_run},
};
NN_TABLE(matmul_nbits);
