/* fft.h: the discrete Fourier transform of FFT_LANES real signals at once, lane by lane, so that no
 * instruction set has to move values between lanes and all give the same bits.
 *
 * A plan of n points holds a complex transform of n / 2 (even and odd samples as real and imaginary parts),
 * in stages of radix 5, 4, 3, 2 or another small prime (Stockham's order: no reversal of digits), and the
 * step that makes the real transform of it. Threads: a plan is immutable. */
#ifndef KERNEL_FFT_H
#define KERNEL_FFT_H

#include "base/status.h"

enum { FFT_LANES = 16, FFT_MAX_POINTS = 1 << 16, FFT_MAX_PRIME = 127, FFT_MAX_STAGES = 32 };

typedef struct rfft_stage {
    uint32_t radix;
    const float *twiddle; /* [points of the rest / radix][radix - 1][2]: cos, -sin */
    const float *roots;   /* [radix][2], for radices of no code of their own */
} rfft_stage;

typedef struct rfft_plan {
    size_t n; /* even */
    size_t n_stages;
    rfft_stage stage[FFT_MAX_STAGES];
    const float *untangle; /* [n / 4 + 1][2]: cos, sin of 2 pi k / n */
    float *memory;
} rfft_plan;

/* n: even, 2..FFT_MAX_POINTS, its prime factors at most FFT_MAX_PRIME. Twiddles are made in f64. */
MUST_USE status rfft_plan_create(rfft_plan **out, size_t n, error *err);
void rfft_plan_free(rfft_plan *p);
/* Floats of scratch that .fft_real takes: [n][FFT_LANES] and as many again. */
static inline size_t rfft_scratch(const rfft_plan *p) {
    return 2 * p->n * FFT_LANES;
}

/* A weighted sum over bins first .. first + count - 1 of a spectrum; its weights begin at weights[at]. */
typedef struct spectrum_band {
    uint32_t first, count;
    size_t at;
} spectrum_band;

#endif
