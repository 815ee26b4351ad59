/* peak.h: see kernel/peak.h. bf16 needs a processor with AVX512_BF16, which no other kernel asks for. */
#ifndef KERNEL_AVX512_PEAK_H
#define KERNEL_AVX512_PEAK_H

#include <stddef.h>

enum { PEAK_F32_OPS_AVX512 = 24 * 32, PEAK_INT8_OPS_AVX512 = 24 * 128, PEAK_BF16_OPS_AVX512 = 24 * 64 };

void peak_f32_avx512(size_t rounds);
void peak_int8_avx512(size_t rounds);
void peak_bf16_avx512(size_t rounds);
void peak_read_avx512(const void *memory, size_t bytes);

#endif
