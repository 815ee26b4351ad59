/* audio.c: sound decoded, brought to a rate, and made features. The work is the media room's. */
#include "pipeline/steps/media_part.h"
#include "pipeline/steps/steps.h"

#include "media/audio.h"
#include "media/spectrum.h"

#include <inttypes.h>
#include <string.h>

/* A cell of audio or a tensor [samples] as [channels, samples] (a view). */
static tensor as_channels(const cell *c) {
    tensor t = *c->t;
    if (t.rank == 1) {
        t.rank = 2;
        t.dims[1] = t.dims[0];
        t.dims[0] = 1;
    }
    t.storage = NULL;
    return t;
}

/* ---- decode_audio ----------------------------------------------------------------------------------- */

enum { DEC_FIELD, DEC_MONO, DEC_SECONDS, DEC_INTO };

static const key_spec DECODE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The bytes of an audio file"},
    {"mono", KEY_BOOL, .fallback = "false", .doc = "The mean of the channels"},
    {"max_samples", KEY_INT, .fallback = "268435456", .least = 1, .most = 1e12,
     .doc = "Most samples of all channels, checked before decoding"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static status check_decode(step_build *b, error *err) {
    audio_options *o;
    TRY(step_expect(b, DEC_FIELD, KIND(CELL_BYTES), false, err));
    TRY(step_state(b, sizeof *o, &o, err));
    o->mono = b->values[DEC_MONO].flag;
    o->max_samples = (uint64_t)b->values[DEC_SECONDS].integer;
    const cell_type out = {
        .kind = CELL_AUDIO, .element = ELEM_F32, .has_rank = true, .rank = 2, .dims = {o->mono ? 1 : -1, -1}};
    b->s->in = b->values[DEC_FIELD].slot;
    return step_output(b, DEC_INTO, DEC_FIELD, &out, err);
}

static status run_decode(const step *s, run *r, cell *slots, error *err) {
    tensor t;
    audio_info info;
    TRY(audio_decode(&t, &info, slots[s->in].bytes, slots[s->in].len, s->state, err));
    TRY(media_adopt(&slots[s->out], CELL_AUDIO, r->memory, &t, err));
    slots[s->out].rate = info.rate;
    return CHURON_OK;
}

const step_kind step_decode_audio = {
    .name = "decode_audio",
    .group = "audio",
    .doc = "Decodes WAV, FLAC, Ogg, MP3 and what else libsndfile reads, to float32 between -1 and 1. An "
           "input of type audio has "
           "been through this step already.",
    .reference = "soundfile",
    .keys = DECODE_KEYS,
    .check = check_decode,
    .row = run_decode,
};

/* ---- mix_down --------------------------------------------------------------------------------------- */

enum { MIX_FIELD, MIX_INTO };

static const key_spec MIX_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Audio"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static status check_mix(step_build *b, error *err) {
    TRY(step_expect(b, MIX_FIELD, KIND(CELL_AUDIO), false, err));
    cell_type out = *b->values[MIX_FIELD].type;
    out.dims[0] = 1;
    b->s->in = b->values[MIX_FIELD].slot;
    return step_output(b, MIX_INTO, MIX_FIELD, &out, err);
}

static status run_mix(const step *s, run *r, cell *slots, error *err) {
    tensor t;
    TRY(audio_mix_down(&t, slots[s->in].t, err));
    const double rate = slots[s->in].rate;
    TRY(media_adopt(&slots[s->out], CELL_AUDIO, r->memory, &t, err));
    slots[s->out].rate = rate;
    return CHURON_OK;
}

const step_kind step_mix_down = {
    .name = "mix_down",
    .group = "audio",
    .doc = "One channel: the mean of all.",
    .reference = "librosa.to_mono",
    .keys = MIX_KEYS,
    .check = check_mix,
    .row = run_mix,
};

/* ---- resample --------------------------------------------------------------------------------------- */

enum { RATE_FIELD, RATE_RATE, RATE_QUALITY, RATE_INTO };

static const key_spec RATE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Audio"},
    {"rate", KEY_INT, .required = true, .least = 1, .most = 1048576, .doc = "Samples a second of the result"},
    {"quality", KEY_CHOICE, .choices = "hann|kaiser_fast|kaiser_best", .fallback = "hann",
     .doc =
         "hann: torchaudio's default (6 zero crossings, rolloff 0.99); kaiser_fast, kaiser_best: resampy's"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct rate_state {
    uint32_t rate;
    resample_quality quality;
} rate_state;

static status check_rate(step_build *b, error *err) {
    rate_state *o;
    TRY(step_expect(b, RATE_FIELD, KIND(CELL_AUDIO), false, err));
    TRY(step_state(b, sizeof *o, &o, err));
    o->rate = (uint32_t)b->values[RATE_RATE].integer;
    o->quality = resample_preset_quality((resample_preset)b->values[RATE_QUALITY].integer);
    cell_type out = *b->values[RATE_FIELD].type;
    out.dims[1] = out.rate == (double)o->rate ? out.dims[1] : -1;
    out.rate = (double)o->rate;
    b->s->in = b->values[RATE_FIELD].slot;
    return step_output(b, RATE_INTO, RATE_FIELD, &out, err);
}

static status run_rate(const step *s, run *r, cell *slots, error *err) {
    const rate_state *o = s->state;
    const cell *in = &slots[s->in];
    if (in->rate == (double)o->rate) {
        slots[s->out] = *in;
        return CHURON_OK;
    }
    tensor t;
    TRY(audio_resample(&t, in->t, (uint32_t)in->rate, o->rate, &o->quality, err));
    TRY(media_adopt(&slots[s->out], CELL_AUDIO, r->memory, &t, err));
    slots[s->out].rate = (double)o->rate;
    return CHURON_OK;
}

const step_kind step_resample = {
    .name = "resample",
    .group = "audio",
    .doc = "Brings audio to another rate by band-limited interpolation (a windowed sinc).",
    .reference = "torchaudio.functional.resample",
    .keys = RATE_KEYS,
    .check = check_rate,
    .row = run_rate,
};

/* ---- samples ---------------------------------------------------------------------------------------- */

enum { SAM_FIELD, SAM_RATE, SAM_LENGTH, SAM_INTO };

static const key_spec SAMPLES_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Audio of one channel"},
    {"rate", KEY_INT, .least = 1, .most = 1048576, .doc = "The rate that it must have: another is refused"},
    {"length", KEY_INT, .least = 1, .most = 1e8,
     .doc = "Samples of the result: longer audio is cut, shorter is followed by zeros"},
    {"into", KEY_INTO, .doc = "Name of the result, float32 [samples]; left out: that of the field"},
    {0}};

typedef struct samples_state {
    double rate;
    int64_t length;
} samples_state;

static status check_samples(step_build *b, error *err) {
    const key_value *v = b->values;
    samples_state *o;
    TRY(step_expect(b, SAM_FIELD, KIND(CELL_AUDIO), false, err));
    TRY(step_state(b, sizeof *o, &o, err));
    const cell_type *t = v[SAM_FIELD].type;
    if (t->dims[0] != 1)
        return step_fault(b, "field", err, "expected audio of one channel (mix_down gives it), got '%.60s'",
                          v[SAM_FIELD].text);
    *o = (samples_state){.rate = v[SAM_RATE].given ? v[SAM_RATE].number : 0,
                         .length = v[SAM_LENGTH].given ? v[SAM_LENGTH].integer : -1};
    if (o->rate > 0 && t->rate > 0 && t->rate != o->rate)
        return step_fault(b, "rate", err, "expected %g, which the audio has, got %g", t->rate, o->rate);
    const cell_type out = {.kind = CELL_TENSOR,
                           .element = ELEM_F32,
                           .has_rank = true,
                           .rank = 1,
                           .dims = {o->length >= 0 ? o->length : t->dims[1]}};
    b->s->in = v[SAM_FIELD].slot;
    return step_output(b, SAM_INTO, SAM_FIELD, &out, err);
}

static status run_samples(const step *s, run *r, cell *slots, error *err) {
    const samples_state *o = s->state;
    const cell in = slots[s->in];
    if (o->rate > 0 && in.rate != o->rate)
        return error_set(err, CHURON_INVALID, "expected audio of %g samples a second, got %g", o->rate,
                         in.rate);
    const int64_t have = in.t->dims[1], n = o->length >= 0 ? o->length : have;
    void *data;
    TRY(cell_new_tensor(&slots[s->out], CELL_TENSOR, r->memory, ELEM_F32, 1, &n, &data, s->label, err));
    const size_t take = (size_t)(n < have ? n : have);
    if (take) memcpy(data, in.t->data, take * sizeof(float));
    if ((size_t)n > take) memset((float *)data + take, 0, ((size_t)n - take) * sizeof(float));
    return CHURON_OK;
}

const step_kind step_samples = {
    .name = "samples",
    .group = "audio",
    .doc = "The samples of audio of one channel as a tensor.",
    .reference = "numpy",
    .keys = SAMPLES_KEYS,
    .check = check_samples,
    .row = run_samples,
};

/* ---- stft ------------------------------------------------------------------------------------------- */

enum {
    STFT_FIELD,
    STFT_FFT,
    STFT_HOP,
    STFT_WINDOW,
    STFT_KIND,
    STFT_SYMMETRIC,
    STFT_CENTER,
    STFT_PADDING,
    STFT_OUT,
    STFT_INTO
};

static const key_spec STFT_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Audio, or samples"},
    {"fft", KEY_INT, .required = true, .least = 2, .most = 65536, .doc = "Points of the transform"},
    {"hop", KEY_INT, .required = true, .least = 1, .most = 1e6, .doc = "Samples between frames"},
    {"window", KEY_INT, .fallback = "0", .least = 0, .most = 65536, .doc = "Length of the window; 0: fft"},
    {"kind", KEY_CHOICE, .choices = "rectangular|hann|hamming|blackman|povey", .fallback = "hann",
     .doc = "Window"},
    {"symmetric", KEY_BOOL, .fallback = "false", .doc = "false: periodic, as torch and librosa have it"},
    {"center", KEY_BOOL, .fallback = "true", .doc = "Frame t is centred at t * hop"},
    {"padding", KEY_CHOICE, .choices = "reflect|zero|edge", .fallback = "reflect",
     .doc = "What lies beyond the ends, with center"},
    {"value", KEY_CHOICE, .choices = "magnitude|power", .fallback = "magnitude",
     .doc = "Absolute value, or its square"},
    {"into", KEY_INTO,
     .doc = "Name of the result, float32 [fft / 2 + 1, frames] (behind the channels, if there are any); left "
            "out: that of the field"},
    {0}};

typedef struct stft_state {
    stft_plan *plan;
    stft_value value;
} stft_state;

static status check_stft(step_build *b, error *err) {
    const key_value *v = b->values;
    stft_state *o;
    TRY(expect_signal(b, STFT_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    const stft_options options = {.fft = (size_t)v[STFT_FFT].integer,
                                  .window = (size_t)v[STFT_WINDOW].integer,
                                  .hop = (size_t)v[STFT_HOP].integer,
                                  .kind = (window_kind)v[STFT_KIND].integer,
                                  .symmetric = v[STFT_SYMMETRIC].flag,
                                  .center = v[STFT_CENTER].flag,
                                  .pad = (stft_pad)v[STFT_PADDING].integer};
    error why;
    if (stft_plan_create(&o->plan, &options, &why) != CHURON_OK)
        return step_fault(b, NULL, err, "%s", why.message);
    o->value = v[STFT_OUT].integer == 1 ? STFT_POWER : STFT_MAGNITUDE;
    const cell_type *t = v[STFT_FIELD].type;
    const bool channels = t->kind == CELL_AUDIO || t->rank == 2;
    cell_type out = {.kind = CELL_TENSOR, .element = ELEM_F32, .has_rank = true, .rank = channels ? 3 : 2};
    size_t at = 0;
    if (channels) out.dims[at++] = t->dims[0];
    out.dims[at++] = (int64_t)stft_bins(o->plan);
    out.dims[at] = -1;
    b->s->in = v[STFT_FIELD].slot;
    return step_output(b, STFT_INTO, STFT_FIELD, &out, err);
}

static status run_stft(const step *s, run *r, cell *slots, error *err) {
    const stft_state *o = s->state;
    tensor t;
    TRY(stft_run(&t, o->plan, slots[s->in].t, o->value, err));
    return media_adopt(&slots[s->out], CELL_TENSOR, r->memory, &t, err);
}

static void release_stft(step *s) {
    stft_state *o = s->state;
    if (o) stft_plan_free(o->plan);
}

const step_kind step_stft = {
    .name = "stft",
    .group = "audio",
    .doc = "Short-time Fourier transform: magnitudes or powers of windowed frames.",
    .reference = "librosa.stft, torch.stft",
    .keys = STFT_KEYS,
    .check = check_stft,
    .row = run_stft,
    .release = release_stft,
};

/* ---- features --------------------------------------------------------------------------------------- */

enum { FEAT_FIELD, FEAT_FORM, FEAT_RATE, FEAT_MELS, FEAT_FFT, FEAT_HOP, FEAT_CEPSTRA, FEAT_GAIN, FEAT_INTO };
enum { FORM_WHISPER, FORM_KALDI, FORM_MEL, FORM_MFCC };

static const key_spec FEATURES_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Audio of one channel, or samples"},
    {"form", KEY_CHOICE, .required = true, .choices = "whisper|kaldi|mel|mfcc",
     .doc = "whisper: log-mel as Whisper has it (16 kHz, fft 400, hop 160); kaldi: fbank (25 ms, 10 ms, "
            "povey); mel: librosa's "
            "melspectrogram in decibels; mfcc: librosa's"},
    {"rate", KEY_INT, .fallback = "16000", .least = 1, .most = 1048576,
     .doc = "Samples a second: audio of another rate is refused"},
    {"mels", KEY_INT, .fallback = "80", .least = 1, .most = 4096, .doc = "Bands"},
    {"fft", KEY_INT, .fallback = "2048", .least = 2, .most = 65536,
     .doc = "Points of the transform, with mel"},
    {"hop", KEY_INT, .fallback = "512", .least = 1, .most = 1e6, .doc = "Samples between frames, with mel"},
    {"cepstra", KEY_INT, .fallback = "20", .least = 1, .most = 4096, .doc = "Coefficients, with mfcc"},
    {"gain", KEY_NUMBER, .fallback = "1", .least = 1e-9, .most = 1e9,
     .doc = "Samples are multiplied by it first, with kaldi (32768 for models trained on 16-bit numbers)"},
    {"into", KEY_INTO,
     .doc =
         "Name of the result, float32 [bands, frames] (kaldi: [frames, bands]); left out: that of the field"},
    {0}};

typedef struct features_state {
    features_plan *plan;
    double rate;
} features_state;

static status refuse_other_keys(const step_build *b, int64_t form, error *err) {
    static const struct {
        size_t key;
        unsigned forms;
    } only[] = {{FEAT_FFT, 1u << FORM_MEL},
                {FEAT_HOP, 1u << FORM_MEL},
                {FEAT_CEPSTRA, 1u << FORM_MFCC},
                {FEAT_GAIN, 1u << FORM_KALDI},
                {FEAT_MELS, 1u << FORM_WHISPER | 1u << FORM_KALDI | 1u << FORM_MEL}};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++) {
        if (b->values[only[i].key].given && !(only[i].forms >> form & 1))
            return step_fault(b, FEATURES_KEYS[only[i].key].name, err,
                              "expected no such key with this form, got one");
    }
    return CHURON_OK;
}

static status check_features(step_build *b, error *err) {
    const key_value *v = b->values;
    const int64_t form = v[FEAT_FORM].integer;
    features_state *o;
    TRY(expect_signal(b, FEAT_FIELD, err));
    TRY(refuse_other_keys(b, form, err));
    const cell_type *t = v[FEAT_FIELD].type;
    const bool one = t->kind == CELL_AUDIO ? t->dims[0] == 1 : t->rank == 1 || t->dims[0] == 1;
    if (!one)
        return step_fault(b, "field", err, "expected one channel (mix_down gives it), got '%.60s'",
                          v[FEAT_FIELD].text);
    TRY(step_state(b, sizeof *o, &o, err));
    o->rate = v[FEAT_RATE].number;
    if (form == FORM_WHISPER && o->rate != 16000)
        return step_fault(b, "rate", err, "expected 16000 with whisper, got %g", o->rate);
    if (t->kind == CELL_AUDIO && t->rate > 0 && t->rate != o->rate)
        return step_fault(b, "rate", err, "expected %g, which the audio has, got %g", t->rate, o->rate);
    const uint32_t rate = (uint32_t)o->rate;
    const size_t mels = (size_t)v[FEAT_MELS].integer;
    features_options options =
        form == FORM_WHISPER ? features_whisper(mels)
        : form == FORM_KALDI ? features_kaldi_fbank(rate, mels)
        : form == FORM_MEL
            ? features_librosa_mel(rate, (size_t)v[FEAT_FFT].integer, (size_t)v[FEAT_HOP].integer, mels)
            : features_librosa_mfcc(rate, (size_t)v[FEAT_CEPSTRA].integer);
    if (form == FORM_KALDI) options.gain = v[FEAT_GAIN].number;
    error why;
    if (features_plan_create(&o->plan, &options, &why) != CHURON_OK)
        return step_fault(b, NULL, err, "%s", why.message);
    const int64_t rows = (int64_t)features_rows(o->plan);
    cell_type out = {
        .kind = CELL_TENSOR, .element = ELEM_F32, .has_rank = true, .rank = 2, .dims = {rows, -1}};
    if (options.frames_first) {
        out.dims[0] = -1;
        out.dims[1] = rows;
    }
    b->s->in = v[FEAT_FIELD].slot;
    return step_output(b, FEAT_INTO, FEAT_FIELD, &out, err);
}

static status run_features(const step *s, run *r, cell *slots, error *err) {
    const features_state *o = s->state;
    const cell *in = &slots[s->in];
    if (in->kind == CELL_AUDIO && in->rate != o->rate)
        return error_set(err, CHURON_INVALID, "expected audio of %g samples a second, got %g", o->rate,
                         in->rate);
    const tensor one = as_channels(in);
    tensor t;
    TRY(features_run(&t, o->plan, &one, err));
    return media_adopt(&slots[s->out], CELL_TENSOR, r->memory, &t, err);
}

static void release_features(step *s) {
    features_state *o = s->state;
    if (o) features_plan_free(o->plan);
}

const step_kind step_audio_features = {
    .name = "audio_features",
    .group = "audio",
    .doc = "Log-mel spectrograms and cepstra as speech and music models take them.",
    .reference = "Whisper, torchaudio.compliance.kaldi.fbank, librosa",
    .keys = FEATURES_KEYS,
    .check = check_features,
    .row = run_features,
    .release = release_features,
};
