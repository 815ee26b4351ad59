/* bench_unpack.c: see bench_unpack.h. */
#include "bench/bench_unpack.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 5, STRIDE = 7919 }; /* a prime: every row comes once before any comes again */

status bench_unpack(bench_row *out, const kernels *k, dtype type, size_t rows, size_t cols, error *err) {
    size_t bytes = pack_bytes(type, rows, cols);
    *out = (bench_row){.isa = k->name, .threads = 1, .bound = BENCH_BOUND_NONE};
    snprintf(out->name, sizeof out->name, "unpack_row %s %zu", dtype_describe(type)->name, cols);
    if (bytes == 0) {
        return error_set(err, CHURON_INVALID, "cols: expected a multiple of the block, got %zu", cols);
    }
    packed w;
    void *memory = mem_pages(bytes);
    float *row = mem_aligned(64, cols * sizeof *row);
    status st = CHURON_OK;
    if (!memory || !row) {
        st = error_no_memory(err, "matrix to measure", bytes);
        goto cleanup;
    }
    memset(memory, 0x11, bytes); /* every scale and every float an ordinary number */
    pack_init(&w, type, rows, cols, memory);
    double best = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        double from = clock_seconds();
        for (size_t i = 0; i < rows; i++) k->unpack_row(&w, i * STRIDE % rows, row);
        double took = clock_seconds() - from;
        if (round == 0 || took < best) best = took;
    }
    out->seconds = best / (double)rows;
    out->gb_per_s = (double)bytes / best / 1e9;
cleanup:
    mem_pages_free(memory, bytes);
    mem_free(row);
    return st;
}
