/* gemm.c: the scalar reference of a tile of a product; see gemm.h. */
#include "kernel/gemm.h"
#include "kernel/ref/ref.h"

#include <math.h>

static float finish(const gemm_tile *t, size_t row, size_t panel, size_t lane, float v) {
    if (t->bias) v += t->bias[panel * GEMM_PANEL + lane];
    if (t->add) v += t->add[row * t->add_row + panel * t->add_panel + lane];
    v = v < t->low ? t->low : v; /* false for NaN */
    return v > t->high ? t->high : v;
}

void gemm_tile_ref(const gemm_tile *t, gemm_rows rows, size_t n_rows, size_t n_panels) {
    const size_t row_step = rows == GEMM_ROWS_PACKED ? 1 : t->a_row;
    const size_t k_step = rows == GEMM_ROWS_PACKED ? n_rows : 1;
    for (size_t p = 0; p < n_panels; p++) {
        const size_t lanes = t->half && p + 1 == n_panels ? GEMM_PANEL / 2 : GEMM_PANEL;
        const uint16_t mask = p + 1 == n_panels ? t->mask : 0xffff;
        for (size_t i = 0; i < n_rows; i++) {
            float *c = t->c + i * t->c_row + p * t->c_panel, sum[GEMM_PANEL];
            for (size_t l = 0; l < GEMM_PANEL; l++)
                sum[l] = t->first || !(mask >> l & 1) || l >= lanes ? 0.0f : c[l];
            const float *b = t->b + p * t->b_panel;
            for (size_t s = 0; s < t->n_runs; s++) {
                const float *a = t->a + i * row_step + t->runs[s];
                for (size_t j = 0; j < t->run; j++, b += GEMM_PANEL) {
                    for (size_t l = 0; l < lanes; l++) sum[l] = fmaf(b[l], a[j * k_step], sum[l]);
                }
            }
            for (size_t l = 0; l < GEMM_PANEL; l++) {
                if (mask >> l & 1) c[l] = t->last ? finish(t, i, p, l, sum[l]) : sum[l];
            }
        }
    }
}
