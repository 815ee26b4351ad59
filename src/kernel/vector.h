/* vector.h: what all versions of the vector and attention kernels share: constants, the order of sums, and
 * scalar functions of which there must be only one.
 *
 * Lanes: a sum or maximum over n values runs in LANES independent chains, value i in chain i % LANES, i
 * ascending; then the tree lane[l] += lane[l + step] for step 8, 4, 2, 1. One chain is one lane of a 512-bit
 * register or of two 256-bit ones, so every instruction set rounds alike.
 *
 * exp(x): n = round(x*log2(e)) by adding EXP_MAGIC, r = (x - n*LN2_HI) - n*LN2_LO, then
 * (1 + r + r^2*(C2 .. C6)) * 2^n, Horner, all by fused multiply-add. tanh(x): an odd polynomial below
 * TANH_SMALL, else 1 - 2e/(1+e) with e = exp(-2|x|). Coefficients: minimax fits made for these intervals. */
#ifndef KERNEL_VECTOR_H
#define KERNEL_VECTOR_H

#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, LSE_BLOCK = 1024 };

#define EXP_LOG2E  0x1.715476p+0f
#define EXP_MAGIC  0x1.8000fep+23f /* 1.5 * 2^23 + 127: the low bits of the sum are n + 127 */
#define EXP_LN2_HI 0x1.62e4p-1f    /* 16 bits: n * LN2_HI is exact */
#define EXP_LN2_LO 0x1.7f7d1cp-20f
#define EXP_C2     0x1.fffffcp-2f
#define EXP_C3     0x1.555492p-3f
#define EXP_C4     0x1.5558aap-5f
#define EXP_C5     0x1.12396ep-7f
#define EXP_C6     0x1.6a524ap-10f
#define EXP_LOW    (-0x1.5d589ep+6f) /* smallest x with exp(x) >= 2^-126; below it the result is 0 */
#define EXP_HIGH   0x1.62e42ep+6f    /* largest x with a finite exp(x) */

#define TANH_SMALL 0.7f
#define TANH_C1    (-0x1.55554ep-2f)
#define TANH_C2    0x1.110eb2p-3f
#define TANH_C3    (-0x1.b9a2a4p-5f)
#define TANH_C4    0x1.60ac04p-6f
#define TANH_C5    (-0x1.feb99ap-8f)
#define TANH_C6    0x1.dfaa90p-10f

#define GELU_SQRT_8_PI 0x1.988454p+0f /* 2*sqrt(2/pi) */
#define GELU_CUBIC     0.044715f

/* Rows (a query of one head each) that attention takes at once through a block of keys. Scratch: keys and
 * values of a block in f32, [ATTN_BLOCK, head_dim] each, and weights [ATTN_SLAB, ATTN_BLOCK]. */
enum { ATTN_SLAB = 48 };

float exp_value(float x);
float tanh_value(float x);
/* Natural logarithm of a positive finite number, within 1e-15 relative: double arithmetic without libm, whose
 * bits depend on the processor. */
double log_value(double x);
/* The end of log_sum_exp: total = sum of exp(x - m). */
void log_sum_exp_end(const float *x, size_t n, float m, double total, float *max, float *lse);

#endif
