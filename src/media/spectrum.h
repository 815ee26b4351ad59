/* spectrum.h: samples to spectra and to the features that speech and music models take.
 *
 * Samples are f32 [channels, samples] or [samples]. A transform's plan (windows, twiddles, filter bank) is
 * made once, is immutable, and serves threads at once; functions allocate their outputs and scratch and keep
 * no state. Results are the same bits on every instruction set. */
#ifndef MEDIA_SPECTRUM_H
#define MEDIA_SPECTRUM_H

#include "tensor/tensor.h"

/* ---- windows --------------------------------------------------------------------------------------------
 */

typedef enum window_kind {
    WINDOW_RECTANGULAR,
    WINDOW_HANN,
    WINDOW_HAMMING,  /* 0.54 - 0.46 cos */
    WINDOW_BLACKMAN, /* 0.42 - 0.5 cos + 0.08 cos */
    WINDOW_POVEY,    /* hann ^ 0.85, Kaldi's */
    WINDOW_KAISER,   /* parameter: beta */
    WINDOW_COUNT
} window_kind;
const char *window_name(window_kind k);
/* w[n], made in f64. periodic: the period is n (torch's and scipy's sym=False), else n - 1 (symmetric,
 * NumPy's). */
void window_make(window_kind k, size_t n, bool periodic, double parameter, float *w);

/* ---- short-time Fourier transform ------------------------------------------------------------------------
 */

enum { STFT_MAX_FFT = 1 << 16 };

typedef enum stft_pad { STFT_PAD_REFLECT, STFT_PAD_ZERO, STFT_PAD_EDGE, STFT_PAD_COUNT } stft_pad;
typedef enum stft_value { STFT_COMPLEX, STFT_MAGNITUDE, STFT_POWER, STFT_VALUE_COUNT } stft_value;

typedef struct stft_options {
    size_t fft;    /* points, 2..STFT_MAX_FFT; even, of prime factors up to 127; 2, 3 and 5 are fast */
    size_t window; /* of the window, at most fft: zeros on both sides (librosa, torch); 0: fft */
    size_t hop;    /* samples between frames, at least 1 */
    window_kind kind;
    bool symmetric; /* else periodic */
    double parameter;
    bool center; /* frame t is centred at t * hop: fft / 2 samples are padded on both sides */
    stft_pad pad;
} stft_options;

typedef struct stft_plan stft_plan;
MUST_USE status stft_plan_create(stft_plan **out, const stft_options *options, error *err);
void stft_plan_free(stft_plan *p);
size_t stft_bins(const stft_plan *p);                   /* fft / 2 + 1 */
size_t stft_frames(const stft_plan *p, size_t samples); /* 0: too short */
/* *out: complex: c64 [channels, bins, frames]; else f32 likewise; without the channels for a 1-D input.
 * Reflection needs more than fft / 2 samples. */
MUST_USE status stft_run(tensor *out, const stft_plan *p, const tensor *in, stft_value value, error *err);

/* ---- filter banks ----------------------------------------------------------------------------------------
 */

typedef enum mel_scale { MEL_SLANEY, MEL_HTK, MEL_KALDI, MEL_SCALE_COUNT } mel_scale;
/* SLANEY and HTK: triangles linear in frequency (librosa, torchaudio). KALDI: HTK's mel, triangles linear in
 * mel, the bin at the Nyquist frequency left out. */
typedef struct mel_options {
    uint32_t rate;
    size_t mels;      /* 1..4096 */
    double low, high; /* Hz; high 0: rate / 2; negative: rate / 2 + high (Kaldi) */
    mel_scale scale;
    bool area; /* librosa's norm="slaney": each triangle divided by its width */
} mel_options;
/* *out: f32 [mels, fft / 2 + 1]. */
MUST_USE status mel_filters(tensor *out, size_t fft, const mel_options *options, error *err);

/* ---- features --------------------------------------------------------------------------------------------
 */

/* What becomes of the filtered energies. */
typedef enum mel_log {
    MEL_LOG_NONE,
    MEL_LOG_E,    /* ln(max(x, floor)); floor 0: FLT_EPSILON */
    MEL_LOG_PLUS, /* ln(x + floor) */
    MEL_LOG_DB,   /* librosa.power_to_db: 10 log10(max(x, floor)), floor 0: 1e-10, then at least the maximum -
                     top_db */
    MEL_LOG_WHISPER, /* log10(max(x, 1e-10)), at least the maximum - 8, then (x + 4) / 4 */
    MEL_LOG_COUNT
} mel_log;

typedef struct features_options {
    stft_options stft;
    stft_value value; /* MAGNITUDE or POWER */
    mel_options mel;
    mel_log log;
    double floor, top_db; /* top_db 0: 80; negative: no limit */
    bool drop_last;       /* the last frame is left out (Whisper) */
    bool frames_first;    /* [frames, mels] instead of [mels, frames] */

    size_t cepstra; /* MFCC: this many coefficients of the orthonormal DCT-II over the logs; 0: the logs
                       themselves */
    double lifter;  /* MFCC: each times 1 + lifter/2 sin(pi (i+1) / lifter); 0: none */

    /* Kaldi's frames, when `kaldi`: no centring; the frame's mean is taken off; x[i] - preemphasis * x[i-1];
     * the window (stft.window long) is followed by zeros up to stft.fft. */
    bool kaldi;
    double preemphasis;
    double gain;     /* samples are multiplied by it first; 0: 1 (Kaldi's own files are at 32768) */
    bool snip_edges; /* whole frames alone; else frames reach over the ends by reflection */
} features_options;

/* Whisper's: 16 kHz, fft 400, hop 160, 80 or 128 mels, slaney, reflected, the last frame dropped. */
features_options features_whisper(size_t mels);
/* torchaudio.compliance.kaldi.fbank: 25 ms, 10 ms, povey, 0.97, 20 Hz .. Nyquist, no dither, snip_edges,
 * [frames, mels].
 */
features_options features_kaldi_fbank(uint32_t rate, size_t mels);
/* librosa.feature.melspectrogram(power=2) with power_to_db(ref=1): hann, reflected by zeros as librosa has
 * it. */
features_options features_librosa_mel(uint32_t rate, size_t fft, size_t hop, size_t mels);
/* librosa.feature.mfcc: features_librosa_mel (2048, 512, 128 mels, top_db 80) and `cepstra` of its DCT. */
features_options features_librosa_mfcc(uint32_t rate, size_t cepstra);

typedef struct features_plan features_plan;
MUST_USE status features_plan_create(features_plan **out, const features_options *options, error *err);
void features_plan_free(features_plan *p);
size_t features_rows(const features_plan *p);                   /* cepstra, else mels */
size_t features_frames(const features_plan *p, size_t samples); /* 0: too short */
/* in: f32 [samples] or [1, samples]. *out: f32 [rows, frames], or [frames, rows] with frames_first. */
MUST_USE status features_run(tensor *out, const features_plan *p, const tensor *in, error *err);

#endif
