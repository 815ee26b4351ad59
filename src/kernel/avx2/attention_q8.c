/* attention_q8.c: tiles of attention over KV_Q8 pages; attn_q8.h says what they compute. A register holds 16
 * products' operands in 16 bits: two dimensions of 8 keys in the scores, two keys of 8 dimensions in the
 * values. Tiles are 16 keys or dimensions wide: with 4 rows, 8 sums. */
#include "kernel/attn_q8.h"
#include "kernel/attn_tiles.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

enum { ROWS = 4, TILE = 16, BLOCK_VECS = ATTN_BLOCK / VEC, PAIRS = KV_PAGE / 2 };
_Static_assert((size_t)ROWS <= (size_t)ATTN_TILE_Q8, "scratch has room for a tile");

#define INLINE static inline __attribute__((always_inline))

/* 16 bytes as 16-bit integers. */
INLINE __m256i wide(const int8_t *from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

/* Two neighbouring 16-bit integers in every lane. */
INLINE __m256i pair_of(const int16_t *from) {
    int32_t both;
    memcpy(&both, from, sizeof both);
    return _mm256_set1_epi32(both);
}

INLINE __m256i multiply_add(__m256i acc, __m256i a, __m256i b) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

INLINE __m256 scales_of(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

INLINE __m256i magnitude(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MAX));
}

INLINE uint32_t largest(__m256i x) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* round(x * inverse) of 16 values, saturated to 16 bits, in order. */
INLINE __m256i rounded(__m256 low, __m256 high, float inverse) {
    __m256 by = _mm256_set1_ps(inverse);
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(low, by)),
                                      _mm256_cvtps_epi32(_mm256_mul_ps(high, by)));
    return _mm256_permute4x64_epi64(both, 0xd8);
}

/* ---- store ------------------------------------------------------------------------------------------- */

/* n = 16 or 32 values to int8; returns the scale. */
static uint16_t quantize_block(const float *x, size_t n, int8_t q[KV_Q8_BLOCK]) {
    __m256i most = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += VEC) most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(x + i)));
    q_scale s;
    uint16_t half = kv_q8_scale(largest(most), &s);
    for (size_t i = 0; i < n; i += TILE) {
        __m256i wide16 = rounded(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + VEC), s.inverse);
        __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(wide16), _mm256_extracti128_si256(wide16, 1));
        bytes = _mm_max_epi8(bytes, _mm_set1_epi8(-KV_Q8_MOST));
        if (s.inverse == 0.0f) bytes = _mm_setzero_si128(); /* also where x is NaN */
        _mm_storeu_si128((__m128i *)(void *)(q + i), bytes);
    }
    return half;
}

void kv_store_q8_avx2(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k,
                      const float *v, size_t head_dim_v) {
    int8_t *kq = (int8_t *)k_page + slot / TILE * TILE * head_dim_k + slot % TILE * 2;
    int8_t *vq = (int8_t *)v_page + slot / 2 * head_dim_v * 2 + slot % 2;
    uint16_t *k_scale = (uint16_t *)(void *)((int8_t *)k_page + KV_PAGE * head_dim_k) + slot;
    uint16_t *v_scale = (uint16_t *)(void *)((int8_t *)v_page + KV_PAGE * head_dim_v) + slot;
    int8_t q[KV_Q8_BLOCK];
    for (size_t d = 0; d < head_dim_k; d += KV_Q8_BLOCK, k_scale += KV_PAGE) {
        size_t n = head_dim_k - d < KV_Q8_BLOCK ? head_dim_k - d : KV_Q8_BLOCK;
        *k_scale = quantize_block(k + d, n, q);
        for (size_t i = 0; i < n; i += 2) memcpy(kq + (d + i) * TILE, q + i, 2);
    }
    for (size_t d = 0; d < head_dim_v; d += KV_Q8_BLOCK, v_scale += KV_PAGE) {
        size_t n = head_dim_v - d < KV_Q8_BLOCK ? head_dim_v - d : KV_Q8_BLOCK;
        *v_scale = quantize_block(v + d, n, q);
        for (size_t i = 0; i < n; i++) vq[(d + i) * 2] = q[i];
    }
}

/* The scales of the block of dimensions at d, of two pages. */
INLINE void fetch_scales(const void *const ahead[2], size_t dim, size_t d) {
    _mm_prefetch((const char *)ahead[0] + KV_PAGE * dim + d * 2, _MM_HINT_T1);
    _mm_prefetch((const char *)ahead[1] + KV_PAGE * dim + d * 2, _MM_HINT_T1);
}

/* ---- scores ------------------------------------------------------------------------------------------ */

static float narrow(const float *q, size_t dim, int16_t *out) {
    __m256i most = _mm256_setzero_si256();
    for (size_t d = 0; d < dim; d += VEC) most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(q + d)));
    q_scale s = q16_scale(largest(most));
    for (size_t d = 0; d < dim; d += TILE) {
        __m256i i = rounded(_mm256_loadu_ps(q + d), _mm256_loadu_ps(q + d + VEC), s.inverse);
        _mm256_storeu_si256((__m256i *)(void *)(out + d), i);
    }
    return s.scale;
}

/* 16 keys, whose scales of the first block are at `scale`; a line of `ahead` is fetched for each pair. */
INLINE void score_tile(const size_t rows, const int8_t *k, const uint16_t *scale, size_t dim,
                       const int16_t *q, const float *factor, float *s, const char *ahead) {
    for (size_t d = 0; d < dim; scale += KV_PAGE) {
        const size_t first = d, end = dim - d < KV_Q8_BLOCK ? dim : d + KV_Q8_BLOCK;
        __m256i acc[ROWS][2];
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
        for (; d < end; d += 2) {
            __m256i low = wide(k + d * TILE), high = wide(k + d * TILE + TILE);
            _mm_prefetch(ahead + d * TILE, _MM_HINT_T1);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                __m256i x = pair_of(q + r * dim + d);
                acc[r][0] = multiply_add(acc[r][0], low, x);
                acc[r][1] = multiply_add(acc[r][1], high, x);
            }
        }
#pragma GCC unroll 2
        for (size_t t = 0; t < 2; t++) {
            __m256 of_key = scales_of(scale + t * VEC);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                float *to = s + r * ATTN_BLOCK + t * VEC;
                __m256 before = first == 0 ? _mm256_setzero_ps() : _mm256_load_ps(to);
                __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][t]), of_key, before);
                if (end == dim) sum = _mm256_mul_ps(sum, _mm256_set1_ps(factor[r]));
                _mm256_store_ps(to, sum);
            }
        }
    }
}

INLINE void score_rows(const size_t rows, const void *const page[2], size_t dim, const int16_t *q,
                       const float *factor, float *s, const void *const ahead[2]) {
    for (size_t t = 0; t < ATTN_BLOCK / TILE; t++) {
        const int8_t *k = page[t / 2];
        score_tile(rows, k + t % 2 * TILE * dim, kv_q8_scales(k, dim) + t % 2 * TILE, dim, q, factor,
                   s + t * TILE, (const char *)ahead[t / 2] + t % 2 * TILE * dim);
    }
    for (size_t d = 0; d < dim; d += KV_Q8_BLOCK) fetch_scales(ahead, dim, d);
}

static void score(size_t rows, const void *const k[2], size_t dim, const int16_t *q, const float *factor,
                  float *s, const void *const ahead[2]) {
    switch (rows) {
    case 1: score_rows(1, k, dim, q, factor, s, ahead); break;
    case 2: score_rows(2, k, dim, q, factor, s, ahead); break;
    case 3: score_rows(3, k, dim, q, factor, s, ahead); break;
    default: score_rows(4, k, dim, q, factor, s, ahead); break;
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* All ones in the lanes of register v whose keys lie in [from, to) of the block. */
INLINE __m256 lanes_within(size_t v, size_t from, size_t to) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i key = _mm256_add_epi32(lane, _mm256_set1_epi32((int)(v * VEC)));
    __m256i low = _mm256_cmpgt_epi32(key, _mm256_set1_epi32((int)from - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(low, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)to), key)));
}

static void weigh(const float *p, size_t from, size_t to, const void *const v[2], size_t dim_v, int16_t *w,
                  float *scale) {
    const uint16_t *of[2] = {kv_q8_scales(v[0], dim_v), kv_q8_scales(v[1], dim_v)};
    const bool all = to - from == ATTN_BLOCK;
    for (size_t d = 0; d < dim_v; d += KV_Q8_BLOCK, w += ATTN_BLOCK, scale++) {
        __m256 x[BLOCK_VECS];
        __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (size_t i = 0; i < BLOCK_VECS; i++) {
            x[i] = _mm256_mul_ps(_mm256_load_ps(p + i * VEC), scales_of(of[i / 4] + i % 4 * VEC));
            if (!all) x[i] = _mm256_and_ps(x[i], lanes_within(i, from, to));
            most = _mm256_max_epi32(most, magnitude(x[i]));
        }
        q_scale s = q16_scale(largest(most));
        *scale = s.scale;
#pragma GCC unroll 4
        for (size_t i = 0; i < BLOCK_VECS; i += 2) {
            _mm256_storeu_si256((__m256i *)(void *)(w + i * VEC), rounded(x[i], x[i + 1], s.inverse));
        }
        of[0] += KV_PAGE;
        of[1] += KV_PAGE;
    }
}

/* 16 dimensions from `at` on. w, scale: of their block; a row's are `blocks` blocks apart. */
INLINE void value_tile(const size_t rows, const void *const page[2], size_t at, size_t dim_v, size_t from,
                       size_t to, const int16_t *w, const float *scale, size_t blocks, float *o,
                       const void *const ahead[2]) {
    __m256i acc[ROWS][2];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (size_t pair = from / 2; pair < to / 2; pair++) {
        const size_t where = (pair % PAIRS * dim_v + at) * 2;
        const int8_t *v = (const int8_t *)page[pair / PAIRS] + where;
        __m256i low = wide(v), high = wide(v + TILE);
        if (at % KV_Q8_BLOCK == 0) {
            _mm_prefetch((const char *)ahead[pair / PAIRS] + where, _MM_HINT_T1);
        }
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m256i weight = pair_of(w + r * blocks * ATTN_BLOCK + 2 * pair);
            acc[r][0] = multiply_add(acc[r][0], low, weight);
            acc[r][1] = multiply_add(acc[r][1], high, weight);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
        __m256 s = _mm256_set1_ps(scale[r * blocks]);
#pragma GCC unroll 2
        for (size_t t = 0; t < 2; t++) {
            float *to_o = o + r * dim_v + at + t * VEC;
            _mm256_storeu_ps(to_o, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][t]), s, _mm256_loadu_ps(to_o)));
        }
    }
}

INLINE void value_rows(const size_t rows, const void *const v[2], size_t dim_v, size_t from, size_t to,
                       const int16_t *w, const float *scale, float *o, const void *const ahead[2]) {
    const size_t blocks = kv_q8_blocks(dim_v);
    for (size_t at = 0; at < dim_v; at += TILE) {
        const size_t b = at / KV_Q8_BLOCK;
        value_tile(rows, v, at, dim_v, from, to, w + b * ATTN_BLOCK, scale + b, blocks, o, ahead);
        if (at % KV_Q8_BLOCK == 0) fetch_scales(ahead, dim_v, at);
    }
}

static void values(size_t rows, const void *const v[2], size_t dim_v, size_t from, size_t to,
                   const int16_t *w, const float *scale, float *o, const void *const ahead[2]) {
    switch (rows) {
    case 1: value_rows(1, v, dim_v, from, to, w, scale, o, ahead); break;
    case 2: value_rows(2, v, dim_v, from, to, w, scale, o, ahead); break;
    case 3: value_rows(3, v, dim_v, from, to, w, scale, o, ahead); break;
    default: value_rows(4, v, dim_v, from, to, w, scale, o, ahead); break;
    }
}

static const attn_tiles_q8 tiles = {
    .rows = ROWS,
    .narrow = narrow,
    .score = score,
    .soften = attn_soften_avx2,
    .weigh = weigh,
    .values = values,
};

void attn_chunk_q8_avx2(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                        attn_partial *partial, float *o, void *scratch) {
    attn_chunk_tiled_q8(&tiles, h, q, ldq, n, pos, c, partial, o, scratch);
}
