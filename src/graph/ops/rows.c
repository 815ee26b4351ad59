#include "graph/ops/rows.h"

enum { LANES = 8 };

/* term: an expression of x[i]. */
#define LANE_SUM(name, type, term)                                                                           \
    static double name(const type *x, size_t n, double shift) {                                              \
        double lane[LANES] = {0}, sum = 0;                                                                   \
        size_t i = 0;                                                                                        \
        (void)shift;                                                                                         \
        for (; i + LANES <= n; i += LANES)                                                                   \
            for (size_t l = 0; l < LANES; l++) {                                                             \
                double v = (double)x[i + l];                                                                 \
                lane[l] += term;                                                                             \
            }                                                                                                \
        for (; i < n; i++) {                                                                                 \
            double v = (double)x[i];                                                                         \
            lane[i % LANES] += term;                                                                         \
        }                                                                                                    \
        for (size_t l = 0; l < LANES; l++) sum += lane[l];                                                   \
        return sum;                                                                                          \
    }

LANE_SUM(plain_f32, float, v)
LANE_SUM(plain_f64, double, v)
LANE_SUM(square_f32, float, v *v)
LANE_SUM(square_f64, double, v *v)
LANE_SUM(spread_f32, float, (v - shift) * (v - shift))
LANE_SUM(spread_f64, double, (v - shift) * (v - shift))

void rows_moments_f32(const float *x, size_t n, double *mean, double *variance) {
    *mean = plain_f32(x, n, 0) / (double)n;
    *variance = spread_f32(x, n, *mean) / (double)n;
}

void rows_moments_f64(const double *x, size_t n, double *mean, double *variance) {
    *mean = plain_f64(x, n, 0) / (double)n;
    *variance = spread_f64(x, n, *mean) / (double)n;
}

double rows_square_sum_f32(const float *x, size_t n) {
    return square_f32(x, n, 0);
}

double rows_square_sum_f64(const double *x, size_t n) {
    return square_f64(x, n, 0);
}

double rows_sum_f32(const float *x, size_t n) {
    return plain_f32(x, n, 0);
}

double rows_sum_f64(const double *x, size_t n) {
    return plain_f64(x, n, 0);
}
