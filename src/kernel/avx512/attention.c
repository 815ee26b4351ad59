/* attention.c: attention over a paged f16 cache, lane = key in the scores, lane = dimension in the values.
 *
 * A row is a query of one head; all rows of a call read the same keys and values, so a block of 64 keys is
 * taken through all of them before the next. Up to DIRECT_ROWS rows (decode) read the f16 pages themselves,
 * each conversion serving all rows. More rows (prefill) go in slabs through keys and values that are widened
 * once, with tiles of WIDE_ROWS rows. Both ways run the chains of ref/attention.c, so a row's bits do not
 * depend on its company. */
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

/* One page of f16 against up to DIRECT_ROWS rows. */
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

/* Two pages of f16 at once, for which up to PAIR_ROWS rows leave registers: fewer broadcasts a product. */
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

/* A widened block of 64 keys against up to WIDE_ROWS rows. */
static void score_block(size_t rows, const page_pair *k, size_t dim, const float *const *q, float scale,
                        float *s) {
    switch (rows) {
    case 1: score_tile(1, 4, false, k, dim, q, scale, s); break;
    case 2: score_tile(2, 4, false, k, dim, q, scale, s); break;
    case 3: score_tile(3, 4, false, k, dim, q, scale, s); break;
    case 4: score_tile(4, 4, false, k, dim, q, scale, s); break;
    case 5: score_tile(5, 4, false, k, dim, q, scale, s); break;
    default: score_tile(6, 4, false, k, dim, q, scale, s); break;
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------- */

/* Scores of one row to weights; keys that `visible` lacks get 0. Rescales what the row has so far if the
 * maximum rose. */
INLINE void soften(const bool all, const bool capped, float *s, uint64_t visible, float soft_cap,
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

/* Row r of a slab sees keys [from, to) of the block. */
static void soften_row(float *s, size_t from, size_t to, float soft_cap, attn_partial *state, float *o,
                       size_t dim_v) {
    uint64_t visible = (~UINT64_C(0) >> (ATTN_BLOCK - (to - from))) << from;
    bool all = visible == ~UINT64_C(0);
    if (soft_cap != 0.0f) {
        soften(false, true, s, visible, soft_cap, state, o, dim_v);
    } else if (all) {
        soften(true, false, s, visible, soft_cap, state, o, dim_v);
    } else {
        soften(false, false, s, visible, soft_cap, state, o, dim_v);
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

static void value_half(size_t rows, const uint16_t *v, size_t dim_v, size_t n, const float *p, float *o,
                       const void *ahead) {
    switch (rows) {
    case 1: value_rows(1, true, v, dim_v, n, p, o, ahead); break;
    case 2: value_rows(2, true, v, dim_v, n, p, o, ahead); break;
    case 3: value_rows(3, true, v, dim_v, n, p, o, ahead); break;
    case 4: value_rows(4, true, v, dim_v, n, p, o, ahead); break;
    case 5: value_rows(5, true, v, dim_v, n, p, o, ahead); break;
    case 6: value_rows(6, true, v, dim_v, n, p, o, ahead); break;
    case 7: value_rows(7, true, v, dim_v, n, p, o, ahead); break;
    default: value_rows(8, true, v, dim_v, n, p, o, ahead); break;
    }
}

static void value_wide(size_t rows, const float *v, size_t dim_v, size_t n, const float *p, float *o) {
    switch (rows) {
    case 1: value_rows(1, false, v, dim_v, n, p, o, NULL); break;
    case 2: value_rows(2, false, v, dim_v, n, p, o, NULL); break;
    case 3: value_rows(3, false, v, dim_v, n, p, o, NULL); break;
    case 4: value_rows(4, false, v, dim_v, n, p, o, NULL); break;
    case 5: value_rows(5, false, v, dim_v, n, p, o, NULL); break;
    default: value_rows(6, false, v, dim_v, n, p, o, NULL); break;
    }
}

/* ---- a block of keys --------------------------------------------------------------------------------- */

/* The keys that row r sees of the block are [from[r], to[r]), never none. */
typedef struct slab {
    size_t rows;
    const float *q[ATTN_SLAB];
    uint8_t from[ATTN_SLAB], to[ATTN_SLAB];
    attn_partial *state; /* [rows] */
    float *o;            /* [rows, head_dim_v] */
    float *p;            /* scratch [rows, ATTN_BLOCK]: scores, then weights */
} slab;

/* Where a block's keys and values lie: in pages of 32 keys, `pages` of them from the block's first to the end
 * of the sequence, or widened. */
typedef struct block {
    size_t dim_k, dim_v, pages;
    const uint16_t *const *k, *const *v;
    const float *wide_k, *wide_v; /* NULL: read the pages */
} block;

/* Keys [from, to) of the block for rows [r, r+rows). While a page's values are read, the page of keys that
 * the next block begins with is on its way. */
static void add_values(const slab *s, const block *b, size_t r, size_t rows, size_t from, size_t to) {
    const float *p = s->p + r * ATTN_BLOCK;
    float *o = s->o + r * b->dim_v;
    if (b->wide_v != NULL) {
        if (from < to) value_wide(rows, b->wide_v + from * b->dim_v, b->dim_v, to - from, p + from, o);
        return;
    }
    while (from < to) {
        size_t page = from / KV_PAGE, slot = from % KV_PAGE;
        size_t n = to - from < KV_PAGE - slot ? to - from : KV_PAGE - slot;
        const uint16_t *ahead = page + 2 < b->pages ? b->k[page + 2] : b->v[page];
        value_half(rows, b->v[page] + slot * b->dim_v, b->dim_v, n, p + from, o, ahead);
        from += n;
    }
}

/* A tile of rows over the values. Keys that all rows see go through the tile; those that only some see, at
 * its edges, row by row, so that a key which a row may not see never touches it. */
static void tile_values(const slab *s, const block *b, size_t r0, size_t rows) {
    size_t from = 0, to = ATTN_BLOCK;
    for (size_t r = r0; r < r0 + rows; r++) {
        if (s->from[r] > from) from = s->from[r];
        if (s->to[r] < to) to = s->to[r];
    }
    if (to < from) to = from;
    for (size_t r = r0; r < r0 + rows; r++) {
        size_t end = s->to[r] < from ? s->to[r] : from;
        add_values(s, b, r, 1, s->from[r], end);
    }
    add_values(s, b, r0, rows, from, to);
    for (size_t r = r0; r < r0 + rows; r++) {
        size_t start = s->from[r] > to ? s->from[r] : to;
        add_values(s, b, r, 1, start, s->to[r]);
    }
}

static void soften_rows(const slab *s, float soft_cap, size_t dim_v) {
    for (size_t r = 0; r < s->rows; r++) {
        soften_row(s->p + r * ATTN_BLOCK, s->from[r], s->to[r], soft_cap, &s->state[r], s->o + r * dim_v,
                   dim_v);
    }
}

static void block_direct(const attn_head *h, const slab *s, const block *b) {
    size_t first = s->from[0], last = s->to[s->rows - 1]; /* rows ascend in position */
    if (s->rows <= PAIR_ROWS && first < KV_PAGE && last > KV_PAGE) {
        page_pair pair = {{b->k[0], b->k[1]}, {b->v[0], b->v[1]}};
        score_pair(s->rows, &pair, b->dim_k, s->q, h->scale, s->p);
    } else {
        for (size_t page = first / KV_PAGE; page * KV_PAGE < last; page++) {
            page_pair one = {{b->k[page], NULL}, {b->v[page], NULL}};
            score_page(s->rows, &one, b->dim_k, s->q, h->scale, s->p + page * KV_PAGE);
        }
    }
    soften_rows(s, h->soft_cap, b->dim_v);
    tile_values(s, b, 0, s->rows);
}

static void block_wide(const attn_head *h, const slab *s, const block *b) {
    page_pair k = {{b->wide_k, b->wide_k + KV_PAGE * b->dim_k}, {NULL, NULL}};
    for (size_t r = 0; r < s->rows; r += WIDE_ROWS) {
        size_t rows = s->rows - r < WIDE_ROWS ? s->rows - r : WIDE_ROWS;
        score_block(rows, &k, b->dim_k, s->q + r, h->scale, s->p + r * ATTN_BLOCK);
    }
    soften_rows(s, h->soft_cap, b->dim_v);
    for (size_t r = 0; r < s->rows; r += WIDE_ROWS) {
        tile_values(s, b, r, s->rows - r < WIDE_ROWS ? s->rows - r : WIDE_ROWS);
    }
}

/* The block's pages in f32; keys of a page that does not exist are zero. */
static void widen_block(const block *b, float *k, float *v) {
    size_t k_page = KV_PAGE * b->dim_k, v_page = KV_PAGE * b->dim_v;
    for (size_t page = 0; page < ATTN_BLOCK / KV_PAGE; page++, k += k_page, v += v_page) {
        if (page >= b->pages) {
            memset(k, 0, k_page * sizeof *k);
            continue;
        }
        for (size_t i = 0; i < k_page; i += LANES) _mm512_store_ps(k + i, widen(b->k[page], i, true));
        for (size_t i = 0; i < v_page; i += LANES) _mm512_store_ps(v + i, widen(b->v[page], i, true));
    }
}

/* ---- a chunk of keys --------------------------------------------------------------------------------- */

typedef struct query_range {
    size_t first, end;
} query_range;

/* The queries (numbers 0 .. n-1) that see any key of [start, end): those not before the first key, and whose
 * window has not passed the last. */
static query_range who_sees(const attn_head *h, size_t n, size_t pos, size_t start, size_t end) {
    query_range t = {start > pos ? start - pos : 0, n};
    if (h->window != 0 && end - 1 + h->window < pos + n) {
        t.end = end - 1 + h->window > pos ? end - 1 + h->window - pos : 0;
    }
    if (t.first > t.end) t.first = t.end;
    return t;
}

/* Rows [row, row + s->rows) of the call become the slab's, for the block that begins at `start`. */
static void place_rows(const attn_head *h, slab *s, const float *q, size_t ldq, size_t row, size_t pos,
                       size_t start) {
    size_t t = row / h->group, g = row % h->group;
    for (size_t r = 0; r < s->rows; r++) {
        size_t p = pos + t, to = p + 1 - start;
        s->q[r] = q + t * ldq + g * h->head_dim_k;
        s->to[r] = (uint8_t)(to < ATTN_BLOCK ? to : ATTN_BLOCK);
        s->from[r] = (uint8_t)(h->window != 0 && to > h->window ? to - h->window : 0);
        if (++g == h->group) g = 0, t++;
    }
}

void attn_chunk_avx512(const attn_head *h, const float *q, size_t ldq, size_t n, size_t pos, size_t c,
                       attn_partial *partial, float *o, void *scratch) {
    size_t n_pages = (pos + n + KV_PAGE - 1) / KV_PAGE, rows = n * h->group;
    float *p = scratch, *k = p + ATTN_SLAB * ATTN_BLOCK, *v = k + ATTN_BLOCK * h->head_dim_k;
    for (size_t r = 0; r < rows; r++) partial[r] = (attn_partial){-INFINITY, 0.0f};
    memset(o, 0, rows * h->head_dim_v * sizeof *o);
    for (size_t start = c * ATTN_CHUNK; start < (c + 1) * ATTN_CHUNK && start < pos + n;
         start += ATTN_BLOCK) {
        query_range t = who_sees(h, n, pos, start, start + ATTN_BLOCK);
        size_t row = t.first * h->group, end = t.end * h->group;
        size_t page = start / KV_PAGE;
        block b = {h->head_dim_k, h->head_dim_v, n_pages - page, h->k_pages + page, h->v_pages + page,
                   NULL,          NULL};
        if (end - row > DIRECT_ROWS) {
            widen_block(&b, k, v);
            b.wide_k = k;
            b.wide_v = v;
        }
        while (row < end) {
            slab s = {.rows = end - row < ATTN_SLAB ? end - row : ATTN_SLAB,
                      .state = partial + row,
                      .o = o + row * h->head_dim_v,
                      .p = p};
            place_rows(h, &s, q, ldq, row, pos, start);
            if (b.wide_k != NULL) {
                block_wide(h, &s, &b);
            } else {
                block_direct(h, &s, &b);
            }
            row += s.rows;
        }
    }
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
