/* test_kernel_qgemm.c: products of 8-bit matrices, and what goes to 8 bits and back. Every instruction set is
 * held against the definition, written out here in 64 bits from the unpacked operands; buffers end at pages
 * that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/qgemm.h"

#include "guarded.h"

#include <stdlib.h>

typedef enum fill { RANDOM, LOWEST, HIGHEST, EXTREMES } fill;

typedef struct product {
    size_t m, n, k;
    bool a_signed, b_signed;
    uint8_t *a, *b;           /* as the caller has them: [m, k], [k, n] */
    int32_t *a_zero, *b_zero; /* of those */
    guarded rows, packed, b_sums, b_moved, a_moved, rest, sums, y, a_scale, b_scale, bias, add;
    int32_t *wanted;
    qgemm g;
} product;

static uint8_t byte_for(fill f, bool is_signed) {
    const uint8_t low = is_signed ? 0x80 : 0, high = is_signed ? 0x7f : 0xff;
    if (f == LOWEST) return low;
    if (f == HIGHEST) return high;
    if (f == EXTREMES) return next_random() % 2 ? low : high;
    return (uint8_t)next_random();
}

static int32_t number(uint8_t v, bool is_signed) {
    return is_signed ? (int8_t)v : v;
}

static guarded floats(size_t n, float low, float high) {
    guarded g = guard_new(n * sizeof(float), 4, true);
    for (size_t i = 0; i < n; i++) ((float *)g.data)[i] = low + (high - low) * (next_float() + 1) / 2;
    return g;
}

static void expect(product *p) {
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            int64_t sum = 0;
            for (size_t x = 0; x < p->k; x++) {
                const int64_t a = number(p->a[i * p->k + x], p->a_signed) - p->a_zero[i];
                sum += a * (number(p->b[x * p->n + j], p->b_signed) - p->b_zero[j]);
            }
            p->wanted[i * p->n + j] = (int32_t)(uint32_t)(uint64_t)sum;
        }
    }
}

/* Operands packed as a caller would, zero points moved with them. */
static void pack(product *p, bool zeros) {
    const size_t padded = qgemm_padded(p->k), columns = qgemm_panels(p->n) * 16;
    p->rows = guard_new(p->m * padded, 1, true);
    qgemm_rows(p->a, p->a_signed, p->k, p->m, p->k, p->rows.data);
    p->packed = guard_new(qgemm_packed_bytes(p->k, p->n), 64, true);
    p->b_sums = guard_new(columns * sizeof(int32_t), 4, true);
    const size_t half = qgemm_panels(p->n) / 2; /* in two parts, as threads would */
    qgemm_pack(p->b, p->b_signed, p->n, 1, p->k, p->n, 0, half, p->packed.data, p->b_sums.data);
    qgemm_pack(p->b, p->b_signed, p->n, 1, p->k, p->n, half, qgemm_panels(p->n), p->packed.data,
               p->b_sums.data);
    p->a_moved = guard_new(p->m * sizeof(int32_t), 4, true);
    for (size_t i = 0; i < p->m; i++)
        ((int32_t *)p->a_moved.data)[i] = p->a_zero[i] + (p->a_signed ? 128 : 0);
    p->b_moved = guard_new(columns * sizeof(int32_t), 4, true);
    for (size_t j = 0; j < columns; j++)
        ((int32_t *)p->b_moved.data)[j] = j < p->n ? p->b_zero[j] - (p->b_signed ? 0 : 128) : 0;
    p->rest = guard_new(p->m * sizeof(int32_t), 4, true);
    qgemm_rest(p->rows.data, padded, p->m, p->k, p->a_moved.data, p->rest.data);
    p->g = (qgemm){.n = p->n,
                   .k = p->k,
                   .a = p->rows.data,
                   .a_row = padded,
                   .b = p->packed.data,
                   .b_sums = p->b_sums.data,
                   .b_zero = zeros || !p->b_signed ? p->b_moved.data : NULL,
                   .a_zero = p->a_moved.data,
                   .a_rest = p->rest.data,
                   .c_row = p->n,
                   .low = -INFINITY,
                   .high = INFINITY};
}

static void open_product(product *p, size_t m, size_t n, size_t k, unsigned types, fill f, bool zeros) {
    *p = (product){.m = m, .n = n, .k = k, .a_signed = types & 1, .b_signed = (types & 2) != 0};
    p->a = malloc(m * k + 1);
    p->b = malloc(k * n + 1);
    p->a_zero = malloc(m * sizeof(int32_t));
    p->b_zero = malloc(n * sizeof(int32_t));
    p->wanted = malloc(m * n * sizeof(int32_t));
    for (size_t i = 0; i < m * k; i++) p->a[i] = byte_for(f, p->a_signed);
    for (size_t i = 0; i < k * n; i++) p->b[i] = byte_for(f, p->b_signed);
    for (size_t i = 0; i < m; i++)
        p->a_zero[i] = zeros ? number(byte_for(RANDOM, p->a_signed), p->a_signed) : 0;
    for (size_t j = 0; j < n; j++)
        p->b_zero[j] = zeros ? number(byte_for(RANDOM, p->b_signed), p->b_signed) : 0;
    expect(p);
    pack(p, zeros);
    p->sums = guard_new(m * n * sizeof(int32_t), 4, true);
    p->y = guard_new(m * n * sizeof(float), 4, true);
    p->a_scale = floats(m, 0.001f, 0.1f);
    p->b_scale = floats(qgemm_panels(n) * 16, 0.001f, 0.1f);
    p->bias = floats(qgemm_panels(n) * 16, -20.0f, 20.0f);
    p->add = floats(m * n, -20.0f, 20.0f);
}

static void close_product(product *p) {
    guarded *const all[] = {&p->rows, &p->packed, &p->b_sums,  &p->b_moved, &p->a_moved, &p->rest,
                            &p->sums, &p->y,      &p->a_scale, &p->b_scale, &p->bias,    &p->add};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_free(all[i]);
    free(p->a);
    free(p->b);
    free(p->a_zero);
    free(p->b_zero);
    free(p->wanted);
}

/* Whole, or in parts as threads would take them. */
static void run(const product *p, const kernels *k, const qgemm *g, bool parts) {
    const size_t panels = qgemm_panels(p->n), row = parts ? p->m / 3 : 0, panel = parts ? panels / 2 : 0;
    memset(g->sums ? (void *)g->sums : (void *)g->y, 0xff, p->m * p->n * 4);
    qgemm_run(k, g, 0, row, 0, panel);
    qgemm_run(k, g, row, p->m, 0, panel);
    qgemm_run(k, g, 0, p->m, panel, panels);
}

static void check_sums(product *p, const kernels *k, bool parts) {
    qgemm g = p->g;
    g.sums = p->sums.data;
    run(p, k, &g, parts);
    for (size_t i = 0; i < p->m * p->n; i++) {
        if (g.sums[i] != p->wanted[i])
            fail_msg("%s: [%zu, %zu] of m %zu n %zu k %zu: expected %d, got %d", k->name, i / p->n, i % p->n,
                     p->m, p->n, p->k, p->wanted[i], g.sums[i]);
    }
}

static void check_scaled(product *p, const kernels *k, bool extras) {
    qgemm g = p->g;
    g.y = p->y.data;
    g.a_scale = p->a_scale.data;
    g.b_scale = p->b_scale.data;
    if (extras) {
        g.bias = p->bias.data;
        g.add = p->add.data;
        g.add_row = p->n;
        g.low = -30.0f;
        g.high = 300.0f;
    }
    run(p, k, &g, extras);
    for (size_t i = 0; i < p->m * p->n; i++) {
        const size_t j = i % p->n;
        const float scale = g.a_scale[i / p->n] * g.b_scale[j];
        float v = (float)p->wanted[i] * scale;
        if (extras) {
            v += g.bias[j];
            v += g.add[i];
            v = v < g.low ? g.low : v > g.high ? g.high : v;
        }
        if (memcmp(&v, g.y + i, sizeof v) != 0)
            fail_msg("%s: [%zu, %zu] of m %zu n %zu k %zu: expected %a, got %a", k->name, i / p->n, j, p->m,
                     p->n, p->k, (double)v, (double)g.y[i]);
    }
}

static void run_everywhere(product *p) {
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        check_sums(p, k, false);
        check_sums(p, k, true);
        check_scaled(p, k, false);
        check_scaled(p, k, true);
    }
}

static void test_sizes(void **state) {
    (void)state;
    static const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 29, 40},
                        columns[] = {1, 7, 15, 16, 17, 33, 48, 64, 100},
                        depths[] = {1, 2, 3, 4, 5, 31, 64, 127, 385};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            product p;
            open_product(&p, rows[i], columns[j], depths[(i + j) % 9], (unsigned)(i + j) % 4, RANDOM,
                         (i + 2 * j) % 3 != 0);
            run_everywhere(&p);
            close_product(&p);
        }
    }
}

/* Where a pair of products, or of pairs, would not fit into 16 bits. */
static void test_extremes(void **state) {
    (void)state;
    for (unsigned types = 0; types < 4; types++) {
        for (unsigned f = LOWEST; f <= EXTREMES; f++) {
            product p;
            open_product(&p, 9, 35, 770, types, (fill)f, false);
            run_everywhere(&p);
            close_product(&p);
            open_product(&p, 9, 35, 770, types, (fill)f, true);
            run_everywhere(&p);
            close_product(&p);
        }
    }
}

/* 255 * 127 * 70,000 is beyond 2^31: sums wrap around. */
static void test_wraps(void **state) {
    (void)state;
    product p;
    open_product(&p, 2, 3, 70000, 2, HIGHEST, false);
    assert_true(p.wanted[0] < 0);
    run_everywhere(&p);
    close_product(&p);
}

static void test_transposed(void **state) {
    (void)state;
    enum { K = 13, N = 21 };
    int8_t b[K * N], turned[K * N];
    _Alignas(64) int8_t one[16 * 32], two[16 * 32];
    int32_t sums_one[32], sums_two[32];
    for (size_t i = 0; i < K; i++) {
        for (size_t j = 0; j < N; j++) b[i * N + j] = turned[j * K + i] = (int8_t)next_random();
    }
    qgemm_pack(b, true, N, 1, K, N, 0, 2, one, sums_one);
    qgemm_pack(turned, true, 1, K, K, N, 0, 2, two, sums_two);
    assert_memory_equal(one, two, qgemm_packed_bytes(K, N));
    assert_memory_equal(sums_one, sums_two, sizeof sums_one);
    assert_int_equal(qgemm_packed_bytes(SIZE_MAX / 2, 100), 0);
    assert_int_equal(qgemm_packed_bytes(SIZE_MAX, 1), 0);
    assert_int_equal(qgemm_packed_bytes(3, SIZE_MAX), 0);
}

/* A tile writes its rows and panels and nothing else. */
static void test_one_tile(void **state) {
    (void)state;
    enum { ROW = 20 };
    _Alignas(64) int8_t b[64];
    const uint8_t a[8] = {1, 2, 3, 4, 255, 0, 255, 9};
    const int32_t sums[16] = {0}, zero[2] = {0};
    const ptrdiff_t part[1] = {0};
    for (size_t i = 0; i < 64; i++) b[i] = (int8_t)(i - 128);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        int32_t c[4 * ROW];
        memset(c, 0xff, sizeof c);
        const qgemm_tile t = {.a = a,
                              .a_row = 4,
                              .part = part,
                              .n_parts = 1,
                              .quads = 1,
                              .b = b,
                              .b_panel = 64,
                              .sums = c + ROW,
                              .c_row = ROW,
                              .mask = 0x7,
                              .b_sums = sums,
                              .a_zero = zero};
        k->qgemm_tile(&t, 2, 1);
        for (size_t i = 0; i < 4 * ROW; i++) {
            const size_t row = i / ROW - 1, j = i % ROW;
            int32_t want = -1;
            if (row < 2 && j < 3) {
                want = 0;
                for (size_t x = 0; x < 4; x++) want += a[row * 4 + x] * b[j * 4 + x];
            }
            assert_int_equal(c[i], want);
        }
    }
}

/* A product over nothing is zero. */
static void test_nothing_to_sum(void **state) {
    (void)state;
    const int32_t none[16] = {0}, zero[2] = {3, 4};
    const float scale[16] = {1.0f, 1.0f};
    float bias[16] = {1.0f, -2.0f}, y[4];
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (!k) continue;
        const qgemm g = {.n = 2,
                         .a = (const uint8_t *)"",
                         .b = NULL,
                         .b_sums = none,
                         .a_zero = zero,
                         .y = y,
                         .c_row = 2,
                         .a_scale = scale,
                         .b_scale = scale,
                         .bias = bias,
                         .low = 0.0f,
                         .high = INFINITY};
        qgemm_run(k, &g, 0, 2, 0, 1);
        assert_true(y[0] == 1.0f && y[1] == 0.0f && y[2] == 1.0f && y[3] == 0.0f);
    }
}

/* ---- to and from 8 bits ----------------------------------------------------------------------------- */

static uint8_t to_byte(double v, int32_t zero, int32_t low, int32_t high) {
    const double x = nearbyint(v) + zero;
    if (isnan(x)) return (uint8_t)zero;
    return (uint8_t)(x < low ? low : x > high ? high : (int32_t)x);
}

static guarded hard_floats(size_t n) {
    static const float some[] = {0.5f,     1.5f,      -0.5f, -0.0f,  2.5f,  NAN,
                                 INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f};
    guarded x = floats(n, -200.0f, 400.0f);
    for (size_t i = 0; i < n; i += 3) ((float *)x.data)[i] = some[next_random() % 11];
    return x;
}

static void test_quantize(void **state) {
    (void)state;
    static const float scales[] = {1.0f, 0.37f, 1e-30f, 2.0f};
    for (size_t n = 0; n < 70; n++) {
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            guarded x = hard_floats(n), y = guard_new(n, 1, true);
            const float *v = x.data, scale = scales[n % 4];
            const int32_t zero = (int32_t)(next_random() % 256);
            k->quantize_u8(v, n, scale, zero, y.data);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(((uint8_t *)y.data)[i], to_byte((double)(v[i] / scale), zero, 0, 255));
            float low = 0.0f, high = 0.0f, least = 0.0f, most = 0.0f;
            for (size_t i = 0; i < n; i++) {
                if (v[i] < low) low = v[i];
                if (v[i] > high) high = v[i];
            }
            k->range(v, n, &least, &most);
            assert_true(memcmp(&low, &least, 4) == 0 && memcmp(&high, &most, 4) == 0);
            guard_free(&x);
            guard_free(&y);
        }
    }
}

static void test_requantize(void **state) {
    (void)state;
    for (size_t n = 0; n < 70; n++) {
        for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
            const kernels *k = kernels_for((kernel_isa)isa);
            if (!k) continue;
            guarded x = guard_new(n * 4, 4, true), scale = floats(n, 0.0f, 0.02f), y = guard_new(n, 1, true);
            int32_t *v = x.data;
            float *s = scale.data;
            for (size_t i = 0; i < n; i++)
                v[i] = i % 7 == 0 ? INT32_MIN : (int32_t)(next_random() % 40000) - 20000;
            if (n > 5) s[5] = NAN, s[4] = 0.5f, v[4] = 5;
            const bool is_signed = n % 2 == 0;
            const int32_t low = is_signed ? -128 : 0, high = is_signed ? 127 : 255,
                          zero = low + (int32_t)(next_random() % 256);
            k->requantize(v, s, n, zero, low, high, y.data);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(((uint8_t *)y.data)[i],
                                 to_byte((double)((float)v[i] * s[i]), zero, low, high));
            guard_free(&x);
            guard_free(&scale);
            guard_free(&y);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_wraps),      cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_quantize),   cmocka_unit_test(test_nothing_to_sum),
        cmocka_unit_test(test_requantize), cmocka_unit_test(test_one_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
