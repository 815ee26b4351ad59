/* attn_tiles.h: attention by tiles, for instruction sets that bring the arithmetic of one tile.
 *
 * A row is a query of one head; all rows of a call read the same keys and values, so a block of 64 keys is
 * taken through all of them before the next. Up to `direct_rows` rows (decode) read the f16 pages themselves,
 * each conversion serving all rows. More rows (prefill) go in slabs through keys and values that are widened
 * once. Both ways run the chains of ref/attention.c, so a row's bits do not depend on its company. Only the
 * instruction sets' attention.c include this. */
#ifndef KERNEL_ATTN_TILES_H
#define KERNEL_ATTN_TILES_H

#include "kernel/kernel.h"

/* Rows of scores and weights are ATTN_BLOCK floats apart, rows of o and v head_dim_v. All pointers into
 * scratch are 64-byte aligned. */
typedef struct attn_tiles {
    size_t direct_rows; /* most rows that read pages */
    size_t wide_rows;   /* rows of a tile over widened keys and values */

    /* s[r][lane] = scale * sum_d q[r][d] * k[d][lane] over `pages` (1 or 2) pages of 32 keys, for up to
     * direct_rows rows. ahead[i]: a page of values that will be read soon. */
    void (*score_pages)(size_t rows, size_t pages, const void *const *k, size_t dim, const float *const *q,
                        float scale, float *s, const void *const *ahead);
    /* The same over a widened block of 64 keys, for up to wide_rows rows. */
    void (*score_block)(size_t rows, const float *k, size_t dim, const float *const *q, float scale,
                        float *s);
    /* Scores of one row to weights; keys of the block outside [from, to) get 0. Rescales the row's sum and o
     * if the maximum rose. */
    void (*soften)(float *s, size_t from, size_t to, float soft_cap, attn_partial *state, float *o,
                   size_t dim_v);
    /* o[r] += sum over n keys of p[r][key] * v[key], keys ascending. ahead: a page of keys that will be read
     * soon. */
    void (*value_page)(size_t rows, const uint16_t *v, size_t dim_v, size_t n, const float *p, float *o,
                       const void *ahead);
    void (*value_block)(size_t rows, const float *v, size_t dim_v, size_t n, const float *p, float *o);
    void (*widen)(const uint16_t *from, float *to, size_t n); /* n: a multiple of 16 */
} attn_tiles;

/* kernels.attn_chunk over these tiles. */
void attn_chunk_tiled(const attn_tiles *tiles, const attn_head *h, const float *q, size_t ldq, size_t n,
                      size_t pos, size_t c, attn_partial *partial, float *o, void *scratch);

/* ---- KV_Q8 ------------------------------------------------------------------------------------------- */

/* A tile of rows (at most `rows`) over a block of 64 keys in two pages, read as they are. A page that does
 * not exist is given as the other one: its keys have the weight 0. */
typedef struct attn_tiles_q8 {
    size_t rows;

    /* q: [dim] to 16-bit integers; returns their scale. */
    float (*narrow)(const float *q, size_t dim, int16_t *out);
    /* s[r][key] = factor[r] * score; q: [rows, dim]. ahead: two pages of values that will be read soon. */
    void (*score)(size_t rows, const void *const k[2], size_t dim, const int16_t *q, const float *factor,
                  float *s, const void *const ahead[2]);
    void (*soften)(float *s, size_t from, size_t to, float soft_cap, attn_partial *state, float *o,
                   size_t dim_v);
    /* One row's weights p of the keys [from, to), times the values' scales, as integers w [blocks,
     * ATTN_BLOCK] with one scale each; 0 for the other keys. */
    void (*weigh)(const float *p, size_t from, size_t to, const void *const v[2], size_t dim_v, int16_t *w,
                  float *scale);
    /* o[r] += scale * sum of w*v over the keys [from, to), both even. w: [rows, blocks, ATTN_BLOCK], scale:
     * [rows, blocks]. ahead: two pages of keys that will be read soon. */
    void (*values)(size_t rows, const void *const v[2], size_t dim_v, size_t from, size_t to,
                   const int16_t *w, const float *scale, float *o, const void *const ahead[2]);
} attn_tiles_q8;

enum { ATTN_TILE_Q8 = 8 }; /* most rows of a tile */

void attn_chunk_tiled_q8(const attn_tiles_q8 *tiles, const attn_head *h, const float *q, size_t ldq, size_t n,
                         size_t pos, size_t c, attn_partial *partial, float *o, void *scratch);

#endif
