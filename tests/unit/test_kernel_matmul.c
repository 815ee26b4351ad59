/* test_kernel_matmul.c: packing, .matmul, .unpack_row and .quantize of every instruction set.
 *
 * The scalar reference is held against double precision over the file's own format; every other table is held
 * against the reference bit for bit. Inputs and outputs end at, and begin after, pages that fault. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernel/kernel.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory that ends at a page that faults ---------------------------------------------------------- */

typedef struct guarded {
    uint8_t *map, *data;
    size_t map_bytes;
} guarded;

/* at_end: data ends at a guard page (as closely as `align` allows), else it begins behind one. */
static guarded guard_new(size_t bytes, size_t align, bool at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = body + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.map, MAP_FAILED);
    assert_int_equal(mprotect(g.map + page, body, PROT_READ | PROT_WRITE), 0);
    g.data = g.map + page + (at_end ? (body - bytes) / align * align : 0);
    return g;
}

static void guard_free(guarded *g) {
    assert_int_equal(munmap(g->map, g->map_bytes), 0);
}

/* ---- inputs ------------------------------------------------------------------------------------------ */

static uint64_t rng = 1;

static uint32_t next_random(void) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static float next_float(void) { /* -1..1 */
    return (float)((double)next_random() / 1073741824.0 - 1.0);
}

static void put_f16(uint8_t *at, float f) {
    uint16_t h = f32_to_f16(f);
    memcpy(at, &h, 2);
}

/* Where the f16 scales lie in a block of the file's format. */
static void plant_scales(dtype type, uint8_t *block) {
    static const struct {
        int d, m;
    } at[DTYPE_COUNT] = {
        [DTYPE_Q4_0] = {0, -1}, [DTYPE_Q4_1] = {0, 2},    [DTYPE_Q5_0] = {0, -1},   [DTYPE_Q5_1] = {0, 2},
        [DTYPE_Q8_0] = {0, -1}, [DTYPE_Q2_K] = {80, 82},  [DTYPE_Q3_K] = {108, -1}, [DTYPE_Q4_K] = {0, 2},
        [DTYPE_Q5_K] = {0, 2},  [DTYPE_Q6_K] = {208, -1}, [DTYPE_IQ4_NL] = {0, -1},
    };
    put_f16(block + at[type].d, 0.01f * next_float());
    if (at[type].m >= 0) put_f16(block + at[type].m, 0.05f * next_float());
}

/* Rows of a type in file order: random bits with scales of ordinary size. extreme: all stored values at one
 * end of their range, where narrow sums would overflow first. */
static uint8_t *random_weights(dtype type, size_t rows, size_t cols, bool extreme) {
    const dtype_info *info = dtype_describe(type);
    size_t bytes = rows * dtype_row_bytes(type, cols);
    uint8_t *w = mem_alloc(bytes);
    assert_non_null(w);
    uint8_t fill = next_random() % 2 ? 0xff : (type == DTYPE_Q8_0 ? 0x80 : 0);
    for (size_t i = 0; i < bytes; i++) w[i] = extreme ? fill : (uint8_t)next_random();
    for (size_t i = 0; i < bytes / info->bytes; i++) {
        uint8_t *block = w + i * info->bytes;
        float f = next_float();
        if (type == DTYPE_F32) {
            memcpy(block, &f, 4);
        } else if (type == DTYPE_F16) {
            put_f16(block, f);
        } else if (type == DTYPE_BF16) {
            memcpy(block, (uint8_t *)&f + 2, 2);
        } else {
            plant_scales(type, block);
        }
    }
    return w;
}

/* n rows of activations, quantized row by row by the reference; each array ends at a guard page. */
typedef struct inputs {
    guarded f32, q, scale, sum16;
    activations x;
} inputs;

static void inputs_new(inputs *in, size_t n, size_t cols, bool is_float, bool extreme, bool at_end) {
    const kernels *ref = kernels_for(KERNEL_REF);
    size_t c = is_float ? 0 : cols;
    in->f32 = guard_new(n * cols * 4, 4, at_end);
    in->q = guard_new(n * c, 1, at_end);
    in->scale = guard_new(n * (c / 32) * 4, 4, at_end);
    in->sum16 = guard_new(n * (c / 16) * 2, 2, at_end);
    in->x = (activations){.cols = cols,
                          .f32 = (float *)in->f32.data,
                          .q = (int8_t *)in->q.data,
                          .scale = (float *)in->scale.data,
                          .sum16 = (int16_t *)in->sum16.data};
    for (size_t i = 0; i < n * cols; i++) {
        float f = extreme ? (next_random() % 8 ? 1.0f : -1.0f) : next_float();
        memcpy(in->f32.data + 4 * i, &f, 4);
    }
    for (size_t t = 0; t < n && !is_float; t++) {
        ref->quantize(in->x.f32 + t * cols, cols, in->x.q + t * cols, in->x.scale + t * (cols / 32),
                      in->x.sum16 + t * (cols / 16));
    }
}

static void inputs_free(inputs *in) {
    guard_free(&in->f32);
    guard_free(&in->q);
    guard_free(&in->scale);
    guard_free(&in->sum16);
}

static guarded pack_new(packed *w, dtype type, size_t rows, size_t cols, const void *source) {
    size_t bytes = pack_bytes(type, rows, cols);
    assert_true(bytes > 0);
    guarded memory = guard_new(bytes, 64, true);
    pack_init(w, type, rows, cols, memory.data);
    size_t groups = pack_n_groups(w);
    pack_groups(w, source, groups / 2, groups); /* in parts and out of order, as threads may */
    pack_groups(w, source, 0, groups / 2);
    return memory;
}

/* ---- the reference against double precision ---------------------------------------------------------- */

/* The largest |min| that random_weights can plant: w = scale * q + min, so |scale * q| <= |w| + |min|. */
static double largest_min(dtype type) {
    switch (type) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: return 0.05;
    case DTYPE_Q2_K: return 0.05 * 15;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return 0.05 * 63;
    default: return 0;
    }
}

/* A chain of s roundings is off by at most s * epsilon/2 * sum of magnitudes; a block of 16 or 32 has two
 * products, each rounded once more in its factor. */
static void check_against_double(dtype type, const uint8_t *source, size_t rows, size_t cols,
                                 const inputs *in, size_t n, const float *y) {
    bool is_float = dtype_is_float(type);
    float *row = mem_alloc(cols * 4);
    assert_non_null(row);
    for (size_t r = 0; r < rows; r++) {
        dtype_to_f32(type, source + r * dtype_row_bytes(type, cols), row, cols);
        for (size_t t = 0; t < n; t++) {
            double sum = 0, magnitude = 0;
            for (size_t k = 0; k < cols; k++) {
                double a = is_float ? (double)in->x.f32[t * cols + k]
                                    : (double)in->x.scale[(t * cols + k) / 32] * in->x.q[t * cols + k];
                sum += a * (double)row[k];
                magnitude += fabs(a) * (fabs((double)row[k]) + 2 * largest_min(type));
            }
            double chain = is_float ? (double)cols : 2.0 * (double)cols / 16.0 + 4.0;
            if (fabs((double)y[t * rows + r] - sum) > chain * 0.5 * (double)FLT_EPSILON * magnitude) {
                fail_msg("%s %zux%zu n=%zu row %zu token %zu: %.9g, expected %.9g", dtype_name(type), rows,
                         cols, n, r, t, (double)y[t * rows + r], sum);
            }
        }
    }
    mem_free(row);
}

/* ---- every table against the reference --------------------------------------------------------------- */

static void check_table(const kernels *k, const packed *w, const inputs *in, size_t n, const float *expected,
                        bool at_end) {
    size_t rows = w->rows, groups = pack_n_groups(w);
    guarded y = guard_new(n * rows * 4, 4, at_end);
    guarded scratch = guard_new(matmul_scratch(w->cols, n), 64, true);
    /* Whole, then split where threads would: each part writes its own rows and no others. */
    for (size_t cut = 0; cut < 3; cut++) {
        size_t middle = cut == 0 ? groups : cut == 1 ? groups / 2 : groups - 1;
        memset(y.data, 0xee, n * rows * 4);
        memset(scratch.data, 0xff, matmul_scratch(w->cols, n));
        k->matmul(w, 0, middle, &in->x, n, (float *)y.data, rows, scratch.data);
        for (size_t t = 0; t < n && middle < groups; t++) {
            for (size_t r = middle * PACK_ROWS; r < rows; r++) {
                uint32_t bits;
                memcpy(&bits, y.data + 4 * (t * rows + r), 4);
                assert_int_equal(bits, 0xeeeeeeee);
            }
        }
        k->matmul(w, middle, groups, &in->x, n, (float *)y.data, rows, scratch.data);
        for (size_t i = 0; i < n * rows; i++) {
            if (memcmp(y.data + 4 * i, expected + i, 4) == 0) continue;
            float got;
            memcpy(&got, y.data + 4 * i, 4);
            fail_msg("%s %s %zux%zu n=%zu row %zu token %zu: %.9g, ref %.9g", k->name, dtype_name(w->type),
                     rows, w->cols, n, i % rows, i / rows, (double)got, (double)expected[i]);
        }
    }
    guard_free(&y);
    guard_free(&scratch);
}

static void check_unpack(const kernels *k, const packed *w, const uint8_t *source) {
    guarded got = guard_new(w->cols * 4, 4, true);
    float *expected = mem_alloc(w->cols * 4);
    assert_non_null(expected);
    for (size_t r = 0; r < w->rows; r++) {
        dtype_to_f32(w->type, source + r * dtype_row_bytes(w->type, w->cols), expected, w->cols);
        k->unpack_row(w, r, (float *)got.data);
        assert_memory_equal(got.data, expected, w->cols * 4);
    }
    mem_free(expected);
    guard_free(&got);
}

static void check_case(dtype type, size_t rows, size_t cols, size_t n, bool extreme) {
    bool at_end = next_random() % 4 != 0;
    uint8_t *source = random_weights(type, rows, cols, extreme);
    packed w;
    guarded memory = pack_new(&w, type, rows, cols, source);
    inputs in;
    inputs_new(&in, n, cols, dtype_is_float(type), extreme, at_end);
    float *expected = mem_alloc(n * rows * 4 + 1);
    assert_non_null(expected);
    const kernels *ref = kernels_for(KERNEL_REF);
    ref->matmul(&w, 0, pack_n_groups(&w), &in.x, n, expected, rows, NULL);
    check_against_double(type, source, rows, cols, &in, n, expected);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        check_table(k, &w, &in, n, expected, at_end);
        check_unpack(k, &w, source);
    }
    mem_free(expected);
    inputs_free(&in);
    guard_free(&memory);
    mem_free(source);
}

static size_t unit_cols(dtype type) {
    return dtype_is_float(type) ? 1 : dtype_describe(type)->block;
}

static void test_matmul_every_n(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        size_t cols = unit_cols((dtype)type) == 256 ? 256 : unit_cols((dtype)type) == 32 ? 96 : 37;
        for (size_t n = 1; n <= 40; n++)
            check_case((dtype)type, 16 + n % 5 * 16 - n % 2 * 3, cols, n, n % 4 == 3);
    }
}

static void test_matmul_every_row_count(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        size_t cols = unit_cols((dtype)type) == 256 ? 512 : unit_cols((dtype)type) == 32 ? 64 : 5;
        for (size_t rows = 1; rows <= 100; rows += rows < 50 ? 1 : 7) {
            check_case((dtype)type, rows, cols, 1 + rows % 7, false);
            if (rows % 8 == 1) check_case((dtype)type, rows, cols, 30 + rows % 13, rows % 16 == 1);
        }
    }
}

static void test_matmul_every_depth(void **state) {
    (void)state;
    static const size_t blocks[] = {32, 64, 96, 256, 512, 576, 1536, 2304};
    static const size_t odd[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 100, 257, 577};
    static const size_t ns[] = {1, 2, 5, 17, 64};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            if (blocks[i] % unit_cols((dtype)type) != 0) continue;
            for (size_t j = 0; j < 5; j++) check_case((dtype)type, 35, blocks[i], ns[j], false);
        }
        for (size_t i = 0; i < sizeof odd / sizeof *odd && dtype_is_float((dtype)type); i++) {
            for (size_t j = 0; j < 5; j++) check_case((dtype)type, 50, odd[i], ns[j], false);
        }
    }
}

static void test_matmul_many_tokens(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        size_t cols = unit_cols((dtype)type) == 256 ? 256 : 64;
        check_case((dtype)type, 47, cols, 129, false);
        check_case((dtype)type, 33, cols, 512, false);
    }
}

/* Extreme weights and activations of full depth: sums of products at the ends of their range. */
static void test_matmul_extremes(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t n = 1; n < 30; n = n * 2 + 1) check_case((dtype)type, 32, 1536, n, true);
    }
}

/* Rows of y may be further apart than the matrix is high; what lies between is not touched. */
static void test_matmul_stride(void **state) {
    (void)state;
    enum { ROWS = 40, COLS = 64, N = 25, LDY = 45 };
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa), *ref = kernels_for(KERNEL_REF);
        if (k == NULL) continue;
        for (int type = 0; type < DTYPE_COUNT; type++) {
            if (COLS % unit_cols((dtype)type) != 0) continue;
            uint8_t *source = random_weights((dtype)type, ROWS, COLS, false);
            packed w;
            guarded memory = pack_new(&w, (dtype)type, ROWS, COLS, source);
            guarded scratch = guard_new(matmul_scratch(COLS, N), 64, true);
            inputs in;
            inputs_new(&in, N, COLS, dtype_is_float((dtype)type), false, true);
            static float y[N * LDY], expected[N * ROWS];
            for (size_t i = 0; i < N * LDY; i++) y[i] = -77.0f;
            ref->matmul(&w, 0, pack_n_groups(&w), &in.x, N, expected, ROWS, NULL);
            k->matmul(&w, 0, pack_n_groups(&w), &in.x, N, y, LDY, scratch.data);
            for (size_t t = 0; t < N; t++) {
                assert_memory_equal(y + t * LDY, expected + t * ROWS, ROWS * 4);
                for (size_t r = ROWS; r < LDY; r++) assert_true(y[t * LDY + r] == -77.0f);
            }
            inputs_free(&in);
            guard_free(&scratch);
            guard_free(&memory);
            mem_free(source);
        }
    }
}

/* A token's results are the same bits alone and among any number of others. */
static void test_matmul_company(void **state) {
    (void)state;
    enum { ROWS = 48, COLS = 256, N = 100 };
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        for (int type = 0; type < DTYPE_COUNT; type++) {
            uint8_t *source = random_weights((dtype)type, ROWS, COLS, false);
            packed w;
            guarded memory = pack_new(&w, (dtype)type, ROWS, COLS, source);
            guarded scratch = guard_new(matmul_scratch(COLS, N), 64, true);
            inputs in;
            inputs_new(&in, N, COLS, dtype_is_float((dtype)type), false, true);
            static float together[N * ROWS], alone[ROWS];
            k->matmul(&w, 0, 3, &in.x, N, together, ROWS, scratch.data);
            for (size_t t = 0; t < N; t++) {
                activations one = {.cols = COLS,
                                   .f32 = in.x.f32 + t * COLS,
                                   .q = in.x.q + t * COLS,
                                   .scale = in.x.scale + t * (COLS / 32),
                                   .sum16 = in.x.sum16 + t * (COLS / 16)};
                k->matmul(&w, 0, 3, &one, 1, alone, ROWS, scratch.data);
                assert_memory_equal(alone, together + t * ROWS, sizeof alone);
            }
            inputs_free(&in);
            guard_free(&scratch);
            guard_free(&memory);
            mem_free(source);
        }
    }
}

/* A NaN among a token's activations shows in every output of that token and in no other. */
static void test_matmul_nan_shows(void **state) {
    (void)state;
    enum { ROWS = 32, COLS = 256, N = 9 };
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *k = kernels_for((kernel_isa)isa);
        if (k == NULL) continue;
        for (int type = 0; type < DTYPE_COUNT; type++) {
            uint8_t *source = random_weights((dtype)type, ROWS, COLS, false);
            packed w;
            guarded memory = pack_new(&w, (dtype)type, ROWS, COLS, source);
            guarded scratch = guard_new(matmul_scratch(COLS, N), 64, true);
            inputs in;
            inputs_new(&in, N, COLS, false, false, true);
            ((float *)in.f32.data)[4 * COLS + 77] = NAN;
            k->quantize(in.x.f32 + 4 * COLS, COLS, in.x.q + 4 * COLS, in.x.scale + 4 * (COLS / 32),
                        in.x.sum16 + 4 * (COLS / 16));
            static float y[N * ROWS];
            k->matmul(&w, 0, 2, &in.x, N, y, ROWS, scratch.data);
            for (size_t i = 0; i < N * ROWS; i++) assert_int_equal(isnan(y[i]) != 0, i / ROWS == 4);
            inputs_free(&in);
            guard_free(&scratch);
            guard_free(&memory);
            mem_free(source);
        }
    }
}

/* ---- quantize ---------------------------------------------------------------------------------------- */

static void check_quantized(const float *x, size_t n, const int8_t *q, const float *scale,
                            const int16_t *sum16) {
    for (size_t i = 0; i < n; i += 32) {
        float max = 0.0f;
        bool finite = true;
        int sum[2] = {0, 0};
        for (size_t j = i; j < i + 32; j++) {
            if (!isfinite(x[j])) finite = false;
            max = fmaxf(max, fabsf(x[j]));
            sum[(j - i) / 16] += q[j];
        }
        assert_int_equal(sum[0], sum16[i / 16]);
        assert_int_equal(sum[1], sum16[i / 16 + 1]);
        assert_int_equal(isnan(scale[i / 32]) != 0, !finite);
        if (!finite) continue;
        if (max < 0x1p-100f) {
            assert_true(scale[i / 32] == 0.0f && sum[0] == 0 && sum[1] == 0);
            continue;
        }
        assert_true(scale[i / 32] == max / 127.0f);
        for (size_t j = i; j < i + 32; j++) {
            assert_in_range(q[j] + 127, 0, 254);
            double off = fabs((double)x[j] - (double)scale[i / 32] * q[j]);
            assert_true(off <= 0.5001 * (double)scale[i / 32]);
        }
    }
}

static void test_quantize(void **state) {
    (void)state;
    static const float special[] = {0.0f,    -0.0f,   1.0f,     -1.0f,     127.0f, 0.5f,      1.5f,
                                    -2.5f,   FLT_MAX, -FLT_MAX, FLT_MIN,   1e-44f, 0x1p-100f, 0x1p-101f,
                                    -1e-30f, 1e30f,   INFINITY, -INFINITY, NAN,    126.5f,    3e-38f};
    enum { SPECIALS = sizeof special / sizeof *special };
    const kernels *ref = kernels_for(KERNEL_REF);
    for (size_t n = 32; n <= 640; n += 32) {
        for (int round = 0; round < 60; round++) {
            guarded x = guard_new(n * 4, 4, true), q = guard_new(n, 1, true), s = guard_new(n / 8, 4, true),
                    sum = guard_new(n / 8, 2, true);
            float *f = (float *)x.data, magnitude = ldexpf(1.0f, (int)(next_random() % 200) - 100);
            int8_t expected_q[640];
            float expected_scale[20];
            int16_t expected_sum[40];
            for (size_t i = 0; i < n; i++) {
                f[i] = next_float() * magnitude;
                if (round % 3 == 1 && next_random() % 32 == 0) f[i] = special[next_random() % SPECIALS];
                if (round % 3 == 2) f[i] = (float)((int)(next_random() % 255) - 127) * 0.5f; /* ties */
                if (round % 3 == 2 && i % 32 == 0) f[i] = 127.0f;
            }
            ref->quantize(f, n, expected_q, expected_scale, expected_sum);
            check_quantized(f, n, expected_q, expected_scale, expected_sum);
            for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
                const kernels *k = kernels_for((kernel_isa)isa);
                if (k == NULL) continue;
                k->quantize(f, n, (int8_t *)q.data, (float *)s.data, (int16_t *)sum.data);
                assert_memory_equal(q.data, expected_q, n);
                assert_memory_equal(sum.data, expected_sum, n / 8);
                for (size_t i = 0; i < n / 32; i++) {
                    float got = ((float *)s.data)[i];
                    assert_true(got == expected_scale[i] || (isnan(got) && isnan(expected_scale[i])));
                }
            }
            guard_free(&x);
            guard_free(&q);
            guard_free(&s);
            guard_free(&sum);
        }
    }
}

/* ---- packing and the choice of a table --------------------------------------------------------------- */

static void test_pack_sizes(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        size_t cols = 15360, file = 1600 * dtype_row_bytes((dtype)type, cols);
        size_t bytes = pack_bytes((dtype)type, 1600, cols);
        assert_true(bytes >= file && bytes <= file + file / 20);
        assert_int_equal(pack_bytes((dtype)type, SIZE_MAX / 2, cols), 0);
        assert_int_equal(pack_bytes((dtype)type, SIZE_MAX, cols), 0);
        assert_int_equal(pack_bytes((dtype)type, 16, SIZE_MAX - SIZE_MAX % 256), 0);
        if (!dtype_is_float((dtype)type)) assert_int_equal(pack_bytes((dtype)type, 16, cols + 16), 0);
        assert_int_equal(pack_bytes((dtype)type, 17, cols), 2 * pack_bytes((dtype)type, 1, cols));
    }
}

static void test_select(void **state) {
    (void)state;
    static const char *const names[KERNEL_ISA_COUNT] = {"ref", "avx2", "avx512"};
    const char *kept = getenv("CHURON_CPU");
    char *before = kept != NULL ? mem_strdup(kept) : NULL;
    const kernels *k;
    error err;
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const kernels *there = kernels_for((kernel_isa)isa);
        setenv("CHURON_CPU", names[isa], 1);
        status st = kernels_select(&k, &err);
        assert_int_equal(st, there != NULL ? CHURON_OK : CHURON_UNSUPPORTED);
        assert_ptr_equal(k, there);
        if (there != NULL) assert_string_equal(there->name, names[isa]);
        if (there != NULL) assert_int_equal(there->isa, isa);
    }
    setenv("CHURON_CPU", "sse9", 1);
    assert_int_equal(kernels_select(&k, &err), CHURON_INVALID);
    assert_null(k);
    assert_non_null(strstr(err.message, "'sse9'"));
    unsetenv("CHURON_CPU");
    assert_int_equal(kernels_select(&k, &err), CHURON_OK);
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        if (kernels_for((kernel_isa)isa) != NULL) assert_true((int)k->isa >= isa);
    }
    if (before != NULL) setenv("CHURON_CPU", before, 1);
    mem_free(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack_sizes),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_matmul_every_n),
        cmocka_unit_test(test_matmul_every_row_count),
        cmocka_unit_test(test_matmul_every_depth),
        cmocka_unit_test(test_matmul_many_tokens),
        cmocka_unit_test(test_matmul_extremes),
        cmocka_unit_test(test_matmul_stride),
        cmocka_unit_test(test_matmul_company),
        cmocka_unit_test(test_matmul_nan_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
