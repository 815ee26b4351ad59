/* peak.c: see peak.h. */
#include "kernel/peak.h"

#include "kernel/avx2/peak.h"
#include "kernel/avx512/peak.h"

#include <string.h>

static void peak_read_ref(const void *memory, size_t bytes) {
    const uint8_t *p = memory;
    volatile uint64_t sink;
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        sum ^= word;
    }
    sink = sum;
    (void)sink;
}

static const peak_kernels peak_ref = {.read = peak_read_ref};

#if defined(__x86_64__)
#include <cpuid.h>

static const peak_kernels peak_avx2 = {.f32 = peak_f32_avx2,
                                       .int8 = peak_int8_avx2,
                                       .f32_ops = PEAK_F32_OPS_AVX2,
                                       .int8_ops = PEAK_INT8_OPS_AVX2,
                                       .read = peak_read_avx2};
static const peak_kernels peak_avx512 = {.f32 = peak_f32_avx512,
                                         .int8 = peak_int8_avx512,
                                         .f32_ops = PEAK_F32_OPS_AVX512,
                                         .int8_ops = PEAK_INT8_OPS_AVX512,
                                         .read = peak_read_avx512};
static const peak_kernels peak_avx512_bf16 = {.f32 = peak_f32_avx512,
                                              .int8 = peak_int8_avx512,
                                              .bf16 = peak_bf16_avx512,
                                              .f32_ops = PEAK_F32_OPS_AVX512,
                                              .int8_ops = PEAK_INT8_OPS_AVX512,
                                              .bf16_ops = PEAK_BF16_OPS_AVX512,
                                              .read = peak_read_avx512};

static bool has_bf16(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) != 0;
}
#endif

const peak_kernels *peak_for(kernel_isa isa) {
    if (kernels_for(isa) == NULL) return NULL;
#if defined(__x86_64__)
    if (isa == KERNEL_AVX2) return &peak_avx2;
    if (isa == KERNEL_AVX512) return has_bf16() ? &peak_avx512_bf16 : &peak_avx512;
#endif
    return &peak_ref;
}
