/* bench_table.c: one row for every entry of a table of kernels. */
#include "bench/bench_conv.h"
#include "bench/bench_gemm.h"
#include "bench/bench_kernel.h"
#include "bench/bench_media.h"
#include "bench/bench_qgemm.h"
#include "bench/bench_unpack.h"
#include "bench/bench_vector.h"

#include "base/clock.h"

#include <stdio.h>

enum { ROUNDS = 7, CALLS = 200, COLS = 1536 };

/* A row of activations in the nearest cache, one thread. */
static void bench_quantize(bench_row *out, const kernels *k) {
    float x[COLS], scale[COLS / 32];
    int8_t q[COLS];
    int16_t sum16[COLS / 16];
    *out = (bench_row){.isa = k->name, .threads = 1};
    snprintf(out->name, sizeof out->name, "quantize %d", COLS);
    for (size_t i = 0; i < COLS; i++) x[i] = (float)(i * 37 % 255) - 127.0f;
    for (int round = 0; round < ROUNDS; round++) {
        double start = clock_seconds();
        for (int i = 0; i < CALLS; i++) k->quantize(x, COLS, q, scale, sum16);
        double seconds = (clock_seconds() - start) / CALLS;
        if (round == 0 || seconds < out->seconds) out->seconds = seconds;
    }
    out->gb_per_s = sizeof x / out->seconds * 1e-9;
}

status bench_kernels(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                     void *ctx, error *err) {
    static const size_t tokens[] = {1, 16, 512};
    bench_row row;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            TRY(bench_matmul(&row, k, bounds, threads, (dtype)type, 1536, 768, tokens[i], err));
            if (!visit(ctx, &row)) return CHURON_OK;
        }
        TRY(bench_unpack(&row, k, (dtype)type, 4096, 768, err));
        if (!visit(ctx, &row)) return CHURON_OK;
    }
    bench_quantize(&row, k);
    if (!visit(ctx, &row)) return CHURON_OK;
    TRY(bench_gemms(k, bounds, threads, visit, ctx, err));
    TRY(bench_qgemms(k, bounds, threads, visit, ctx, err));
    TRY(bench_convs(k, bounds, threads, visit, ctx, err));
    TRY(bench_vectors(k, bounds, threads, visit, ctx, err));
    return bench_media(k, threads, visit, ctx, err);
}
