/* taps.c: which inputs an output is made of, and by how much, for each library's rule. */
#include "media/taps.h"

#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- Pillow: an antialiasing filter as wide as the scale asks ------------------------------------------ */

static double sinc(double x) {
    return x == 0.0 ? 1.0 : sin(x * PI) / (x * PI);
}

static double filter_value(resize_filter f, double x) {
    const double a = -0.5;
    if (f == RESIZE_AREA) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    if (f == RESIZE_LANCZOS) return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
    x = fabs(x);
    if (f == RESIZE_BILINEAR) return x < 1.0 ? 1.0 - x : 0.0;
    if (f == RESIZE_HAMMING) {
        if (x == 0.0) return 1.0;
        return x < 1.0 ? sin(x * PI) / (x * PI) * (0.54f + 0.46f * cos(x * PI)) : 0.0;
    }
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double filter_support(resize_filter f) {
    return f == RESIZE_AREA ? 0.5 : f == RESIZE_BICUBIC ? 2.0 : f == RESIZE_LANCZOS ? 3.0 : 1.0;
}

static void pillow_tap(taps *t, size_t i, resize_filter f, size_t in, size_t out, size_t at) {
    const double scale = (double)in / (double)out, wide = scale < 1.0 ? 1.0 : scale;
    const double support = filter_support(f) * wide, center = ((double)at + 0.5) * scale, narrow = 1.0 / wide;
    double low = center - support + 0.5, high = center + support + 0.5, sum = 0.0;
    if (low < 0) low = 0;
    if (high > (double)in) high = (double)in;
    const size_t first = (size_t)low, count = (size_t)high - first;
    double *w = t->weight + i * t->per;
    for (size_t k = 0; k < count; k++) {
        w[k] = filter_value(f, ((double)(k + first) - center + 0.5) * narrow);
        sum += w[k];
    }
    for (size_t k = 0; k < count && sum != 0.0; k++) w[k] /= sum;
    t->first[i] = (uint32_t)first, t->count[i] = (uint32_t)count;
}

/* The same in f32, as torch's CPU kernel for floats has it. */
static float torch_filter(resize_filter f, float x) {
    const float a = -0.5f;
    x = fabsf(x);
    if (f == RESIZE_BILINEAR) return x < 1.0f ? 1.0f - x : 0.0f;
    if (x < 1.0f) return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    return x < 2.0f ? ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a : 0.0f;
}

static void torch_tap(taps *t, size_t i, resize_filter f, size_t in, size_t out, size_t at) {
    const float scale = (float)in / (float)out, wide = scale < 1.0f ? 1.0f : scale;
    const float support = (float)filter_support(f) * wide, center = scale * ((float)at + 0.5f),
                narrow = 1.0f / wide;
    float low = center - support + 0.5f, high = center + support + 0.5f, sum = 0.0f;
    if (low < 0) low = 0;
    if (high > (float)in) high = (float)in;
    const size_t first = (size_t)low, count = (size_t)high - first;
    double *w = t->weight + i * t->per;
    for (size_t k = 0; k < count; k++) {
        const float v = torch_filter(f, ((float)(k + first) - center + 0.5f) * narrow);
        w[k] = v;
        sum += v;
    }
    for (size_t k = 0; k < count && sum != 0.0f; k++) w[k] = (float)w[k] / sum;
    t->first[i] = (uint32_t)first, t->count[i] = (uint32_t)count;
}

/* ---- OpenCV: a fixed number of neighbours, those outside taken at the border ----------------------------
 */

static size_t opencv_weights(resize_filter f, float x, float *w) {
    if (f == RESIZE_BICUBIC) {
        const float a = -0.75f;
        w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
        w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
        w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
        w[3] = 1.f - w[0] - w[1] - w[2];
        return 4;
    }
    if (f == RESIZE_LANCZOS) {
        float sum = 0.0f;
        if (x < FLT_EPSILON) {
            memset(w, 0, 8 * sizeof *w);
            w[3] = 1.0f;
            return 8;
        }
        for (int i = 0; i < 8; i++) {
            const double y = -((double)x + 3 - i) * PI * 0.25;
            w[i] = (float)(sin(4 * y) * sin(y) / (y * y)); /* a constant factor falls out below */
            sum += w[i];
        }
        for (int i = 0; i < 8; i++) w[i] /= sum;
        return 8;
    }
    w[0] = 1.0f - x, w[1] = x;
    return 2;
}

/* Adds w at input `at`, which is moved into 0..in-1; the taps begin at t->first[i]. */
static void add_clamped(taps *t, size_t i, ptrdiff_t at, size_t in, double w) {
    if (at < 0) at = 0;
    if (at >= (ptrdiff_t)in) at = (ptrdiff_t)in - 1;
    const size_t k = (size_t)at - t->first[i];
    t->weight[i * t->per + k] += w;
    if (k >= t->count[i]) t->count[i] = (uint32_t)(k + 1);
}

/* area: INTER_AREA that enlarges, where a pixel is constant but for the last part of its width. */
static void opencv_tap(taps *t, size_t i, resize_filter f, bool area, taps_form form, size_t in, size_t out,
                       size_t at) {
    const double inverse = (double)out / (double)in, scale = 1.0 / inverse;
    float x, w[8];
    ptrdiff_t s;
    if (area) {
        s = (ptrdiff_t)floor((double)at * scale);
        x = (float)(((double)at + 1) - ((double)s + 1) * inverse);
        x = x <= 0 ? 0.f : x - floorf(x);
    } else {
        x = (float)(((double)at + 0.5) * scale - 0.5);
        s = (ptrdiff_t)floorf(x);
        x -= (float)s;
    }
    const bool two = area || f == RESIZE_BILINEAR;
    if (two && s < 0) s = 0, x = 0;
    if (two && s >= (ptrdiff_t)in - 1) s = (ptrdiff_t)in - 1, x = 0;
    const size_t n = opencv_weights(two ? RESIZE_BILINEAR : f, x, w);
    const ptrdiff_t from = s - (ptrdiff_t)(n / 2) + 1;
    t->first[i] = (uint32_t)(from < 0 ? 0 : from >= (ptrdiff_t)in ? (ptrdiff_t)in - 1 : from);
    for (size_t k = 0; k < n; k++) {
        const double one = 1 << OPENCV_BITS;
        add_clamped(t, i, from + (ptrdiff_t)k, in,
                    form == TAPS_OPENCV_U8 ? rint((double)(w[k] * (float)one)) : w[k]);
    }
}

/* INTER_AREA that shrinks: the mean over the pixel's box. A whole factor sums; the caller divides. */
static void area_tap(taps *t, size_t i, size_t in, size_t out, size_t at) {
    const double scale = 1.0 / ((double)out / (double)in);
    double *w = t->weight + i * t->per;
    if (in % out == 0) {
        t->first[i] = (uint32_t)(at * (in / out)), t->count[i] = (uint32_t)(in / out);
        for (size_t k = 0; k < in / out; k++) w[k] = 1.0;
        return;
    }
    const double low = (double)at * scale, high = low + scale;
    const double cell = scale < (double)in - low ? scale : (double)in - low;
    ptrdiff_t s1 = (ptrdiff_t)ceil(low), s2 = (ptrdiff_t)floor(high);
    if (s2 > (ptrdiff_t)in - 1) s2 = (ptrdiff_t)in - 1;
    if (s1 > s2) s1 = s2;
    const bool before = (double)s1 - low > 1e-3, after = high - (double)s2 > 1e-3;
    size_t k = 0;
    t->first[i] = (uint32_t)(before ? s1 - 1 : s1);
    if (before) w[k++] = (float)(((double)s1 - low) / cell);
    for (ptrdiff_t s = s1; s < s2; s++) w[k++] = (float)(1.0 / cell);
    if (after) {
        const double part = high - (double)s2 < 1.0 ? high - (double)s2 : 1.0;
        w[k++] = (float)((part < cell ? part : cell) / cell);
    }
    t->count[i] = (uint32_t)k;
}

/* ---- all together ---------------------------------------------------------------------------------------
 */

static size_t most_taps(resize_rule rule, resize_filter filter, size_t in, size_t out) {
    const double scale = (double)in / (double)out, wide = scale < 1.0 ? 1.0 : scale;
    if (rule == RESIZE_OPENCV) return filter == RESIZE_AREA ? (size_t)wide + 3 : 8;
    return (size_t)ceil(filter_support(filter) * wide) * 2 + 2;
}

static void nearest_taps(taps *t, resize_rule rule, size_t in, size_t out, size_t from, size_t to) {
    const double scale = rule == RESIZE_OPENCV ? 1.0 / ((double)out / (double)in) : (double)in / (double)out;
    double at = scale * 0.5; /* Pillow adds up, and so its roundings */
    for (size_t i = 0; i < to; i++, at += scale) {
        double x = rule == RESIZE_PILLOW || rule == RESIZE_PILLOW_12 ? at : (double)i * scale;
        if (rule == RESIZE_TORCHVISION) x = (double)(((float)i + 0.5f) * ((float)in / (float)out));
        if (i < from) continue;
        const size_t s = (size_t)x;
        t->first[i - from] = (uint32_t)(s < in ? s : in - 1);
        t->count[i - from] = 1;
        t->weight[(i - from) * t->per] = 1.0;
    }
}

static void to_fixed(taps *t, taps_form form) {
    for (size_t i = 0; i < t->n * t->per; i++) {
        const double w = t->weight[i];
        if (form == TAPS_OPENCV_U8) {
            t->fixed[i] = (int32_t)w;
            continue;
        }
        t->fixed[i] = (int32_t)(w * (1 << RESIZE_BITS) + (w < 0 ? -0.5 : 0.5));
        t->upper[i] = (int16_t)(t->fixed[i] >> 11);
        t->lower[i] = (int16_t)(t->fixed[i] & 2047);
    }
}

status taps_make(taps *t, resize_rule rule, resize_filter filter, bool area, taps_form form, size_t in,
                 size_t out, size_t from, size_t to, error *err) {
    const size_t n = to - from;
    size_t per = filter == RESIZE_NEAREST ? 1 : most_taps(rule, filter, in, out), all;
    per = (per + RESIZE_TAPS - 1) / RESIZE_TAPS * RESIZE_TAPS;
    *t = (taps){.n = n, .per = per};
    if (!size_mul(n, per, &all)) return error_no_memory(err, "weights of resizing", SIZE_MAX);
    const bool fixed = form == TAPS_PILLOW_U8 || form == TAPS_OPENCV_U8;
    t->first = mem_calloc(n, 2 * sizeof *t->first);
    t->weight = mem_calloc(all, sizeof *t->weight);
    if (form == TAPS_F32) t->f32 = mem_calloc(all, sizeof *t->f32);
    if (fixed) t->fixed = mem_calloc(all, 2 * sizeof *t->fixed);
    if (!t->first || !t->weight || (form == TAPS_F32 && !t->f32) || (fixed && !t->fixed)) {
        taps_free(t);
        return error_no_memory(err, "weights of resizing", all * sizeof *t->weight);
    }
    t->count = t->first + n;
    if (fixed) t->upper = (int16_t *)(t->fixed + all), t->lower = t->upper + all;
    if (filter == RESIZE_NEAREST) nearest_taps(t, rule, in, out, from, to);
    for (size_t i = 0; i < n && filter != RESIZE_NEAREST; i++) {
        if (rule == RESIZE_PILLOW || rule == RESIZE_PILLOW_12)
            pillow_tap(t, i, filter, in, out, from + i);
        else if (rule == RESIZE_TORCHVISION)
            torch_tap(t, i, filter, in, out, from + i);
        else if (filter == RESIZE_AREA && !area)
            area_tap(t, i, in, out, from + i);
        else
            opencv_tap(t, i, filter, area, form, in, out, from + i);
    }
    for (size_t i = 0; t->f32 && i < all; i++) t->f32[i] = (float)t->weight[i];
    if (fixed) to_fixed(t, form);
    return CHURON_OK;
}

void taps_free(taps *t) {
    mem_free(t->first);
    mem_free(t->weight);
    mem_free(t->f32);
    mem_free(t->fixed);
    *t = (taps){0};
}
