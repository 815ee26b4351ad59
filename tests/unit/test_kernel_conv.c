/* test_kernel_conv.c: convolutions over channels in blocks, .depthwise_row. Every instruction set is held,
 * bit for bit, against the definition written out here; images, weights and outputs end at pages that fault.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/conv.h"
#include "kernel/winograd.h"

#include "guarded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float next_value(void) {
    return (float)((double)next_random() / 2147483648.0 - 0.5);
}

static float *take(guarded *g, size_t floats, bool fill) {
    *g = guard_new(floats * sizeof(float), 4, true);
    float *x = g->data;
    for (size_t i = 0; i < floats; i++) x[i] = fill ? next_value() : NAN;
    return x;
}

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Input pixel, zero in the padding; from a planar image. */
static float pixel(const conv *c, const float *planar, size_t n, size_t channel, ptrdiff_t y, ptrdiff_t x) {
    if (y < 0 || x < 0 || y >= (ptrdiff_t)c->in_h || x >= (ptrdiff_t)c->in_w) return 0.0f;
    const float v = planar[((n * c->in_channels + channel) * c->in_h + (size_t)y) * c->in_w + (size_t)x];
    return c->before && v < 0 ? c->input_p * v : v;
}

/* One output by the chain that conv.h states. */
static float expected(const conv *c, const float *in, const float *w, size_t n, size_t o, size_t oy,
                      size_t ox) {
    const size_t per_group = c->in_channels / c->groups, group = o / (c->out_channels / c->groups);
    const size_t block = c->kind == CONV_BLOCKED ? 16 : 1;
    float sum = 0.0f;
    const size_t begin = group * per_group, end = begin + per_group;
    for (size_t b = begin / block * block; b < end; b += block) {
        for (size_t ky = 0; ky < c->kernel_h; ky++) {
            for (size_t kx = 0; kx < c->kernel_w; kx++) {
                for (size_t c_in = b > begin ? b : begin; c_in < min_size(b + block, end); c_in++) {
                    const size_t i = c_in - begin;
                    const ptrdiff_t y =
                        (ptrdiff_t)(oy * c->stride_h + ky * c->dilation_h) - (ptrdiff_t)c->pad_top;
                    const ptrdiff_t x =
                        (ptrdiff_t)(ox * c->stride_w + kx * c->dilation_w) - (ptrdiff_t)c->pad_left;
                    sum = fmaf(w[((o * per_group + i) * c->kernel_h + ky) * c->kernel_w + kx],
                               pixel(c, in, n, c_in, y, x), sum);
                }
            }
        }
    }
    return sum;
}

static float limited(const conv *c, float v) {
    v = v < c->low ? c->low : v;
    v = v > c->high ? c->high : v;
    v = c->activate ? fmaf(v, c->p, c->q) : v;
    return c->affine ? fmaf(v, c->scale, c->shift) : v;
}

static void check_conv(conv *c, size_t batch, bool extras) {
    assert_true(conv_choose(c, &c->kind));
    c->across = conv_across(c);
    const bool spreads = conv_spreads(c);
    const size_t in_pixels = c->in_h * c->in_w;
    const size_t out_pixels = c->up_h ? c->full_h * c->full_w : c->out_h * c->out_w;
    const size_t in_blocks = conv_blocks(c->in_channels), out_blocks = conv_blocks(c->out_channels);
    const size_t n_weights = c->out_channels * (c->in_channels / c->groups) * c->kernel_h * c->kernel_w;
    guarded memory[8];
    float *planar = take(&memory[0], batch * c->in_channels * in_pixels, true);
    float *weights = take(&memory[1], n_weights, true);
    float *blocked = take(&memory[2], batch * in_blocks * 16 * in_pixels, false);
    for (size_t b = 0; b < batch * in_blocks; b++) {
        conv_block(planar + b / in_blocks * c->in_channels * in_pixels, c->in_channels, in_pixels,
                   b % in_blocks, blocked + b * 16 * in_pixels);
    }
    const size_t floats = batch * out_blocks * 16 * out_pixels;
    float *out = take(&memory[3], floats, false), *add = take(&memory[4], floats, true);
    float *bias = take(&memory[5], conv_bias_floats(c), false);
    float numbers[512];
    assert_true(c->out_channels <= 512);
    for (size_t i = 0; i < c->out_channels; i++) numbers[i] = next_value();
    memset(bias, 0, conv_bias_floats(c) * sizeof *bias);
    conv_pack_bias(c, numbers, bias);
    memory[6] = guard_new(conv_packed_floats(c) * sizeof(float), 64, true);
    for (size_t i = 0; i < conv_pack_parts(c); i++) conv_pack(c, weights, i, i + 1, memory[6].data);
    memory[7] = guard_new(conv_scratch_floats(c) * sizeof(float), 64, true);
    c->low = extras ? -1.0f : -INFINITY;
    c->high = extras ? 1.5f : INFINITY;
    c->activate = extras;
    c->function = UNARY_F32_LINEAR;
    c->p = 0.5f;
    c->q = 0.25f;
    c->before = extras && conv_takes_function(c);
    c->input = UNARY_F32_LEAKY_RELU;
    c->input_p = 0.25f;
    c->affine = extras && batch == 1;
    c->scale = -1.5f;
    c->shift = 0.125f;
    const conv_job job = {.c = c,
                          .packed = memory[6].data,
                          .bias = extras ? bias : NULL,
                          .in = c->kind == CONV_PLANAR ? planar : blocked,
                          .add = extras && !spreads ? add : NULL,
                          .out = out,
                          .batch = batch};
    const size_t units = conv_units(c, batch);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        for (size_t i = 0; i < floats; i++) out[i] = NAN;
        conv_run(k, &job, units / 3, units, memory[7].data);
        conv_run(k, &job, 0, units / 3, memory[7].data);
        for (size_t n = 0; n < batch; n++) {
            for (size_t o = 0; o < c->out_channels; o++) {
                for (size_t i = 0; i < c->out_h * c->out_w; i++) {
                    const size_t place = c->up_h ? (i / c->out_w * c->up_h + c->at_h) * c->full_w +
                                                       i % c->out_w * c->up_w + c->at_w
                                                 : i;
                    const size_t at = c->single
                                          ? n * out_pixels + place
                                          : ((n * out_blocks + o / 16) * out_pixels + place) * 16 + o % 16;
                    float v = expected(c, planar, weights, n, o, i / c->out_w, i % c->out_w);
                    if (extras) v = v + numbers[o];
                    if (extras && !spreads) v = v + add[at];
                    v = limited(c, v);
                    if (v != out[at]) {
                        fail_msg("%s: image %zu channel %zu pixel %zu of %zux%zu: expected %a, got %a",
                                 k->name, n, o, i, c->out_h, c->out_w, (double)v, (double)out[at]);
                    }
                }
            }
        }
        size_t written = 0; /* the filled-up channels too, and nothing else */
        for (size_t i = 0; i < floats; i++) written += out[i] == out[i];
        assert_int_equal(written, batch * c->out_h * c->out_w * (c->single ? 1 : out_blocks * 16));
    }
    for (size_t i = 0; i < 8; i++) guard_free(&memory[i]);
}

static conv square(size_t in, size_t out, size_t groups, size_t h, size_t w, size_t kernel, size_t stride,
                   size_t dilation, size_t pad) {
    const size_t reach = (kernel - 1) * dilation + 1;
    return (conv){.in_channels = in,
                  .out_channels = out,
                  .groups = groups,
                  .in_h = h,
                  .in_w = w,
                  .out_h = (h + 2 * pad - reach) / stride + 1,
                  .out_w = (w + 2 * pad - reach) / stride + 1,
                  .kernel_h = kernel,
                  .kernel_w = kernel,
                  .stride_h = stride,
                  .stride_w = stride,
                  .dilation_h = dilation,
                  .dilation_w = dilation,
                  .pad_top = pad,
                  .pad_left = pad};
}

static void test_shapes(void **state) {
    (void)state;
    const conv list[] = {
        square(16, 16, 1, 7, 7, 3, 1, 1, 1),   square(32, 48, 1, 9, 14, 3, 1, 1, 1),
        square(20, 33, 1, 15, 5, 3, 2, 1, 1),  square(16, 32, 1, 13, 13, 1, 1, 1, 0),
        square(24, 8, 1, 20, 9, 1, 1, 1, 0),   square(16, 16, 1, 12, 12, 1, 2, 1, 0),
        square(32, 32, 1, 11, 30, 5, 1, 2, 4), square(16, 80, 1, 1, 1, 1, 1, 1, 0),
        square(64, 64, 2, 6, 6, 3, 1, 1, 1),   square(3, 24, 1, 17, 23, 7, 2, 1, 3),
        square(1, 16, 1, 10, 10, 3, 1, 1, 1),  square(4, 5, 1, 8, 8, 3, 3, 1, 0),
        square(2, 16, 1, 9, 9, 3, 1, 2, 2),    square(16, 16, 16, 9, 9, 3, 1, 1, 1),
        square(40, 40, 40, 12, 7, 3, 2, 1, 1), square(32, 32, 32, 6, 6, 5, 1, 2, 4),
        square(33, 33, 33, 1, 1, 1, 1, 1, 0),  square(60, 240, 3, 7, 9, 1, 1, 1, 0),
        square(240, 60, 3, 8, 8, 1, 1, 1, 0),  square(12, 12, 3, 9, 9, 3, 1, 1, 1),
        square(8, 16, 8, 8, 8, 3, 2, 1, 1),    square(24, 136, 8, 12, 5, 5, 1, 1, 2),
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        conv c = list[i];
        check_conv(&c, 1, i % 2 == 0);
        check_conv(&c, 3, i % 2 == 1);
    }
}

/* Images that are cut into strips of rows and of columns, weights that are cut into parts. */
static void test_cut(void **state) {
    (void)state;
    conv wide = square(128, 16, 1, 5, 300, 3, 1, 1, 1);
    check_conv(&wide, 1, true);
    conv tall = square(16, 16, 1, 130, 60, 3, 1, 1, 1);
    check_conv(&tall, 1, false);
    conv deep = square(256, 160, 1, 4, 4, 3, 1, 1, 1);
    check_conv(&deep, 2, true);
    conv pixels = square(32, 32, 1, 30, 30, 1, 1, 1, 0);
    check_conv(&pixels, 1, true);
    conv depthwise = square(16, 16, 16, 150, 90, 3, 1, 1, 1);
    check_conv(&depthwise, 1, true);
    conv uneven =
        square(16, 16, 1, 8, 8, 3, 1, 1, 0); /* padding on one side, kernel and stride of two kinds */
    uneven.kernel_h = 2;
    uneven.stride_w = 2;
    uneven.pad_left = 2;
    uneven.out_h = 7;
    uneven.out_w = 5;
    check_conv(&uneven, 1, true);
}

/* Results that lie apart in a larger image, results of one channel. */
static void test_places(void **state) {
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        conv c = square(i % 2 ? 24 : 16, i % 4 < 2 ? 1 : 40, 1, 9, 31, i < 4 ? 1 : 3, 1, 1, i < 4 ? 0 : 1);
        c.single = c.out_channels == 1;
        check_conv(&c, 2, i % 3 == 0);
        c.up_h = 2;
        c.up_w = 3;
        c.at_h = i % 2;
        c.at_w = 2;
        c.full_h = 2 * c.out_h;
        c.full_w = 3 * c.out_w;
        check_conv(&c, 2, i % 3 == 0);
    }
}

/* Few outputs: several pixels of a row at once, of one channel and of blocks, planar and blocked input. */
static void test_across(void **state) {
    (void)state;
    conv list[] = {
        square(16, 1, 1, 9, 40, 3, 1, 1, 1), square(33, 1, 1, 5, 21, 3, 1, 1, 1),
        square(8, 8, 1, 7, 19, 5, 1, 1, 2),  square(20, 3, 1, 6, 13, 5, 1, 2, 4),
        square(1, 1, 1, 4, 90, 7, 2, 1, 3),  square(3, 5, 1, 8, 33, 7, 2, 1, 0),
        square(8, 2, 1, 3, 5, 3, 1, 1, 1),
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        conv c = list[i];
        assert_true(conv_choose(&c, &c.kind) && conv_across(&c) > 1);
        for (size_t k = 0; k < 2; k++) {
            c.single = k == 0 && c.out_channels == 1;
            check_conv(&c, 1 + k, i % 2 == k);
        }
    }
    conv line = square(1, 1, 1, 1, 3000, 1, 2, 1, 0);
    line.kernel_w = 256;
    line.single = true;
    line.out_w = (3000 - 256) / 2 + 1;
    check_conv(&line, 1, true);
    assert_int_equal(line.across, 16);
    conv no = square(16, 1, 1, 8, 8, 1, 1, 1, 0); /* nothing in common between neighbours */
    assert_true(conv_choose(&no, &no.kind) && conv_across(&no) == 1);
}

/* All places within a stride at once: what one convolution for each gives. */
static void test_every(void **state) {
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        const size_t out = i % 3 == 0 ? 1 : i % 3 == 1 ? 5 : 24, places = 6, batch = 2;
        conv c = square(24, out, 1, 9, 23, 1, 1, 1, 0);
        c.single = out == 1;
        c.low = i < 3 ? -INFINITY : -0.25f;
        c.high = i < 3 ? INFINITY : 0.5f;
        c.up_h = 2;
        c.up_w = 3;
        c.full_h = 2 * c.out_h;
        c.full_w = 3 * c.out_w;
        assert_true(conv_choose(&c, &c.kind));
        const size_t floats = batch * (c.single ? 1 : conv_blocks(out) * 16) * c.full_h * c.full_w;
        guarded memory[8];
        float *in = take(&memory[0], batch * 32 * 9 * 23, true),
              *weights = take(&memory[1], places * out * 24, true);
        float *want = take(&memory[2], floats, false), *got = take(&memory[3], floats, false);
        conv all = c;
        all.every = true;
        memory[4] = guard_new(conv_packed_floats(&all) * sizeof(float), 64, true);
        memory[5] = guard_new(conv_scratch_floats(&all) * sizeof(float), 64, true);
        memory[6] = guard_new(conv_packed_floats(&c) * sizeof(float), 64, true);
        memory[7] = guard_new(conv_scratch_floats(&c) * sizeof(float), 64, true);
        for (size_t p = 0; p < places; p++) {
            c.at_h = p / 3;
            c.at_w = p % 3;
            conv_pack(&c, weights + p * out * 24, 0, conv_pack_parts(&c), memory[6].data);
            const conv_job job = {.c = &c, .packed = memory[6].data, .in = in, .out = want, .batch = batch};
            conv_run(kernels_for(KERNEL_REF), &job, 0, conv_units(&c, batch), memory[7].data);
        }
        conv_pack(&all, weights, 0, conv_pack_parts(&all), memory[4].data);
        const conv_job job = {.c = &all, .packed = memory[4].data, .in = in, .out = got, .batch = batch};
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            for (size_t f = 0; f < floats; f++) got[f] = NAN;
            conv_run(k, &job, 1, conv_units(&all, batch), memory[5].data);
            conv_run(k, &job, 0, 1, memory[5].data);
            for (size_t f = 0; f < floats; f++) {
                if (got[f] != want[f])
                    fail_msg("%s: %zu outputs, float %zu: expected %a, got %a", k->name, out, f,
                             (double)want[f], (double)got[f]);
            }
        }
        for (size_t k = 0; k < 8; k++) guard_free(&memory[k]);
    }
}

static void test_choice(void **state) {
    (void)state;
    conv_kind kind;
    conv c = square(12, 12, 3, 8, 8, 3, 1, 1, 1);
    assert_true(conv_choose(&c, &kind) && kind == CONV_BLOCKED); /* groups of 4 channels */
    c = square(8, 16, 8, 8, 8, 3, 1, 1, 1);
    assert_true(conv_choose(&c, &kind) && kind == CONV_BLOCKED); /* two outputs an input */
    c = square(4096, 16, 1, 40, 40, 9, 1, 1, 1);
    assert_false(conv_choose(&c, &kind)); /* too many runs */
    c = square(3, 16, 1, 8, 8, 3, 1, 1, 1);
    assert_true(conv_choose(&c, &kind) && kind == CONV_PLANAR);
}

static void test_layout_and_back(void **state) {
    (void)state;
    for (size_t channels = 1; channels < 40; channels += 7) {
        const size_t pixels = 13, blocks = conv_blocks(channels);
        guarded memory[3];
        float *planar = take(&memory[0], channels * pixels, true),
              *back = take(&memory[1], channels * pixels, false);
        float *blocked = take(&memory[2], blocks * 16 * pixels, false);
        for (size_t b = 0; b < blocks; b++) {
            conv_block(planar, channels, pixels, b, blocked + b * 16 * pixels);
            conv_unblock(blocked + b * 16 * pixels, channels, pixels, b, back);
        }
        assert_memory_equal(planar, back, channels * pixels * sizeof(float));
        for (size_t i = 0; i < pixels; i++) {
            for (size_t l = channels; l < blocks * 16; l++) {
                assert_true(blocked[((blocks - 1) * pixels + i) * 16 + l % 16] == 0.0f);
            }
        }
        for (size_t i = 0; i < 3; i++) guard_free(&memory[i]);
    }
}

/* Against the sums in double, within a bound of the magnitudes that meet; every instruction set the same
 * bits, whatever the batch and the units. */
static void check_winograd(conv c, size_t batch, bool extras) {
    conv direct = c;
    assert_true(conv_choose(&direct, &direct.kind) && winograd_can(&direct));
    c.kind = CONV_WINOGRAD;
    c.low = extras ? -0.5f : -INFINITY;
    c.high = extras ? 0.75f : INFINITY;
    c.activate = extras;
    c.function = UNARY_F32_LINEAR;
    c.p = 0.5f;
    c.q = 0.25f;
    c.affine = extras && batch > 1;
    c.scale = 1.25f;
    c.shift = -0.5f;
    const size_t in_pixels = c.in_h * c.in_w, out_pixels = c.out_h * c.out_w;
    const size_t in_blocks = conv_blocks(c.in_channels), out_blocks = conv_blocks(c.out_channels);
    const size_t floats = batch * out_blocks * 16 * out_pixels,
                 n_weights = c.out_channels * c.in_channels * 9;
    guarded memory[9];
    float *planar = take(&memory[0], batch * c.in_channels * in_pixels, true);
    float *weights = take(&memory[1], n_weights, true);
    float *blocked = take(&memory[3], batch * in_blocks * 16 * in_pixels, false);
    for (size_t b = 0; b < batch * in_blocks; b++)
        conv_block(planar + b / in_blocks * c.in_channels * in_pixels, c.in_channels, in_pixels,
                   b % in_blocks, blocked + b * 16 * in_pixels);
    float *out = take(&memory[4], floats, false), *first = take(&memory[5], floats, false);
    float *add = take(&memory[6], floats, true), *bias = take(&memory[7], out_blocks * 16, true);
    memory[2] = guard_new(conv_packed_floats(&c) * sizeof(float), 64, true);
    float *points = memory[2].data;
    conv_pack(&c, weights, 0, conv_pack_parts(&c), points);
    memory[8] = guard_new(conv_scratch_floats(&c) * sizeof(float), 64, true);
    conv_job job = {.c = &c,
                    .packed = points,
                    .bias = extras ? bias : NULL,
                    .in = blocked,
                    .add = extras ? add : NULL,
                    .out = first,
                    .batch = batch};
    conv_run(kernels_for(KERNEL_REF), &job, 0, conv_units(&c, batch), memory[8].data);
    for (size_t n = 0; n < batch; n++) {
        for (size_t o = 0; o < c.out_channels; o++) {
            for (size_t i = 0; i < out_pixels; i++) {
                double sum = 0, sizes = 0;
                for (size_t k = 0; k < c.in_channels * 9; k++) {
                    const ptrdiff_t y = (ptrdiff_t)(i / c.out_w + k % 9 / 3) - (ptrdiff_t)c.pad_top,
                                    x = (ptrdiff_t)(i % c.out_w + k % 3) - (ptrdiff_t)c.pad_left;
                    const double v = (double)weights[o * c.in_channels * 9 + k] *
                                     (double)pixel(&c, planar, n, k / 9, y, x);
                    sum += v;
                    sizes += fabs(v);
                }
                const size_t at = ((n * out_blocks + o / 16) * out_pixels + i) * 16 + o % 16;
                if (extras) sum += (double)bias[o] + (double)add[at];
                const double want = (double)limited(&c, (float)sum);
                if (!(fabs(want - (double)first[at]) <= 1e-6 * (sizes + 1)))
                    fail_msg("channel %zu pixel %zu of %zux%zu: expected %g, got %g", o, i, c.out_h, c.out_w,
                             want, (double)first[at]);
            }
        }
    }
    job.out = out;
    const size_t units = conv_units(&c, batch);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        for (size_t i = 0; i < floats; i++) out[i] = NAN;
        conv_run(k, &job, units / 3, units, memory[8].data);
        conv_run(k, &job, 0, units / 3, memory[8].data);
        assert_memory_equal(out, first, floats * sizeof(float));
    }
    if (batch > 1) { /* the last image alone */
        const size_t image = floats / batch;
        job.in = blocked + (batch - 1) * in_blocks * 16 * in_pixels;
        job.add = extras ? add + (batch - 1) * image : NULL;
        job.batch = 1;
        conv_run(kernels_for(KERNEL_REF), &job, 0, conv_units(&c, 1), memory[8].data);
        assert_memory_equal(out, first + (batch - 1) * image, image * sizeof(float));
    }
    for (size_t i = 0; i < 9; i++) guard_free(&memory[i]);
}

static void test_winograd(void **state) {
    (void)state;
    check_winograd(square(16, 16, 1, 8, 8, 3, 1, 1, 1), 1, false);
    check_winograd(square(24, 40, 1, 7, 18, 3, 1, 1, 1), 2, true);
    check_winograd(square(5, 17, 1, 3, 5, 3, 1, 1, 0), 3, false);
    check_winograd(square(64, 16, 1, 30, 41, 3, 1, 1, 1), 1, true);
    check_winograd(square(512, 80, 1, 9, 9, 3, 1, 1, 1), 2, true);
    conv uneven = square(16, 33, 1, 10, 11, 3, 1, 1, 0);
    uneven.pad_left = 2;
    uneven.out_w = 13;
    uneven.out_h = 10;
    check_winograd(uneven, 1, false);
    conv c = square(16, 16, 1, 8, 8, 3, 2, 1, 1);
    assert_true(conv_choose(&c, &c.kind) && !winograd_can(&c));
    c = square(16, 16, 1, 8, 8, 3, 1, 2, 2);
    assert_true(conv_choose(&c, &c.kind) && !winograd_can(&c));
}

/* The two transforms alone, each instruction set against the reference, at strides of their own. */
static void test_winograd_kernels(void **state) {
    (void)state;
    enum { ROW = 7 * 16, FLOATS = 36 * 32 };
    guarded memory[4];
    float *x = take(&memory[0], FLOATS, true), *want = take(&memory[1], FLOATS, false),
          *got = take(&memory[2], FLOATS, false), *more = take(&memory[3], FLOATS, true);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa), *ref = kernels_for(KERNEL_REF);
        if (!k) continue;
        memset(want, 0, FLOATS * sizeof(float));
        memset(got, 0, FLOATS * sizeof(float));
        ref->winograd_input(x, ROW, want, 32);
        k->winograd_input(x, ROW, got, 32);
        assert_memory_equal(want, got, FLOATS * sizeof(float));
        for (int extras = 0; extras < 2; extras++) {
            memset(want, 0, FLOATS * sizeof(float));
            memset(got, 0, FLOATS * sizeof(float));
            ref->winograd_output(x, 32, extras ? more : NULL, extras ? more : NULL, ROW, -0.25f, 0.5f, want,
                                 ROW);
            k->winograd_output(x, 32, extras ? more : NULL, extras ? more : NULL, ROW, -0.25f, 0.5f, got,
                               ROW);
            assert_memory_equal(want, got, FLOATS * sizeof(float));
        }
    }
    for (size_t i = 0; i < 4; i++) guard_free(&memory[i]);
}

/* Windows of every number of taps, a NaN in some: against the definition, bit for bit. */
static void test_pool_row(void **state) {
    (void)state;
    enum { PIXELS = 13, MOST_TAPS = 9, WIDE = 2 * PIXELS + 3 };
    guarded memory[3];
    float *x = take(&memory[0], 3 * WIDE * 16, true), *y = take(&memory[1], PIXELS * 16, false),
          *want = take(&memory[2], PIXELS * 16, false);
    x[5 * 16 + 3] = NAN;
    x[(WIDE + 8) * 16] = INFINITY;
    ptrdiff_t taps[MOST_TAPS];
    for (size_t t = 0; t < MOST_TAPS; t++) taps[t] = (ptrdiff_t)((t / 3 * WIDE + t % 3) * 16);
    for (size_t n_taps = 1; n_taps <= MOST_TAPS; n_taps++) {
        for (size_t n = 1; n <= PIXELS; n++) {
            for (int divisor = 0; divisor < 4; divisor += 3) {
                for (size_t i = 0; i < n * 16; i++) {
                    float sum = 0, most = -INFINITY;
                    for (size_t t = 0; t < n_taps; t++) {
                        const float v = x[(ptrdiff_t)(i / 16 * 32 + i % 16) + taps[t]];
                        sum = t == 0 ? v : sum + v;
                        most = v > most || isnan(v) ? v : most;
                    }
                    want[i] = divisor ? sum / (float)divisor : most;
                }
                for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                    const kernels *k = kernels_for((kernel_isa)isa);
                    if (!k) continue;
                    for (size_t i = 0; i < PIXELS * 16; i++) y[i] = -9;
                    k->pool_row(x, 32, taps, n_taps, (float)divisor, y, n);
                    for (size_t i = 0; i < n * 16; i++)
                        assert_true(y[i] == want[i] || (isnan(y[i]) && isnan(want[i])));
                    for (size_t i = n * 16; i < PIXELS * 16; i++) assert_true(y[i] == -9);
                }
            }
        }
    }
    for (size_t i = 0; i < 3; i++) guard_free(&memory[i]);
}

/* Against the definition, bit for bit: windows of every size, in place too. */
static void test_lrn_pixel(void **state) {
    (void)state;
    enum { BLOCKS = 3, PIXELS = 2, BLOCK = PIXELS * 16, FLOATS = BLOCKS * BLOCK, MOST = 7 };
    guarded memory[3];
    float *x = take(&memory[0], FLOATS, true), *y = take(&memory[1], FLOATS, false),
          *squares = take(&memory[2], 2 * MOST + BLOCKS * 16, false);
    x[5] = 0.0f;
    for (size_t size = 1; size <= MOST; size++) {
        float want[BLOCKS * 16];
        for (size_t c = 0; c < BLOCKS * 16; c++) {
            float sum = 0;
            for (ptrdiff_t i = (ptrdiff_t)c - (ptrdiff_t)(size - 1) / 2; i <= (ptrdiff_t)(c + size / 2);
                 i++) {
                if (i < 0 || i >= BLOCKS * 16) continue;
                const float v = x[i / 16 * BLOCK + i % 16];
                sum += v * v;
            }
            const float root = sqrtf(0.75f + 0.2f * sum);
            want[c] = x[c / 16 * BLOCK + c % 16] / (root * sqrtf(root));
        }
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            float *own = squares + 2 * (MOST - size); /* up to the page that faults */
            memset(own, 0, size * sizeof *own);
            memset(own + size + BLOCKS * 16, 0, size * sizeof *own);
            for (int in_place = 0; in_place < 2; in_place++) {
                if (in_place) memcpy(y, x, FLOATS * sizeof *y);
                k->lrn_pixel(in_place ? y : x, BLOCK, BLOCKS, size, 0.2f, 0.75f, own, y);
                for (size_t c = 0; c < BLOCKS * 16; c++)
                    assert_memory_equal(&y[c / 16 * BLOCK + c % 16], &want[c], sizeof *want);
            }
        }
    }
    for (size_t i = 0; i < 3; i++) guard_free(&memory[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_across),
        cmocka_unit_test(test_every),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_layout_and_back),
        cmocka_unit_test(test_winograd),
        cmocka_unit_test(test_winograd_kernels),
        cmocka_unit_test(test_pool_row),
        cmocka_unit_test(test_lrn_pixel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
