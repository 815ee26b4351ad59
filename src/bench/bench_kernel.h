/* bench_kernel.h: the machine's bounds, and every kernel of a table against its bound.
 *
 * Each figure is the best of several rounds: neighbours on a shared machine only ever slow a run down. All
 * functions block the caller for seconds; one at a time, as they would disturb each other. */
#ifndef BENCH_BENCH_KERNEL_H
#define BENCH_BENCH_KERNEL_H

#include "base/pool.h"
#include "kernel/kernel.h"

enum { BENCH_READ_SIZES = 6 };

/* What the threads reach together. */
typedef struct bench_bounds {
    const char *isa; /* static */
    size_t threads;
    size_t
        read_bytes[BENCH_READ_SIZES]; /* in all, ascending from 256 KiB to 384 MiB; split between threads */
    double read_gb_per_s[BENCH_READ_SIZES];
    double f32_gflop_per_s; /* multiply-adds count two; 0 where the instruction set has none */
    double int8_gop_per_s;
    double bf16_gflop_per_s;
} bench_bounds;

/* About three seconds. The pool decides the number of threads. */
MUST_USE status bench_bounds_measure(bench_bounds *out, kernel_isa isa, pool *threads, error *err);
/* Bandwidth at a size, from the measured sizes. */
double bench_bounds_read(const bench_bounds *b, size_t bytes);

typedef enum bench_bound {
    BENCH_BOUND_NONE,
    BENCH_BOUND_READ,
    BENCH_BOUND_INT8,
    BENCH_BOUND_F32
} bench_bound;

typedef struct bench_row {
    char name[48];   /* field of the table and case: "matmul q4_1 n=1", "rms_norm 576" */
    const char *isa; /* static */
    size_t threads;
    double seconds;    /* of one call by all threads together */
    double gb_per_s;   /* bytes of weights or operands, each counted once */
    double gop_per_s;  /* multiply-adds count two */
    bench_bound bound; /* what limits this case at best */
    double fraction;   /* of the bound; 0 for BENCH_BOUND_NONE */
} bench_row;

/* Seconds of the fastest of `rounds` rounds of fn on all members, from barrier to barrier. */
double bench_best_time(pool *p, pool_fn fn, void *ctx, size_t rounds);

/* "read", "int8", "f32" or "none". */
const char *bench_bound_name(bench_bound bound);

/* One matrix product: [rows, cols] weights of a type, n tokens, groups split between the threads. The weights
 * are read from memory at their full size, as in a model of many matrices. */
MUST_USE status bench_matmul(bench_row *out, const kernels *k, const bench_bounds *bounds, pool *threads,
                             dtype type, size_t rows, size_t cols, size_t n, error *err);

/* Called with each row when it is measured; false stops. */
typedef bool (*bench_visit)(void *ctx, const bench_row *row);

/* Rows for every entry of the table: matmul of every type with n = 1, 16 and 512 on all threads of the pool,
 * quantize and unpack_row of every type on one thread, and the rows of bench_vector.h. */
MUST_USE status bench_kernels(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit,
                              void *ctx, error *err);

#endif
