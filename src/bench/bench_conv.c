/* bench_conv.c: see bench_conv.h. */
#include "bench/bench_conv.h"

#include "base/mem.h"
#include "kernel/conv.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS = 8 };

typedef struct conv_case {
    size_t in, out, groups, size, kernel, stride;
} conv_case;

/* The kinds of layers of ResNet-50 and MobileNet. */
static const conv_case cases[] = {{3, 64, 1, 224, 7, 2},    {64, 64, 1, 56, 3, 1},   {128, 128, 1, 28, 3, 1},
                                  {256, 256, 1, 14, 3, 1},  {512, 512, 1, 7, 3, 1},  {64, 256, 1, 56, 1, 1},
                                  {1024, 256, 1, 14, 1, 1}, {256, 512, 1, 56, 1, 2}, {96, 96, 96, 112, 3, 1},
                                  {384, 384, 384, 28, 3, 1}};

typedef struct conv_bench {
    const kernels *k;
    conv_job job;
    size_t units, scratch_floats;
    float *scratch;
} conv_bench;

static void member(void *ctx, const pool_member *me) {
    const conv_bench *b = ctx;
    size_t from, to;
    pool_split(me, b->units, 1, &from, &to);
    if (from < to) conv_run(b->k, &b->job, from, to, b->scratch + me->index * b->scratch_floats);
}

static float *filled(size_t floats) {
    float *x = mem_aligned(64, floats * sizeof *x);
    for (size_t i = 0; x && i < floats; i++)
        x[i] = (float)((int)(i * 2654435761u >> 24 & 255) - 128) / 128.0f;
    return x;
}

static void fill_row(bench_row *out, const conv_case *s, const conv *c, const bench_bounds *bounds) {
    snprintf(out->name, sizeof out->name, "%s %zux%zu %zu>%zu %zux%zu/%zu",
             c->kind == CONV_DEPTHWISE ? "depthwise_row" : "conv", s->size, s->size, s->in, s->out, s->kernel,
             s->kernel, s->stride);
    const double taps = (double)(s->kernel * s->kernel) * (double)(s->in / s->groups);
    const double pixels = (double)(c->out_h * c->out_w);
    out->gop_per_s = 2.0 * pixels * (double)s->out * taps / out->seconds * 1e-9;
    out->gb_per_s =
        ((double)(s->size * s->size * s->in) + pixels * (double)s->out) * sizeof(float) / out->seconds * 1e-9;
    out->bound = BENCH_BOUND_F32;
    out->fraction = bounds->f32_gflop_per_s > 0.0 ? out->gop_per_s / bounds->f32_gflop_per_s : 0.0;
}

static status measure(const conv_case *s, const kernels *k, const bench_bounds *bounds, pool *threads,
                      bench_row *out, error *err) {
    conv c = {.in_channels = s->in,
              .out_channels = s->out,
              .groups = s->groups,
              .in_h = s->size,
              .in_w = s->size,
              .kernel_h = s->kernel,
              .kernel_w = s->kernel,
              .stride_h = s->stride,
              .stride_w = s->stride,
              .dilation_h = 1,
              .dilation_w = 1,
              .pad_top = s->kernel / 2,
              .pad_left = s->kernel / 2,
              .low = 0.0f,
              .high = INFINITY};
    c.out_h = c.out_w = (s->size + 2 * c.pad_top - s->kernel) / s->stride + 1;
    if (!conv_choose(&c, &c.kind))
        return error_set(err, CHURON_INTERNAL, "convolution to measure: no kind for it");
    conv_bench b = {
        .k = k, .units = conv_units(&c, 1), .scratch_floats = (conv_scratch_floats(&c) + 15) / 16 * 16};
    const size_t in_floats = conv_blocks(s->in) * CONV_BLOCK * s->size * s->size;
    const size_t out_floats = conv_blocks(s->out) * CONV_BLOCK * c.out_h * c.out_w;
    float *in = filled(in_floats), *weights = filled(conv_packed_floats(&c)), *y = filled(out_floats);
    b.scratch = filled(b.scratch_floats * pool_threads(threads));
    status st = CHURON_OK;
    if (in && weights && y && b.scratch) {
        b.job = (conv_job){.c = &c, .packed = weights, .in = in, .out = y, .batch = 1};
        *out = (bench_row){.isa = k->name, .threads = pool_threads(threads)};
        out->seconds = bench_best_time(threads, member, &b, ROUNDS);
        fill_row(out, s, &c, bounds);
    } else {
        st = error_no_memory(err, "images to measure", in_floats * sizeof *in);
    }
    mem_free(in);
    mem_free(weights);
    mem_free(y);
    mem_free(b.scratch);
    return st;
}

status bench_convs(const kernels *k, const bench_bounds *bounds, pool *threads, bench_visit visit, void *ctx,
                   error *err) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_row row;
        TRY(measure(&cases[i], k, bounds, threads, &row, err));
        if (!visit(ctx, &row)) break;
    }
    return CHURON_OK;
}
