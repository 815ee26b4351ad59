/* qgemm.c: packing of 8-bit matrices, and how their product is cut into tiles; the same for every instruction
 * set.
 *
 * A panel pair over all of K (usually 10 to 50 KB) is met by all slices of rows in turn. Nothing rests
 * between blocks of K: a value of K costs a quarter of what it does in f32, so that a tile takes whole rows.
 */
#include "kernel/qgemm.h"

#include "base/mem.h"

#include <string.h>

size_t qgemm_packed_bytes(size_t k, size_t n) {
    size_t bytes;
    if (n > SIZE_MAX - QGEMM_PANEL || k > SIZE_MAX - QGEMM_QUAD ||
        !size_mul(qgemm_panels(n) * QGEMM_PANEL, qgemm_padded(k), &bytes))
        return 0;
    return bytes;
}

/* Column j of a panel, whose quads are 64 bytes apart. */
static int32_t pack_column(const uint8_t *b, uint8_t flip, size_t row, size_t k, uint8_t *to) {
    uint32_t sum = 0;
    for (size_t i = 0; i < k; i++) {
        const uint8_t v = b[i * row] ^ flip;
        to[i / QGEMM_QUAD * QGEMM_PANEL * QGEMM_QUAD + i % QGEMM_QUAD] = v;
        sum += (uint32_t)v - ((v & 0x80u) << 1); /* as int8 */
    }
    return (int32_t)sum;
}

void qgemm_pack(const void *b, bool is_signed, size_t row, size_t col, size_t k, size_t n, size_t p0,
                size_t p1, int8_t *out, int32_t *sums) {
    const uint8_t flip = is_signed ? 0 : 0x80; /* v - 128 in eight bits */
    const size_t panel = qgemm_padded(k) * QGEMM_PANEL;
    for (size_t p = p0; p < p1; p++) {
        uint8_t *to = (uint8_t *)out + p * panel;
        memset(to, 0, panel);
        for (size_t j = 0; j < QGEMM_PANEL; j++) {
            const size_t at = p * QGEMM_PANEL + j;
            sums[at] =
                at < n ? pack_column((const uint8_t *)b + at * col, flip, row, k, to + j * QGEMM_QUAD) : 0;
        }
    }
}

void qgemm_rows(const void *a, bool is_signed, size_t a_row, size_t m, size_t k, uint8_t *out) {
    const size_t padded = qgemm_padded(k);
    for (size_t i = 0; i < m; i++, out += padded) {
        const uint8_t *from = (const uint8_t *)a + i * a_row;
        if (is_signed) {
            for (size_t j = 0; j < k; j++) out[j] = from[j] ^ 0x80;
        } else {
            memcpy(out, from, k);
        }
        memset(out + k, 0, padded - k);
    }
}

void qgemm_rest(const uint8_t *a, size_t a_row, size_t m, size_t k, const int32_t *a_zero, int32_t *out) {
    for (size_t i = 0; i < m; i++) {
        uint32_t sum = 0;
        for (size_t j = 0; j < k; j++) sum += a[i * a_row + j];
        out[i] = (int32_t)(sum - (uint32_t)k * (uint32_t)a_zero[i]);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

/* First row of slice s of `rows` rows in `slices` near-equal slices. */
static size_t slice_begin(size_t rows, size_t slices, size_t s) {
    const size_t wide = rows % slices;
    return s * (rows / slices) + (s < wide ? s : wide);
}

static void run_tile(const kernels *k, const qgemm *g, size_t i, size_t rows, size_t p, size_t panels) {
    static const ptrdiff_t whole[1] = {0};
    const size_t j = p * QGEMM_PANEL, columns = g->n - (p + panels - 1) * QGEMM_PANEL;
    const size_t n_parts = g->part ? g->n_parts : 1,
                 quads = g->part ? g->part_quads : qgemm_padded(g->k) / QGEMM_QUAD;
    const size_t panel = n_parts * quads * QGEMM_QUAD * QGEMM_PANEL;
    const qgemm_tile t = {.a = g->a + i * g->a_row,
                          .a_row = g->a_row,
                          .part = g->part ? g->part : whole,
                          .n_parts = n_parts,
                          .quads = quads,
                          .b = g->b + p * panel,
                          .b_panel = panel,
                          .sums = g->sums ? g->sums + i * g->c_row + j : NULL,
                          .y = g->sums || !g->y ? NULL : g->y + i * g->c_row + j,
                          .bytes = g->sums || g->y ? NULL : g->bytes + i * g->c_row + j,
                          .offset = g->offset ? g->offset + j : NULL,
                          .y_zero = g->y_zero,
                          .y_low = g->y_low,
                          .y_high = g->y_high,
                          .c_row = g->c_row,
                          .mask = (uint16_t)(columns < QGEMM_PANEL ? (1u << columns) - 1u : 0xffffu),
                          .b_sums = g->b_sums ? g->b_sums + j : NULL,
                          .b_zero = g->b_zero ? g->b_zero + j : NULL,
                          .a_zero = g->a_zero ? g->a_zero + i : NULL,
                          .a_rest = g->b_zero ? g->a_rest + i : NULL,
                          .a_scale = g->sums || !g->y ? NULL : g->a_scale + i,
                          .b_scale = g->sums ? NULL : g->b_scale + j,
                          .bias = g->bias ? g->bias + j : NULL,
                          .add = g->add ? g->add + i * g->add_row + j : NULL,
                          .add_row = g->add_row,
                          .low = g->low,
                          .high = g->high};
    k->qgemm_tile(&t, rows, panels);
}

void qgemm_run(const kernels *k, const qgemm *g, size_t m0, size_t m1, size_t p0, size_t p1) {
    if (m0 >= m1) return;
    const gemm_shape *shape = &k->qgemm_shape;
    const size_t m = m1 - m0, slices = (m + shape->rows - 1) / shape->rows;
    const size_t most = (m + slices - 1) / slices <= shape->few_rows ? shape->few_panels : shape->panels;
    for (size_t p = p0; p < p1 && !stop_now(g->stop);) {
        size_t panels = p1 - p < most ? p1 - p : most;
        if (panels == 3) panels = 2; /* there are tiles of 1, 2 and 4 panels */
        for (size_t s = 0; s < slices; s++) {
            const size_t from = slice_begin(m, slices, s);
            run_tile(k, g, m0 + from, slice_begin(m, slices, s + 1) - from, p, panels);
        }
        p += panels;
    }
}
