/* peak.h: see kernel/peak.h. int8 is a multiplication of pairs (vpmaddubsw) and an addition of 16-bit sums:
 * what AVX2 needs at least to accumulate bytes. */
#ifndef KERNEL_AVX2_PEAK_H
#define KERNEL_AVX2_PEAK_H

#include <stddef.h>

enum { PEAK_F32_OPS_AVX2 = 12 * 16, PEAK_INT8_OPS_AVX2 = 6 * 64 };

void peak_f32_avx2(size_t rounds);
void peak_int8_avx2(size_t rounds);
void peak_read_avx2(const void *memory, size_t bytes);

#endif
