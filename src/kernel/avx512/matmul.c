/* matmul.c: cuts a matrix product into tiles.
 *
 * Few tokens: every pair of groups meets all tokens, weights unpacked in registers. Many tokens: chunks that
 * stay in the second-level cache; for each chunk, panels of two groups, each met by all tiles of the chunk.
 * Tokens are cut into near-equal slices of at most 6. */
#include "kernel/avx512/matmul.h"

#include "kernel/avx512/avx512.h"

#include <immintrin.h>

/* Unpacking into a panel costs about two tokens' products and saves the unpacking of every tile, which hides
 * behind the products on processors that shift and mask on other ports than they multiply (Zen) and does not
 * on others (Intel: a quarter of the time). */
enum { PANEL_FROM = 32, FETCH_BYTES_PER_TOKEN = 110 };

/* side[t][i] for tokens [0, n): see tile. */
static void side_sums(const pack_layout *l, const activations *x, size_t t0, size_t n, int32_t *side) {
    size_t per16 = x->cols / 16;
    const int16_t *sum16 = x->sum16 + t0 * per16;
    const float *scale = x->scale + t0 * (per16 / 2);
    size_t count = n * per16 / 2; /* blocks of 32, all tokens in a row */
    const __m512i factor = _mm512_set1_epi32(-(int)l->bias);
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 m = first_lanes(count - i);
        __m512i pairs = _mm512_maskz_loadu_epi32(m, sum16 + 2 * i);
        __m512 s = _mm512_maskz_loadu_ps(m, scale + i);
        if (!l->scale16) {
            __m512i sum = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
            __m512i value = l->has_min ? _mm512_castps_si512(_mm512_mul_ps(s, _mm512_cvtepi32_ps(sum)))
                                       : _mm512_mullo_epi32(sum, factor);
            _mm512_mask_storeu_epi32(side + i, m, value);
            continue;
        }
        __m512i even = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16),
                odd = _mm512_srai_epi32(pairs, 16);
        if (l->has_min) {
            even = _mm512_castps_si512(_mm512_mul_ps(s, _mm512_cvtepi32_ps(even)));
            odd = _mm512_castps_si512(_mm512_mul_ps(s, _mm512_cvtepi32_ps(odd)));
        } else {
            even = _mm512_mullo_epi32(even, factor);
            odd = _mm512_mullo_epi32(odd, factor);
        }
        const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        size_t left = 2 * (count - i);
        __mmask16 m0 = first_lanes(left);
        __mmask16 m1 = first_lanes(left < 16 ? 0 : left - 16);
        _mm512_mask_storeu_epi32(side + 2 * i, m0, _mm512_permutex2var_epi32(even, low, odd));
        _mm512_mask_storeu_epi32(side + 2 * i + 16, m1, _mm512_permutex2var_epi32(even, high, odd));
    }
}

/* What a chunk of tokens shares. */
typedef struct chunk {
    const activations *x;
    size_t t0, n, slices; /* tokens of x */
    const int32_t *side;  /* [n, side_cols] */
    size_t side_cols;
    float *y;            /* of group 0 and token 0 of x */
    size_t fetch_lines;  /* for each slice and unit, so that the slices together fetch what comes next */
    size_t fetch_stride; /* bytes that one slice fetches */
} chunk;

/* While a panel or group is multiplied, the next `bytes` are fetched, spread evenly over slices and units. */
static void plan_fetch(chunk *c, size_t bytes, size_t units) {
    size_t steps = c->slices * units;
    c->fetch_lines = steps == 0 ? 0 : (bytes / 64 + steps - 1) / steps;
    c->fetch_stride = c->fetch_lines * units * 64;
}

/* All tiles of a chunk against the weights in *a. The fields of *a are written one by one and never copied as
 * a whole: a wide load of what narrow stores wrote waits until all earlier loads are done, which cost a third
 * of the bandwidth. next: what to fetch, or NULL. */
static void run_tokens(tile *a, const tile_fn fns[TILE_TOKENS], const chunk *c, float *y, const uint8_t *next,
                       size_t next_bytes) {
    for (size_t s = 0, t = 0, fetched = 0; s < c->slices; s++) {
        size_t count = (c->n - t + c->slices - s - 1) / (c->slices - s);
        a->q = c->x->q + (c->t0 + t) * c->x->cols;
        a->scale = c->x->scale + (c->t0 + t) * (c->x->cols / 32);
        a->side = c->side + t * c->side_cols;
        a->y = y + (c->t0 + t) * a->ldy;
        a->fetch_lines = next != NULL && fetched < next_bytes ? c->fetch_lines : 0;
        a->fetch = a->fetch_lines != 0 ? next + fetched : a->w;
        fns[count - 1](a);
        fetched += c->fetch_stride;
        t += count;
    }
}

/* One group at a time: a second stream of weights halves what memory delivers. With one or two tokens the
 * processor's own prefetching saturates memory, and any other only disturbs it; from the number on at which
 * the arithmetic of a block takes as long as its arrival, the next group is fetched into the second level
 * while this one is multiplied (both measured on Zen 4: 29 against 13 GB/s with one token, 310 against 190
 * GOP/s with six). */
static void run_packed(const packed *w, size_t g0, size_t g1, chunk *c, size_t ldy) {
    tile a = {.blocks = w->cols / 32, .ldy = ldy};
    bool fetch = a.blocks != 0 && c->n * FETCH_BYTES_PER_TOKEN >= w->group_bytes / a.blocks;
    plan_fetch(c, w->group_bytes, w->cols / pack_describe(w->type)->span);
    for (size_t g = g0; g < g1; g++) {
        a.w = w->data + g * w->group_bytes;
        a.mask = first_lanes(w->rows - g * PACK_ROWS);
        run_tokens(&a, tiles_packed[w->type], c, c->y + g * PACK_ROWS,
                   fetch && g + 1 < g1 ? a.w + w->group_bytes : NULL, w->group_bytes);
    }
}

static void run_panels(const packed *w, size_t g0, size_t g1, chunk *c, size_t ldy, uint8_t *panel) {
    const pack_layout *l = pack_describe(w->type);
    size_t blocks = w->cols / 32, vector_bytes = blocks * panel_block_bytes(l);
    tile a = {.w = panel, .w_stride = vector_bytes, .blocks = blocks, .ldy = ldy};
    plan_fetch(c, TILE_VECTORS * w->group_bytes, blocks);
    for (size_t g = g0; g < g1; g += TILE_VECTORS) {
        size_t vectors = g1 - g < TILE_VECTORS ? g1 - g : TILE_VECTORS, after = g1 - g - vectors;
        a.mask = first_lanes(w->rows - (g + vectors - 1) * PACK_ROWS);
        for (size_t v = 0; v < vectors; v++) {
            panel_unpack[w->type](w->data + (g + v) * w->group_bytes, blocks, panel + v * vector_bytes);
        }
        run_tokens(&a, tiles_panel[l->scale16][l->has_min][vectors - 1], c, c->y + g * PACK_ROWS,
                   after > 0 ? w->data + (g + vectors) * w->group_bytes : NULL,
                   (after < TILE_VECTORS ? after : TILE_VECTORS) * w->group_bytes);
    }
}

void matmul_avx512(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                   size_t ldy, void *scratch) {
    if (dtype_is_float(w->type)) {
        matmul_float_avx512(w, g0, g1, x, n, y, ldy, scratch);
        return;
    }
    const pack_layout *l = pack_describe(w->type);
    uint8_t *panel = scratch;
    int32_t *side = (int32_t *)(void *)(panel + PANEL_ROWS * w->cols * 3 / 2);
    size_t chunks = (n + PANEL_TOKENS - 1) / PANEL_TOKENS;
    for (size_t i = 0, t = 0; i < chunks; i++) {
        chunk c = {.x = x,
                   .t0 = t,
                   .n = (n - t + chunks - i - 1) / (chunks - i),
                   .side = side,
                   .side_cols = w->cols / (l->scale16 ? 16 : 32),
                   .y = y};
        c.slices = (c.n + TILE_TOKENS - 1) / TILE_TOKENS;
        side_sums(l, x, t, c.n, side);
        if (c.n < PANEL_FROM) {
            run_packed(w, g0, g1, &c, ldy);
        } else {
            run_panels(w, g0, g1, &c, ldy, panel);
        }
        t += c.n;
    }
}
