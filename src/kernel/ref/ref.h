/* ref.h: the scalar reference: portable C that defines what every other table must compute.
 *
 * Contracts: the fields of the same names in kernel.h. Only table.c and the other files of this folder
 * include this. */
#ifndef KERNEL_REF_REF_H
#define KERNEL_REF_REF_H

#include "kernel/kernel.h"

void matmul_ref(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y, size_t ldy,
                void *scratch);
void unpack_row_ref(const packed *w, size_t row, float *out);
void quantize_ref(const float *x, size_t n, int8_t *q, float *scale, int16_t *sum16);
void rms_norm_ref(const float *x, const float *w, size_t n, float eps, float *y);
void add_ref(float *y, const float *x, size_t n);
void scale_ref(float *y, float s, size_t n);
void silu_mul_ref(const float *gate, const float *up, float *y, size_t n);
void gelu_tanh_mul_ref(const float *gate, const float *up, float *y, size_t n);
void soft_cap_ref(float *y, float cap, size_t n);
void rope_ref(float *head, const float *cos_sin, size_t n_rot, bool interleaved);
void kv_store_ref(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k, const float *v,
                  size_t head_dim_v);
void kv_store_q8_ref(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k,
                     const float *v, size_t head_dim_v);
void attn_chunk_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                    attn_partial *partial, float *o, void *scratch);
void attn_chunk_q8_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                       attn_partial *partial, float *o, void *scratch);
void attn_merge_ref(attn_partial *into, float *o_into, const attn_partial *from, const float *o_from,
                    size_t head_dim_v);
void attn_finish_ref(const attn_partial *p, const float *o, size_t head_dim_v, float *out);
/* The softmax of a block's scores s, -infinity outside the visible keys [from, to): s becomes the weights;
 * the state and o are rescaled if the maximum rose. */
void attn_soften_ref(float s[ATTN_BLOCK], size_t from, size_t to, attn_partial *state, float *o,
                     size_t dim_v);
/* Runs `one` for each query head, with the keys [from, to) that it sees of chunk c (from == to: none). */
typedef void (*attn_query_fn)(const attn_head *h, const float *q, size_t from, size_t to,
                              attn_partial *partial, float *o);
void attn_each_query_ref(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                         attn_partial *partial, float *o, attn_query_fn one);
void log_sum_exp_ref(const float *x, size_t n, float *max, float *lse);
void sum_above_ref(const float *x, const float *w, size_t n, float least, double *sum, size_t *count);
void top_k_ref(const float *x, size_t n, size_t k, uint32_t *index, float *value);
void exp_ref(const float *x, float *y, size_t n);
void softmax_ref(const float *x, float *y, size_t n);
void gemm64_tile_ref(const gemm64_tile *t, size_t rows, size_t columns);
void unary64_ref(kernel_unary f, const double *x, double *y, size_t n);
void vector_matrix_ref(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y);
void widen_f16_ref(const uint16_t *x, float *y, size_t n);
void narrow_f16_ref(const float *x, uint16_t *y, size_t n);
void layer_norm_ref(const float *x, const float *w, const float *b, size_t n, float eps, float *y);
void unary_ref(kernel_unary f, float p, float q, const float *x, float *y, size_t n);
void depthwise_row_ref(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, const float *w,
                       const float *bias, const float *add, float low, float high, float *y, size_t n);
void lrn_pixel_ref(const float *x, size_t block, size_t blocks, size_t size, float alpha, float bias,
                   float *squares, float *y);
void pool_row_ref(const float *x, size_t x_step, const ptrdiff_t *tap, size_t taps, float divisor, float *y,
                  size_t n);
void winograd_input_ref(const float *x, size_t x_row, float *v, size_t v_point);
void winograd_output_ref(const float *m, size_t m_point, const float *bias, const float *add, size_t add_row,
                         float low, float high, float *y, size_t y_row);
void gemm_tile_ref(const gemm_tile *t, gemm_rows rows, size_t n_rows, size_t n_panels);
void qgemm_tile_ref(const qgemm_tile *t, size_t n_rows, size_t n_panels);
void range_ref(const float *x, size_t n, float *least, float *most);
void quantize_u8_ref(const float *x, size_t n, float scale, int32_t zero, uint8_t *y);
void requantize_ref(const int32_t *x, const float *scale, size_t n, int32_t zero, int32_t low, int32_t high,
                    uint8_t *y);
void qdepthwise_row_ref(const qdepthwise *d, const uint8_t *x, uint8_t *y, size_t n);
void qpool_row_ref(const qpool *p, const uint8_t *x, uint8_t *y, size_t n);
void qpair_ref(const qpair *p, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t n);
void lookup_ref(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n);

void forest_u8_ref(const uint8_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                   const uint8_t *split, size_t blocks, uint64_t *masks, size_t ld);
void forest_u16_ref(const uint16_t *ranks, size_t rows, size_t n_ranks, const uint8_t *feature,
                    const uint16_t *split, size_t blocks, uint64_t *masks, size_t ld);

void resize_across_ref(const resize_taps *t, size_t channels, const uint8_t *in, size_t in_n, size_t from,
                       size_t to, uint8_t *out);
void resize_down_ref(const resize_taps *t, size_t i, const uint8_t *const *rows, size_t n, uint8_t *out);
void fft_real_ref(const rfft_plan *p, const float *x, float *out, float *scratch);
void band_energies_ref(const float *spectrum, size_t bins, bool magnitude, const spectrum_band *bands,
                       size_t n, const float *weights, float *power, float *out);

#endif
