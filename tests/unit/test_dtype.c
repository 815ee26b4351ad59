/* test_dtype.c: half precision in both directions, and the table of formats. What the block formats mean is
 * compared with another implementation in tests/oracle/test_dtype.py; the digests here are its results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* The value that the bits of a finite half stand for. */
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double m = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -m : m;
}

static void test_every_half_is_exact(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        bool special = (h >> 10 & 31) == 31;
        if (special && (h & 1023)) {
            if (!isnan(f) || !isnan(f16_to_f32(f32_to_f16(f)))) fail_msg("NaN %04x", (unsigned)h);
            continue;
        }
        double want = special ? (h & 0x8000 ? -INFINITY : INFINITY) : half_value((uint16_t)h);
        if ((double)f != want || !signbit(f) != !(h & 0x8000))
            fail_msg("%04x gives %g", (unsigned)h, (double)f);
        if (f32_to_f16(f) != h) fail_msg("%04x comes back as %04x", (unsigned)h, (unsigned)f32_to_f16(f));
    }
}

/* Between two neighbouring halves: just below the middle, the middle, just above. */
static void test_rounding_is_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h), high = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        if (f32_to_f16(middle) != even) fail_msg("tie above %04x", (unsigned)h);
        if (f32_to_f16(nextafterf(middle, 0)) != h) fail_msg("below the tie above %04x", (unsigned)h);
        if (f32_to_f16(nextafterf(middle, INFINITY)) != h + 1)
            fail_msg("over the tie above %04x", (unsigned)h);
        if (f32_to_f16(-middle) != (even | 0x8000)) fail_msg("negative tie above %04x", (unsigned)h);
    }
    assert_int_equal(f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(f32_to_f16(1e-45f), 0);
    assert_int_equal(f32_to_f16(-1e-45f), 0x8000);
}

static void test_table(void **state) {
    (void)state;
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_1, 576), 360);
    assert_int_equal(dtype_row_bytes(DTYPE_Q6_K, 512), 420);
    assert_int_equal(dtype_row_bytes(DTYPE_F32, 3), 12);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const dtype_info *info = dtype_describe((dtype)t);
        assert_true(dtype_is_float((dtype)t) == (info->block == 1));
        assert_int_equal(strlen(info->name), strlen(dtype_name((dtype)t)));
        assert_int_equal(dtype_row_bytes((dtype)t, 512), 512 / info->block * info->bytes);
    }
}

static void test_formats(void **state) {
    (void)state;
    static const uint64_t digests[DTYPE_COUNT] = {
        [DTYPE_F32] = 0x04c22ce27600198a,  [DTYPE_F16] = 0x7f2bcf3a4398a825,
        [DTYPE_BF16] = 0x1d8bd2fd6d4c0825, [DTYPE_Q4_0] = 0x00761a007c362725,
        [DTYPE_Q4_1] = 0x2bbae761c3859772, [DTYPE_Q5_0] = 0x7c2ff171f7d74525,
        [DTYPE_Q5_1] = 0xda3f8ef0d1cd61ca, [DTYPE_Q8_0] = 0xae93d4992f499665,
        [DTYPE_Q2_K] = 0x9c90bd57e86b89cd, [DTYPE_Q3_K] = 0xaa4ecc02538cca25,
        [DTYPE_Q4_K] = 0x663a16208be12f7e, [DTYPE_Q5_K] = 0xb33e6f46cd220f94,
        [DTYPE_Q6_K] = 0x5e5f456a86fd4d43, [DTYPE_IQ4_NL] = 0xca830d4a9be61fa5,
    };
    for (int t = 0; t < DTYPE_COUNT; t++) {
        uint8_t blocks[2 * 210 * 8];
        float out[4096];
        const dtype_info *info = dtype_describe((dtype)t);
        size_t n_blocks = info->block == 256 ? 8 : 64;
        uint32_t x =
            12345 + (uint32_t)t; /* linear congruential; bit 6 of every byte is zero, so that no half */
        for (size_t i = 0; i < n_blocks * info->bytes; i++) { /* or float is infinite or NaN */
            x = x * 1664525 + 1013904223;
            blocks[i] = (uint8_t)(x >> 24 & 0xbf);
        }
        dtype_to_f32((dtype)t, blocks, out, n_blocks * info->block);
        uint64_t digest = 14695981039346656037u; /* FNV-1a over the bits */
        for (size_t i = 0; i < n_blocks * info->block; i++) {
            uint32_t bits;
            memcpy(&bits, &out[i], 4);
            digest = (digest ^ bits) * 1099511628211u;
        }
        if (digest != digests[t]) fail_msg("%s: 0x%llx", info->name, (unsigned long long)digest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_is_exact),
        cmocka_unit_test(test_rounding_is_to_nearest_even),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
