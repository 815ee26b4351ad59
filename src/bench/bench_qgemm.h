/* bench_qgemm.h: products of 8-bit matrices against the processor's int8 peak. */
#ifndef BENCH_QGEMM_H
#define BENCH_QGEMM_H

#include "bench/bench_kernel.h"

/* Rows for qgemm_tile, scaled to f32: matrices as transformers and fully connected layers have them; then for
 * range, quantize_u8 and requantize. */
MUST_USE status bench_qgemms(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                             void *ctx, error *err);

#endif
