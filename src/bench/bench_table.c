/* bench_table.c: one row for every entry of a table of kernels. */
#include "bench/bench_kernel.h"
#include "bench/bench_unpack.h"
#include "bench/bench_vector.h"

status bench_kernels(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                     void *ctx, error *err) {
    static const size_t tokens[] = {1, 16, 512};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            bench_row row;
            TRY(bench_matmul(&row, k, bounds, threads, (dtype)type, 1536, 768, tokens[i], err));
            if (!visit(ctx, &row)) return CHURON_OK;
        }
        bench_row row;
        TRY(bench_unpack(&row, k, (dtype)type, 4096, 768, err));
        if (!visit(ctx, &row)) return CHURON_OK;
    }
    return bench_vectors(k, bounds, threads, visit, ctx, err);
}
