/* bench_gemm.c: see bench_gemm.h. */
#include "bench/bench_gemm.h"

#include "base/mem.h"
#include "kernel/gemm.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS = 10, MAX_TAPS = 9, TAP_BLOCKS = 64 };

typedef struct gemm_case {
    size_t m, n, k;
    size_t taps; /* 0: a matrix; else pixels of k/16/taps blocks of 16 channels */
} gemm_case;

/* BERT's two products, a square, a fully connected layer for one row; 1x1 and 3x3 convolutions of 28x28 and
 * 14x14 pixels. */
static const gemm_case cases[] = {{128, 384, 384, 0},  {128, 1536, 384, 0}, {512, 512, 512, 0},
                                  {1, 4096, 1024, 0},  {784, 128, 256, 1},  {196, 256, 1024, 1},
                                  {784, 128, 1152, 9}, {196, 256, 2304, 9}};

typedef struct gemm_job {
    const kernels *k;
    gemm g;
    size_t m, scratch_floats;
    float *scratch;
} gemm_job;

static void member(void *ctx, const pool_member *me) {
    const gemm_job *job = ctx;
    size_t from, to;
    pool_split(me, gemm_panels(job->g.n), 2, &from, &to);
    gemm_run(job->k, &job->g, 0, job->m, from, to, job->scratch + me->index * job->scratch_floats);
}

static float *filled(size_t floats) {
    float *x = mem_aligned(64, floats * sizeof *x);
    for (size_t i = 0; x && i < floats; i++)
        x[i] = (float)((int)(i * 2654435761u >> 24 & 255) - 128) / 128.0f;
    return x;
}

static status measure(const gemm_case *c, const kernels *k, const bench_bounds *bounds, pool *threads,
                      bench_row *out, error *err) {
    static ptrdiff_t runs[TAP_BLOCKS * MAX_TAPS];
    const size_t taps = c->taps ? c->taps : 1, run = c->taps ? 16 : c->k,
                 a_floats = c->m * c->k / taps + 64 * taps;
    gemm_job job = {.k = k, .m = c->m, .scratch_floats = (gemm_scratch_floats(c->k) + 15) / 16 * 16};
    job.g = (gemm){.n = c->n,
                   .k = c->k,
                   .a_row = c->taps ? 16 : c->k,
                   .a_k = 1,
                   .runs = runs,
                   .n_runs = c->k / run,
                   .run = run,
                   .c_row = c->taps ? 16 : c->n,
                   .c_panel = c->taps ? 16 * c->m : 16,
                   .low = -INFINITY,
                   .high = INFINITY};
    for (size_t s = 0; s < job.g.n_runs; s++) runs[s] = (ptrdiff_t)(s / taps * 16 * c->m + s % taps * 16);
    float *a = filled(a_floats), *b = filled(gemm_packed_floats(c->k, c->n));
    float *y = filled(c->m * gemm_panels(c->n) * GEMM_PANEL);
    job.scratch = filled(job.scratch_floats * pool_threads(threads));
    status st = CHURON_OK;
    if (a && b && y && job.scratch) {
        job.g.a = a;
        job.g.b = b;
        job.g.c = y;
        const double seconds = bench_best_time(threads, member, &job, ROUNDS);
        *out = (bench_row){.isa = k->name, .threads = pool_threads(threads), .seconds = seconds};
        snprintf(out->name, sizeof out->name, "gemm_tile %zux%zux%zu%s", c->m, c->n, c->k,
                 c->taps == 0   ? ""
                 : c->taps == 1 ? " 1x1"
                                : " 3x3");
        out->gop_per_s = 2.0 * (double)c->m * (double)c->n * (double)c->k / seconds * 1e-9;
        out->gb_per_s = (double)(c->k * c->n * sizeof *b) / seconds * 1e-9;
        const double of_read = out->gb_per_s / bench_bounds_read(bounds, c->k * c->n * sizeof *b);
        const double of_peak = bounds->f32_gflop_per_s > 0.0 ? out->gop_per_s / bounds->f32_gflop_per_s : 0.0;
        out->bound = of_read > of_peak ? BENCH_BOUND_READ : BENCH_BOUND_F32;
        out->fraction = of_read > of_peak ? of_read : of_peak;
    } else {
        st = error_no_memory(err, "matrices to measure", a_floats * sizeof *a);
    }
    mem_free(a);
    mem_free(b);
    mem_free(y);
    mem_free(job.scratch);
    return st;
}

status bench_gemms(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit, void *ctx,
                   error *err) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_row row;
        TRY(measure(&cases[i], k, bounds, threads, &row, err));
        if (!visit(ctx, &row)) break;
    }
    return CHURON_OK;
}
