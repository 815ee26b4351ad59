/* kernel.h: arithmetic on raw memory, one table for each instruction set.
 *
 * The table starts as the scalar reference and each instruction set replaces what it beats; callers hold one
 * `const kernels *` and never ask which. Kernels allocate nothing, keep no state and read nothing outside the
 * sizes they are given. Threads split output rows, tokens or heads and call the same kernel on their part.
 *
 * The law of sums (what makes a result independent of batch, chunk and thread count): every output is one
 * chain of fused multiply-adds in a fixed order that depends on nothing but K. For quantized weights, blocks
 * of 32 values (16 where the type scales 16) in ascending order: the integer product of a block is exact,
 * converted to f32, then acc = fma(isum, w_scale * a_scale, acc) and, for types with a minimum,
 * acc = fma(w_min, a_sum, acc), where a_sum = a_scale * (float)integer sum of the block. For float weights,
 * k ascending: acc = fma(w[k], a[k], acc). All instruction sets follow the same chain, so they agree bit for
 * bit; lanes are rows of the weight matrix. */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include "base/status.h"
#include "kernel/fft.h"
#include "kernel/image.h"
#include "kernel/qimage.h"
#include "tensor/dtype.h"

typedef enum kernel_isa { KERNEL_REF, KERNEL_AVX2, KERNEL_AVX512, KERNEL_ISA_COUNT } kernel_isa;

/* ---- packed weights --------------------------------------------------------------------------------- */

enum { PACK_ROWS = 16 }; /* rows that are interleaved: lane = row. The last group is filled with zero rows. */

/* A weight matrix [rows, cols], rows interleaved by 16, one layout for every instruction set. Immutable after
 * packing. The memory at `data` is the owner's (64-byte aligned). */
typedef struct packed {
    dtype type;         /* of the source; decides the layout, see pack.c */
    size_t rows, cols;  /* cols: a multiple of the type's block */
    size_t group_bytes; /* distance of two groups of 16 rows, a multiple of 64 */
    uint8_t *data;
} packed;

/* Bytes that a matrix takes when packed; 0 on overflow or if cols is no multiple of the block. */
size_t pack_bytes(dtype type, size_t rows, size_t cols);
/* Sets *out over `memory` (pack_bytes) and packs groups [g0, g1) from rows in file layout; threads may pack
 * different groups at once. */
void pack_init(packed *out, dtype type, size_t rows, size_t cols, void *memory);
void pack_groups(const packed *out, const void *source, size_t g0, size_t g1);
static inline size_t pack_n_groups(const packed *w) {
    return (w->rows + PACK_ROWS - 1) / PACK_ROWS;
}

/* ---- activations ------------------------------------------------------------------------------------ */

enum { ACT_BLOCK = 32 };

/* Rows of activations in the form that matrix products read. For float weights only `f32` is read, for
 * quantized weights only the others. A row is quantized for itself: no neighbour influences it. Columns are a
 * multiple of 32 for quantized weights. */
typedef struct activations {
    size_t cols;
    const float *f32; /* [n, cols] */
    int8_t *q;        /* [n, cols], -127..127 */
    float *scale;     /* [n, cols/32]: value = scale * q */
    int16_t *sum16;   /* [n, cols/16]: sums of 16 consecutive q */
} activations;

/* ---- the table -------------------------------------------------------------------------------------- */

/* How keys and values are kept. Pages of one KV head hold KV_PAGE positions; unwritten positions are zero,
 * never garbage.
 * KV_F16: bits of f16. k: [KV_PAGE/16][head_dim_k][16], 16 keys interleaved (lane = key);
 *   v: [KV_PAGE][head_dim_v].
 * KV_Q8: 8 bits with one f16 scale for 32 values of a head (16 in the last block of a head_dim that is no
 *   multiple of 32): value = scale * q, q in -127..127. Two values that meet in a sum lie side by side.
 *   k: int8 [KV_PAGE/16][head_dim_k/2][16][2], then the scales, f16 [kv_q8_blocks(head_dim_k)][KV_PAGE];
 *   v: int8 [KV_PAGE/2][head_dim_v][2], then the scales, f16 [kv_q8_blocks(head_dim_v)][KV_PAGE]. */
typedef enum kv_type { KV_F16, KV_Q8, KV_TYPE_COUNT } kv_type;

static inline const char *kv_type_name(kv_type type) { /* "f16", "q8" */
    return type == KV_Q8 ? "q8" : "f16";
}

enum { KV_PAGE = 32, KV_Q8_BLOCK = 32, ATTN_BLOCK = 64, ATTN_CHUNK = 256 };

static inline size_t kv_q8_blocks(size_t head_dim) {
    return (head_dim + KV_Q8_BLOCK - 1) / KV_Q8_BLOCK;
}
/* Bytes of the keys, or values, of one page of one head; a multiple of 64. */
static inline size_t kv_page_bytes(kv_type type, size_t head_dim) {
    return KV_PAGE * (type == KV_Q8 ? head_dim + kv_q8_blocks(head_dim) * sizeof(uint16_t)
                                    : head_dim * sizeof(uint16_t));
}

typedef struct attn_head {
    size_t head_dim_k, head_dim_v; /* multiples of 16, at most 512 */
    size_t group;                  /* query heads that share this KV head */
    float scale;                   /* of q.k, usually 1/sqrt(head_dim_k) */
    float soft_cap;                /* 0: none; s = cap*tanh(s/cap) after scaling */
    size_t window;                 /* a query at p sees keys p-window+1..p; 0: all up to p */
    const void *const *k_pages;    /* [n_pages], page i holds positions KV_PAGE*i.. */
    const void *const *v_pages;
} attn_head;

/* Partial softmax over one chunk of keys, for one query head: o is not normalised. */
typedef struct attn_partial {
    float max, sum;
} attn_partial;

/* Functions of one f32 with up to two parameters. */
typedef enum kernel_unary {
    UNARY_F32_ABS,
    UNARY_F32_NEG,
    UNARY_F32_SQRT,
    UNARY_F32_RECIPROCAL,
    UNARY_F32_FLOOR,
    UNARY_F32_CEIL,
    UNARY_F32_ROUND, /* to nearest, ties to even */
    UNARY_F32_EXP,   /* results below the smallest normal are 0 */
    UNARY_F32_LOG,
    UNARY_F32_TANH,
    UNARY_F32_ERF,
    UNARY_F32_SIGMOID,
    UNARY_F32_SWISH, /* x * sigmoid(p*x) */
    UNARY_F32_GELU,  /* by erf */
    UNARY_F32_GELU_TANH,
    UNARY_F32_SOFTPLUS,
    UNARY_F32_SOFTSIGN,
    UNARY_F32_MISH,
    UNARY_F32_ELU, /* q * (x, below 0: p * (exp(x) - 1)) */
    UNARY_F32_RELU,
    UNARY_F32_LEAKY_RELU,   /* x, below 0: p*x */
    UNARY_F32_CLIP,         /* to [p, q] */
    UNARY_F32_HARD_SIGMOID, /* p*x + q, to [0, 1] */
    UNARY_F32_HARD_SWISH,   /* x * hard sigmoid (1/6, 1/2) */
    UNARY_F32_LINEAR,       /* p*x + q */
    UNARY_F32_COUNT
} kernel_unary;

/* See gemm.h, qgemm.h and gemm64.h. */
typedef struct gemm_tile gemm_tile;
typedef struct qgemm_tile qgemm_tile;
typedef struct gemm64_tile gemm64_tile;
typedef struct gemm64_shape {
    size_t rows, columns; /* most of a tile */
} gemm64_shape;
typedef struct gemm_shape {
    size_t rows, panels;         /* most of a tile */
    size_t few_rows, few_panels; /* a tile of few rows may have more panels */
} gemm_shape;
typedef enum gemm_rows {
    GEMM_ROWS_16,
    GEMM_ROWS_32,
    GEMM_ROWS_PACKED,
    GEMM_ROWS_ANY,
    GEMM_ROWS_KINDS
} gemm_rows;

typedef struct kernels {
    kernel_isa isa;
    const char *name; /* "ref", "avx2", "avx512" */

    /* y[t*ldy + r] = sum_k W[r,k] x[t,k] for tokens [0, n) and the rows of groups [g0, g1).
     * scratch: matmul_scratch bytes, 64-byte aligned, one per thread. Any n; small n unpacks in registers,
     * larger n through a panel, with the same bits. */
    void (*matmul)(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                   size_t ldy, void *scratch);

    /* One row of weights back to f32: [cols] (embedding look-up in the packed matrix). */
    void (*unpack_row)(const packed *w, size_t row, float *out);

    /* q, scale, sum16 of one row; n: a multiple of 32. NaN or infinity in x gives NaN scales, so that it
     * shows in the result instead of vanishing. */
    void (*quantize)(const float *x, size_t n, int8_t *q, float *scale, int16_t *sum16);

    /* y = x / sqrt(mean(x^2) + eps) * w; w may be NULL (1). y may be x. */
    void (*rms_norm)(const float *x, const float *w, size_t n, float eps, float *y);
    void (*add)(float *y, const float *x, size_t n);                          /* y += x */
    void (*scale)(float *y, float s, size_t n);                               /* y *= s */
    void (*silu_mul)(const float *gate, const float *up, float *y, size_t n); /* silu(gate)*up */
    void (*gelu_tanh_mul)(const float *gate, const float *up, float *y,
                          size_t n);                 /* gelu(gate)*up, tanh form */
    void (*soft_cap)(float *y, float cap, size_t n); /* cap*tanh(y/cap) */

    /* Rotates the first n_rot values of a head in place. interleaved: pairs (2i, 2i+1), else (i, i+n_rot/2).
     * cos_sin: [n_rot/2, 2]. */
    void (*rope)(float *head, const float *cos_sin, size_t n_rot, bool interleaved);

    /* Stores k [head_dim_k] and v [head_dim_v] of one position at `slot` (0..KV_PAGE-1) of its page; threads
     * may store different positions of a page at once. One for each kv_type. KV_Q8: NaN or infinity makes its
     * block's scale NaN. */
    void (*kv_store[KV_TYPE_COUNT])(void *k_page, void *v_page, size_t slot, const float *k,
                                    size_t head_dim_k, const float *v, size_t head_dim_v);

    /* Attention of n consecutive queries of one sequence (positions pos .. pos+n-1) for one KV head over the
     * keys of chunk c: positions [c*ATTN_CHUNK, (c+1)*ATTN_CHUNK) that each query may see; pages hold at
     * least pos+n positions. q: [n, group, head_dim_k] with row stride ldq floats (heads of a group are
     * adjacent). partial: [n, group], o: [n, group, head_dim_v] (dense), both written whole; a query that
     * sees no key of the chunk gets max = -inf, sum = 0, o = 0. Per query the order is fixed: blocks of
     * ATTN_BLOCK keys counted from position 0, block maximum, exp, rescale only if the maximum rose, then
     * values by ascending key. One for each kv_type; KV_Q8 multiplies in integers, see kernel/attn_q8.h.
     * scratch: attn_scratch bytes, 64-byte aligned. */
    void (*attn_chunk[KV_TYPE_COUNT])(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos,
                                      size_t c, attn_partial *partial, float *o, void *scratch);
    /* Adds a later chunk's partial into an earlier one (both one query head): the merge in ascending order.
     */
    void (*attn_merge)(attn_partial *into, float *o_into, const attn_partial *from, const float *o_from,
                       size_t head_dim_v);
    /* out = o / sum. */
    void (*attn_finish)(const attn_partial *p, const float *o, size_t head_dim_v, float *out);

    /* Maximum of n logits and log(sum(exp(x - max))) in a fixed order. NaN anywhere gives NaN in *max. */
    void (*log_sum_exp)(const float *x, size_t n, float *max, float *lse);
    /* Sum of w[i], and number of i, where x[i] >= least, in a fixed order. w may be x. */
    void (*sum_above)(const float *x, const float *w, size_t n, float least, double *sum, size_t *count);
    /* The k largest of n values (k <= n, k <= TOP_MAX), descending, ties by lower index. NaN sorts last. */
    void (*top_k)(const float *x, size_t n, size_t k, uint32_t *index, float *value);
    /* y[i] = exp(x[i]), within 2 ulp, exact 0 below the smallest normal's log. y may be x. */
    void (*exp)(const float *x, float *y, size_t n);
    /* y[i] = f(x[i]); y may be x. exp, log, tanh and erf within 2 ulp; NaN stays NaN. */
    /* One row: y = exp(x - max) / sum; y may be x. All -infinity, or a NaN: all NaN. */
    void (*softmax)(const float *x, float *y, size_t n);
    /* y = (x - mean) / sqrt(variance + eps) * w + b; w and b may be NULL; y may be x. Sums in f32. */
    void (*layer_norm)(const float *x, const float *w, const float *b, size_t n, float eps, float *y);
    void (*unary)(kernel_unary f, float p, float q, const float *x, float *y, size_t n);
    /* The same for f64 and exp, tanh and sigmoid only, within 3 ulp. */
    void (*unary64)(kernel_unary f, const double *x, double *y, size_t n);
    /* y[j] = sum over i < k of a[i] * b[i*ldb + j], for j < n: a chain of fused multiply-adds each, i
     * ascending, from zero. */
    void (*vector_matrix)(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y);
    /* Between f16 and f32, to nearest, ties to even. */
    void (*widen_f16)(const uint16_t *x, float *y, size_t n);
    void (*narrow_f16)(const float *x, uint16_t *y, size_t n);

    /* A tile of a product of f32 matrices: 1..rows rows, 1, 2 or 4 panels of 16 columns (gemm.h). */
    void (*gemm_tile)(const gemm_tile *t, gemm_rows rows, size_t n_rows, size_t n_panels);
    gemm_shape gemm_shape;
    /* A tile of a product of f64 matrices: 1..rows rows, 1..columns columns (gemm64.h). */
    void (*gemm64_tile)(const gemm64_tile *t, size_t rows, size_t columns);
    gemm64_shape gemm64_shape;
    /* A tile of a product of 8-bit matrices: 1..rows rows, 1, 2 or 4 panels of 16 columns (qgemm.h). */
    void (*qgemm_tile)(const qgemm_tile *t, size_t n_rows, size_t n_panels);
    struct gemm_shape qgemm_shape;
    /* Lowers *least and raises *most to the values of x. NaN is passed over. */
    void (*range)(const float *x, size_t n, float *least, float *most);
    /* y = x / scale, to nearest, ties to even, + zero, to [0, 255]; NaN gives zero, which is in [0, 255]. */
    void (*quantize_u8)(const float *x, size_t n, float scale, int32_t zero, uint8_t *y);
    /* y = (float)x * scale, rounded likewise, + zero, to [low, high]: of int8 or uint8. NaN gives zero. */
    void (*requantize)(const int32_t *x, const float *scale, size_t n, int32_t zero, int32_t low,
                       int32_t high, uint8_t *y);
    /* n pixels of a depthwise convolution, of a pool; n values of a sum or product (qimage.h). Channels and
     * values of a tap that exist are read, no more. y may be a or b. */
    void (*qdepthwise_row)(const qdepthwise *d, const uint8_t *x, uint8_t *y, size_t n);
    void (*qpool_row)(const qpool *p, const uint8_t *x, uint8_t *y, size_t n);
    void (*qpair)(const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n);
    /* y[i] = table[x[i]], of 256 bytes. y may be x. */
    void (*lookup)(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n);
    /* One row of a depthwise convolution over a block of 16 channels: y[i] = sum over taps t of x[i*x_step +
     * tap[t]] * w[t], each a vector of 16; then + bias, + add, then the limits. taps ascending, one chain of
     * fused multiply-adds. bias and add may be NULL; add has y's layout. */
    void (*depthwise_row)(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                          const float *bias, const float *add, float low, float high, float *y, size_t n);
    /* One patch of a block of 16 channels for winograd.h: x[i*x_row + 16j], i, j < 6, transformed to v[(6i +
     * j) * v_point]; sums m[(6i + j) * m_point] back to y[i*y_row + 16j], i, j < 4, then + bias, + add, then
     * the limits. bias and add may be NULL. */
    void (*winograd_input)(const float *x, size_t x_row, float *v, size_t v_point);
    void (*winograd_output)(const float *m, size_t m_point, const float *bias, const float *add,
                            size_t add_row, float low, float high, float *y, size_t y_row);
    /* One row of a pool over a block of 16 channels, taps as above: the maximum (the quiet NaN 0x7fc00000
     * where a tap is NaN), or where divisor is not 0 the sum, ascending, divided by it. 0 < taps. */
    void (*pool_row)(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, float divisor,
                     float *y, size_t n);
    /* One pixel of a local response normalization, exponent 3/4: channel c = 16b + l of x and y at b*block +
     * l; y[c] = x[c] / base^(3/4), base = bias + alpha * (0 + x[i]^2 + ..), i ascending from c - (size-1)/2
     * to c + size/2, as far as there are channels. base^(3/4) is r * sqrt(r), r = sqrt(base). squares: [size
     * + 16*blocks
     * + size] scratch, its first and last `size` floats zero. */
    void (*lrn_pixel)(const float *x, size_t block, size_t blocks, size_t size, float alpha, float bias,
                      float *squares, float *y);

    /* Decisions of 64 nodes of decision trees at a time, for each of `rows` rows: bit i of masks[row * ld +
     * b] is ranks[row][feature[64b + i]] > split[64b + i]. ranks: [rows, FOREST_RANKS_U8 or _U16], of which
     * n_ranks are in use; feature: below n_ranks. ranks, feature and split are aligned to 64 bytes. */
    void (*forest_u8)(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                      const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld);
    void (*forest_u16)(const uint16_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                       const uint16_t *split, size_t blocks, uint64_t *masks, size_t ld);

    /* Pixels from..to-1 of a row resized across, from a row of in_n pixels (image.h). out: [to - from,
     * channels], channels 1..4. */
    void (*resize_across)(const resize_taps *t, size_t channels, const uint8_t *in, size_t in_n, size_t from,
                          size_t to, uint8_t *out);
    /* Output i of the taps for n bytes at once: rows[k] is input row first[i] + k. */
    void (*resize_down)(const resize_taps *t, size_t i, const uint8_t *const *rows, size_t n, uint8_t *out);
    /* The transforms of FFT_LANES real signals (fft.h). x: [n][FFT_LANES]; out: [n / 2 + 1][2][FFT_LANES],
     * real and imaginary parts; scratch: rfft_scratch floats. Nothing overlaps. */
    void (*fft_real)(const rfft_plan *p, const float *x, float *out, float *scratch);
    /* Energies of bands of FFT_LANES spectra, out [n][FFT_LANES]: of each bin re^2 + im^2, or its root for
     * magnitudes, then one chain of fused multiply-adds a band, bins ascending. spectrum: what fft_real
     * gives; power: [bins][FFT_LANES], scratch. */
    void (*band_energies)(const float *spectrum, size_t bins, bool magnitude, const spectrum_band *bands,
                          size_t n, const float *weights, float *power, float *out);
} kernels;

enum { TOP_MAX = 1024, FOREST_RANKS_U8 = 128, FOREST_RANKS_U16 = 64 };

/* Scratch for one thread. matmul: for matrices with at most max_cols columns and n at most max_tokens. */
size_t matmul_scratch(size_t max_cols, size_t max_tokens);
size_t attn_scratch(size_t max_head_dim, size_t max_group, size_t max_tokens);

/* The table of one instruction set; NULL if this processor lacks it. Static. */
const kernels *kernels_for(kernel_isa isa);
/* The best of this processor, or what CHURON_CPU names; an error if that is unknown or lacking. */
MUST_USE status kernels_select(const kernels **out, error *err);

#endif
