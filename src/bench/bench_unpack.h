/* bench_unpack.h: the look-up of one row in a packed matrix, as the embedding of a token. */
#ifndef BENCH_BENCH_UNPACK_H
#define BENCH_BENCH_UNPACK_H

#include "bench/bench_kernel.h"

/* Rows of a [rows, cols] matrix of a type, taken here and there so that none is in cache because its
 * neighbour was; on one thread. `seconds` is of one row. */
MUST_USE status bench_unpack(bench_row *out, const kernels *k, dtype type, size_t rows, size_t cols,
                             error *err);

#endif
