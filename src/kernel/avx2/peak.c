/* peak.c: see peak.h. */
#include "kernel/avx2/peak.h"

#define CHAIN6(op)  op(0) op(1) op(2) op(3) op(4) op(5)
#define CHAIN12(op) CHAIN6(op) op(6) op(7) op(8) op(9) op(10) op(11)
#define ZERO(i)     "vpxor %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#define FMA(i)      "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n\t"
#define DOT8(i)     "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n\tvpaddw %%ymm13, %%ymm" #i ", %%ymm" #i "\n\t"

#define LOOP(rounds, chains)                                                                                 \
    __asm__ volatile(CHAIN12(ZERO) ZERO(13) ZERO(14) ZERO(15) ".p2align 5\n1:\n\t" chains                    \
                                                              "dec %0\n\tjnz 1b\n\tvzeroupper"               \
                     : "+r"(rounds)                                                                          \
                     :                                                                                       \
                     : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9",       \
                       "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15", "cc")

void peak_f32_avx2(size_t rounds) {
    if (rounds != 0) LOOP(rounds, CHAIN12(FMA));
}

void peak_int8_avx2(size_t rounds) {
    if (rounds != 0) LOOP(rounds, CHAIN6(DOT8));
}

void peak_read_avx2(const void *memory, size_t bytes) {
    size_t rounds = bytes / 256;
    if (rounds == 0) return;
    __asm__ volatile(".p2align 5\n1:\n\t"
                     "vmovdqu (%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\t"
                     "vmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
                     "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\t"
                     "vmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7\n\t"
                     "add $256, %0\n\tdec %1\n\tjnz 1b\n\tvzeroupper"
                     : "+r"(memory), "+r"(rounds)
                     :
                     : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "cc", "memory");
}
