/* matmul.c: cuts a matrix product into tiles.
 *
 * Few tokens: every group meets all tokens, weights unpacked in registers. Many tokens: chunks that stay in
 * the second-level cache; for each chunk, panels of 8 rows, each met by all tiles of the chunk. Tokens are
 * cut into near-equal slices. */
#include "kernel/avx2/matmul.h"

#include "kernel/avx2/avx2.h"

/* Unpacking into a panel costs about two tokens' products and saves the unpacking of every tile. The next
 * group is fetched from the number of tokens on at which the arithmetic of a block takes as long as its
 * arrival (see avx512/matmul.c). */
enum { PANEL_FROM = 24, FETCH_BYTES_PER_TOKEN = 160 };

/* side[t][i] for tokens [t0, t0+n): see tile. */
static void side_sums(const pack_layout *l, const activations *x, size_t t0, size_t n, int32_t *side) {
    const size_t per16 = x->cols / 16, step = l->scale16 ? 1 : 2;
    const int16_t *sum16 = x->sum16 + t0 * per16;
    const float *scale = x->scale + t0 * (per16 / 2);
    for (size_t i = 0; i < n * per16 / step; i++) {
        int sum = step == 1 ? sum16[i] : sum16[2 * i] + sum16[2 * i + 1];
        float value = scale[i * step / 2] * (float)sum;
        if (l->has_min) {
            __builtin_memcpy(side + i, &value, 4);
        } else {
            side[i] = -(int)l->bias * sum;
        }
    }
}

/* What a chunk of tokens shares. */
typedef struct chunk {
    const activations *x;
    size_t t0, n;        /* tokens of x */
    const int32_t *side; /* [n, side_cols] */
    size_t side_cols;
} chunk;

/* All tiles of a chunk against the weights in *a, whose fields are written one by one and never copied as a
 * whole (a wide load of what narrow stores wrote waits for all earlier loads). */
static void run_tokens(tile *a, const tile_fn *fns, size_t widest, const chunk *c, float *y) {
    size_t slices = (c->n + widest - 1) / widest;
    for (size_t s = 0, t = 0; s < slices; s++) {
        size_t count = (c->n - t + slices - s - 1) / (slices - s);
        a->q = c->x->q + (c->t0 + t) * c->x->cols;
        a->scale = c->x->scale + (c->t0 + t) * (c->x->cols / 32);
        a->side = c->side + t * c->side_cols;
        a->y = y + (c->t0 + t) * a->ldy;
        fns[count - 1](a);
        a->ahead = 0;
        t += count;
    }
}

static void run_packed(const packed *w, size_t g0, size_t g1, const chunk *c, float *y, size_t ldy) {
    tile a = {.blocks = w->cols / 32, .ldy = ldy};
    bool fetch = a.blocks != 0 && c->n * FETCH_BYTES_PER_TOKEN >= w->group_bytes / a.blocks;
    for (size_t g = g0; g < g1; g++) {
        a.w = w->data + g * w->group_bytes;
        a.ahead = fetch && g + 1 < g1 ? w->group_bytes : 0;
        a.rows = w->rows - g * PACK_ROWS;
        run_tokens(&a, tiles_packed_avx2[w->type], PACKED_TOKENS, c, y + g * PACK_ROWS);
    }
}

static void run_panels(const packed *w, size_t g0, size_t g1, const chunk *c, float *y, size_t ldy,
                       uint8_t *panel) {
    const panel_unpacker *u = &panel_unpackers[w->type];
    tile a = {.w = panel, .blocks = w->cols / 32, .ldy = ldy};
    for (size_t v = 2 * g0; v < 2 * g1 && v * VECTOR_ROWS < w->rows; v++) {
        a.rows = w->rows - v * VECTOR_ROWS;
        u->unpack(w->data + v / 2 * w->group_bytes, v % 2, a.blocks, panel);
        run_tokens(&a, tiles_panel_avx2[u->kind], PANEL_TILE_TOKENS, c, y + v * VECTOR_ROWS);
    }
}

void matmul_avx2(const packed *w, size_t g0, size_t g1, const activations *x, size_t n, float *y, size_t ldy,
                 void *scratch) {
    if (dtype_is_float(w->type)) {
        matmul_float_avx2(w, g0, g1, x, n, y, ldy, scratch);
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
                   .side_cols = w->cols / (l->scale16 ? 16 : 32)};
        side_sums(l, x, t, c.n, side);
        if (c.n < PANEL_FROM) {
            run_packed(w, g0, g1, &c, y, ldy);
        } else {
            run_panels(w, g0, g1, &c, y, ldy, panel);
        }
        t += c.n;
    }
}
