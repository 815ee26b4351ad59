/* attention.c: tiles of attention: lane = key in the scores, lane = dimension in the values. */
#include "kernel/attn_tiles.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/vec.h"

#include <string.h>

enum { DIRECT_ROWS = 8, PAIR_ROWS = 6, WIDE_ROWS = 6, TILE = 16, BLOCK_TILES = ATTN_BLOCK / TILE };

#define INLINE static inline __attribute__((always_inline))

/* One of two forms of 16 values: f16 in a page, or f32 in scratch. */
INLINE __m512 widen(const void *base, size_t at, bool half) {
    if (!half) return _mm512_load_ps((const float *)base + at);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)base + at)));
}

/* ---- scores ------------------------------------------------------------------------------------------ */

/* Two pages of 32 keys; `ahead`, if not NULL: what will be read next, fetched a line of each for every d. */
typedef struct page_pair {
    const void *page[2], *ahead[2];
} page_pair;

/* s[r][t*16 + lane] = scale * sum_d q[r][d] * k[t][d][lane] for `tiles` tiles of 16 keys (2 or 4); s has rows
 * of ATTN_BLOCK. */
INLINE void score_tile(const size_t rows, const size_t tiles, const bool half, const page_pair *k, size_t dim,
                       const float *const *q, float scale, float *s) {
    __m512 acc[DIRECT_ROWS][BLOCK_TILES];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t t = 0; t < tiles; t++) acc[r][t] = _mm512_setzero_ps();
    }
    for (size_t d = 0; d < dim; d++) {
        __m512 key[BLOCK_TILES];
#pragma GCC unroll 8
        for (size_t t = 0; t < tiles; t++) key[t] = widen(k->page[t / 2], (t % 2 * dim + d) * TILE, half);
        if (half) _mm_prefetch((const char *)k->ahead[0] + d * 64, _MM_HINT_T1);
        if (half && tiles > 2) _mm_prefetch((const char *)k->ahead[1] + d * 64, _MM_HINT_T1);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m512 x = _mm512_set1_ps(q[r][d]);
#pragma GCC unroll 8
            for (size_t t = 0; t < tiles; t++) acc[r][t] = _mm512_fmadd_ps(x, key[t], acc[r][t]);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t t = 0; t < tiles; t++) {
            _mm512_store_ps(s + r * ATTN_BLOCK + t * TILE, _mm512_mul_ps(acc[r][t], _mm512_set1_ps(scale)));
        }
    }
}

static void score_page(size_t rows, const page_pair *k, size_t dim, const float *const *q, float scale,
                       float *s) {
    switch (rows) {
    case 1: score_tile(1, 2, true, k, dim, q, scale, s); break;
    case 2: score_tile(2, 2, true, k, dim, q, scale, s); break;
    case 3: score_tile(3, 2, true, k, dim, q, scale, s); break;
    case 4: score_tile(4, 2, true, k, dim, q, scale, s); break;
    case 5: score_tile(5, 2, true, k, dim, q, scale, s); break;
    case 6: score_tile(6, 2, true, k, dim, q, scale, s); break;
    case 7: score_tile(7, 2, true, k, dim, q, scale, s); break;
    default: score_tile(8, 2, true, k, dim, q, scale, s); break;
    }
}

/* Two pages at once, for which up to PAIR_ROWS rows leave registers: fewer broadcasts a product. */
static void score_pair(size_t rows, const page_pair *k, size_t dim, const float *const *q, float scale,
                       float *s) {
    switch (rows) {
    case 1: score_tile(1, 4, true, k, dim, q, scale, s); break;
    case 2: score_tile(2, 4, true, k, dim, q, scale, s); break;
    case 3: score_tile(3, 4, true, k, dim, q, scale, s); break;
    case 4: score_tile(4, 4, true, k, dim, q, scale, s); break;
    case 5: score_tile(5, 4, true, k, dim, q, scale, s); break;
    default: score_tile(6, 4, true, k, dim, q, scale, s); break;
    }
}

static void score_pages(size_t rows, size_t pages, const void *const *k, size_t dim, const float *const *q,
                        float scale, float *s, const void *const *ahead) {
    if (pages == 2 && rows <= PAIR_ROWS) {
        page_pair pair = {{k[0], k[1]}, {ahead[0], ahead[1]}};
        score_pair(rows, &pair, dim, q, scale, s);
        return;
    }
    for (size_t i = 0; i < pages; i++) {
        page_pair one = {{k[i], NULL}, {ahead[i], NULL}};
        score_page(rows, &one, dim, q, scale, s + i * KV_PAGE);
    }
}

static void score_block(size_t rows, const float *wide, size_t dim, const float *const *q, float scale,
                        float *s) {
    page_pair k = {{wide, wide + KV_PAGE * dim}, {NULL, NULL}};
    switch (rows) {
    case 1: score_tile(1, 4, false, &k, dim, q, scale, s); break;
    case 2: score_tile(2, 4, false, &k, dim, q, scale, s); break;
    case 3: score_tile(3, 4, false, &k, dim, q, scale, s); break;
    case 4: score_tile(4, 4, false, &k, dim, q, scale, s); break;
    case 5: score_tile(5, 4, false, &k, dim, q, scale, s); break;
    default: score_tile(6, 4, false, &k, dim, q, scale, s); break;
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------- */

/* Scores of one row to weights; keys that `visible` lacks get 0. Rescales what the row has so far if the
 * maximum rose. */
INLINE void soften_as(const bool all, const bool capped, float *s, uint64_t visible, float soft_cap,
                      attn_partial *state, float *o, size_t dim_v) {
    const __m512 lowest = _mm512_set1_ps(-INFINITY), cap = _mm512_set1_ps(soft_cap);
    __m512 v[BLOCK_TILES], lane = lowest;
#pragma GCC unroll 4
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        v[t] = _mm512_load_ps(s + t * TILE);
        if (capped) v[t] = _mm512_mul_ps(cap, vec_tanh(_mm512_div_ps(v[t], cap)));
        if (!all) v[t] = _mm512_mask_mov_ps(lowest, (__mmask16)(visible >> (t * TILE)), v[t]);
        lane = _mm512_max_ps(v[t], lane);
    }
    float max = vec_max(lane);
    if (max > state->max) {
        __m512 factor = vec_exp_negative(_mm512_set1_ps(state->max - max));
        for (size_t d = 0; d < dim_v; d += LANES) {
            _mm512_storeu_ps(o + d, _mm512_mul_ps(_mm512_loadu_ps(o + d), factor));
        }
        state->sum *= _mm512_cvtss_f32(factor);
        state->max = max;
    }
    __m512 top = _mm512_set1_ps(state->max);
#pragma GCC unroll 4
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        v[t] = vec_exp_negative(_mm512_sub_ps(v[t], top));
        if (!all) v[t] = _mm512_maskz_mov_ps((__mmask16)(visible >> (t * TILE)), v[t]);
        _mm512_store_ps(s + t * TILE, v[t]);
    }
    state->sum += vec_sum(_mm512_add_ps(_mm512_add_ps(v[0], v[1]), _mm512_add_ps(v[2], v[3])));
}

void attn_soften_avx512(float *s, size_t from, size_t to, float soft_cap, attn_partial *state, float *o,
                        size_t dim_v) {
    uint64_t visible = (~UINT64_C(0) >> (ATTN_BLOCK - (to - from))) << from;
    bool all = visible == ~UINT64_C(0);
    if (soft_cap != 0.0f) {
        soften_as(false, true, s, visible, soft_cap, state, o, dim_v);
    } else if (all) {
        soften_as(true, false, s, visible, soft_cap, state, o, dim_v);
    } else {
        soften_as(false, false, s, visible, soft_cap, state, o, dim_v);
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* o[r][0 .. 16*panel) += sum over n keys of p[r][key] * v[key][..], keys ascending. p has rows of ATTN_BLOCK,
 * o of dim_v, v of dim_v (f16 or f32). */
INLINE void value_tile(const size_t rows, const size_t panel, const bool half, const void *v, size_t dim_v,
                       size_t n, const float *p, float *o, const char *ahead) {
    __m512 acc[DIRECT_ROWS][4];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t x = 0; x < panel; x++) acc[r][x] = _mm512_loadu_ps(o + r * dim_v + x * LANES);
    }
    for (size_t j = 0; j < n; j++) {
        __m512 value[4];
#pragma GCC unroll 8
        for (size_t x = 0; x < panel; x++) value[x] = widen(v, j * dim_v + x * LANES, half);
        if (half && panel > 1) _mm_prefetch(ahead + j * panel * 32, _MM_HINT_T1);
        if (half && panel > 3) _mm_prefetch(ahead + j * panel * 32 + 64, _MM_HINT_T1);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m512 weight = _mm512_set1_ps(p[r * ATTN_BLOCK + j]);
#pragma GCC unroll 8
            for (size_t x = 0; x < panel; x++) acc[r][x] = _mm512_fmadd_ps(weight, value[x], acc[r][x]);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t x = 0; x < panel; x++) _mm512_storeu_ps(o + r * dim_v + x * LANES, acc[r][x]);
    }
}

/* Panels of 4 registers, or 2 where 7 or 8 rows leave no more; the rest of the dimensions in one smaller. */
INLINE void value_rows(const size_t rows, const bool half, const void *v, size_t dim_v, size_t n,
                       const float *p, float *o, const char *ahead) {
    const size_t most = rows <= WIDE_ROWS ? 4 : 2;
    size_t left = dim_v / LANES, size = half ? sizeof(uint16_t) : sizeof(float);
    for (; left >= most; left -= most) {
        value_tile(rows, most, half, v, dim_v, n, p, o, ahead);
        ahead += KV_PAGE * most * 32;
        v = (const char *)v + most * LANES * size;
        o += most * LANES;
    }
    if (left == 3 && most > 3) value_tile(rows, 3, half, v, dim_v, n, p, o, ahead);
    if (left == 2 && most > 2) value_tile(rows, 2, half, v, dim_v, n, p, o, ahead);
    if (left == 1) value_tile(rows, 1, half, v, dim_v, n, p, o, ahead);
}

static void value_page(size_t rows, const uint16_t *v, size_t dim_v, size_t n, const float *p, float *o,
                       const void *ahead) {
    switch (rows) {
    case 1: value_rows(1, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 2: value_rows(2, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 3: value_rows(3, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 4: value_rows(4, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 5: value_rows(5, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 6: value_rows(6, true, v, dim_v, n, p, o, (const char *)ahead); break;
    case 7: value_rows(7, true, v, dim_v, n, p, o, (const char *)ahead); break;
    default: value_rows(8, true, v, dim_v, n, p, o, (const char *)ahead); break;
    }
}

static void value_block(size_t rows, const float *v, size_t dim_v, size_t n, const float *p, float *o) {
    switch (rows) {
    case 1: value_rows(1, false, v, dim_v, n, p, o, NULL); break;
    case 2: value_rows(2, false, v, dim_v, n, p, o, NULL); break;
    case 3: value_rows(3, false, v, dim_v, n, p, o, NULL); break;
    case 4: value_rows(4, false, v, dim_v, n, p, o, NULL); break;
    case 5: value_rows(5, false, v, dim_v, n, p, o, NULL); break;
    default: value_rows(6, false, v, dim_v, n, p, o, NULL); break;
    }
}

static void widen_all(const uint16_t *from, float *to, size_t n) {
    for (size_t i = 0; i < n; i += LANES) _mm512_store_ps(to + i, widen(from, i, true));
}

static const attn_tiles tiles = {
    .direct_rows = DIRECT_ROWS,
    .wide_rows = WIDE_ROWS,
    .score_pages = score_pages,
    .score_block = score_block,
    .soften = attn_soften_avx512,
    .value_page = value_page,
    .value_block = value_block,
    .widen = widen_all,
};

void attn_chunk_avx512(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                       attn_partial *partial, float *o, void *scratch) {
    attn_chunk_tiled(&tiles, h, q, ldq, n, pos, c, partial, o, scratch);
}

void attn_merge_avx512(attn_partial *into, float *o_into, const attn_partial *from, const float *o_from,
                       size_t head_dim_v) {
    if (from->sum == 0.0f) return; /* it saw no key */
    if (into->sum == 0.0f) {
        *into = *from;
        memcpy(o_into, o_from, head_dim_v * sizeof *o_into);
        return;
    }
    float max = into->max > from->max ? into->max : from->max;
    __m512 a = vec_exp_negative(_mm512_set1_ps(into->max - max));
    __m512 b = vec_exp_negative(_mm512_set1_ps(from->max - max));
    for (size_t d = 0; d < head_dim_v; d += LANES) {
        __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(o_into + d), a);
        _mm512_storeu_ps(o_into + d, _mm512_fmadd_ps(_mm512_loadu_ps(o_from + d), b, kept));
    }
    __m128 sum = _mm_mul_ss(_mm_set_ss(into->sum), _mm512_castps512_ps128(a));
    sum = _mm_fmadd_ss(_mm_set_ss(from->sum), _mm512_castps512_ps128(b), sum);
    *into = (attn_partial){max, _mm_cvtss_f32(sum)};
}

void attn_finish_avx512(const attn_partial *p, const float *o, size_t head_dim_v, float *out) {
    __m512 sum = _mm512_set1_ps(p->sum);
    for (size_t d = 0; d < head_dim_v; d += LANES) {
        _mm512_storeu_ps(out + d, _mm512_div_ps(_mm512_loadu_ps(o + d), sum));
    }
}
