/* attention.c: tiles of attention: lane = key in the scores, lane = dimension in the values; 16 keys are two
 * registers. Up to 3 rows take 4 registers of keys or values, more rows 2: 12 sums at most. */
#include "kernel/attn_tiles.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

#include <string.h>

enum { ROWS = 6, FEW_ROWS = 3, WIDTH = 4, TILE = 16 };

#define INLINE static inline __attribute__((always_inline))

/* One of two forms of 8 values: f16 in a page, or f32 in scratch. */
INLINE __m256 widen(const void *base, size_t at, bool half) {
    if (!half) return _mm256_load_ps((const float *)base + at);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)base + at)));
}

/* ---- scores ------------------------------------------------------------------------------------------ */

/* s[r][lane] for `width` registers of keys (2: one tile of 16 keys, 4: two); ahead: fetched, a line for each
 * d, if not NULL. */
INLINE void score_tile(const size_t rows, const size_t width, const bool half, const void *k, size_t dim,
                       const float *const *q, float scale, float *s, const char *ahead) {
    __m256 acc[ROWS][WIDTH];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t v = 0; v < width; v++) acc[r][v] = _mm256_setzero_ps();
    }
    for (size_t d = 0; d < dim; d++) {
        __m256 x[ROWS];
        if (half && ahead != NULL) _mm_prefetch(ahead + d * 64, _MM_HINT_T1);
        if (rows <= FEW_ROWS) {
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) x[r] = _mm256_broadcast_ss(q[r] + d);
#pragma GCC unroll 8
            for (size_t v = 0; v < width; v++) {
                __m256 key = widen(k, (v / 2 * dim + d) * TILE + v % 2 * VEC, half);
#pragma GCC unroll 8
                for (size_t r = 0; r < rows; r++) acc[r][v] = _mm256_fmadd_ps(x[r], key, acc[r][v]);
            }
        } else {
            __m256 lo = widen(k, d * TILE, half), hi = widen(k, d * TILE + VEC, half);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                x[r] = _mm256_broadcast_ss(q[r] + d);
                acc[r][0] = _mm256_fmadd_ps(x[r], lo, acc[r][0]);
                acc[r][1] = _mm256_fmadd_ps(x[r], hi, acc[r][1]);
            }
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t v = 0; v < width; v++) {
            _mm256_store_ps(s + r * ATTN_BLOCK + v * VEC, _mm256_mul_ps(acc[r][v], _mm256_set1_ps(scale)));
        }
    }
}

/* n tiles of 16 keys against up to ROWS rows. */
INLINE void score_tiles(const size_t rows, const bool half, size_t n, const void *k, size_t dim,
                        const float *const *q, float scale, float *s, const char *ahead) {
    const size_t at_once = rows <= FEW_ROWS ? 2 : 1, size = half ? sizeof(uint16_t) : sizeof(float);
    for (size_t t = 0; t < n; t += at_once) {
        score_tile(rows, 2 * at_once, half, (const char *)k + t * dim * TILE * size, dim, q, scale,
                   s + t * TILE, t == 0 ? ahead : NULL);
    }
}

static void score_page(size_t rows, const uint16_t *k, size_t dim, const float *const *q, float scale,
                       float *s, const char *ahead) {
    switch (rows) {
    case 1: score_tiles(1, true, 2, k, dim, q, scale, s, ahead); break;
    case 2: score_tiles(2, true, 2, k, dim, q, scale, s, ahead); break;
    case 3: score_tiles(3, true, 2, k, dim, q, scale, s, ahead); break;
    case 4: score_tiles(4, true, 2, k, dim, q, scale, s, ahead); break;
    case 5: score_tiles(5, true, 2, k, dim, q, scale, s, ahead); break;
    default: score_tiles(6, true, 2, k, dim, q, scale, s, ahead); break;
    }
}

static void score_pages(size_t rows, size_t pages, const void *const *k, size_t dim, const float *const *q,
                        float scale, float *s, const void *const *ahead) {
    for (size_t i = 0; i < pages; i++) {
        score_page(rows, k[i], dim, q, scale, s + i * KV_PAGE, (const char *)ahead[i]);
    }
}

static void score_block(size_t rows, const float *k, size_t dim, const float *const *q, float scale,
                        float *s) {
    switch (rows) {
    case 1: score_tiles(1, false, 4, k, dim, q, scale, s, NULL); break;
    case 2: score_tiles(2, false, 4, k, dim, q, scale, s, NULL); break;
    case 3: score_tiles(3, false, 4, k, dim, q, scale, s, NULL); break;
    case 4: score_tiles(4, false, 4, k, dim, q, scale, s, NULL); break;
    case 5: score_tiles(5, false, 4, k, dim, q, scale, s, NULL); break;
    default: score_tiles(6, false, 4, k, dim, q, scale, s, NULL); break;
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------- */

enum { BLOCK_VECS = ATTN_BLOCK / VEC };

/* All ones in the lanes of register v whose keys lie in [from, to) of the block. */
INLINE __m256 lanes_within(size_t v, size_t from, size_t to) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i key = _mm256_add_epi32(lane, _mm256_set1_epi32((int)(v * VEC)));
    __m256i low = _mm256_cmpgt_epi32(key, _mm256_set1_epi32((int)from - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(low, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)to), key)));
}

static void raise_max(float max, attn_partial *state, float *o, size_t dim_v) {
    __m256 factor = vec_exp_negative(_mm256_set1_ps(state->max - max));
    for (size_t d = 0; d < dim_v; d += VEC) {
        _mm256_storeu_ps(o + d, _mm256_mul_ps(_mm256_loadu_ps(o + d), factor));
    }
    state->sum *= _mm256_cvtss_f32(factor);
    state->max = max;
}

INLINE void soften_as(const bool all, const bool capped, float *s, size_t from, size_t to, float soft_cap,
                      attn_partial *state, float *o, size_t dim_v) {
    const __m256 lowest = _mm256_set1_ps(-INFINITY), cap = _mm256_set1_ps(soft_cap);
    __m256 v[BLOCK_VECS], lane[2] = {lowest, lowest};
#pragma GCC unroll 8
    for (size_t i = 0; i < BLOCK_VECS; i++) {
        v[i] = _mm256_load_ps(s + i * VEC);
        if (capped) v[i] = _mm256_mul_ps(cap, vec_tanh(_mm256_div_ps(v[i], cap)));
        if (!all) v[i] = _mm256_blendv_ps(lowest, v[i], lanes_within(i, from, to));
        lane[i % 2] = _mm256_max_ps(v[i], lane[i % 2]);
    }
    float max = vec_max(lane[0], lane[1]);
    if (max > state->max) raise_max(max, state, o, dim_v);
    __m256 top = _mm256_set1_ps(state->max);
#pragma GCC unroll 8
    for (size_t i = 0; i < BLOCK_VECS; i++) {
        v[i] = vec_exp_negative(_mm256_sub_ps(v[i], top));
        if (!all) v[i] = _mm256_and_ps(v[i], lanes_within(i, from, to));
        _mm256_store_ps(s + i * VEC, v[i]);
    }
    __m256 lo = _mm256_add_ps(_mm256_add_ps(v[0], v[2]), _mm256_add_ps(v[4], v[6]));
    __m256 hi = _mm256_add_ps(_mm256_add_ps(v[1], v[3]), _mm256_add_ps(v[5], v[7]));
    state->sum += vec_sum(lo, hi);
}

void attn_soften_avx2(float *s, size_t from, size_t to, float soft_cap, attn_partial *state, float *o,
                      size_t dim_v) {
    if (soft_cap != 0.0f) {
        soften_as(false, true, s, from, to, soft_cap, state, o, dim_v);
    } else if (to - from == ATTN_BLOCK) {
        soften_as(true, false, s, from, to, soft_cap, state, o, dim_v);
    } else {
        soften_as(false, false, s, from, to, soft_cap, state, o, dim_v);
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* o[r][0 .. 8*panel) += sum over n keys of p[r][key] * v[key][..], keys ascending. A line of `ahead` is
 * fetched for every 32 values. */
INLINE void value_tile(const size_t rows, const size_t panel, const bool half, const void *v, size_t dim_v,
                       size_t n, const float *p, float *o, const char *ahead) {
    __m256 acc[ROWS][WIDTH];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t x = 0; x < panel; x++) acc[r][x] = _mm256_loadu_ps(o + r * dim_v + x * VEC);
    }
    for (size_t j = 0; j < n; j++) {
        __m256 weight[ROWS];
        if (half && (panel > 2 || j % 2 == 0)) _mm_prefetch(ahead + j * panel * 16, _MM_HINT_T1);
        if (rows <= FEW_ROWS) {
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) weight[r] = _mm256_broadcast_ss(p + r * ATTN_BLOCK + j);
#pragma GCC unroll 8
            for (size_t x = 0; x < panel; x++) {
                __m256 value = widen(v, j * dim_v + x * VEC, half);
#pragma GCC unroll 8
                for (size_t r = 0; r < rows; r++) acc[r][x] = _mm256_fmadd_ps(weight[r], value, acc[r][x]);
            }
        } else {
            __m256 lo = widen(v, j * dim_v, half), hi = widen(v, j * dim_v + VEC, half);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                weight[r] = _mm256_broadcast_ss(p + r * ATTN_BLOCK + j);
                acc[r][0] = _mm256_fmadd_ps(weight[r], lo, acc[r][0]);
                acc[r][1] = _mm256_fmadd_ps(weight[r], hi, acc[r][1]);
            }
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t x = 0; x < panel; x++) _mm256_storeu_ps(o + r * dim_v + x * VEC, acc[r][x]);
    }
}

INLINE void value_rows(const size_t rows, const bool half, const void *v, size_t dim_v, size_t n,
                       const float *p, float *o, const char *ahead) {
    const size_t most = rows <= FEW_ROWS ? 4 : 2, size = half ? sizeof(uint16_t) : sizeof(float);
    size_t left = dim_v / VEC;
    for (; left >= most; left -= most) {
        value_tile(rows, most, half, v, dim_v, n, p, o, ahead);
        v = (const char *)v + most * VEC * size;
        o += most * VEC;
        if (half) ahead += KV_PAGE * most * 16;
    }
    if (left == 2 && most > 2) value_tile(rows, 2, half, v, dim_v, n, p, o, ahead);
}

static void value_page(size_t rows, const uint16_t *v, size_t dim_v, size_t n, const float *p, float *o,
                       const void *next) {
    const char *ahead = (const char *)next;
    switch (rows) {
    case 1: value_rows(1, true, v, dim_v, n, p, o, ahead); break;
    case 2: value_rows(2, true, v, dim_v, n, p, o, ahead); break;
    case 3: value_rows(3, true, v, dim_v, n, p, o, ahead); break;
    case 4: value_rows(4, true, v, dim_v, n, p, o, ahead); break;
    case 5: value_rows(5, true, v, dim_v, n, p, o, ahead); break;
    default: value_rows(6, true, v, dim_v, n, p, o, ahead); break;
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
    for (size_t i = 0; i < n; i += VEC) _mm256_store_ps(to + i, widen(from, i, true));
}

static const attn_tiles tiles = {
    .direct_rows = ROWS,
    .wide_rows = ROWS,
    .score_pages = score_pages,
    .score_block = score_block,
    .soften = attn_soften_avx2,
    .value_page = value_page,
    .value_block = value_block,
    .widen = widen_all,
};

void attn_chunk_avx2(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                     attn_partial *partial, float *o, void *scratch) {
    attn_chunk_tiled(&tiles, h, q, ldq, n, pos, c, partial, o, scratch);
}

void attn_merge_avx2(attn_partial *into, float *o_into, const attn_partial *from, const float *o_from,
                     size_t head_dim_v) {
    if (from->sum == 0.0f) return; /* it saw no key */
    if (into->sum == 0.0f) {
        *into = *from;
        memcpy(o_into, o_from, head_dim_v * sizeof *o_into);
        return;
    }
    float max = into->max > from->max ? into->max : from->max;
    __m256 a = vec_exp_negative(_mm256_set1_ps(into->max - max));
    __m256 b = vec_exp_negative(_mm256_set1_ps(from->max - max));
    for (size_t d = 0; d < head_dim_v; d += VEC) {
        __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(o_into + d), a);
        _mm256_storeu_ps(o_into + d, _mm256_fmadd_ps(_mm256_loadu_ps(o_from + d), b, kept));
    }
    __m128 sum = _mm_mul_ss(_mm_set_ss(into->sum), _mm256_castps256_ps128(a));
    sum = _mm_fmadd_ss(_mm_set_ss(from->sum), _mm256_castps256_ps128(b), sum);
    *into = (attn_partial){max, _mm_cvtss_f32(sum)};
}

void attn_finish_avx2(const attn_partial *p, const float *o, size_t head_dim_v, float *out) {
    __m256 sum = _mm256_set1_ps(p->sum);
    for (size_t d = 0; d < head_dim_v; d += VEC) {
        _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(o + d), sum));
    }
}
