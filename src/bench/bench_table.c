/* bench_table.c: one row for every entry of a table of kernels. */
#include "bench/bench_kernel.h"
#include "bench/bench_unpack.h"
#include "bench/bench_vector.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 7, CALLS = 200, ROWS = 256, COLS = 1536 };

/* A row of activations and a packed matrix in the nearest caches. */
typedef struct row_job {
    const kernels *k;
    packed w;
    float *x;     /* [COLS] */
    int8_t *q;    /* [COLS] */
    float *scale; /* [COLS/32] */
    int16_t *sum; /* [COLS/16] */
} row_job;

static void run_quantize(const row_job *job, size_t i) {
    (void)i;
    job->k->quantize(job->x, COLS, job->q, job->scale, job->sum);
}

static void run_unpack_row(const row_job *job, size_t i) {
    job->k->unpack_row(&job->w, i % ROWS, job->x);
}

static double best_call(void (*run)(const row_job *job, size_t i), const row_job *job) {
    double best = 0.0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = clock_seconds();
        for (size_t i = 0; i < CALLS; i++) run(job, i);
        double seconds = (clock_seconds() - start) / CALLS;
        if (best == 0.0 || seconds < best) best = seconds;
    }
    return best;
}

static bool row_done(const row_job *job, const char *name, double bytes, double seconds, bench_visit visit,
                     void *ctx) {
    bench_row row = {.isa = job->k->name, .threads = 1, .seconds = seconds};
    snprintf(row.name, sizeof row.name, "%s %d", name, COLS);
    row.gb_per_s = bytes / seconds * 1e-9;
    return visit(ctx, &row);
}

/* False: the visitor stops. */
static bool bench_unpack_rows(row_job *job, void *memory, bench_visit visit, void *ctx) {
    for (int type = 0; type < DTYPE_COUNT; type++) {
        char name[32];
        snprintf(name, sizeof name, "unpack_row %s", dtype_describe((dtype)type)->name);
        pack_init(&job->w, (dtype)type, ROWS, COLS, memory);
        double bytes = (double)dtype_row_bytes((dtype)type, COLS) + COLS * 4.0;
        if (!row_done(job, name, bytes, best_call(run_unpack_row, job), visit, ctx)) return false;
    }
    return true;
}

static status bench_rows(const kernels *k, bench_visit visit, void *ctx, bool *stop, error *err) {
    status st = CHURON_OK;
    size_t bytes = pack_bytes(DTYPE_F32, ROWS, COLS); /* the largest of all types */
    void *memory = mem_pages(bytes);
    row_job job = {.k = k,
                   .x = mem_aligned(64, COLS * 4),
                   .q = mem_aligned(64, COLS),
                   .scale = mem_aligned(64, COLS / 32 * 4),
                   .sum = mem_aligned(64, COLS / 16 * 2)};
    if (memory == NULL || job.x == NULL || job.q == NULL || job.scale == NULL || job.sum == NULL) {
        st = error_no_memory(err, "a matrix to measure", bytes);
        goto cleanup;
    }
    memset(memory, 0x11, bytes); /* every scale and every float an ordinary number */
    for (size_t i = 0; i < COLS; i++) job.x[i] = (float)(i * 37 % 255) - 127.0f;
    *stop = !row_done(&job, "quantize", COLS * 5.0, best_call(run_quantize, &job), visit, ctx) ||
            !bench_unpack_rows(&job, memory, visit, ctx);
cleanup:
    mem_pages_free(memory, bytes);
    mem_free(job.x);
    mem_free(job.q);
    mem_free(job.scale);
    mem_free(job.sum);
    return st;
}

status bench_kernels(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                     void *ctx, error *err) {
    static const size_t tokens[] = {1, 16, 512};
    bool stop = false;
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
    TRY(bench_rows(k, visit, ctx, &stop, err));
    return stop ? CHURON_OK : bench_vectors(k, bounds, threads, visit, ctx, err);
}
