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
    const uint16_t *const *k, *const *v;
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
        const uint16_t *ahead = page + 2 < b->pages ? b->k[page + 2] : b->v[page];
        tiles->value_page(rows, b->v[page] + slot * b->dim_v, b->dim_v, n, p + from, o, ahead);
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

size_t attn_scratch(size_t max_head_dim, size_t max_group, size_t max_tokens) {
    (void)max_group;
    (void)max_tokens; /* rows are worked off in slabs */
    return 2 * ATTN_BLOCK * max_head_dim * sizeof(float) + ATTN_SLAB * ATTN_BLOCK * sizeof(float);
}
