/* rows.h: statistics of rows in a fixed order: eight partial sums in double, value i into sum i mod 8. */
#ifndef GRAPH_OPS_ROWS_H
#define GRAPH_OPS_ROWS_H

#include <stddef.h>

void rows_moments_f32(const float *x, size_t n, double *mean, double *variance); /* of the population */
void rows_moments_f64(const double *x, size_t n, double *mean, double *variance);
double rows_square_sum_f32(const float *x, size_t n);
double rows_square_sum_f64(const double *x, size_t n);
double rows_sum_f32(const float *x, size_t n);
double rows_sum_f64(const double *x, size_t n);

#endif
