/* stft.c: short-time Fourier transforms, FFT_LANES frames at once: a lane of the kernel is a frame. */
#include "media/stft.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static status check(const stft_options *o, error *err) {
    if (o->window > o->fft) {
        return error_set(err, CHURON_INVALID,
                         "stft: window: expected at most the %zu points of the transform, got %zu", o->fft,
                         o->window);
    }
    if (o->hop < 1 || o->hop > STFT_MAX_FFT * 16) {
        return error_set(err, CHURON_INVALID, "stft: hop: expected 1 to %d, got %zu", STFT_MAX_FFT * 16,
                         o->hop);
    }
    if ((unsigned)o->kind >= WINDOW_COUNT || (unsigned)o->pad >= STFT_PAD_COUNT) {
        return error_set(err, CHURON_INVALID, "stft: window and padding: expected known ones, got %d and %d",
                         (int)o->kind, (int)o->pad);
    }
    if (!(o->parameter >= 0.0 && o->parameter <= 100.0)) {
        return error_set(err, CHURON_INVALID, "stft: window's parameter: expected 0 to 100, got %g",
                         o->parameter);
    }
    return CHURON_OK;
}

status stft_plan_create(stft_plan **out, const stft_options *options, error *err) {
    *out = NULL;
    TRY(check(options, err));
    stft_plan *p = mem_calloc(1, sizeof *p);
    if (!p) return error_no_memory(err, "a transform's plan", sizeof *p);
    status st;
    p->o = *options;
    TRY_GOTO(kernels_select(&p->k, err));
    TRY_GOTO(rfft_plan_create(&p->fft, options->fft, err));
    if (p->o.window == 0) p->o.window = p->o.fft;
    p->window = mem_calloc(p->o.fft, sizeof *p->window);
    if (!p->window) {
        st = error_no_memory(err, "a window", p->o.fft * sizeof *p->window);
        goto cleanup;
    }
    window_make(p->o.kind, p->o.window, !p->o.symmetric, p->o.parameter,
                p->window + (p->o.fft - p->o.window) / 2);
    *out = p;
    return CHURON_OK;
cleanup:
    stft_plan_free(p);
    return st;
}

void stft_plan_free(stft_plan *p) {
    if (!p) return;
    rfft_plan_free(p->fft);
    mem_free(p->window);
    mem_free(p);
}

size_t stft_bins(const stft_plan *p) {
    return p->o.fft / 2 + 1;
}

size_t stft_frames(const stft_plan *p, size_t samples) {
    const size_t n = samples + (p->o.center ? p->o.fft / 2 * 2 : 0);
    if (samples == 0 || n < p->o.fft) return 0;
    return 1 + (n - p->o.fft) / p->o.hop;
}

/* Samples from the first of FFT_LANES frames to the last. */
static size_t span(const stft_plan *p, size_t frames) {
    return (frames - 1) * p->o.hop + p->o.fft;
}

status stft_scratch_create(stft_scratch *s, const stft_plan *p, error *err) {
    const size_t n = p->o.fft * FFT_LANES, bins = 2 * stft_bins(p) * FFT_LANES, work = rfft_scratch(p->fft);
    const size_t all = n + bins + work + span(p, FFT_LANES);
    s->x = mem_aligned(64, all * sizeof *s->x);
    if (!s->x) return error_no_memory(err, "a transform", all * sizeof *s->x);
    memset(s->x, 0, n * sizeof *s->x);
    s->spectrum = s->x + n;
    s->work = s->spectrum + bins;
    s->edge = s->work + work;
    return CHURON_OK;
}

void stft_scratch_free(stft_scratch *s) {
    mem_free(s->x);
    *s = (stft_scratch){0};
}

status stft_check_samples(const stft_plan *p, size_t n, error *err) {
    const size_t side = p->o.center ? p->o.fft / 2 : 0;
    if (side > 0 && p->o.pad == STFT_PAD_REFLECT && n <= side) {
        return error_set(err, CHURON_INVALID, "stft: samples: expected more than %zu to reflect, got %zu",
                         side, n);
    }
    return CHURON_OK;
}

/* Sample i, which may lie up to fft / 2 outside; further out (frames of a group that do not exist): 0. */
static float padded(const stft_plan *p, const float *samples, ptrdiff_t n, ptrdiff_t i) {
    if (i >= 0 && i < n) return samples[i];
    if (p->o.pad == STFT_PAD_ZERO || n == 0) return 0.0f;
    if (p->o.pad == STFT_PAD_EDGE) return samples[i < 0 ? 0 : n - 1];
    const ptrdiff_t back = i < 0 ? -i : 2 * (n - 1) - i;
    return back >= 0 && back < n ? samples[back] : 0.0f;
}

/* Four frames at a time: whole vectors are written. */
static void load(const stft_plan *p, const float *from, float *x) {
    const size_t first = (p->o.fft - p->o.window) / 2, end = first + p->o.window, hop = p->o.hop;
    for (size_t l = 0; l < FFT_LANES; l += 4) {
        const float *a = from + l * hop, *b = a + hop, *c = b + hop, *d = c + hop;
        for (size_t i = first; i < end; i++) {
            const float w = p->window[i];
            float *y = x + i * FFT_LANES + l;
            y[0] = a[i] * w, y[1] = b[i] * w, y[2] = c[i] * w, y[3] = d[i] * w;
        }
    }
}

void stft_frames_at(const stft_plan *p, const float *samples, size_t n, size_t first, size_t count,
                    stft_scratch *s) {
    const ptrdiff_t side = p->o.center ? (ptrdiff_t)(p->o.fft / 2) : 0;
    const ptrdiff_t from = (ptrdiff_t)(first * p->o.hop) - side, length = (ptrdiff_t)span(p, FFT_LANES);
    const float *x = samples + (from > 0 ? from : 0);
    if (from < 0 || from + length > (ptrdiff_t)n || count < FFT_LANES) {
        for (ptrdiff_t i = 0; i < length; i++) s->edge[i] = padded(p, samples, (ptrdiff_t)n, from + i);
        x = s->edge;
    }
    load(p, x, s->x);
    p->k->fft_real(p->fft, s->x, s->spectrum, s->work);
}

/* ---- spectra as a tensor --------------------------------------------------------------------------------
 */

static void put(const stft_plan *p, const stft_scratch *s, size_t first, size_t count, size_t frames,
                stft_value what, float *out) {
    for (size_t b = 0; b < stft_bins(p); b++) {
        const float *re = s->spectrum + 2 * b * FFT_LANES, *im = re + FFT_LANES;
        for (size_t l = 0; l < count; l++) {
            const size_t at = b * frames + first + l;
            const float power = re[l] * re[l] + im[l] * im[l];
            if (what == STFT_COMPLEX)
                out[2 * at] = re[l], out[2 * at + 1] = im[l];
            else
                out[at] = what == STFT_POWER ? power : sqrtf(power);
        }
    }
}

static status check_samples(const tensor *in, const char *what, error *err) {
    if (in->type == ELEM_F32 && (in->rank == 1 || in->rank == 2)) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "%s: samples: expected float32 [samples] or [channels, samples], got %s of rank %u",
                     what, elem_name(in->type), in->rank);
}

status stft_run(tensor *out, const stft_plan *p, const tensor *in, stft_value what, error *err) {
    *out = (tensor){0};
    TRY(check_samples(in, "stft", err));
    if ((unsigned)what >= STFT_VALUE_COUNT)
        return error_set(err, CHURON_INVALID, "stft: value: got %d", (int)what);
    const size_t channels = in->rank == 2 ? (size_t)in->dims[0] : 1, n = (size_t)in->dims[in->rank - 1];
    const size_t frames = stft_frames(p, n), bins = stft_bins(p);
    if (frames == 0) {
        return error_set(err, CHURON_INVALID, "stft: samples: expected at least one frame of %zu, got %zu",
                         p->o.fft, n);
    }
    TRY(stft_check_samples(p, n, err));
    const int64_t dims[3] = {(int64_t)channels, (int64_t)bins, (int64_t)frames};
    const size_t skip = in->rank == 2 ? 0 : 1;
    stft_scratch s = {0};
    tensor made = {0};
    status st;
    TRY_GOTO(tensor_alloc(&made, what == STFT_COMPLEX ? ELEM_C64 : ELEM_F32, 3 - skip, dims + skip, err));
    TRY_GOTO(stft_scratch_create(&s, p, err));
    for (size_t c = 0; c < channels; c++) {
        float *to = (float *)made.data + c * bins * frames * (what == STFT_COMPLEX ? 2 : 1);
        const float *samples = (const float *)in->data + c * n;
        for (size_t f = 0; f < frames; f += FFT_LANES) {
            const size_t count = frames - f < FFT_LANES ? frames - f : FFT_LANES;
            stft_frames_at(p, samples, n, f, count, &s);
            put(p, &s, f, count, frames, what, to);
        }
    }
    *out = made;
    made = (tensor){0};
cleanup:
    tensor_free(&made);
    stft_scratch_free(&s);
    return st;
}
