/* peak.h: loops that do nothing but keep one kind of unit busy, for measuring a processor's bounds.
 *
 * Arithmetic runs in at least 12 independent chains, in assembly: compilers spill or reorder such loops and
 * then report a third of the peak. */
#ifndef KERNEL_PEAK_H
#define KERNEL_PEAK_H

#include "kernel/kernel.h"

typedef struct peak_kernels {
    /* Each runs `rounds` rounds of *_ops operations (a multiplication and its addition count two). NULL where
     * the processor lacks it. int8: u8 by s8 into exact sums. */
    void (*f32)(size_t rounds);
    void (*int8)(size_t rounds);
    void (*bf16)(size_t rounds);
    size_t f32_ops, int8_ops, bf16_ops;
    /* Reads bytes (a multiple of 512) in ascending order. */
    void (*read)(const void *memory, size_t bytes);
} peak_kernels;

/* Static; NULL if this processor lacks the instruction set. The reference has read alone. */
const peak_kernels *peak_for(kernel_isa isa);

#endif
