/* bench_conv.h: convolutions as vision networks have them, against the processor's f32 peak. */
#ifndef BENCH_BENCH_CONV_H
#define BENCH_BENCH_CONV_H

#include "bench/bench_kernel.h"

/* Rows for convolutions of one image, depthwise_row included. Threads take units. */
MUST_USE status bench_convs(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                            void *ctx, error *err);

#endif
