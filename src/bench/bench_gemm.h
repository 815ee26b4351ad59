/* bench_gemm.h: products of f32 matrices against the processor's f32 peak. */
#ifndef BENCH_BENCH_GEMM_H
#define BENCH_BENCH_GEMM_H

#include "bench/bench_kernel.h"

/* Rows for gemm_tile: matrices as transformers and fully connected layers have them, and pixels by taps as
 * convolutions do. Threads take panels. */
MUST_USE status bench_gemms(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                            void *ctx, error *err);

#endif
