/* peak.c: see peak.h. 24 chains: more than latency times units of any processor so far. */
#include "kernel/avx512/peak.h"

#define CHAIN24(op)                                                                                          \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15)    \
        op(16) op(17) op(18) op(19) op(20) op(21) op(22) op(23)
#define ZERO(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define FMA(i)  "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #i "\n\t"
#define DOT8(i) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #i "\n\t"
#define BF16(i) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #i "\n\t"

#define CLOBBERS                                                                                             \
    "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11",        \
        "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22",   \
        "zmm23", "zmm30", "zmm31", "cc"

#define LOOP(rounds, op)                                                                                     \
    __asm__ volatile(CHAIN24(ZERO) ZERO(30) ZERO(31) ".p2align 5\n1:\n\t" CHAIN24(op) "dec %0\n\tjnz 1b\n\t" \
                                                                                      "vzeroupper"           \
                     : "+r"(rounds)                                                                          \
                     :                                                                                       \
                     : CLOBBERS)

void peak_f32_avx512(size_t rounds) {
    if (rounds != 0) LOOP(rounds, FMA);
}

void peak_int8_avx512(size_t rounds) {
    if (rounds != 0) LOOP(rounds, DOT8);
}

void peak_bf16_avx512(size_t rounds) {
    if (rounds != 0) LOOP(rounds, BF16);
}

void peak_read_avx512(const void *memory, size_t bytes) {
    size_t rounds = bytes / 512;
    if (rounds == 0) return;
    __asm__ volatile(".p2align 5\n1:\n\t"
                     "vmovdqu64 (%0), %%zmm0\n\tvmovdqu64 64(%0), %%zmm1\n\t"
                     "vmovdqu64 128(%0), %%zmm2\n\tvmovdqu64 192(%0), %%zmm3\n\t"
                     "vmovdqu64 256(%0), %%zmm4\n\tvmovdqu64 320(%0), %%zmm5\n\t"
                     "vmovdqu64 384(%0), %%zmm6\n\tvmovdqu64 448(%0), %%zmm7\n\t"
                     "add $512, %0\n\tdec %1\n\tjnz 1b\n\tvzeroupper"
                     : "+r"(memory), "+r"(rounds)
                     :
                     : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "cc", "memory");
}
