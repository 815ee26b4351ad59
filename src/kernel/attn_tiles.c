/* attn_tiles.c: the walk over blocks, pages and slabs of rows; see attn_tiles.h. */
#include "kernel/attn_tiles.h"
#include "kernel/vector.h"

#include <math.h>
#include <string.h>

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
    const void *const *k, *const *v;
    const float *wide_k, *wide_v; /* NULL: read the pages */
} block;

/* Keys [from, to) of the block for rows [r, r+rows). While a page's values are read, the page of keys that
 * the next block begins with is on its way. */
static void add_values(const attn_tiles *tiles, const slab *s, const block *b, size_t r, size_t rows,
                       size_t from, size_t to) {
    const float *p = s->p + r * ATTN_BLOCK;
    float *o = s->o + r * b->dim_v;
    if (b->wide_v != NULL) {
        if (from < to)
            tiles->value_block(rows, b->wide_v + from * b->dim_v, b->dim_v, to - from, p + from, o);
        return;
    }
    while (from < to) {
        size_t page = from / KV_PAGE, slot = from % KV_PAGE;
        size_t n = to - from < KV_PAGE - slot ? to - from : KV_PAGE - slot;
        const void *ahead = page + 2 < b->pages ? b->k[page + 2] : b->v[page];
        tiles->value_page(rows, (const uint16_t *)b->v[page] + slot * b->dim_v, b->dim_v, n, p + from, o,
                          ahead);
        from += n;
    }
}

/* A tile of rows over the values. Keys that all rows see go through the tile; those that only some see, at
 * its edges, row by row, so that a key which a row may not see never touches it. */
static void tile_values(const attn_tiles *tiles, const slab *s, const block *b, size_t r0, size_t rows) {
    size_t from = 0, to = ATTN_BLOCK;
    for (size_t r = r0; r < r0 + rows; r++) {
        if (s->from[r] > from) from = s->from[r];
        if (s->to[r] < to) to = s->to[r];
    }
    if (to < from) to = from;
    for (size_t r = r0; r < r0 + rows; r++) {
        size_t end = s->to[r] < from ? s->to[r] : from;
        add_values(tiles, s, b, r, 1, s->from[r], end);
    }
    add_values(tiles, s, b, r0, rows, from, to);
    for (size_t r = r0; r < r0 + rows; r++) {
        size_t start = s->from[r] > to ? s->from[r] : to;
        add_values(tiles, s, b, r, 1, start, s->to[r]);
    }
}

static void soften_rows(const attn_tiles *tiles, const slab *s, float soft_cap, size_t dim_v) {
    for (size_t r = 0; r < s->rows; r++) {
        tiles->soften(s->p + r * ATTN_BLOCK, s->from[r], s->to[r], soft_cap, &s->state[r], s->o + r * dim_v,
                      dim_v);
    }
}

static void block_direct(const attn_tiles *tiles, const attn_head *h, const slab *s, const block *b) {
    size_t first = s->from[0] / KV_PAGE; /* rows ascend in position */
    size_t last = (s->to[s->rows - 1] + (size_t)KV_PAGE - 1) / KV_PAGE;
    tiles->score_pages(s->rows, last - first, b->k + first, b->dim_k, s->q, h->scale, s->p + first * KV_PAGE,
                       b->v + first);
    soften_rows(tiles, s, h->soft_cap, b->dim_v);
    tile_values(tiles, s, b, 0, s->rows);
}

static void block_wide(const attn_tiles *tiles, const attn_head *h, const slab *s, const block *b) {
    const size_t most = tiles->wide_rows;
    for (size_t r = 0; r < s->rows; r += most) {
        size_t rows = s->rows - r < most ? s->rows - r : most;
        tiles->score_block(rows, b->wide_k, b->dim_k, s->q + r, h->scale, s->p + r * ATTN_BLOCK);
    }
    soften_rows(tiles, s, h->soft_cap, b->dim_v);
    for (size_t r = 0; r < s->rows; r += most) {
        tile_values(tiles, s, b, r, s->rows - r < most ? s->rows - r : most);
    }
}

/* The block's pages in f32; keys of a page that does not exist are zero. */
static void widen_block(const attn_tiles *tiles, const block *b, float *k, float *v) {
    size_t k_page = KV_PAGE * b->dim_k, v_page = KV_PAGE * b->dim_v;
    for (size_t page = 0; page < ATTN_BLOCK / KV_PAGE; page++, k += k_page, v += v_page) {
        if (page >= b->pages) {
            memset(k, 0, k_page * sizeof *k);
            continue;
        }
        tiles->widen(b->k[page], k, k_page);
        tiles->widen(b->v[page], v, v_page);
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

void attn_chunk_tiled(const attn_tiles *tiles, const attn_head *h, const float *q, size_t ldq, size_t n,
                      size_t pos, size_t c, attn_partial *partial, float *o, void *scratch) {
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
        if (end - row > tiles->direct_rows) {
            widen_block(tiles, &b, k, v);
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
                block_wide(tiles, h, &s, &b);
            } else {
                block_direct(tiles, h, &s, &b);
            }
            row += s.rows;
        }
    }
}

/* ---- KV_Q8 ------------------------------------------------------------------------------------------- */

/* The scratch of a chunk. */
typedef struct q8_scratch {
    float *p;       /* [ATTN_SLAB, ATTN_BLOCK] scores, then weights */
    float *factor;  /* [ATTN_SLAB] of a row's scores */
    float *w_scale; /* [ATTN_TILE_Q8, blocks] */
    int16_t *q;     /* [ATTN_SLAB, dim_k] */
    int16_t *w;     /* [ATTN_TILE_Q8, blocks, ATTN_BLOCK] */
} q8_scratch;

static size_t q8_scratch_bytes(size_t dim) {
    size_t blocks = kv_q8_blocks(dim);
    return ATTN_SLAB * (ATTN_BLOCK + 1) * sizeof(float) + ATTN_TILE_Q8 * blocks * sizeof(float) +
           (ATTN_SLAB * dim + ATTN_TILE_Q8 * blocks * ATTN_BLOCK) * sizeof(int16_t);
}

static q8_scratch q8_scratch_at(void *memory, const attn_head *h) {
    size_t blocks = kv_q8_blocks(h->head_dim_v);
    q8_scratch x = {.p = memory};
    x.q = (int16_t *)(void *)(x.p + ATTN_SLAB * ATTN_BLOCK);
    x.w = x.q + ATTN_SLAB * h->head_dim_k;
    x.factor = (float *)(void *)(x.w + ATTN_TILE_Q8 * blocks * ATTN_BLOCK);
    x.w_scale = x.factor + ATTN_SLAB;
    return x;
}

static size_t even_down(size_t n) {
    return n & ~(size_t)1;
}

/* Rows [r0, r0+rows) of the slab over the values, all keys that any of them sees. */
static void q8_tile_values(const attn_tiles_q8 *tiles, const slab *s, const q8_scratch *x, size_t dim_v,
                           size_t r0, size_t rows, const void *const v[2], const void *const ahead[2]) {
    const size_t blocks = kv_q8_blocks(dim_v);
    size_t from = ATTN_BLOCK, to = 0;
    for (size_t r = 0; r < rows; r++) {
        size_t a = s->from[r0 + r], b = s->to[r0 + r];
        tiles->weigh(s->p + (r0 + r) * ATTN_BLOCK, a, b, v, dim_v, x->w + r * blocks * ATTN_BLOCK,
                     x->w_scale + r * blocks);
        if (a < from) from = a;
        if (b > to) to = b;
    }
    tiles->values(rows, v, dim_v, even_down(from), even_down(to + 1), x->w, x->w_scale, s->o + r0 * dim_v,
                  ahead);
}

/* A slab, whose queries lie in x->q from row q0 on, over the block of keys whose first page is `page`. */
static void q8_block(const attn_tiles_q8 *tiles, const attn_head *h, const slab *s, const q8_scratch *x,
                     size_t q0, size_t page, size_t n_pages) {
    const size_t last = n_pages - 1, next = page + 2 <= last ? page + 2 : last;
    const size_t second = page < last ? page + 1 : page, after = next < last ? next + 1 : next;
    const void *const k[2] = {h->k_pages[page], h->k_pages[second]};
    const void *const v[2] = {h->v_pages[page], h->v_pages[second]};
    const void *const ahead[2] = {h->k_pages[next], h->k_pages[after]};
    for (size_t r = 0; r < s->rows; r += tiles->rows) {
        size_t rows = s->rows - r < tiles->rows ? s->rows - r : tiles->rows;
        tiles->score(rows, k, h->head_dim_k, x->q + (q0 + r) * h->head_dim_k, x->factor + q0 + r,
                     s->p + r * ATTN_BLOCK, v);
    }
    for (size_t r = 0; r < s->rows; r++) {
        tiles->soften(s->p + r * ATTN_BLOCK, s->from[r], s->to[r], h->soft_cap, &s->state[r],
                      s->o + r * h->head_dim_v, h->head_dim_v);
    }
    for (size_t r = 0; r < s->rows; r += tiles->rows) {
        size_t rows = s->rows - r < tiles->rows ? s->rows - r : tiles->rows;
        q8_tile_values(tiles, s, x, h->head_dim_v, r, rows, v, ahead);
    }
}

void attn_chunk_tiled_q8(const attn_tiles_q8 *tiles, const attn_head *h, const float *q, size_t ldq, size_t n,
                         size_t pos, size_t c, attn_partial *partial, float *o, void *scratch) {
    const size_t n_pages = (pos + n + KV_PAGE - 1) / KV_PAGE, all = n * h->group;
    const q8_scratch x = q8_scratch_at(scratch, h);
    for (size_t r = 0; r < all; r++) partial[r] = (attn_partial){-INFINITY, 0.0f};
    memset(o, 0, all * h->head_dim_v * sizeof *o);
    for (size_t row0 = 0; row0 < all; row0 += ATTN_SLAB) {
        const size_t rows = all - row0 < ATTN_SLAB ? all - row0 : ATTN_SLAB;
        bool narrowed = false;
        for (size_t start = c * ATTN_CHUNK; start < (c + 1) * ATTN_CHUNK && start < pos + n;
             start += ATTN_BLOCK) {
            query_range t = who_sees(h, n, pos, start, start + ATTN_BLOCK);
            size_t row = t.first * h->group, end = t.end * h->group;
            if (row < row0) row = row0;
            if (end > row0 + rows) end = row0 + rows;
            if (row >= end) continue;
            for (size_t r = 0; r < rows && !narrowed; r++) {
                const float *from = q + (row0 + r) / h->group * ldq + (row0 + r) % h->group * h->head_dim_k;
                x.factor[r] = tiles->narrow(from, h->head_dim_k, x.q + r * h->head_dim_k) * h->scale;
            }
            narrowed = true;
            slab s = {.rows = end - row, .state = partial + row, .o = o + row * h->head_dim_v, .p = x.p};
            place_rows(h, &s, q, ldq, row, pos, start);
            q8_block(tiles, h, &s, &x, row - row0, start / KV_PAGE, n_pages);
        }
    }
}

size_t attn_scratch(size_t max_head_dim, size_t max_group, size_t max_tokens) {
    (void)max_group;
    (void)max_tokens; /* rows are worked off in slabs */
    size_t f16 = 2 * ATTN_BLOCK * max_head_dim * sizeof(float) + ATTN_SLAB * ATTN_BLOCK * sizeof(float);
    size_t q8 = q8_scratch_bytes(max_head_dim);
    return f16 > q8 ? f16 : q8;
}
