/* matmul.c: cuts a matrix product into tiles.
 *
 * Few tokens: every pair of groups meets all tokens, weights unpacked in registers. Many tokens: chunks that
 * stay in the second-level cache; for each chunk, panels of two groups, each met by all tiles of the chunk.
 * Tokens are cut into near-equal slices of at most 6. */
#include "kernel/avx512/matmul.h"

#include "kernel/avx512/avx512.h"
#include "kernel/ref/ref.h"

#include <immintrin.h>

/* From this many tokens on a panel beats unpacking in registers (measured). */
enum { PANEL_FROM = 24 };

/* side[t][i] for tokens [0, n): see tile. */
static void side_sums(const pack_layout *l, const activations *x, size_t t0, size_t n, int32_t *side) {
    size_t per16 = x->cols / 16;
    const int16_t *sum16 = x->sum16 + t0 * per16;
    const float *scale = x->scale + t0 * (per16 / 2);
    size_t count = n * per16 / 2; /* blocks of 32, all tokens in a row */
    const __m512i factor = _mm512_set1_epi32(-(int)l->bias);
    for (size_t i = 0; i < count; i += 16) {
        __mmask16 m = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
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
        __mmask16 m0 = left < 16 ? (__mmask16)((1u << left) - 1) : 0xffff;
        __mmask16 m1 = left < 16 ? 0 : left < 32 ? (__mmask16)((1u << (left - 16)) - 1) : 0xffff;
        _mm512_mask_storeu_epi32(side + 2 * i, m0, _mm512_permutex2var_epi32(even, low, odd));
        _mm512_mask_storeu_epi32(side + 2 * i + 16, m1, _mm512_permutex2var_epi32(even, high, odd));
    }
}

/* All tiles of n tokens (from t0 of x and y) with one or two row vectors. `a` has the weights. */
static void run_tokens(tile a, const tile_fn fns[TILE_TOKENS][TILE_VECTORS], size_t vectors,
                       const activations *x, size_t t0, size_t n, const int32_t *side, size_t side_cols,
                       float *y, size_t ldy) {
    size_t slices = (n + TILE_TOKENS - 1) / TILE_TOKENS;
    for (size_t s = 0, t = 0; s < slices; s++) {
        size_t count = (n - t + slices - s - 1) / (slices - s);
        a.q = x->q + (t0 + t) * x->cols;
        a.scale = x->scale + (t0 + t) * (x->cols / 32);
        a.side = side + t * side_cols;
        a.y = y + (t0 + t) * ldy;
        fns[count - 1][vectors - 1](&a);
        a.ahead = 0;
        t += count;
    }
}

static void run_chunk(const packed *w, size_t g0, size_t g1, const activations *x, size_t t0, size_t n,
                      float *y, size_t ldy, uint8_t *panel, int32_t *side) {
    const pack_layout *l = pack_describe(w->type);
    size_t blocks = w->cols / 32, side_cols = l->scale16 ? 2 * blocks : blocks;
    size_t vector_bytes = blocks * panel_block_bytes(l);
    bool in_panel = n >= PANEL_FROM;
    side_sums(l, x, t0, n, side);
    for (size_t g = g0; g < g1; g += TILE_VECTORS) {
        size_t vectors = g1 - g < TILE_VECTORS ? g1 - g : TILE_VECTORS;
        size_t rows = w->rows - (g + vectors - 1) * PACK_ROWS;
        const uint8_t *group = w->data + g * w->group_bytes;
        tile a = {.w = group,
                  .w_stride = w->group_bytes,
                  .blocks = blocks,
                  .ldy = ldy,
                  .mask = rows < PACK_ROWS ? (uint16_t)((1u << rows) - 1) : 0xffff};
        if (in_panel) {
            for (size_t v = 0; v < vectors; v++) {
                panel_unpack[w->type](group + v * w->group_bytes, blocks, panel + v * vector_bytes);
            }
            a.w = panel;
            a.w_stride = vector_bytes;
        }
        run_tokens(a, in_panel ? tiles_panel[l->scale16][l->has_min] : tiles_packed[w->type], vectors, x, t0,
                   n, side, side_cols, y + g * PACK_ROWS, ldy);
    }
}

void matmul_avx512(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y,
                   size_t ldy, void *scratch) {
    if (dtype_is_float(w->type)) {
        matmul_ref(w, g0, g1, x, n, y, ldy, scratch);
        return;
    }
    uint8_t *panel = scratch;
    int32_t *side = (int32_t *)(void *)(panel + w->cols * PANEL_ROWS * 4);
    size_t chunks = (n + PANEL_TOKENS - 1) / PANEL_TOKENS;
    for (size_t c = 0, t = 0; c < chunks; c++) {
        size_t count = (n - t + chunks - c - 1) / (chunks - c);
        run_chunk(w, g0, g1, x, t, count, y, ldy, panel, side);
        t += count;
    }
}
