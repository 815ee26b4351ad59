/* stft.h: what features.c takes from stft.c. */
#ifndef MEDIA_STFT_H
#define MEDIA_STFT_H

#include "kernel/kernel.h"
#include "media/spectrum.h"

struct stft_plan {
    stft_options o;
    const kernels *k;
    rfft_plan *fft;
    float *window; /* [fft], zeros around it */
};

/* Scratch of one thread for FFT_LANES frames: sample i of frame l at x[i * FFT_LANES + l]; real and imaginary
 * parts of bin b at spectrum[2 * b * FFT_LANES + l] and FFT_LANES further. */
typedef struct stft_scratch {
    float *x, *spectrum, *work;
    float *edge; /* samples of FFT_LANES frames that reach over an end of the signal */
} stft_scratch;

MUST_USE status stft_scratch_create(stft_scratch *s, const stft_plan *p, error *err);
void stft_scratch_free(stft_scratch *s);

/* Whether n samples can be padded: a reflection needs more of them than it is wide. */
MUST_USE status stft_check_samples(const stft_plan *p, size_t n, error *err);
/* The spectra of frames first .. first + count - 1 (count at most FFT_LANES) of n samples, centred or not. */
void stft_frames_at(const stft_plan *p, const float *samples, size_t n, size_t first, size_t count,
                    stft_scratch *s);

#endif
