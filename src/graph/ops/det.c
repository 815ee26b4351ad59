/* det.c: Det, and Inverse of com.microsoft: elimination with partial pivoting, in double. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

static status square_rank(op_shapes *s, size_t *rank, const dim **x, bool *known, error *err) {
    TRY(nn_rank(s, 0, 2, TENSOR_MAX_RANK, "X", known, rank, x, err));
    return *known ? shapes_same(s, (*x)[*rank - 2], (*x)[*rank - 1], "rows and columns", NULL, err)
                  : CHURON_OK;
}

static status det_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(square_rank(s, &rank, &x, &known, err));
    if (known) return shapes_out(s, 0, rank - 2, x, err);
    shapes_out_unknown(s, 0);
    return CHURON_OK;
}

static status inverse_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *x;
    TRY(square_rank(s, &rank, &x, &known, err));
    return infer_same(s, err);
}

/* Row at or below `col` with the largest value in column col of m [n, cols]. */
static size_t pivot_row(const double *m, size_t n, size_t cols, size_t col) {
    size_t best = col;
    for (size_t i = col + 1; i < n; i++)
        if (fabs(m[i * cols + col]) > fabs(m[best * cols + col])) best = i;
    return best;
}

static void swap_rows(double *m, size_t cols, size_t a, size_t b) {
    for (size_t k = 0; a != b && k < cols; k++) {
        double t = m[a * cols + k];
        m[a * cols + k] = m[b * cols + k], m[b * cols + k] = t;
    }
}

static double determinant(double *m, size_t n, stop_flag *stop) { /* m is destroyed */
    double det = 1;
    for (size_t c = 0; c < n && !stop_seen(stop); c++) {
        size_t p = pivot_row(m, n, n, c);
        if (p != c) swap_rows(m, n, p, c), det = -det;
        double pivot = m[c * n + c];
        det *= pivot;
        if (pivot == 0) return 0;
        for (size_t i = c + 1; i < n && !stop_at(stop, i, 64); i++) {
            double f = m[i * n + c] / pivot;
            for (size_t k = c + 1; k < n; k++) m[i * n + k] -= f * m[c * n + k];
        }
    }
    return det;
}

static status det_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    const void *from;
    void *to, *memory;
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    size_t n = (size_t)x->dims[x->rank - 1];
    TRY(run_scratch(r, (n * n + 1) * sizeof(double), &memory, err));
    for (size_t i = 0; i < y->count; i++) {
        TRY(run_check(r, err));
        memcpy(memory, (const double *)from + i * n * n, n * n * sizeof(double));
        ((double *)to)[i] = determinant(memory, n, run_stop(r));
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

/* m [n, 2n]: the matrix and the unit matrix beside it; false: singular. */
static bool invert(double *m, size_t n, stop_flag *stop) {
    size_t cols = 2 * n;
    for (size_t c = 0; c < n && !stop_seen(stop); c++) {
        size_t p = pivot_row(m, n, cols, c);
        swap_rows(m, cols, p, c);
        double pivot = m[c * cols + c];
        if (pivot == 0) return false;
        for (size_t k = 0; k < cols; k++) m[c * cols + k] /= pivot;
        for (size_t i = 0; i < n && !stop_at(stop, i, 64); i++) {
            double f = m[i * cols + c];
            for (size_t k = 0; i != c && k < cols; k++) m[i * cols + k] -= f * m[c * cols + k];
        }
    }
    return true;
}

static status inverse_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *y;
    const void *from;
    void *to, *memory;
    TRY(real_out(r, 0, ELEM_F64, &y, &to, err));
    TRY(real_in(r, 0, ELEM_F64, &from, err));
    size_t n = (size_t)x->dims[x->rank - 1];
    TRY(run_scratch(r, (2 * n * n + 1) * sizeof(double), &memory, err));
    double *m = memory;
    for (size_t b = 0; n && b < x->count / (n * n); b++) {
        TRY(run_check(r, err));
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n; k++) {
                m[i * 2 * n + k] = ((const double *)from)[(b * n + i) * n + k];
                m[i * 2 * n + n + k] = i == k ? 1 : 0;
            }
        if (!invert(m, n, run_stop(r)))
            return run_error(r, err, CHURON_INVALID, "X: matrix %zu has no inverse", b);
        for (size_t i = 0; i < n; i++)
            memcpy((double *)to + (b * n + i) * n, m + i * 2 * n + n, n * sizeof(double));
    }
    real_out_done(r, y, ELEM_F64, to);
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "Det",
     .since = 11,
     .until = 21,
     .signature = "T>T",
     .vars = {{'T', NN_F3}},
     .infer = det_infer,
     .run = det_run},
    {.domain = "",
     .name = "Det",
     .since = 22,
     .signature = "T>T",
     .vars = {{'T', ELEMS_FLOAT}},
     .infer = det_infer,
     .run = det_run},
    {.domain = "com.microsoft",
     .name = "Inverse",
     .since = 1,
     .signature = "T>T",
     .vars = {{'T', NN_F3}},
     .infer = inverse_infer,
     .run = inverse_run},
};
NN_TABLE(det);
