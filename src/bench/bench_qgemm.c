/* bench_qgemm.c: see bench_qgemm.h. */
#include "bench/bench_qgemm.h"

#include "base/mem.h"
#include "kernel/qgemm.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS = 10 };

/* BERT's three products, a square, a fully connected layer for one row, a convolution's patches. */
static const struct {
    size_t m, n, k;
} cases[] = {{128, 384, 384}, {128, 1536, 384}, {128, 384, 1536},
             {512, 512, 512}, {1, 4096, 1024},  {784, 128, 1152}};

typedef struct qgemm_job {
    const kernels *k;
    qgemm g;
    size_t m;
} qgemm_job;

static void member(void *ctx, const pool_member *me) {
    const qgemm_job *job = ctx;
    size_t from, to;
    pool_split(me, qgemm_panels(job->g.n), 2, &from, &to);
    qgemm_run(job->k, &job->g, 0, job->m, from, to);
}

/* One block of memory: A, packed B, then what goes with rows and with columns, zero but for the bytes. */
static char *lay_out(qgemm_job *job) {
    qgemm *g = &job->g;
    const size_t columns = qgemm_panels(g->n) * QGEMM_PANEL, rows = (job->m + 15) / 16 * 16;
    const size_t b_bytes = qgemm_packed_bytes(g->k, g->n), a_bytes = rows * qgemm_padded(g->k);
    const size_t rest = 4 * (2 * rows + 3 * columns + job->m * g->n);
    char *memory = mem_aligned(64, b_bytes + a_bytes + rest);
    if (!memory) return NULL;
    for (size_t i = 0; i < b_bytes + a_bytes; i++) memory[i] = (char)(uint8_t)(i * 2654435761u >> 24);
    for (size_t i = 0; i < rest; i++) memory[b_bytes + a_bytes + i] = 0;
    g->b = (const int8_t *)memory;
    g->a = (const uint8_t *)memory + b_bytes;
    g->a_row = qgemm_padded(g->k);
    g->a_zero = (const int32_t *)(void *)(memory + b_bytes + a_bytes);
    g->a_scale = (const float *)(const void *)(g->a_zero + rows);
    g->b_sums = (const int32_t *)(const void *)(g->a_scale + rows);
    g->b_scale = (const float *)(const void *)(g->b_sums + columns);
    g->bias = g->b_scale + columns;
    g->y = (float *)(void *)(memory + b_bytes + a_bytes) + 2 * rows + 3 * columns;
    return memory;
}

/* ---- to 8 bits and back ----------------------------------------------------------------------------- */

enum { VALUES = 128 * 384 }; /* a step's activations of a small BERT */

typedef struct convert_job {
    const kernels *k;
    int which;
    float *x, *scale;
    int32_t *sums;
    uint8_t *y;
} convert_job;

static void convert(void *ctx, const pool_member *me) {
    const convert_job *j = ctx;
    size_t from, to;
    float least = 0.0f, most = 0.0f;
    pool_split(me, VALUES, 64, &from, &to);
    const size_t n = to - from;
    switch (j->which) {
    case 0:
        j->k->range(j->x + from, n, &least, &most);
        j->scale[me->index] = most - least;
        break;
    case 1: j->k->quantize_u8(j->x + from, n, 0.01f, 100, j->y + from); break;
    default: j->k->requantize(j->sums + from, j->x + from, n, 3, 0, 255, j->y + from); break;
    }
}

static status bench_conversions(const kernels *k, const bench_bounds *bounds, pool *threads,
                                bench_visit visit, void *ctx, error *err) {
    bool more = true;
    static const char *const names[] = {"range", "quantize_u8", "requantize"};
    static const size_t bytes[] = {4, 4, 8};
    char *memory = mem_calloc(4, VALUES * sizeof(float));
    if (!memory) return error_no_memory(err, "values to measure", 4 * VALUES * sizeof(float));
    convert_job job = {.k = k, .x = (float *)(void *)memory};
    job.scale = job.x + VALUES;
    job.sums = (int32_t *)(void *)(job.scale + VALUES);
    job.y = (uint8_t *)(job.sums + VALUES);
    for (size_t i = 0; i < VALUES; i++) job.x[i] = (float)(i % 255) * 0.01f, job.sums[i] = (int32_t)i;
    for (job.which = 0; job.which < 3 && more; job.which++) {
        const double seconds = bench_best_time(threads, convert, &job, ROUNDS);
        bench_row row = {.isa = k->name, .threads = pool_threads(threads), .seconds = seconds};
        snprintf(row.name, sizeof row.name, "%s %d", names[job.which], VALUES);
        row.gb_per_s = (double)(VALUES * bytes[job.which]) / seconds * 1e-9;
        row.bound = BENCH_BOUND_READ;
        row.fraction = row.gb_per_s / bench_bounds_read(bounds, VALUES * bytes[job.which]);
        more = visit(ctx, &row);
    }
    mem_free(memory);
    return CHURON_OK;
}

status bench_qgemms(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit, void *ctx,
                    error *err) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t m = cases[i].m, n = cases[i].n, depth = cases[i].k;
        qgemm_job job = {
            .k = k, .m = m, .g = {.n = n, .k = depth, .c_row = n, .low = -INFINITY, .high = INFINITY}};
        char *memory = lay_out(&job);
        if (!memory) return error_no_memory(err, "matrices to measure", m * depth + n * depth);
        const double seconds = bench_best_time(threads, member, &job, ROUNDS);
        bench_row row = {.isa = k->name, .threads = pool_threads(threads), .seconds = seconds};
        snprintf(row.name, sizeof row.name, "qgemm_tile %zux%zux%zu", m, n, depth);
        row.gop_per_s = 2.0 * (double)m * (double)n * (double)depth / seconds * 1e-9;
        row.gb_per_s = (double)(n * depth) / seconds * 1e-9;
        const double of_read = row.gb_per_s / bench_bounds_read(bounds, n * depth);
        const double of_peak = bounds->int8_gop_per_s > 0.0 ? row.gop_per_s / bounds->int8_gop_per_s : 0.0;
        row.bound = of_read > of_peak ? BENCH_BOUND_READ : BENCH_BOUND_INT8;
        row.fraction = of_read > of_peak ? of_read : of_peak;
        mem_free(memory);
        if (!visit(ctx, &row)) return CHURON_OK;
    }
    return bench_conversions(k, bounds, threads, visit, ctx, err);
}
