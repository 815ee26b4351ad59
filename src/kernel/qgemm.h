/* qgemm.h: exact products of 8-bit matrices, C[m, n] = (A[m, k] - a_zero) (B[k, n] - b_zero), as int32 sums
 * or scaled to f32.
 *
 * A is read as uint8 and B as int8: signed activations and unsigned weights are moved by 128 beforehand
 * (qgemm_rows, qgemm_pack), and so are their zero points; differences stay the same. A zero point is one a
 * row of A, one a column of B. Sums are exact modulo 2^32, so all instruction sets and all ways to share out
 * rows and panels agree bit for bit.
 *
 * B is packed once, in panels of 16 columns, four values of k side by side: [n/16][k/4][16][4], k and n
 * rounded up with zeros, and the sum of every column is kept.
 *
 * sum(i, j) = dot - a_zero[i] * b_sums[j] - b_zero[j] * a_rest[i].
 * f32: (float)sum * (a_scale[i] * b_scale[j]) + bias[j] + add, then the limits, every step rounded.
 * uint8: (float)(dot + offset[j] - b_zero[j] * a_rest[i]) * b_scale[j] to nearest, ties to even, + y_zero, to
 * [y_low, y_high]; scales are finite.
 *
 * A row need not lie together: with `part` it is n_parts runs of part_quads * 4 bytes (a convolution's rows
 * of taps), and so is k of B. */
#ifndef KERNEL_QGEMM_H
#define KERNEL_QGEMM_H

#include "base/stop.h"
#include "kernel/kernel.h"

#include <stdint.h>

enum { QGEMM_PANEL = 16, QGEMM_QUAD = 4 };

typedef struct qgemm {
    size_t n, k;
    const uint8_t
        *a; /* row i: qgemm_padded(k) readable bytes at a + i*a_row; those beyond k may be anything */
    size_t a_row;
    const ptrdiff_t *part; /* [n_parts]: bytes from a row's beginning; NULL: one run of k values */
    size_t n_parts, part_quads;
    const int8_t *b; /* packed, 64-byte aligned */
    /* Of columns: [n rounded up to 16]. b_zero may be NULL: all 0. */
    const int32_t *b_sums, *b_zero;
    const int32_t *a_zero; /* [m] */
    const int32_t *a_rest; /* [m]: the sum of a row's (a - a_zero); not read if b_zero is NULL */
    int32_t *sums;         /* element (i, j) at i*c_row + j; or NULL, and: */
    float *y;
    uint8_t *bytes;        /* where both are NULL; a_zero, b_sums and a_scale are not read then */
    const int32_t *offset; /* [n rounded up to 16] */
    uint8_t y_zero, y_low, y_high;
    size_t c_row;
    const float *a_scale, *b_scale; /* [m], [n rounded up to 16] */
    const float *bias;              /* [n rounded up to 16], or NULL */
    const float *add;               /* laid out as y with a stride of its own, or NULL; may be y */
    size_t add_row;
    float low, high; /* limits; -INFINITY and INFINITY: none. NaN stays NaN */
    stop_flag *stop; /* asked between panels; NULL: never */
} qgemm;

static inline size_t qgemm_padded(size_t k) {
    return k + (QGEMM_QUAD - k % QGEMM_QUAD) % QGEMM_QUAD;
}
static inline size_t qgemm_panels(size_t n) {
    return (n + QGEMM_PANEL - 1) / QGEMM_PANEL;
}
/* Bytes of packed B; 0 on overflow (or if k or n is 0). */
size_t qgemm_packed_bytes(size_t k, size_t n);
/* Packs columns [16*p0, 16*p1) of B, b[i*row + j*col], and writes their sums. is_signed: B is int8. */
void qgemm_pack(const void *b, bool is_signed, size_t row, size_t col, size_t k, size_t n, size_t p0,
                size_t p1, int8_t *out, int32_t *sums);
/* m rows of k values, a_row apart, as uint8 rows qgemm_padded(k) apart. */
void qgemm_rows(const void *a, bool is_signed, size_t a_row, size_t m, size_t k, uint8_t *out);
/* a_rest of m rows of uint8. */
void qgemm_rest(const uint8_t *a, size_t a_row, size_t m, size_t k, const int32_t *a_zero, int32_t *out);

/* Rows [m0, m1) and panels [p0, p1). Threads take different rows or panels. */
void qgemm_run(const kernels *k, const qgemm *g, size_t m0, size_t m1, size_t p0, size_t p1);

/* ---- the instruction sets' part --------------------------------------------------------------------- */

/* A tile of rows and panels over all of K; pointers are those of its first row and panel. */
struct qgemm_tile {
    const uint8_t *a;
    size_t a_row;
    const ptrdiff_t *part;
    size_t n_parts, quads; /* quads of a part */
    const int8_t *b;
    size_t b_panel; /* bytes to the next panel */
    int32_t *sums;  /* or NULL: y, or NULL: bytes */
    float *y;
    uint8_t *bytes;
    const int32_t *offset;
    uint8_t y_zero, y_low, y_high;
    size_t c_row;
    uint16_t mask; /* columns of the last panel that exist */
    const int32_t *b_sums, *b_zero, *a_zero, *a_rest;
    const float *a_scale, *b_scale, *bias, *add;
    size_t add_row;
    float low, high;
};

#endif
