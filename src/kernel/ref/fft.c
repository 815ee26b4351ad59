/* fft.c: Fourier transforms of 16 signals; see kernel/fft_body.h. */
#include "kernel/ref/lanes.h"
#include "kernel/ref/ref.h"

#include "kernel/fft_body.h"

void fft_real_ref(const rfft_plan *p, const float *x, float *out, float *scratch) {
    fft_real_all(p, x, out, scratch);
}
