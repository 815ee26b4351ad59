/* audio.h: bytes of an audio file to samples, and samples to another rate or fewer channels.
 *
 * Whatever libsndfile reads: WAV (with RF64 and W64), AIFF, AU, FLAC, Ogg Vorbis and Opus, MP3; found by
 * content. Samples are f32 [channels, samples], full scale -1..1, as soundfile.read(dtype="float32").T gives
 * them. The declared length, channels and rate are checked before decoding, and what comes out is counted
 * again: headers lie. A file whose samples end before its declared length is refused with CHURON_CORRUPT
 * unless the format has no declared length. libsndfile takes its working memory from the system's heap
 * itself (and release 1.2 loses about 6 kB of it on some damaged Ogg files). Threads: functions keep no
 * state. */
#ifndef MEDIA_AUDIO_H
#define MEDIA_AUDIO_H

#include "tensor/tensor.h"

#define AUDIO_DEFAULT_SAMPLES ((uint64_t)1 << 28) /* of all channels: 1 GiB of f32 */
enum { AUDIO_MAX_CHANNELS = 64, AUDIO_MAX_RATE = 1 << 20 };

typedef struct audio_options { /* all zero: the defaults */
    uint64_t max_samples;      /* samples * channels; 0: AUDIO_DEFAULT_SAMPLES */
    bool mono;                 /* mix down while reading: the result is [1, samples] */
} audio_options;

typedef struct audio_info {
    uint32_t rate;      /* samples a second */
    uint32_t channels;  /* of the file */
    uint64_t samples;   /* of a channel */
    char container[16]; /* "WAV", "FLAC", "OGG", "MP3", "AIFF", .. */
} audio_info;

/* *out: f32 [channels, samples], the caller's to free; samples may be 0. options may be NULL. */
MUST_USE status audio_decode(tensor *out, audio_info *info, const void *bytes, size_t n,
                             const audio_options *options, error *err);

/* f32 [channels, samples] -> [1, samples]: the mean, summed in f32 by ascending channel (librosa.to_mono). */
MUST_USE status audio_mix_down(tensor *out, const tensor *in, error *err);

/* ---- resampling ------------------------------------------------------------------------------------------
 */

/* Band-limited interpolation by torchaudio.functional.resample's formula: a windowed sinc of `zeros` zero
 * crossings (lowpass_filter_width) with its cut at rolloff * the lower Nyquist frequency. Weights are made in
 * f64, sums run in f32; equal to torchaudio's within 1e-5 of full scale. */
typedef enum resample_window { RESAMPLE_HANN, RESAMPLE_KAISER, RESAMPLE_WINDOW_COUNT } resample_window;
typedef struct resample_quality {
    resample_window window;
    uint32_t zeros; /* 1..256 */
    double rolloff; /* (0, 1] */
    double beta;    /* KAISER */
} resample_quality;

typedef enum resample_preset {
    RESAMPLE_DEFAULT,     /* torchaudio's: hann, 6 zeros, rolloff 0.99 */
    RESAMPLE_KAISER_FAST, /* resampy's kaiser_fast: 16 zeros, 0.85, beta 8.555504641634386 */
    RESAMPLE_KAISER_BEST, /* 64 zeros, 0.9475937167399596, beta 14.769656459379492 */
    RESAMPLE_PRESET_COUNT
} resample_preset;
resample_quality resample_preset_quality(resample_preset p);
const char *resample_preset_name(resample_preset p); /* "hann", "kaiser_fast", "kaiser_best" */

/* in: f32 [channels, samples]; *out: [channels, ceil(samples * to / from)]. from, to: 1..AUDIO_MAX_RATE.
 * Equal rates give a copy. CHURON_LIMIT when the two rates have so little in common that the weights take
 * more than 64 MiB. */
MUST_USE status audio_resample(tensor *out, const tensor *in, uint32_t from, uint32_t to,
                               const resample_quality *quality, error *err);

#endif
