/* resample.c: samples to another rate (audio.h). Rates are divided by their common factor; then output b *
 * new + p is a sum of inputs around b * old with the weights of phase p, of which there are `new`. */
#include "base/mem.h"
#include "media/audio.h"
#include "media/window.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { CHAINS = 8, MAX_TABLE = 64 << 20 }; /* CHAINS: independent sums of one output */

typedef struct phases {
    size_t old, new;  /* rates without their common factor */
    size_t width;     /* inputs that the first output reaches back */
    size_t taps;      /* weights of a phase, a multiple of CHAINS */
    ptrdiff_t *first; /* [new]: of the inputs, relative to b * old */
    float *weight;    /* [new, taps] */
} phases;

resample_quality resample_preset_quality(resample_preset p) {
    switch (p) {
    case RESAMPLE_KAISER_FAST: return (resample_quality){RESAMPLE_KAISER, 16, 0.85, 8.555504641634386};
    case RESAMPLE_KAISER_BEST:
        return (resample_quality){RESAMPLE_KAISER, 64, 0.9475937167399596, 14.769656459379492};
    default: return (resample_quality){RESAMPLE_HANN, 6, 0.99, 0.0};
    }
}

static double weight_at(const resample_quality *q, double t, double scale) {
    const double zeros = q->zeros;
    if (t <= -zeros || t >= zeros) return 0.0;
    const double c = cos(t * PI / zeros / 2), x = t / zeros;
    const double window = q->window == RESAMPLE_HANN
                              ? c * c
                              : window_bessel_i0(q->beta * sqrt(1 - x * x)) / window_bessel_i0(q->beta);
    return scale * window * (t == 0.0 ? 1.0 : sin(t * PI) / (t * PI));
}

static void make_phase(const phases *f, const resample_quality *q, double cut, size_t p) {
    const double middle = (double)p * (double)f->old / (double)f->new, reach = q->zeros *(double)f->old / cut;
    const ptrdiff_t first = (ptrdiff_t)ceil(middle - reach);
    f->first[p] = first < -(ptrdiff_t)f->width ? -(ptrdiff_t)f->width : first;
    for (size_t k = 0; k < f->taps; k++) {
        const double at = (double)(f->first[p] + (ptrdiff_t)k);
        const double t = (at / (double)f->old - (double)p / (double)f->new) * cut;
        f->weight[p * f->taps + k] = (float)weight_at(q, t, cut / (double)f->old);
    }
}

static size_t common_factor(size_t a, size_t b) {
    while (b != 0) {
        const size_t r = a % b;
        a = b, b = r;
    }
    return a;
}

static status make_phases(phases *f, uint32_t from, uint32_t to, const resample_quality *q, error *err) {
    const size_t g = common_factor(from, to);
    f->old = from / g, f->new = to / g;
    const double cut = (double)(f->old < f->new ? f->old : f->new) * q->rolloff,
                 reach = q->zeros * (double)f->old / cut;
    f->width = (size_t)ceil(reach);
    f->taps = (2 * f->width + 1 + CHAINS - 1) / CHAINS * CHAINS;
    if (f->taps > MAX_TABLE / sizeof(float) / f->new) {
        return error_set(
            err, CHURON_LIMIT,
            "resample: rates: expected weights of at most %d bytes, got %zu for each of %zu phases",
            MAX_TABLE, f->taps * sizeof(float), f->new);
    }
    f->first = mem_alloc(f->new * sizeof *f->first);
    f->weight = mem_alloc(f->new * f->taps * sizeof *f->weight);
    if (!f->first || !f->weight)
        return error_no_memory(err, "weights of resampling", f->new * f->taps * sizeof *f->weight);
    for (size_t p = 0; p < f->new; p++) make_phase(f, q, cut, p);
    return CHURON_OK;
}

/* Value i of the products goes to chain i % CHAINS; the chains are added as a tree. */
static float dot(const float *x, const float *w, size_t n) {
    float sum[CHAINS] = {0};
    for (size_t k = 0; k < n; k += CHAINS) {
        for (size_t c = 0; c < CHAINS; c++) sum[c] += x[k + c] * w[k + c];
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void run(const phases *f, const float *padded, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const size_t p = i % f->new;
        const float *x = padded + f->width + i / f->new * f->old;
        out[i] = dot(x + f->first[p], f->weight + p * f->taps, f->taps);
    }
}

static status check(const tensor *in, uint32_t from, uint32_t to, const resample_quality *q, error *err) {
    if (in->type != ELEM_F32 || in->rank != 2) {
        return error_set(err, CHURON_INVALID,
                         "resample: samples: expected float32 [channels, samples], got %s of rank %u",
                         elem_name(in->type), in->rank);
    }
    if (from < 1 || to < 1 || from > AUDIO_MAX_RATE || to > AUDIO_MAX_RATE) {
        return error_set(err, CHURON_INVALID, "resample: rates: expected 1 to %d, got %u and %u",
                         AUDIO_MAX_RATE, from, to);
    }
    if (q->zeros < 1 || q->zeros > 256 || !(q->rolloff > 0.0 && q->rolloff <= 1.0) ||
        !(q->beta >= 0.0 && q->beta <= 100.0)) {
        return error_set(err, CHURON_INVALID,
                         "resample: quality: expected 1 to 256 zeros, rolloff in (0, 1], beta in [0, 100], "
                         "got %u, %g, %g",
                         q->zeros, q->rolloff, q->beta);
    }
    return CHURON_OK;
}

status audio_resample(tensor *out, const tensor *in, uint32_t from, uint32_t to,
                      const resample_quality *quality, error *err) {
    const resample_quality usual = resample_preset_quality(RESAMPLE_DEFAULT), *q = quality ? quality : &usual;
    *out = (tensor){0};
    TRY(check(in, from, to, q, err));
    if (from == to) return tensor_copy(out, in, err);
    phases f = {0};
    tensor made = {0};
    float *padded = NULL;
    status st;
    TRY_GOTO(make_phases(&f, from, to, q, err));
    const size_t n = (size_t)in->dims[1], new_n = (size_t)(((uint64_t)n * f.new + f.old - 1) / f.old);
    const int64_t dims[2] = {in->dims[0], (int64_t)new_n};
    TRY_GOTO(tensor_alloc(&made, ELEM_F32, 2, dims, err));
    const size_t length = f.width + n + f.old + f.width + f.taps;
    padded = mem_calloc(length, sizeof *padded);
    if (!padded) {
        st = error_no_memory(err, "samples to resample", length * sizeof *padded);
        goto cleanup;
    }
    for (size_t c = 0; c < (size_t)in->dims[0]; c++) {
        memcpy(padded + f.width, (const float *)in->data + c * n, n * sizeof *padded);
        run(&f, padded, (float *)made.data + c * new_n, new_n);
    }
    *out = made;
    made = (tensor){0};
cleanup:
    tensor_free(&made);
    mem_free(f.first);
    mem_free(f.weight);
    mem_free(padded);
    return st;
}
