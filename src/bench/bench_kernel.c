/* bench_kernel.c: bounds and matrix products. */
#include "bench/bench_kernel.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/peak.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 5 };

static const size_t sizes[BENCH_READ_SIZES] = {(size_t)256 << 10, (size_t)1 << 20,  (size_t)4 << 20,
                                               (size_t)16 << 20,  (size_t)96 << 20, (size_t)384 << 20};

/* ---- one timed job ----------------------------------------------------------------------------------- */

/* body(ctx, me) runs on every member between two barriers; member 0 keeps the best time. */
typedef struct timed {
    pool_fn body;
    void *ctx;
    size_t rounds;
    double best;
} timed;

static void timed_member(void *ctx, const pool_member *me) {
    timed *t = ctx;
    for (size_t i = 0; i < t->rounds; i++) {
        pool_barrier(me);
        double start = me->index == 0 ? clock_seconds() : 0.0;
        t->body(t->ctx, me);
        pool_barrier(me);
        if (me->index != 0) continue;
        double seconds = clock_seconds() - start;
        if (t->best == 0.0 || seconds < t->best) t->best = seconds;
    }
}

double bench_best_time(pool *p, pool_fn fn, void *ctx, size_t rounds) {
    timed t = {.body = fn, .ctx = ctx, .rounds = rounds};
    pool_run(p, timed_member, &t);
    return t.best;
}

/* ---- bounds ------------------------------------------------------------------------------------------ */

typedef struct read_job {
    void (*read)(const void *memory, size_t bytes);
    const uint8_t *memory;
    size_t bytes, repeats;
} read_job;

static void read_member(void *ctx, const pool_member *me) {
    const read_job *job = ctx;
    size_t from, to;
    pool_split(me, job->bytes, 4096, &from, &to);
    for (size_t i = 0; i < job->repeats; i++) job->read(job->memory + from, to - from);
}

typedef struct peak_job {
    void (*run)(size_t rounds);
    size_t rounds;
} peak_job;

static void peak_member(void *ctx, const pool_member *me) {
    const peak_job *job = ctx;
    (void)me;
    job->run(job->rounds);
}

static double peak_rate(pool *p, void (*run)(size_t rounds), size_t ops) {
    if (run == NULL) return 0.0;
    peak_job job = {.run = run, .rounds = 400 * 1000};
    double seconds = bench_best_time(p, peak_member, &job, 2 * ROUNDS);
    return (double)job.rounds * (double)ops * (double)pool_threads(p) / seconds * 1e-9;
}

status bench_bounds_measure(bench_bounds *out, kernel_isa isa, pool *threads, error *err) {
    const peak_kernels *peak = peak_for(isa);
    const kernels *table = kernels_for(isa);
    *out = (bench_bounds){.threads = pool_threads(threads)};
    if (peak == NULL || table == NULL) {
        return error_set(err, CHURON_UNSUPPORTED, "instruction set: this processor lacks it");
    }
    size_t largest = sizes[BENCH_READ_SIZES - 1];
    uint8_t *memory = mem_pages(largest);
    if (memory == NULL) return error_no_memory(err, "memory to measure bandwidth", largest);
    memset(memory, 1, largest);
    out->isa = table->name;
    for (size_t i = 0; i < BENCH_READ_SIZES; i++) {
        read_job job = {.read = peak->read, .memory = memory, .bytes = sizes[i]};
        job.repeats = ((size_t)192 << 20) / sizes[i] + 1;
        double seconds = bench_best_time(threads, read_member, &job, sizes[i] == largest ? 2 : ROUNDS);
        out->read_bytes[i] = sizes[i];
        out->read_gb_per_s[i] = (double)sizes[i] * (double)job.repeats / seconds * 1e-9;
    }
    mem_pages_free(memory, largest);
    out->f32_gflop_per_s = peak_rate(threads, peak->f32, peak->f32_ops);
    out->int8_gop_per_s = peak_rate(threads, peak->int8, peak->int8_ops);
    out->bf16_gflop_per_s = peak_rate(threads, peak->bf16, peak->bf16_ops);
    return CHURON_OK;
}

double bench_bounds_read(const bench_bounds *b, size_t bytes) {
    size_t i = 0;
    while (i + 1 < BENCH_READ_SIZES && b->read_bytes[i] < bytes) i++;
    return b->read_gb_per_s[i];
}

const char *bench_bound_name(bench_bound bound) {
    static const char *const names[] = {"none", "read", "int8", "f32"};
    return names[bound];
}

/* ---- matrix products --------------------------------------------------------------------------------- */

typedef struct matmul_job {
    const kernels *k;
    packed w; /* the first of `copies`, one behind the other */
    size_t copies, copy_bytes, n, scratch_bytes;
    activations x;
    float *y;
    uint8_t *scratch; /* scratch_bytes for each thread */
} matmul_job;

static void matmul_member(void *ctx, const pool_member *me) {
    const matmul_job *job = ctx;
    size_t from, to;
    pool_split(me, pack_n_groups(&job->w), 1, &from, &to);
    for (size_t i = 0; i < job->copies; i++) {
        packed w = job->w;
        w.data += i * job->copy_bytes;
        job->k->matmul(&w, from, to, &job->x, job->n, job->y, w.rows,
                       job->scratch + me->index * job->scratch_bytes);
    }
}

static status inputs_make(matmul_job *job, size_t cols, error *err) {
    size_t n = job->n;
    float *f32 = mem_aligned(64, n * cols * 4);
    job->x = (activations){.cols = cols,
                           .f32 = f32,
                           .q = mem_aligned(64, n * cols),
                           .scale = mem_aligned(64, n * (cols / 32) * 4 + 64),
                           .sum16 = mem_aligned(64, n * (cols / 16) * 2 + 64)};
    if (f32 == NULL || job->x.q == NULL || job->x.scale == NULL || job->x.sum16 == NULL) {
        return error_no_memory(err, "activations", n * cols * 5);
    }
    for (size_t i = 0; i < n * cols; i++) f32[i] = (float)((int)(i * 2654435761u >> 24 & 255) - 128) / 128.0f;
    for (size_t t = 0; t < n && cols % 32 == 0; t++) {
        job->k->quantize(f32 + t * cols, cols, job->x.q + t * cols, job->x.scale + t * (cols / 32),
                         job->x.sum16 + t * (cols / 16));
    }
    return CHURON_OK;
}

/* Shared memory per round, so that few tokens meet weights that come from where a whole model's would. */
enum { WEIGHTS_AT_ONCE = 96 << 20 };

static void matmul_fill(bench_row *row, const matmul_job *job, const bench_bounds *bounds, double seconds) {
    double ops = 2.0 * (double)job->w.rows * (double)job->w.cols * (double)job->n;
    double peak = dtype_is_float(job->w.type) ? bounds->f32_gflop_per_s : bounds->int8_gop_per_s;
    double read = bench_bounds_read(bounds, job->copies * job->copy_bytes);
    row->seconds = seconds / (double)job->copies;
    row->gb_per_s = (double)job->copy_bytes / row->seconds * 1e-9;
    row->gop_per_s = ops / row->seconds * 1e-9;
    double of_read = row->gb_per_s / read, of_peak = peak > 0.0 ? row->gop_per_s / peak : 0.0;
    row->bound = of_read > of_peak             ? BENCH_BOUND_READ
                 : dtype_is_float(job->w.type) ? BENCH_BOUND_F32
                                               : BENCH_BOUND_INT8;
    row->fraction = of_read > of_peak ? of_read : of_peak;
}

status bench_matmul(bench_row *out, const kernels *k, const bench_bounds *bounds, pool *threads, dtype type,
                    size_t rows, size_t cols, size_t n, error *err) {
    status st = CHURON_OK;
    size_t bytes = pack_bytes(type, rows, cols), total = 0;
    matmul_job job = {.k = k, .copy_bytes = bytes, .n = n};
    void *memory = NULL;
    *out = (bench_row){.isa = k->name, .threads = pool_threads(threads)};
    snprintf(out->name, sizeof out->name, "matmul %s %zux%zu n=%zu", dtype_describe(type)->name, rows, cols,
             n);
    if (bytes == 0)
        return error_set(err, CHURON_INVALID, "cols: expected a multiple of the block, got %zu", cols);
    job.copies = n >= 64 || bytes >= WEIGHTS_AT_ONCE ? 1 : WEIGHTS_AT_ONCE / bytes;
    total = job.copies * bytes;
    job.scratch_bytes = (matmul_scratch(cols, n) + 4095) / 4096 * 4096;
    memory = mem_pages(total);
    job.y = mem_aligned(64, n * rows * 4);
    job.scratch = mem_aligned(4096, job.scratch_bytes * pool_threads(threads));
    if (memory == NULL || job.y == NULL || job.scratch == NULL) {
        st = error_no_memory(err, "matrices to measure", total);
        goto cleanup;
    }
    TRY_GOTO(inputs_make(&job, cols, err));
    memset(memory, 0x11, total); /* every scale and every float an ordinary number */
    memset(job.y, 0, n * rows * 4);
    pack_init(&job.w, type, rows, cols, memory);
    matmul_fill(out, &job, bounds, bench_best_time(threads, matmul_member, &job, 2 * ROUNDS));
cleanup:
    mem_pages_free(memory, total);
    mem_free(job.y);
    mem_free(job.scratch);
    mem_free((void *)(uintptr_t)job.x.f32);
    mem_free(job.x.q);
    mem_free(job.x.scale);
    mem_free(job.x.sum16);
    return st;
}
