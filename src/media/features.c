/* features.c: mel filter banks and what is made of their outputs: logs of several kinds, cepstra; Kaldi's
 * frames. */
#include "base/mem.h"
#include "media/stft.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { MAX_MELS = 4096, MAX_CEPSTRA = 4096 };

/* ---- filter banks ---------------------------------------------------------------------------------------
 */

static double to_mel(mel_scale s, double hz) {
    const double linear = hz * 3.0 / 200.0;
    if (s == MEL_HTK) return 2595.0 * log10(1.0 + hz / 700.0);
    if (s == MEL_KALDI) return 1127.0 * log(1.0 + hz / 700.0);
    return hz < 1000.0 ? linear : 15.0 + log(hz / 1000.0) / (log(6.4) / 27.0);
}

static double from_mel(mel_scale s, double mel) {
    if (s == MEL_HTK) return 700.0 * (pow(10.0, mel / 2595.0) - 1.0);
    if (s == MEL_KALDI) return 700.0 * (exp(mel / 1127.0) - 1.0);
    return mel < 15.0 ? mel * 200.0 / 3.0 : 1000.0 * exp(log(6.4) / 27.0 * (mel - 15.0));
}

static status check_mel(size_t fft, const mel_options *o, double *high, error *err) {
    const double nyquist = o->rate / 2.0;
    *high = o->high > 0 ? o->high : nyquist + o->high;
    if (fft < 2 || fft > STFT_MAX_FFT || o->rate < 1 || o->mels < 1 || o->mels > MAX_MELS ||
        (unsigned)o->scale >= MEL_SCALE_COUNT) {
        return error_set(
            err, CHURON_INVALID,
            "mel: expected 2 to %d points, a rate, 1 to %d mels and a known scale, got %zu, %u, %zu, %d",
            STFT_MAX_FFT, MAX_MELS, fft, o->rate, o->mels, (int)o->scale);
    }
    if (!(o->low >= 0.0 && o->low < *high && *high <= nyquist)) {
        return error_set(err, CHURON_INVALID,
                         "mel: frequencies: expected 0 <= low < high <= %g, got %g and %g", nyquist, o->low,
                         *high);
    }
    return CHURON_OK;
}

/* The triangle over (left, centre, right) at x, all in Hz or all in mel. */
static double triangle(double left, double centre, double right, double x) {
    const double up = (x - left) / (centre - left), down = (right - x) / (right - centre),
                 v = up < down ? up : down;
    return v > 0.0 ? v : 0.0;
}

status mel_filters(tensor *out, size_t fft, const mel_options *o, error *err) {
    *out = (tensor){0};
    double high;
    TRY(check_mel(fft, o, &high, err));
    const size_t bins = fft / 2 + 1;
    const int64_t dims[2] = {(int64_t)o->mels, (int64_t)bins};
    TRY(tensor_alloc(out, ELEM_F32, 2, dims, err));
    const bool in_mel = o->scale == MEL_KALDI;
    const double first = to_mel(o->scale, o->low),
                 step = (to_mel(o->scale, high) - first) / (double)(o->mels + 1);
    float *w = out->data;
    for (size_t m = 0; m < o->mels; m++) {
        double at[3];
        for (size_t i = 0; i < 3; i++) {
            at[i] = first + step * (double)(m + i);
            if (!in_mel) at[i] = from_mel(o->scale, at[i]);
        }
        const double height = o->area ? 2.0 / (at[2] - at[0]) : 1.0;
        for (size_t b = 0; b < bins; b++) {
            const double hz = (double)b * o->rate / (double)fft;
            const bool left_out = in_mel && b == bins - 1;
            *w++ = left_out
                       ? 0.0f
                       : (float)(height * triangle(at[0], at[1], at[2], in_mel ? to_mel(o->scale, hz) : hz));
        }
    }
    return CHURON_OK;
}

/* ---- presets --------------------------------------------------------------------------------------------
 */

features_options features_whisper(size_t mels) {
    return (features_options){.stft = {.fft = 400, .hop = 160, .kind = WINDOW_HANN, .center = true},
                              .value = STFT_POWER,
                              .mel = {.rate = 16000, .mels = mels, .scale = MEL_SLANEY, .area = true},
                              .log = MEL_LOG_WHISPER,
                              .drop_last = true};
}

features_options features_kaldi_fbank(uint32_t rate, size_t mels) {
    const size_t window = rate / 40;
    size_t fft = 2;
    while (fft < window) fft *= 2;
    return (features_options){
        .stft = {.fft = fft, .window = window, .hop = rate / 100, .kind = WINDOW_POVEY, .symmetric = true},
        .value = STFT_POWER,
        .mel = {.rate = rate, .mels = mels, .low = 20.0, .scale = MEL_KALDI},
        .log = MEL_LOG_E,
        .frames_first = true,
        .kaldi = true,
        .preemphasis = 0.97,
        .snip_edges = true};
}

features_options features_librosa_mel(uint32_t rate, size_t fft, size_t hop, size_t mels) {
    return (features_options){
        .stft = {.fft = fft, .hop = hop, .kind = WINDOW_HANN, .center = true, .pad = STFT_PAD_ZERO},
        .value = STFT_POWER,
        .mel = {.rate = rate, .mels = mels, .scale = MEL_SLANEY, .area = true},
        .log = MEL_LOG_DB};
}

features_options features_librosa_mfcc(uint32_t rate, size_t cepstra) {
    features_options o = features_librosa_mel(rate, 2048, 512, 128);
    o.cepstra = cepstra;
    return o;
}

/* ---- the plan -------------------------------------------------------------------------------------------
 */

struct features_plan {
    features_options o;
    stft_plan *stft;
    tensor filters;       /* [mels, bins] */
    spectrum_band *bands; /* [mels]: of the filters, what is not 0 */
    float *dct;           /* [cepstra, mels] or NULL */
};

static void find_bands(features_plan *p) {
    const size_t bins = stft_bins(p->stft);
    for (size_t m = 0; m < p->o.mel.mels; m++) {
        const float *w = (const float *)p->filters.data + m * bins;
        size_t from = 0, to = bins;
        while (from < bins && w[from] == 0.0f) from++;
        while (to > from && w[to - 1] == 0.0f) to--;
        p->bands[m] = (spectrum_band){(uint32_t)from, (uint32_t)(to - from), m * bins + from};
    }
}

static void make_dct(features_plan *p) {
    const size_t mels = p->o.mel.mels;
    for (size_t c = 0; c < p->o.cepstra; c++) {
        const double scale = sqrt((c == 0 ? 1.0 : 2.0) / (double)mels), l = p->o.lifter;
        const double lift = l > 0.0 ? 1.0 + l / 2.0 * sin(PI * (double)(c + 1) / l) : 1.0;
        for (size_t m = 0; m < mels; m++) {
            p->dct[c * mels + m] =
                (float)(lift * scale * cos(PI * (double)c * (2.0 * (double)m + 1.0) / (2.0 * (double)mels)));
        }
    }
}

static status check(const features_options *o, error *err) {
    if (o->value != STFT_MAGNITUDE && o->value != STFT_POWER) {
        return error_set(err, CHURON_INVALID, "features: value: expected magnitude or power, got %d",
                         (int)o->value);
    }
    if ((unsigned)o->log >= MEL_LOG_COUNT || !(o->floor >= 0.0) || !isfinite(o->top_db) ||
        !(o->lifter >= 0.0)) {
        return error_set(err, CHURON_INVALID,
                         "features: expected a known log, floor and lifter of at least 0, got %d, %g, %g",
                         (int)o->log, o->floor, o->lifter);
    }
    if (o->cepstra > o->mel.mels) {
        return error_set(err, CHURON_INVALID, "features: cepstra: expected at most the %zu mels, got %zu",
                         o->mel.mels, o->cepstra);
    }
    if (o->kaldi &&
        (o->stft.center || !(o->preemphasis >= 0.0 && o->preemphasis <= 1.0) || !isfinite(o->gain))) {
        return error_set(err, CHURON_INVALID,
                         "features: Kaldi's frames: expected no centring, preemphasis 0 to 1, got %g",
                         o->preemphasis);
    }
    return CHURON_OK;
}

status features_plan_create(features_plan **out, const features_options *options, error *err) {
    *out = NULL;
    TRY(check(options, err));
    features_plan *p = mem_calloc(1, sizeof *p);
    if (!p) return error_no_memory(err, "a plan of features", sizeof *p);
    status st;
    p->o = *options;
    TRY_GOTO(stft_plan_create(&p->stft, &options->stft, err));
    p->o.stft = p->stft->o;
    TRY_GOTO(mel_filters(&p->filters, p->o.stft.fft, &options->mel, err));
    p->bands = mem_alloc(p->o.mel.mels * sizeof *p->bands);
    if (p->o.cepstra > 0) p->dct = mem_alloc(p->o.cepstra * p->o.mel.mels * sizeof *p->dct);
    if (!p->bands || (p->o.cepstra > 0 && !p->dct)) {
        st = error_no_memory(err, "a plan of features", p->o.mel.mels * sizeof *p->bands);
        goto cleanup;
    }
    find_bands(p);
    if (p->dct) make_dct(p);
    if (p->o.kaldi) { /* the window stands at the beginning */
        memmove(p->stft->window, p->stft->window + (p->o.stft.fft - p->o.stft.window) / 2,
                p->o.stft.window * sizeof(float));
        for (size_t i = p->o.stft.window; i < p->o.stft.fft; i++) p->stft->window[i] = 0.0f;
    }
    *out = p;
    return CHURON_OK;
cleanup:
    features_plan_free(p);
    return st;
}

void features_plan_free(features_plan *p) {
    if (!p) return;
    stft_plan_free(p->stft);
    tensor_free(&p->filters);
    mem_free(p->bands);
    mem_free(p->dct);
    mem_free(p);
}

size_t features_rows(const features_plan *p) {
    return p->o.cepstra ? p->o.cepstra : p->o.mel.mels;
}

size_t features_frames(const features_plan *p, size_t samples) {
    const size_t hop = p->o.stft.hop, window = p->o.stft.window;
    if (p->o.kaldi && !p->o.snip_edges) return (samples + hop / 2) / hop;
    if (p->o.kaldi) return samples < window ? 0 : 1 + (samples - window) / hop;
    const size_t n = stft_frames(p->stft, samples);
    return n > 0 && p->o.drop_last ? n - 1 : n;
}

/* ---- frames ---------------------------------------------------------------------------------------------
 */

/* Sample i of the signal and of its mirror images on both sides, the last sample doubled (Kaldi's way). */
static float mirrored(const float *x, size_t n, ptrdiff_t i) {
    const ptrdiff_t period = 2 * (ptrdiff_t)n;
    i %= period;
    if (i < 0) i += period;
    return x[i < (ptrdiff_t)n ? i : period - 1 - i];
}

static void load_kaldi(const features_plan *p, const float *x, size_t n, size_t frame, size_t lane,
                       float *to) {
    const size_t window = p->o.stft.window, hop = p->o.stft.hop;
    const float gain = p->o.gain == 0.0 ? 1.0f : (float)p->o.gain, emphasis = (float)p->o.preemphasis;
    ptrdiff_t start = (ptrdiff_t)(frame * hop);
    if (!p->o.snip_edges) start -= (ptrdiff_t)(window / 2) - (ptrdiff_t)(hop / 2);
    const bool inside = start >= 0 && (size_t)start + window <= n;
    double sum = 0.0;
    for (size_t i = 0; i < window; i++) {
        const float v = gain * (inside ? x[(size_t)start + i] : mirrored(x, n, start + (ptrdiff_t)i));
        to[i * FFT_LANES + lane] = v;
        sum += v;
    }
    const float mean = (float)(sum / (double)window);
    float before = to[lane] - mean;
    for (size_t i = 0; i < window; i++) {
        float *v = to + i * FFT_LANES + lane;
        const float here = *v - mean;
        *v = (here - emphasis * before) * p->stft->window[i];
        before = here;
    }
}

/* Logs of n energies in place. */
static void logs(const features_plan *p, float *x, size_t n) {
    const float ln10 = 2.302585093f;
    const mel_log kind = p->o.log;
    float floor = (float)p->o.floor;
    if (kind == MEL_LOG_NONE) return;
    if (floor == 0.0f && kind != MEL_LOG_PLUS) floor = kind == MEL_LOG_E ? FLT_EPSILON : 1e-10f;
    for (size_t i = 0; i < n; i++) x[i] = kind == MEL_LOG_PLUS ? x[i] + floor : x[i] > floor ? x[i] : floor;
    p->stft->k->unary(UNARY_F32_LOG, 0, 0, x, x, n);
    if (kind == MEL_LOG_DB) p->stft->k->unary(UNARY_F32_LINEAR, 10.0f / ln10, 0, x, x, n);
    if (kind == MEL_LOG_WHISPER) p->stft->k->unary(UNARY_F32_LINEAR, 1.0f / ln10, 0, x, x, n);
}

/* What needs the largest value of all. */
static void limit_below(const features_plan *p, float *x, size_t n) {
    const bool whisper = p->o.log == MEL_LOG_WHISPER;
    const double top_db = p->o.top_db == 0.0 ? 80.0 : p->o.top_db;
    if (n == 0 || (!whisper && (p->o.log != MEL_LOG_DB || top_db < 0.0))) return;
    float least = INFINITY, most = -INFINITY;
    p->stft->k->range(x, n, &least, &most);
    const float low = most - (whisper ? 8.0f : (float)top_db);
    for (size_t i = 0; i < n; i++) x[i] = x[i] > low ? x[i] : low;
    for (size_t i = 0; whisper && i < n; i++) x[i] = (x[i] + 4.0f) / 4.0f;
}

/* ---- the result -----------------------------------------------------------------------------------------
 */

typedef struct job {
    const features_plan *p;
    const float *samples;
    size_t n, frames;
    stft_scratch s;
    float *power, *mel; /* [bins][FFT_LANES], [mels][FFT_LANES] */
    float *own;         /* [mels, frames] where the result is something else */
    float *logs;        /* [mels, frames] */
} job;

static void run(job *j) {
    const features_plan *p = j->p;
    const size_t mels = p->o.mel.mels;
    for (size_t f = 0; f < j->frames; f += FFT_LANES) {
        const size_t count = j->frames - f < FFT_LANES ? j->frames - f : FFT_LANES;
        if (p->o.kaldi) {
            for (size_t l = 0; l < count; l++) load_kaldi(p, j->samples, j->n, f + l, l, j->s.x);
            p->stft->k->fft_real(p->stft->fft, j->s.x, j->s.spectrum, j->s.work);
        } else {
            stft_frames_at(p->stft, j->samples, j->n, f, count, &j->s);
        }
        p->stft->k->band_energies(j->s.spectrum, stft_bins(p->stft), p->o.value == STFT_MAGNITUDE, p->bands,
                                  mels, p->filters.data, j->power, j->mel);
        logs(p, j->mel, mels * FFT_LANES);
        for (size_t m = 0; m < mels; m++) {
            memcpy(j->logs + m * j->frames + f, j->mel + m * FFT_LANES, count * sizeof(float));
        }
    }
    limit_below(p, j->logs, mels * j->frames);
}

/* Cepstra, or the logs, into the result's layout. */
static void finish(const job *j, float *out) {
    const features_plan *p = j->p;
    const size_t mels = p->o.mel.mels, rows = features_rows(p), frames = j->frames;
    if (out == j->logs) return;
    for (size_t r = 0; r < rows; r++) {
        for (size_t f = 0; f < frames; f++) {
            float v = p->dct ? 0.0f : j->logs[r * frames + f];
            if (p->dct) {
                double sum = 0.0;
                for (size_t m = 0; m < mels; m++)
                    sum += (double)p->dct[r * mels + m] * (double)j->logs[m * frames + f];
                v = (float)sum;
            }
            out[p->o.frames_first ? f * rows + r : r * frames + f] = v;
        }
    }
}

static status allocate(job *j, float *out, error *err) {
    const features_plan *p = j->p;
    const size_t bins = stft_bins(p->stft) * FFT_LANES, mels = p->o.mel.mels;
    size_t bytes;
    TRY(stft_scratch_create(&j->s, p->stft, err));
    j->power = mem_aligned(64, (bins + mels * FFT_LANES) * sizeof(float));
    if (!j->power) return error_no_memory(err, "features", (bins + mels * FFT_LANES) * sizeof(float));
    j->logs = out;
    if (p->dct || p->o.frames_first) {
        j->own = j->logs = size_mul(mels * sizeof(float), j->frames, &bytes) ? mem_alloc(bytes) : NULL;
        if (!j->own) return error_no_memory(err, "features", mels * j->frames * sizeof(float));
    }
    j->mel = j->power + bins;
    return CHURON_OK;
}

status features_run(tensor *out, const features_plan *p, const tensor *in, error *err) {
    *out = (tensor){0};
    if (in->type != ELEM_F32 || in->rank < 1 || in->rank > 2 || (in->rank == 2 && in->dims[0] != 1)) {
        return error_set(err, CHURON_INVALID,
                         "features: samples: expected float32 [samples] or [1, samples], got %s of rank %u",
                         elem_name(in->type), in->rank);
    }
    job j = {.p = p, .samples = in->data, .n = (size_t)in->dims[in->rank - 1]};
    j.frames = features_frames(p, j.n);
    if (j.frames == 0) {
        return error_set(err, CHURON_INVALID,
                         "features: samples: expected enough for a frame of %zu, got %zu", p->o.stft.window,
                         j.n);
    }
    if (!p->o.kaldi) TRY(stft_check_samples(p->stft, j.n, err));
    const int64_t rows = (int64_t)features_rows(p), frames = (int64_t)j.frames;
    const int64_t plain[2] = {rows, frames}, turned[2] = {frames, rows};
    tensor made = {0};
    status st;
    TRY_GOTO(tensor_alloc(&made, ELEM_F32, 2, p->o.frames_first ? turned : plain, err));
    TRY_GOTO(allocate(&j, made.data, err));
    run(&j);
    finish(&j, made.data);
    *out = made;
    made = (tensor){0};
cleanup:
    tensor_free(&made);
    stft_scratch_free(&j.s);
    mem_free(j.power);
    mem_free(j.own);
    return st;
}
