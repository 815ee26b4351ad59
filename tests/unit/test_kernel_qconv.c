/* test_kernel_qconv.c: convolutions of 8-bit images, depthwise ones included, pools, sums, products and
 * tables. Every instruction set is held against the definition, written out here; images end at pages that
 * fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/qconv.h"

#include "guarded.h"

#include <stdlib.h>

static int32_t number(uint8_t v, bool is_signed) {
    return is_signed ? (int8_t)v : v;
}

static uint8_t to_byte(float v, int32_t zero, int32_t low, int32_t high) {
    const float x = rintf(v) + (float)zero;
    return (uint8_t)(int32_t)(x < (float)low ? (float)low : x > (float)high ? (float)high : x);
}

static guarded bytes(size_t n) {
    guarded g = guard_new(n, 1, true);
    for (size_t i = 0; i < n; i++) ((uint8_t *)g.data)[i] = (uint8_t)next_random();
    return g;
}

/* ---- convolutions ----------------------------------------------------------------------------------- */

typedef struct world {
    qconv c;
    size_t batch;
    guarded x, w, y, add;
    int32_t *w_zero, *bias;
    float *scale;
    uint8_t *want;
    qpair pair;
} world;

static size_t result_of(size_t in, size_t kernel, size_t dilation, size_t stride) {
    return (in - (kernel - 1) * dilation - 1) / stride + 1;
}

static int32_t input_at(const world *v, size_t image, int64_t y, int64_t x, size_t channel) {
    const qconv *c = &v->c;
    if (y < 0 || x < 0 || y >= (int64_t)c->in_h || x >= (int64_t)c->in_w) return 0;
    const size_t at = ((image * c->in_h + (size_t)y) * c->in_w + (size_t)x) * c->in_channels + channel;
    return number(((const uint8_t *)v->x.data)[at], c->x_signed) - c->x_zero;
}

static int32_t sum_at(const world *v, size_t image, size_t oy, size_t ox, size_t o) {
    const qconv *c = &v->c;
    const size_t in = c->in_channels / c->groups, first = o / (c->out_channels / c->groups) * in;
    int64_t sum = v->bias[o];
    for (size_t i = 0; i < in; i++) {
        for (size_t ky = 0; ky < c->kernel_h; ky++) {
            for (size_t kx = 0; kx < c->kernel_w; kx++) {
                const uint8_t w =
                    ((const uint8_t *)v->w.data)[((o * in + i) * c->kernel_h + ky) * c->kernel_w + kx];
                sum +=
                    (int64_t)(number(w, c->w_signed) - v->w_zero[o]) *
                    input_at(v, image, (int64_t)(oy * c->stride_h + ky * c->dilation_h) - (int64_t)c->pad_top,
                             (int64_t)(ox * c->stride_w + kx * c->dilation_w) - (int64_t)c->pad_left,
                             first + i);
            }
        }
    }
    return (int32_t)sum;
}

static void expect(world *v, bool adds) {
    const qconv *c = &v->c;
    uint8_t *to = v->want;
    const uint8_t *add = v->add.data;
    for (size_t i = 0; i < v->batch * c->out_h * c->out_w; i++) {
        const size_t ox = i % c->out_w, oy = i / c->out_w % c->out_h, image = i / c->out_w / c->out_h;
        for (size_t o = 0; o < c->out_channels; o++, to++, add++) {
            const float scaled = (float)sum_at(v, image, oy, ox, o) * v->scale[o];
            *to = to_byte(scaled, c->y_zero, c->y_low, c->y_high);
            if (!adds) continue;
            const qpair *p = &v->pair;
            const float a = (float)((*to ^ p->a_flip) - p->a_zero),
                        b = (float)((*add ^ p->b_flip) - p->b_zero);
            *to = to_byte(p->a_factor * a + p->b_factor * b, p->y_zero, 0, 255) ^ p->y_flip;
        }
    }
}

static void open_world(world *v, qconv c, size_t batch, unsigned types, size_t end_h, size_t end_w) {
    c.out_h = result_of(c.in_h + c.pad_top + end_h, c.kernel_h, c.dilation_h, c.stride_h);
    c.out_w = result_of(c.in_w + c.pad_left + end_w, c.kernel_w, c.dilation_w, c.stride_w);
    c.x_signed = types & 1;
    c.w_signed = (types & 2) == 0;
    c.y_signed = (types & 4) != 0;
    c.x_zero = number((uint8_t)next_random(), c.x_signed);
    c.y_zero = number((uint8_t)next_random(), c.y_signed);
    c.y_low = c.y_signed ? -100 : 5;
    c.y_high = c.y_signed ? 120 : 250;
    const bool depthwise = c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels;
    *v = (world){.batch = batch};
    v->w_zero = malloc(c.out_channels * sizeof(int32_t));
    v->bias = malloc(c.out_channels * sizeof(int32_t));
    v->scale = malloc(c.out_channels * sizeof(float));
    for (size_t o = 0; o < c.out_channels; o++) {
        v->w_zero[o] =
            depthwise || types & 8 ? (c.w_signed ? 0 : 128) : number((uint8_t)next_random(), c.w_signed);
        c.w_zeros = c.w_zeros || v->w_zero[o] != (c.w_signed ? 0 : 128);
        v->bias[o] = (int32_t)next_random() % 5000;
        v->scale[o] = 0.002f + 0.001f * next_float();
    }
    v->c = c;
    v->x = bytes(batch * c.in_h * c.in_w * c.in_channels);
    v->w = bytes(c.out_channels * (c.in_channels / c.groups) * c.kernel_h * c.kernel_w);
    const size_t n = batch * c.out_h * c.out_w * c.out_channels;
    v->y = guard_new(n, 1, true);
    v->add = bytes(n);
    v->want = malloc(n);
    const uint8_t flip = c.y_signed ? 0x80 : 0;
    v->pair = (qpair){.a_flip = flip,
                      .b_flip = flip,
                      .y_flip = flip,
                      .a_zero = 17,
                      .b_zero = 130,
                      .y_zero = 60,
                      .a_factor = 0.61f,
                      .b_factor = 1.3f};
}

static void close_world(world *v) {
    guarded *const all[] = {&v->x, &v->w, &v->y, &v->add};
    for (size_t i = 0; i < 4; i++) guard_free(all[i]);
    free(v->w_zero);
    free(v->bias);
    free(v->scale);
    free(v->want);
}

/* All units at once, or from the last to the first as threads may happen to. */
static void run(const world *v, const kernels *k, const qconv_packed *weights, bool adds, bool backwards) {
    const qconv_job job = {.c = &v->c,
                           .packed = weights,
                           .in = v->x.data,
                           .out = v->y.data,
                           .batch = v->batch,
                           .add = adds ? v->add.data : NULL,
                           .pair = v->pair};
    void *scratch = aligned_alloc(64, (qconv_scratch(&v->c) + 63) / 64 * 64 + 64);
    const size_t units = qconv_units(&v->c, v->batch);
    memset(v->y.data, 0x55, v->batch * v->c.out_h * v->c.out_w * v->c.out_channels);
    for (size_t i = units; backwards && i-- > 0;) qconv_run(k, &job, i, i + 1, scratch);
    if (!backwards) qconv_run(k, &job, 0, units, scratch);
    free(scratch);
}

static void check(world *v) {
    const size_t n = v->batch * v->c.out_h * v->c.out_w * v->c.out_channels, columns = qconv_columns(&v->c);
    assert_true(qconv_suits(&v->c));
    qconv_packed weights = {.offset = malloc(columns * sizeof(int32_t)),
                            .w_zero = malloc(columns * sizeof(int32_t)),
                            .scale = malloc(columns * sizeof(float)),
                            .w = aligned_alloc(64, (qconv_packed_bytes(&v->c) + 63) / 64 * 64)};
    qconv_pack(&v->c, v->w.data, v->w_zero, v->bias, v->scale, &weights);
    for (int way = 0; way < 4; way++) {
        expect(v, way & 1);
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            run(v, k, &weights, way & 1, way & 2);
            for (size_t i = 0; i < n; i++) {
                const uint8_t got = ((const uint8_t *)v->y.data)[i];
                if (got != v->want[i])
                    fail_msg("%s: element %zu, way %d: expected %d, got %d", k->name, i, way, v->want[i],
                             got);
            }
        }
    }
    free(weights.offset);
    free(weights.w_zero);
    free(weights.scale);
    free(weights.w);
}

static void test_convolutions(void **state) {
    (void)state;
    static const struct {
        size_t in, out, groups, h, w, kernel, stride, dilation, pad, end, batch;
    } cases[] = {
        {16, 32, 1, 9, 14, 1, 1, 1, 0, 0, 2},   {12, 20, 1, 7, 7, 1, 1, 1, 0, 0, 1},
        {3, 16, 1, 15, 17, 7, 2, 1, 3, 3, 1},   {8, 64, 1, 7, 7, 3, 1, 1, 1, 1, 1},
        {64, 96, 1, 7, 7, 3, 1, 1, 1, 1, 2},    {32, 17, 1, 14, 14, 3, 2, 1, 1, 0, 1},
        {8, 40, 1, 11, 10, 3, 1, 2, 2, 2, 1},   {24, 36, 3, 6, 6, 1, 1, 1, 0, 0, 2},
        {24, 24, 2, 8, 9, 3, 1, 1, 1, 1, 1},    {10, 30, 5, 8, 5, 3, 2, 1, 1, 1, 1},
        {64, 64, 64, 9, 9, 3, 1, 1, 1, 1, 1},   {70, 70, 70, 8, 7, 3, 2, 1, 1, 1, 2},
        {33, 33, 33, 12, 12, 5, 1, 1, 2, 2, 1}, {130, 130, 130, 5, 6, 2, 1, 2, 0, 0, 1},
        {20, 4, 1, 6, 8, 1, 2, 1, 0, 0, 1},     {4, 16, 1, 9, 40, 3, 1, 1, 0, 0, 1},
        {256, 48, 1, 3, 5, 1, 1, 1, 0, 0, 1},   {5, 8, 1, 3, 3, 3, 1, 1, 2, 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned types = 0; types < 16; types += i % 2 ? 3 : 5) {
            world v;
            const qconv c = {.in_channels = cases[i].in,
                             .out_channels = cases[i].out,
                             .groups = cases[i].groups,
                             .in_h = cases[i].h,
                             .in_w = cases[i].w,
                             .kernel_h = cases[i].kernel,
                             .kernel_w = cases[i].kernel,
                             .stride_h = cases[i].stride,
                             .stride_w = cases[i].stride,
                             .dilation_h = cases[i].dilation,
                             .dilation_w = cases[i].dilation,
                             .pad_top = cases[i].pad,
                             .pad_left = cases[i].pad};
            open_world(&v, c, cases[i].batch, types, cases[i].end, cases[i].end);
            check(&v);
            close_world(&v);
        }
    }
}

/* Sums times scales beyond int32 are the limits of the type, not its other end. */
static void test_saturates(void **state) {
    (void)state;
    const qconv c = {.in_channels = 8,
                     .out_channels = 16,
                     .groups = 1,
                     .in_h = 3,
                     .in_w = 4,
                     .kernel_h = 1,
                     .kernel_w = 1,
                     .stride_h = 1,
                     .stride_w = 1,
                     .dilation_h = 1,
                     .dilation_w = 1};
    world v;
    open_world(&v, c, 1, 8, 0, 0);
    for (size_t o = 0; o < 16; o++) v.scale[o] = 0x1p38f;
    check(&v);
    close_world(&v);
}

static void test_suits(void **state) {
    (void)state;
    qconv c = {.in_channels = 64, .out_channels = 64, .groups = 64, .kernel_h = 3, .kernel_w = 3};
    assert_true(qconv_suits(&c));
    c.w_zeros = true;
    assert_false(qconv_suits(&c));
    c.groups = 32;
    assert_false(qconv_suits(&c)); /* two outputs a group */
    c.groups = 1;
    assert_true(qconv_suits(&c));
    c.kernel_h = 5000;
    assert_false(qconv_suits(&c));
}

/* ---- the others ------------------------------------------------------------------------------------- */

static uint8_t pooled(const qpool *p, const uint8_t *x, size_t c) {
    int64_t sum = 0;
    int most = -1;
    for (size_t t = 0; t < p->taps; t++) {
        const int v = x[(size_t)p->tap[t] + c] ^ p->flip;
        sum += v;
        most = v > most ? v : most;
    }
    if (!p->average) return (uint8_t)(most ^ p->flip);
    const float mean = (float)(sum - (int64_t)p->taps * p->x_zero) / p->divisor * p->factor;
    return to_byte(mean, p->y_zero, 0, 255) ^ p->y_flip;
}

static void test_pools(void **state) {
    (void)state;
    enum { PIXELS = 5 };
    for (size_t channels = 1; channels < 140; channels += channels < 20 ? 1 : 13) {
        for (unsigned way = 0; way < 4; way++) {
            const ptrdiff_t taps[3] = {0, (ptrdiff_t)(2 * channels), (ptrdiff_t)channels};
            const qpool p = {.channels = channels,
                             .x_step = channels,
                             .taps = 3,
                             .tap = taps,
                             .average = way & 1,
                             .flip = (uint8_t)(way & 2 ? 0x80 : 0),
                             .y_flip = (uint8_t)(way & 2 ? 0x80 : 0),
                             .x_zero = 77,
                             .y_zero = 20,
                             .divisor = 3.0f,
                             .factor = 1.37f};
            guarded x = bytes((PIXELS + 2) * channels), y = guard_new(PIXELS * channels, 1, true);
            for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                const kernels *k = kernels_for((kernel_isa)isa);
                if (!k) continue;
                k->qpool_row(&p, x.data, y.data, PIXELS);
                for (size_t i = 0; i < PIXELS * channels; i++) {
                    const uint8_t *pixel = (const uint8_t *)x.data + i / channels * channels;
                    assert_int_equal(((uint8_t *)y.data)[i], pooled(&p, pixel, i % channels));
                }
            }
            guard_free(&x);
            guard_free(&y);
        }
    }
}

static void test_pairs(void **state) {
    (void)state;
    for (size_t n = 1; n < 200; n += n < 70 ? 1 : 17) {
        guarded a = bytes(n), b = bytes(n), y = guard_new(n, 1, true);
        for (unsigned way = 0; way < 4; way++) {
            const uint8_t flip = (uint8_t)(way & 2 ? 0x80 : 0);
            const qpair p = {.multiply = way & 1,
                             .a_flip = flip,
                             .y_flip = flip,
                             .a_zero = 100,
                             .b_zero = 3,
                             .y_zero = 44,
                             .a_factor = way & 1 ? 0.0123f : 1.25f,
                             .b_factor = 0.5f};
            for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                const kernels *k = kernels_for((kernel_isa)isa);
                if (!k) continue;
                k->qpair(&p, a.data, b.data, y.data, n);
                for (size_t i = 0; i < n; i++) {
                    const float u = (float)((((uint8_t *)a.data)[i] ^ flip) - 100),
                                w = (float)(((uint8_t *)b.data)[i] - 3);
                    const float sum = p.multiply ? p.a_factor * (u * w) : p.a_factor * u + p.b_factor * w;
                    assert_int_equal(((uint8_t *)y.data)[i], to_byte(sum, 44, 0, 255) ^ flip);
                }
            }
        }
        guard_free(&a);
        guard_free(&b);
        guard_free(&y);
    }
}

static void test_tables(void **state) {
    (void)state;
    guarded table = bytes(256);
    for (size_t n = 1; n < 300; n += 7) {
        guarded x = bytes(n), y = guard_new(n, 1, true);
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            k->lookup(table.data, x.data, y.data, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(((uint8_t *)y.data)[i], ((uint8_t *)table.data)[((uint8_t *)x.data)[i]]);
        }
        guard_free(&x);
        guard_free(&y);
    }
    guard_free(&table);
}

/* A row of pixels, of which only the channels that exist may be read. */
static void test_depthwise_row(void **state) {
    (void)state;
    enum { CHANNELS = 37, PIXELS = 3 };
    const ptrdiff_t taps[4] = {CHANNELS, 0, 0, 0};
    int8_t w[64 * 4] = {0};
    int32_t offset[64];
    float scale[64];
    guarded x = bytes((PIXELS + 1) * CHANNELS), y = guard_new(PIXELS * CHANNELS, 1, true);
    for (size_t i = 0; i < 64; i++) {
        w[4 * i] = (int8_t)next_random();
        offset[i] = (int32_t)next_random() % 1000;
        scale[i] = 0.02f;
    }
    const qdepthwise d = {.channels = CHANNELS,
                          .x_step = CHANNELS,
                          .taps = 4,
                          .tap = taps,
                          .w = w,
                          .offset = offset,
                          .scale = scale,
                          .zero = 100,
                          .high = 200};
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        k->qdepthwise_row(&d, x.data, y.data, PIXELS);
        for (size_t i = 0; i < PIXELS * CHANNELS; i++) {
            const size_t at = qdepthwise_place(i % CHANNELS);
            const int32_t sum = ((uint8_t *)x.data)[i + CHANNELS] * w[4 * at] + offset[at];
            assert_int_equal(((uint8_t *)y.data)[i], to_byte((float)sum * 0.02f, 100, 0, 200));
        }
    }
    guard_free(&x);
    guard_free(&y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),  cmocka_unit_test(test_saturates), cmocka_unit_test(test_suits),
        cmocka_unit_test(test_pools),         cmocka_unit_test(test_pairs),     cmocka_unit_test(test_tables),
        cmocka_unit_test(test_depthwise_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
