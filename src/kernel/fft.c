/* fft.c: plans of kernel/fft.h. */
#include "kernel/fft.h"

#include "base/mem.h"

#include <math.h>

#define TAU 6.283185307179586476925286766559

static size_t factors_of(size_t n, uint32_t *factor) {
    static const uint32_t first[] = {5, 4, 3, 2};
    size_t count = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        for (; n % first[i] == 0; n /= first[i]) factor[count++] = first[i];
    }
    for (uint32_t p = 7; n > 1 && p <= FFT_MAX_PRIME; p += 2) {
        for (; n % p == 0; n /= p) factor[count++] = p;
    }
    return n == 1 ? count : 0;
}

static float *put_angle(float *to, double turns, double sign) {
    to[0] = (float)cos(TAU * turns);
    to[1] = (float)(sign * sin(TAU * turns));
    return to + 2;
}

status rfft_plan_create(rfft_plan **out, size_t n, error *err) {
    *out = NULL;
    uint32_t factor[FFT_MAX_STAGES];
    if (n < 2 || n % 2 != 0 || n > FFT_MAX_POINTS) {
        return error_set(err, CHURON_INVALID, "fft: points: expected an even number from 2 to %d, got %zu",
                         FFT_MAX_POINTS, n);
    }
    const size_t half = n / 2, stages = factors_of(half, factor);
    if (half > 1 && stages == 0) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "fft: points: expected prime factors of at most %d, got %zu", FFT_MAX_PRIME, n);
    }
    /* A stage's twiddles take (radix - 1) / radix of what is left of the points; roots come on top. */
    const size_t floats = 2 * (half * 2 + n / 4 + 1 + (size_t)FFT_MAX_PRIME * FFT_MAX_STAGES);
    rfft_plan *p = mem_calloc(1, sizeof *p);
    float *m = p ? mem_calloc(floats, sizeof *m) : NULL;
    if (!m) {
        mem_free(p);
        return error_no_memory(err, "a Fourier transform", floats * sizeof *m);
    }
    *p = (rfft_plan){.n = n, .n_stages = stages, .memory = m};
    size_t rest = half;
    for (size_t s = 0; s < stages; s++) {
        const uint32_t r = factor[s];
        p->stage[s] = (rfft_stage){.radix = r, .twiddle = m};
        for (size_t i = 0; i < rest / r; i++) {
            for (size_t k = 1; k < r; k++) m = put_angle(m, (double)(i * k % rest) / (double)rest, -1.0);
        }
        p->stage[s].roots = m;
        if (r > 5) {
            for (size_t k = 0; k < r; k++) m = put_angle(m, (double)k / (double)r, -1.0);
        }
        rest /= r;
    }
    p->untangle = m;
    for (size_t k = 0; k <= n / 4; k++) m = put_angle(m, (double)k / (double)n, 1.0);
    *out = p;
    return CHURON_OK;
}

void rfft_plan_free(rfft_plan *p) {
    if (!p) return;
    mem_free(p->memory);
    mem_free(p);
}
