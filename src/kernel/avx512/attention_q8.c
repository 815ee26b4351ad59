/* attention_q8.c: tiles of attention over KV_Q8 pages; attn_q8.h says what they compute. A register holds 32
 * products' operands in 16 bits: two dimensions of 16 keys in the scores, two keys of 16 dimensions in the
 * values. */
#include "kernel/attn_q8.h"
#include "kernel/attn_tiles.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/vec.h"

enum { ROWS = 6, WIDTH = 4, TILE = 16, PAIRS = KV_PAGE / 2 };
_Static_assert((size_t)ROWS <= (size_t)ATTN_TILE_Q8, "scratch has room for a tile");

#define INLINE static inline __attribute__((always_inline))

/* 32 bytes as 16-bit integers. */
INLINE __m512i wide(const void *from) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)from));
}

/* Two neighbouring 16-bit integers in every lane. */
INLINE __m512i pair_of(const int16_t *from) {
    int32_t both;
    memcpy(&both, from, sizeof both);
    return _mm512_set1_epi32(both);
}

/* acc += a[2i]*b[2i] + a[2i+1]*b[2i+1] for 32-bit lane i. Around the intrinsic gcc 12 copies every
 * accumulator twice in each turn of a loop, which takes half of the time. */
INLINE __m512i multiply_add(__m512i acc, __m512i a, __m512i b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

INLINE __m512 scales_of(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

INLINE __m512i magnitude(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX));
}

/* ---- store ------------------------------------------------------------------------------------------- */

/* A block of 16 or 32 values to int8, zeros behind 16; returns the scale. */
static uint16_t quantize_block(const float *x, bool full, __m128i q[2]) {
    const __m512 most = _mm512_set1_ps(KV_Q8_MOST), least = _mm512_set1_ps(-KV_Q8_MOST);
    __m512 low = _mm512_loadu_ps(x), high = full ? _mm512_loadu_ps(x + TILE) : _mm512_setzero_ps();
    q_scale s;
    uint16_t half =
        kv_q8_scale((uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(magnitude(low), magnitude(high))), &s);
    __mmask16 keep = s.inverse == 0.0f ? 0 : 0xffff;
    __m512 inverse = _mm512_set1_ps(s.inverse);
    low = _mm512_max_ps(_mm512_min_ps(_mm512_maskz_mul_ps(keep, low, inverse), most), least);
    high = _mm512_max_ps(_mm512_min_ps(_mm512_maskz_mul_ps(keep, high, inverse), most), least);
    q[0] = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low));
    q[1] = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high));
    return half;
}

/* Pairs of dimensions go 32 bytes apart. */
static void store_keys(int8_t *to, __m128i q) {
    uint16_t pair[TILE / 2];
    _mm_storeu_si128((__m128i *)pair, q);
    for (size_t i = 0; i < TILE / 2; i++) memcpy(to + i * 2 * TILE, &pair[i], sizeof pair[i]);
}

/* Every other byte is the neighbour's, which another thread may be writing. */
static void store_values(int8_t *to, size_t odd, __m128i q) {
    __m256i x = _mm256_cvtepi8_epi16(q);
    if (odd) {
        _mm256_mask_storeu_epi8(to, 0xaaaaaaaa, _mm256_slli_epi16(x, 8));
    } else {
        _mm256_mask_storeu_epi8(to, 0x55555555, x);
    }
}

void kv_store_q8_avx512(void *k_page, void *v_page, size_t slot, const float *k, size_t head_dim_k,
                        const float *v, size_t head_dim_v) {
    int8_t *kq = (int8_t *)k_page + slot / TILE * TILE * head_dim_k + slot % TILE * 2;
    int8_t *vq = (int8_t *)v_page + slot / 2 * head_dim_v * 2;
    uint16_t *k_scale = (uint16_t *)(void *)((int8_t *)k_page + KV_PAGE * head_dim_k) + slot;
    uint16_t *v_scale = (uint16_t *)(void *)((int8_t *)v_page + KV_PAGE * head_dim_v) + slot;
    __m128i q[2];
    for (size_t d = 0; d < head_dim_k; d += KV_Q8_BLOCK, k_scale += KV_PAGE) {
        bool full = head_dim_k - d >= KV_Q8_BLOCK;
        *k_scale = quantize_block(k + d, full, q);
        store_keys(kq + d * TILE, q[0]);
        if (full) store_keys(kq + (d + TILE) * TILE, q[1]);
    }
    for (size_t d = 0; d < head_dim_v; d += KV_Q8_BLOCK, v_scale += KV_PAGE) {
        bool full = head_dim_v - d >= KV_Q8_BLOCK;
        *v_scale = quantize_block(v + d, full, q);
        store_values(vq + d * 2, slot % 2, q[0]);
        if (full) store_values(vq + (d + TILE) * 2, slot % 2, q[1]);
    }
}

/* The scales of the block of dimensions at d, of two pages. */
INLINE void fetch_scales(const void *const ahead[2], size_t dim, size_t d) {
    _mm_prefetch((const char *)ahead[0] + KV_PAGE * dim + d * 2, _MM_HINT_T1);
    _mm_prefetch((const char *)ahead[1] + KV_PAGE * dim + d * 2, _MM_HINT_T1);
}

/* ---- scores ------------------------------------------------------------------------------------------ */

static float narrow(const float *q, size_t dim, int16_t *out) {
    __m512i most = _mm512_setzero_si512();
    for (size_t d = 0; d < dim; d += LANES) {
        most = _mm512_max_epi32(most, magnitude(_mm512_loadu_ps(q + d)));
    }
    q_scale s = q16_scale((uint32_t)_mm512_reduce_max_epi32(most));
    for (size_t d = 0; d < dim; d += LANES) {
        __m512 x = _mm512_mul_ps(_mm512_loadu_ps(q + d), _mm512_set1_ps(s.inverse));
        _mm256_storeu_si256((__m256i *)(out + d), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
    }
    return s.scale;
}

/* The sums of one block of dimensions [d, end) over 64 keys; a line of each page ahead for each pair. */
INLINE void score_sums(const size_t rows, const int8_t *const k[WIDTH], size_t dim, size_t d, size_t end,
                       const int16_t *q, __m512i acc[ROWS][WIDTH], const void *const ahead[2]) {
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t t = 0; t < WIDTH; t++) acc[r][t] = _mm512_setzero_si512();
    }
    for (; d < end; d += 2) {
        __m512i key[WIDTH];
#pragma GCC unroll 8
        for (size_t t = 0; t < WIDTH; t++) key[t] = wide(k[t] + d * TILE);
        _mm_prefetch((const char *)ahead[0] + d * KV_PAGE, _MM_HINT_T1);
        _mm_prefetch((const char *)ahead[1] + d * KV_PAGE, _MM_HINT_T1);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m512i x = pair_of(q + r * dim + d);
#pragma GCC unroll 8
            for (size_t t = 0; t < WIDTH; t++) acc[r][t] = multiply_add(acc[r][t], key[t], x);
        }
    }
}

INLINE void score_rows(const size_t rows, const void *const page[2], size_t dim, const int16_t *q,
                       const float *factor, float *s, const void *const ahead[2]) {
    const int8_t *a = page[0], *b = page[1];
    const int8_t *const k[WIDTH] = {a, a + TILE * dim, b, b + TILE * dim};
    const uint16_t *scale[2] = {kv_q8_scales(a, dim), kv_q8_scales(b, dim)};
    for (size_t d = 0; d < dim; d += KV_Q8_BLOCK) {
        __m512i acc[ROWS][WIDTH];
        const size_t end = dim - d < KV_Q8_BLOCK ? dim : d + KV_Q8_BLOCK;
        score_sums(rows, k, dim, d, end, q, acc, ahead);
#pragma GCC unroll 8
        for (size_t t = 0; t < WIDTH; t++) {
            __m512 of_key = scales_of(scale[t / 2] + t % 2 * TILE);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                float *to = s + r * ATTN_BLOCK + t * TILE;
                __m512 before = d == 0 ? _mm512_setzero_ps() : _mm512_load_ps(to);
                __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][t]), of_key, before);
                if (end == dim) sum = _mm512_mul_ps(sum, _mm512_set1_ps(factor[r]));
                _mm512_store_ps(to, sum);
            }
        }
        scale[0] += KV_PAGE;
        scale[1] += KV_PAGE;
        fetch_scales(ahead, dim, d);
    }
}

static void score(size_t rows, const void *const k[2], size_t dim, const int16_t *q, const float *factor,
                  float *s, const void *const ahead[2]) {
    switch (rows) {
    case 1: score_rows(1, k, dim, q, factor, s, ahead); break;
    case 2: score_rows(2, k, dim, q, factor, s, ahead); break;
    case 3: score_rows(3, k, dim, q, factor, s, ahead); break;
    case 4: score_rows(4, k, dim, q, factor, s, ahead); break;
    case 5: score_rows(5, k, dim, q, factor, s, ahead); break;
    default: score_rows(6, k, dim, q, factor, s, ahead); break;
    }
}

/* ---- values ------------------------------------------------------------------------------------------ */

static void weigh(const float *p, size_t from, size_t to, const void *const v[2], size_t dim_v, int16_t *w,
                  float *scale) {
    const uint64_t seen = (~UINT64_C(0) >> (ATTN_BLOCK - (to - from))) << from;
    const uint16_t *of[2] = {kv_q8_scales(v[0], dim_v), kv_q8_scales(v[1], dim_v)};
    for (size_t d = 0; d < dim_v; d += KV_Q8_BLOCK, w += ATTN_BLOCK, scale++) {
        __m512 x[WIDTH];
        __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (size_t t = 0; t < WIDTH; t++) {
            __m512 s = scales_of(of[t / 2] + t % 2 * TILE);
            x[t] = _mm512_maskz_mul_ps((__mmask16)(seen >> (t * TILE)), _mm512_load_ps(p + t * TILE), s);
            most = _mm512_max_epi32(most, magnitude(x[t]));
        }
        q_scale s = q16_scale((uint32_t)_mm512_reduce_max_epi32(most));
        *scale = s.scale;
#pragma GCC unroll 4
        for (size_t t = 0; t < WIDTH; t++) {
            __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(x[t], _mm512_set1_ps(s.inverse)));
            _mm256_storeu_si256((__m256i *)(w + t * TILE), _mm512_cvtsepi32_epi16(i));
        }
        of[0] += KV_PAGE;
        of[1] += KV_PAGE;
    }
}

/* `width` registers of 16 dimensions, from an even block on. w, scale: of that block; a row's are `blocks`
 * blocks apart. */
INLINE void value_tile(const size_t rows, const size_t width, const void *const page[2], size_t at,
                       size_t dim_v, size_t from, size_t to, const int16_t *w, const float *scale,
                       size_t blocks, float *o, const void *const ahead[2]) {
    __m512i acc[ROWS][WIDTH];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t t = 0; t < width; t++) acc[r][t] = _mm512_setzero_si512();
    }
    for (size_t pair = from / 2; pair < to / 2; pair++) {
        const int8_t *v = (const int8_t *)page[pair / PAIRS] + (pair % PAIRS * dim_v + at) * 2;
        __m512i value[WIDTH];
#pragma GCC unroll 8
        for (size_t t = 0; t < width; t++) value[t] = wide(v + t * TILE * 2);
        const char *soon = (const char *)ahead[pair / PAIRS] + (pair % PAIRS * dim_v + at) * 2;
        _mm_prefetch(soon, _MM_HINT_T1);
        if (width > 2) _mm_prefetch(soon + 64, _MM_HINT_T1);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
            for (size_t t = 0; t < width; t++) {
                __m512i weight = pair_of(w + (r * blocks + t / 2) * ATTN_BLOCK + 2 * pair);
                acc[r][t] = multiply_add(acc[r][t], value[t], weight);
            }
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t t = 0; t < width; t++) {
            float *to_o = o + r * dim_v + at + t * TILE;
            __m512 s = _mm512_set1_ps(scale[r * blocks + t / 2]);
            _mm512_storeu_ps(to_o, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][t]), s, _mm512_loadu_ps(to_o)));
        }
    }
}

INLINE void value_rows(const size_t rows, const void *const v[2], size_t dim_v, size_t from, size_t to,
                       const int16_t *w, const float *scale, float *o, const void *const ahead[2]) {
    const size_t blocks = kv_q8_blocks(dim_v);
    size_t at = 0;
    for (; dim_v - at >= (size_t)WIDTH * TILE; at += (size_t)WIDTH * TILE) {
        value_tile(rows, WIDTH, v, at, dim_v, from, to, w, scale, blocks, o, ahead);
        w += 2 * ATTN_BLOCK;
        scale += 2;
    }
    for (size_t d = 0; d < dim_v; d += KV_Q8_BLOCK) fetch_scales(ahead, dim_v, d);
    const size_t left = (dim_v - at) / TILE;
    if (left == 3) value_tile(rows, 3, v, at, dim_v, from, to, w, scale, blocks, o, ahead);
    if (left == 2) value_tile(rows, 2, v, at, dim_v, from, to, w, scale, blocks, o, ahead);
    if (left == 1) value_tile(rows, 1, v, at, dim_v, from, to, w, scale, blocks, o, ahead);
}

static void values(size_t rows, const void *const v[2], size_t dim_v, size_t from, size_t to,
                   const int16_t *w, const float *scale, float *o, const void *const ahead[2]) {
    switch (rows) {
    case 1: value_rows(1, v, dim_v, from, to, w, scale, o, ahead); break;
    case 2: value_rows(2, v, dim_v, from, to, w, scale, o, ahead); break;
    case 3: value_rows(3, v, dim_v, from, to, w, scale, o, ahead); break;
    case 4: value_rows(4, v, dim_v, from, to, w, scale, o, ahead); break;
    case 5: value_rows(5, v, dim_v, from, to, w, scale, o, ahead); break;
    default: value_rows(6, v, dim_v, from, to, w, scale, o, ahead); break;
    }
}

static const attn_tiles_q8 tiles = {
    .rows = ROWS,
    .narrow = narrow,
    .score = score,
    .soften = attn_soften_avx512,
    .weigh = weigh,
    .values = values,
};

void attn_chunk_q8_avx512(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                          attn_partial *partial, float *o, void *scratch) {
    attn_chunk_tiled_q8(&tiles, h, q, ldq, n, pos, c, partial, o, scratch);
}
