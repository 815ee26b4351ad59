/* bench_vector.h: the kernels that work on rows, on logits and on the KV cache, each against its bound.
 *
 * Rows and logits are measured on one thread with data in the nearest caches, as a decoder meets them;
 * attention on all threads of the pool, decoding with a cache of 90 heads (30 layers of 3) at 4,096 positions
 * laid out as the KV pool does, which is read from memory. */
#ifndef BENCH_BENCH_VECTOR_H
#define BENCH_BENCH_VECTOR_H

#include "bench/bench_kernel.h"

/* Rows for every entry of the table but matmul, unpack_row and quantize. */
MUST_USE status bench_vectors(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                              void *ctx, error *err);

#endif
